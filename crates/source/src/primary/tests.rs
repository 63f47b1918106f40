//! A primary that answers as it is told, with dumps that are a few words.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use aur::Compressed;
use aur::delta::Index;
use futures_util::FutureExt as _;

use super::*;
use crate::{Source, SourceNews, SourceOptions};

#[derive(Debug)]
struct Scripted {
    /// Answers by path: status and body.
    answers: Mutex<HashMap<String, (u16, Vec<u8>)>>,
    asked: Mutex<Vec<String>>,
    dump: watch::Sender<Option<u64>>,
    served: Mutex<Option<u64>>,
}

impl Primary for Scripted {
    fn url(&self, path: &str) -> String {
        format!("http://primary{path}")
    }

    fn ask(&self, path: String) -> BoxFuture<'_, Result<Response, String>> {
        let kind = path.split_once('?').map_or(&*path, |(path, _)| path).to_owned();
        locked(&self.asked).push(kind.clone());
        let answer = locked(&self.answers).get(&path).cloned();
        let answer = answer.or_else(|| locked(&self.answers).get(&kind).cloned());
        async move {
            let (status, body) = answer.ok_or("it is away")?;
            let answer = axum::http::Response::builder()
                .status(status)
                .header(LAST_MODIFIED, "Thu, 01 Jan 2026 00:00:00 GMT");
            Ok(answer.body(body).expect("an answer").into())
        }
        .boxed()
    }

    fn dump(&self) -> watch::Receiver<Option<u64>> {
        self.dump.subscribe()
    }

    fn is_served(&self, dump: u64) {
        *locked(&self.served) = Some(dump);
    }
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().expect("no panic")
}

const DUMP: &str = "/packages-meta-ext-v1.json.gz";
const DELTA: &str = "/packages-meta-ext-v1.delta.gz";

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    Compressed::Gzip.write(Vec::new(), |out| out.write_all(bytes)).expect("memory")
}

fn sha256(text: &str) -> String {
    crate::spec::sha256_hex(text.as_bytes())
}

fn delta(base: &str, next: &str) -> Vec<u8> {
    let index = Index::read(base.as_bytes()).expect("memory").expect("few pieces");
    let mut lines = Vec::new();
    let delta = Delta::between(&index, next.as_bytes()).expect("little differs");
    delta.write(&mut lines).expect("memory");
    lines
}

/// A source that follows a primary.
struct FollowingSource {
    primary: Arc<Scripted>,
    source: Source,
    directory: tempfile::TempDir,
}

impl FollowingSource {
    fn new() -> FollowingSource {
        let directory = tempfile::tempdir().expect("a directory");
        let primary = Arc::new(Scripted {
            answers: Mutex::default(),
            asked: Mutex::default(),
            dump: watch::Sender::new(None),
            served: Mutex::default(),
        });
        let options = SourceOptions { dump_bytes_max: 1_000, ..SourceOptions::default() };
        let source = Source::of_primary(primary.clone(), options, directory.path());
        FollowingSource { primary, source: source.expect("a source"), directory }
    }

    fn answers(&self, path: &str, status: u16, body: Vec<u8>) {
        locked(&self.primary.answers).insert(path.to_owned(), (status, body));
    }

    /// The primary has another dump, whole and as a delta from `base` with these lines.
    fn has(&self, dump: u64, content: &str, delta: Option<(&str, &[u8])>) {
        locked(&self.primary.answers).clear();
        self.answers(DUMP, 200, gzipped(content.as_bytes()));
        self.answers(DELTA, 410, Vec::new());
        if let Some((base, lines)) = delta {
            self.answers(&format!("{DELTA}?since={}", sha256(base)), 200, gzipped(lines));
        }
        self.primary.dump.send_replace(Some(dump));
    }

    /// Waits for the announcement and polls; expects this dump, for which these paths are asked, and accepts it.
    #[track_caller]
    fn check(&mut self, content: Option<&str>, paths: &[&str]) {
        locked(&self.primary.asked).clear();
        let found = run(async {
            self.source.wait().await;
            self.source.poll(false).await
        });
        let found = found.expect("no error").map(|news| match news {
            SourceNews::Dump(arrival) => arrival,
            SourceNews::Changes(_) => panic!("a primary gives dumps"),
        });
        let read = found.as_ref().map(|arrival| {
            let date = httpdate::fmt_http_date(arrival.modified_at.expect("a date"));
            assert_eq!(date, "Thu, 01 Jan 2026 00:00:00 GMT");
            let directory = self.directory.path();
            let (mut file, _) = unpacked(arrival.file().clone(), directory, 1_000).expect("read");
            let mut text = String::new();
            io::Seek::rewind(&mut file).expect("a file");
            file.read_to_string(&mut text).expect("text");
            text
        });
        assert_eq!(read.as_deref(), content);
        assert_eq!(*locked(&self.primary.asked), paths);
        if let Some(arrival) = &found {
            self.source.accepted(arrival);
        }
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

#[test]
fn what_differs_is_fetched_when_the_primary_says_so() {
    let mut following = FollowingSource::new();
    let (one, two, three) = ("one, and more", "two, and more", "three, and more");
    // Nobody is asked before the primary has said anything.
    assert!(run(following.source.poll(true)).expect("no error").is_none());
    following.has(1, one, None);
    following.check(Some(one), &[DUMP]);
    assert_eq!(*locked(&following.primary.served), Some(1));
    following.has(2, two, Some((one, &delta(one, two))));
    following.check(Some(two), &[DELTA]);
    following.has(3, three, Some((two, &delta(two, three))));
    following.check(Some(three), &[DELTA]);
    // The connection was lost: it says again what it has.
    following.primary.dump.send_replace(None);
    following.primary.dump.send_replace(Some(3));
    following.check(None, &[]);
    // Another number for the same dump.
    following.has(4, three, Some((three, &delta(three, three))));
    following.check(None, &[DELTA]);
    assert_eq!(*locked(&following.primary.served), Some(4));
}

#[test]
fn without_a_delta_that_fits_the_whole_dump_is_fetched() {
    let mut following = FollowingSource::new();
    let (one, two) = ("one, and more", "two, and more");
    following.has(1, one, None);
    following.check(Some(one), &[DUMP]);
    let other = |from: &str, to: &str| {
        let head =
            format!(r#"{{"format":1,"from":"{}","to":"{}","bytes":9}}"#, sha256(from), sha256(to));
        format!("{head}\n[0,9]\n").into_bytes()
    };
    let large = format!("{}\n[0,13]", String::from_utf8_lossy(&other(one, two)).trim_end());
    let large = large.replace("[0,13]", &"[0,13]\n".repeat(100));
    let (mut current, mut next, mut number) = (one, two, 1);
    for lines in [
        // It makes another dump, or one of another dump, or one that is too large, or it is none.
        other(one, two),
        other(two, one),
        large.into_bytes(),
        b"{}".to_vec(),
        Vec::new(),
    ] {
        number += 1;
        following.has(number, next, Some((current, &lines)));
        following.check(Some(next), &[DELTA, DUMP]);
        std::mem::swap(&mut current, &mut next);
    }
    // It has no delta from there.
    following.has(9, next, None);
    following.check(Some(next), &[DELTA, DUMP]);
}

#[test]
fn a_primary_that_does_not_answer_is_asked_again() {
    let mut following = FollowingSource::new();
    following.has(1, "one", None);
    following.answers(DUMP, 503, Vec::new());
    let error = run(following.source.poll(false)).expect_err("refused").to_string();
    assert_eq!(
        error,
        format!("`http://primary{DUMP}` answered 503 Service Unavailable, expected 200 or 304")
    );
    assert_eq!((following.source.failures(), following.source.error()), (1, Some(&*error)));
    following.has(1, "one", None);
    following.check(Some("one"), &[DUMP]);
    assert_eq!(following.source.error(), None);
    // Too busy for a delta: too busy for all of it.
    following.has(2, "two", None);
    following.answers(DELTA, 503, Vec::new());
    run(following.source.poll(false)).expect_err("refused");
    // A dump that is larger than any.
    following.has(3, &"x".repeat(3), None);
    following.answers(DUMP, 200, vec![0; 1_001]);
    let error = run(following.source.poll(false)).expect_err("refused").to_string();
    assert!(error.contains("more than 1000 bytes"), "{error}");
}
