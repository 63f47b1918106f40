//! The articles of the demonstration: a small handbook whose pages link to each other.

use article::{Content, Revision};
use operations::articles::{Base, WriteArticle};
use operations::carry_out;

use super::root;
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
pub async fn write(app: &App) -> anyhow::Result<()> {
    let are_there = |app: &App| app.live_store.snapshot().map(|stored| !stored.articles.is_empty());
    if are_there(app) != Some(false) {
        return Ok(());
    }
    let sender = root(app)?;
    for (name, text) in ARTICLES {
        app.store.blobs.put(text.into()).await?;
        let writing = WriteArticle {
            name: name.parse()?,
            base: Base::of(Revision::NONE),
            content: Content::of(text.as_bytes(), Some("text/markdown"))?,
            comment: "made for the demonstration".to_owned(),
        };
        carry_out(&mut app.keeper(), &sender, &writing).await?;
    }
    Ok(())
}
