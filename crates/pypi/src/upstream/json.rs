//! The wire form of a project's page as JSON (PEP 691, 700, 714, 740, 792), read and written.
//!
//! What upstream says in a form that no reader of ours would understand counts as not said.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufReader, Read, Write};

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use url::Url;

use super::source::{PageStart, PlainJson};
use super::{
    CoreMetadata, FILES_MAX, Files, Locations, PageError, UpstreamFile, UpstreamPage, absolute,
    digest, exactly, is_hexadecimal, one_line, specifiers, time,
};
use crate::{StatusMarker, check_segment};

/// A page that is read, except for its files.
#[derive(Default)]
struct ReadPage<'text> {
    meta: Option<Meta<'text>>,
    status: Option<WireStatus<'text>>,
    alternates: Urls,
    versions: Versions,
}

/// Reads a page; its files are read one by one, so that only what is kept of each takes memory.
struct Page<'page> {
    base: &'page Url,
    files: &'page mut Files,
}

impl<'text> Visitor<'text> for Page<'_> {
    type Value = ReadPage<'text>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object with `meta` and `files`")
    }

    fn visit_map<A: MapAccess<'text>>(self, mut members: A) -> Result<ReadPage<'text>, A::Error> {
        let Page { base, files } = self;
        let (mut page, mut has_files) = (ReadPage::default(), false);
        while let Some(Name(name)) = members.next_key()? {
            match &*name {
                "meta" => {
                    let meta: Meta<'_> = members.next_value()?;
                    meta.check().map_err(|error| A::Error::custom(error.0))?;
                    page.meta = Some(meta);
                }
                "project-status" => page.status = members.next_value()?,
                "alternate-locations" => page.alternates = members.next_value()?,
                "versions" => page.versions = members.next_value()?,
                "files" if has_files => return Err(A::Error::duplicate_field("files")),
                "files" => {
                    members.next_value_seed(EachFile { base, files: &mut *files })?;
                    has_files = true;
                }
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        if has_files { Ok(page) } else { Err(A::Error::missing_field("files")) }
    }
}

/// The name of a member.
#[derive(Deserialize)]
pub(super) struct Name<'text>(#[serde(borrow)] pub(super) Cow<'text, str>);

/// A page that is written, its files one by one, too.
#[derive(Serialize)]
struct WrittenPage<'page> {
    meta: Meta<'page>,
    #[serde(rename = "project-status", skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'page>>,
    #[serde(rename = "alternate-locations", skip_serializing_if = "Urls::is_empty")]
    alternates: Urls,
    versions: &'page [Box<str>],
    #[serde(serialize_with = "each_file")]
    files: &'page [UpstreamFile],
}

/// The `meta` of a page or a list.
#[derive(Deserialize, Serialize)]
pub(super) struct Meta<'text> {
    #[serde(rename = "api-version", borrow)]
    api_version: Cow<'text, str>,
    #[serde(rename = "_last-serial", default, skip_serializing_if = "FlatValue::is_null")]
    last_serial: FlatValue<0>,
    #[serde(default, skip_serializing_if = "Urls::is_empty")]
    tracks: Urls,
    /// Some upstreams have them here, although the interface puts them beside `meta`.
    #[serde(rename = "alternate-locations", default, skip_serializing)]
    alternates: Urls,
}

/// The first URLs of a list; empty if it is not a list.
#[derive(Default, Serialize)]
#[serde(transparent)]
struct Urls(Vec<String>);

impl Urls {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(urls: &[Box<str>]) -> Urls {
        Urls(urls.iter().map(|url| String::from(&**url)).collect())
    }
}

impl<'text> Deserialize<'text> for Urls {
    fn deserialize<D: Deserializer<'text>>(from: D) -> Result<Self, D::Error> {
        let items = match from.deserialize_any(FlatVisitor::<0, { Locations::URLS_MAX }>)? {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        Ok(Urls(items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()))
    }
}

#[derive(Deserialize, Serialize)]
struct WireStatus<'text> {
    #[serde(borrow)]
    status: Cow<'text, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'text, str>>,
}

#[derive(Deserialize, Serialize)]
struct WireFile<'text> {
    #[serde(borrow)]
    filename: Cow<'text, str>,
    #[serde(borrow)]
    url: Cow<'text, str>,
    #[serde(default)]
    hashes: FlatValue<16>,
    #[serde(rename = "requires-python", default, skip_serializing_if = "FlatValue::is_null")]
    requires_python: FlatValue<0>,
    #[serde(default, skip_serializing_if = "FlatValue::is_null")]
    size: FlatValue<0>,
    #[serde(rename = "upload-time", default, skip_serializing_if = "FlatValue::is_null")]
    upload_time: FlatValue<0>,
    /// Ours: `first-seen` if the upload time is when another Larder first saw the file.
    #[serde(rename = "_upload-time-from", default, skip_serializing)]
    upload_time_from: FlatValue<0>,
    #[serde(default, skip_serializing_if = "FlatValue::is_null")]
    yanked: FlatValue<0>,
    #[serde(rename = "core-metadata", default, skip_serializing_if = "FlatValue::is_null")]
    core_metadata: FlatValue<16>,
    #[serde(rename = "dist-info-metadata", default, skip_serializing)]
    older_metadata: FlatValue<16>,
    #[serde(rename = "data-dist-info-metadata", default, skip_serializing)]
    oldest_metadata: FlatValue<16>,
    #[serde(default, skip_serializing_if = "FlatValue::is_null")]
    provenance: FlatValue<0>,
    /// Our own member, in pages of the cache.
    #[serde(rename = "_first-seen", default, skip_serializing_if = "FlatValue::is_null")]
    first_seen: FlatValue<0>,
}

/// A value without lists and nested objects, or an object of at most `MEMBERS` members. The rest is dropped while it is read, so
/// that a page takes little more memory than the texts in it.
#[derive(Default, Serialize)]
#[serde(transparent)]
struct FlatValue<const MEMBERS: usize>(Value);

impl<const MEMBERS: usize> FlatValue<MEMBERS> {
    fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<'text, const MEMBERS: usize> Deserialize<'text> for FlatValue<MEMBERS> {
    fn deserialize<D: Deserializer<'text>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(FlatVisitor::<MEMBERS, 0>).map(FlatValue)
    }
}

/// Keeps at most this many members of an object, or texts of a list, and drops the rest.
struct FlatVisitor<const MEMBERS: usize, const TEXTS: usize>;

impl<'text, const MEMBERS: usize, const TEXTS: usize> Visitor<'text>
    for FlatVisitor<MEMBERS, TEXTS>
{
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'text>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < TEXTS
            && let Some(FlatValue(item)) = items.next_element::<FlatValue<0>>()?
        {
            if item.is_string() {
                kept.push(item);
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(if TEXTS == 0 { Value::Null } else { kept.into() })
    }

    fn visit_map<A: MapAccess<'text>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while kept.len() < MEMBERS
            && let Some((name, value)) = members.next_entry::<String, FlatValue<0>>()?
        {
            kept.insert(name, value.0);
        }
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(if MEMBERS == 0 { Value::Null } else { kept.into() })
    }
}

/// Longest versions of a page together, in bytes.
const VERSIONS_BYTES_MAX: usize = 2 << 20;

/// The versions of a page: those that are texts.
#[derive(Default)]
struct Versions(Vec<Box<str>>);

impl<'text> Deserialize<'text> for Versions {
    fn deserialize<D: Deserializer<'text>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(VersionsVisitor)
    }
}

struct VersionsVisitor;

impl<'text> Visitor<'text> for VersionsVisitor {
    type Value = Versions;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a list of at most {FILES_MAX} versions and {VERSIONS_BYTES_MAX} bytes")
    }

    fn visit_seq<A: SeqAccess<'text>>(self, mut items: A) -> Result<Versions, A::Error> {
        let (mut versions, mut seen, mut bytes) = (Vec::new(), 0, 0);
        while let Some(FlatValue(item)) = items.next_element::<FlatValue<0>>()? {
            let version: Option<Box<str>> = item.as_str().map(Into::into);
            seen += 1;
            bytes += version.as_ref().map_or(0, |version| version.len());
            if seen > FILES_MAX || bytes > VERSIONS_BYTES_MAX {
                return Err(A::Error::invalid_length(seen, &self));
            }
            versions.extend(version);
        }
        Ok(Versions(versions))
    }
}

/// Reads the files of a page.
struct EachFile<'page> {
    base: &'page Url,
    files: &'page mut Files,
}

impl<'text> DeserializeSeed<'text> for EachFile<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'text>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'text> Visitor<'text> for EachFile<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'text>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(wire) = items.next_element()? {
            self.files.extend(file(wire, self.base));
            // Nothing is read of the rest of a page that is refused.
            self.files.check().map_err(|error| A::Error::custom(error.0))?;
        }
        Ok(())
    }
}

impl Meta<'_> {
    /// Whether this is the version of the interface that is read here.
    pub(super) fn check(&self) -> Result<(), PageError> {
        match self.api_version.split('.').next() {
            Some("1") => Ok(()),
            _ => Err(PageError(format!(
                "its api-version is `{}`; 1.0 or a later 1.x was expected",
                record::excerpt(&self.api_version, 20)
            ))),
        }
    }
}

pub(super) fn page(body: &[u8], base: &Url) -> Result<UpstreamPage, PageError> {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    page_of(serde_json::Deserializer::from_slice(body), base)
}

/// [`page`], of a body that comes piece by piece.
pub(super) fn read(body: PageStart<&mut dyn Read>, base: &Url) -> Result<UpstreamPage, PageError> {
    page_of(serde_json::Deserializer::from_reader(plain(body)?), base)
}

/// A body to read piece by piece, without its byte order mark.
pub(super) fn plain(body: PageStart<&mut dyn Read>) -> Result<impl Read, PageError> {
    let PageStart { bytes, mut all } = body;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        all.read_exact(&mut [0; BYTE_ORDER_MARK.len()]).map_err(PageError::new)?;
    }
    Ok(BufReader::with_capacity(64 << 10, PlainJson::of(all)))
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn page_of<'text>(
    mut body: serde_json::Deserializer<impl serde_json::de::Read<'text>>,
    base: &Url,
) -> Result<UpstreamPage, PageError> {
    let mut files = Files::default();
    let page = body.deserialize_map(Page { base, files: &mut files }).map_err(PageError::new)?;
    body.end().map_err(PageError::new)?;
    let meta = page.meta.ok_or_else(|| PageError("it has no `meta`".to_owned()))?;
    let status = page.status.and_then(|it| {
        let marker = StatusMarker::parse(&it.status)?;
        Some((marker, it.reason.as_deref().and_then(one_line)))
    });
    let alternates = page.alternates.0.iter().chain(&meta.alternates.0);
    let alternates = alternates.map(String::as_str);
    let tracks = meta.tracks.0.iter().map(String::as_str);
    Ok(UpstreamPage {
        status,
        locations: Locations::read(base, tracks, alternates),
        last_serial: meta.last_serial.0.as_u64().filter(|serial| *serial > 0),
        versions: page.versions.0,
        files: files.all()?,
        ..UpstreamPage::default()
    })
}

fn file(file: WireFile<'_>, base: &Url) -> Option<UpstreamFile> {
    check_segment(&file.filename).ok()?;
    let (url, _) = absolute(base, &file.url)?;
    let said = [file.core_metadata, file.older_metadata, file.oldest_metadata];
    let core_metadata =
        said.iter().find(|value| !value.is_null()).and_then(|value| match &value.0 {
            Value::Bool(true) => Some(CoreMetadata::Unhashed),
            Value::Object(hashes) => {
                let digits = hashes.get("sha256").and_then(Value::as_str);
                Some(match digits.map(str::to_ascii_lowercase) {
                    Some(digits) if is_hexadecimal(&digits, 64) => {
                        CoreMetadata::Sha256(digits.into())
                    }
                    _ => CoreMetadata::Unhashed,
                })
            }
            _ => None,
        });
    let hashes = file
        .hashes
        .0
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, digits)| digest(name, digits.as_str()?));
    let is_first_seen = file.upload_time_from.0.as_str() == Some("first-seen");
    Some(UpstreamFile {
        filename: file.filename.into(),
        url: String::from(url).into(),
        hashes: exactly(hashes),
        size_bytes: file.size.0.as_u64(),
        upload_time: file.upload_time.0.as_str().filter(|_| !is_first_seen).and_then(time),
        first_seen: file.first_seen.0.as_str().and_then(|text| text.parse().ok()),
        requires_python: file.requires_python.0.as_str().map(specifiers),
        yanked: match &file.yanked.0 {
            Value::Bool(true) => Some("".into()),
            Value::String(reason) => Some(reason.as_str().into()),
            _ => None,
        },
        core_metadata,
        provenance: file
            .provenance
            .0
            .as_str()
            .and_then(|text| absolute(base, text))
            .map(|(url, _)| String::from(url).into()),
    })
}

pub(super) fn write(page: &UpstreamPage, to: &mut dyn Write) -> io::Result<()> {
    let page = WrittenPage {
        meta: Meta {
            api_version: "1.4".into(),
            last_serial: FlatValue(page.last_serial.map_or(Value::Null, Value::from)),
            tracks: Urls::of(&page.locations.tracks),
            alternates: Urls::default(),
        },
        alternates: Urls::of(&page.locations.alternates),
        status: page.status.as_ref().map(|(marker, reason)| WireStatus {
            status: marker.as_str().into(),
            reason: reason.as_deref().map(Into::into),
        }),
        versions: &page.versions,
        files: &page.files,
    };
    serde_json::to_writer(to, &page).map_err(io::Error::from)
}

fn each_file<S: Serializer>(files: &[UpstreamFile], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(files.iter().map(wire))
}

fn wire(file: &UpstreamFile) -> WireFile<'_> {
    let text =
        |text: &Option<Box<str>>| FlatValue(text.as_deref().map_or(Value::Null, Value::from));
    let hashes =
        file.hashes.iter().map(|(name, digits)| (String::from(&**name), (&**digits).into()));
    WireFile {
        filename: (&*file.filename).into(),
        url: (&*file.url).into(),
        hashes: FlatValue(Value::Object(hashes.collect())),
        requires_python: text(&file.requires_python),
        size: FlatValue(file.size_bytes.map_or(Value::Null, Value::from)),
        upload_time: text(&file.upload_time),
        upload_time_from: FlatValue::default(),
        yanked: text(&file.yanked),
        core_metadata: FlatValue(match &file.core_metadata {
            None => Value::Null,
            Some(CoreMetadata::Unhashed) => Value::Bool(true),
            Some(CoreMetadata::Sha256(digits)) => {
                Value::Object(Map::from_iter([("sha256".to_owned(), Value::from(&**digits))]))
            }
        }),
        older_metadata: FlatValue::default(),
        oldest_metadata: FlatValue::default(),
        provenance: text(&file.provenance),
        first_seen: FlatValue(file.first_seen.map_or(Value::Null, |time| time.to_string().into())),
    }
}
