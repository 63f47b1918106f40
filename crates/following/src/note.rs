//! [`FollowerNote`]: the file in a data directory which says that its records are a copy of a primary's.
//!
//! Whoever opens the store looks for it: a copy that was written to would no longer be one.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::frame::PartialCopy;

/// The name of the file.
pub const FILE_NAME: &str = "follower.json";

/// The only form of the file.
const FORM: u32 = 1;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowerNote {
    v: u32,
    /// The URL that it follows.
    pub url: String,
    /// The name of the store.
    pub identity: String,
    /// The highest serial of the primary that is known.
    pub primary_serial: u64,
    /// When that was heard.
    pub heard_at: Timestamp,
    /// What the copy has, if that is not everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartialCopy>,
    /// Whether a new copy is there, to be put in the place of the records.
    #[serde(default)]
    pub has_new_copy: bool,
}

impl FollowerNote {
    /// A note about a copy of the store `identity`.
    pub fn new(url: &str, identity: &str, primary_serial: u64) -> FollowerNote {
        FollowerNote {
            v: FORM,
            url: url.to_owned(),
            identity: identity.to_owned(),
            primary_serial,
            heard_at: Timestamp::now(),
            part: None,
            has_new_copy: false,
        }
    }

    /// The note about a copy that has this part, or everything.
    #[must_use]
    pub fn of_part(self, part: Option<PartialCopy>) -> FollowerNote {
        FollowerNote { part, ..self }
    }

    /// The note while a new copy is there.
    #[must_use]
    pub(crate) fn with_new_copy(self) -> FollowerNote {
        FollowerNote { has_new_copy: true, ..self }
    }

    /// The note once a new copy is in its place.
    #[must_use]
    pub fn settled(self) -> FollowerNote {
        FollowerNote { has_new_copy: false, ..self }
    }

    /// The note in this data directory; `None` if its records are no copy. Blocks.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(data_dir: &Path) -> anyhow::Result<Option<FollowerNote>> {
        let path = data_dir.join(FILE_NAME);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read `{}`", path.display()))?,
        };
        let note: FollowerNote = serde_json::from_slice(&text)
            .with_context(|| format!("`{}` is not what a follower writes", path.display()))?;
        if note.v != FORM {
            let (path, found) = (path.display(), note.v);
            anyhow::bail!("`{path}` has the form {found}, but {FORM} was expected");
        }
        Ok(Some(note))
    }

    /// Writes it durably. Blocks.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write(&self, data_dir: &Path) -> anyhow::Result<()> {
        let path = data_dir.join(FILE_NAME);
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new().prefix(".follower-").tempfile_in(data_dir)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            writeln!(file)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            std::fs::File::open(data_dir)?.sync_all()
        };
        write().with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// Removes it: from now on the records are no copy. Blocks.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove(data_dir: &Path) -> anyhow::Result<()> {
        let path = data_dir.join(FILE_NAME);
        let remove = || {
            std::fs::remove_file(&path)?;
            std::fs::File::open(data_dir)?.sync_all()
        };
        remove().with_context(|| format!("cannot remove `{}`", path.display()))
    }

    /// Refuses a data directory whose records are a copy of a part: it lacks users, and much else, and cannot `be…`.
    ///
    /// # Errors
    /// If they are, with what to do.
    pub fn refuse_part(data_dir: &Path, be: &str) -> anyhow::Result<()> {
        let Some(note) = FollowerNote::read(data_dir)?.filter(|note| note.part.is_some()) else {
            return Ok(());
        };
        anyhow::bail!(
            "`{}` holds a copy of what one token of {} may read, without users and secrets: it is no whole store, and cannot \
             {be}. Ask the primary, or a follower with a token of an administrator; `larder serve --follow {}` goes on \
             following",
            data_dir.display(),
            note.url,
            note.url
        )
    }

    /// Refuses a data directory whose records are a copy.
    ///
    /// # Errors
    /// If they are, with what to do.
    pub fn refuse(data_dir: &Path) -> anyhow::Result<()> {
        let Some(note) = FollowerNote::read(data_dir)? else { return Ok(()) };
        FollowerNote::refuse_part(data_dir, "be served by itself or changed")?;
        anyhow::bail!(
            "`{}` holds a copy of {}, which nothing but its primary changes. Ask the primary, or make this copy the \
             primary with `larder promote`; `larder serve --follow {}` goes on following",
            data_dir.display(),
            note.url,
            note.url
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path();
        assert_eq!(FollowerNote::read(place).expect("none"), None);
        FollowerNote::refuse(place).expect("no copy");
        let note = FollowerNote::new("https://primary.example.org", "0123456789", 7);
        note.write(place).expect("written");
        assert_eq!(FollowerNote::read(place).expect("one"), Some(note));
        let refusal = FollowerNote::refuse(place).expect_err("a copy").to_string();
        assert_eq!(
            refusal,
            format!(
                "`{}` holds a copy of https://primary.example.org, which nothing but its primary changes. Ask the primary, or make this copy the primary with `larder promote`; `larder serve --follow https://primary.example.org` goes on following",
                place.display()
            )
        );
        FollowerNote::refuse_part(place, "be anything").expect("everything");
        let note = FollowerNote::new("https://primary.example.org", "0123456789", 7);
        let note = note.of_part(Some(PartialCopy { has_open_articles: false }));
        note.write(place).expect("written");
        assert_eq!(FollowerNote::read(place).expect("one"), Some(note));
        let refusal = FollowerNote::refuse(place).expect_err("a copy").to_string();
        assert_eq!(
            refusal,
            format!(
                "`{}` holds a copy of what one token of https://primary.example.org may read, without users and secrets: it is no whole store, and cannot be served by itself or changed. Ask the primary, or a follower with a token of an administrator; `larder serve --follow https://primary.example.org` goes on following",
                place.display()
            )
        );
        FollowerNote::remove(place).expect("removed");
        FollowerNote::refuse(place).expect("no copy");
        std::fs::write(place.join(FILE_NAME), "{}").expect("a file");
        assert!(FollowerNote::refuse(place).is_err());
    }
}
