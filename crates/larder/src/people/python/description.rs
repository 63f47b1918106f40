//! A release's description of itself, in a form that a page can hold: strangers wrote all of it.

use std::sync::Arc;

use account::{Portion, Principal};
use markup::{Format, Options, RenderedText};
use pypi::devpi::{MetadataBytes, metadata_digests};
use pypi::{Metadata, ProjectName, ResolutionOrder, VersionView, required_name};
use record::{Digest, shortened};
use serde_json::{Map, Value};
use url::Url;

use crate::front::display::in_path;
use crate::people::rendered::{Key, rendered};

/// Lines of a list on the page, and characters of one.
const LINES_MAX: usize = 200;
const LINE_CHARS_MAX: usize = 400;

/// The metadata of a release, as a page shows it.
#[derive(Default)]
pub(crate) struct ReleaseMetadata {
    pub(crate) summary: String,
    /// Labels and values.
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) links: Vec<Link>,
    pub(crate) requires: Vec<Requirement>,
    pub(crate) extras: Vec<String>,
    /// By their first part, which names the group.
    pub(crate) classifiers: Vec<(String, Vec<String>)>,
    pub(crate) description: Option<Arc<RenderedText>>,
    /// Whether its metadata could be read.
    pub(crate) is_known: bool,
}

/// A link that the metadata names; without a URL where it may not lead there.
pub(crate) struct Link {
    pub(crate) label: String,
    pub(crate) url: Option<String>,
}

/// A requirement, with the path of the project if this index has it.
pub(crate) struct Requirement {
    pub(crate) text: String,
    pub(crate) path: Option<String>,
}

fn line(text: &str) -> String {
    shortened(text.trim(), LINE_CHARS_MAX).into_owned()
}

/// A URL that a page may link to.
fn outside(url: &str) -> Option<String> {
    let url = Url::parse(url.trim()).ok()?;
    matches!(url.scheme(), "http" | "https" | "mailto").then(|| url.into())
}

impl ReleaseMetadata {
    /// The description in the nearest index that has the version.
    pub(crate) async fn of(
        shown: &VersionView<'_>,
        bytes: &MetadataBytes,
        order: &ResolutionOrder<'_>,
        principal: &Principal,
        stage: &str,
    ) -> ReleaseMetadata {
        let version = shown.version.as_str();
        let releases = shown.parts.iter().filter_map(|part| part.project.release(version));
        let Some(digest) = releases.map(|release| release.metadata).next() else {
            return ReleaseMetadata::default();
        };
        debug_assert!(metadata_digests([shown]).contains(&digest));
        let object = bytes.get(&digest).and_then(|bytes| serde_json::from_slice(bytes).ok());
        let metadata =
            object.and_then(|object: Map<String, Value>| Metadata::from_json(&object).ok());
        match metadata {
            Some(metadata) => ReleaseMetadata::by(&metadata, digest, order, principal, stage).await,
            None => ReleaseMetadata::default(),
        }
    }

    /// The description in this metadata, whose bytes have this digest.
    pub(super) async fn by(
        metadata: &Metadata,
        digest: Digest,
        order: &ResolutionOrder<'_>,
        principal: &Principal,
        stage: &str,
    ) -> ReleaseMetadata {
        let mut described = ReleaseMetadata::read(metadata);
        described.requires = requires(metadata, order, principal, stage);
        let text = metadata.text("description");
        if !matches!(text.trim(), "" | "UNKNOWN") {
            let key = Key { digest, place: None };
            let content_type = metadata.text("description_content_type");
            // The specification of the metadata says that a description without a type is reStructuredText.
            let format = match content_type.trim() {
                "" => Format::RestructuredText,
                named => Format::of_media_type(named).unwrap_or(Format::Plain),
            };
            let options = Options { heading_level: 3, ..Options::default() };
            let render = || markup::render(text, format, &options);
            described.description = Some(rendered(key, render).await);
        }
        described
    }

    fn read(metadata: &Metadata) -> ReleaseMetadata {
        let mut facts = Vec::new();
        let license = match metadata.text("license_expression") {
            "" => metadata.text("license").lines().next().unwrap_or_default(),
            expression => expression,
        };
        for (label, text) in [
            ("Requires Python", metadata.text("requires_python")),
            ("License", license),
            ("Author", metadata.text("author")),
            ("Author’s address", metadata.text("author_email")),
            ("Maintainer", metadata.text("maintainer")),
            ("Maintainer’s address", metadata.text("maintainer_email")),
            ("Keywords", metadata.text("keywords")),
        ] {
            if !matches!(text.trim(), "" | "UNKNOWN") {
                facts.push((label, line(text)));
            }
        }
        let named = metadata.list("project_urls").iter().filter_map(|item| {
            let (label, url) = item.split_once(',')?;
            Some((line(label), url))
        });
        let own = [("Home page", "home_page"), ("Download", "download_url")];
        let own = own.map(|(label, key)| (label.to_owned(), metadata.text(key)));
        let own = own.into_iter().filter(|(_, url)| !matches!(url.trim(), "" | "UNKNOWN"));
        let links = own.chain(named).take(LINES_MAX).map(|(label, url)| Link {
            label: if label.is_empty() { line(url) } else { label },
            url: outside(url),
        });
        let lines = |key| -> Vec<String> {
            metadata.list(key).iter().take(LINES_MAX).map(|it| line(it)).collect()
        };
        ReleaseMetadata {
            summary: line(metadata.text("summary")).replace("UNKNOWN", ""),
            facts,
            links: links.collect(),
            requires: Vec::new(),
            extras: lines("provides_extras"),
            classifiers: grouped(lines("classifiers")),
            description: None,
            is_known: true,
        }
    }
}

/// Classifiers by their first part, each group where its first one is.
fn grouped(classifiers: Vec<String>) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for classifier in classifiers {
        let (group, member) = classifier.split_once("::").unwrap_or(("Other", &classifier));
        let (group, member) = (group.trim(), member.trim().to_owned());
        match groups.iter_mut().find(|(name, _)| name == group) {
            Some((_, members)) => members.push(member),
            None => groups.push((group.to_owned(), vec![member])),
        }
    }
    groups
}

fn requires(
    metadata: &Metadata,
    order: &ResolutionOrder<'_>,
    principal: &Principal,
    stage: &str,
) -> Vec<Requirement> {
    let listed = metadata.list("requires_dist").iter().take(LINES_MAX);
    let requirement = |text: &String| {
        let name = required_name(text);
        let is_there = |name: &ProjectName| {
            let is_ours = || order.project(name.as_str()).is_some();
            order.admits(principal, Portion::Project(name.as_str()))
                && (is_ours() || !order.mirrors_of(name.as_str()).asked.is_empty())
        };
        let name = name.filter(is_there);
        let path = name.map(|name| format!("{}/{name}", in_path(stage)));
        Requirement { text: line(text), path }
    };
    listed.map(requirement).collect()
}
