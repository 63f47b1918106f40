//! The actions of articles, by the rules of `/article/…`.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{noise, store, text, wiki, wiki_with};
use crate::asking::each;
use crate::client::Response;
use crate::server::TestServer;
use crate::shown::shown_json;

#[track_caller]
fn post(server: &TestServer, actions: &Value) -> Response {
    server.root().post("/actions", json!({"actions": actions}))
}

fn sample() -> TestServer {
    let server = wiki();
    for base in 0..4 {
        store(&server, &format!("welcome/{base}"), format!("# Text {base}\n").as_bytes());
    }
    server
}

#[test]
fn the_version_of_an_article() {
    let server = sample();
    let query =
        "%7B%22actions%22:%7B%22article.get_version%22:%7B%22name%22:%22welcome%22%7D%7D%7D";
    server.get(&format!("/?{query}")).expect(200).is(r#"{"version":4}"#);
    server.root().delete("/article/welcome/4");
    let response = server.get(&format!("/?{query}"));
    assert_eq!(response.json(), json!({"version": 5, "deleted": true}));
}

/// A server on which every example was run.
fn after_examples() -> TestServer {
    let server = sample();
    for action in server.get("/actions").json()["actions"].as_array().expect("actions") {
        server.root().post("/actions", action["example"].to_string().as_bytes()).expect(200);
    }
    server
}

#[test]
fn what_is_read_and_what_is_not_there() {
    let server = after_examples();
    for (arguments, text) in [
        (json!({"name": "welcome"}), "# Text 3\n"),
        (json!({"name": "welcome", "version": 2}), "# Text 1\n"),
    ] {
        let found = post(&server, &json!({"article.get": arguments})).expect(200).json();
        assert_eq!(found["text"], text, "{found}");
    }
    let history = json!({"article.history": {"name": "welcome", "limit": 1}});
    assert_snapshot!("history", shown_json(&post(&server, &history).expect(200).json()));
    let rows = [
        (
            "article.get",
            json!({"name": "welcome", "version": 9}),
            404,
            "`welcome` has no version 9: its latest is 4",
        ),
        (
            "article.get",
            json!({"name": "none"}),
            404,
            "there is no article `none`; a POST to `/article/none/0` creates it",
        ),
        (
            "article.get",
            json!({"name": "../etc"}),
            400,
            "`../etc` is not an article's name: `.` and `..` cannot be segments of it",
        ),
        (
            "article.get_version",
            json!({"name": "none"}),
            404,
            "there is no article `none`; a POST to `/article/none/0` creates it",
        ),
        (
            "article.get_version",
            json!({"nme": "none"}),
            400,
            "`nme`: unknown field `nme`, expected `name`",
        ),
        (
            "article.history",
            json!({"name": "welcome", "limit": 0}),
            400,
            "`limit` is 0, expected 1 to 1000",
        ),
    ];
    each(rows, |(action, arguments, status, text)| {
        post(&server, &json!({action: arguments})).tells(status, text);
    });
}

#[test]
fn what_is_written_and_what_is_refused() {
    let server = after_examples();
    let put = |version: u32, more: Value| {
        let mut arguments = json!({"name": "welcome", "version": version});
        for (name, value) in more.as_object().expect("an object") {
            arguments[name] = value.clone();
        }
        arguments
    };
    let put_it = |arguments: Value| post(&server, &json!({"article.put": arguments}));
    let rows = [
        (
            put(3, json!({"text": "x"})),
            409,
            "`welcome` is at version 4, by root at TIME, but this write was made from version 3",
        ),
        (put(9, json!({"text": "x"})), 409, "`welcome` has no version 9: its latest is 4"),
        (put(4, json!({})), 400, "expected either `text` or `base64`"),
        (put(4, json!({"text": "", "base64": ""})), 400, "expected either `text` or `base64`"),
        (
            put(4, json!({"base64": "?"})),
            400,
            "`base64` is not base64: Invalid symbol 63, offset 0.",
        ),
        (
            put(4, json!({"text": "x", "content_type": "no"})),
            400,
            "`no` is not a media type: `type/subtype`, perhaps with `; name=value`, in at most 255 bytes was expected",
        ),
    ];
    each(rows, |(arguments, status, text)| {
        put_it(arguments).tells(status, text);
    });
    let done = put_it(put(4, json!({"text": "é", "comment": "a & b?"}))).expect(200).json();
    assert_snapshot!("put", shown_json(&done));
    let page = server.get("/article/welcome");
    page.is("é").has("content-type", "text/markdown; charset=utf-8");
    put_it(put(5, json!({"base64": "/wA=", "content_type": "image/png"}))).expect(200);
    assert_eq!(server.get("/article/welcome").body, b"\xff\0");
    let read = post(&server, &json!({"article.get": {"name": "welcome"}})).expect(200).json();
    assert_eq!((&read["base64"], &read["content_type"]), (&json!("/wA="), &json!("image/png")));
}

/// What a program learns of a refusal at the path, it learns of the action, too, also among others.
#[test]
fn errors_have_the_members_of_those_of_the_paths() {
    let server = sample();
    let rows = [(3, "stale"), (0, "already_exists"), (9, "version_in_future")];
    each(rows, |(version, code)| {
        let target = format!("/article/welcome/{version}");
        let path = server.root().typed("text/markdown").post(&target, "x").expect(409).json();
        assert_eq!(path["code"], code);
        let put = json!({"name": "welcome", "version": version, "text": "x"});
        let mut alone = post(&server, &json!({"article.put": put})).expect(409).json();
        let among = post(&server, &json!({"article.put": put, "server.status": {}}));
        assert_eq!(among.expect(200).json()["article.put"]["error"], alone);
        let action = alone.as_object_mut().expect("an object").remove("action");
        assert_eq!((action, alone), (Some(json!("article.put")), path));
    });
    let server = wiki_with(|config| {
        config.article.acl_read = "root".parse().expect("a list");
        config.article.acl_write = "ann".parse().expect("a list");
    });
    server.add_user("ann", "open-sesame");
    let ann = || server.user("ann", "open-sesame");
    ann().write("a/0", "secret").expect(201);
    let put = json!({"actions": {"article.put": {"name": "a", "version": 0, "text": "x"}}});
    let refused = ann().post("/actions", put).expect(409).json();
    assert_snapshot!("refused_without_reading", shown_json(&refused));
}

#[test]
fn rights() {
    let server = sample();
    let body =
        json!({"actions": {"article.put": {"name": "a", "version": 0, "text": "x"}}}).to_string();
    server.post("/actions", "application/json", body.as_bytes()).expect(401);
    let target = format!("/?b64={}", base64_of(&body));
    server.root().get(&target).expect(405);
    server.get("/article/a").expect(404);

    let server = wiki_with(|config| config.article.acl_read = "root".parse().expect("a list"));
    store(&server, "a/0", b"secret");
    for action in ["article.get", "article.get_version", "article.history"] {
        let actions = json!({"actions": {action: {"name": "a"}}}).to_string();
        server.post("/actions", "application/json", actions.as_bytes()).expect(401).lacks("secret");
        server.root().post("/actions", actions.as_bytes()).expect(200);
    }
}

/// All actions of a request read one state, and what one of them writes shows in the next request.
#[test]
fn one_request_reads_one_state() {
    let server = sample();
    let text = r#"{"actions":{"article.get_version":{"name":"welcome"},
        "article.put":{"name":"welcome","version":4,"text":"five"},
        "article.get":{"name":"welcome"}}}"#;
    let response = server.root().post("/actions", text.as_bytes());
    let written = server.get("/article/welcome").header("x-larder-serial").to_owned();
    assert_eq!(response.header("x-larder-serial"), written, "the commit that it made");
    let json = response.json();
    assert_eq!(json["article.get_version"]["result"]["version"], 4);
    assert_eq!(json["article.put"]["result"]["version"], 5);
    assert_eq!(json["article.get"]["result"]["version"], 4);
    for actions in [
        json!({"article.get": {"name": "welcome"}}),
        json!({"article.get": {"name": "none"}}),
        json!({"article.get": {"name": "welcome"}, "server.status": {}}),
    ] {
        post(&server, &actions).has("x-larder-serial", &written);
    }
    let response = post(&server, &json!({"article.get": {"name": "welcome"}}));
    assert_eq!(response.json()["text"], "five");
}

#[test]
fn large_contents_are_read_elsewhere() {
    let server = wiki_with(|config| config.actions.results_bytes_max = 65_536);
    store(&server, "a/0", &noise(65_537));
    post(&server, &json!({"article.get": {"name": "a"}})).expect(413);
    // A long result is made on another thread.
    let server = wiki();
    for bytes in [65_536, 65_537, 300_000] {
        store(&server, &format!("{bytes}-text/0"), &text(bytes));
        store(&server, &format!("{bytes}-noise/0"), &noise(bytes));
        let get = |kind: &str| {
            let response =
                post(&server, &json!({"article.get": {"name": format!("{bytes}-{kind}")}}))
                    .expect(200);
            response.json()
        };
        assert!(get("text")["text"].as_str().is_some_and(|it| it.as_bytes() == text(bytes)));
        assert_eq!(get("noise")["size_bytes"], bytes);
        assert_eq!(get("noise")["base64"].as_str().map(str::len), Some(bytes.div_ceil(3) * 4));
    }
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(text)
}
