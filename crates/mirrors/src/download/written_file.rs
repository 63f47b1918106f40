//! [`WrittenFile`]: a file that has arrived, compared with what upstream's page says; and the two forms of an encoded one.
//!
//! Some upstreams call a `.tar.gz` encoded because it is stored like that, and some encode a wheel although nobody asked for it.
//! The form that has the digest on the page is the file.

use std::io::{self, Read as _};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use sha2::digest::DynDigest;

use super::order::DownloadOrder;
use crate::disk::{Disk, EntryWriter};
use crate::sink::{PIECE_BYTES, Sink};
use crate::upstream::UpstreamError;

/// The first bytes of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A file that has arrived, and its digests.
pub(super) struct WrittenFile {
    pub(super) writing: EntryWriter,
    pub(super) size_bytes: u64,
    /// The SHA-256, in hexadecimal digits.
    pub(super) sha256: String,
    /// The digest that the page names in place of the SHA-256.
    extra: Option<String>,
}

impl WrittenFile {
    pub(super) fn of(sink: Sink, size_bytes: u64) -> WrittenFile {
        let Sink { writing, sha256, extra } = sink;
        let extra = extra.map(|digest| hex::encode(digest.finalize()));
        WrittenFile { writing, size_bytes, sha256: sha256.finish().to_string(), extra }
    }

    /// Compares it with what the page says; `expected` is the digest beside the SHA-256.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn check(
        &self,
        order: &DownloadOrder,
        expected: Option<&str>,
    ) -> Result<(), UpstreamError> {
        let WrittenFile { size_bytes, sha256, extra, .. } = self;
        let wrong = |text: String| Err(UpstreamError::new(text));
        if let Some(expected) = order.size_bytes.filter(|expected| expected != size_bytes) {
            return wrong(format!(
                "the file has {size_bytes} bytes; upstream's page says {expected}"
            ));
        }
        if let Some(expected) = order.sha256().filter(|expected| expected != sha256) {
            return wrong(format!(
                "the file has the SHA-256 {sha256}; upstream's page says {expected}"
            ));
        }
        match (extra, expected) {
            (Some(found), Some(expected)) if found != expected => {
                wrong(format!("the file has the digest {found}; upstream's page says {expected}"))
            }
            _ => Ok(()),
        }
    }

    /// The form of an encoded file that is meant: this one, or the decoded one, if this one is wrong or the name says so. Blocks.
    ///
    /// # Errors
    /// If it cannot be read, or has no room.
    pub(super) fn or_decoded(
        self,
        name: &str,
        is_wrong: bool,
        (disk, bytes_max): (&Arc<Disk>, u64),
        extra: Option<Box<dyn DynDigest + Send>>,
    ) -> io::Result<WrittenFile> {
        let (mut first, mut inner) = (Vec::new(), Vec::new());
        self.writing.content()?.take(GZIP.len() as u64).read_to_end(&mut first)?;
        let decoder = MultiGzDecoder::new(self.writing.content()?);
        // What cannot be decoded has no beginning.
        _ = decoder.take(GZIP.len() as u64).read_to_end(&mut inner);
        if !is_wrong && !is_decoded(name, [&first, &inner]) {
            return Ok(self);
        }
        match self.decoded(disk, extra, bytes_max) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(error),
            decoded => Ok(decoded.unwrap_or(self)),
        }
    }

    fn decoded(
        &self,
        disk: &Arc<Disk>,
        extra: Option<Box<dyn DynDigest + Send>>,
        bytes_max: u64,
    ) -> io::Result<WrittenFile> {
        let mut source = MultiGzDecoder::new(self.writing.content()?).take(bytes_max + 1);
        let mut sink = Sink { writing: disk.begin(0)?, sha256: record::Hasher::new(), extra };
        let (mut piece, mut size_bytes) = (vec![0; PIECE_BYTES], 0);
        loop {
            let read = match source.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            size_bytes += read as u64;
            sink = sink.append(&piece[..read])?;
        }
        if size_bytes > bytes_max {
            return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
        }
        Ok(WrittenFile::of(sink, size_bytes))
    }
}

/// Whether a file without any digest is meant to be decoded, which its name and the first bytes of both forms tell: installers
/// take a `.tar.gz` as it is stored.
fn is_decoded(name: &str, [first, inner]: [&[u8]; 2]) -> bool {
    let name = name.to_ascii_lowercase();
    let is_stored_so = [".gz", ".tgz"].iter().any(|end| name.ends_with(end));
    first == GZIP && (!is_stored_so || inner == GZIP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_form_of_an_encoded_file_is_meant() {
        let check = |name: &str, first: &[u8], inner: &[u8], expected: bool| {
            assert_eq!(is_decoded(name, [first, inner]), expected, "{name} {first:?} {inner:?}");
        };
        check("foo-1.0.tar.gz", &GZIP, b"fo", false);
        check("foo-1.0.tar.gz", &GZIP, &GZIP, true);
        check("foo-1.0-py3-none-any.whl", &GZIP, b"PK", true);
        check("foo-1.0-py3-none-any.whl", b"PK", b"", false);
        check("foo-1.0-py3-none-any.whl.metadata", b"Me", b"", false);
        check("foo-1.0-py3-none-any.whl.metadata", &GZIP, b"Me", true);
    }
}
