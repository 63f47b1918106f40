//! [`Query`]: a valid question. All rules about versions, types, fields and their errors are here.

use crate::error::QueryError;
use crate::field::{By, Mode};
use crate::needles::Needles;
use crate::options::{Options, RawOptions};
use crate::params::{Arg, Params};
use crate::pattern::Pattern;

/// Version of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The version of aurweb and goaurrpc.
    V5,
    /// goaurrpc's draft of a successor.
    V6,
}

/// The kind of a query: the values of the `type` parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Packages by name (`info`, and its older name `multiinfo`).
    Info,
    /// Packages by one of the fields of [`By`].
    Search,
    /// Packages by maintainer.
    MaintainerSearch,
    /// Names that begin with the argument.
    Suggest,
    /// Names of package bases that begin with the argument.
    SuggestBase,
    /// [`Kind::Suggest`] in the format of browsers' search boxes.
    OpensearchSuggest,
    /// [`Kind::SuggestBase`] in the format of browsers' search boxes.
    OpensearchSuggestBase,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 7] = [
        Kind::Info,
        Kind::Search,
        Kind::MaintainerSearch,
        Kind::Suggest,
        Kind::SuggestBase,
        Kind::OpensearchSuggest,
        Kind::OpensearchSuggestBase,
    ];

    /// The value as it is written on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Info => "info",
            Kind::Search => "search",
            Kind::MaintainerSearch => "msearch",
            Kind::Suggest => "suggest",
            Kind::SuggestBase => "suggest-pkgbase",
            Kind::OpensearchSuggest => "opensearch-suggest",
            Kind::OpensearchSuggestBase => "opensearch-suggest-pkgbase",
        }
    }

    /// The kind with this spelling; upper case is not accepted, as in aurweb.
    pub fn parse(name: &str) -> Option<Kind> {
        if name == "multiinfo" {
            return Some(Kind::Info);
        }
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A query that can be answered.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) version: Version,
    pub(crate) kind: Kind,
    pub(crate) by: By,
    pub(crate) mode: Mode,
    pub(crate) args: Vec<Arg>,
    /// Index in `args` of the argument that a query with one argument uses.
    pub(crate) single: usize,
    pub(crate) callback: Option<String>,
    pub(crate) asked: RequestKind,
    /// The answer gets an outline: see [`Params::outlined`].
    pub(crate) is_outlined: bool,
    /// The parts that upstream does not have, if there are any. Boxed, as nearly all queries have none.
    refinement: Option<Box<Refinement>>,
}

/// The parts of a query that upstream does not have.
#[derive(Clone, Debug)]
struct Refinement {
    options: Options,
    /// The pattern of a search, if it is not simply its argument.
    pattern: Option<Pattern>,
}

/// What a request asked for, in its own words: goaurrpc's metrics count these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKind {
    /// The type.
    pub kind: Kind,
    /// Whether [`Kind::Info`] was requested by its older name `multiinfo`.
    pub is_multiinfo: bool,
    /// The field that the request names, even if the type does not use it; without one, the default of the type.
    pub by: By,
}

/// A query that is refused, with what its error message needs.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Why.
    pub(crate) error: QueryError,
    /// The version in the request, if it was a number.
    pub(crate) version: Option<i128>,
    pub(crate) callback: Option<String>,
    /// What the request asked for, if the request itself was valid.
    pub(crate) asked: Option<RequestKind>,
    /// The text of the error, if it names something of the request.
    pub(crate) detail: Option<Box<str>>,
}

impl Query {
    /// Validates `params`. Version 6 is accepted only if `speaks_6` is set; otherwise it is refused, as aurweb
    /// refuses it.
    ///
    /// # Errors
    ///
    /// The error that aurweb reports first. It checks in this order: body, callback, version, field, type, mode,
    /// argument.
    pub fn parse(params: Params, speaks_6: bool) -> Result<Query, Refusal> {
        let is_refined = params.are_refined();
        let given = params.version.as_deref().and_then(integer);
        let callback = params.callback.filter(|callback| !callback.is_empty());
        let refuse = |error| Refusal {
            error,
            version: given,
            callback: callback.clone(),
            asked: None,
            detail: None,
        };
        if let Some(error) = params.malformed {
            return Err(refuse(error));
        }
        if callback.as_deref().is_some_and(|callback| !is_callback(callback)) {
            return Err(Refusal {
                error: QueryError::InvalidCallback,
                version: given,
                callback: None,
                asked: None,
                detail: None,
            });
        }
        let version = match (params.version.as_deref(), given) {
            (None | Some(""), _) => return Err(refuse(QueryError::NoVersion)),
            (_, Some(5)) => Version::V5,
            (_, Some(6)) if speaks_6 => Version::V6,
            _ => return Err(refuse(QueryError::InvalidVersion)),
        };
        let by = match params.by.as_deref() {
            None => None,
            Some(by) => Some(By::parse(by).ok_or_else(|| refuse(QueryError::IncorrectBy))?),
        };
        let kind = match params.type_.as_deref() {
            None => return Err(refuse(QueryError::NoData)),
            Some(type_) => Kind::parse(type_).ok_or_else(|| refuse(QueryError::IncorrectType))?,
        };
        let mode = match params.mode.as_deref() {
            None | Some("" | "contains" | "words" | "regex") => Mode::Contains,
            Some("starts-with") => Mode::StartsWith,
            Some(_) => return Err(refuse(QueryError::IncorrectMode)),
        };
        let is_multiinfo = params.type_.as_deref() == Some("multiinfo");
        let asked = RequestKind {
            kind,
            is_multiinfo,
            by: match by {
                _ if kind == Kind::MaintainerSearch => By::Maintainer,
                Some(by) => by,
                None if kind == Kind::Info && !is_multiinfo => By::Name,
                None => By::NameDesc,
            },
        };
        let by = match kind {
            Kind::MaintainerSearch => By::Maintainer,
            Kind::Info if version == Version::V5 => By::Name,
            Kind::Info => by.unwrap_or(By::Name),
            _ => by.unwrap_or(By::NameDesc),
        };
        let Params { args, single, given: options, mode: mode_name, is_outlined, .. } = params;
        let mut query = Query {
            version,
            kind,
            by,
            mode,
            args,
            single,
            callback,
            asked,
            is_outlined,
            refinement: None,
        };
        let refuse = |error, detail: Option<String>, callback| Refusal {
            error,
            version: given,
            callback,
            asked: None,
            detail: detail.map(Into::into),
        };
        if let Err(error) = query.check_args() {
            return Err(refuse(error, None, query.callback));
        }
        if is_refined && let Err(detail) = query.refine(options, mode_name.as_deref()) {
            return Err(refuse(QueryError::BadOption, Some(detail), query.callback));
        }
        Ok(query)
    }

    /// The options that upstream does not have, if any is given.
    pub(crate) fn options(&self) -> Option<&Options> {
        self.refinement.as_deref().map(|it| &it.options)
    }

    /// The pattern of a search, if it is not simply its argument.
    pub(crate) fn pattern(&self) -> Option<&Pattern> {
        self.refinement.as_deref().and_then(|it| it.pattern.as_ref())
    }

    /// Takes what upstream does not have.
    #[cold]
    #[inline(never)]
    fn refine(&mut self, given: Option<Box<RawOptions>>, mode: Option<&str>) -> Result<(), String> {
        let options = Options::parse(&given.unwrap_or_default())?;
        let mut pattern = None;
        // Other fields are compared as a whole, whatever the mode.
        if self.kind == Kind::Search
            && matches!(self.by, By::Name | By::NameDesc)
            && let Some(mode @ ("words" | "regex")) = mode
        {
            let arg = self.single().map_or("", |arg| match mode {
                // Encoders turn a space into a bare plus, so that is the likely meaning.
                "words" => arg.spaced.as_ref().unwrap_or(&arg.literal),
                _ => &arg.literal,
            });
            pattern = Some(match mode {
                "words" => Pattern::words(arg)?,
                _ => Pattern::regex(arg)?,
            });
        }
        if options.with_keywords
            && self.kind == Kind::Search
            && (self.by != By::NameDesc || matches!(pattern, Some(Pattern::Regex(_))))
        {
            return Err(format!(
                "`keywords` is `1`, and this search is by `{}`{}: expected `name-desc`, and no regular expression",
                self.by.name(),
                if pattern.is_some() { " for a pattern" } else { "" }
            ));
        }
        self.refinement = Some(Box::new(Refinement { options, pattern }));
        Ok(())
    }

    #[inline(always)]
    fn check_args(&self) -> Result<(), QueryError> {
        if self.version == Version::V6 && self.args.is_empty() {
            return Err(QueryError::NoData6);
        }
        if self.version == Version::V6 && self.are_words_too_many() {
            return Err(QueryError::TooManyWords);
        }
        match self.kind {
            Kind::Info if self.args.is_empty() => Err(QueryError::NoData),
            Kind::Search if self.by != By::Maintainer => match self.single() {
                None => Err(QueryError::NoData),
                Some(arg) if arg.literal.chars().take(2).count() < 2 => Err(QueryError::TooSmall),
                Some(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Whether the query searches for more texts than it may.
    #[inline(never)]
    fn are_words_too_many(&self) -> bool {
        match (self.kind, self.by) {
            (Kind::Info, By::NameDesc) => {
                Needles::are_too_many(self.args.iter().map(|arg| arg.literal.as_str()))
            }
            (Kind::Search, By::Name | By::NameDesc) => {
                self.single().is_some_and(|arg| Needles::are_too_many(arg.literal.split(' ')))
            }
            _ => false,
        }
    }

    /// The argument of a query with one argument.
    pub(crate) fn single(&self) -> Option<&Arg> {
        self.args.get(self.single)
    }
}

/// Parses a version as aurweb's framework parses integers: with a sign, leading zeros, underscores between digits, or
/// a fraction of zero. `None` beyond 64 bits, signed or unsigned, as aurweb's JSON has no such number.
fn integer(text: &str) -> Option<i128> {
    let text = text.trim();
    let whole = match text.split_once('.') {
        Some((whole, fraction))
            if !fraction.is_empty() && fraction.bytes().all(|digit| digit == b'0') =>
        {
            whole
        }
        Some(_) => return None,
        None => text,
    };
    let digits = whole.strip_prefix(['+', '-']).unwrap_or(whole);
    let is_misgrouped = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    if is_misgrouped {
        return None;
    }
    let number = match whole.contains('_') {
        true => whole.replace('_', "").parse(),
        false => whole.parse(),
    };
    number.ok().filter(|number| (i64::MIN.into()..=u64::MAX.into()).contains(number))
}

/// `^[a-zA-Z0-9()_.]{1,128}$`, where `$` also matches before a last line break, as in Python.
fn is_callback(callback: &str) -> bool {
    let name = callback.strip_suffix('\n').unwrap_or(callback);
    (1..=128).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'(' | b')' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::PathParams;

    #[track_caller]
    fn check(query: &str, expected: Result<(Kind, By), QueryError>) {
        let params = Params::from_query(PathParams::default(), Some(query));
        let parsed = Query::parse(params, false);
        assert_eq!(
            parsed.map(|query| (query.kind, query.by)).map_err(|refusal| refusal.error),
            expected,
            "{query}"
        );
    }

    #[test]
    fn errors_come_in_aurwebs_order() {
        check("callback=x-y", Err(QueryError::InvalidCallback));
        check("by=wrong", Err(QueryError::NoVersion));
        check("v=&by=wrong", Err(QueryError::NoVersion));
        check("v=4&by=wrong", Err(QueryError::InvalidVersion));
        check("v=6&type=info&arg=x", Err(QueryError::InvalidVersion));
        check("v=5&by=wrong", Err(QueryError::IncorrectBy));
        check("v=5&by=&type=info", Err(QueryError::IncorrectBy));
        check("v=5", Err(QueryError::NoData));
        check("v=5&type=INFO&arg=x", Err(QueryError::IncorrectType));
        check("v=5&type=&arg=x", Err(QueryError::IncorrectType));
        check("v=5&type=info", Err(QueryError::NoData));
        check("v=5&type=info&mode=x", Err(QueryError::IncorrectMode));
        check("v=5&type=search", Err(QueryError::NoData));
        check("v=5&type=search&arg=é", Err(QueryError::TooSmall));
        check("v=5&type=search&arg=", Err(QueryError::TooSmall));
        check("v=5&type=search&by=submitter&arg=", Err(QueryError::TooSmall));
    }

    #[test]
    fn questions() {
        check("v=5&type=info&arg=x", Ok((Kind::Info, By::Name)));
        check("v=05&type=multiinfo&arg=x", Ok((Kind::Info, By::Name)));
        check("v=%2B5&type=search&arg=xy", Ok((Kind::Search, By::NameDesc)));
        check("v=5.0&type=search&by=maintainer", Ok((Kind::Search, By::Maintainer)));
        check("v=6&v=5&type=msearch&by=name", Ok((Kind::MaintainerSearch, By::Maintainer)));
        check("v=5&type=suggest", Ok((Kind::Suggest, By::NameDesc)));
    }

    #[test]
    fn versions() {
        for (text, expected) in [
            ("5", Some(5)),
            ("-1", Some(-1)),
            ("abc", None),
            ("5.1", None),
            ("5.", None),
            ("0_5", Some(5)),
            ("5_0", Some(50)),
            ("+5_0.00", Some(50)),
            ("_5", None),
            ("5_", None),
            ("5__0", None),
            ("-_5", None),
            ("+-5", None),
            ("", None),
            ("-9223372036854775808", Some(i64::MIN.into())),
            ("18446744073709551615", Some(u64::MAX.into())),
            ("18446744073709551616", None),
            ("99999999999999999999", None),
            (&"9".repeat(5_000), None),
        ] {
            assert_eq!(integer(text), expected, "{text}");
        }
    }

    #[test]
    fn callbacks() {
        for (callback, expected) in [
            ("f()", true),
            ("a.b_9", true),
            ("x\n", true),
            ("x\n\n", false),
            ("", false),
            ("x[0]", false),
        ] {
            assert_eq!(is_callback(callback), expected, "{callback:?}");
        }
        assert!(is_callback(&"a".repeat(128)) && !is_callback(&"a".repeat(129)));
    }
}
