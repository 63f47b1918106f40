//! What can go wrong between a source and the kept copy. Each error names the bad value.
//!
//! No text contains a credential: URLs are masked before they come here, see [`super::SourceSpec`].

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::StatusCode;

/// Why no dump arrived, or why it could not be kept. None of these errors ends the server: the old snapshot goes on serving,
/// and the caller logs the error once.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The setting is neither a path nor a URL that can be fetched.
    #[error("`{text}` is not a source of a dump: {reason}")]
    Spec {
        /// The setting as given, credentials masked.
        text: String,
        /// What is wrong with it, and what is accepted.
        reason: String,
    },
    /// The file does not exist or cannot be read, or could no longer be read halfway through.
    #[error("cannot read the dump `{}`: {cause}", path.display())]
    File {
        /// The path as configured.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The path names a directory, a pipe or a device.
    #[error("cannot read the dump `{}`: it is not a regular file", path.display())]
    NotAFile {
        /// The path as configured.
        path: PathBuf,
    },
    /// The file was rewritten in place during reading, so the bytes that were read may be a mixture.
    #[error(
        "the dump `{origin}` changed while it was read; it is read again when it no longer changes"
    )]
    ChangedWhileRead {
        /// The path as configured.
        origin: String,
    },
    /// The dump has more bytes than the bound allows, as stored or sent, before decompression.
    #[error(
        "the dump from `{origin}` has more than {bytes_max} bytes, the largest that is accepted"
    )]
    TooLarge {
        /// Path or masked URL.
        origin: String,
        /// The bound that was exceeded, in bytes.
        bytes_max: u64,
    },
    /// The server answered, but neither with a dump (200) nor with "unchanged" (304).
    #[error("`{url}` answered {status}, expected 200 or 304")]
    Status {
        /// The URL that answered, masked; after redirects it is the last one.
        url: String,
        /// The status of the answer.
        status: StatusCode,
        /// The wait that the server asked for by `Retry-After`, cut to [`super::RETRY_AFTER_MAX`].
        retry_after: Option<Duration>,
    },
    /// The server answered 304 to a request without a condition.
    #[error("`{url}` answered 304 to a request without a condition, expected 200")]
    NotModifiedUnasked {
        /// The URL that answered, masked.
        url: String,
    },
    /// No connection, no TLS, too many redirects, or an invalid response.
    #[error("cannot fetch `{url}`: {cause}")]
    Transfer {
        /// The configured URL, masked.
        url: String,
        /// The chain of reasons in one line.
        cause: String,
    },
    /// A step took longer than its bound.
    #[error("cannot fetch `{url}`: {step} took longer than {bound:?}")]
    TimedOut {
        /// The configured URL, masked.
        url: String,
        /// The step: connecting, the response header, the next bytes, or the whole transfer.
        step: &'static str,
        /// The bound that was exceeded.
        bound: Duration,
    },
    /// The body ended before the announced length, or the connection broke within the body.
    #[error("the dump from `{url}` was truncated: {received} bytes came, expected {} ({cause})",
        expected.map_or_else(|| "more".to_owned(), |length| length.to_string()))]
    Truncated {
        /// The configured URL, masked.
        url: String,
        /// Number of bytes received.
        received: u64,
        /// The `Content-Length`, if there was one.
        expected: Option<u64>,
        /// How the end was noticed.
        cause: String,
    },
    /// The database cannot be reached or read, or its tables are not aurweb's.
    #[error("cannot read the database `{url}`: {cause}")]
    Database {
        /// The configured URL, masked.
        url: String,
        /// The error of the database or the connection.
        cause: String,
    },
    /// The HTTP client could not be built, for example because the system has no CA certificates.
    #[error("cannot prepare a client for `{url}`: {cause}")]
    Client {
        /// The configured URL, masked.
        url: String,
        /// The chain of reasons in one line.
        cause: String,
    },
    /// A dump could not be written to the data directory, which is full, read-only or gone.
    #[error("cannot write `{}`: {cause}", path.display())]
    Write {
        /// The file or directory that was being written.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The dump is compressed more often than makes sense.
    #[error("the dump from `{origin}` is compressed more than {layers_max} times")]
    TooManyLayers {
        /// Path or masked URL.
        origin: String,
        /// Most gzip layers that are unwrapped.
        layers_max: usize,
    },
    /// Another process holds the lock of the data directory.
    #[error("the data directory `{}` is in use by {} (lock file `{}`)", data_dir.display(),
        process.as_ref().map_or_else(|| "another process".to_owned(), |id| format!("process {id}")),
        lock_path.display())]
    Locked {
        /// The data directory.
        data_dir: PathBuf,
        /// The lock file.
        lock_path: PathBuf,
        /// The process id that the holder wrote into the lock file, if it can be read.
        process: Option<u32>,
    },
}

impl SourceError {
    /// A short, stable word for a metric's label.
    pub fn kind(&self) -> &'static str {
        match self {
            SourceError::Spec { .. } => "spec",
            SourceError::File { .. } | SourceError::NotAFile { .. } => "file",
            SourceError::ChangedWhileRead { .. } => "changed",
            SourceError::TooLarge { .. } => "too_large",
            SourceError::Status { .. } | SourceError::NotModifiedUnasked { .. } => "status",
            SourceError::Transfer { .. } => "transfer",
            SourceError::TimedOut { .. } => "timeout",
            SourceError::Truncated { .. } => "truncated",
            SourceError::Database { .. } => "database",
            SourceError::Client { .. } => "client",
            SourceError::Write { .. } => "write",
            SourceError::TooManyLayers { .. } => "layers",
            SourceError::Locked { .. } => "locked",
        }
    }

    /// The wait that the server asked for, if it did.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            SourceError::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
