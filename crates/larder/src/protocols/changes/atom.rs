//! A feed of changes as Atom (RFC 4287), for the feed readers of people.

use account::Principal;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quick_xml::escape::escape;
use serde_json::Value;
use state::stored::Stored;

use crate::app::App;
use crate::published::changes::{Feed, FeedSurface};

/// Most entries in a feed.
const ENTRIES_MAX: usize = 100;

/// Characters that stay as they are in the path of a link.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b'+');

/// The latest changes that this client may read; `root` is the start of this server's URLs.
pub(super) fn render(
    app: &App,
    feed: &Feed,
    surface: FeedSurface,
    stored: &Stored,
    principal: &Principal,
    root: &str,
) -> String {
    let (_, history) = feed.oldest();
    let history = history.split_once('.').map_or("", |(_, history)| history);
    let name = surface.name();
    let (mut entries, mut latest) = (String::new(), None);
    let mut time = "1970-01-01T00:00:00Z".to_owned();
    let mut next = None;
    let latest_first = std::iter::from_fn(|| {
        let entries = feed.before(next, ENTRIES_MAX);
        next = Some(entries.last()?.serial);
        Some(entries)
    });
    let visible = latest_first.flatten().filter_map(|entry| {
        let event = entry.for_reader(&app.config, stored, principal)?;
        serde_json::from_slice::<Value>(event.json()).ok()
    });
    for change in visible.take(ENTRIES_MAX) {
        let text = |member: &str| change[member].as_str().unwrap_or_default();
        // An entry without a time came before the newer one.
        if let Some(own) = change["time"].as_str() {
            time = own.to_owned();
        }
        latest.get_or_insert_with(|| time.clone());
        let path: Vec<&str> = ["index", "project", "name"].map(text).to_vec();
        let path = path.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("/");
        let path = utf8_percent_encode(&path, PATH).to_string();
        let mut id =
            format!("urn:larder:{history}:{name}:{}:{}:{path}", change["serial"], text("type"));
        // When the record of an article's files is read, several may have changed, and one of them twice.
        if let Some(file) = change["file"].as_str() {
            id.push(':');
            id.extend(utf8_percent_encode(file, PATH));
            id.push_str(&format!(":{}", change["number"].as_u64().unwrap_or_default()));
        }
        let below = match surface {
            FeedSurface::Aur => "/aur/history/",
            FeedSurface::Articles => "/article/",
            FeedSurface::Python => "/",
        };
        // A file is found on the page of its project.
        let path = match (text("type"), path.rsplit_once('/')) {
            ("file", Some((project, _))) => project.to_owned(),
            _ => path,
        };
        let own = match surface {
            FeedSurface::Articles => title_of_article(stored, text("name")),
            FeedSurface::Aur | FeedSurface::Python => None,
        };
        let title = title(&change, own);
        let author = change["by"].as_str().unwrap_or("larder");
        entries.push_str(&format!(
            "<entry><id>{}</id><title>{}</title><updated>{time}</updated><author><name>{}</name></author>\
             <link href=\"{}\"/><summary>{}</summary></entry>\n",
            escape(&id),
            escape(&title),
            escape(author),
            escape(format!("{root}{below}{path}")),
            escape(summary(&change).unwrap_or_else(|| title.clone())),
        ));
    }
    let own = escape(format!("{root}/changes.atom?surface={name}")).into_owned();
    let title = escape(format!("What changed: {name}")).into_owned();
    let updated = latest.unwrap_or(time);
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\">\n<id>urn:larder:{history}:{name}</id>\
         <title>{title}</title><updated>{updated}</updated><link rel=\"self\" href=\"{own}\"/>\n{entries}</feed>\n"
    )
}

/// The title that an article has now, unless it is a draft, of which readers are told that it is gone.
fn title_of_article<'stored>(stored: &'stored Stored, name: &str) -> Option<&'stored str> {
    let article = stored.articles.article_named(name).filter(|article| article.is_listed())?;
    let content = article.latest()?.content()?;
    content.title.as_deref()
}

/// The title of an entry; that of an article has the article's `own`.
fn title(change: &Value, own: Option<&str>) -> String {
    let text = |member: &str| change[member].as_str().unwrap_or_default();
    let file = text("file");
    if !file.is_empty() {
        return format!("{} {}: {file} ({})", text("type"), text("kind"), text("name"));
    }
    if let Some(own) = own {
        return format!("{} {}: {own} ({})", text("type"), text("kind"), text("name"));
    }
    let place = ["index", "project"].map(text);
    let place: Vec<&str> = place.into_iter().filter(|text| !text.is_empty()).collect();
    let place = if place.is_empty() { String::new() } else { format!(" ({})", place.join(" ")) };
    format!("{} {}: {}{place}", text("type"), text("kind"), text("name"))
}

/// What is different, in a few words; `None` if the change does not say.
fn summary(change: &Value) -> Option<String> {
    let fields = change["changed"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fields: Vec<String> = fields
        .iter()
        .filter_map(Value::as_str)
        .map(|field| match (change["before"].get(field), change["after"].get(field)) {
            (None, None) => field.to_owned(),
            (before, after) => format!("{field}: {} → {}", said(before), said(after)),
        })
        .collect();
    (!fields.is_empty()).then(|| fields.join(", "))
}

fn said(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or("none")
}
