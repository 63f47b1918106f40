//! The one loop that commits: a wish is decided on the newest state, committed, and acknowledged once everybody sees it.

use std::future::{Future, ready};
use std::sync::Arc;

use audit::{Audit, Entry, PendingEntries};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use pypi::StageName;
use pypi::index_log::{Deed, LogLine};
use record::{Batch, Digest, Serial, Write};
use resources::turns::blocking;
use state::security;
use state::stored::{Stored, WriteFailure};
use store::{BlobError, CommitError};

use crate::{Basis, Name, Refusal, Rules, Sender};

/// How often a wish is decided again because another write came first, before it fails. Each time, one of the competing writes
/// is committed, so this many files of one version can be uploaded at once.
pub const ATTEMPTS_MAX: u32 = 64;

/// Blobs that are made young at a time.
const TOUCHED_AT_ONCE: usize = 16;

/// Something that may be asked for.
pub trait Operation {
    /// What it is called.
    const NAME: Name;

    /// What the sender gets to know of it.
    type Outcome;

    /// Whether it may happen to this state, and what it writes then. Neither waits nor reads a clock.
    ///
    /// # Errors
    /// The rule or the right that forbids it.
    fn decide(&self, basis: &Basis) -> Result<Decided<Self::Outcome>, Refusal>;
}

/// Blobs that a batch names: old ones are made young before the commit, so that no sweep takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldBlobs {
    /// All blobs of the batch were stored for it.
    #[default]
    None,
    /// They may be old; without one of them, nothing is written.
    Needed,
    /// They may be old; one that is missing was missing before.
    Kept,
}

/// A decision that is not committed yet.
#[derive(Debug)]
pub struct Decided<T> {
    /// What to write; `None` if the wanted state is there already.
    pub batch: Option<Batch>,
    /// What the audit log notes if it is written.
    pub entries: Vec<Entry>,
    /// What the log of an index says of it, if it is written.
    pub deed: Option<Box<(StageName, Deed)>>,
    /// Whether the batch names blobs that may be old.
    pub blobs: OldBlobs,
    /// What comes of it.
    pub outcome: T,
}

impl<T> Decided<T> {
    /// A decision to write this batch, if any.
    pub fn new(batch: impl Into<Option<Batch>>, outcome: T) -> Decided<T> {
        let blobs = OldBlobs::None;
        Decided { batch: batch.into(), entries: Vec::new(), deed: None, blobs, outcome }
    }

    /// Adds what the audit log notes.
    #[must_use]
    pub fn noting(self, entries: Vec<Entry>) -> Decided<T> {
        Decided { entries, ..self }
    }

    /// Adds what the log of this index says.
    #[must_use]
    pub fn logging(self, stage: &StageName, deed: Deed) -> Decided<T> {
        Decided { deed: Some(Box::new((stage.clone(), deed))), ..self }
    }

    /// Says that the batch names old blobs.
    #[must_use]
    pub fn naming(self, blobs: OldBlobs) -> Decided<T> {
        Decided { blobs, ..self }
    }
}

/// An operation that was carried out, and that everybody sees.
#[derive(Clone, Debug)]
pub struct Done<T> {
    /// What came of it.
    pub outcome: T,
    /// The commit; `None` if there was nothing to write.
    pub serial: Option<Serial>,
    /// The state that shows it: the commit's, else the one that was decided on.
    pub seen: Serial,
}

/// Where operations are committed.
pub trait Keeper: Send + Sync {
    /// The newest state that this process knows.
    ///
    /// # Errors
    /// [`WriteFailure::NotLoaded`].
    fn stored(&self) -> Result<Arc<Stored>, WriteFailure>;

    /// The settings.
    fn rules(&self) -> &Arc<Rules>;

    /// Before which time tokens and sessions are forgotten after their end: see [`Basis::forget_before`]. `None` unless this
    /// process compares its clock with the store's, as the server does.
    fn forget_before(&self, _now: Timestamp) -> Option<Timestamp> {
        None
    }

    /// Why nothing is written here, whoever asks.
    fn refuses(&self) -> Option<WriteFailure> {
        None
    }

    /// The audit log, if this process writes it.
    fn audit(&self) -> Option<Arc<Audit>> {
        None
    }

    /// Makes a blob young; whether it is there.
    fn touch(&self, blob: Digest) -> impl Future<Output = Result<bool, BlobError>> + Send;

    /// Commits a batch.
    fn commit(&mut self, batch: Batch) -> impl Future<Output = Result<Serial, CommitError>> + Send;

    /// Waits until this process shows the commit; false if it does not in time.
    fn shows(&mut self, serial: Serial) -> impl Future<Output = bool> + Send;

    /// Waits, less patiently, for the write that came first.
    fn catch_up_with(&mut self, serial: Serial) -> impl Future<Output = bool> + Send {
        self.shows(serial)
    }

    /// Whether the store is further than `serial`, and this process shows that now.
    ///
    /// # Errors
    /// [`WriteFailure::Behind`] if that cannot be said.
    fn is_further(
        &mut self,
        serial: Serial,
    ) -> impl Future<Output = Result<bool, WriteFailure>> + Send {
        async move {
            self.shows(serial).await;
            Ok(self.stored()?.serial > serial)
        }
    }
}

/// Decides, commits and waits until everybody sees it.
///
/// # Errors
/// Why not; nothing was written, unless the [`Refusal`] says otherwise.
pub async fn carry_out<O: Operation>(
    keeper: &mut impl Keeper,
    sender: &Sender,
    wish: &O,
) -> Result<Done<O::Outcome>, Refusal> {
    decided(keeper, sender, |basis| ready(wish.decide(&basis))).await
}

/// [`carry_out`], for a wish that is made anew of each state, because it names bytes that depend on the state: `make` may wait
/// for them to be stored.
///
/// # Errors
/// Those of `make`, and as [`carry_out`].
pub async fn carry_out_with<O: Operation, M>(
    keeper: &mut impl Keeper,
    sender: &Sender,
    mut make: impl FnMut(Arc<Basis>) -> M,
) -> Result<Done<O::Outcome>, Refusal>
where
    M: Future<Output = Result<O, Refusal>>,
{
    decided(keeper, sender, |basis| {
        let making = make(basis.clone());
        async move { making.await?.decide(&basis) }
    })
    .await
}

/// [`carry_out`], where deciding takes long: each decision is made on a thread for such work.
///
/// # Errors
/// As [`carry_out`].
pub async fn carry_out_long<O>(
    keeper: &mut impl Keeper,
    sender: &Sender,
    wish: &O,
) -> Result<Done<O::Outcome>, Refusal>
where
    O: Operation + Clone + Send + 'static,
    O::Outcome: Send + 'static,
{
    decided(keeper, sender, |basis| {
        let wish = wish.clone();
        blocking(move || wish.decide(&basis))
    })
    .await
}

/// Another operation's decision, of which nothing is committed: for refusals before bytes are stored.
#[derive(Clone, Copy, Debug)]
pub struct Foreseen<'wish, O>(pub &'wish O);

impl<O: Operation> Operation for Foreseen<'_, O> {
    const NAME: Name = O::NAME;

    /// Whether there would be something to write, and the outcome.
    type Outcome = (bool, O::Outcome);

    fn decide(&self, basis: &Basis) -> Result<Decided<Self::Outcome>, Refusal> {
        let Decided { batch, outcome, .. } = self.0.decide(basis)?;
        Ok(Decided::new(None, (batch.is_some(), outcome)))
    }
}

/// The loop. If a state refuses the wish, it first makes sure that this is the state of the store, and not an older one. If
/// another write came first, or a right was changed, it waits for that write and decides again. The records that the sender's
/// rights depend on are preconditions of the commit.
///
/// # Errors
/// A refusal by `decide`; a failure of the store, but no mismatch.
async fn decided<T, D>(
    keeper: &mut impl Keeper,
    sender: &Sender,
    mut decide: impl FnMut(Arc<Basis>) -> D,
) -> Result<Done<T>, Refusal>
where
    D: Future<Output = Result<Decided<T>, Refusal>>,
{
    let mut is_current = false;
    for _ in 0..ATTEMPTS_MAX {
        let (stored, now) = (keeper.stored()?, Timestamp::now());
        let (rules, forget_before) = (keeper.rules().clone(), keeper.forget_before(now));
        let basis = Arc::new(Basis::new(stored, rules, sender.clone(), now, forget_before));
        let seen = basis.stored.serial;
        let deciding = decide(basis.clone()).await;
        let Decided { batch, entries, deed, blobs, outcome } = match deciding {
            Err(refusal) if refusal.may_be_stale() && !is_current => {
                is_current = true;
                match keeper.is_further(seen).await? {
                    true => continue,
                    false => return Err(refusal),
                }
            }
            decided => decided?,
        };
        let Some(mut batch) = batch.filter(|batch| !batch.writes.is_empty()) else {
            if let Some(audit) = keeper.audit() {
                entries.into_iter().for_each(|entry| audit.note(entry));
            }
            return Ok(Done { outcome, serial: None, seen });
        };
        if let Some(failure) = keeper.refuses() {
            return Err(failure.into());
        }
        batch.checks.extend(basis.principal().rests_on());
        log(&basis, &mut batch, deed);
        touch(keeper, &batch, blobs).await?;
        let changes = security::changes(&basis.stored.accounts, &basis.stored.index, &batch);
        let changes = changes.by(sender.actor());
        // The last owner of a snapshot frees it; that need not wait for the store.
        drop(basis);
        let audit = keeper.audit();
        let pending = audit.as_deref().map(|audit| PendingEntries::new(audit, entries));
        // Boxed: it is by far the largest future of a write.
        let committed = Box::pin(keeper.commit(batch)).await;
        changes.settle(&committed);
        match (pending, &committed) {
            (Some(pending), Ok(_)) => pending.committed(),
            (Some(pending), Err(CommitError::OutcomeUnknown(_))) => drop(pending),
            (Some(pending), Err(_)) => pending.refused(),
            (None, _) => {}
        }
        match committed {
            Ok(serial) if keeper.shows(serial).await => {
                return Ok(Done { outcome, serial: Some(serial), seen: serial });
            }
            Ok(serial) => return Err(WriteFailure::NotVisible(serial).into()),
            Err(CommitError::Mismatch(mismatch)) => {
                // If the other write is not visible by then, the next decision would not see it either.
                if !keeper.catch_up_with(mismatch.found.serial).await {
                    break;
                }
            }
            Err(error) => return Err(WriteFailure::from(error).into()),
        }
    }
    Err(WriteFailure::Overtaken.into())
}

/// Adds to the batch what the log of an index says of it. The log of an index ends with it: a deletion removes the log, and what came
/// into it at that moment is removed when the index is made again.
fn log(basis: &Basis, batch: &mut Batch, deed: Option<Box<(StageName, Deed)>>) {
    let logs = &basis.stored.logs;
    let is_ended = |write: &&Write| match pypi::stage_of_key(&write.key) {
        Some(stage) => write.body.is_none() || basis.stored.index.stage(stage).is_none(),
        None => false,
    };
    let ended = batch.writes.iter().filter(is_ended);
    let ended = ended.filter_map(|write| pypi::stage_of_key(&write.key)?.parse().ok());
    let ended: Vec<StageName> = ended.collect();
    let line = deed.map(|deed| {
        let (stage, deed) = *deed;
        let line = LogLine { at: basis.now, by: basis.sender().doer(), deed };
        // The time is as good as chance: only writers of the same state must not all choose the same slot.
        logs.write(&stage, &line, basis.now.subsec_nanosecond().unsigned_abs().into())
    });
    let is_other = |write: &Write| line.as_ref().is_none_or(|line| line.key != write.key);
    for stage in &ended {
        batch.writes.extend(logs.erase(stage).filter(is_other));
    }
    batch.writes.extend(line);
}

/// Makes the old blobs of a batch young.
async fn touch(keeper: &impl Keeper, batch: &Batch, blobs: OldBlobs) -> Result<(), Refusal> {
    if blobs == OldBlobs::None {
        return Ok(());
    }
    let mut touching = Vec::new();
    for blob in batch.writes.iter().flat_map(|write| &write.blobs) {
        touching.push(touch_one(keeper, *blob));
    }
    let mut touching = stream::iter(touching).buffer_unordered(TOUCHED_AT_ONCE);
    while let Some((blob, touched)) = touching.next().await {
        let is_there = touched.map_err(Refusal::Blobs)?;
        if !is_there && blobs == OldBlobs::Needed {
            return Err(Refusal::BlobMissing(blob));
        }
    }
    Ok(())
}

async fn touch_one(keeper: &impl Keeper, blob: Digest) -> (Digest, Result<bool, BlobError>) {
    (blob, keeper.touch(blob).await)
}
