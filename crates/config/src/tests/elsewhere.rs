//! `[ldap]` and `[proxy_login]`: what belongs together.

use super::*;

const LDAP: &str =
    "[ldap]\nurls = [\"ldap://directory.example\"]\nuser_dn = \"uid={username},dc=x\"\n";

#[test]
fn a_directory_is_off_by_default() {
    assert!(Config::default().ldap.directory().is_none());
    assert!(Config::default().proxy_login.header.is_none());
}

#[test]
fn a_directory_needs_a_way_to_find_users() {
    let urls = "[ldap]\nurls = [\"ldap://directory.example\"]\n";
    let neither = "ldap.urls (config.toml:2:1) is set: expected ldap.user_dn, or ldap.user_base and ldap.user_filter, and not both";
    check_refused(urls, &[], &[], 78, neither);
    let both = format!("{LDAP}user_base = \"dc=x\"\nuser_filter = \"(uid={{username}})\"\n");
    check_refused(&both, &[], &[], 78, neither);
    check_refused(
        &format!("{urls}user_base = \"dc=x\"\n"),
        &[],
        &[],
        78,
        "ldap.user_base (config.toml:3:1) is set but ldap.user_filter is not: expected both",
    );
    check_refused(
        &format!(
            "{urls}user_base = \"dc=x\"\nuser_filter = \"(|(uid={{username}})(mail={{username}}))\"\n"
        ),
        &[],
        &[],
        78,
        "ldap.user_filter = \"(|(uid={username})(mail={username}))\" (config.toml:4:1) compares `{username}` with [uid, mail]: \
         expected one attribute, or ldap.user_attribute, because a user has one name",
    );
    check_refused(
        &format!("{LDAP}bind_dn = \"cn=larder\"\n"),
        &[],
        &[],
        78,
        "ldap.bind_dn (config.toml:4:1) is set but ldap.bind_password is not: expected both",
    );
    check_refused(
        &format!("{LDAP}bind_password_file = \"/etc/word\"\n"),
        &[],
        &[],
        78,
        "ldap.bind_password_file (config.toml:4:1) is set but ldap.bind_dn is not: expected both",
    );
    check_refused(
        &format!("{LDAP}group_base = \"dc=x\"\ngroup_filter = \"(member={{userdn}})\"\n"),
        &[],
        &[],
        78,
        "ldap.group_filter (config.toml:5:1) is set but ldap.groups is empty: expected GROUP=HERE, *=ldap-* or *=*",
    );
}

/// With the same groups for everybody, everybody could do what some may.
#[test]
fn a_filter_depends_on_the_user() {
    let search = "[ldap]\nurls = [\"ldap://directory.example\"]\nuser_base = \"dc=x\"\n";
    for more in ["", "user_attribute = \"uid\"\n"] {
        check_refused(
            &format!("{search}user_filter = \"(objectClass=person)\"\n{more}"),
            &[],
            &[],
            78,
            "ldap.user_filter = \"(objectClass=person)\" (config.toml:4:1) finds the same for every user: expected \
             `{username}` in it, such as (uid={username})",
        );
    }
    let groups = format!("{LDAP}groups = [\"*=*\"]\ngroup_base = \"dc=x\"\n");
    check_refused(
        &format!("{groups}group_filter = \"(!(cn=a))\"\n"),
        &[],
        &[],
        78,
        "ldap.group_filter = \"(!(cn=a))\" (config.toml:6:1) finds the same groups for every user: expected `{userdn}` or \
         `{username}` in it, such as (member={userdn})",
    );
    for filter in ["(memberUid={username})", "(&(cn=a)(|(member={userdn})(owner=x)))"] {
        let text = format!("{groups}group_filter = \"{filter}\"\n");
        given(&text, &[], &[]).inputs.load().expect(filter);
    }
}

#[test]
fn the_password_of_a_directory_is_in_a_file_and_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("word");
    std::fs::write(&file, "two words\n").unwrap();
    let text = format!("{LDAP}bind_dn = \"cn=larder\"\nbind_password_file = {file:?}\n");
    let loaded = given(&text, &[], &[]).inputs.load().unwrap();
    let secret = loaded.config.ldap.bind_password.as_ref().map(Secret::reveal);
    assert_eq!(secret, Some("two words"));
    assert!(!print::show(&loaded).contains("two words"));
    for empty in ["", "\r\n\n"] {
        std::fs::write(&file, empty).unwrap();
        let expected = format!(
            "ldap.bind_password_file = {file:?} (config.toml:5:1): it is empty: expected the password of ldap.bind_dn"
        );
        check_refused(&text, &[], &[], 78, &expected);
    }
    std::fs::remove_file(&file).unwrap();
    let expected = format!(
        "ldap.bind_password_file = {file:?} (config.toml:5:1): cannot be read: No such file or directory (os error 2)"
    );
    check_refused(&text, &[], &[], 78, &expected);
}

#[test]
fn a_proxy_is_believed_only_if_it_is_named() {
    let header = "[proxy_login]\nheader = \"X-Remote-User\"\n";
    check_refused(
        header,
        &[],
        &[],
        78,
        "proxy_login.header = \"x-remote-user\" (config.toml:2:1) lets trusted proxies say who someone is: expected \
         trusted_proxies to be set, because its default trusts every program on this machine",
    );
    let named = format!("trusted_proxies = [\"10.0.0.5\"]\n{header}");
    check(&named, &[], &[], "proxy_login.header", "x-remote-user (config.toml:3:1)");
    for taken in ["authorization", "x-larder-hops"] {
        let expected = format!(
            "proxy_login.header = \"{taken}\" (config.toml:3:1) says something else already: expected a header of its own, \
             such as x-remote-user"
        );
        check_refused(&named.replace("X-Remote-User", taken), &[], &[], 78, &expected);
    }
    check_refused(
        &format!("{named}groups_header = \"X-Groups\"\n"),
        &[],
        &[],
        78,
        "proxy_login.groups_header and proxy_login.groups belong together: expected both or neither (config.toml:3:1)",
    );
}
