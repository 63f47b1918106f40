//! Publishers as they are written, and the jobs that they admit: others are refused.

use account::Claims;

use super::*;

const GITHUB: &str = "yourproject https://ci.example environment=release ref=refs/tags/v* \
                      repository_id=7 repository_owner_id=3 workflow=release.yml";

fn publisher(text: &str) -> Publisher {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn identity(kind: IssuerKind, claims: &[(&str, &str)]) -> CiIdentity {
    let claims: Claims =
        claims.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    CiIdentity { issuer: "https://ci.example".to_owned(), kind, claims }
}

/// A job of GitHub's kind, with some claims changed; an empty value takes a claim away.
fn job(changes: &[(&str, &str)]) -> CiIdentity {
    let mut claims = vec![
        ("repository", "org/repo"),
        ("repository_id", "7"),
        ("repository_owner_id", "3"),
        ("job_workflow_ref", "org/repo/.github/workflows/release.yml@refs/tags/v1.0"),
        ("event_name", "push"),
        ("environment", "release"),
        ("ref", "refs/tags/v1.0"),
    ];
    claims.retain(|(name, _)| !changes.iter().any(|(other, _)| other == name));
    claims.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
    identity(IssuerKind::Github, &claims)
}

#[track_caller]
fn check(text: &str, identity: &CiIdentity, outcome: &str) {
    let found = publisher(text).admit(identity);
    let found = found.map_or_else(|mismatch| mismatch.to_string(), |()| String::new());
    assert_eq!(found, outcome);
}

#[test]
fn a_publisher_is_read_as_it_is_written() {
    assert_eq!(publisher(GITHUB).to_string(), GITHUB);
    let odd = r#"acme-* https://ci.example/ a="two words" b="\"" c=d=e f="ü x""#;
    assert_eq!(publisher(odd).to_string(), odd);
    let untidy = "  Your_Project   https://ci.example  b=2   a=\"1\" ";
    assert_eq!(publisher(untidy).to_string(), "your-project https://ci.example a=1 b=2");
}

#[test]
fn what_is_no_publisher() {
    let refused = |text: &str, reason: &str| {
        let error = text.parse::<Publisher>().expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
    };
    refused("", "was expected");
    refused("yourproject", "was expected");
    refused("yourproject https://ci.example", "1 to 30 claims");
    refused("yourproject ci.example a=b", "URL of an issuer");
    refused("yourproject ftp://ci.example a=b", "URL of an issuer");
    refused("yourproject https://ci.example a", "was expected");
    refused("yourproject https://ci.example =b", "no name of a claim");
    refused("yourproject https://ci.example a=", "has no value");
    refused("yourproject https://ci.example a=\"\"", "has no value");
    refused("yourproject https://ci.example a=\"x\"y", "has no value");
    refused("yourproject https://ci.example a=x\"y", "has no value");
    refused("yourproject https://ci.example a=\"x", "has no value");
    refused("yourproject https://ci.example a=b a=c", "named twice");
    refused("yourproject https://ci.example aud=b", "checked of every identity");
    refused("yourproject https://ci.example a=b\nc=d", "control characters");
    refused("yourproject https://ci.example a=\"\\u0000\"", "control characters");
    refused(&format!("yourproject https://ci.example a={}", "x".repeat(2000)), "at most 2000");
}

#[test]
fn the_job_that_is_named() {
    check(GITHUB, &job(&[]), "");
    check(GITHUB, &job(&[("ref", "refs/tags/v2")]), "");
}

#[test]
fn other_jobs() {
    let other = |changes: &[(&str, &str)], outcome: &str| check(GITHUB, &job(changes), outcome);
    // Another repository, one made anew under the old name, and one that another owner has now.
    other(&[("repository_id", "8")], "`repository_id` is `8`, and `7` was expected");
    other(&[("repository_owner_id", "4")], "`repository_owner_id` is `4`, and `3` was expected");
    other(
        &[("repository_id", "")],
        "`repository_id` is missing, or not a text, and `7` was expected",
    );
    other(
        &[("environment", "")],
        "`environment` is missing, or not a text, and `release` was expected",
    );
    other(&[("environment", "Release")], "`environment` is `Release`, and `release` was expected");
    other(
        &[("ref", "refs/heads/main")],
        "`ref` is `refs/heads/main`, and `refs/tags/v*` was expected",
    );
    let elsewhere = CiIdentity { issuer: "https://ci.example/".to_owned(), ..job(&[]) };
    check(GITHUB, &elsewhere, "it is of another issuer");
}

/// The star is for refs alone: claims of other names have to be equal.
#[test]
fn a_star_means_itself_elsewhere() {
    let text = "p https://ci.example repository=org/*";
    let all = identity(IssuerKind::Generic, &[("repository", "org/repo")]);
    check(text, &all, "`repository` is `org/repo`, and `org/*` was expected");
}

#[test]
fn the_file_of_a_workflow() {
    let workflow = |value: &str, is_it: bool| {
        let found = publisher(GITHUB).admit(&job(&[("job_workflow_ref", value)]));
        assert_eq!(found.is_ok(), is_it, "{value}");
    };
    workflow("org/repo/.github/workflows/release.yml@refs/heads/x", true);
    workflow("org/repo/.github/workflows/test.yml@refs/heads/x", false);
    workflow("org/repo/.github/workflows/release.yml", false);
    workflow("org/other/.github/workflows/release.yml@refs/heads/x", false);
    workflow("org/repo2/.github/workflows/release.yml@refs/heads/x", false);
    workflow("org/repo/.github/workflows/x/release.yml@refs/heads/x", false);
    // The name of a branch cannot stand for a file.
    workflow("org/repo/.github/workflows/test.yml@refs/heads/@release.yml@x", false);

    let text = "p https://ci.example namespace_id=2 project_id=1 workflow=.gitlab-ci.yml";
    let gitlab = |uri: &str, is_it: bool| {
        let claims = [
            ("project_path", "group/sub/project"),
            ("project_id", "1"),
            ("namespace_id", "2"),
            ("pipeline_source", "push"),
            ("ci_config_ref_uri", uri),
        ];
        let found = publisher(text).admit(&identity(IssuerKind::Gitlab, &claims));
        assert_eq!(found.is_ok(), is_it, "{uri}");
    };
    gitlab("gitlab.example/group/sub/project//.gitlab-ci.yml@refs/heads/main", true);
    gitlab("gitlab.example:8443/group/sub/project//.gitlab-ci.yml@refs/heads/main", true);
    gitlab("gitlab.example/group/sub/project//other.yml@refs/heads/main", false);
    gitlab("gitlab.example/group/other//.gitlab-ci.yml@refs/heads/main", false);
    gitlab("/group/sub/project//.gitlab-ci.yml@refs/heads/main", false);
    gitlab("gitlab.example/group/sub/project/.gitlab-ci.yml@refs/heads/main", false);
}

/// A fork's pull request, and a job that a pull request makes the repository itself run.
#[test]
fn jobs_for_proposed_changes() {
    for event in ["pull_request", "pull_request_target", ""] {
        assert!(publisher(GITHUB).admit(&job(&[("event_name", event)])).is_err(), "{event}");
    }
    let named = format!("{GITHUB} event_name=pull_request_target");
    check(&named, &job(&[("event_name", "pull_request_target")]), "");
    let gitlab = "p https://ci.example project_id=1";
    for (source, is_admitted) in [("push", true), ("merge_request_event", false)] {
        let claims = [("project_id", "1"), ("pipeline_source", source)];
        let found = publisher(gitlab).admit(&identity(IssuerKind::Gitlab, &claims));
        assert_eq!(found.is_ok(), is_admitted, "{source}");
    }
}

#[test]
fn an_address_counts_if_it_is_verified() {
    let text = "p https://ci.example email=ci@host.example";
    let with = |verified: &[(&str, &str)]| {
        let claims = [&[("email", "ci@host.example")], verified].concat();
        publisher(text).admit(&identity(IssuerKind::Google, &claims)).is_ok()
    };
    assert!(with(&[("email_verified", "true")]));
    assert!(!with(&[("email_verified", "false")]));
    assert!(!with(&[]));
}

#[test]
fn each_kind_needs_ids() {
    let check = |kind: IssuerKind, claims: &str, lacks: &str| {
        let publisher = publisher(&format!("p https://ci.example {claims}"));
        match publisher.check_kind(kind) {
            Ok(()) => assert_eq!(lacks, "", "{claims}"),
            Err(error) => {
                let expected = format!("lacks {lacks}:");
                assert!(error.to_string().contains(&expected), "{error}");
            }
        }
    };
    check(IssuerKind::Github, "repository=a/b workflow=c", "`repository_id`");
    check(IssuerKind::Github, "repository_id=1 workflow=c", "`repository_owner_id`");
    let ids = "repository_id=1 repository_owner_id=2";
    check(IssuerKind::Github, ids, "`workflow` or `job_workflow_ref`");
    check(IssuerKind::Github, &format!("{ids} workflow=c"), "");
    check(IssuerKind::Gitlab, "project_path=a", "`project_id`");
    check(IssuerKind::Gitlab, "project_id=1 namespace_id=2 workflow=.gitlab-ci.yml", "");
    check(IssuerKind::Google, "hd=host.example", "`sub` or `email`");
    check(IssuerKind::Google, "sub=1", "");
    check(IssuerKind::Activestate, "organization=o project=p", "`actor_id`");
    check(IssuerKind::Activestate, "organization=o project=p actor_id=1", "");
    check(IssuerKind::Generic, "anything=1", "");
}

#[test]
fn the_projects_that_are_named() {
    let covers = |projects: &str, name: &str| {
        publisher(&format!("{projects} https://ci.example a=b")).covers(Portion::Project(name))
    };
    assert!(covers("Your.Project", "your-project") && !covers("yourproject", "other"));
    assert!(covers("acme-*", "acme-x") && !covers("acme-*", "acmex") && covers("*", "any"));
    let one = publisher("yourproject https://ci.example a=b");
    assert!(one.covers(Portion::Unnamed) && !one.covers(Portion::Whole));
}
