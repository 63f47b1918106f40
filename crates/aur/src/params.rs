//! [`Params`]: the parameters of a request, parsed by aurweb's rules.
//!
//! If the query string has an argument, only its arguments count. Otherwise those of path and body do. (The path's argument
//! counts even beside other query parameters; aurweb drops it there, and its clients' searches fail.)

use std::borrow::Cow;

use memchr::{memchr, memchr2, memrchr_iter};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::error::QueryError;
use crate::options::{NAMES, RawOptions};

/// An argument. In a query string a bare `+` means a plus to aurweb, and a space to most clients' encoders. Both
/// readings are stored, and the searched field decides which one is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arg {
    /// With `+` read as a plus.
    pub literal: String,
    /// With `+` read as a space, if that makes a difference.
    pub spaced: Option<String>,
}

impl From<String> for Arg {
    fn from(literal: String) -> Arg {
        Arg { literal, spaced: None }
    }
}

/// The parameters in the path, as in `/rpc/v5/search/{arg}`. Values are percent-decoded.
#[derive(Clone, Debug, Default)]
pub struct PathParams {
    /// The version after `v`, as written.
    pub version: Option<String>,
    /// The type.
    pub type_: Option<String>,
    /// The field (version 6).
    pub by: Option<String>,
    /// The mode (version 6).
    pub mode: Option<String>,
    /// The argument.
    pub arg: Option<String>,
}

/// The body of a POST.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// `application/x-www-form-urlencoded`, or of no declared type.
    Form(&'a [u8]),
    /// `application/json`.
    Json(&'a [u8]),
    /// The fields of `multipart/form-data`.
    Fields(&'a [(String, String)]),
}

/// The parameters of a query before validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    pub(crate) version: Option<String>,
    pub(crate) type_: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) callback: Option<String>,
    /// Parameters that upstream does not have, if there are any.
    pub(crate) given: Option<Box<RawOptions>>,
    /// The arguments in the order of the request.
    pub(crate) args: Vec<Arg>,
    /// Index in `args` of the argument that a query with one argument uses.
    pub(crate) single: usize,
    /// The error in a JSON body; it is reported before any other.
    pub(crate) malformed: Option<QueryError>,
    /// See [`Params::outlined`].
    pub(crate) is_outlined: bool,
}

impl Params {
    /// The parameters of a GET.
    pub fn from_query(path: PathParams, query: Option<&str>) -> Params {
        let mut params = Params::default();
        params.take_query(query.unwrap_or_default(), path.version.as_deref());
        params.take_path(path);
        params
    }

    /// The parameters of a POST.
    pub fn from_body(path: PathParams, query: Option<&str>, body: Body<'_>) -> Params {
        let query = query.unwrap_or_default();
        let mut params = Params::default();
        let is_typed = path.type_.is_some();
        match body {
            Body::Json(bytes) => params.take_json(bytes, &path),
            // Some clients post JSON without declaring it, on paths where aurweb expects JSON only.
            Body::Form(bytes) if is_typed && looks_like_json(bytes) => {
                params.take_json(bytes, &path);
            }
            Body::Form(bytes) => {
                params.take_form(&path, &form_pairs(bytes));
            }
            Body::Fields(pairs) => {
                params.take_form(&path, pairs);
            }
        }
        if !query.is_empty() {
            let form = std::mem::take(&mut params);
            params.take_query(query, path.version.as_deref().or(form.version.as_deref()));
            params.version = form.version.or(params.version);
            params.type_ = form.type_.or(params.type_);
            params.by = form.by.or(params.by);
            params.mode = form.mode.or(params.mode);
            params.callback = form.callback.or(params.callback);
            params.malformed = form.malformed;
            params.given = match (form.given, params.given) {
                (Some(form), Some(query)) => Some(Box::new(form.or(*query))),
                (form, query) => form.or(query),
            };
        }
        params.take_path(path);
        params
    }

    /// Asks that an answer with a list of packages says where it repeats itself ([`reply::Reply::outline`]), so that compressing
    /// it takes less time.
    pub fn outlined(self) -> Params {
        Params { is_outlined: true, ..self }
    }

    fn take_path(&mut self, path: PathParams) {
        self.version = path.version.or(self.version.take());
        self.by = match is_without_field(self.version.as_deref(), path.type_.as_deref()) {
            true => None,
            false => path.by.or(self.by.take()),
        };
        self.type_ = path.type_.or(self.type_.take());
        self.mode = path.mode.or(self.mode.take());
        if self.args.is_empty()
            && let Some(arg) = path.arg
        {
            self.args = vec![arg.into()];
            self.single = 0;
        }
    }

    /// Sets one named parameter; if it is repeated, the last one counts.
    fn set(&mut self, key: &str, value: &str) {
        let slot = match key {
            "v" => &mut self.version,
            "type" => &mut self.type_,
            "by" => &mut self.by,
            "mode" => &mut self.mode,
            "callback" => &mut self.callback,
            _ => return self.set_option(key, value),
        };
        *slot = Some(value.to_owned());
    }

    /// Sets a parameter that upstream does not have; others are passed over.
    #[cold]
    fn set_option(&mut self, key: &str, value: &str) {
        if NAMES.contains(&key) {
            self.given.get_or_insert_default().set(key, value.to_owned());
        }
    }

    /// Whether the question has something that upstream does not have, and is one for packages: suggestions pass over it. To answer it
    /// may take some time.
    pub fn are_refined(&self) -> bool {
        let has_more = self.given.as_ref().is_some_and(|given| !given.is_empty())
            || matches!(self.mode.as_deref(), Some("words" | "regex"));
        has_more
            && matches!(self.type_.as_deref(), Some("info" | "multiinfo" | "search" | "msearch"))
    }

    /// Whether an answer may have fields that are not in a snapshot ([`Outside`](crate::SearchContext)).
    pub fn may_add(&self) -> bool {
        self.are_refined() && self.given.as_ref().is_some_and(|given| given.may_add())
    }

    /// `version`: that of the path or a form, which goes before the query's.
    fn take_query(&mut self, query: &str, version: Option<&str>) {
        if query.is_empty() {
            return;
        }
        for (key, value) in pairs(query) {
            // Fast path: most keys are those of arguments, which are handled elsewhere.
            let may_be_option = matches!(
                key.as_bytes().first(),
                Some(
                    b'v' | b't'
                        | b'b'
                        | b'm'
                        | b'c'
                        | b's'
                        | b'o'
                        | b'l'
                        | b'f'
                        | b'k'
                        | b'a'
                        | b'%'
                )
            );
            if !may_be_option || key.starts_with("arg") {
                continue;
            }
            let key = decode(key, true);
            // Only the values of known parameters are decoded; others may hold anything.
            if matches!(key.as_ref(), "v" | "type" | "by" | "mode" | "callback") {
                self.set(&key, &decode(value, true));
            } else if NAMES.contains(&key.as_ref()) {
                self.set_option(&key, &decode(value, true));
            }
        }
        if version.or(self.version.as_deref()) == Some("6") {
            self.take_all_query_args(query);
        } else {
            self.take_query_args(query);
        }
    }

    /// Version 6 uses every argument, and reads a bare plus as a space.
    fn take_all_query_args(&mut self, query: &str) {
        for (key, value) in pairs(query) {
            if matches!(decode(key, true).as_ref(), "arg" | "arg[]") {
                self.args.push(decode(value, true).into_owned().into());
            }
        }
    }

    /// aurweb percent-decodes the whole query before it splits it, and looks at the last argument. An `arg` counts
    /// alone; an `arg[]` makes a list with those before it, back to an `arg`.
    fn take_query_args(&mut self, query: &str) {
        let is_encoded = memchr2(b'%', b'+', query.as_bytes()).is_some();
        let bytes: Cow<'_, [u8]> =
            if is_encoded { decoded_bytes(query).into() } else { query.as_bytes().into() };
        let mut end = bytes.len();
        let starts = memrchr_iter(b'&', &bytes).map(|at| at + 1).chain([0]);
        for start in starts {
            let piece = &bytes[start..end];
            end = start.saturating_sub(1);
            let (is_list, value) = match piece {
                [b'a', b'r', b'g', b'=', value @ ..] => (false, value),
                [b'a', b'r', b'g', b'[', b']', b'=', value @ ..] => (true, value),
                _ => continue,
            };
            if !is_list && !self.args.is_empty() {
                break;
            }
            let with = |plus: u8| {
                let value: Vec<u8> =
                    value.iter().map(|&byte| if byte == BARE_PLUS { plus } else { byte }).collect();
                String::from_utf8(value)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
            };
            let spaced = value.contains(&BARE_PLUS).then(|| with(b' '));
            self.args.push(Arg { literal: with(b'+'), spaced });
            if !is_list {
                break;
            }
        }
        // The arguments were collected from the end of the query.
        self.args.reverse();
        self.single = self.args.len().saturating_sub(1);
    }

    /// A form's last `arg`, unless it is empty, together with all its `arg[]`. In version 6 every `arg` counts.
    fn take_form(&mut self, path: &PathParams, fields: &[(String, String)]) {
        let mut single = None;
        let mut listed = Vec::new();
        for (key, value) in fields {
            match key.as_str() {
                "arg" => single = Some(value),
                "arg[]" => listed.push(value),
                _ => self.set(key, value),
            }
        }
        let args = if path.version.as_deref().or(self.version.as_deref()) == Some("6") {
            let all = fields.iter().filter(|(key, _)| matches!(key.as_str(), "arg" | "arg[]"));
            all.map(|(_, value)| value).collect()
        } else {
            single.into_iter().filter(|value| !value.is_empty()).chain(listed).collect::<Vec<_>>()
        };
        self.args = args.into_iter().map(|value| value.clone().into()).collect();
        // An empty form field was not filled in; an empty item of a list counts.
        for slot in [&mut self.by, &mut self.mode, &mut self.version, &mut self.type_] {
            if slot.as_deref() == Some("") {
                *slot = None;
            }
        }
    }

    fn take_json(&mut self, bytes: &[u8], path: &PathParams) {
        if path.type_.is_none() {
            // aurweb reads JSON on the typed paths only; on others such a body is ignored.
            return;
        }
        let Ok(Value::Object(members)) = serde_json::from_slice(bytes) else {
            self.malformed = Some(QueryError::BodyNotJson);
            return;
        };
        let is_of_version_6 = path.version.as_deref() == Some("6");
        if !is_without_field(path.version.as_deref(), path.type_.as_deref()) {
            match members.get("by") {
                None => {}
                Some(Value::String(by)) => self.by = Some(by.clone()),
                Some(_) => self.malformed = Some(QueryError::ByNotString),
            }
        }
        if let Some(Value::String(mode)) = members.get("mode") {
            self.mode = Some(mode.clone());
        }
        for name in NAMES {
            let value = match members.get(name) {
                None | Some(Value::Null) => continue,
                Some(Value::String(text)) => text.clone(),
                Some(Value::Array(items)) => {
                    let items = items.iter().map(|item| item.as_str().unwrap_or_default());
                    items.collect::<Vec<_>>().join(",")
                }
                Some(other) => other.to_string(),
            };
            self.set_option(name, &value);
        }
        let takes_list = matches!(path.type_.as_deref(), Some("info" | "multiinfo"));
        match members.get("arg") {
            None => {}
            Some(Value::Array(items)) if takes_list || is_of_version_6 => {
                for (index, item) in items.iter().enumerate() {
                    match item {
                        // aurweb drops the first item if Python treats it as false.
                        _ if index == 0 && is_false(item) => {}
                        // null is a package without a name, which never exists.
                        Value::Null => self.args.push(String::new().into()),
                        Value::String(text) => self.args.push(text.clone().into()),
                        Value::Array(_) | Value::Object(_) => {
                            self.malformed.get_or_insert(QueryError::ArgNotString);
                        }
                        other => self.args.push(other.to_string().into()),
                    }
                }
            }
            // In a search an empty argument counts as missing.
            Some(Value::String(text))
                if text.is_empty() && path.type_.as_deref() == Some("search") => {}
            Some(Value::String(text)) if !takes_list => self.args.push(text.clone().into()),
            Some(_) => {
                let error =
                    if takes_list { QueryError::ArgNotList } else { QueryError::ArgNotString };
                self.malformed.get_or_insert(error);
            }
        }
    }
}

/// Whether `by` is ignored where a path has this type. `info` and suggestions have no use for it, and version 5 reads
/// it only in `/rpc`, where all types share one parameter list.
fn is_without_field(version: Option<&str>, type_of_path: Option<&str>) -> bool {
    version != Some("6")
        && matches!(type_of_path, Some("info" | "multiinfo" | "suggest" | "suggest-pkgbase"))
}

/// Whether Python treats this value as false.
fn is_false(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_true) => !is_true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// Stands for a bare plus while a query is decoded; this byte never occurs in UTF-8.
const BARE_PLUS: u8 = 0xff;

/// A query, percent-decoded, with [`BARE_PLUS`] for each bare plus.
fn decoded_bytes(query: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(query.len());
    let mut rest = query.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => bytes.push(BARE_PLUS),
            b'%' => match hexadecimal(rest) {
                Some(decoded) => {
                    // An encoded 0xff is not valid text either; it becomes the replacement character of lossy decoding.
                    if decoded == BARE_PLUS {
                        bytes.extend_from_slice("\u{fffd}".as_bytes());
                    } else {
                        bytes.push(decoded);
                    }
                    rest = &rest[2..];
                }
                None => bytes.push(b'%'),
            },
            _ => bytes.push(byte),
        }
    }
    bytes
}

/// The value of two hexadecimal digits at the start of `bytes`.
fn hexadecimal(bytes: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    Some((digit(0)? * 16 + digit(1)?) as u8)
}

fn looks_like_json(bytes: &[u8]) -> bool {
    matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// The undecoded keys and values between `&`; a piece without `=` is a key without a value.
fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = Some(query);
    std::iter::from_fn(move || {
        let (pair, after) = cut(rest?, b'&');
        rest = after;
        let (key, value) = cut(pair, b'=');
        Some((key, value.unwrap_or("")))
    })
}

/// The text before the first `mark`, an ASCII byte, and the text after it if there is a mark.
fn cut(text: &str, mark: u8) -> (&str, Option<&str>) {
    match memchr(mark, text.as_bytes()) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Percent-decodes `text`; bytes that are not UTF-8 become U+FFFD.
fn decode(text: &str, plus_is_space: bool) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+' && plus_is_space) {
        return Cow::Borrowed(text);
    }
    if plus_is_space && text.contains('+') {
        let spaced = text.replace('+', " ");
        return Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned());
    }
    percent_decode_str(text).decode_utf8_lossy()
}

/// The pairs of a URL-encoded form. Empty pieces (as from a leading `&`) are skipped.
fn form_pairs(bytes: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(bytes);
    pairs(&text)
        .filter(|(key, value)| !(key.is_empty() && value.is_empty()))
        .map(|(key, value)| (decode(key, true).into_owned(), decode(value, true).into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(params: &Params) -> String {
        let args: Vec<&str> = params.args.iter().map(|arg| arg.literal.as_str()).collect();
        let single = params.args.get(params.single).map_or("-", |arg| arg.literal.as_str());
        format!("{} ({single})", args.join(" "))
    }

    #[track_caller]
    fn check(query: &str, expected: &str) {
        assert_eq!(
            shown(&Params::from_query(PathParams::default(), Some(query))),
            expected,
            "{query}"
        );
    }

    #[test]
    fn arguments_of_a_query() {
        check("arg[]=a&arg=b", "b (b)");
        check("arg=a&arg[]=b", "b (b)");
        check("arg=a&arg[]=b&type=info&arg[]=c", "b c (c)");
        check("arg=a&arg=b", "b (b)");
        check("arg[]=a&arg[]=b", "a b (b)");
        check("arg=libstdc++5", "libstdc++5 (libstdc++5)");
        check("arg=a%26arg%3Db", "b (b)");
        check("arg%5B%5D=x&arg%5b%5d=y", "x y (y)");
        check("arg[]", " (-)");
        check("arg=", " ()");
        check("%61rg=a%FFb", "a\u{fffd}b (a\u{fffd}b)");
        check("arg=100%", "100% (100%)");
        check("arg=%zz%4", "%zz%4 (%zz%4)");
    }

    #[test]
    fn version_6_takes_every_argument() {
        check("v=6&arg=a+b&arg=c&arg[]=d", "a b c d (a b)");
    }

    #[test]
    fn a_bare_plus_has_two_readings() {
        let params = Params::from_query(PathParams::default(), Some("arg=a+b%2B"));
        assert_eq!(params.args, [Arg { literal: "a+b+".into(), spaced: Some("a b+".into()) }]);
    }

    #[track_caller]
    fn check_body(type_: &str, query: &str, body: Body<'_>, expected: &str) {
        let type_ = (!type_.is_empty()).then(|| type_.to_owned());
        let path = PathParams {
            version: type_.as_ref().map(|_| "5".into()),
            type_,
            ..PathParams::default()
        };
        let params = Params::from_body(path, Some(query), body);
        assert_eq!(shown(&params), expected, "{body:?}");
    }

    #[test]
    fn arguments_of_a_body() {
        check_body("", "", Body::Form(b"&arg[]=a&arg[]=b+c"), "a b c (a)");
        check_body("", "", Body::Form(b"arg%5B%5D=b&arg=a&arg[]=c"), "a b c (a)");
        check_body("", "x=1", Body::Form(b"arg=a"), " (-)");
        check_body("", "arg=q", Body::Form(b"arg=a"), "q (q)");
        check_body("info", "", Body::Json(br#"{"arg":["a",null,"",1]}"#), "a   1 (a)");
        for first in [r#""""#, "null", "0", "0.0", "false", "[]", "{}"] {
            let body = format!(r#"{{"arg":[{first},"a"]}}"#);
            check_body("info", "", Body::Json(body.as_bytes()), "a (a)");
        }
        check_body("search", "", Body::Json(br#"{"arg":""}"#), " (-)");
        check_body("suggest", "", Body::Json(br#"{"arg":""}"#), " ()");
        check_body("", "", Body::Form(b"arg[]="), " ()");
        check_body("", "", Body::Form(b"arg[]"), " ()");
        check_body("", "", Body::Form(b"arg=a&arg="), " (-)");
        check_body("", "", Body::Form(b"arg=&arg[]=&arg[]=a"), " a ()");
        check_body("info", "", Body::Form(br#" {"arg":["a"]}"#), "a (a)");
        check_body("", "", Body::Json(br#"{"arg":["a"]}"#), " (-)");
        check_body("search", "", Body::Json(br#"{"arg":"a","by":"name"}"#), "a (a)");
    }

    #[test]
    fn malformed_bodies() {
        for (type_, body, error) in [
            ("info", "{", QueryError::BodyNotJson),
            ("info", "[]", QueryError::BodyNotJson),
            ("info", r#"{"arg":"a"}"#, QueryError::ArgNotList),
            ("info", r#"{"arg":null}"#, QueryError::ArgNotList),
            ("search", r#"{"arg":["a"]}"#, QueryError::ArgNotString),
            ("search", r#"{"by":null,"arg":"a"}"#, QueryError::ByNotString),
        ] {
            let path = PathParams { type_: Some(type_.into()), ..PathParams::default() };
            let params = Params::from_body(path, None, Body::Json(body.as_bytes()));
            assert_eq!(params.malformed, Some(error), "{body}");
        }
    }

    #[test]
    fn parameters_of_a_query_count_beside_those_of_a_body() {
        let path = || PathParams { type_: Some("search".into()), ..PathParams::default() };
        let given = |pairs: &[(&str, &str)]| {
            let mut given = RawOptions::default();
            pairs.iter().for_each(|(name, value)| given.set(name, (*value).to_owned()));
            Some(Box::new(given))
        };
        for body in [
            Body::Form(b"arg=a&sort=name&order=&limit="),
            Body::Json(br#"{"arg":"a","sort":"name","order":null,"limit":""}"#),
        ] {
            let params = Params::from_body(path(), Some("limit=5&sort=votes"), body);
            assert_eq!(params.given, given(&[("sort", "name"), ("limit", "5")]), "{body:?}");
        }
    }

    #[test]
    fn suggestions_and_empty_parameters_are_as_they_are_upstream() {
        let are_refined =
            |query: &str| Params::from_query(PathParams::default(), Some(query)).are_refined();
        assert!(are_refined("type=search&arg=x&limit=5"));
        assert!(are_refined("type=search&arg=x&mode=words"));
        for type_ in ["suggest", "suggest-pkgbase", "opensearch-suggest", "x", ""] {
            assert!(!are_refined(&format!("type={type_}&arg=x&limit=100000&mode=regex")));
        }
        assert!(!are_refined("type=search&arg=x&limit=&sort=&order=&offset=&fields=&keywords="));
    }

    #[test]
    fn a_path_argument_counts_beside_other_parameters() {
        let path = PathParams { arg: Some("x".into()), ..PathParams::default() };
        assert_eq!(shown(&Params::from_query(path.clone(), Some("by=name"))), "x (x)");
        assert_eq!(shown(&Params::from_query(path, Some("arg=y"))), "y (y)");
    }
}
