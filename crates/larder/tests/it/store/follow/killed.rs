//! `kill -9` of a primary, its follower and the follower of that, in turn, under writes.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::*;
use crate::store::article_request;

const DATA: [&str; 3] = ["data", "second", "third"];

#[test]
fn each_is_killed_in_turn_and_all_show_what_was_acknowledged() {
    let Primary { directory, server, .. } = Primary::start();
    fill(&server);
    let lines = [Line::to(server.client.address), Line::new()];
    let start = |at: usize| match at {
        0 => Process::start_in(directory.clone(), DATA[0], &["--aur-enabled=false"]),
        at => follower(&directory, DATA[at], &lines[at - 1].url(), &[]),
    };
    let mut servers = vec![server, start(1)];
    lines[1].leads_to(servers[1].client.address);
    servers.push(start(2));
    let rounds = if is_long() { 120 } else { 6 };
    for round in 0..rounds {
        let (name, client) = (format!("load/{round}-x"), servers[0].client);
        let written = AtomicU32::new(0);
        let killed = round as usize % servers.len();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                for base in 0..30 + round {
                    let request = article_request(&name, base, format!("{base}").as_bytes());
                    match client.try_exchange(&request) {
                        Some((201, _)) => written.store(base + 1, SeqCst),
                        Some((_, text)) => panic!("{text}"),
                        None => return,
                    }
                }
            });
            wait_until("some writes", || written.load(SeqCst) > round * 7 % 25);
            drop(servers.remove(killed));
            writing.join().expect("a writer");
        });
        servers.insert(killed, start(killed));
        if let Some(line) = lines.get(killed) {
            line.leads_to(servers[killed].client.address);
        }
        for follower in &servers[1..] {
            wait_until_equal(follower, &servers[0]);
        }
        let written = u64::from(written.load(SeqCst));
        for server in &servers {
            let history = server.root().json().get(&format!("/article/{name}/history"));
            let latest = history.expect(200).json()["latest"].as_u64().expect("a number");
            assert!((written..=written + 1).contains(&latest), "{latest}, acknowledged {written}");
        }
    }
    for follower in &servers[1..] {
        check_equal(follower, &servers[0]);
        follower.log().lacks("another history");
    }
}
