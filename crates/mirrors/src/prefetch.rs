//! Requests the files of a lock from an index ahead of time, so that the mirrors behind it keep them.
//!
//! [`LockedRelease`] -> the index's files of the project -> the files that the lock means, read to their end and compared with their
//! digests. Nothing is written here. The caller knows how to ask an index: [`Index`].

use std::collections::BTreeSet;
use std::future::Future;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use md5::Md5;
use pypi::lock::{ALGORITHMS, Files, LockedRelease};
use pypi::{Filename, ProjectName, Version};
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha384, Sha512};

/// The bytes of a file, as they come; or why they end early.
pub type FileStream = BoxStream<'static, Result<Bytes, String>>;

/// An index that is asked for files.
pub trait Index: Sync {
    /// The index's files of this project.
    fn offered(
        &self,
        project: &ProjectName,
    ) -> impl Future<Output = Result<Vec<IndexFile>, String>> + Send;

    /// The bytes of a file that it has offered.
    fn open(&self, file: &IndexFile) -> impl Future<Output = Result<FileStream, String>> + Send;
}

/// A file that an index has.
#[derive(Clone, Debug)]
pub struct IndexFile {
    /// Its name.
    pub name: String,
    /// Its URL at the index.
    pub url: String,
    /// Its digests that can be compared, as `name:digits` in lower case.
    pub digests: BTreeSet<String>,
}

impl IndexFile {
    /// A file with these digests, each as algorithm and digits; those that cannot be compared are left out.
    pub fn new<'digests>(
        name: &str,
        url: String,
        digests: impl Iterator<Item = (&'digests str, &'digests str)>,
    ) -> IndexFile {
        let digests = digests
            .filter(|(kind, _)| ALGORITHMS.contains(kind))
            .map(|(kind, digits)| format!("{kind}:{}", digits.to_ascii_lowercase()));
        IndexFile { name: name.to_owned(), url, digests: digests.collect() }
    }

    /// Whether the file may have one of these digests, by what the index says.
    fn may_have_one_of(&self, expected: &BTreeSet<String>) -> bool {
        let kind = |digest: &str| digest.split(':').next().map(str::to_owned);
        let is_possible = |wanted: &String| {
            self.digests.contains(wanted)
                || !self.digests.iter().any(|own| kind(own) == kind(wanted))
        };
        expected.is_empty() || expected.iter().any(is_possible)
    }
}

/// Counts of fetched files.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchCounts {
    /// Files.
    pub files: u64,
    /// Their sizes together, in bytes.
    pub bytes: u64,
    /// Files without a digest, in the lock and at the index.
    pub uncompared: u64,
}

impl std::ops::AddAssign for FetchCounts {
    fn add_assign(&mut self, other: FetchCounts) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.uncompared += other.uncompared;
    }
}

/// Fetches the files of one release; returns what was fetched, and a line for each file that was not.
pub async fn fetch(index: &impl Index, wanted: &LockedRelease) -> (FetchCounts, Vec<String>) {
    let mut fetched = FetchCounts::default();
    let problems = match index.offered(&wanted.project).await {
        Ok(offered) => files_of(index, wanted, &offered, &mut fetched).await,
        Err(problem) => vec![problem],
    };
    let told = |problem: String| format!("{} {}: {problem}", wanted.project, wanted.version);
    (fetched, problems.into_iter().map(told).collect())
}

async fn files_of(
    index: &impl Index,
    wanted: &LockedRelease,
    offered: &[IndexFile],
    fetched: &mut FetchCounts,
) -> Vec<String> {
    let mut problems = Vec::new();
    // Digests or names in the lock without a file so far.
    let mut missing: BTreeSet<String> = match &wanted.files {
        Files::All => BTreeSet::new(),
        Files::Digests(digests) => digests.clone(),
        Files::Named(named) => named.keys().cloned().collect(),
    };
    let (mut found, nothing) = (0, BTreeSet::new());
    for file in offered {
        let expected = match &wanted.files {
            Files::All if is_of(&file.name, &wanted.project, &wanted.version) => &nothing,
            // A page need not name the digest that the lock has; the bytes have every one.
            Files::Digests(digests)
                if !file.digests.is_disjoint(digests)
                    || is_of(&file.name, &wanted.project, &wanted.version)
                        && file.may_have_one_of(digests) =>
            {
                digests
            }
            Files::Named(named) => match named.get(&file.name) {
                Some(digests) => digests,
                None => continue,
            },
            _ => continue,
        };
        missing.remove(&file.name);
        found += 1;
        if !file.may_have_one_of(expected) {
            problems.push(format!(
                "{} has {}, which is not the lock's",
                file.name,
                joined(&file.digests)
            ));
            continue;
        }
        let read = read(index, file, expected).await;
        match (read, &wanted.files) {
            (Ok((bytes, has)), _) => {
                missing.retain(|digest| !has.contains(digest));
                let is_uncompared = expected.is_empty() && file.digests.is_empty();
                *fetched += FetchCounts { files: 1, bytes, uncompared: is_uncompared.into() };
            }
            // Another file of the release, as the lock sees it.
            (Err(FetchError::Other { .. }), Files::Digests(_)) => {}
            (Err(error), _) => {
                // The file exists; why it did not come is reported separately.
                missing.retain(|digest| !file.digests.contains(digest));
                problems.push(format!("{}: {error}", file.name));
            }
        }
    }
    if !missing.is_empty() {
        let what = match wanted.files {
            Files::Digests(_) => "a file of it with ",
            _ => "",
        };
        problems.push(format!("the index does not have {what}{}", joined(&missing)));
    }
    if found == 0 && missing.is_empty() {
        problems.push("the index has no file of it".to_owned());
    }
    problems
}

/// Reads a file to its end: its size in bytes, and its digests of all kinds that the index and `expected` have.
///
/// # Errors
/// [`FetchError`]; the index's digests and one of the expected ones have to be right.
async fn read(
    index: &impl Index,
    file: &IndexFile,
    expected: &BTreeSet<String>,
) -> Result<(u64, BTreeSet<String>), FetchError> {
    let mut pieces = index.open(file).await.map_err(FetchError::DownloadError)?;
    let kinds = ALGORITHMS.into_iter().filter(|kind| {
        let is_of_kind = |digest: &String| digest.split(':').next() == Some(*kind);
        file.digests.iter().chain(expected).any(is_of_kind)
    });
    let mut hashers: Vec<(&str, Box<dyn DynDigest + Send>)> =
        kinds.map(|kind| (kind, hasher(kind))).collect();
    let mut bytes = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(FetchError::DownloadError)?;
        for (_, hasher) in &mut hashers {
            hasher.update(&piece);
        }
        bytes += piece.len() as u64;
    }
    let digest = |(kind, hasher): (&str, Box<dyn DynDigest + Send>)| {
        format!("{kind}:{}", hex::encode(hasher.finalize()))
    };
    let found: BTreeSet<String> = hashers.into_iter().map(digest).collect();
    if !file.digests.is_subset(&found) {
        let expected = joined(&file.digests);
        return Err(FetchError::Wrong { found: joined(&found), expected });
    }
    if !expected.is_empty() && expected.is_disjoint(&found) {
        let expected = joined(expected);
        return Err(FetchError::Other { found: joined(&found), expected });
    }
    Ok((bytes, found))
}

/// Why a file was not fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    DownloadError(String),
    /// The bytes do not have the index's digest.
    #[error("it has {found}; the index says {expected}")]
    Wrong { found: String, expected: String },
    /// The bytes do not have the lock's digest.
    #[error("it has {found}; {expected} was expected")]
    Other { found: String, expected: String },
}

fn hasher(kind: &str) -> Box<dyn DynDigest + Send> {
    match kind {
        "sha256" => Box::new(Sha256::default()),
        "sha384" => Box::new(Sha384::default()),
        "sha512" => Box::new(Sha512::default()),
        _ => Box::new(Md5::default()),
    }
}

fn joined(words: &BTreeSet<String>) -> String {
    words.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn is_of(filename: &str, project: &ProjectName, version: &Version) -> bool {
    let Ok(filename) = Filename::of_upstream(filename) else { return false };
    let parts = filename.split(Some(project));
    parts.and_then(|parts| parts.version).is_some_and(|found| found.is_same_release(version))
}
