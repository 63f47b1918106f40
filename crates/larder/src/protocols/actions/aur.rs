//! `aur.…`: queries about packages, answered byte for byte like `/rpc`.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ::aur::{Answer, Body, By, Kind, Outcome as Answered, Params, PathParams};
use http::StatusCode;
use serde_json::{Value, json};

use super::arguments::arguments;
use super::{ActionResult, Arguments, Context, Definition, Failure, Handler};
use crate::front::loaded::no_packages;

pub(crate) const ACTIONS: &[Definition] = &[
    Definition {
        name: "aur.info",
        summary: "Everything about packages by their names; the result is that of /rpc/v5/info.",
        arguments: Info::DESCRIBED,
        example: r#"{"names":["attest"]}"#,
        writes: false,
        handler: Handler::Read(info),
    },
    Definition {
        name: "aur.search",
        summary: "Packages that a search finds; the result is that of /rpc/v5/search.",
        arguments: Search::DESCRIBED,
        example: r#"{"needle":"attest"}"#,
        writes: false,
        handler: Handler::Read(search),
    },
    Definition {
        name: "aur.suggest",
        summary: "Up to 20 package names that begin with the prefix; the result is that of /rpc/v5/suggest.",
        arguments: Suggest::DESCRIBED,
        example: r#"{"prefix":"att"}"#,
        writes: false,
        handler: Handler::Read(suggest),
    },
];

/// The values of `mode`.
const MODES: [&str; 2] = ["contains", "starts-with"];

arguments! {
    /// Names packages.
    struct Info {
        /// Names of packages; those that do not exist are left out of the result.
        names: Vec<String>,
    }
}

arguments! {
    /// A search: the needle, the field, and the comparison.
    struct Search {
        /// The text to find: at least two characters, except for a maintainer. `arg`, its name in /rpc, is accepted too.
        #[serde(alias = "arg")]
        needle: String,
        /// The field to search: name, name-desc (the default), maintainer, submitter, comaintainers, depends,
        /// makedepends, checkdepends, optdepends, provides, conflicts, replaces, keywords or groups.
        by: Option<String>,
        /// How names and descriptions are compared: contains (the default) or starts-with.
        mode: Option<String>,
    }
}

arguments! {
    /// The prefix of names.
    struct Suggest {
        /// The prefix of the names.
        prefix: String,
    }
}

fn info(context: &Context, arguments: Arguments<'_>) -> ActionResult {
    let Info { names } = arguments.read()?;
    ask(context, Kind::Info, json!({"arg": names}))
}

fn search(context: &Context, arguments: Arguments<'_>) -> ActionResult {
    let Search { needle, by, mode } = arguments.read()?;
    let mut members = json!({"arg": needle});
    if let Some(by) = by {
        if By::parse(&by).is_none() {
            return Err(not_among("by", &by, By::ALL.iter().map(|by| by.name())));
        }
        members["by"] = by.into();
    }
    if let Some(mode) = mode {
        if !MODES.contains(&mode.as_str()) {
            return Err(not_among("mode", &mode, MODES));
        }
        members["mode"] = mode.into();
    }
    ask(context, Kind::Search, members)
}

fn suggest(context: &Context, arguments: Arguments<'_>) -> ActionResult {
    let Suggest { prefix } = arguments.read()?;
    ask(context, Kind::Suggest, json!({"arg": prefix}))
}

fn not_among(name: &str, value: &str, known: impl IntoIterator<Item = &'static str>) -> Failure {
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    let value = super::request::shortened(value);
    Failure::refused(format!("`{name}` is `{value}`, expected one of: {known}"))
}

/// Asks like a POST to `/rpc/v5/{kind}` with this body, and counts against the same rate limit.
fn ask(context: &Context, kind: Kind, members: Value) -> ActionResult {
    let app = &context.app;
    let published = context.aur.as_ref().ok_or_else(no_packages)?;
    let decision = app.aur.rate_limiter.check(context.client, Instant::now());
    if !decision.allowed {
        app.metrics.rpc_rate_limited.inc();
        let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "Rate limit reached");
        return Err(Failure { retry_after_seconds: Some(decision.reset_after_seconds), ..failure });
    }
    let path = PathParams {
        version: Some("5".to_owned()),
        type_: Some(kind.name().to_owned()),
        ..PathParams::default()
    };
    let body = members.to_string();
    let params = Params::from_body(path, None, Body::Json(body.as_bytes()));
    let answer = Answer::to(params, &published.snapshot, false, app.aur.results_max.load(Relaxed));
    match answer.outcome {
        Answered::Answered(..) => Ok(answer.reply.body),
        Answered::Refused { error, .. } => Err(Failure::refused(error.to_string())),
    }
}
