//! `/actions` and `/?{"actions":…}`: many calls in one request.

mod bounds;
mod calls;
mod list;
mod pool;
mod refused;

use crate::client::Response;
use crate::server::small;

/// The answer to a body posted to `/actions`.
#[track_caller]
fn post(body: &str) -> Response {
    small().post("/actions", "application/json", body.as_bytes())
}
