//! Makes sure that records and blobs belong together: both have one name, which is compared before anything is written or
//! swept.
//!
//! the names of the records and the blobs, and, if one of them has none, a [`Census`] -> [`settle`] -> the same name in both,
//! or a refusal that says what was found and what to do. A store with an unknown name is never written to, and never swept.

use anyhow::{Context, bail};
use futures_util::TryStreamExt as _;
use record::{Batch, Expected, Key, Serial};
use store::blobs::FailureKind;
use store::{
    BlobError, BlobLocation, BlobStore, CommitError, DatabaseLocation, Records, RecordsOptions,
    Store, StoreIdentity,
};

use crate::named_blobs::NamedBlobs;
use crate::secrets;
use crate::stored::IDENTITY_KEY;
use crate::text::counted;

/// The advice if the records and the blobs are not known to belong together.
const ADVICE: &str = "Is `database` or `data_dir` mistyped, or is a volume not mounted? If so, mend that and start again. \
     If the records are lost, bring them back from a backup. If these records and these blobs do belong together, \
     `larder adopt` says so, once; whatever these records do not name is then swept after a while";

/// Numbers of blobs, by what the records say of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Blobs that records name and that are there.
    pub present: u64,
    /// Blobs that records name and that are not there.
    pub missing: u64,
    /// Blobs that no record names.
    pub unnamed: u64,
    /// Whether there are records, deleted ones included, of a kind that names blobs.
    pub has_history: bool,
}

/// What follows from a census of blobs without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CensusVerdict {
    /// Give them the name of the records.
    Adopt,
    /// Serve them, but do not sweep until an administrator says whose they are.
    Serve,
    /// Do not touch them.
    Refuse,
}

impl Census {
    /// Counts the blobs; `named` are those that the records name.
    ///
    /// # Errors
    /// Those of listing.
    pub async fn take(named: &NamedBlobs, blobs: &BlobStore) -> Result<Census, BlobError> {
        let mut census = Census { has_history: named.has_history, ..Census::default() };
        let mut listing = blobs.list();
        while let Some(entry) = listing.try_next().await? {
            match named.contains(&entry.digest) {
                true => census.present += 1,
                false => census.unnamed += 1,
            }
        }
        census.missing = named.count().saturating_sub(census.present);
        Ok(census)
    }

    /// Whether the blobs, which have no name, belong to the records. Data directories of earlier versions have no name, and
    /// must go on working; blobs that may be another store's must stay.
    fn verdict(self) -> CensusVerdict {
        let Census { present, missing, unnamed, has_history } = self;
        match (present, missing, unnamed) {
            // Nothing is there that could be anybody else's.
            (0, 0, 0) => CensusVerdict::Adopt,
            // Mostly blobs that the records name; the others are left over from deletions.
            (1.., ..) if missing <= present && unnamed <= present => CensusVerdict::Adopt,
            (1.., ..) => CensusVerdict::Serve,
            // Everything was deleted, and not swept yet; or these are another store's blobs.
            (0, 0, _) if has_history => CensusVerdict::Serve,
            _ => CensusVerdict::Refuse,
        }
    }
}

impl std::fmt::Display for Census {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = counted(self.present + self.missing, "blob");
        write!(formatter, "the records name {named}, of which {} are there; ", self.present)?;
        write!(formatter, "{} there are named by no record", self.unnamed)
    }
}

/// The identity in the records; `None` in a new store.
///
/// # Errors
/// Those of reading, and a record with an invalid name.
pub(crate) async fn of_records(records: &Records) -> anyhow::Result<Option<StoreIdentity>> {
    let record = records.record(&Key::new(IDENTITY_KEY)?).await?;
    let Some(body) = record.and_then(|record| record.body) else { return Ok(None) };
    let text = String::from_utf8_lossy(&body);
    let identity =
        text.parse().with_context(|| format!("the record `{IDENTITY_KEY}` is damaged"))?;
    Ok(Some(identity))
}

/// [`of_records`]; makes an identity if the records have none.
///
/// # Errors
/// Those of reading and writing, and of the system's random numbers.
pub async fn make(records: &Records) -> anyhow::Result<StoreIdentity> {
    if let Some(identity) = of_records(records).await? {
        return Ok(identity);
    }
    let random: [u8; 16] = secrets::random()?;
    let key = Key::new(IDENTITY_KEY)?;
    let batch = Batch::new().put(key, Expected::Absent, hex::encode(random), Vec::new());
    match records.commit(batch).await {
        // Another process may have been first: then its identity counts.
        Ok(_) | Err(CommitError::Mismatch(_)) => {}
        Err(error) => return Err(error.into()),
    }
    of_records(records).await?.context("the store's identity was written, but cannot be read back")
}

/// Refuses to make a new database beside blobs that belong to a store.
///
/// # Errors
/// If `blobs` have a name, or there are any.
pub(crate) async fn check_beside_new_records(
    database: &DatabaseLocation,
    options: &RecordsOptions,
    blobs: &BlobStore,
    location: &BlobLocation,
) -> anyhow::Result<()> {
    // The blobs first: another process that makes a store at this moment makes its records before it names its blobs.
    let identity = blobs.identity().await.with_context(|| undecided(location))?;
    let trouble = match identity {
        Some(found) => format!("the blobs in `{location}` belong to the store {found}"),
        None if blobs.list().try_next().await?.is_some() => {
            format!("there are blobs in `{location}`")
        }
        None => return Ok(()),
    };
    // If the database cannot be asked, it does not count as new; opening it reports the error.
    if Records::is_new(database, options).await.unwrap_or(false) {
        bail!(
            "there are no records in {database}, but {trouble}; nothing was made or changed. {ADVICE}"
        );
    }
    Ok(())
}

/// The message about blobs whose name cannot be read.
fn undecided(location: &BlobLocation) -> String {
    format!(
        "the name of the store that the blobs in `{location}` belong to cannot be read. {ADVICE}"
    )
}

/// Refuses to make a place for blobs where the records say that there must be one.
///
/// # Errors
/// If `records` name blobs.
pub(crate) async fn check_without_blobs(
    records: &Records,
    database: &DatabaseLocation,
    location: &BlobLocation,
) -> anyhow::Result<()> {
    if records.serial().await? == Serial::ZERO {
        return Ok(());
    }
    let named = NamedBlobs::read(records).await?.count();
    if named > 0 {
        bail!(
            "the records in {database} name {}, but there are no blobs in `{location}`; nothing was made there. \
             {ADVICE}",
            counted(named, "blob")
        );
    }
    Ok(())
}

/// What records and blobs are to each other, if they may be served together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreMatch {
    /// Both have this name.
    Named(StoreIdentity),
    /// The blobs have none, and get that of the records.
    Nameless,
    /// The blobs have none and may be another store's: they are served, and never swept.
    Doubtful(Census),
}

/// Whether records and blobs belong together; changes nothing.
///
/// # Errors
/// Records and blobs that do not belong together, or are not known to.
pub async fn standing(
    store: &Store,
    database: &DatabaseLocation,
    location: &BlobLocation,
) -> anyhow::Result<StoreMatch> {
    let Store { records, blobs } = store;
    let mut known = of_records(records).await?;
    let found = blobs.identity().await.with_context(|| undecided(location))?;
    if known.is_none() && found.is_some() {
        // Another process may have made both since.
        known = of_records(records).await?;
    }
    match (known, found) {
        (Some(known), Some(found)) if known == found => {
            if let Some(LostCommits { found, noted }) = older(store, &known).await? {
                bail!(
                    "the records in {database} are an older copy: they are at serial {found}, but the blobs in \
                     `{location}` know that they were at serial {noted}. Writes that were acknowledged are not in \
                     them; nothing was changed. If there are newer records, bring them back and start again. To go \
                     on with these, and to give up what came later, say so once with `larder adopt`; \
                     `larder restore` does not ask for it"
                );
            }
            Ok(StoreMatch::Named(known))
        }
        (Some(known), Some(found)) => bail!(
            "the records in {database} are those of the store {known}, but the blobs in `{location}` belong to the \
             store {found}; nothing was changed. {ADVICE}"
        ),
        (None, Some(found)) => bail!(
            "the records in {database} are new, or of no store, but the blobs in `{location}` belong to the store \
             {found}; nothing was changed. {ADVICE}"
        ),
        (_, None) => {
            let census = Census::take(&NamedBlobs::read(records).await?, blobs).await?;
            match census.verdict() {
                CensusVerdict::Adopt => Ok(StoreMatch::Nameless),
                CensusVerdict::Serve => Ok(StoreMatch::Doubtful(census)),
                CensusVerdict::Refuse => bail!(
                    "the blobs in `{location}` do not say whose they are, and they are not those of the records in \
                     {database}: {census}; nothing was changed. {ADVICE}"
                ),
            }
        }
    }
}

/// Makes sure that records and blobs belong together, and binds the blobs: from then on nothing is written if they have another
/// name. A new store gets its name. A store of an earlier version, whose blobs have none, is given it if that is safe.
///
/// # Errors
/// Those of [`standing`]: nothing was changed then.
pub async fn settle(
    store: &Store,
    database: &DatabaseLocation,
    location: &BlobLocation,
) -> anyhow::Result<()> {
    let Store { records, blobs } = store;
    match standing(store, database, location).await? {
        StoreMatch::Named(known) => {
            blobs.bind(&known).await?;
            hold(records, &known)?;
            if let Err(error) = blobs.note_serial(records.serial().await?).await {
                tracing::warn!(%error, "the last serial of the records cannot be written beside the blobs");
            }
            Ok(())
        }
        StoreMatch::Nameless => adopt(store, location).await,
        StoreMatch::Doubtful(census) => {
            hold(records, &make(records).await?)?;
            tracing::error!(
                "the blobs in `{location}` do not say whose they are, and may be another store's ({census}): \
                 they are served, and never swept. `larder adopt` says that they belong to these records"
            );
            Ok(())
        }
    }
}

/// Binds the database to this name.
fn hold(records: &Records, identity: &StoreIdentity) -> anyhow::Result<()> {
    records.bind(Key::new(IDENTITY_KEY)?, identity.to_string().into());
    Ok(())
}

/// Records that lack commits which they once had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostCommits {
    /// The serial that they are at.
    pub found: Serial,
    /// The serial that is noted beside the blobs.
    pub noted: Serial,
}

/// Whether the records of the store `identity` are older than what is noted beside its blobs.
///
/// # Errors
/// Those of reading.
pub async fn older(store: &Store, identity: &StoreIdentity) -> anyhow::Result<Option<LostCommits>> {
    // The note first: it is never ahead of the records, and other processes write on.
    let Some(noted) = store.blobs.highest_serial(identity).await? else { return Ok(None) };
    let found = store.records.serial().await?;
    Ok((found < noted).then_some(LostCommits { found, noted }))
}

async fn adopt(store: &Store, location: &BlobLocation) -> anyhow::Result<()> {
    let Store { records, blobs } = store;
    let identity = make(records).await?;
    hold(records, &identity)?;
    match blobs.adopt(&identity, false).await {
        Ok(()) => Ok(blobs.bind(&identity).await?),
        // The records can still be read.
        Err(error)
            if matches!(
                error.kind(),
                Some(FailureKind::ReadOnly | FailureKind::Denied | FailureKind::NoSpace)
            ) =>
        {
            tracing::warn!(%error, "cannot write the store's name to `{location}` now");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks before each sweep that records and blobs have the same name, and that the records are not an older copy.
///
/// # Errors
/// If the names differ, or one is missing, or the records are older.
pub(crate) async fn check_before_sweep(store: &Store) -> anyhow::Result<()> {
    let Store { records, blobs } = store;
    match (of_records(records).await?, blobs.identity().await?) {
        (Some(known), Some(found)) if known == found => {
            if let Some(LostCommits { found, noted }) = older(store, &known).await? {
                bail!(
                    "nothing was swept: the records are an older copy, at serial {found}, but the blobs know that they \
                     were at serial {noted}. `larder adopt` says that these are the records to go on with"
                );
            }
            Ok(blobs.bind(&known).await?)
        }
        (Some(known), Some(found)) => bail!(
            "nothing was swept: the blobs belong to the store {found}, but the records are those of {known}"
        ),
        (known, found) => {
            let named = |identity: Option<StoreIdentity>| match identity {
                Some(identity) => format!("those of the store {identity}"),
                None => "of no store that is named".to_owned(),
            };
            bail!(
                "nothing was swept: the records are {}, and the blobs are {}. If they belong together, `larder adopt` \
                 says so",
                named(known),
                named(found)
            )
        }
    }
}

/// Checks that blobs may be copied there for the store `identity`: the target has its name, or no name and no foreign blobs.
/// Then it gets that name.
///
/// # Errors
/// If the target is another store's, or has blobs without a name, other than those of `named`.
pub async fn claim(
    blobs: &BlobStore,
    identity: &StoreIdentity,
    named: Option<&NamedBlobs>,
    location: &BlobLocation,
) -> anyhow::Result<()> {
    match blobs.identity().await? {
        Some(found) if found == *identity => {}
        Some(found) => bail!(
            "the blobs in `{location}` belong to the store {found}, and not to {identity}: another place is needed; \
             nothing was changed"
        ),
        None => {
            if let Some(named) = named {
                let census = Census::take(named, blobs).await?;
                if census.unnamed > 0 {
                    bail!(
                        "there are {} in `{location}` that are not those of the store {identity}: an empty place is \
                         needed; nothing was changed",
                        counted(census.unnamed, "blob")
                    );
                }
            }
            blobs.adopt(identity, false).await?;
        }
    }
    Ok(blobs.bind(identity).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(counts: [u64; 3], has_history: bool, expected: CensusVerdict) {
        let [present, missing, unnamed] = counts;
        let census = Census { present, missing, unnamed, has_history };
        assert_eq!(census.verdict(), expected, "{census}");
    }

    #[test]
    fn blobs_without_a_name_are_adopted_where_it_is_safe() {
        check([0, 0, 0], false, CensusVerdict::Adopt);
        check([0, 0, 0], true, CensusVerdict::Adopt);
        check([80, 0, 0], true, CensusVerdict::Adopt);
        check([80, 3, 80], true, CensusVerdict::Adopt);
        // Much was deleted, or these are the blobs of two stores.
        check([5, 0, 80], true, CensusVerdict::Serve);
        check([1, 2, 0], true, CensusVerdict::Serve);
        check([0, 0, 80], true, CensusVerdict::Serve);
        // A new database beside another one's blobs; or a volume is not mounted.
        check([0, 0, 80], false, CensusVerdict::Refuse);
        check([0, 80, 0], true, CensusVerdict::Refuse);
        check([0, 1, 80], true, CensusVerdict::Refuse);
    }
}
