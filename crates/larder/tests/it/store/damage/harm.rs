//! Stores to damage: two data directories, the damage done to a file or directory, and what must hold of articles after it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use record::Digest;
use tempfile::TempDir;
use testbed::S3;

use crate::asking::each;
use crate::client::Client;
use crate::process::{Done, Process, larder};
use crate::server::ROOT_PASSWORD;
use crate::store::article_request;

/// Damage to a file or directory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Harm {
    Deleted,
    Emptied,
    /// Cut to half its size, in place.
    Halved,
    /// Overwritten in place, with as many bytes.
    Garbage,
    /// Renamed away, and what another store has is put there.
    Stranger,
    /// Another store's content is written into it, in place.
    StrangerInPlace,
    Away,
}
use Harm::{Away, Deleted, Emptied, Garbage, Halved, Stranger, StrangerInPlace};

pub(super) const ARTICLES: u32 = 8;

pub(super) fn body(number: u32) -> String {
    format!("article {number}\n").repeat(40)
}

/// A directory with a store in `data`, another one in `other`, and copies of the first. The blobs are in each store's directory,
/// or in a bucket, at a prefix of its name.
pub(super) struct Stores {
    pub(super) directory: Arc<TempDir>,
    bucket: Option<(&'static S3, String)>,
}

impl Stores {
    pub(super) fn new() -> Stores {
        Stores::filled(None)
    }

    /// None, and a line that says so, where there is no object store.
    pub(super) fn in_bucket() -> Option<Stores> {
        let s3 = S3::shared()?;
        Some(Stores::filled(Some((s3, s3.make_bucket()))))
    }

    fn filled(bucket: Option<(&'static S3, String)>) -> Stores {
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        let stores = Stores { directory, bucket };
        for (data, first) in [("data", 0), ("other", 100)] {
            stores.run_on(data, &["init", "--root-password", ROOT_PASSWORD]).check(0, "");
            let mut process = stores.start(data);
            for number in first..first + ARTICLES {
                assert_eq!(write(&process.client, number), 201, "{}", process.log());
            }
            process.stop();
        }
        stores
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What is damaged of a store: its directory, or the one in which the gateway keeps the objects of its prefix.
    pub(super) fn root(&self, data: &str) -> PathBuf {
        match &self.bucket {
            Some((s3, bucket)) => s3.path(bucket).join(data),
            None => self.path(data),
        }
    }

    /// A copy of `data` of another name.
    pub(super) fn copy(&self, name: &str) -> PathBuf {
        copy(&self.path("data"), &self.path(name));
        if self.bucket.is_some() {
            copy(&self.root("data"), &self.root(name));
        }
        self.root(name)
    }

    pub(super) fn remove(&self, data: &str) {
        fs::remove_dir_all(self.path(data)).expect("it is ours");
        // The prefix may be gone already.
        let _ = fs::remove_dir_all(self.root(data));
        let _ = fs::remove_dir_all(aside(&self.root(data)));
    }

    /// The arguments that name the blobs of a store.
    fn blobs(&self, data: &str) -> Vec<String> {
        let location = self.bucket.iter().map(|(_, bucket)| format!("s3://{bucket}/{data}"));
        location.flat_map(|location| ["--blobs".to_owned(), location]).collect()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        self.bucket.iter().flat_map(|(s3, _)| s3.variables()).collect()
    }

    pub(super) fn start(&self, data: &str) -> Process {
        let blobs = self.blobs(data);
        let blobs = blobs.iter().map(String::as_str);
        let arguments: Vec<&str> = ["--aur-enabled=false"].into_iter().chain(blobs).collect();
        Process::start_with(self.directory.clone(), data, &arguments, &self.variables())
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Done {
        let mut child = larder(self.directory.path());
        Done::of(child.args(arguments).envs(self.variables()), "")
    }

    pub(super) fn run_on(&self, data: &str, command: &[&str]) -> Done {
        let mut child = larder(self.directory.path());
        child.args(command).args(["--data-dir", data]).args(self.blobs(data));
        Done::of(child.envs(self.variables()), "")
    }

    /// Starts a server that must refuse to.
    #[track_caller]
    pub(super) fn refused(&self, data: &str) -> Done {
        let mut child = larder(self.directory.path());
        child.args(SERVE).args(["--data-dir", data]).args(self.blobs(data));
        Done::in_time(child.envs(self.variables()))
    }

    #[track_caller]
    pub(super) fn check_unswept(&self, data: &str, what: &str, refused: &[u32]) {
        let sweep = ["sweep", "--force", "--grace", "0"];
        check_unswept(&self.root(data), what, refused, || self.run_on(data, &sweep));
    }
}

/// A command that must not go on.
pub(super) const SERVE: [&str; 4] = ["serve", "--aur-enabled=false", "--listen", "127.0.0.1:0"];

/// Checks that this sweep, even a forced one, deletes no blobs below `place` but those of refused writes.
#[track_caller]
pub(super) fn check_unswept(
    place: &Path,
    what: &str,
    refused: &[u32],
    sweep: impl FnOnce() -> Done,
) {
    let refused: Vec<String> = refused.iter().map(|number| object(*number)).collect();
    let left = || {
        let mut found = blobs(place);
        found.retain(|path| !refused.iter().any(|refused| path.ends_with(refused)));
        found
    };
    let before = left();
    let done = sweep();
    assert_eq!(left(), before, "{what}: {done:?}");
}

/// A path, the damage that is done to it, one after the other, and the outcome.
pub(super) type Case<'path, Outcome> = (&'path str, &'path [Harm], Outcome);

/// Tries each damage of each case, under a number of its own, and fails at the end with all that is wrong.
#[track_caller]
pub(super) fn each_harm<Outcome: Copy>(
    cases: &[Case<'_, Outcome>],
    check: impl Fn(u32, &str, Harm, Outcome),
) {
    let rows = cases
        .iter()
        .flat_map(|(path, harms, outcome)| harms.iter().map(move |harm| (*path, *harm, *outcome)));
    each((0..).zip(rows), |(number, (path, harm, outcome))| check(number, path, harm, outcome));
}

pub(super) fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.expect("it runs").success());
}

pub(super) fn write(client: &Client, number: u32) -> u16 {
    let request = article_request(&format!("a/{number}-x"), 0, body(number).as_bytes());
    client.exchange(&request, false).status
}

/// The files of blobs below a directory, wherever they are now.
pub(super) fn blobs(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else { return found };
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(blobs(&path));
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && name.parse::<Digest>().is_ok()
        {
            found.push(path.display().to_string());
        }
    }
    found.sort();
    found
}

/// The file of the blob of an article.
pub(super) fn blob(number: u32) -> String {
    format!("blobs/{}", object(number))
}

/// The place of the blob of an article among the others.
pub(super) fn object(number: u32) -> String {
    let digits = Digest::of(body(number).as_bytes()).to_string();
    format!("sha256/{}/{}/{digits}", &digits[..2], &digits[2..4])
}

pub(super) fn aside(path: &Path) -> PathBuf {
    path.with_file_name("aside")
}

pub(super) fn harm(path: &Path, stranger: &Path, harm: Harm) {
    let open = || fs::File::options().write(true).open(path).expect("a file");
    let overwrite = |bytes: &[u8]| {
        std::os::unix::fs::FileExt::write_all_at(&open(), bytes, 0).expect("a write");
    };
    let size = fs::metadata(path).expect("it is there").len();
    match (harm, path.is_dir()) {
        (Deleted, true) => fs::remove_dir_all(path).expect("removed"),
        (Deleted, false) => fs::remove_file(path).expect("removed"),
        (Emptied, true) => {
            fs::remove_dir_all(path).expect("removed");
            fs::create_dir(path).expect("made");
        }
        (Emptied, false) => open().set_len(0).expect("cut"),
        (Halved, _) => open().set_len(size / 2).expect("cut"),
        (Garbage, _) => overwrite(&vec![b'#'; size as usize]),
        (StrangerInPlace, _) => {
            let bytes = fs::read(stranger).expect("another store's");
            open().set_len(bytes.len() as u64).expect("cut");
            overwrite(&bytes);
        }
        (Away, _) => fs::rename(path, aside(path)).expect("renamed"),
        (Stranger, _) => {
            fs::rename(path, aside(path)).expect("renamed");
            copy(stranger, path);
        }
    }
}

/// Checks that each article is unchanged or unavailable, but never different or deleted.
#[track_caller]
pub(super) fn check_articles(
    client: &Client,
    acknowledged: &[u32],
    what: &str,
    may_fail: impl Fn(u32) -> bool,
) {
    for &number in acknowledged {
        let response = client.get(&format!("/article/a/{number}-x"));
        match response.status {
            200 => assert_eq!(response.text(), body(number), "{what}: article {number}"),
            500 | 503 if may_fail(number) => {}
            status => panic!("{what}: article {number}: {status} {}", response.text()),
        }
    }
}
