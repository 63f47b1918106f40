//! The parameters of a query; parameters that the endpoint does not have are refused.

use super::error::HttpError;

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
