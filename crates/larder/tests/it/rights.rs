//! Rights for every operation: each with each scope, and each with a right that is revoked while the body arrives.
//!
//! [`operations::TABLE`] has a row for every operation of the OpenAPI document except GET, which [`every_operation_has_a_row`]
//! proves. A row makes a request; a [`Case`] is a row with its own users and objects, so that requests do not affect each
//! other.

mod causes;
mod doors;
mod limits;
mod operations;
mod overtaken;
mod scopes;
mod slow;
mod strangers;

use std::collections::BTreeSet;

use account::change::{self, NewToken};
use account::{GroupName, Limits, Scope, Scopes, TokenId, TokenText, User, UserName};
use jiff::Timestamp;
use record::{Batch, Serial};
use serde_json::Value;
use state::stored::Stored;

use self::operations::{Row, TABLE};
use crate::asking::basic;
use crate::catalogue;
use crate::client::Response;
use crate::described;
use crate::python::Upload;
use crate::server::{TestServer, commit};

/// A request.
struct Sent {
    method: &'static str,
    target: String,
    content_type: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Sent {
    fn new(method: &'static str, target: impl Into<String>) -> Sent {
        let content_type = "application/json".to_owned();
        let target = target.into();
        Sent { method, target, content_type, headers: Vec::new(), body: Vec::new() }
    }

    fn upload(stage: &str, upload: &Upload) -> Sent {
        let (content_type, body) = upload.form();
        Sent { content_type, body, ..Sent::new("POST", format!("/{stage}/")) }
    }

    fn json(self, body: &Value) -> Sent {
        Sent { body: body.to_string().into_bytes(), ..self }
    }

    fn with(mut self, name: &'static str, value: &str) -> Sent {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// Why a user has the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// They own the object, or are the object.
    Owner,
    /// They are in a group that the list of an index names.
    Listed,
    /// They are in a group that the configuration names.
    Configured,
    /// They are in `admin`.
    Administrator,
}

/// The group that the configuration lets write articles and push to elsewhere.
const STAFF: &str = "staff";

/// A server with its test data.
struct World {
    server: TestServer,
}

/// A row with its own users and objects.
struct Case<'world> {
    world: &'world World,
    role: Role,
    /// The owner of the index.
    owner: String,
    /// The sender.
    sender: String,
    /// The group that the lists of the index name.
    group: String,
    number: u64,
}

impl World {
    fn start() -> World {
        let server = TestServer::serving_with(&catalogue::small(), |config| {
            let staff = format!(":{STAFF}").parse::<account::Acl>().expect("a list");
            config.article.acl_write = staff.clone();
            config.python.acl_push_outside = staff;
            // Pushes to elsewhere are to end here.
            config.egress_allow = vec!["127.0.0.0/8".parse().expect("a network")];
        });
        World { server }
    }

    fn stored(&self) -> std::sync::Arc<Stored> {
        self.server.stored()
    }

    fn serial(&self) -> Serial {
        self.stored().serial
    }

    #[track_caller]
    fn commit(&self, batch: Batch) {
        commit(&self.server.app.live_store, batch);
    }

    /// A user in these groups, without a password.
    fn make_user(&self, name: &str, groups: &[&str]) {
        self.make(User::new(name.parse().expect("a name"), Timestamp::now()), groups);
    }

    fn make(&self, user: User, groups: &[&str]) {
        let stored = self.stored();
        let groups = groups.iter().map(|group| group.parse().expect("a group")).collect();
        let batch = change::create_user(&stored.accounts, &User { groups, ..user });
        self.commit(batch.expect("a new user"));
    }

    fn make_token(&self, user: &str, scopes: Scopes, expires_at: Option<Timestamp>) -> TokenText {
        self.make_limited_token(user, scopes, None, expires_at)
    }

    fn make_limited_token(
        &self,
        user: &str,
        scopes: Scopes,
        limits: Option<Limits>,
        expires_at: Option<Timestamp>,
    ) -> TokenText {
        let stored = self.stored();
        let user = user.parse().expect("a name");
        let new = NewToken { user, comment: String::new(), scopes, limits, expires_at };
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("random numbers");
        let made = change::create_token(&stored.accounts, new, secret, Timestamp::now(), None);
        let (text, _, batch) = made.expect("a new token");
        self.commit(batch);
        text
    }

    /// People for a row, whose sender may do what the row does for this reason.
    fn case(&self, role: Role) -> Case<'_> {
        let number = self.serial().0;
        let owner = format!("owner{number}");
        let sender = if role == Role::Owner { owner.clone() } else { format!("sender{number}") };
        let group = format!("team{number}");
        let own = match role {
            Role::Owner => vec![],
            Role::Listed => vec![group.as_str()],
            Role::Configured => vec![STAFF],
            Role::Administrator => vec!["admin"],
        };
        if role != Role::Owner {
            self.make_user(&owner, &[]);
        }
        self.make_user(&sender, &own);
        Case { world: self, role, owner, sender, group, number }
    }
}

impl Case<'_> {
    fn stage(&self) -> String {
        format!("{}/dev", self.owner)
    }

    fn name(&self) -> UserName {
        self.sender.parse().expect("a name")
    }

    /// A token of the sender.
    fn token(&self, scopes: Scopes, expires_at: Option<Timestamp>) -> (TokenId, String) {
        let text = self.world.make_token(&self.sender, scopes, expires_at);
        (text.id(), bearer(&text))
    }

    /// A login of the sender.
    fn login(&self) -> String {
        let stored = self.world.stored();
        let user = stored.accounts.user(&self.name()).expect("the sender");
        let secret = stored.accounts.login_secret().expect("a secret");
        let login = secret.issue(user, Timestamp::now(), account::LOGIN_LIFETIME);
        basic(&self.sender, &login.reveal())
    }

    /// Does something as the owner of the index, with all rights that they have.
    #[track_caller]
    fn as_owner(&self, sent: &Sent) -> Response {
        let token = self.world.make_token(&self.owner, Scopes::ALL, None);
        self.world.send(sent, &bearer(&token)).done()
    }

    /// The request of the row, after making what it needs.
    fn prepared(&self, row: &Row) -> Sent {
        (row.make)(self)
    }
}

impl World {
    #[track_caller]
    fn send(&self, sent: &Sent, authorization: &str) -> Response {
        let mut headers: Vec<(&str, &str)> = vec![("Content-Type", &sent.content_type)];
        if !authorization.is_empty() {
            headers.push(("Authorization", authorization));
        }
        headers.extend(sent.headers.iter().map(|(name, value)| (*name, value.as_str())));
        self.server.client.send(sent.method, &sent.target, &headers, &sent.body)
    }

    /// Takes the sender out of all groups.
    fn leave_groups(&self, case: &Case<'_>) {
        let none = BTreeSet::<GroupName>::new();
        let batch =
            change::set_groups(&self.stored().accounts, &case.name(), none, Timestamp::now());
        self.commit(batch.expect("a user").expect("a change"));
    }
}

fn bearer(text: &TokenText) -> String {
    format!("Bearer {}", text.reveal())
}

fn only(scope: Scope) -> Scopes {
    Scopes::NONE.with(scope)
}

/// Whether an operation is a form of a page, for which the session of a browser counts and nothing else.
fn is_form(path: &str) -> bool {
    let starts = ["/+account/", "/+edit/", "/+manage/", "/+rename/"];
    starts.iter().any(|start| path.starts_with(start))
        || ["/+attachments/{article}/", "/+changed"].contains(&path)
}

#[test]
fn forms_of_pages_take_no_credentials_of_programs() {
    let world = World::start();
    let paths = described::operations(&world.server.client);
    let forms = paths.iter().filter(|(path, item)| is_form(path) && item.get("post").is_some());
    let mut count = 0;
    for (path, _) in forms {
        let target = path.replace("{article}", "x").replace("{user}", "root");
        let target = target.replace("{index}", "dev");
        for body in ["", "base=0&text=x&do=save", "name=mallory&password=x&do=delete&confirm=root"]
        {
            let answer = world
                .server
                .root()
                .typed("application/x-www-form-urlencoded")
                .post(&target, body.as_bytes());
            // A log-out without a session changes nothing.
            let is_log_out = target.ends_with("/logout") && answer.status == 303;
            let is_refused = matches!(answer.status, 400 | 401 | 403) || is_log_out;
            assert!(is_refused, "{target}: {} {}", answer.status, answer.text());
        }
        count += 1;
    }
    assert!(count >= 10, "{count} forms");
    world.server.get("/article/x").expect(404);
    assert!(world.stored().accounts.user(&"mallory".parse().expect("a name")).is_none());
}

#[test]
fn every_operation_has_a_row() {
    let world = World::start();
    let paths = described::operations(&world.server.client);
    let mut missing = BTreeSet::new();
    let mut described = BTreeSet::from(["PUSH /{user}/{index}".to_owned()]);
    for (path, item) in &paths {
        for method in ["post", "put", "patch", "delete"] {
            // Scopes are for programs.
            if item.get(method).is_some() && !is_form(path) {
                described.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    let rows: BTreeSet<String> = TABLE.iter().map(|row| row.operation.to_owned()).collect();
    missing.extend(described.difference(&rows).cloned());
    assert!(missing.is_empty(), "operations without a row: {missing:?}");
    let unknown: Vec<_> = rows.difference(&described).collect();
    assert!(unknown.is_empty(), "rows for what is not there: {unknown:?}");
}
