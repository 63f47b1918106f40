//! Requests that a page of another origin makes a browser send, with its remembered password: every surface refuses them.

use larder::routes::{Place, Tree};

use crate::asking::Says as _;
use crate::catalogue;
use crate::client::Client;
use crate::server::{KEY, ROOT, TestServer, with_key};

/// Requests that would change something: a method, a path, a media type, a body, and the status for a page of this server.
const WRITES: [(&str, &str, &str, &str, u16); 9] = [
    ("POST", "/article/a/1", "text/plain", "one", 404),
    ("PUT", "/article/b", "text/plain", "one", 428),
    ("DELETE", "/article/a/1", "", "", 404),
    ("POST", "/actions", "text/plain", r#"{"actions":{"example.hello_world":{}}}"#, 200),
    ("POST", "/+tokens", "application/json", r#"{"scopes":["article:read"]}"#, 201),
    ("DELETE", "/+tokens/000000000000", "", "", 404),
    ("PUT", "/team/dev", "text/plain", "{}", 200),
    ("POST", "/team/dev/", "text/plain", "", 400),
    ("DELETE", "/team/dev", "", "", 201),
];

#[track_caller]
fn check(client: &Client, write: (&str, &str, &str, &str, u16), page: &[(&str, &str)]) -> String {
    let (method, target, media_type, body, status) = write;
    let mut headers = vec![ROOT, ("APIKey", KEY), ("Content-Type", media_type)];
    headers.extend(page);
    let response = client.send(method, target, &headers, body.as_bytes()).expect(status);
    response.text()
}

#[test]
fn nothing_is_written_for_pages_of_other_origins() {
    let server = TestServer::serving_with(&catalogue::small(), with_key);
    let (client, admin) = (&server.client, &server.admin.expect("a listener"));
    check(client, ("PUT", "/team", "", r#"{"password": "x"}"#, 201), &[]);
    let setting = ("POST", "/admin/settings/max-results?value=7", "text/plain", "", 202);
    let neighbour = format!("http://127.0.0.1:{}", client.address.port().wrapping_add(1));
    for page in [
        &[("Sec-Fetch-Site", "cross-site")][..],
        &[("Sec-Fetch-Site", "same-site"), ("Origin", "http://evil.example")],
        &[("Origin", "http://evil.example")],
        &[("Origin", &neighbour)],
        // The origin of a page in a sandbox.
        &[("Origin", "null")],
    ] {
        for (client, write) in
            WRITES.map(|write| (client, write)).into_iter().chain([(admin, setting)])
        {
            let text = check(client, (write.0, write.1, write.2, write.3, 403), page);
            text.says(&client.address.to_string());
            text.says(page[0].1);
        }
        // Questions change nothing, so any page may ask them; the same holds for reading.
        check(
            client,
            ("POST", "/rpc/v5/info", "application/json", r#"{"arg":["attest"]}"#, 200),
            page,
        );
        check(client, ("GET", "/+tokens", "", "", 200), page);
        check(client, ("OPTIONS", "/article/a", "", "", 204), page);
    }
    let own = format!("http://{}", client.address);
    for page in [
        &[][..],
        &[("Sec-Fetch-Site", "same-origin"), ("Origin", &own)],
        &[("Sec-Fetch-Site", "none")],
        &[("Origin", &own)],
        &[
            ("Origin", "https://outside.example"),
            ("X-Outside-URL", "https://outside.example/larder"),
        ],
    ] {
        for write in WRITES {
            check(client, write, page);
        }
    }
    let own = format!("http://{}", admin.address);
    check(admin, setting, &[("Origin", &own)]);
}

/// Every endpoint of the table, also those that somebody adds later.
#[test]
fn no_endpoint_is_open_to_pages_of_other_origins() {
    /// What changes nothing, so that any page may ask it.
    const OPEN: [&str; 4] = ["/rpc", "/api", "/+osv/v1/query", "/+osv/v1/querybatch"];
    let server = TestServer::serving_with(&catalogue::small(), with_key);
    let (client, admin) = (&server.client, &server.admin.expect("a listener"));
    let foreign = [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")];
    let mut unsafe_count = 0;
    for place in Place::all() {
        let client = if place.tree == Tree::Admin { admin } else { client };
        let path = place.path.replace("{n}/…", "5/info").replace("{**}", "a").replace("{*}", "a");
        let path = path.replace("{type}", "info").replace(['{', '}'], "");
        let is_open = OPEN.iter().any(|open| match *open {
            "/rpc" | "/api" => path.starts_with(open),
            open => path == open,
        });
        // Methods that a place does not have are refused in the same way: what answers them is not known.
        for method in ["POST", "PUT", "PATCH", "DELETE", "PUSH"] {
            if is_open && !(method == "POST" && place.methods().contains(&method)) {
                continue;
            }
            unsafe_count += 1;
            for headers in [&foreign[..1], &foreign[1..], &foreign] {
                let response = client.send(method, &path, headers, b"");
                let text = response.text();
                let is_refused = text.contains("a page of another origin may not write here");
                assert_eq!(is_refused, !is_open, "{method} {path}: {text}");
            }
            // What sends neither header is no page.
            let text = client.anybody().send(method, &path, ()).text();
            assert!(!text.contains("another origin"), "{method} {path}: {text}");
        }
    }
    assert!(unsafe_count > 500, "{unsafe_count}");
}
