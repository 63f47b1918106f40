//! [`BlobLocation`]: where blobs are kept, as one line of configuration.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where blobs are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobLocation {
    /// A directory; it is made when it is missing.
    Directory(PathBuf),
    /// An S3-type object store. Endpoint, region and credentials are settings ([`BlobStore::open`]).
    ///
    /// [`BlobStore::open`]: super::BlobStore::open
    S3 {
        /// The bucket, which must exist.
        bucket: String,
        /// The prefix of all keys, without a slash at either end; may be empty.
        prefix: String,
    },
}

/// Text that names no place for blobs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no place for blobs: {reason}")]
pub struct LocationError {
    text: String,
    reason: &'static str,
}

impl FromStr for BlobLocation {
    type Err = LocationError;

    /// Reads `s3://bucket`, `s3://bucket/prefix`, or the path of a directory.
    fn from_str(text: &str) -> Result<BlobLocation, LocationError> {
        let error = |reason| Err(LocationError { text: text.to_owned(), reason });
        let Some((scheme, rest)) = text.split_once("://") else {
            if text.is_empty() || text.contains('\0') {
                return error("a path or s3://bucket/prefix was expected");
            }
            return Ok(BlobLocation::Directory(text.into()));
        };
        if scheme != "s3" {
            return error("the only scheme is s3://, and a directory is written as a plain path");
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if !is_bucket(bucket) {
            return error("a bucket has 3 to 63 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`");
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() && !prefix.split('/').all(is_segment) {
            return error("each segment of a prefix has some of a-z, A-Z, 0-9, `.`, `_` and `-`");
        }
        Ok(BlobLocation::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

/// Older buckets of some stores have upper case and underscores; nothing here needs more.
fn is_bucket(text: &str) -> bool {
    (3..=63).contains(&text.len()) && is_segment(text)
}

/// Only characters that every store, proxy and signature encodes in the same way.
fn is_segment(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text != "." && text != ".." && text.bytes().all(is_plain)
}

impl fmt::Display for BlobLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlobLocation::Directory(path) => path.display().fmt(formatter),
            BlobLocation::S3 { bucket, prefix } if prefix.is_empty() => {
                write!(formatter, "s3://{bucket}")
            }
            BlobLocation::S3 { bucket, prefix } => write!(formatter, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = text.parse::<BlobLocation>().ok();
        assert_eq!(found.map(|location| location.to_string()).as_deref(), expected, "{text}");
    }

    #[test]
    fn a_path_or_a_bucket_is_read() {
        check("/var/lib/blobs", Some("/var/lib/blobs"));
        check("blobs", Some("blobs"));
        check("s3://bucket", Some("s3://bucket"));
        check("s3://bucket/", Some("s3://bucket"));
        check("s3://bucket/a/b/", Some("s3://bucket/a/b"));
        check("", None);
        check("a\0b", None);
        check("s3://", None);
        check("s3:///prefix", None);
        check("s3://bucket/a//b", None);
        check("s3://bucket/../b", None);
        check("s3://bucket/a b", None);
        check("s3://bucket?x=1", None);
        check("file:///var/blobs", None);
        check("https://bucket.example/", None);
    }

    #[test]
    fn a_path_is_not_a_bucket() {
        let directory = BlobLocation::Directory("s3/bucket".into());
        assert_eq!("s3/bucket".parse(), Ok(directory));
        let s3 = BlobLocation::S3 { bucket: "s3-bucket".into(), prefix: "x/y".into() };
        assert_eq!("s3://s3-bucket/x/y".parse(), Ok(s3));
    }
}
