//! [`Deltas`]: what a client applies to the dump that it has, instead of fetching the next one whole.
//!
//! the dump that was kept last, and the one before -> [`Delta`], a file of the [`Chain`] -> a client names the dump that it has -> the
//! deltas from there on, put together and compressed -> kept while the dump is the same
//!
//! A task compares dumps ([`crate::tasks::dump_deltas`]); neither a refresh nor anybody who reads waits for that.

mod chain;
mod delta;
mod pieces;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use aur::Compressed;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use source::KeptDumpFile;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::chain::{Chain, Dump, Listed};
use crate::turns::Turns;

/// What is kept in memory of deltas that were asked for.
const MADE_BYTES_MAX: usize = 8 << 20;

/// The deltas to the dump that was kept last.
pub struct Deltas {
    directory: PathBuf,
    kept: watch::Sender<Option<KeptDumpFile>>,
    listed: ArcSwap<Listed>,
    made: Mutex<VecDeque<(Wanted, Made)>>,
    /// Set when no other dump will be kept.
    pub(crate) ended: CancellationToken,
    /// One is put together at a time.
    pub(crate) turns: Turns,
}

/// A delta that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    from: String,
    to: String,
    compressed: Compressed,
}

/// A delta, ready to be sent.
#[derive(Clone)]
pub(crate) struct Made {
    /// SHA-256 of the dump that it makes.
    pub(crate) to: String,
    /// The lines, compressed.
    pub(crate) body: Bytes,
}

/// What there is for somebody who wants a delta.
pub(crate) enum Offer {
    Delta(Made),
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
            made: Mutex::default(),
            ended: CancellationToken::new(),
            turns: Turns::new(1),
        }
    }

    /// Notes that this dump is kept now.
    pub(crate) fn keep(&self, file: KeptDumpFile) {
        self.kept.send_replace(Some(file));
    }

    /// Which dump is kept.
    pub(crate) fn kept(&self) -> watch::Receiver<Option<KeptDumpFile>> {
        self.kept.subscribe()
    }

    /// What leads from the dump with this content to the last one. It blocks.
    pub(crate) fn offer(&self, from: &str, compressed: Compressed) -> io::Result<Offer> {
        let listed = self.listed.load_full();
        if !listed.knows(from) {
            let is_last = |kept: &KeptDumpFile| kept.sha256 == listed.file;
            let is_known = self.kept.borrow().as_ref().is_some_and(is_last);
            return Ok(if is_known { Offer::StartOver } else { Offer::NotYet });
        }
        let to = listed.content().to_owned();
        let wanted = Wanted { from: from.to_owned(), to, compressed };
        let lock = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, made)) = lock().iter().find(|(made, _)| *made == wanted) {
            return Ok(Offer::Delta(made.clone()));
        }
        let delta = match listed.way_from(from, &self.directory) {
            Ok(Some(delta)) => delta,
            Ok(None) | Err(delta::Trouble::TooMuch) => return Ok(Offer::StartOver),
            // The chain has gone on meanwhile.
            Err(_) if !Arc::ptr_eq(&listed, &self.listed.load()) => return Ok(Offer::NotYet),
            Err(trouble) => {
                tracing::debug!(%trouble, "a delta of the AUR's dump cannot be read: clients start over");
                return Ok(Offer::StartOver);
            }
        };
        let body = compressed.write(Vec::new(), |out| delta.write(out))?;
        let made = Made { to: delta.head.to, body: body.into() };
        let mut kept = lock();
        kept.retain(|(other, _)| other.to == wanted.to);
        kept.push_back((wanted, made.clone()));
        while kept.iter().map(|(_, made)| made.body.len()).sum::<usize>() > MADE_BYTES_MAX {
            kept.pop_front();
        }
        Ok(Offer::Delta(made))
    }
}

/// Who compares each dump with the one before. The first time it goes on where the last process ended.
#[derive(Default)]
pub(crate) struct Comparing {
    chain: Option<Chain>,
    before: Option<KeptDumpFile>,
}

impl Comparing {
    /// Compares a dump with the one before, and offers what was found. It blocks. After an error no dump of before leads here.
    pub(crate) fn take(&mut self, next: KeptDumpFile, deltas: &Deltas) -> anyhow::Result<()> {
        let outcome = self.compare(&next, deltas);
        if outcome.is_err() {
            let listed = deltas.listed.load().without_way_to(&next.sha256);
            if let Some(chain) = &mut self.chain {
                chain.listed = listed.clone();
            }
            deltas.listed.store(Arc::new(listed));
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
        deltas.listed.store(Arc::new(chain.listed.clone()));
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

/// SHA-256 of what a reader reads, and how much it is.
fn digest_of(mut content: impl Read) -> io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    let mut bytes = 0;
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return Ok((hex(&hasher.finalize()), bytes)),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
