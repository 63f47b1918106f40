//! What anonymous clients, and users with one right, learn about objects that are not theirs.

use account::{Password, Scopes, User, change};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Sent, World, bearer};
use crate::asking::{Says as _, basic};
use crate::client::Response;
use crate::server::TestServer;

const PASSWORD: &str = "open-sesame";

impl World {
    /// Everything that a client sees at a place, as text.
    fn look(&self, target: &str, authorization: &str) -> String {
        let sent = Sent::new("GET", target).with("Accept", "application/json");
        let Response { status, body, .. } = self.send(&sent, authorization);
        format!("{status} {}", String::from_utf8_lossy(&body))
    }

    /// A user with an address, and a token for everything.
    fn make_known(&self, name: &str, groups: &[&str]) -> String {
        let user = User::new(name.parse().expect("a name"), Timestamp::now());
        let hash = Some(Password::attempt(PASSWORD).hash([3; 16]));
        let email = Some(format!("{name}@host.example"));
        self.make(User { email, password_hash: hash, ..user }, groups);
        bearer(&self.make_token(name, Scopes::ALL, None))
    }

    #[track_caller]
    fn make_index(&self, token: &str, name: &str, config: Value) {
        self.send(&Sent::new("PUT", format!("/{name}")).json(&config), token).expect(200);
    }
}

#[test]
fn users_are_shown_to_those_whom_they_concern() {
    let world = World::start();
    let [alice, bob, _carol] = ["alice", "bob", "carol"].map(|name| world.make_known(name, &[]));
    let admin = world.make_known("dora", &["admin"]);
    let private = json!({"bases": [], "acl_read": ["bob"]});
    world.make_index(&bob, "bob/secret", private);
    let bases = json!({"bases": ["bob/secret"], "acl_upload": ["alice", "carol"]});
    world.make_index(&alice, "alice/dev", bases);
    let names = |authorization: &str| {
        let sent = Sent::new("GET", "/").with("Accept", "application/json");
        let list = world.send(&sent, authorization).json()["result"].clone();
        list.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(""), "alice");
    assert_eq!(names(&bob), "alice bob");
    assert_eq!(names(&admin), "alice bob carol dora root");
    for target in ["/", "/alice", "/alice/dev", "/bob", "/carol", "/+search?query=secret"] {
        let seen = world.look(target, "");
        for private in ["host.example", "secret", "carol"] {
            let is_question = target.contains(private);
            assert!(is_question || !seen.contains(private), "{target}: {private} in {seen}");
        }
    }
    // A user without an index that the client may read is answered like one who does not exist.
    for method in ["GET", "PATCH", "DELETE", "PUT"] {
        let answers = ["bob", "nix"].map(|name| {
            let sent = Sent::new(method, format!("/{name}")).json(&json!({"title": "x"}));
            let response = world.send(&sent, "");
            (response.status, response.text().replace(name, "…"))
        });
        assert_eq!(answers[0], answers[1], "{method}");
    }
    let token = world.make_token("bob", super::only(account::Scope::PythonRead), None);
    world.look("/bob", &bearer(&token)).lacks("bob@host.example");
    for (target, who) in [("/bob", &bob), ("/bob", &admin), ("/", &bob), ("/", &admin)] {
        assert!(world.look(target, who).contains("bob@host.example"), "{target}");
    }
    // Those who may change an index see all of it.
    for who in [&alice, &bob, &admin] {
        world.look("/alice/dev", who).says("bob/secret");
    }
}

/// A file's log says where it came from, but names no index that the reader may not read.
#[test]
fn a_log_does_not_name_private_indexes() {
    let world = World::start();
    let bob = world.make_known("bob", &[]);
    let private = json!({"bases": [], "acl_read": ["bob"], "acl_upload": ["bob"]});
    world.make_index(&bob, "bob/secret", private);
    world.make_index(&bob, "bob/open", json!({"bases": []}));
    let upload = crate::python::Upload::of("p-1.0.zip", &crate::python::sdist("x"));
    world.send(&Sent::upload("bob/secret", &upload), &bob).expect(200);
    let order = json!({"name": "p", "version": "1.0", "targetindex": "bob/open"});
    world.send(&Sent::new("PUSH", "/bob/secret").json(&order), &bob).expect(200);
    for target in ["/bob/open/p", "/bob/open/p/1.0"] {
        world.look(target, "").lacks("secret");
        assert!(world.look(target, &bob).contains("bob/secret"), "{target}");
    }
}

/// With devpi's defaults, everybody sees what devpi shows.
#[test]
fn devpis_defaults_show_what_devpi_shows() {
    let server = TestServer::without_aur(|config| {
        config.python.devpi_defaults = true;
    });
    let world = World { server };
    let alice = world.make_known("alice", &[]);
    world.make_index(&alice, "alice/dev", json!({"bases": []}));
    world.make_known("carol", &[]);
    for name in ["alice@host.example", "carol@host.example"] {
        assert!(world.look("/", "").contains(name), "{name}");
    }
    world.look("/carol", "").says("carol@host.example");
}

/// The right password of a disabled user, a wrong one, and one of an unknown user: the same answer, with the same number of
/// hashes.
#[test]
fn a_disabled_users_password_is_a_wrong_one() {
    let world = World::start();
    world.make_known("alice", &[]);
    let ask = |user: &str, password: &str| {
        let before = world.server.app.limits.passwords.hashed();
        let tokens = world.send(&Sent::new("GET", "/+tokens"), &basic(user, password));
        let between = world.server.app.limits.passwords.hashed();
        let login = Sent::new("POST", "/+login").json(&json!({"user": user, "password": password}));
        let login = world.send(&login, "");
        let after = world.server.app.limits.passwords.hashed();
        let texts = [tokens.text(), login.text()].map(|text| text.replace(user, "…"));
        (tokens.status, login.status, texts, (between - before, after - between))
    };
    // Right, and remembered.
    assert_eq!((ask("alice", PASSWORD).0, ask("alice", PASSWORD).3), (200, (0, 0)));
    let stored = world.stored();
    let name = "alice".parse().expect("a name");
    let batch = change::set_disabled(&stored.accounts, &name, true, Timestamp::now());
    world.commit(batch.expect("a user").expect("a change"));
    let right = ask("alice", PASSWORD);
    // The second time it is known to be refused, like a wrong one.
    assert_eq!((right.0, right.1, right.3), (401, 401, (1, 0)));
    assert_eq!(right, ask("alice", "wrong"));
    assert_eq!(right, ask("nobody", PASSWORD));
}
