//! How often releases were downloaded, a row for each release and day, beside the records.
//!
//! counts of a process -> [`Downloads::add`] -> the sums of all processes -> [`Downloads::of_project`].
//!
//! They are no records: they have no serial, wake nobody, and are in no backup. With PostgreSQL they are a table beside those of the
//! records, so that processes add to the same sums. With SQLite they are a file of their own beside that of the records: whatever
//! happens to it, no record is touched. Table and file are made when they are first needed.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use sqlx::sqlite::{SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{
    ColumnIndex, Database, Decode, Encode, Executor, IntoArguments, Pool, Postgres, Row as _,
    Sqlite, SqlitePool, Type,
};
use tokio::time::Instant;

use super::error::{Cause, is_damage};
use super::pools::NumberedPool;
use super::reader::within;
use super::{Engine, Records, postgres, sqlite};

/// Added to the name of the records' file for the file of the counts.
const FILE: &str = ".downloads";

/// Rows that are written by one statement.
const ROWS_AT_ONCE: usize = 1_000;

/// How long it may take to forget something, or to look through all projects.
const UPKEEP_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a release was downloaded on a day.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DownloadCount {
    /// The index, `user/index`.
    pub stage: String,
    /// The project.
    pub project: String,
    /// The version.
    pub version: String,
    /// The day, in UTC, counted from 1970-01-01.
    pub day: i64,
    /// How often.
    pub count: u64,
}

/// The downloads of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectDownloads {
    /// Of all its releases together, by day; a day without any is left out.
    pub days: Vec<(i64, u64)>,
    /// Of the releases that were downloaded most.
    pub versions: Vec<VersionDownloads>,
    /// How many releases were downloaded, those that are left out included.
    pub version_count: u64,
}

/// The downloads of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionDownloads {
    /// The version.
    pub version: String,
    /// By day; a day without any is left out.
    pub days: Vec<(i64, u64)>,
}

/// The counts cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownloadsError {
    /// The database does not answer, or refuses. Nothing was written.
    #[error("the database of the downloads is not available: {0}")]
    Unavailable(Cause),
    /// A commit was not answered: it may be written.
    #[error("the database of the downloads did not answer a commit: {0}")]
    OutcomeUnknown(Cause),
    /// The file is no database, or is damaged: see [`Downloads::let_go`].
    #[error("the file of the downloads is damaged: {0}")]
    Damaged(Cause),
}

impl From<sqlx::Error> for DownloadsError {
    fn from(error: sqlx::Error) -> DownloadsError {
        match is_damage(&error) {
            true => DownloadsError::Damaged(Cause::new(error)),
            false => DownloadsError::Unavailable(Cause::new(error)),
        }
    }
}

/// The counts of a store.
pub struct Downloads {
    kept: CountsPlace,
    timeout: Duration,
}

enum CountsPlace {
    File(File),
    Table(Records),
}

/// A file of SQLite.
struct File {
    path: PathBuf,
    open: Mutex<Option<SqlitePool>>,
}

/// What is asked of the table, on a pool of either database.
struct Table<DB: Database>(Pool<DB>);

impl Downloads {
    /// Those beside these records. Nothing is opened or made yet.
    pub fn beside(records: &Records) -> Downloads {
        let kept = match &records.shared.engine {
            Engine::Sqlite { path, .. } => {
                let path = Downloads::file_beside(path);
                CountsPlace::File(File { path, open: Mutex::default() })
            }
            Engine::Postgres { .. } => CountsPlace::Table(records.clone()),
        };
        Downloads { kept, timeout: records.shared.options.database_timeout }
    }

    /// The file of the counts beside this file of records.
    pub fn file_beside(records: &Path) -> PathBuf {
        let mut path = records.as_os_str().to_owned();
        path.push(FILE);
        path.into()
    }

    /// The file of the counts, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match &self.kept {
            CountsPlace::File(file) => Some(&file.path),
            CountsPlace::Table(_) => None,
        }
    }

    /// Adds to the sums. A release and a day occur only once in `counts`.
    ///
    /// # Errors
    /// [`DownloadsError`]
    pub async fn add(&self, mut counts: Vec<DownloadCount>) -> Result<(), DownloadsError> {
        // All processes lock rows in the same order, so none waits for another in a circle.
        counts.sort_unstable();
        let deadline = Instant::now() + self.timeout * 2;
        match &self.kept {
            CountsPlace::File(file) => {
                Table(file.opened(self.timeout).await?).add(&counts, ADD_SQLITE, deadline).await
            }
            CountsPlace::Table(records) => {
                let pool = reader(records)?.pool();
                within(deadline, make_table(&pool)).await?;
                Table(pool).add(&counts, ADD_POSTGRES, deadline).await
            }
        }
    }

    /// The downloads of a project since that day: of at most so many releases.
    ///
    /// # Errors
    /// [`DownloadsError`]
    pub async fn of_project(
        &self,
        stage: &str,
        project: &str,
        since: i64,
        versions_max: i64,
    ) -> Result<ProjectDownloads, DownloadsError> {
        match &self.kept {
            CountsPlace::File(file) => {
                let Some(table) = file.table(self.timeout).await? else {
                    return Ok(ProjectDownloads::default());
                };
                let read = table.of_project(stage, project, since, versions_max);
                Ok(within(Instant::now() + self.timeout, read).await?)
            }
            CountsPlace::Table(records) => {
                let read = |NumberedPool { pool, .. }: NumberedPool<Postgres>| async move {
                    match has_table(&pool).await? {
                        true => Table(pool).of_project(stage, project, since, versions_max).await,
                        false => Ok(ProjectDownloads::default()),
                    }
                };
                Ok(reader(records)?.ask(read).await?)
            }
        }
    }

    /// The stages and projects with counts after this one, in order.
    ///
    /// # Errors
    /// [`DownloadsError`]
    pub async fn projects_after(
        &self,
        stage: &str,
        project: &str,
        most: i64,
    ) -> Result<Vec<(String, String)>, DownloadsError> {
        let deadline = Instant::now() + UPKEEP_TIMEOUT;
        let found = match &self.kept {
            CountsPlace::File(file) => match file.table(self.timeout).await? {
                Some(table) => within(deadline, table.projects_after(stage, project, most)).await?,
                None => Vec::new(),
            },
            CountsPlace::Table(records) => match table(records).await? {
                Some(table) => within(deadline, table.projects_after(stage, project, most)).await?,
                None => Vec::new(),
            },
        };
        Ok(found)
    }

    /// Forgets everything about a project; without one, about a stage.
    ///
    /// # Errors
    /// [`DownloadsError`]
    pub async fn forget(&self, stage: &str, project: Option<&str>) -> Result<(), DownloadsError> {
        let deadline = Instant::now() + UPKEEP_TIMEOUT;
        match &self.kept {
            CountsPlace::File(file) => {
                if let Some(table) = file.table(self.timeout).await? {
                    within(deadline, table.forget(stage, project)).await?;
                }
            }
            CountsPlace::Table(records) => {
                if let Some(table) = table(records).await? {
                    within(deadline, table.forget(stage, project)).await?;
                }
            }
        }
        Ok(())
    }

    /// Forgets everything before this day.
    ///
    /// # Errors
    /// [`DownloadsError`]
    pub async fn forget_before(&self, day: i64) -> Result<(), DownloadsError> {
        let deadline = Instant::now() + UPKEEP_TIMEOUT;
        match &self.kept {
            CountsPlace::File(file) => {
                if let Some(table) = file.table(self.timeout).await? {
                    within(deadline, table.forget_before(day)).await?;
                }
            }
            CountsPlace::Table(records) => {
                if let Some(table) = table(records).await? {
                    within(deadline, table.forget_before(day)).await?;
                }
            }
        }
        Ok(())
    }

    /// Closes the file of the counts, so that it may be moved away; whatever is asked next opens it again.
    pub async fn let_go(&self) {
        let CountsPlace::File(File { open, .. }) = &self.kept else { return };
        let pool = open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pool) = pool {
            pool.close().await;
        }
    }
}

impl File {
    /// The table in the file; `None` if nothing was ever added.
    async fn table(&self, timeout: Duration) -> Result<Option<Table<Sqlite>>, DownloadsError> {
        Ok(match self.path.exists() {
            true => Some(Table(self.opened(timeout).await?)),
            false => None,
        })
    }

    /// The one connection to the file. Makes what is missing.
    async fn opened(&self, timeout: Duration) -> Result<SqlitePool, DownloadsError> {
        let File { path, open } = self;
        if let Some(pool) = &*open.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(pool.clone());
        }
        sqlite::create_closed(path).await;
        let options = sqlite::options(path, timeout)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(options)
            .await?;
        if let Err(error) = sqlx::raw_sql(MAKE_SQLITE).execute(&pool).await {
            pool.close().await;
            return Err(error.into());
        }
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(open.get_or_insert(pool).clone())
    }
}

fn reader(records: &Records) -> Result<&postgres::Reader, DownloadsError> {
    match &records.shared.engine {
        Engine::Postgres { reader, .. } => Ok(reader),
        Engine::Sqlite { .. } => Err(DownloadsError::Unavailable(Cause::new("it is a file"))),
    }
}

/// The table, if it is there.
async fn table(records: &Records) -> Result<Option<Table<Postgres>>, DownloadsError> {
    let reader = reader(records)?;
    let looking = |NumberedPool { pool, .. }: NumberedPool<Postgres>| async move {
        Ok(has_table(&pool).await?.then_some(Table(pool)))
    };
    Ok(reader.ask(looking).await?)
}

async fn has_table(pool: &Pool<Postgres>) -> Result<bool, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    postgres::has_table(&mut connection, "larder_downloads").await
}

async fn make_table(pool: &Pool<Postgres>) -> Result<(), sqlx::Error> {
    if has_table(pool).await? {
        return Ok(());
    }
    let mut transaction = pool.begin().await?;
    postgres::lock_layout(&mut transaction).await?;
    sqlx::raw_sql(MAKE_POSTGRES).execute(&mut *transaction).await?;
    transaction.commit().await
}

const MAKE_SQLITE: &str = "\
    CREATE TABLE IF NOT EXISTS larder_downloads ( \
        stage TEXT NOT NULL, project TEXT NOT NULL, version TEXT NOT NULL, \
        day INTEGER NOT NULL, downloads INTEGER NOT NULL, \
        PRIMARY KEY (stage, project, version, day) \
    ) STRICT, WITHOUT ROWID";

const MAKE_POSTGRES: &str = "\
    CREATE TABLE IF NOT EXISTS larder_downloads ( \
        stage text COLLATE \"C\" NOT NULL, project text COLLATE \"C\" NOT NULL, \
        version text COLLATE \"C\" NOT NULL, day bigint NOT NULL, downloads bigint NOT NULL, \
        PRIMARY KEY (stage, project, version, day) \
    )";

const ADD_SQLITE: &str = "\
    INSERT INTO larder_downloads (stage, project, version, day, downloads) \
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each($1) WHERE true \
    ON CONFLICT (stage, project, version, day) DO UPDATE SET \
    downloads = larder_downloads.downloads + excluded.downloads";

const ADD_POSTGRES: &str = "\
    INSERT INTO larder_downloads (stage, project, version, day, downloads) \
    SELECT value ->> 0, value ->> 1, value ->> 2, (value ->> 3)::bigint, (value ->> 4)::bigint \
    FROM json_array_elements($1::json) \
    ON CONFLICT (stage, project, version, day) DO UPDATE SET \
    downloads = larder_downloads.downloads + excluded.downloads";

const DAYS: &str = "\
    SELECT day, CAST(SUM(downloads) AS BIGINT) FROM larder_downloads \
    WHERE stage = $1 AND project = $2 AND day >= $3 GROUP BY day ORDER BY day";

const VERSION_COUNT: &str = "\
    SELECT COUNT(DISTINCT version) FROM larder_downloads \
    WHERE stage = $1 AND project = $2 AND day >= $3";

const VERSIONS: &str = "\
    SELECT rows.version, rows.day, rows.downloads FROM larder_downloads AS rows JOIN ( \
        SELECT version, SUM(downloads) AS total FROM larder_downloads \
        WHERE stage = $1 AND project = $2 AND day >= $3 \
        GROUP BY version ORDER BY SUM(downloads) DESC, version LIMIT $4 \
    ) AS most ON rows.version = most.version \
    WHERE rows.stage = $1 AND rows.project = $2 AND rows.day >= $3 \
    ORDER BY most.total DESC, rows.version, rows.day";

const PROJECTS_AFTER: &str = "\
    SELECT DISTINCT stage, project FROM larder_downloads WHERE (stage, project) > ($1, $2) \
    ORDER BY stage, project LIMIT $3";

impl<DB> Table<DB>
where
    DB: Database,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB>,
    usize: ColumnIndex<DB::Row>,
    i64: for<'r> Decode<'r, DB> + for<'q> Encode<'q, DB> + Type<DB>,
    String: for<'r> Decode<'r, DB> + for<'q> Encode<'q, DB> + Type<DB>,
    for<'q> &'q str: Decode<'q, DB> + Encode<'q, DB> + Type<DB>,
{
    async fn add(
        &self,
        counts: &[DownloadCount],
        add: &'static str,
        deadline: Instant,
    ) -> Result<(), DownloadsError> {
        let mut transaction = within(deadline, self.0.begin()).await?;
        for counts in counts.chunks(ROWS_AT_ONCE) {
            let row =
                |it: &DownloadCount| json!([it.stage, it.project, it.version, it.day, it.count]);
            let rows: Vec<_> = counts.iter().map(row).collect();
            let rows = serde_json::Value::from(rows).to_string();
            within(deadline, sqlx::query(add).bind(rows).execute(&mut *transaction)).await?;
        }
        let committed = within(deadline, transaction.commit()).await;
        committed.map_err(|error| DownloadsError::OutcomeUnknown(Cause::new(error)))
    }

    async fn of_project(
        &self,
        stage: &str,
        project: &str,
        since: i64,
        versions_max: i64,
    ) -> Result<ProjectDownloads, sqlx::Error> {
        let mut connection = self.0.acquire().await?;
        let connection = &mut *connection;
        let asked = |statement| sqlx::query(statement).bind(stage).bind(project).bind(since);
        let count = |row: &DB::Row, at: usize| -> Result<u64, sqlx::Error> {
            Ok(row.try_get::<i64, _>(at)?.cast_unsigned())
        };
        let mut found = ProjectDownloads::default();
        for row in asked(DAYS).fetch_all(&mut *connection).await? {
            found.days.push((row.try_get(0)?, count(&row, 1)?));
        }
        if found.days.is_empty() {
            return Ok(found);
        }
        let row = asked(VERSION_COUNT).fetch_one(&mut *connection).await?;
        found.version_count = count(&row, 0)?;
        for row in asked(VERSIONS).bind(versions_max).fetch_all(&mut *connection).await? {
            let version: String = row.try_get(0)?;
            let day = (row.try_get(1)?, count(&row, 2)?);
            match found.versions.last_mut().filter(|last| last.version == version) {
                Some(last) => last.days.push(day),
                None => found.versions.push(VersionDownloads { version, days: vec![day] }),
            }
        }
        Ok(found)
    }

    async fn projects_after(
        &self,
        stage: &str,
        project: &str,
        most: i64,
    ) -> Result<Vec<(String, String)>, sqlx::Error> {
        let mut connection = self.0.acquire().await?;
        let asked = sqlx::query(PROJECTS_AFTER).bind(stage).bind(project).bind(most);
        let rows = asked.fetch_all(&mut *connection).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    async fn forget(&self, stage: &str, project: Option<&str>) -> Result<(), sqlx::Error> {
        let mut connection = self.0.acquire().await?;
        let forgetting = match project {
            None => sqlx::query("DELETE FROM larder_downloads WHERE stage = $1").bind(stage),
            Some(project) => {
                let of_project = "DELETE FROM larder_downloads WHERE stage = $1 AND project = $2";
                sqlx::query(of_project).bind(stage).bind(project)
            }
        };
        forgetting.execute(&mut *connection).await?;
        Ok(())
    }

    async fn forget_before(&self, day: i64) -> Result<(), sqlx::Error> {
        let mut connection = self.0.acquire().await?;
        let forgetting = sqlx::query("DELETE FROM larder_downloads WHERE day < $1").bind(day);
        forgetting.execute(&mut *connection).await?;
        Ok(())
    }
}
