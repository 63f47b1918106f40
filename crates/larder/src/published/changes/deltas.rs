//! [`Deltas`]: clients apply them to the dump that they have, instead of fetching the next one whole.
//!
//! the dump that was kept last, and the one before -> a delta, a file of the [`Chain`] -> a client names the dump that it has
//! -> the deltas from there on, joined and compressed -> kept until the next dump
//!
//! A task compares dumps ([`crate::tasks::dump_deltas`]); neither a refresh nor a reader waits for that.

mod chain;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use aur::Compressed;
use aur::delta::DeltaError;
use bytes::Bytes;
use resources::turns::ThreadShare;
use sha2::{Digest, Sha256};
use source::KeptDumpFile;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::chain::{Chain, DeltaList, Dump};

/// Bytes of requested deltas in memory.
const MADE_BYTES_MAX: usize = 8 << 20;

/// Bytes that a delta takes besides its body.
const MADE_BYTES: usize = 256;

/// Requests that may wait for a delta to be made.
const WAITING_MAX: usize = 128;

/// The deltas to the dump that was kept last.
pub struct Deltas {
    directory: PathBuf,
    kept: watch::Sender<Option<KeptDumpFile>>,
    listed: ArcSwap<DeltaList>,
    number: watch::Sender<Option<u64>>,
    /// Requested deltas; `None` if there is none to send.
    made: Mutex<VecDeque<(DeltaKey, Option<MadeDelta>)>>,
    /// Whether the last dump could not be kept.
    is_unkept: AtomicBool,
    /// Set when no other dump will be kept.
    pub(crate) ended: CancellationToken,
    /// One delta is made at a time.
    pub(crate) making: ThreadShare,
}

/// A delta that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeltaKey {
    from: String,
    to: String,
    compressed: Compressed,
}

/// A delta, ready to be sent.
#[derive(Clone)]
pub(crate) struct MadeDelta {
    /// SHA-256 of the dump that it makes.
    pub(crate) to: String,
    /// The lines, compressed.
    pub(crate) body: Bytes,
}

/// The answer to a request for a delta.
pub(crate) enum DeltaOffer {
    Delta(MadeDelta),
    /// The dump is not known any more, or never was.
    StartOver,
    /// The dump that was kept last is still being compared.
    NotYet,
}

impl Deltas {
    /// Deltas between the dumps in this data directory.
    pub(crate) fn new(data_dir: &Path) -> Deltas {
        Deltas {
            directory: data_dir.join("aur").join("deltas"),
            kept: watch::Sender::new(None),
            listed: ArcSwap::default(),
            number: watch::Sender::new(None),
            made: Mutex::default(),
            ended: CancellationToken::new(),
            is_unkept: AtomicBool::new(false),
            making: ThreadShare::one(WAITING_MAX),
        }
    }

    /// Notes that this dump is kept now.
    pub(crate) fn keep(&self, file: KeptDumpFile) {
        self.is_unkept.store(false, Relaxed);
        self.kept.send_replace(Some(file));
    }

    /// Notes that a dump could not be kept.
    pub(crate) fn keep_none(&self) {
        self.is_unkept.store(true, Relaxed);
    }

    /// Watches the kept dump.
    pub(crate) fn kept(&self) -> watch::Receiver<Option<KeptDumpFile>> {
        self.kept.subscribe()
    }

    fn list(&self, listed: DeltaList) {
        let number = listed.file.get(..16).and_then(|start| u64::from_str_radix(start, 16).ok());
        self.listed.store(Arc::new(listed));
        self.number.send_if_modified(|before| std::mem::replace(before, number) != number);
    }

    /// Which dump followers can fetch, whole or by deltas: another number is another dump. `None` before the first one.
    pub(crate) fn number(&self) -> watch::Receiver<Option<u64>> {
        self.number.subscribe()
    }

    /// When the kept dump was modified at its source.
    pub(crate) fn modified_at(&self) -> Option<SystemTime> {
        self.kept.borrow().as_ref().map(|kept| kept.modified_at)
    }

    /// The answer that is at hand for a client with the dump of this digest; `None` if a delta has to be made.
    pub(crate) fn at_hand(&self, from: &str, compressed: Compressed) -> Option<DeltaOffer> {
        let listed = self.listed.load();
        if !listed.knows(from) {
            let is_compared = self.kept.borrow().as_ref().map(|kept| kept.sha256 == listed.file);
            return Some(match is_compared.unwrap_or_else(|| self.is_unkept.load(Relaxed)) {
                true => DeltaOffer::StartOver,
                false => DeltaOffer::NotYet,
            });
        }
        let wanted = DeltaKey::to(&listed, from, compressed);
        let made = self.made();
        let (_, made) = made.iter().find(|(made, _)| *made == wanted)?;
        Some(made.clone().map_or(DeltaOffer::StartOver, DeltaOffer::Delta))
    }

    /// Makes the delta from the dump of this digest to the last one. It blocks; first ask [`Self::at_hand`].
    pub(crate) fn offer(&self, from: &str, compressed: Compressed) -> io::Result<DeltaOffer> {
        if let Some(at_hand) = self.at_hand(from, compressed) {
            return Ok(at_hand);
        }
        let listed = self.listed.load_full();
        let made = match listed.way_from(from, &self.directory) {
            Ok(Some(delta)) => {
                let body = compressed.write(Vec::new(), |out| delta.write(out))?;
                Some(MadeDelta { to: delta.head.to, body: body.into() })
            }
            Ok(None) | Err(DeltaError::TooMuch) => None,
            // Another dump was kept meanwhile.
            Err(_) if !Arc::ptr_eq(&listed, &self.listed.load()) => return Ok(DeltaOffer::NotYet),
            Err(trouble) => {
                tracing::debug!(%trouble, "a delta of the AUR's dump cannot be read: clients start over");
                None
            }
        };
        let wanted = DeltaKey::to(&listed, from, compressed);
        let mut kept = self.made();
        kept.retain(|(other, _)| other.to == wanted.to);
        kept.push_back((wanted, made.clone()));
        let bytes = |(_, made): &(DeltaKey, Option<MadeDelta>)| {
            MADE_BYTES + made.as_ref().map_or(0, |made| made.body.len())
        };
        while kept.iter().map(bytes).sum::<usize>() > MADE_BYTES_MAX {
            kept.pop_front();
        }
        Ok(made.map_or(DeltaOffer::StartOver, DeltaOffer::Delta))
    }

    fn made(&self) -> MutexGuard<'_, VecDeque<(DeltaKey, Option<MadeDelta>)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeltaKey {
    fn to(listed: &DeltaList, from: &str, compressed: Compressed) -> DeltaKey {
        DeltaKey { from: from.to_owned(), to: listed.content().to_owned(), compressed }
    }
}

/// Compares each dump with the one before. The first time it continues from the last process's dump.
#[derive(Default)]
pub(crate) struct DumpComparison {
    chain: Option<Chain>,
    before: Option<KeptDumpFile>,
}

impl DumpComparison {
    /// Compares a dump with the one before, and offers the delta. It blocks. After an error there are no deltas from earlier
    /// dumps to this one.
    pub(crate) fn take(&mut self, next: KeptDumpFile, deltas: &Deltas) -> anyhow::Result<()> {
        let outcome = self.compare(&next, deltas);
        if outcome.is_err() {
            let listed = deltas.listed.load().without_way_to(&next.sha256);
            if let Some(chain) = &mut self.chain {
                chain.listed = listed.clone();
            }
            deltas.list(listed);
        }
        self.before = Some(next);
        outcome
    }

    fn compare(&mut self, next: &KeptDumpFile, deltas: &Deltas) -> anyhow::Result<()> {
        let chain = match &mut self.chain {
            Some(chain) => chain,
            None => self.chain.insert(Chain::open(&deltas.directory)?),
        };
        chain.take(self.before.as_ref().map(|before| before as &dyn Dump), next)?;
        deltas.list(chain.listed.clone());
        Ok(())
    }
}

impl Dump for KeptDumpFile {
    fn file_sha256(&self) -> &str {
        &self.sha256
    }

    fn content(&self) -> Box<dyn Read> {
        Box::new(KeptDumpFile::content(self))
    }
}

/// SHA-256 of the content, and its length.
fn digest_of(mut content: impl Read) -> io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    let mut bytes = 0;
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return Ok((hex::encode(hasher.finalize()), bytes)),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TextDump(&'static str);

    impl Dump for TextDump {
        fn file_sha256(&self) -> &str {
            self.0
        }

        fn content(&self) -> Box<dyn Read> {
            Box::new(self.0.as_bytes())
        }
    }

    /// An answer is kept until the next dump, whether it is a delta or a refusal.
    #[test]
    fn what_was_answered_is_at_hand() {
        let directory = tempfile::tempdir().expect("a directory");
        let deltas = Deltas::new(directory.path());
        std::fs::create_dir_all(deltas.directory.parent().expect("one")).expect("a directory");
        let mut chain = Chain::open(&deltas.directory).expect("a chain");
        let mut go_on = |before: Option<&'static str>, next| {
            let before = before.map(TextDump);
            let before = before.as_ref().map(|before| before as &dyn Dump);
            chain.take(before, &TextDump(next)).expect("files");
            deltas.listed.store(Arc::new(chain.listed.clone()));
        };
        let sha256 = |text: &str| digest_of(text.as_bytes()).expect("memory").0;
        let said = |offer: DeltaOffer| match offer {
            DeltaOffer::Delta(made) => made.to,
            DeltaOffer::StartOver => "start over".to_owned(),
            DeltaOffer::NotYet => "not yet".to_owned(),
        };
        let at_hand = |from: &str| deltas.at_hand(&sha256(from), Compressed::Gzip).map(said);
        let offer =
            |from: &str| said(deltas.offer(&sha256(from), Compressed::Gzip).expect("memory"));
        assert_eq!(at_hand("one").as_deref(), Some("not yet"), "before the first dump");
        deltas.keep_none();
        assert_eq!(at_hand("one").as_deref(), Some("start over"), "no dump is kept");
        go_on(None, "one");
        go_on(Some("one"), "two");
        assert_eq!((at_hand("one"), at_hand("two")), (None, None));
        assert_eq!(offer("one"), sha256("two"));
        assert_eq!(at_hand("one"), Some(sha256("two")));
        assert_eq!(deltas.at_hand(&sha256("one"), Compressed::Zstd).map(said), None);
        go_on(Some("two"), "three");
        assert_eq!(at_hand("one"), None, "it leads to the dump before");
        // The file of a delta is damaged.
        for entry in std::fs::read_dir(&deltas.directory).expect("a directory").flatten() {
            if entry.path().extension().is_some_and(|it| it == "zst") {
                std::fs::write(entry.path(), "damaged").expect("a file");
            }
        }
        assert_eq!(offer("one"), "start over");
        assert_eq!(at_hand("one").as_deref(), Some("start over"));
        assert_eq!(offer("three"), sha256("three"));
    }
}
