//! `/article/…` and `/articles`: versioned documents that many read and a few write.
//!
//! reading: name -> snapshot -> contents in memory -> response; writing: body -> blob -> change ->
//! commit -> response. Who may is looked at first, before a byte of a body is read.

pub(crate) mod call;
mod read;
mod write;

use std::sync::Arc;

use article::{ArticlePath, Target};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;

use super::error::HttpError;
use crate::app::App;

pub(super) use read::{Reads, is_open, list};

const LATEST_METHODS: &str = "GET, HEAD, PUT, DELETE, OPTIONS";
const VERSION_METHODS: &str = "GET, HEAD, POST, DELETE, OPTIONS";
const PAGE_METHODS: &str = "GET, HEAD, OPTIONS";

/// Everything under `/article/`.
pub(super) async fn answer(State(app): State<Arc<App>>, request: Request) -> Response {
    route(app, request).await.unwrap_or_else(HttpError::into_response)
}

async fn route(app: Arc<App>, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let path = parse_path(head.uri.path())?;
    let methods = match path.target {
        Target::Latest => LATEST_METHODS,
        Target::Version(_) => VERSION_METHODS,
        Target::History | Target::Diff => PAGE_METHODS,
    };
    match (&head.method, path.target) {
        (&Method::GET | &Method::HEAD, _) => read::answer(app, &head, path).await,
        (&Method::PUT, Target::Latest) => write::put(app, &head, path.name, None, body).await,
        (&Method::POST, Target::Version(base)) => {
            write::put(app, &head, path.name, Some(base), body).await
        }
        (&Method::DELETE, Target::Latest) => write::delete(app, &head, path.name, None).await,
        (&Method::DELETE, Target::Version(base)) => {
            write::delete(app, &head, path.name, Some(base)).await
        }
        (&Method::OPTIONS, _) => {
            let mut response = StatusCode::NO_CONTENT.into_response();
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
            Ok(response)
        }
        _ => Err(HttpError::method_not_allowed(&head.method, head.uri.path(), methods)),
    }
}

/// `/article` without a name.
pub(super) async fn no_name(request: Request) -> HttpError {
    let path = request.uri().path();
    let detail = format!(
        "`{path}` lacks the name of an article: `GET /article/NAME` reads one, `POST /article/NAME/0` makes one of the \
         body; `/articles` lists them"
    );
    HttpError::new(StatusCode::NOT_FOUND, detail)
}

fn parse_path(path: &str) -> Result<ArticlePath, HttpError> {
    let bad = |detail: String| HttpError::new(StatusCode::BAD_REQUEST, detail);
    let rest = path.strip_prefix("/article/").unwrap_or_default();
    let rest = percent_decode_str(rest)
        .decode_utf8()
        .map_err(|_| bad(format!("`{path}` is not UTF-8 after percent-decoding")))?;
    ArticlePath::parse(&rest).map_err(|error| bad(error.to_string()))
}

/// The value of a header as text; what is not UTF-8 is replaced.
fn text_of(headers: &HeaderMap, name: http::HeaderName) -> Option<std::borrow::Cow<'_, str>> {
    Some(String::from_utf8_lossy(headers.get(name)?.as_bytes()))
}

/// The parameters of a query, each at most once, and none but these.
fn parameters<const COUNT: usize>(
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
            HttpError::new(StatusCode::BAD_REQUEST, detail)
        };
        let at = names.iter().position(|known| *known == name).ok_or_else(|| bad("is unknown"))?;
        if values[at].replace(value.into_owned()).is_some() {
            return Err(bad("is given twice"));
        }
    }
    Ok(values)
}

/// A parameter as a number or whatever else is read from text.
fn parsed<T: std::str::FromStr>(
    name: &str,
    value: Option<String>,
    expected: &str,
) -> Result<Option<T>, HttpError> {
    let Some(value) = value else { return Ok(None) };
    value.parse().map(Some).map_err(|_| {
        let detail =
            format!("`{value}` is no value of the parameter `{name}`: expected {expected}");
        HttpError::new(StatusCode::BAD_REQUEST, detail)
    })
}
