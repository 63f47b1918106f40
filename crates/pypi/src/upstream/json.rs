//! The wire form of a project's page as JSON (PEP 691, 700, 714, 740, 792), read and written.
//!
//! What upstream says in a form that no reader of ours would understand counts as not said.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use super::{CoreMetadata, PageError, UpstreamFile, UpstreamPage, absolute, is_hexadecimal};
use crate::{StatusMarker, check_segment};

#[derive(Deserialize, Serialize)]
struct WirePage<'text> {
    #[serde(borrow)]
    meta: Meta<'text>,
    #[serde(rename = "project-status", borrow, default, skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'text>>,
    #[serde(default)]
    versions: Vec<Value>,
    #[serde(borrow)]
    files: Vec<WireFile<'text>>,
}

/// The `meta` of a page or a list.
#[derive(Deserialize, Serialize)]
pub(super) struct Meta<'text> {
    #[serde(rename = "api-version", borrow)]
    api_version: Cow<'text, str>,
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
    #[serde(borrow, default)]
    hashes: BTreeMap<Cow<'text, str>, Value>,
    #[serde(rename = "requires-python", default, skip_serializing_if = "Value::is_null")]
    requires_python: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    size: Value,
    #[serde(rename = "upload-time", default, skip_serializing_if = "Value::is_null")]
    upload_time: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    yanked: Value,
    #[serde(rename = "core-metadata", default, skip_serializing_if = "Value::is_null")]
    core_metadata: Value,
    #[serde(rename = "dist-info-metadata", default, skip_serializing)]
    older_metadata: Value,
    #[serde(rename = "data-dist-info-metadata", default, skip_serializing)]
    oldest_metadata: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    provenance: Value,
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
        Some((marker, it.reason.map(|reason| reason.into())))
    });
    let text = |value: Value| value.as_str().map(Into::into);
    Ok(UpstreamPage {
        status,
        versions: page.versions.into_iter().filter_map(text).collect(),
        files: page.files.into_iter().filter_map(|it| file(it, base)).collect(),
    })
}

fn file(file: WireFile<'_>, base: &Url) -> Option<UpstreamFile> {
    check_segment(&file.filename).ok()?;
    let (url, _) = absolute(base, &file.url)?;
    let text = |value: &Value| value.as_str().map(Into::into);
    let said = [file.core_metadata, file.older_metadata, file.oldest_metadata];
    let core_metadata = said.iter().find(|value| !value.is_null()).and_then(|value| match value {
        Value::Bool(true) => Some(CoreMetadata::Unhashed),
        Value::Object(hashes) => {
            let digits = hashes.get("sha256").and_then(Value::as_str);
            Some(match digits.map(str::to_ascii_lowercase) {
                Some(digits) if is_hexadecimal(&digits, 64) => CoreMetadata::Sha256(digits.into()),
                _ => CoreMetadata::Unhashed,
            })
        }
        _ => None,
    });
    let hashes = file.hashes.into_iter().filter_map(|(name, digits)| {
        let digits = digits.as_str()?.to_ascii_lowercase();
        Some((name.into(), digits.into()))
    });
    Some(UpstreamFile {
        filename: file.filename.into(),
        url: String::from(url).into(),
        hashes: hashes.collect(),
        size_bytes: file.size.as_u64(),
        upload_time: text(&file.upload_time),
        requires_python: text(&file.requires_python),
        yanked: match &file.yanked {
            Value::Bool(true) => Some("".into()),
            Value::String(reason) => Some(reason.as_str().into()),
            _ => None,
        },
        core_metadata,
        provenance: file
            .provenance
            .as_str()
            .and_then(|text| absolute(base, text))
            .map(|(url, _)| String::from(url).into()),
    })
}

pub(super) fn written(page: &UpstreamPage) -> Vec<u8> {
    let text = |text: &Option<Box<str>>| text.as_deref().map_or(Value::Null, Value::from);
    let files = page.files.iter().map(|file| WireFile {
        filename: (&*file.filename).into(),
        url: (&*file.url).into(),
        hashes: file
            .hashes
            .iter()
            .map(|(name, digits)| ((&**name).into(), Value::from(&**digits)))
            .collect(),
        requires_python: text(&file.requires_python),
        size: file.size_bytes.map_or(Value::Null, Value::from),
        upload_time: text(&file.upload_time),
        yanked: text(&file.yanked),
        core_metadata: match &file.core_metadata {
            None => Value::Null,
            Some(CoreMetadata::Unhashed) => Value::Bool(true),
            Some(CoreMetadata::Sha256(digits)) => {
                Value::Object(Map::from_iter([("sha256".to_owned(), Value::from(&**digits))]))
            }
        },
        older_metadata: Value::Null,
        oldest_metadata: Value::Null,
        provenance: text(&file.provenance),
    });
    let page = WirePage {
        meta: Meta { api_version: "1.4".into() },
        status: page.status.as_ref().map(|(marker, reason)| WireStatus {
            status: marker.as_str().into(),
            reason: reason.as_deref().map(Into::into),
        }),
        versions: page.versions.iter().map(|version| Value::from(&**version)).collect(),
        files: files.collect(),
    };
    // Texts and numbers: nothing in it can fail.
    serde_json::to_vec(&page).unwrap_or_default()
}
