//! A server of the test's own: port 0, a temporary directory, and a dump in a file that may be replaced.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use std::{fs, future::Future, io};

use account::Password;
use config::{AurSource, Config, Secret};
use larder::app::App;
use net::ListenAddress;
use record::Batch;
use state::stored::{LiveStore, Stored};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Client, Response};
use crate::{catalogue, wait_until};

/// The key of the admin listener, where a test asks for one.
pub(crate) const KEY: &str = "correct-horse";

/// The password of `root` on every server that a test starts.
pub(crate) const ROOT_PASSWORD: &str = "battery-staple";

/// The header with which `root` asks.
pub(crate) const ROOT: (&str, &str) = ("Authorization", "Basic cm9vdDpiYXR0ZXJ5LXN0YXBsZQ==");

/// All servers of the test binary share the threads of one runtime.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime"))
}

/// Runs `future` on the shared runtime and waits for it.
pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

/// Commits a batch beside all operations; returns once the server shows it.
#[track_caller]
pub(crate) fn commit(live_store: &LiveStore, batch: Batch) {
    let serial = wait_for(live_store.commit(batch)).expect("a commit");
    assert!(wait_for(live_store.shows(serial)), "it is visible");
}

/// A running server; it is stopped when this is dropped.
pub(crate) struct TestServer {
    pub(crate) app: Arc<App>,
    pub(crate) client: Client,
    pub(crate) admin: Option<Client>,
    directory: Option<Arc<TempDir>>,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<JoinHandle<()>>,
}

impl TestServer {
    /// A server of this dump, ready.
    pub(crate) fn serving(dump: &[u8]) -> TestServer {
        TestServer::serving_with(dump, |_| ())
    }

    /// A server of this dump with a changed configuration, ready.
    pub(crate) fn serving_with(dump: &[u8], change: impl FnOnce(&mut Config)) -> TestServer {
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        fs::write(source_path(&directory), dump).expect("a dump");
        TestServer::start_in(directory, |config, directory| {
            config.aur.source = Some(AurSource::File(source_path(directory)));
            change(config);
        })
        .ready()
    }

    /// A server without a source, so that it may never be ready. Its store is loaded.
    pub(crate) fn without_source(change: impl FnOnce(&mut Config)) -> TestServer {
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        let server = TestServer::start_in(directory, |config, _| change(config));
        wait_until("the store", || server.app.live_store.snapshot().is_some());
        server
    }

    /// A server of everything but the AUR, ready.
    pub(crate) fn without_aur(change: impl FnOnce(&mut Config)) -> TestServer {
        TestServer::without_aur_in(Arc::new(tempfile::tempdir().expect("a directory")), change)
    }

    /// [`TestServer::without_aur`], whose data directory is within this one.
    pub(crate) fn without_aur_in(
        directory: Arc<TempDir>,
        change: impl FnOnce(&mut Config),
    ) -> TestServer {
        TestServer::start_in(directory, |config, _| {
            config.aur.enabled = false;
            change(config);
        })
        .ready()
    }

    /// A server whose data directory is within this one.
    pub(crate) fn start_in(
        directory: Arc<TempDir>,
        change: impl FnOnce(&mut Config, &TempDir),
    ) -> TestServer {
        let mut config = Config {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            data_dir: directory.path().join("data"),
            ..Config::default()
        };
        config.admin.listen = "127.0.0.1:0".parse().expect("an address");
        change(&mut config, &directory);
        wait_for(make_root(&config));
        let running = wait_for(larder::start(config, Vec::new())).expect("the server starts");
        let client = client_of(&running.addresses[0]);
        let admin = running.admin_address.as_ref().map(client_of);
        let app = running.app.clone();
        let (stop, stopped) = oneshot::channel();
        let ended = runtime().spawn(running.run_until(async move {
            // A dropped sender counts as well.
            let _ = stopped.await;
        }));
        TestServer {
            app,
            client,
            admin,
            directory: Some(directory),
            stop: Some(stop),
            ended: Some(ended),
        }
    }

    /// This server, ready.
    #[track_caller]
    pub(crate) fn ready(self) -> TestServer {
        self.wait_until_ready();
        self
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self) {
        wait_until("the server to be ready", || self.app.obstacles().is_empty());
        wait_until("the dump to be kept", || {
            self.app.aur.snapshot().is_none_or(|published| published.kept.get().is_some())
        });
    }

    /// The admin listener's client, with the key.
    #[track_caller]
    pub(crate) fn admin(&self, method: &str, target: &str) -> Response {
        self.admin.expect("an admin listener").send(method, target, &[("APIKey", KEY)], b"")
    }

    /// The state of its store.
    #[track_caller]
    pub(crate) fn stored(&self) -> Arc<Stored> {
        self.app.live_store.snapshot_full().expect("a state")
    }

    /// The groups of a user, with blanks between.
    #[track_caller]
    pub(crate) fn groups(&self, name: &str) -> String {
        let stored = self.stored();
        let user = stored.accounts.user(&name.parse().expect("a name")).expect("a user");
        user.groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    /// The path of the dump.
    pub(crate) fn source_path(&self) -> PathBuf {
        source_path(self.directory.as_ref().expect("it is gone only after the end"))
    }

    /// Puts another dump in the place of the old one by renaming.
    pub(crate) fn replace_source(&self, dump: &[u8]) {
        let path = self.source_path();
        let beside = path.with_extension("next");
        fs::write(&beside, dump).expect("a dump");
        fs::rename(beside, path).expect("a rename");
    }

    /// Begins to stop; does not wait.
    pub(crate) fn begin_stop(&mut self) {
        self.stop = None;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops, waits for the end, and leaves the directory.
    pub(crate) fn stop(mut self) -> Arc<TempDir> {
        self.end();
        self.directory.take().expect("it is taken once")
    }

    /// Stops, and starts again on the same directory without the AUR.
    pub(crate) fn restarted(self) -> TestServer {
        TestServer::without_aur_in(self.stop(), |_| ())
    }

    fn end(&mut self) {
        self.stop = None;
        if let Some(ended) = self.ended.take() {
            wait_for(ended).expect("the server ends well");
        }
    }
}

/// A server is asked as its client is.
impl Deref for TestServer {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// Makes `root` with the password that all tests use, if it does not exist yet.
async fn make_root(config: &Config) {
    fs::create_dir_all(&config.data_dir).expect("a data directory");
    let store = state::setup::open(config).await.expect("a store");
    let password = Password::new(ROOT_PASSWORD).expect("a password");
    state::setup::initialize(&store.records, Some(password)).await.expect("root");
    store.close().await;
}

pub(crate) fn source_path(directory: &TempDir) -> PathBuf {
    directory.path().join("source.json")
}

fn client_of(address: &ListenAddress) -> Client {
    match address {
        ListenAddress::Tcp(address) => Client { address: *address },
        ListenAddress::Unix(path) => panic!("tests listen on TCP, not on {}", path.display()),
    }
}

/// Switches the admin listener on.
pub(crate) fn with_key(config: &mut Config) {
    config.admin.key = Some(Secret::new(KEY));
}

/// A server with one thread for computations, which is busy until the sender is dropped. At most `queue_max` requests may wait for it.
pub(crate) fn busy(queue_max: usize) -> (TestServer, mpsc::Sender<()>) {
    let server = TestServer::serving_with(&catalogue::small(), |config| {
        config.actions.cpu_threads = 1;
        config.actions.cpu_queue_max = queue_max;
    });
    let (release, released) = mpsc::channel::<()>();
    let app = server.app.clone();
    runtime().spawn(async move { app.limits.cpu_pool.run(move || released.recv().is_err()).await });
    wait_until("the thread to be busy", || server.metric("larder_cpu_pool_busy_threads") == 1.0);
    (server, release)
}

/// The server of the nine packages of [`catalogue::small`], shared by all tests that only read.
pub(crate) fn small() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(|| shared(&catalogue::small()))
}

/// The server of the 6,000 packages of [`catalogue::large`], shared.
pub(crate) fn large() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(|| shared(&catalogue::large().0))
}

/// The server of the recorded catalogue, shared.
pub(crate) fn recorded() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let dump = fs::read(catalogue::testdata("packages-meta-ext-v1.json.gz"));
        shared(&dump.expect("the recorded catalogue"))
    })
}

/// Shared servers are never dropped, so their directory goes at once; files that they have open stay readable.
fn shared(dump: &[u8]) -> TestServer {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let source = source_path(&directory);
    fs::write(&source, dump).expect("a dump");
    let first = TestServer::start_in(directory, |config, _| {
        config.aur.source = Some(AurSource::File(source))
    })
    .ready();
    // Its kept dump is served by a second one that watches nothing.
    let directory = first.stop();
    let mut server = TestServer::start_in(directory, |config, _| {
        config.aur.rate_limit = 1_000_000;
    })
    .ready();
    let directory = server.directory.take().expect("nobody has taken it");
    remove(directory.path());
    drop(directory);
    server
}

/// Removes the directory of a server that runs on: its tasks may still make files there.
fn remove(path: &Path) {
    for _ in 0..1_000 {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(Duration::from_millis(10));
            }
            removed => return removed.expect("the directory is ours"),
        }
    }
    panic!("files appear in {} without end", path.display());
}
