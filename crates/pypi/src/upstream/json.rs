//! The wire form of a project's page as JSON (PEP 691, 700, 714, 740, 792), read and written.
//!
//! What upstream says in a form that no reader of ours would understand counts as not said.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use url::Url;

use super::{
    CoreMetadata, Files, Locations, PageError, UpstreamFile, UpstreamPage, absolute, digest,
    is_hexadecimal, one_line, specifiers, time,
};
use crate::{StatusMarker, check_segment};

#[derive(Deserialize, Serialize)]
struct WirePage<'text> {
    #[serde(borrow)]
    meta: Meta<'text>,
    #[serde(rename = "project-status", borrow, default, skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'text>>,
    #[serde(rename = "alternate-locations", default, skip_serializing_if = "Urls::is_empty")]
    alternates: Urls,
    #[serde(default, deserialize_with = "bounded")]
    versions: Vec<Flat<0>>,
    #[serde(borrow, deserialize_with = "bounded")]
    files: Vec<WireFile<'text>>,
}

/// The `meta` of a page or a list.
#[derive(Deserialize, Serialize)]
pub(super) struct Meta<'text> {
    #[serde(rename = "api-version", borrow)]
    api_version: Cow<'text, str>,
    #[serde(rename = "_last-serial", default, skip_serializing_if = "Flat::is_null")]
    last_serial: Flat<0>,
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
        from.deserialize_any(UrlsVisitor)
    }
}

struct UrlsVisitor;

impl<'text> Visitor<'text> for UrlsVisitor {
    type Value = Urls;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Urls, E> {
        Ok(Urls::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Urls, E> {
        Ok(Urls::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Urls, E> {
        Ok(Urls::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Urls, E> {
        Ok(Urls::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Urls, E> {
        Ok(Urls::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Urls, E> {
        Ok(Urls::default())
    }

    fn visit_map<A: MapAccess<'text>>(self, mut members: A) -> Result<Urls, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Urls::default())
    }

    fn visit_seq<A: SeqAccess<'text>>(self, mut items: A) -> Result<Urls, A::Error> {
        let mut urls = Vec::new();
        while urls.len() < Locations::URLS_MAX
            && let Some(Flat(item)) = items.next_element::<Flat<0>>()?
        {
            if let Value::String(url) = item {
                urls.push(url);
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Urls(urls))
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
    hashes: Flat<16>,
    #[serde(rename = "requires-python", default, skip_serializing_if = "Flat::is_null")]
    requires_python: Flat<0>,
    #[serde(default, skip_serializing_if = "Flat::is_null")]
    size: Flat<0>,
    #[serde(rename = "upload-time", default, skip_serializing_if = "Flat::is_null")]
    upload_time: Flat<0>,
    /// Ours: `first-seen` if the upload time is when another Larder first saw the file.
    #[serde(rename = "_upload-time-from", default, skip_serializing)]
    upload_time_from: Flat<0>,
    #[serde(default, skip_serializing_if = "Flat::is_null")]
    yanked: Flat<0>,
    #[serde(rename = "core-metadata", default, skip_serializing_if = "Flat::is_null")]
    core_metadata: Flat<16>,
    #[serde(rename = "dist-info-metadata", default, skip_serializing)]
    older_metadata: Flat<16>,
    #[serde(rename = "data-dist-info-metadata", default, skip_serializing)]
    oldest_metadata: Flat<16>,
    #[serde(default, skip_serializing_if = "Flat::is_null")]
    provenance: Flat<0>,
    /// Our own member, in pages of the cache.
    #[serde(rename = "_first-seen", default, skip_serializing_if = "Flat::is_null")]
    first_seen: Flat<0>,
}

/// Most files, and most versions, of a page.
const ITEMS_MAX: usize = 200_000;

/// A value without lists and nested objects, or an object of at most `MEMBERS` members. The rest is dropped while it is read, so
/// that a page takes little more memory than the texts in it.
#[derive(Default, Serialize)]
#[serde(transparent)]
struct Flat<const MEMBERS: usize>(Value);

impl<const MEMBERS: usize> Flat<MEMBERS> {
    fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<'text, const MEMBERS: usize> Deserialize<'text> for Flat<MEMBERS> {
    fn deserialize<D: Deserializer<'text>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(FlatVisitor::<MEMBERS>).map(Flat)
    }
}

struct FlatVisitor<const MEMBERS: usize>;

impl<'text, const MEMBERS: usize> Visitor<'text> for FlatVisitor<MEMBERS> {
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
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'text>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while kept.len() < MEMBERS
            && let Some((name, value)) = members.next_entry::<String, Flat<0>>()?
        {
            kept.insert(name, value.0);
        }
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(if MEMBERS == 0 { Value::Null } else { kept.into() })
    }
}

/// A list of at most [`ITEMS_MAX`].
fn bounded<'text, D: Deserializer<'text>, T: Deserialize<'text>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct Items<T>(PhantomData<T>);
    impl<'text, T: Deserialize<'text>> Visitor<'text> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(out, "a list of at most {ITEMS_MAX}")
        }

        fn visit_seq<A: SeqAccess<'text>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                if all.len() == ITEMS_MAX {
                    return Err(A::Error::invalid_length(ITEMS_MAX + 1, &self));
                }
                all.push(item);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Items(PhantomData))
}

impl Meta<'_> {
    /// Whether this is the version of the interface that is read here.
    pub(super) fn check(&self) -> Result<(), PageError> {
        match self.api_version.split('.').next() {
            Some("1") => Ok(()),
            _ => Err(PageError(format!(
                "its api-version is `{}`; 1.0 or a later 1.x was expected",
                self.api_version.chars().take(20).collect::<String>()
            ))),
        }
    }
}

pub(super) fn page(body: &[u8], base: &Url) -> Result<UpstreamPage, PageError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let page: WirePage<'_> = serde_json::from_slice(body).map_err(PageError::new)?;
    page.meta.check()?;
    let status = page.status.and_then(|it| {
        let marker = StatusMarker::parse(&it.status)?;
        Some((marker, it.reason.as_deref().and_then(one_line)))
    });
    let text = |value: Flat<0>| value.0.as_str().map(Into::into);
    let mut files = Files::default();
    for wire in page.files {
        files.extend(file(wire, base));
    }
    let alternates = page.alternates.0.iter().chain(&page.meta.alternates.0);
    let alternates = alternates.map(String::as_str);
    let tracks = page.meta.tracks.0.iter().map(String::as_str);
    Ok(UpstreamPage {
        status,
        locations: Locations::read(base, tracks, alternates),
        last_serial: page.meta.last_serial.0.as_u64().filter(|serial| *serial > 0),
        versions: page.versions.into_iter().filter_map(text).collect(),
        files: files.all()?,
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
        hashes: hashes.collect(),
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

pub(super) fn written(page: &UpstreamPage) -> Vec<u8> {
    let text = |text: &Option<Box<str>>| Flat(text.as_deref().map_or(Value::Null, Value::from));
    let hashes = |file: &UpstreamFile| {
        let pairs =
            file.hashes.iter().map(|(name, digits)| (String::from(&**name), (&**digits).into()));
        Flat(Value::Object(pairs.collect()))
    };
    let files = page.files.iter().map(|file| WireFile {
        filename: (&*file.filename).into(),
        url: (&*file.url).into(),
        hashes: hashes(file),
        requires_python: text(&file.requires_python),
        size: Flat(file.size_bytes.map_or(Value::Null, Value::from)),
        upload_time: text(&file.upload_time),
        upload_time_from: Flat::default(),
        yanked: text(&file.yanked),
        core_metadata: Flat(match &file.core_metadata {
            None => Value::Null,
            Some(CoreMetadata::Unhashed) => Value::Bool(true),
            Some(CoreMetadata::Sha256(digits)) => {
                Value::Object(Map::from_iter([("sha256".to_owned(), Value::from(&**digits))]))
            }
        }),
        older_metadata: Flat::default(),
        oldest_metadata: Flat::default(),
        provenance: text(&file.provenance),
        first_seen: Flat(file.first_seen.map_or(Value::Null, |time| time.to_string().into())),
    });
    let page = WirePage {
        meta: Meta {
            api_version: "1.4".into(),
            last_serial: Flat(page.last_serial.map_or(Value::Null, Value::from)),
            tracks: Urls::of(&page.locations.tracks),
            alternates: Urls::default(),
        },
        alternates: Urls::of(&page.locations.alternates),
        status: page.status.as_ref().map(|(marker, reason)| WireStatus {
            status: marker.as_str().into(),
            reason: reason.as_deref().map(Into::into),
        }),
        versions: page.versions.iter().map(|version| Flat((&**version).into())).collect(),
        files: files.collect(),
    };
    // Texts and numbers: nothing in it can fail.
    serde_json::to_vec(&page).unwrap_or_default()
}
