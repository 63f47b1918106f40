//! HTML -> its tags and texts, with only the attributes that are used: a stranger may send thousands of others in a tag.

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};

/// The attributes that are looked at.
const ATTRIBUTES: [&str; 14] = [
    "align", "alt", "checked", "class", "colspan", "href", "id", "name", "rowspan", "src", "start",
    "style", "title", "type",
];

/// The attributes of a tag: each name once, with the value that stands first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes(Vec<(&'static str, Vec<u8>)>);

impl Attributes {
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_slice())
    }
}

/// A part of HTML. Comments and document types are left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    Start { name: Vec<u8>, attributes: Attributes, self_closing: bool },
    End(Vec<u8>),
    Text(Vec<u8>),
}

/// The tokens, in order.
pub(super) fn tokens(html: &str) -> impl Iterator<Item = Token> + '_ {
    let mut open: Option<(Vec<u8>, Attributes)> = None;
    // Whether the value that follows is that of the last attribute.
    let mut is_wanted = false;
    let take = move |event: CallbackEvent<'_>, _: Span<()>| -> Option<Token> {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                open = Some((name.to_vec(), Attributes::default()));
            }
            CallbackEvent::AttributeName { name } => {
                is_wanted = false;
                let known = ATTRIBUTES.into_iter().find(|known| known.as_bytes() == name);
                // An end tag may have some, too, which mean nothing.
                if let (Some(name), Some((_, attributes))) = (known, &mut open)
                    && attributes.get(name).is_none()
                {
                    attributes.0.push((name, Vec::new()));
                    is_wanted = true;
                }
            }
            CallbackEvent::AttributeValue { value } if is_wanted => {
                if let Some((_, attributes)) = &mut open
                    && let Some((_, last)) = attributes.0.last_mut()
                {
                    last.extend_from_slice(value);
                }
            }
            CallbackEvent::CloseStartTag { self_closing } => {
                let (name, attributes) = open.take()?;
                return Some(Token::Start { name, attributes, self_closing });
            }
            CallbackEvent::EndTag { name } => {
                open = None;
                return Some(Token::End(name.to_vec()));
            }
            CallbackEvent::String { value } => return Some(Token::Text(value.to_vec())),
            _ => {}
        }
        None
    };
    let mut emitter = CallbackEmitter::new(take);
    emitter.naively_switch_states(true);
    Tokenizer::new_with_emitter(html, emitter).map(|token| match token {
        Ok(token) => token,
        Err(never) => match never {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens, with each attribute that was kept.
    fn shown(html: &str) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let token = |token: Token| match token {
            Token::Start { name, attributes, self_closing } => {
                let own = attributes.0.iter();
                let own: String = own.map(|(name, it)| format!(" {name}={}", text(it))).collect();
                format!("<{}{own}{}>", text(&name), if self_closing { "/" } else { "" })
            }
            Token::End(name) => format!("</{}>", text(&name)),
            Token::Text(it) => text(&it),
        };
        tokens(html).map(token).collect()
    }

    #[test]
    fn attributes_that_are_looked_at_are_kept() {
        assert_eq!(
            shown("<a href='/x' onclick=run() HREF=/y id>t</a href=z><input checked type=a/>"),
            "<a href=/x id=>t</a><input checked= type=a/>"
        );
        assert_eq!(shown("<!doctype html><!-- c --><img alt=\"a &amp; b\"/>"), "<img alt=a & b/>");
        assert_eq!(shown("<script>a < b</script><p lang=q>"), "<script>a < b</script><p>");
    }

    #[test]
    fn no_other_attribute_is_kept_however_many_there_are() {
        let many: String = (0..20_000).map(|at| format!(" a{at}")).collect();
        assert_eq!(shown(&format!("<p{many} id=x{many}>")), "<p id=x>");
        assert_eq!(shown(&format!("<p{}>", " id=x".repeat(20_000))), "<p id=x>");
    }
}
