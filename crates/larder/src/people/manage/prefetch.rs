//! `/+manage/prefetch/{user}/{index}`: a lock, uploaded or pasted, whose files a mirror fetches ahead, and how far it is.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;

use super::*;
use crate::app::prefetches::Prefetch;
use crate::front::multipart::{FormError, FormReader, boundary_of_page, file_name};
use crate::front::{body, display};
use crate::people::forms::TOKEN_FIELD;
use crate::routes::Route;

/// Bytes of a form: a lock, and the rest of the form.
const BYTES_MAX: usize = python::LOCK_BYTES_MAX + (64 << 10);

/// Fields of a form.
const FIELDS_MAX: usize = 8;

#[derive(Template)]
#[template(path = "manage_prefetch.html")]
struct PrefetchPage {
    site: Site,
    form: String,
    name: String,
    path: String,
    lock_max: String,
    last: Option<Last>,
    said: FormNotice,
}

/// The last lock.
struct Last {
    is_running: bool,
    /// Why it was stopped, if it was.
    reason: String,
    by: String,
    begun: String,
    releases: usize,
    releases_done: usize,
    fetched: String,
    uncompared: u64,
    others: usize,
    problems: Vec<String>,
    problems_left_out: usize,
}

impl Last {
    fn of(prefetch: &Prefetch) -> Last {
        let progress = prefetch.progress();
        let (end, fetched) = (progress.end.as_ref(), &progress.fetched);
        let files = usize::try_from(fetched.files).unwrap_or(usize::MAX);
        let files = display::count(files, "file", "files");
        Last {
            is_running: end.is_none(),
            reason: end.and_then(|end| end.stopped.clone()).unwrap_or_default(),
            by: prefetch.by.clone(),
            begun: display::Time(prefetch.begun_at).to_string(),
            releases: prefetch.releases,
            releases_done: progress.releases,
            fetched: format!("{files}, {}", display::size(fetched.bytes)),
            uncompared: fetched.uncompared,
            others: prefetch.others,
            problems: progress.problems.clone(),
            problems_left_out: progress.problems_left_out,
        }
    }
}

/// `GET /+manage/prefetch/{user}/{index}`
pub(crate) async fn show_prefetch(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let (session, principal) = forms::logged_in(app, head).await?;
    page(app, head, route.stage()?, (&session, &principal), FormNotice::default(), StatusCode::OK)
        .await
}

async fn page(
    app: &Arc<App>,
    head: &Parts,
    stage: StageName,
    (session, principal): (&SessionText, &Principal),
    said: FormNotice,
    status: StatusCode,
) -> Result<Response, HttpError> {
    let path = in_path(stage.as_str());
    let basis = app.basis(auth::sender(principal.clone(), head))?;
    let last = python::last_prefetch(app, &basis, &stage).map_err(python::error_of)?;
    let page = PrefetchPage {
        site: Site::of(app, head),
        form: forms::token(app, session)?,
        name: stage.to_string(),
        path,
        lock_max: display::size(python::LOCK_BYTES_MAX as u64),
        last: last.as_deref().map(Last::of),
        said,
    };
    Ok(page::send_once(&page, head, status).await)
}

/// The fields of a form.
#[derive(Default)]
struct PrefetchForm {
    act: String,
    token: String,
    filename: String,
    lock: Bytes,
}

/// `POST /+manage/prefetch/{user}/{index}`, by what its field `do` names.
pub(crate) async fn change_prefetch(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let stage = route.stage()?;
    let sender = forms::sender(app, head)?;
    let (session, principal) = sender.ok_or(forms::FormRefusal::LoggedOut)?;
    let arrived = arrived(app, head, &principal, body).await?;
    if !forms::is_token(app, &arrived.token, session.reveal().as_bytes())? {
        return Err(forms::FormRefusal::Token.into());
    }
    let path = in_path(stage.as_str());
    let sender = auth::sender(principal.clone(), head);
    let outcome = match arrived.act.as_str() {
        "fetch" if arrived.lock.iter().all(u8::is_ascii_whitespace) => {
            Err(HttpError::unusable("Choose a lock file, or paste the text of one."))
        }
        "fetch" => {
            let (lock, name) = (Body::from(arrived.lock), Some(arrived.filename));
            let received = body::whole(app, head, &principal, lock, BYTES_MAX).await?;
            let begun = python::start_prefetch(app, (head, sender), &stage, name, received).await;
            begun.map(drop).map_err(python::error_of)
        }
        "stop" => {
            let stopped = python::stop_prefetch(app, &app.basis(sender)?, &stage);
            stopped.map(drop).map_err(python::error_of)
        }
        _ => return Err(forms::asks_nothing()),
    };
    let Err(error) = outcome else {
        // After a redirect, reloading the page does not send the form again.
        return Ok(forms::see_other(app, head, &format!("/+manage/prefetch/{path}")));
    };
    let (said, status) = FormNotice::of(&Answer::refused(error), "");
    page(app, head, route.stage()?, (&session, &principal), said, status).await
}

/// Reads the form. An uploaded lock wins over a pasted one.
async fn arrived(
    app: &App,
    head: &Parts,
    principal: &Principal,
    body: Body,
) -> Result<PrefetchForm, HttpError> {
    let boundary = boundary_of_page(head)?;
    let mut received = body::whole(app, head, principal, body, BYTES_MAX).await?;
    // The fields are a copy.
    received.hold(received.len() * 2)?;
    let (whole, _held) = received.into_parts();
    let pieces = stream::iter([Ok::<_, std::io::Error>(whole)]);
    let mut form = FormReader::new(pieces, boundary).with_fields_max(FIELDS_MAX);
    let mut arrived = PrefetchForm::default();
    while let Some(field) = form.next_field().await.map_err(HttpError::bad_request)? {
        let called = field.name().unwrap_or_default().to_owned();
        let filename = file_name(&field).unwrap_or_default();
        let content = field.bytes().await.map_err(FormError::from);
        let content = content.map_err(HttpError::bad_request)?;
        let text = || String::from_utf8_lossy(&content).into_owned();
        match called.as_str() {
            TOKEN_FIELD => arrived.token = text(),
            "do" => arrived.act = text(),
            // If no file was chosen, browsers send the field empty.
            "file" if !filename.is_empty() => {
                (arrived.filename, arrived.lock) = (filename, content);
            }
            "lock" if arrived.filename.is_empty() => arrived.lock = content,
            _ => {}
        }
    }
    Ok(arrived)
}
