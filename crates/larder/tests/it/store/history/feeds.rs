//! Followers of the feeds: one for each process and surface, which asks again and again from where it was.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::Run;
use super::record::{Sent, send};
use crate::PATIENCE;
use crate::server::ROOT;

/// Follows a feed of one process until the run is over and it has everything.
pub(super) fn follow(run: &Run, process: usize, surface: &str) {
    // The position as the feed names it, its serial, and the run of the process that answered last.
    let mut at: Option<(String, u64, u32)> = None;
    // The answers of a new run up to the first that has no more.
    let (mut is_catching_up, mut starts_over) = (false, false);
    let mut over_since = None;
    loop {
        let is_over = run.is_over.load(SeqCst);
        let over_for = is_over.then(|| over_since.get_or_insert_with(Instant::now).elapsed());
        assert!(
            over_for < Some(PATIENCE),
            "the feed of process {process} does not come to its end"
        );
        let server = run.servers.lock().expect("no panic")[process];
        if let Some((address, number)) = server {
            let since = at.as_ref().map(|(since, ..)| format!("&since={since}"));
            let target =
                format!("/changes?surface={surface}&limit=10000{}", since.unwrap_or_default());
            let request = format!(
                "GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {}\r\n\r\n",
                ROOT.1
            );
            match send(address, request.as_bytes(), false) {
                Sent::Answered(answer) if answer.status == 200 => {
                    let text = answer.text();
                    let mut lines: Vec<Value> = text
                        .lines()
                        .map(|line| serde_json::from_str(line).expect("JSON"))
                        .collect();
                    let last = lines.pop().expect("the position");
                    let next = last["next"].as_str().expect("a position").to_owned();
                    let to = serial(&next);
                    if let Some((_, from, known)) = &at {
                        is_catching_up |= *known != number;
                        run.recorder.write(&json!({
                            "type": "feed", "process": process, "surface": surface, "from": from, "to": to,
                            "restarted": is_catching_up, "start_over": starts_over, "lines": lines,
                        }));
                    }
                    starts_over = false;
                    is_catching_up &= last["more"] == true;
                    at = Some((next, to, number));
                    if is_over && to >= run.seen.load(SeqCst) {
                        return;
                    }
                }
                Sent::Answered(answer) if answer.status == 410 => {
                    run.recorder.fault("a feed that starts over");
                    let oldest = answer.json()["oldest_position"].as_str().map(str::to_owned);
                    starts_over = true;
                    if let (Some(at), Some(oldest)) = (&mut at, oldest) {
                        at.0 = oldest;
                    }
                }
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn serial(position: &str) -> u64 {
    let (serial, _) = position.split_once('.').unwrap_or((position, ""));
    serial.parse().expect("a serial")
}
