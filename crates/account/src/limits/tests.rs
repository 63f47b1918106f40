//! Limits compared with a simple model, and that they never add rights.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::testing::{limits, user};
use crate::{Acl, AuthMethod, Identity, Principal, Scopes, UserPolicy};

const INDEXES: [&str; 4] = ["team/dev", "team/prod", "team2/dev", "bob/dev"];
const PROJECTS: [&str; 3] = ["foo", "foo-bar", "bar"];
const ARTICLES: [&str; 5] = ["docs", "docs/a", "docs/a/b", "docs-old/a", "news"];

#[track_caller]
fn reads(text: &str, expected: &str) {
    let found = text.parse::<IndexPattern>().map(|pattern| pattern.0.to_string());
    assert_eq!(found.unwrap_or_else(|error| error.to_string()), expected, "{text}");
}

#[test]
fn an_index_or_all_of_a_user() {
    reads("team/dev", "team/dev");
    reads("/team/dev/", "team/dev");
    reads("team/*", "team/*");
    let expected =
        "is not the name of an index: `user/index`, or `user/*` for all of a user, was expected";
    for bad in ["", "team", "team/", "team/dev/foo"] {
        reads(bad, &format!("`{bad}` {expected}"));
    }
    for bad in ["*/*", "*/dev", "team/d*", "team/..", "te am/dev"] {
        assert!(bad.parse::<IndexPattern>().is_err(), "{bad}");
    }
}

/// Compares the text of limits, and the refusal of a request outside of them.
#[track_caller]
fn says(own: &str, scope: Scope, object: Object<'_>, expected: &str) {
    let principal = limited("alice", &[], "*", limits(own));
    let lack = principal.lack(scope, object).expect("it is outside");
    assert_eq!(lack.to_string(), format!("this token is limited to {expected}"));
}

#[test]
fn a_refusal_names_the_limits() {
    use Object::{Article, Articles, Index, Server};
    use Portion::{Project, Unnamed, Whole};
    let foo = "index=team/dev project=foo";
    let named = |rest: &str| format!("project `foo` of team/dev; it may not {rest}");
    let upload = Scope::PythonUpload;
    says(foo, upload, Index("team/dev", Project("bar")), &named("write `bar`"));
    says(foo, upload, Index("team/prod", Project("foo")), &named("write `foo` of team/prod"));
    says(foo, upload, Index("team/prod", Unnamed), &named("write team/prod"));
    let whole = named("change team/dev as a whole");
    says(foo, Scope::PythonAdmin, Index("team/dev", Whole), &whole);
    says(foo, Scope::UserAdmin, Server, &named("manage users, tokens or the server"));
    says(foo, Scope::ArticleRead, Article("docs/a"), &named("read `docs/a`"));
    let expected = "team/*, bob/dev; it may not read eve/dev";
    let (read, whole) = (Scope::PythonRead, Index("eve/dev", Whole));
    says(
        "index=team/* index=bob/dev",
        read,
        whole,
        &expected.replace("team/*, bob/dev", "bob/dev, team/*"),
    );
    let below = "projects `bar`, `foo` and articles below `/docs/`; it may not read";
    let all = "project=foo project=bar prefix=docs";
    says(all, Scope::ArticleRead, Articles(""), &format!("{below} all articles"));
    let begin = format!("{below} all articles that begin with `docs`");
    says(all, Scope::ArticleRead, Articles("docs"), &begin);
}

/// A refusal is a line, whatever the token is limited to.
#[test]
fn a_refusal_names_a_few_of_many() {
    let many: String = (10..=40).map(|number| format!("project=p{number} ")).collect();
    let named: Vec<String> = (10..20).map(|number| format!("`p{number}`")).collect();
    let expected = format!("projects {} and 21 more; it may not read `x` of a/b", named.join(", "));
    says(&many, Scope::PythonRead, Object::Index("a/b", Portion::Project("x")), &expected);
}

fn limited(name: &str, groups: &[&str], scopes: &str, limits: Option<Limits>) -> Principal {
    Principal::User(Identity {
        user: Arc::new(user(name, groups)),
        means: AuthMethod::Token("0123456789ab".parse().expect("an id")),
        scopes: scopes.parse().expect("scopes"),
        limits: limits.map(Arc::new),
    })
}

/// A second, simple implementation of limits.
fn is_within(patterns: &[&str], projects: &[&str], prefixes: &[&str], object: Object<'_>) -> bool {
    let all = patterns.is_empty() && projects.is_empty() && prefixes.is_empty();
    let has_index = |index: &str| {
        let user = index.split('/').next().expect("a user");
        patterns.contains(&index) || patterns.contains(&format!("{user}/*").as_str())
    };
    all || match object {
        Object::Server => false,
        Object::Index(index, portion) => {
            let by_index = has_index(index) || (patterns.is_empty() && !projects.is_empty());
            by_index
                && match portion {
                    Portion::Whole => projects.is_empty(),
                    Portion::Project(name) => projects.is_empty() || projects.contains(&name),
                    Portion::Unnamed => true,
                }
        }
        Object::Article(name) => {
            let parents: Vec<&str> = name.split('/').collect();
            let parents = (0..=parents.len()).map(|count| parents[..count].join("/"));
            parents.into_iter().any(|parent| prefixes.contains(&parent.as_str()))
        }
        // Every name that it may be the beginning of.
        Object::Articles(start) => ["", "-", "/", "x", "/x", "x/y"].iter().all(|end| {
            let name = format!("{start}{end}");
            is_within(patterns, projects, prefixes, Object::Article(&name))
        }),
    }
}

fn any_object() -> impl Strategy<Value = Object<'static>> {
    let portion = prop_oneof![
        Just(Portion::Whole),
        select(&PROJECTS[..]).prop_map(Portion::Project),
        Just(Portion::Unnamed),
    ];
    prop_oneof![
        Just(Object::Server),
        (select(&INDEXES[..]), portion).prop_map(|(index, portion)| Object::Index(index, portion)),
        select(&ARTICLES[..]).prop_map(Object::Article),
        select(vec!["", "d", "docs", "docs/", "docs/a", "docs-", "news/"])
            .prop_map(Object::Articles),
    ]
}

proptest! {
    #[test]
    fn limits_only_take_away(
        patterns in subsequence(vec!["team/dev", "team/*", "bob/*", "bob/dev"], 0..3),
        projects in subsequence(PROJECTS.to_vec(), 0..3),
        prefixes in subsequence(vec!["", "docs", "docs/a", "news"], 0..3),
        object in any_object(),
        scope in select(Scope::EVERY.to_vec()),
        own in select(Scope::EVERY.to_vec()),
        name in select(vec!["alice", "team", "bob", "root"]),
        groups in subsequence(vec!["admin", "ops"], 0..3),
        list in select(vec!["", ":ANONYMOUS:", ":AUTHENTICATED:", "alice", ":ops", "bob,team"]),
    ) {
        let own = own.as_str();
        let indexes = patterns.iter().map(|text| text.parse().expect("a pattern")).collect();
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let limits = Limits::new(indexes, owned(&projects), owned(&prefixes));
        let is_limited = limits.is_some();
        let free = limited(name, &groups, own, None);
        let bound = limited(name, &groups, own, limits);
        let is_inside = is_within(&patterns, &projects, &prefixes, object);
        let list: Acl = list.parse().expect("a list");
        let owner: UserName = "alice".parse().expect("a name");
        let rights: [&dyn Fn(&Principal) -> bool; 3] = [
            &|it| list.admits(it, scope, object),
            &|it| it.acts_for(&owner, scope, object),
            &|it| it.is_administrator(scope, object),
        ];
        for right in rights {
            let of_strangers = right(&Principal::Anonymous);
            prop_assert_eq!(right(&bound), right(&free) && (is_inside || of_strangers));
        }
        prop_assert_eq!(bound.lack(scope, object).is_none(), free.lack(scope, object).is_none() && is_inside);
        // Users and tokens: as strangers.
        for policy in [false, true].map(|strangers_create_users| UserPolicy {
            strangers_create_users,
            modifiers: strangers_create_users.then(|| list.clone()),
        }) {
            let target = user("alice", &[]);
            let may = |it: &Principal| [
                policy.create_user(it, &owner).is_ok(),
                policy.modify_user(it, &owner).is_ok(),
                policy.change_password(it, &target).is_ok(),
                policy.delete_user(it, &owner).is_ok(),
                policy.administer(it, &owner).is_ok(),
                policy.manage_tokens(it, &owner).is_ok(),
                policy.create_token(it, &owner, Scopes::NONE).is_ok(),
            ];
            let expected = if is_limited { may(&Principal::Anonymous) } else { may(&free) };
            prop_assert_eq!(may(&bound), expected);
        }
    }
}
