//! [`FileQuery`]: what the query of a project's page asks for: which files of the release, and which parts of long lists.
//!
//! query -> [`FileQuery`] -> [`Choices`], what the names of the files offer, and whether any wheel is left -> [`Span`], a part of a list
//! with the links to those around it. A value of the query may be anything: it is compared, and shown, but never believed to be there.

use std::borrow::Cow;
use std::collections::BTreeSet;

use pypi::Filename;

use crate::front::display::visible_name;
use crate::front::parameters::typed_parameter;
use crate::protocols::python::ask::Ask;

/// Tags that the form offers, of each kind: wheels of one release may have thousands.
const OFFERED_MAX: usize = 100;

/// Tags of one kind that are looked at.
const TAGS_MAX: usize = 1_000;

/// Characters of a value that are compared: no tag is longer than a filename.
const TAG_CHARS_MAX: usize = Filename::BYTES_MAX;

/// Characters of a value that no wheel has, in the sentence that says so.
const SHOWN_CHARS_MAX: usize = 100;

/// What the query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileQuery {
    /// The tag for the Python that wheels have to have; empty: any.
    python: String,
    /// The tag for the platform, likewise.
    platform: String,
    /// How many files come before those on the page.
    pub(super) files_from: usize,
    /// How many versions do, in the list of all; `None` if the page has the latest alone.
    pub(super) versions_from: Option<usize>,
}

/// What can be chosen among the files of a release.
#[derive(Clone, Debug, Default)]
pub(super) struct Choices {
    /// Fields of the form; none if there is nothing to choose.
    pub(super) fields: Vec<Field>,
    /// The chosen tags, if no wheel has them.
    pub(super) unmatched: Option<String>,
    /// How many files the release has.
    pub(super) all: usize,
    /// Whether only some of them are wanted.
    pub(super) is_narrowed: bool,
    /// Which part of the list of all versions the page has, as the query says it.
    pub(super) versions: Option<String>,
}

/// A field of the form.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) key: &'static str,
    pub(super) label: &'static str,
    pub(super) tags: Vec<Tag>,
}

/// A tag that the form offers.
#[derive(Clone, Debug)]
pub(super) struct Tag {
    pub(super) text: String,
    pub(super) is_chosen: bool,
}

/// A part of a long list.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// Its first item, counted from 1; beyond `all` it is empty.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) all: usize,
    /// The queries of the start of the list and of the parts before and after this one, where they show something else.
    pub(super) start: String,
    pub(super) previous: Option<String>,
    pub(super) next: Option<String>,
}

/// The tags of a wheel for Pythons and for platforms, as its name has them: several of a kind are joined by dots. `None` for any
/// other file.
fn tags(filename: &str) -> Option<[String; 2]> {
    let filename = Filename::parse(filename).ok()?;
    let tags = filename.split(None)?.tags?;
    Some([tags.python.to_owned(), tags.platform.to_owned()])
}

impl FileQuery {
    pub(super) fn of(ask: &Ask) -> FileQuery {
        let tag = |name| typed_parameter(&ask.head, name, TAG_CHARS_MAX);
        let number = |text: Cow<'_, str>| text.parse().ok();
        FileQuery {
            python: tag("python"),
            platform: tag("platform"),
            files_from: ask.parameter("files").and_then(number).unwrap_or_default(),
            // `all`, and anything else that is no number, is the start of the list.
            versions_from: ask.parameter("versions").map(|it| number(it).unwrap_or_default()),
        }
    }

    /// Whether the file is one of those that are wanted. Only wheels say in their names what they are for; all other files are.
    pub(super) fn admits(&self, filename: &str) -> bool {
        !self.is_narrowed() || tags(filename).is_none_or(|tags| self.admits_wheel(&tags))
    }

    fn admits_wheel(&self, tags: &[String; 2]) -> bool {
        let has = |tags: &str, tag: &str| tag.is_empty() || tags.split('.').any(|it| it == tag);
        has(&tags[0], &self.python) && has(&tags[1], &self.platform)
    }

    fn is_narrowed(&self) -> bool {
        !self.python.is_empty() || !self.platform.is_empty()
    }

    /// What the names of all files of a release offer.
    pub(super) fn choices<'a>(&self, filenames: impl Iterator<Item = &'a str>) -> Choices {
        let (mut found, mut all, mut has_wheel) =
            ([BTreeSet::<String>::new(), BTreeSet::new()], 0, false);
        for filename in filenames {
            all += 1;
            let Some(tags) = tags(filename) else { continue };
            has_wheel |= self.admits_wheel(&tags);
            for (found, tags) in found.iter_mut().zip(&tags) {
                for tag in tags.split('.').filter(|tag| !tag.is_empty()) {
                    if found.len() < TAGS_MAX && !found.contains(tag) {
                        found.insert(tag.to_owned());
                    }
                }
            }
        }
        let [pythons, platforms] = found;
        let fields = [
            Field::of("python", "Python", pythons, &self.python),
            Field::of("platform", "Platform", platforms, &self.platform),
        ];
        let chosen = [&self.python, &self.platform].into_iter().filter(|tag| !tag.is_empty());
        let chosen =
            chosen.map(|tag| format!("“{}”", visible_name(record::excerpt(tag, SHOWN_CHARS_MAX))));
        let unmatched = || chosen.collect::<Vec<_>>().join(" and ");
        Choices {
            fields: fields.into_iter().flatten().collect(),
            unmatched: (self.is_narrowed() && !has_wheel).then(unmatched),
            all,
            is_narrowed: self.is_narrowed(),
            versions: self.versions_from.map(in_query),
        }
    }

    /// The query of this page with other parts of the lists.
    fn query(&self, files_from: usize, versions_from: Option<usize>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (key, tag) in [("python", &self.python), ("platform", &self.platform)] {
            if !tag.is_empty() {
                query.append_pair(key, tag);
            }
        }
        if files_from > 0 {
            query.append_pair("files", &files_from.to_string());
        }
        if let Some(from) = versions_from {
            query.append_pair("versions", &in_query(from));
        }
        query.finish()
    }

    /// The query without a choice among the files.
    pub(super) fn query_of_all_files(&self) -> String {
        FileQuery::default().query(0, self.versions_from)
    }

    /// Which of the files the page shows: at most so many, from where the query says.
    pub(super) fn files(&self, all: usize, most: usize) -> Span {
        Span::of(self.files_from, all, most, |from| self.query(from, self.versions_from))
    }

    /// How many versions come before those on the page, and how many it has: the latest, or a part of all.
    pub(super) fn lines(&self, latest: usize, part: usize) -> (usize, usize) {
        self.versions_from.map_or((0, latest), |from| (from, part))
    }

    /// Which of the versions it shows, likewise; `None` for a page with only the latest.
    pub(super) fn versions(&self, all: usize, most: usize) -> Option<Span> {
        let from = self.versions_from.filter(|_| all > 0)?;
        Some(Span::of(from, all, most, |from| self.query(self.files_from, Some(from))))
    }

    /// If the page has the latest versions, and there are more: how many, and the query of the page that has them.
    pub(super) fn all_versions(&self, all: usize, shown: usize) -> Option<(usize, String)> {
        let has_more = self.versions_from.is_none() && all > shown;
        has_more.then(|| (all, self.query(self.files_from, Some(0))))
    }
}

/// The part of the list of all versions that begins here.
fn in_query(versions_from: usize) -> String {
    match versions_from {
        0 => "all".to_owned(),
        from => from.to_string(),
    }
}

impl Field {
    /// `None` if there is nothing to choose.
    fn of(
        key: &'static str,
        label: &'static str,
        found: BTreeSet<String>,
        chosen: &str,
    ) -> Option<Field> {
        if found.len() < 2 && chosen.is_empty() {
            return None;
        }
        let mut tags: Vec<String> = found.into_iter().collect();
        tags.sort_by(|one, other| in_order(one).cmp(&in_order(other)));
        let is_chosen = |tag: &String| tag == chosen;
        // The chosen one is offered even where there are too many.
        let last = tags.iter().skip(OFFERED_MAX).find(|tag| is_chosen(tag)).cloned();
        tags.truncate(OFFERED_MAX);
        tags.extend(last);
        let tags = tags.into_iter().map(|text| Tag { is_chosen: is_chosen(&text), text });
        Some(Field { key, label, tags: tags.collect() })
    }
}

/// The parts of a tag, so that `cp39` comes before `cp310`: letters and other signs as they are, numbers by their size.
fn in_order(tag: &str) -> Vec<(usize, &[u8])> {
    let parts = tag.as_bytes().chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
    let is_number = |part: &[u8]| part.first().is_some_and(u8::is_ascii_digit);
    parts.map(|part| (if is_number(part) { part.len() } else { 0 }, part)).collect()
}

impl Span {
    fn of(from: usize, all: usize, most: usize, query: impl Fn(usize) -> String) -> Span {
        let last = from.saturating_add(most).min(all);
        Span {
            first: from.saturating_add(1),
            last,
            all,
            start: query(0),
            previous: (from > 0 && from < all).then(|| query(from.saturating_sub(most))),
            next: (from < all && last < all).then(|| query(last)),
        }
    }

    /// Whether there is nothing left of the list where this part begins.
    pub(super) fn is_beyond(&self) -> bool {
        self.first > self.all && self.first > 1
    }

    /// Whether there is more of the list, before it or after it.
    pub(super) fn is_partial(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 6] = [
        "foo-1.0.tar.gz",
        "foo-1.0-cp310-cp310-win_amd64.whl",
        "foo-1.0-cp39-cp39-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "foo-1.0-cp39-cp39-win_amd64.whl",
        "foo-1.0-py2.py3-none-any.whl",
        "foo-1.0-py3.9.egg",
    ];

    fn wanted(python: &str, platform: &str) -> FileQuery {
        FileQuery {
            python: python.to_owned(),
            platform: platform.to_owned(),
            ..FileQuery::default()
        }
    }

    #[track_caller]
    fn check(python: &str, platform: &str, expected: &[usize], unmatched: Option<&str>) {
        let wanted = wanted(python, platform);
        let found = (0..FILES.len()).filter(|at| wanted.admits(FILES[*at])).collect::<Vec<_>>();
        assert_eq!(found, expected);
        assert_eq!(wanted.choices(FILES.into_iter()).unmatched.as_deref(), unmatched);
    }

    #[test]
    fn wheels_are_chosen_by_their_tags_and_other_files_stay() {
        check("", "", &[0, 1, 2, 3, 4, 5], None);
        check("cp39", "", &[0, 2, 3, 5], None);
        check("", "manylinux2014_x86_64", &[0, 2, 5], None);
        check("cp39", "win_amd64", &[0, 3, 5], None);
        check("py3", "any", &[0, 4, 5], None);
        check("cp310", "any", &[0, 5], Some("“cp310” and “any”"));
        check("", "py2.py3", &[0, 5], Some("“py2.py3”"));
        let long = "x".repeat(300);
        check(&long, "", &[0, 5], Some(&format!("“{}”", "x".repeat(100))));
    }

    #[test]
    fn what_occurs_is_offered_in_order() {
        let choices = wanted("cp39", "").choices(FILES.into_iter());
        let offered = |at: usize| {
            let tags = choices.fields[at].tags.iter();
            let said = |tag: &Tag| format!("{}{}", tag.text, if tag.is_chosen { "!" } else { "" });
            tags.map(said).collect::<Vec<_>>()
        };
        assert_eq!(offered(0), ["cp39!", "cp310", "py2", "py3"]);
        assert_eq!(
            offered(1),
            ["any", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "win_amd64"]
        );
        assert_eq!(choices.all, 6);
        assert!(FileQuery::default().choices(FILES.into_iter().skip(4)).fields[0].key == "python");
        assert!(FileQuery::default().choices(FILES.into_iter().take(2)).fields.is_empty());
        let many: Vec<String> =
            (0..3_000).map(|at| format!("foo-1-cp3{at}-none-any.whl")).collect();
        let choices = wanted("cp3150", "").choices(many.iter().map(String::as_str));
        assert_eq!(choices.fields[0].tags.len(), OFFERED_MAX + 1);
        assert!(choices.fields[0].tags[OFFERED_MAX].is_chosen);
    }

    #[test]
    fn a_part_of_a_list_has_the_parts_around_it() {
        let part = |files_from, all| {
            let wanted = FileQuery { files_from, ..wanted("a&b", "") };
            let span = wanted.files(all, 50);
            (span.previous.clone(), span.next.clone(), span.is_partial(), span.is_beyond())
        };
        let query = |rest: &str| Some(format!("python=a%26b{rest}"));
        assert_eq!(part(0, 50), (None, None, false, false));
        assert_eq!(part(0, 51), (None, query("&files=50"), true, false));
        assert_eq!(part(70, 200), (query("&files=20"), query("&files=120"), true, false));
        assert_eq!(part(20, 60), (query(""), None, true, false));
        assert_eq!(part(60, 60), (None, None, false, true));
        assert_eq!(part(usize::MAX, 60), (None, None, false, true));
        assert_eq!(part(0, 0), (None, None, false, false));
        let all = FileQuery { versions_from: Some(0), ..wanted("", "any") };
        let span = all.versions(300, 100).expect("a part");
        assert_eq!(
            (&*span.start, span.next.as_deref()),
            ("platform=any&versions=all", Some("platform=any&versions=100"))
        );
        assert_eq!(all.query_of_all_files(), "versions=all");
    }
}
