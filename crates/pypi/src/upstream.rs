//! A mirror's upstream: its page of a project, its list of projects, and the places of its files here.
//!
//! bytes of an answer -> [`UpstreamPage::parse`] or [`UpstreamNames::read`] -> merged into pages, asked by requests for
//! files. [`standing`], [`Outage`] and [`Breaker`] decide when the upstream is asked again.
//!
//! Everything that upstream says about a file is kept and passed on. Files that cannot be served are left out: a name that is
//! no segment of a path, or a URL that is neither http nor https.

mod freshness;
mod html;
mod json;
mod mirror_path;
mod names;
mod source;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::OnceLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use url::Url;

use self::source::PageStart;
use crate::{Filename, ProjectName, StatusMarker, Version, by_version};

pub use self::freshness::{Blame, Breaker, Freshness, Outage, standing};
pub use self::mirror_path::{MirrorPath, link_of, projects_of};
pub use self::names::UpstreamNames;

/// The value of `Accept`: JSON first, then HTML by its two names.
pub const ACCEPT: &str = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

/// Upstream's page of one project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamPage {
    /// The project's status, with a reason if there is one.
    pub status: Option<(StatusMarker, Option<Box<str>>)>,
    /// The project's other places (PEP 708).
    pub locations: Locations,
    /// Upstream's serial of this page (PEP 691's `_last-serial`); never 0.
    pub last_serial: Option<u64>,
    /// The versions that upstream names, in its order; empty if it names none.
    pub versions: Vec<Box<str>>,
    /// The files, in upstream's order.
    pub files: Vec<UpstreamFile>,
    pub(crate) by_version: FilesByVersion,
}

/// The places of a page's files by their versions, found out when somebody asks for them. It is no part of what the page says.
#[derive(Debug, Default)]
pub(crate) struct FilesByVersion(OnceLock<Vec<(Version, Vec<u32>)>>);

impl Clone for FilesByVersion {
    fn clone(&self) -> FilesByVersion {
        FilesByVersion::default()
    }
}

impl PartialEq for FilesByVersion {
    fn eq(&self, _: &FilesByVersion) -> bool {
        true
    }
}

impl Eq for FilesByVersion {}

/// Other places of a project, as its repository says (PEP 708): URLs of the project's pages there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locations {
    /// Projects that this one extends or copies, as the operator of the repository says.
    pub tracks: Vec<Box<str>>,
    /// Other places of the same project, as its owners say; they count if all places name the same ones.
    pub alternates: Vec<Box<str>>,
}

/// A file on an [`UpstreamPage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFile {
    /// Its name: one segment of a path.
    pub filename: Box<str>,
    /// Its absolute URL: http or https, without credentials and without a fragment.
    pub url: Box<str>,
    /// Its digests: the algorithm's name and the digits.
    pub hashes: Vec<(Box<str>, Box<str>)>,
    /// Its size in bytes, if upstream's page says it. A download is compared with it.
    pub size_bytes: Option<u64>,
    /// When it was uploaded, as upstream writes it: a time that every installer reads.
    pub upload_time: Option<Box<str>>,
    /// When it was first seen here, if upstream does not say when it was uploaded.
    pub first_seen: Option<Timestamp>,
    /// Its `requires-python`.
    pub requires_python: Option<Box<str>>,
    /// Why it was yanked, if it was; empty without a reason.
    pub yanked: Option<Box<str>>,
    /// Its metadata, which is at its URL with `.metadata` added.
    pub core_metadata: Option<CoreMetadata>,
    /// The URL of its provenance (PEP 740).
    pub provenance: Option<Box<str>>,
}

/// Metadata that upstream serves beside a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreMetadata {
    /// Upstream does not say which.
    Unhashed,
    /// The SHA-256, in hexadecimal digits.
    Sha256(Box<str>),
}

/// An answer that is no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is no page of an index: {0}")]
pub struct PageError(String);

impl PageError {
    fn new(cause: impl fmt::Display) -> PageError {
        PageError(cause.to_string())
    }
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageFormat {
    Json,
    Html,
}

impl PageFormat {
    /// The body decides: some servers name another type than they send.
    fn of(content_type: &str, body: &[u8]) -> Result<PageFormat, PageError> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => Ok(PageFormat::Json),
            Some(b'<') => Ok(PageFormat::Html),
            _ => {
                let shown = record::excerpt(content_type, 100);
                Err(PageError(format!(
                    "neither JSON nor HTML, with the content type `{shown}`; one of both was expected"
                )))
            }
        }
    }
}

impl UpstreamPage {
    /// Reads a project's page. `base` is the URL that it came from, after redirects.
    ///
    /// # Errors
    /// [`PageError`] if it is neither a JSON nor an HTML page of an index.
    pub fn parse(
        content_type: &str,
        mut body: &[u8],
        base: &Url,
    ) -> Result<UpstreamPage, PageError> {
        match PageFormat::of(content_type, body)? {
            PageFormat::Json => json::page(body, base),
            PageFormat::Html => UpstreamPage::read(content_type, &mut body, base),
        }
    }

    /// [`UpstreamPage::parse`], of a body that comes piece by piece and is never in memory as a whole. Such a body may have no text
    /// of more than a megabyte.
    ///
    /// # Errors
    /// [`PageError`] if it is neither a JSON nor an HTML page of an index, or cannot be read.
    pub fn read(
        content_type: &str,
        body: &mut dyn Read,
        base: &Url,
    ) -> Result<UpstreamPage, PageError> {
        let body = PageStart::of(body).map_err(PageError::new)?;
        match PageFormat::of(content_type, &body.bytes)? {
            PageFormat::Json => json::read(body, base),
            PageFormat::Html => html::page(content_type, body, base),
        }
    }

    /// Leaves out files of other projects, by their names: no request for one would lead to this page.
    pub fn keep_files_of(&mut self, project: &ProjectName) {
        self.files.retain(|file| mirror_path::may_be_of(&file.filename, project));
    }

    /// Notes when each file without an upload time was first seen: as in `before`, or now. What upstream itself says of that is
    /// ignored. A file with other digests under the same URL is a different one.
    pub fn note_first_seen(&mut self, before: Option<&UpstreamPage>, now: Timestamp) {
        let mut known: Option<HashMap<&str, &UpstreamFile>> = None;
        for file in &mut self.files {
            file.first_seen = None;
            if !file.is_dated() {
                let known = known.get_or_insert_with(|| {
                    let files = before.iter().flat_map(|page| &page.files);
                    files.map(|it| (&*it.url, it)).collect()
                });
                let same = known.get(&*file.url).filter(|known| known.may_be(file));
                file.first_seen = Some(same.and_then(|known| known.first_seen).unwrap_or(now));
            }
        }
    }

    /// Takes the times of `other` at which it saw files before this page did.
    pub fn take_older_first_seen(&mut self, other: &UpstreamPage) {
        let theirs: HashMap<&str, &UpstreamFile> =
            other.files.iter().map(|it| (&*it.url, it)).collect();
        for file in &mut self.files {
            let same = theirs.get(&*file.url).filter(|it| it.may_be(file));
            let before = same.and_then(|it| it.first_seen);
            file.first_seen = file.first_seen.map(|seen| before.map_or(seen, |it| it.min(seen)));
        }
    }

    /// Fills in missing times at which files without an upload time were first seen, for a cached page that only knows when it
    /// was seen.
    pub fn fill_first_seen(&mut self, seen_at: Timestamp) {
        for file in self.files.iter_mut().filter(|file| !file.is_dated()) {
            file.first_seen.get_or_insert(seen_at);
        }
    }

    /// The page as JSON, with absolute URLs; [`UpstreamPage::parse`] reads it back.
    pub fn to_json(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Memory does not fail.
        _ = self.write_json(&mut bytes);
        bytes
    }

    /// Writes [`UpstreamPage::to_json`] piece by piece.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        json::write(self, to)
    }

    /// The file at this place, and whether its metadata is meant rather than itself.
    pub fn file_at(&self, place: &MirrorPath<'_>) -> Option<(&UpstreamFile, bool)> {
        let found = |is_metadata| {
            // Their URLs are read one by one, for every request.
            let named = self.files.iter().filter(|file| place.is_named(file, is_metadata));
            let mut named = named.take(SAME_NAME_MAX);
            named.find(|file| place.is_of(file, is_metadata)).map(|it| (it, is_metadata))
        };
        found(false).or_else(|| found(true))
    }

    /// The page with only the first of its versions and of its files, for [`of_one_project`](crate::of_one_project), which asks
    /// whether there are any.
    pub fn outline(&self) -> UpstreamPage {
        UpstreamPage {
            status: self.status.clone(),
            locations: self.locations.clone(),
            last_serial: self.last_serial,
            versions: self.versions.iter().take(1).cloned().collect(),
            files: self.files.iter().take(1).cloned().collect(),
            ..UpstreamPage::default()
        }
    }

    /// About how much memory it takes as it is kept or as it is shown, in bytes: whichever is more.
    pub fn shown_bytes(&self) -> u64 {
        let escapes: usize = self.files.iter().map(UpstreamFile::escapes_bytes).sum();
        self.memory_bytes() + escapes as u64
    }

    /// About how much memory it takes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let versions: usize = self.versions.iter().map(|version| version.len() + 16).sum();
        let files: usize = self.files.iter().map(UpstreamFile::memory_bytes).sum();
        let by_version = 32 * self.files.len();
        (256 + versions + files + by_version + self.locations.memory_bytes()) as u64
    }

    /// The files of each version, by their places in `files`; the lowest version first. Files whose names are not those of a
    /// release of `project`, which the page is of, are left out.
    pub fn files_by_version(&self, project: &ProjectName) -> &[(Version, Vec<u32>)] {
        self.by_version.0.get_or_init(|| {
            let files = self.files.iter().zip(0..).filter_map(|(file, at)| {
                let version = Filename::parse(&file.filename).ok()?.split(Some(project))?.version?;
                Some((version, at))
            });
            by_version(files)
        })
    }
}

impl Locations {
    /// Most URLs of each kind; more are not kept.
    const URLS_MAX: usize = 32;
    /// Longest URL, in bytes.
    const URL_BYTES_MAX: usize = 1_000;

    /// The places that a page names, as absolute URLs in the form in which they are compared, each once.
    fn read<'text>(
        base: &Url,
        tracks: impl Iterator<Item = &'text str>,
        alternates: impl Iterator<Item = &'text str>,
    ) -> Locations {
        let mut places = Locations::default();
        tracks.for_each(|text| add_place(&mut places.tracks, base, text));
        alternates.for_each(|text| add_place(&mut places.alternates, base, text));
        places
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.tracks.is_empty() && self.alternates.is_empty()
    }

    /// Adds what another page says.
    pub fn extend(&mut self, other: &Locations) {
        for (own, more) in
            [(&mut self.tracks, &other.tracks), (&mut self.alternates, &other.alternates)]
        {
            let more: Vec<_> = more.iter().filter(|url| !own.contains(url)).cloned().collect();
            own.extend(more);
        }
    }

    fn memory_bytes(&self) -> usize {
        self.tracks.iter().chain(&self.alternates).map(|url| url.len() + 16).sum()
    }
}

fn add_place(places: &mut Vec<Box<str>>, base: &Url, text: &str) {
    if places.len() < Locations::URLS_MAX
        && text.len() <= Locations::URL_BYTES_MAX
        && let Some(url) = place_of_project(base, text)
        && url.len() <= Locations::URL_BYTES_MAX
        && !places.contains(&url)
    {
        places.push(url);
    }
}

/// The URL of a project's page in the form in which such URLs are compared: absolute, http or https, without credentials and
/// fragment, with a slash at its end. `None` if the text is not such a URL.
pub(crate) fn place_of_project(base: &Url, text: &str) -> Option<Box<str>> {
    let (mut url, _) = absolute(base, text)?;
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Some(String::from(url).into())
}

/// Most files, and most versions, of a project's page: what is kept of a page, and what is rendered, is in memory. The largest real
/// projects have some 20,000 files.
pub const FILES_MAX: usize = 40_000;

/// Files with one name that are distinguished by their URLs; further ones are not found.
const SAME_NAME_MAX: usize = 100;

/// The files of a page while it is read.
#[derive(Default)]
struct Files {
    files: Vec<UpstreamFile>,
    seen: usize,
    memory_bytes: usize,
}

/// The items, in memory for no more of them.
fn exactly<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.shrink_to_fit();
    items
}

impl Files {
    /// Memory for the files of a page, as they are kept or as they are shown, whichever is more: on a page with a long URL,
    /// relative URLs become many times as long. 20,000 files may take 1 kB each; those of the public index take some 640 bytes.
    const MEMORY_BYTES_MAX: usize = 20 << 20;

    fn extend(&mut self, file: Option<UpstreamFile>) {
        let Some(file) = file else { return };
        self.seen += 1;
        self.memory_bytes += file.memory_bytes() + file.escapes_bytes();
        if self.check().is_ok() {
            self.files.push(file);
        }
    }

    /// Whether the page may have as many files, and as large ones, as it was found to have so far.
    fn check(&self) -> Result<(), PageError> {
        if self.seen > FILES_MAX {
            return Err(PageError(format!(
                "it has more than {FILES_MAX} files; at most that many are read"
            )));
        }
        if self.memory_bytes > Files::MEMORY_BYTES_MAX {
            return Err(PageError(format!(
                "its files take {} bytes of memory; at most {} were expected",
                self.memory_bytes,
                Files::MEMORY_BYTES_MAX
            )));
        }
        Ok(())
    }

    fn all(mut self) -> Result<Vec<UpstreamFile>, PageError> {
        self.check()?;
        self.files.shrink_to_fit();
        Ok(self.files)
    }
}

impl UpstreamFile {
    /// How many bytes longer its texts are on a page at most: characters that are escaped there take up to six.
    fn escapes_bytes(&self) -> usize {
        let escapes = |text: &str| {
            let is_escaped = |byte: &u8| {
                *byte < b' ' || matches!(byte, b'"' | b'\'' | b'&' | b'<' | b'>' | b'\\')
            };
            5 * text.as_bytes().iter().filter(|byte| is_escaped(byte)).count()
        };
        let optional = [&self.requires_python, &self.yanked, &self.provenance];
        let optional = optional.into_iter().flatten().map(|text| escapes(text));
        // The name is in the link, too.
        2 * escapes(&self.filename) + escapes(&self.url) + optional.sum::<usize>()
    }

    /// About how long its texts are on a page.
    pub(crate) fn shown_bytes(&self) -> usize {
        // Its name is in its link, too.
        let texts = self.memory_bytes() - size_of::<UpstreamFile>() + self.filename.len();
        texts + self.escapes_bytes()
    }

    fn memory_bytes(&self) -> usize {
        let length = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let hashes: usize = self.hashes.iter().map(|(name, hex)| name.len() + hex.len() + 48).sum();
        let optional = length(&self.upload_time)
            + length(&self.requires_python)
            + length(&self.yanked)
            + length(&self.provenance);
        let metadata = if self.core_metadata.is_some() { 64 } else { 0 };
        size_of::<UpstreamFile>()
            + self.filename.len()
            + self.url.len()
            + hashes
            + optional
            + metadata
    }

    /// Whether these may be the same bytes: all digests and sizes that both have are equal, and they share a digest or neither
    /// has any.
    fn may_be(&self, other: &UpstreamFile) -> bool {
        let named = |name: &str| other.hashes.iter().find(|(it, _)| **it == *name);
        let mut both = self.hashes.iter().filter_map(|(name, hex)| Some((hex, &named(name)?.1)));
        let has_none = self.hashes.is_empty() && other.hashes.is_empty();
        let is_size_same = match (self.size_bytes, other.size_bytes) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let first = both.next();
        is_size_same
            && first.map_or(has_none, |(one, other)| one == other)
            && both.all(|(one, other)| one == other)
    }

    /// Whether upstream says when it was uploaded.
    fn is_dated(&self) -> bool {
        self.upload_time.is_some()
    }

    /// The SHA-256, if upstream names a valid one.
    pub fn sha256(&self) -> Option<&str> {
        self.hash("sha256", 64)
    }

    /// The digest of this algorithm with this many hexadecimal digits, in lower case.
    fn hash(&self, algorithm: &str, digits: usize) -> Option<&str> {
        let found = self.hashes.iter().find(|(name, _)| &**name == algorithm)?;
        is_hexadecimal(&found.1, digits).then_some(&*found.1)
    }
}

/// Longest reason of a status, in bytes.
const REASON_BYTES_MAX: usize = 1_000;

/// A reason as one line of bounded length, for answers, logs and terminals; `None` if it is empty.
fn one_line(text: &str) -> Option<Box<str>> {
    let is_between = |character: char| character.is_whitespace() || character.is_control();
    let mut line = String::new();
    for word in text.split(is_between).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > REASON_BYTES_MAX {
            line.truncate(line.floor_char_boundary(REASON_BYTES_MAX));
            line.truncate(line.trim_end().len());
            break;
        }
    }
    (!line.is_empty()).then(|| line.into())
}

/// A time with a zone, as every installer reads it; `None` if the text is no such time.
fn time(text: &str) -> Option<Box<str>> {
    let time: Timestamp = text.trim().parse().ok()?;
    // pip knows no earlier year, and uv no later one.
    if !(1..=9999).contains(&time.to_zoned(TimeZone::UTC).year()) {
        return None;
    }
    let fraction = text.split_once('.').map_or(0, |(_, rest)| rest.len().saturating_sub(1));
    let is_plain = fraction <= 6 && format!("{time:.fraction$}") == text;
    Some(if is_plain { text.into() } else { format!("{time:.6}").into() })
}

/// A digest in lower case, if it can be one of this algorithm. Other algorithms than these may have digests of any length.
fn digest(algorithm: &str, text: &str) -> Option<(Box<str>, Box<str>)> {
    const DIGITS: [(&str, usize); 6] = [
        ("md5", 32),
        ("sha1", 40),
        ("sha224", 56),
        ("sha256", 64),
        ("sha384", 96),
        ("sha512", 128),
    ];
    const OTHER_DIGITS_MAX: usize = 128;
    let (algorithm, digits) = (algorithm.to_ascii_lowercase(), text.to_ascii_lowercase());
    let known = DIGITS.iter().find(|(name, _)| *name == algorithm);
    let is_right = match known {
        Some((_, expected)) => digits.len() == *expected,
        None => (2..=OTHER_DIGITS_MAX).contains(&digits.len()) && digits.len() % 2 == 0,
    };
    let is_right = is_right && is_hexadecimal(&digits, digits.len());
    is_right.then(|| (algorithm.into(), digits.into()))
}

/// A `requires-python`, without mistakes that hide a file from installers: `&gt;` for `>`, and commas with nothing between.
fn specifiers(text: &str) -> Box<str> {
    let plain = text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&");
    if plain.split(',').all(|part| !part.trim().is_empty()) {
        return plain.into();
    }
    let parts = plain.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(",").into()
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The absolute form of a URL on a page: http or https, with neither credentials nor fragment; and the fragment.
fn absolute(base: &Url, text: &str) -> Option<(Url, Option<String>)> {
    let mut url = base.join(text.trim()).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return None;
    }
    let fragment = url.fragment().map(str::to_owned);
    url.set_fragment(None);
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    Some((url, fragment))
}

#[cfg(test)]
mod tests;
