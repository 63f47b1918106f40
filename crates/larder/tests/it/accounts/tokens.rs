//! `/+tokens`: what users do about their tokens themselves.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Place, prepare};
use crate::asking::{Ask, Says as _, texts};
use crate::browser::Browser;
use crate::client::Response;
use crate::process::Process;
use crate::shown::shown_json;
use crate::wait_until;

impl Ask {
    /// Asks about tokens; nobody may keep the answer.
    #[track_caller]
    fn of_tokens(&self, method: &str, target: &str, body: &str) -> Response {
        let response = self.clone().typed("application/json").send(method, target, body);
        response.has("cache-control", "no-store");
        response
    }

    #[track_caller]
    fn check(&self, method: &str, target: &str, body: &str, status: u16, says: &str) {
        self.of_tokens(method, target, body).tells(status, says);
    }

    #[track_caller]
    fn make(&self, target: &str, wish: &Value) -> Value {
        let response = self.of_tokens("POST", target, &wish.to_string()).expect(201);
        assert!(response.find("x-larder-serial").is_some());
        response.json()
    }

    #[track_caller]
    fn ids(&self, target: &str) -> Vec<String> {
        let json = self.of_tokens("GET", target, "").expect(200).json();
        texts(&json["tokens"], "id")
    }
}

fn start() -> Process {
    Process::start(&["--aur-enabled=false"], |directory| {
        let place = prepare(directory);
        place.add("alice", "a");
        place.add("bob", "b");
    })
}

#[test]
fn users_make_and_revoke_their_own() {
    let process = start();
    let alice = process.user("alice", "a");
    assert_eq!(alice.ids("/+tokens"), [""; 0]);
    let wish = json!({"scopes": ["article:write"], "expires": "90d", "comment": "for ci"});
    let made = alice.make("/+tokens", &wish);
    assert_snapshot!("made", shown_json(&made));
    let token = made["token"].as_str().expect("the token");
    let id = made["id"].as_str().expect("an id");
    assert_eq!(alice.ids("/+tokens"), [id]);
    let list = alice.of_tokens("GET", "/+tokens", "").text();
    assert!(!list.contains(token.rsplit('_').next().expect("its secret")), "{list}");

    let with_token = process.bearer(token);
    // It opens at once.
    with_token.post("/article/one/0", "text").expect(201);
    // This token cannot manage tokens.
    let why = "this token may not manage tokens: it lacks the scope `user:admin`";
    with_token.check("GET", "/+tokens", "", 403, why);
    with_token.check("POST", "/+tokens", r#"{"scopes":["article:read"]}"#, 403, why);
    with_token.check("DELETE", &format!("/+tokens/{id}"), "", 403, why);

    alice.check("DELETE", &format!("/+tokens/{id}"), "", 204, "");
    alice.check("DELETE", &format!("/+tokens/{id}"), "", 404, "token 'TOKEN_ID' does not exist");
    with_token.check(
        "GET",
        "/+tokens",
        "",
        401,
        "the token `TOKEN…` is not known here: it was revoked, or is another server's",
    );
    let place = Place(process.directory.path());
    assert_eq!(place.json("token list --json"), json!([]), "and so says the command line");
}

#[test]
fn a_token_may_make_narrower_ones_if_it_may_make_any() {
    let process = start();
    let alice = process.user("alice", "a");
    let made = alice.make("/+tokens", &json!({"scopes": ["user:admin", "python:upload"]}));
    let token = bearer(&process, &made);
    token.make("/+tokens", &json!({"scopes": ["python:read"]}));
    for scope in ["python:admin", "*"] {
        let wish = json!({"scopes": [scope]}).to_string();
        let why = format!(
            "no permission to create a token for {scope} with credentials for python:upload,user:admin: only administrators may"
        );
        token.check("POST", "/+tokens", &wish, 403, &why);
    }
}

#[test]
fn a_limited_token_manages_none() {
    let process = start();
    let alice = process.user("alice", "a");
    let wish = json!({
        "scopes": ["*"], "indexes": ["/alice/dev/", "team/*"], "projects": ["Foo.Bar"], "prefixes": ["docs"],
    });
    let made = alice.make("/+tokens", &wish);
    let limits = |token: &Value| {
        ["is_limited", "indexes", "projects", "prefixes"].map(|name| token[name].clone())
    };
    let expected =
        [json!(true), json!(["alice/dev", "team/*"]), json!(["foo-bar"]), json!(["/docs/"])];
    assert_eq!(limits(&made), expected);
    let list = alice.of_tokens("GET", "/+tokens", "").json();
    assert_eq!(limits(&list["tokens"][0]), expected);
    let place = Place(process.directory.path());
    assert_eq!(limits(&place.json("token list --json")[0]), expected);
    let token = bearer(&process, &made);
    let why = "this token is limited to project `foo-bar` of alice/dev, team/* and articles below `/docs/`; it \
               may not manage users, tokens or the server";
    token.check("GET", "/+tokens", "", 403, why);
    token.check("POST", "/+tokens", &wish.to_string(), 403, why);
    let path = format!("/+tokens/{}", made["id"].as_str().expect("an id"));
    token.check("DELETE", &path, "", 403, why);
    let free = alice.make("/+tokens", &json!({"scopes": ["python:read"]}));
    assert_eq!(limits(&free), [json!(false), json!([]), json!([]), json!([])]);
    assert_eq!(alice.ids("/+tokens").len(), 2);
}

#[test]
fn others_tokens_are_the_administrators_business() {
    let process = start();
    let (alice, bob) = (process.user("alice", "a"), process.user("bob", "b"));
    let root = process.user("root", "horse");
    let made = alice.make("/+tokens", &json!({"scopes": ["*"]}));
    let path = format!("/+tokens/{}", made["id"].as_str().expect("an id"));
    let why = "no permission to manage tokens of user alice: only `alice` and administrators may";
    bob.check("GET", "/+tokens?user=alice", "", 403, why);
    bob.check("POST", "/+tokens?user=alice", r#"{"scopes":["*"]}"#, 403, why);
    bob.check("DELETE", &path, "", 404, "token 'TOKEN_ID' does not exist");
    assert_eq!(alice.ids("/+tokens?user=alice").len(), 1);
    assert_eq!(root.ids("/+tokens?user=alice").len(), 1);
    assert_eq!(root.ids("/+tokens"), [""; 0]);
    root.check("GET", "/+tokens?user=carol", "", 404, "user 'carol' does not exist");
    root.check(
        "POST",
        "/+tokens?user=carol",
        r#"{"scopes":["*"]}"#,
        404,
        "user 'carol' does not exist",
    );
    let made = root.make("/+tokens?user=alice", &json!({"scopes": ["python:read"]}));
    assert_eq!(made["user"], "alice");
    root.check("DELETE", &path, "", 204, "");
    assert_eq!(alice.ids("/+tokens").len(), 1);
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let process = start();
    let alice = process.user("alice", "a");
    let large = format!(r#"{{"scopes":["*"],"comment":"{}"}}"#, "x".repeat(20_000));
    let all = r#"{"scopes":["*"]}"#;
    let wishes = [
        "",
        "[]",
        "{}",
        r#"{"scopes":["*"],"user":"bob"}"#,
        r#"{"scopes":"*"}"#,
        r#"{"scopes":[]}"#,
        r#"{"scopes":["article:eat"]}"#,
        r#"{"scopes":["*"],"expires":"soon"}"#,
        r#"{"scopes":["*"],"expires":"2020-01-01"}"#,
        r#"{"scopes":["*"],"comment":"a\nb"}"#,
        r#"{"scopes":["*"],"indexes":[]}"#,
        r#"{"scopes":["*"],"projects":[],"indexes":["a/b"]}"#,
        r#"{"scopes":["*"],"indexes":["dev"]}"#,
        r#"{"scopes":["*"],"indexes":["*/*"]}"#,
        r#"{"scopes":["*"],"projects":["a/b"]}"#,
        r#"{"scopes":["*"],"prefixes":["a//b"]}"#,
        r#"{"scopes":["*"],"prefixes":"/docs/"}"#,
        r#"{"scopes":["user:admin"],"indexes":["a/b"]}"#,
        r#"{"scopes":["python:read"],"prefixes":["/a/"]}"#,
    ];
    let wishes = wishes.map(|body| ("POST", "/+tokens", body));
    let rows = [
        ("POST", "/+tokens", &*large),
        ("GET", "/+tokens?whose=bob", ""),
        ("GET", "/+tokens?user=alice&user=bob", ""),
        ("GET", "/+tokens?user=a/b", ""),
        ("GET", "/+tokens?unused=long", ""),
        ("GET", "/+tokens?unused=1d&unused=2d", ""),
        ("GET", "/+tokens?user=*", ""),
        ("POST", "/+tokens?user=*", all),
        ("POST", "/+tokens?unused=1d", all),
        ("DELETE", "/+tokens/12", ""),
        ("DELETE", "/+tokens", ""),
        ("GET", "/+tokens/000000000000", ""),
    ];
    let told = wishes.into_iter().chain(rows).map(|(method, target, body)| {
        let answer = alice.of_tokens(method, target, body);
        let body = body.get(..100).unwrap_or(body);
        format!("{method} {target} {body}\n  {} {}\n", answer.status, answer.told())
    });
    assert_snapshot!("refused", told.collect::<String>());
    let wrong = process.user("alice", "wrong");
    wrong.check("GET", "/+tokens", "", 401, "user 'alice' could not be authenticated");
    process.get("/+tokens").expect(401).has("www-authenticate", "Basic realm=\"pypi\"");
    // A page of another site can send no other type than such.
    alice.clone().typed("text/plain").post("/+tokens", all).expect(415);
    assert_eq!(alice.ids("/+tokens"), [""; 0], "nothing came of all this");
}

#[test]
fn tokens_made_on_the_command_line_are_listed() {
    let process = start();
    let alice = process.user("alice", "a");
    Place(process.directory.path()).token("alice --scope article:read");
    wait_until("the token", || alice.ids("/+tokens").len() == 1);
}

fn bearer(process: &Process, made: &Value) -> Ask {
    process.bearer(made["token"].as_str().expect("the token"))
}

#[test]
fn a_token_has_an_end_unless_its_maker_says_otherwise() {
    let process = start();
    let alice = process.user("alice", "a");
    let days = |made: &Value| {
        let time = |name: &str| made[name].as_str()?.parse::<jiff::Timestamp>().ok();
        Some((time("expires_at")?.duration_since(time("created_at")?).as_hours() + 12) / 24)
    };
    let scopes = json!(["python:read"]);
    assert_eq!(days(&alice.make("/+tokens", &json!({"scopes": scopes}))), Some(365));
    let wish = json!({"scopes": scopes, "expires": "never"});
    assert_eq!(days(&alice.make("/+tokens", &wish)), None);
    let place = Place(process.directory.path());
    let made = |arguments: &str| days(&place.json(&format!("token create bob {arguments} --json")));
    assert_eq!(made("--scope python:read"), Some(365));
    assert_eq!(made("--scope python:read --users-token-days 30"), Some(30));
    assert_eq!(made("--scope python:read --users-token-days 0"), None);
    assert_eq!(made("--scope python:read --expires never"), None);
}

/// Before its end, a token is marked on the page of its owner, and for administrators.
#[test]
fn a_token_that_ends_soon_is_marked() {
    let process = start();
    let alice = process.user("alice", "a");
    for (comment, expires) in [("last", "2h"), ("soon", "5d"), ("late", "90d"), ("ever", "never")] {
        let wish = json!({"scopes": ["python:read"], "comment": comment, "expires": expires});
        alice.make("/+tokens", &wish);
    }
    let mut own = Browser::of(process.client, "alice", "a");
    let mut root = Browser::of(process.client, "root", "horse");
    for page in [own.get("/+account").text(), root.get("/+manage/tokens").text()] {
        page.says(["expires within a day", "expires in 4 days"]);
        page.lacks("expires in 89 days");
    }
}

#[test]
fn the_last_use_is_kept_over_a_restart() {
    let mut process = start();
    let alice = process.user("alice", "a");
    let wish = json!({"scopes": ["python:read"], "comment": "used"});
    let used = bearer(&process, &alice.make("/+tokens", &wish));
    let unused = alice.make("/+tokens", &json!({"scopes": ["python:read"], "comment": "unused"}));
    let uses = |process: &Process| {
        let list = process.user("alice", "a").of_tokens("GET", "/+tokens", "").json();
        let tokens = list["tokens"].as_array().expect("tokens").clone();
        let use_of = |comment: &str| {
            let mut those = tokens.iter().filter(|token| token["comment"] == comment);
            those.next().expect("the token")["last_used_at"].clone()
        };
        [use_of("used"), use_of("unused")]
    };
    assert_eq!(uses(&process), [json!(null), json!(null)]);
    used.get("/alice").expect(200);
    let [before, none] = uses(&process);
    assert!(before.is_string() && none.is_null(), "{before} {none}");
    process.stop();
    let process = Process::start_in(process.directory.clone(), "data", &["--aur-enabled=false"]);
    assert_eq!(uses(&process), [before.clone(), json!(null)]);

    // The command line and administrators see it, too.
    let place = Place(process.directory.path());
    let list = place.json("token list alice --json");
    assert_eq!(list[0]["last_used_at"], before);
    let now = jiff::Timestamp::now();
    assert_eq!(place.json("token list --unused 90d --json"), json!([]), "at {now}");
    assert_eq!(place.json("token list --unused 0s --json").as_array().map(Vec::len), Some(2));
    let root = process.user("root", "horse");
    let first =
        |target: &str| root.of_tokens("GET", target, "").expect(200).json()["tokens"][0].clone();
    assert_eq!(first("/+tokens?user=*")["comment"], "used", "the older sign of use comes first");
    assert_eq!(root.ids("/+tokens?user=*&unused=90d"), [""; 0]);
    assert_eq!(first("/+tokens?user=alice&unused=0s")["last_used_at"], before);
    let id = unused["id"].as_str().expect("an id");
    root.check("DELETE", &format!("/+tokens/{id}"), "", 204, "");
}

#[test]
fn who_finds_a_token_revokes_it() {
    let process = start();
    let alice = process.user("alice", "a");
    let make = || alice.make("/+tokens", &json!({"scopes": ["python:read"]}));
    let (one, other, kept) = (make(), make(), make());
    let text = |made: &Value| made["token"].as_str().expect("the token").to_owned();
    let end = if text(&kept).ends_with('0') { "1" } else { "0" };
    let wrong = format!("{}{end}", &text(&kept)[..text(&kept).len() - 1]);
    let send =
        |body: &str| process.client.post("/+tokens/found", "application/json", body.as_bytes());
    let found = |body: &Value| send(&body.to_string());

    let labels = found(&json!({"token": text(&one), "url": "https://code.example/a#L1"}));
    let labels = labels.expect(200).has("cache-control", "no-store").json();
    let expected = json!([{"id": one["id"], "label": "true_positive", "token_type": null}]);
    assert_eq!(labels, expected);
    bearer(&process, &one).check(
        "GET",
        "/+tokens",
        "",
        401,
        "the token `TOKEN…` is not known here: it was revoked, or is another server's",
    );
    process.wait_for_log("token_found");
    process.wait_for_log("https://code.example/a#L1");

    // A scanner sends a list; what is no token, or was one, is not.
    let list = json!([
        {"token": text(&other), "type": "larder_token", "url": "", "source": "content"},
        {"token": text(&one), "type": "larder_token", "url": "", "source": "content"},
        {"token": wrong, "type": "larder_token"},
        {"token": "larder_", "type": "larder_token"},
    ]);
    let labels = found(&list).expect(200).json();
    let labels: Vec<_> = (0..4).map(|at| labels[at]["label"].clone()).collect();
    let none = "false_positive";
    assert_eq!(labels, ["true_positive", none, none, none]);
    assert_eq!(alice.ids("/+tokens"), [kept["id"].as_str().expect("an id")]);

    for body in ["", "{}", "7", r#"["larder_"]"#, r#"{"token":7}"#] {
        send(body).tells(400, "the body names no tokens; expected: {\"token\": \"larder_…\", \"url\": \"https://…\"}, or a list of at most 100 such objects");
    }
    let many = json!(vec![json!({"token": "x"}); 101]);
    found(&many).tells(400, "the body names 101 tokens; expected: {\"token\": \"larder_…\", \"url\": \"https://…\"}, or a list of at most 100 such objects");
    let large = json!({"token": "x".repeat(70_000)});
    found(&large).expect(413);
}
