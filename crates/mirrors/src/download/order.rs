//! [`DownloadOrder`]: a file to download, and what its bytes are compared with.

use std::time::SystemTime;

use pypi::upstream::{CoreMetadata, UpstreamFile};
use reqwest::Url;
use sha2::digest::DynDigest;

use crate::disk::{EntryHead, Key};
use crate::{Mirror, milliseconds};

/// A file to download.
pub(crate) struct DownloadOrder {
    pub(crate) key: Key,
    pub(super) name: String,
    /// Its path below the mirror.
    pub(super) path: String,
    pub(super) url: Url,
    pub(crate) size_bytes: Option<u64>,
    hashes: Vec<(Box<str>, Box<str>)>,
    pub(super) upload_time: Option<Box<str>>,
    /// Identifies this content if upstream names no SHA-256: [`EntryHead::stamp`].
    stamp: Option<String>,
    /// When upstream last confirmed the page, in milliseconds since 1970. A file without any digest is not older than that.
    pub(super) since: i64,
    /// Whether clients may be redirected to upstream's file.
    pub(super) may_redirect: bool,
}

/// Whether an entry of the cache is the file that upstream's page names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileMatch {
    /// The entry is that file.
    Right,
    /// Nothing on the page shows whether the entry is still that file.
    Unconfirmed,
    /// The entry is another file.
    Wrong,
}

impl DownloadOrder {
    /// The order for a file of a page of this mirror, or for its metadata.
    pub(crate) fn of(
        mirror: &Mirror,
        file: &UpstreamFile,
        is_metadata: bool,
    ) -> Option<DownloadOrder> {
        let mut url = Url::parse(&file.url).ok()?;
        let mut path = file.canonical_link();
        let (mut size_bytes, mut hashes) = (file.size_bytes, file.hashes.clone());
        if is_metadata {
            path.push_str(".metadata");
            url.set_path(&format!("{}.metadata", url.path()));
            size_bytes = None;
            hashes = match file.core_metadata.as_ref()? {
                CoreMetadata::Sha256(digits) => vec![("sha256".into(), digits.clone())],
                CoreMetadata::Unhashed => Vec::new(),
            };
        }
        Some(DownloadOrder {
            key: mirror.key(&format!("file/{path}")),
            name: name_of(mirror, &url),
            path,
            url,
            size_bytes,
            hashes,
            upload_time: file.upload_time.clone(),
            // Metadata is replaced with its file.
            stamp: stamp_of(&file.hashes),
            since: 0,
            may_redirect: true,
        })
    }

    /// The key by which requests join a download: they expect the same bytes.
    pub(super) fn expected(&self) -> Key {
        Key::of(format!("{} {:?} {:?}", self.key, self.hashes, self.stamp).as_bytes())
    }

    /// Its name in the head of an entry.
    pub(crate) fn shown_name(&self) -> String {
        record::excerpt(&self.name, 1500).into()
    }

    /// The order, for a file on a page that upstream confirmed then.
    pub(super) fn on_page_of(self, confirmed_at: SystemTime) -> DownloadOrder {
        DownloadOrder { since: milliseconds(confirmed_at), ..self }
    }

    /// Whether an entry with this head may be this file.
    pub(crate) fn is_of(&self, head: &EntryHead) -> bool {
        self.compared(head) != FileMatch::Wrong
    }

    /// Whether an entry with this head is this file.
    pub(crate) fn compared(&self, head: &EntryHead) -> FileMatch {
        if self.size_bytes.is_some_and(|size_bytes| size_bytes != head.size_bytes) {
            return FileMatch::Wrong;
        }
        let of = |is_right| if is_right { FileMatch::Right } else { FileMatch::Wrong };
        match (self.sha256(), &self.stamp, &head.stamp) {
            (Some(sha256), _, _) => of(*sha256 == *head.sha256),
            (None, _, _) if head.name != self.shown_name() => FileMatch::Wrong,
            (None, Some(stamp), Some(found)) => of(stamp == found),
            // An earlier version did not note it.
            (None, Some(_), None) => FileMatch::Unconfirmed,
            (None, None, _) if head.checked_at >= self.since => FileMatch::Right,
            (None, None, _) => FileMatch::Unconfirmed,
        }
    }

    /// Whether upstream's page names no digest of the file.
    pub(super) fn has_no_digest(&self) -> bool {
        self.stamp.is_none()
    }

    /// Whether the page names neither a size nor a digest that can be checked.
    pub(super) fn is_uncompared(&self) -> bool {
        self.size_bytes.is_none() && self.sha256().is_none() && self.check().is_none()
    }

    /// The facts about this content, as it is now, without those of the answer that it came in.
    pub(crate) fn head(&self, size_bytes: u64, sha256: String, modified_at: i64) -> EntryHead {
        EntryHead {
            name: self.shown_name(),
            size_bytes,
            sha256,
            confirmed_at: modified_at,
            is_verified: self.sha256().is_some(),
            stamp: self.stamp_beside_sha256(),
            checked_at: milliseconds(SystemTime::now()),
            ..EntryHead::default()
        }
    }

    /// [`EntryHead::stamp`].
    pub(super) fn stamp_beside_sha256(&self) -> Option<String> {
        self.stamp.clone().filter(|_| self.sha256().is_none())
    }

    /// The SHA-256 that upstream names.
    pub(crate) fn sha256(&self) -> Option<&str> {
        let found = self.hashes.iter().find(|(name, _)| &**name == "sha256");
        found.map(|(_, digits)| &**digits).filter(|digits| digits.len() == 64)
    }

    /// If upstream names no SHA-256: another digest to compute, and the expected one.
    pub(super) fn digest_beside_sha256(&self) -> (Option<Box<dyn DynDigest + Send>>, Option<&str>) {
        match (self.sha256(), self.check()) {
            (None, Some((digest, digits))) => (Some(digest), Some(digits)),
            _ => (None, None),
        }
    }

    /// The digest that tells whether the bytes are right: the strongest that upstream names and we can compute.
    pub(crate) fn check(&self) -> Option<(Box<dyn DynDigest + Send>, &str)> {
        let named = |wanted: &str| {
            let found = self.hashes.iter().find(|(name, _)| &**name == wanted);
            found.map(|(_, digits)| &**digits)
        };
        let make = |name: &str| -> Box<dyn DynDigest + Send> {
            match name {
                "sha512" => Box::new(sha2::Sha512::default()),
                "sha384" => Box::new(sha2::Sha384::default()),
                "sha224" => Box::new(sha2::Sha224::default()),
                _ => Box::new(md5::Md5::default()),
            }
        };
        ["sha512", "sha384", "sha224", "md5"]
            .into_iter()
            .find_map(|name| Some((make(name), named(name)?)))
    }
}

/// The digests in one text of bounded length; `None` if there are none.
fn stamp_of(hashes: &[(Box<str>, Box<str>)]) -> Option<String> {
    let digests: Vec<String> = hashes.iter().map(|(name, hex)| format!("{name}:{hex}")).collect();
    (!digests.is_empty()).then(|| Key::of(digests.join(" ").as_bytes()).to_string())
}

/// The name of a file in its head, in logs and for clients: without credentials.
fn name_of(mirror: &Mirror, url: &Url) -> String {
    let mut url = url.clone();
    (_, _) = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    format!("{} {url}", mirror.stage)
}
