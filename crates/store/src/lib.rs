//! Records and blobs, durable: state changes only through the store, and is read back only from it.
//!
//! a batch -> [`records`] -> one serial -> every [`Follower`]; bytes -> [`blobs`] -> their digest. It knows no surface: keys
//! and bodies are opaque here.

pub mod blobs;
mod follower;
pub mod records;

pub use blobs::{
    Blob, BlobError, BlobLocation, BlobReader, BlobStore, SpooledBlob, StoreIdentity, Upload,
};
pub use follower::{CatchUp, Follower, Intake, State};
pub use records::{
    CommitError, DatabaseLocation, Downloads, OpenError, ReadError, Records, RecordsOptions,
    RestoreError,
};

/// Records, and the blobs that they name. Clones share both.
#[derive(Clone)]
pub struct Store {
    /// The records.
    pub records: Records,
    /// The blobs.
    pub blobs: BlobStore,
}

impl Store {
    /// Lets go of the database.
    pub async fn close(&self) {
        self.records.close().await;
    }
}
