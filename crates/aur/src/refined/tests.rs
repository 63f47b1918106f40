//! Answers with parameters that upstream does not have, from a few packages.

use super::*;
use crate::dump::{self, DumpLimits};
use crate::params::{Arg, Body, Params, PathParams};

const DUMP: &str = r#"[
{"ID":1,"Name":"pear","PackageBaseID":1,"PackageBase":"pear","Version":"1-1","Description":"a juicy fruit","URL":null,"NumVotes":3,"Popularity":0.5,"OutOfDate":null,"Maintainer":"ann","Submitter":"bob","FirstSubmitted":10,"LastModified":40,"URLPath":"/x","Depends":["tree>=2","soil"],"Keywords":["sweet"],"FlaggedMalicious":true},
{"ID":2,"Name":"pear-git","PackageBaseID":1,"PackageBase":"pear","Version":"1-1","Description":"a fruit, fresh","URL":null,"NumVotes":3,"Popularity":1.5,"OutOfDate":99,"Maintainer":"ann","Submitter":"bob","FirstSubmitted":20,"LastModified":30,"URLPath":"/x","Provides":["pear=1","fruit"],"Depends":["tree"]},
{"ID":3,"Name":"bigpear","PackageBaseID":3,"PackageBase":"bigpear","Version":"2-1","Description":"huge","URL":null,"NumVotes":9,"Popularity":9.25,"OutOfDate":null,"Maintainer":null,"Submitter":"bob","FirstSubmitted":30,"LastModified":20,"URLPath":"/x","MakeDepends":["pear-git"],"OptDepends":["fruit: to look like one"]},
{"ID":4,"Name":"apple","PackageBaseID":4,"PackageBase":"apple","Version":"2-1","Description":"no pear","URL":null,"NumVotes":0,"Popularity":0.0,"OutOfDate":null,"Maintainer":"ann","Submitter":"ann","FirstSubmitted":40,"LastModified":10,"URLPath":"/x","Keywords":["fruit"],"CheckDepends":["fruit"]},
{"ID":5,"Name":"memtest86+","PackageBaseID":5,"PackageBase":"memtest86+","Version":"7-1","Description":"tests memory","URL":null,"NumVotes":1,"Popularity":0.25,"OutOfDate":null,"Maintainer":"eve","Submitter":"eve","FirstSubmitted":50,"LastModified":5,"URLPath":"/x","Keywords":["c++"]},
{"ID":6,"Name":"memtest86+-efi","PackageBaseID":5,"PackageBase":"memtest86+","Version":"7-1","Description":"tests memory","URL":null,"NumVotes":1,"Popularity":2.5,"OutOfDate":null,"Maintainer":"eve","Submitter":"eve","FirstSubmitted":50,"LastModified":5,"URLPath":"/x"}
]"#;

fn sample() -> Snapshot {
    dump::read(DUMP.as_bytes(), &DumpLimits::default()).expect("a dump")
}

fn ask(query: &str) -> serde_json::Value {
    let params = Params::from_query(PathParams::default(), Some(&format!("v=5&{query}")));
    assert!(params.are_refined(), "{query}");
    let answer = Answer::to_refined(params, &sample(), true, 5000, &SearchContext::NOTHING);
    serde_json::from_slice(&answer.reply.body).expect("JSON")
}

/// Expects these names and this total, or this error.
#[track_caller]
fn check(query: &str, expected: &str) {
    let answer = ask(query);
    let found = match answer["error"].as_str() {
        Some(error) => error.to_owned(),
        None => {
            let results = answer["results"].as_array().expect("results").iter();
            let names: Vec<&str> = results.filter_map(|it| it["Name"].as_str()).collect();
            assert_eq!(answer["resultcount"], names.len(), "{query}");
            format!("{} of {}", names.join(" "), answer["total"])
        }
    };
    assert_eq!(found, expected, "{query}");
}

#[test]
fn sorted_and_in_parts() {
    check("type=search&arg=pear&sort=name", "apple bigpear pear pear-git of 4");
    check("type=search&arg=pear&sort=name&order=desc", "pear-git pear bigpear apple of 4");
    check("type=search&arg=pear&sort=votes", "bigpear pear pear-git apple of 4");
    check("type=search&arg=pear&sort=votes&order=asc", "apple pear pear-git bigpear of 4");
    check("type=search&arg=pear&sort=popularity&limit=2", "bigpear pear-git of 4");
    check("type=search&arg=pear&sort=popularity&limit=2&offset=1", "pear-git pear of 4");
    check("type=search&arg=pear&sort=modified", "pear pear-git bigpear apple of 4");
    check("type=search&arg=pear&sort=submitted", "apple bigpear pear-git pear of 4");
    check("type=search&arg=pear&sort=relevance", "pear pear-git bigpear apple of 4");
    check("type=search&arg=pear&sort=relevance&order=asc", "apple bigpear pear-git pear of 4");
    check("type=search&arg=pear&order=desc", "pear-git pear bigpear apple of 4");
    check("type=search&arg=memtest86%2B&sort=relevance", "memtest86+ memtest86+-efi of 2");
    check("type=search&arg=memtest86+&sort=relevance", "memtest86+ memtest86+-efi of 2");
    check("type=search&mode=words&arg=pear+-big&sort=relevance", "pear pear-git apple of 3");
    check("v=6&type=search&arg=pear+git&sort=relevance", "pear-git of 1");
    check("type=search&arg=pear&limit=0", " of 4");
    check("type=search&arg=pear&offset=9", " of 4");
    check("type=search&arg=tree&by=depends&sort=popularity", "pear-git pear of 2");
    check("type=msearch&arg=ann&sort=votes&limit=1", "pear of 3");
    check("type=info&arg[]=pear&arg[]=apple&arg[]=pear&limit=5", "pear apple of 2");
    check("type=info&arg[]=pear&arg[]=apple&sort=name", "apple pear of 2");
    check("type=search&arg=pear&by=pkgbase&limit=5", "pear pear-git of 2");
    check(
        "type=search&arg=xx&sort=age",
        "`sort` is `age`: expected one of name, votes, popularity, modified, submitted, relevance",
    );
    check("type=search&arg=x&sort=name", "Query arg too small.");
}

/// Members that no answer of upstream has.
const KNOWN: &str = r#"[
{"ID":1,"Name":"pear","PackageBaseID":1,"PackageBase":"pear","Version":"1-1","Description":null,"URL":null,"NumVotes":3,"Popularity":0.5,"OutOfDate":null,"Maintainer":"ann","Submitter":"bob","FirstSubmitted":10,"LastModified":40,"URLPath":"/x","Depends":["lib32-tree","Soil>=2","tree>=2"],"OptDepends":["worm","bee"],"Provides":["fruit"],"PendingRequests":0,"Larder":{"LastPackager":"eve","Architectures":{"Depends":{"Soil>=2":["armv7h"],"lib32-tree":["x86_64"]},"OptDepends":{"worm":["armv7h","aarch64"]},"Provides":{"fruit":["aarch64"]}},"OptDependsDescriptions":{"bee":"\"pollination\"","worm":"soil"}}},
{"ID":2,"Name":"plum","PackageBaseID":2,"PackageBase":"plum","Version":"1-1","Description":null,"URL":null,"NumVotes":0,"Popularity":0,"OutOfDate":null,"Maintainer":null,"Submitter":"bob","FirstSubmitted":10,"LastModified":40,"URLPath":"/x","Depends":["soil"],"PendingRequests":0,"Larder":{}},
{"ID":3,"Name":"soil","PackageBaseID":3,"PackageBase":"soil","Version":"1-1","Description":null,"URL":null,"NumVotes":0,"Popularity":0,"OutOfDate":null,"Maintainer":null,"Submitter":"bob","FirstSubmitted":10,"LastModified":40,"URLPath":"/x"}
]"#;

/// Expects this text in the answer of a source that has such members.
#[track_caller]
fn check_known(query: &str, expected: &str) {
    let snapshot = dump::read(KNOWN.as_bytes(), &DumpLimits::default()).expect("a dump");
    let params = Params::from_query(PathParams::default(), Some(&format!("v=5&{query}")));
    let answer = Answer::to_refined(params, &snapshot, true, 5000, &SearchContext::NOTHING);
    let text = String::from_utf8(answer.reply.body.to_vec()).expect("UTF-8");
    assert!(text.contains(expected), "{query}: {text}");
}

#[test]
fn what_is_only_shown_when_it_is_asked_for() {
    let all = "type=info&arg=pear&fields=Architectures,LastPackager,OptDependsDescriptions";
    check_known(
        all,
        r#"[{"Architectures":{"Depends":{"Soil>=2":["armv7h"],"lib32-tree":["x86_64"]},"OptDepends":{"worm":["armv7h","aarch64"]},"Provides":{"fruit":["aarch64"]}},"LastPackager":"eve","OptDependsDescriptions":{"bee":"\"pollination\"","worm":"soil"}}]"#,
    );
    // A source with an empty value, and one without the member.
    let nothing = r#"[{"Architectures":{},"LastPackager":null,"OptDependsDescriptions":{}}]"#;
    check_known(&all.replace("pear", "plum"), nothing);
    let unknown = r#"[{"Architectures":null,"LastPackager":null,"OptDependsDescriptions":null}]"#;
    check_known(&all.replace("pear", "soil"), unknown);
    // The member is missing unless it is requested by name.
    let plain = r#"{"resultcount":1,"results":[{"Depends":["soil"],"Description":null,"FirstSubmitted":10,"ID":2,"Keywords":[],"LastModified":40,"License":[],"Maintainer":null,"Name":"plum","NumVotes":0,"OutOfDate":null,"PackageBase":"plum","PackageBaseID":2,"PendingRequests":0,"Popularity":0,"Submitter":"bob","URL":null,"URLPath":"/cgit/aur.git/snapshot/plum.tar.gz","Version":"1-1"}]"#;
    check_known("type=info&arg=plum", plain);
    check_known("type=info&arg=plum&fields=*", plain);
    // A dump made of the packages has it.
    let known = dump::read(KNOWN.as_bytes(), &DumpLimits::default()).expect("a dump");
    let mut dumped = b"[".to_vec();
    for doc in known.docs() {
        known.record(doc).write_dumped(&mut dumped);
        dumped.push(b',');
    }
    dumped.pop();
    dumped.push(b']');
    let again = dump::read(&dumped[..], &DumpLimits::default()).expect("a dump");
    assert!(again.differences(&known).is_empty() && known.differences(&again).is_empty());
    assert_eq!(again.facts_of("pear"), known.facts_of("pear"));
}

#[test]
fn only_what_applies_to_an_architecture() {
    for (arch, lists) in [
        (
            "x86_64",
            r#"{"Architectures":{"Depends":{"lib32-tree":["x86_64"]}},"Depends":["lib32-tree","tree>=2"],"OptDepends":["bee"],"OptDependsDescriptions":{"bee":"\"pollination\""},"Provides":[]}"#,
        ),
        (
            "aarch64",
            r#"{"Architectures":{"OptDepends":{"worm":["armv7h","aarch64"]},"Provides":{"fruit":["aarch64"]}},"Depends":["tree>=2"],"OptDepends":["worm","bee"],"OptDependsDescriptions":{"bee":"\"pollination\"","worm":"soil"},"Provides":["fruit"]}"#,
        ),
    ] {
        let fields = "fields=Depends,OptDepends,Provides,Architectures,OptDependsDescriptions";
        check_known(&format!("type=info&arg=pear&{fields}&arch={arch}"), lists);
    }
    // Without `fields`, the record is that of version 5, with less in its lists.
    let end = r#""License":[],"Maintainer":"ann","Name":"pear","NumVotes":3,"OptDepends":["bee"],"OutOfDate":null,"PackageBase":"pear","PackageBaseID":1,"PendingRequests":0,"Popularity":0.5,"Submitter":"bob","URL":null,"URLPath":"/cgit/aur.git/snapshot/pear.tar.gz","Version":"1-1"}],"total":1,"type":"multiinfo","version":5}"#;
    check_known("type=info&arg=pear&arch=x86_64", end);
    // Searches find what depends on something there.
    let names = |names: &str| format!("\"results\":[{names}]");
    let (pear, plum) = (r#"{"Name":"pear"}"#, r#"{"Name":"plum"}"#);
    let both = format!("{pear},{plum}");
    for (query, expected) in [
        ("type=search&by=depends&arg=SOIL&arch=armv7h", both.as_str()),
        ("type=search&by=depends&arg=soil&arch=x86_64", plum),
        ("type=search&by=depends&arg=lib32-tree&arch=armv7h", ""),
        ("type=search&by=optdepends&arg=worm&arch=x86_64", ""),
        ("type=search&by=optdepends&arg=worm&arch=aarch64", pear),
        ("type=search&by=provides&arg=fruit&arch=x86_64", ""),
        ("type=search&by=provides&arg=pear&arch=x86_64", pear),
        ("type=search&by=maintainer&arg=ann&arch=x86_64", pear),
        ("v=6&type=info&by=depends&arg=soil&arg=tree&arch=x86_64", both.as_str()),
        ("v=6&type=info&by=depends&arg=soil&arg=lib32-tree&arch=aarch64", plum),
        ("type=search&arg=pear&arch=mips", pear),
    ] {
        check_known(&format!("{query}&fields=Name"), &names(expected));
    }
    check_known("type=info&arg=soil&fields=RequiredBy&arch=armv7h", r#"["pear","plum"]"#);
    check_known("type=info&arg=soil&fields=RequiredBy&arch=x86_64", r#"["plum"]"#);
    check_known("type=info&arg=pear&arch=x86%2064", "`arch` is `x86 64`: expected an architecture");
    check_known("type=info&arg=pear&a%72ch=x86_64", r#""Depends":["lib32-tree","tree>=2"]"#);
}

#[test]
fn more_than_an_answer_may_have_is_avoided_with_a_limit() {
    let ask = |query: &str| {
        let params = Params::from_query(PathParams::default(), Some(query));
        Answer::to_refined(params, &sample(), false, 2, &SearchContext::NOTHING).reply.body
    };
    let text = |query: &str| String::from_utf8(ask(query).to_vec()).expect("text");
    let all = "v=5&type=search&arg=pear&sort=name";
    assert!(text(all).contains("Too many package results."));
    for part in ["limit=5000", "offset=0"] {
        let some = text(&format!("{all}&{part}"));
        assert!(some.starts_with("{\"resultcount\":2,") && some.contains("\"total\":4,"), "{some}");
    }
}

#[test]
fn an_answer_without_a_limit_has_all_that_it_may_have() {
    let record = |number: usize| {
        format!(
            r#"{{"ID":{number},"Name":"pear{number}","PackageBaseID":1,"PackageBase":"pear","Version":"1-1","Description":"","URL":null,"NumVotes":3,"Popularity":0.5,"OutOfDate":null,"Maintainer":"ann","Submitter":"bob","FirstSubmitted":10,"LastModified":40,"URLPath":"/x"}}"#
        )
    };
    let records: Vec<String> = (0..LIMIT_MAX + 2).map(record).collect();
    let dump = format!("[\n{}\n]", records.join(",\n"));
    let many = dump::read(dump.as_bytes(), &DumpLimits::default()).expect("a dump");
    let query = "v=5&type=search&arg=pear&fields=Name&sort=name";
    let params = Params::from_query(PathParams::default(), Some(query));
    let answer = Answer::to_refined(params, &many, true, 2 * LIMIT_MAX, &SearchContext::NOTHING);
    let answer: serde_json::Value = serde_json::from_slice(&answer.reply.body).expect("JSON");
    assert_eq!(answer["total"], LIMIT_MAX + 2);
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(LIMIT_MAX + 2));
}

#[test]
fn a_value_that_is_repeated_is_looked_up_once() {
    let args: Vec<Arg> = ["tree", "Tree", "TREE "]
        .repeat(5_000)
        .into_iter()
        .map(|it| it.to_owned().into())
        .collect();
    let found = sample().large().find_any(By::Depends, &args, usize::MAX);
    assert_eq!(found.len(), 2);
    assert!(found.capacity() < 100, "{}", found.capacity());
    check("v=6&type=info&by=depends&arg=tree&arg=soil&arg=TREE&limit=5", "pear pear-git of 2");
    check("v=6&type=info&by=provides&arg=fruit&arg=pear&limit=5", "pear pear-git of 2");
}

#[test]
fn keywords_are_found_beside_what_is_found_without_them() {
    check("v=6&type=search&arg=fruit+juicy&keywords=1", "pear of 1");
    check("v=6&type=search&arg=juicy+sweet&keywords=1", "pear of 1");
    check("v=6&type=search&mode=starts-with&arg=fruit&keywords=1", "apple of 1");
    check("v=6&type=search&mode=starts-with&arg=pear&keywords=1", "pear pear-git of 2");
    check("type=search&mode=starts-with&arg=huge&keywords=1", "bigpear of 1");
    check("type=search&arg=memtest86+&keywords=1", "memtest86+ memtest86+-efi of 2");
    check("type=search&arg=c++&keywords=1", "memtest86+ of 1");
    check("type=search&arg=a+fruit&keywords=1", "pear-git of 1");
    check("type=msearch&arg=ann&keywords=1", "apple pear pear-git of 3");
}

#[test]
fn words_and_regular_expressions() {
    check("type=search&mode=words&arg=fruit%20juicy", "pear of 1");
    check("type=search&mode=words&arg=fruit+-fresh", "pear of 1");
    check("type=search&mode=words&arg=%22a%20fruit%22", "pear-git of 1");
    check("type=search&mode=words&arg=fruit&keywords=1", "apple pear pear-git of 3");
    check("type=search&mode=words&arg=fruit%20pear&keywords=1", "apple pear pear-git of 3");
    check("type=search&mode=words&arg=pear%20-sweet%20-huge&keywords=1", "apple pear-git of 2");
    check("type=search&arg=sweet&keywords=1", "pear of 1");
    check("type=search&arg=sweet&keywords=0", " of 0");
    check("type=search&mode=words&by=name&arg=pear%20-git", "bigpear pear of 2");
    check("type=search&mode=regex&arg=^pear", "pear pear-git of 2");
    check("type=search&mode=regex&by=name&arg=(git|e)$", "apple pear-git of 2");
    check("type=search&mode=regex&arg=FRUIT$&sort=relevance", "pear of 1");
    check("type=search&mode=regex&arg=(x", "`(x` is not a regular expression: unclosed group");
    check("type=search&mode=words&by=depends&arg=tree", "pear pear-git of 2");
    check(
        "type=search&mode=regex&arg=xx&keywords=1",
        "`keywords` is `1`, and this search is by `name-desc` for a pattern: expected `name-desc`, and no regular expression",
    );
    check(
        "type=search&by=name&arg=xx&keywords=1",
        "`keywords` is `1`, and this search is by `name`: expected `name-desc`, and no regular expression",
    );
}

#[test]
fn what_costs_too_much_is_given_up() {
    for query in [
        "mode=regex&arg=.*x",
        "mode=words&arg=pear+-x",
        "arg=pear&sort=relevance",
        "arg=pear&fields=RequiredBy",
    ] {
        let query = format!("v=5&type=search&{query}");
        let params = Params::from_query(PathParams::default(), Some(&query));
        let answer = Answer::to_refined(
            params,
            &sample(),
            false,
            5000,
            &SearchContext { is_over: &|| true, ..SearchContext::NOTHING },
        );
        let text = String::from_utf8(answer.reply.body.to_vec()).expect("text");
        assert!(text.starts_with("{\"error\":\"The search takes too long"), "{text}");
    }
}

/// The cost is checked in each step, not only at the end: any of them may exceed it.
#[test]
fn it_is_asked_again_and_again_what_an_answer_has_cost() {
    for (query, least) in [("arg=pear&fields=RequiredBy", 4), ("arg=pear&fields=OptionalFor", 4)] {
        let query = format!("v=5&type=search&{query}");
        let params = Params::from_query(PathParams::default(), Some(&query));
        let looks = Cell::new(0);
        let is_over = || {
            looks.set(looks.get() + 1);
            false
        };
        Answer::to_refined(
            params,
            &sample(),
            false,
            5000,
            &SearchContext { is_over: &is_over, ..SearchContext::NOTHING },
        );
        assert!(looks.get() > least, "{query}: {}", looks.get());
    }
}

/// The architectures of each package that needs another one are looked at, and there may be very many of them.
#[test]
fn what_needs_a_package_on_an_architecture_is_given_up_in_time() {
    let asked = |needing: usize, looks_max: usize| {
        let lines: Vec<&str> = DUMP.lines().map(|line| line.trim_end_matches(',')).collect();
        let soil = lines[4].replace("apple", "soil");
        // Each needs soil.
        let pears = (0..needing).map(|number| lines[1].replace("pear", &format!("p{number}")));
        let records: Vec<String> = pears.chain([soil]).collect();
        let dump = format!("[{}]", records.join(","));
        let snapshot = dump::read(dump.as_bytes(), &DumpLimits::default()).expect("a dump");
        let query = "v=5&type=info&arg=soil&fields=RequiredBy&arch=x86_64";
        let params = Params::from_query(PathParams::default(), Some(query));
        let looks = Cell::new(0);
        let is_over = || {
            looks.set(looks.get() + 1);
            looks.get() > looks_max
        };
        let context = SearchContext { is_over: &is_over, ..SearchContext::NOTHING };
        let answer = Answer::to_refined(params, &snapshot, false, 5000, &context);
        (looks.get(), String::from_utf8(answer.reply.body.to_vec()).expect("text"))
    };
    let (looks, text) = asked(1, usize::MAX);
    assert!(text.contains(r#"[{"RequiredBy":["p0"]}]"#), "{text}");
    let (looks_of_many, _) = asked(1000, usize::MAX);
    assert!(looks_of_many > looks + 10, "{looks_of_many} after {looks}");
    let (_, text) = asked(1000, looks);
    assert!(text.starts_with("{\"error\":\"The search takes too long"), "{text}");
}

#[test]
fn chosen_fields() {
    let records = |query: &str| ask(query)["results"].to_string();
    assert_eq!(
        records(
            "type=info&arg=pear&fields=Version,Name,Depends,Groups,URL,PendingRequests,URLPath"
        ),
        r#"[{"Depends":["tree>=2","soil"],"Groups":[],"Name":"pear","PendingRequests":null,"URL":null,"URLPath":"/cgit/aur.git/snapshot/pear.tar.gz","Version":"1-1"}]"#
    );
    assert_eq!(
        records("type=search&by=name&arg=pear-git&fields=RequiredBy,OptionalFor,Name"),
        r#"[{"Name":"pear-git","OptionalFor":["bigpear"],"RequiredBy":["apple","bigpear"]}]"#
    );
    // Searches can show what info shows.
    let info = Params::from_query(PathParams::default(), Some("v=5&type=info&arg=pear"));
    let info = Answer::to(info, &sample(), false, 5000).reply.body;
    let info: serde_json::Value = serde_json::from_slice(&info).expect("JSON");
    assert_eq!(records("type=search&arg=juicy&fields=*"), info["results"].to_string());
    assert!(
        records("type=search&arg=juicy&fields=*,RequiredBy")
            .contains("\"RequiredBy\":[],\"Submitter\"")
    );
}

#[test]
fn forms_and_json_may_ask_the_same() {
    let path = PathParams {
        type_: Some("search".to_owned()),
        version: Some("5".to_owned()),
        ..PathParams::default()
    };
    for body in [
        Body::Json(br#"{"arg":"pear","limit":1,"sort":"votes","fields":["Name","Version"]}"#),
        Body::Form(b"arg=pear&limit=1&sort=votes&fields=Name,Version"),
    ] {
        let params = Params::from_body(path.clone(), None, body);
        let answer = Answer::to(params, &sample(), false, 5000).reply.body;
        assert_eq!(
            String::from_utf8(answer.to_vec()).expect("text"),
            r#"{"resultcount":1,"results":[{"Name":"bigpear","Version":"2-1"}],"total":4,"type":"search","version":5}"#
        );
    }
}

#[test]
fn fields_from_outside_are_those_that_are_known() {
    let ask = |query: &str| {
        let params = Params::from_query(PathParams::default(), Some(&format!("v=5&{query}")));
        assert!(params.may_add(), "{query}");
        let added = |name: &str, field: &'static str| {
            (name != "apple").then(|| format!("\"{field} of {name}\""))
        };
        let context = SearchContext { added: &added, ..SearchContext::NOTHING };
        let answer = Answer::to_refined(params, &sample(), true, 5000, &context);
        String::from_utf8(answer.reply.body.to_vec()).expect("UTF-8")
    };
    let found = ask("type=info&arg[]=pear&arg[]=apple&fields=Name,MaintainerSince,Versions");
    assert!(
        found.contains(
            "[{\"MaintainerSince\":\"MaintainerSince of pear\",\"Name\":\"pear\",\"Versions\":\"Versions of pear\"},\
             {\"MaintainerSince\":null,\"Name\":\"apple\",\"Versions\":null}]"
        ),
        "{found}"
    );
    // `*` does not include them.
    let params = Params::from_query(PathParams::default(), Some("v=5&type=info&arg=pear&fields=*"));
    assert!(!params.may_add());
}

#[test]
fn fields_from_outside_are_bounded() {
    let many: Vec<String> = (0..=ADDED_PACKAGES_MAX)
        .map(|number| {
            DUMP.lines()
                .nth(1)
                .expect("a record")
                .trim_end_matches(',')
                .replace("pear", &format!("p{number}"))
        })
        .collect();
    let many = format!("[{}]", many.join(","));
    let many = dump::read(many.as_bytes(), &DumpLimits::default()).expect("a dump");
    for (limit, is_refused) in [("", true), ("&limit=200", false)] {
        let query = format!("v=5&type=search&arg=juicy&fields=FirstSeen{limit}");
        let params = Params::from_query(PathParams::default(), Some(&query));
        let answer = Answer::to_refined(params, &many, true, 5000, &SearchContext::NOTHING);
        let text = String::from_utf8_lossy(&answer.reply.body).into_owned();
        assert_eq!(text.contains("expected at most 200"), is_refused, "{text}");
    }
}
