//! Pages and lists on disk.

use std::io::{self, BufReader, BufWriter, IntoInnerError, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pypi::upstream::{UpstreamNames, UpstreamPage};
use record::Hasher;

use super::{CachedPage, Content, PAGE_FORM, Subject, files_of, name_of};
use crate::disk::{EntryHead, Key};
use crate::{Mirror, Mirrors};

/// Counts and hashes what is written.
struct MeasuringWriter {
    hasher: Hasher,
    bytes: u64,
}

impl Write for MeasuringWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_content(content: &Content, to: &mut dyn Write) -> io::Result<()> {
    match content {
        Content::Names(names) => names.write_lines(to)?,
        Content::Page(page) => page.iter().try_for_each(|page| page.write_json(to))?,
    }
    to.flush()
}

impl Mirrors {
    /// Writes it to disk; returns whether this use should be noted. Blocks.
    pub(crate) fn store(
        &self,
        mirror: &Mirror,
        subject: &Subject,
        known: &CachedPage,
        is_same: bool,
    ) -> io::Result<bool> {
        let key = mirror.key(&subject.name());
        // Requests for random names must not fill the disk.
        if matches!(known.content, Content::Page(None)) {
            self.disk.remove(&key);
            return Ok(false);
        }
        // It is written twice, first to be counted and hashed: its text as a whole would take as much memory as the page.
        let mut measured = MeasuringWriter { hasher: Hasher::new(), bytes: 0 };
        write_content(&known.content, &mut measured)?;
        let confirmed_at =
            known.confirmed_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let head = EntryHead {
            name: name_of(mirror, subject),
            size_bytes: measured.bytes,
            sha256: measured.hasher.finish().to_string(),
            confirmed_at: i64::try_from(confirmed_at.as_millis()).unwrap_or(i64::MAX),
            etag: known.etag.clone(),
            last_modified: known.last_modified.clone(),
            serial: known.serial,
            form: PAGE_FORM,
            ..EntryHead::default()
        };
        match self.disk.open_entry(&key) {
            Some((there, file)) if is_same && there.sha256 == head.sha256 => {
                self.disk.confirm(&key, &head);
                Ok(file.is_use_noted)
            }
            _ => {
                let mut writing =
                    BufWriter::with_capacity(64 << 10, self.disk.begin(measured.bytes)?);
                write_content(&known.content, &mut writing)?;
                let writing = writing.into_inner().map_err(IntoInnerError::into_error)?;
                self.disk.keep(writing, key, &head).map(|()| true)
            }
        }
    }

    /// Reads it from disk into memory. Blocks.
    pub(crate) fn load(&self, mirror: &Mirror, subject: &Subject) -> Option<Arc<CachedPage>> {
        let key: Key = mirror.key(&subject.name());
        let (head, mut file) = self.disk.checked_entry(&key)?;
        if file.is_use_noted {
            self.note_shared_use(mirror, key);
        }
        let content = match subject {
            Subject::List => Content::Names(
                UpstreamNames::from_lines(BufReader::new(file.content().ok()?)).ok()?.into(),
            ),
            Subject::Project(project) => {
                let mut content = file.content().ok()?;
                let page = UpstreamPage::read("application/json", &mut content, &mirror.origin.url);
                let mut page = page.ok()?;
                page.keep_files_of(project);
                let seen_at = Timestamp::from_millisecond(head.confirmed_at).unwrap_or_default();
                page.fill_first_seen(seen_at);
                page.last_serial = page.last_serial.or(head.serial);
                Content::Page(Some(page.into()))
            }
        };
        let files = files_of(&content);
        let confirmed_at = Duration::from_millis(u64::try_from(head.confirmed_at).unwrap_or(0));
        // An older version kept less of the page, so it has to be fetched without a condition.
        let is_whole = *subject == Subject::List || head.form >= PAGE_FORM;
        let known = Arc::new(CachedPage {
            content,
            version: self.next_version(),
            confirmed_at: SystemTime::UNIX_EPOCH + confirmed_at,
            etag: head.etag.filter(|_| is_whole),
            last_modified: head.last_modified.filter(|_| is_whole),
            serial: head.serial,
            files,
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
