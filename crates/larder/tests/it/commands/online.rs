//! `larder config check --online` beside things that work, and things that do not.

use serde_json::json;
use testbed::{S3, Slapd};

use super::Running;
use crate::asking::Says as _;
use crate::process::{Done, larder};
use crate::publishing::issuer::{FakeIssuer, Key};
use crate::wait_until;

/// A place where nothing listens.
const NOWHERE: &str = "http://127.0.0.1:9";

#[test]
fn each_thing_that_is_somewhere_else_is_tried() {
    let running = Running::start();
    let issuer = FakeIssuer::with_keys(json!([Key::ec().public("k1"), Key::ec().public("k2")]));
    let place = running.place();
    place.run("index add team/dev");
    wait_until("the index", || running.get("/team/dev").status == 200);
    let url = format!("{}/team/dev/+simple", running.url());
    place.run(&format!("index add team/good type=mirror mirror_url={url}"));
    let check = |flags: &str| {
        let line = format!("config check --online --aur-enabled=false {flags}");
        place.run_with(&line, "")
    };
    let issuers = format!("--publishing-issuers=generic#{}", issuer.url).replace('#', " ");
    let with_issuer = |more: &[&str]| {
        let words = [&["config", "check", "--online", issuers.as_str()], more].concat();
        place.run_words(&words, "")
    };

    check("--egress-allow 127.0.0.1/32").check(
        0,
        [
            "the configuration is valid",
            "works: store.database",
            "works: store.blobs",
            "works: mirror_url of team/good",
        ],
    );
    with_issuer(&["--egress-allow", "127.0.0.1/32"]).check(0, "it has 2 keys");
    check("").fails(1, ["works: store.database", "fails: mirror_url of team/good", "egress_allow"]);

    // A list that is not there has its setting.
    place.run(&format!("index set team/good mirror_url={url}/none"));
    let all = "--egress-allow 127.0.0.1/32";
    check(all).fails(1, ["fails: mirror_url of team/good", "404", "`mirror_no_project_list=true`"]);
    place.run("index set team/good mirror_no_project_list=true");
    check(all).check(0, "works: mirror_url of team/good");

    // What fails does not hide what works.
    place.run(&format!("index add team/bad type=mirror mirror_url={NOWHERE}/secret/"));
    let source = format!("--aur-source={NOWHERE}/dump.gz");
    let flags = ["--egress-allow", "127.0.0.1/32", "--aur-enabled=true", &source];
    let done = with_issuer(&flags);
    done.fails(
        1,
        [
            "works: mirror_url of team/good",
            "fails: mirror_url of team/bad",
            "fails: aur.source",
            "it has 2 keys",
        ],
    );

    place.run_with("config check --aur-enabled=false", "").check(0, "").said().lacks("works");
}

#[test]
fn a_wrong_password_and_a_missing_store_are_told_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    let check = |flags: &[&str]| {
        let words = ["config", "check", "--online", "--data-dir", "data"];
        Done::of(larder(directory.path()).args(words).args(flags), "")
    };
    check(&[]).check(0, ["works: store.database", "the first start makes it"]);
    assert!(!directory.path().join("data").exists(), "and nothing is made");
    let database = "--database=postgres://larder:s3cret@127.0.0.1:9/larder";
    let done = check(&[database]);
    done.fails(1, "fails: store.database").said().lacks("s3cret");
}

/// A provider, a directory and a bucket, each when it works and when it does not.
#[test]
fn who_knows_users_and_where_blobs_are_is_tried() {
    let directory = tempfile::tempdir().expect("a directory");
    let check = |flags: &[&str], variables: &[(&str, &str)]| {
        let words = ["config", "check", "--online", "--data-dir", "data", "--aur-enabled=false"];
        let mut command = larder(directory.path());
        Done::of(command.args(words).args(flags).envs(variables.iter().copied()), "")
    };
    let issuer = FakeIssuer::with_keys(json!([Key::ec().public("k1")]));
    let file = |issuer: &str, more: &str| {
        let text = format!(
            "[[provider]]\nname = \"company\"\nissuer = \"{issuer}\"\nclient_id = \"larder\"\n{more}"
        );
        std::fs::write(directory.path().join("providers.toml"), text).expect("a file");
    };
    let provider = ["--oidc-providers-file", "providers.toml"];
    file(&issuer.url, "");
    check(&provider, &[]).fails(1, ["fails: provider company", "`authorization_endpoint`"]);
    let url = &issuer.url;
    issuer.serve(
        "/.well-known/openid-configuration",
        json!({"issuer": url, "jwks_uri": format!("{url}/keys"),
            "authorization_endpoint": format!("{url}/auth"), "token_endpoint": format!("{url}/token")}),
    );
    check(&provider, &[]).check(0, "works: provider company");
    file(&issuer.url, "client_secret_env = \"COMPANY_SECRET\"\n");
    check(&provider, &[("COMPANY_SECRET", "s3cret")]).check(0, "works: provider company");
    check(&provider, &[]).fails(2, "\"COMPANY_SECRET\": the environment has no such variable");
    file(NOWHERE, "");
    check(&provider, &[]).fails(1, "fails: provider company");

    let user = "--ldap-user-dn=uid={username},ou=people,dc=example,dc=org";
    check(&["--ldap-urls", "ldaps://127.0.0.1:9", user], &[]).fails(1, "fails: ldap.urls");
    if let Some(slapd) = Slapd::start() {
        let url = slapd.ldaps_url();
        check(&["--ldap-urls", &url, user], &[]).fails(1, "fails: ldap.urls");
        let ca_file = slapd.ca_file();
        let trusting = ["--ldap-ca-file", ca_file.to_str().expect("a path")];
        let flags = [&["--ldap-urls", &url, user][..], &trusting].concat();
        check(&flags, &[]).check(0, "works: ldap.urls");
    }
    let Some(s3) = S3::shared() else { return };
    let known = s3.variables();
    let known: Vec<(&str, &str)> =
        known.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let bucket = format!("s3://{}/x", s3.make_bucket());
    check(&["--blobs", &bucket], &known)
        .check(0, ["works: store.blobs", "the first start makes it"]);
    check(&["--blobs", "s3://no-such-bucket-here/x"], &known).fails(1, "fails: store.blobs");
}
