//! [`Order`]: a file to download, and what its bytes are compared with.

use pypi::upstream::{CoreMetadata, UpstreamFile};
use reqwest::Url;
use sha2::digest::DynDigest;

use crate::Mirror;
use crate::disk::{Head, Key};

/// A file to download.
pub(crate) struct Order {
    pub(crate) key: Key,
    pub(super) name: String,
    pub(super) url: Url,
    pub(crate) size_bytes: Option<u64>,
    hashes: Vec<(Box<str>, Box<str>)>,
    pub(super) upload_time: Option<Box<str>>,
    /// The name and the identity of a file whose size upstream's page does not say.
    pub(crate) unsized_file: Option<(Box<str>, Box<str>)>,
}

impl Order {
    /// The order for a file of a page of this mirror, or for its metadata.
    pub(crate) fn of(mirror: &Mirror, file: &UpstreamFile, is_metadata: bool) -> Option<Order> {
        let mut url = Url::parse(&file.url).ok()?;
        let upload_time = file.upload_time.clone();
        if !is_metadata {
            let key = mirror.key(&format!("file/{}", file.canonical_link()));
            let name = name_of(mirror, &url);
            let (size_bytes, hashes) = (file.size_bytes, file.hashes.clone());
            let is_unsized = mirror.fills_sizes && size_bytes.is_none();
            let unsized_file = is_unsized.then(|| (file.filename.clone(), file.identity()));
            return Some(Order { key, name, url, size_bytes, hashes, upload_time, unsized_file });
        }
        let metadata = file.core_metadata.as_ref()?;
        let key = mirror.key(&format!("file/{}.metadata", file.canonical_link()));
        url.set_path(&format!("{}.metadata", url.path()));
        let hashes = match metadata {
            CoreMetadata::Sha256(digits) => vec![("sha256".into(), digits.clone())],
            CoreMetadata::Unhashed => Vec::new(),
        };
        let (name, size_bytes, unsized_file) = (name_of(mirror, &url), None, None);
        Some(Order { key, name, url, size_bytes, hashes, upload_time, unsized_file })
    }

    /// The key by which requests join a download: they expect the same bytes.
    pub(super) fn expected(&self) -> Key {
        Key::of(format!("{} {:?}", self.key, self.hashes).as_bytes())
    }

    /// Its name in the head of an entry.
    pub(crate) fn shown_name(&self) -> String {
        self.name.chars().take(1500).collect()
    }

    /// Whether an entry with this head is this file.
    pub(crate) fn is_of(&self, head: &Head) -> bool {
        let is_same = match self.sha256() {
            Some(sha256) => *sha256 == *head.sha256,
            None => head.name == self.shown_name(),
        };
        is_same && self.size_bytes.is_none_or(|size_bytes| size_bytes == head.size_bytes)
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

/// The name of a file in its head, in logs and for clients: without credentials.
fn name_of(mirror: &Mirror, url: &Url) -> String {
    let mut url = url.clone();
    (_, _) = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    format!("{} {url}", mirror.stage)
}
