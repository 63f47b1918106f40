//! Requirements as core metadata has them: could installers read them?
//!
//! `name [extras] specifiers ; marker`, or `name @ URL ; marker` (PEP 508). Nothing is kept or evaluated: pip and uv refuse a
//! release of which they cannot read a requirement, even one that would not apply. What only one of them reads counts as
//! unreadable.

use pep440_rs::VersionSpecifier;

use crate::ProjectName;

/// Names that a marker can compare (PEP 508, PEP 345).
const VARIABLES: [&str; 17] = [
    "python_version",
    "python_full_version",
    "os_name",
    "os.name",
    "sys_platform",
    "sys.platform",
    "platform_release",
    "platform_system",
    "platform_version",
    "platform.version",
    "platform_machine",
    "platform.machine",
    "platform_python_implementation",
    "platform.python_implementation",
    "python_implementation",
    "implementation_name",
    "implementation_version",
];

const OPERATORS: [&str; 8] = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];

/// Brackets around brackets in a marker; pip allows 200.
const NESTING_MAX: usize = 100;

/// Checks that installers can read `requirement`.
///
/// # Errors
/// What was expected, and where.
pub(crate) fn check(requirement: &str) -> Result<(), String> {
    let mut rest = Rest(requirement);
    rest.requirement().map_err(|expected| rest.instead_of(expected))
}

/// Checks that installers can read `Requires-Python`: comparisons with versions, separated by commas. pip passes over what it
/// cannot read, with a warning, but uv refuses the release; so what uv mends is accepted: `>=3.6.*`, quotes, and a comma that is
/// missing before an operator.
///
/// # Errors
/// What was expected, and where.
pub(crate) fn check_python(versions: &str) -> Result<(), String> {
    let plain = versions.replace(['\'', '"'], "");
    let mut rest = Rest(&plain);
    rest.space();
    let read = match rest.python() {
        Ok(()) if !rest.0.is_empty() => Err("`,`, or the end,"),
        read => read,
    };
    read.map_err(|expected| rest.instead_of(expected))
}

/// What is not read yet. Its functions read a part each; the error says what was expected instead.
struct Rest<'text>(&'text str);

type ParseResult<T = ()> = Result<T, &'static str>;

fn is_of_operator(character: char) -> bool {
    matches!(character, '<' | '>' | '=' | '!' | '~')
}

fn check_specifier(operator: &str, version: &str) -> ParseResult {
    let specifier: Result<VersionSpecifier, _> = format!("{operator}{version}").parse();
    specifier.map(|_| ()).map_err(|_| "a comparison with a version")
}

impl<'text> Rest<'text> {
    /// An error's text.
    fn instead_of(&self, expected: &str) -> String {
        match self.0 {
            "" => format!("{expected} was expected at its end"),
            rest => format!("{expected} was expected at {rest:?}"),
        }
    }

    fn requirement(&mut self) -> ParseResult {
        self.space();
        self.name()?;
        self.space();
        if self.takes("[") {
            self.extras()?;
            self.space();
        }
        if self.takes("@") {
            self.space();
            let url = self.take_while(|c| !c.is_whitespace());
            if url.is_empty() {
                return Err("a URL");
            }
        } else if self.takes("(") {
            self.space();
            self.specifiers()?;
            self.expect(")", "`)`")?;
        } else {
            self.specifiers()?;
        }
        self.space();
        if self.0.is_empty() {
            return Ok(());
        }
        self.expect(";", "`;`, or the end,")?;
        self.marker(NESTING_MAX)?;
        if self.0.is_empty() { Ok(()) } else { Err("`and`, `or`, or the end") }
    }

    fn name(&mut self) -> ParseResult {
        let mut after = Rest(self.0);
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        ProjectName::parse(after.take_while(is_of_name)).map_err(|_| "a name")?;
        *self = after;
        Ok(())
    }

    fn extras(&mut self) -> ParseResult {
        self.space();
        if self.takes("]") {
            return Ok(());
        }
        loop {
            self.name()?;
            self.space();
            if self.takes("]") {
                return Ok(());
            }
            self.expect(",", "`,` or `]`")?;
            self.space();
        }
    }

    /// The specifiers of `Requires-Python`.
    fn python(&mut self) -> ParseResult {
        while !self.0.is_empty() {
            let mut after = Rest(self.0);
            let operator = after.take_while(is_of_operator);
            after.space();
            let version =
                after.take_while(|c| !matches!(c, ',' | ' ' | '\t') && !is_of_operator(c));
            let mended = match operator {
                "<" | "<=" | ">" | ">=" => version.strip_suffix(".*").unwrap_or(version),
                _ => version,
            };
            check_specifier(operator, mended)?;
            let is_next = after.0.starts_with(is_of_operator);
            *self = after;
            self.space();
            if !is_next && !self.takes(",") {
                break;
            }
            self.space();
        }
        Ok(())
    }

    /// Any number of specifiers; a comma may follow the last.
    fn specifiers(&mut self) -> ParseResult {
        while self.0.starts_with(is_of_operator) {
            let mut after = Rest(self.0);
            let operator = after.take_while(is_of_operator);
            after.space();
            let version = after.take_while(|c| !matches!(c, ',' | ';' | ')' | ' ' | '\t'));
            check_specifier(operator, version)?;
            *self = after;
            self.space();
            if !self.takes(",") {
                break;
            }
            self.space();
        }
        Ok(())
    }

    fn marker(&mut self, nesting_left: usize) -> ParseResult {
        loop {
            self.space();
            if self.takes("(") {
                let nesting_left = nesting_left.checked_sub(1).ok_or("less nesting")?;
                self.marker(nesting_left)?;
                self.expect(")", "`)`")?;
            } else {
                self.operand()?;
                self.space();
                self.operator()?;
                self.space();
                self.operand()?;
            }
            self.space();
            if !self.takes_word("and") && !self.takes_word("or") {
                return Ok(());
            }
        }
    }

    fn operand(&mut self) -> ParseResult {
        for quote in ["'", "\""] {
            if let Some(quoted) = self.0.strip_prefix(quote) {
                let (_, rest) = quoted.split_once(quote).ok_or("a quoted text that ends")?;
                self.0 = rest;
                return Ok(());
            }
        }
        let is_known = VARIABLES.iter().chain(["extra"].iter()).any(|name| self.takes_word(name));
        if is_known { Ok(()) } else { Err("the name of a marker, or a quoted text,") }
    }

    fn operator(&mut self) -> ParseResult {
        if self.takes_word("in") {
            return Ok(());
        }
        if self.takes_word("not") {
            self.space();
            return if self.takes_word("in") { Ok(()) } else { Err("`in`") };
        }
        let is_known = OPERATORS.iter().any(|operator| self.takes(operator));
        if is_known { Ok(()) } else { Err("a comparison") }
    }

    fn space(&mut self) {
        self.take_while(|c| matches!(c, ' ' | '\t'));
    }

    fn expect(&mut self, text: &str, expected: &'static str) -> ParseResult {
        if self.takes(text) { Ok(()) } else { Err(expected) }
    }

    fn takes(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = self.0.strip_prefix(word).filter(|rest| !goes_on(rest));
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn take_while(&mut self, is_taken: impl Fn(char) -> bool) -> &'text str {
        let end = self.0.find(|c| !is_taken(c)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_both_installers_read_is_accepted() {
        for text in [
            "foo",
            " Foo.Bar_baz ",
            "foo>=1.0",
            "foo >= 1.0 , < 3, !=1.5.*",
            "foo (>=1.0,)",
            "foo ()",
            "foo==1.0+local",
            "foo===1.0",
            "foo~=1.0a1",
            "foo>=v1.0",
            "foo [a, b-c]>=1",
            "foo[]",
            "foo @ https://files.example/foo.zip",
            "foo@ file:///foo ; extra == 'x'",
            "foo;python_version not  in '2.7 3.0'",
            "foo ; (os.name=='nt' or 'linux' in sys_platform) and extra == \"a'b\"",
            "foo ; python_version>'3'and python_full_version<'4'",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_one_of_them_cannot_read_is_refused() {
        for (text, expected) in [
            ("", "a name was expected at its end"),
            ("a b c", "`;`, or the end, was expected at \"b c\""),
            ("_foo", "a name was expected at \"_foo\""),
            ("foo_", "a name was expected at \"foo_\""),
            ("foo 1.0", "`;`, or the end, was expected at \"1.0\""),
            ("foo (1.0)", "`)` was expected at \"1.0)\""),
            ("foo,", "`;`, or the end, was expected at \",\""),
            ("foo>=1.0 <2", "`;`, or the end, was expected at \"<2\""),
            ("foo (>=1.0.*)", "a comparison with a version was expected at \">=1.0.*)\""),
            ("foo>=2004d", "a comparison with a version was expected at \">=2004d\""),
            ("foo~=1", "a comparison with a version was expected at \"~=1\""),
            ("foo=>1", "a comparison with a version was expected at \"=>1\""),
            ("foo===x", "a comparison with a version was expected at \"===x\""),
            ("foo>=1+local", "a comparison with a version was expected at \">=1+local\""),
            ("foo[ext", "`,` or `]` was expected at its end"),
            ("foo @", "a URL was expected at its end"),
            (
                "foo; bad marker",
                "the name of a marker, or a quoted text, was expected at \"bad marker\"",
            ),
            ("foo; extra = 'x'", "a comparison was expected at \"= 'x'\""),
            (
                "foo; extra == 'x' and",
                "the name of a marker, or a quoted text, was expected at its end",
            ),
            ("foo; extra == 'x", "a quoted text that ends was expected at \"'x\""),
            ("foo; (extra == 'x'", "`)` was expected at its end"),
            ("foo; extra == 'x' # why", "`and`, `or`, or the end was expected at \"# why\""),
            ("fo\u{f6}", "`;`, or the end, was expected at \"\u{f6}\""),
        ] {
            assert_eq!(check(text), Err(expected.to_owned()), "{text}");
        }
        let nested = format!("foo; {}extra == 'x'{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(check(&nested).is_err());
    }

    #[test]
    fn requires_python_may_have_what_uv_mends() {
        for text in [
            "",
            ">=3.8",
            ">= 3.6, !=3.9.*, <4,",
            ">=3.6 , ",
            "==3.*",
            ">=3.6.*",
            ">=2.7.*,!=3.0.*,<4.0.*",
            ">='3.8'",
            ">= \"3.6\"",
            ">=3.6<4",
            "<3.999",
            "===3",
        ] {
            assert_eq!(check_python(text), Ok(()), "{text}");
        }
        for text in [
            "python 3",
            "3.8",
            "*",
            "~=3",
            ">=3.6 <4",
            ">=3.8;<4",
            ">=3.x",
            "=>3.6",
            "~=3.6.*",
            "Python>=3.6",
            ">=3.6.",
            "unknown",
            ">=3.6|<4",
            "~3.8",
            "^3.8",
            ",>=3",
            ">=3,,<4",
        ] {
            assert!(check_python(text).is_err(), "{text}");
        }
        assert_eq!(
            check_python(">=3.6 <4"),
            Err("`,`, or the end, was expected at \"<4\"".to_owned())
        );
        assert_eq!(
            check_python(">=3,python"),
            Err("a comparison with a version was expected at \"python\"".to_owned())
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(foo|\\[|\\]|\\(|\\)|;|,|>=|==|~=|1\\.0|\\*|'|\"| |@|extra|in|not|and|\u{e9}){0,20}") {
            let _ = check(&text);
            let _ = check_python(&text);
        }
    }
}
