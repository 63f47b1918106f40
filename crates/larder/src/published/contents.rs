//! [`Contents`]: a cache of article contents that are requested often, with their compressed forms, within a budget.
//!
//! digest -> (memory, else the blob store, once for all concurrent requests) -> [`Content`]. Contents never change,
//! since their digest is their name. So nothing in the cache is ever out of date, only evicted for contents that are
//! requested more often. [`super::small_blobs`] is another cache, with another budget and without compressed forms: what
//! people read must not be evicted by a fleet that installs packages.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use article::RevisionFacts;
use bytes::Bytes;
use http::HeaderMap;
use record::{Digest, Serial};
use reply::{EncodedBody, Encoding, PerEncoding};
use resources::turns::blocking;
use store::{BlobError, BlobStore};

/// The cache is divided into parts, so that requests for different contents do not wait for each other's lock. A part
/// has at least this many bytes, if the budget allows it.
const PART_BYTES_MIN: u64 = 32 << 20;

/// A content larger than 1/4 of a part is not cached but read in pieces each time. With its compressed forms a content takes at
/// most three times its size, and others must have room beside it.
const PART_SHARE: u64 = 4;

/// Approximate cost of an entry besides its bytes: the headers of one or two forms.
const ENTRY_BYTES: u64 = 2_048;

/// A blob, with its compressed forms if they are worth sending.
#[derive(Debug)]
pub struct Content {
    body: EncodedBody,
    /// The headers that each form was last sent with.
    heads: PerEncoding<ArcSwapOption<RevisionHead>>,
}

/// The finished headers of a response, and what they depend on.
#[derive(Debug)]
pub struct RevisionHead {
    /// The revision that they describe.
    pub facts: Arc<RevisionFacts>,
    /// Whether the request was for the latest revision.
    pub is_latest: bool,
    /// The serial of the snapshot that answered.
    pub serial: Serial,
    /// The headers.
    pub headers: HeaderMap,
}

impl Content {
    /// Compresses `identity`.
    pub fn new(identity: Bytes) -> Content {
        Content { body: EncodedBody::compressed(identity), heads: PerEncoding::default() }
    }

    /// The body.
    pub fn body(&self) -> &EncodedBody {
        &self.body
    }

    /// The headers that this form was last sent with. A request that finds different ones replaces them.
    pub fn head(&self, encoding: Encoding) -> &ArcSwapOption<RevisionHead> {
        self.heads.get(encoding)
    }

    /// Whether there is any compressed form.
    pub(crate) fn has_forms(&self) -> bool {
        self.body.has(Encoding::Gzip) || self.body.has(Encoding::Zstd)
    }
}

#[derive(Clone)]
struct ContentWeight;

impl quick_cache::Weighter<Digest, Arc<Content>> for ContentWeight {
    fn weight(&self, _: &Digest, content: &Arc<Content>) -> u64 {
        content.body.memory_bytes() as u64 + ENTRY_BYTES
    }
}

/// The cache of contents.
pub struct Contents {
    cache: quick_cache::sync::Cache<Digest, Arc<Content>, ContentWeight>,
    content_bytes_max: u64,
}

impl Contents {
    /// An empty cache that takes at most `memory_bytes_max`.
    pub fn new(memory_bytes_max: u64) -> Contents {
        let expected =
            usize::try_from(memory_bytes_max / 16_384).unwrap_or(usize::MAX).clamp(16, 1 << 20);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = usize::try_from(memory_bytes_max / PART_BYTES_MIN).unwrap_or(usize::MAX);
        // The cache rounds this up to the next power of two.
        let parts = parts.clamp(1, 4 * cores).next_power_of_two();
        let parts =
            if parts as u64 * PART_BYTES_MIN > memory_bytes_max { parts / 2 } else { parts };
        let options = quick_cache::OptionsBuilder::new()
            .shards(parts.max(1))
            .estimated_items_capacity(expected)
            .weight_capacity(memory_bytes_max)
            .build()
            .expect("both capacities are set");
        let cache = quick_cache::sync::Cache::with_options(
            options,
            ContentWeight,
            Default::default(),
            Default::default(),
        );
        let content_bytes_max = cache.shard_capacity() / PART_SHARE;
        Contents { cache, content_bytes_max }
    }

    /// The content, if it is in the cache.
    pub fn at_hand(&self, digest: &Digest) -> Option<Arc<Content>> {
        self.cache.get(digest)
    }

    /// Adds a content that will be requested soon.
    pub fn insert(&self, digest: Digest, content: Content) {
        self.cache.insert(digest, Arc::new(content));
    }

    /// Whether contents of this size are cached at all.
    pub fn keeps(&self, size_bytes: u64) -> bool {
        size_bytes <= self.content_bytes_max
    }

    /// The content, read from the store if it is not in the cache; `None` if the blob does not exist.
    ///
    /// # Errors
    /// Errors of reading it.
    pub async fn load(
        &self,
        blobs: &BlobStore,
        digest: &Digest,
    ) -> Result<Option<Arc<Content>>, BlobError> {
        let reading = async {
            let bytes =
                blobs.bytes(*digest, self.content_bytes_max).await.map_err(Some)?.ok_or(None)?;
            Ok(blocking(move || Arc::new(Content::new(bytes))).await)
        };
        match self.cache.get_or_insert_async(digest, reading).await {
            Ok(content) => Ok(Some(content)),
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    /// The first bytes of these contents, at most `bytes_max` of each, in their order; `None` for a blob that does not exist. What is
    /// read is not cached.
    ///
    /// # Errors
    /// For each content, errors of reading it.
    pub async fn beginnings(
        &self,
        blobs: &BlobStore,
        digests: &[Digest],
        bytes_max: usize,
    ) -> Vec<Result<Option<Bytes>, BlobError>> {
        let at_hand = digests.iter().map(|digest| {
            let bytes = self.at_hand(digest)?.body().identity().clone();
            Some(bytes.slice(..bytes.len().min(bytes_max)))
        });
        let at_hand: Vec<Option<Bytes>> = at_hand.collect();
        let others = digests.iter().zip(&at_hand).filter(|(_, bytes)| bytes.is_none());
        let others: Vec<Digest> = others.map(|(digest, _)| *digest).collect();
        let read = match others.is_empty() {
            true => Vec::new(),
            false => blobs.beginnings(others, bytes_max).await,
        };
        let mut read = read.into_iter();
        let all = at_hand.into_iter();
        all.map(|bytes| match bytes {
            Some(bytes) => Ok(Some(bytes)),
            None => read.next().unwrap_or(Ok(None)),
        })
        .collect()
    }

    /// Bytes that the cache takes now.
    pub fn memory_bytes(&self) -> u64 {
        self.cache.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_budget(memory_bytes_max: u64) {
        let contents = Contents::new(memory_bytes_max);
        let largest = contents.content_bytes_max;
        assert!(contents.keeps(largest) && !contents.keeps(largest + 1));
        assert!(largest <= memory_bytes_max / PART_SHARE + 1);
        let digest = Digest::of(b"some name");
        // A content that is cached stays there, for any number of cores.
        if let Some(size_bytes) = usize::try_from(largest).ok().filter(|&bytes| bytes > 16_384) {
            contents.insert(digest, Content::new(vec![0; size_bytes].into()));
            assert!(contents.at_hand(&digest).is_some(), "{memory_bytes_max}");
            assert!(contents.memory_bytes() > largest);
        }
        assert!(contents.memory_bytes() <= memory_bytes_max);
    }

    #[test]
    fn the_largest_content_that_is_kept_has_room() {
        for megabytes in [0, 1, 31, 64, 128, 200] {
            check_budget(megabytes << 20);
        }
    }
}
