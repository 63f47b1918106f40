//! [`adopt()`]: somebody says that these records and these blobs belong together.
//!
//! the name of the records -> the blobs, whatever name they had, and the serial of the records, however far they had come
//! before. What the records do not name is swept from then on, so that it is told how much that is.

use anyhow::Context;
use config::Config;
use record::Serial;
use source::DataDirLock;
use store::{Records, RecordsOptions, StoreIdentity};

use crate::identity::{self, Census};
use crate::named_blobs::Named;

/// Whose blobs they are now, and were.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The store that records and blobs are of.
    pub identity: StoreIdentity,
    /// What the blobs said before: the name of a store, nothing, or what is no name.
    pub before: Option<String>,
    /// The serial that the records are at.
    pub serial: Serial,
    /// The serial that they had come to before, if that is more: what was written in between is given up.
    pub serial_before: Option<Serial>,
    /// What is there.
    pub census: Census,
}

/// Gives the blobs of `config` the name of its records, in place of any other.
///
/// # Errors
/// No store there, or one that a server of this data directory runs on; what cannot be read or written.
pub async fn adopt(config: &Config) -> anyhow::Result<Adoption> {
    let _lock = DataDirLock::acquire(&config.data_dir)?;
    let store = super::open_existing(config).await?;
    let before = match store.blobs.identity().await {
        Ok(before) => before.map(|before| before.to_string()),
        Err(error) => Some(error.to_string()),
    };
    let census = Census::take(&Named::read(&store.records).await?, &store.blobs).await?;
    store.records.close().await;
    let records = Records::open(&config.database(), RecordsOptions::default()).await?;
    let made = async { anyhow::Ok((identity::make(&records).await?, records.serial().await?)) };
    let made = made.await;
    records.close().await;
    let (identity, serial) = made?;
    let adopted = store.blobs.adopt(&identity, true).await;
    adopted.with_context(|| format!("cannot name the blobs in `{}`", config.blobs()))?;
    let serial_before = store.blobs.highest_serial(&identity).await?;
    let serial_before = serial_before.filter(|before| *before > serial);
    store.blobs.reset_serial(&identity, serial).await?;
    Ok(Adoption { identity, before, serial, serial_before, census })
}
