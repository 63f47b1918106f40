//! [`Transaction`]: one state of all tables, asked for in as few packets as possible.
//!
//! Each question wakes this process, which costs more than what most answers say. So statements that do not depend on each other are sent
//! together, and are one statement where their rows have the same form. Those that begin a transaction go with the first ones that it
//! asks, and the COMMIT with the last ones.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};

use super::gate::GateLook;
use super::questions::each;

const BEGIN: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

/// What was seen when a transaction began.
#[derive(Debug)]
pub(super) struct TransactionStart {
    /// The database's clock, in Unix seconds.
    pub(super) now: i64,
    /// The state of new packages.
    pub(super) pushed: String,
    /// What the gate looks at, just before: a commit that is counted in it is seen by the transaction.
    pub(super) looked: GateLook,
}

/// A transaction that only reads. If it is dropped before its end, so has to be its connection.
pub(super) struct Transaction<'c> {
    connection: &'c mut MySqlConnection,
    /// How long the next row may take.
    stall: Duration,
    /// The expression that reads the state of new packages.
    pushed: String,
    begun: Option<TransactionStart>,
}

impl<'c> Transaction<'c> {
    /// A transaction that begins with the first statements that it asks.
    pub(super) fn new(
        connection: &'c mut MySqlConnection,
        stall: Duration,
        pushed: String,
    ) -> Transaction<'c> {
        Transaction { connection, stall, pushed, begun: None }
    }

    /// Begins it now, unless it has begun; returns what was seen then.
    pub(super) async fn begin(&mut self) -> Result<&TransactionStart, sqlx::Error> {
        if self.begun.is_none() {
            self.ask(&[], |_, _| Ok(())).await?;
        }
        self.begun.as_ref().ok_or(sqlx::Error::RowNotFound)
    }

    /// Sends statements together, and hands their rows to `take`, one after another, each with the place of its statement.
    pub(super) async fn ask(
        &mut self,
        statements: &[String],
        mut take: impl FnMut(usize, &MySqlRow) -> Result<(), sqlx::Error>,
    ) -> Result<(), sqlx::Error> {
        if self.begun.is_some() {
            return each(self.connection, statements, self.stall, take).await;
        }
        let first = [
            GateLook::statement(),
            BEGIN.to_owned(),
            format!("SELECT CAST(UNIX_TIMESTAMP() AS SIGNED), {}", self.pushed),
        ];
        let places = first.len();
        let all: Vec<String> = first.into_iter().chain(statements.iter().cloned()).collect();
        let mut begun =
            TransactionStart { now: 0, pushed: String::new(), looked: GateLook::default() };
        each(self.connection, &all, self.stall, |at, row| {
            match at {
                0 => begun.looked = GateLook::of(row)?,
                1 => {}
                2 => (begun.now, begun.pushed) = (row.try_get(0)?, row.try_get(1)?),
                _ => take(at - places, row)?,
            }
            Ok(())
        })
        .await?;
        self.begun = Some(begun);
        Ok(())
    }

    /// [`Transaction::ask`], and the end of the transaction.
    pub(super) async fn end(
        self,
        statements: &[String],
        take: impl FnMut(usize, &MySqlRow) -> Result<(), sqlx::Error>,
    ) -> Result<(), sqlx::Error> {
        let last = "COMMIT".to_owned();
        let all: Vec<String> = statements.iter().cloned().chain([last]).collect();
        each(self.connection, &all, self.stall, take).await
    }
}
