//! `/{user}/{index}/{project}/{version}/+compare?with=`: what changed between two versions: in the metadata, in which members an archive
//! has, and in the text of one of them.
//!
//! Of each version one file is compared, with its like: a source archive with a source archive, a wheel with the one of the same
//! tags. Members are the same if their digests are; their names are compared without the version that is in them.

use std::collections::BTreeMap;

use askama::Template;
use axum::response::Response;
use markup::{Block, Comparison};
use pypi::archive::{Contents, ContentsMember};
use pypi::{FileKind, Filename, ReleaseFile, VersionView};
use serde_json::{Map, Value};

use super::super::ask::Ask;
use super::super::project::metadata;
use super::super::route::Route;
use super::super::write::Refused;
use super::contents::number;
use super::given::{Readable, archive_of, text_of, unread};
use crate::http::error::HttpError;
use crate::http::people::{self, Audience, Site};
use crate::http::words::{self, in_path, visible, visible_name};

/// Members of each list on the page.
const MEMBERS: usize = 300;

/// Files of a version that can be compared.
const FILES: usize = 200;

#[derive(Template)]
#[template(path = "comparison.html")]
struct ComparisonPage<'a> {
    site: Site,
    stage: &'a str,
    /// Of the project.
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

/// What two texts came to.
enum Texts {
    Same,
    Different { comparison: Comparison, counts: String, is_cut: bool },
    Not(String),
}

/// Which members differ.
#[derive(Default)]
struct Lists {
    added: Vec<Line>,
    removed: Vec<Line>,
    changed: Vec<Line>,
    more: usize,
    same: usize,
    /// Those of the same size that were not read, as there is too much to unpack.
    unread: usize,
    is_cut: bool,
}

struct Line {
    name: String,
    size: String,
    /// Where it can be looked at.
    query: Option<String>,
}

/// Two versions of a project.
pub(in super::super) async fn compare_releases(
    ask: &Ask,
    route: &Route,
) -> Result<Response, Refused> {
    let readable = Readable::of(ask, &route.stage, &route.project).await?;
    let with = ask.parameter("with").ok_or_else(|| {
        HttpError::bad_request("the parameter `with` is missing: a version was expected")
    })?;
    let new = readable.version(ask, &route.version).await?;
    let old = readable.version(ask, &with).await?;
    let (old_files, new_files) = (readable.files(&old, FILES), readable.files(&new, FILES));
    let pairs: Vec<(&ReleaseFile, &ReleaseFile)> =
        new_files.iter().filter_map(|new| Some((like(&old_files, new)?, *new))).collect();
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
        site: Site::below(&ask.app, &*ask.root_url),
        stage: readable.stage(),
        path: format!("{}/{}", in_path(readable.stage()), readable.name),
        name: readable.name.as_str(),
        old: old.version.as_str(),
        new: new.version.as_str(),
        old_path: in_path(old.version.as_str()),
        new_path: in_path(new.version.as_str()),
        metadata: compared_texts(ask, &old_text, &new_text, false).await?,
        pairs: match pairs.len() {
            0 | 1 => Vec::new(),
            _ => pairs
                .iter()
                .map(|(_, new)| (new.filename(), query(&with, new.filename(), None)))
                .collect(),
        },
        files,
    };
    Ok(people::send(&page, &ask.head, Audience::Reader).await)
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

/// The file among these that `file` takes the place of.
fn like<'a>(files: &[&'a ReleaseFile], file: &ReleaseFile) -> Option<&'a ReleaseFile> {
    let kind = |file: &ReleaseFile| {
        let name = Filename::parse(file.filename()).ok()?;
        pypi::archive::is_archive(&name).then(|| name.kind())
    };
    let tags = |file: &ReleaseFile| {
        let stem = file.filename().rsplit_once('.').map_or("", |(stem, _)| stem);
        stem.rsplit('-').take(3).map(str::to_owned).collect::<Vec<_>>()
    };
    let wanted = kind(file)?;
    let mut same_kind = files.iter().copied().filter(|it| kind(it) == Some(wanted));
    match wanted {
        FileKind::Wheel | FileKind::Egg => same_kind.find(|it| tags(it) == tags(file)),
        _ => same_kind.next(),
    }
}

/// The metadata of a version, a line for each field, and the description.
async fn described(ask: &Ask, version: &VersionView<'_>) -> Result<String, Refused> {
    let bytes = metadata(&ask.app, std::slice::from_ref(version)).await?;
    let mut releases =
        version.parts.iter().filter_map(|part| part.project.release(version.version.as_str()));
    let object = releases
        .next()
        .and_then(|release| bytes.get(&release.metadata))
        .and_then(|bytes| serde_json::from_slice::<Map<String, Value>>(bytes).ok());
    let mut text = String::new();
    let mut description = String::new();
    let fields: BTreeMap<String, Value> = object.unwrap_or_default().into_iter().collect();
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
    Ok(text)
}

async fn compared_texts(ask: &Ask, old: &str, new: &str, is_cut: bool) -> Result<Texts, Refused> {
    if old == new {
        return Ok(Texts::Same);
    }
    let compared = ask.app.archives.compared(visible(old), visible(new)).await.map_err(unread)?;
    Ok(match compared {
        Ok(comparison) => {
            let added = words::count(comparison.added, "line", "lines");
            let removed = words::count(comparison.removed, "line", "lines");
            let counts = format!("{added} added, {removed} removed.");
            Texts::Different { comparison, counts, is_cut }
        }
        Err(error) => Texts::Not(error.to_string()),
    })
}

async fn compared_files(
    ask: &Ask,
    with: &str,
    old: &ReleaseFile,
    new: &ReleaseFile,
) -> Result<FilesFound, Refused> {
    let archives = &ask.app.archives;
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
            (Some(old), Some(new)) => compared_texts(ask, old, new, is_cut).await?,
            _ => Texts::Not("At least one of them is not text.".to_owned()),
        };
        return Ok(FilesFound::Member(visible_name(&two.name), compared));
    }
    let one = archives.members(blobs, directory, &old_archive, true).await.map_err(unread)?;
    let two = archives.members(blobs, directory, &new_archive, true).await.map_err(unread)?;
    Ok(match (&*one, &*two) {
        (Ok(one), Ok(two)) => {
            FilesFound::Lists(lists((one, old.filename()), (two, new.filename()), with))
        }
        (Err(why), _) => FilesFound::Not(format!("{}: {}", old.filename(), visible_name(why))),
        (_, Err(why)) => FilesFound::Not(format!("{}: {}", new.filename(), visible_name(why))),
    })
}

/// A member's name without the version: below the directory of a source archive, and with that of a wheel's own data left open.
fn canonical<'a>(name: &'a str, is_source: bool) -> std::borrow::Cow<'a, str> {
    let name = name.strip_prefix("./").unwrap_or(name);
    let Some((top, rest)) = name.split_once('/') else { return name.into() };
    if is_source {
        return rest.into();
    }
    for ending in [".dist-info", ".data"] {
        if top.ends_with(ending) {
            return format!("*{ending}/{rest}").into();
        }
    }
    name.into()
}

/// The members of two archives with these names, compared.
fn lists(
    (old, old_file): (&Contents, &str),
    (new, new_file): (&Contents, &str),
    with: &str,
) -> Lists {
    type Named<'a> = BTreeMap<std::borrow::Cow<'a, str>, (usize, &'a ContentsMember)>;
    fn named<'a>(contents: &'a Contents, file: &str) -> Named<'a> {
        let is_source = !file.ends_with(".whl") && !file.ends_with(".egg");
        // Of several with one name, the last one is what an installer leaves there.
        let members = contents.members.iter().enumerate();
        members
            .filter(|(_, member)| member.is_file || member.link.is_some())
            .map(|(at, member)| (canonical(&member.name, is_source), (at, member)))
            .collect()
    }
    let (olds, news) = (named(old, old_file), named(new, new_file));
    let mut lists = Lists { is_cut: old.is_cut || new.is_cut, ..Lists::default() };
    let line = |member: &ContentsMember, size: String, query: Option<String>| Line {
        name: visible_name(&member.name),
        size,
        query,
    };
    let mut more = 0;
    let mut push = |list: &mut Vec<Line>, line: Line| match list.len() < MEMBERS {
        true => list.push(line),
        false => more += 1,
    };
    for (name, (new_at, new)) in &news {
        let Some((old_at, old)) = olds.get(name) else {
            push(&mut lists.added, line(new, words::size(new.size_bytes), None));
            continue;
        };
        let is_like = old.size_bytes == new.size_bytes && old.link == new.link;
        match (is_like, old.digest, new.digest) {
            (true, Some(old), Some(new)) if old == new => lists.same += 1,
            (true, _, _) if new.link.is_some() && !new.is_file => lists.same += 1,
            (true, None, _) | (true, _, None) => lists.unread += 1,
            _ => {
                let is_file = old.is_file && new.is_file;
                let sizes = [old.size_bytes, new.size_bytes].map(words::size);
                let size = format!("{} → {}", sizes[0], sizes[1]);
                let query = is_file.then(|| query(with, new_file, Some((*old_at, *new_at))));
                push(&mut lists.changed, line(new, size, query));
            }
        }
    }
    for (name, (_, old)) in &olds {
        if !news.contains_key(name) {
            push(&mut lists.removed, line(old, words::size(old.size_bytes), None));
        }
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
}
