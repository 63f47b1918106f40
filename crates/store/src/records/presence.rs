//! Which processes have the records of a PostgreSQL open: each shows itself by a lock of the session on which it listens.
//!
//! The lock is shared and nobody takes it alone, so it holds up nothing. The database drops it with the session, so a process that
//! has ended is not shown, however it ended; one that has lost its connection shows itself again with the next.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::Instant;

use super::reader::within;

/// The lock is about the table of the store, under a number of our own: `lard` in ASCII. The server ends the session of a machine
/// that is gone after some seconds.
const SHOW: &str = "SELECT set_config('application_name', $1, false), \
     set_config('tcp_keepalives_idle', '5', false), \
     set_config('tcp_keepalives_interval', '2', false), \
     set_config('tcp_keepalives_count', '3', false), \
     set_config('tcp_user_timeout', '10s', false), \
     pg_advisory_lock_shared(1818325604, to_regclass('larder_store')::oid::int4)";

/// A role that may not see the sessions of another one still sees their locks.
const LIST: &str = "\
    SELECT concat_ws(', ', COALESCE(NULLIF(activity.application_name, ''), 'a process'), \
    'at ' || host(activity.client_addr), 'session ' || locks.pid) \
    FROM pg_locks AS locks LEFT JOIN pg_stat_activity AS activity ON activity.pid = locks.pid \
    WHERE locks.locktype = 'advisory' AND locks.granted AND locks.objsubid = 2 \
    AND locks.classid = 1818325604 AND locks.objid = to_regclass('larder_store')::oid \
    AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
    ORDER BY 1";

/// Shows this process until the session of `listener` ends.
pub(super) async fn show(
    listener: &mut PgListener,
    options: &PgConnectOptions,
) -> Result<(), sqlx::Error> {
    let program = options.get_application_name().unwrap_or("larder");
    let process = std::process::id();
    // Elsewhere than on Linux, the address of the session says which machine it is.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = match host.trim() {
        "" => format!("{program}, process {process}"),
        host => format!("{program}, process {process} on {host}"),
    };
    sqlx::query(SHOW).bind(name).execute(listener).await?;
    Ok(())
}

/// The processes that show themselves, with the number of their session at the database.
pub(super) async fn list(
    options: &PgConnectOptions,
    timeout: Duration,
) -> Result<Vec<String>, sqlx::Error> {
    let look = async {
        let mut connection = options.connect().await?;
        let processes = sqlx::query_scalar(LIST).fetch_all(&mut connection).await?;
        connection.close().await?;
        Ok(processes)
    };
    within(Instant::now() + timeout, look).await
}
