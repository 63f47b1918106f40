//! Moving to Larder: importing the contents of another index, or of a folder of articles, into the store; configuring clients
//! for the new one; and taking the articles out again.
//!
//! ```text
//! a devpi export ──► devpi ──┐
//!                            ├─► intake (bytes digested, checked, kept) ─► writer (batches) ─► Report
//! a folder of files ─► wheels┘
//! a folder of Markdown ◄─► articles ─► a static site (its folder is here, its pages are made by `larder`)
//! OSV records ─► osv ─► a zip in the data directory
//! the URL of an index ─► clients ─► pip.conf, uv.toml, .pypirc, poetry's files
//! ```
//!
//! Servers may run on the store meanwhile. Bytes are stored before the records that name them, and hundreds of
//! records are committed together. An import that was interrupted can be run again: it leaves alone what the store
//! has already. Nothing in the store is ever replaced; differences are reported as conflicts, and of articles they become
//! new versions.

// With optimization the compiler computes the layouts of nested futures, which are deeper than its default allows.
#![recursion_limit = "256"]

mod article_folder;
mod articles;
mod articles_export;
pub mod clients;
mod devpi;
mod intake;
mod osv;
mod report;
mod site_folder;
mod stored_blobs;
mod wheels;
mod writer;

pub use article_folder::Omission;
pub use articles::{ArticlesImport, ArticlesReport, import_articles};
pub use articles_export::{ArticlesExport, ExportReport, export_articles};
pub use devpi::{DevpiImport, import_devpi};
pub use osv::{OsvImport, OsvReport, import_osv};
pub use report::{ImportCounts, MirrorCounts, Remark, Report};
pub use site_folder::{FileNames, SiteExport, SiteFolder, SiteReport, is_picture};
pub use wheels::{WheelsImport, import_wheels};

/// Most files that are read and stored at once.
const AT_ONCE_MAX: usize = 8;

/// Most changes in one commit.
const TOGETHER_MAX: usize = 256;
