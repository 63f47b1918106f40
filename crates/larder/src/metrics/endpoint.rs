//! [`Endpoint`]: the routes by name, for `larder_http_request_seconds`.
//!
//! A fixed table: no text that a client chooses becomes a label, so the number of series is bounded.

/// A part of the URL space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// `/rpc`, `/api` and the dumps.
    Aur,
    /// Articles.
    Article,
    /// The Python index.
    Python,
    /// `/actions`.
    Action,
    /// Logins and tokens.
    Account,
    /// Pages, health, metrics.
    House,
    /// The admin listener.
    Admin,
}

impl Surface {
    /// How many there are.
    pub(super) const COUNT: usize = Surface::Admin as usize + 1;

    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Surface::Aur => "aur",
            Surface::Article => "article",
            Surface::Python => "python",
            Surface::Action => "action",
            Surface::Account => "account",
            Surface::House => "house",
            Surface::Admin => "admin",
        }
    }
}

macro_rules! endpoints {
    ($($(#[$doc:meta])+ $endpoint:ident = $surface:ident $name:literal;)+) => {
        /// What answers a request. Reads and writes of one URL are two endpoints, since they take different times.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Endpoint {
            $($(#[$doc])+ $endpoint,)+
        }

        impl Endpoint {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Endpoint] = &[$(Endpoint::$endpoint,)+];

            /// The surface that it belongs to.
            pub const fn surface(self) -> Surface {
                match self {
                    $(Endpoint::$endpoint => Surface::$surface,)+
                }
            }

            /// The label `route`; unique within a surface.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Endpoint::$endpoint => $name,)+
                }
            }
        }
    };
}

endpoints! {
    /// A question to `/rpc` or `/api`.
    Rpc = Aur "rpc";
    /// The dumps and their digests.
    Dump = Aur "dump";
    /// Documentation and statistics below `/rpc` and `/api`.
    AurPage = Aur "page";
    /// A revision of an article.
    Article = Article "article";
    /// The revisions of an article.
    ArticleHistory = Article "history";
    /// The difference between two revisions.
    ArticleDifference = Article "difference";
    /// Lists and searches of articles.
    ArticleList = Article "list";
    /// A new revision.
    ArticleWrite = Article "write";
    /// A deletion.
    ArticleDelete = Article "delete";
    /// The simple page of a project.
    SimplePage = Python "simple_page";
    /// The list of an index's projects.
    SimpleList = Python "simple_list";
    /// A release file or its metadata.
    File = Python "file";
    /// Test results, yanks and deletions of a file.
    FileWrite = Python "file_write";
    /// A page of documentation.
    Documentation = Python "documentation";
    /// Test results.
    ToxResults = Python "tox_results";
    /// A file or documentation uploaded as a form.
    Upload = Python "upload";
    /// A release pushed to another index.
    Push = Python "push";
    /// A search, also by XML-RPC.
    Search = Python "search";
    /// The settings of an index.
    Index = Python "index";
    /// An index made, changed or deleted, or its rule for old versions applied.
    IndexWrite = Python "index_write";
    /// A project and its status.
    Project = Python "project";
    /// A project changed or deleted.
    ProjectWrite = Python "project_write";
    /// The metadata of a version.
    Version = Python "version";
    /// A version yanked or deleted.
    VersionWrite = Python "version_write";
    /// A user, or all of them.
    User = Python "user";
    /// `+api` and `+status`.
    PythonStatus = Python "status";
    /// Paths that are of no route.
    PythonOther = Python "other";
    /// Actions that are run.
    ActionRun = Action "run";
    /// What actions there are.
    ActionList = Action "list";
    /// `/+login`.
    Login = Account "login";
    /// `/+authcheck`.
    AuthCheck = Account "auth_check";
    /// A user made, changed or deleted.
    UserWrite = Account "user_write";
    /// Tokens of a user.
    Tokens = Account "tokens";
    /// A token made or revoked.
    TokensWrite = Account "tokens_write";
    /// Pages for people.
    Page = House "page";
    /// Alive, ready.
    Health = House "health";
    /// `/metrics`.
    Metrics = House "metrics";
    /// Paths that are of no route, where the Python index is not served.
    Other = House "other";
    /// Jobs of the admin listener.
    AdminJob = Admin "job";
    /// Settings of the admin listener.
    AdminSettings = Admin "settings";
    /// Anything else there.
    AdminOther = Admin "other";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_endpoints_share_their_labels() {
        let labels = |endpoint: &Endpoint| (endpoint.surface().name(), endpoint.name());
        let all: BTreeSet<_> = Endpoint::ALL.iter().map(labels).collect();
        assert_eq!(all.len(), Endpoint::ALL.len());
        for (at, endpoint) in Endpoint::ALL.iter().enumerate() {
            assert_eq!(*endpoint as usize, at, "{endpoint:?}");
        }
    }
}
