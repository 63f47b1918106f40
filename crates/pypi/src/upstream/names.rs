//! [`UpstreamNames`]: the names of all projects of an upstream, sorted, in one text.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::source::Start;
use super::{PageError, PageFormat, html, json};
use crate::ProjectName;

/// The names of an upstream's projects, normalized, ascending, each once. A name takes its bytes and four more.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UpstreamNames {
    text: Box<str>,
    /// Where each name ends in the text.
    ends: Box<[u32]>,
}

/// Collects names in the order in which they come.
#[derive(Default)]
struct Builder {
    text: String,
    spans: Vec<(u32, u32)>,
}

impl Builder {
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
        match (u32::try_from(start), u32::try_from(self.text.len())) {
            (Ok(start), Ok(end)) => self.spans.push((start, end)),
            // An answer of 4 GiB is never read.
            _ => self.text.truncate(start),
        }
    }

    fn finish(mut self) -> UpstreamNames {
        let name = |&(start, end): &(u32, u32)| &self.text[start as usize..end as usize];
        self.spans.sort_unstable_by(|one, other| name(one).cmp(name(other)));
        self.spans.dedup_by(|one, other| name(one) == name(other));
        let mut text = String::with_capacity(self.text.len());
        let ends = self.spans.iter().map(|span| {
            text.push_str(name(span));
            text.len() as u32
        });
        let ends = ends.collect();
        UpstreamNames { text: text.into(), ends }
    }
}

impl UpstreamNames {
    /// Reads a list of projects, JSON or HTML.
    ///
    /// # Errors
    /// [`PageError`] if it is neither.
    pub fn parse(content_type: &str, mut body: &[u8]) -> Result<UpstreamNames, PageError> {
        let mut names = Builder::default();
        match PageFormat::of(content_type, body)? {
            PageFormat::Json => {
                let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
                let list: WireList<'_> = serde_json::from_slice(body).map_err(PageError::new)?;
                list.meta.check()?;
                names = list.projects.0;
            }
            PageFormat::Html => {
                let body = Start::of(&mut body as &mut dyn Read).map_err(PageError::new)?;
                let head = html::each_anchor(content_type, body, &mut |_, anchor| {
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
        Ok(names.finish())
    }

    /// The list as text, a name a line; [`UpstreamNames::from_lines`] reads it back.
    pub fn to_lines(&self) -> String {
        let mut text = String::with_capacity(self.text.len() + self.ends.len());
        for name in self.iter() {
            text.push_str(name);
            text.push('\n');
        }
        text
    }

    /// The list with these names, a name a line.
    pub fn from_lines(text: &str) -> UpstreamNames {
        let mut names = Builder::default();
        text.lines().for_each(|line| names.push(line));
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has no name.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn at(&self, position: usize) -> &str {
        let start = if position == 0 { 0 } else { self.ends[position - 1] };
        &self.text[start as usize..self.ends[position] as usize]
    }
}

impl fmt::Debug for UpstreamNames {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "UpstreamNames({} names)", self.len())
    }
}

/// The list as JSON. Its names go straight into the builder, so that a million of them need no allocation each.
#[derive(Deserialize)]
struct WireList<'text> {
    #[serde(borrow)]
    meta: json::Meta<'text>,
    projects: WireNames,
}

struct WireNames(Builder);

impl<'de> Deserialize<'de> for WireNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireNames, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Builder;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of projects")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Builder, A::Error> {
                let mut names = Builder::default();
                while let Some(WireName(name)) = items.next_element()? {
                    names.push(&name);
                }
                Ok(names)
            }
        }
        deserializer.deserialize_seq(Names).map(WireNames)
    }
}

struct WireName<'text>(std::borrow::Cow<'text, str>);

impl<'de> Deserialize<'de> for WireName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireName<'de>, D::Error> {
        #[derive(Deserialize)]
        struct Text<'text>(#[serde(borrow)] std::borrow::Cow<'text, str>);
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = WireName<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object with a `name`")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut members: A,
            ) -> Result<WireName<'de>, A::Error> {
                let mut name = None;
                while let Some(Text(key)) = members.next_key()? {
                    if key == "name" {
                        let Text(value) = members.next_value()?;
                        name = Some(value);
                    } else {
                        members.next_value::<IgnoredAny>()?;
                    }
                }
                name.map(WireName).ok_or_else(|| serde::de::Error::missing_field("name"))
            }
        }
        deserializer.deserialize_map(Name)
    }
}
