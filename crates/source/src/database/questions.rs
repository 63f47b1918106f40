//! Questions to the server.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Either, MySqlConnection};
use tokio::time::timeout;

/// Sends statements together, and hands their rows to `take`, one after another, each with the place of its statement. They are made of
/// constants and numbers.
pub(super) async fn each(
    connection: &mut MySqlConnection,
    statements: &[String],
    stall: Duration,
    mut take: impl FnMut(usize, &MySqlRow) -> Result<(), sqlx::Error>,
) -> Result<(), sqlx::Error> {
    if statements.is_empty() {
        return Ok(());
    }
    let mut results = sqlx::raw_sql(AssertSqlSafe(statements.join("; "))).fetch_many(connection);
    let mut at = 0;
    loop {
        let next = timeout(stall, results.try_next()).await.map_err(|_| {
            let query = statements.get(at).map_or("", String::as_str);
            sqlx::Error::Protocol(format!("the next row took longer than {stall:?} in: {query}"))
        })?;
        match next? {
            Some(Either::Right(row)) => take(at, &row)?,
            // The end of a statement's rows.
            Some(Either::Left(_)) => at += 1,
            None => return Ok(()),
        }
    }
}

/// The one row that a statement yields; it is made of constants and numbers.
pub(super) async fn one(
    connection: &mut MySqlConnection,
    statement: String,
) -> Result<MySqlRow, sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(connection).await
}
