//! [`Names`]: the names of a stage's projects, joined in chunks of some kilobytes.
//!
//! Projects are all over the memory: a walk over hundreds of thousands of them waits for the memory at each. Lists, searches and suggestions
//! read these chunks instead, and look up only the projects that they show. Snapshots share a chunk until a name in it comes or goes.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use memchr::memmem::Finder;
use memchr::{memchr, memrchr};

/// Bytes of a chunk at most, which are copied when a name comes or goes; many times as long as a name. Tests divide earlier.
const CHUNK_BYTES_MAX: usize = if cfg!(test) { 48 } else { 8 << 10 };

/// The end of each name in a chunk. It is before all bytes of names, so chunks are in the order of their names.
const END: u8 = b'\n';

/// Names of projects in their order, each once. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Each below a text that is not after its first name, and after all names of the chunk before it; none is empty.
    chunks: OrdMap<Arc<str>, Arc<String>>,
}

impl Names {
    /// All names, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.chunks.values().flat_map(|chunk| with(chunk, Finder::new("")))
    }

    /// The names from this text on, ascending.
    pub(crate) fn from<'names>(&'names self, text: &str) -> impl Iterator<Item = &'names str> {
        let chunk = self.chunks.get_prev(text);
        let first = chunk.map_or(text, |(first, _)| &**first);
        let mut begin = chunk.map_or(0, |(_, chunk)| place(chunk, text).unwrap_or_else(|at| at));
        let chunks = self.chunks.range::<_, str>((Bound::Included(first), Bound::Unbounded));
        chunks
            .flat_map(move |(_, chunk)| with(&chunk[std::mem::take(&mut begin)..], Finder::new("")))
    }

    /// The names that have this text in them, ascending.
    pub(crate) fn containing<'names>(
        &'names self,
        text: &'names str,
    ) -> impl Iterator<Item = &'names str> {
        // No name has an end within, but two neighbours have.
        let is_possible = memchr(END, text.as_bytes()).is_none();
        let finder = Finder::new(text);
        let chunks = self.chunks.values().take_while(move |_| is_possible);
        chunks.flat_map(move |chunk| with(chunk, finder.clone()))
    }

    /// Adds a name, or removes it.
    pub(crate) fn set(&mut self, name: &str, is_in: bool) {
        match is_in {
            true => self.insert(name),
            false => self.remove(name),
        }
    }

    fn insert(&mut self, name: &str) {
        let first = match self.chunks.get_prev(name) {
            Some((first, _)) => first.clone(),
            // It comes before all others: into their first chunk.
            None => {
                let first = self.chunks.get_min().map(|(first, _)| first.clone());
                let chunk = first.and_then(|first| self.chunks.remove(&first)).unwrap_or_default();
                let first: Arc<str> = name.into();
                self.chunks.insert(first.clone(), chunk);
                first
            }
        };
        let chunk = Arc::make_mut(self.chunks.get_mut(&first).expect("it is there"));
        let Err(at) = place(chunk, name) else { return };
        if chunk.capacity() - chunk.len() <= name.len() {
            // There are many chunks: little of each is empty.
            chunk.reserve_exact(name.len() + 1 + chunk.len() / 16);
        }
        chunk.insert(at, char::from(END));
        chunk.insert_str(at, name);
        if chunk.len() <= CHUNK_BYTES_MAX {
            return;
        }
        let middle = chunk.len() / 2;
        let half =
            memchr(END, &chunk.as_bytes()[middle..]).map_or(chunk.len(), |at| middle + at + 1);
        let later = chunk[half..].to_owned();
        if let Some(end) = memchr(END, later.as_bytes()) {
            chunk.truncate(half);
            chunk.shrink_to_fit();
            self.chunks.insert(Arc::from(&later[..end]), Arc::new(later));
        }
    }

    fn remove(&mut self, name: &str) {
        let Some((first, chunk)) = self.chunks.get_prev(name) else { return };
        let Ok(at) = place(chunk, name) else { return };
        let first = first.clone();
        if chunk.len() == name.len() + 1 {
            self.chunks.remove(&first);
        } else if let Some(chunk) = self.chunks.get_mut(&first) {
            Arc::make_mut(chunk).replace_range(at..=at + name.len(), "");
        }
    }
}

/// Where a name begins in a chunk, or would begin.
fn place(chunk: &str, name: &str) -> Result<usize, usize> {
    let bytes = chunk.as_bytes();
    let (mut from, mut to) = (0, bytes.len());
    while from < to {
        let middle = from.midpoint(to);
        let begin = memrchr(END, &bytes[from..middle]).map_or(from, |at| from + at + 1);
        let end = memchr(END, &bytes[middle..to]).map_or(to, |at| middle + at);
        match bytes[begin..end].cmp(name.as_bytes()) {
            std::cmp::Ordering::Less => from = end + 1,
            std::cmp::Ordering::Equal => return Ok(begin),
            std::cmp::Ordering::Greater => to = begin,
        }
    }
    Err(from)
}

/// The names of a chunk with what the finder looks for; all if that is nothing.
fn with<'chunk>(chunk: &'chunk str, finder: Finder<'chunk>) -> impl Iterator<Item = &'chunk str> {
    let mut rest = chunk;
    std::iter::from_fn(move || {
        let bytes = rest.as_bytes();
        let at = finder.find(bytes)?;
        let begin = memrchr(END, &bytes[..at]).map_or(0, |before| before + 1);
        // Nothing is found after the last name, and nothing is there.
        let end = at + memchr(END, &bytes[at..])?;
        let name = &rest[begin..end];
        rest = &rest[end + 1..];
        Some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn names(texts: &str) -> Names {
        let mut names = Names::default();
        texts.split(' ').for_each(|name| names.insert(name));
        names
    }

    #[track_caller]
    fn check<'names>(found: impl Iterator<Item = &'names str>, expected: &str) {
        assert_eq!(found.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn names_are_found_by_their_order_and_their_parts() {
        let names = names("zoo foo-bar foo foobar a a-b");
        check(names.iter(), "a a-b foo foo-bar foobar zoo");
        check(names.from("fo"), "foo foo-bar foobar zoo");
        check(names.from("foo-"), "foo-bar foobar zoo");
        check(names.from(""), "a a-b foo foo-bar foobar zoo");
        check(names.from("zoo1"), "");
        check(names.containing("oo"), "foo foo-bar foobar zoo");
        check(names.containing("a"), "a a-b foo-bar foobar");
        check(names.containing(""), "a a-b foo foo-bar foobar zoo");
        // Neighbours, but not within a name.
        check(names.containing("foo\nfoo"), "");
        check(names.containing("ooo"), "");
        check(Names::default().containing(""), "");
        check(Names::default().from(""), "");
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_names(
            changes in prop::collection::vec(("[a-c0-]{1,4}|a{30}b?|[ab]{20,30}", any::<bool>()), 0..150),
            text in "[a-c0-]{0,3}",
            kept_at in 0..150_usize,
        ) {
            let (mut names, mut model) = (Names::default(), BTreeSet::new());
            let mut kept = (names.clone(), model.clone());
            for (at, (name, is_in)) in changes.iter().enumerate() {
                names.set(name, *is_in);
                match is_in {
                    true => _ = model.insert(name.as_str()),
                    false => _ = model.remove(name.as_str()),
                }
                if at == kept_at {
                    kept = (names.clone(), model.clone());
                }
            }
            // A copy from before has not changed.
            for (names, model) in [(&names, &model), (&kept.0, &kept.1)] {
                let model: Vec<&str> = model.iter().copied().collect();
                prop_assert_eq!(names.iter().collect::<Vec<_>>(), model.clone());
                let from = model.iter().copied().filter(|name| *name >= text.as_str());
                prop_assert_eq!(names.from(&text).collect::<Vec<_>>(), from.collect::<Vec<_>>());
                let with = model.iter().copied().filter(|name| name.contains(&text));
                prop_assert_eq!(names.containing(&text).collect::<Vec<_>>(), with.collect::<Vec<_>>());
                for (first, chunk) in &names.chunks {
                    let lines = chunk.lines().count();
                    prop_assert!(lines == 1 || chunk.len() <= CHUNK_BYTES_MAX + 32, "{}", chunk.len());
                    prop_assert!(!chunk.is_empty() && chunk.as_str() >= &**first);
                }
            }
        }
    }
}
