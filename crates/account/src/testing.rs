//! Test data that several modules share.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::{
    AuthMethod, CiIdentity, Identity, IssuerKind, Limits, Principal, Scopes, TokenId, User,
    UserName,
};

pub(crate) fn name(text: &str) -> UserName {
    text.parse().expect("a name")
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_750_000_000 + second).expect("a time")
}

pub(crate) fn user(text: &str, groups: &[&str]) -> User {
    let groups: BTreeSet<_> = groups.iter().map(|it| it.parse().expect("a group")).collect();
    User { groups, ..User::new(name(text), at(0)) }
}

pub(crate) fn anonymous() -> Principal {
    Principal::Anonymous
}

pub(crate) fn with_password(text: &str, groups: &[&str]) -> Principal {
    let user = Arc::new(user(text, groups));
    Principal::User(Identity {
        user,
        means: AuthMethod::Password,
        scopes: Scopes::ALL,
        limits: None,
    })
}

pub(crate) fn with_token(text: &str, groups: &[&str], scopes: &str) -> Principal {
    Principal::User(Identity {
        user: Arc::new(user(text, groups)),
        means: AuthMethod::Token("0123456789ab".parse::<TokenId>().expect("an id")),
        scopes: scopes.parse().expect("scopes"),
        limits: None,
    })
}

/// An identity of GitHub's kind with these claims.
pub(crate) fn ci_identity(claims: &[(&str, &str)]) -> CiIdentity {
    let claims = claims.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let issuer = "https://ci.example".to_owned();
    CiIdentity { issuer, kind: IssuerKind::Github, claims: claims.collect() }
}

/// Limits from words such as `index=team/dev project=foo prefix=docs`.
pub(crate) fn limits(text: &str) -> Option<Limits> {
    let (mut indexes, mut projects, mut prefixes) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for word in text.split_whitespace() {
        match word.split_once('=').expect("a word with what it names") {
            ("index", index) => _ = indexes.insert(index.parse().expect("an index")),
            ("project", project) => _ = projects.insert(project.to_owned()),
            (_, prefix) => _ = prefixes.insert(prefix.to_owned()),
        }
    }
    Limits::new(indexes, projects, prefixes)
}

/// A snapshot of these users, each at its serial, or at 1.
pub(crate) fn snapshot_of(users: &[User]) -> crate::Snapshot {
    let records: Vec<record::Record> = users
        .iter()
        .map(|user| record::Record {
            key: crate::user_key(&user.name),
            serial: user.serial.max(record::Serial(1)),
            body: Some(crate::record::write_user(user)),
            blobs: Vec::new(),
        })
        .collect();
    let (snapshot, troubles) = crate::Snapshot::new().apply(&records);
    assert_eq!(troubles, []);
    snapshot
}
