//! Configurations of stages: every form of an edit, every kind of value, and every refusal.

use proptest::prelude::*;
use serde_json::json;

use super::edit::shown;
use super::*;

fn name() -> StageName {
    "alice/dev".parse().expect("a name")
}

/// Tells which stages exist besides the one that is changed.
fn exists(base: &StageName) -> bool {
    ["alice/dev", "alice/base", "root/pypi"].contains(&base.as_str())
}

fn created(config: Value) -> Result<StageConfig, String> {
    let edit = ConfigEdit::parse(&config).map_err(|error| error.to_string())?;
    StageConfig::create(&name(), &edit, &exists).map_err(|error| error.to_string())
}

/// Makes a stage of `config` and applies `edit`; returns the configuration after that, or the error.
#[track_caller]
fn edited(config: Value, edit: Value) -> Result<Value, String> {
    let config = created(config).expect("a configuration");
    let edit = ConfigEdit::parse(&edit).map_err(|error| error.to_string())?;
    let next = config.edited(&name(), &edit, &exists).map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(next).expect("JSON"))
}

/// Expects that `edit` of a stage with two bases makes `key` `expected` (null: `key` is not shown).
#[track_caller]
fn check(edit: Value, key: &str, expected: Value) {
    let config = json!({"bases": ["alice/base", "root/pypi"], "title": "old"});
    let next = edited(config, edit).expect("an edit that is taken");
    assert_eq!(next.get(key).cloned().unwrap_or_default(), expected);
}

/// Expects that `edit` of that stage is refused with `message`.
#[track_caller]
fn refused(edit: Value, message: &str) {
    let config = json!({"bases": ["alice/base", "root/pypi"], "title": "old"});
    assert_eq!(edited(config, edit), Err(message.to_owned()));
}

#[test]
fn a_new_stage_has_devpis_defaults_in_devpis_order() {
    let config = created(json!({})).expect("a configuration");
    assert_eq!(
        serde_json::to_string(&config).expect("JSON"),
        r#"{"type":"stage","volatile":true,"acl_upload":["alice"],"#.to_owned()
            + r#""acl_toxresult_upload":[":AUTHENTICATED:"],"bases":[],"mirror_whitelist":[],"#
            + r#""mirror_whitelist_inheritance":"intersection"}"#
    );
}

#[test]
fn the_server_decides_who_adds_test_results_unless_the_stage_does() {
    let key = "acl_toxresult_upload";
    let stored = |config: Value| StageConfig::from_stored(&name(), &config).expect("a record");
    let shown = |config: &StageConfig| serde_json::to_value(config).expect("JSON")[key].clone();
    let opened = |config: &StageConfig| config.clone().with_strangers_adding_test_results(true);
    // For a new stage, and for a record of an earlier version, which contains that version's default.
    let new = created(json!({})).expect("a configuration");
    for config in [new, stored(json!({"type": "stage", key: [":ANONYMOUS:"]}))] {
        assert_eq!(shown(&config), json!([":AUTHENTICATED:"]));
        assert_eq!(shown(&opened(&config)), json!([":ANONYMOUS:"]));
        assert_eq!(stored(config.to_stored()), config);
        assert_eq!(config.to_stored().get(key), None);
    }
    // A list that somebody has set stays, whatever the server's default is.
    for named in [":ANONYMOUS:", "bob"] {
        let config = created(json!({key: named})).expect("a configuration");
        assert_eq!(shown(&config), json!([named]));
        assert_eq!(stored(config.to_stored()), config);
        let edit = ConfigEdit::parse(&json!({key: null})).expect("an edit");
        let dropped = config.edited(&name(), &edit, &exists).expect("an edit that is taken");
        assert_eq!(shown(&dropped), json!([":AUTHENTICATED:"]));
    }
    assert_eq!(shown(&stored(json!({"type": "stage", key: ["bob"]}))), json!(["bob"]));
    assert_eq!(
        edited(json!({}), json!([format!("{key}+=bob")])).expect("an edit that is taken")[key],
        json!([":AUTHENTICATED:", "bob"])
    );
}

#[test]
fn a_mirror_shows_few_settings() {
    let config = created(json!({
        "type": "mirror", "volatile": false, "title": "Upstream", "mirror_cache_expiry": "60",
        "mirror_url": " https://upstream.example/simple", "mirror_no_project_list": "Yes",
    }));
    assert_eq!(
        serde_json::to_string(&config.expect("a configuration")).expect("JSON"),
        r#"{"type":"mirror","volatile":false,"mirror_url":"https://upstream.example/simple","#
            .to_owned()
            + r#""mirror_cache_expiry":60,"mirror_no_project_list":true,"title":"Upstream"}"#
    );
    // Its upstream may be set later.
    let config = created(json!({"type": "mirror"})).expect("a mirror of nothing");
    assert_eq!(
        serde_json::to_value(&config).expect("JSON"),
        json!({"type": "mirror", "volatile": true})
    );
    for url in ["ftp://upstream.example/", "https://", "https:///x", "upstream.example"] {
        let refused = created(json!({"type": "mirror", "mirror_url": url}));
        assert_eq!(refused, Err("'mirror_url' option must be a URL.".to_owned()), "{url}");
    }
    let error = created(json!({"type": "mirror", "mirror_url": "http://h/", "x": "a/b"}));
    let message = "indexconfig got unexpected keyword arguments: x=a/b";
    assert_eq!(error, Err(message.to_owned()));
    // Settings of a stage, which old clients send for every kind of index, are ignored.
    let old =
        json!({"type": "mirror", "bases": ["a/b"], "acl_upload": "x", "mirror_whitelist": "*"});
    let config = serde_json::to_value(created(old).expect("a mirror")).expect("JSON");
    assert_eq!(config, json!({"type": "mirror", "volatile": true}));
}

#[test]
fn lists_and_booleans_may_be_texts() {
    check(
        json!({"bases": "root/pypi, /alice/base/,"}),
        "bases",
        json!(["root/pypi", "alice/base"]),
    );
    check(json!({"bases": ["alice/base", "alice/base/"]}), "bases", json!(["alice/base"]));
    check(json!({"bases": ""}), "bases", json!([]));
    check(json!({"volatile": "No"}), "volatile", json!(false));
    check(json!({"volatile": "TRUE"}), "volatile", json!(true));
    check(
        json!({"acl_upload": "bob,:anonymous:,:Authenticated:,:team"}),
        "acl_upload",
        json!(["bob", ":ANONYMOUS:", ":AUTHENTICATED:", ":team"]),
    );
    check(
        json!({"mirror_whitelist": ["Foo_Bar", "*"]}),
        "mirror_whitelist",
        json!(["foo-bar", "*"]),
    );
    refused(json!({"volatile": "maybe"}), "Unknown boolean value 'maybe'.");
    refused(json!({"volatile": 1}), "Unknown boolean value 1.");
}

#[test]
fn the_list_form_sets_adds_removes_and_drops() {
    let all = json!(["alice/base", "root/pypi", "alice/dev"]);
    check(json!(["bases+=alice/dev"]), "bases", all);
    check(json!(["bases+=root/pypi"]), "bases", json!(["alice/base", "root/pypi"]));
    check(json!(["bases-=alice/base"]), "bases", json!(["root/pypi"]));
    check(json!(["bases=alice/dev,root/pypi"]), "bases", json!(["alice/dev", "root/pypi"]));
    check(json!(["bases="]), "bases", json!([]));
    check(
        json!(["bases-=alice/base", "bases+=alice/base"]),
        "bases",
        json!(["root/pypi", "alice/base"]),
    );
    check(json!(["title=new=er"]), "title", json!("new=er"));
    check(json!(["title-="]), "title", Value::Null);
    check(json!(["title="]), "title", json!(""));
    check(json!(["description-="]), "description", Value::Null);
    check(json!(["mirror_whitelist+=Foo_Bar"]), "mirror_whitelist", json!(["foo-bar"]));
    check(json!(["volatile=no"]), "volatile", json!(false));
    check(json!(["nothing-="]), "nothing", Value::Null);
    refused(json!(["bases-=bob/x"]), "The 'bases' setting doesn't have value 'bob/x'");
    refused(json!(["bases-="]), "Default values can't be removed.");
    refused(json!(["title+=x"]), "The 'title' setting is not a list");
    refused(
        json!(["nonsense"]),
        "`nonsense` changes nothing: `key=value`, `key+=value`, `key-=value` or `key-=` was expected",
    );
    refused(json!([1]), "an index configuration is a JSON object or a list of `key=value` strings");
}

#[test]
fn the_object_form_leaves_other_settings_alone() {
    check(json!({"title": "new"}), "bases", json!(["alice/base", "root/pypi"]));
    check(json!({"title": "new"}), "title", json!("new"));
    check(json!({"title": null, "bases": null}), "bases", json!([]));
    check(json!({"custom_data": {"a": [1]}}), "custom_data", json!({"a": [1]}));
}

#[test]
fn the_whole_reply_is_an_edit_too() {
    let config = json!({"bases": ["alice/base"], "acl_read": ["alice"], "retention_days": 30});
    let shown = serde_json::to_value(created(config.clone()).expect("a configuration"));
    let mut shown = shown.expect("JSON");
    shown["projects"] = json!(["a", "b"]);
    let reply = json!({"type": "indexconfig", "result": shown});
    let next = edited(config, reply).expect("an edit");
    shown.as_object_mut().expect("an object").remove("projects");
    assert_eq!(next, shown);
}

#[test]
fn faults_are_named_in_devpis_words() {
    refused(json!({"type": "mirror"}), "the 'type' of an index can't be changed");
    check(json!({"type": "stage", "title": "x"}), "title", json!("x"));
    refused(
        json!({"bases": ["nobody/x", "x"]}),
        "base index 'nobody/x' does not exist, invalid base index spec: 'x'",
    );
    refused(
        json!({"mirror_whitelist_inheritance": "both"}),
        "Unknown value 'both' for mirror_whitelist_inheritance, must be 'intersection' or 'union'.",
    );
    refused(
        json!({"x": "1", "y": [2]}),
        "indexconfig got unexpected keyword arguments: x=1, y=[2]",
    );
    let many: serde_json::Map<_, _> = (10..32).map(|it| (format!("x{it}"), json!(1))).collect();
    let ten: Vec<String> = (10..20).map(|it| format!("x{it}=1")).collect();
    let ten = ten.join(", ");
    refused(
        Value::Object(many),
        &format!("indexconfig got unexpected keyword arguments: {ten} and 12 more"),
    );
    refused(json!(["x+=1"]), "indexconfig got unexpected keyword arguments: x=1");
    refused(json!("x"), "an index configuration is a JSON object or a list of `key=value` strings");
    assert_eq!(created(json!({"type": "x"})), Err("unknown index type 'x'".to_owned()));
    assert!(created(json!({"acl_upload": ["a b"]})).is_err());
    assert!(created(json!({"retention_days": -1})).is_err());
    let error = created(json!({"type": "mirror", "mirror_cache_expiry": "soon"}));
    assert_eq!(error, Err("'mirror_cache_expiry' option must be an integer".to_owned()));
    assert!(created(json!({"title": 5})).is_err());
}

#[test]
fn a_list_has_at_most_a_thousand_items_however_they_were_added() {
    let names = |from: usize, to: usize| {
        let names: Vec<String> = (from..to).map(|number| format!("u{number}")).collect();
        names.join(",")
    };
    let message = "'acl_upload' is too long: at most 1000 items were expected";
    let thousand = json!({"acl_upload": names(0, 1000)});
    let is_taken = |edit: Value| edited(thousand.clone(), edit).map(|_| ());
    assert_eq!(is_taken(json!([format!("acl_upload={}", names(0, 1001))])), Err(message.into()));
    assert_eq!(is_taken(json!(["acl_upload+=bob"])), Err(message.into()));
    assert_eq!(is_taken(json!([format!("acl_upload+={}", names(500, 1000))])), Ok(()));
    assert_eq!(is_taken(json!(["acl_upload-=u0", "acl_upload+=bob"])), Ok(()));
}

#[test]
fn custom_data_is_nested_in_64_levels_at_most() {
    let nested = |levels| (0..levels).fold(json!({"a": 1}), |inner, _| json!([inner]));
    assert!(created(json!({"custom_data": nested(63)})).is_ok());
    let message = "'custom_data' is too deeply nested: at most 64 levels were expected";
    refused(json!({"custom_data": nested(64)}), message);
    refused(json!({"custom_data": nested(120)}), message);
}

#[test]
fn values_beyond_a_later_bound_are_read_and_may_shrink() {
    let users: Vec<String> = (0..1500).map(|number| format!("u{number}")).collect();
    let nested = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let stored = json!({
        "type": "stage", "acl_upload": users, "custom_data": nested, "title": "x".repeat(70_000),
    });
    let config = StageConfig::from_stored(&name(), &stored).expect("a record");
    assert_eq!(config.to_stored()["acl_upload"], stored["acl_upload"]);
    let edit = ConfigEdit::parse(&json!(["acl_upload-=u0", "description=y"])).expect("an edit");
    assert!(config.edited(&name(), &edit, &exists).is_ok());
}

#[test]
fn a_deleted_base_may_stay_in_the_configuration() {
    let config = created(json!({"bases": ["alice/base"]})).expect("a configuration");
    let edit = ConfigEdit::parse(&json!({"bases": ["alice/base"], "title": "x"})).expect("an edit");
    let next = config.edited(&name(), &edit, &|_| false).expect("an edit that is taken");
    assert_eq!(next.bases(), config.bases());
}

/// Any edit, of known and unknown settings, in any form.
fn any_edit() -> impl Strategy<Value = Value> {
    let keys = [
        "volatile",
        "bases",
        "acl_upload",
        "acl_read",
        "mirror_whitelist",
        "title",
        "custom_data",
        "mirror_whitelist_inheritance",
        "retention_versions",
        "mirror_url",
        "type",
        "x",
    ];
    let values = prop_oneof![
        Just(json!(true)),
        Just(json!("no")),
        Just(json!("alice/base")),
        Just(json!(["root/pypi"])),
        Just(json!("*,Foo_Bar")),
        Just(json!(":team")),
        Just(json!("union")),
        Just(json!(3)),
        Just(json!("")),
        Just(Value::Null),
        Just(json!({"a": 1})),
        Just(json!("stage")),
    ];
    let pair = (prop::sample::select(keys.to_vec()), values);
    let object = prop::collection::vec(pair.clone(), 0..4)
        .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
    let item = (pair, prop::sample::select(vec!["=", "+=", "-="]))
        .prop_map(|((key, value), sign)| json!(format!("{key}{sign}{}", shown(&value))));
    prop_oneof![
        object.prop_map(Value::Object),
        prop::collection::vec(item, 0..4).prop_map(Value::Array)
    ]
}

proptest! {
    #[test]
    fn whatever_is_taken_is_stored_and_shown_as_it_is(edits in prop::collection::vec(any_edit(), 1..5)) {
        let mut config = created(json!({})).expect("a configuration");
        for edit in &edits {
            let edit = ConfigEdit::parse(edit).expect("a shape");
            let Ok(next) = config.edited(&name(), &edit, &exists) else { continue };
            let stored = StageConfig::from_stored(&name(), &next.to_stored());
            prop_assert_eq!(stored, Ok(next.clone()));
            // A client may send back everything that it was shown.
            let shown = serde_json::to_value(&next).expect("JSON");
            let again = ConfigEdit::parse(&shown).expect("a shape");
            prop_assert_eq!(next.edited(&name(), &again, &exists), Ok(next.clone()));
            config = next;
        }
    }
}

#[test]
fn settings_of_a_policy_have_one_spelling() {
    for (key, value, expected) in [
        ("policy_cooldown_days", json!("7"), json!(7)),
        ("policy_cooldown_days", json!(""), Value::Null),
        ("policy_cutoff", json!("2026-01-31"), json!("2026-01-31T00:00:00Z")),
        ("policy_cutoff", json!("2026-01-31T01:00:00+01:00"), json!("2026-01-31T00:00:00Z")),
        ("policy_cutoff", json!(""), Value::Null),
        ("policy_cooldown_except", json!("Acme_*, Foo.Bar"), json!(["acme-*", "foo-bar"])),
        // The commas of a specifier separate nothing.
        (
            "policy_deny",
            json!("Foo >= 1, < 2, bar@sdist,*"),
            json!(["foo>=1,<2", "bar@sdist", "*"]),
        ),
        (
            "base_pins",
            json!("Acme_*=alice/dev, Foo = bob/dev"),
            json!(["acme-*=alice/dev", "foo=bob/dev"]),
        ),
        ("policy_allow", json!(["foo ~= 1.0"]), json!(["foo~=1.0"])),
        ("policy_deny", json!(""), Value::Null),
        ("policy_malware", json!(" refuse "), json!("refuse")),
        ("policy_vulnerabilities", json!("warn"), json!("warn")),
        ("policy_malware", json!("off"), Value::Null),
        ("policy_malware", json!(""), Value::Null),
        (
            "policy_quarantine",
            json!("Foo==1.0  stolen, see below"),
            json!(["foo==1.0 stolen, see below"]),
        ),
        ("policy_quarantine", json!(["foo-1.0.tar.gz", "b* x"]), json!(["foo-1.0.tar.gz", "b* x"])),
        (
            "policy_exceptions",
            json!("Foo==1.0  until 2026-01-31 fixes all, says alice"),
            json!(["foo==1.0 until 2026-01-31T00:00:00Z fixes all, says alice"]),
        ),
    ] {
        check(json!({key: value}), key, expected);
    }
}

#[test]
fn settings_of_a_policy_that_are_refused() {
    for (key, value, message) in [
        (
            "policy_cooldown_days",
            json!(36_501),
            "'policy_cooldown_days' cannot be 36501: at most 36500 days were expected",
        ),
        (
            "policy_cutoff",
            json!("soon"),
            "'policy_cutoff' cannot be soon: a day or a time was expected, as 2026-01-31 or 2026-01-31T23:59:59Z",
        ),
        (
            "policy_malware",
            json!("deny"),
            "'policy_malware' cannot be deny: `refuse`, `warn` or `off` was expected",
        ),
        (
            "policy_deny",
            json!("foo@dmg"),
            "`foo@dmg` names no kind of file: `wheel`, `sdist`, `egg` or `other` was expected after `@`",
        ),
        (
            "policy_deny",
            json!("foo>=x"),
            "`foo>=x` has no versions as PEP 440 writes them; `name>=1.0,<2` was expected",
        ),
        (
            "policy_exceptions",
            json!("foo until tomorrow it will be late"),
            "`foo until tomorrow it will be late` is no exception: `RULE until DAY REASON` was expected, as `foo==1.2 until 2026-01-31 approved by alice`",
        ),
        (
            "policy_exceptions",
            json!("foo until 2026-01-31"),
            "`foo until 2026-01-31` is no exception: `RULE until DAY REASON` was expected, as `foo==1.2 until 2026-01-31 approved by alice`",
        ),
        (
            "base_pins",
            json!("foo"),
            "`foo` pins no project to a base: `NAME=user/index` or `PREFIX*=user/index` was expected",
        ),
        ("policy_cooldown_except", json!("f?*"), "`f?*` is no start of a project's name and `*`"),
    ] {
        refused(json!({key: value}), message);
    }
}

#[test]
fn what_is_quarantined_is_released_by_its_rule() {
    let config = json!({"policy_quarantine": ["foo==1.0 stolen, see below", "bar a test"]});
    let next = edited(config.clone(), json!(["policy_quarantine-=foo==1.0"])).expect("an edit");
    assert_eq!(next["policy_quarantine"], json!(["bar a test"]));
    let next = edited(config, json!(["policy_quarantine+=baz"])).expect("an edit");
    assert_eq!(
        next["policy_quarantine"],
        json!(["foo==1.0 stolen, see below", "bar a test", "baz"])
    );
    let config = json!({"policy_exceptions": ["foo==1.0 until 2026-01-31 why, so", "bar until 2026-02-01 b"]});
    let next = edited(config, json!(["policy_exceptions-=foo==1.0"])).expect("an edit");
    assert_eq!(next["policy_exceptions"], json!(["bar until 2026-02-01T00:00:00Z b"]));
    // A mirror has the same settings, and a record keeps them.
    let mirror = json!({"type": "mirror", "mirror_url": "https://h/", "policy_cooldown_days": 3,
        "policy_cutoff": "2026-01-31", "policy_allow": ["a*", "b<2"], "policy_quarantine": ["c why, so"],
        "policy_exceptions": ["d until 2026-01-31 why"], "policy_malware": "refuse", "policy_vulnerabilities": "warn"});
    let mirror = created(mirror).expect("a configuration");
    assert_eq!(StageConfig::from_stored(&name(), &mirror.to_stored()), Ok(mirror));
}
