//! Files of articles where something is out of the ordinary: names, lost answers, restarts, records of another version.

use std::io::Write as _;

use record::{Batch, Expected, Key};
use serde_json::json;

use super::attachments::{PATH, added, names, put, told};
use super::words::limited;
use super::{code, noise, store, wiki, wiki_with};
use crate::asking::Says as _;
use crate::browser::Browser;
use crate::server::commit;
use crate::wait_until;

/// A follower reads after a restart what it had not read before, also of a renamed article.
#[test]
fn no_file_is_missed_over_a_restart() {
    let server = wiki();
    store(&server, "a/0", b"text");
    added(&server, PATH, b"one");
    added(&server, "/+attachments/a/y.png", b"one");
    put(&server, PATH, &[("If-Match", "*")], b"two").expect(200);
    server.root().post("/article/a/1?rename=b", ()).expect(201);
    let server = server.restarted();
    let told = told(&server);
    let told: Vec<_> = told
        .iter()
        .map(|line| {
            format!("{} {} {} {}", line["kind"], line["name"], line["file"], line["number"])
        })
        .collect();
    assert_eq!(told, [r#""added" "b" "y.png" 2"#, r#""changed" "b" "x.png" 3"#]);
    // Each has an id of its own.
    server.get("/changes.atom?surface=articles").says([":y.png:2</id>", ":x.png:3</id>"]);
}

/// The meaning of the path does not depend on who decodes it.
#[test]
fn a_slash_in_a_name_is_refused() {
    let server = wiki();
    store(&server, "guide/a/0", b"text");
    added(&server, "/+attachments/guide%2Fa/x.png", b"one");
    for (target, name) in
        [("/+attachments/guide/a%2F", "a/"), ("/+attachments/guide/a%2Fx.png", "a/x.png")]
    {
        let told = format!("`{name}` is not a name for an attachment: it contains a slash");
        for method in ["PUT", "DELETE", "GET"] {
            server.root().with("If-Match", "*").send(method, target, "x").tells(400, &told);
        }
    }
    assert_eq!(names(&server, "guide/a"), ["x.png"]);
}

#[test]
fn who_may_only_write_learns_no_sizes() {
    let server = wiki_with(|config| {
        config.article.acl_read = "root".parse().expect("a list");
        config.article.acl_write = "root,ada".parse().expect("a list");
        config.article.attachments_bytes_max = 2_000;
        config.article.attachments_max = 2;
    });
    store(&server, "docs/a/0", b"text");
    added(&server, "/+attachments/docs/a/x.png", &noise(1_234));
    let ada = limited(&server, &["article:write"]);
    let as_ada = |name: &str, body: &[u8]| {
        let target = format!("/+attachments/docs/a/{name}");
        server.authorized(ada.as_str()).put(&target, body)
    };
    let blind = as_ada("y.png", &noise(800));
    assert_eq!(code(&blind), "too_large");
    let detail = blind.told();
    assert_eq!(
        detail,
        "all attachments of `docs/a` would have more than 2000 bytes, the most that are allowed (`article.attachments_bytes_max`)"
    );
    detail.lacks("2034");
    // The answer does not reveal either whether a file has these bytes.
    let blind = as_ada("x.png", &noise(1_234));
    assert_eq!(
        (code(&blind).as_str(), blind.json().get("same_content")),
        ("condition_missing", None)
    );
    let whole = put(&server, "/+attachments/docs/a/y.png", &[], &noise(800));
    whole.tells(413, "all attachments of `docs/a` would have 2034 bytes: at most 2000 are allowed (`article.attachments_bytes_max`)");
}

/// The answer to a write was lost, and its sender repeats it.
#[test]
fn a_repeated_write_is_told_that_it_is_done() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let tag = added(&server, PATH, b"one").header("etag").to_owned();
    let same = |headers: &[(&str, &str)], body: &[u8]| {
        let refused = put(&server, PATH, headers, body);
        (code(&refused), refused.json()["same_content"].clone())
    };
    assert_eq!(same(&[], b"one"), ("condition_missing".to_owned(), json!(true)));
    assert_eq!(same(&[], b"two"), ("condition_missing".to_owned(), json!(false)));
    assert_eq!(
        same(&[("If-None-Match", "*")], b"one"),
        ("precondition_failed".to_owned(), json!(true))
    );
    put(&server, PATH, &[("If-Match", &tag)], b"other").expect(200);
    let again = same(&[("If-Match", &tag)], b"other");
    assert_eq!(again, ("precondition_failed".to_owned(), json!(true)));
    assert_eq!(
        same(&[("If-Match", &tag)], b"longer than it"),
        ("precondition_failed".to_owned(), json!(false))
    );
    assert_eq!(server.get(PATH).text(), "other");
}

/// An empty list would have clients remove what they have.
#[test]
fn files_that_cannot_be_read_are_not_told_to_be_none() {
    let server = wiki();
    store(&server, "a/0", b"text");
    added(&server, PATH, b"one");
    let key = Key::new("attachments/a").expect("a key");
    let batch = Batch::new().put(key, Expected::Anything, "{\"v\":2}", Vec::new());
    commit(&server.app.live_store, batch);
    for target in [PATH, "/+attachments/a/"] {
        let refused = server.get(target).expect(500);
        assert_eq!(code(&refused), "unreadable");
        server.browse(target).expect(500);
    }
    let page = server.browse("/article/a");
    page.check_status(200).says("cannot be read here");
}

/// Names as macOS, phones and browsers send them.
#[test]
fn forms_take_files_as_machines_call_them() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let mut root = Browser::root(server.client);
    for filename in ["at 3.04\u{202f}PM.png", "\u{2764}\u{fe0f}.png", "a %22b%22.png"] {
        let page = root.get("/+attachments/a/").text();
        root.submit_file((&page, "Add a file"), &[], Some((filename, b"x"))).expect(303);
    }
    assert_eq!(names(&server, "a"), ["a \"b\".png", "at 3.04 PM.png", "\u{2764}\u{fe0f}.png"]);
}

/// Bytes before the first field count until it is found.
#[test]
fn the_memory_of_a_form_is_counted() {
    let server = wiki();
    store(&server, "a/0", b"text");
    let root = Browser::root(server.client);
    let address = server.client.address;
    let mut stream = server.connect();
    let request = format!(
        "POST /+attachments/a/ HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nCookie: {}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000000\r\n\r\n--b\r\nX: ",
        root.cookie()
    );
    stream.write_all(request.as_bytes()).expect("the server reads");
    wait_until("the form to be counted", || server.app.limits.bodies.held_bytes() >= 64 << 10);
    drop(stream);
    wait_until("the memory to be given back", || server.app.limits.bodies.held_bytes() == 0);
}
