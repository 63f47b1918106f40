//! Characters that no URL should hold raw and that people type all the same: every surface answers as if they were
//! percent-encoded.

use crate::asking::each;
use crate::catalogue;
use crate::server::{TestServer, small};

/// Characters that are encoded before any parser reads them.
const MENDED: [char; 6] = ['"', '<', '>', '`', '\u{e9}', '\u{1f980}'];
/// Characters that every server accepts unchanged.
const ACCEPTED: [char; 7] = ['{', '}', '|', '\\', '^', '[', ']'];

fn encoded(character: char) -> String {
    let mut bytes = [0; 4];
    character.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn questions_about_packages() {
    let rows = [
        ("/rpc?v=5&type=search&by=depends&arg=zlib1g>=1", ""),
        ("/rpc?v=5&type=info&arg[]=attest&arg[]=zlib1g>=1&arg[]=yogurt", "attest yogurt"),
        ("/rpc?v=5&type=search&arg=\"quoted\"", "yogurt"),
        ("/rpc?v=5&type=search&arg=<b>%20%26", "yogurt"),
        ("/rpc/v5/search/\"quoted\"%20<b>", "yogurt"),
        ("/rpc/v5/search/<b>?by=name-desc", "yogurt"),
        ("/rpc/v5/info/`attest`", ""),
        ("/rpc/v5/suggest/<", ""),
        ("/api/v6/info/attest?x=\"", "attest"),
    ];
    each(rows, |(target, names)| {
        let response = small().get(target);
        assert_eq!((response.status, response.names()), (200, names.to_owned()), "{target}");
    });
    small().form("/rpc?<=\"", "v=5&type=info&arg=attest").expect(200);
    // No server accepts these, and every client is told why.
    for target in ["/rpc?v=5&arg=a b", "/rpc/v5/info/a\tb", "/rpc?\u{7f}"] {
        let response = small().get(target).expect(400);
        response.has("content-type", "text/plain; charset=utf-8");
        response.says("%20");
    }
}

#[test]
fn actions() {
    let target = r#"/?{"actions":{"example.hello_world":{}}}"#;
    let response = small().get(target).expect(200);
    assert_eq!(response.json(), "Hello world!");
}

/// A raw character means the same to a surface as an encoded one.
#[test]
fn raw_is_as_good_as_encoded() {
    let server = TestServer::serving(&catalogue::small());
    let ask = |method: &str, target: &str, body: &[u8]| server.root().send(method, target, body);
    for character in MENDED.into_iter().chain(ACCEPTED) {
        let encoded = encoded(character);
        for target in [
            "/article/a?b",
            "/article/dir/a?b/history",
            "/article/a/0/x?b",
            "/articles?prefix=?",
            "/articles?q=ab?",
            "/root?x",
            "/root/dev/+simple/?",
            "/root/dev/+simple/a?b/",
            "/root/dev/+f/123/?.zip",
            "/root/dev?x=?",
            "/+tokens/?",
            "/packages.gz?x=?",
            "/metrics?x=?",
            "/nothing/at/all/?",
            "/?q=?",
        ] {
            // The last question mark stands for the character, if there are two.
            let at = target.rfind('?').expect("a place");
            let with = |text: &str| format!("{}{text}{}", &target[..at], &target[at + 1..]);
            let raw = ask("GET", &with(&character.to_string()), b"");
            let plain = ask("GET", &with(&encoded), b"");
            assert_eq!(raw.status, plain.status, "{target} {character}: {}", raw.text());
            assert!(raw.status / 100 == 3 || !raw.body.is_empty(), "{target} {character}");
            if MENDED.contains(&character) && !target.starts_with("/metrics") {
                assert_eq!(raw.text(), plain.text(), "{target} {character}");
            }
        }
        // An article that is written under one spelling is read under the other.
        let name = |text: &str| format!("/article/raw{text}name");
        let written = ask("POST", &format!("{}/0", name(&character.to_string())), b"x");
        let again = ask("POST", &format!("{}/0", name(&encoded)), b"x");
        match written.status {
            201 => {
                assert_eq!(again.status, 409, "{character}: {}", again.text());
                for text in [character.to_string(), encoded] {
                    assert_eq!(ask("GET", &name(&text), b"").text(), "x", "{character}");
                }
            }
            refused => assert_eq!(refused, again.status, "{character}: {}", written.text()),
        }
    }
}
