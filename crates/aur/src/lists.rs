//! The lists that aurweb publishes beside its dump, made from a snapshot.

use std::collections::BTreeSet;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::field::Field;
use crate::record::Shape;
use crate::sheet::Sheet;
use crate::snapshot::Snapshot;

/// A list that clients download whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `packages.gz`: names of packages, one a line.
    Packages,
    /// `pkgbase.gz`: names of package bases, one a line.
    Bases,
    /// `users.gz`: names of the users that occur in the dump, one a line.
    Users,
    /// `packages-meta-v1.json.gz`: records without lists.
    Metadata,
}

impl List {
    /// All lists.
    pub const ALL: [List; 4] = [List::Packages, List::Bases, List::Users, List::Metadata];

    /// The file's name.
    pub const fn file_name(self) -> &'static str {
        match self {
            List::Packages => "packages.gz",
            List::Bases => "pkgbase.gz",
            List::Users => "users.gz",
            List::Metadata => "packages-meta-v1.json.gz",
        }
    }
}

impl Snapshot {
    /// Renders `list` and compresses it with gzip. The larger lists take up to some seconds of CPU.
    pub fn list(&self, list: List) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Compression::new(6));
        let written = match list {
            List::Packages => {
                self.docs().try_for_each(|doc| write_line(&mut out, self.record(doc).name()))
            }
            List::Bases => self.base_names().try_for_each(|name| write_line(&mut out, name)),
            List::Users => self.users().iter().try_for_each(|user| writeln!(out, "{user}")),
            List::Metadata => self.write_metadata(&mut out),
        };
        written.and_then(|()| out.finish()).expect("gzip into memory does not fail")
    }

    fn users(&self) -> BTreeSet<String> {
        let mut users = BTreeSet::new();
        for doc in self.docs() {
            let record = self.record(doc);
            for field in [Field::Maintainer, Field::Submitter] {
                if let Some(user) =
                    record.value(field).and_then(|json| serde_json::from_slice(json).ok())
                {
                    users.insert(user);
                }
            }
            if let Some(json) = record.value(Field::CoMaintainers) {
                users.extend(serde_json::from_slice::<Vec<String>>(json).unwrap_or_default());
            }
        }
        users
    }

    fn write_metadata(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut object = Sheet::default();
        for (at, doc) in self.docs().enumerate() {
            object.clear();
            object.push(if at == 0 { b"[\n" } else { b",\n" });
            self.record(doc).render(Shape::Metadata, &mut object);
            out.write_all(object.as_bytes())?;
        }
        out.write_all(b"\n]")
    }
}

/// Writes a JSON string as a line of plain text.
fn write_line(out: &mut impl Write, json: &[u8]) -> std::io::Result<()> {
    let text: String = serde_json::from_slice(json).unwrap_or_default();
    writeln!(out, "{text}")
}
