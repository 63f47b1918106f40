//! Stores to damage: two data directories, the damage done to a file or directory, and what must hold of articles after it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use record::Digest;
use tempfile::TempDir;

use crate::asking::each;
use crate::client::Client;
use crate::process::{Done, Process, larder};
use crate::server::ROOT_PASSWORD;
use crate::store::{article_request, try_exchange};
use crate::wait_until;

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

/// A directory with a store in `data`, another one in `other`, and `files` copies of the first.
pub(super) struct Stores {
    pub(super) directory: Arc<TempDir>,
}

impl Stores {
    pub(super) fn new() -> Stores {
        let stores = Stores { directory: Arc::new(tempfile::tempdir().expect("a directory")) };
        for (data, first) in [("data", 0), ("other", 100)] {
            let init = ["init", "--data-dir", data, "--root-password", ROOT_PASSWORD];
            stores.run(&init).check(0, "");
            let mut process = stores.start(data);
            for number in first..first + ARTICLES {
                assert_eq!(write(&process.client, number), 201);
            }
            process.stop();
        }
        stores
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A copy of `data` of another name.
    pub(super) fn copy(&self, name: &str) -> PathBuf {
        copy(&self.path("data"), &self.path(name));
        self.path(name)
    }

    pub(super) fn start(&self, data: &str) -> Process {
        Process::start_in(self.directory.clone(), data, &["--aur-enabled=false"])
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(larder(self.directory.path()).args(arguments), "")
    }

    /// Starts a server that must refuse to.
    #[track_caller]
    pub(super) fn refused(&self, data: &str) -> Done {
        let arguments =
            ["serve", "--data-dir", data, "--aur-enabled=false", "--listen", "127.0.0.1:0"];
        let mut child = larder(self.directory.path());
        child.args(arguments).stdout(std::process::Stdio::piped());
        let mut child = child.stderr(std::process::Stdio::piped()).spawn().expect("it starts");
        wait_until("the start to be refused", || child.try_wait().expect("a child").is_some());
        let done = Done::from(child.wait_with_output().expect("it has ended"));
        done.check(1, "");
        done
    }

    #[track_caller]
    pub(super) fn check_unswept(&self, data: &str, what: &str, refused: &[u32]) {
        let sweep = ["sweep", "--data-dir", data, "--force", "--grace", "0"];
        check_unswept(&self.path(data), what, refused, || self.run(&sweep));
    }
}

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
    try_exchange(client, &request).expect("an answer").0
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
    let overwrite = |bytes: &[u8]| {
        let file = fs::File::options().write(true).open(path).expect("a file");
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).expect("a write");
    };
    let size = fs::metadata(path).expect("it is there").len();
    match (harm, path.is_dir()) {
        (Deleted, true) => fs::remove_dir_all(path).expect("removed"),
        (Deleted, false) => fs::remove_file(path).expect("removed"),
        (Emptied, true) => {
            fs::remove_dir_all(path).expect("removed");
            fs::create_dir(path).expect("made");
        }
        (Emptied, false) => {
            fs::File::options().write(true).open(path).expect("a file").set_len(0).expect("cut")
        }
        (Halved, _) => fs::File::options()
            .write(true)
            .open(path)
            .expect("a file")
            .set_len(size / 2)
            .expect("cut"),
        (Garbage, _) => overwrite(&vec![b'#'; size as usize]),
        (StrangerInPlace, _) => {
            let bytes = fs::read(stranger).expect("another store's");
            fs::File::options()
                .write(true)
                .open(path)
                .expect("a file")
                .set_len(bytes.len() as u64)
                .expect("cut");
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
