//! [`changes`]: the changes that a batch makes to users, tokens and rights, for the security log.
//!
//! They are computed from the batch, at the one place that all writes pass through, so no way to change a right is missed. A
//! change is logged when it is committed; if the caller no longer waits for the commit, it is logged with an unknown outcome.

use std::collections::BTreeSet;
use std::fmt::Display;

use account::{GroupName, LinkedIdentity, Snapshot, User};
use pypi::StageConfig;
use record::{Batch, Record, Serial, Write};
use store::CommitError;

use super::{Actor, TARGET};

/// A change of a user, a token or a right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    /// The name of the event, such as `user_created`.
    event: &'static str,
    /// The user, token or index that is changed.
    subject: String,
    /// The values before and after, without secrets.
    detail: Option<String>,
}

/// The changes of a batch during its commit. If this is dropped before the outcome is known, they are logged as such.
pub struct Changes {
    changes: Vec<Change>,
    doer: Option<Actor>,
}

/// The changes that `batch` makes to these snapshots.
pub fn changes(accounts: &Snapshot, index: &pypi::Snapshot, batch: &Batch) -> Changes {
    let mut changes = Vec::new();
    for write in &batch.writes {
        let key = write.key.as_str();
        let kinds = ["user/", "token/", "upload-token/", "secret/", "session/", "identity/"];
        if kinds.iter().any(|kind| key.starts_with(kind)) {
            changes.extend(of_account(accounts, write));
        } else if let Some(stage) = pypi::stage_of_key(&write.key) {
            changes.extend(of_stage(index, stage, write));
        }
    }
    Changes { changes, doer: None }
}

fn record(write: &Write) -> Record {
    let (key, body, blobs) = (write.key.clone(), write.body.clone(), write.blobs.clone());
    Record { key, serial: Serial::ZERO, body, blobs }
}

fn change(event: &'static str, subject: impl Display, detail: Option<String>) -> Change {
    Change { event, subject: subject.to_string(), detail }
}

fn of_account(before: &Snapshot, write: &Write) -> Vec<Change> {
    let after = before.apply(&[record(write)]).0;
    let key = &write.key;
    if let Some(name) = key.after("user").and_then(|name| name.parse().ok()) {
        return match (before.user(&name), after.user(&name)) {
            (None, Some(user)) => vec![change("user_created", &name, Some(facts(user)))],
            (Some(_), None) => vec![change("user_deleted", &name, None)],
            (Some(before), Some(after)) => of_user(before, after),
            (None, None) => Vec::new(),
        };
    }
    if let Some(id) = key.after("token").and_then(|id| id.parse().ok()) {
        return match (before.token(id), after.token(id)) {
            (None, Some(token)) => {
                let until = token.expires_at.map_or_else(String::new, |at| format!(" until {at}"));
                let limits = token.limits.as_deref();
                let limits = limits.map_or_else(String::new, |it| format!(", limited to {it}"));
                let detail = format!("of {} for {}{until}{limits}", token.user, token.scopes);
                vec![change("token_created", id, Some(detail))]
            }
            (Some(token), None) => {
                vec![change("token_revoked", id, Some(format!("of {}", token.user)))]
            }
            _ => Vec::new(),
        };
    }
    if let Some(proof) = key.after("upload-token").and_then(|proof| proof.parse().ok()) {
        // Its end is known from the start, so it is not logged.
        let (None, Some(token)) = (before.upload_token_of(&proof), after.upload_token_of(&proof))
        else {
            return Vec::new();
        };
        let detail = format!("of {} until {}", token.identity.name(), token.expires_at);
        return vec![change("upload_token_created", token.id, Some(detail))];
    }
    if let Some(digest) = key.after("identity").and_then(|digest| digest.parse().ok()) {
        let (before, after) = (before.linked(&digest), after.linked(&digest));
        let change = |event, linked: &LinkedIdentity| {
            let detail = format!("{} {}", linked.issuer, linked.subject);
            change(event, &linked.user, Some(detail))
        };
        let removed = before.map(|linked| change("identity_unlinked", linked));
        let added = after.map(|linked| change("identity_linked", linked));
        return removed.into_iter().chain(added).collect();
    }
    if let Some(name) = key.after("session").and_then(|name| name.parse().ok()) {
        let digests = |accounts: &Snapshot| -> BTreeSet<String> {
            let sessions = accounts.sessions_of(&name).into_iter().flat_map(|it| &it.sessions);
            sessions.map(|session| session.secret_digest.to_string()).collect()
        };
        let (before, after) = (digests(before), digests(&after));
        let opened = after.difference(&before).map(|_| change("session_opened", &name, None));
        let ended = before.difference(&after).map(|_| change("session_ended", &name, None));
        return opened.chain(ended).collect();
    }
    vec![change("login_secret_changed", key, None)]
}

fn of_user(before: &User, after: &User) -> Vec<Change> {
    let name = &after.name;
    let mut changes = Vec::new();
    if before.created_at != after.created_at {
        changes.push(change("user_created", name, Some(format!("anew; {}", facts(after)))));
    }
    if before.password_hash != after.password_hash {
        let event = match after.password_hash {
            Some(_) => "password_changed",
            None => "password_removed",
        };
        changes.push(change(event, name, None));
    }
    if before.groups != after.groups {
        let detail = format!("{} -> {}", list(&before.groups), list(&after.groups));
        changes.push(change("groups_changed", name, Some(detail)));
    }
    match (before.is_disabled, after.is_disabled) {
        (false, true) => changes.push(change("user_disabled", name, None)),
        (true, false) => changes.push(change("user_enabled", name, None)),
        _ => {}
    }
    let is_profile = before.email != after.email
        || before.title != after.title
        || before.description != after.description
        || before.custom_data != after.custom_data;
    if is_profile {
        changes.push(change("profile_changed", name, None));
    }
    changes
}

fn facts(user: &User) -> String {
    let password = if user.password_hash.is_some() { "a" } else { "no" };
    format!("groups: {}; with {password} password", list(&user.groups))
}

fn list(groups: &BTreeSet<GroupName>) -> String {
    let groups: Vec<&str> = groups.iter().map(|group| group.as_str()).collect();
    if groups.is_empty() { "none".to_owned() } else { groups.join(",") }
}

fn of_stage(index: &pypi::Snapshot, stage: &str, write: &Write) -> Vec<Change> {
    // What a stage does not set, the server's defaults say.
    let before = index.stage(stage).map(|it| it.config().clone());
    let after = index.without_stages().apply(&[record(write)]).snapshot;
    let after = after.stage(stage).map(|it| it.config().clone());
    match (before, after) {
        (None, Some(after)) => {
            vec![change("index_created", stage, Some(rights(&after).join("; ")))]
        }
        (Some(before), Some(after)) => {
            let (before, after) = (rights(&before), rights(&after));
            if before == after {
                return Vec::new();
            }
            let changed: Vec<String> = before
                .iter()
                .zip(&after)
                .filter(|(before, after)| before != after)
                .map(|(before, after)| format!("{before} -> {after}"))
                .collect();
            vec![change("index_rights_changed", stage, Some(changed.join("; ")))]
        }
        (Some(_), None) => vec![change("index_deleted", stage, None)],
        (None, None) => Vec::new(),
    }
}

/// The rights in an index's configuration, always in the same order.
fn rights(config: &StageConfig) -> Vec<String> {
    let upload = config.upload();
    let publishers = upload.map(|it| &it.trusted_publishers).filter(|it| !it.is_empty());
    let publishers = publishers.map(|publishers| {
        publishers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    });
    let entry = |name: &str, list: Option<String>| {
        format!("{name}: {}", list.as_deref().unwrap_or("nobody"))
    };
    vec![
        entry("acl_read", Some(config.acl_read.to_string())),
        entry("acl_upload", upload.map(|it| it.acl_upload.to_string())),
        entry("acl_toxresult_upload", upload.map(|it| it.tox_result_uploaders().to_string())),
        entry("volatile", Some(config.volatile.to_string())),
        entry("trusted_publishers", publishers),
    ]
}

impl Changes {
    /// Attributes the changes.
    #[must_use]
    pub fn by(mut self, doer: Actor) -> Changes {
        self.doer = Some(doer);
        self
    }

    /// Logs the changes if their commit may have written them.
    pub fn settle(mut self, outcome: &Result<Serial, CommitError>) {
        match outcome {
            Ok(serial) => self.log("committed", Some(*serial)),
            Err(CommitError::OutcomeUnknown(_)) => self.log("unknown", None),
            Err(_) => self.changes.clear(),
        }
    }

    fn log(&mut self, outcome: &'static str, serial: Option<Serial>) {
        let Some(doer) = &self.doer else { return };
        for change in self.changes.drain(..) {
            tracing::info!(
                target: TARGET,
                event = change.event,
                subject = change.subject,
                detail = change.detail,
                by = doer.by,
                means = doer.means,
                client = doer.client,
                outcome,
                serial = serial.map(|serial| serial.0),
                "a right or an account was changed"
            );
        }
    }
}

impl Drop for Changes {
    /// Logs the changes with an unknown outcome: the request that waited for the commit was dropped, or the store
    /// failed.
    fn drop(&mut self) {
        self.log("unknown", None);
    }
}

#[cfg(test)]
mod tests {
    use account::{Password, ProfileEdit, change as made};
    use jiff::Timestamp;

    use super::*;

    fn found(accounts: &Snapshot, batch: &Batch) -> Vec<String> {
        let mut found = changes(accounts, &pypi::Snapshot::new(), batch);
        let texts = found
            .changes
            .drain(..)
            .map(|it| format!("{} {} {}", it.event, it.subject, it.detail.unwrap_or_default()));
        texts.map(|text| text.trim_end().to_owned()).collect()
    }

    fn apply(accounts: &Snapshot, batch: &Batch) -> Snapshot {
        accounts.apply(&batch.writes.iter().map(record).collect::<Vec<_>>()).0
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn alice() -> account::UserName {
        "alice".parse().expect("a name")
    }

    fn hash(text: &str) -> account::PasswordHash {
        Password::new(text).expect("a password").cheap_hash([1; 16])
    }

    fn create_alice(accounts: &Snapshot) -> Option<Batch> {
        let user = User { password_hash: Some(hash("first")), ..User::new(alice(), NOW) };
        made::create_user(accounts, &user).ok()
    }

    type Step<'step> = &'step dyn Fn(&Snapshot) -> Option<Batch>;

    /// What is logged of these steps, each on the state that the one before has left.
    #[track_caller]
    fn check(steps: &[Step<'_>], expected: &[&str], secrets: &[&str]) {
        let (mut accounts, mut told) = (Snapshot::new(), Vec::new());
        for step in steps {
            let batch = step(&accounts).expect("a change");
            told.extend(found(&accounts, &batch));
            accounts = apply(&accounts, &batch);
        }
        assert_eq!(told, expected);
        let told = told.join("\n");
        for secret in secrets.iter().chain(&["first", "second", "$argon2", "host.example"]) {
            assert!(!told.contains(secret), "{secret}: {told}");
        }
    }

    #[test]
    fn each_change_of_a_user_is_logged_without_a_secret() {
        let groups: BTreeSet<GroupName> = ["admin".parse().expect("a name")].into();
        let profile = ProfileEdit {
            email: account::Field::Set("a@host.example".into()),
            ..ProfileEdit::default()
        };
        check(
            &[
                &|it| made::create_login_secret(it, [7; 32]),
                &create_alice,
                &|it| made::set_password(it, &alice(), Some(hash("second")), NOW).expect("a user"),
                &|it| made::set_groups(it, &alice(), groups.clone(), NOW).expect("a user"),
                &|it| made::modify_user(it, &alice(), &profile, None, NOW).expect("a user"),
                &|it| made::set_disabled(it, &alice(), true, NOW).expect("a user"),
                &|it| made::set_password(it, &alice(), None, NOW).expect("a user"),
                &|it| made::delete_user(it, &alice()).ok(),
            ],
            &[
                "login_secret_changed secret/login",
                "user_created alice groups: none; with a password",
                "password_changed alice",
                "groups_changed alice none -> admin",
                "profile_changed alice",
                "user_disabled alice",
                "password_removed alice",
                "user_deleted alice",
            ],
            &[],
        );
    }

    #[test]
    fn each_change_of_a_token_is_logged_without_its_secret() {
        let new = || made::NewToken {
            user: alice(),
            comment: "a comment".into(),
            scopes: "python:upload".parse().expect("scopes"),
            limits: account::Limits::new(
                ["team/dev".parse().expect("an index")].into(),
                ["foo".to_owned()].into(),
                Default::default(),
            ),
            expires_at: None,
        };
        let create = |it: &Snapshot| made::create_token(it, new(), [9; 32], NOW, None);
        let accounts = apply(&Snapshot::new(), &create_alice(&Snapshot::new()).expect("a user"));
        let (text, token, _) = create(&accounts).expect("a token");
        let id = token.id;
        let created = format!(
            "token_created {id} of alice for python:upload, limited to project `foo` of team/dev"
        );
        check(
            &[&create_alice, &|it| create(it).ok().map(|(_, _, batch)| batch), &|it| {
                made::revoke_token(it, id).ok()
            }],
            &[
                "user_created alice groups: none; with a password",
                &created,
                &format!("token_revoked {id} of alice"),
            ],
            &[&text.reveal()[20..30]],
        );
    }

    /// The events of a new index and of changes to it.
    fn told_of_rights(mut index: pypi::Snapshot) -> Vec<String> {
        let accounts = Snapshot::new();
        let stage: pypi::StageName = "alice/dev".parse().expect("a name");
        let edit = |json| pypi::ConfigEdit::parse(&json).expect("an edit");
        let mut told = Vec::new();
        let mut step = |index: &mut pypi::Snapshot, batch: Batch| {
            let mut found = changes(&accounts, index, &batch);
            told.extend(found.changes.drain(..).map(|it| {
                format!("{} {} {}", it.event, it.subject, it.detail.unwrap_or_default())
            }));
            let records: Vec<Record> = batch.writes.iter().map(record).collect();
            *index = index.apply(&records).snapshot;
        };
        use pypi::change::stage as made;
        let (batch, _) = made::create(&index, &stage, &pypi::ConfigEdit::nothing()).expect("new");
        step(&mut index, batch);
        for json in [
            serde_json::json!({"acl_upload": ["alice", "bob"]}),
            serde_json::json!({"title": "no right"}),
            serde_json::json!({"acl_read": [":AUTHENTICATED:"]}),
        ] {
            let (batch, _) = made::modify(&index, &stage, &edit(json), true).expect("a change");
            step(&mut index, batch.expect("a batch"));
        }
        let batch = made::delete(&index, &stage, true).expect("a deletion");
        step(&mut index, batch);
        told
    }

    #[test]
    fn rights_of_an_index_are_logged() {
        for (index, testers) in [
            (pypi::Snapshot::new(), ":AUTHENTICATED:"),
            (pypi::Snapshot::of_server(true), ":ANONYMOUS:"),
        ] {
            assert_eq!(
                told_of_rights(index),
                [
                    format!(
                        "index_created alice/dev acl_read: :ANONYMOUS:; acl_upload: alice; \
                         acl_toxresult_upload: {testers}; volatile: true; trusted_publishers: nobody"
                    )
                    .as_str(),
                    "index_rights_changed alice/dev acl_upload: alice -> acl_upload: alice,bob",
                    "index_rights_changed alice/dev acl_read: :ANONYMOUS: -> acl_read: :AUTHENTICATED:",
                    "index_deleted alice/dev ",
                ]
            );
        }
    }

    #[test]
    fn other_writes_are_not_logged() {
        let key = record::Key::new("article/x/1").expect("a key");
        let batch = Batch::new().put(key, record::Expected::Absent, "{}", Vec::new());
        assert!(found(&Snapshot::new(), &batch).is_empty());
    }
}
