//! Many writers and readers of one article at the same time.

use std::future::ready;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{store, wiki, wiki_with};
use crate::SetAtEnd;
use crate::client::Response;
use crate::server::{TestServer, wait_for};

const WRITERS: usize = 50;
const ROUNDS: usize = 6;

#[test]
fn of_fifty_writers_one_wins_each_round() {
    let server = wiki();
    // The password is remembered from here on.
    store(&server, "other/0", b"x");
    let barrier = Barrier::new(WRITERS);
    let won: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (barrier, server) = (&barrier, &server);
                scope.spawn(move || {
                    (0..ROUNDS)
                        .map(|round| {
                            barrier.wait();
                            let body = format!("round {round} of writer {writer}\n");
                            let target = format!("/article/a/{round}?comment={writer}");
                            let response = server.root().post(&target, body.as_bytes());
                            check_round(&response, round);
                            response.status == 201
                        })
                        .collect()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    for round in 0..ROUNDS {
        let winners = won.iter().enumerate().filter(|(_, rounds)| rounds[round]);
        let winners: Vec<usize> = winners.map(|(writer, _)| writer).collect();
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let version = server.get(&format!("/article/a/{}", round + 1));
        assert_eq!(version.text(), format!("round {round} of writer {}\n", winners[0]));
    }
    let history = server.get("/article/a/history").json();
    let versions = history["versions"].as_array().expect("versions").iter();
    let versions: Vec<u64> = versions.map(|it| it["version"].as_u64().expect("a number")).collect();
    assert_eq!(versions, (1..=ROUNDS as u64).rev().collect::<Vec<_>>());
}

#[track_caller]
fn check_round(response: &Response, round: usize) {
    let json = response.json();
    match response.status {
        201 => assert_eq!(json["version"], round + 1),
        // A refused writer is told which revision won.
        409 => {
            assert_eq!(json["latest_version"], round + 1, "{json}");
            assert_eq!(json["base_version"], round, "{json}");
        }
        status => panic!("{status}: {json}"),
    }
}

/// A decision on an older state is made again on the next one, but not forever.
#[test]
fn a_write_is_decided_anew() {
    use operations::imports::ImportRecords;
    use operations::{ATTEMPTS_MAX, Refusal, Sender, carry_out, carry_out_with};
    use record::{Batch, Expected, Key, Serial};
    use state::stored::WriteFailure;

    let server = wiki();
    let mut keeper = server.app.keeper();
    let batch = |expected| {
        let key = Key::new("note/decided").expect("a key");
        Batch::new().put(key, expected, "{}", Vec::new())
    };
    // Each finds what the one before it left, or not.
    let mut check = |wrong: u32, decisions: u32| {
        let mut attempts = 0;
        let mut serials = Vec::new();
        let outcome = wait_for(carry_out_with(&mut keeper, &Sender::Server, |basis| {
            attempts += 1;
            serials.push(basis.stored.serial);
            let never = Expected::At(Serial(u64::MAX));
            let expected = if attempts <= wrong { never } else { Expected::Anything };
            ready(Ok(ImportRecords(Some(batch(expected)))))
        }));
        assert_eq!(attempts, decisions);
        outcome.map(|done| done.serial > serials.last().copied())
    };
    assert!(check(0, 1).expect("a commit"));
    assert!(check(2, 3).expect("a commit"));
    let overtaken = check(u32::MAX, ATTEMPTS_MAX);
    assert!(matches!(overtaken, Err(Refusal::Failed(WriteFailure::Overtaken))));
    let nothing = ImportRecords(Some(Batch::new()));
    let nothing = carry_out(&mut keeper, &Sender::Server, &nothing);
    assert_eq!(wait_for(nothing).expect("nothing to commit").serial, None);
}

/// A page of one version: every line names it, so that a torn or mixed one shows.
fn page(version: u64) -> Vec<u8> {
    let lines = 200 + 40 * (version as usize % 7);
    format!("this is version {version}\n").repeat(lines).into_bytes()
}

#[track_caller]
fn check_reader(server: &TestServer) {
    let is_over = AtomicBool::new(false);
    const VERSIONS: u64 = 60;
    std::thread::scope(|scope| {
        let ending = SetAtEnd(&is_over);
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || {
                    let (mut seen, mut reads, mut tag) = (0, 0_u64, String::new());
                    while !is_over.load(Relaxed) {
                        let headers = match reader {
                            0 | 1 => vec![],
                            2 => vec![("Range", "bytes=0-")],
                            _ => vec![("If-None-Match", tag.as_str())],
                        };
                        let response = server.client.get_with("/article/a", &headers);
                        let version: u64 =
                            response.header("x-article-version").parse().expect("a version");
                        assert!(version >= seen, "{version} after {seen}");
                        if response.status == 304 {
                            assert_eq!(version, seen, "nothing new is the same version");
                        } else {
                            assert!(
                                response.body == page(version),
                                "{version}: {}",
                                response.text()
                            );
                        }
                        assert!(response.header("etag").starts_with(&format!("\"{version}-")));
                        tag = response.header("etag").to_owned();
                        (seen, reads) = (version, reads + 1);
                    }
                    reads
                })
            })
            .collect();
        for version in 1..VERSIONS {
            let written = store(server, &format!("a/{version}"), &page(version + 1));
            // It is visible at once.
            let read = server.get("/article/a");
            assert_eq!(read.header("x-article-version"), (version + 1).to_string());
            read.has("etag", written.header("etag"));
        }
        drop(ending);
        for reader in readers {
            assert!(reader.join().expect("a reader") > 0);
        }
    });
}

#[test]
fn a_reader_never_sees_half_a_write() {
    let server = wiki();
    store(&server, "a/0", &page(1));
    check_reader(&server);
}

#[test]
fn nor_does_one_who_reads_from_the_store() {
    let server = wiki_with(|config| config.article.memory_bytes_max = 0);
    store(&server, "a/0", &page(1));
    check_reader(&server);
}

#[test]
fn writers_of_different_articles_do_not_hinder_each_other() {
    let server = wiki();
    store(&server, "other/0", b"x");
    std::thread::scope(|scope| {
        for writer in 0..20 {
            let server = &server;
            scope.spawn(move || {
                for version in 0..5 {
                    store(server, &format!("a/{writer}-x/{version}"), b"text");
                }
            });
        }
    });
    let list = server.get("/articles?prefix=a/").json();
    let list = list["articles"].as_array().expect("a list");
    assert_eq!(list.len(), 20);
    assert!(list.iter().all(|article| article["version"] == 5), "{list:?}");
}
