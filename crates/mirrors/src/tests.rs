//! Tests of what mirrors do for clients that leave.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pypi::ProjectName;

use super::disk::EntryHead;
use super::*;

/// Mirrors whose cache has these entries of the mirror `team/pypi`.
fn mirrors(directory: &Path, entries: &[(&str, &[u8])]) -> (Arc<Mirrors>, Arc<Mirror>) {
    let budget = Budget {
        memory_bytes_max: 1 << 20,
        disk_bytes_max: 64 << 20,
        free_bytes_min: 0,
        expiry: Duration::from_secs(3600),
        is_offline: false,
    };
    let open = || Mirrors::open(directory, budget, Egress::default()).expect("a client");
    let url = "http://upstream.example/simple/";
    let mirror = Arc::new(Mirror {
        is_shared: true,
        stage: "team/pypi".to_owned(),
        redirects_files: false,
        origin: Origin::parse(url).expect("a URL"),
        identity: identity("team/pypi", url, &MirrorSettings::default()).into(),
        settings: MirrorSettings::default(),
        expiry: budget.expiry,
        has_no_list: true,
        ignores_serials: false,
        provides_metadata: None,
        is_offline: AtomicBool::new(false),
        names: Mutex::default(),
        health: Mutex::default(),
        recent: Mutex::default(),
        flights: Flights::new(1, "too many"),
        downloads: Flights::new(1, "too many"),
        asking: Semaphore::new(ASKING_MAX),
        downloading: Semaphore::new(DOWNLOADS_MAX),
    });
    let writing = open();
    for (name, content) in entries {
        let head = EntryHead {
            name: (*name).to_owned(),
            size_bytes: content.len() as u64,
            sha256: Digest::of(content).to_string(),
            confirmed_at: milliseconds(std::time::SystemTime::now()),
            is_verified: true,
            ..EntryHead::default()
        };
        writing.disk.write(mirror.key(name), &head, content).expect("a disk");
    }
    // As after a restart: nothing is in memory, and nothing has been compared with its digest.
    drop(writing);
    (Arc::new(open()), mirror)
}

/// Runs `request` with a single thread for blocking work, until its second piece of such work waits for that thread; then the
/// client leaves, and `check` is called.
async fn leave<T>(request: impl Future<Output = T>, check: impl FnOnce()) {
    let mut context = Context::from_waker(Waker::noop());
    let mut request = pin!(Some(request));
    let mut poll = || match request.as_mut().as_pin_mut() {
        Some(request) => request.poll(&mut context),
        None => Poll::Pending,
    };
    // The thread does one piece of work at a time, so the request's own piece ends between these two.
    let occupy = || {
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || {
            begin.send(()).expect("the test waits");
            may_go_on.recv()
        });
        (begun, go_on, busy)
    };
    let (begun, end_before, before) = occupy();
    begun.await.expect("a thread");
    assert!(poll().is_pending(), "it waits for its first piece of work");
    let (begun, go_on, busy) = occupy();
    end_before.send(()).expect("the thread waits");
    before.await.expect("a thread").expect("the test says so");
    begun.await.expect("a thread");
    assert!(poll().is_pending(), "it waits for its second piece of work");
    request.set(None);
    check();
    go_on.send(()).expect("the thread waits");
    busy.await.expect("a thread").expect("the test says so");
}

#[track_caller]
fn in_one_thread(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.max_blocking_threads(1).enable_all().build().expect("a runtime").block_on(test);
}

#[test]
fn who_leaves_a_file_that_is_checked_frees_no_turn() {
    in_one_thread(async {
        let directory = tempfile::tempdir().expect("a directory");
        let (mirrors, mirror) = mirrors(directory.path(), &[("file/foo-1.0.tar.gz", b"content")]);
        let key = mirror.key("file/foo-1.0.tar.gz");
        let held = mirrors.held(&mirror, key);
        leave(held, || assert_eq!(mirrors.checks.free(), CHECKS_MAX - 1)).await;
        // The work has gone on, and the next request finds it done.
        assert!(mirrors.held(&mirror, key).await.is_some());
        mirrors.checks.take_many(CHECKS_MAX as u32).await;
    });
}

#[test]
fn who_leaves_a_page_that_is_read_frees_no_turn() {
    in_one_thread(async {
        let directory = tempfile::tempdir().expect("a directory");
        let page = br#"{"meta": {"api-version": "1.1"}, "name": "foo", "files": []}"#;
        let (mirrors, mirror) = mirrors(directory.path(), &[("page/foo", page)]);
        let subject = Subject::Project(ProjectName::parse("foo").expect("a name"));
        let reading = mirrors.remembered(&mirror, &subject);
        leave(reading, || assert_eq!(mirrors.pages_work.free(), PAGES_MAX - 1)).await;
        mirrors.pages_work.take_many(PAGES_MAX as u32).await;
        assert!(mirrors.in_memory(&mirror, &subject).is_some(), "it has been read all the same");
    });
}

#[tokio::test]
async fn a_page_that_was_not_kept_whole_is_asked_for_without_conditions() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mirrors, mirror) = mirrors(directory.path(), &[]);
    let page = br#"{"meta": {"api-version": "1.1"}, "name": "foo", "files": []}"#;
    let cases: [(&str, &[u8], u32, bool); 3] = [
        ("page/old", page, 0, false),
        ("page/new", page, pages::PAGE_FORM, true),
        ("list", b"foo\n", 0, true),
    ];
    for (name, content, form, has_conditions) in cases {
        let head = EntryHead {
            name: name.to_owned(),
            size_bytes: content.len() as u64,
            sha256: Digest::of(content).to_string(),
            confirmed_at: milliseconds(std::time::SystemTime::now()),
            etag: Some("\"tag\"".to_owned()),
            last_modified: Some("Sat, 31 Jan 2026 12:00:00 GMT".to_owned()),
            serial: Some(7),
            form,
            ..EntryHead::default()
        };
        mirrors.disk.write(mirror.key(name), &head, content).expect("a disk");
        let subject = Subject::named(name).expect("a subject");
        let known = mirrors.remembered(&mirror, &subject).await.expect("it is there");
        let found = (known.etag.is_some(), known.last_modified.is_some());
        assert_eq!(found, (has_conditions, has_conditions), "{name}");
    }
}

#[test]
fn a_page_of_many_files_stays_in_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let budget = Budget {
        memory_bytes_max: 256 << 20,
        disk_bytes_max: 1 << 20,
        free_bytes_min: 0,
        expiry: Duration::ZERO,
        is_offline: false,
    };
    let mirrors = Mirrors::open(directory.path(), budget, Egress::default()).expect("a client");
    for capacity in [mirrors.pages.shard_capacity(), mirrors.finished.shard_capacity()] {
        assert!(capacity >= CACHE_PART_BYTES_MIN, "{capacity} bytes");
    }
    // However little there is, it is used.
    let budget = Budget { memory_bytes_max: 1 << 20, ..budget };
    let mirrors = Mirrors::open(directory.path(), budget, Egress::default()).expect("a client");
    assert_eq!(mirrors.pages.shard_capacity(), 1 << 19);
}

/// Who waits for a turn, or for upstream, keeps no page of many files in memory; when it is their turn, they find it again.
#[tokio::test]
async fn a_page_of_many_files_is_let_go_by_what_waits() {
    let directory = tempfile::tempdir().expect("a directory");
    let files: Vec<String> = (0..300)
        .map(|number| {
            format!(r#"{{"filename": "foo-{number}.zip", "url": "https://u.example/foo-{number}.zip", "hashes": {{}}}}"#)
        })
        .collect();
    let page = format!(
        r#"{{"meta": {{"api-version": "1.1"}}, "name": "foo", "files": [{}]}}"#,
        files.join(",")
    );
    let (mirrors, mirror) = mirrors(directory.path(), &[("page/foo", page.as_bytes())]);
    let name = ProjectName::parse("foo").expect("a name");
    let subject = Subject::Project(name.clone());
    let known = mirrors.remembered(&mirror, &subject).await.expect("it is there");
    assert_eq!(known.files(), 300);
    let kept = PageHandle::of(&known);
    drop(known);
    let is_in_memory = || matches!(&kept, PageHandle::Weak(known) if known.upgrade().is_some());
    assert!(is_in_memory(), "the cache has it");
    mirrors.pages.clear();
    assert!(!is_in_memory(), "nothing else has it");
    let again = mirrors.again(&mirror, &name, &kept).await.expect("it is on disk");
    assert_eq!(again.files(), 300);
}

/// While a page of many files is read or rendered, no other one is, and others are.
#[tokio::test]
async fn one_page_of_many_files_is_used_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mirrors, _) = mirrors(directory.path(), &[]);
    let large = mirrors.turn_to_use(MANY_FILES + 1).await.expect("a place");
    let _small = mirrors.turn_to_use(1).await.expect("a place");
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> =
        (2..USING_MAX).map(|_| Box::pin(mirrors.turn_to_use(MANY_FILES + 1))).collect();
    assert!(waiting.iter_mut().all(|it| it.as_mut().poll(&mut context).is_pending()));
    let refused = mirrors.turn_to_use(1).await.expect_err("there is no place");
    assert!(refused.is_busy, "{refused}");
    drop(large);
    assert!(waiting[0].as_mut().poll(&mut context).is_ready());
}

/// The server that this one follows: its answers, each once, and how often one was of no use.
#[derive(Default)]
struct Answers {
    ready: Mutex<Vec<(u16, &'static [u8])>>,
    asked: Mutex<Vec<String>>,
    failures: AtomicU64,
}

impl Ahead for Answers {
    fn ask(
        &self,
        path: String,
        headers: http::HeaderMap,
        _is_forced: bool,
    ) -> futures_util::future::BoxFuture<'_, Option<reqwest::Response>> {
        let tag = headers.get("if-none-match").map_or("", |tag| tag.to_str().expect("text"));
        lock(&self.asked).push(format!("{path} {tag}"));
        let answer = lock(&self.ready).pop().map(|(status, body)| {
            let answer = http::Response::builder().status(status).header("age", "10");
            answer.header("etag", "\"tag\"").body(body).expect("an answer").into()
        });
        Box::pin(std::future::ready(answer))
    }

    fn failed(&self, _: &UpstreamError) {
        self.failures.fetch_add(1, Relaxed);
    }
}

/// Where upstream is not asked, everything comes from the server that this one follows, with its age; what has another digest
/// does not count, and is told.
#[tokio::test]
async fn what_comes_from_a_primary_is_read_as_from_upstream() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mirrors, mirror) = mirrors(directory.path(), &[]);
    mirrors.set_offline(true);
    let answers = Arc::new(Answers::default());
    mirrors.ask_first(answers.clone());
    let say = |answer: (u16, &'static [u8])| lock(&answers.ready).push(answer);
    let name = ProjectName::parse("foo").expect("a name");
    let refused = mirrors.project(&mirror, &name, false).await.expect_err("nobody has it");
    assert!(refused.is_offline, "{refused}");

    let page = br#"{"meta": {"api-version": "1.1"}, "name": "foo", "files": [{"filename": "foo-1.zip", "url": "https://u.example/foo-1.zip",
        "hashes": {"sha256": "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"}}, {"filename": "foo-2.zip",
        "url": "https://u.example/foo-2.zip", "hashes": {}, "_first-seen": "2026-01-31T12:00:00Z"}]}"#;
    say((200, page));
    let found = mirrors.project(&mirror, &name, false).await.expect("a page").known;
    let age = std::time::SystemTime::now().duration_since(found.confirmed_at());
    assert!(age.expect("it was before") >= Duration::from_secs(10));
    let seen = found.page().and_then(|page| page.files[1].first_seen).map(|it| it.to_string());
    assert_eq!(seen.as_deref(), Some("2026-01-31T12:00:00Z"));
    // It is asked on a condition, and once more, as what it says is older than the question. What upstream does not have is absent.
    say((304, b""));
    say((304, b""));
    let again = mirrors.project(&mirror, &name, true).await.expect("a page").known;
    assert_eq!(again.version, found.version);
    // A page that cannot be read is told, and what is known is served.
    say((200, b"no page"));
    let again = mirrors.project(&mirror, &name, true).await.expect("a page").known;
    assert_eq!((again.version, answers.failures.swap(0, Relaxed)), (found.version, 1));
    let bar = ProjectName::parse("bar").expect("a name");
    say((410, b""));
    let absent = mirrors.project(&mirror, &bar, false).await.expect("an answer").known;
    assert!(absent.page().is_none());
    let path = ["u.example".to_owned(), "foo-1.zip".to_owned()];
    let place = pypi::upstream::MirrorPath::of_upstream(&path).expect("a place");
    for wrong in [b"contents".as_slice(), b"CONTENT"] {
        say((200, wrong));
        assert!(mirrors.file(&mirror, place, false).await.is_err());
    }
    assert_eq!(answers.failures.load(Relaxed), 2);
    say((200, b"content"));
    assert!(mirrors.file(&mirror, place, false).await.is_ok());
    let asked = [
        "team/pypi/+simple/foo ",
        "team/pypi/+simple/foo ",
        "team/pypi/+simple/foo \"tag\"",
        "team/pypi/+simple/foo \"tag\"",
        "team/pypi/+simple/foo \"tag\"",
        "team/pypi/+simple/bar ",
        "team/pypi/+upstream/u.example/foo-1.zip ",
        "team/pypi/+upstream/u.example/foo-1.zip ",
        "team/pypi/+upstream/u.example/foo-1.zip ",
    ];
    assert_eq!(*lock(&answers.asked), asked);
}
