//! [`migrate()`]: an earlier layout of the records brought forward, without serving.

use anyhow::{Context, bail};
use config::Config;
use store::{DatabaseLocation, OpenError, Records, RecordsOptions};

/// The layout of the database, compared with what this program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The one that this program writes.
    Current,
    /// An earlier one.
    Earlier {
        /// Their layout.
        found: u64,
        /// The layout of this program.
        known: u64,
    },
}

/// Finds the layout of records and blobs; changes nothing.
///
/// # Errors
/// There is no store, it cannot be opened, or its layout is later than this program knows.
pub async fn layout(config: &Config) -> anyhow::Result<Layout> {
    let location = config.database();
    if let DatabaseLocation::Sqlite(path) = &location
        && !path.try_exists().with_context(|| format!("cannot look for `{}`", path.display()))?
    {
        bail!("there is no store: `{location}` does not exist");
    }
    let layout = match Records::open_read_only(&location, RecordsOptions::default()).await {
        Ok(records) => {
            records.close().await;
            Layout::Current
        }
        Err(OpenError::OlderLayout { found: 0, .. }) => bail!("there are no records in {location}"),
        Err(OpenError::OlderLayout { found, known, .. }) => Layout::Earlier { found, known },
        Err(error) => return Err(error.into()),
    };
    // Blobs have had only one layout so far, which opening them checks.
    super::existing_blobs(&config.blobs(), &config.data_dir.join("spool")).await?;
    Ok(layout)
}

/// Migrates an earlier layout; returns the layout before.
///
/// # Errors
/// As [`layout`]; the records have not changed then.
pub async fn migrate(config: &Config) -> anyhow::Result<Layout> {
    let before = layout(config).await?;
    if before != Layout::Current {
        Records::open(&config.database(), RecordsOptions::default()).await?.close().await;
    }
    Ok(before)
}
