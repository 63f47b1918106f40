//! The stored form of the AUR's history: compact JSON with its form, `"v": 1`.

use anyhow::Context;
use jiff::Timestamp;
use record::ChangeKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The form of the bodies that this version writes; it reads no other.
pub(super) const FORM: u32 = 1;

/// Under the key `state`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredState {
    v: u32,
    /// What the history is called: 32 hexadecimal digits.
    pub(super) history: String,
    pub(super) began_at: Timestamp,
    /// The serial of the last change.
    pub(super) last: u64,
    /// Whether every package of the first snapshot was noted.
    pub(super) is_whole: bool,
}

impl StoredState {
    pub(super) fn begin() -> anyhow::Result<StoredState> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).context("the system has no random numbers")?;
        let history = hex::encode(name);
        Ok(StoredState { v: FORM, history, began_at: Timestamp::now(), last: 0, is_whole: false })
    }
}

/// Under a key `change/{number}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredChange {
    pub(super) v: u32,
    pub(super) serial: u64,
    pub(super) at: Timestamp,
    pub(super) kind: StoredKind,
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) fields: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StoredKind {
    Added,
    Changed,
    Removed,
}

impl From<ChangeKind> for StoredKind {
    fn from(kind: ChangeKind) -> StoredKind {
        match kind {
            ChangeKind::Added => StoredKind::Added,
            ChangeKind::Changed => StoredKind::Changed,
            ChangeKind::Removed => StoredKind::Removed,
        }
    }
}

impl From<StoredKind> for ChangeKind {
    fn from(kind: StoredKind) -> ChangeKind {
        match kind {
            StoredKind::Added => ChangeKind::Added,
            StoredKind::Changed => ChangeKind::Changed,
            StoredKind::Removed => ChangeKind::Removed,
        }
    }
}
