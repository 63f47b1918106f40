//! One record of a dump: the wire form of `packages-meta-ext-v1.json`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::field::Field;
use crate::hidden_members;
use crate::words;

/// One package in the dump. Keys that older dumps lack are optional; [`others`] finds unknown ones.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Package<'a> {
    /// Number of the package; it changes with every push.
    #[serde(rename = "ID", borrow)]
    pub id: Integer<'a, u64>,
    #[serde(borrow)]
    pub name: Text<'a>,
    /// Number of the package base; stable.
    #[serde(rename = "PackageBaseID", borrow)]
    pub package_base_id: Integer<'a, u64>,
    #[serde(borrow)]
    pub package_base: Text<'a>,
    #[serde(borrow)]
    pub version: Text<'a>,
    #[serde(borrow, default)]
    pub description: Option<Text<'a>>,
    #[serde(rename = "URL", borrow, default)]
    pub url: Option<Text<'a>>,
    #[serde(borrow)]
    pub num_votes: Integer<'a, u64>,
    /// Kept as written, so that every digit survives.
    #[serde(borrow)]
    pub popularity: Number<'a>,
    /// When the package was flagged as out of date, in Unix seconds.
    #[serde(borrow, default)]
    pub out_of_date: Option<Integer<'a, i64>>,
    #[serde(borrow, default)]
    pub maintainer: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub submitter: Option<Text<'a>>,
    /// Unix seconds.
    #[serde(borrow)]
    pub first_submitted: Integer<'a, i64>,
    /// Unix seconds.
    #[serde(borrow)]
    pub last_modified: Integer<'a, i64>,
    #[serde(borrow, default)]
    pub depends: Texts<'a>,
    #[serde(borrow, default)]
    pub make_depends: Texts<'a>,
    #[serde(borrow, default)]
    pub check_depends: Texts<'a>,
    #[serde(borrow, default)]
    pub opt_depends: Texts<'a>,
    #[serde(borrow, default)]
    pub conflicts: Texts<'a>,
    #[serde(borrow, default)]
    pub provides: Texts<'a>,
    #[serde(borrow, default)]
    pub replaces: Texts<'a>,
    #[serde(borrow, default)]
    pub groups: Texts<'a>,
    #[serde(borrow, default)]
    pub license: Texts<'a>,
    #[serde(borrow, default)]
    pub keywords: Texts<'a>,
    #[serde(borrow, default)]
    pub co_maintainers: Texts<'a>,
    /// Open requests about the base. aurweb's own dumps do not have it.
    #[serde(borrow, default)]
    pub pending_requests: Option<Integer<'a, u64>>,
    /// Members with unknown keys, by rising key, each as an answer has it, with a comma before it.
    #[serde(skip)]
    pub others: Cow<'a, [u8]>,
    /// Members that an answer has only if they are requested by name: an object as [`hidden_members`] describes it; empty, if the
    /// source does not know it.
    #[serde(rename = "Larder", borrow, default, deserialize_with = "hidden_members::read")]
    pub unshown: Cow<'a, [u8]>,
}

/// Whether a member with this key is read as one of the fields, or not wanted.
pub(crate) fn is_known(key: &str) -> bool {
    Field::ALL.iter().any(|field| field.name() == key)
}

/// The members of a record, valid JSON, that are not known: the form of [`Package::others`].
pub(crate) fn others(record: &str) -> Vec<u8> {
    let Ok(UnknownMembers(members)) = serde_json::from_str(record) else { return Vec::new() };
    let mut others = Vec::new();
    for (key, value) in members {
        others.push(b',');
        serde_json::to_writer(&mut others, &key).expect("strings serialize into memory");
        others.push(b':');
        // An answer is one line.
        match serde_json::from_str::<serde_json::Value>(value.get()) {
            Ok(parsed) if value.get().contains(['\n', '\r']) => {
                others.extend_from_slice(parsed.to_string().as_bytes());
            }
            _ => others.extend_from_slice(value.get().as_bytes()),
        }
    }
    others
}

/// The members of an object that are not known; of equal keys the last one.
struct UnknownMembers<'a>(BTreeMap<String, &'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for UnknownMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UnknownVisitor<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for UnknownVisitor<'a> {
            type Value = UnknownMembers<'a>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a record")
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<UnknownMembers<'a>, A::Error> {
                let mut members = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    if is_known(&key) {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        members.insert(key, map.next_value()?);
                    }
                }
                Ok(UnknownMembers(members))
            }
        }
        deserializer.deserialize_map(UnknownVisitor(PhantomData))
    }
}

/// A string of the dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text<'a> {
    /// Written without escapes: the bytes in the dump are the value, and may be sent unchanged.
    Verbatim(&'a [u8]),
    /// Written with escapes: this is the value without them.
    Unescaped(String),
}

impl Text<'_> {
    /// The value's bytes, which are UTF-8.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Verbatim(text) => text,
            Text::Unescaped(text) => text.as_bytes(),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for TextVisitor<'a> {
            type Value = Text<'a>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }
            // The parser lends a string only if it has no escapes.
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'a>, E> {
                Ok(Text::Verbatim(text.as_bytes()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'a>, E> {
                Ok(Text::Unescaped(text.to_owned()))
            }
        }
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

/// A list of strings; `null` is read as the empty list.
#[derive(Debug)]
pub(crate) enum Texts<'a> {
    /// The text of the list in the dump. It is not empty, has no white space between its strings and no escapes in
    /// them, so it may be sent unchanged.
    Verbatim(&'a [u8]),
    /// The strings as the parser returns them.
    Parsed(Vec<Text<'a>>),
}

impl Default for Texts<'_> {
    fn default() -> Self {
        Texts::Parsed(Vec::new())
    }
}

impl Texts<'_> {
    /// Calls `take` for each string.
    #[inline]
    pub(crate) fn each(&self, mut take: impl FnMut(&[u8])) {
        match self {
            Texts::Verbatim(list) => words::each_string(list, |rest| {
                let text = words::string(rest);
                take(text);
                text.len()
            }),
            Texts::Parsed(texts) => texts.iter().for_each(|text| take(text.as_bytes())),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Texts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for TextsVisitor<'a> {
            type Value = Texts<'a>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of strings")
            }
            fn visit_unit<E>(self) -> Result<Texts<'a>, E> {
                Ok(Texts::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Texts<'a>, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = items.next_element()? {
                    texts.push(text);
                }
                Ok(Texts::Parsed(texts))
            }
        }
        deserializer.deserialize_any(TextsVisitor(PhantomData))
    }
}

/// A number of the dump, as it is written there.
#[derive(Debug)]
pub(crate) struct Number<'a>(pub(crate) &'a [u8]);

impl<'de: 'a, 'a> Deserialize<'de> for Number<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?.get();
        if raw.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            Ok(Number(raw.as_bytes()))
        } else {
            Err(D::Error::custom(format_args!("invalid value: {raw}, expected a number")))
        }
    }
}

/// A whole number of the dump.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Integer<'a, T> {
    /// The digits as the dump has them, sent unchanged.
    Verbatim(&'a [u8]),
    /// The number as the parser returns it.
    Parsed(T),
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Integer<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Integer::Parsed)
    }
}
