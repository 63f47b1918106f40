//! The lists that aurweb publishes beside its dump, made from a snapshot.

use std::collections::BTreeSet;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::buffer::Buffer;
use crate::field::Field;
use crate::record::RecordShape;
use crate::snapshot::Snapshot;

/// A list that clients download whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `packages.gz`: names of packages, one a line.
    Packages,
    /// `pkgbase.gz`: names of package bases, one a line.
    Bases,
    /// `users.gz`: names of users, one a line: all of them if the source says them, else those that occur in the dump.
    Users,
    /// `packages-meta-v1.json.gz`: records without lists.
    Metadata,
}

impl List {
    /// All lists.
    pub const ALL: [List; 4] = [List::Packages, List::Bases, List::Users, List::Metadata];

    /// The file's name, without what says how it is compressed.
    pub const fn stem(self) -> &'static str {
        match self {
            List::Packages => "packages",
            List::Bases => "pkgbase",
            List::Users => "users",
            List::Metadata => "packages-meta-v1.json",
        }
    }
}

/// How a file that clients download whole is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressed {
    /// The form in which aurweb publishes it.
    Gzip,
    /// Smaller, and faster to unpack.
    Zstd,
}

/// The larger lists take a second at this level, and a few MiB.
const ZSTD_LEVEL: i32 = 6;

impl Compressed {
    /// Both.
    pub const ALL: [Compressed; 2] = [Compressed::Gzip, Compressed::Zstd];

    /// The extension of such a file's name, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Compressed::Gzip => "gz",
            Compressed::Zstd => "zst",
        }
    }

    /// The media type of such a file.
    pub const fn media_type(self) -> &'static str {
        match self {
            Compressed::Gzip => "application/gzip",
            Compressed::Zstd => "application/zstd",
        }
    }

    /// Compresses the output of `write`. The same text gives the same bytes.
    ///
    /// # Errors
    ///
    /// Those of `write`, and of writing to `out`.
    pub fn write<W: Write>(
        self,
        out: W,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<W> {
        match self {
            Compressed::Gzip => {
                let mut out = GzEncoder::new(out, Compression::new(6));
                write(&mut out)?;
                out.finish()
            }
            Compressed::Zstd => {
                let mut out = zstd::Encoder::new(out, ZSTD_LEVEL)?;
                out.include_checksum(true)?;
                write(&mut out)?;
                out.finish()
            }
        }
    }
}

impl Snapshot {
    /// Renders `list` and compresses it. The larger lists take up to some seconds of CPU.
    pub fn list(&self, list: List, compressed: Compressed) -> Vec<u8> {
        let written = compressed.write(Vec::new(), |out| match list {
            List::Packages => {
                self.docs().try_for_each(|doc| write_line(out, self.record(doc).name()))
            }
            List::Bases => self.base_names().try_for_each(|name| write_line(out, name)),
            List::Users => match self.all_users() {
                Some(users) => out.write_all(users.as_bytes()),
                None => {
                    self.users_of_packages().iter().try_for_each(|user| writeln!(out, "{user}"))
                }
            },
            List::Metadata => self.write_metadata(out),
        });
        written.expect("compressing into memory does not fail")
    }

    fn users_of_packages(&self) -> BTreeSet<String> {
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

    fn write_metadata(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut object = Buffer::default();
        for (at, doc) in self.docs().enumerate() {
            object.clear();
            object.push(if at == 0 { b"[\n" } else { b",\n" });
            self.record(doc).render(RecordShape::Metadata, &mut object);
            out.write_all(object.as_bytes())?;
        }
        out.write_all(b"\n]")
    }
}

/// Writes a JSON string as a line of plain text.
fn write_line(out: &mut dyn Write, json: &[u8]) -> io::Result<()> {
    let text: String = serde_json::from_slice(json).unwrap_or_default();
    writeln!(out, "{text}")
}
