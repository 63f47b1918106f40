//! Records page by page, for a reader that is slow or far away.
//!
//! a [`PagePosition`] -> [`Records::page_after`] -> a [`Page`], and the place after it. Each page is a transaction of its own, so that no
//! reader keeps one open. A record that is written again meanwhile moves to a later serial, and so to a later page: what all
//! pages up to the [last](Page::is_last) add up to is the store at [`Page::serial`], though no page alone is.

use record::{Key, Record, Serial};

use super::error::ReadError;
use super::observed_store::ObservedStore;
use super::{Engine, Records};

/// Where a page begins: after this record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagePosition {
    /// The serial of the record.
    pub serial: Serial,
    /// Its key; `None` stands before all keys that are written under the next serial.
    pub key: Option<Key>,
}

impl PagePosition {
    /// After all records of that serial.
    pub fn after(serial: Serial) -> PagePosition {
        PagePosition { serial, key: None }
    }

    /// The bounds of the statement: records of `.0` after the key `.1`, and later ones.
    pub(super) fn bounds(&self) -> (i64, &str) {
        match &self.key {
            Some(key) => (self.serial.0.cast_signed(), key.as_str()),
            // Every key is longer than the empty text.
            None => (self.serial.next().0.cast_signed(), ""),
        }
    }
}

/// Some records in a row, by ascending serial and then by key.
#[derive(Debug)]
pub struct Page {
    /// The records.
    pub records: Vec<Record>,
    /// The serial of the store when they were read.
    pub serial: Serial,
    /// Whether there were no more.
    pub is_last: bool,
    /// Where the next page begins.
    pub next: PagePosition,
}

/// How much a page has at most; a single record may be larger.
#[derive(Clone, Copy, Debug)]
pub struct PageSize {
    /// Records.
    pub records_max: usize,
    /// Bytes of keys, bodies and digests.
    pub bytes_max: usize,
}

/// Gathers a page.
pub(super) struct PageBuilder {
    records: Vec<Record>,
    size: PageSize,
    bytes: usize,
}

impl PageBuilder {
    pub(super) fn new(size: PageSize) -> PageBuilder {
        PageBuilder { records: Vec::new(), size, bytes: 0 }
    }

    /// Takes the next record, if there is room for it.
    pub(super) fn take(&mut self, record: Record) -> bool {
        let body_bytes = record.body.as_ref().map_or(0, |body| body.len());
        self.bytes += record.key.as_str().len() + body_bytes + record.blobs.len() * 32;
        if self.bytes > self.size.bytes_max && !self.records.is_empty() {
            return false;
        }
        self.records.push(record);
        true
    }

    /// The page of a store at `serial`; `is_cut`: a record had no room.
    pub(super) fn finish(self, from: &PagePosition, serial: Serial, is_cut: bool) -> Page {
        let is_last = !is_cut && self.records.len() < self.size.records_max;
        let next = match self.records.last() {
            _ if is_last => PagePosition::after(serial),
            Some(last) => PagePosition { serial: last.serial, key: Some(last.key.clone()) },
            None => from.clone(),
        };
        Page { records: self.records, serial, is_last, next }
    }
}

impl Records {
    /// The records after `place`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn page_after(
        &self,
        place: &PagePosition,
        size: PageSize,
    ) -> Result<Page, ReadError> {
        let seen: ObservedStore = self.shared.wake.seen();
        let page = match &self.shared.engine {
            Engine::Sqlite { reader, .. } => reader.page_after(place, size, &seen).await,
            Engine::Postgres { reader, .. } => reader.page_after(place, size, &seen).await,
        };
        if let Err(ReadError::Rewound(rewound)) = &page {
            self.shared.wake.lose(*rewound);
        }
        page
    }
}
