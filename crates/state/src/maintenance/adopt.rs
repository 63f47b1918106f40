//! [`adopt()`]: an administrator says that these records and these blobs belong together.
//!
//! The blobs get the name of the records, whatever name they had, and the serial of the records, even if a higher one was
//! noted. From then on blobs that these records do not name are swept, so it reports how many they are.

use std::time::Duration;

use anyhow::Context;
use config::Config;
use record::Serial;
use source::DataDirLock;
use store::{DatabaseLocation, Records, RecordsOptions, StoreIdentity};

use crate::identity::{self, Census};
use crate::named_blobs::NamedBlobs;

/// How long the database may take to notice that a process on a machine that runs has ended.
const ENDED_SEEN_AFTER: Duration = Duration::from_secs(1);

/// The outcome of an adoption: the new name of the blobs, and the old one.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The store that records and blobs are of.
    pub identity: StoreIdentity,
    /// The name that the blobs had before, valid or not; `None` if they had none.
    pub before: Option<String>,
    /// The serial that the records are at.
    pub serial: Serial,
    /// The serial that was noted before, if it was higher: commits in between are given up.
    pub serial_before: Option<Serial>,
    /// The numbers of blobs.
    pub census: Census,
}

/// Gives the blobs of `config` the name of its records, replacing any other. With `is_beside_others`, also while other
/// processes are connected to the records.
///
/// # Errors
/// There is no store, or a server is running on this data directory or on these records; files that cannot be read or written.
pub async fn adopt(config: &Config, is_beside_others: bool) -> anyhow::Result<Adoption> {
    let _lock = DataDirLock::acquire(&config.data_dir)?;
    let database = config.database();
    if !is_beside_others {
        // Before the records are opened: then this process is not among them.
        refuse_beside_others(&database).await?;
    }
    let store = super::open_existing(config).await?;
    let before = match store.blobs.identity().await {
        Ok(before) => before.map(|before| before.to_string()),
        Err(error) => Some(error.to_string()),
    };
    let census = Census::take(&NamedBlobs::read(&store.records).await?, &store.blobs).await?;
    store.records.close().await;
    let records = Records::open(&database, RecordsOptions::default()).await?;
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

/// Fails if processes are connected to the records, and names them.
async fn refuse_beside_others(database: &DatabaseLocation) -> anyhow::Result<()> {
    let options = RecordsOptions::default();
    let mut others = Records::processes(database, &options).await?;
    if !others.is_empty() {
        // The database may need a moment to notice that a process has ended.
        tokio::time::sleep(ENDED_SEEN_AFTER).await;
        others = Records::processes(database, &options).await?;
    }
    anyhow::ensure!(
        others.is_empty(),
        "{database} is in use by {}; nothing was changed. Processes that run go on with what they have read, so \
         stop them first. Or adopt all the same with `--while-others-run`, and restart them then",
        others.join(" and by ")
    );
    Ok(())
}
