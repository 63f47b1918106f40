//! `/+attachments/{article}/`: the files of an article for people, with forms to add, replace and remove them.
//!
//! multipart form -> session and form token, checked before the first byte of a file -> [`attachment_changes`], as for programs ->
//! redirect to the page, or the page with what is wrong.

use std::sync::Arc;

use account::{Object, Principal, SessionText};
use article::{ArticleName, Attachment, AttachmentError, AttachmentName, Condition};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use futures_util::stream;
use http::StatusCode;
use operations::attachments::{ChangedAttachment, FileOfArticle};
use operations::{Done, Refusal, Rule};
use state::stored::Stored;
use store::SpooledBlob;

use super::{Breadcrumbs, admit_editor};
use crate::app::App;
use crate::front::display::{self, Time, in_path};
use crate::front::error::HttpError;
use crate::front::multipart::{FormError, FormReader, HEAD_BYTES_MAX, boundary_of_page, file_name};
use crate::front::page::{self, Site};
use crate::front::request::Parts;
use crate::front::{auth, body};
use crate::people::forms::{self, FormRefusal, TOKEN_FIELD};
use crate::protocols::articles::attachment_changes::{self, told};
use crate::protocols::articles::attachments::{FileList, listed};
use crate::protocols::articles::reader::{ReadRequest, admitted, keep_private};
use crate::routes::Route;

/// The number of fields of a form besides its file, and their bytes together.
const FIELDS_MAX: usize = 8;
const FIELD_BYTES_MAX: usize = 16 << 10;

/// Changes that the page shows.
const CHANGES_MAX: usize = 20;

#[derive(Template)]
#[template(path = "attachments.html")]
struct AttachmentsPage<'a> {
    site: Site,
    place: Breadcrumbs,
    /// The token of the forms; empty if the reader may not change anything.
    form: String,
    name: &'a str,
    path: String,
    files: Vec<File>,
    size: String,
    changes: Vec<Past>,
    problem: String,
    file_max: String,
}

/// A file, as pages show it.
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) size: String,
    pub(crate) at: Time,
    pub(crate) author: String,
    /// Its tag, which the forms for it name.
    tag: String,
    /// Markdown that shows the file, or links to it.
    pub(crate) markdown: String,
}

/// An earlier change of a file.
struct Past {
    at: Time,
    author: String,
    what: &'static str,
    file: String,
}

/// The files of an article, as pages show them.
pub(crate) fn files(stored: &Stored, name: &ArticleName) -> Vec<File> {
    let attachments = stored.articles.attachments(name);
    let files = attachments.map(|all| all.files()).unwrap_or_default();
    files.iter().map(|file| File::of(name, file)).collect()
}

impl File {
    fn of(article: &ArticleName, file: &Attachment) -> File {
        let name = file.name.as_str();
        let mark = if file.name.is_picture() { "!" } else { "" };
        let text = name.replace(['[', ']', '`', '*', '_', '<', '>'], " ");
        File {
            name: name.to_owned(),
            path: attachment_changes::path(article, name),
            size: display::size(file.size_bytes),
            at: Time(file.at),
            author: file.author.to_string(),
            tag: file.tag(),
            markdown: format!("{mark}[{}]({})", text.trim(), in_path(name)),
        }
    }
}

/// `GET /+attachments/{article}/`, for a browser.
pub(crate) async fn list_attachments(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let article = route.article()?;
    let object = Object::Article(article.as_str());
    let (stored, principal) = admitted(app, head, object).await?;
    let reading = ReadRequest { app, stored: &stored, head, principal: &principal };
    let response = reading.answered(match listed(&reading, &article) {
        Ok(FileList::Files(_)) => show_attachments(&reading, &article).await,
        Ok(FileList::Moved(response)) => Ok(response),
        Err(error) => Err(error),
    });
    Ok(keep_private(response, &principal))
}

/// The article exists, and the sender may read it.
async fn show_attachments(
    shown: &ReadRequest<'_>,
    name: &ArticleName,
) -> Result<Response, HttpError> {
    let &ReadRequest { app, head, .. } = shown;
    let sender = forms::logged_in(app, head).await.ok();
    let sender = sender.filter(|(_, principal)| may_change(app, principal, name));
    let Some((session, _)) = sender else {
        let page = page(shown, name, String::new(), String::new());
        return Ok(shown.send(&page).await);
    };
    let form = forms::token(app, &session)?;
    let page = page(shown, name, form, String::new());
    Ok(page::send_once(&page, head, StatusCode::OK).await)
}

/// Whether the sender may see and change the files.
fn may_change(app: &App, principal: &Principal, name: &ArticleName) -> bool {
    admit_editor(app, principal, name).is_ok()
}

fn page<'a>(
    shown: &ReadRequest<'_>,
    name: &'a ArticleName,
    form: String,
    problem: String,
) -> AttachmentsPage<'a> {
    let attachments = shown.stored.articles.attachments(name);
    let changes = attachments.map(|all| all.changes()).unwrap_or_default();
    let past = |change: &article::AttachmentChange| Past {
        at: Time(change.at),
        author: change.author.to_string(),
        what: change.act.as_str(),
        file: change.name.as_ref().map_or("all files", AttachmentName::as_str).to_owned(),
    };
    AttachmentsPage {
        site: shown.site(),
        place: Breadcrumbs::of(name.as_str()),
        form,
        name: name.as_str(),
        path: in_path(name.as_str()),
        files: files(shown.stored, name),
        size: display::size(attachments.map_or(0, |all| all.size_bytes())),
        changes: changes.iter().rev().take(CHANGES_MAX).map(past).collect(),
        problem,
        file_max: display::size(shown.app.config.article.attachment_bytes_max),
    }
}

/// The fields of a form, and its file.
#[derive(Default)]
struct AttachmentForm {
    act: String,
    name: String,
    /// The tag of the file that was seen; empty for a new one.
    seen: String,
    file: Option<(SpooledBlob, u64)>,
}

/// A form that does not count.
fn form_refused(refusal: FormRefusal) -> HttpError {
    let problem = refusal.problem("load this page again", "Send it");
    HttpError::refused(HttpError::from(refusal).status(), problem)
}

/// A refused change, as the page says it.
fn refused(refusal: Refusal) -> HttpError {
    let problem = match &refusal {
        Refusal::Rule(Rule::Attachment(AttachmentError::ConditionMissing { name, .. })) => format!(
            "There is a file `{name}` already. Replace it in the list, or give yours another name."
        ),
        Refusal::Rule(Rule::Attachment(AttachmentError::Precondition { name, .. })) => format!(
            "Somebody added, replaced or removed `{name}` since you loaded this page. Look at it, and send it again."
        ),
        _ => return told(refusal, true),
    };
    HttpError::refused(told(refusal, true).status(), problem)
}

/// `POST /+attachments/{article}/`: adds, replaces or removes a file.
pub(crate) async fn change_attachments(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    let name = &route.article()?;
    let sender = forms::sender(app, head)?;
    let (session, principal) = sender.ok_or_else(|| form_refused(FormRefusal::LoggedOut))?;
    let error = match carry_out(app, head, name, (&session, &principal), body).await {
        Ok(done) => {
            let path = attachment_changes::path(name, "");
            return Ok(forms::carried_out(app, head, &path, &session, done.seen));
        }
        Err(error) => error,
    };
    let (status, problem) = (error.status(), error.detail().to_owned());
    let stored = app.stored()?;
    // Others must not learn whether the article exists.
    let is_there = stored.articles.latest(name).is_some_and(|latest| !latest.is_deleted());
    if !is_there || !may_change(app, &principal, name) {
        return Err(HttpError::refused(status, problem));
    }
    let shown = ReadRequest { app, stored: &stored, head, principal: &principal };
    let page = page(&shown, name, forms::token(app, &session)?, problem);
    Ok(page::send_once(&page, head, status).await)
}

async fn carry_out(
    app: &App,
    head: &Parts,
    article: &ArticleName,
    (session, principal): (&SessionText, &Principal),
    body: Body,
) -> Result<Done<ChangedAttachment>, HttpError> {
    let boundary = boundary_of_page(head)?;
    let (limits, sender) = (app.rules.attachment_limits, auth::sender(principal.clone(), head));
    let announced = body::announced(&head.headers);
    let most = limits.file_bytes_max.saturating_add(4 * FIELD_BYTES_MAX as u64);
    if let Some(size) = announced.filter(|&announced| announced > most) {
        return Err(AttachmentError::too_large(size, &limits).into());
    }
    let bad = |error: FormError| HttpError::bad_request(error);
    let broken = |error: multer::Error| bad(error.into());
    let mut held = app.limits.bodies.begin(body::holder(app, head, principal))?;
    held.hold(HEAD_BYTES_MAX + FIELD_BYTES_MAX)?;
    let form = FormReader::new(body.into_data_stream(), boundary);
    let mut form = form.with_fields_max(FIELDS_MAX);
    let (mut arrived, mut is_due, mut field_bytes) = (AttachmentForm::default(), false, 0);
    while let Some(mut field) = form.next_field().await.map_err(bad)? {
        let called = field.name().unwrap_or_default().to_owned();
        if let Some(filename) = file_name(&field) {
            if !is_due {
                return Err(form_refused(FormRefusal::Token));
            }
            if called != "file" || arrived.file.is_some() || filename.is_empty() {
                continue;
            }
            if arrived.name.is_empty() {
                arrived.name = name_of(&filename)?.to_string();
            }
            let file = arrived.file_of(article)?;
            admit_editor(app, principal, article)?;
            auth::admit_to_disk(app, principal).await?;
            attachment_changes::announce(app, &sender, &file, None).await.map_err(refused)?;
            let holder = body::holder(app, head, principal);
            let pieces = stream::try_unfold(&mut field, |field| async move {
                let piece = field.chunk().await.map_err(broken)?;
                Ok::<_, HttpError>(piece.map(|piece| (piece, field)))
            });
            arrived.file = Some(attachment_changes::spooled(app, holder, pieces).await?);
            continue;
        }
        let mut text = Vec::new();
        while let Some(piece) = field.chunk().await.map_err(broken)? {
            field_bytes += piece.len();
            if field_bytes > FIELD_BYTES_MAX {
                let detail =
                    format!("the fields of the form have more than {FIELD_BYTES_MAX} bytes");
                return Err(HttpError::bad_request(detail));
            }
            text.extend_from_slice(&piece);
        }
        let text = String::from_utf8(text);
        let text = text.map_err(|_| {
            HttpError::bad_request(format_args!("the field `{called}` is not UTF-8"))
        })?;
        match called.as_str() {
            TOKEN_FIELD => is_due = forms::is_token(app, &text, session.reveal().as_bytes())?,
            "do" => arrived.act = text,
            "name" => arrived.name = text.trim().to_owned(),
            "seen" => arrived.seen = text,
            _ => {}
        }
    }
    if !is_due {
        return Err(form_refused(FormRefusal::Token));
    }
    if arrived.act == "remove" {
        let file = arrived.file_of(article)?;
        return attachment_changes::remove(app, &sender, file).await.map_err(refused);
    }
    let Some(file) = arrived.file.take() else {
        return Err(HttpError::bad_request("Choose a file first."));
    };
    attachment_changes::store(app, &sender, arrived.file_of(article)?, file).await.map_err(refused)
}

/// The attachment's name for a file name that a browser sent. In file names, browsers encode only quotes and ends of lines.
fn name_of(filename: &str) -> Result<AttachmentName, HttpError> {
    let filename = filename.replace("%22", "\"").replace("%0D", " ").replace("%0A", " ");
    AttachmentName::of_file(&filename).map_err(HttpError::bad_request)
}

impl AttachmentForm {
    fn file_of(&self, article: &ArticleName) -> Result<FileOfArticle, HttpError> {
        let name = AttachmentName::parse(&self.name).map_err(HttpError::bad_request)?;
        let if_match = (!self.seen.is_empty()).then(|| format!("\"{}\"", self.seen));
        let condition = Condition::Headers { if_match, if_none_match: None };
        Ok(FileOfArticle { article: article.clone(), name, condition })
    }
}
