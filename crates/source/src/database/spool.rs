//! Writes [`Catalogue`]s as a dump: `packages-meta-ext-v1.json` as aurweb's exporter writes it, with the popularity of
//! today and the number of open requests.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tempfile::TempPath;

use super::catalogue::{BASE_LISTS, Base, Catalogue, LISTS, OPT_DEPENDS_LIST, Package};
use crate::SourceError;
use crate::arrival::{Arrival, ArrivalKind, Stamp, Validators};
use crate::spool::spool_file;

/// Each whole day takes two percent of a popularity.
const DECAY: f64 = 0.98;
const DAY_SECONDS: i64 = 86_400;
/// Bytes of the member `Larder` of one package at most.
const UNSHOWN_BYTES_MAX: usize = 64 << 10;

/// A dump that is written to a spool file, part by part.
pub(super) struct DumpWriter {
    out: BufWriter<File>,
    path: TempPath,
    directory: PathBuf,
    bytes: u64,
    bytes_max: u64,
    hasher: Sha256,
    record: Vec<u8>,
}

impl DumpWriter {
    /// Begins a dump of at most `bytes_max` in `directory`.
    pub(super) fn create(directory: &Path, bytes_max: u64) -> Result<DumpWriter, SourceError> {
        let directory = directory.to_owned();
        let spool = spool_file(&directory)
            .map_err(|cause| SourceError::Write { path: directory.clone(), cause })?;
        let (file, path) = spool.into_parts();
        let out = BufWriter::with_capacity(256 << 10, file);
        let (hasher, record) = (Sha256::new(), Vec::new());
        Ok(DumpWriter { out, path, directory, bytes: 0, bytes_max, hasher, record })
    }

    /// Writes the packages of `part`, which follow those before.
    pub(super) fn write(&mut self, part: &Catalogue, origin: &str) -> Result<(), SourceError> {
        let mut tails = HashMap::new();
        for package in &part.packages {
            // The foreign key sees to it that there is one.
            let Some(base) = part.bases.get(&package.base) else { continue };
            self.record.clear();
            self.record.extend_from_slice(if self.bytes == 0 { b"[\n" } else { b",\n" });
            write_record(part, package, base, &mut tails, &mut self.record)
                .map_err(|cause| self.unwritten(cause))?;
            self.put()?;
            if self.bytes > self.bytes_max {
                let (origin, bytes_max) = (origin.to_owned(), self.bytes_max);
                return Err(SourceError::TooLarge { origin, bytes_max });
            }
        }
        Ok(())
    }

    /// Ends the dump, with this time, these further names of bases and those of all users; returns it with a digest of all its content.
    pub(super) fn finish(
        mut self,
        now: i64,
        bases: Vec<String>,
        users: String,
        origin: String,
        source_fingerprint: String,
    ) -> Result<(Arrival, String), SourceError> {
        self.record.clear();
        self.record.extend_from_slice(if self.bytes == 0 { b"[\n]" } else { b"\n]" });
        self.put()?;
        // The dump does not have these names, but a change among them counts.
        let mut sorted: Vec<&String> = bases.iter().collect();
        sorted.sort();
        sorted.iter().for_each(|name| self.hasher.update(format!("\n{name}")));
        self.hasher.update(format!("\n\n{users}"));
        let unwritten = |cause| SourceError::Write { path: self.directory.clone(), cause };
        let file = self.out.into_inner().map_err(|error| unwritten(error.into_error()))?;
        let metadata = file.metadata().map_err(unwritten)?;
        let arrival = Arrival {
            origin,
            bytes: self.bytes,
            // The tables do not say when most changes were made.
            modified_at: time(now),
            path: self.path.to_path_buf(),
            file: Arc::new(file),
            stamp: Stamp::of(&metadata),
            source_fingerprint,
            validators: Validators::default(),
            sha256: None,
            kind: ArrivalKind::Spooled(self.path),
            bases,
            users: Some(users.into()),
        };
        Ok((arrival, hex::encode(self.hasher.finalize())))
    }

    fn put(&mut self) -> Result<(), SourceError> {
        self.bytes += self.record.len() as u64;
        self.hasher.update(&self.record);
        self.out.write_all(&self.record).map_err(|cause| self.unwritten(cause))
    }

    fn unwritten(&self, cause: io::Error) -> SourceError {
        SourceError::Write { path: self.directory.clone(), cause }
    }
}

/// A time of the database's clock.
pub(super) fn time(seconds: i64) -> Option<SystemTime> {
    let seconds = Duration::from_secs(u64::try_from(seconds).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(seconds)
}

/// The records of all packages of the catalogue as a dump, in memory: for a catalogue of few.
pub(super) fn records(catalogue: &Catalogue, except: &HashSet<i64>) -> io::Result<Vec<u8>> {
    let mut dump = Vec::new();
    let mut tails = HashMap::new();
    for package in catalogue.packages.iter().filter(|package| !except.contains(&package.base)) {
        let Some(base) = catalogue.bases.get(&package.base) else { continue };
        dump.push(if dump.is_empty() { b'[' } else { b',' });
        write_record(catalogue, package, base, &mut tails, &mut dump)?;
    }
    dump.extend_from_slice(if dump.is_empty() { b"[]" } else { b"]" });
    Ok(dump)
}

/// Writes one record; `tails` has the ends of records that the packages of a base share.
fn write_record(
    catalogue: &Catalogue,
    package: &Package,
    base: &Base,
    tails: &mut HashMap<i64, Vec<u8>>,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    write!(out, "{{\"ID\":{},\"Name\":", package.id)?;
    serde_json::to_writer(&mut *out, &package.name)?;
    write!(out, ",\"PackageBaseID\":{},\"PackageBase\":", package.base)?;
    serde_json::to_writer(&mut *out, &base.name)?;
    for (key, text) in [
        ("Version", Some(&package.version)),
        ("Description", package.description.as_ref()),
        ("URL", package.url.as_ref()),
    ] {
        write!(out, ",\"{key}\":")?;
        serde_json::to_writer(&mut *out, &text)?;
    }
    write!(out, ",\"NumVotes\":{},\"Popularity\":", base.votes)?;
    let popularity = popularity(base.popularity, base.popularity_updated, catalogue.now);
    serde_json::to_writer(&mut *out, &popularity)?;
    out.extend_from_slice(b",\"OutOfDate\":");
    serde_json::to_writer(&mut *out, &base.out_of_date)?;
    for (key, text) in [("Maintainer", &base.maintainer), ("Submitter", &base.submitter)] {
        write!(out, ",\"{key}\":")?;
        serde_json::to_writer(&mut *out, text)?;
    }
    write!(
        out,
        ",\"FirstSubmitted\":{},\"LastModified\":{},\"URLPath\":",
        base.submitted, base.modified
    )?;
    serde_json::to_writer(&mut *out, &format!("/cgit/aur.git/snapshot/{}.tar.gz", package.name))?;
    for (list, key) in (0..).zip(LISTS) {
        write_list(key, &catalogue.package_lists.of(package.id, list), out)?;
    }
    match tails.entry(package.base) {
        Entry::Occupied(tail) => out.extend_from_slice(tail.get()),
        Entry::Vacant(place) => {
            out.extend_from_slice(place.insert(tail(catalogue, package.base)?));
        }
    }
    write_unshown(catalogue, package, base, out)?;
    out.push(b'}');
    Ok(())
}

/// The end of the records that the packages of a base share, after their own lists.
fn tail(catalogue: &Catalogue, base: i64) -> io::Result<Vec<u8>> {
    let mut tail = Vec::new();
    for (list, key) in (0..).zip(BASE_LISTS) {
        write_list(key, &catalogue.base_lists.of(base, list), &mut tail)?;
    }
    let requests = catalogue.requests.get(&base).copied().unwrap_or(0);
    write!(tail, ",\"PendingRequests\":{requests}")?;
    Ok(tail)
}

/// Writes the member `Larder`, in the order that is read fastest.
fn write_unshown(
    catalogue: &Catalogue,
    package: &Package,
    base: &Base,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut architectures: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    let mut descriptions: BTreeMap<&str, &str> = BTreeMap::new();
    for (list, key) in (0..).zip(LISTS) {
        for entry in catalogue.package_lists.entries(package.id, list) {
            if let Some(description) = entry.description.filter(|_| list == OPT_DEPENDS_LIST) {
                descriptions.insert(entry.text, description);
            }
            if !entry.architectures.is_empty() {
                architectures.entry(key).or_default().insert(entry.text, entry.architectures);
            }
        }
    }
    let (start, mut separator) = (out.len(), ",\"Larder\":{");
    if let Some(packager) = &base.packager {
        write!(out, "{separator}\"LastPackager\":")?;
        serde_json::to_writer(&mut *out, packager)?;
        separator = ",";
    }
    if !architectures.is_empty() {
        write!(out, "{separator}\"Architectures\":")?;
        serde_json::to_writer(&mut *out, &architectures)?;
        separator = ",";
    }
    if !descriptions.is_empty() {
        write!(out, "{separator}\"OptDependsDescriptions\":")?;
        serde_json::to_writer(&mut *out, &descriptions)?;
        separator = ",";
    }
    out.extend_from_slice(if separator == "," { &b"}"[..] } else { b",\"Larder\":{}" });
    // An endless list must not make the record too large for readers, so this package has none of these members.
    if out.len() - start > UNSHOWN_BYTES_MAX {
        out.truncate(start);
    }
    Ok(())
}

fn write_list(key: &str, texts: &[&str], out: &mut Vec<u8>) -> io::Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    write!(out, ",\"{key}\":")?;
    serde_json::to_writer(out, texts)?;
    Ok(())
}

/// The popularity that aurweb's interface shows: it decays by whole days, and has six decimal places.
pub(super) fn popularity(stored: f64, updated: i64, now: i64) -> f64 {
    let days = (now - updated) / DAY_SECONDS;
    let decayed = stored * DECAY.powf(days.max(0) as f64);
    format!("{decayed:.6}").parse().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_decays_by_whole_days() {
        const START: i64 = 1_700_000_000;
        for (stored, seconds, expected) in [
            (57.42416, DAY_SECONDS * 10 + DAY_SECONDS / 2, "46.91972"),
            (57.42416, DAY_SECONDS - 1, "57.42416"),
            (1.0, DAY_SECONDS, "0.98"),
            (0.0, DAY_SECONDS * 100, "0.0"),
            (0.000001, 0, "1e-6"),
            (0.00001, 0, "0.00001"),
            (0.000001, DAY_SECONDS * 40, "0.0"),
            (2.5, -5, "2.5"),
        ] {
            let shown = popularity(stored, START, START + seconds);
            assert_eq!(serde_json::to_string(&shown).unwrap(), expected, "{stored} {seconds}");
        }
    }
}
