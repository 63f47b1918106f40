//! The table of everything that is answered: each [`Endpoint`] with its metric, its methods and its paths.
//!
//! path -> [`Place`] -> (by the method) [`Endpoint`] -> its handler, which the door calls, and its label in the metrics.
//! `docs/urls.md` and the OpenAPI documents are compared with this table by a test.
//!
//! In a path `{name}` stands for one name, `{*}` for one or more of them, and `{**}` for any number. Paths with `{*}`
//! or `{**}` are answered, but documented in a narrower form or not at all.

pub(crate) mod path;

mod place;
mod writes;

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

/// Methods, and the paths that have them. `ANY` stands for every method that the path does not name.
type Methods = (&'static [&'static str], &'static [&'static str]);

macro_rules! endpoints {
    ($($tree:ident {
        $($endpoint:ident = $surface:ident $route:literal: $($($method:ident)+ [$($path:literal),+])*;)+
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

            /// Whether its answers are made of what is in the store.
            pub const fn is_of_store(self) -> bool {
                match self.surface() {
                    Surface::Aur | Surface::Admin => false,
                    Surface::Article | Surface::Python | Surface::Action | Surface::Account => true,
                    Surface::Server => !matches!(
                        self,
                        Endpoint::ShowAsset
                            | Endpoint::ShowOpenapi
                            | Endpoint::ShowPagesOpenapi
                            | Endpoint::ShowRobots
                            | Endpoint::ShowIcon
                            | Endpoint::CheckAlive
                            | Endpoint::CheckReady
                            | Endpoint::ShowVersion
                            | Endpoint::ShowMetrics
                            | Endpoint::ListRecords
                            | Endpoint::ReadBlob
                            | Endpoint::ReadMirrored
                            | Endpoint::FindNothing
                    ),
                }
            }

            /// The surface that it belongs to.
            pub const fn surface(self) -> Surface {
                match self {
                    $($(Endpoint::$endpoint => Surface::$surface,)+)+
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

// Where several endpoints have one method and path, the first is the usual one; the rest of a request may select another.
// `Allow` lists the methods of a path in the order of these lines.
endpoints! {
    Main {
        // For people.
        ShowHome = Server "page": GET ["/"];
        ShowUse = Server "page": GET ["/+use"];
        ShowChanged = Server "changes": GET ["/+changed"];
        MarkAsRead = Server "changes": POST ["/+changed"];
        ShowSearch = Server "search": GET ["/search"];
        Suggest = Server "suggest": GET ["/search/suggest"];
        ShowStatus = Server "page": GET ["/status"];
        ShowAsset = Server "asset": GET ["/+static/{file}"];
        ShowDocs = Server "page": GET ["/docs", "/docs/"];
        ShowAurDocs = Server "page": GET ["/docs/aur"];
        ShowOpenapi = Server "page": GET ["/openapi.json"];
        ShowPagesOpenapi = Server "page": GET ["/docs/openapi-pages.json"];
        ShowRobots = Server "page": GET ["/robots.txt"];
        ShowIcon = Server "page": GET ["/favicon.ico"];
        // Operations.
        CheckAlive = Server "health": GET ["/livez", "/healthz"];
        CheckReady = Server "health": GET ["/readyz", "/ready"];
        ShowVersion = Server "health": GET ["/version"];
        ShowMetrics = Server "metrics": GET ["/metrics", "/rpc/metrics"];
        // Paths with nothing behind them, while the Python index is not served.
        FindNothing = Server "other":;
        // Tokens, for programs of users.
        ListTokens = Account "tokens": GET OPTIONS ["/+tokens"];
        CreateToken = Account "tokens_write": POST ["/+tokens"];
        RevokeToken = Account "tokens_write": DELETE OPTIONS ["/+tokens/{id}"];
        RevokeFoundTokens = Account "tokens_found": POST OPTIONS ["/+tokens/found"];
        // A command line that logs in by a browser (RFC 8628).
        BeginDeviceLogIn = Account "device_login": POST ["/+tokens/device"];
        AskDeviceLogIn = Account "device_login": POST ["/+tokens/device/token"];
        // Trusted publishing: where clients look for it, and PEP 807's discovery.
        ShowPublishingAudience = Account "publishing": GET ["/_/oidc/audience"];
        MintUploadToken = Account "publishing_mint": POST ["/_/oidc/mint-token"];
        DiscoverPublishing = Account "publishing": GET ["/.well-known/pytp"];
        // For people, in a browser: logging in, their account and their tokens.
        ShowAccount = Server "page": GET ["/+account"];
        ShowLogIn = Server "page": GET ["/+account/login"];
        LogInByForm = Account "login": POST ["/+account/login"];
        LogOut = Account "login": POST ["/+account/logout"];
        LogInAtProvider = Account "login": GET ["/+account/oidc/{provider}"];
        LinkProviderByForm = Account "user_write": POST ["/+account/oidc/{provider}"];
        ReturnFromProvider = Account "login": GET ["/+account/oidc/{provider}/callback"];
        UnlinkProviderByForm = Account "user_write": POST ["/+account/oidc/{provider}/unlink"];
        ShowDevice = Server "page": GET ["/+account/device"];
        ApproveDevice = Account "tokens_write": POST ["/+account/device"];
        ChangePasswordByForm = Account "user_write": POST ["/+account/password"];
        CreateTokenByForm = Account "tokens_write": POST ["/+account/tokens"];
        RevokeTokenByForm = Account "tokens_write": POST ["/+account/tokens/revoke"];
        // For people who manage users and indexes.
        ShowManagement = Server "page": GET ["/+manage"];
        CreateUserByForm = Account "manage": POST ["/+manage/users"];
        ManageUser = Server "page": GET ["/+manage/users/{user}"];
        ChangeUserByForm = Account "manage": POST ["/+manage/users/{user}"];
        CreateIndexByForm = Account "manage": POST ["/+manage/indexes"];
        ManageIndex = Server "page": GET ["/+manage/indexes/{user}/{index}"];
        ManageGroups = Server "page": GET ["/+manage/groups"];
        ManageTokens = Server "page": GET ["/+manage/tokens"];
        ListReleases = Server "page": GET ["/+manage/releases/{user}/{index}"];
        ManageRelease = Server "page": GET ["/+manage/releases/{user}/{index}/{project}"];
        ChangeReleaseByForm = Account "manage": POST ["/+manage/releases/{user}/{index}/{project}"];
        ManageAudit = Server "page": GET ["/+manage/audit"];
        ManageWebhooks = Server "page": GET ["/+manage/webhooks"];
        ChangeWebhookByForm = Account "manage": POST ["/+manage/webhooks"];
        ManagePrefetch = Server "page": GET ["/+manage/prefetch/{user}/{index}"];
        PrefetchByForm = Account "manage": POST ["/+manage/prefetch/{user}/{index}"];
        ChangeIndexByForm = Account "manage": POST ["/+manage/indexes/{user}/{index}"];
        // Many calls in one request.
        ListActions = Action "list": GET OPTIONS ["/actions"];
        RunActions = Action "run": GET ["/"] POST ["/actions"];
        // Articles.
        ListArticles = Article "list": GET ["/articles"];
        MissArticleName = Article "article": ANY ["/article", "/article/"];
        ReadArticle = Article "article": GET OPTIONS ["/article/{article}", "/article/{article}/{version}"];
        ReplaceArticle = Article "write": PUT ["/article/{article}"];
        ReviseArticle = Article "write": POST ["/article/{article}/{version}"];
        DeleteArticle = Article "delete": DELETE ["/article/{article}", "/article/{article}/{version}"];
        ReadHistory = Article "history": GET OPTIONS ["/article/{article}/history"];
        CompareVersions = Article "difference": GET OPTIONS ["/article/{article}/diff"];
        ChooseArticle = Article "article": GET ["/+edit"];
        ShowEditForm = Article "article": GET ["/+edit/{article}"];
        EditArticle = Article "write": POST ["/+edit/{article}"];
        ShowRenameForm = Article "article": GET ["/+rename/{article}"];
        RenameArticle = Article "write": POST ["/+rename/{article}"];
        ListAttachments = Article "attachment": GET OPTIONS ["/+attachments/{article}/"];
        ChangeAttachmentsByForm = Article "attachment_write": POST ["/+attachments/{article}/"];
        ReadAttachment = Article "attachment": GET OPTIONS ["/+attachments/{article}/{file}"];
        // A path without the slash between an article and its file.
        MissAttachmentName = Article "attachment": ANY ["/+attachments/{**}"];
        PutAttachment = Article "attachment_write": PUT ["/+attachments/{article}/{file}"];
        DeleteAttachment = Article "attachment_write": DELETE ["/+attachments/{article}/{file}"];
        // What changed, on every surface.
        ListChanges = Server "changes": GET ["/changes"];
        ShowChangesAsAtom = Server "changes": GET ["/changes.atom"];
        // For servers that follow this one.
        ListRecords = Server "follow": GET ["/+follow/records"];
        ReadBlob = Server "follow": GET ["/+follow/blobs/{digest}"];
        ReadMirrored = Server "follow": GET ["/+follow/mirrors/{user}/{index}/{*}"];
        // Known malware and vulnerabilities, in the shape of OSV's API.
        QueryOsv = Server "osv": POST ["/+osv/v1/query"];
        QueryOsvBatch = Server "osv": POST ["/+osv/v1/querybatch"];
        ShowOsvRecord = Server "osv": GET ["/+osv/v1/vulns/{id}"];
        // Packages of the AUR. What is below `/rpc` and `/api` is read by `aur::Path`.
        AnswerQuestion = Aur "rpc":
            GET POST OPTIONS [
                "/rpc", "/rpc/", "/rpc.php", "/rpc.php/", "/rpc/v5/{type}", "/rpc/v5/{type}/{arg}",
                "/api", "/api/", "/rpc/v6/{type}", "/api/v6/{type}", "/rpc/v6/{type}/{arg}", "/api/v6/{type}/{arg}",
                "/rpc/v6/{type}/{by}/{arg}", "/api/v6/{type}/{by}/{arg}",
                "/rpc/v6/{type}/{by}/{mode}/{arg}", "/api/v6/{type}/{by}/{mode}/{arg}", "/rpc/{**}", "/api/{**}"
            ]
            GET POST ["/rpc/v5/{type}/", "/rpc/v5/{type}/{arg}/", "/rpc/v{n}/…"];
        DownloadDump = Aur "dump":
            GET [
                "/packages-meta-ext-v1.json.gz", "/packages-meta-v1.json.gz", "/packages.gz", "/pkgbase.gz", "/users.gz",
                "/packages-meta-ext-v1.json.zst", "/packages-meta-v1.json.zst", "/packages.zst", "/pkgbase.zst", "/users.zst"
            ];
        DownloadDelta = Aur "dump":
            GET ["/packages-meta-ext-v1.delta.gz", "/packages-meta-ext-v1.delta.zst"];
        ShowDumpDigest = Aur "dump":
            GET [
                "/packages-meta-ext-v1.json.gz.sha256", "/packages-meta-v1.json.gz.sha256", "/packages.gz.sha256",
                "/pkgbase.gz.sha256", "/users.gz.sha256",
                "/packages-meta-ext-v1.json.zst.sha256", "/packages-meta-v1.json.zst.sha256", "/packages.zst.sha256",
                "/pkgbase.zst.sha256", "/users.zst.sha256"
            ];
        ShowPackageHistory = Aur "history": GET ["/aur/history/{package}"];
        ListPackageHistories = Aur "history": GET ["/aur/history"];
        ShowOldAurDocs = Aur "page":
            GET ["/rpc/swagger", "/rpc/swagger/", "/api/swagger", "/api/swagger/", "/rpc/olddoc.html"];
        ShowOldOpenapi = Aur "page": GET ["/rpc/openapi.json", "/api/openapi.json"];
        BrowsePackages = Aur "page": GET ["/packages", "/packages/"];
        ShowPackage = Aur "page": GET ["/packages/{package}"];
        ShowPackageBase = Aur "page": GET ["/pkgbase/{base}"];
        ShowMaintainer = Aur "page": GET ["/account/{maintainer}"];
        FeedPackages = Aur "feed": GET ["/rss", "/rss/", "/rss/modified", "/atom", "/atom/", "/atom/modified"];
        ShowStatistics = Aur "page": GET ["/rpc/stats"];
    }
    Python {
        ListUsers = Python "user": GET ["/"];
        ShowServerStatus = Python "status": GET ["/+status"];
        ShowApi = Python "status": GET ["/+api", "/{user}/+api", "/{user}/{index}/+api"];
        // nginx asks with whatever method it has.
        CheckAccess = Account "auth_check": GET ANY ["/+authcheck"];
        LogIn = Account "login": POST ["/+login"];
        Search = Python "search": GET ["/+search"];
        ShowAudit = Python "audit": GET ["/+audit", "/{user}/{index}/+audit"];
        ShowUser = Python "user": GET ["/{user}"];
        CreateUser = Account "user_write": PUT ["/{user}"];
        ModifyUser = Account "user_write": PATCH ["/{user}"];
        DeleteUser = Account "user_write": DELETE ["/{user}"];
        ShowIndex = Python "index": GET ["/{user}/{index}"];
        CreateIndex = Python "index_write": PUT ["/{user}/{index}"];
        ModifyIndex = Python "index_write": PATCH ["/{user}/{index}"];
        DeleteIndex = Python "index_write": DELETE ["/{user}/{index}"];
        UploadFile = Python "upload": POST ["/{user}/{index}"];
        PushRelease = Python "push": POST PUSH ["/{user}/{index}"];
        SearchByXmlRpc = Python "search": POST ["/{user}/{index}"];
        ApplyRetention = Python "index_write": POST ["/{user}/{index}/+retention"];
        ShowIndexLog = Python "index": GET ["/{user}/{index}/+log"];
        ShowPrefetch = Python "index": GET ["/{user}/{index}/+prefetch"];
        StartPrefetch = Python "index_write": POST ["/{user}/{index}/+prefetch"];
        StopPrefetch = Python "index_write": DELETE ["/{user}/{index}/+prefetch"];
        YankFile = Python "file_write":
            POST DELETE ["/{user}/{index}/+f/{directory}/{subdirectory}/{filename}/+yank"];
        DownloadFile = Python "file":
            GET ["/{user}/{index}/+f/{directory}/{subdirectory}/{filename}", "/{user}/{index}/+f/{*}"];
        AddToxResult = Python "file_write":
            POST ["/{user}/{index}/+f/{directory}/{subdirectory}/{filename}", "/{user}/{index}/+f/{*}"];
        DeleteFile = Python "file_write":
            DELETE ["/{user}/{index}/+f/{directory}/{subdirectory}/{filename}", "/{user}/{index}/+f/{*}"];
        // Files without a digest belong to mirrors.
        FindExternalFile = Python "file": GET ["/{user}/{index}/+e/{*}"];
        FindUpstreamFile = Python "file":
            GET ["/{user}/{index}/+upstream/{host}/{path}", "/{user}/{index}/+upstream/{*}"];
        // Without the `+`, a project of this name and its versions go first.
        ListProjects = Python "simple_list": GET ["/{user}/{index}/+simple", "/{user}/{index}/simple"];
        ShowSimplePage = Python "simple_page":
            GET ["/{user}/{index}/+simple/{project}", "/{user}/{index}/simple/{project}"];
        ShowPublicJson = Python "project": GET ["/{user}/{index}/pypi/{project}/json"];
        ShowPublicJsonOfRelease = Python "version": GET ["/{user}/{index}/pypi/{project}/{version}/json"];
        ShowProject = Python "project": GET ["/{user}/{index}/{project}"];
        DeleteProject = Python "project_write": DELETE ["/{user}/{index}/{project}"];
        ShowProjectStatus = Python "project": GET ["/{user}/{index}/{project}/+status"];
        ChangeProjectStatus = Python "project_write": POST PUT DELETE ["/{user}/{index}/{project}/+status"];
        ShowDownloads = Python "project": GET ["/{user}/{index}/{project}/+downloads"];
        ShowRelease = Python "version": GET ["/{user}/{index}/{project}/{version}"];
        DeleteRelease = Python "version_write": DELETE ["/{user}/{index}/{project}/{version}"];
        RefreshPage = Python "simple_page":
            POST ["/{user}/{index}/+simple/{project}/refresh", "/{user}/{index}/{project}/refresh"];
        YankRelease = Python "version_write": POST DELETE ["/{user}/{index}/{project}/{version}/+yank"];
        ShowDocumentation = Python "documentation":
            GET [
                "/{user}/{index}/{project}/{version}/+doc/{path}", "/{user}/{index}/{project}/{version}/+doc/{**}",
                "/{user}/{index}/{project}/{version}/+d/{**}"
            ];
        ShowToxResults = Python "tox_results":
            GET [
                "/{user}/{index}/{project}/{version}/+toxresults/{filename}",
                "/{user}/{index}/{project}/{version}/+toxresults/{filename}/{result}",
                "/{user}/{index}/{project}/{version}/+toxresults/{**}"
            ];
        ShowContents = Python "contents":
            GET [
                "/{user}/{index}/{project}/{version}/+contents/{filename}",
                "/{user}/{index}/{project}/{version}/+contents/{**}"
            ];
        CompareReleases = Python "contents": GET ["/{user}/{index}/{project}/{version}/+compare"];
        ShowProvenance = Python "file":
            GET ["/{user}/{index}/integrity/{project}/{version}/{filename}/provenance"];
        // Paths that are of no route, where it is served.
        FindNoRoute = Python "other":;
    }
    Admin {
        RunJob = Admin "job": GET POST ["/admin/run-job/{name}"];
        ListSettings = Admin "settings": GET ["/admin/settings", "/admin/settings/"];
        ReadSetting = Admin "settings": GET ["/admin/settings/{name}"];
        ChangeSetting = Admin "settings": POST ["/admin/settings/{name}"];
        ShowAdminOpenapi = Admin "other": GET ["/admin/openapi.json"];
        FindNothingForAdmins = Admin "other":;
    }
}

impl Endpoint {
    /// Whether its answers are for everybody, so that pages of every origin may read them.
    pub const fn is_open_to_all(self) -> bool {
        matches!(self.surface(), Surface::Aur)
            || matches!(
                self,
                Endpoint::QueryOsv
                    | Endpoint::QueryOsvBatch
                    | Endpoint::ShowOsvRecord
                    | Endpoint::ShowOpenapi
            )
    }

    /// Whether an answer takes a look at all users, stages or projects, however little of them it shows. Few are made at once.
    pub(crate) const fn looks_through_all(self) -> bool {
        matches!(
            self,
            Endpoint::ShowManagement
                | Endpoint::ManageUser
                | Endpoint::ManageIndex
                | Endpoint::ManageGroups
                | Endpoint::ManageWebhooks
                | Endpoint::ListReleases
                | Endpoint::ManageRelease
                | Endpoint::ShowChangesAsAtom
                | Endpoint::ListPackageHistories
        )
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
