//! `/article/{name}/diff` for people: two versions side by side, or one below the other.

use std::borrow::Cow;

use article::{ArticleName, Revision};
use askama::Template;
use axum::response::Response;
use markup::{Block, Cell, Comparison};

use super::outline::{Breadcrumbs, in_tree};
use crate::front::display::{self, in_path};
use crate::front::error::HttpError;
use crate::front::page::Site;
use crate::front::parameters::{parameters, parsed};
use crate::protocols::articles::comparison_turns::{Requester, computed};
use crate::protocols::articles::diff::{Sides, Textual};
use crate::protocols::articles::reader::ReadRequest;

/// Bytes of both versions together.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Template)]
#[template(path = "difference.html")]
struct DifferencePage<'a> {
    site: Site,
    place: Breadcrumbs,
    name: &'a str,
    path: String,
    from: Revision,
    to: Revision,
    is_inline: bool,
    found: ComparisonResult,
}

/// What a comparison came to.
enum ComparisonResult {
    Same,
    Different {
        comparison: Comparison,
        added: String,
        removed: String,
    },
    /// Why there is nothing to show.
    Not(String),
}

/// The comparison that the query asks for, as a page.
pub(crate) async fn show_difference(
    shown: &ReadRequest<'_>,
    name: &ArticleName,
) -> Result<Response, HttpError> {
    let [from, to, view] = parameters(shown.head.uri.query(), ["from", "to", "view"])?;
    let from = parsed("from", from, "a version")?;
    let to = parsed("to", to, "a version")?;
    let is_inline = match view.as_deref() {
        Some("inline") => true,
        None | Some("sides") => false,
        Some(other) => {
            let detail = format!(
                "`{other}` is no value of the parameter `view`: expected `sides` or `inline`"
            );
            return Err(HttpError::bad_request(detail));
        }
    };
    let (from, to, found) = match Sides::judged(shown.stored, name, from, to, BYTES_MAX) {
        Ok(sides) => {
            let comparing = computed(Requester::Reader, sides.load(shown.app), |(from, to)| {
                let found = compared(&from, &to);
                (from.revision, to.revision, found)
            });
            comparing.await?
        }
        Err(error) if error.status() == http::StatusCode::PAYLOAD_TOO_LARGE => {
            let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
            (from, to, ComparisonResult::Not(error.detail().to_owned()))
        }
        Err(error) => return Err(error),
    };
    let page = DifferencePage {
        site: shown.site(),
        place: in_tree(shown, |view| Breadcrumbs::in_tree(view, name)),
        name: name.as_str(),
        path: in_path(name.as_str()),
        from,
        to,
        is_inline,
        found,
    };
    Ok(shown.send(&page).await)
}

fn compared(from: &Textual, to: &Textual) -> ComparisonResult {
    if from.bytes == to.bytes {
        return ComparisonResult::Same;
    }
    let text = |side: &Textual| -> Option<String> {
        let text = side
            .is_textual
            .then(|| String::from_utf8_lossy(&side.bytes))
            .filter(|text| matches!(text, Cow::Borrowed(_)) && !text.contains('\0'))?;
        Some(text.into_owned())
    };
    let (Some(old), Some(new)) = (text(from), text(to)) else {
        return ComparisonResult::Not(
            "They differ, and at least one of them is not text.".to_owned(),
        );
    };
    match markup::compare(&old, &new) {
        Ok(comparison) => ComparisonResult::Different {
            added: display::count(comparison.added, "line", "lines"),
            removed: display::count(comparison.removed, "line", "lines"),
            comparison,
        },
        Err(error) => ComparisonResult::Not(error.to_string()),
    }
}

impl DifferencePage<'_> {
    /// The lines of a change, one below the other: first the removed ones, then the added ones.
    fn in_turn<'a>(&self, old: &'a [Cell], new: &'a [Cell]) -> Vec<(bool, &'a Cell)> {
        let gone = old.iter().map(|cell| (false, cell));
        gone.chain(new.iter().map(|cell| (true, cell))).collect()
    }
}
