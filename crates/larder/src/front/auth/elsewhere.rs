//! Users whom somebody else identifies: the directory of `[ldap]`, or a proxy.
//!
//! name, password -> the directory, or what it said a moment ago -> [`NoteLogIn`], if that is not done -> [`Principal`]
//!
//! Tokens, logins and sessions do not come here: the directory being slow or gone holds up nobody who has one.

use std::pin::Pin;

use account::{Credentials, Password, Principal, Refusal, User, UserName, identify_elsewhere};
use ldap::Failure;
use operations::log_ins::{ExternalUser, IdentitySource, NoteLogIn};
use operations::{Sender, carry_out};
use passwords::NotAsked;
use state::security;
use state::stored::Stored;

use super::check_refused;
use crate::app::App;
use crate::app::directory::Directory;
use crate::front::error::HttpError;

/// A name and a password that the directory is asked about.
pub(super) struct DirectoryQuestion<'request> {
    directory: &'request Directory,
    user: &'request UserName,
    password: &'request Password,
}

/// The question for the directory in these credentials, if it is the one to say whether they hold. A disabled user is refused
/// here, as with every wrong password.
pub(super) fn asks_directory<'request>(
    app: &'request App,
    stored: &Stored,
    credentials: &'request Credentials,
) -> Option<DirectoryQuestion<'request>> {
    let directory = app.logins.directory.as_ref()?;
    let Credentials::Password { user, password } = credentials else { return None };
    let found = stored.accounts.user(user);
    let rules = app.rules.elsewhere(IdentitySource::Directory)?;
    let is_asked =
        rules.admit(&stored.accounts, user) && found.is_none_or(|user| !user.is_disabled);
    is_asked.then_some(DirectoryQuestion { directory, user, password })
}

/// Whether this user types a password on our forms: one that is kept here, or that of the directory.
pub(crate) fn has_password(app: &App, stored: &Stored, user: &User) -> bool {
    let rules =
        app.logins.directory.as_ref().and_then(|_| app.rules.elsewhere(IdentitySource::Directory));
    user.password_hash.is_some()
        || rules.is_some_and(|rules| rules.admit(&stored.accounts, &user.name))
}

/// The user, if the directory knows this password.
///
/// # Errors
/// 429 after too many wrong passwords; 503 while the directory does not answer, or too many ask it.
pub(super) fn by_directory<'request>(
    app: &'request App,
    asked: DirectoryQuestion<'request>,
) -> Pin<Box<dyn Future<Output = Identification> + Send + 'request>> {
    // Boxed: hardly any request waits for it, and the futures of all would be larger.
    Box::pin(ask(app, asked))
}

/// Who it is, or why nobody.
pub(super) type Identification = Result<Result<Principal, Refusal>, HttpError>;

async fn ask(app: &App, asked: DirectoryQuestion<'_>) -> Identification {
    let DirectoryQuestion { directory, user, password } = asked;
    let accepted = match directory.check(user, password, security::client().key()).await {
        Ok(Some(accepted)) => accepted,
        Ok(None) => return Ok(Err(Refusal::Password { user: user.clone() })),
        Err(NotAsked::Refused(refused)) => return Err(check_refused(app, refused)),
        Err(NotAsked::Failed(failure)) => return Err(unavailable(&failure)),
    };
    if accepted.is_noted() {
        let stored = app.stored()?;
        // Who was deleted here meanwhile is made again.
        if stored.accounts.user(user).is_some() {
            return Ok(identify_elsewhere(&stored.accounts, user));
        }
    }
    let wish = NoteLogIn { user: ExternalUser::by_directory(&accepted.proof) };
    let outcome = note(app, user, "directory", &wish).await?;
    match &outcome {
        Ok(_) => accepted.set_noted(),
        Err(Refusal::Password { .. }) => app.metrics.login_failed("not_admitted"),
        Err(_) => {}
    }
    Ok(outcome)
}

/// Makes the user if there is none, and sets the groups that come from there. Who is refused is not identified.
pub(super) async fn note(
    app: &App,
    user: &UserName,
    by: &'static str,
    wish: &NoteLogIn,
) -> Identification {
    let (proved, address) = (Principal::Anonymous, security::client());
    let sender = Sender::Client { proved, address, path: String::new() };
    match carry_out(&mut app.keeper(), &sender, wish).await {
        Ok(_) => {
            let outcome = identify_elsewhere(&app.stored()?.accounts, user);
            if outcome.is_ok() {
                app.logins.security.identified_elsewhere(user.as_str(), by);
            }
            Ok(outcome)
        }
        Err(operations::Refusal::Rule(rule)) => {
            tracing::info!(user = %user, reason = %rule, by, "a user who was identified elsewhere is not admitted");
            Ok(Err(Refusal::Password { user: user.clone() }))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// The answer to somebody whose password the directory did not look at. Why is for the operator, in the log.
fn unavailable(failure: &Failure) -> HttpError {
    let seconds = match failure {
        Failure::Unreachable { retry_after, .. } => retry_after.as_secs().max(1),
        Failure::Unusable(_) => 60,
    };
    let detail = format!(
        "the directory that knows this password cannot say now whether it is right; try again in {seconds} seconds, or \
         use a token"
    );
    HttpError::unavailable(detail, u32::try_from(seconds).unwrap_or(u32::MAX))
}
