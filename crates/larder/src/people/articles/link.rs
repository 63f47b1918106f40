//! Resolves the links in an article: to its own files, and to other articles by their names, relative to the article.

use article::{ArticleName, ArticlePath, AttachmentName, Target as Page};
use markup::Target;
use percent_encoding::percent_decode_str;
use url::Url;

use super::may_read;
use crate::front::display::in_path;
use crate::protocols::articles::reader::ReadRequest;
use crate::protocols::articles::{attachment_changes, folder};
use crate::published::article_texts::below_article;

/// The target of a relative link in the article `name`.
pub(crate) fn resolve(
    shown: &ReadRequest<'_>,
    name: &ArticleName,
    prefix: &str,
    link: &str,
) -> Option<Target> {
    if let Some(file) = attached(shown, name, prefix, link) {
        return Some(file);
    }
    let base = format!("http://here.invalid{prefix}/article/{}", in_path(name.as_str()));
    let base = Url::parse(&base).ok()?;
    let near = found(shown, prefix, &base.join(link).ok()?);
    if !matches!(near, Some(Target::Missing(_))) || link.starts_with(['/', '.']) {
        return near;
    }
    // A plain name, as in `[[guide/start]]`.
    let root = Url::parse(&format!("http://here.invalid{prefix}/article/")).ok()?;
    let far = found(shown, prefix, &root.join(link).ok()?);
    match far {
        Some(Target::Missing(_)) | None => near,
        far => far,
    }
}

/// The file of the article that a link names.
fn attached(
    shown: &ReadRequest<'_>,
    name: &ArticleName,
    prefix: &str,
    link: &str,
) -> Option<Target> {
    let attachments = shown.stored.articles.attachments(name)?;
    let file = link.strip_prefix("./").unwrap_or(link);
    let file = file.split(['?', '#']).next().unwrap_or_default();
    let file = percent_decode_str(file).decode_utf8().ok()?;
    let file = AttachmentName::parse(&file).ok()?;
    let file = &attachments.file(file.as_str())?.name;
    let place = format!("{prefix}{}", attachment_changes::path(name, file.as_str()));
    Some(if file.is_picture() { Target::Picture(place) } else { Target::Page(place) })
}

fn found(shown: &ReadRequest<'_>, prefix: &str, url: &Url) -> Option<Target> {
    if url.host_str() != Some("here.invalid") {
        return None;
    }
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let more = match url.fragment() {
        Some(fragment) => format!("{query}#{fragment}"),
        None => query.clone(),
    };
    // Headings of articles have other names than their links say.
    let fragment = url.fragment().and_then(markup::fragment_id);
    let fragment = fragment.map(|id| format!("#{id}")).unwrap_or_default();
    let Some(rest) = below_article(url, prefix) else {
        return Some(Target::Page(format!("{}{more}", url.path())));
    };
    let place = format!("{prefix}/article/{rest}");
    let here = format!("{place}{query}{fragment}");
    let rest = percent_decode_str(rest).decode_utf8().ok()?;
    if rest.is_empty() {
        return Some(Target::Page(format!("{prefix}/articles")));
    }
    let Some(inner) = rest.strip_suffix('/') else {
        return found_article(shown, &rest, place, here);
    };
    // A folder: its page, if there is one, else the list of what is in it.
    Some(Target::Page(match folder::page_of(shown, inner) {
        Some(name) => format!("{prefix}/article/{}{query}{fragment}", in_path(name.as_str())),
        None => format!("{prefix}{}", folder::list_of(inner)),
    }))
}

/// The article, or its page, that `rest` of a path names.
fn found_article(
    shown: &ReadRequest<'_>,
    rest: &str,
    place: String,
    here: String,
) -> Option<Target> {
    let path = ArticlePath::parse(rest).ok()?;
    if !may_read(shown, path.name.as_str()) {
        return Some(Target::Page(here));
    }
    let articles = &shown.stored.articles;
    let mut article = articles.article(&path.name);
    if let Some(to) = article.and_then(|article| article.redirect()) {
        if !may_read(shown, to.as_str()) {
            return Some(Target::Page(here));
        }
        article = articles.article(to);
    }
    let latest = article.and_then(|article| article.latest()?.content());
    Some(match (latest, path.target) {
        (None, Page::Latest) => Target::Missing(here),
        (Some(content), Page::Latest) if content.content_type.essence().starts_with("image/") => {
            Target::Picture(place)
        }
        _ => Target::Page(here),
    })
}
