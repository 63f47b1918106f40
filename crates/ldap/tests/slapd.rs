//! A real directory: how users are found, which answers of it count, and which connections are trusted.

use std::path::PathBuf;
use std::time::Duration;

use account::{GroupMap, UserName};
use ldap::{Directory, Failure, Groups, Scope, Settings, SetupError, Users};
use testbed::Slapd;

const PEOPLE: &str = "ou=people,dc=example,dc=org";

fn search(base: &str, filter: &str) -> Users {
    let filter: ldap::Filter = filter.parse().expect(filter);
    let name_attribute = filter.name_attributes().first().map_or("uid", |it| it).to_owned();
    Users::Search { base: base.to_owned(), scope: Scope::Subtree, filter, name_attribute }
}

fn template() -> Users {
    Users::Template(format!("uid={{username}},{PEOPLE}").parse().expect("a template"))
}

fn groups(filter: &str) -> Groups {
    Groups {
        base: "ou=groups,dc=example,dc=org".to_owned(),
        scope: Scope::One,
        filter: filter.parse().expect(filter),
        attribute: "cn".to_owned(),
        map: GroupMap::new(["ops=admin", "*=ldap-*"].map(|line| line.parse().expect(line))),
    }
}

fn settings(slapd: &Slapd, users: Users) -> Settings {
    Settings {
        servers: vec![slapd.url().parse().expect("a URL")],
        start_tls: false,
        ca_file: None,
        service: None,
        users,
        groups: None,
        timeout: Duration::from_secs(10),
    }
}

fn service() -> Option<(String, String)> {
    Some(("cn=larder,dc=example,dc=org".to_owned(), "service word".to_owned()))
}

/// What a directory says: the groups, `yes` without them, `no`, or why it says nothing.
async fn ask(settings: Settings, name: &str, password: &str) -> String {
    let directory = Directory::new(settings).expect("a directory");
    said(&directory, name, password).await
}

async fn said(directory: &Directory, name: &str, password: &str) -> String {
    let name: UserName = name.parse().expect(name);
    match directory.check(&name, password).await {
        Ok(None) => "no".to_owned(),
        Ok(Some(proof)) => match proof.groups() {
            None => "yes".to_owned(),
            Some(groups) => groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        },
        Err(failure) => failure.to_string(),
    }
}

#[tokio::test]
async fn a_bind_decides() {
    let Some(slapd) = Slapd::start() else { return };
    for users in [|| template(), || search(PEOPLE, "(uid={username})")] {
        for (name, password, expected) in [
            ("alice", "wonderland", "yes"),
            ("alice", "Wonderland", "no"),
            ("alice", "builder", "no"),
            ("alice", "", "no"),
            ("alice", "\0", "no"),
            ("alice", "wonderland\0", "no"),
            ("nobody", "wonderland", "no"),
            // The directory takes any spelling, which would be another user here.
            ("Alice", "wonderland", "no"),
            ("ａlice", "wonderland", "no"),
        ] {
            let found = ask(settings(&slapd, users()), name, password).await;
            assert_eq!(found, expected, "{name} {password:?}");
        }
    }
    assert_eq!(slapd.binds("\""), 0, "no bind was anonymous");
}

#[tokio::test]
async fn exactly_one_entry_counts() {
    let Some(slapd) = Slapd::start() else { return };
    let base = "dc=example,dc=org";
    slapd.change(
        "dn: uid=alice,ou=groups,dc=example,dc=org\nchangetype: add\nobjectClass: inetOrgPerson\n\
         uid: alice\ncn: other\nsn: other\nuserPassword: other\n",
    );
    assert_eq!(
        ask(settings(&slapd, search(base, "(uid={username})")), "alice", "other").await,
        "no"
    );
    let person = "(&(objectClass=inetOrgPerson)(uid={username})(sn=Liddell))";
    assert_eq!(ask(settings(&slapd, search(base, person)), "alice", "wonderland").await, "yes");
    // Any entry, for any name.
    let found =
        ask(settings(&slapd, search(PEOPLE, "(objectClass=*)")), "alice", "wonderland").await;
    assert_eq!(found, "no");
    // A referral is not followed.
    slapd.change(
        "dn: ou=elsewhere,ou=people,dc=example,dc=org\nchangetype: add\nobjectClass: referral\n\
         objectClass: extensibleObject\nou: elsewhere\nref: ldap://127.0.0.1:1/ou=people,dc=example,dc=org\n",
    );
    let users = || search(PEOPLE, "(uid={username})");
    assert_eq!(ask(settings(&slapd, users()), "alice", "wonderland").await, "yes");
    assert_eq!(ask(settings(&slapd, users()), "nobody", "wonderland").await, "no");
    let users = search("ou=elsewhere,ou=people,dc=example,dc=org", "(uid={username})");
    let found = ask(settings(&slapd, users), "alice", "wonderland").await;
    assert!(found.contains("result 10 (referral)"), "{found}");
    let users = search("ou=nowhere,dc=example,dc=org", "(uid={username})");
    let found = ask(settings(&slapd, users), "alice", "wonderland").await;
    assert!(found.contains("`ou=nowhere,dc=example,dc=org`: result 32 (noSuchObject)"), "{found}");
}

#[tokio::test]
async fn searches_are_made_with_the_service() {
    let Some(slapd) = Slapd::start() else { return };
    let hidden = || search("ou=hidden,dc=example,dc=org", "(uid={username})");
    let of = |service| Settings { service, ..settings(&slapd, hidden()) };
    let found = ask(of(None), "carol", "secret").await;
    assert!(found.contains("result 50 (insufficientAccessRights)"), "{found}");
    assert_eq!(ask(of(service()), "carol", "secret").await, "yes");
    assert_eq!(ask(of(service()), "carol", "service word").await, "no");
    let wrong = service().map(|(dn, _)| (dn, "wrong".to_owned()));
    let found = ask(of(wrong), "carol", "secret").await;
    assert!(
        found.contains("the bind of ldap.bind_dn, `cn=larder,dc=example,dc=org`: result 49"),
        "{found}"
    );
}

#[tokio::test]
async fn groups_are_found_by_the_user() {
    let Some(slapd) = Slapd::start() else { return };
    let of = |service, filter| Settings {
        service,
        groups: Some(groups(filter)),
        ..settings(&slapd, template())
    };
    let members = "(&(objectClass=groupOfNames)(member={userdn}))";
    assert_eq!(ask(of(None, members), "alice", "wonderland").await, "ldap-developers");
    assert_eq!(ask(of(None, members), "bob", "builder").await, "admin ldap-developers");
    assert_eq!(ask(of(service(), members), "bob", "builder").await, "admin ldap-developers");
    assert_eq!(ask(of(None, "(cn={username})"), "bob", "builder").await, "");
    let many: String = (0..1_001)
        .map(|number| {
            format!(
                "dn: cn=g{number},ou=groups,dc=example,dc=org\nchangetype: add\nobjectClass: groupOfNames\n\
                 cn: g{number}\nmember: uid=alice,ou=people,dc=example,dc=org\n\n"
            )
        })
        .collect();
    slapd.change(&many);
    let found = ask(of(None, members), "alice", "wonderland").await;
    assert!(found.contains("has more than 1000 groups"), "{found}");
    assert_eq!(ask(of(None, members), "bob", "builder").await, "admin ldap-developers");
}

/// Whoever is in such a group cannot log in, and nobody else waits because of them.
#[tokio::test]
async fn an_answer_that_is_too_long_stops_nobody_else() {
    let Some(slapd) = Slapd::start() else { return };
    slapd.change(&format!(
        "dn: cn=large,ou=groups,dc=example,dc=org\nchangetype: add\nobjectClass: groupOfNames\ncn: large\ncn: {}\n\
         member: uid=bob,{PEOPLE}\n",
        "x".repeat(1_100_000)
    ));
    let members = Some(groups("(member={userdn})"));
    let directory = Directory::new(Settings { groups: members, ..settings(&slapd, template()) });
    let directory = directory.expect("a directory");
    let name = "bob".parse().expect("a name");
    match directory.check(&name, "builder").await {
        Err(Failure::Unusable(reason)) => assert!(reason.contains("1048576 bytes"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(said(&directory, "alice", "wonderland").await, "ldap-developers");
}

#[tokio::test]
async fn certificates_are_checked() {
    let Some(slapd) = Slapd::start() else { return };
    let other = Slapd::start().expect("it is installed");
    let of = |url: String, start_tls, ca_file: Option<PathBuf>| Settings {
        servers: vec![url.parse().expect("a URL")],
        start_tls,
        ca_file,
        ..settings(&slapd, template())
    };
    let (plain, tls) = (slapd.url(), slapd.ldaps_url());
    for (url, start_tls) in [(&plain, true), (&tls, true), (&tls, false)] {
        let own = of(url.clone(), start_tls, Some(slapd.ca_file()));
        assert_eq!(ask(own, "alice", "wonderland").await, "yes", "{url}");
        // Of another authority, and for another name.
        let found =
            ask(of(url.clone(), start_tls, Some(other.ca_file())), "alice", "wonderland").await;
        assert!(found.contains("invalid peer certificate"), "{found}");
        let by_address = url.replace("localhost", "127.0.0.1");
        let found =
            ask(of(by_address, start_tls, Some(slapd.ca_file())), "alice", "wonderland").await;
        assert!(found.contains("certificate not valid for name"), "{found}");
        let found = ask(of(url.clone(), start_tls, None), "alice", "wonderland").await;
        assert!(found.contains("invalid peer certificate"), "{found}");
    }
    assert_eq!(
        slapd.binds("uid=alice"),
        3,
        "no password was sent to a server without a certificate"
    );
    let refused = |text: &str, problem: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ca.pem");
        std::fs::write(&path, text).expect("a file");
        match Directory::new(of(tls.clone(), true, Some(path))) {
            Err(SetupError::CaFile { problem: found, .. }) => assert_eq!(found, problem, "{text}"),
            _ => panic!("accepted, or another error: {text}"),
        }
    };
    refused("", "it holds no certificate; PEM was expected");
    refused(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "invalid peer certificate: BadEncoding",
    );
    refused(
        "-----BEGIN CERTIFICATE-----\nAAAA\n",
        "a certificate in it is cut off or damaged; PEM was expected",
    );
}

/// The second server is asked if the first is silent; what was silent is not asked for a while.
#[tokio::test]
async fn a_silent_server_is_left_alone() {
    let Some(slapd) = Slapd::start() else { return };
    let second = Slapd::start().expect("it is installed");
    let silent = slapd.freeze();
    let of = |servers: &[String]| {
        let servers = servers.iter().map(|url| url.parse().expect("a URL")).collect();
        let timeout = Duration::from_secs(1);
        Directory::new(Settings { servers, timeout, ..settings(&slapd, template()) })
            .expect("a directory")
    };
    let both = of(&[slapd.url(), second.url()]);
    assert_eq!(said(&both, "alice", "wonderland").await, "yes");
    let alone = of(&[slapd.url()]);
    let name = "alice".parse().expect("a name");
    match alone.check(&name, "wonderland").await {
        Err(Failure::Unreachable { reason, .. }) => {
            assert!(reason.contains("did not answer within 1 s"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(said(&alone, "alice", "wonderland").await.contains("a moment ago"));
    drop(silent);
    assert!(said(&alone, "alice", "wonderland").await.contains("a moment ago"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(said(&alone, "alice", "wonderland").await, "yes");
    second.stop();
    assert_eq!(said(&both, "alice", "wonderland").await, "yes");
}
