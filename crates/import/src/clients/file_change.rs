//! [`Change`]: the change to one file, which is shown before it is written, and how to undo it.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::shown;

/// Shown in place of a password.
const MASK: &str = "********";

/// Most backups of one file.
const BACKUPS_MAX: u32 = 1000;

/// The change to one file.
#[derive(Clone, PartialEq, Eq)]
pub struct Change {
    path: PathBuf,
    /// The present text; `None` if the file does not exist.
    before: Option<String>,
    pub(super) after: String,
    /// Texts that must not be shown.
    pub(super) secrets: Vec<String>,
    /// A remark about something else in the file.
    pub(super) note: Option<String>,
}

/// How to undo a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Move the backup over the file.
    Restore {
        /// The path of the file.
        path: PathBuf,
        /// The path of the backup.
        backup: PathBuf,
    },
    /// Remove the file.
    Remove(PathBuf),
}

impl std::fmt::Display for Undo {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Undo::Restore { path, backup } => {
                write!(formatter, "mv '{}' '{}'", shown(backup), shown(path))
            }
            Undo::Remove(path) => write!(formatter, "rm '{}'", shown(path)),
        }
    }
}

impl Change {
    /// The change that `edit` makes to the file at `path`; a file that does not exist counts as an empty text.
    ///
    /// # Errors
    /// If the file cannot be read, or if `edit` refuses it.
    pub(super) fn new(
        path: PathBuf,
        secrets: Vec<String>,
        edit: &dyn Fn(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<Change> {
        // If the path is a link, the file that it points to is changed.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let before = match fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("`{}` cannot be read", shown(&path)));
            }
        };
        let after = edit(before.as_deref().unwrap_or_default())
            .with_context(|| format!("`{}` cannot be changed", shown(&path)))?;
        Ok(Change { path, before, after, secrets, note: None })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The present text; an empty one if the file does not exist.
    pub(super) fn before(&self) -> &str {
        self.before.as_deref().unwrap_or_default()
    }

    /// A remark about something else in the file, which stays.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether anything changes, even if only the permissions.
    pub fn is_needed(&self) -> bool {
        let is_open =
            || fs::metadata(&self.path).is_ok_and(|it| it.permissions().mode() & 0o77 != 0);
        self.before.as_deref() != Some(self.after.as_str()) || (self.is_secret() && is_open())
    }

    /// Whether the file contains a password.
    fn is_secret(&self) -> bool {
        self.secrets.iter().any(|secret| self.after.contains(secret.as_str()))
    }

    /// The removed and added lines, without passwords.
    pub fn shown(&self) -> String {
        let before: Vec<&str> = self.before().lines().collect();
        let after: Vec<&str> = self.after.lines().collect();
        let mut text = format!("{}:\n", shown(&self.path));
        for (sign, line) in difference(&before, &after) {
            let line = self
                .secrets
                .iter()
                .fold(line.to_owned(), |line, secret| line.replace(secret.as_str(), MASK));
            let _ = writeln!(text, "  {sign} {}", without_password(&line));
        }
        text
    }

    /// Writes the file, after making a backup beside it.
    ///
    /// # Errors
    /// If the file or its backup cannot be written; the file then stays as it was.
    pub fn write(&self) -> anyhow::Result<Undo> {
        let unwritable = || format!("`{}` cannot be written", shown(&self.path));
        let directory = self.path.parent().context("it has no directory")?;
        fs::create_dir_all(directory).with_context(unwritable)?;
        let mode = match fs::metadata(&self.path) {
            Ok(metadata) => metadata.permissions().mode() & 0o777,
            Err(_) => 0o644,
        };
        let undo = match &self.before {
            Some(before) => {
                let backup = free_backup(&self.path)?;
                let mut file = File::create_new(&backup).with_context(unwritable)?;
                // Users who could not read the file cannot read the backup either.
                file.set_permissions(Permissions::from_mode(mode & 0o600))
                    .with_context(unwritable)?;
                file.write_all(before.as_bytes()).with_context(unwritable)?;
                Undo::Restore { path: self.path.clone(), backup }
            }
            None => Undo::Remove(self.path.clone()),
        };
        // A new file that only its owner may read replaces the old one, so nobody reads an incomplete file.
        let mut file = tempfile::NamedTempFile::new_in(directory).with_context(unwritable)?;
        file.write_all(self.after.as_bytes()).with_context(unwritable)?;
        let mode = if self.is_secret() { 0o600 } else { mode };
        file.as_file().set_permissions(Permissions::from_mode(mode)).with_context(unwritable)?;
        file.as_file().sync_all().with_context(unwritable)?;
        file.persist(&self.path).map_err(|error| error.error).with_context(unwritable)?;
        Ok(undo)
    }
}

/// A free name for the backup.
fn free_backup(path: &Path) -> anyhow::Result<PathBuf> {
    let name = path.file_name().context("it has no name")?;
    for number in 0..BACKUPS_MAX {
        let mut backup = name.to_owned();
        backup.push(".bak");
        if number > 0 {
            backup.push(format!(".{number}"));
        }
        let backup = path.with_file_name(backup);
        // A dangling link takes the name too.
        if fs::symlink_metadata(&backup).is_err() {
            return Ok(backup);
        }
    }
    bail!("`{}` has {BACKUPS_MAX} backups beside it: remove some", shown(path))
}

/// A removed line with its password masked, whether that is in a URL or is the value.
fn without_password(line: &str) -> String {
    let is_password = |key: &str| key.trim().eq_ignore_ascii_case("password");
    if let Some((key, _)) = line.split_once(['=', ':'])
        && is_password(key)
    {
        return format!("{}= {MASK}", &line[..key.len()]);
    }
    let Some(at) = line.find("://") else { return line.to_owned() };
    let (start, rest) = line.split_at(at + 3);
    let authority = rest.split(['/', '"', ' ']).next().unwrap_or_default();
    let Some((user, _)) = authority.rsplit_once('@') else { return line.to_owned() };
    let Some((name, _)) = user.split_once(':') else { return line.to_owned() };
    format!("{start}{name}:{MASK}{}", &rest[user.len()..])
}

/// The removed (`-`) and added (`+`) lines, in order, without the common start and end.
fn difference<'text>(before: &[&'text str], after: &[&'text str]) -> Vec<(char, &'text str)> {
    // Lengths of the longest common subsequences of the rests. This is quadratic, but these files are short.
    let (rows, columns) = (before.len(), after.len());
    let mut common = vec![vec![0_u32; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            common[row][column] = if before[row] == after[column] {
                common[row + 1][column + 1] + 1
            } else {
                common[row + 1][column].max(common[row][column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut lines = Vec::new();
    while row < rows || column < columns {
        if row < rows && column < columns && before[row] == after[column] {
            (row, column) = (row + 1, column + 1);
        } else if row < rows
            && (column == columns || common[row + 1][column] >= common[row][column + 1])
        {
            lines.push(('-', before[row]));
            row += 1;
        } else {
            lines.push(('+', after[column]));
            column += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        #[track_caller]
        fn check(line: &str, expected: &str) {
            assert_eq!(without_password(line), expected);
        }
        check("password = horse", "password = ********");
        check("password: horse", "password= ********");
        check(
            "index-url = https://bob:horse@host/u/i",
            "index-url = https://bob:********@host/u/i",
        );
        check("url = \"https://bob:a@b@host/\"", "url = \"https://bob:********@host/\"");
        check("url = \"https://bob@host/a:b@c\"", "url = \"https://bob@host/a:b@c\"");
        check("timeout = 5", "timeout = 5");
    }

    #[test]
    fn only_what_changes_is_shown() {
        let lines = difference(&["a", "b", "c"], &["a", "x", "c", "d"]);
        assert_eq!(lines, [('-', "b"), ('+', "x"), ('+', "d")]);
        assert_eq!(difference(&["a"], &["a"]), []);
    }
}
