//! Moving in: what another index has, taken over into the store; and clients told of the new place.
//!
//! ```text
//! a devpi export ──► devpi ──┐
//!                            ├─► intake (bytes digested, checked, kept) ─► writer (batches) ─► Report
//! a folder of files ─► wheels┘
//! the URL of an index ─► clients ─► pip.conf, uv.toml, .pypirc, poetry's files
//! ```
//!
//! Servers may run on the store meanwhile. Bytes are kept before the records that name them, hundreds of
//! records are committed together, and what is there already is left alone: an import that was interrupted is
//! run again. Nothing that is in the store is ever replaced; what differs is told as a conflict.

pub mod clients;
mod devpi;
mod intake;
mod progress;
mod report;
mod stored_blobs;
mod wheels;
mod writer;

pub use devpi::{DevpiImport, import_devpi};
pub use report::{Mirrored, Report, Tally, Told};
pub use wheels::{WheelsImport, import_wheels};

/// Files that are read and kept at once.
const AT_ONCE_MAX: usize = 8;

/// Changes that are committed together.
const TOGETHER_MAX: usize = 256;
