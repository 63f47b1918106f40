//! [`Report`]: what an import did, and by name each item that it did not import.

use std::fmt;

use serde::Serialize;
use state::text::counted;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether nothing was written.
    pub is_dry_run: bool,
    /// Users.
    pub users: ImportCounts,
    /// Indexes.
    pub indexes: ImportCounts,
    /// Registered releases.
    pub releases: ImportCounts,
    /// Wheels, source distributions and other archives.
    pub files: ImportCounts,
    /// Zips of documentation.
    pub documentation: ImportCounts,
    /// Results of test runs.
    pub test_results: ImportCounts,
    /// The contents of mirrors in the export, which are not imported.
    pub mirrored: MirrorCounts,
    /// Bytes in all files that this import added.
    pub bytes: u64,
    /// Files that were looked up in the store at the end and had the right digest.
    pub verified: u64,
    /// Blobs of those files that were read back and hashed: the ones that this import added.
    pub hashed: u64,
    /// Things that were not imported, with the reason.
    pub failures: Vec<Remark>,
    /// Things that were not imported because something else is in their place.
    pub conflicts: Vec<Remark>,
    /// Things that were imported with a change, and other remarks.
    pub notes: Vec<Remark>,
}

/// Counts for one kind of thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportCounts {
    /// Imported now.
    pub imported: u64,
    /// Already in the store, exactly like this.
    pub already_there: u64,
    /// Not imported: see [`Report::failures`] and [`Report::conflicts`].
    pub not_imported: u64,
}

/// Counts of what mirrors contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MirrorCounts {
    /// Mirrors.
    pub indexes: u64,
    /// Their projects.
    pub projects: u64,
    /// Their releases.
    pub releases: u64,
    /// Their files.
    pub files: u64,
}

/// A remark about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// The thing: a user, an index, a path.
    pub subject: String,
    /// The remark.
    pub text: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.subject, self.text)
    }
}

fn remark(subject: impl fmt::Display, text: impl fmt::Display) -> Remark {
    Remark { subject: subject.to_string(), text: text.to_string() }
}

impl Report {
    pub(super) fn fail(&mut self, subject: impl fmt::Display, text: impl fmt::Display) {
        self.failures.push(remark(subject, text));
    }

    pub(super) fn conflict(&mut self, subject: impl fmt::Display, text: impl fmt::Display) {
        self.conflicts.push(remark(subject, text));
    }

    pub(super) fn note(&mut self, subject: impl fmt::Display, text: impl fmt::Display) {
        self.notes.push(remark(subject, text));
    }

    /// A summary of what was not imported; `None` if the import is complete.
    pub fn shortfall(&self) -> Option<String> {
        let parts = [(&self.failures, "failure"), (&self.conflicts, "conflict")];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(remark, _)| !remark.is_empty())
            .map(|(remark, noun)| counted(remark.len() as u64, noun))
            .collect();
        (!parts.is_empty()).then(|| format!("{}: not everything was imported", parts.join(", ")))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, remark) in
            [("note", &self.notes), ("conflict", &self.conflicts), ("failure", &self.failures)]
        {
            for remark in remark {
                writeln!(formatter, "{kind}: {remark}")?;
            }
        }
        let kinds = [
            ("user", self.users),
            ("index", self.indexes),
            ("release", self.releases),
            ("file", self.files),
            ("documentation", self.documentation),
            ("test result", self.test_results),
        ];
        let verb = if self.is_dry_run { "would be imported" } else { "imported" };
        for (noun, tally) in kinds {
            if tally == ImportCounts::default() {
                continue;
            }
            let nouns = match noun {
                "index" => "indexes".to_owned(),
                "documentation" => noun.to_owned(),
                _ => format!("{noun}s"),
            };
            let ImportCounts { imported, already_there, not_imported } = tally;
            writeln!(
                formatter,
                "{nouns}: {imported} {verb}, {already_there} there already, {not_imported} not imported"
            )?;
        }
        let MirrorCounts { indexes, projects, releases, files } = self.mirrored;
        if indexes > 0 {
            let [projects, releases, files] =
                [(projects, "project"), (releases, "release"), (files, "file")]
                    .map(|(count, noun)| counted(count, noun));
            writeln!(
                formatter,
                "mirrors: {indexes}; {projects}, {releases} and {files} of them in the export, left out"
            )?;
        }
        write!(formatter, "{} new", indicatif::HumanBytes(self.bytes))?;
        if !self.is_dry_run {
            let (files, blobs) = (counted(self.verified, "file"), counted(self.hashed, "blob"));
            write!(
                formatter,
                "; {files} found in the store with their digests, {blobs} hashed again"
            )?;
        }
        writeln!(formatter)
    }
}
