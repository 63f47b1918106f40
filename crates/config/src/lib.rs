//! Configuration: every key of the program, written down once.
//!
//! flags, environment, file, defaults -> [`Inputs`] -> [`Inputs::load`] -> [`Config`], checked.
//! The tables in this file are the only definition: the command line, `--help`, the names in the environment, the
//! keys of the TOML file, `docs/config.md`, the template, the completions and the man page all come from them.
//! Nothing here opens a socket or starts a task, and nothing below [`Config`] checks a setting again.

mod devpi_ldap;
mod environment;
mod file;
mod goaurrpc;
mod key;
mod ldap_section;
mod print;
mod problem;
mod providers;
mod proxy_login;
mod resolve;
mod site;
mod value;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use account::{Acl, GroupLine};
use http::HeaderName;
use issuers::Issuer;
use ldap::{DnTemplate, Filter, Scope, ServerUrl};
use net::{ListenAddress, Network, SocketMode, TrustedProxies};
use store::{BlobLocation, DatabaseLocation};
use tracing::level_filters::LevelFilter;

pub use self::devpi_ldap::import_devpi_ldap;
pub use self::environment::Environment;
pub use self::goaurrpc::import_goaurrpc;
pub use self::key::{Key, Kind};
pub use self::print::{docs, show, template};
pub use self::problem::{ConfigError, Origin, Problem};
pub use self::providers::read_providers;
pub use self::resolve::{Flags, Inputs, LoadedConfig, Setting, TOKEN_VARIABLE};
pub use self::site::{Accent, Line, SiteLink};
pub use self::value::{
    AurSource, BundleSource, FollowBlobs, FollowWrites, LogFormat, PageOrigin, Secret,
};

use self::key::{FromTexts, Table, canonical};
use self::resolve::Settings;

/// The address of the demonstration's upstream.
pub const DEMO_UPSTREAM_HOST: &str = "127.0.0.1";

/// One section of the configuration: the typed struct and the table of its keys, from the same lines.
///
/// A line is `field: Type = "key", kind, default "text";` and its doc comment is the text of the help. The default is
/// written as a user would write it (lists with commas), and an empty default means "not set" or "depends on the
/// surroundings", which the doc comment then explains.
macro_rules! section {
    (
        $(#[doc = $struct_doc:literal])*
        pub struct $Struct:ident = $section:literal {
            $(
                $(#[doc = $doc:literal])*
                $field:ident: $Type:ty = $name:literal, $kind:expr, default $default:literal;
            )*
        }
        $(with {
            $(
                $(#[doc = $nested_doc:literal])*
                $nested:ident: $Nested:ident;
            )*
        })?
    ) => {
        $(#[doc = $struct_doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Struct {
            $( $(#[doc = $doc])* pub $field: $Type, )*
            $($( $(#[doc = $nested_doc])* pub $nested: $Nested, )*)?
        }

        impl $Struct {
            const TABLE: Table = Table {
                section: $section,
                doc: &[$($struct_doc),*],
                keys: &[$(Key {
                    section: $section,
                    name: $name,
                    kind: $kind,
                    default: $default,
                    check: |texts, kind| {
                        <$Type>::from_texts(texts, kind).map(|value| canonical(kind, texts, &value))
                    },
                    doc: &[$($doc),*],
                }),*],
            };

            /// Takes every value of this section; `None` after a problem, with all problems noted in `settings`.
            fn take(settings: &mut Settings) -> Option<Self> {
                $( let $field = settings.take::<$Type>($section, $name); )*
                $($( let $nested = $Nested::take(settings); )*)?
                Some(Self { $($field: $field?,)* $($($nested: $nested?,)*)? })
            }
        }
    };
}

section! {
    /// Everything that a user can set, checked. [`Inputs::load`] makes it.
    pub struct Config = "" {
        /// Where to listen for HTTP: ADDRESS:PORT or unix:PATH; several are allowed.
        listen: Vec<ListenAddress> = "listen", Kind::Addresses, default "127.0.0.1:8080";
        /// Mode of the files of unix sockets in `listen`, in octal, such as 0660: who may write to such a file may connect. Without it
        /// the umask decides.
        listen_mode: Option<SocketMode> = "listen_mode", Kind::Mode, default "";
        /// Group of the files of unix sockets in `listen`, such as that of a proxy: its name in /etc/group, or its number. The server
        /// has to be a member.
        listen_group: Option<String> = "listen_group", Kind::Group, default "";
        /// Directory for everything that larder stores. Without it: $STATE_DIRECTORY, else $XDG_DATA_HOME/larder, else
        /// ~/.local/share/larder; with `demo` a separate directory larder-demo in the same place.
        data_dir: PathBuf = "data_dir", Kind::Path, default "";
        /// Where users, articles and indexes are stored: sqlite:PATH, or postgres://USER:PASSWORD@HOST/DATABASE for several
        /// processes. Without it: records.db in the data directory.
        database: Option<DatabaseLocation> = "database", Kind::Database, default "";
        /// Where the contents of articles and release files are stored: a directory, or s3://BUCKET/PREFIX with the usual
        /// AWS_… variables. Without it: blobs in the data directory.
        blobs: Option<BlobLocation> = "blobs", Kind::Blobs, default "";
        /// Follow this primary: URL of another larder, of which this server is then a read-only copy that keeps itself current.
        /// It needs a token (`follow_token_file`), a database of SQLite and a directory of blobs of its own.
        follow: Option<String> = "follow", Kind::Url, default "";
        /// File with the token of the primary that has the scope `server:follow`. Without it, $CREDENTIALS_DIRECTORY/follow-token
        /// is used if it exists. The server reads it again for each connection.
        follow_token_file: Option<PathBuf> = "follow_token_file", Kind::Path, default "";
        /// Which blobs a follower fetches: those that somebody asks for (on-demand), or all of them.
        follow_blobs: FollowBlobs = "follow_blobs", Kind::Choice(FollowBlobs::NAMES), default "on-demand";
        /// What a follower does with writes, and with pages that have forms for them: redirect (307 to the primary), or forward
        /// (it passes the request on to the primary, and the answer back).
        follow_writes: FollowWrites = "follow_writes", Kind::Choice(FollowWrites::NAMES), default "redirect";
        /// URL under which clients reach the primary, for the redirects of a follower. Without it: what the primary says of its
        /// own primary, else `follow`.
        follow_public_url: Option<String> = "follow_public_url", Kind::Url, default "";
        /// Serve a generated catalogue, to try things out: real data stays untouched and the rate limit is off.
        demo: bool = "demo", Kind::Switch, default "false";
        /// Packages in the generated catalogue of `demo`.
        demo_packages: usize = "demo_packages", Kind::whole(1, 10_000_000, "packages"), default "100000";
        /// Form of the log on stderr; auto is text on a terminal and JSON otherwise.
        log_format: LogFormat = "log_format", Kind::Choice(LogFormat::NAMES), default "auto";
        /// Lowest severity that is logged. $RUST_LOG overrides it, and can name modules.
        log_level: LevelFilter = "log_level", Kind::Choice(value::LEVEL_NAMES), default "info";
        /// File for the security log: failed logins, and changes of users, passwords, tokens and rights. The server creates it
        /// with mode 0600, appends to it, and opens it again on SIGHUP. Without it these lines go to stderr with the others.
        security_log: Option<PathBuf> = "security_log", Kind::Path, default "";
        /// Proxies whose headers the server believes: who their client is (`client_address_header`), and under which URL they
        /// were asked (X-Outside-URL, X-Forwarded-Proto, X-Forwarded-Prefix). IP addresses or networks. The default trusts
        /// every program on this machine.
        trusted_proxies: Vec<Network> = "trusted_proxies", Kind::Networks, default "127.0.0.1,::1";
        /// The one header in which trusted proxies name their client: X-Forwarded-For, X-Real-IP, Forwarded, or another header
        /// with addresses. The right-most address that is not a trusted proxy counts; all other such headers are ignored. The
        /// proxy must append to it or set it.
        client_address_header: HeaderName = "client_address_header", Kind::Header, default "x-forwarded-for";
        /// URL under which users reach this server, for links and documentation.
        public_url: Option<String> = "public_url", Kind::Url, default "";
        /// Networks, besides public addresses, that this server may connect to for pushes, mirrors and webhooks, and
        /// for redirects of `aur.source` to another host. Pushes, mirrors and webhooks do not use the proxy variables
        /// of the environment. Other hosts that the configuration itself names need no entry.
        egress_allow: Vec<Network> = "egress_allow", Kind::Networks, default "";
        /// Worker threads; 0 means one per core.
        workers: usize = "workers", Kind::whole(0, 1024, "threads"), default "0";
    }
    with {
        /// What one client, or all of them together, may take.
        limits: Limits;
        /// Encryption of the main listener.
        tls: Tls;
        /// The AUR surface.
        aur: Aur;
        /// The articles.
        article: Article;
        /// Actions.
        actions: Actions;
        /// The Python index.
        python: Python;
        /// Known malware and vulnerabilities.
        advisories: Advisories;
        /// The feed of changes.
        changes: Changes;
        /// Pages of other origins.
        cors: Cors;
        /// Shared caches in front of this server.
        cdn: Cdn;
        /// How the pages present themselves.
        site: Site;
        /// Who someone is.
        users: Users;
        /// A directory of users.
        ldap: Ldap;
        /// A proxy that has logged users in.
        proxy_login: ProxyLogin;
        /// Log-in at identity providers.
        oidc: Oidc;
        /// Trusted publishing.
        publishing: Publishing;
        /// The store.
        store: Store;
        /// The admin listener.
        admin: Admin;
        /// `/metrics`.
        metrics: Metrics;
    }
}

section! {
    /// Limits on connections, bytes and time, for one client and for all of them together.
    pub struct Limits = "limits" {
        /// Connections open at once; further ones are closed at once.
        connections_max: usize = "connections_max", Kind::whole(1, 1_000_000, "connections"), default "8192";
        /// Connections open at once from one client; further ones are closed at once.
        connections_per_client_max: usize = "connections_per_client_max", Kind::whole(1, 1_000_000, "connections"), default "2048";
        /// Memory for all connections: headers that arrive, HTTP/2 connections and their requests, answers that wait for slow
        /// readers. Further requests get 503. A quarter is for clients that take little; of the rest, one client gets at most half
        /// of what is left.
        connections_memory_bytes_max: usize = "connections_memory_bytes_max", Kind::whole(4_194_304, 1_099_511_627_776, "bytes"), default "25165824";
        /// Size of a request's header, including the request line.
        header_bytes_max: usize = "header_bytes_max", Kind::whole(8_192, 16_777_216, "bytes"), default "65536";
        /// Length of a request's path and query.
        url_bytes_max: usize = "url_bytes_max", Kind::whole(1_024, 1_048_576, "bytes"), default "32768";
        /// Size of the body of a question about packages; every other endpoint has a limit of its own.
        body_bytes_max: usize = "body_bytes_max", Kind::whole(1_024, 1_073_741_824, "bytes"), default "1048576";
        /// Memory for the bodies of all requests together, and for what is made of them while they are read; further requests
        /// with a body get 503. Clients without credentials share half of it, and one client gets at most half of what is left.
        bodies_memory_bytes_max: usize = "bodies_memory_bytes_max", Kind::whole(8_388_608, 1_099_511_627_776, "bytes"), default "67108864";
        /// Time for a client to send a whole header.
        header_timeout: Duration = "header_timeout_seconds", Kind::seconds(1, 3_600), default "15";
        /// Time for a client to send the next 64 KiB of a body, or its rest.
        body_timeout: Duration = "body_timeout_seconds", Kind::seconds(1, 3_600), default "30";
        /// Time without progress after which the server closes the connection of a client that does not read its answer.
        write_stall_timeout: Duration = "write_stall_timeout_seconds", Kind::seconds(1, 3_600), default "30";
        /// Time that a connection may stay open without a request.
        idle_timeout: Duration = "idle_timeout_seconds", Kind::seconds(1, 86_400), default "75";
        /// Requests at once on one HTTP/2 connection.
        http2_streams_max: u32 = "http2_streams_max", Kind::whole(1, 10_000, "streams"), default "128";
        /// Time for open requests to finish after SIGTERM.
        shutdown_grace: Duration = "shutdown_grace_seconds", Kind::seconds(0, 3_600), default "20";
    }
}

section! {
    /// Encryption of the main listener: both files or neither. The server notices renewed files without a restart.
    pub struct Tls = "tls" {
        /// Certificate chain, PEM.
        certificate: Option<PathBuf> = "certificate", Kind::Path, default "";
        /// Private key of the certificate, PEM.
        key: Option<PathBuf> = "key", Kind::Path, default "";
        /// How often the server checks whether the two files were renewed.
        reload: Duration = "reload_seconds", Kind::seconds(1, 86_400), default "30";
    }
}

section! {
    /// The AUR surface: /rpc and the dumps, from one metadata file.
    pub struct Aur = "aur" {
        /// Whether the surface is served. auto serves it if there is a source, or an earlier dump in the data
        /// directory, or if the primary of a follower serves it; true refuses to start without any of these.
        enabled: bool = "enabled", Kind::SwitchOrAuto, default "auto";
        /// Where the packages come from: path or http(s) URL of a packages-meta-ext-v1.json(.gz), or aurweb's own
        /// database, such as mysql://larder@localhost/aur?socket=/run/mysqld/mysqld.sock. Without it a follower has the
        /// packages of its primary, and any other server serves the last good dump in the data directory.
        source: Option<AurSource> = "source", Kind::Source, default "";
        /// Where the AUR itself is, for links on pages: its git repositories and snapshots. Without it, the host of
        /// source, if that is a URL.
        web_url: Option<String> = "web_url", Kind::Url, default "";
        /// How often the server polls a URL; it notices changed files and changes of a database within a second. It
        /// reads a database at least this often, and keeps its dump in the data directory at most this often.
        refresh: Duration = "refresh_seconds", Kind::seconds(1, 604_800), default "300";
        /// Time to connect to the URL.
        connect_timeout: Duration = "connect_timeout_seconds", Kind::seconds(1, 3_600), default "10";
        /// Time for the URL's server to begin its answer.
        header_timeout: Duration = "header_timeout_seconds", Kind::seconds(1, 3_600), default "30";
        /// Time without a byte after which a download is aborted.
        stall_timeout: Duration = "stall_timeout_seconds", Kind::seconds(1, 3_600), default "30";
        /// How many percent fewer packages than the served dump a new one may have; a smaller one is refused. 100 refuses none.
        shrink_percent_max: u8 = "shrink_percent_max", Kind::whole(0, 100, "percent"), default "50";
        /// Size of a dump, inflated.
        dump_bytes_max: u64 = "dump_bytes_max", Kind::whole(1_024, 1_099_511_627_776, "bytes"), default "4294967296";
        /// Requests per client within one window; 0 switches the limit off.
        rate_limit: u32 = "rate_limit", Kind::whole(0, 4_294_967_295, "requests"), default "4000";
        /// Length of a client's window, from its first request.
        rate_limit_window: Duration = "rate_limit_window_seconds", Kind::seconds(1, 31_536_000), default "86400";
        /// Clients that are counted at the same time; beyond that, those with the fewest requests are forgotten first.
        rate_limit_clients_max: usize = "rate_limit_clients_max", Kind::whole(1, 100_000_000, "clients"), default "200000";
        /// Results in one answer; more are an error, as in aurweb.
        results_max: usize = "results_max", Kind::whole(1, 10_000_000, "results"), default "5000";
    }
}

section! {
    /// Articles: /article and /articles.
    pub struct Article = "article" {
        /// Whether the surface is served.
        enabled: bool = "enabled", Kind::Switch, default "true";
        /// Who may read: users, :groups, :AUTHENTICATED: or :ANONYMOUS:.
        acl_read: Acl = "acl_read", Kind::Acl, default ":ANONYMOUS:";
        /// Who may write.
        acl_write: Acl = "acl_write", Kind::Acl, default ":AUTHENTICATED:";
        /// Size of one revision.
        body_bytes_max: u64 = "body_bytes_max", Kind::whole(1_024, 1_099_511_627_776, "bytes"), default "67108864";
        /// Size of one attachment, a file of an article.
        attachment_bytes_max: u64 = "attachment_bytes_max", Kind::whole(1_024, 1_099_511_627_776, "bytes"), default "67108864";
        /// Attachments of one article; with 0, none can be added.
        attachments_max: usize = "attachments_max", Kind::whole(0, 1_000, "attachments"), default "100";
        /// Size of all attachments of one article together.
        attachments_bytes_max: u64 = "attachments_bytes_max", Kind::whole(1_024, 1_099_511_627_776, "bytes"), default "268435456";
        /// Memory for contents, including their compressed forms; others are read from the store.
        memory_bytes_max: u64 = "memory_bytes_max", Kind::whole(0, 1_099_511_627_776, "bytes"), default "134217728";
        /// Memory for the index of all words in articles; texts for which there is no room are found by name and title alone.
        search_memory_bytes_max: u64 = "search_memory_bytes_max", Kind::whole(0, 1_099_511_627_776, "bytes"), default "268435456";
        /// Texts longer than this are neither compared nor merged.
        merge_bytes_max: u64 = "merge_bytes_max", Kind::whole(0, 67_108_864, "bytes"), default "1048576";
    }
}

section! {
    /// Actions: many calls in one request, at / and /actions, and the threads for calls that only compute.
    pub struct Actions = "actions" {
        /// Whether actions are answered.
        enabled: bool = "enabled", Kind::Switch, default "true";
        /// Actions in one request.
        per_request_max: usize = "per_request_max", Kind::whole(1, 100_000, "actions"), default "100";
        /// Size of a request, as JSON.
        body_bytes_max: usize = "body_bytes_max", Kind::whole(1_024, 1_073_741_824, "bytes"), default "1048576";
        /// Size of all results of a request together; an action whose result would exceed it is refused.
        results_bytes_max: usize = "results_bytes_max", Kind::whole(1_024, 1_073_741_824, "bytes"), default "16777216";
        /// Low-priority threads for calls that only compute; 0 means one fewer than there are cores, but at least one.
        cpu_threads: usize = "cpu_threads", Kind::whole(0, 1024, "threads"), default "0";
        /// Computations that may wait for such a thread; further ones are refused at once.
        cpu_queue_max: usize = "cpu_queue_max", Kind::whole(1, 1_000_000, "computations"), default "64";
    }
}

section! {
    /// The Python index: users' stages, uploads, inheritance and simple pages, as devpi has them.
    pub struct Python = "python" {
        /// Whether the surface is served.
        enabled: bool = "enabled", Kind::Switch, default "true";
        /// Behave as devpi-server does by default: strangers may create users, and a new `root` has an empty password.
        devpi_defaults: bool = "devpi_defaults", Kind::Switch, default "false";
        /// Who may create, change and delete users and stages, besides administrators. Without it, users may change their own.
        restrict_modify: Acl = "restrict_modify", Kind::Acl, default "";
        /// Who may push releases to other servers: this server then sends to a URL that the user names. Never allowed
        /// without credentials.
        acl_push_outside: Acl = "acl_push_outside", Kind::Acl, default ":AUTHENTICATED:";
        /// Size of one uploaded file.
        file_bytes_max: u64 = "file_bytes_max", Kind::whole(1_024, 1_099_511_627_776, "bytes"), default "8589934592";
        /// Size of one test result.
        tox_result_bytes_max: usize = "tox_result_bytes_max", Kind::whole(1_024, 1_073_741_824, "bytes"), default "4194304";
        /// Memory for release files and metadata of up to 256 KiB; larger files are streamed from the store.
        small_file_bytes_max: u64 = "small_file_bytes_max", Kind::whole(0, 1_099_511_627_776, "bytes"), default "67108864";
        /// Path of an internal location of nginx over the directory of the blobs, such as /larder-blobs: then nginx itself
        /// sends larger files (X-Accel-Redirect). Only trusted proxies get the path.
        accel_redirect: Option<PathBuf> = "accel_redirect", Kind::Path, default "";
        /// How often the server removes old versions from the indexes that have a rule for it (`retention_versions`,
        /// `retention_days`); 0 leaves that to `POST /{user}/{index}/+retention`.
        retention_interval: Duration = "retention_interval_seconds", Kind::seconds(0, 31_536_000), default "3600";
        /// Whether downloads are counted, for each release and day of the last 90 days: `/{user}/{index}/{project}/+downloads`.
        count_downloads: bool = "count_downloads", Kind::Switch, default "true";
        /// Memory for finished pages of projects, including their compressed forms.
        page_bytes_max: u64 = "page_bytes_max", Kind::whole(0, 1_099_511_627_776, "bytes"), default "268435456";
        /// Memory for finished lists of projects, including their compressed forms.
        list_bytes_max: u64 = "list_bytes_max", Kind::whole(0, 1_099_511_627_776, "bytes"), default "268435456";
        /// How long a page of a mirror's upstream stays fresh, unless the mirror says so itself
        /// (`mirror_cache_expiry`).
        mirror_cache_expiry: Duration = "mirror_cache_expiry_seconds", Kind::seconds(0, 31_536_000), default "1800";
        /// Disk for pages and files of mirrors, in the directory `mirrors` of the data directory; what was not used for
        /// longest goes first. A file larger than half of it is not mirrored.
        mirror_disk_bytes_max: u64 = "mirror_disk_bytes_max", Kind::whole(1_048_576, 1_125_899_906_842_624, "bytes"), default "21474836480";
        /// Room in the object store (`blobs` at `s3://…`) for pages and files of mirrors, so that processes on one
        /// store share them; those that were not used for longest go first. With 0 each process fetches for itself;
        /// otherwise anybody who can write to the bucket can change what mirrors serve.
        mirror_shared_bytes_max: u64 = "mirror_shared_bytes_max", Kind::whole(0, 1_125_899_906_842_624, "bytes"), default "0";
        /// Memory for pages of mirrors, finished ones included; the lists of projects of their upstreams come on top.
        mirror_memory_bytes_max: u64 = "mirror_memory_bytes_max", Kind::whole(1_048_576, 1_099_511_627_776, "bytes"), default "268435456";
        /// Whether mirrors never ask their upstreams: the server serves the pages and files that they have, and answers
        /// 504 for all others. A reload (SIGHUP) changes it; `mirror_offline` of an index does the same for one mirror.
        mirrors_offline: bool = "mirrors_offline", Kind::Switch, default "false";
        /// Disk for the audit log of policies, in the directory `audit` of the data directory; the oldest entries go first. 0: there
        /// is no log.
        audit_bytes_max: u64 = "audit_bytes_max", Kind::whole(0, 1_099_511_627_776, "bytes"), default "67108864";
        /// How many days entries stay in the audit log.
        audit_days_max: u32 = "audit_days_max", Kind::whole(1, 36_500, "days"), default "90";
        /// Whether the audit log also has files that were served under a policy, and not only those that were refused
        /// or passed by an exception.
        audit_served: bool = "audit_served", Kind::Switch, default "false";
    }
}

section! {
    /// Known malware and vulnerabilities of Python packages: OSV records, for `/+osv/` and for the policies of indexes.
    pub struct Advisories = "advisories" {
        /// Where the records come from: path or http(s) URL of a zip with a JSON file for each record, as OSV exports
        /// them for the ecosystem PyPI. Without it, the server uses the records of `larder import-osv`, or the last
        /// good zip in the data directory.
        source: Option<BundleSource> = "source", Kind::Bundle, default "";
        /// How often the server asks a URL, with conditional requests; it notices a changed file within a second.
        refresh: Duration = "refresh_seconds", Kind::seconds(1, 604_800), default "3600";
        /// Size of the zip.
        bundle_bytes_max: u64 = "bundle_bytes_max", Kind::whole(1_024, 1_099_511_627_776, "bytes"), default "1073741824";
    }
}

section! {
    /// The feed of changes: /changes, for programs that follow what happens on a surface.
    pub struct Changes = "changes" {
        /// Changes of each surface that can be asked for; a client that knows only older ones starts over.
        history_max: usize = "history_max", Kind::whole(1, 10_000_000, "changes"), default "20000";
        /// Clients that follow a feed at once, each on a connection that stays open; further ones get 503.
        subscribers_max: usize = "subscribers_max", Kind::whole(0, 1_000_000, "clients"), default "10000";
        /// Clients of one address that follow a feed at once; further ones get 429.
        subscribers_per_client_max: usize = "subscribers_per_client_max", Kind::whole(0, 1_000_000, "connections"), default "64";
        /// File of webhooks: URLs that the server posts changes to, each with a secret; docs/changes.md has its form. Read at
        /// the start.
        webhooks_file: Option<PathBuf> = "webhooks_file", Kind::Path, default "";
        /// How often a feed that has nothing to tell sends a comment, so that proxies keep the connection open.
        keep_alive: Duration = "keep_alive_seconds", Kind::seconds(1, 3_600), default "20";
    }
}

section! {
    /// What caches in front of this server, such as Varnish or a CDN, may keep of what everybody may read; docs/cdn.md.
    pub struct Cdn = "cdn" {
        /// How long they may keep pages of installers and articles, unless a webhook of theirs says that one has changed. 0: they
        /// are told nothing.
        seconds: Duration = "seconds", Kind::seconds(0, 31_536_000), default "0";
        /// How long they may keep answers about packages of the AUR, if that is shorter: a popularity decays without a change
        /// that a webhook could tell. 0: as long as clients.
        aur_seconds: Duration = "aur_seconds", Kind::seconds(0, 31_536_000), default "300";
        /// How long after that they may go on answering with it while they ask again.
        stale: Duration = "stale_seconds", Kind::seconds(0, 31_536_000), default "60";
        /// How long after that they may go on answering with it while this server does not answer.
        stale_if_error: Duration = "stale_if_error_seconds", Kind::seconds(0, 31_536_000), default "86400";
    }
}

section! {
    /// Pages of other origins, such as browser applications: what they may read and write.
    pub struct Cors = "cors" {
        /// Origins of pages that may use this server from a browser: they read and write, with a token that they send as
        /// Bearer or without one. `*` lets every page read what everybody may read without credentials. Cookies and
        /// passwords never count for these pages. What is as public as /rpc is open to every page anyway.
        origins: Vec<PageOrigin> = "origins", Kind::Origins, default "";
    }
}

section! {
    /// How the pages for people present themselves: as the operator's site.
    pub struct Site = "site" {
        /// The name in the header and in the titles of pages.
        title: Line = "title", Kind::Line, default "Larder";
        /// A sentence about it on the page `/`.
        line: Option<Line> = "line", Kind::Line, default "";
        /// A picture before the title: a file of SVG, PNG, JPEG or WebP, of at most 64 KiB.
        logo: Option<PathBuf> = "logo", Kind::Path, default "";
        /// The colour of links and buttons, as #rrggbb; in dark colours the server makes it as much lighter as it has to be.
        accent: Option<Accent> = "accent", Kind::Colour, default "";
        /// Links in the footer of every page, each as LABEL URL.
        links: Vec<SiteLink> = "links", Kind::Links, default "";
        /// The name of an article that browsers get at `/`, in the place of the list of what is here.
        home: Option<Line> = "home", Kind::Line, default "";
    }
}

section! {
    /// Who someone is: passwords, logins and registration, for every surface.
    pub struct Users = "users" {
        /// How long the server remembers a verified password, so that it need not hash it for each request; it forgets a
        /// changed password at once.
        remember: Duration = "remember_seconds", Kind::seconds(0, 3_600), default "60";
        /// How long a login is valid.
        login: Duration = "login_seconds", Kind::seconds(60, 31_536_000), default "36000";
        /// How long a token is valid whose maker does not say until when. 0: it never expires.
        token_days: u32 = "token_days", Kind::whole(0, 36_500, "days"), default "365";
        /// Different wrong passwords that one client (an IPv4 address or an IPv6 /64) may try for one account within ten
        /// minutes, on all surfaces together; then it gets 429, except for a password that was right there lately. 0: no limit.
        wrong_passwords_max: u32 = "wrong_passwords_max", Kind::whole(0, 1_000_000, "passwords"), default "10";
        /// Different wrong passwords that one client may try for all accounts together within ten minutes. 0: no limit.
        wrong_passwords_per_client_max: u32 = "wrong_passwords_per_client_max", Kind::whole(0, 1_000_000, "passwords"), default "100";
        /// Different wrong passwords that all clients together may try for one account within ten minutes; clients from which its
        /// password was right lately are not counted. 0: no limit.
        wrong_passwords_per_account_max: u32 = "wrong_passwords_per_account_max", Kind::whole(0, 1_000_000, "passwords"), default "100";
        /// Whether strangers may create users.
        may_register: bool = "strangers_may_register", Kind::Switch, default "false";
    }
}

section! {
    /// A directory (LDAP) that knows users, their passwords and their groups. Without `urls` none is asked.
    pub struct Ldap = "ldap" {
        /// Servers of the directory, as ldap://HOST or ldaps://HOST, with a port if it is not the usual one; the first that
        /// answers is asked.
        urls: Vec<ServerUrl> = "urls", Kind::Directories, default "";
        /// Whether connections to ldap:// are encrypted (StartTLS) before anything else is sent. Without it, passwords travel in
        /// plain text.
        start_tls: bool = "start_tls", Kind::Switch, default "true";
        /// Certificates, PEM, of the authorities that sign those of the directory. Without it: those that the system trusts.
        ca_file: Option<PathBuf> = "ca_file", Kind::Path, default "";
        /// DN that Larder searches with. Without it, it searches anonymously.
        bind_dn: Option<String> = "bind_dn", Kind::Dn, default "";
        /// Password of `bind_dn`; prefer `bind_password_file`.
        bind_password: Option<Secret> = "bind_password", Kind::Secret, default "";
        /// File with that password. Without both, $CREDENTIALS_DIRECTORY/ldap-password is used if it exists.
        bind_password_file: Option<PathBuf> = "bind_password_file", Kind::Path, default "";
        /// DN of a user, with `{username}`, such as uid={username},ou=people,dc=example,dc=org; names are in lower case then.
        /// Either this, or `user_base` and `user_filter`.
        user_dn: Option<DnTemplate> = "user_dn", Kind::DnTemplate, default "";
        /// Where users are searched for.
        user_base: Option<String> = "user_base", Kind::Dn, default "";
        /// Filter that finds exactly one entry, with `{username}`, such as (&(objectClass=person)(uid={username})).
        user_filter: Option<Filter> = "user_filter", Kind::Filter, default "";
        /// How deep the search for users goes: the base alone, one level below it, or everything below it.
        user_scope: Scope = "user_scope", Kind::Choice(Scope::NAMES), default "subtree";
        /// Attribute with the user's name, which has to be spelled as the user spells it. Without it: the one that
        /// `user_filter` compares with `{username}`.
        user_attribute: Option<String> = "user_attribute", Kind::Word, default "";
        /// Where groups are searched for. Without it, the directory says nothing about groups.
        group_base: Option<String> = "group_base", Kind::Dn, default "";
        /// Filter that finds the groups of a user, with `{userdn}` or `{username}`, such as (member={userdn}).
        group_filter: Option<Filter> = "group_filter", Kind::Filter, default "";
        /// How deep the search for groups goes.
        group_scope: Scope = "group_scope", Kind::Choice(Scope::NAMES), default "subtree";
        /// Attribute with the group's name.
        group_attribute: String = "group_attribute", Kind::Word, default "cn";
        /// What groups of the directory mean here, each as GROUP=HERE; `*=ldap-*` takes all others, with `ldap-` before their
        /// names, and `*=*` as they are called there. Log-ins set these groups, and touch no others.
        groups: Vec<GroupLine> = "groups", Kind::GroupLines, default "";
        /// Users that the directory is never asked about, and `:group` for the members of a group. `root` and users with a
        /// password here need no entry.
        local_users: Acl = "local_users", Kind::Acl, default "";
        /// Whether a user of the directory who logs in for the first time is made here. Otherwise an administrator makes them.
        creates_users: bool = "creates_users", Kind::Switch, default "true";
        /// How long a right password is remembered, with the groups of its user, before the directory is asked again; 0: it is
        /// asked each time.
        remember: Duration = "remember_seconds", Kind::seconds(0, 3_600), default "60";
        /// Time to connect, for each answer, and for a log-in to wait for its turn; each of `urls` has it anew.
        timeout: Duration = "timeout_seconds", Kind::seconds(1, 300), default "10";
        /// Log-ins for which the directory is asked at once; others wait.
        at_once_max: usize = "at_once_max", Kind::whole(1, 1_000, "log-ins"), default "8";
    }
}

section! {
    /// Users whom a proxy in front of this server has logged in. Whoever reaches a trusted address can say who they are: docs/proxy-login.md
    /// says when that is safe.
    pub struct ProxyLogin = "proxy_login" {
        /// Header in which the proxies of `trusted_proxies` name the user, such as X-Remote-User; they must set or remove it in every
        /// request. From anybody else it has no effect. Without it, no header says who someone is.
        header: Option<HeaderName> = "header", Kind::Header, default "";
        /// Header in which they name the user's groups, with commas between them.
        groups_header: Option<HeaderName> = "groups_header", Kind::Header, default "";
        /// What these groups mean here, each as GROUP=HERE; `*=sso-*` takes all others, with `sso-` before their names, and `*=*` as
        /// they are called there. Requests set these groups, and touch no others.
        groups: Vec<GroupLine> = "groups", Kind::GroupLines, default "";
        /// Whether a user whom the proxy names for the first time is made here. Otherwise an administrator makes them.
        creates_users: bool = "creates_users", Kind::Switch, default "true";
        /// Whether the proxy may name `root`.
        admits_root: bool = "admits_root", Kind::Switch, default "false";
    }
}

section! {
    /// Log-in in the browser at identity providers, by OpenID Connect.
    pub struct Oidc = "oidc" {
        /// File of identity providers where people may log in; docs/single-sign-on.md has its form. Read at the start. Without it,
        /// people log in with passwords alone.
        providers_file: Option<PathBuf> = "providers_file", Kind::Path, default "";
    }
}

section! {
    /// Trusted publishing: jobs of CI systems upload with an identity that their issuer signs, and without a stored token.
    pub struct Publishing = "publishing" {
        /// Issuers whose identities indexes may name as publishers, each as KIND URL, or KIND URL JWKS-URL where the keys
        /// are on another host. The kind says what the claims mean: github, gitlab, google, activestate or generic. The
        /// URL is exactly the one in the tokens (`iss`). Without issuers there is no trusted publishing.
        issuers: Vec<Issuer> = "issuers", Kind::Issuers, default "";
        /// The audience that identities must be for, which clients ask this server for. Without it: the host of
        /// `public_url`, else `larder`.
        audience: Option<String> = "audience", Kind::Word, default "";
        /// File with the keys that attestations of trusted publishers are verified with, in the form of Sigstore's
        /// trusted_root.json. Without it: those of Sigstore's public instance, as of this version.
        sigstore_root: Option<PathBuf> = "sigstore_root", Kind::Path, default "";
    }
}

section! {
    /// The store, and how a process follows the writes of others.
    pub struct Store = "store" {
        /// How often the server polls the database for writes of other processes, if the database does not notify it.
        poll: Duration = "poll_seconds", Kind::seconds(1, 3_600), default "1";
        /// How long a request waits for a serial that its client has seen from another process, before it is refused.
        wait_for_serial: Duration = "wait_for_serial_seconds", Kind::seconds(0, 60), default "5";
        /// How often the server sweeps blobs that no record names; 0 leaves that to `larder sweep`.
        sweep: Duration = "sweep_seconds", Kind::seconds(0, 31_536_000), default "86400";
        /// Free space on the disks of the database and the blobs below which only administrators may write; 0: no limit.
        free_bytes_min: u64 = "free_bytes_min", Kind::whole(0, 1_099_511_627_776, "bytes"), default "268435456";
        /// How old a blob must be before a sweep may delete it.
        sweep_grace: Duration = "sweep_grace_seconds", Kind::seconds(3_600, 31_536_000), default "86400";
        /// Time within which the server reads each blob once, in the background, and compares it with its digest; 0: never.
        scrub: Duration = "scrub_seconds", Kind::seconds(0, 31_536_000), default "2592000";
    }
}

section! {
    /// The admin listener, which starts only if a key is set.
    pub struct Admin = "admin" {
        /// Where the admin API listens: ADDRESS:PORT or unix:PATH.
        listen: ListenAddress = "listen", Kind::Address, default "127.0.0.1:8081";
        /// Key that admin requests carry. There is no default; prefer `key_file`, because others on this machine can see a command line.
        key: Option<Secret> = "key", Kind::Secret, default "";
        /// File with the key. Without `key` and `key_file`, $CREDENTIALS_DIRECTORY/admin-key is used if it exists.
        key_file: Option<PathBuf> = "key_file", Kind::Path, default "";
    }
}

section! {
    /// Metrics for Prometheus.
    pub struct Metrics = "metrics" {
        /// Whether /metrics is served.
        enabled: bool = "enabled", Kind::Switch, default "true";
    }
}

/// Every section, in the order of documentation; the first one holds the keys at the top of the file.
const TABLES: &[Table] = &[
    Config::TABLE,
    Limits::TABLE,
    Tls::TABLE,
    Aur::TABLE,
    Article::TABLE,
    Actions::TABLE,
    Python::TABLE,
    Advisories::TABLE,
    Changes::TABLE,
    Cors::TABLE,
    Cdn::TABLE,
    Site::TABLE,
    Users::TABLE,
    Ldap::TABLE,
    ProxyLogin::TABLE,
    Oidc::TABLE,
    Publishing::TABLE,
    Store::TABLE,
    Admin::TABLE,
    Metrics::TABLE,
];

/// Every key, in the order of documentation.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    TABLES.iter().flat_map(|table| table.keys)
}

impl Default for Config {
    /// The defaults with an empty environment and the data directory `larder-data` below the working directory: what
    /// tests start from. The program itself starts from [`Inputs::load`].
    fn default() -> Self {
        let mut flags = Flags::default();
        flags.set("data_dir", "larder-data");
        let inputs =
            Inputs { file: Some(PathBuf::new()), flags, environment: Environment::default() };
        inputs.load().expect("the defaults in the table are valid").config
    }
}

impl Tls {
    /// Certificate and key, where both are set; [`Inputs::load`] refuses one without the other.
    pub fn files(&self) -> Option<(&Path, &Path)> {
        Some((self.certificate.as_deref()?, self.key.as_deref()?))
    }
}

impl Config {
    /// The proxies that are believed.
    pub fn proxies(&self) -> TrustedProxies {
        TrustedProxies::new(self.trusted_proxies.iter().copied())
            .reading(self.client_address_header.clone())
    }

    /// Where the records are.
    pub fn database(&self) -> DatabaseLocation {
        self.database
            .clone()
            .unwrap_or_else(|| DatabaseLocation::Sqlite(self.data_dir.join("records.db")))
    }

    /// Where the blobs are.
    pub fn blobs(&self) -> BlobLocation {
        self.blobs.clone().unwrap_or_else(|| BlobLocation::Directory(self.data_dir.join("blobs")))
    }

    /// The audience that identities of CI jobs must be for.
    pub fn publishing_audience(&self) -> String {
        let host = || {
            let url = reqwest::Url::parse(self.public_url.as_deref()?).ok()?;
            url.host_str().map(str::to_owned)
        };
        self.publishing.audience.clone().or_else(host).unwrap_or_else(|| "larder".to_owned())
    }

    /// Where `larder import-osv` puts OSV records, and a server without `advisories.source` finds them.
    pub fn imported_advisories(&self) -> PathBuf {
        self.data_dir.join("osv").join("imported.zip")
    }

    /// URL at which this machine reaches the main listener's `path`, and the socket to use instead of TCP, if any: for
    /// `larder healthcheck`. A listener on every address is asked on loopback.
    pub fn local_url(&self, path: &str) -> (String, Option<&Path>) {
        let scheme = if self.tls.files().is_some() { "https" } else { "http" };
        match self.listen.first() {
            Some(ListenAddress::Unix(socket)) => {
                (format!("{scheme}://localhost{path}"), Some(socket))
            }
            Some(ListenAddress::Tcp(address)) => {
                let ip = match address.ip() {
                    ip if !ip.is_unspecified() => ip,
                    IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                    IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
                };
                (format!("{scheme}://{}{path}", SocketAddr::new(ip, address.port())), None)
            }
            None => (format!("{scheme}://127.0.0.1:8080{path}"), None),
        }
    }
}

#[cfg(test)]
mod tests;
