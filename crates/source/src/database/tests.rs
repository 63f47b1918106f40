//! Unit tests of [`super`], some of them on a real MariaDB.

use testbed::MariaDb;

use super::*;

/// Two bases; the number of the last package is so high that the others do not count as new.
const ROWS: &str = "
    INSERT INTO Users VALUES (1, 'anna'), (2, 'bert');
    INSERT INTO PackageBases (ID, Name, NumVotes, Popularity, PopularityUpdated, SubmittedTS, ModifiedTS, MaintainerUID)
        VALUES (1, 'yogurt', 3, 1.5, CURRENT_TIMESTAMP, 100, 200, 1), (2, 'spoon', 0, 0, CURRENT_TIMESTAMP, 100, 200, NULL);
    INSERT INTO Packages VALUES (11, 1, 'yogurt', '1-1', NULL, NULL), (1000, 2, 'spoon', '1-1', NULL, NULL);
    INSERT INTO PackageDepends VALUES (11, 1, 'milk', NULL, NULL, NULL);
    CREATE USER larder@localhost; GRANT SELECT ON *.* TO larder@localhost;
    SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 1;
";

/// A database with these rows that logs statements; `None` where MariaDB is not installed.
fn database() -> Option<MariaDb> {
    let database = MariaDb::start(&["--userstat=1"])?;
    database.execute("aur", demo::AURWEB_SCHEMA);
    database.execute("aur", ROWS);
    Some(database)
}

fn watch(database: &MariaDb, directory: &std::path::Path, options: SourceOptions) -> DatabaseWatch {
    let url = DatabaseUrl::parse(&database.url("larder")).expect("a URL");
    DatabaseWatch::new(url, "this one".to_owned(), options, directory.to_owned())
}

/// How often a statement was sent that ends with this.
fn sent(database: &MariaDb, end: &str) -> u32 {
    let query = format!(
        "SELECT COUNT(*) FROM general_log WHERE user_host LIKE '%larder%' AND command_type <> 'Prepare' \
         AND argument LIKE '%{end}'"
    );
    database.query("mysql", &query).trim().parse().expect("a number")
}

/// The end of a statement that is sent once whenever all tables are read.
const ALL_TABLES: &str = "Name FROM PackageBases ORDER BY ID";

fn text_of(news: Option<News>) -> String {
    match news {
        None => "nothing".to_owned(),
        Some(News::Changes(update)) => String::from_utf8(update.changes.records).expect("text"),
        Some(News::Dump(arrival)) => std::io::read_to_string(arrival.reader()).expect("a dump"),
    }
}

/// A base is read with its rows in all tables, even those that were not compared. A value that they had only for a moment
/// differs again once it is gone.
#[tokio::test]
async fn what_was_there_for_a_moment_is_read_again() {
    let Some(database) = database() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let mut watch = watch(&database, directory.path(), SourceOptions::default());
    let stall = Duration::from_secs(60);
    let mut connection = watch.connect().await.expect("a connection");
    let now = begin(&mut connection).await.expect("a transaction");
    let mut held = Held::see(&mut connection, stall, now).await.expect("sums");
    end(&mut connection).await.expect("the end");
    let only = |name: &str| Tables::default().and(name);
    for (committed, compared, meanwhile, table, taken_back) in [
        (
            "UPDATE PackageBases SET NumVotes = 4 WHERE ID = 1",
            "PackageBases",
            "INSERT INTO PackageRequests (ReqTypeID, PackageBaseID) VALUES (4, 1)",
            "PackageRequests",
            "UPDATE PackageRequests SET Status = 2, ClosedTS = 5",
        ),
        (
            "INSERT INTO PackageKeywords VALUES (1, 'cow')",
            "PackageKeywords",
            "UPDATE PackageBases SET OutOfDateTS = 5 WHERE ID = 1",
            "PackageBases",
            "UPDATE PackageBases SET OutOfDateTS = NULL WHERE ID = 1",
        ),
        (
            "UPDATE PackageBases SET NumVotes = 5 WHERE ID = 1",
            "PackageBases",
            "UPDATE Users SET Username = 'hanna' WHERE ID = 1",
            "Users",
            "UPDATE Users SET Username = 'anna' WHERE ID = 1",
        ),
        (
            "DELETE FROM PackageKeywords",
            "PackageKeywords",
            "INSERT INTO PackageComaintainers VALUES (2, 1, 1); UPDATE Users SET Username = 'robert' WHERE ID = 2",
            "Users",
            "UPDATE Users SET Username = 'bert' WHERE ID = 2",
        ),
    ] {
        // Only one of the tables had moved at the first look.
        database.execute("aur", committed);
        database.execute("aur", meanwhile);
        let now = begin(&mut connection).await.expect("a transaction");
        let compared = only(compared);
        let compare = held.compare(&mut connection, stall, compared, None);
        let mut difference = compare.await.expect("a difference");
        difference.see_beside(&mut connection, stall, compared).await.expect("sums");
        let part = Catalogue::read(&mut connection, stall, now, &[1]).await.expect("a base");
        end(&mut connection).await.expect("the end");
        assert_eq!(difference.bases.iter().copied().collect::<Vec<_>>(), [1]);
        held.learn(difference, &part, &HashSet::new());

        database.execute("aur", taken_back);
        begin(&mut connection).await.expect("a transaction");
        let compare = held.compare(&mut connection, stall, only(table), None);
        let difference = compare.await.expect("a difference");
        let part = Catalogue::read(&mut connection, stall, now, &[1]).await.expect("a base");
        end(&mut connection).await.expect("the end");
        assert_eq!(difference.bases.iter().copied().collect::<Vec<_>>(), [1], "{taken_back}");
        held.learn(difference, &part, &HashSet::new());
    }
}

/// A table that is emptied for a moment, as in a migration, empties nothing, even if all tables are read just then.
#[tokio::test]
async fn rows_that_are_gone_for_a_moment_are_waited_for() {
    let Some(database) = database() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    // Longer than any test: what ends the wait is that the rows are back.
    let options =
        SourceOptions { emptied_wait: Duration::from_secs(3600), ..SourceOptions::default() };
    let mut watch = watch(&database, directory.path(), options);
    let news = watch.poll(false).await.expect("an answer");
    assert!(text_of(news).contains("milk"));
    watch.accepted();
    for (away, back) in [
        (
            "CREATE TABLE Away AS SELECT * FROM PackageDepends; DELETE FROM PackageDepends",
            "INSERT INTO PackageDepends SELECT * FROM Away; DROP TABLE Away",
        ),
        (
            "DELETE FROM Packages WHERE ID = 11",
            "INSERT INTO Packages VALUES (11, 1, 'yogurt', '1-1', NULL, NULL); \
             INSERT INTO PackageDepends VALUES (11, 1, 'milk', NULL, NULL, NULL)",
        ),
    ] {
        database.execute("aur", away);
        let before = sent(&database, ALL_TABLES);
        let restoring = async {
            // The second read has found that the first one was not believed.
            while sent(&database, ALL_TABLES) < before + 2 {
                sleep(Duration::from_millis(50)).await;
            }
            database.execute("aur", back);
        };
        let (news, ()) = tokio::join!(watch.poll(true), restoring);
        let text = text_of(news.expect("an answer"));
        assert!(text == "nothing" || text.contains("milk"), "{text}");
        watch.accepted();
    }
}

/// Rows that stay away are gone after the wait.
#[tokio::test]
async fn rows_that_stay_away_are_believed() {
    let Some(database) = database() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let options =
        SourceOptions { emptied_wait: Duration::from_millis(1), ..SourceOptions::default() };
    let mut watch = watch(&database, directory.path(), options);
    watch.poll(false).await.expect("an answer");
    watch.accepted();
    database.execute("aur", "DELETE FROM PackageDepends");
    let text = text_of(watch.poll(true).await.expect("an answer"));
    assert!(text.contains("yogurt") && !text.contains("milk"), "{text}");
}

/// A dependency that was changed by hand has no checksum: it is seen when all tables are read again.
#[tokio::test]
async fn all_tables_are_read_after_some_intervals() {
    let Some(database) = database() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let options = SourceOptions { interval: Duration::from_secs(3600), ..SourceOptions::default() };
    let mut watch = watch(&database, directory.path(), options);
    watch.poll(false).await.expect("an answer");
    watch.accepted();
    database.execute("aur", "UPDATE PackageDepends SET DepName = 'cream' WHERE PackageID = 11");
    // The table has moved since, so the comparison is out of date.
    for _ in 0..5 {
        let text = text_of(watch.poll(false).await.expect("an answer"));
        assert!(!text.contains("cream"), "{text}");
        watch.accepted();
    }
    assert_eq!(sent(&database, ALL_TABLES), 1);
    watch.set_interval(Duration::from_millis(10));
    // Other new ones may be read again meanwhile.
    loop {
        let text = text_of(watch.poll(false).await.expect("an answer"));
        if text.contains("cream") {
            break;
        }
        watch.accepted();
        sleep(Duration::from_millis(10)).await;
    }
    assert!(sent(&database, ALL_TABLES) >= 2);
}

/// Popularities decay every day without a change of a row: the database says for which bases.
#[tokio::test]
async fn popularities_of_another_day_are_read_again() {
    let Some(database) = database() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let mut watch = watch(&database, directory.path(), SourceOptions::default());
    let mut connection = watch.connect().await.expect("a connection");
    let stall = Duration::from_secs(60);
    let now = begin(&mut connection).await.expect("a time");
    let catalogue = Catalogue::read(&mut connection, stall, now, &[1]).await.expect("rows");
    let held = Held::see(&mut connection, stall, now).await.expect("sums");
    let updated = catalogue.bases[&1].popularity_updated;
    for (seconds, expected) in [
        (0, &[][..]),
        (86_400 - 1 - (now - updated), &[][..]),
        (86_400 - (now - updated), &[1][..]),
        (86_400 * 9, &[1][..]),
    ] {
        let then = Some(now + seconds);
        let found = held.compare(&mut connection, stall, Tables::default(), then).await;
        let found: Vec<i64> = found.expect("an answer").bases.into_iter().collect();
        assert_eq!(found, expected, "{seconds}");
    }
    // It is read with the popularity of that day.
    let later = now + 86_400 * 9;
    let part = Catalogue::read(&mut connection, stall, later, &[1]).await.expect("rows");
    let records = spool::records(&part, &HashSet::new()).expect("records");
    let records = String::from_utf8(records).expect("text");
    assert!(records.contains("\"Popularity\":1.250622,"), "{records}");
}

/// Expects that the tables are read at this time, in milliseconds, if what is seen changes at the others.
#[track_caller]
fn check(changes: &[u64], read: u64) {
    let mut quiet = Quiet::default();
    let mut looks = (0..).step_by(50);
    let found = looks.find(|now| {
        let rows = changes.iter().filter(|change| *change <= now).count();
        quiet.is_settled(format!("1 7 {rows}"), Duration::from_millis(*now))
    });
    assert_eq!(found, Some(read));
}

#[test]
fn a_base_is_shown_as_it_was_until_a_push_has_added_its_packages() {
    let (mut since, start) = (HashMap::new(), Instant::now());
    let mut check = |seconds: f64, emptied: &[i64], later: &[i64]| {
        let now = start + Duration::from_secs_f64(seconds);
        let found =
            left_for_later(&mut since, emptied.iter().copied(), now, Duration::from_secs(2));
        assert_eq!(found, later.iter().copied().collect(), "{seconds}");
    };
    check(0.0, &[1, 2], &[1, 2]);
    // The second one has packages again.
    check(0.5, &[1], &[1]);
    check(1.9, &[1, 2], &[1, 2]);
    // The first one really has none.
    check(2.1, &[1, 2], &[2]);
    check(9.0, &[], &[]);
}

#[test]
fn a_push_is_read_when_it_has_ended() {
    check(&[], 200);
    check(&[50, 100, 150, 290], 500);
    // One row after another, without end.
    let endless: Vec<u64> = (0..200).map(|number| number * 100).collect();
    check(&endless, 5000);
    assert!(Quiet::default().is_settled("0 7 1".to_owned(), Duration::ZERO));
}
