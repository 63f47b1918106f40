//! The Python index: projects and release files in stages that inherit, and the pages that show them.
//!
//! ```text
//! store records ─► Snapshot::apply ─► Snapshot ─► ResolutionOrder ─► simple pages (Pages), devpi views
//!                                        │
//! what somebody wants ──────────────► change ─► record::Batch (committed by the caller)
//!                                        └────► ChangeError, in devpi's words
//! ```
//!
//! A stage is devpi's `user/index`. It shows its own projects and those of its bases, nearest first. The bytes of
//! files and the full metadata of releases are blobs; this crate knows their digests. It does no I/O, reads no clock
//! and knows no HTTP.

pub mod archive;
pub mod attestation;
mod by_version;
pub mod change;
pub mod devpi;
mod error;
mod filename;
pub mod index_log;
mod inherit;
mod item_change;
pub mod lock;
mod metadata;
mod names;
pub mod osv;
mod pages;
mod permission;
pub mod policy;
mod project;
mod project_name;
pub mod public_json;
mod publisher;
mod readable;
mod record;
mod release_file;
mod required_by;
mod requirement;
mod simple;
mod snapshot;
mod stage_config;
mod stage_name;
mod upload_form;
pub mod upstream;
mod url;
mod version;

pub use by_version::{by_version, installed_by_default};
pub use change::Decision;
pub use error::{ChangeError, Refusal};
pub use filename::{FileKind, Filename, FilenameError, FilenameParts, WheelTags, check_segment};
pub use inherit::{FileView, Mirrors, ProjectPart, ProjectView, ResolutionOrder, VersionView};
pub use item_change::{Item, ItemChange};
pub use metadata::{Metadata, MetadataError};
pub use pages::{Clock, NoPage, Page, PageBudget, PageCounts, PageRequest, Pages, render};
pub use permission::may_own;
pub use policy::{FileRefusal, HiddenFiles, Judge, Policy, RefusedFiles, Warnings};
pub use project::{Project, ProjectStatus, Release, StatusMarker};
pub use project_name::{ProjectName, ProjectNameError};
pub use publisher::{Mismatch, Publisher, PublisherError};
pub use readable::{Readable, stage_of_record};
pub use record::{KIND, stage_key, stage_of_key};
pub use release_file::{Directory, FileRole, LogEntry, ReleaseFile};
pub use required_by::{RequiredBy, RequiredNames, required_name};
pub use simple::merged::{MergedPage, merged_list, merged_page};
pub use simple::one_project::{UpstreamProject, of_one_project};
pub use simple::{Links, PageForm, RenderedPage};
pub use snapshot::{ApplyOutcome, FileLookup, Snapshot, Stage};
pub use stage_config::{
    ConfigEdit, ConfigError, MirrorMerge, MirrorSettings, StageConfig, StageKind, UploadSettings,
    WhitelistInheritance,
};
pub use stage_name::{IndexName, StageName, StageNameError};
pub use upload_form::{
    ClaimedDigests, DigestHasher, DigestMismatch, FileDigests, UploadAction, UploadForm,
    UploadFormError, doc_filename,
};
pub use version::{Version, VersionError};

#[cfg(test)]
mod testing;
