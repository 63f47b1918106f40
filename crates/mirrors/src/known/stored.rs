//! Pages and lists on disk.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pypi::upstream::{UpstreamNames, UpstreamPage};
use record::Digest;

use super::{Content, Known, PAGE_FORM, Subject, name_of};
use crate::disk::{Head, Key};
use crate::{Mirror, Mirrors};

impl Mirrors {
    /// Writes it to disk; returns whether this use should be noted. Blocks.
    pub(crate) fn store(
        &self,
        mirror: &Mirror,
        subject: &Subject,
        known: &Known,
        is_same: bool,
    ) -> std::io::Result<bool> {
        let key = mirror.key(&subject.name());
        let content = match &known.content {
            Content::Names(names) => names.to_lines().into_bytes(),
            Content::Page(Some(page)) => page.to_json(),
            // Requests for random names must not fill the disk.
            Content::Page(None) => {
                self.disk.remove(&key);
                return Ok(false);
            }
        };
        let confirmed_at =
            known.confirmed_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let head = Head {
            name: name_of(mirror, subject),
            size_bytes: content.len() as u64,
            sha256: Digest::of(&content).to_string(),
            confirmed_at: i64::try_from(confirmed_at.as_millis()).unwrap_or(i64::MAX),
            etag: known.etag.clone(),
            last_modified: known.last_modified.clone(),
            serial: known.serial,
            form: PAGE_FORM,
            ..Head::default()
        };
        match self.disk.open_entry(&key) {
            Some((there, file)) if is_same && there.sha256 == head.sha256 => {
                self.disk.confirm(&key, &head);
                Ok(file.is_use_noted)
            }
            _ => self.disk.write(key, &head, &content).map(|()| true),
        }
    }

    /// Reads it from disk into memory. Blocks.
    pub(crate) fn load(&self, mirror: &Mirror, subject: &Subject) -> Option<Arc<Known>> {
        let key: Key = mirror.key(&subject.name());
        let (head, content, is_use_noted) = self.disk.content_and_use(&key)?;
        if is_use_noted {
            self.note_shared_use(mirror, key);
        }
        let content = match subject {
            Subject::List => Content::Names(
                UpstreamNames::from_lines(std::str::from_utf8(&content).ok()?).into(),
            ),
            Subject::Project(project) => {
                let page = UpstreamPage::parse("application/json", &content, &mirror.origin.url);
                let mut page = page.ok()?;
                page.keep_files_of(project);
                let seen_at = Timestamp::from_millisecond(head.confirmed_at).unwrap_or_default();
                page.fill_first_seen(seen_at);
                page.last_serial = page.last_serial.or(head.serial);
                Content::Page(Some(page.into()))
            }
        };
        let confirmed_at = Duration::from_millis(u64::try_from(head.confirmed_at).unwrap_or(0));
        // An older version kept less of the page, so it has to be fetched without a condition.
        let is_whole = *subject == Subject::List || head.form >= PAGE_FORM;
        let known = Arc::new(Known {
            content,
            version: self.next_version(),
            confirmed_at: SystemTime::UNIX_EPOCH + confirmed_at,
            etag: head.etag.filter(|_| is_whole),
            last_modified: head.last_modified.filter(|_| is_whole),
            serial: head.serial,
        });
        // Another request may have been faster, and may even have asked upstream meanwhile.
        match self.in_memory(mirror, subject) {
            Some(faster) => Some(faster),
            None => {
                self.remember(mirror, subject, known.clone());
                Some(known)
            }
        }
    }
}
