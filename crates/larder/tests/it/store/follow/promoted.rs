//! A promotion in the middle of it: the primary is killed amid cuts and writes, its follower takes its place, another follower goes
//! over to that, and then the old primary comes back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;
use crate::process::{Done, larder};
use crate::store::article_request;

/// Bytes in which a primary says how far it is, but not all that a follower lacks.
const HELLO_BYTES: usize = 2_000;

/// The serial of the write that was answered so.
fn serial_in(answer: &str) -> Option<u64> {
    let mut lines = answer.lines().take_while(|line| !line.is_empty());
    let value = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-larder-serial").then(|| value.trim().to_owned())
    });
    value?.parse().ok()
}

#[test]
fn a_promotion_amid_cuts_and_writes_loses_what_it_says() {
    let rounds = if is_long() { 30 } else { 2 };
    for round in 0..rounds {
        promote_amid_cuts(round);
    }
}

fn promote_amid_cuts(round: usize) {
    let Primary { directory, server, .. } = Primary::start();
    fill(&server);
    let (near, far) = (Line::to(server.client.address), Line::to(server.client.address));
    let mut second = follower(&directory, "second", &near.url(), &["--follow-blobs", "all"]);
    let third = follower(&directory, "third", &far.url(), &[]);
    let data = |name: &str| directory.path().join(name);
    let wanted = blobs_in(&data("data"));
    wait_until("all files", || blobs_in(&data("second")) == wanted);

    // Serials of acknowledged writes: the number of each is its article's.
    let acknowledged = Mutex::new(Vec::<u64>::new());
    let count = || acknowledged.lock().expect("no panic").len();
    let (client, is_over) = (server.client, AtomicBool::new(false));
    let is_killed_amid_writes = round % 2 == 1;
    let mut server = Some(server);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in 0.. {
                let text = format!("text {at}");
                let request = article_request(&format!("load/n{at}"), 0, text.as_bytes());
                // A killed server gives no answer, or a part of one.
                let Some((status, answer)) = client.try_exchange(&request) else { return };
                assert_eq!(status, 201, "{answer}");
                let Some(serial) = serial_in(&answer) else { return };
                acknowledged.lock().expect("no panic").push(serial);
                if is_over.load(SeqCst) {
                    return;
                }
            }
        });
        for cut in 0..12 {
            match (cut + round) % 4 {
                0 => near.cut_after(cut * 97 % 900 + 1),
                1 => far.cut(),
                2 => near.cut(),
                _ => far.cut_after(cut * 53 % 900 + 1),
            }
            let wanted = count() + 3;
            wait_until("some writes", || count() >= wanted);
        }
        let first = acknowledged.lock().expect("no panic")[0];
        wait_until("a write that is copied", || serial(&second) >= first);
        // From here on this follower hears how far the primary is, and gets nothing of it.
        near.cut_each_after(HELLO_BYTES);
        let behind = || second.metric("larder_follow_serials_behind") as u64;
        wait_until("writes that are not copied", || behind() >= 20);
        if is_killed_amid_writes {
            drop(server.take());
        }
        is_over.store(true, SeqCst);
    });
    let acknowledged = acknowledged.into_inner().expect("no panic");
    let has_heard_all = |server: &Client| {
        let behind = second.metric("larder_follow_serials_behind") as u64;
        serial(&second) + behind == serial(server)
    };
    let mut last = None;
    if let Some(server) = server.take() {
        wait_until("the primary's serial", || has_heard_all(&server));
        last = Some(serial(&server));
        let copied = serial(&second);
        for (at, _) in acknowledged.iter().enumerate().filter(|(_, serial)| **serial <= copied) {
            second.wait_for(&format!("/article/load/n{at}"), &format!("text {at}"));
        }
    }
    let copied = serial(&second);
    second.stop();
    let run = |arguments: &[&str]| Done::of(larder(directory.path()).args(arguments), "");
    let said = run(&["promote", "second"]);
    said.check(1, "nothing was changed");
    let lost = said.stdout.lines().find_map(|line| line.split_once(" lost: the primary was"));
    let lost = lost.and_then(|(count, _)| count.split_once(' ')?.0.parse::<u64>().ok());
    run(&["promote", "second", "--yes"]).check(0, "of generation 1");

    // What was acknowledged and copied is there, and nothing else.
    let new = Process::start_in(directory.clone(), "second", &["--aur-enabled=false"]);
    for (at, serial) in acknowledged.iter().enumerate() {
        let history = new.root().json().get(&format!("/article/load/n{at}/history"));
        let expected = if *serial <= copied { 200 } else { 404 };
        assert_eq!(history.status, expected, "{at}: serial {serial}, copied {copied}");
        if !is_killed_amid_writes && expected == 200 {
            new.get(&format!("/article/load/n{at}")).expect(200).is(format!("text {at}"));
        }
    }

    // The other follower has commits that the new primary lacks, and gives them up.
    write(&new, "by-the-new-one", 0, "by the new one");
    far.leads_to(new.client.address);
    far.cut();
    third.wait_for("/article/by-the-new-one", "by the new one");
    wait_until_equal(&third, &new);
    check_equal(&third, &new);

    // The old primary comes back: nobody follows it, and it learns why.
    let old = Process::start_in(directory.clone(), "data", &["--aur-enabled=false"]);
    let lost = lost.unwrap_or_default();
    match last {
        Some(last) => {
            assert_eq!(lost, last - copied, "{}", said.stdout);
            assert!(lost >= 20, "{}", said.stdout);
        }
        // The last ones were not heard of.
        None => assert!(lost <= serial(&old) - copied, "{}", said.stdout),
    }
    far.leads_to(old.client.address);
    far.cut();
    wait_until("the old primary to be known", || {
        third.get("/readyz?verbose").text().contains("was promoted since")
    });
    third.get("/article/by-the-new-one").expect(200);
    let refused = old.root().post("/article/late/0", "by the old one".as_bytes());
    refused.tells(
        503,
        "a follower of this store was made its primary: nothing is written here any more",
    );
    far.leads_to(new.client.address);
    far.cut();
    write(&new, "by-the-new-one", 1, "and again");
    third.wait_for("/article/by-the-new-one", "and again");
    check_equal(&third, &new);
}
