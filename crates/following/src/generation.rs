//! How often a follower of a store was made its primary: a number in its records.
//!
//! Two stores of one name and different generations have met: the one with the lower number was left behind.

use anyhow::Context as _;
use jiff::Timestamp;
use record::{Batch, Expected, Key, Record};
use serde::{Deserialize, Serialize};
use store::Records;

/// The key of the record.
pub const KEY: &str = "store/generation";

const FORM: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Body {
    v: u32,
    number: u64,
    promoted_at: Timestamp,
}

/// The number in these records; 0 if no follower was ever made the primary.
///
/// # Errors
/// Those of reading, and a damaged record.
pub async fn of(records: &Records) -> anyhow::Result<u64> {
    number(records.record(&Key::new(KEY)?).await?.as_ref())
}

fn number(record: Option<&Record>) -> anyhow::Result<u64> {
    let Some(body) = record.and_then(|record| record.body.as_ref()) else { return Ok(0) };
    let body: Body = record::read_body(body, FORM)
        .with_context(|| format!("the record `{KEY}` cannot be read"))?;
    Ok(body.number)
}

/// The batch that raises the number; the new number.
///
/// # Errors
/// As [`of`].
pub async fn raise(records: &Records) -> anyhow::Result<(Batch, u64)> {
    let key = Key::new(KEY)?;
    let found = records.record(&key).await?;
    let number = number(found.as_ref())? + 1;
    let expected = Expected::At(found.map_or(record::Serial::ZERO, |record| record.serial));
    let body = record::write_body(&Body { v: FORM, number, promoted_at: Timestamp::now() });
    Ok((Batch::new().put(key, expected, body, Vec::new()), number))
}
