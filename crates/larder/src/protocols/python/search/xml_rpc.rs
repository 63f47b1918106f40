//! The one XML-RPC call that is answered: `search`, as `pip search` sends it.
//!
//! `<methodCall>` with a struct of `name` and `summary`, each a text or a list of texts, and `and` or `or`. Everything else in
//! it is ignored; entities beyond XML's own are refused, so that none can expand.

use std::fmt::Write as _;

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_xml_entity};
use quick_xml::events::Event;

/// The greatest depth of nested elements.
const DEPTH_MAX: usize = 32;

/// Texts of one query.
const TERMS_MAX: usize = 16;

/// What is searched for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// Texts that a name must contain.
    pub(super) terms: Vec<String>,
    /// Whether a name must contain all of them, or any.
    pub(super) wants_all: bool,
}

/// The body is no such call.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    #[error("the body is not XML: {0}")]
    Xml(String),
    #[error("unknown method `{0}`: only `search` is supported")]
    Method(String),
    #[error("the elements lie deeper than {DEPTH_MAX}")]
    Depth,
}

impl Query {
    /// Reads a call.
    pub(super) fn read(body: &[u8]) -> Result<Query, CallError> {
        let broken = |error: &dyn std::fmt::Display| CallError::Xml(error.to_string());
        let body = std::str::from_utf8(body).map_err(|error| broken(&error))?;
        let mut reader = Reader::from_str(body);
        let mut call = Call::default();
        let mut depth = 0_usize;
        loop {
            match reader.read_event().map_err(|error| broken(&error))? {
                Event::Start(_) => {
                    depth += 1;
                    if depth > DEPTH_MAX {
                        return Err(CallError::Depth);
                    }
                    call.text.clear();
                }
                Event::End(element) => {
                    depth = depth.saturating_sub(1);
                    call.end(element.name().as_ref());
                }
                Event::Text(text) => {
                    call.text.push_str(&text.decode().map_err(|error| broken(&error))?);
                }
                Event::CData(text) => {
                    call.text.push_str(&text.decode().map_err(|error| broken(&error))?);
                }
                Event::GeneralRef(reference) => {
                    match reference.resolve_char_ref().map_err(|error| broken(&error))? {
                        Some(character) => call.text.push(character),
                        None => {
                            let name = reference.decode().map_err(|error| broken(&error))?;
                            let text = resolve_xml_entity(&name);
                            call.text.push_str(text.ok_or_else(|| {
                                CallError::Xml(format!("the entity `{name}` is not XML's own"))
                            })?);
                        }
                    }
                }
                Event::Eof if depth > 0 => return Err(CallError::Xml("it is cut off".to_owned())),
                Event::Eof => break,
                _ => {}
            }
        }
        if call.method != "search" {
            return Err(CallError::Method(record::excerpt(&call.method, 80).to_owned()));
        }
        Ok(call.query())
    }
}

/// A call while it is read.
#[derive(Default)]
struct Call {
    method: String,
    /// Since the last element began or ended.
    text: String,
    /// The name of a struct's member.
    member: Option<String>,
    /// Texts of members, each with its member's name.
    terms: Vec<(String, String)>,
    operator: Option<String>,
}

impl Call {
    fn end(&mut self, element: &[u8]) {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match element {
            b"methodName" => self.method = text.to_owned(),
            b"name" => self.member = Some(text.to_owned()),
            b"member" => self.member = None,
            b"value" | b"string" if !text.is_empty() => match &self.member {
                Some(member) if self.terms.len() < TERMS_MAX => {
                    self.terms.push((member.clone(), text.to_owned()));
                }
                Some(_) => {}
                None => self.operator = Some(text.to_owned()),
            },
            _ => {}
        }
    }

    fn query(self) -> Query {
        let of = |name: &str| {
            let terms = self.terms.iter().filter(|(member, _)| member == name);
            terms.map(|(_, text)| text.clone()).collect::<Vec<_>>()
        };
        // Only names are searched. A query for summaries alone searches names, too.
        let names = of("name");
        let terms = if names.is_empty() { of("summary") } else { names };
        Query { terms, wants_all: self.operator.as_deref() != Some("or") }
    }
}

/// One result.
pub(super) struct Item<'hit> {
    pub(super) name: &'hit str,
    pub(super) version: &'hit str,
    pub(super) summary: String,
}

const START: &str = "<?xml version='1.0'?>\n<methodResponse>\n";

/// The answer with these results, best first.
pub(super) fn response<'hit>(items: impl Iterator<Item = Item<'hit>>) -> String {
    let mut text = format!("{START}<params><param><value><array><data>\n");
    for (position, item) in items.enumerate() {
        let members =
            [("name", item.name), ("summary", item.summary.as_str()), ("version", item.version)];
        text.push_str("<value><struct>");
        for (name, value) in members {
            // Writing to memory cannot fail.
            let _ = write!(
                text,
                "<member><name>{name}</name><value><string>{}</string></value></member>",
                escape(plain(value))
            );
        }
        let _ = writeln!(
            text,
            "<member><name>_pypi_ordering</name><value><int>{position}</int></value></member>\
             </struct></value>"
        );
    }
    text.push_str("</data></array></value></param></params>\n</methodResponse>\n");
    text
}

/// The answer to a body that is not a valid call, or calls an unknown method.
pub(super) fn fault(error: &CallError) -> String {
    let code = if matches!(error, CallError::Method(_)) { -32601 } else { -32700 };
    let text = plain(&error.to_string());
    format!(
        "{START}<fault><value><struct>\
         <member><name>faultCode</name><value><int>{code}</int></value></member>\
         <member><name>faultString</name><value><string>{}</string></value></member>\
         </struct></value></fault>\n</methodResponse>\n",
        escape(text)
    )
}

/// The text without characters that XML cannot have.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, params: &str) -> String {
        format!(
            "<?xml version='1.0'?>\n<methodCall>\n<methodName>{method}</methodName>\n<params>{params}</params>\n\
             </methodCall>"
        )
    }

    #[track_caller]
    fn check(body: &str, expected: Result<(&[&str], bool), &str>) {
        let found = Query::read(body.as_bytes()).map_err(|error| error.to_string());
        let expected = expected.map_err(str::to_owned).map(|(terms, wants_all)| {
            let terms = terms.iter().map(|term| (*term).to_owned()).collect();
            Query { terms, wants_all }
        });
        assert_eq!(found, expected, "{body}");
    }

    #[test]
    fn calls() {
        let member = |name: &str, values: &str| {
            format!("<member><name>{name}</name><value>{values}</value></member>")
        };
        let list = "<array><data>\n<value><string>one</string></value>\n<value>a &lt; &#98;</value>\n</data></array>";
        let both = format!(
            "<param><value><struct>{}{}</struct></value></param>",
            member("name", list),
            member("summary", list)
        );
        let or = "<param><value><string>or</string></value></param>";
        check(&call("search", &format!("{both}\n{or}")), Ok((&["one", "a < b"], false)));
        check(&call("search", &both), Ok((&["one", "a < b"], true)));
        let only =
            format!("<param><value><struct>{}</struct></value></param>", member("summary", "x"));
        check(&call("search", &only), Ok((&["x"], true)));
        check(&call("search", ""), Ok((&[], true)));
        check(
            &call("list_packages", ""),
            Err("unknown method `list_packages`: only `search` is supported"),
        );
        check("<a>", Err("the body is not XML: it is cut off"));
        check(&"<a>".repeat(40), Err("the elements lie deeper than 32"));
        let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaa\">]><methodCall><methodName>&a;</methodName></methodCall>";
        check(bomb, Err("the body is not XML: the entity `a` is not XML's own"));
    }

    #[test]
    fn answers() {
        let item = Item { name: "p", version: "1.0", summary: "[u/i] <b> & \u{1}c".to_owned() };
        let text = response(std::iter::once(item));
        assert!(text.contains("<string>[u/i] &lt;b&gt; &amp; c</string>"), "{text}");
        assert!(text.contains("<name>_pypi_ordering</name><value><int>0</int></value>"), "{text}");
        assert!(
            fault(&CallError::Method("<x>".to_owned())).contains("unknown method `&lt;x&gt;`:")
        );
    }
}
