//! Records and blobs, durable: the only way for state to change, and the only way for it to return.
//!
//! a batch -> [`records`] -> one serial -> whoever follows; bytes -> [`blobs`] -> their digest.
//! It knows no surface: keys and bodies are opaque here.

pub mod blobs;
pub mod records;

pub use blobs::{
    Blob, BlobError, BlobLocation, BlobReader, BlobStore, Staged, StoreIdentity, Upload,
};
pub use records::{
    CommitError, DatabaseLocation, OpenError, ReadError, Records, RecordsOptions, RestoreError,
};
