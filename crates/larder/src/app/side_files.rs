//! Files of the data directory that are not the record, and what of them was of no use.
//!
//! [`look`], before anything is opened -> whatever [`state::side_files`] finds of another kind than it should be, or unreadable, is
//! renamed, so that it is made anew as if it had been missing -> [`SideFiles`], which `/readyz?verbose` and `/status` show until the
//! next start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use config::Config;
use state::side_files::{self, ASIDE, UnusableFile};

/// Most files that are set aside from one place: after that, an administrator has to look.
const ASIDE_MAX: u32 = 9;

/// What was of no use, for people who look.
#[derive(Debug, Default)]
pub(crate) struct SideFiles(Mutex<Vec<Flaw>>);

/// A file or directory that was of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// What is kept there.
    pub(crate) what: &'static str,
    /// What was wrong, and what was done.
    pub(crate) text: String,
}

impl SideFiles {
    pub(crate) fn new(flaws: Vec<Flaw>) -> SideFiles {
        SideFiles(Mutex::new(flaws))
    }

    /// Notes and logs a flaw.
    pub(crate) fn note(&self, what: &'static str, text: String) {
        let flaw = Flaw::logged(what, text);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(flaw);
    }

    /// Every flaw since the start.
    pub(crate) fn flaws(&self) -> Vec<Flaw> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Flaw {
    fn logged(what: &'static str, text: String) -> Flaw {
        tracing::error!("{what}: {text}");
        Flaw { what, text }
    }
}

/// Sets aside whatever cannot be what it should be. Blocks.
pub(crate) fn look(config: &Config) -> Vec<Flaw> {
    let unfit = side_files::unfit(config);
    unfit
        .iter()
        .map(|UnusableFile { what, path, flaw }| Flaw::logged(what, put_aside(path, flaw)))
        .collect()
}

/// Sets a file aside because of this flaw; says so.
fn put_aside(path: &Path, flaw: &str) -> String {
    let shown = path.display();
    match set_aside(path) {
        Ok(aside) => {
            format!(
                "`{shown}` is of no use ({flaw}): it is now `{}`, and is begun anew",
                aside.display()
            )
        }
        Err(error) => format!("`{shown}` is of no use ({flaw}), and cannot be set aside: {error}"),
    }
}

/// Renames a file or directory, so that its place is free. Blocks.
///
/// # Errors
/// Those of renaming; if [`ASIDE_MAX`] are there already.
pub(crate) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 1 { ASIDE.to_owned() } else { format!("{ASIDE}-{number}") });
        PathBuf::from(name)
    };
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    let aside = (1..=ASIDE_MAX).map(aside).find(is_free).ok_or_else(|| {
        io::Error::other(format!("{ASIDE_MAX} are there already: look at them, and remove them"))
    })?;
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Sets a database of SQLite aside, and says what was done. Its log goes with it: with another file it would be damage.
pub(crate) async fn set_aside_database(paths: [PathBuf; 3]) -> String {
    let moving = move || {
        let there = paths.iter().filter(|path| fs::symlink_metadata(path).is_ok());
        there.map(|path| set_aside(path)).collect::<io::Result<Vec<_>>>()
    };
    let moved = tokio::task::spawn_blocking(moving).await;
    match moved.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(_) => "it is set aside (`….set-aside`), and begins anew".to_owned(),
        Err(error) => format!("it cannot be set aside: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use state::side_files::DIRECTORIES;

    use super::*;

    fn config(data_dir: &Path) -> Config {
        Config { data_dir: data_dir.to_owned(), ..Config::default() }
    }

    /// Whatever is in a file's place, nothing waits for it, it is named, and its place is free afterwards.
    #[test]
    fn what_is_of_another_kind_is_set_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in [
            "aur-history.db",
            "aur-history.db-wal",
            "records.db.downloads",
            "records.db.downloads-wal",
            "aur/source.json",
            "aur/deltas/chain.json",
            "osv/bundle.zip",
            "audit/00000000000000000001.jsonl",
            "webhooks/x.position",
            "aur/deltas",
            "osv",
            "audit",
            "webhooks",
            "mirrors",
        ] {
            let path = directory.path().join(name);
            let parent = path.parent().expect("one");
            let is_directory = DIRECTORIES.iter().any(|(known, _)| *known == name);
            for kind in ["a directory", "a pipe", "a loop", "a file"] {
                fs::create_dir_all(parent).expect("a directory");
                _ = fs::remove_dir_all(&path);
                match kind {
                    "a directory" if is_directory => continue,
                    "a file" if !is_directory => continue,
                    "a directory" => fs::create_dir_all(path.join("full")).expect("a directory"),
                    "a pipe" => {
                        assert!(
                            Command::new("mkfifo").arg(&path).status().expect("mkfifo").success()
                        );
                    }
                    "a loop" => symlink(&path, &path).expect("a link"),
                    _ => fs::write(&path, "x").expect("a file"),
                }
                let flaws = look(&config(directory.path()));
                assert_eq!(flaws.len(), 1, "{name}, {kind}: {flaws:?}");
                assert!(flaws[0].text.contains(name), "{name}, {kind}: {flaws:?}");
                assert!(fs::symlink_metadata(&path).is_err(), "{name}, {kind}");
                assert_eq!(look(&config(directory.path())), [], "{name}, {kind}");
                let aside = PathBuf::from(format!("{}{ASIDE}", path.display()));
                let removed = fs::remove_file(&aside).or_else(|_| fs::remove_dir_all(&aside));
                removed.expect("it is there");
            }
        }
    }

    #[test]
    fn what_is_in_order_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["aur/deltas", "osv", "audit", "webhooks", "mirrors/ab"] {
            fs::create_dir_all(directory.path().join(name)).expect("a directory");
        }
        for name in ["aur-history.db", "aur/deltas/chain.json", "audit/1.jsonl"] {
            fs::write(directory.path().join(name), "damaged").expect("a file");
        }
        assert_eq!(look(&config(directory.path())), []);
    }
}
