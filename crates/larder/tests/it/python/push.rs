//! Pushes: into a stage, and to a server elsewhere that the test scripts.

use std::net::TcpListener;
use std::sync::Mutex;

use insta::assert_snapshot;
use serde_json::{Value, json};
use testbed::Receiver;

use super::{Index, Upload, path, result, sdist, zip};
use crate::asking::{Ask, Says as _, basic, each};
use crate::client::Response;
use crate::publishing::issuer::change;
use crate::shown::{redacted, shown_json};

/// A stage with a release: a file that was tested, and documentation.
fn released() -> (Index, Vec<u8>) {
    released_with("127.0.0.1")
}

/// [`released`], on a server that may push into these networks, too.
fn released_with(egress_allow: &str) -> (Index, Vec<u8>) {
    let index = Index::start_with(|config| {
        let networks = egress_allow.split_whitespace();
        config.egress_allow = networks.map(|network| network.parse().expect("a network")).collect();
    });
    index.stage("alice/dev", json!({}));
    index.stage("alice/final", json!({"volatile": false, "acl_upload": ["alice"]}));
    let content = sdist("x");
    let upload =
        Upload::of("p-1.0.zip", &content).set("summary", "a thing").set("classifiers", "A :: B");
    index.alice().upload("alice/dev", &upload).expect(200);
    let tested = path("alice/dev", "p-1.0.zip", &content);
    index.alice().post(&tested, json!({"ok": true})).expect(200);
    let docs = Upload::docs("p", "1.0", &zip(&[("index.html", b"<h1>p</h1>")]));
    index.alice().upload("alice/dev", &docs).expect(200);
    (index, content)
}

fn order(more: &Value) -> Value {
    let mut order = json!({"name": "p", "version": "1.0"});
    change(&mut order, more);
    order
}

#[test]
fn a_release_goes_into_another_stage_with_all_that_it_has() {
    let (index, content) = released();
    let kept = index.blobs();
    let into = order(&json!({"targetindex": "alice/final"}));
    let log = result(&index.alice().json().send("PUSH", "/alice/dev", into), "actionlog");
    assert_snapshot!("pushed_log", shown_json(&log));
    assert_eq!(index.blobs(), kept, "no byte is copied");
    let file = path("alice/final", "p-1.0.zip", &content);
    assert_eq!(index.anybody().get(&file).body, content);
    let tox = format!("/{}", log[2][2].as_str().expect("a path"));
    assert_eq!(index.anybody().get(&tox).json(), json!({"ok": true}));
    let data = result(&index.anybody().json().get("/alice/final/p/1.0"), "versiondata");
    assert_snapshot!("pushed_release", shown_json(&data));
}

/// Nothing changes, and it is told all the same; POST says the same, with a type or without.
#[test]
fn a_release_is_pushed_again() {
    let (index, _) = released();
    let into = order(&json!({"targetindex": "alice/final"}));
    let log = result(&index.alice().json().send("PUSH", "/alice/dev", into.clone()), "actionlog");
    let serial = || index.anybody().get("/+api").header("x-devpi-serial").to_owned();
    let before = serial();
    for ask in [index.alice(), index.alice().typed("application/json")] {
        assert_eq!(result(&ask.post("/alice/dev/", into.clone()), "actionlog"), log);
    }
    // `curl -d` says that it sends a form, whatever it sends.
    let form = || index.alice().typed("application/x-www-form-urlencoded");
    let text = format!(" \r\n{into}");
    for (method, target) in
        [("POST", "/alice/dev"), ("POST", "/alice/dev/"), ("PUSH", "/alice/dev")]
    {
        let pushed = form().send(method, target, text.as_bytes());
        assert_eq!(result(&pushed, "actionlog"), log, "{method} {target}");
    }
    assert_eq!(serial(), before);
    form().json().post("/alice/dev", "{").message(400, "Bad request: could not decode json");
    let neither = form().json().post("/alice/dev", "name=p&version=1.0");
    assert_eq!(neither.json()["code"], "400 :action field not found");
}

#[test]
fn without_or_with_nothing_but_documentation() {
    let (index, _) = released();
    for (stage, flag, steps) in [("alice/one", "no_docs", 3), ("alice/two", "only_docs", 2)] {
        index.stage(stage, json!({}));
        let order = order(&json!({"targetindex": stage, flag: true}));
        let log = result(&index.alice().send("PUSH", "/alice/dev", order), "actionlog");
        assert_eq!(log.as_array().map(Vec::len), Some(steps), "{stage}");
    }
}

/// Sends an order to push.
#[track_caller]
fn push(ask: &Ask, order: Value) -> Response {
    ask.clone().json().send("PUSH", "/alice/dev", order)
}

/// The order to push into `alice/final`, with more or other members.
fn into_final(more: &Value) -> Value {
    let mut order = order(&json!({"targetindex": "alice/final"}));
    change(&mut order, more);
    order
}

#[test]
fn orders_that_are_refused() {
    let (index, _) = released();
    each(
        [
            (json!({"targetindex": "alice"}), 400, "targetindex not in format user/index"),
            (json!({"targetindex": null}), 400, "targetindex not in format user/index"),
            (json!({"targetindex": "alice/none"}), 404, "The stage alice/none could not be found."),
            (
                json!({"no_docs": true, "only_docs": true}),
                400,
                "can't use 'no_docs' and 'only_docs' together",
            ),
            (json!({"x": 1}), 400, "unknown additional options: x"),
            (json!({"version": "2.0"}), 400, "there are no files for p 2.0 on stage alice/dev"),
            (json!({"name": "q"}), 400, "there are no files for q 1.0 on stage alice/dev"),
        ],
        |(more, status, text)| push(&index.alice(), into_final(&more)).message(status, text),
    );
    push(&index.alice(), order(&json!({}))).message(400, "targetindex not in format user/index");
    push(&index.alice(), json!({"targetindex": "alice/final"}))
        .message(400, "there are no files for   on stage alice/dev");
    let ask = index.alice();
    ask.send("PUSH", "/alice/dev", "{").message(400, "Bad request: could not decode json");
}

/// A missing release is reported first, then the target, then the right.
#[test]
fn whoever_may_not_push_is_told_what_is_wrong_before_that() {
    let (index, _) = released();
    let missing = "there are no files for p 2.0 on stage alice/dev";
    each(
        [
            (json!({"version": "2.0", "x": 1}), 400, missing),
            (json!({"version": "2.0", "targetindex": "x"}), 400, missing),
            (json!({"version": "2.0", "targetindex": "alice/none"}), 400, missing),
            (json!({"version": "2.0", "posturl": "http://h/", "targetindex": null}), 400, missing),
            (json!({"targetindex": "x", "x": 1}), 400, "unknown additional options: x"),
            (json!({"targetindex": "alice/none"}), 404, "The stage alice/none could not be found."),
        ],
        |(more, status, text)| {
            for ask in [index.user("bob"), index.anybody()] {
                push(&ask, into_final(&more)).message(status, text);
            }
        },
    );
    push(&index.user("bob"), into_final(&json!({}))).message(
        401,
        "user 'bob' cannot upload to 'alice/final': `bob` is not in `acl_upload` of alice/final",
    );
    push(&index.anybody(), into_final(&json!({})))
        .message(401, "user None cannot upload to 'alice/final'");
}

#[test]
fn a_refused_push_leaves_nothing() {
    let (index, _) = released();
    index.upload("alice/final", "p-1.0.zip", &sdist("another"));
    push(&index.alice(), into_final(&json!({})))
        .message(409, "p-1.0.zip already exists in non-volatile index");
    let data = result(&index.anybody().json().get("/alice/final/p/1.0"), "versiondata");
    assert_eq!(data["+links"].as_array().expect("links").len(), 1, "{data}");
}

#[test]
fn a_release_without_files_is_not_pushed() {
    let (index, _) = released();
    let form = index.alice().typed("application/x-www-form-urlencoded");
    form.post("/alice/dev/", ":action=submit&name=bare&version=1").expect(200);
    let bare = json!({"name": "bare", "version": "1", "targetindex": "alice/final"});
    push(&index.alice(), bare).message(404, "no release/files found for bare 1");
}

/// A server elsewhere that answers each request with the next of these.
fn answering(answers: &[&str]) -> Receiver {
    let answers: Vec<Vec<u8>> = answers.iter().rev().map(|it| it.as_bytes().to_vec()).collect();
    let answers = Mutex::new(answers);
    Receiver::start(move |_| answers.lock().expect("no panic").pop().unwrap_or_default())
}

fn order_to(elsewhere: &Receiver) -> Value {
    order(&json!({"posturl": elsewhere.url("/legacy/"), "username": "u", "password": "p:w"}))
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[test]
fn a_release_goes_to_a_server_elsewhere() {
    let (index, content) = released();
    let elsewhere = answering(&[OK, OK, OK]);
    let mut order = order_to(&elsewhere);
    order["register_project"] = json!(true);
    let pushed = index.alice().json().send("PUSH", "/alice/dev", order);
    let log = result(&pushed, "actionlog");
    let file = path("alice/dev", "p-1.0.zip", &content);
    let steps = json!([
        [200, "register", "p", "1.0"],
        [200, "upload", file[1..], ""],
        [200, "docfile", "p"]
    ]);
    assert_eq!(log, steps);
    for request in elsewhere.requests() {
        assert_eq!((&*request.method, &*request.path), ("POST", "/legacy/"));
        assert_eq!(request.header("authorization"), basic("u", "p:w"));
    }
    let sent = bodies(&elsewhere).iter().map(|it| fields(it)).collect::<Vec<_>>().join("\n\n");
    assert_snapshot!("pushed_elsewhere", redacted(&sent));
    sent.says(&record::Digest::of(&content).to_string());
}

/// The bodies of the requests.
fn bodies(elsewhere: &Receiver) -> Vec<String> {
    let requests = elsewhere.requests().into_iter();
    requests.map(|it| String::from_utf8_lossy(&it.body).into_owned()).collect()
}

/// The fields of a form, a line for each; of a file its name alone.
fn fields(request: &str) -> String {
    let parts = request.split("; name=\"").skip(1).filter_map(|part| part.split_once("\r\n\r\n"));
    let lines = parts.map(|(head, value)| match head.split_once("filename=\"") {
        Some((_, file)) => format!("file {}", file.split('"').next().unwrap_or_default()),
        None => format!(
            "{}={}",
            head.trim_end_matches('"'),
            value.split("\r\n").next().unwrap_or_default()
        ),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The action of each request, and the name of its file.
fn actions(elsewhere: &Receiver) -> Vec<String> {
    let of = |request: &String, start: &str| {
        let rest = request.split(start).nth(1)?;
        rest.split(['\r', '"']).find(|text| !text.is_empty()).map(str::to_owned)
    };
    let actions = bodies(elsewhere);
    let actions = actions.iter().map(|request| {
        let action = of(request, "name=\":action\"\r\n\r\n").unwrap_or_default();
        let file = of(request, "filename=\"").unwrap_or_default();
        format!("{action} {file}").trim_end().to_owned()
    });
    actions.collect()
}

#[test]
fn files_or_documentation_alone_go_elsewhere_too() {
    let (index, _) = released();
    for (option, expected) in
        [("no_docs", "file_upload p-1.0.zip"), ("only_docs", "doc_upload p.zip")]
    {
        let elsewhere = answering(&[OK]);
        let mut order = order_to(&elsewhere);
        order[option] = json!(true);
        let pushed = index.alice().json().send("PUSH", "/alice/dev", order);
        assert_eq!(result(&pushed, "actionlog").as_array().map(Vec::len), Some(1), "{option}");
        assert_eq!(actions(&elsewhere), [expected], "{option}");
    }
    index.upload("alice/dev", "q-1.0.zip", &sdist("y"));
    let order = json!({"name": "q", "version": "1.0", "posturl": "http://h/", "only_docs": true});
    let refused = index.alice().send("PUSH", "/alice/dev", order);
    refused.message(404, "no release/files found for q 1.0");
}

#[test]
fn a_push_elsewhere_goes_on_where_that_is_of_use() {
    let (index, _) = released();
    let second = Upload::named("p", "1.0", "p-1.0.linux-x86_64.zip", &sdist("second"));
    index.alice().upload("alice/dev", &second).expect(200);
    let gone = "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let no = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let files = ["file_upload p-1.0.linux-x86_64.zip", "file_upload p-1.0.zip", "doc_upload p.zip"];
    for (answers, status, told) in [
        // Indexes of today need no registration, and say so.
        (&[gone, OK, OK, OK][..], 200, json!([410, 200, 200, 200])),
        (&[no], 502, json!([403])),
        // If a file exists already, the others still follow.
        (&[OK, no, OK, OK], 502, json!([200, 403, 200, 200])),
        (&[OK, OK, OK, no], 502, json!([200, 200, 200, 403])),
    ] {
        let elsewhere = answering(answers);
        let mut order = order_to(&elsewhere);
        order["register_project"] = json!(true);
        let pushed = index.alice().json().send("PUSH", "/alice/dev", order);
        let statuses: Value = pushed.json()["result"]
            .as_array()
            .expect("a log")
            .iter()
            .map(|entry| entry[0].clone())
            .collect();
        assert_eq!((pushed.status, &statuses), (status, &told));
        let mut expected = vec!["submit"];
        expected.extend(&files[..answers.len() - 1]);
        assert_eq!(actions(&elsewhere), expected);
    }
    // No server is there: the first failure is reported, and nothing else is tried.
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", nobody.local_addr().expect("an address"));
    drop(nobody);
    let order = order(&json!({"posturl": url, "register_project": true}));
    let refused = index.alice().json().send("PUSH", "/alice/dev", order);
    let log = refused.json()["result"].clone();
    assert_eq!(
        (&log[0][0], &log[0][1], &log[1]),
        (&json!(-1), &json!("exception on register:"), &Value::Null)
    );
}

#[test]
fn attestations_go_along() {
    let (index, _) = released();
    let (filename, content) = ("q-1.0.zip", sdist("attested"));
    let attestation = super::attestations::attestation(filename, &content);
    let upload =
        Upload::of(filename, &content).set("attestations", &json!([attestation]).to_string());
    index.alice().upload("alice/dev", &upload).expect(200);
    let elsewhere = answering(&[OK]);
    let mut order = order_to(&elsewhere);
    order["name"] = json!("q");
    index.alice().json().send("PUSH", "/alice/dev", order).expect(200);
    let request = &bodies(&elsewhere)[0];
    let sent = request.split("name=\"attestations\"\r\n\r\n").nth(1).expect("the field");
    let sent: Value = serde_json::from_str(sent.lines().next().expect("a line")).expect("JSON");
    assert_eq!(sent, json!([attestation]));
}

/// The reason is cleaned and bounded; the body is not told, nor are headers.
#[test]
fn a_refusal_elsewhere_is_told_by_its_reason() {
    let (index, content) = released();
    let file = path("alice/dev", "p-1.0.zip", &content);
    let long = "y".repeat(300);
    let rows = [
        ("409 Conflict", "Conflict".to_owned()),
        ("400 File already exists", "File already exists".to_owned()),
        ("400 a\tb<", "a?b<".to_owned()),
        ("400 caf\u{e9}", String::new()),
        (&format!("403 {long}"), long[..200].to_owned()),
        ("403 ", String::new()),
    ];
    each(rows, |(line, reason)| {
        let answer = format!(
            "HTTP/1.1 {line}\r\nX-Secret: hidden\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhidden"
        );
        let elsewhere = answering(&[&answer, OK]);
        let refused = push(&index.alice(), order_to(&elsewhere)).expect(502);
        let status: u16 = line[..3].parse().expect("a status");
        let log = json!([[status, "upload", file[1..], reason], [200, "docfile", "p"]]);
        assert_eq!(refused.json()["result"], log);
        refused.lacks("hidden");
    });
}

/// What is not HTTP is not reported, and no password follows a redirect.
#[test]
fn what_goes_wrong_elsewhere_is_told() {
    let (index, _) = released();
    let push = |order: Value| push(&index.alice(), order);
    let elsewhere = answering(&["220 hidden.inside SMTP\r\n"]);
    let refused = push(order_to(&elsewhere));
    let entry = json!([[-1, "exception on release upload:", "the upload failed"]]);
    assert_eq!((refused.status, &refused.json()["result"]), (502, &entry));
    let trap = answering(&[OK]);
    let moved = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        trap.address
    );
    let elsewhere = answering(&[&moved, &moved]);
    let refused = push(order_to(&elsewhere));
    assert_eq!((refused.status, &refused.json()["result"][0][0]), (502, &json!(307)));
    assert!(trap.requests().is_empty());
    // No server is there.
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://user:secret@{}/", nobody.local_addr().expect("an address"));
    drop(nobody);
    let refused = push(order(&json!({"posturl": url}))).expect(502);
    let entry = &refused.json()["result"][0];
    assert_eq!((&entry[0], &entry[1]), (&json!(-1), &json!("exception on release upload:")));
    refused.lacks("secret");
}

#[test]
fn orders_to_push_elsewhere_that_are_refused() {
    let (index, _) = released();
    let push = |order: Value| push(&index.alice(), order);
    push(order(&json!({"posturl": "file:///etc/passwd"})))
        .message(400, "posturl was expected to be an http or https URL");
    index.anybody().send("PUSH", "/alice/dev", order(&json!({"posturl": "http://h/"}))).expect(401);
    let nothing = order(&json!({"posturl": "http://h/", "version": "9"}));
    push(nothing).message(400, "there are no files for p 9 on stage alice/dev");
}

/// A push is no way to reach what only the server can: neither by address, in any spelling, nor by name.
#[test]
fn pushes_stay_outside() {
    let (index, _) = released_with("");
    let inside = answering(&[OK]);
    let port = inside.address.port();
    let push = |url: &str, register: bool| {
        let order = order(&json!({"posturl": url, "register_project": register}));
        index.alice().json().send("PUSH", "/alice/dev", order)
    };
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0.0.0.0",
        "localhost",
        "localhost.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "u:p@127.0.0.1",
    ] {
        for register in [false, true] {
            let refused = push(&format!("http://{host}:{port}/legacy/"), register).expect(502);
            let entry = &refused.json()["result"][0];
            let text = entry[2].as_str().expect("a text");
            assert!(
                entry[0] == -1 && text.starts_with("no public address is known for `"),
                "{host}: {entry}"
            );
        }
    }
    for (url, host) in [
        ("http://169.254.169.254/latest/", "169.254.169.254"),
        ("http://[fd00::1]/", "[fd00::1]"),
        ("https://10.0.0.1/", "10.0.0.1"),
    ] {
        let text = format!(
            "no public address is known for `{host}`; `egress_allow` of the configuration may name others"
        );
        let told = json!([[-1, "exception on release upload:", text]]);
        assert_eq!(push(url, false).expect(502).json()["result"], told);
    }
    assert!(inside.requests().is_empty());
    // By name, where the setting names what the name leads to.
    let (index, _) = released_with("127.0.0.0/8 ::1");
    let url = format!("http://localhost:{port}/legacy/");
    let pushed = index.alice().json().send("PUSH", "/alice/dev", order(&json!({"posturl": url})));
    assert!(!inside.requests().is_empty(), "{}", pushed.text());
}

#[test]
fn who_may_push_elsewhere_is_a_setting() {
    let index = Index::start_with(|config| {
        config.python.acl_push_outside = "bob".parse().expect("a list");
    });
    index.stage("alice/dev", json!({}));
    index.upload("alice/dev", "p-1.0.zip", &super::sdist("x"));
    let elsewhere = answering(&[]);
    let push = |user: &str| index.user(user).send("PUSH", "/alice/dev", order_to(&elsewhere));
    let text =
        "no permission to push to other servers: `alice` is not in `python.acl_push_outside`";
    push("alice").message(403, text);
    assert!(elsewhere.requests().is_empty());
}
