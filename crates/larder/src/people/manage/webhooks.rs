//! `/+manage/webhooks`: the webhooks of the configuration and how each fares, for administrators, who can have one tried again
//! now, a test posted to it, and a delivery sent again. Which webhooks there are, the file says: no secret passes through a page.

use jiff::Timestamp;

use super::*;
use crate::front::display;
use crate::published::changes::webhooks::{DeliveryTrouble, NotedDelivery, Webhook};
use crate::tasks::webhooks::{send_again, test};

/// Size of a form of this page.
const BYTES_MAX: usize = 4 << 10;

#[derive(Template)]
#[template(path = "manage_webhooks.html")]
struct WebhooksPage {
    site: Site,
    form: String,
    webhooks: Vec<Line>,
    said: FormNotice,
}

struct Line {
    name: String,
    surface: &'static str,
    origin: String,
    user: String,
    /// Empty until its task has begun.
    position: String,
    /// Empty if nothing was, since the start.
    delivered_at: String,
    trouble: Option<Trouble>,
    deliveries: Vec<DeliveryLine>,
}

/// A delivery, as the page shows it.
struct DeliveryLine {
    number: u64,
    name: String,
    /// HTML.
    at: String,
    size: String,
    /// How often it was tried, if that was more than once.
    attempts: Option<String>,
    failure: Option<String>,
    can_be_sent: bool,
}

impl DeliveryLine {
    fn of(delivery: &NotedDelivery) -> DeliveryLine {
        let attempts = usize::try_from(delivery.attempts).unwrap_or(usize::MAX);
        DeliveryLine {
            number: delivery.number,
            name: delivery.name.clone(),
            at: display::ago(&display::Time(delivery.at).exact(), &second(delivery.at)),
            size: display::size(delivery.size_bytes as u64),
            attempts: (attempts > 1).then(|| display::count(attempts, "attempt", "attempts")),
            failure: delivery.failure.clone(),
            can_be_sent: delivery.sent.is_some(),
        }
    }
}

struct Trouble {
    since: String,
    attempts: String,
    detail: String,
    next_at: String,
}

impl From<DeliveryTrouble> for Trouble {
    fn from(trouble: DeliveryTrouble) -> Trouble {
        let attempts = usize::try_from(trouble.attempts).unwrap_or(usize::MAX);
        Trouble {
            since: second(trouble.since),
            attempts: display::count(attempts, "attempt", "attempts"),
            detail: trouble.failure.detail,
            next_at: second(trouble.next_at),
        }
    }
}

impl Line {
    fn of(webhook: &Webhook) -> Line {
        let state = webhook.state();
        Line {
            name: webhook.name.clone(),
            surface: webhook.surface.name(),
            origin: webhook.origin(),
            user: webhook.user.as_ref().map(ToString::to_string).unwrap_or_default(),
            position: state.position.unwrap_or_default(),
            delivered_at: state.delivered_at.map(second).unwrap_or_default(),
            trouble: state.trouble.map(Trouble::from),
            deliveries: state.deliveries.iter().map(|it| DeliveryLine::of(it)).collect(),
        }
    }
}

/// A time to the second: the first attempts are no further apart.
fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// `GET /+manage/webhooks`
pub(crate) async fn show_webhooks(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let (session, principal) = forms::logged_in(app, head).await?;
    check_administrator(&principal, Scope::ServerAdmin, "webhooks")?;
    page(app, head, &session, FormNotice::default(), StatusCode::OK).await
}

async fn page(
    app: &App,
    head: &Parts,
    session: &SessionText,
    said: FormNotice,
    status: StatusCode,
) -> Result<Response, HttpError> {
    let page = WebhooksPage {
        site: Site::of(app, head),
        form: forms::token(app, session)?,
        webhooks: app.changes.webhooks.all().iter().map(|webhook| Line::of(webhook)).collect(),
        said,
    };
    Ok(page::send_once(&page, head, status).await)
}

/// `POST /+manage/webhooks`, by what its field `do` names.
pub(crate) async fn change_webhook(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, BYTES_MAX).await?;
    check_administrator(&posted.principal, Scope::ServerAdmin, "webhooks")?;
    let name = posted.fields.one("webhook")?;
    let found = app.changes.webhooks.all().iter().find(|webhook| webhook.name == name);
    let missing = || HttpError::not_found(format!("there is no webhook `{name}`"));
    let webhook = found.ok_or_else(missing)?;
    let (said, status) = match posted.fields.one("do")? {
        "try" => {
            webhook.try_now();
            let done =
                format!("{name} is tried now. Load this page again to see what became of it.");
            (FormNotice { done, ..FormNotice::default() }, StatusCode::OK)
        }
        "again" => {
            let number = posted.fields.one("delivery")?;
            let number: u64 = number.parse().map_err(|_| {
                let shown = record::excerpt(number, 40);
                HttpError::bad_request(format!("`{}` is no delivery", shown.escape_debug()))
            })?;
            let state = webhook.state();
            let delivery = state.deliveries.iter().find(|it| it.number == number);
            let gone = || HttpError::not_found("that delivery is no longer remembered");
            let delivery = delivery.ok_or_else(gone)?;
            match send_again(app, webhook, delivery).await {
                Ok(()) => {
                    let done = format!("{} was sent again, and taken.", delivery.name);
                    (FormNotice { done, ..FormNotice::default() }, StatusCode::OK)
                }
                Err(failure) => {
                    let problem = format!("{} was not taken: {}", delivery.name, failure.detail);
                    let said = FormNotice { problem, ..FormNotice::default() };
                    (said, StatusCode::UNPROCESSABLE_ENTITY)
                }
            }
        }
        "test" => match test(app, webhook).await {
            Ok(()) => {
                let done = format!("A test was posted to {name}, and taken.");
                (FormNotice { done, ..FormNotice::default() }, StatusCode::OK)
            }
            Err(failure) => {
                let problem = format!("A test was not taken by {name}: {}", failure.detail);
                (FormNotice { problem, ..FormNotice::default() }, StatusCode::UNPROCESSABLE_ENTITY)
            }
        },
        _ => return Err(forms::asks_nothing()),
    };
    page(app, head, &posted.session, said, status).await
}
