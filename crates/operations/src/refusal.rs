//! [`Refusal`]: why an operation is not carried out, without the words of any protocol. Each protocol says it in one place.

use account::change::{CreateTokenError, CreateUserError, DeleteUserError, NoToken, NoUser};
use account::{Forbidden, LastLink, LinkError, LinkedLogInError, MintError, Restriction, UserName};
use article::{ArticleName, AttachmentError, WriteError};
use pypi::{ChangeError, ConfigError, PublisherError, StageName};
use record::Digest;
use state::accounts::ExpiryError;
use state::release_metadata::MetadataTooLong;
use state::stored::WriteFailure;
use store::BlobError;

use crate::publishing::NoPublisher;

/// Why an operation is not carried out. Nothing was written, but for [`WriteFailure::NotVisible`] and a commit whose outcome is
/// unknown.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The credentials held when the request came, and hold no longer.
    #[error("{0}")]
    Ended(account::Refusal),
    /// The sender lacks a right.
    #[error("{0}")]
    Denied(Box<Denied>),
    /// A rule forbids it, whoever asks.
    #[error("{0}")]
    Rule(Rule),
    /// A policy keeps this file away from everybody.
    #[error("{what} is {refused}")]
    Withheld {
        /// The file.
        what: String,
        /// The policy's reason.
        refused: Box<pypi::FileRefusal>,
    },
    /// The store did not take it, or cannot say whether it did.
    #[error("{0}")]
    Failed(#[from] WriteFailure),
    /// Bytes that it needs could not be stored or read.
    #[error("{0}")]
    Blobs(BlobError),
    /// A blob that it names is not in the store.
    #[error("the blob {0} is missing from the store")]
    BlobMissing(Digest),
}

/// A sender who lacks a right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{right}{}", self.cause())]
pub struct Denied {
    /// The right.
    pub right: Right,
    /// What the sender is called; `None` if anonymous.
    pub by: Option<String>,
    /// What the sender's token lacks, if that is the cause.
    pub lack: Option<Restriction>,
    /// Otherwise: the list that the sender is not on, or who may.
    pub otherwise: String,
}

impl Denied {
    /// `: ` and the cause, if the sender is known.
    pub fn cause(&self) -> String {
        match (&self.by, &self.lack) {
            (None, _) => String::new(),
            (Some(_), Some(lack)) => format!(": {lack}"),
            (Some(_), None) => format!(": {}", self.otherwise),
        }
    }
}

/// A right that somebody may lack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Right {
    /// To create, modify or delete an index.
    #[error("no permission to {verb} index {stage}")]
    KeepIndex {
        /// Which of these.
        verb: &'static str,
        /// The index.
        stage: StageName,
    },
    /// To add a base that a limited token may not read.
    #[error("no permission to add a base")]
    AddBase,
    /// To remove or change something in an index; devpi names the purpose.
    #[error("{0} failed permission check")]
    Remove(&'static str),
    /// To upload into an index.
    #[error("no permission to submit")]
    Upload,
    /// To replace the contents of a file.
    #[error("no permission to replace {0}: it is there with other contents")]
    Replace(String),
    /// To push into an index.
    #[error("no permission to upload to '{0}'")]
    Push(StageName),
    /// To push a release to another server.
    #[error("no permission to push to other servers")]
    PushOutside,
    /// To see something of the whole server.
    #[error("only administrators see {0}")]
    SeeAll(&'static str),
    /// To add test results to an index.
    #[error("No permission to upload tox results")]
    AddToxResult,
    /// To read an index.
    #[error("no permission to read this index")]
    ReadIndex(StageName),
    /// To make or change a user or a token.
    #[error("{0}")]
    User(Forbidden),
    /// To write an article.
    #[error("no permission to write articles")]
    WriteArticle(ArticleName),
    /// To read an article.
    #[error("no permission to read articles")]
    ReadArticle(ArticleName),
}

/// The rule that forbids an operation, as the surface words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// Of the Python index.
    #[error(transparent)]
    Index(#[from] ChangeError),
    /// Somebody else changed the settings that a form was made from.
    #[error(
        "somebody else changed the settings at this moment: look at them, and change yours again"
    )]
    SettingsChanged,
    /// Nobody may ask for it but the server itself.
    #[error("only the server itself does this")]
    OnlyTheServer,
    /// The rule would remove every version.
    #[error("'versions' was expected to be 1 or more: 0 would remove all")]
    KeepsNothing,
    /// There is no rule to remove versions by.
    #[error("the index has no rule: set retention_versions or retention_days")]
    NoRetention,
    /// The metadata of a release is larger than readers take.
    #[error(transparent)]
    Metadata(#[from] MetadataTooLong),
    /// Of users.
    #[error(transparent)]
    CreateUser(#[from] CreateUserError),
    /// Of users.
    #[error(transparent)]
    DeleteUser(#[from] DeleteUserError),
    /// An index of the user keeps the user from being deleted.
    #[error(transparent)]
    IndexOfUser(ChangeError),
    /// The user does not exist.
    #[error(transparent)]
    NoUser(#[from] NoUser),
    /// `root` always may log in.
    #[error("user 'root' cannot be disabled")]
    RootStays,
    /// A user who is never identified elsewhere.
    #[error("user '{0}' is identified by this server alone")]
    LocalUser(UserName),
    /// The password is not here.
    #[error("the password of user '{0}' is kept in the directory: change it there")]
    PasswordElsewhere(UserName),
    /// Of tokens.
    #[error(transparent)]
    CreateToken(#[from] CreateTokenError),
    /// A token that would end after the end of time.
    #[error(transparent)]
    Expiry(#[from] ExpiryError),
    /// The token does not exist, or is another user's business.
    #[error(transparent)]
    NoToken(#[from] NoToken),
    /// A publisher that is not safe with its issuer.
    #[error(transparent)]
    Publisher(#[from] PublisherError),
    /// A publisher of an issuer that the server does not know.
    #[error("the issuer `{0}` is not one of `publishing.issuers` in the configuration")]
    UnknownIssuer(String),
    /// No index names an identity.
    #[error(transparent)]
    NoPublisher(#[from] NoPublisher),
    /// No upload token is made.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// Somebody whom a provider knows is not logged in.
    #[error(transparent)]
    LinkedLogIn(#[from] LinkedLogInError),
    /// An identity at a provider is not linked.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The only way to log in.
    #[error(transparent)]
    LastLink(#[from] LastLink),
    /// Of articles.
    #[error(transparent)]
    Article(#[from] WriteError),
    /// Of the files of articles.
    #[error(transparent)]
    Attachment(#[from] AttachmentError),
}

/// What kind of rule it is: protocols give each a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The wish is not valid.
    Invalid,
    /// Forbidden for every sender.
    Forbidden,
    /// The subject does not exist.
    NotFound,
    /// The subject was removed.
    Gone,
    /// The present state is in the way.
    Conflict,
}

impl Rule {
    /// The kind of a rule of users, tokens or the Python index. Those of articles are finer: [`WriteError::code`],
    /// [`AttachmentError::code`].
    pub fn kind(&self) -> Kind {
        match self {
            Rule::Index(error) => match error.refusal() {
                pypi::Refusal::Invalid => Kind::Invalid,
                pypi::Refusal::Forbidden => Kind::Forbidden,
                pypi::Refusal::NotFound => Kind::NotFound,
                pypi::Refusal::Gone => Kind::Gone,
                pypi::Refusal::Conflict => Kind::Conflict,
            },
            // A process that is behind does not know a user who was made a moment ago: the store is asked whether it is further.
            Rule::SettingsChanged
            | Rule::CreateUser(CreateUserError::Exists)
            | Rule::Mint(_)
            | Rule::LinkedLogIn(
                LinkedLogInError::NotLinked | LinkedLogInError::NameTaken(_) | LinkedLogInError::Disabled(_),
            )
            | Rule::Link(_)
            | Rule::LastLink(_) => Kind::Conflict,
            Rule::KeepsNothing
            | Rule::NoRetention
            | Rule::Metadata(_)
            | Rule::Publisher(_)
            | Rule::UnknownIssuer(_)
            | Rule::CreateUser(CreateUserError::Reserved(_)) => Kind::Invalid,
            Rule::NoUser(_)
            | Rule::NoToken(_)
            | Rule::DeleteUser(DeleteUserError::NoUser(_)) => Kind::NotFound,
            Rule::DeleteUser(DeleteUserError::Root)
            | Rule::IndexOfUser(_)
            | Rule::RootStays
            | Rule::LocalUser(_)
            | Rule::PasswordElsewhere(_)
            | Rule::OnlyTheServer
            | Rule::LinkedLogIn(LinkedLogInError::NoName(_) | LinkedLogInError::Reserved(_))
            // Anybody can have an identity that nobody names: the store is not asked whether it is further.
            | Rule::NoPublisher(_) => Kind::Forbidden,
            Rule::CreateToken(CreateTokenError::NoUser(_)) => Kind::NotFound,
            Rule::CreateToken(_) | Rule::Expiry(_) => Kind::Invalid,
            Rule::Article(error) if error.is_about_state() => Kind::Conflict,
            Rule::Attachment(error) if !matches!(error, AttachmentError::TooLarge { .. }) => {
                Kind::Conflict
            }
            Rule::Article(_) | Rule::Attachment(_) => Kind::Invalid,
        }
    }
}

impl<E: Into<Rule>> From<E> for Refusal {
    fn from(rule: E) -> Refusal {
        Refusal::Rule(rule.into())
    }
}

impl Refusal {
    /// Whether a newer state might decide otherwise: something is not there, or is there already.
    pub(crate) fn may_be_stale(&self) -> bool {
        match self {
            // devpi calls these invalid.
            Refusal::Rule(Rule::Index(
                ChangeError::NothingToPush { .. }
                | ChangeError::NotRegistered { .. }
                | ChangeError::Config(ConfigError::NoSuchValue { .. }),
            )) => true,
            Refusal::Rule(rule) => {
                matches!(rule.kind(), Kind::NotFound | Kind::Gone | Kind::Conflict)
            }
            _ => false,
        }
    }
}
