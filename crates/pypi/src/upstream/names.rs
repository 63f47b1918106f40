//! [`UpstreamNames`]: the names of all projects of an upstream, sorted, in one text.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use memchr::memmem::Finder;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::source::PageStart;
use super::{PageError, PageFormat, html, json};
use crate::ProjectName;

/// The names of an upstream's projects, normalized, ascending, each once. A name takes its bytes and four more.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UpstreamNames {
    text: Box<str>,
    /// Where each name ends in the text.
    ends: Box<[u32]>,
}

/// Memory for the names of a list, repeated ones included, while they are collected: enough for 1.2 million names of the usual
/// length, nearly twice as many as the public index has. Sorting them takes less than as much again.
const NAMES_BYTES_MAX: usize = 28 << 20;

/// What a name takes besides its text while names are collected.
const SPAN_BYTES: usize = size_of::<(u32, u32)>();

/// Collects names in the order in which they come.
struct Builder {
    text: String,
    spans: Vec<(u32, u32)>,
}

impl Builder {
    /// With room for all names that there may be: what is not used of it takes no memory, but buffers that grow take twice as much.
    fn new() -> Builder {
        Builder {
            text: String::with_capacity(NAMES_BYTES_MAX),
            spans: Vec::with_capacity(NAMES_BYTES_MAX / SPAN_BYTES),
        }
    }

    /// Adds a name, unless no project can have it.
    fn push(&mut self, name: &str) {
        let start = self.text.len();
        if ProjectName::is_normalized(name) {
            self.text.push_str(name);
        } else if let Ok(name) = ProjectName::normalize(name) {
            self.text.push_str(name.as_str());
        } else {
            return;
        }
        if self.check().is_ok() {
            self.spans.push((start as u32, self.text.len() as u32));
        }
    }

    /// Whether a list may have as many names as were found so far, repeated ones included.
    fn check(&self) -> Result<(), PageError> {
        let bytes = self.text.len() + SPAN_BYTES * self.spans.len();
        match bytes > NAMES_BYTES_MAX {
            true => Err(PageError(format!(
                "its names take more than {NAMES_BYTES_MAX} bytes of memory; at most that many were expected"
            ))),
            false => Ok(()),
        }
    }

    fn finish(mut self) -> Result<UpstreamNames, PageError> {
        self.check()?;
        let name = |&(start, end): &(u32, u32)| &self.text[start as usize..end as usize];
        self.spans.sort_unstable_by(|one, other| name(one).cmp(name(other)));
        self.spans.dedup_by(|one, other| name(one) == name(other));
        let mut text = String::with_capacity(self.text.len());
        for span in &mut self.spans {
            text.push_str(&self.text[span.0 as usize..span.1 as usize]);
            // From here on, only its end among the sorted names is of use.
            span.1 = text.len() as u32;
        }
        drop(self.text);
        let ends = self.spans.iter().map(|(_, end)| *end).collect();
        Ok(UpstreamNames { text: text.into(), ends })
    }
}

impl UpstreamNames {
    /// Reads a list of projects, JSON or HTML, piece by piece: only the names take memory.
    ///
    /// # Errors
    /// [`PageError`] if it is neither, cannot be read, or has too many names.
    pub fn read(content_type: &str, body: &mut dyn Read) -> Result<UpstreamNames, PageError> {
        let mut names = Builder::new();
        let body = PageStart::of(body).map_err(PageError::new)?;
        match PageFormat::of(content_type, &body.bytes)? {
            PageFormat::Json => {
                let mut body = serde_json::Deserializer::from_reader(json::plain(body)?);
                body.deserialize_map(List(&mut names)).map_err(PageError::new)?;
                body.end().map_err(PageError::new)?;
            }
            PageFormat::Html => {
                let head = html::each_anchor(content_type, body, &mut |_, anchor| {
                    // Nothing is read of the rest of a list that is refused.
                    if names.check().is_err() {
                        return;
                    }
                    // The link's text is the name as it is written; if it is an image instead, the URL tells.
                    let segment = || anchor.href.trim_end_matches('/').rsplit('/').next();
                    match anchor.text.as_str() {
                        "" => names.push(segment().unwrap_or_default()),
                        // A directory listing shows a directory with its slash.
                        text => names.push(text.trim_end_matches('/')),
                    }
                })?;
                if head.is_form() {
                    return Err(PageError("a form, and no list of projects".to_owned()));
                }
            }
        }
        names.finish()
    }

    /// Writes the list as text, a name a line; [`UpstreamNames::from_lines`] reads it back.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_lines(&self, to: &mut dyn Write) -> io::Result<()> {
        self.iter().try_for_each(|name| writeln!(to, "{name}"))
    }

    /// The list with these names, a name a line.
    ///
    /// # Errors
    /// [`PageError`] if it cannot be read, or has too many names.
    pub fn from_lines(source: impl BufRead) -> Result<UpstreamNames, PageError> {
        let mut names = Builder::new();
        for line in source.lines() {
            names.push(&line.map_err(PageError::new)?);
            names.check()?;
        }
        names.finish()
    }

    /// Whether this normalized name is in the list.
    pub fn contains(&self, name: &str) -> bool {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.at(middle).cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        false
    }

    /// The names, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|position| self.at(position))
    }

    /// The names from this text on, ascending.
    pub fn from<'names>(
        &'names self,
        text: &str,
    ) -> impl Iterator<Item = &'names str> + use<'names> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.at(middle) < text {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        (low..self.ends.len()).map(|position| self.at(position))
    }

    /// The names that have all of these words in them, ascending; all if there are no words.
    pub fn with<'names>(
        &'names self,
        words: &'names [String],
    ) -> impl Iterator<Item = &'names str> {
        let longest = words.iter().max_by_key(|word| word.len());
        let finder = Finder::new(longest.map_or("", String::as_str));
        let mut next = 0;
        // The whole text is searched, which is much faster than name by name.
        let found = std::iter::from_fn(move || {
            while next < self.ends.len() {
                let start = self.start(next);
                let at = start + finder.find(&self.text.as_bytes()[start..])?;
                let position = next + self.ends[next..].partition_point(|&end| end as usize <= at);
                next = position + 1;
                // It may begin in one name and end in another.
                if at + finder.needle().len() <= self.ends[position] as usize {
                    return Some(self.at(position));
                }
            }
            None
        });
        found.filter(|name| words.iter().all(|word| name.contains(&**word)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has no name.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn at(&self, position: usize) -> &str {
        &self.text[self.start(position)..self.ends[position] as usize]
    }

    /// Where a name begins in the text.
    fn start(&self, position: usize) -> usize {
        if position == 0 { 0 } else { self.ends[position - 1] as usize }
    }
}

impl fmt::Debug for UpstreamNames {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "UpstreamNames({} names)", self.len())
    }
}

/// The list as JSON; its names are read one by one.
struct List<'names>(&'names mut Builder);

impl<'text> Visitor<'text> for List<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object with `meta` and `projects`")
    }

    fn visit_map<A: MapAccess<'text>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut has_meta, mut has_projects) = (false, false);
        while let Some(json::Name(name)) = members.next_key()? {
            match &*name {
                "meta" => {
                    let meta: json::Meta<'_> = members.next_value()?;
                    meta.check().map_err(|error| A::Error::custom(error.0))?;
                    has_meta = true;
                }
                "projects" if has_projects => return Err(A::Error::duplicate_field("projects")),
                "projects" => {
                    members.next_value_seed(EachName(&mut *self.0))?;
                    has_projects = true;
                }
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        match (has_meta, has_projects) {
            (true, true) => Ok(()),
            (false, _) => Err(A::Error::missing_field("meta")),
            (_, false) => Err(A::Error::missing_field("projects")),
        }
    }
}

struct EachName<'names>(&'names mut Builder);

impl<'text> DeserializeSeed<'text> for EachName<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'text>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'text> Visitor<'text> for EachName<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of projects")
    }

    fn visit_seq<A: SeqAccess<'text>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(OneName(&mut *self.0))?.is_some() {
            self.0.check().map_err(|error| A::Error::custom(error.0))?;
        }
        Ok(())
    }
}

struct OneName<'names>(&'names mut Builder);

impl<'text> DeserializeSeed<'text> for OneName<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'text>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'text> Visitor<'text> for OneName<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object with a `name`")
    }

    fn visit_map<A: MapAccess<'text>>(self, mut members: A) -> Result<(), A::Error> {
        let mut has_name = false;
        while let Some(json::Name(key)) = members.next_key()? {
            match &*key {
                "name" if has_name => return Err(A::Error::duplicate_field("name")),
                "name" => {
                    let json::Name(name) = members.next_value()?;
                    self.0.push(&name);
                    has_name = true;
                }
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        if has_name { Ok(()) } else { Err(A::Error::missing_field("name")) }
    }
}
