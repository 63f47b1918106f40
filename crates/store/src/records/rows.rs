//! Rows as both engines hand them out, turned into records.

use bytes::Bytes;
use record::{Digest, Key, KeyState, Record, Serial};
use sqlx::{ColumnIndex, Decode, Row, Type};

use super::error::ReadError;
use super::observed_store::ObservedStore;

/// All records after `$1`, by serial and then by key.
pub(super) const RECORDS_AFTER: &str = "\
    SELECT key, serial, body, blobs FROM larder_records WHERE serial > $1 ORDER BY serial, key";

/// The first `$3` of the records that come after the serial `$1` and the key `$2`.
pub(super) const PAGE_AFTER: &str = "\
    SELECT key, serial, body, blobs FROM larder_records WHERE (serial, key) > ($1, $2) \
    ORDER BY serial, key LIMIT $3";

/// The `$1` records of the highest serials.
pub(super) const LATEST: &str = "\
    SELECT key, serial, body, blobs FROM larder_records ORDER BY serial DESC, key DESC LIMIT $1";

/// The record under `$1`, in the columns of [`RECORDS_AFTER`].
pub(super) const RECORD: &str = "\
    SELECT key, serial, body, blobs FROM larder_records WHERE key = $1";

/// The serial of the latest commit, and whether there are rows.
pub(super) const STORE_STATE: &str = "\
    SELECT serial, EXISTS (SELECT 1 FROM larder_records) FROM larder_store WHERE id = 1";

/// The serial of the latest commit.
pub(super) const SERIAL: &str = "SELECT serial FROM larder_store WHERE id = 1";

/// The serial of the latest commit; that of the record under `$1`, null if there is none; whether the record under `$2` has
/// the body `$3`, or `$2` is empty; and whether the server only follows another one.
macro_rules! serials {
    ($is_standby:literal) => {
        concat!(
            "SELECT store.serial, records.serial, \
             ($2 = '' OR EXISTS (SELECT 1 FROM larder_records WHERE key = $2 AND body = $3)), ",
            $is_standby,
            " FROM larder_store AS store \
             LEFT JOIN larder_records AS records ON records.key = $1 WHERE store.id = 1"
        )
    };
}
/// On SQLite; and on PostgreSQL for a process that writes nothing, such as a backup, which may read a standby.
pub(super) const SERIALS: &str = serials!("FALSE");
/// On PostgreSQL.
pub(super) const SERIALS_OF_PRIMARY: &str = serials!("pg_is_in_recovery()");

/// The serial of the latest commit, and the highest of any record, null if there are none.
pub(super) const SERIAL_AND_HIGHEST: &str = "\
    SELECT serial, (SELECT max(serial) FROM larder_records) FROM larder_store WHERE id = 1";

/// The first record, in the columns of [`RECORDS_AFTER`].
pub(super) const FIRST_RECORD: &str = "\
    SELECT key, serial, body, blobs FROM larder_records ORDER BY serial, key LIMIT 1";

/// Reads a row of [`RECORDS_AFTER`] or [`RECORD`].
pub(super) fn record_of<'r, R>(row: &'r R) -> Result<Record, ReadError>
where
    R: Row,
    usize: ColumnIndex<R>,
    &'r str: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    &'r [u8]: Decode<'r, R::Database> + Type<R::Database>,
    Option<&'r [u8]>: Decode<'r, R::Database> + Type<R::Database>,
{
    let text: &str = row.try_get(0)?;
    let damaged = |flaw: String| ReadError::Damaged { key: text.escape_debug().to_string(), flaw };
    let key = Key::new(text).map_err(|error| damaged(error.to_string()))?;
    let serial = serial_of(row.try_get(1)?).map_err(damaged)?;
    let body: Option<&[u8]> = row.try_get(2)?;
    let blobs: &[u8] = row.try_get(3)?;
    let (blobs, rest) = blobs.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(damaged(format!("its last digest has {} bytes, not 32", rest.len())));
    }
    let blobs = blobs.iter().copied().map(Digest::from_bytes).collect();
    Ok(Record { key, serial, body: body.map(Bytes::copy_from_slice), blobs })
}

/// Reads the serial of the store from a row's first column.
pub(super) fn store_serial_of<'r, R>(row: &'r R) -> Result<Serial, ReadError>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
{
    let damaged = |flaw| ReadError::Damaged { key: String::new(), flaw };
    serial_of(row.try_get(0)?).map_err(damaged)
}

/// Reads the row of [`serials!`] and compares it with what was `seen`; returns the store's serial.
pub(super) fn checked_serial_of<'r, R>(
    row: &'r R,
    seen: &ObservedStore,
) -> Result<Serial, ReadError>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Option<i64>: Decode<'r, R::Database> + Type<R::Database>,
    bool: Decode<'r, R::Database> + Type<R::Database>,
{
    if row.try_get(3)? {
        return Err(ReadError::Standby);
    }
    let store = store_serial_of(row)?;
    let found: Option<i64> = row.try_get(1)?;
    let is_anchored = row.try_get(2)?;
    seen.check(store, found.map(|found| Serial(found.cast_unsigned())), is_anchored)?;
    Ok(store)
}

/// The store's serial, whether it has the record that names the store, and the state of a key; `None` if none of the keys
/// exists.
pub(super) type KeyRow<'r> = (Serial, bool, Option<(&'r str, KeyState)>);

/// Reads how a key is from a row: the store's serial, the key, its serial, whether it has a body, whether the store is
/// the right one.
pub(super) fn state_of<'r, R>(row: &'r R) -> Result<KeyRow<'r>, sqlx::Error>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    bool: Decode<'r, R::Database> + Type<R::Database>,
    Option<&'r str>: Decode<'r, R::Database> + Type<R::Database>,
{
    let store = Serial(row.try_get::<i64, _>(0)?.cast_unsigned());
    let is_anchored = row.try_get(4)?;
    let Some(key) = row.try_get::<Option<&str>, _>(1)? else {
        return Ok((store, is_anchored, None));
    };
    let serial = Serial(row.try_get::<i64, _>(2)?.cast_unsigned());
    Ok((store, is_anchored, Some((key, KeyState { serial, is_present: row.try_get(3)? }))))
}

fn serial_of(number: i64) -> Result<Serial, String> {
    match u64::try_from(number) {
        Ok(number) => Ok(Serial(number)),
        Err(_) => Err(format!("its serial is {number}, but 0 or more was expected")),
    }
}
