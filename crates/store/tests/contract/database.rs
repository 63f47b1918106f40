//! A fresh database for each test: a file, or a database of a server that is made for the tests.

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use record::{Batch, Expected, Key};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use store::records::{DatabaseLocation, Records, RecordsOptions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// A database that lives as long as this.
pub(crate) struct Database {
    pub(crate) location: DatabaseLocation,
    _directory: Option<tempfile::TempDir>,
    _server: Option<Arc<Server>>,
}

impl Database {
    /// An empty database; none if there is no server to make it on.
    pub(crate) async fn new(kind: Kind) -> Option<Database> {
        match kind {
            Kind::Sqlite => {
                let directory = tempfile::tempdir().expect("a temporary directory");
                let path = directory.path().join("some/where/larder.db");
                let location = DatabaseLocation::Sqlite(path);
                Some(Database { location, _directory: Some(directory), _server: None })
            }
            Kind::Postgres => {
                static SHARED: OnceLock<Option<Arc<Server>>> = OnceLock::new();
                let server = SHARED.get_or_init(|| Server::find_or_make().map(Arc::new)).clone()?;
                Some(Database::on(server).await)
            }
        }
    }

    /// An empty database on `server`.
    pub(crate) async fn on(server: Arc<Server>) -> Database {
        let mut random = [0; 8];
        getrandom::fill(&mut random).expect("randomness");
        let name = format!("larder_test_{:016x}", u64::from_le_bytes(random));
        let mut connection =
            PgConnection::connect(&server.url("postgres")).await.expect("the test server");
        // Under load from other tests creating may meet another's use of the template.
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE template0")))
            .execute(&mut connection)
            .await
            .expect("a new database");
        connection.close().await.expect("closed");
        let location = server.url(&name).parse().expect("a location");
        Database { location, _directory: None, _server: Some(server) }
    }

    pub(crate) async fn open(&self) -> Records {
        self.open_with(options()).await
    }

    pub(crate) async fn open_with(&self, options: RecordsOptions) -> Records {
        Records::open(&self.location, options).await.expect("opened")
    }

    /// Has the database execute `statement` behind the back of whoever has it open.
    pub(crate) async fn execute(&self, statement: &'static str) {
        match &self.location {
            DatabaseLocation::Sqlite(path) => {
                std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
                let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
                let mut connection = options.connect().await.expect("connected");
                sqlx::raw_sql(statement).execute(&mut connection).await.expect("executed");
                connection.close().await.expect("closed");
            }
            DatabaseLocation::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.expect("connected");
                sqlx::raw_sql(statement).execute(&mut connection).await.expect("executed");
                connection.close().await.expect("closed");
            }
        }
    }

    /// Takes the right to write away from everybody, as another process does while it commits.
    pub(crate) async fn lock(&self) -> Lock {
        match &self.location {
            DatabaseLocation::Sqlite(path) => {
                let options = SqliteConnectOptions::new().filename(path);
                let options = options.busy_timeout(Duration::from_secs(60));
                let mut connection = options.connect().await.expect("connected");
                let begin = sqlx::raw_sql("BEGIN IMMEDIATE");
                begin.execute(&mut connection).await.expect("locked");
                Lock::Sqlite(connection)
            }
            DatabaseLocation::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.expect("connected");
                let begin = sqlx::raw_sql("BEGIN; SELECT serial FROM larder_store FOR UPDATE");
                begin.execute(&mut connection).await.expect("locked");
                Lock::Postgres(connection)
            }
        }
    }

    /// The URL of the database of PostgreSQL.
    pub(crate) fn url(&self) -> &str {
        match &self.location {
            DatabaseLocation::Postgres(url) => url,
            DatabaseLocation::Sqlite(_) => panic!("a file has no URL"),
        }
    }

    /// The file of SQLite.
    pub(crate) fn path(&self) -> &Path {
        match &self.location {
            DatabaseLocation::Sqlite(path) => path,
            DatabaseLocation::Postgres(_) => panic!("a server has no file"),
        }
    }
}

/// The right to write, kept from everybody else.
pub(crate) enum Lock {
    Sqlite(sqlx::SqliteConnection),
    Postgres(PgConnection),
}

impl Lock {
    pub(crate) async fn release(self) {
        match self {
            Lock::Sqlite(connection) => connection.close().await.expect("closed"),
            Lock::Postgres(connection) => connection.close().await.expect("closed"),
        }
    }
}

/// Outages are found out quickly, and no test waits for a poll by chance.
pub(crate) fn options() -> RecordsOptions {
    RecordsOptions {
        database_timeout: Duration::from_secs(5),
        poll_interval: Duration::from_millis(200),
        ..RecordsOptions::default()
    }
}

/// Runs `test` on a fresh database of `kind`, if there can be one.
pub(crate) fn run<F: Future<Output = ()>>(kind: Kind, test: impl FnOnce(Database) -> F) {
    in_runtime(async {
        if let Some(database) = Database::new(kind).await {
            test(database).await;
        }
    });
}

pub(crate) fn in_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

/// A batch that puts `body` under `text`, whatever was there.
pub(crate) fn put(text: &str, body: impl Into<Bytes>) -> Batch {
    Batch::new().put(key(text), Expected::Anything, body, Vec::new())
}

/// A server of PostgreSQL.
pub(crate) struct Server {
    base: Base,
}

enum Base {
    /// Someone else's: a URL, in which the database is replaced.
    Given(String),
    Made(Made),
}

/// A server in a temporary directory, listening on a socket in there only.
struct Made {
    programs: PathBuf,
    /// What a program of PostgreSQL is started with: it refuses to run as root.
    user: Vec<&'static str>,
    directory: PathBuf,
    /// Stops and removes the server once its input is closed, which the end of this process does too,
    /// however it comes.
    guard: Child,
}

impl Drop for Made {
    fn drop(&mut self) {
        // Closes its input first.
        let _ = self.guard.wait();
    }
}

impl Server {
    /// The server that all tests share, or nothing but a line that says why.
    fn find_or_make() -> Option<Server> {
        if let Ok(url) = std::env::var("LARDER_TEST_POSTGRES") {
            return Some(Server { base: Base::Given(url) });
        }
        Server::make()
    }

    /// A server of its own, for a test that does not treat it kindly.
    pub(crate) fn make() -> Option<Server> {
        let Some(programs) = programs() else {
            let is_required = std::env::var("CI").as_deref() == Ok("true");
            let is_given = std::env::var_os("LARDER_TEST_POSTGRES").is_some();
            assert!(!is_required || is_given, "no PostgreSQL to test with");
            skipped("initdb of PostgreSQL was not found");
            return None;
        };
        let user = user();
        let directory =
            output(as_user(&user, Path::new("mktemp")).args(["-d", "-t", "larder-test-XXXXXXXX"]));
        let directory = PathBuf::from(directory.trim());
        let data = directory.join("data");
        let mut initdb = as_user(&user, &programs.join("initdb"));
        initdb.args(["--username=larder", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        output(initdb.arg("--no-sync").arg("-D").arg(&data));
        let guard = as_user(&user, Path::new("sh"))
            .arg("-c")
            .arg(format!(
                "read -r _; '{}' stop -m immediate -D '{}'; rm -rf '{}'",
                programs.join("pg_ctl").display(),
                data.display(),
                directory.display()
            ))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let server = Server { base: Base::Made(Made { programs, user, directory, guard }) };
        server.start();
        Some(server)
    }

    fn made(&self) -> &Made {
        match &self.base {
            Base::Made(made) => made,
            Base::Given(_) => panic!("this server is not ours"),
        }
    }

    pub(crate) fn start(&self) {
        let made = self.made();
        let options = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c max_connections=200",
            made.directory.display()
        );
        let mut start = as_user(&made.user, &made.programs.join("pg_ctl"));
        start.args(["start", "-w", "-D"]).arg(made.directory.join("data"));
        start.arg("-l").arg(made.directory.join("log")).args(["-o", &options]);
        // Not to a pipe: the server keeps it open.
        let status = start.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("pg_ctl");
        assert!(status.success(), "PostgreSQL did not start");
    }

    /// Stops it at once, as a crash would.
    pub(crate) fn stop(&self) {
        let made = self.made();
        let mut stop = as_user(&made.user, &made.programs.join("pg_ctl"));
        output(stop.args(["stop", "-w", "-m", "immediate", "-D"]).arg(made.directory.join("data")));
    }

    /// The socket that a server of our own listens on.
    pub(crate) fn socket(&self) -> String {
        format!("{}/.s.PGSQL.5432", self.made().directory.display())
    }

    /// The URL of the database `name`.
    pub(crate) fn url(&self, name: &str) -> String {
        match &self.base {
            Base::Made(made) => {
                format!("postgres:///{name}?host={}&user=larder", made.directory.display())
            }
            Base::Given(url) => {
                let (url, parameters) = url.split_once('?').unwrap_or((url, ""));
                let authority = url.find("://").map_or(0, |at| at + 3);
                let end = url[authority..].find('/').map_or(url.len(), |at| authority + at);
                format!("{}/{name}?{parameters}", &url[..end])
            }
        }
    }
}

/// Says that a test was skipped, past what captures the output of tests that pass.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Where the programs of PostgreSQL are: the newest of what is installed.
fn programs() -> Option<PathBuf> {
    let from_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    installed.sort();
    let configured = Command::new("pg_config").arg("--bindir").output().ok();
    let configured = configured.and_then(|it| String::from_utf8(it.stdout).ok());
    let configured = configured.map(|path| PathBuf::from(path.trim()));
    installed.into_iter().rev().chain(configured).chain(from_path).find(|directory| {
        ["initdb", "pg_ctl", "postgres"].iter().all(|program| directory.join(program).is_file())
    })
}

/// What to put before a command for it to run unprivileged; nothing if we are already.
fn user() -> Vec<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let exists = |user: &&str| {
        Command::new("id").arg(user).output().is_ok_and(|output| output.status.success())
    };
    let user = ["postgres", "nobody"].into_iter().find(exists).expect("an unprivileged user");
    vec!["runuser", "-u", user, "--"]
}

fn as_user(user: &[&str], program: &Path) -> Command {
    let mut command = match user {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    // Somewhere that the user may be.
    command.current_dir("/");
    command
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("a program that runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
