//! The page of a user's own tokens, password and sessions.

use account::{Credentials, Object, Password, Principal, Scope, SessionText, Token};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use issuers::Provider;
use jiff::Timestamp;
use operations::carry_out;
use operations::tokens::RevokeToken;
use operations::users::SetPassword;
use pypi::StageName;
use state::stored::Stored;

use super::{FORM_BYTES_MAX, log_in};
use crate::app::App;
use crate::front::auth::{self, session};
use crate::front::display::{Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Site};
use crate::front::parameters::parameter;
use crate::front::request::Parts;
use crate::people::forms::{self, Fields, PostedForm};
use crate::protocols::tokens::{self, TokenRequest};

/// The scopes that users choose from, with what they are for.
pub(crate) const SCOPES: [(Scope, &str); 9] = [
    (Scope::ArticleRead, "read articles"),
    (Scope::ArticleWrite, "read and write articles"),
    (Scope::PythonRead, "install from indexes"),
    (Scope::PythonUpload, "install from indexes and upload to them"),
    (Scope::PythonAdmin, "change and delete indexes and what is in them"),
    (Scope::UserAdmin, "change users and tokens"),
    (Scope::ServerAdmin, "administer the server"),
    (Scope::ServerFollow, "let another server copy everything, secrets included"),
    (Scope::All, "everything that you may"),
];

/// Drafts in the list of a user's own.
const DRAFTS: usize = 100;

/// How many days before its end a token is shown with a warning.
const ENDING_DAYS: i64 = 14;

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    site: Site,
    form: String,
    name: String,
    /// The path of the user's page.
    path: String,
    groups: Vec<String>,
    is_administrator: bool,
    tokens: Vec<TokenLine>,
    sessions: Vec<SessionLine>,
    scopes: Vec<Choice>,
    /// How long a token is valid if the form does not say; 0 for one that never expires.
    token_days: u32,
    /// Whether the user has a password, which forms ask for once more.
    has_password: bool,
    linked: Vec<LinkedLine>,
    providers: Vec<ProviderLine>,
    /// Drafts that the user may write: path, name, title.
    drafts: Vec<(String, String, String)>,
    /// Whether there are more.
    has_more_drafts: bool,
    said: TokenForm,
}

struct TokenLine {
    id: String,
    comment: String,
    scopes: String,
    limits: Option<String>,
    created_at: Time,
    expires_at: Option<Time>,
    /// That it has expired, or will soon.
    ending: Option<String>,
    used_at: Option<Time>,
}

struct SessionLine {
    created_at: Time,
    expires_at: Time,
    is_this: bool,
}

/// An account at a provider that the user is linked with.
struct LinkedLine {
    /// The provider, if the configuration still names it.
    provider: Option<ProviderLine>,
    issuer: String,
    subject: String,
    linked_at: Time,
}

struct ProviderLine {
    name: String,
    title: String,
}

impl ProviderLine {
    fn of(provider: &Provider) -> ProviderLine {
        let settings = provider.settings();
        ProviderLine { name: settings.name.clone(), title: settings.title.clone() }
    }
}

struct Choice {
    scope: &'static str,
    about: &'static str,
    is_chosen: bool,
}

/// How a form was answered, and its fields, so that it can be sent again.
#[derive(Default)]
struct TokenForm {
    done: String,
    problem: String,
    /// The text of a new token, which is shown only once.
    new_token: String,
    comment: String,
    expires: String,
    indexes: String,
    projects: String,
    prefixes: String,
    chosen: Vec<String>,
}

impl TokenForm {
    fn done(text: &str) -> TokenForm {
        TokenForm { done: text.to_owned(), ..TokenForm::default() }
    }

    /// The fields for a token that only installs from this index.
    fn for_index(index: &StageName) -> TokenForm {
        TokenForm {
            comment: format!("installs from {index}"),
            expires: "90d".to_owned(),
            indexes: index.to_string(),
            chosen: vec![Scope::PythonRead.as_str().to_owned()],
            ..TokenForm::default()
        }
    }

    fn of(fields: &Fields) -> Result<TokenForm, HttpError> {
        let text =
            |name: &str| Ok::<_, HttpError>(fields.maybe(name)?.unwrap_or_default().to_owned());
        Ok(TokenForm {
            comment: text("comment")?,
            expires: text("expires")?,
            indexes: text("indexes")?,
            projects: text("projects")?,
            prefixes: text("prefixes")?,
            chosen: fields.all("scope").map(str::to_owned).collect(),
            ..TokenForm::default()
        })
    }
}

/// `/+account`: the page of a user who is logged in, else the form for logging in. With `?index=USER/INDEX`, the form for a new token
/// is filled in for one that only installs from this index.
pub(crate) async fn show_account(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let index: Option<StageName> = parameter(head, "index").and_then(|name| name.parse().ok());
    let session = session::shown(app, head);
    if let Some(session) = session
        && let Some(principal) = session::known(app, &session)?
    {
        let said = index.as_ref().map_or_else(TokenForm::default, TokenForm::for_index);
        return page(app, head, &session, &principal, said, StatusCode::OK).await;
    }
    let next = index.map(|index| format!("/+account?index={}", in_path(index.as_str())));
    let next = next.as_deref().unwrap_or("/+account");
    log_in::page(app, head, (next, ""), "", StatusCode::OK).await
}

async fn page(
    app: &App,
    head: &Parts,
    session: &SessionText,
    principal: &Principal,
    said: TokenForm,
    status: StatusCode,
) -> Result<Response, HttpError> {
    let stored = app.stored()?;
    let nobody = || HttpError::from(forms::FormRefusal::LoggedOut);
    let user = &principal.identity().ok_or_else(nobody)?.user;
    let (now, digest) = (Timestamp::now(), session.secret_digest());
    let tokens = stored.accounts.tokens_of(&user.name).into_iter().rev();
    let tokens = tokens.filter(|token| token.belongs_to(user)).map(|token| TokenLine {
        id: token.id.to_string(),
        comment: token.comment.clone(),
        scopes: token.scopes.to_string().replace(',', ", "),
        limits: token.limits.as_ref().map(|limits| limits.to_string()),
        created_at: Time(token.created_at),
        expires_at: token.expires_at.map(Time),
        ending: ending(token, now),
        used_at: app.logins.token_uses.last(&stored.accounts, token.id).map(Time),
    });
    let sessions = stored.accounts.sessions_of(&user.name).into_iter().flat_map(|it| &it.sessions);
    let sessions = sessions.filter(|it| it.holds(user, now)).map(|it| SessionLine {
        created_at: Time(it.created_at),
        expires_at: Time(it.expires_at),
        is_this: it.secret_digest == digest,
    });
    let scopes = SCOPES.iter().map(|(scope, about)| Choice {
        scope: scope.as_str(),
        about,
        is_chosen: said.chosen.iter().any(|chosen| chosen == scope.as_str()),
    });
    let linked = stored.accounts.linked_of(&user.name).filter(|it| it.belongs_to(user));
    let linked: Vec<LinkedLine> = linked
        .map(|it| LinkedLine {
            provider: app
                .logins
                .providers
                .iter()
                .find(|provider| provider.settings().issuer == it.issuer)
                .map(ProviderLine::of),
            issuer: it.issuer.clone(),
            subject: it.subject.clone(),
            linked_at: Time(it.linked_at),
        })
        .collect();
    let mut drafts = drafts(app, &stored, principal);
    let page = AccountPage {
        drafts: drafts.by_ref().take(DRAFTS).collect(),
        has_more_drafts: drafts.next().is_some(),
        site: Site::of(app, head).for_user(principal),
        form: forms::token(app, session)?,
        name: user.name.to_string(),
        path: in_path(user.name.as_str()),
        groups: user.groups.iter().map(ToString::to_string).collect(),
        is_administrator: user.is_administrator(),
        tokens: tokens.collect(),
        sessions: sessions.collect(),
        scopes: scopes.collect(),
        token_days: app.rules.token_days,
        has_password: auth::has_password(app, &stored, user),
        linked,
        providers: app.logins.providers.iter().map(ProviderLine::of).collect(),
        said,
    };
    Ok(page::send_once(&page, head, status).await)
}

/// The drafts that the user may both read and write: path, name, title.
fn drafts(
    app: &App,
    stored: &Stored,
    principal: &Principal,
) -> impl Iterator<Item = (String, String, String)> {
    let lists = &app.config.article;
    let drafts = stored.articles.drafts().filter(|article| {
        let object = Object::Article(article.name.as_str());
        lists.acl_read.admits(principal, Scope::ArticleRead, object)
            && lists.acl_write.admits(principal, Scope::ArticleWrite, object)
    });
    drafts.map(|article| {
        let content = article.latest().and_then(|facts| facts.content());
        let title = content.and_then(|it| it.title.as_deref()).unwrap_or_default();
        (in_path(article.name.as_str()), article.name.to_string(), title.to_owned())
    })
}

/// That a token has expired, or will within [`ENDING_DAYS`].
pub(crate) fn ending(token: &Token, now: Timestamp) -> Option<String> {
    if token.is_expired(now) {
        return Some("expired".to_owned());
    }
    match token.expires_at?.duration_since(now).as_hours() / 24 {
        0 => Some("expires within a day".to_owned()),
        1 => Some("expires in 1 day".to_owned()),
        days if days < ENDING_DAYS => Some(format!("expires in {days} days")),
        _ => None,
    }
}

/// The page again after what did not succeed, with what went wrong.
async fn again(
    app: &App,
    head: &Parts,
    posted: &PostedForm,
    said: TokenForm,
    error: HttpError,
) -> Result<Response, HttpError> {
    let status = error.status();
    // The answer says how long to wait.
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return Err(error);
    }
    let said = TokenForm { problem: error.detail().to_owned(), ..said };
    page(app, head, &posted.session, &posted.principal, said, status).await
}

/// The page again after a form of it was refused.
pub(super) async fn refused(
    app: &App,
    head: &Parts,
    posted: &PostedForm,
    error: HttpError,
) -> Result<Response, HttpError> {
    again(app, head, posted, TokenForm::default(), error).await
}

/// The token that a form asks for.
///
/// # Errors
/// 400 for a field that is there twice.
pub(crate) fn token_wish(fields: &Fields) -> Result<TokenRequest, HttpError> {
    let text = |name: &str| Ok::<_, HttpError>(fields.maybe(name)?.unwrap_or_default().trim());
    let words =
        |name: &str| Ok::<_, HttpError>(Some(fields.words(name)?).filter(|it| !it.is_empty()));
    Ok(TokenRequest {
        scopes: fields.all("scope").map(str::to_owned).collect(),
        comment: text("comment")?.to_owned(),
        expires: Some(text("expires")?.to_owned()).filter(|text| !text.is_empty()),
        indexes: words("indexes")?,
        projects: words("projects")?,
        prefixes: words("prefixes")?,
    })
}

/// `POST /+account/tokens`
pub(crate) async fn create_token(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let fields = &posted.fields;
    let said = TokenForm::of(fields)?;
    let wish = token_wish(fields)?;
    let creating = async {
        // A token outlives the session, and can do what a session cannot.
        forms::proved_again(app, &posted, "own").await?;
        auth::admit_to_disk(app, &posted.principal).await?;
        tokens::create(app, &posted.sender(head), posted.session.user().clone(), wish).await
    };
    let done = match creating.await {
        Ok(done) => done,
        Err(error) => return again(app, head, &posted, said, error).await,
    };
    let new_token = done.outcome.0.reveal().to_owned();
    let said = TokenForm { new_token, ..TokenForm::default() };
    page(app, head, &posted.session, &posted.principal, said, StatusCode::CREATED).await
}

/// `POST /+account/tokens/revoke`
pub(crate) async fn revoke_token(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let id = tokens::id(posted.fields.one("id")?)?;
    let revoking = RevokeToken { id };
    match carry_out(&mut app.keeper(), &posted.sender(head), &revoking).await {
        Ok(_) => {
            let said = TokenForm::done(&format!("The token {id} is revoked."));
            page(app, head, &posted.session, &posted.principal, said, StatusCode::OK).await
        }
        Err(refusal) => refused(app, head, &posted, refusal.into()).await,
    }
}

/// `POST /+account/password`: every session ends, and this browser gets a new one.
pub(crate) async fn change_password(
    app: &App,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let (new, again) = (posted.fields.one("new")?, posted.fields.one("again")?);
    let checking = async {
        if new != again {
            return Err(HttpError::unusable("The two new passwords differ."));
        }
        let password = Password::new(new).map_err(HttpError::unusable)?;
        Ok((password, forms::proved_again(app, &posted, "old").await?))
    };
    let (password, proved) = match checking.await {
        Ok(checked) => checked,
        Err(error) => return refused(app, head, &posted, error).await,
    };
    let name = posted.session.user().clone();
    auth::admit_to_disk(app, &posted.principal).await?;
    let hash = Some(auth::hashed(app, password.clone()).await?);
    let setting = SetPassword { name: name.clone(), password: hash };
    carry_out(&mut app.keeper(), &auth::sender(proved, head), &setting).await?;
    let shown = Credentials::Password { user: name, password };
    let principal = auth::proved(app, &shown).await?.map_err(HttpError::unauthorized)?;
    let (session, serial) =
        log_in::open(app, head, principal.clone(), Some(posted.session)).await?;
    let said =
        TokenForm::done("The password is changed. Every other browser is logged out; tokens stay.");
    let mut response = page(app, head, &session, &principal, said, StatusCode::OK).await?;
    forms::keep_session(app, head, &mut response, &session, serial);
    Ok(response)
}
