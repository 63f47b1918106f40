//! `/{user}/{index}/{project}/{version}/+contents/{filename}`: the members of a wheel or a source archive, and one of them.
//!
//! path -> the file, as for a download -> its members, out of [`crate::published::archives`] -> a page. A URL names a member by its
//! number, as its name may be anything; names and texts are shown so that no character is invisible.

use askama::Template;
use axum::response::Response;

use super::files::{Readable, archive_of, text_of, unread};
use crate::front::display::{self, in_path, visible, visible_name};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Site};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::names::Names;

/// Members on a page.
const MEMBERS: usize = 500;

#[derive(Template)]
#[template(path = "contents.html")]
struct ContentsPage<'a> {
    site: Site,
    stage: &'a str,
    /// The path of the project.
    path: String,
    name: &'a str,
    version: &'a str,
    version_path: String,
    filename: &'a str,
    /// `3 members, 12 kB`
    count: String,
    members: Vec<Member>,
    previous: Option<usize>,
    next: Option<usize>,
    /// Whether the archive has more members than were read.
    is_cut: bool,
    /// Why it cannot be looked into.
    trouble: Option<String>,
}

struct Member {
    number: usize,
    name: String,
    size: String,
    bytes: u64,
    is_file: bool,
    link: Option<String>,
}

#[derive(Template)]
#[template(path = "member.html")]
struct MemberPage<'a> {
    site: Site,
    stage: &'a str,
    path: String,
    name: &'a str,
    version: &'a str,
    version_path: String,
    filename: &'a str,
    member: String,
    size: String,
    text: Option<String>,
    is_cut: bool,
}

/// The members of a file, or one of them.
pub(crate) async fn show_contents(ask: &Ask, names: &Names) -> Result<Response, ApiError> {
    let readable = Readable::of(ask, &names.stage, &names.project).await?;
    let [filename] = names.file.names.as_slice() else {
        return Err(HttpError::not_found("the name of a release file was expected").into());
    };
    let version = readable.version(ask, &names.version).await?;
    let file = readable.file(ask, &version, filename).await?;
    let archive = archive_of(file)?;
    let (blobs, directory) = (&ask.app.store.blobs, &ask.app.config.data_dir);
    let site = ask.site();
    let path = format!("{}/{}", in_path(readable.stage()), readable.name);
    if let Some(number) = number(ask, "member")? {
        let looked = ask.app.python.archives.member(blobs, directory, &archive, number).await;
        let looked = looked.map_err(unread)?;
        let refused = |why: &str| HttpError::not_found(format!("{filename}: {why}"));
        let found = looked.as_ref().as_ref().map_err(|why| refused(why))?;
        let found = found.as_ref().ok_or_else(|| {
            refused(&format!("it has no file with the number {number} that can be looked at"))
        })?;
        let page = MemberPage {
            site,
            stage: readable.stage(),
            path,
            name: readable.name.as_str(),
            version: version.version.as_str(),
            version_path: in_path(version.version.as_str()),
            filename,
            member: visible_name(&found.name),
            size: display::size(found.size_bytes),
            text: text_of(&found.bytes, found.is_cut()).map(visible),
            is_cut: found.is_cut(),
        };
        return Ok(page::send(&page, &ask.head, Audience::Reader).await);
    }
    let from = number(ask, "from")?.unwrap_or(0);
    let looked = ask.app.python.archives.members(blobs, directory, &archive, false).await;
    let looked = looked.map_err(unread)?;
    let empty = pypi::archive::Contents::default();
    let contents = looked.as_ref().as_ref().unwrap_or(&empty);
    let total = contents.members.len();
    // Beyond the end, the way back leads to the last members.
    let from = from.min(total);
    let bytes: u64 = contents.members.iter().fold(0, |sum, it| sum.saturating_add(it.size_bytes));
    let shown = contents.members.iter().enumerate().skip(from).take(MEMBERS);
    let page = ContentsPage {
        site,
        stage: readable.stage(),
        path,
        name: readable.name.as_str(),
        version: version.version.as_str(),
        version_path: in_path(version.version.as_str()),
        filename,
        count: format!("{}, {}", display::count(total, "member", "members"), display::size(bytes)),
        members: shown
            .map(|(number, member)| Member {
                number,
                name: visible_name(&member.name),
                size: display::size(member.size_bytes),
                bytes: member.size_bytes,
                is_file: member.is_file,
                link: member.link.as_deref().map(visible_name),
            })
            .collect(),
        previous: (from > 0).then(|| from.saturating_sub(MEMBERS)),
        next: from.checked_add(MEMBERS).filter(|next| *next < total),
        is_cut: contents.is_cut,
        trouble: looked.as_ref().as_ref().err().map(|why| visible_name(why)),
    };
    Ok(page::send(&page, &ask.head, Audience::Reader).await)
}

/// A parameter that is a number.
pub(crate) fn number(ask: &Ask, name: &str) -> Result<Option<usize>, HttpError> {
    let Some(text) = ask.parameter(name) else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(HttpError::bad_request(format!(
            "`{text}` is no value of the parameter `{name}`: expected a number"
        ))),
    }
}
