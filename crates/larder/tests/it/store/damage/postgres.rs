//! A database of PostgreSQL that is dropped, emptied, changed, set back and replaced, at rest and under a running
//! server. One server of PostgreSQL for all cases; each case has a copy of one database, and of the blobs.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use testbed::Postgres;

use super::harm::SERVE;
use super::{blobs, body, check_articles, check_unswept, copy, write, writes_of};
use crate::asking::{Says as _, each};
use crate::process::{Done, Process, larder};
use crate::server::{ROOT_PASSWORD, TestServer, wait_for};
use crate::wait_until;

const ARTICLES: u32 = 6;
/// The articles that an older copy of the database has.
const OLDER: u32 = 3;

/// Damage to a database.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// It is gone.
    Dropped,
    /// A copy of this one has its name.
    Replaced(&'static str),
    /// This statement was executed in it.
    Executed(&'static str),
}
use Harm::{Dropped, Executed, Replaced};

const EMPTIED: &str =
    "TRUNCATE larder_records, larder_writers; UPDATE larder_store SET serial = 0 WHERE id = 1";
const IDENTITY_CHANGED: &str = "UPDATE larder_records SET \
    body = convert_to('0123456789abcdef0123456789abcdef', 'UTF8') WHERE key = 'store/identity'";
const ARTICLE_DELETED: &str = "DELETE FROM larder_records WHERE key LIKE 'article/%/a/0-x'";
const ARTICLE_CHANGED: &str =
    "UPDATE larder_records SET body = '\\x23'::bytea WHERE key LIKE 'article/%/a/0-x'";

/// The databases `store` and `other`, each with a data directory of its name, and `older`, which `store` was once.
struct Databases {
    postgres: Postgres,
    directory: Arc<TempDir>,
}

impl Databases {
    fn new() -> Option<Databases> {
        let postgres = Postgres::start()?;
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        let databases = Databases { postgres, directory };
        databases.administer("CREATE DATABASE store; CREATE DATABASE other");
        for name in ["store", "other"] {
            databases.run(name, &["init", "--root-password", ROOT_PASSWORD]).check(0, "");
        }
        databases.fill("store", 0..OLDER);
        databases.administer("CREATE DATABASE older TEMPLATE store");
        databases.fill("store", OLDER..ARTICLES);
        // Further than `store` ever comes: not the serial is to give it away.
        databases.fill("other", 0..30);
        Some(databases)
    }

    fn fill(&self, name: &str, articles: std::ops::Range<u32>) {
        let mut process = self.start(name);
        for number in articles {
            assert_eq!(write(&process.client, number), 201);
        }
        process.stop();
    }

    fn administer(&self, statements: &str) {
        self.postgres.execute("postgres", statements);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A copy of `store` of another name.
    fn copy(&self, name: &str) {
        copy(&self.path("store"), &self.path(name));
        self.administer(&format!("CREATE DATABASE {name} TEMPLATE store"));
    }

    /// Does the damage, and keeps the original under another name, unless it is changed in place.
    fn harm(&self, name: &str, harm: Harm) {
        let make = match harm {
            Executed(statements) => return self.postgres.execute(name, statements),
            Dropped => String::new(),
            Replaced(template) => format!("CREATE DATABASE {name} TEMPLATE {template}"),
        };
        // A server would be back at once.
        self.administer(&format!(
            "ALTER DATABASE {name} ALLOW_CONNECTIONS false; \
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'; \
             ALTER DATABASE {name} RENAME TO {name}_aside; {make}"
        ));
    }

    /// Puts back what [`Databases::harm`] has kept.
    fn mend(&self, name: &str) {
        self.administer(&format!(
            "DROP DATABASE IF EXISTS {name} WITH (FORCE); ALTER DATABASE {name}_aside RENAME TO {name}; \
             ALTER DATABASE {name} ALLOW_CONNECTIONS true"
        ));
    }

    fn start(&self, name: &str) -> Process {
        let url = self.postgres.url_of(name);
        let arguments = ["--aur-enabled=false", "--database", &url];
        Process::start_in(self.directory.clone(), name, &arguments)
    }

    #[track_caller]
    fn run(&self, name: &str, command: &[&str]) -> Done {
        let mut child = larder(self.directory.path());
        child.args(command).args(["--data-dir", name, "--database", &self.postgres.url_of(name)]);
        Done::in_time(&mut child)
    }

    /// A server must refuse to start, and say this.
    #[track_caller]
    fn check_refused(&self, name: &str, says: &str) {
        self.run(name, &SERVE).check(1, says).said().lacks("panicked");
    }

    #[track_caller]
    fn check_unswept(&self, name: &str, what: &str, refused: &[u32]) {
        let sweep = ["sweep", "--force", "--grace", "0"];
        check_unswept(&self.path(name), what, refused, || self.run(name, &sweep));
    }

    fn remove(&self, name: &str) {
        self.administer(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        fs::remove_dir_all(self.path(name)).expect("it is ours");
    }
}

/// Tries each case, a few at a time: most of what they take is waiting.
fn each_at_once<Case: Sync>(cases: &[Case], check: impl Fn(usize, &Case) + Sync) {
    const AT_ONCE: usize = 4;
    std::thread::scope(|scope| {
        for first in 0..AT_ONCE {
            let check = &check;
            let share = cases.iter().enumerate().skip(first).step_by(AT_ONCE);
            scope.spawn(move || each(share, |(number, case)| check(number, case)));
        }
    });
}

/// The outcome of a start.
enum Start {
    /// It prints this, and ends.
    Refused(&'static str),
    /// It serves everything.
    Serves,
    /// It serves everything but the first article: nothing can show that this existed, or its text.
    Lacks,
}
use Start::{Lacks, Refused, Serves};

const UNKNOWN: &str = "are new, or of no store";
const STRANGERS: &str = "belong to the store";

/// What happens to a store at rest, and how a start goes afterwards.
const CASES: &[(Harm, Start)] = &[
    (Dropped, Refused("does not exist")),
    (Replaced("template0"), Refused("there are no records in")),
    (Replaced("other"), Refused(STRANGERS)),
    (Replaced("older"), Refused("are an older copy")),
    (Executed(EMPTIED), Refused(UNKNOWN)),
    (Executed("TRUNCATE larder_records"), Refused(UNKNOWN)),
    (Executed("TRUNCATE larder_store"), Refused("row that is always in larder_layout, or in")),
    (Executed("TRUNCATE larder_layout"), Refused("row that is always in larder_layout")),
    (Executed("TRUNCATE larder_writers"), Serves),
    (Executed("DELETE FROM larder_records WHERE key = 'store/identity'"), Refused(UNKNOWN)),
    (Executed(IDENTITY_CHANGED), Refused(STRANGERS)),
    (
        Executed("UPDATE larder_records SET body = '' WHERE key = 'store/identity'"),
        Refused("`store/identity` is damaged"),
    ),
    (Executed(ARTICLE_DELETED), Lacks),
    (Executed(ARTICLE_CHANGED), Lacks),
    (
        Executed("UPDATE larder_records SET blobs = '\\x23'::bytea WHERE key LIKE 'article/%'"),
        Refused("its last digest has 1 bytes, not 32"),
    ),
    (Executed("UPDATE larder_store SET serial = 2"), Refused("was set back")),
    (Executed("UPDATE larder_store SET serial = 1000"), Serves),
    (Executed("DROP TABLE larder_records"), Refused("\"larder_records\" does not exist")),
    (Executed("DROP TABLE larder_store"), Refused("\"larder_store\" does not exist")),
    (Executed("DROP TABLE larder_layout"), Refused("\"larder_store\" already exists")),
    (Executed("DROP TABLE larder_writers"), Refused("\"larder_writers\" does not exist")),
    (
        Executed("ALTER TABLE larder_records RENAME COLUMN body TO text"),
        Refused("\"body\" does not exist"),
    ),
    (
        Executed("ALTER TABLE larder_records ALTER COLUMN body TYPE text USING 'x'"),
        Refused("are damaged"),
    ),
    (Executed("ALTER TABLE larder_store ALTER COLUMN serial TYPE numeric"), Refused("are damaged")),
];

#[test]
fn at_rest() {
    let Some(databases) = Databases::new() else { return };
    each_at_once(CASES, |number, (harm, start)| {
        let (name, what) = (format!("rest{number}"), format!("{harm:?}"));
        databases.copy(&name);
        databases.harm(&name, *harm);
        match start {
            Refused(text) => {
                databases.check_refused(&name, text);
                databases.check_unswept(&name, &what, &[]);
            }
            Serves | Lacks => {
                let mut process = databases.start(&name);
                let first = if matches!(start, Lacks) { 1 } else { 0 };
                let all: Vec<u32> = (first..ARTICLES).collect();
                check_articles(&process.client, &all, &what, |_| false);
                if first == 1 {
                    let status = process.get("/article/a/0-x").status;
                    assert!(matches!(status, 404 | 500), "{what}: {status}");
                }
                assert_eq!(write(&process.client, 50), 201, "{what}");
                process.stop();
                // A deleted row names nothing.
                if !what.contains("DELETE") {
                    databases.check_unswept(&name, &what, &[]);
                }
            }
        }
        if matches!(harm, Replaced("template0")) {
            // Another program's database has got no tables of ours.
            databases.postgres.execute(
                &name,
                "SELECT 1 / (CASE WHEN count(*) = 0 THEN 1 ELSE 0 END) FROM pg_class WHERE relname LIKE 'larder%'",
            );
        }
        if matches!(harm, Replaced("older")) {
            check_adopted(&databases, &name);
        }
        databases.remove(&name);
    });
}

/// An administrator wants the older records: later ones are given up, and their blobs swept.
fn check_adopted(databases: &Databases, name: &str) {
    databases.run(name, &["verify"]).check(1, "are an older copy");
    databases.run(name, &["adopt"]).check(0, "is given up");
    let mut process = databases.start(name);
    let kept: Vec<u32> = (0..OLDER).collect();
    check_articles(&process.client, &kept, "adopted", |_| false);
    process.get(&format!("/article/a/{OLDER}-x")).expect(404);
    process.stop();
    databases.run(name, &["sweep", "--grace", "0"]).check(0, "");
    assert_eq!(blobs(&databases.path(name)).len(), OLDER as usize);
}

/// The outcome of writes to a running server.
#[derive(Clone, Copy, PartialEq)]
enum Writes {
    /// They go on.
    GoOn,
    /// They are refused while the damage lasts.
    Stop,
    /// They are refused until the right database is back: this one is known to be another one.
    StopUntilBack,
}
use Writes::{GoOn, Stop, StopUntilBack};

#[test]
fn while_running() {
    let Some(databases) = Databases::new() else { return };
    let cases: &[(Harm, Writes)] = &[
        (Dropped, Stop),
        (Replaced("template0"), Stop),
        (Replaced("other"), StopUntilBack),
        (Replaced("older"), StopUntilBack),
        (Executed(EMPTIED), StopUntilBack),
        (Executed("TRUNCATE larder_records"), StopUntilBack),
        (Executed("TRUNCATE larder_store"), Stop),
        (Executed("TRUNCATE larder_layout"), GoOn),
        (Executed("TRUNCATE larder_writers"), GoOn),
        (Executed("DELETE FROM larder_records WHERE key = 'store/identity'"), StopUntilBack),
        (Executed(IDENTITY_CHANGED), StopUntilBack),
        (Executed(ARTICLE_DELETED), GoOn),
        (Executed(ARTICLE_CHANGED), GoOn),
        (Executed("UPDATE larder_store SET serial = 2"), StopUntilBack),
        (Executed("UPDATE larder_store SET serial = 1000"), GoOn),
        (Executed("DROP TABLE larder_records"), Stop),
        (Executed("DROP TABLE larder_store"), Stop),
        (Executed("DROP TABLE larder_layout"), GoOn),
        (Executed("ALTER TABLE larder_records RENAME COLUMN body TO text"), Stop),
        (Executed("ALTER TABLE larder_store ALTER COLUMN serial TYPE numeric"), Stop),
    ];
    each_at_once(cases, |number, (harm, writes)| {
        check_running(&databases, &format!("run{number}"), *harm, *writes);
    });
}

fn check_running(databases: &Databases, name: &str, harm: Harm, writes: Writes) {
    let what = format!("{harm:?}");
    databases.copy(name);
    let process = databases.start(name);
    let client = &process.client;
    let mut acknowledged: Vec<u32> = (0..ARTICLES).collect();
    for number in 20..22 {
        assert_eq!(write(client, number), 201, "{what}");
        acknowledged.push(number);
    }
    check_articles(client, &acknowledged, &what, |_| false);
    databases.harm(name, harm);
    acknowledged.extend(writes_of(&process, 30..32, writes == GoOn, &what));
    // From memory.
    check_articles(client, &acknowledged, &what, |_| false);
    assert_eq!(client.get("/readyz").status, 200, "{what}");
    if writes != GoOn {
        client.wait_for("/readyz?verbose", "[!] store");
        let is_rewound = || client.metric("larder_store_is_rewound") == 1.0;
        match writes {
            // Between renaming one database and making the other, there is none.
            StopUntilBack => wait_until("the other database to be noticed", is_rewound),
            _ => assert!(!is_rewound(), "{what}: {}", process.log()),
        }
        assert_ne!(client.find_metric("larder_store_read_failures_total"), Some(0.0), "{what}");
    }
    assert!(!process.log().contains("panicked"), "{what}: {}", process.log());
    let is_kept_aside = matches!(harm, Dropped | Replaced(_));
    if is_kept_aside {
        databases.mend(name);
        wait_until("writes", || write(client, 40) == 201);
        acknowledged.push(40);
        assert_eq!(client.find_metric("larder_store_is_rewound"), Some(0.0), "{what}");
    }
    process.signal("KILL");
    drop(process);
    // Without that table a start refuses.
    if (is_kept_aside || writes == GoOn) && !what.contains("larder_layout") {
        let process = databases.start(name);
        // The first article may lack, as in the same case at rest.
        acknowledged.retain(|number| *number > 0 || !what.contains("a/0-x"));
        check_articles(&process.client, &acknowledged, &what, |_| false);
    }
    if !what.contains("DELETE FROM larder_records WHERE key LIKE") {
        databases.check_unswept(name, &what, &[30, 31, 40]);
    }
    databases.remove(name);
}

/// Rows that are deleted behind a server's back are still in its memory: its sweep keeps the blobs that they named, and says
/// so.
#[test]
fn a_sweep_keeps_what_memory_names() {
    let Some(postgres) = Postgres::start() else { return };
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let server = TestServer::without_aur_in(directory.clone(), |config| {
        config.database = Some(postgres.url().parse().expect("a location"));
        config.store.sweep_grace = std::time::Duration::ZERO;
    });
    let client = server.client;
    for number in 0..3 {
        assert_eq!(write(&client, number), 201);
    }
    let before = blobs(directory.path());
    postgres.execute("postgres", ARTICLE_DELETED);
    wait_for(larder::tasks::blob_sweep::sweep(&server.app));
    assert_eq!(blobs(directory.path()), before);
    assert_eq!(server.metric("larder_blob_sweep_failures_total"), 1.0);
    assert_eq!(server.metric("larder_blobs_swept_total"), 0.0);
    assert_eq!(client.get("/article/a/0-x").text(), body(0));
}
