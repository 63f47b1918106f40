//! Counts of downloads beside the records: what several processes add is one sum.

use store::records::{DownloadCount, Downloads, ProjectDownloads, VersionDownloads};

use crate::database::Database;
use crate::on_both;

on_both!(
    what_processes_add_is_one_sum,
    what_is_forgotten_is_gone,
    the_most_downloaded_releases_are_shown,
    all_projects_are_found,
);

fn row(stage: &str, project: &str, version: &str, day: i64, count: u64) -> DownloadCount {
    let (stage, project, version) = (stage.to_owned(), project.to_owned(), version.to_owned());
    DownloadCount { stage, project, version, day, count }
}

async fn days(downloads: &Downloads, stage: &str, project: &str, since: i64) -> Vec<(i64, u64)> {
    downloads.of_project(stage, project, since, 10).await.expect("read").days
}

async fn what_processes_add_is_one_sum(database: Database) {
    let opened = [database.open().await, database.open().await];
    let [one, other] = [Downloads::beside(&opened[0]), Downloads::beside(&opened[1])];
    assert_eq!(one.of_project("a/b", "p", 0, 10).await, Ok(ProjectDownloads::default()));
    // Rows in opposite orders, at once, on a table that both make.
    let rows = |count| (0..50).map(move |at| row("a/b", &format!("p{at}"), "1.0", 5, count));
    for _ in 0..5 {
        let (left, right) =
            tokio::join!(one.add(rows(1).collect()), other.add(rows(10).rev().collect::<Vec<_>>()));
        assert_eq!((left, right), (Ok(()), Ok(())));
    }
    for downloads in [&one, &other] {
        assert_eq!(days(downloads, "a/b", "p0", 0).await, [(5, 55)]);
        assert_eq!(days(downloads, "a/b", "p49", 5).await, [(5, 55)]);
        assert_eq!(days(downloads, "a/b", "p49", 6).await, []);
        assert_eq!(days(downloads, "a/c", "p0", 0).await, []);
    }
    // They are no commits, and are there after the processes have ended.
    assert_eq!(opened[0].serial().await, Ok(record::Serial::ZERO));
    for (records, downloads) in opened.iter().zip([one, other]) {
        downloads.let_go().await;
        records.close().await;
    }
    let records = database.open().await;
    assert_eq!(days(&Downloads::beside(&records), "a/b", "p0", 0).await, [(5, 55)]);
}

async fn what_is_forgotten_is_gone(database: Database) {
    let records = database.open().await;
    let downloads = Downloads::beside(&records);
    downloads.forget("a/b", None).await.expect("nothing to forget");
    downloads.forget_before(5).await.expect("nothing to forget");
    let mut rows = Vec::new();
    for stage in ["a/b", "a/c"] {
        for project in ["p", "q"] {
            rows.extend((1..=3).map(|day| row(stage, project, "1.0", day, 1)));
        }
    }
    downloads.add(rows).await.expect("added");
    downloads.forget_before(2).await.expect("forgotten");
    assert_eq!(days(&downloads, "a/b", "p", 0).await, [(2, 1), (3, 1)]);
    downloads.forget("a/b", Some("p")).await.expect("forgotten");
    assert_eq!(days(&downloads, "a/b", "p", 0).await, []);
    assert_eq!(days(&downloads, "a/b", "q", 0).await, [(2, 1), (3, 1)]);
    assert_eq!(days(&downloads, "a/c", "p", 0).await, [(2, 1), (3, 1)]);
    downloads.forget("a/b", None).await.expect("forgotten");
    assert_eq!(days(&downloads, "a/b", "q", 0).await, []);
    assert_eq!(days(&downloads, "a/c", "q", 0).await, [(2, 1), (3, 1)]);
}

async fn the_most_downloaded_releases_are_shown(database: Database) {
    let records = database.open().await;
    let downloads = Downloads::beside(&records);
    let rows = [("1.0", 1, 1), ("2.0", 1, 4), ("2.0", 3, 5), ("0.'1\"ü", 3, 7), ("3.0", 0, 99)];
    let rows = rows.map(|(version, day, count)| row("a/b", "p", version, day, count));
    downloads.add(rows.to_vec()).await.expect("added");
    let version = |version: &str, days: &[(i64, u64)]| VersionDownloads {
        version: version.to_owned(),
        days: days.to_vec(),
    };
    let expected = ProjectDownloads {
        days: vec![(1, 5), (3, 12)],
        versions: vec![version("2.0", &[(1, 4), (3, 5)]), version("0.'1\"ü", &[(3, 7)])],
        version_count: 3,
    };
    assert_eq!(downloads.of_project("a/b", "p", 1, 2).await, Ok(expected));
}

async fn all_projects_are_found(database: Database) {
    let records = database.open().await;
    let downloads = Downloads::beside(&records);
    let names = ["a/b p", "a/b q", "a/c p", "ä/b p"];
    let pair = |name: &&str| {
        let (stage, project) = name.split_once(' ').expect("a pair");
        (stage.to_owned(), project.to_owned())
    };
    for name in names {
        let (stage, project) = pair(&name);
        let rows = ["1.0", "2.0"].map(|version| row(&stage, &project, version, 1, 1));
        downloads.add(rows.to_vec()).await.expect("added");
    }
    let (mut found, mut last) = (Vec::new(), (String::new(), String::new()));
    loop {
        let next = downloads.projects_after(&last.0, &last.1, 3).await.expect("read");
        let Some(end) = next.last() else { break };
        last = end.clone();
        found.extend(next);
    }
    assert_eq!(found, names.iter().map(pair).collect::<Vec<_>>());
}

/// A file that is no database is named, touches no record, and gives way to a new one.
#[tokio::test]
async fn a_damaged_file_is_told_and_replaced() {
    let database = Database::new(crate::database::Kind::Sqlite).await.expect("a file");
    let records = database.open().await;
    let downloads = Downloads::beside(&records);
    let file = downloads.file().expect("a file").to_owned();
    std::fs::write(&file, "no database at all, whatever its name says".repeat(100))
        .expect("written");
    let rows = || vec![row("a/b", "p", "1.0", 1, 1)];
    let added = downloads.add(rows()).await;
    assert!(matches!(added, Err(store::records::DownloadsError::Damaged(_))), "{added:?}");
    downloads.let_go().await;
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(downloads.add(rows()).await, Ok(()));
    assert_eq!(days(&downloads, "a/b", "p", 0).await, [(1, 1)]);
    assert_eq!(records.serial().await, Ok(record::Serial::ZERO));
}
