//! The AUR from a real MariaDB: the same answers as from a dump, every kind of change, and every kind of trouble.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use config::AurSource;
use serde_json::{Value, json};
use source::KeptDump;
use testbed::MariaDb;

use crate::asking::Says as _;
use crate::catalogue::gunzip;
use crate::server::{TestServer, runtime};
use crate::{catalogue, wait_until};

/// The options of a server as in production: it counts changed rows by table.
const COUNTING: &[&str] = &["--userstat=1"];

/// A user with exactly the rights that docs/aur-database.md asks for.
const READER: &str = "CREATE USER larder@localhost; GRANT SELECT ON aur.* TO larder@localhost;";

/// Has the database note all statements.
const LOGGING: &str = "SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 1";

/// Three bases, one of them split and one without a package.
const ROWS: &str = "
    INSERT INTO Users VALUES (1, 'anna'), (2, 'bert'), (3, 'carl');
    INSERT INTO PackageBases (ID, Name, NumVotes, Popularity, PopularityUpdated, SubmittedTS, ModifiedTS, SubmitterUID, MaintainerUID)
        VALUES (1, 'yogurt', 3, 1.5, CURRENT_TIMESTAMP, 100, 200, 1, 1), (2, 'split', 0, 0, CURRENT_TIMESTAMP, 100, 200, 2, NULL),
        (3, 'empty', 0, 0, CURRENT_TIMESTAMP, 100, 200, 2, 2);
    INSERT INTO Packages VALUES (11, 1, 'yogurt', '1-1', 'Milk \"and\" \\\\ bacteria', 'https://example.org/'),
        (12, 2, 'split-a', '1-1', NULL, NULL), (13, 2, 'split-b', '1-1', 'ä', NULL);
    INSERT INTO PackageDepends VALUES (11, 1, 'zlib', NULL, '>=1', NULL), (11, 1, 'glibc', '', '', NULL),
        (11, 1, 'glibc', '', '', 'x86_64'), (11, 4, 'spoon', 'to eat it', '', NULL), (13, 2, 'cmake', NULL, NULL, NULL);
    INSERT INTO PackageRelations VALUES (12, 2, 'SPLIT', '=1', NULL), (12, 1, 'joined', '', NULL);
    INSERT INTO Licenses VALUES (1, 'MIT'), (2, 'GPL3');
    INSERT INTO PackageLicenses VALUES (11, 2), (11, 1);
    INSERT INTO `Groups` VALUES (1, 'dairy');
    INSERT INTO PackageGroups VALUES (11, 1);
    INSERT INTO PackageKeywords VALUES (1, 'white'), (1, 'Cow');
    INSERT INTO PackageComaintainers VALUES (3, 1, 1), (2, 1, 2);
    INSERT INTO PackageRequests (ReqTypeID, PackageBaseID, Status, ClosedTS) VALUES (1, 2, 0, NULL), (2, 2, 0, NULL), (1, 2, 2, 5);
";

/// A database with these rows; `None` where MariaDB is not installed.
fn database(options: &[&str]) -> Option<MariaDb> {
    let database = MariaDb::start(options)?;
    database.execute("aur", demo::AURWEB_SCHEMA);
    database.execute("aur", ROWS);
    database.execute("mysql", READER);
    Some(database)
}

fn source(database: &MariaDb) -> AurSource {
    database.url("larder").parse().expect("a source")
}

/// A server that follows the database. Its interval is so long that each test asks for a read.
fn following(database: &MariaDb) -> TestServer {
    let source = source(database);
    TestServer::without_source(|config| {
        config.aur.source = Some(source);
        config.aur.refresh = std::time::Duration::from_secs(100_000);
        config.aur.rate_limit = 0;
        // A single package may be most of these.
        config.aur.shrink_percent_max = 100;
    })
    .ready()
}

fn info(server: &TestServer, name: &str) -> Value {
    server.get(&format!("/rpc/v5/info/{name}")).json()["results"][0].clone()
}

/// Waits until the value of `key` of a package, or the package itself for an empty key, is as expected.
#[track_caller]
fn check(server: &TestServer, name: &str, key: &str, expected: Value) {
    wait_until(&format!("`{key}` of `{name}` to be {expected}"), || {
        let info = info(server, name);
        (if key.is_empty() { &info } else { &info[key] }) == &expected
    });
}

#[test]
fn a_database_is_served_as_aurweb_serves_it() {
    let Some(database) = database(COUNTING) else { return };
    let server = following(&database);
    assert_eq!(
        info(&server, "yogurt"),
        json!({
            "CoMaintainers": ["carl", "bert"], "Depends": ["zlib>=1", "glibc"],
            "Description": "Milk \"and\" \\ bacteria", "FirstSubmitted": 100, "Groups": ["dairy"], "ID": 11,
            "Keywords": ["Cow", "white"], "LastModified": 200, "License": ["MIT", "GPL3"], "Maintainer": "anna",
            "Name": "yogurt", "NumVotes": 3, "OptDepends": ["spoon"], "OutOfDate": null, "PackageBase": "yogurt",
            "PackageBaseID": 1, "PendingRequests": 0, "Popularity": 1.5, "Submitter": "anna",
            "URL": "https://example.org/", "URLPath": "/cgit/aur.git/snapshot/yogurt.tar.gz", "Version": "1-1",
        })
    );
    // Keys come in ascending order, this one too.
    let text = server.get("/rpc/v5/info/split-a").text();
    text.says("\"PackageBaseID\":2,\"PendingRequests\":2,\"Popularity\":0,");
    // A search does not have it.
    let text = server.get("/rpc/v5/search/split").text();
    text.says("\"PackageBaseID\":2,\"Popularity\":0,");
    assert_eq!(server.get("/rpc/v5/search/split?by=provides").names(), "split-a");
    server.get("/rpc?v=5&type=suggest-pkgbase&arg=").is(r#"["empty","split","yogurt"]"#);
    server.get("/rpc?v=5&type=suggest&arg=").is(r#"["split-a","split-b","yogurt"]"#);
    server.get("/readyz?verbose").lacks("larder@localhost");
}

/// Architectures, descriptions and packagers: version 5 does not show them; clients that ask for them see each change.
#[test]
fn what_version_5_does_not_show_is_there_for_those_who_ask() {
    let Some(database) = database(COUNTING) else { return };
    let server = following(&database);
    let sql = |statements: &str| database.execute("aur", statements);
    let ask = |server: &TestServer, question: &str| {
        server.get(&format!("/rpc/v5/info/yogurt?{question}")).json()["results"][0].clone()
    };
    let all = "fields=Architectures,LastPackager,OptDependsDescriptions";
    let first = json!({
        // A row without an architecture is for all, even beside one with an architecture.
        "Architectures": {}, "LastPackager": null, "OptDependsDescriptions": {"spoon": "to eat it"},
    });
    assert_eq!(ask(&server, all), first);
    sql("UPDATE PackageBases SET ModifiedTS = 300, PackagerUID = 2 WHERE ID = 1;
        DELETE FROM Packages WHERE PackageBaseID = 1;
        INSERT INTO Packages VALUES (21, 1, 'yogurt', '2-1', 'Thicker', NULL);
        INSERT INTO PackageDepends VALUES (21, 1, 'milk', NULL, '>=3.5', NULL), (21, 1, 'cow', NULL, NULL, 'x86_64'),
            (21, 1, 'goat', NULL, '', 'aarch64'), (21, 1, 'goat', NULL, '', 'armv7h'), (21, 4, 'fork', 'to \"eat\" it', '', 'x86_64');
        INSERT INTO PackageRelations VALUES (21, 2, 'lib32-milk', '', 'x86_64')");
    let pushed = json!({
        "Architectures": {"Depends": {"cow": ["x86_64"], "goat": ["aarch64", "armv7h"]},
            "OptDepends": {"fork": ["x86_64"]}, "Provides": {"lib32-milk": ["x86_64"]}},
        "LastPackager": "bert", "OptDependsDescriptions": {"fork": "to \"eat\" it"},
    });
    wait_until("the push", || ask(&server, all) == pushed);
    check(&server, "yogurt", "Depends", json!(["milk>=3.5", "cow", "goat"]));
    let lists = "fields=Depends,OptDepends,Provides";
    assert_eq!(
        ask(&server, &format!("{lists}&arch=x86_64")),
        json!({"Depends": ["milk>=3.5", "cow"], "OptDepends": ["fork"], "Provides": ["lib32-milk"]})
    );
    assert_eq!(
        ask(&server, &format!("{lists}&arch=armv7h")),
        json!({"Depends": ["milk>=3.5", "goat"], "OptDepends": [], "Provides": []})
    );
    let found = |arch: &str| server.get(&format!("/rpc/v5/search/goat?by=depends&arch={arch}"));
    assert_eq!((found("armv7h").names(), found("x86_64").names()), ("yogurt".into(), "".into()));
    server.get("/rpc/v5/info/yogurt?fields=*").lacks("LastPackager");
}

/// The history notes who pushed, and so does the feed.
#[test]
fn who_packaged_is_known_over_a_restart() {
    let Some(database) = database(COUNTING) else { return };
    let server = following(&database);
    let sql = |statements: &str| database.execute("aur", statements);
    let packager = |server: &TestServer| {
        server.get("/rpc/v5/info/yogurt?fields=LastPackager").json()["results"][0].clone()
    };
    sql("UPDATE PackageBases SET ModifiedTS = 300, PackagerUID = 2 WHERE ID = 1;
        UPDATE Packages SET Version = '2-1' WHERE PackageBaseID = 1");
    wait_until("the push", || packager(&server) == json!({"LastPackager": "bert"}));
    let history = |server: &TestServer| server.get("/aur/history/yogurt").json();
    wait_until("the history", || history(&server)["LastPackager"] == json!("bert"));
    assert_eq!(history(&server)["Versions"][0]["Packager"], json!("bert"));
    sql("UPDATE Users SET Username = 'bertha' WHERE ID = 2");
    wait_until("another name", || packager(&server) == json!({"LastPackager": "bertha"}));
    wait_until("the history", || history(&server)["LastPackager"] == json!("bertha"));
    let changes =
        |server: &TestServer| server.get("/changes?surface=aur&limit=10000&since=0").text();
    let told = changes(&server);
    told.says(r#""before":{"LastPackager":"bert"}"#);
    // The kept dump has all of it, and a start with it finds no difference.
    let directory = server.stop();
    database.crash();
    let source = source(&database);
    let server = TestServer::start_in(Arc::clone(&directory), |config, _| {
        config.aur.source = Some(source);
        config.aur.rate_limit = 0;
    })
    .ready();
    assert_eq!(packager(&server), json!({"LastPackager": "bertha"}));
    wait_until("the history", || history(&server)["LastPackager"] == json!("bertha"));
    assert_eq!(changes(&server), told);
}

/// A database with a generated catalogue, and the dump of the same; `None` where MariaDB is not installed.
fn generated(packages: u32, seed: u64) -> Option<(MariaDb, Vec<u8>)> {
    let database = MariaDb::start(COUNTING)?;
    let directory = tempfile::tempdir().expect("a directory");
    let (dump, sql) = (directory.path().join("dump.json"), directory.path().join("dump.sql"));
    let out = source::demo_data::Output::File { path: dump.clone(), gzip: false };
    let recipe = demo::Recipe { packages, seed };
    source::demo_data::write(&recipe, &out, Some(&sql), &mut |_| ()).expect("a catalogue");
    database.execute("aur", &fs::read_to_string(&sql).expect("the statements"));
    database.execute("mysql", READER);
    Some((database, fs::read(&dump).expect("the dump")))
}

#[test]
fn the_generated_catalogue_is_the_same_from_a_dump_and_from_a_database() {
    let Some((database, dump)) = generated(1500, 7) else { return };
    let from_dump = TestServer::serving_with(&dump, |config| config.aur.rate_limit = 0);
    let from_database = following(&database);

    let records: Vec<Value> = serde_json::from_slice(&dump).expect("a dump");
    let mut pending = 0;
    for names in records.chunks(100) {
        let names: Vec<String> = names
            .iter()
            .map(|record| format!("arg[]={}", record["Name"].as_str().unwrap_or_default()))
            .collect();
        let body = names.join("&").replace('+', "%2B");
        let ask = |server: &TestServer| server.form("/rpc/v5/info", &body).json();
        let (mut one, mut other) = (ask(&from_dump), ask(&from_database));
        for record in other["results"].as_array_mut().expect("records") {
            pending += record["PendingRequests"].as_u64().expect("a number");
            record.as_object_mut().expect("a record").remove("PendingRequests");
        }
        // The database has licences and groups by their number, and keywords in alphabetical order.
        for results in [&mut one, &mut other] {
            for record in results["results"].as_array_mut().expect("records") {
                for key in ["License", "Keywords", "Groups"] {
                    let list = record[key].as_array_mut();
                    list.into_iter().for_each(|list| list.sort_by_key(Value::to_string));
                }
            }
        }
        let records = |answer: &Value| answer["results"].as_array().expect("records").clone();
        assert_eq!(records(&one).len(), records(&other).len());
        for (one, other) in records(&one).into_iter().zip(records(&other)) {
            assert_eq!(one, other);
        }
    }
    assert!(pending > 10, "{pending}");
    for target in [
        "/rpc/v5/search/python",
        "/rpc/v5/search/attest",
        "/rpc/v5/search/glibc?by=depends",
        "/rpc/v5/search/cmake?by=makedepends",
        "/rpc/v5/search?by=maintainer",
        "/rpc/v5/suggest/p",
        "/packages.gz",
    ] {
        let (one, other) = (from_dump.get(target), from_database.get(target));
        assert_eq!((one.status, other.status), (200, 200), "{target}");
        assert_eq!(one.body, other.body, "{target}");
    }
    let empty = from_database.get("/rpc?v=5&type=suggest-pkgbase&arg=empty-base-").json();
    assert!(empty.as_array().is_some_and(|names| names.len() >= 20), "{empty}");
}

/// aurweb renews all popularities in one statement.
const WAVE: &str = "UPDATE PackageBases SET Popularity = Popularity * 0.9 + 0.5, PopularityUpdated = CURRENT_TIMESTAMP";

/// Every kind of change, each of some of the bases.
const CHANGES: &[&str] = &[
    WAVE,
    "UPDATE PackageBases SET NumVotes = NumVotes + 1, Popularity = 9 WHERE ID % 50 = 1",
    "UPDATE PackageBases SET MaintainerUID = NULL WHERE ID % 70 = 2",
    "UPDATE PackageBases SET MaintainerUID = (SELECT MIN(ID) FROM Users) WHERE ID % 90 = 3",
    "UPDATE PackageBases SET Name = CONCAT(Name, '-renamed') WHERE ID % 150 = 4",
    "DELETE FROM PackageBases WHERE ID % 110 = 5",
    "DELETE FROM PackageKeywords WHERE PackageBaseID % 40 = 6",
    "INSERT IGNORE INTO PackageKeywords SELECT ID, 'added' FROM PackageBases WHERE ID % 60 = 7",
    "INSERT INTO PackageComaintainers SELECT (SELECT MAX(ID) FROM Users), ID, 9 FROM PackageBases WHERE ID % 80 = 8",
    "INSERT INTO PackageRequests (ReqTypeID, PackageBaseID) SELECT 1, ID FROM PackageBases WHERE ID % 75 = 9",
    WAVE,
    "UPDATE Users SET Username = CONCAT('x', Username) WHERE ID % 30 = 10",
    "DELETE FROM Users WHERE ID % 40 = 11",
    "UPDATE Packages SET Description = CONCAT('New: ', Description), URL = NULL WHERE ID % 65 = 12",
    // Packages that move to another base, and some whose base has no other.
    "UPDATE Packages SET PackageBaseID = (SELECT MIN(ID) FROM PackageBases) WHERE ID % 95 = 13",
    // Pushes, with new numbers of packages.
    "INSERT INTO Packages SELECT ID + 10000000, PackageBaseID, CONCAT(Name, '-split'), '9', NULL, NULL FROM Packages \
     WHERE ID % 85 = 14",
    "INSERT INTO PackageDepends SELECT ID, 1, 'glibc', NULL, '>=9', NULL FROM Packages WHERE ID > 10000000",
    "INSERT INTO PackageLicenses SELECT ID, (SELECT MIN(ID) FROM Licenses) FROM Packages WHERE ID > 10000000",
    WAVE,
    "UPDATE PackageBases SET NumVotes = NumVotes + 1, Popularity = 8 WHERE ID % 50 = 2",
];

/// What a server answers about everything: lists, searches, and each of these packages.
fn answers(server: &TestServer, names: &str) -> Vec<Vec<u8>> {
    let targets = [
        "/packages.gz",
        "/pkgbase.gz",
        "/packages-meta-v1.json.gz",
        "/rpc/v5/search/python",
        "/rpc/v5/search/glibc?by=depends",
        "/rpc/v5/search/added?by=keywords",
        "/rpc/v5/search?by=maintainer",
        "/rpc?v=5&type=suggest-pkgbase&arg=",
    ];
    let lists = targets.into_iter().map(|target| server.get(target).expect(200).body);
    let names: Vec<String> = names.lines().map(|name| format!("arg[]={name}")).collect();
    let records = names.chunks(200).map(|names| {
        let body = names.join("&").replace('+', "%2B");
        server.form("/rpc/v5/info", &body).body
    });
    lists.chain(records).collect()
}

/// Reading in parts, base by base, gives the same as reading at once.
#[test]
fn changes_of_a_large_catalogue_are_the_same_as_a_new_start() {
    let Some((database, _)) = generated(900, 11) else { return };
    database.execute("mysql", LOGGING);
    let server = following(&database);
    for statement in CHANGES {
        database.execute("aur", statement);
    }
    let at_once = following(&database);
    let names = gunzip(&at_once.get("/packages.gz").body);
    let names = String::from_utf8(names).expect("names");
    let expected = answers(&at_once, &names);
    wait_until("all changes to be seen", || answers(&server, &names) == expected);
    // Each server has read all tables once, at its start: the changes were read base by base.
    let reads = "SELECT COUNT(*) FROM general_log WHERE user_host LIKE '%larder%' AND command_type <> 'Prepare' \
        AND argument LIKE '%Name FROM PackageBases ORDER BY ID'";
    assert_eq!(database.query("mysql", reads).trim(), "2");
    assert_eq!(server.metric("larder_aur_refresh_failing"), 0.0);
}

/// Every kind of change, one after another, each seen in the answers.
fn check_changes(options: &[&str]) {
    let Some(database) = database(options) else { return };
    let server = following(&database);
    let sql = |statements: &str| database.execute("aur", statements);

    // A push, as aurweb does it: with a commit after each statement.
    sql("UPDATE PackageBases SET ModifiedTS = 300, PackagerUID = 1, OutOfDateTS = NULL WHERE ID = 1;
        DELETE FROM Packages WHERE PackageBaseID = 1;
        INSERT INTO Packages VALUES (21, 1, 'yogurt', '2-1', 'Thicker', NULL);
        INSERT INTO PackageDepends VALUES (21, 1, 'milk', NULL, '>=3.5', NULL);
        INSERT INTO PackageLicenses VALUES (21, 1)");
    check(&server, "yogurt", "Version", json!("2-1"));
    check(&server, "yogurt", "Depends", json!(["milk>=3.5"]));
    check(&server, "yogurt", "License", json!(["MIT"]));
    check(&server, "yogurt", "ID", json!(21));
    // A vote on the page, and one by ssh.
    sql("INSERT INTO PackageVotes VALUES (2, 1, 300);
        UPDATE PackageBases SET NumVotes = 4, Popularity = 2.25, PopularityUpdated = CURRENT_TIMESTAMP WHERE ID = 1");
    check(&server, "yogurt", "Popularity", json!(2.25));
    sql("UPDATE PackageBases SET NumVotes = NumVotes + 1 WHERE ID = 1");
    check(&server, "yogurt", "NumVotes", json!(5));
    sql("UPDATE PackageBases SET OutOfDateTS = 400, FlaggerUID = 2 WHERE ID = 1");
    check(&server, "yogurt", "OutOfDate", json!(400));
    sql("UPDATE PackageBases SET OutOfDateTS = NULL WHERE ID = 1");
    check(&server, "yogurt", "OutOfDate", Value::Null);
    sql("UPDATE PackageBases SET MaintainerUID = NULL WHERE ID = 1");
    check(&server, "yogurt", "Maintainer", Value::Null);
    sql("UPDATE PackageBases SET MaintainerUID = 2 WHERE ID = 1");
    check(&server, "yogurt", "Maintainer", json!("bert"));
    sql("DELETE FROM PackageComaintainers WHERE PackageBaseID = 1 AND UsersID = 2");
    check(&server, "yogurt", "CoMaintainers", json!(["carl"]));
    sql("INSERT INTO PackageComaintainers VALUES (1, 1, 2)");
    check(&server, "yogurt", "CoMaintainers", json!(["carl", "anna"]));
    sql("DELETE FROM PackageKeywords WHERE PackageBaseID = 1");
    check(&server, "yogurt", "Keywords", json!([]));
    sql("INSERT INTO PackageKeywords VALUES (1, 'breakfast')");
    check(&server, "yogurt", "Keywords", json!(["breakfast"]));
    sql("INSERT INTO PackageRequests (ID, ReqTypeID, PackageBaseID) VALUES (77, 1, 1)");
    check(&server, "yogurt", "PendingRequests", json!(1));
    sql("UPDATE PackageRequests SET Status = 2, ClosedTS = 500 WHERE ID = 77");
    check(&server, "yogurt", "PendingRequests", json!(0));
    sql("UPDATE Users SET Username = 'berta' WHERE ID = 2");
    check(&server, "yogurt", "Maintainer", json!("berta"));
    // Gone with all that refers to it, by cascades.
    sql("DELETE FROM PackageBases WHERE ID = 2");
    check(&server, "split-a", "", Value::Null);
    check(&server, "split-b", "", Value::Null);
    sql("DELETE FROM Users WHERE ID = 2");
    check(&server, "yogurt", "Maintainer", Value::Null);
    // A new base, before and after its first package.
    let suggested = || server.get("/rpc?v=5&type=suggest-pkgbase&arg=").text();
    sql("INSERT INTO PackageBases (ID, Name, SubmittedTS, ModifiedTS) VALUES (4, 'new', 600, 600)");
    wait_until("a new base", || suggested() == r#"["empty","new","yogurt"]"#);
    sql("INSERT INTO Packages VALUES (31, 4, 'new', '1-1', NULL, NULL)");
    check(&server, "new", "Version", json!("1-1"));
    sql("DELETE FROM PackageBases WHERE ID = 3");
    wait_until("an empty base to go", || suggested() == r#"["new","yogurt"]"#);
    // A merge: votes move, then the base goes.
    sql(
        "START TRANSACTION; UPDATE PackageBases SET NumVotes = 9 WHERE ID = 1; DELETE FROM PackageBases WHERE ID = 4; COMMIT",
    );
    check(&server, "new", "", Value::Null);
    assert_eq!(info(&server, "yogurt")["NumVotes"], json!(9));
    assert_eq!(server.metric("larder_aur_refresh_failing"), 0.0);
}

/// As aurweb's own list, `/users.gz` has users without a package, and follows those who register.
#[test]
fn the_list_of_users_has_all_of_them() {
    let Some(database) = database(COUNTING) else { return };
    database.execute("aur", "INSERT INTO Users VALUES (7, 'Dora')");
    let server = following(&database);
    let users = || String::from_utf8(gunzip(&server.get("/users.gz").body)).expect("UTF-8");
    assert_eq!(users(), "anna\nbert\ncarl\nDora\n");
    let check = |statement: &str, expected: &str| {
        database.execute("aur", statement);
        wait_until(statement, || users() == expected);
    };
    check("INSERT INTO Users VALUES (8, 'aaron')", "aaron\nanna\nbert\ncarl\nDora\n");
    check(
        "UPDATE Users SET Username = 'Theodora' WHERE ID = 7",
        "aaron\nanna\nbert\ncarl\nTheodora\n",
    );
    check("DELETE FROM Users WHERE ID = 8", "anna\nbert\ncarl\nTheodora\n");
    // With a change of a package, too, and when all tables are read again.
    check(
        "START TRANSACTION; INSERT INTO Users VALUES (9, 'emil'); UPDATE PackageBases SET MaintainerUID = 9 WHERE ID = 2; \
        COMMIT",
        "anna\nbert\ncarl\nemil\nTheodora\n",
    );
    assert_eq!(info(&server, "split-a")["Maintainer"], json!("emil"));
    assert_eq!(server.metric("larder_aur_refresh_failing"), 0.0);
    database.execute("aur", "UPDATE PackageBases SET NumVotes = 8 WHERE ID = 1");
    check(
        "UPDATE Packages SET Version = '4-1' WHERE ID = 11",
        "anna\nbert\ncarl\nemil\nTheodora\n",
    );
}

#[test]
fn every_kind_of_change_is_seen() {
    check_changes(COUNTING);
}

#[test]
fn every_kind_of_change_is_seen_where_the_database_does_not_count() {
    check_changes(&["--userstat=0"]);
}

#[test]
fn a_change_is_seen_when_it_is_committed_and_not_before() {
    let Some(database) = database(COUNTING) else { return };
    let server = following(&database);
    let (mut long, mut undone) = (database.session("aur"), database.session("aur"));
    long.execute("START TRANSACTION; UPDATE PackageBases SET NumVotes = 50 WHERE ID = 1");
    undone.execute("START TRANSACTION; UPDATE PackageBases SET MaintainerUID = 3 WHERE ID = 2");
    // The tables are read after both statements.
    for votes in [7, 8] {
        database
            .execute("aur", &format!("UPDATE PackageBases SET OutOfDateTS = {votes} WHERE ID = 3"));
        database.execute("aur", &format!("UPDATE Packages SET Version = '{votes}' WHERE ID = 13"));
        check(&server, "split-b", "Version", json!(votes.to_string()));
        assert_eq!(info(&server, "yogurt")["NumVotes"], json!(3));
    }
    long.execute("COMMIT");
    check(&server, "yogurt", "NumVotes", json!(50));
    undone.execute("ROLLBACK");
    database.execute("aur", "UPDATE Packages SET Version = '9' WHERE ID = 13");
    check(&server, "split-b", "Version", json!("9"));
    assert_eq!(info(&server, "split-b")["Maintainer"], Value::Null);
}

#[test]
fn a_database_in_trouble_changes_nothing_and_recovers() {
    let Some(database) = database(COUNTING) else { return };
    let server = following(&database);
    let check_trouble = |trouble: &str| {
        wait_until("the trouble to show", || {
            server.app.aur.trouble().is_some_and(|text| text.contains(trouble))
        });
        assert_eq!(server.metric("larder_aur_refresh_failing"), 1.0);
        assert_eq!(info(&server, "yogurt")["Name"], json!("yogurt"));
        assert!(server.app.obstacles().is_empty());
    };
    let check_well = |version: &str| {
        let statement = format!("UPDATE Packages SET Version = '{version}' WHERE ID = 11");
        database.execute("aur", &statement);
        check(&server, "yogurt", "Version", json!(version));
        wait_until("the trouble to be over", || server.app.aur.trouble().is_none());
    };
    database.crash();
    check_trouble("cannot read the database `mysql://***@localhost/aur?socket=");
    database.resume();
    // It comes back as it was.
    wait_until("the refresh to fail no more", || {
        server.metric("larder_aur_refresh_failing") == 0.0
    });
    check_well("2-1");
    database.stop();
    check_trouble("cannot read the database");
    database.resume();
    check_well("3-1");
    // A migration that takes its time.
    database.execute("aur", "RENAME TABLE PackageKeywords TO KeywordsOfPackages");
    check_trouble("PackageKeywords");
    database.execute("aur", "RENAME TABLE KeywordsOfPackages TO PackageKeywords");
    check_well("4-1");
    // A right that is missing, and is given later. A connection that is open keeps it.
    database.execute("mysql", "REVOKE SELECT ON aur.* FROM larder@localhost; GRANT SELECT ON aur.Users TO larder@localhost");
    database.execute("aur", "UPDATE Users SET Username = 'annika' WHERE ID = 1");
    database.stop();
    database.resume();
    check_trouble("denied");
    database.execute("mysql", "GRANT SELECT ON aur.* TO larder@localhost");
    check_well("5-1");
    assert_eq!(info(&server, "yogurt")["Maintainer"], json!("annika"));
    // All packages are gone: more likely an accident than the truth.
    database.execute("aur", "START TRANSACTION; UPDATE Users SET Username = 'anna' WHERE ID = 1; \
        CREATE TABLE Away AS SELECT * FROM Packages; SET FOREIGN_KEY_CHECKS = 0; DELETE FROM Packages");
    check_trouble("the dump has no packages");
    database.execute("aur", "INSERT INTO Packages SELECT * FROM Away; DROP TABLE Away");
    check_well("6-1");
}

#[test]
fn the_last_state_of_a_database_is_served_after_a_restart_without_it() {
    let Some(database) = database(COUNTING) else { return };
    let server = following(&database);
    // The dump of the start is kept, and this change is not, until the server stops.
    database.execute("aur", "UPDATE PackageBases SET NumVotes = 77 WHERE ID = 1");
    check(&server, "yogurt", "NumVotes", json!(77));
    let directory = server.stop();
    database.crash();
    let source = source(&database);
    let server = TestServer::start_in(Arc::clone(&directory), |config, _| {
        config.aur.source = Some(source);
        config.aur.rate_limit = 0;
    })
    .ready();
    check(&server, "yogurt", "NumVotes", json!(77));
    assert_eq!(info(&server, "split-a")["PendingRequests"], json!(2));
    database.resume();
    database.execute("aur", "UPDATE PackageBases SET NumVotes = 78 WHERE ID = 1");
    check(&server, "yogurt", "NumVotes", json!(78));
}

/// A push that was half done when all tables were read is read whole when it continues.
#[test]
fn a_push_goes_on_after_all_tables_were_read() {
    let Some(database) = database(COUNTING) else { return };
    let server = following(&database);
    database.execute("aur", "INSERT INTO PackageDepends VALUES (12, 1, 'late', NULL, NULL, NULL)");
    check(&server, "split-a", "Depends", json!(["late"]));
    // A push of a new package that waits between its statements.
    database.execute("aur", "INSERT INTO Packages VALUES (21, 2, 'split-c', '1-1', NULL, NULL)");
    check(&server, "split-c", "Version", json!("1-1"));
    let reloaded = runtime().block_on(server.app.aur.reload());
    assert!(reloaded.is_ok(), "{reloaded:?}");
    database.execute("aur", "INSERT INTO PackageGroups VALUES (21, 1)");
    check(&server, "split-c", "Groups", json!(["dairy"]));
}

/// How many statements like this a server has sent, of a database that notes them.
fn statements(database: &MariaDb, pattern: &str) -> u32 {
    let query = format!(
        "SELECT COUNT(*) FROM general_log WHERE user_host LIKE '%larder%' AND command_type <> 'Prepare' \
         AND argument LIKE '{pattern}'"
    );
    database.query("mysql", &query).trim().parse().expect("a number")
}

#[test]
fn what_was_refused_is_not_read_again_until_something_moves() {
    let Some(database) = database(COUNTING) else { return };
    let server = following(&database);
    database.execute("aur", "CREATE TABLE Away AS SELECT * FROM Packages");
    database.execute("aur", "SET FOREIGN_KEY_CHECKS = 0; DELETE FROM Packages");
    wait_until("the trouble to show", || server.app.aur.trouble().is_some());
    database.execute("mysql", LOGGING);
    let (polls, reads) = ("%FROM information_schema.TABLE_STATISTICS%", "%URL FROM Packages%");
    wait_until("some polls", || statements(&database, polls) > 12);
    let (read, polled) = (statements(&database, reads), statements(&database, polls));
    assert!(read * 2 < polled, "{read} reads in {polled} polls");
    let trouble = server.app.aur.trouble().expect("still the trouble");
    trouble.says("has no packages");
    database.execute("aur", "INSERT INTO Packages SELECT * FROM Away");
    wait_until("the trouble to be over", || server.app.aur.trouble().is_none());
    assert!(statements(&database, reads) > read);
    database.execute("aur", "UPDATE Packages SET Version = '2-1' WHERE ID = 11");
    check(&server, "yogurt", "Version", json!("2-1"));
}

/// Views have no counters: they are compared after a commit, and not at every poll.
#[test]
fn views_in_place_of_tables_are_compared_seldom() {
    let Some(database) = MariaDb::start(COUNTING) else { return };
    database
        .execute("mysql", "CREATE DATABASE store CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
    database.execute("store", demo::AURWEB_SCHEMA);
    database.execute("store", ROWS);
    for table in database.query("store", "SHOW TABLES").lines() {
        database.execute("aur", &format!("CREATE VIEW `{table}` AS SELECT * FROM store.`{table}`"));
    }
    database.execute("mysql", READER);
    database.execute("mysql", LOGGING);
    let server = following(&database);
    let count = |pattern: &str| statements(&database, pattern);
    let comparisons = || {
        count("%FROM PackageBases WHERE TRUE GROUP BY ID DIV %")
            + count("%FROM Users WHERE TRUE GROUP BY ID DIV %")
    };
    wait_until("some polls", || count("%FROM information_schema.TABLE_STATISTICS%") > 24);
    let (compared, polls) = (comparisons(), count("%FROM information_schema.TABLE_STATISTICS%"));
    assert!(compared * 2 < polls, "{compared} comparisons in {polls} polls");
    let before = comparisons();
    database.execute("store", "UPDATE PackageBases SET NumVotes = 44 WHERE ID = 1");
    check(&server, "yogurt", "NumVotes", json!(44));
    // Both tables were compared: these are the statements that are counted.
    assert!(comparisons() >= before + 2);
}

/// The dump that is kept has one order, whichever way its records were read.
#[test]
fn a_kept_dump_is_the_same_as_long_as_its_packages_are() {
    let Some(database) = database(COUNTING) else { return };
    let server = following(&database);
    let kept = || server.get("/packages-meta-ext-v1.json.gz").body;
    wait_until("the dump to be kept", || server.get("/packages-meta-ext-v1.json.gz").status == 200);
    let first = kept();
    // The file's time is that of the data, and may stay the same; a replaced file has another inode.
    let inode = |path: &std::path::Path| fs::metadata(path).map(|it| it.ino()).ok();
    let file = KeptDump::path_in(&server.app.config.data_dir);
    let before = inode(&file);
    assert!(before.is_some(), "{}", file.display());
    for votes in [4, 3] {
        let statement = format!("UPDATE PackageBases SET NumVotes = {votes} WHERE ID = 1");
        database.execute("aur", &statement);
        check(&server, "yogurt", "NumVotes", json!(votes));
    }
    // It has been written again by now, or will be when the server stops.
    let directory = server.stop();
    assert!(inode(&file) != before, "it was not written again");
    assert!(fs::read(&file).expect("the dump") == first, "it differs");
    drop(directory);
}

/// A dump that could not be kept is kept as soon as that is possible, without another change.
#[test]
fn a_dump_that_was_not_kept_is_tried_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let dump = directory.path().join("dump.json");
    fs::write(&dump, catalogue::small()).expect("a dump");
    let server = TestServer::without_source(|config| {
        // A disk that is not there.
        fs::create_dir_all(&config.data_dir).expect("a directory");
        let link = std::os::unix::fs::symlink("nowhere", config.data_dir.join("aur"));
        link.expect("a link");
        config.aur.source = Some(dump.to_str().expect("a path").parse().expect("a source"));
    });
    wait_until("the packages", || server.app.aur.snapshot().is_some());
    wait_until("a failure", || server.metric("larder_aur_keep_failures_total") >= 1.0);
    server.get("/packages-meta-ext-v1.json.gz").expect(503);
    fs::remove_file(server.app.config.data_dir.join("aur")).expect("it is gone");
    wait_until("the dump to be kept", || server.get("/packages-meta-ext-v1.json.gz").status == 200);
}
