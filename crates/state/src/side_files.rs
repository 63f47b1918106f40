//! Files of the data directory that are not the record: which of them are of no use.
//!
//! a configuration -> [`unfit`] -> whatever has another kind than it should, or cannot be read. Opening a pipe would wait for a
//! writer without end; a directory in a file's place would fail each time. A start of the server sets them aside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use config::Config;
use store::{DatabaseLocation, Downloads};

/// Added to the name of what is set aside.
pub const ASIDE: &str = ".set-aside";

/// The database of the AUR's history, in the data directory.
pub const AUR_HISTORY: &str = "aur-history.db";

/// The files of that database.
pub const AUR_HISTORY_FILES: [&str; 3] = [AUR_HISTORY, "aur-history.db-wal", "aur-history.db-shm"];

/// What is in these files, for people.
pub const AUR_HISTORY_WHAT: &str = "the history of the AUR's packages";

/// What is in the file of the counts of downloads, for people.
pub const DOWNLOADS_WHAT: &str = "the counts of downloads";

/// A database of SQLite, and the files that it has beside it.
pub fn of_sqlite(file: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| {
        let mut path = file.as_os_str().to_owned();
        path.push(end);
        path.into()
    })
}

/// Directories in the data directory with files of the server.
pub const DIRECTORIES: [(&str, &str); 6] = [
    ("aur", "the kept dump of the AUR"),
    ("aur/deltas", "the deltas of the AUR's dumps"),
    ("osv", "the OSV records"),
    ("audit", "the audit log"),
    ("webhooks", "the positions of webhooks"),
    ("mirrors", "the mirrors' cache"),
];

/// A file or a directory that is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableFile {
    /// What should be kept there.
    pub what: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong.
    pub flaw: String,
}

/// Finds whatever cannot be what it should be; changes nothing. Blocks.
pub fn unfit(config: &Config) -> Vec<UnusableFile> {
    let data_dir = &config.data_dir;
    let mut unfit: Vec<UnusableFile> = Vec::new();
    let mut take = |what, path: PathBuf, flaw: fn(&Path) -> Option<String>| {
        let is_below = unfit.iter().any(|other| path.starts_with(&other.path));
        if !is_below && let Some(flaw) = flaw(&path) {
            unfit.push(UnusableFile { what, path, flaw });
        }
    };
    for name in AUR_HISTORY_FILES {
        take(AUR_HISTORY_WHAT, data_dir.join(name), flaw_of_file);
    }
    if let DatabaseLocation::Sqlite(records) = config.database() {
        for path in of_sqlite(&Downloads::file_beside(&records)) {
            take(DOWNLOADS_WHAT, path, flaw_of_file);
        }
    }
    for (name, what) in DIRECTORIES {
        let path = data_dir.join(name);
        take(what, path.clone(), flaw_of_directory);
        if name == "mirrors" {
            // There may be millions of files, and each is looked at when it is opened.
            continue;
        }
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_directory = DIRECTORIES.iter().any(|(name, _)| path == data_dir.join(name));
            let is_aside = entry.file_name().to_string_lossy().contains(ASIDE);
            // Without a source, the packages are in the kept dump alone: the server is not ready, and says why.
            let is_only_dump =
                config.aur.source.is_none() && path == source::KeptDump::path_in(data_dir);
            if !is_directory && !is_aside && !is_only_dump {
                take(what, path, flaw_of_file);
            }
        }
    }
    unfit
}

/// Why this cannot be read as a file, if it is there.
fn flaw_of_file(path: &Path) -> Option<String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(error.to_string()),
        Ok(found) if !found.is_file() => {
            let found =
                if found.is_dir() { "a directory" } else { "neither a file nor a directory" };
            Some(format!("it is {found}, and a file was expected"))
        }
        Ok(_) => fs::File::open(path).err().map(|error| error.to_string()),
    }
}

/// Why this cannot be read as a directory, if it is there.
fn flaw_of_directory(path: &Path) -> Option<String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(error.to_string()),
        Ok(found) if !found.is_dir() => Some("it is no directory, and one was expected".to_owned()),
        Ok(_) => fs::read_dir(path).err().map(|error| error.to_string()),
    }
}
