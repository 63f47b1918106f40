//! The parameters of a query. Programs are refused parameters that the endpoint does not have; pages for people ignore them.

use std::borrow::Cow;

use record::excerpt;

use super::error::HttpError;
use crate::front::request::Parts;

/// The first value of a parameter, whatever else the query has.
pub(crate) fn parameter<'head>(head: &'head Parts, name: &str) -> Option<Cow<'head, str>> {
    let mut pairs = form_urlencoded::parse(head.uri.query()?.as_bytes());
    pairs.find_map(|(found, value)| (found == name).then_some(value))
}

/// The first value of a parameter that people type, without spaces around it: at most so much of it, and empty without it.
pub(crate) fn typed_parameter(head: &Parts, name: &str, chars_max: usize) -> String {
    excerpt(parameter(head, name).unwrap_or_default().trim(), chars_max).to_owned()
}

/// Parses the parameters of a query: only these, each at most once.
pub(crate) fn parameters<const COUNT: usize>(
    query: Option<&str>,
    names: [&'static str; COUNT],
) -> Result<[Option<String>; COUNT], HttpError> {
    let mut values = [const { None }; COUNT];
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let bad = |what: &str| {
            let expected = if COUNT == 0 {
                "none".to_owned()
            } else {
                format!("any of: {}", names.join(", "))
            };
            let detail = format!("the parameter `{name}` {what}, expected {expected}");
            HttpError::bad_request(detail)
        };
        let at = names.iter().position(|known| *known == name).ok_or_else(|| bad("is unknown"))?;
        if values[at].replace(value.into_owned()).is_some() {
            return Err(bad("is given twice"));
        }
    }
    Ok(values)
}

/// A parameter as a number or whatever else is read from text.
pub(crate) fn parsed<T: std::str::FromStr>(
    name: &str,
    value: Option<String>,
    expected: &str,
) -> Result<Option<T>, HttpError> {
    let Some(value) = value else { return Ok(None) };
    value.parse().map(Some).map_err(|_| {
        let detail =
            format!("`{value}` is no value of the parameter `{name}`: expected {expected}");
        HttpError::bad_request(detail)
    })
}
