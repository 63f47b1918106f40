//! `/{user}/{index}/{project}/{version}/+compare?with=`: the changes between two versions: of the metadata, of an archive's
//! members, and of the text of one member.
//!
//! One file of each version is compared: a source archive with a source archive, a wheel with a wheel of the same tags. Members
//! are the same if their digests are; their names are compared without the release's own directory, which has the version in
//! its name. No other part of a name is removed, so that a member is not compared with a different one. Only a few comparisons
//! run at once, and long work runs on another thread ([`crate::published::archives`]).

use std::collections::{BTreeMap, HashMap};

use askama::Template;
use axum::response::Response;
use markup::{Block, Comparison, compare};
use pypi::archive::{Contents, ContentsMember};
use pypi::{FileKind, Filename, ReleaseFile, VersionView};
use serde_json::{Map, Value};

use super::contents::number;
use super::files::{Readable, archive_of, text_of, unread};
use crate::front::display::{self, in_path, visible, visible_name};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Site};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::names::Names;
use crate::protocols::python::project::metadata;
use crate::published::archives::Archives;

/// Members of each list on the page.
const MEMBERS: usize = 300;

/// Files of a version that can be compared.
const FILES: usize = 200;

#[derive(Template)]
#[template(path = "comparison.html")]
struct ComparisonPage<'a> {
    site: Site,
    stage: &'a str,
    /// The path of the project.
    path: String,
    name: &'a str,
    old: &'a str,
    new: &'a str,
    old_path: String,
    new_path: String,
    metadata: Texts,
    /// Names of the new version's files that have a like, with their query.
    pairs: Vec<(&'a str, String)>,
    files: Option<Files<'a>>,
}

/// The two files that are compared.
struct Files<'a> {
    old: &'a str,
    new: &'a str,
    found: FilesFound,
}

enum FilesFound {
    Lists(Lists),
    /// Two members with this name.
    Member(String, Texts),
    /// Why there is nothing to show.
    Not(String),
}

/// The outcome of comparing two texts.
enum Texts {
    Same,
    Different { comparison: Comparison, counts: String, is_cut: bool },
    Not(String),
}

/// The members that differ.
#[derive(Default)]
struct Lists {
    added: Vec<Line>,
    removed: Vec<Line>,
    changed: Vec<Line>,
    more: usize,
    same: usize,
    /// Members of the same size that were not read: there is too much to unpack, or they are damaged.
    unread: usize,
    is_cut: bool,
}

struct Line {
    name: String,
    size: String,
    /// The query of the page with its comparison.
    query: Option<String>,
}

/// Two versions of a project.
pub(crate) async fn compare_releases(ask: &Ask, names: &Names) -> Result<Response, ApiError> {
    let readable = Readable::of(ask, &names.stage, &names.project).await?;
    let with = ask.parameter("with").ok_or_else(|| {
        HttpError::bad_request("the parameter `with` is missing: a version was expected")
    })?;
    let new = readable.version(ask, &names.version).await?;
    let old = readable.version(ask, &with).await?;
    let pairs = pairs(&readable.files(&old, FILES), &readable.files(&new, FILES));
    let wanted = ask.parameter("file");
    let pair = match &wanted {
        Some(wanted) => {
            let pair = pairs.iter().find(|(_, new)| new.filename() == wanted);
            Some(pair.ok_or_else(|| {
                let text = format!("`{wanted}` is no file that both versions have the like of");
                HttpError::not_found(text)
            })?)
        }
        None => pairs.first(),
    };
    // While it waits for its turn, the request holds no archive.
    let _place = ask.app.python.archives.comparison().await.map_err(unread)?;
    let files = match pair {
        Some((old_file, new_file)) => {
            // Judged and noted as a download.
            let old_file = readable.file(ask, &old, old_file.filename()).await?;
            let new_file = readable.file(ask, &new, new_file.filename()).await?;
            let found = compared_files(ask, &with, old_file, new_file).await?;
            Some(Files { old: old_file.filename(), new: new_file.filename(), found })
        }
        None => None,
    };
    let [old_text, new_text] = [described(ask, &old).await?, described(ask, &new).await?];
    let page = ComparisonPage {
        site: ask.site(),
        stage: readable.stage(),
        path: format!("{}/{}", in_path(readable.stage()), readable.name),
        name: readable.name.as_str(),
        old: old.version.as_str(),
        new: new.version.as_str(),
        old_path: in_path(old.version.as_str()),
        new_path: in_path(new.version.as_str()),
        metadata: match (old_text, new_text) {
            (Some(old), Some(new)) => {
                compared_texts(&ask.app.python.archives, old, new, false).await?
            }
            _ => Texts::Not("What is known of at least one of them cannot be read.".to_owned()),
        },
        pairs: match pairs.len() {
            0 | 1 => Vec::new(),
            _ => pairs
                .iter()
                .map(|(_, new)| (new.filename(), query(&with, new.filename(), None)))
                .collect(),
        },
        files,
    };
    Ok(page::send(&page, &ask.head, Audience::Reader).await)
}

/// The query of a comparison.
fn query(with: &str, file: &str, members: Option<(usize, usize)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("with", with).append_pair("file", file);
    if let Some((old, new)) = members {
        query.append_pair("old", &old.to_string()).append_pair("new", &new.to_string());
    }
    query.finish()
}

/// The properties that two files share if they are compared: the kind and, for wheels, the tags. `None` for files that are not
/// opened.
fn likeness(filename: &str) -> Option<(FileKind, Vec<&str>)> {
    let name = Filename::parse(filename).ok().filter(pypi::archive::is_archive)?;
    let tags = match name.kind() {
        FileKind::Wheel | FileKind::Egg => {
            let stem = filename.rsplit_once('.').map_or("", |(stem, _)| stem);
            stem.rsplit('-').take(3).collect()
        }
        _ => Vec::new(),
    };
    Some((name.kind(), tags))
}

/// The new files, each with the old file that it replaces.
fn pairs<'a>(
    old_files: &[&'a ReleaseFile],
    new_files: &[&'a ReleaseFile],
) -> Vec<(&'a ReleaseFile, &'a ReleaseFile)> {
    let mut old = HashMap::new();
    for file in old_files {
        if let Some(likeness) = likeness(file.filename()) {
            old.entry(likeness).or_insert(*file);
        }
    }
    let like = |new: &ReleaseFile| likeness(new.filename()).and_then(|it| old.get(&it).copied());
    new_files.iter().filter_map(|new| Some((like(new)?, *new))).collect()
}

/// The metadata of a version, a line for each field, and the description; `None` if it cannot be read.
async fn described(ask: &Ask, version: &VersionView<'_>) -> Result<Option<String>, ApiError> {
    let bytes = metadata(&ask.app, std::slice::from_ref(version)).await?;
    let mut releases =
        version.parts.iter().filter_map(|part| part.project.release(version.version.as_str()));
    let Some(object) = releases
        .next()
        .and_then(|release| bytes.get(&release.metadata))
        .and_then(|bytes| serde_json::from_slice::<Map<String, Value>>(bytes).ok())
    else {
        return Ok(None);
    };
    let mut text = String::new();
    let mut description = String::new();
    let fields: BTreeMap<String, Value> = object.into_iter().collect();
    for (key, value) in fields {
        let mut line = |value: &Value| {
            let said = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if said.is_empty() || said == "UNKNOWN" {
                return;
            }
            match key.as_str() {
                "description" => description = said,
                // The version differs anyway.
                "version" => {}
                _ => text.push_str(&format!("{}: {said}\n", key.replace('_', " "))),
            }
        };
        match &value {
            Value::Null => {}
            Value::Array(values) => values.iter().for_each(line),
            value => line(value),
        }
    }
    if !description.is_empty() {
        text.push('\n');
        text.push_str(&description);
    }
    Ok(Some(text))
}

/// Bytes of two compared texts together at most: the bound of [`compare`], checked before the texts are made visible.
const TEXTS_BYTES_MAX: usize = 1 << 20;

async fn compared_texts(
    archives: &Archives,
    old: String,
    new: String,
    is_cut: bool,
) -> Result<Texts, ApiError> {
    if old == new {
        return Ok(Texts::Same);
    }
    let bytes = old.len() + new.len();
    if bytes > TEXTS_BYTES_MAX {
        let text = format!(
            "The texts have {bytes} bytes together: at most {TEXTS_BYTES_MAX} are compared."
        );
        return Ok(Texts::Not(text));
    }
    // Made visible, a text may be six times as long: only when it is its turn.
    archives.work(move || texts_of(&old, &new, is_cut)).await.map_err(unread)
}

/// Compares two texts that differ.
fn texts_of(old: &str, new: &str, is_cut: bool) -> Texts {
    let (old, new) = (visible(old), visible(new));
    if old == new {
        let text = "They differ, but only in how characters are written that nobody sees, such as U+200B and its number as text.";
        return Texts::Not(text.to_owned());
    }
    match compare(&old, &new) {
        Ok(comparison) => {
            let added = display::count(comparison.added, "line", "lines");
            let removed = display::count(comparison.removed, "line", "lines");
            let counts = format!("{added} added, {removed} removed.");
            Texts::Different { comparison, counts, is_cut }
        }
        Err(error) => Texts::Not(error.to_string()),
    }
}

async fn compared_files(
    ask: &Ask,
    with: &str,
    old: &ReleaseFile,
    new: &ReleaseFile,
) -> Result<FilesFound, ApiError> {
    let archives = &ask.app.python.archives;
    let (blobs, directory) = (&ask.app.store.blobs, &ask.app.config.data_dir);
    let [old_archive, new_archive] = [archive_of(old)?, archive_of(new)?];
    if let (Some(old_at), Some(new_at)) = (number(ask, "old")?, number(ask, "new")?) {
        let one = archives.member(blobs, directory, &old_archive, old_at).await.map_err(unread)?;
        let two = archives.member(blobs, directory, &new_archive, new_at).await.map_err(unread)?;
        let (Ok(Some(one)), Ok(Some(two))) = (&*one, &*two) else {
            let text = format!("there are no members {old_at} and {new_at} that can be compared");
            return Err(HttpError::not_found(text).into());
        };
        let texts = (text_of(&one.bytes, one.is_cut()), text_of(&two.bytes, two.is_cut()));
        let is_cut = one.is_cut() || two.is_cut();
        let compared = match texts {
            (Some(old), Some(new)) if is_cut && old == new => {
                Texts::Not("What is read of them is the same; the rest is not compared.".to_owned())
            }
            (Some(old), Some(new)) => {
                let (old, new) = (old.to_owned(), new.to_owned());
                compared_texts(archives, old, new, is_cut).await?
            }
            _ => Texts::Not("At least one of them is not text.".to_owned()),
        };
        return Ok(FilesFound::Member(visible_name(&two.name), compared));
    }
    let one = archives.members(blobs, directory, &old_archive, true).await.map_err(unread)?;
    let two = archives.members(blobs, directory, &new_archive, true).await.map_err(unread)?;
    for (looked, file) in [(&one, old), (&two, new)] {
        if let Err(why) = &**looked {
            return Ok(FilesFound::Not(format!("{}: {}", file.filename(), visible_name(why))));
        }
    }
    let names = [old.filename(), new.filename(), with].map(str::to_owned);
    let comparing = archives.work(move || match (&*one, &*two) {
        (Ok(one), Ok(two)) => lists((one, &names[0]), (two, &names[1]), &names[2]),
        // Errors were answered above.
        _ => Lists::default(),
    });
    Ok(FilesFound::Lists(comparing.await.map_err(unread)?))
}

/// Where a member is: in a directory that is named after the release, or elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum MemberFolder {
    /// `foo-1.0/` of a source archive.
    Top,
    /// `foo-1.0.dist-info/`
    Info,
    /// `foo-1.0.data/`
    Data,
    Elsewhere,
}

/// A member's name below the directory that is named after the release `own`; any other name is unchanged.
fn canonical<'a>(name: &'a str, own: &str, is_source: bool) -> (&'a str, MemberFolder) {
    let (is_own, elsewhere) = (|name: &str| folded(name) == own, (name, MemberFolder::Elsewhere));
    let Some((top, rest)) = name.split_once('/') else { return elsewhere };
    if is_source {
        return if is_own(top) { (rest, MemberFolder::Top) } else { elsewhere };
    }
    for (ending, place) in [(".dist-info", MemberFolder::Info), (".data", MemberFolder::Data)] {
        if top.strip_suffix(ending).is_some_and(is_own) {
            return (rest, place);
        }
    }
    elsewhere
}

/// A name and a version, in one of the spellings that tools choose.
fn folded(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

/// The files and links of an archive, by their canonical names.
fn named<'a>(
    contents: &'a Contents,
    file: &str,
) -> HashMap<(&'a str, MemberFolder), (usize, &'a ContentsMember)> {
    let is_source = !file.ends_with(".whl") && !file.ends_with(".egg");
    let stem = Filename::parse(file).map_or_else(|_| file.to_owned(), |it| it.stem().to_owned());
    // A wheel's name goes on with its tags.
    let mut hyphens = stem.match_indices('-').map(|(at, _)| at);
    let end = if is_source { None } else { hyphens.nth(1) };
    let own = folded(&stem[..end.unwrap_or(stem.len())]);
    let members = contents.members.iter().enumerate();
    let members = members.filter(|(_, member)| member.is_file || member.link.is_some());
    // If several members have one name, an installer leaves the last one.
    let full = |member: &'a ContentsMember| member.name.strip_prefix("./").unwrap_or(&member.name);
    let last: HashMap<&str, (usize, &ContentsMember)> =
        members.map(|(at, member)| (full(member), (at, member))).collect();
    let mut met: HashMap<_, usize> = HashMap::new();
    for name in last.keys() {
        *met.entry(canonical(name, &own, is_source)).or_default() += 1;
    }
    let one_of = |name: &'a str| {
        let canonical = canonical(name, &own, is_source);
        // If two members would get one name, both keep their full names, so that neither hides the other.
        if met[&canonical] == 1 { canonical } else { (name, MemberFolder::Elsewhere) }
    };
    last.into_iter().map(|(name, member)| (one_of(name), member)).collect()
}

/// Compares the members of two archives.
fn lists(
    (old, old_file): (&Contents, &str),
    (new, new_file): (&Contents, &str),
    with: &str,
) -> Lists {
    let (olds, news) = (named(old, old_file), named(new, new_file));
    let mut lists = Lists { is_cut: old.is_cut || new.is_cut, ..Lists::default() };
    let line = |member: &ContentsMember, size: String, query: Option<String>| Line {
        name: visible_name(&member.name),
        size,
        query,
    };
    let mut more = 0;
    let mut push = |list: &mut Vec<Line>, line: &dyn Fn() -> Line| match list.len() < MEMBERS {
        true => list.push(line()),
        false => more += 1,
    };
    let mut new_names: Vec<_> = news.iter().collect();
    new_names.sort_unstable_by_key(|(name, _)| **name);
    for (name, (new_at, new)) in new_names {
        let Some((old_at, old)) = olds.get(name) else {
            push(&mut lists.added, &|| line(new, display::size(new.size_bytes), None));
            continue;
        };
        let is_like = old.size_bytes == new.size_bytes && old.link == new.link;
        match (is_like, old.digest, new.digest) {
            (true, Some(old), Some(new)) if old == new => lists.same += 1,
            (true, _, _) if new.link.is_some() && !new.is_file => lists.same += 1,
            (true, None, _) | (true, _, None) => lists.unread += 1,
            _ => push(&mut lists.changed, &|| {
                let is_file = old.is_file && new.is_file;
                let sizes = [old.size_bytes, new.size_bytes].map(display::size);
                let size = format!("{} → {}", sizes[0], sizes[1]);
                let query = is_file.then(|| query(with, new_file, Some((*old_at, *new_at))));
                line(new, size, query)
            }),
        }
    }
    let mut gone: Vec<_> = olds.iter().filter(|(name, _)| !news.contains_key(*name)).collect();
    gone.sort_unstable_by_key(|(name, _)| **name);
    for (_, (_, old)) in gone {
        push(&mut lists.removed, &|| line(old, display::size(old.size_bytes), None));
    }
    lists.more = more;
    lists
}

#[cfg(test)]
mod tests {
    use record::Digest;

    use super::*;

    fn member(name: &str, text: &str) -> ContentsMember {
        ContentsMember {
            name: name.to_owned(),
            size_bytes: text.len() as u64,
            is_file: true,
            link: None,
            digest: Some(Digest::of(text.as_bytes())),
        }
    }

    fn contents(members: &[(&str, &str)]) -> Contents {
        let members = members.iter().map(|(name, text)| member(name, text)).collect();
        Contents { members, is_cut: false }
    }

    fn names(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.name.as_str()).collect()
    }

    #[test]
    fn members_are_the_same_whatever_the_version_is() {
        let old = contents(&[("p-1/a", "a"), ("p-1/b", "b"), ("p-1/c", "c"), ("p-1/c", "twice")]);
        let new = contents(&[("p-2/a", "a"), ("p-2/b", "B"), ("p-2/c", "c"), ("p-2/n", "new")]);
        let found = lists((&old, "p-1.tar.gz"), (&new, "p-2.tar.gz"), "1");
        // The last `c` counts.
        assert_eq!(names(&found.changed), ["p-2/b", "p-2/c"]);
        assert_eq!((names(&found.added), names(&found.removed)), (vec!["p-2/n"], vec![]));
        assert_eq!((found.same, found.unread, found.more), (1, 0, 0));
        let query = found.changed[0].query.as_deref();
        assert_eq!(query, Some("with=1&file=p-2.tar.gz&old=1&new=1"));
        let old = contents(&[("p-1.dist-info/METADATA", "a"), ("p/x", "x")]);
        let new = contents(&[("p-2.dist-info/METADATA", "a"), ("q/x", "x")]);
        let found = lists((&old, "p-1-py3-none-any.whl"), (&new, "p-2-py3-none-any.whl"), "1");
        assert_eq!(
            (found.same, names(&found.added), names(&found.removed)),
            (1, vec!["q/x"], vec!["p/x"])
        );
    }

    #[test]
    fn what_was_not_read_is_not_called_the_same() {
        let old = contents(&[("p-1/a", "a")]);
        let mut new = contents(&[("p-2/a", "b")]);
        new.members[0].digest = None;
        let found = lists((&old, "p-1.tar.gz"), (&new, "p-2.tar.gz"), "1");
        assert_eq!((found.same, found.unread, found.changed.len()), (0, 1, 0));
    }

    #[test]
    fn no_member_hides_another() {
        // A copy of the old file, elsewhere and later.
        let old = contents(&[("p-1/setup.py", "good"), ("p-1/a", "a")]);
        let new = contents(&[("p-2/setup.py", "evil"), ("zz/setup.py", "good"), ("p-2/a", "a")]);
        let found = lists((&old, "p-1.tar.gz"), (&new, "p-2.tar.gz"), "1");
        assert_eq!(
            (names(&found.changed), names(&found.added), found.same),
            (vec!["p-2/setup.py"], vec!["zz/setup.py"], 1)
        );
        // A member outside of the release's directory, and one in a directory that looks like it.
        let new = contents(&[("p-2/setup.py", "evil"), ("setup.py", "good"), ("P_2/a", "a")]);
        let found = lists((&old, "p-1.tar.gz"), (&new, "p-2.tar.gz"), "1");
        assert_eq!(names(&found.changed), ["p-2/setup.py"]);
        assert_eq!((names(&found.added), found.same), (vec!["setup.py"], 1));
        let new = contents(&[("p-2/setup.py", "evil"), ("P_2/setup.py", "good")]);
        let found = lists((&old, "p-1.tar.gz"), (&new, "p-2.tar.gz"), "1");
        assert_eq!(names(&found.added), ["P_2/setup.py", "p-2/setup.py"]);
        assert_eq!(names(&found.removed), ["p-1/a", "p-1/setup.py"]);
        let old = contents(&[("p-1.data/scripts/run", "good")]);
        let new = contents(&[("p-2.data/scripts/run", "evil"), ("q.data/scripts/run", "good")]);
        let found = lists((&old, "p-1-py3-none-any.whl"), (&new, "p-2-py3-none-any.whl"), "1");
        assert_eq!(names(&found.changed), ["p-2.data/scripts/run"]);
        assert_eq!(names(&found.added), ["q.data/scripts/run"]);
    }

    #[test]
    fn wheels_are_compared_with_those_of_their_tags() {
        assert_eq!(likeness("p-1-py3-none-any.whl"), likeness("p-2-py3-none-any.whl"));
        assert_ne!(likeness("p-1-py3-none-any.whl"), likeness("p-2-cp312-none-any.whl"));
        assert_eq!(likeness("p-1.tar.gz"), likeness("p-2.zip"));
        assert_eq!(likeness("p-1.exe"), None);
    }

    #[test]
    fn texts_that_only_look_the_same_are_not_called_so() {
        let texts = texts_of("a\u{200b}b", "a⟨U+200B⟩b", false);
        assert!(matches!(texts, Texts::Not(why) if why.starts_with("They differ")));
        let texts = texts_of("a\u{200b}b", "ab", false);
        assert!(matches!(texts, Texts::Different { .. }));
    }
}
