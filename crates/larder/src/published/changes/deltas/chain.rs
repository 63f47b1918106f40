//! [`Chain`]: the deltas from each recent dump to the next one, as files in the data directory.
//!
//! | file | what it has |
//! | --- | --- |
//! | `{number}.zst` | the lines of a [`Delta`] |
//! | `chain.json` | which deltas there are, in order, and which kept dump the last one leads to |
//!
//! The files can be deleted: clients that have an earlier dump then start over. The chain writes a delta before it lists it,
//! and removes it from the list before it deletes it, so every listed file exists. If the server missed a dump, the chain
//! begins anew with the next one.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use aur::Compressed;
use aur::delta::{Delta, DeltaError, Index, TEXT_BYTES_MAX};
use resources::files;
use serde::{Deserialize, Serialize};

const LIST_NAME: &str = "chain.json";

/// A week of dumps, if there is one every five minutes.
const DELTAS_MAX: usize = 2_016;
/// Most bytes of all deltas together, before they are compressed.
const BYTES_MAX: u64 = 4 * TEXT_BYTES_MAX as u64;

/// A dump whose content is compared.
pub(super) trait Dump {
    /// SHA-256 of the file that is kept.
    fn file_sha256(&self) -> &str;
    /// What the file has when it is unpacked.
    fn content(&self) -> Box<dyn Read>;
}

/// The list of the deltas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeltaList {
    /// SHA-256 of the file of the last dump; empty before the first one.
    pub(super) file: String,
    /// SHA-256 of that dump's content.
    content: String,
    bytes: u64,
    next_number: u64,
    deltas: Vec<Link>,
}

/// An entry of the list: a delta.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Link {
    number: u64,
    from: String,
    weight: u64,
}

/// Writes the files.
pub(super) struct Chain {
    directory: PathBuf,
    bytes_max: u64,
    pub(super) listed: DeltaList,
}

impl Chain {
    /// Opens the chain in this directory, or begins one. Creates the directory if it is missing.
    pub(super) fn open(directory: &Path) -> anyhow::Result<Chain> {
        match fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| directory.display().to_string());
            }
            _ => {}
        }
        let read = files::read(&directory.join(LIST_NAME)).ok();
        // A damaged list counts as missing.
        let listed: DeltaList =
            read.and_then(|read| serde_json::from_slice(&read).ok()).unwrap_or_default();
        let chain = Chain { directory: directory.to_owned(), bytes_max: BYTES_MAX, listed };
        chain.remove_others();
        Ok(chain)
    }

    /// Adds the delta from `before` to `next`. Without `before`, the chain begins anew.
    pub(super) fn take(
        &mut self,
        before: Option<&dyn Dump>,
        next: &dyn Dump,
    ) -> anyhow::Result<()> {
        if self.listed.file == next.file_sha256() {
            return Ok(());
        }
        let before = before.filter(|before| before.file_sha256() == self.listed.file);
        let delta = match before {
            Some(before) => self.compare(before, next)?,
            None => None,
        };
        let mut listed = self.listed.clone();
        match delta {
            Some(delta) => {
                if delta.head.from != delta.head.to {
                    let number = listed.next_number;
                    self.write(number, &delta)?;
                    let (from, weight) = (delta.head.from.clone(), delta.weight());
                    listed.deltas.push(Link { number, from, weight });
                }
                listed.content.clone_from(&delta.head.to);
                listed.bytes = delta.head.bytes;
            }
            None => {
                let (sha256, bytes) = super::digest_of(next.content())?;
                (listed.content, listed.bytes) = (sha256, bytes);
                listed.deltas.clear();
            }
        }
        listed.next_number += 1;
        next.file_sha256().clone_into(&mut listed.file);
        let too_many = listed.deltas.len().saturating_sub(DELTAS_MAX);
        listed.deltas.drain(..too_many);
        let mut weight: u64 = listed.deltas.iter().map(|link| link.weight).sum();
        while weight > self.bytes_max {
            weight -= listed.deltas.remove(0).weight;
        }
        // If an earlier dump had this content too, the deltas before and between are not needed any more.
        let latest = listed.content.clone();
        if let Some(again) = listed.deltas.iter().rposition(|link| link.from == latest) {
            listed.deltas.drain(..=again);
        }
        self.listed = listed;
        self.write_list()?;
        self.remove_others();
        Ok(())
    }

    /// The delta between two dumps; `None` if too much differs.
    fn compare(&self, before: &dyn Dump, next: &dyn Dump) -> anyhow::Result<Option<Delta>> {
        let Some(index) = Index::read(before.content())? else { return Ok(None) };
        if index.sha256 != self.listed.content {
            return Ok(None);
        }
        match Delta::between(&index, next.content()) {
            Ok(delta) => Ok(Some(delta)),
            Err(DeltaError::Io(error)) => Err(error.into()),
            Err(trouble) => {
                tracing::info!(%trouble, "there is no delta of the dump; clients fetch all of it");
                Ok(None)
            }
        }
    }

    fn write(&self, number: u64, delta: &Delta) -> io::Result<()> {
        let path = self.directory.join(file_name(number));
        let out = io::BufWriter::new(File::create(path)?);
        let out = Compressed::Zstd.write(out, |out| delta.write(out))?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }

    fn write_list(&self) -> anyhow::Result<()> {
        let beside = self.directory.join(format!("{LIST_NAME}.tmp"));
        let mut file = File::create(&beside)?;
        serde_json::to_writer(&mut file, &self.listed)?;
        file.sync_all()?;
        fs::rename(&beside, self.directory.join(LIST_NAME))?;
        Ok(())
    }

    /// Removes the files that are not listed.
    fn remove_others(&self) {
        let listed = self.listed.deltas.iter().map(|link| file_name(link.number));
        let listed: std::collections::HashSet<String> = listed.collect();
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != LIST_NAME && !listed.contains(&name) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl DeltaList {
    /// SHA-256 of the last dump's content.
    pub(super) fn content(&self) -> &str {
        &self.content
    }

    /// Whether deltas lead from a dump with this content to the last one.
    pub(super) fn knows(&self, from: &str) -> bool {
        self.content == from || self.deltas.iter().any(|link| link.from == from)
    }

    /// All deltas from a dump with this content to the last one, joined; `None` if no deltas lead there.
    pub(super) fn way_from(
        &self,
        from: &str,
        directory: &Path,
    ) -> Result<Option<Delta>, DeltaError> {
        if self.content == from {
            return Ok(Some(Delta::nothing(&self.content, self.bytes)));
        }
        let Some(first) = self.deltas.iter().rposition(|link| link.from == from) else {
            return Ok(None);
        };
        let whole = put_together(&self.deltas[first..], directory)?;
        if whole.head.to != self.content {
            return Err(DeltaError::Damaged);
        }
        Ok(Some(whole))
    }

    /// The list after a dump, in this file, to which no delta leads.
    pub(super) fn without_way_to(&self, file: &str) -> DeltaList {
        let next_number = self.next_number + 1;
        DeltaList { file: file.to_owned(), next_number, ..DeltaList::default() }
    }
}

/// Joins these deltas, at least one. Joining halves copies a large delta among a thousand small ones ten times, not a thousand.
fn put_together(links: &[Link], directory: &Path) -> Result<Delta, DeltaError> {
    if let [link] = links {
        let file = files::open(&directory.join(file_name(link.number)))?;
        let delta = Delta::read(BufReader::new(zstd::Decoder::new(file)?))?;
        return if delta.head.from == link.from { Ok(delta) } else { Err(DeltaError::Damaged) };
    }
    let (earlier, later) = links.split_at(links.len() / 2);
    let earlier = put_together(earlier, directory)?;
    put_together(later, directory)?.after(&earlier)
}

fn file_name(number: u64) -> String {
    format!("{number}.zst")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TextDump(String);

    impl Dump for TextDump {
        fn file_sha256(&self) -> &str {
            &self.0
        }

        fn content(&self) -> Box<dyn Read> {
            Box::new(io::Cursor::new(self.0.clone()))
        }
    }

    fn sha256(text: &str) -> String {
        super::super::digest_of(text.as_bytes()).expect("memory").0
    }

    fn take(chain: &mut Chain, before: Option<&str>, next: &str) {
        let before = before.map(|before| TextDump(before.to_owned()));
        let before = before.as_ref().map(|before| before as &dyn Dump);
        chain.take(before, &TextDump(next.to_owned())).expect("files");
    }

    /// The lines of the delta from one text to the last one.
    fn way(chain: &Chain, from: &str) -> Option<String> {
        assert_eq!(chain.listed.knows(&sha256(from)), {
            let way = chain.listed.way_from(&sha256(from), &chain.directory);
            way.expect("files").is_some()
        });
        let way = chain.listed.way_from(&sha256(from), &chain.directory).expect("files")?;
        let mut lines = Vec::new();
        way.write(&mut lines).expect("memory");
        let lines = String::from_utf8(lines).expect("UTF-8");
        Some(lines.split_once('\n').expect("a head").1.replace('\n', " ").trim_end().to_owned())
    }

    fn files(chain: &Chain) -> usize {
        fs::read_dir(&chain.directory).expect("a directory").count() - 1
    }

    #[test]
    fn every_dump_of_the_chain_leads_to_the_last_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("deltas");
        let mut chain = Chain::open(&path).expect("a chain");
        take(&mut chain, None, "a");
        take(&mut chain, Some("a"), "b");
        take(&mut chain, Some("b"), "c");
        let check = |chain: &Chain| {
            for (from, lines) in [("a", "\"c\""), ("b", "\"c\""), ("c", "[0,1]")] {
                assert_eq!(way(chain, from).as_deref(), Some(lines), "{from}");
            }
            assert_eq!(way(chain, "d"), None);
        };
        check(&chain);
        fs::write(path.join("99.zst"), "left behind").expect("a file");
        let mut chain = Chain::open(&path).expect("the same chain");
        check(&chain);
        assert_eq!(files(&chain), 2);
        // If a content comes again, the deltas between are dropped.
        take(&mut chain, Some("c"), "b");
        assert_eq!(way(&chain, "b").as_deref(), Some("[0,1]"));
        assert_eq!(way(&chain, "c").as_deref(), Some("\"b\""));
        assert_eq!(way(&chain, "a"), None);
        assert_eq!(files(&chain), 1);
        // The dump before is missing.
        chain.listed = chain.listed.without_way_to("failed");
        take(&mut chain, Some("failed"), "d");
        assert_eq!(way(&chain, "c"), None);
        assert_eq!((way(&chain, "d").as_deref(), files(&chain)), (Some("[0,1]"), 0));
    }

    #[test]
    fn a_chain_is_bounded() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut chain = Chain::open(&directory.path().join("deltas")).expect("a chain");
        chain.bytes_max = 1_000;
        let long = |letter: &str| letter.repeat(400);
        take(&mut chain, None, &long("a"));
        for pair in ["a", "b", "c", "d", "e"].windows(2) {
            take(&mut chain, Some(&long(pair[0])), &long(pair[1]));
        }
        let known = |text: &str| chain.listed.knows(&sha256(&long(text)));
        assert_eq!(["a", "b", "c", "d", "e"].map(known), [false, false, true, true, true]);
        assert_eq!(files(&chain), 2);
        // A delta that is too large by itself is dropped.
        take(&mut chain, Some(&long("e")), &"y".repeat(2_000));
        assert_eq!((chain.listed.deltas.len(), files(&chain)), (0, 0));
    }
}
