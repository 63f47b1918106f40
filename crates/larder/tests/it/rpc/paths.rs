//! Arguments in paths and queries as real clients send them.

use crate::asking::each;
use crate::server::{large, small};

#[track_caller]
fn check(target: &str, names: &str) {
    let response = small().get(target).expect(200);
    assert_eq!(response.names(), names, "{target}");
    assert!(!response.body.contains(&b'\n'), "an answer is one line: {target}");
}

#[test]
fn every_path_of_version_5() {
    for start in ["/rpc", "/rpc/", "/rpc.php", "/rpc.php/"] {
        check(&format!("{start}?v=5&type=info&arg[]=attest&arg[]=yogurt"), "attest yogurt");
        check(&format!("{start}?type=search&by=name&arg=attest&v=5"), "attest attest-git");
    }
    let rows = [
        ("/rpc/v5/info/attest", "attest"),
        ("/rpc/v5/info?arg[]=attest", "attest"),
        ("/rpc/v5/multiinfo/attest", "attest"),
        ("/rpc/v5/search/attest?by=name", "attest attest-git"),
        ("/rpc/v5/search?arg=attest&by=provides", "attest attest-git"),
        ("/rpc/v5/search/attest?by=depends", "Mixed-Case"),
        ("/rpc/v5/search/cmake?by=makedepends", "split-b"),
        ("/rpc/v5/search/carl?by=comaintainers", "split-a"),
        ("/rpc/v5/search/old-libs?by=groups", "libstdc++5"),
        ("/rpc/v5/search/attest?by=conflicts", "attest-git"),
        ("/rpc/v5/msearch/bert", ""),
        ("/rpc/v5/msearch", "libstdc++5"),
        ("/rpc/v5/suggest/split", "split-a split-b"),
        ("/rpc/v5/suggest-pkgbase/split", "split"),
        ("/rpc/v5/search/at?mode=starts-with&by=name", "attest attest-git"),
        ("/rpc/v7/info/attest", "error: Invalid version specified."),
        ("/rpc/v/info/attest", "error: Please specify an API version."),
        ("/rpc/vx/info/attest", "error: Invalid version specified."),
    ];
    each(rows, |(target, names)| check(target, names));
}

#[test]
fn arguments_in_a_path_are_decoded() {
    let rows = [
        ("/rpc/v5/info/libstdc%2B%2B5", "libstdc++5"),
        ("/rpc/v5/info/libstdc++5", "libstdc++5"),
        ("/rpc/v5/info/two%2Dwords", "two-words"),
        ("/rpc/v5/info/%74wo%2dwords", "two-words"),
        ("/rpc/v5/info/MIXED-case", "Mixed-Case"),
        ("/rpc/v5/search/gr%C3%B6%C3%9Fer", "yogurt"),
        ("/rpc/v5/search/größer", "yogurt"),
        ("/rpc/v5/search/%E5%A4%A7%E3%81%8D%E3%81%84", "yogurt"),
        ("/rpc/v5/search/red%20apple", "two-words"),
        ("/rpc/v5/search/%22quoted%22", "yogurt"),
        ("/rpc/v5/search/%3Cb%3E%20%26%20more", "yogurt"),
        ("/rpc/v5/%73earch/red%20apple", "two-words"),
        // A slash within an argument.
        ("/rpc/v5/search/a%2Fb?by=keywords", "attest"),
        ("/rpc/v5/search/a%2fb?by=keywords", "attest"),
        ("/rpc?v=5&type=search&by=keywords&arg=a/b", "attest"),
        // Not UTF-8, NUL, and a percent sign without digits: nothing is called that.
        ("/rpc/v5/search/%FF%FE", ""),
        ("/rpc/v5/search/%00%00", ""),
        ("/rpc/v5/search/100%25", ""),
        ("/rpc/v5/search/100%zz", ""),
    ];
    each(rows, |(target, names)| check(target, names));
}

#[test]
fn a_bare_plus_is_a_plus_or_a_space() {
    check("/rpc?v=5&type=info&arg=libstdc++5", "libstdc++5");
    check("/rpc?v=5&type=info&arg=libstdc%2B%2B5", "libstdc++5");
    check("/rpc?v=5&type=suggest&arg=libstdc++", "libstdc++5");
    check("/rpc?v=5&type=search&arg=libstdc++5", "libstdc++5");
    check("/rpc?v=5&type=search&arg=red+apple", "two-words");
    check("/rpc?v=5&type=search&by=name&arg=c++5", "libstdc++5");
}

#[test]
fn a_slash_at_the_end_leads_to_the_path_without() {
    let check = |target: &str, location: &str| {
        for method in ["GET", "HEAD", "POST"] {
            small().anybody().send(method, target, ()).expect(307).has("location", location);
        }
    };
    check("/rpc/v5/info/attest/", "/rpc/v5/info/attest");
    check("/rpc/v5/info/", "/rpc/v5/info");
    check("/rpc/v5/search/a%2Fb/?by=keywords&x=%20", "/rpc/v5/search/a%2Fb?by=keywords&x=%20");
    check("/api/v6/info/name/attest/", "/api/v6/info/name/attest");
    check("/rpc//?v=5", "/rpc?v=5");
    check("/rpc//", "/rpc");
}

#[test]
fn without_a_question_there_is_documentation() {
    for target in [
        "/rpc",
        "/rpc?",
        "/rpc/",
        "/rpc.php",
        "/rpc.php/",
        "/api",
        "/api/",
        "/docs",
        "/rpc/swagger",
    ] {
        let response = small().get(target).expect(200);
        response.has("content-type", "text/html; charset=utf-8");
        response.says("<html");
    }
    check("/rpc?x", "error: Please specify an API version.");
}

/// 8 kB was the bound of the servers that clients were written for.
#[test]
fn long_urls() {
    let (_, names) = crate::catalogue::large();
    let mut url = "/rpc?v=5&type=info".to_owned();
    let mut count = 0;
    for name in names {
        if url.len() > 8_100 {
            break;
        }
        url.push_str(&format!("&arg[]={}", name.replace('+', "%2B")));
        count += 1;
    }
    assert!(url.len() > 8_100 && count > 100);
    let response = large().get(&url);
    assert_eq!((response.status, &response.json()["resultcount"]), (200, &count.into()));

    let too_long = format!("/rpc?v=5&type=info&arg={}", "x".repeat(40_000));
    for target in
        [too_long.as_str(), &too_long.replace("40_000", ""), &format!("/{}", "y".repeat(200_000))]
    {
        large().get(target).tells(
            414,
            "the URL is longer than 32768 bytes; send the parameters as the body of a POST instead",
        );
    }
    let just_fits = format!("/rpc?v=5&type=info&arg={}", "x".repeat(32_700));
    assert_eq!(large().get(&just_fits).names(), "");
}

#[test]
fn a_record_is_as_aurweb_writes_it() {
    assert_eq!(
        small().get("/rpc/v5/info/yogurt").text(),
        "{\"resultcount\":1,\"results\":[{\"Description\":\"größer, 大きい \\\"quoted\\\" <b> & more\",\
         \"FirstSubmitted\":1500000000,\"ID\":5,\"Keywords\":[],\"LastModified\":1600000000,\"License\":[],\
         \"Maintainer\":\"anna\",\"Name\":\"yogurt\",\"NumVotes\":3,\"OutOfDate\":null,\"PackageBase\":\"yogurt\",\
         \"PackageBaseID\":1005,\"Popularity\":0.5,\"Submitter\":\"bert\",\"URL\":\"https://example.org/\",\
         \"URLPath\":\"/cgit/aur.git/snapshot/yogurt.tar.gz\",\"Version\":\"1.0-1\"}],\
         \"type\":\"multiinfo\",\"version\":5}"
    );
    let split = small().get("/rpc/v5/search/split-a").json();
    assert_eq!(split["results"][0]["URLPath"], "/cgit/aur.git/snapshot/split.tar.gz");
    let orphan = small().get("/rpc/v5/info/one-word").json();
    assert_eq!(orphan["results"][0]["Popularity"].to_string(), "0");
}
