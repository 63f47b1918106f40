//! `/+edit/{article}`: writing an article in a browser, with a preview, and resolving conflicts.
//!
//! form -> the text, with the version that it was made from -> [`mod@write`], as for programs -> the article; or the
//! form again, with the text as it was sent. No text is lost: not when the session has ended, not when the write is refused.

use std::sync::Arc;

use account::{Principal, SessionText};
use article::{Article, ArticleName, Content, Merge, Revision, RevisionFacts};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use markup::{Format, Options, RenderedText};
use operations::articles::{Base, DeleteArticle};
use record::{Digest, Serial, excerpt};

use super::{BYTES_MAX, Breadcrumbs, admit_editor, attachments, link};
use crate::app::App;
use crate::front::auth;
use crate::front::display::{Time, in_path};
use crate::front::error::HttpError;
use crate::front::negotiation;
use crate::front::page::{self, Site};
use crate::front::request::Parts;
use crate::people::forms::{self, Fields, FormRefusal};
use crate::people::rendered::rendered_once;
use crate::protocols::articles::reader::{self, ReadRequest, bytes};
use crate::protocols::articles::write::{self, FailedWrite, NewText};
use crate::routes::Route;

/// Size of the form: each byte of a text takes three there at most.
const FORM_BYTES_MAX: usize = 3 * BYTES_MAX as usize + (64 << 10);

/// The media types that writers choose from.
const TYPES: [(&str, &str); 4] = [
    ("text/markdown", "Markdown"),
    ("text/x-rst", "reStructuredText"),
    ("text/html", "HTML"),
    ("text/plain", "Plain text"),
];

#[derive(Template)]
#[template(path = "edit.html")]
struct EditPage<'a> {
    site: Site,
    place: Breadcrumbs,
    form: String,
    name: &'a str,
    path: String,
    /// The version that the text is made from; 0 makes the article.
    base: Revision,
    is_there: bool,
    files: Vec<attachments::File>,
    /// The form deletes the article, and has no text.
    is_deleting: bool,
    text: &'a str,
    comment: &'a str,
    types: Vec<Choice<'a>>,
    problem: String,
    preview: Option<Arc<RenderedText>>,
    conflict: Option<Conflict>,
    /// The name that the article has now, with its path.
    renamed: Option<(String, String)>,
}

struct Choice<'a> {
    media_type: &'a str,
    about: &'a str,
    is_chosen: bool,
}

/// A conflict: another writer saved first.
struct Conflict {
    version: Revision,
    author: String,
    comment: String,
    at: Time,
    /// The other writer's text; `None` if they deleted the article, or it is no text.
    theirs: Option<String>,
    /// The text that this writer wants to save.
    yours: String,
    /// The version that both were made from.
    base: Revision,
    merged: MergeOutcome,
}

/// The text in the form, to be saved next.
enum MergeOutcome {
    /// Both changes, which do not overlap.
    Clean,
    /// Both texts, with marks around the places that both changed: this many.
    Marked(usize),
    /// The text as it was sent, and why it was not merged.
    Not(String),
}

/// A text as a form has it.
struct Draft {
    base: Revision,
    /// Empty if the form deletes the article.
    text: String,
    comment: String,
    media_type: Option<String>,
    is_deleting: bool,
}

/// Whose form it is.
type Sender<'a> = (&'a SessionText, &'a Principal);

/// The text with the line ends that a form gives it.
fn in_a_form(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

impl Draft {
    fn of(fields: &Fields) -> Result<Draft, HttpError> {
        let base = fields.one("base")?;
        let base: Revision = base.parse().map_err(|_| {
            let shown = excerpt(base, 80);
            let detail = format!("`{}` is no version: a number was expected", shown.escape_debug());
            HttpError::bad_request(detail)
        })?;
        let media_type = fields.maybe("type")?.filter(|text| !text.is_empty()).map(str::to_owned);
        let is_deleting = fields.maybe("do")? == Some("delete");
        // Browsers send line ends as CRLF.
        let text = match is_deleting {
            true => String::new(),
            false => fields.one("text")?.replace("\r\n", "\n"),
        };
        if text.len() as u64 > BYTES_MAX {
            let detail = "the text is longer than 1 MiB: a PUT to its address takes longer ones";
            return Err(HttpError::too_large(detail));
        }
        let comment = fields.maybe("comment")?.unwrap_or_default().trim().to_owned();
        Ok(Draft { base, text, comment, media_type, is_deleting })
    }
}

/// A request about an article's form.
struct EditRequest<'a> {
    app: &'a Arc<App>,
    head: &'a Parts,
    name: &'a ArticleName,
}

/// `GET /+edit/{article}`
pub(crate) async fn show_edit(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let name = &route.article()?;
    let (session, principal) = forms::logged_in(app, head).await?;
    let editing = EditRequest { app, head, name };
    admit_editor(app, &principal, name)?;
    let draft = editing.latest().await?;
    let sender = Some((&session, &principal));
    editing.page(sender, &draft, Outcome::default(), StatusCode::OK).await
}

/// What is shown beside the form.
#[derive(Default)]
struct Outcome {
    problem: String,
    preview: Option<Arc<RenderedText>>,
    conflict: Option<Conflict>,
}

/// `POST /+edit/{article}`: previews a text, saves it, or deletes the article.
pub(crate) async fn edit(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    let name = &route.article()?;
    let editing = EditRequest { app, head, name };
    let (fields, sender) = forms::received(app, head, body, FORM_BYTES_MAX).await?;
    let draft = Draft::of(&fields)?;
    let (session, principal) = match sender {
        Ok(sender) => sender,
        Err(refusal) => return editing.refuse(&draft, refusal).await,
    };
    let sender = (&session, &principal);
    if let Err(error) = admit_editor(app, &principal, name) {
        return editing.problem(sender, &draft, &error).await;
    }
    match fields.maybe("do")?.unwrap_or("save") {
        "preview" => {
            let outcome = Outcome {
                preview: Some(editing.preview(&principal, &draft).await?),
                ..Outcome::default()
            };
            editing.page(Some(sender), &draft, outcome, StatusCode::OK).await
        }
        "save" => editing.save(sender, draft).await,
        "delete" => editing.delete(sender, draft).await,
        other => {
            let shown = excerpt(other, 80);
            let detail = format!(
                "`{}` is not known here: `preview`, `save` or `delete` was expected",
                shown.escape_debug()
            );
            Err(HttpError::bad_request(detail))
        }
    }
}

impl EditRequest<'_> {
    /// The form with the latest text.
    async fn latest(&self) -> Result<Draft, HttpError> {
        let stored = self.app.stored()?;
        let article = stored.articles.article(self.name);
        let base = article.map_or(Revision::NONE, |article| article.highest());
        let latest = article.and_then(|article| article.latest());
        let text = match latest.filter(|latest| !latest.is_deleted()) {
            Some(latest) => self.text_of(latest).await?,
            None => String::new(),
        };
        Ok(Draft { base, text, comment: String::new(), media_type: None, is_deleting: false })
    }

    /// The text of a version, if a form can have it.
    async fn text_of(&self, facts: &RevisionFacts) -> Result<String, HttpError> {
        let content = reader::content_of(self.name, facts)?;
        let unusable = |reason: &str| {
            let detail = format!(
                "`{}` cannot be changed in a browser: {reason}; a PUT to `/article/{0}` replaces it",
                self.name
            );
            HttpError::unusable(detail)
        };
        if content.size_bytes > BYTES_MAX {
            return Err(unusable("it is longer than 1 MiB"));
        }
        let bytes = bytes(self.app, content).await?;
        let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.contains('\0'));
        let text = text.filter(|_| content.content_type.is_textual());
        Ok(text.ok_or_else(|| unusable("it is not text"))?.to_owned())
    }

    /// The text as its page will show it.
    async fn preview(
        &self,
        principal: &Principal,
        draft: &Draft,
    ) -> Result<Arc<RenderedText>, HttpError> {
        let stored = self.app.stored()?;
        let shown = ReadRequest { app: self.app, stored: &stored, head: self.head, principal };
        let site = shown.site();
        let resolve = |link: &str| link::resolve(&shown, self.name, site.prefix(), link);
        let format = Format::of_media_type(&self.media_type(&stored.articles, draft));
        let options =
            Options { heading_level: 2, resolve: &resolve, is_article: true, takes_title: false };
        let render = || markup::render(&draft.text, format.unwrap_or(Format::Plain), &options);
        Ok(rendered_once(render).await)
    }

    /// The media type of the text: the one in the form, else the article's, else the one of the name's extension.
    fn media_type(&self, articles: &article::Snapshot, draft: &Draft) -> String {
        let of_base = || {
            let facts = articles.article(self.name)?.latest_with_content()?;
            Some(facts.content()?.content_type.as_str().to_owned())
        };
        let of_name = || article::of_name(self.name).map(|it| it.as_str().to_owned());
        let base = of_base();
        // The form has no parameters such as a charset: those of the article stay.
        let same = base.as_ref().filter(|base| {
            let essence = negotiation::essence(base);
            draft.media_type.as_deref().is_none_or(|said| said.eq_ignore_ascii_case(essence))
        });
        let said = same.cloned().or_else(|| draft.media_type.clone()).or(base).or_else(of_name);
        said.unwrap_or_else(|| TYPES[0].0.to_owned())
    }

    /// Deletes the article. If a newer version exists than the sender saw, shows that instead.
    async fn delete(&self, sender: Sender<'_>, draft: Draft) -> Result<Response, HttpError> {
        let (session, principal) = sender;
        let (name, base) = (self.name.clone(), Base::of(draft.base));
        let deleting = DeleteArticle { name, base, comment: draft.comment.clone() };
        let sent = auth::sender(principal.clone(), self.head);
        let refused = match write::delete_for(self.app, &sent, deleting).await {
            Ok(written) => return self.done(session, "/history", written.serial),
            Err(FailedWrite::Failed(error)) => return self.problem(sender, &draft, &error).await,
            Err(FailedWrite::Refused(refused)) => refused,
        };
        let stored = self.app.stored()?;
        if self.is_saved(&stored.articles, principal, draft.base, None) {
            return self.done(session, "/history", stored.serial);
        }
        drop(stored);
        let error = HttpError::refused(refused.status(), refused.detail());
        let draft = match refused.error.stale() {
            Some(_) => self.latest().await?,
            None => draft,
        };
        self.problem(sender, &draft, &error).await
    }

    /// Whether the sender has saved this text already, or without one has deleted the article: the form was sent twice.
    fn is_saved(
        &self,
        articles: &article::Snapshot,
        principal: &Principal,
        base: Revision,
        text: Option<&str>,
    ) -> bool {
        let author = write::author(principal);
        let digest = text.map(|text| Digest::of(text.as_bytes()));
        let is_it = |facts: &Arc<RevisionFacts>| {
            let is_redirect = facts.redirect().is_some();
            let found = facts.content().map(|content| content.digest);
            facts.base == base && *facts.author == *author && !is_redirect && found == digest
        };
        articles.article(self.name).is_some_and(|article| article.revisions().any(is_it))
    }

    async fn save(&self, sender: Sender<'_>, draft: Draft) -> Result<Response, HttpError> {
        let (session, principal) = sender;
        let stored = self.app.stored()?;
        let content_type = Some(self.media_type(&stored.articles, &draft));
        // A text whose lines ended as on Windows keeps these line ends.
        let base = stored.articles.revision(self.name, draft.base).cloned();
        drop(stored);
        let base = base.filter(|base| !base.is_deleted());
        let base_text = match &base {
            Some(base) => self.text_of(base).await.ok(),
            None => None,
        };
        // A form that changes nothing makes no version. In a form, all line ends are the same.
        if let (Some(base), Some(base_text)) = (&base, &base_text) {
            let stored = self.app.stored()?;
            let article = stored.articles.article(self.name);
            let is_latest = article.is_some_and(|article| article.highest() == base.revision);
            let same_type =
                |content: &Content| Some(content.content_type.as_str()) == content_type.as_deref();
            let is_same_type = base.content().is_some_and(same_type);
            if is_latest && is_same_type && in_a_form(base_text) == in_a_form(&draft.text) {
                return self.done(session, "", stored.serial);
            }
        }
        let base_text = base_text.unwrap_or_default();
        let ends = base_text.matches('\n').count();
        let is_windows = ends > 0 && base_text.matches("\r\n").count() == ends;
        let text = if is_windows { draft.text.replace('\n', "\r\n") } else { draft.text.clone() };
        let new = NewText {
            name: self.name.clone(),
            base: Base::of(draft.base),
            content_type,
            comment: draft.comment.clone(),
            body: Body::from(text.clone()),
            holder: None,
        };
        let sent = auth::sender(principal.clone(), self.head);
        let refused = match write::store(self.app, &sent, new).await {
            Ok(written) => return self.done(session, "", written.serial),
            Err(FailedWrite::Failed(error)) => return self.problem(sender, &draft, &error).await,
            Err(FailedWrite::Refused(refused)) => refused,
        };
        let Some(stale) = refused.error.stale() else {
            let error = HttpError::refused(refused.status(), refused.detail());
            return self.problem(sender, &draft, &error).await;
        };
        let stored = self.app.stored()?;
        if self.is_saved(&stored.articles, principal, draft.base, Some(&text)) {
            return self.done(session, "", stored.serial);
        }
        drop(stored);
        let latest = stale.latest.clone();
        let theirs = match latest.is_deleted() {
            true => None,
            false => self.text_of(&latest).await.ok(),
        };
        let (text, merged) = match &refused.merge {
            Some(Merge::Clean(text)) => (text.clone(), MergeOutcome::Clean),
            Some(Merge::Conflict { text, hunks }) => {
                (text.clone(), MergeOutcome::Marked(hunks.len()))
            }
            Some(Merge::NotMergeable(reason)) => {
                (draft.text.clone(), MergeOutcome::Not(reason.to_string()))
            }
            None => (draft.text.clone(), MergeOutcome::Not("the texts are too long".to_owned())),
        };
        let conflict = Conflict {
            version: latest.revision,
            author: latest.author.to_string(),
            comment: latest.comment.to_string(),
            at: Time(latest.at),
            theirs,
            base: draft.base,
            merged,
            yours: draft.text,
        };
        let next = Draft {
            base: latest.revision,
            text: text.replace("\r\n", "\n"),
            comment: draft.comment,
            media_type: draft.media_type,
            is_deleting: false,
        };
        let outcome = Outcome { conflict: Some(conflict), ..Outcome::default() };
        self.page(Some(sender), &next, outcome, StatusCode::CONFLICT).await
    }

    /// On to a page of the article, which shows this commit.
    fn done(
        &self,
        session: &SessionText,
        page: &str,
        serial: Serial,
    ) -> Result<Response, HttpError> {
        let path = format!("/article/{}{page}", in_path(self.name.as_str()));
        Ok(forms::carried_out(self.app, self.head, &path, session, serial))
    }

    /// The form again, with the text as it was sent and the problem.
    async fn problem(
        &self,
        sender: Sender<'_>,
        draft: &Draft,
        error: &HttpError,
    ) -> Result<Response, HttpError> {
        let outcome = Outcome { problem: error.detail().to_owned(), ..Outcome::default() };
        self.page(Some(sender), draft, outcome, error.status()).await
    }

    /// The page again, if the session has ended or the form belongs to another session.
    async fn refuse(&self, draft: &Draft, refusal: FormRefusal) -> Result<Response, HttpError> {
        let what = if draft.is_deleting { "delete" } else { "save" };
        let problem = refusal.problem(&format!("{what} here"), &format!("Look at it, and {what}"));
        let sender = forms::logged_in(self.app, self.head).await.ok();
        let sender = sender.as_ref().map(|(session, principal)| (session, principal));
        let outcome = Outcome { problem, ..Outcome::default() };
        self.page(sender, draft, outcome, HttpError::from(refusal).status()).await
    }

    async fn page(
        &self,
        sender: Option<Sender<'_>>,
        draft: &Draft,
        outcome: Outcome,
        status: StatusCode,
    ) -> Result<Response, HttpError> {
        let stored = self.app.stored()?;
        // Only senders who may read and write the article are told about it.
        let is_admitted = sender
            .is_some_and(|(_, principal)| admit_editor(self.app, principal, self.name).is_ok());
        let article: Option<&Arc<Article>> =
            stored.articles.article(self.name).filter(|_| is_admitted);
        let chosen = match is_admitted {
            true => self.media_type(&stored.articles, draft),
            false => draft.media_type.clone().unwrap_or_default(),
        };
        let is_known = TYPES.iter().any(|(known, _)| chosen.starts_with(known));
        let own = (!is_known && !chosen.is_empty()).then_some((chosen.as_str(), chosen.as_str()));
        let types = TYPES.into_iter().chain(own).map(|(media_type, about)| Choice {
            media_type,
            about,
            is_chosen: chosen.starts_with(media_type),
        });
        let form = sender.map(|(session, _)| forms::token(self.app, session)).transpose()?;
        let renamed = article.and_then(|article| article.redirect());
        let may_know = |to: &&ArticleName| {
            sender.is_some_and(|(_, principal)| reader::may_read(self.app, principal, to))
        };
        let renamed = renamed.filter(may_know);
        let page = EditPage {
            renamed: renamed.map(|to| (to.to_string(), in_path(to.as_str()))),
            site: Site::of(self.app, self.head),
            place: Breadcrumbs::of(self.name.as_str()),
            form: form.unwrap_or_default(),
            name: self.name.as_str(),
            path: in_path(self.name.as_str()),
            base: draft.base,
            is_there: article.is_some_and(|article| !article.is_deleted()),
            files: article.map_or_else(Vec::new, |_| attachments::files(&stored, self.name)),
            is_deleting: draft.is_deleting,
            text: &draft.text,
            comment: &draft.comment,
            types: types.collect(),
            problem: outcome.problem,
            preview: outcome.preview,
            conflict: outcome.conflict,
        };
        Ok(page::send_once(&page, self.head, status).await)
    }
}
