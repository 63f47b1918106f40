//! [`Following`]: this server as a copy of another one; and the promotion of another server that this one has heard of.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use config::Config;
use following::frame::PartialCopy;
use following::{BlobSource, Link, MirrorSource, Primary};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, TryFutureExt as _};
use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};
use mirrors::{Ahead, UpstreamError};
use state::stored::WriteFailure;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::App;

/// Time to connect to the primary with a request that is passed on.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The primary, and how this server is connected to it.
pub(crate) struct Following {
    /// The server that is followed.
    pub(crate) primary: Primary,
    /// How that goes.
    pub(crate) link: Arc<Link>,
    /// For requests that are passed on to it.
    pub(crate) forwarding: reqwest::Client,
    /// What the copy has, if that is not everything.
    pub(crate) part: Option<PartialCopy>,
    /// Whether the copy may have what its token does not open any more.
    pub(crate) is_outdated: AtomicBool,
    /// Cancelled once a new copy of everything is to be put in place, which takes a start.
    pub(crate) starts_over: CancellationToken,
}

impl Following {
    /// This server follows that one.
    ///
    /// # Errors
    /// If this machine cannot connect to servers.
    pub(crate) fn new(
        primary: Primary,
        link: Link,
        part: Option<PartialCopy>,
    ) -> anyhow::Result<Following> {
        let forwarding = net::build_client(|| {
            reqwest::Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
        })?;
        let (link, starts_over) = (Arc::new(link), CancellationToken::new());
        let is_outdated = AtomicBool::new(false);
        Ok(Following { primary, link, forwarding, part, is_outdated, starts_over })
    }

    /// Where clients reach the primary, without a slash at the end.
    pub(crate) fn primary_url(&self, config: &Config) -> String {
        let configured = config.follow_public_url.clone();
        let told = || self.link.state().primary_url;
        configured.or_else(told).unwrap_or_else(|| self.link.url.clone())
    }
}

/// The mirrors of the primary.
struct PrimarysMirrors(MirrorSource);

impl Ahead for PrimarysMirrors {
    fn ask(
        &self,
        path: String,
        headers: HeaderMap,
        is_forced: bool,
    ) -> BoxFuture<'_, Option<reqwest::Response>> {
        async move { self.0.ask(&path, headers, is_forced).await }.boxed()
    }

    fn failed(&self, trouble: &UpstreamError) {
        self.0.failed(trouble);
    }
}

/// The packages that the primary has of the AUR.
#[derive(Debug)]
pub(crate) struct PrimarysPackages {
    primary: Primary,
    link: Arc<Link>,
}

impl PrimarysPackages {
    /// What that server has, over connections of its own: they belong to another thread.
    ///
    /// # Errors
    /// If this machine cannot connect to servers.
    pub(crate) fn new(following: &Following) -> anyhow::Result<PrimarysPackages> {
        Ok(PrimarysPackages { primary: following.primary.apart()?, link: following.link.clone() })
    }
}

impl source::Primary for PrimarysPackages {
    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.link.url)
    }

    fn ask(&self, path: String) -> BoxFuture<'_, Result<reqwest::Response, String>> {
        // What is compressed already is not to be compressed once more.
        let identity = HeaderValue::from_static("identity");
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, identity)]);
        let asking = async move { self.primary.ask(&path, headers).await };
        asking.map_err(|error| error.to_string()).boxed()
    }

    fn dump(&self) -> watch::Receiver<Option<u64>> {
        self.link.aur_dump()
    }

    fn is_served(&self, dump: u64) {
        self.link.has_aur_dump(dump);
    }
}

impl App {
    /// From now on this server follows that one, if any: blobs that are not here come from there, and its mirrors are asked before
    /// the upstreams.
    pub(crate) fn follow(&mut self, following: Option<Following>) {
        let Some(following) = following else { return };
        self.metrics.follower.set(1);
        let (blobs, bytes) =
            (self.metrics.follow_blobs.clone(), self.metrics.follow_blob_bytes.clone());
        let source = BlobSource::new(following.primary.clone(), move |size_bytes| {
            blobs.inc();
            bytes.inc_by(size_bytes);
        });
        self.store.blobs.fetch_from(Arc::new(source));
        let counted = self.metrics.follow_mirrored.clone();
        let (primary, link) = (following.primary.clone(), following.link.clone());
        let source = MirrorSource::new(primary, link, move || counted.inc());
        self.python.mirrors.ask_first(Arc::new(PrimarysMirrors(source)));
        self.following = Some(following);
    }

    /// Why operations are not carried out here, whoever asks for them.
    pub(crate) fn refuses_writes(&self) -> Option<WriteFailure> {
        if let Some(following) = &self.following {
            return Some(WriteFailure::OfFollower(following.primary_url(&self.config)));
        }
        self.health.is_left_behind().then_some(WriteFailure::LeftBehind)
    }

    /// For how long the packages of the AUR may lack changes, if they come from the primary; while it has not been reached since the
    /// start, that is since then.
    pub(crate) fn packages_lag(&self) -> Option<Duration> {
        let following = self.following.as_ref().filter(|_| self.aur.is_of_primary)?;
        self.aur.snapshot()?;
        let lag = following.link.state().aur_lag();
        Some(lag.unwrap_or_else(|| self.health.started_at.elapsed()))
    }

    /// The primary, if this server has a copy of a part of it.
    pub(crate) fn primary_of_part(&self) -> Option<&Following> {
        self.following.as_ref().filter(|following| following.part.is_some())
    }

    /// Waits until the server is to start again with a new copy of its primary.
    pub(crate) async fn starts_over(&self) {
        match &self.following {
            Some(following) => following.starts_over.cancelled().await,
            None => std::future::pending().await,
        }
    }
}
