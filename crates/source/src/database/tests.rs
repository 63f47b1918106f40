//! Unit tests of [`super`], some of them on a real MariaDB.

use testbed::MariaDb;

use super::digests::Difference;
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

/// A database of which everything was read once, and the directory of its watch.
async fn watched(options: SourceOptions) -> Option<(MariaDb, tempfile::TempDir, DatabaseWatch)> {
    let database = database()?;
    let directory = tempfile::tempdir().expect("a directory");
    let mut watch = watch(&database, directory.path(), options);
    watch.poll(false).await.expect("an answer");
    watch.accepted();
    Some((database, directory, watch))
}

/// A connection, and the sums of all tables.
async fn first_sums(watch: &mut DatabaseWatch) -> (MySqlConnection, LastRead) {
    let mut connection = watch.connect().await.expect("a connection");
    let mut all = transaction(&mut connection);
    let held = LastRead::see(&mut all).await.expect("sums");
    all.end(&[], |_, _| Ok(())).await.expect("the end");
    (connection, held)
}

/// How often a statement was sent that ends with this. With `%` at the end, also in the middle of several that were sent together,
/// each of which counts.
fn sent(database: &MariaDb, end: &str) -> u32 {
    let query = format!(
        "SELECT COUNT(*) FROM general_log WHERE user_host LIKE '%larder%' AND command_type <> 'Prepare' \
         AND argument LIKE '%{end}'"
    );
    database.query("mysql", &query).trim().parse().expect("a number")
}

/// The end of a statement that is sent once whenever all tables are read.
const ALL_TABLES: &str = "Name FROM PackageBases ORDER BY ID";

/// A transaction that no push concerns.
fn transaction(connection: &mut MySqlConnection) -> Transaction<'_> {
    Transaction::new(connection, Duration::from_secs(60), "'0 '".to_owned())
}

/// Compares these tables, and reads what differs.
async fn compare(
    connection: &mut MySqlConnection,
    held: &LastRead,
    compared: Tables,
    is_due: bool,
) -> (Difference, Catalogue) {
    let mut transaction = transaction(connection);
    let comparing = held.compare(&mut transaction, compared, &[], is_due);
    let mut difference = comparing.await.expect("a difference");
    let part = difference.read(transaction, compared).await.expect("rows");
    (difference, part)
}

fn text_of(news: Option<SourceNews>) -> String {
    match news {
        None => "nothing".to_owned(),
        Some(SourceNews::Changes(update)) => {
            String::from_utf8(update.changes.records).expect("text")
        }
        Some(SourceNews::Dump(arrival)) => {
            std::io::read_to_string(arrival.reader()).expect("a dump")
        }
    }
}

async fn polled(watch: &mut DatabaseWatch, is_forced: bool) -> String {
    text_of(watch.poll(is_forced).await.expect("an answer"))
}

/// A base is read with its rows in all tables, even those that were not compared. A value that they had only for a moment
/// differs again once it is gone.
#[tokio::test]
async fn what_was_there_for_a_moment_is_read_again() {
    let Some(database) = database() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let mut watch = watch(&database, directory.path(), SourceOptions::default());
    let (mut connection, mut held) = first_sums(&mut watch).await;
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
        let (difference, part) = compare(&mut connection, &held, only(compared), false).await;
        assert_eq!(difference.bases.iter().copied().collect::<Vec<_>>(), [1]);
        held.learn(difference, &part, &HashSet::new());

        database.execute("aur", taken_back);
        let (difference, part) = compare(&mut connection, &held, only(table), false).await;
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
    let options =
        SourceOptions { emptied_wait: Duration::from_millis(1), ..SourceOptions::default() };
    let Some((database, _directory, mut watch)) = watched(options).await else { return };
    database.execute("aur", "DELETE FROM PackageDepends");
    let text = polled(&mut watch, true).await;
    assert!(text.contains("yogurt") && !text.contains("milk"), "{text}");
}

/// A dependency that was changed by hand has no checksum: it is seen when all tables are read again.
#[tokio::test]
async fn all_tables_are_read_after_some_intervals() {
    let options = SourceOptions { interval: Duration::from_secs(3600), ..SourceOptions::default() };
    let Some((database, _directory, mut watch)) = watched(options).await else { return };
    database.execute("aur", "UPDATE PackageDepends SET DepName = 'cream' WHERE PackageID = 11");
    // The table has moved since, so the comparison is out of date.
    for _ in 0..5 {
        let text = polled(&mut watch, false).await;
        assert!(!text.contains("cream"), "{text}");
        watch.accepted();
    }
    assert_eq!(sent(&database, ALL_TABLES), 1);
    watch.set_interval(Duration::from_millis(10));
    // Other new ones may be read again meanwhile.
    loop {
        let text = polled(&mut watch, false).await;
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
    let mut all = transaction(&mut connection);
    let held = LastRead::see(&mut all).await.expect("sums");
    let now = all.begin().await.expect("a time").now;
    let catalogue = Catalogue::read_after(&mut all, 0).await.expect("rows");
    all.end(&[], |_, _| Ok(())).await.expect("the end");
    let updated = catalogue.bases[&1].popularity_updated;
    let mut last = catalogue;
    for (seconds, expected) in [
        (0, &[][..]),
        (86_400 - 1 - (now - updated), &[][..]),
        (86_400 - (now - updated), &[1][..]),
        (86_400 * 9, &[1][..]),
    ] {
        let clock = format!("SET timestamp = {}", now + seconds);
        each(&mut connection, &[clock], Duration::MAX, |_, _| Ok(())).await.expect("a clock");
        let (difference, part) = compare(&mut connection, &held, Tables::default(), true).await;
        assert_eq!(difference.bases.into_iter().collect::<Vec<_>>(), expected, "{seconds}");
        last = part;
    }
    // It is read with the popularity of that day.
    let part = last;
    let records = spool::records(&part, &HashSet::new()).expect("records");
    let records = String::from_utf8(records).expect("text");
    assert!(records.contains("\"Popularity\":1.250622,"), "{records}");
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

/// All sums that differ are asked for together, also if as many groups of all tables differ as may be asked for one by one.
#[tokio::test]
async fn many_groups_of_all_tables_are_compared_together() {
    let Some(database) = database() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let mut watch = watch(&database, directory.path(), SourceOptions::default());
    let (mut connection, held) = first_sums(&mut watch).await;
    // One in each of 64 groups of 4096.
    for (table, row) in [
        ("Users", "i * 4096 + 9, CONCAT('user-', i)"),
        (
            "PackageBases (ID, Name, SubmittedTS, ModifiedTS, MaintainerUID)",
            "i * 4096 + 7, CONCAT('base-', i), 1, 2, i * 4096 + 9",
        ),
        ("Packages", "i * 4096 + 8, i * 4096 + 7, CONCAT('base-', i), '1-1', NULL, NULL"),
        ("PackageKeywords", "i * 4096 + 7, 'word'"),
        ("PackageComaintainers", "i * 4096 + 9, i * 4096 + 7, 1"),
        ("PackageRequests (ReqTypeID, PackageBaseID)", "1, i * 4096 + 7"),
    ] {
        let statement = format!(
            "INSERT INTO {table} WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 64) \
             SELECT {row} FROM n"
        );
        database.execute("aur", &statement);
    }
    let (difference, part) = compare(&mut connection, &held, Tables::ALL, true).await;
    let expected: Vec<i64> = (1..=64).map(|number| number * 4096 + 7).collect();
    assert_eq!(difference.bases.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!((part.bases.len(), part.packages.len(), part.requests.len()), (64, 64, 64));
    assert!(part.bases.values().all(|base| base.maintainer.is_some()));
}

/// A package that is committed after the last look at the tables is in the transaction that reads them; if a push may be adding to it,
/// nothing is read.
#[tokio::test]
async fn a_push_that_begins_just_before_the_read_is_waited_for() {
    let Some((database, _directory, mut watch)) = watched(SourceOptions::default()).await else {
        return;
    };
    let mut connection = watch.connection.take().expect("a connection");
    let finding = Pushes::after(&mut connection, watch.last_package);
    let mut pushes = finding.await.expect("a number");
    database.execute("aur", "UPDATE PackageBases SET NumVotes = 9 WHERE ID = 1");
    database.execute("aur", "INSERT INTO Packages VALUES (1001, 2, 'fork', '1-1', NULL, NULL)");
    let only = Tables::default().and("PackageBases");
    for is_waiting in [true, false] {
        let held = watch.held.take().expect("sums");
        let reading = watch.read_changes(&mut connection, held, &mut pushes, only, false);
        match (reading.await.expect("an answer"), is_waiting) {
            // It has begun just now.
            (ReadOutcome::Continue(()), true) => sleep(pushes::QUIET).await,
            (ReadOutcome::Break(news), false) => assert!(text_of(news).contains("\"NumVotes\":9")),
            (ReadOutcome::Break(news), true) => panic!("{}", text_of(news)),
            (ReadOutcome::Continue(()), false) => panic!("the push has ended"),
        }
    }
    watch.connection = Some(connection);
    watch.accepted();
    let text = polled(&mut watch, false).await;
    assert!(text.contains("fork"), "{text}");
}

/// What a push has added is compared for a while, and read again only if it differs.
#[tokio::test]
async fn a_recent_push_is_read_again_only_if_it_differs() {
    let Some((database, _directory, mut watch)) = watched(SourceOptions::default()).await else {
        return;
    };
    let mut poll_after = async |statements: &str| {
        database.execute("aur", statements);
        let text = polled(&mut watch, false).await;
        watch.accepted();
        text
    };
    let pushed = poll_after(
        "DELETE FROM Packages WHERE ID = 1000; INSERT INTO Packages VALUES (1001, 2, 'spoon', '2-1', NULL, NULL); \
         INSERT INTO PackageDepends VALUES (1001, 1, 'metal', NULL, NULL, NULL)",
    )
    .await;
    assert!(pushed.contains("\"2-1\"") && pushed.contains("metal"), "{pushed}");
    // Its rows are the same; those of another package, which is not recent, have moved the table.
    let read = || sent(&database, "PackageBaseID IN (2) ORDER BY ID%");
    let reads = read();
    assert!(reads > 0);
    for number in 0..3 {
        let moved = format!("UPDATE PackageDepends SET DepDesc = '{number}' WHERE PackageID = 11");
        assert_eq!(poll_after(&moved).await, "nothing");
    }
    assert_eq!(read(), reads);
    let paused =
        poll_after("INSERT INTO PackageDepends VALUES (1001, 1, 'wood', NULL, NULL, NULL)").await;
    assert!(paused.contains("wood"), "{paused}");
    assert!(read() > reads);
}

/// While changes go on, each look also reads the state of new packages, which the server counts as a commit. It is known to be our own:
/// only what others commit causes reads.
#[tokio::test]
async fn looks_that_read_tables_are_no_commits_of_others() {
    let Some((database, _directory, mut watch)) = watched(SourceOptions::default()).await else {
        return;
    };
    database.execute("aur", "UPDATE PackageBases SET NumVotes = 9 WHERE ID = 1");
    assert!(polled(&mut watch, false).await.contains("\"NumVotes\":9"));
    watch.accepted();
    let reads = || sent(&database, "START TRANSACTION WITH CONSISTENT SNAPSHOT%");
    let mut found = Vec::new();
    for have_others_committed in [false, true] {
        let before = reads();
        // Longer than the first pauses between two reads for one move.
        for _ in 0..12 {
            if have_others_committed {
                // Reading counts as a commit, too.
                database.query("aur", "SELECT COUNT(*) FROM Users");
            }
            watch.poll(false).await.expect("an answer");
            sleep(Duration::from_millis(100)).await;
        }
        found.push(reads() - before);
    }
    assert!(found[0] == 0 && found[1] > 0, "{found:?}");
}

/// One statement of aurweb's changes the popularity of all bases: that of each is handed out at once, without reading its packages, and
/// what changes with it or later as ever.
#[tokio::test]
async fn a_wave_of_popularity_is_read_without_the_packages() {
    let Some(database) = database() else { return };
    // Another number of bases: few groups of them are asked for base by base, many are not.
    for (more, after) in [(6000, 10), (40_000, 10_000)] {
        database.execute(
            "aur",
            &format!(
                "INSERT INTO PackageBases (ID, Name, NumVotes, Popularity, PopularityUpdated, SubmittedTS, ModifiedTS) \
                     SELECT seq + {after}, CONCAT('base-', seq + {after}), 1, 1, CURRENT_TIMESTAMP, 1, 2 FROM seq_1_to_{more}; \
                 INSERT INTO Packages SELECT seq + {after} + 2000, seq + {after}, CONCAT('base-', seq + {after}), '1-1', NULL, NULL \
                     FROM seq_1_to_{more}"
            ),
        );
        check_wave(&database).await;
    }
}

async fn check_wave(database: &MariaDb) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = SourceOptions { interval: Duration::from_secs(3600), ..SourceOptions::default() };
    let mut watch = watch(database, directory.path(), options);
    watch.poll(false).await.expect("an answer");
    watch.accepted();
    let (before, bases) = (sent(database, ALL_TABLES), watch.held.as_ref().expect("sums").bases());
    database.execute(
        "aur",
        "BEGIN; UPDATE PackageBases SET Popularity = (ID + 1) / 200 + 100, PopularityUpdated = CURRENT_TIMESTAMP; \
         UPDATE PackageBases SET NumVotes = NumVotes + 76 WHERE ID = 5000; \
         INSERT INTO PackageBases (ID, Name, NumVotes, Popularity, PopularityUpdated, SubmittedTS, ModifiedTS) \
             VALUES (900000 + CONNECTION_ID(), CONCAT('new-', CONNECTION_ID()), 1, 1, CURRENT_TIMESTAMP, 1, 2); \
         COMMIT",
    );
    let (mut popularities, mut changed) = (Popularities::new(), Vec::new());
    while popularities.is_empty() {
        let news = watch.poll(false).await.expect("an answer");
        watch.accepted();
        match news {
            Some(SourceNews::Changes(update)) => {
                changed.extend(update.changes.bases.iter().cloned());
                popularities = update.popularities;
            }
            Some(SourceNews::Dump(_)) => panic!("all tables were read"),
            None => sleep(Duration::from_millis(20)).await,
        }
    }
    // The last packages count as new, and are read once more.
    changed.sort();
    changed.dedup();
    assert!(changed.contains(&"base-5000".to_owned()), "{changed:?}");
    assert!(changed.len() < 150, "{}", changed.len());
    assert_eq!(popularities.len() + changed.len(), bases + 1);
    assert_eq!((popularities["yogurt"], popularities["base-4999"]), (100.01, 125.0));
    assert_eq!(sent(database, ALL_TABLES), before);
    let held = watch.held.take().expect("sums");
    let mut connection = watch.connection.take().expect("a connection");
    let (difference, _) = compare(&mut connection, &held, Tables::ALL, false).await;
    assert!(difference.bases.is_empty() && difference.popularities.is_empty());
}

/// The bound on each question is the promise: a server that stands still is noticed within seconds.
#[tokio::test]
async fn a_database_that_stands_still_is_noticed() {
    let Some((database, _directory, mut watch)) = watched(SourceOptions::default()).await else {
        return;
    };
    let frozen = database.freeze();
    // It stands still a moment after the signal: until then it answers.
    let asking = async {
        loop {
            if let Err(error) = watch.poll(false).await {
                return error.to_string();
            }
        }
    };
    let error = timeout(Duration::from_secs(20), asking).await.expect("it is noticed");
    assert!(error.contains("asking for changes") && error.contains("5s"), "{error}");
    drop(frozen);
    assert_eq!(polled(&mut watch, false).await, "nothing");
}
