//! The articles of the demonstration: a small handbook whose pages link to each other.

use article::{Change, Content, Limits, Put, Revision};
use jiff::Timestamp;

use crate::app::App;

/// Names, and texts in Markdown.
macro_rules! articles {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("articles/", $name, ".md")))),*]
    };
}

const ARTICLES: [(&str, &str); 20] = articles![
    "welcome",
    "guide/reading",
    "guide/writing",
    "guide/conflicts",
    "guide/versions",
    "guide/differences",
    "guide/deleting",
    "guide/searching",
    "guide/names",
    "guide/rights",
    "guide/tokens",
    "guide/actions",
    "python/installing",
    "python/uploading",
    "python/stages",
    "python/yanking",
    "aur/questions",
    "aur/helpers",
    "operate/backup",
    "operate/monitoring",
];

/// Writes them into a store that has no articles.
///
/// # Errors
/// Those of the store.
pub(crate) async fn write(app: &App) -> anyhow::Result<()> {
    let are_there = |app: &App| app.live_store.snapshot().map(|stored| !stored.articles.is_empty());
    if are_there(app) != Some(false) {
        return Ok(());
    }
    for (name, text) in ARTICLES {
        let Some(stored) = app.live_store.snapshot_full() else { return Ok(()) };
        let put = Put {
            name: name.parse()?,
            base: Revision::NONE,
            content: Content::of(text.as_bytes(), Some("text/markdown"))?,
            author: "root".to_owned(),
            comment: "made for the demonstration".to_owned(),
            at: Timestamp::now(),
        };
        let checked = Change::Put(put).check(&stored.articles, &Limits::default())?;
        app.store.blobs.put(text.into()).await?;
        app.live_store.commit_as_system(checked.batch).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target of `link` in the article `name`.
    fn resolved(name: &str, link: &str) -> String {
        let mut segments: Vec<&str> = name.split('/').collect();
        segments.pop();
        for part in link.split('/') {
            match part {
                ".." => {
                    segments.pop();
                }
                part => segments.push(part),
            }
        }
        segments.join("/")
    }

    #[test]
    fn every_article_is_linked_and_no_link_is_broken() {
        let mut linked = vec!["welcome".to_owned()];
        for (name, text) in ARTICLES {
            name.parse::<article::ArticleName>().expect("a name");
            let links: Vec<&str> =
                text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
            assert!(!links.is_empty(), "{name} links to none");
            for link in links {
                let target = resolved(name, link);
                assert!(ARTICLES.iter().any(|(name, _)| *name == target), "{name}: {link}");
                linked.push(target);
            }
        }
        for (name, _) in ARTICLES {
            assert!(linked.iter().any(|target| target == name), "nothing links to {name}");
        }
    }
}
