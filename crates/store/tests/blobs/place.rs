//! A place for blobs that only one test uses: a directory, a bucket of a real S3-type server, or the fake.
//! What is stored can be aged and damaged behind the store's back on each.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use record::Digest;
use store::blobs::{BlobEntry, BlobError, BlobLocation, BlobStore, SweepReport};

use crate::fake_s3::FakeS3;
use testbed::S3;

pub(crate) const CHUNK: usize = 256 * 1024;
pub(crate) const ALL: u64 = u64::MAX;
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The prefix of blobs in tests of buckets.
const PREFIX: &str = "some/prefix";

/// A place, and the store that is open on it.
pub(crate) struct Place {
    pub(crate) store: BlobStore,
    pub(crate) location: BlobLocation,
    pub(crate) settings: Vec<(String, String)>,
    /// The blob directory is `blobs` in it, the spool directory `spool`.
    pub(crate) files: tempfile::TempDir,
    pub(crate) behind: Behind,
}

/// The backend of a place.
pub(crate) enum Behind {
    Directory,
    /// The directory that a real server keeps a bucket in, an object in a file.
    Bucket(PathBuf),
    Fake(FakeS3),
}

impl Place {
    pub(crate) async fn directory() -> Place {
        let files = tempfile::tempdir().expect("a directory");
        let location = BlobLocation::Directory(files.path().join("blobs"));
        Place::open(location, Vec::new(), files, Behind::Directory).await
    }

    /// A bucket of the server that all tests share; if there is none, `None` and a line that says so.
    pub(crate) async fn s3() -> Option<Place> {
        Some(Place::on(S3::shared()?).await)
    }

    /// A bucket of `server`.
    pub(crate) async fn on(server: &S3) -> Place {
        let bucket = server.make_bucket();
        let location = format!("s3://{bucket}/{PREFIX}").parse().expect("a location");
        let files = tempfile::tempdir().expect("a directory");
        let behind = Behind::Bucket(server.path(&bucket));
        Place::open(location, settings(server.variables()), files, behind).await
    }

    pub(crate) async fn fake_s3() -> Place {
        let fake = FakeS3::start();
        let variables = [
            ("AWS_ENDPOINT_URL", fake.endpoint.clone()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_READ_TIMEOUT", "2 seconds".to_owned()),
        ];
        let location = format!("s3://bucket/{PREFIX}").parse().expect("a location");
        let files = tempfile::tempdir().expect("a directory");
        Place::open(location, settings(variables), files, Behind::Fake(fake)).await
    }

    async fn open(
        location: BlobLocation,
        settings: Vec<(String, String)>,
        files: tempfile::TempDir,
        behind: Behind,
    ) -> Place {
        let spool = files.path().join("spool");
        let store = BlobStore::open_with(&location, &spool, settings.clone(), false).await;
        Place { store: store.expect("to open"), location, settings, files, behind }
    }

    /// A store as another process would open it.
    pub(crate) async fn reopen(&self) -> Result<BlobStore, BlobError> {
        let spool = self.files.path().join("spool");
        BlobStore::open_with(&self.location, &spool, self.settings.clone(), false).await
    }

    pub(crate) fn fake(&self) -> &FakeS3 {
        match &self.behind {
            Behind::Fake(fake) => fake,
            Behind::Directory | Behind::Bucket(_) => panic!("a real place"),
        }
    }

    /// [`Place::reopen`] of a place that must be there.
    pub(crate) async fn reopen_existing(&self) -> Result<BlobStore, BlobError> {
        let (spool, settings) = (self.files.path().join("spool"), self.settings.clone());
        BlobStore::open_with(&self.location, &spool, settings, true).await
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.behind, Behind::Directory)
    }

    /// The directory that the place is kept in.
    pub(crate) fn root(&self) -> PathBuf {
        match &self.behind {
            Behind::Directory => self.files.path().join("blobs"),
            Behind::Bucket(path) => path.join(PREFIX),
            Behind::Fake(_) => panic!("a fake has no files"),
        }
    }

    /// Temporary files, objects and unfinished uploads.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut found = files_under(&self.files.path().join("spool"));
        match &self.behind {
            Behind::Directory => found.extend(files_under(&self.root().join("tmp"))),
            Behind::Bucket(path) => {
                let is_left = |file: &String| {
                    let kept = [self.root().join("sha256"), self.root().join("VERSION")];
                    !kept.iter().any(|kept| Path::new(file).starts_with(kept))
                };
                found.extend(files_under(path).into_iter().filter(is_left));
            }
            Behind::Fake(fake) => {
                let is_left = |key: &String| {
                    let name = key.strip_prefix(PREFIX).expect("a key below the prefix");
                    !name.starts_with("/sha256/") && name != "/VERSION"
                };
                found.extend(fake.keys().into_iter().filter(is_left));
                found.extend((0..fake.open_uploads()).map(|_| "an open upload".to_owned()));
            }
        }
        found
    }

    pub(crate) async fn blobs(&self) -> Vec<BlobEntry> {
        let mut blobs: Vec<_> = self.store.list().try_collect().await.expect("a list");
        blobs.sort_by_key(|blob| blob.digest);
        blobs
    }

    /// The file of a blob.
    fn path(&self, digest: Digest) -> PathBuf {
        self.root().join(key(digest))
    }

    /// Makes a blob look as if it was last put that long ago.
    pub(crate) fn age(&self, digest: Digest, age: Duration) {
        let touched_at = SystemTime::now() - age;
        if let Behind::Fake(fake) = &self.behind {
            return fake.set_modified(&format!("{PREFIX}/{}", key(digest)), touched_at);
        }
        let file = std::fs::File::options().write(true).open(self.path(digest)).expect("the blob");
        file.set_modified(touched_at).expect("to set its age");
    }

    /// Replaces a stored blob behind the store's back, or removes it.
    pub(crate) fn damage(&self, digest: Digest, bytes: Option<&[u8]>) {
        if let Behind::Fake(fake) = &self.behind {
            let key = format!("{PREFIX}/{}", key(digest));
            return match bytes {
                Some(bytes) => fake.set(&key, bytes),
                None => fake.remove(&key),
            };
        }
        let path = self.path(digest);
        match bytes {
            Some(bytes) => std::fs::write(path, bytes).expect("to write"),
            None => std::fs::remove_file(path).expect("to remove"),
        }
    }

    pub(crate) async fn sweep(
        &self,
        named: &[Digest],
        grace: Duration,
        is_dry_run: bool,
    ) -> SweepReport {
        let is_named = |digest: &Digest| named.contains(digest);
        let swept = self.store.sweep(is_named, grace, SystemTime::now(), |_| !is_dry_run).await;
        let mut report = swept.expect("to sweep");
        report.unnamed.sort_unstable();
        report
    }
}

/// Variables as a store takes them.
pub(crate) fn settings(
    variables: impl IntoIterator<Item = (&'static str, String)>,
) -> Vec<(String, String)> {
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The path of a blob below its place.
pub(crate) fn key(digest: Digest) -> String {
    let digits = digest.to_string();
    format!("sha256/{}/{}/{digits}", &digits[..2], &digits[2..4])
}

/// All files below a directory.
pub(crate) fn files_under(path: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .flat_map(|path| match path.is_dir() {
            true => files_under(&path),
            false => vec![path.display().to_string()],
        })
        .collect()
}

/// Bytes that differ from place to place and from `seed` to `seed`.
pub(crate) fn sample(seed: u64, size: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&next());
    }
    bytes.truncate(size);
    bytes.into()
}

/// Uploads `bytes` in pieces of `piece` bytes.
pub(crate) async fn upload(
    store: &BlobStore,
    bytes: &Bytes,
    piece: usize,
) -> Result<Digest, BlobError> {
    let mut upload = store.begin(bytes.len() as u64);
    for start in (0..bytes.len()).step_by(piece) {
        upload.write(bytes.slice(start..bytes.len().min(start + piece))).await?;
    }
    let staged = upload.stage().await?;
    assert_eq!(staged.size_bytes, bytes.len() as u64);
    let digest = staged.digest;
    let blob = staged.persist().await?;
    assert_eq!((blob.digest, blob.size_bytes), (digest, bytes.len() as u64));
    Ok(digest)
}
