//! [`Options`]: checked parameters that neither aurweb nor goaurrpc has. Without any of them, an answer is upstream's.

use crate::arch::Arch;
use crate::field::Field;
use crate::hidden_members;
use crate::sort_key::Order;

/// The names of these parameters.
pub(crate) const NAMES: [&str; 7] =
    ["sort", "order", "limit", "offset", "fields", "keywords", "arch"];

/// Results of one answer, as upstream's: a larger `limit` is refused.
pub(crate) const LIMIT_MAX: usize = 5000;

/// Results that can be left out before the first one.
pub(crate) const OFFSET_MAX: usize = 1_000_000;

/// Parameters as they were given, in the order of [`NAMES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawOptions([Option<String>; NAMES.len()]);

impl RawOptions {
    /// Sets a parameter; if it is repeated, the last one counts. An empty one is not given. Unknown names are passed over.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        if let Some(at) = NAMES.iter().position(|known| *known == name) {
            self.0[at] = Some(value).filter(|value| !value.is_empty());
        }
    }

    /// Whether `fields` may name one of [`ADDED`].
    pub(crate) fn may_add(&self) -> bool {
        let fields =
            NAMES.iter().position(|name| *name == "fields").and_then(|at| self.0[at].as_deref());
        fields.is_some_and(|fields| ADDED.iter().any(|added| fields.contains(added)))
    }

    /// Whether no parameter is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// These parameters; missing ones are taken from `others`.
    pub(crate) fn or(self, others: RawOptions) -> RawOptions {
        let mut others = others.0.into_iter();
        RawOptions(self.0.map(|value| value.or(others.next().flatten())))
    }
}

/// The order of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// By a value of the package.
    By(Order),
    /// By how well the names fit: the exact name first, then names that begin with the argument, then names that contain it,
    /// then the others; the most popular first.
    Relevance,
}

const SORTS: [(&str, Sort); 6] = [
    ("name", Sort::By(Order::Name)),
    ("votes", Sort::By(Order::Votes)),
    ("popularity", Sort::By(Order::Popularity)),
    ("modified", Sort::By(Order::LastModified)),
    ("submitted", Sort::By(Order::FirstSubmitted)),
    ("relevance", Sort::Relevance),
];

/// The fields of a record that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// A bit for each [`Field`].
    bits: u32,
    /// Every field of an info record, except those that it leaves out.
    pub(crate) are_all: bool,
    pub(crate) has_required_by: bool,
    pub(crate) has_optional_for: bool,
    /// A bit for each of [`ADDED`].
    added: u32,
    /// A bit for each of [`hidden_members::NAMES`].
    unshown: u32,
}

/// Fields that are computed of other packages.
pub(crate) const REQUIRED_BY: &str = "RequiredBy";
pub(crate) const OPTIONAL_FOR: &str = "OptionalFor";

/// Fields that are not in a snapshot: the caller provides them ([`Outside`](crate::SearchContext)).
pub(crate) const ADDED: [&str; 5] =
    ["FirstSeen", "MaintainerSince", "OrphanedSince", "PreviousMaintainers", "Versions"];

impl Fields {
    /// The requested ones of [`ADDED`].
    pub(crate) fn added(self) -> impl Iterator<Item = &'static str> {
        ADDED
            .into_iter()
            .enumerate()
            .filter(move |(at, _)| self.added >> at & 1 == 1)
            .map(|it| it.1)
    }

    pub(crate) fn has_added(self) -> bool {
        self.added != 0
    }

    /// The requested ones of [`hidden_members::NAMES`].
    pub(crate) fn unshown(self) -> impl Iterator<Item = &'static str> {
        hidden_members::NAMES
            .into_iter()
            .enumerate()
            .filter(move |(at, _)| self.unshown >> at & 1 == 1)
            .map(|it| it.1)
    }

    pub(crate) fn has(self, field: Field) -> bool {
        self.are_all || self.bits >> field as u32 & 1 == 1
    }

    fn parse(text: &str) -> Result<Fields, String> {
        let mut fields = Fields::default();
        for name in text.split(',').map(str::trim) {
            match name {
                "*" => fields.are_all = true,
                REQUIRED_BY => fields.has_required_by = true,
                OPTIONAL_FOR => fields.has_optional_for = true,
                _ if ADDED.contains(&name) => {
                    let at = ADDED.iter().position(|added| *added == name);
                    fields.added |= at.map_or(0, |at| 1 << at);
                }
                _ if hidden_members::NAMES.contains(&name) => {
                    let at = hidden_members::NAMES.iter().position(|known| *known == name);
                    fields.unshown |= at.map_or(0, |at| 1 << at);
                }
                _ => {
                    let known = Field::ALL
                        .into_iter()
                        .filter(|field| !matches!(field, Field::Others | Field::Unshown));
                    let names = || known.clone().map(Field::name);
                    match known.clone().find(|field| field.name() == name) {
                        Some(field) => fields.bits |= 1 << field as u32,
                        None => {
                            let known: Vec<&str> = names()
                                .chain(hidden_members::NAMES)
                                .chain([REQUIRED_BY, OPTIONAL_FOR])
                                .chain(ADDED)
                                .chain(["*"])
                                .collect();
                            return Err(format!(
                                "`fields` names `{}`: expected some of {}, divided by commas",
                                shortened(name),
                                known.join(", ")
                            ));
                        }
                    }
                }
            }
        }
        Ok(fields)
    }
}

/// Parameters that can be obeyed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) sort: Option<Sort>,
    pub(crate) is_descending: bool,
    pub(crate) limit: Option<usize>,
    pub(crate) offset: Option<usize>,
    pub(crate) fields: Option<Fields>,
    /// Whether searches of names and descriptions look at keywords, too.
    pub(crate) with_keywords: bool,
    /// Leaves only the entries of lists that are for this architecture.
    pub(crate) arch: Option<Arch>,
}

impl Options {
    /// Checks the parameters.
    ///
    /// # Errors
    ///
    /// A text that names the bad value, and what was expected.
    pub(crate) fn parse(given: &RawOptions) -> Result<Options, String> {
        let [sort, order, limit, offset, fields, keywords, arch] = &given.0;
        let sort = match sort.as_deref() {
            // An order alone is the order of names.
            None => order.as_ref().map(|_| Sort::By(Order::Name)),
            Some(name) => match SORTS.iter().find(|(known, _)| *known == name) {
                Some((_, sort)) => Some(*sort),
                None => return Err(not_one_of("sort", name, &SORTS.map(|(known, _)| known))),
            },
        };
        let is_descending = match order.as_deref() {
            // Numbers begin with the greatest, and relevance with the best.
            None => sort.is_some_and(|sort| sort != Sort::By(Order::Name)),
            Some("asc") => false,
            Some("desc") => true,
            Some(other) => return Err(not_one_of("order", other, &["asc", "desc"])),
        };
        let number = |name: &str, text: &Option<String>, max: usize| match text.as_deref() {
            None => Ok(None),
            Some(text) => match text.parse::<usize>() {
                Ok(number) if number <= max && !text.starts_with('+') => Ok(Some(number)),
                _ => Err(format!(
                    "`{name}` is `{}`: expected a number from 0 to {max}",
                    shortened(text)
                )),
            },
        };
        Ok(Options {
            sort,
            is_descending,
            limit: number("limit", limit, LIMIT_MAX)?,
            offset: number("offset", offset, OFFSET_MAX)?,
            fields: fields.as_deref().map(Fields::parse).transpose()?,
            with_keywords: match keywords.as_deref() {
                None | Some("0") => false,
                Some("1") => true,
                Some(other) => return Err(not_one_of("keywords", other, &["0", "1"])),
            },
            arch: match arch.as_deref() {
                None => None,
                Some(name) => Some(Arch::parse(name).ok_or_else(|| {
                    format!(
                        "`arch` is `{}`: expected an architecture, such as x86_64",
                        shortened(name)
                    )
                })?),
            },
        })
    }

    /// Whether only a part of the results is requested.
    pub(crate) fn is_paged(&self) -> bool {
        self.limit.is_some() || self.offset.is_some()
    }
}

fn not_one_of(name: &str, value: &str, expected: &[&str]) -> String {
    format!("`{name}` is `{}`: expected one of {}", shortened(value), expected.join(", "))
}

/// The start of a text from outside, for a message.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pairs: &[(&str, &str)]) -> Result<Options, String> {
        let mut given = RawOptions::default();
        pairs.iter().for_each(|(name, value)| given.set(name, (*value).to_owned()));
        Options::parse(&given)
    }

    #[test]
    fn bad_values_are_named_with_what_was_expected() {
        for (name, value, expected) in [
            (
                "sort",
                "age",
                "`sort` is `age`: expected one of name, votes, popularity, modified, submitted, relevance",
            ),
            ("order", "up", "`order` is `up`: expected one of asc, desc"),
            ("limit", "5001", "`limit` is `5001`: expected a number from 0 to 5000"),
            ("limit", "-1", "`limit` is `-1`: expected a number from 0 to 5000"),
            ("offset", "1000001", "`offset` is `1000001`: expected a number from 0 to 1000000"),
            ("keywords", "yes", "`keywords` is `yes`: expected one of 0, 1"),
            ("arch", "x86 64", "`arch` is `x86 64`: expected an architecture, such as x86_64"),
        ] {
            assert_eq!(parsed(&[(name, value)]), Err(expected.to_owned()));
        }
        let error = parsed(&[("fields", "Name,Nam")]).unwrap_err();
        assert!(
            error.starts_with("`fields` names `Nam`: expected some of CheckDepends, "),
            "{error}"
        );
        assert!(
            error.ends_with(", Version, Architectures, LastPackager, OptDependsDescriptions, RequiredBy, OptionalFor, FirstSeen, MaintainerSince, OrphanedSince, PreviousMaintainers, \
                 Versions, *, divided by commas"),
            "{error}"
        );
        for name in ["sort", "arch"] {
            let error = parsed(&[(name, &"x".repeat(1000))]).unwrap_err();
            assert!(error.len() < 200, "{error}");
        }
    }

    #[test]
    fn an_empty_value_is_none() {
        for name in NAMES {
            let mut given = RawOptions::default();
            given.set(name, String::new());
            assert!(given.is_empty(), "{name}");
        }
        assert_eq!(parsed(&[("limit", "5"), ("limit", "")]), Ok(Options::default()));
    }

    #[test]
    fn an_order_alone_is_that_of_the_names() {
        let options = parsed(&[("order", "desc")]).unwrap();
        assert_eq!((options.sort, options.is_descending), (Some(Sort::By(Order::Name)), true));
        assert_eq!(parsed(&[("offset", "0")]).map(|options| options.is_paged()), Ok(true));
    }

    #[test]
    fn numbers_and_fits_begin_with_the_greatest() {
        for (sort, order, is_descending) in [
            ("name", None, false),
            ("votes", None, true),
            ("relevance", None, true),
            ("votes", Some("asc"), false),
            ("name", Some("desc"), true),
        ] {
            let mut pairs = vec![("sort", sort)];
            pairs.extend(order.map(|order| ("order", order)));
            assert_eq!(parsed(&pairs).unwrap().is_descending, is_descending, "{pairs:?}");
        }
    }

    #[test]
    fn fields() {
        let fields = parsed(&[("fields", "Name, OptionalFor")]).unwrap().fields.unwrap();
        assert!(fields.has(Field::Name) && fields.has_optional_for);
        assert!(!fields.has(Field::Version) && !fields.has_required_by && !fields.are_all);
        assert!(parsed(&[("fields", "*")]).unwrap().fields.unwrap().has(Field::Version));
    }
}
