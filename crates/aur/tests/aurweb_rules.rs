//! Compares our answers to tens of thousands of requests with a model of aurweb's rules for parameters.
//!
//! The model was written from aurweb's behaviour: request -> [`Model`] -> an error, or a type, a field and arguments
//! -> the same question in its plainest form, whose answer must equal ours to the request. Where
//! `docs/aur-differences.md` lists a difference, the model gives its id and the request is skipped.
//! [`requests_that_differ`] collects the ids, so that a difference that no longer exists is noticed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use aur::{Answer, Body, By, DumpLimits, Params, PathParams, Snapshot};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

const DUMP: &str = r#"[
{"ID":1,"Name":"attest","PackageBaseID":1,"PackageBase":"attest","Version":"1-1","NumVotes":1,"Popularity":0.5,"FirstSubmitted":1,"LastModified":1,"Description":"says so","Maintainer":"anna","Submitter":"bert","Provides":["proof=1"],"Depends":["zlib>=1"],"Keywords":["at"],"Groups":["old"],"CoMaintainers":["carl"]},
{"ID":2,"Name":"attest-git","PackageBaseID":2,"PackageBase":"attest-git","Version":"1-1","NumVotes":1,"Popularity":0.5,"FirstSubmitted":1,"LastModified":1,"Maintainer":null,"Submitter":"anna","Provides":["attest"],"Conflicts":["attest"],"Replaces":["proof"]},
{"ID":3,"Name":"libstdc++5","PackageBaseID":3,"PackageBase":"libstdc++5","Version":"1-1","NumVotes":1,"Popularity":0.5,"FirstSubmitted":1,"LastModified":1,"Maintainer":"a","Submitter":"a","MakeDepends":["attest"],"CheckDepends":["attest"],"OptDepends":["attest"]},
{"ID":4,"Name":"yogurt","PackageBaseID":4,"PackageBase":"milk","Version":"1-1","NumVotes":1,"Popularity":0.5,"FirstSubmitted":1,"LastModified":1,"Description":"a&b =c"}
]"#;

static SNAPSHOT: LazyLock<Snapshot> = LazyLock::new(|| {
    aur::dump::read(DUMP.as_bytes(), &DumpLimits::default()).expect("a valid dump")
});

/// aurweb's answer to a request.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    /// The error's text, and the version in the error object.
    Error(&'static str, Option<i128>),
    Question {
        kind: String,
        by: String,
        args: Vec<String>,
    },
    /// Our answer differs, for the reason with this id.
    Differs(&'static str),
}
use Said::{Differs, Error, Question};

const NO_DATA: &str = "No request type/data specified.";

/// The parts of a request, in the bytes that are sent.
#[derive(Clone, Copy, Debug)]
enum Request<'a> {
    /// `GET /rpc?…`
    Get(&'a str),
    /// `POST /rpc`, a form.
    Form(&'a str),
    /// `GET /rpc/v5/{type}`, or with a slash and an argument, percent-encoded; and a query.
    Path(&'a str, Option<&'a str>, &'a str),
    /// `POST /rpc/v5/{type}` with JSON.
    Json(&'a str, &'a str),
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// `name=value` pairs of a query or form, in which a plus is a space.
fn pairs(text: &str) -> Vec<(String, String)> {
    let spaced = |text: &str| decoded(&text.replace('+', " "));
    let pieces = text.split('&').filter(|piece| !piece.is_empty());
    let pairs = pieces.map(|piece| piece.split_once('=').unwrap_or((piece, "")));
    pairs.map(|(name, value)| (spaced(name), spaced(value))).collect()
}

fn last(pairs: &[(String, String)], name: &str) -> Option<String> {
    pairs.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value.clone())
}

/// aurweb's arguments of a query string: aurweb decodes it before it splits it, and reads it from the end.
fn args_of_query(query: &str) -> Vec<String> {
    let query = decoded(query);
    let found: Vec<(bool, String)> = query
        .split('&')
        .rev()
        .filter_map(|piece| {
            let list = piece.strip_prefix("arg[]=").map(|value| (true, value.to_owned()));
            list.or_else(|| piece.strip_prefix("arg=").map(|value| (false, value.to_owned())))
        })
        .collect();
    match found.first() {
        None => Vec::new(),
        Some((false, only)) => vec![only.clone()],
        Some((true, _)) => {
            found.into_iter().take_while(|(is_list, _)| *is_list).map(|(_, value)| value).collect()
        }
    }
}

/// A version as aurweb's framework parses it; the outer `Err` is the id of a difference.
fn version(text: Option<&str>) -> Result<Option<i128>, &'static str> {
    let Some(text) = text else { return Ok(None) };
    if text.is_empty() {
        return Err("D21");
    }
    let known: BTreeMap<&str, i128> = [
        ("5", 5),
        ("05", 5),
        ("5.0", 5),
        ("5.000", 5),
        ("+5", 5),
        (" 5", 5),
        ("0_5", 5),
        ("5_0", 50),
        ("0", 0),
        ("-1", -1),
        ("4", 4),
        ("6", 6),
        ("18446744073709551615", u64::MAX.into()),
    ]
    .into();
    known.get(text).map(|version| Some(*version)).ok_or("D9")
}

fn handle(version: Option<i128>, kind: Option<&str>, by: &str, args: Vec<String>) -> Said {
    let bys = By::ALL.map(|by| by.name());
    let kinds = ["info", "multiinfo", "search", "msearch", "suggest", "suggest-pkgbase"];
    let error = |text| Error(text, version);
    match version {
        None => return error("Please specify an API version."),
        Some(5) => {}
        Some(_) => return error("Invalid version specified."),
    }
    if !bys.contains(&by) {
        return error("Incorrect by field specified.");
    }
    let Some(kind) = kind else { return error(NO_DATA) };
    if !kinds.contains(&kind) {
        return error("Incorrect request type specified.");
    }
    let kind = if kind == "multiinfo" { "info" } else { kind };
    let is_search_of_text = kind == "search" && by != "maintainer";
    if args.is_empty() && (kind == "info" || is_search_of_text) {
        return error(NO_DATA);
    }
    if is_search_of_text && args[0].chars().count() < 2 {
        return error("Query arg too small.");
    }
    let args = match kind {
        "info" => args,
        _ => args.into_iter().take(1).collect(),
    };
    Question { kind: kind.to_owned(), by: by.to_owned(), args }
}

/// Whether Python treats this value as true.
fn is_truthy(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
        && value.as_str() != Some("")
        && value.as_f64() != Some(0.0)
        && value.as_array().is_none_or(|items| !items.is_empty())
        && value.as_object().is_none_or(|members| !members.is_empty())
}

fn said(request: Request<'_>) -> Said {
    match request {
        Request::Get(query) => {
            let pairs = pairs(query);
            let version = match version(last(&pairs, "v").as_deref()) {
                Ok(version) => version,
                Err(id) => return Differs(id),
            };
            let by = last(&pairs, "by").unwrap_or_else(|| "name-desc".to_owned());
            let kind = last(&pairs, "type");
            handle(version, kind.as_deref(), &by, args_of_query(query))
        }
        Request::Form(form) => {
            // An empty field was not filled in; an empty item of a list counts.
            let pairs = pairs(form);
            let filled = |name| last(&pairs, name).filter(|value| !value.is_empty());
            let version = match version(filled("v").as_deref()) {
                Ok(version) => version,
                Err(id) => return Differs(id),
            };
            let by = filled("by").unwrap_or_else(|| "name-desc".to_owned());
            let listed = pairs.iter().filter(|(name, _)| name == "arg[]");
            let listed = listed.map(|(_, value)| value.clone());
            let args = filled("arg").into_iter().chain(listed).collect();
            handle(version, filled("type").as_deref(), &by, args)
        }
        Request::Path(kind, arg, query) => {
            if !["info", "search", "suggest"].contains(&kind) || kind == "suggest" && arg.is_none()
            {
                return Differs("D15");
            }
            let from_query = args_of_query(query);
            if arg.is_some() && from_query.is_empty() && !query.is_empty() {
                return Differs("D11");
            }
            let by = match kind {
                "search" => last(&pairs(query), "by"),
                _ => None,
            };
            let args = match query.is_empty() {
                true => arg.map(decoded).into_iter().filter(|arg| !arg.is_empty()).collect(),
                false => from_query,
            };
            handle(Some(5), Some(kind), by.as_deref().unwrap_or("name-desc"), args)
        }
        Request::Json(kind, body) => {
            let Ok(Value::Object(members)) = serde_json::from_str(body) else {
                return Differs("D13");
            };
            let by = match (kind, members.get("by")) {
                ("search", Some(Value::String(by))) => by.as_str(),
                ("search", Some(_)) => {
                    return Error("the 'by' parameter must be of string type", Some(5));
                }
                _ => "name-desc",
            };
            let args: Vec<Value> = match (kind, members.get("arg")) {
                (_, None) => Vec::new(),
                ("search", Some(text @ Value::String(_))) => vec![text.clone()],
                ("search", Some(_)) => {
                    return Error("the 'arg' parameter must be of string type", Some(5));
                }
                (_, Some(Value::Array(items))) => items.clone(),
                (_, Some(_)) => {
                    return Error("the 'arg' parameter must be of array type", Some(5));
                }
            };
            let (first, rest) = args.split_at(args.len().min(1));
            let args: Vec<&Value> =
                first.iter().filter(|value| is_truthy(value)).chain(rest).collect();
            if args.iter().any(|arg| arg.is_array() || arg.is_object()) {
                return Differs("D13");
            }
            if args.iter().any(|arg| arg.is_number() || arg.is_boolean()) {
                return Differs("D41");
            }
            let text = |value: &&Value| value.as_str().unwrap_or_default().to_owned();
            handle(Some(5), Some(kind), by, args.iter().map(text).collect())
        }
    }
}

fn params(request: Request<'_>) -> Params {
    let path = |kind: &str, arg: Option<&str>| PathParams {
        version: Some("5".to_owned()),
        type_: Some(kind.to_owned()),
        arg: arg.map(decoded),
        ..PathParams::default()
    };
    match request {
        Request::Get(query) => Params::from_query(PathParams::default(), Some(query)),
        Request::Form(form) => {
            Params::from_body(PathParams::default(), None, Body::Form(form.as_bytes()))
        }
        Request::Path(kind, arg, query) => Params::from_query(path(kind, arg), Some(query)),
        Request::Json(kind, body) => {
            Params::from_body(path(kind, None), None, Body::Json(body.as_bytes()))
        }
    }
}

/// The error of an answer with its version, or the sorted names in it: their order may differ (D3).
fn shown(params: Params) -> (Option<String>, Value, Vec<String>) {
    let answer = Answer::to(params, &SNAPSHOT, false, 5_000);
    let body: Value = serde_json::from_slice(&answer.reply.body).expect("JSON");
    let error = body["error"].as_str().map(str::to_owned);
    let list = body.as_array().or(body["results"].as_array()).expect("a list");
    let name = |item: &Value| item.as_str().or(item["Name"].as_str()).expect("a name").to_owned();
    let mut names: Vec<String> = list.iter().map(name).collect();
    names.sort();
    (error, body.get("version").cloned().unwrap_or_default(), names)
}

thread_local! {
    static DIFFERENT: RefCell<BTreeMap<&'static str, usize>> = RefCell::default();
}

#[track_caller]
fn check(request: Request<'_>) {
    let expected = match said(request) {
        Differs(id) => {
            DIFFERENT.with_borrow_mut(|counts| *counts.entry(id).or_default() += 1);
            return;
        }
        Error(text, version) => {
            let version = version.map_or(Value::Null, |version| {
                serde_json::from_str(&version.to_string()).expect("a number")
            });
            (Some(text.to_owned()), version, Vec::new())
        }
        Question { kind, by, args } => {
            // The question is sent as a form, since a query string cannot have `&` within an argument.
            let mut form = format!("v=5&type={kind}&by={by}");
            for arg in args {
                form.push_str(&format!("&arg[]={}", utf8_percent_encode(&arg, NON_ALPHANUMERIC)));
            }
            shown(params(Request::Form(&form)))
        }
    };
    assert_eq!(shown(params(request)), expected, "{request:?}");
}

const VERSIONS: [&str; 17] = [
    "",
    "v=5",
    "v=05",
    "v=5.0",
    "v=%2B5",
    "v=0_5",
    "v=5_0",
    "v=0",
    "v=-1",
    "v=4",
    "v=6",
    "v=6&v=5",
    "v=",
    "v=x",
    "v=5.5",
    "v=18446744073709551615",
    "v=99999999999999999999",
];
const TYPES: [&str; 12] = [
    "",
    "type=",
    "type=info",
    "type=multiinfo",
    "type=search",
    "type=msearch",
    "type=suggest",
    "type=suggest-pkgbase",
    "type=Info",
    "type=x",
    "type=x&type=info",
    "type=info&type=",
];
const ARGS: [&str; 26] = [
    "",
    "arg",
    "arg=",
    "arg=a",
    "arg=at",
    "arg=attest",
    "arg=attest&arg=",
    "arg=&arg=attest",
    "arg=attest&arg=yogurt",
    "arg[]",
    "arg[]=",
    "arg[]=&arg[]=",
    "arg[]=&arg[]=attest",
    "arg[]=attest&arg[]=",
    "arg[]=attest&arg[]=yogurt",
    "&arg[]=attest&arg[]=yogurt",
    "arg[]=attest&arg=yogurt",
    "arg=attest&arg[]=yogurt",
    "arg=attest&arg[]=yogurt&x=1&arg[]=libstdc%2B%2B5",
    "arg%5B%5D=attest&arg%5b%5d=yogurt",
    "arg=a%26b",
    "arg=attest%26arg%3Dyogurt",
    "arg%3Dattest",
    "arg==c",
    "arg=%C3%A9",
    "arg=att%65st&x=&&y",
];

/// Every value of `by`, no value, an empty one, two at once, and wrong ones.
fn bys() -> Vec<String> {
    let known = By::ALL.iter().map(|by| format!("by={}", by.name()));
    let other = ["", "by", "by=", "by=Name", "by=wrong", "by=wrong&by=name", "by=name&by="];
    known.chain(other.map(str::to_owned)).collect()
}

/// Joins the parts that are not empty to one query or form.
fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("&")
}

#[test]
fn queries_and_forms() {
    for version in VERSIONS {
        for kind in TYPES {
            for by in bys() {
                // Each order of the parts, so that each of them comes last once.
                for args in ARGS {
                    // If the version is refused, the arguments do not matter.
                    if version != "v=5" && !["", "arg=attest"].contains(&args) {
                        continue;
                    }
                    let query = joined(&[version, kind, &by, args]);
                    check(Request::Get(&query));
                    check(Request::Form(&query));
                    check(Request::Get(&joined(&[args, &by, kind, version])));
                }
            }
        }
    }
    requests_that_differ(&["D21", "D9"]);
}

#[test]
fn paths() {
    let names = ["attest", "a", "at%74est", "libstdc%2B%2B5", "no-such", "%C3%A9", "a%26b"];
    for kind in ["info", "search", "suggest", "msearch", "multiinfo", "suggest-pkgbase"] {
        for by in bys() {
            for args in ARGS {
                let query = joined(&[&by, args]);
                check(Request::Path(kind, None, &query));
                for name in names {
                    check(Request::Path(kind, Some(name), &query));
                }
            }
        }
    }
    requests_that_differ(&["D11", "D15"]);
}

#[test]
fn json() {
    let values = [
        "null",
        "true",
        "0",
        "1",
        r#""""#,
        r#""a""#,
        r#""attest""#,
        r#""é""#,
        "{}",
        r#"{"a":1}"#,
        "[]",
        r#"[""]"#,
        r#"["",""]"#,
        "[null]",
        "[null,null]",
        "[0]",
        "[false]",
        "[[]]",
        "[1]",
        r#"["attest"]"#,
        r#"["","attest"]"#,
        r#"["attest",""]"#,
        r#"["attest",null]"#,
        r#"["attest","yogurt","attest"]"#,
        r#"["attest",1]"#,
        r#"["attest",[]]"#,
        r#"[{},"attest"]"#,
    ];
    for kind in ["info", "search"] {
        for broken in ["", "{", "[]", "null", "1", r#""attest""#] {
            check(Request::Json(kind, broken));
        }
        check(Request::Json(kind, "{}"));
        for arg in values {
            check(Request::Json(kind, &format!(r#"{{"arg":{arg}}}"#)));
            check(Request::Json(kind, &format!(r#"{{"x":1,"arg":"a","arg":{arg}}}"#)));
            for by in By::ALL.map(|by| by.name()).into_iter().chain(["", "wrong", "Name"]) {
                check(Request::Json(kind, &format!(r#"{{"by":"{by}","arg":{arg}}}"#)));
            }
            for by in values {
                check(Request::Json(kind, &format!(r#"{{"by":{by},"arg":{arg}}}"#)));
                check(Request::Json(kind, &format!(r#"{{"by":{by}}}"#)));
            }
        }
    }
    requests_that_differ(&["D13", "D41"]);
}

/// Expects that exactly these differences occurred.
#[track_caller]
fn requests_that_differ(ids: &[&str]) {
    let counts = DIFFERENT.with_borrow(Clone::clone);
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), ids, "{counts:?}");
    let page = include_str!("../../../docs/aur-differences.md");
    for id in ids {
        assert!(page.contains(&format!("| {id} |")), "docs/aur-differences.md has no {id}");
    }
}
