//! `article.…`: reading and writing articles, by the rules of `/article/…`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use state::stored::Stored;

use super::arguments::arguments;
use super::{ActionFuture, Arguments, Context, Definition, Failure, Handler};
use crate::front::error::HttpError;
use crate::front::loaded::no_store;
use crate::protocols::articles::call::{self, NewRevision};

pub(crate) const ACTIONS: &[Definition] = &[
    Definition {
        name: "article.get_version",
        summary: "The number of an article's latest version, which a new text must be made from.",
        arguments: Named::DESCRIBED,
        example: r#"{"name":"welcome"}"#,
        writes: false,
        handler: Handler::Wait(get_version),
    },
    Definition {
        name: "article.get",
        summary: "A version of an article: its facts and its text, in base64 if it is not UTF-8.",
        arguments: Get::DESCRIBED,
        example: r#"{"name":"welcome"}"#,
        writes: false,
        handler: Handler::Wait(get),
    },
    Definition {
        name: "article.history",
        summary: "The versions of an article, latest first; the result is that of /article/{name}/history.",
        arguments: History::DESCRIBED,
        example: r#"{"name":"welcome","limit":10}"#,
        writes: false,
        handler: Handler::Wait(history),
    },
    Definition {
        name: "article.search",
        summary: "Articles with all these words in name, title or text, the best first; the result is that of /articles?text=.",
        arguments: Search::DESCRIBED,
        example: r#"{"text":"getting started","limit":5}"#,
        writes: false,
        handler: Handler::Wait(search),
    },
    Definition {
        name: "article.put",
        summary: "Stores a new version of an article, made from the given version; 0 creates the article.",
        arguments: Put::DESCRIBED,
        example: r##"{"name":"drafts/hello","version":0,"text":"# Hello\n","content_type":"text/markdown"}"##,
        writes: true,
        handler: Handler::Wait(put),
    },
    Definition {
        name: "article.rename",
        summary: "Gives an article another name, with all its versions; the old name redirects there.",
        arguments: Rename::DESCRIBED,
        example: r#"{"name":"drafts/hello","version":1,"to":"hello"}"#,
        writes: true,
        handler: Handler::Wait(rename),
    },
];

arguments! {
    /// Names an article.
    struct Named {
        /// Its name.
        name: String,
    }
}

arguments! {
    /// Names a version of an article.
    struct Get {
        /// Its name.
        name: String,
        /// Number of the version; by default the latest.
        version: Option<u32>,
    }
}

arguments! {
    /// Names a part of an article's history.
    struct History {
        /// The article's name.
        name: String,
        /// Only versions below this one.
        before: Option<u32>,
        /// Most versions in the answer: 1 to 1000, by default 100.
        limit: Option<u32>,
    }
}

arguments! {
    /// Words to look for.
    struct Search {
        /// The words: all of them have to be there, the last one at least as the beginning of a word.
        text: String,
        /// Only articles whose names begin so.
        prefix: Option<String>,
        /// Most articles in the answer: 1 to 100, by default 20.
        limit: Option<u32>,
    }
}

arguments! {
    /// A new version.
    struct Put {
        /// The article's name.
        name: String,
        /// The version that the text was made from: the latest, or 0 for a new article.
        version: u32,
        /// The new text; either this or base64 is expected.
        text: Option<String>,
        /// The new content in base64, if it is not text.
        base64: Option<String>,
        /// Its media type; by default that of the version before, or a guess from the bytes.
        content_type: Option<String>,
        /// The reason for the change, shown in the history.
        comment: Option<String>,
    }
}

arguments! {
    /// Another name.
    struct Rename {
        /// The article's name.
        name: String,
        /// The version that was seen: the latest.
        version: u32,
        /// Its new name, which no other article has or had.
        to: String,
        /// The reason, shown in the history.
        comment: Option<String>,
    }
}

impl From<HttpError> for Failure {
    fn from(mut error: HttpError) -> Failure {
        let members = error.take_members();
        let (status, message, retry_after_seconds) = error.into_facts();
        let retry_after_seconds = retry_after_seconds.map(u64::from);
        Failure { status, message, retry_after_seconds, members }
    }
}

fn stored(context: &Context) -> Result<&Stored, Failure> {
    Ok(context.stored.as_deref().ok_or_else(no_store)?)
}

fn get_version<'a>(context: &'a Context, arguments: Arguments<'a>) -> ActionFuture<'a> {
    Box::pin(async move {
        let Named { name } = arguments.read()?;
        Ok(call::latest_version(&context.app, stored(context)?, &context.claim, &name).await?)
    })
}

fn get<'a>(context: &'a Context, arguments: Arguments<'a>) -> ActionFuture<'a> {
    Box::pin(async move {
        let Get { name, version } = arguments.read()?;
        let bytes_max = context.app.config.actions.results_bytes_max;
        let which = (name.as_str(), version);
        Ok(call::revision(&context.app, stored(context)?, &context.claim, which, bytes_max).await?)
    })
}

fn history<'a>(context: &'a Context, arguments: Arguments<'a>) -> ActionFuture<'a> {
    Box::pin(async move {
        let History { name, before, limit } = arguments.read()?;
        let part = (before, limit);
        Ok(call::history(&context.app, stored(context)?, &context.claim, &name, part).await?)
    })
}

fn search<'a>(context: &'a Context, arguments: Arguments<'a>) -> ActionFuture<'a> {
    Box::pin(async move {
        let Search { text, prefix, limit } = arguments.read()?;
        let part = (prefix, limit);
        Ok(call::search(&context.app, stored(context)?, &context.claim, &text, part).await?)
    })
}

fn put<'a>(context: &'a Context, arguments: Arguments<'a>) -> ActionFuture<'a> {
    Box::pin(async move {
        let Put { name, version: base, text, base64, content_type, comment } = arguments.read()?;
        let body = match (text, base64) {
            (Some(text), None) => Bytes::from(text),
            (None, Some(base64)) => BASE64_STANDARD
                .decode(&base64)
                .map_err(|error| Failure::refused(format!("`base64` is not base64: {error}")))?
                .into(),
            _ => return Err(Failure::refused("expected either `text` or `base64`")),
        };
        let new = NewRevision { name, base, body, content_type, comment };
        let (revision, serial) = call::put(&context.app, &context.sender().await?, new).await?;
        context.wrote(serial);
        Ok(revision)
    })
}

fn rename<'a>(context: &'a Context, arguments: Arguments<'a>) -> ActionFuture<'a> {
    Box::pin(async move {
        let Rename { name, version, to, comment } = arguments.read()?;
        let which = (name.as_str(), version);
        let sender = context.sender().await?;
        let renaming = call::rename(&context.app, &sender, which, &to, comment);
        let (revision, serial) = renaming.await?;
        context.wrote(serial);
        Ok(revision)
    })
}
