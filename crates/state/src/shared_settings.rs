//! Settings that must be the same for all processes of a store: each process notes its own in the store, and is told of others.
//!
//! the settings of a process -> the record `store/settings` -> what differs. Only what the last process noted is known, which is
//! enough to notice that an administrator changed one machine and forgot another.

use std::collections::BTreeMap;

use record::{Batch, Expected, Key};
use store::Records;

/// The keys of these settings: who may do what, how large things may be, and how old something is when it is deleted.
pub const SHARED: [&str; 25] = [
    "public_url",
    "egress_allow",
    "article.enabled",
    "article.acl_read",
    "article.acl_write",
    "article.body_bytes_max",
    "article.attachment_bytes_max",
    "article.attachments_max",
    "article.attachments_bytes_max",
    "actions.enabled",
    "python.enabled",
    "python.devpi_defaults",
    "python.restrict_modify",
    "python.acl_push_outside",
    "python.file_bytes_max",
    "python.tox_result_bytes_max",
    "python.count_downloads",
    "python.mirrors_offline",
    "python.mirror_shared_bytes_max",
    "python.audit_served",
    "advisories.source",
    "users.login_seconds",
    "users.strangers_may_register",
    "store.free_bytes_min",
    "store.sweep_grace_seconds",
];

/// A setting that another process has otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its key.
    pub key: String,
    /// Its value here; empty if it is not set.
    pub here: String,
    /// Its value there.
    pub there: String,
}

/// Notes the settings of this process, and returns those that the last process which noted some has otherwise.
///
/// # Errors
/// The store cannot be read or written.
pub async fn note(
    records: &Records,
    own: &BTreeMap<String, String>,
) -> anyhow::Result<Vec<Difference>> {
    let key = Key::new("store/settings")?;
    let body = serde_json::to_vec(own)?;
    let found = records.record(&key).await?.and_then(|record| record.body);
    if found.as_deref() == Some(body.as_slice()) {
        return Ok(Vec::new());
    }
    // What cannot be read was written by another version.
    let others: Option<BTreeMap<String, String>> =
        found.and_then(|found| serde_json::from_slice(&found).ok());
    records.commit(Batch::new().put(key, Expected::Anything, body, Vec::new())).await?;
    let others = others.unwrap_or_default();
    let differences = own.iter().filter_map(|(key, here)| {
        let there = others.get(key).filter(|there| *there != here)?;
        Some(Difference { key: key.clone(), here: here.clone(), there: there.clone() })
    });
    Ok(differences.collect())
}

#[cfg(test)]
mod tests {
    use store::{DatabaseLocation, RecordsOptions};

    use super::*;

    #[tokio::test]
    async fn a_process_is_told_what_another_one_has_otherwise() {
        let directory = tempfile::tempdir().expect("a directory");
        let location = DatabaseLocation::Sqlite(directory.path().join("records.db"));
        let records = Records::open(&location, RecordsOptions::default()).await.expect("opened");
        let settings = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let one = settings(&[("a", "1"), ("b", "2")]);
        let other = settings(&[("a", "1"), ("b", "3"), ("c", "4")]);
        let difference = |here: &str, there: &str| Difference {
            key: "b".into(),
            here: here.into(),
            there: there.into(),
        };
        assert_eq!(note(&records, &one).await.expect("noted"), []);
        assert_eq!(note(&records, &one).await.expect("noted"), []);
        assert_eq!(note(&records, &other).await.expect("noted"), [difference("3", "2")]);
        assert_eq!(note(&records, &one).await.expect("noted"), [difference("2", "3")]);
        assert_eq!(records.serial().await.expect("a serial").0, 3, "it is noted when it changes");
    }
}
