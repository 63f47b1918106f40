//! A fresh database for each test: a file, or a database of a server that is made for the tests.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use record::{Batch, Expected, Key};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use store::records::{DatabaseLocation, Records, RecordsOptions};

use testbed::Postgres;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// A database that is dropped with this.
pub(crate) struct Database {
    pub(crate) location: DatabaseLocation,
    _directory: Option<tempfile::TempDir>,
    _server: Option<Arc<Server>>,
}

impl Database {
    /// An empty database; `None` if there is no server to make it on.
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
                let server =
                    SHARED.get_or_init(|| Server::find_or_start().map(Arc::new)).clone()?;
                Some(Database::on(server).await)
            }
        }
    }

    /// An empty database on the test's own server, and that server; `None` if there can be none.
    pub(crate) async fn on_own_server() -> Option<(Database, Arc<Server>)> {
        let server = Arc::new(Server::Own(Postgres::start()?));
        Some((Database::on(server.clone()).await, server))
    }

    /// An empty database on `server`.
    async fn on(server: Arc<Server>) -> Database {
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

    /// Has the database execute `statement` without the store that has it open.
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
        poll_interval: Some(Duration::from_millis(200)),
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

/// What is wrong with the records.
pub(crate) async fn flaws(records: &Records) -> Vec<String> {
    records.verify(|_| ()).await.expect("read").1
}

/// A server of PostgreSQL; a test that damages it has its own.
pub(crate) enum Server {
    /// Someone else's: a URL, in which the database is replaced.
    Given(String),
    Own(Postgres),
}

impl Server {
    /// The server that all tests share, or nothing but a line that says why.
    fn find_or_start() -> Option<Server> {
        match std::env::var("LARDER_TEST_POSTGRES") {
            Ok(url) => Some(Server::Given(url)),
            Err(_) => Postgres::start().map(Server::Own),
        }
    }

    /// A server of the test's own.
    pub(crate) fn own(&self) -> &Postgres {
        match self {
            Server::Own(server) => server,
            Server::Given(_) => panic!("this server is not ours"),
        }
    }

    /// The URL of the database `name`.
    fn url(&self, name: &str) -> String {
        match self {
            Server::Own(server) => server.url_of(name),
            Server::Given(url) => {
                let (url, parameters) = url.split_once('?').unwrap_or((url, ""));
                let authority = url.find("://").map_or(0, |at| at + 3);
                let end = url[authority..].find('/').map_or(url.len(), |at| authority + at);
                format!("{}/{name}?{parameters}", &url[..end])
            }
        }
    }
}
