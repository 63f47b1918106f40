//! `larder upgrade-check` says what a start would change, and a start on a later version's data changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use record::{Batch, Expected, Key, Record, Serial};
use sqlx::{ConnectOptions as _, Connection as _};
use store::{DatabaseLocation, Records, RecordsOptions};

use super::{Place, body_of, check_article, put};
use crate::asking::Says as _;
use crate::server::wait_for;

/// A directory `data` with an article, that no server runs on.
fn written() -> Place {
    let place = Place::new();
    let server = place.serve("data", |_| ());
    put(&server.client, "a", 0, &body_of("a", 1));
    server.stop();
    place
}

/// Every file below a directory: its bytes, and when it was written. Directories are there without bytes.
fn files(directory: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let about = fs::metadata(&path).expect("it is there");
        let bytes = if about.is_dir() { Vec::new() } else { fs::read(&path).expect("a file") };
        found.insert(path.display().to_string(), (bytes, about.modified().expect("a time")));
        if about.is_dir() {
            found.extend(files(&path));
        }
    }
    found
}

fn execute(place: &Place, sql: &'static str) {
    let path = place.path("data/records.db");
    wait_for(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
        let mut connection = options.connect().await.expect("opened");
        sqlx::raw_sql(sql).execute(&mut connection).await.expect("executed");
        connection.close().await.expect("closed");
    });
}

#[test]
fn a_look_writes_nothing_and_says_what_would_change() {
    let place = written();
    let identity = place.path("data/blobs/sha256/IDENTITY");
    let (name, history) = (fs::read(&identity).expect("a name"), place.path("data/aur-history.db"));
    let check = |code, expected: &[&str]| {
        let before = files(&place.path("data"));
        place.check("upgrade-check --data-dir data", code, expected);
        assert_eq!(files(&place.path("data")), before);
    };
    check(0, &["nothing would change"]);
    fs::remove_file(&identity).expect("removed");
    check(
        3,
        &[
            "change: the blobs in `data/blobs` do not say whose they are",
            "going back: ",
            "1 change",
        ],
    );
    fs::create_dir(&history).expect("a directory");
    check(3, &["aur-history.db` (the history of the AUR's packages) is of no use", "2 changes"]);
    let report = place.check_json("upgrade-check --data-dir data --json", 3);
    assert_eq!(report["changes"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(report["obstacles"].as_array().map(Vec::len), Some(0), "{report}");

    // It was right: a start makes these changes, and no others.
    let server = place.serve("data", |_| ());
    place.check("upgrade-check --data-dir data", 0, &["nothing would change"]);
    check_article(&server.client, "a", 1);
    server.stop();
    assert_eq!(fs::read(&identity).expect("a name"), name);
    assert!(place.path("data/aur-history.db.set-aside").is_dir());
    check(0, &["nothing would change"]);
}

#[test]
fn what_cannot_be_looked_at_is_told() {
    let place = Place::new();
    place.check("upgrade-check --data-dir data", 1, &["there is no store"]);
    assert!(!place.path("data").exists());
    place.check("init --data-dir data --root-password x", 0, &[]);
    place.check(
        "upgrade-check --data-dir data --database sqlite:data/blobs/VERSION",
        1,
        &["VERSION"],
    );
    fs::write(place.path("data/blobs/VERSION"), "larder blobs 9\n").expect("a write");
    place.check("upgrade-check --data-dir data", 1, &["obstacle: ", "larder blobs 9"]);
    fs::write(place.path("later.toml"), "moon = 1\n").expect("a write");
    let known = "unknown key `moon`";
    place.check("upgrade-check --data-dir data --config later.toml", 78, &[known]);
}

/// Going back from a version with another layout: the older one refuses, and has written nothing.
#[test]
fn a_later_layout_is_refused_before_anything_is_written() {
    let place = written();
    execute(&place, "UPDATE larder_layout SET layout = 99");
    // The lock of the data directory is taken before a look. Commands that only read leave SQLite's files without content.
    let files = || {
        let left = ["larder.lock", "records.db-wal", "records.db-shm"];
        let found = files(&place.path("data")).into_iter();
        let bytes = found.map(|(path, (bytes, _))| (path, bytes));
        bytes.filter(|(path, _)| !left.iter().any(|name| path.ends_with(name))).collect::<Vec<_>>()
    };
    let before = files();
    let report = place.check_json("upgrade-check --data-dir data --json", 1);
    let obstacle = report["obstacles"][0].as_str().expect("a text");
    obstacle.says(["have layout 99", "a newer version of it is needed"]);
    let serve = "serve --data-dir data --aur-enabled=false --listen 127.0.0.1:0";
    place.check(serve, 1, &["have layout 99", "a newer version of it is needed"]);
    for command in ["init", "migrate", "sweep", "user add x --generate", "backup away"] {
        let line = format!("{command} --data-dir data");
        place.check(&line, 1, &["have layout 99"]);
    }
    assert!(files() == before, "something was written");
}

/// Going back from a version with records that this one does not know: they are named, left out, and kept.
#[test]
fn records_of_a_later_version_are_named_and_kept() {
    let place = written();
    let key = |text: &str| Key::new(text).expect("a key");
    let later = r#"{"v":9,"moon":true}"#;
    let kept = ["token/0123456789ab", "moon/apollo", "python/stage/team/dev"];
    let batch = kept.iter().fold(Batch::new(), |batch, name| {
        batch.put(key(name), Expected::Absent, later, Vec::new())
    });
    let location = DatabaseLocation::Sqlite(place.path("data/records.db"));
    let open =
        || async { Records::open(&location, RecordsOptions::default()).await.expect("opened") };
    let read = || {
        wait_for(async {
            let records = open().await;
            let (found, _) = records.records_after(Serial::ZERO).await.expect("read");
            records.close().await;
            let is_later = |record: &Record| record.body.as_deref() == Some(later.as_bytes());
            found.into_iter().filter(is_later).collect::<Vec<_>>()
        })
    };
    wait_for(async {
        let records = open().await;
        records.commit(batch).await.expect("committed");
        records.close().await;
    });
    let before = read();
    assert_eq!(before.len(), kept.len());
    let expected = [
        "obstacle: the record `token/0123456789ab` of serial ",
        "obstacle: the record `python/stage/team/dev` of serial ",
        "cannot be read: its body has the form 9",
        "1 record below `moon/`, which this version does not know",
        "3 obstacles",
    ];
    place.check("upgrade-check --data-dir data", 1, &expected);
    let server = place.serve("data", |_| ());
    check_article(&server.client, "a", 1);
    put(&server.client, "a", 1, &body_of("a", 2));
    server.stop();
    assert_eq!(read(), before, "the server has left them alone");
}
