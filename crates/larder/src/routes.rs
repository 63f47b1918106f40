//! The table of everything that is answered: each [`Endpoint`] with its metric, its methods and its paths.
//!
//! path -> [`Place`] -> (by the method) [`Endpoint`] -> its handler, which the door calls, and its label in the metrics.
//! `docs/urls.md` and the OpenAPI documents are compared with this table by a test.
//!
//! In a path `{name}` stands for one name, `{*}` for one or more of them, and `{**}` for any number. Paths with `{*}`
//! or `{**}` are answered, but documented in a narrower form or not at all.

pub(crate) mod path;

mod place;

pub use place::Place;
pub(crate) use place::Route;

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
    Server,
    /// The admin listener.
    Admin,
}

impl Surface {
    /// How many there are.
    pub const COUNT: usize = Surface::Admin as usize + 1;

    /// The metric label `surface`.
    pub const fn name(self) -> &'static str {
        match self {
            Surface::Aur => "aur",
            Surface::Article => "article",
            Surface::Python => "python",
            Surface::Action => "action",
            Surface::Account => "account",
            Surface::Server => "server",
            Surface::Admin => "admin",
        }
    }
}

/// Which paths a path is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tree {
    /// The main listener's own paths: compared without decoding.
    Main,
    /// All other paths of the main listener, if the Python index is served: names, percent-decoded, below the prefix of the
    /// outside URL; a slash at the end makes no difference.
    Python,
    /// The admin listener.
    Admin,
}

/// The servers that answer an endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Servers {
    /// Also one that follows another one. What is kept beside the records (locks that are fetched ahead, pauses of webhooks,
    /// settings) belongs to each server.
    Any,
    /// The primary: it writes records, or is a form for that.
    Primary,
}

/// What else is true of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trait {
    /// Its answers are for everybody, as all of the AUR are.
    Open,
    /// An answer takes a look at all users, stages or projects, however little of them it shows.
    Scan,
    /// Its answers are made of nothing in the store, as none of the AUR and of the admin listener are.
    NoStore,
    /// Browsers get a page where programs get JSON. For every refusal, they do.
    Page,
}

impl Endpoint {
    /// Whether a server that follows another one cannot answer it.
    pub(crate) fn is_of_primary(self) -> bool {
        self.servers() == Servers::Primary
    }

    /// Whether its answers are for everybody, so that pages of every origin may read them.
    pub fn is_open_to_all(self) -> bool {
        self.surface() == Surface::Aur || self.traits().contains(&Trait::Open)
    }

    /// Whether an answer takes a look at all users, stages or projects. Few are made at once.
    pub(crate) fn looks_through_all(self) -> bool {
        self.traits().contains(&Trait::Scan)
    }

    /// Whether browsers get a page where programs get JSON.
    pub(crate) fn has_page(self) -> bool {
        self.traits().contains(&Trait::Page)
    }

    /// Whether its answers are made of what is in the store.
    pub(crate) fn is_of_store(self) -> bool {
        !matches!(self.surface(), Surface::Aur | Surface::Admin)
            && !self.traits().contains(&Trait::NoStore)
    }
}

/// Methods, and the paths that have them. `ANY` stands for every method that the path does not name.
type Methods = (&'static [&'static str], &'static [&'static str]);

macro_rules! endpoints {
    ($($tree:ident {
        $($endpoint:ident = $surface:ident $servers:ident $(($($trait:ident),+))? $route:literal:
            $($($method:ident)+ [$($path:literal),+])*;)+
    })+) => {
        /// What answers a request, named after what it does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the table has their paths")]
        pub enum Endpoint {
            $($($endpoint,)+)+
        }

        /// The endpoints of each tree, so that a `match` over them is exhaustive.
        pub(crate) mod trees {
            $(
                #[derive(Clone, Copy)]
                pub(crate) enum $tree {
                    $($endpoint,)+
                }
            )+
        }

        /// An endpoint, within its tree.
        pub(crate) enum InTree {
            $($tree(trees::$tree),)+
        }

        impl Endpoint {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Endpoint] = &[$($(Endpoint::$endpoint,)+)+];

            /// The surface that it belongs to.
            pub const fn surface(self) -> Surface {
                match self {
                    $($(Endpoint::$endpoint => Surface::$surface,)+)+
                }
            }

            /// Which servers answer it.
            const fn servers(self) -> Servers {
                match self {
                    $($(Endpoint::$endpoint => Servers::$servers,)+)+
                }
            }

            const fn traits(self) -> &'static [Trait] {
                match self {
                    $($(Endpoint::$endpoint => &[$($(Trait::$trait),+)?],)+)+
                }
            }

            /// The metric label `route`, which endpoints of one surface may share.
            pub const fn route(self) -> &'static str {
                match self {
                    $($(Endpoint::$endpoint => $route,)+)+
                }
            }

            /// The tree with its paths.
            pub const fn tree(self) -> Tree {
                match self.in_tree() {
                    $(InTree::$tree(_) => Tree::$tree,)+
                }
            }

            pub(crate) const fn in_tree(self) -> InTree {
                match self {
                    $($(Endpoint::$endpoint => InTree::$tree(trees::$tree::$endpoint),)+)+
                }
            }

            const fn methods(self) -> &'static [Methods] {
                match self {
                    $($(Endpoint::$endpoint => &[$((&[$(stringify!($method)),+], &[$($path),+])),*],)+)+
                }
            }
        }
    };
}

// Each line has a surface, the servers that answer it, and the metric label `route`.
// Where several endpoints have one method and path, the first is the usual one; the rest of a request may select another.
// `Allow` lists the methods of a path in the order of these lines.
endpoints! {
    Main {
        // For people.
        ShowHome = Server Any "page": GET ["/"];
        ShowUse = Server Any "page": GET ["/+use"];
        ShowChanged = Server Any "changes": GET ["/+changed"];
        MarkAsRead = Server Any "changes": POST ["/+changed"];
        ShowSearch = Server Any "search": GET ["/search"];
        Suggest = Server Any "suggest": GET ["/search/suggest"];
        ShowStatus = Server Any "page": GET ["/status"];
        ShowAsset = Server Any(NoStore) "asset": GET ["/+static/{file}"];
        ShowDocs = Server Any "page": GET ["/docs", "/docs/"];
        ShowAurDocs = Server Any "page": GET ["/docs/aur"];
        ShowOpenapi = Server Any(Open, NoStore) "page": GET ["/openapi.json"];
        ShowPagesOpenapi = Server Any(NoStore) "page": GET ["/docs/openapi-pages.json"];
        ShowRobots = Server Any(NoStore) "page": GET ["/robots.txt"];
        ShowIcon = Server Any(NoStore) "page": GET ["/favicon.ico"];
        // Operations.
        CheckAlive = Server Any(NoStore) "health": GET ["/livez", "/healthz"];
        CheckReady = Server Any(NoStore) "health": GET ["/readyz", "/ready"];
        ShowVersion = Server Any(NoStore) "health": GET ["/version"];
        ShowMetrics = Server Any(NoStore) "metrics": GET ["/metrics", "/rpc/metrics"];
        // Paths with nothing behind them, while the Python index is not served.
        FindNothing = Server Any(NoStore) "other":;
        // Tokens, for programs of users.
        ListTokens = Account Any "tokens": GET OPTIONS ["/+tokens"];
        CreateToken = Account Primary "tokens_write": POST ["/+tokens"];
        RevokeToken = Account Primary "tokens_write": DELETE OPTIONS ["/+tokens/{id}"];
        RevokeFoundTokens = Account Primary "tokens_found": POST OPTIONS ["/+tokens/found"];
        // A command line that logs in by a browser (RFC 8628).
        BeginDeviceLogIn = Account Primary "device_login": POST ["/+tokens/device"];
        AskDeviceLogIn = Account Primary "device_login": POST ["/+tokens/device/token"];
        // Trusted publishing: where clients look for it, and PEP 807's discovery.
        ShowPublishingAudience = Account Any "publishing": GET ["/_/oidc/audience"];
        MintUploadToken = Account Primary "publishing_mint": POST ["/_/oidc/mint-token"];
        DiscoverPublishing = Account Any "publishing": GET ["/.well-known/pytp"];
        // For people, in a browser: logging in, their account and their tokens.
        ShowAccount = Server Primary "page": GET ["/+account"];
        ShowLogIn = Server Primary "page": GET ["/+account/login"];
        LogInByForm = Account Primary "login": POST ["/+account/login"];
        LogOut = Account Primary "login": POST ["/+account/logout"];
        LogInAtProvider = Account Primary "login": GET ["/+account/oidc/{provider}"];
        LinkProviderByForm = Account Primary "user_write": POST ["/+account/oidc/{provider}"];
        ReturnFromProvider = Account Primary "login": GET ["/+account/oidc/{provider}/callback"];
        UnlinkProviderByForm = Account Primary "user_write": POST ["/+account/oidc/{provider}/unlink"];
        ShowDevice = Server Primary "page": GET ["/+account/device"];
        ApproveDevice = Account Primary "tokens_write": POST ["/+account/device"];
        ChangePasswordByForm = Account Primary "user_write": POST ["/+account/password"];
        CreateTokenByForm = Account Primary "tokens_write": POST ["/+account/tokens"];
        RevokeTokenByForm = Account Primary "tokens_write": POST ["/+account/tokens/revoke"];
        // For people who manage users and indexes.
        ShowManagement = Server Primary(Scan) "page": GET ["/+manage"];
        CreateUserByForm = Account Primary "manage": POST ["/+manage/users"];
        ManageUser = Server Primary(Scan) "page": GET ["/+manage/users/{user}"];
        ChangeUserByForm = Account Primary "manage": POST ["/+manage/users/{user}"];
        CreateIndexByForm = Account Primary "manage": POST ["/+manage/indexes"];
        ManageIndex = Server Primary(Scan) "page": GET ["/+manage/indexes/{user}/{index}"];
        ManageGroups = Server Primary(Scan) "page": GET ["/+manage/groups"];
        ManageTokens = Server Primary "page": GET ["/+manage/tokens"];
        ListReleases = Server Primary(Scan) "page": GET ["/+manage/releases/{user}/{index}"];
        ManageRelease = Server Primary(Scan) "page": GET ["/+manage/releases/{user}/{index}/{project}"];
        ChangeReleaseByForm = Account Primary "manage": POST ["/+manage/releases/{user}/{index}/{project}"];
        ManageAudit = Server Any "page": GET ["/+manage/audit"];
        ManageWebhooks = Server Any(Scan) "page": GET ["/+manage/webhooks"];
        ChangeWebhookByForm = Account Any "manage": POST ["/+manage/webhooks"];
        ManagePrefetch = Server Any "page": GET ["/+manage/prefetch/{user}/{index}"];
        PrefetchByForm = Account Any "manage": POST ["/+manage/prefetch/{user}/{index}"];
        ChangeIndexByForm = Account Primary "manage": POST ["/+manage/indexes/{user}/{index}"];
        // Many calls in one request. Each says for itself whether it writes, and is refused by a server that follows another one.
        ListActions = Action Any "list": GET OPTIONS ["/actions"];
        RunActions = Action Any "run": GET ["/"] POST ["/actions"];
        // Articles.
        ListArticles = Article Any "list": GET ["/articles"];
        MissArticleName = Article Any "article": ANY ["/article", "/article/"];
        ReadArticle = Article Any "article": GET OPTIONS ["/article/{article}", "/article/{article}/{version}"];
        ReplaceArticle = Article Primary "write": PUT ["/article/{article}"];
        ReviseArticle = Article Primary "write": POST ["/article/{article}/{version}"];
        DeleteArticle = Article Primary "delete": DELETE ["/article/{article}", "/article/{article}/{version}"];
        ReadHistory = Article Any "history": GET OPTIONS ["/article/{article}/history"];
        CompareVersions = Article Any "difference": GET OPTIONS ["/article/{article}/diff"];
        ChooseArticle = Article Primary "article": GET ["/+edit"];
        ShowEditForm = Article Primary "article": GET ["/+edit/{article}"];
        EditArticle = Article Primary "write": POST ["/+edit/{article}"];
        ShowRenameForm = Article Primary "article": GET ["/+rename/{article}"];
        RenameArticle = Article Primary "write": POST ["/+rename/{article}"];
        ListAttachments = Article Any "attachment": GET OPTIONS ["/+attachments/{article}/"];
        ChangeAttachmentsByForm = Article Primary "attachment_write": POST ["/+attachments/{article}/"];
        ReadAttachment = Article Any "attachment": GET OPTIONS ["/+attachments/{article}/{file}"];
        // A path without the slash between an article and its file.
        MissAttachmentName = Article Any "attachment": ANY ["/+attachments/{**}"];
        PutAttachment = Article Primary "attachment_write": PUT ["/+attachments/{article}/{file}"];
        DeleteAttachment = Article Primary "attachment_write": DELETE ["/+attachments/{article}/{file}"];
        // What changed, on every surface.
        ListChanges = Server Any "changes": GET ["/changes"];
        ShowChangesAsAtom = Server Any(Scan) "changes": GET ["/changes.atom"];
        // For servers that follow this one.
        ListRecords = Server Any(NoStore) "follow": GET ["/+follow/records"];
        ReadBlob = Server Any(NoStore) "follow": GET ["/+follow/blobs/{digest}"];
        ReadMirrored = Server Any(NoStore) "follow": GET ["/+follow/mirrors/{user}/{index}/{*}"];
        // Known malware and vulnerabilities, in the shape of OSV's API.
        QueryOsv = Server Any(Open) "osv": POST ["/+osv/v1/query"];
        QueryOsvBatch = Server Any(Open) "osv": POST ["/+osv/v1/querybatch"];
        ShowOsvRecord = Server Any(Open) "osv": GET ["/+osv/v1/vulns/{id}"];
        // Packages of the AUR. What is below `/rpc` and `/api` is read by `aur::Path`.
        AnswerQuestion = Aur Any "rpc":
            GET POST OPTIONS [
                "/rpc", "/rpc/", "/rpc.php", "/rpc.php/", "/rpc/v5/{type}", "/rpc/v5/{type}/{arg}",
                "/api", "/api/", "/rpc/v6/{type}", "/api/v6/{type}", "/rpc/v6/{type}/{arg}", "/api/v6/{type}/{arg}",
                "/rpc/v6/{type}/{by}/{arg}", "/api/v6/{type}/{by}/{arg}",
                "/rpc/v6/{type}/{by}/{mode}/{arg}", "/api/v6/{type}/{by}/{mode}/{arg}", "/rpc/{**}", "/api/{**}"
            ]
            GET POST ["/rpc/v5/{type}/", "/rpc/v5/{type}/{arg}/", "/rpc/v{n}/…"];
        DownloadDump = Aur Any "dump":
            GET [
                "/packages-meta-ext-v1.json.gz", "/packages-meta-v1.json.gz", "/packages.gz", "/pkgbase.gz", "/users.gz",
                "/packages-meta-ext-v1.json.zst", "/packages-meta-v1.json.zst", "/packages.zst", "/pkgbase.zst", "/users.zst"
            ];
        DownloadDelta = Aur Any "dump":
            GET ["/packages-meta-ext-v1.delta.gz", "/packages-meta-ext-v1.delta.zst"];
        ShowDumpDigest = Aur Any "dump":
            GET [
                "/packages-meta-ext-v1.json.gz.sha256", "/packages-meta-v1.json.gz.sha256", "/packages.gz.sha256",
                "/pkgbase.gz.sha256", "/users.gz.sha256",
                "/packages-meta-ext-v1.json.zst.sha256", "/packages-meta-v1.json.zst.sha256", "/packages.zst.sha256",
                "/pkgbase.zst.sha256", "/users.zst.sha256"
            ];
        ShowPackageHistory = Aur Any "history": GET ["/aur/history/{package}"];
        ListPackageHistories = Aur Any(Scan) "history": GET ["/aur/history"];
        ShowOldAurDocs = Aur Any "page":
            GET ["/rpc/swagger", "/rpc/swagger/", "/api/swagger", "/api/swagger/", "/rpc/olddoc.html"];
        ShowOldOpenapi = Aur Any "page": GET ["/rpc/openapi.json", "/api/openapi.json"];
        BrowsePackages = Aur Any "page": GET ["/packages", "/packages/"];
        ShowPackage = Aur Any "page": GET ["/packages/{package}"];
        ShowPackageBase = Aur Any "page": GET ["/pkgbase/{base}"];
        ShowMaintainer = Aur Any "page": GET ["/account/{maintainer}"];
        FeedPackages = Aur Any "feed": GET ["/rss", "/rss/", "/rss/modified", "/atom", "/atom/", "/atom/modified"];
        ShowStatistics = Aur Any "page": GET ["/rpc/stats"];
    }
    Python {
        ListUsers = Python Any(Page) "user": GET ["/"];
        ShowServerStatus = Python Any "status": GET ["/+status"];
        ShowApi = Python Any "status": GET ["/+api", "/{user}/+api", "/{user}/{index}/+api"];
        // nginx asks with whatever method it has.
        CheckAccess = Account Any "auth_check": GET ANY ["/+authcheck"];
        LogIn = Account Any "login": POST ["/+login"];
        Search = Python Any(Page) "search": GET ["/+search"];
        ShowAudit = Python Any "audit": GET ["/+audit", "/{user}/{index}/+audit"];
        ShowUser = Python Any(Page) "user": GET ["/{user}"];
        CreateUser = Account Primary "user_write": PUT ["/{user}"];
        ModifyUser = Account Primary "user_write": PATCH ["/{user}"];
        DeleteUser = Account Primary "user_write": DELETE ["/{user}"];
        ShowIndex = Python Any(Page) "index": GET ["/{user}/{index}"];
        CreateIndex = Python Primary "index_write": PUT ["/{user}/{index}"];
        ModifyIndex = Python Primary "index_write": PATCH ["/{user}/{index}"];
        DeleteIndex = Python Primary "index_write": DELETE ["/{user}/{index}"];
        UploadFile = Python Primary "upload": POST ["/{user}/{index}"];
        PushRelease = Python Primary "push": POST PUSH ["/{user}/{index}"];
        SearchByXmlRpc = Python Any "search": POST ["/{user}/{index}"];
        ApplyRetention = Python Primary "index_write": POST ["/{user}/{index}/+retention"];
        ShowIndexLog = Python Any(Page) "index": GET ["/{user}/{index}/+log"];
        ShowPrefetch = Python Any "index": GET ["/{user}/{index}/+prefetch"];
        StartPrefetch = Python Any "index_write": POST ["/{user}/{index}/+prefetch"];
        StopPrefetch = Python Any "index_write": DELETE ["/{user}/{index}/+prefetch"];
        YankFile = Python Primary "file_write":
            POST DELETE ["/{user}/{index}/+f/{directory}/{subdirectory}/{filename}/+yank"];
        DownloadFile = Python Any "file":
            GET ["/{user}/{index}/+f/{directory}/{subdirectory}/{filename}", "/{user}/{index}/+f/{*}"];
        AddToxResult = Python Primary "file_write":
            POST ["/{user}/{index}/+f/{directory}/{subdirectory}/{filename}", "/{user}/{index}/+f/{*}"];
        DeleteFile = Python Primary "file_write":
            DELETE ["/{user}/{index}/+f/{directory}/{subdirectory}/{filename}", "/{user}/{index}/+f/{*}"];
        // Files without a digest belong to mirrors.
        FindExternalFile = Python Any "file": GET ["/{user}/{index}/+e/{*}"];
        FindUpstreamFile = Python Any "file":
            GET ["/{user}/{index}/+upstream/{host}/{path}", "/{user}/{index}/+upstream/{*}"];
        // Without the `+`, a project of this name and its versions go first.
        ListProjects = Python Any "simple_list": GET ["/{user}/{index}/+simple", "/{user}/{index}/simple"];
        ShowSimplePage = Python Any "simple_page":
            GET ["/{user}/{index}/+simple/{project}", "/{user}/{index}/simple/{project}"];
        ShowPublicJson = Python Any "project": GET ["/{user}/{index}/pypi/{project}/json"];
        ShowPublicJsonOfRelease = Python Any "version": GET ["/{user}/{index}/pypi/{project}/{version}/json"];
        ShowProject = Python Any(Page) "project": GET ["/{user}/{index}/{project}"];
        DeleteProject = Python Primary "project_write": DELETE ["/{user}/{index}/{project}"];
        ShowProjectStatus = Python Any "project": GET ["/{user}/{index}/{project}/+status"];
        ChangeProjectStatus = Python Primary "project_write": POST PUT DELETE ["/{user}/{index}/{project}/+status"];
        ShowDownloads = Python Any(Page) "project": GET ["/{user}/{index}/{project}/+downloads"];
        ShowRelease = Python Any(Page) "version": GET ["/{user}/{index}/{project}/{version}"];
        DeleteRelease = Python Primary "version_write": DELETE ["/{user}/{index}/{project}/{version}"];
        RefreshPage = Python Any "simple_page":
            POST ["/{user}/{index}/+simple/{project}/refresh", "/{user}/{index}/{project}/refresh"];
        YankRelease = Python Primary "version_write": POST DELETE ["/{user}/{index}/{project}/{version}/+yank"];
        ShowDocumentation = Python Any "documentation":
            GET [
                "/{user}/{index}/{project}/{version}/+doc/{path}", "/{user}/{index}/{project}/{version}/+doc/{**}",
                "/{user}/{index}/{project}/{version}/+d/{**}"
            ];
        ShowToxResults = Python Any(Page) "tox_results":
            GET [
                "/{user}/{index}/{project}/{version}/+toxresults/{filename}",
                "/{user}/{index}/{project}/{version}/+toxresults/{filename}/{result}",
                "/{user}/{index}/{project}/{version}/+toxresults/{**}"
            ];
        ShowContents = Python Any(Page) "contents":
            GET [
                "/{user}/{index}/{project}/{version}/+contents/{filename}",
                "/{user}/{index}/{project}/{version}/+contents/{**}"
            ];
        CompareReleases = Python Any(Page) "contents": GET ["/{user}/{index}/{project}/{version}/+compare"];
        ShowProvenance = Python Any "file":
            GET ["/{user}/{index}/integrity/{project}/{version}/{filename}/provenance"];
        // Paths that are of no route, where it is served.
        FindNoRoute = Python Any "other":;
    }
    Admin {
        RunJob = Admin Any "job": GET POST ["/admin/run-job/{name}"];
        ListSettings = Admin Any "settings": GET ["/admin/settings", "/admin/settings/"];
        ReadSetting = Admin Any "settings": GET ["/admin/settings/{name}"];
        ChangeSetting = Admin Any "settings": POST ["/admin/settings/{name}"];
        ShowAdminOpenapi = Admin Any "other": GET ["/admin/openapi.json"];
        FindNothingForAdmins = Admin Any "other":;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_in_the_order_of_their_numbers() {
        for (at, endpoint) in Endpoint::ALL.iter().enumerate() {
            assert_eq!(*endpoint as usize, at, "{endpoint:?}");
        }
    }

    /// A user's name is reserved if and only if the server answers there itself.
    #[test]
    fn first_segments_are_reserved_names() {
        let main = Place::all().iter().filter(|place| place.tree == Tree::Main);
        let firsts = main.filter_map(|place| match place.parts.first()? {
            place::Part::Word(word) if !word.is_empty() && !word.starts_with('+') => Some(*word),
            _ => None,
        });
        let firsts: std::collections::BTreeSet<&str> = firsts.collect();
        for first in &firsts {
            assert!(account::is_reserved(&first.parse().expect("a name")), "{first}");
        }
        for name in account::RESERVED.iter().filter(|name| **name != "__token__") {
            assert!(firsts.contains(name), "{name} is reserved, but not answered");
        }
    }

    #[test]
    fn methods_as_allow_lists_them() {
        let check = |tree, path: &str, allow: &str| {
            let place = Place::all().iter().find(|place| (place.tree, place.path) == (tree, path));
            assert_eq!(place.expect(path).allow(), allow);
        };
        check(Tree::Main, "/", "GET, HEAD");
        check(Tree::Main, "/rpc", "GET, HEAD, POST, OPTIONS");
        check(Tree::Main, "/actions", "GET, HEAD, POST, OPTIONS");
        check(Tree::Main, "/+tokens", "GET, HEAD, POST, OPTIONS");
        check(Tree::Main, "/article/{article}", "GET, HEAD, PUT, DELETE, OPTIONS");
        check(Tree::Main, "/article/{article}/{version}", "GET, HEAD, POST, DELETE, OPTIONS");
        check(Tree::Python, "/{user}/{index}", "GET, HEAD, PUT, PATCH, DELETE, POST, PUSH");
        check(Tree::Python, "/{user}/{index}/+f/{*}", "GET, HEAD, POST, DELETE");
        check(Tree::Python, "/{user}/{index}/{project}/+status", "GET, HEAD, POST, PUT, DELETE");
        check(Tree::Admin, "/admin/settings/{name}", "GET, HEAD, POST");
    }
}
