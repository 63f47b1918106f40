//! Lists of projects of a hostile upstream, as long as one may be: a list is read piece by piece, so that it takes little more memory than
//! the names that are kept of it.

use std::fmt::Write as _;

use testbed::{Offer, Upstream};

use super::memory::{STRANGERS_BYTES_MAX, at_rest};
use super::upstream_pages::{add_mirror, asked, start};

/// Memory for names while they are collected, and what each of them takes besides its bytes.
const NAMES_BYTES_MAX: usize = 28 << 20;
const SPAN_BYTES: usize = 8;

/// A list with this many names of this length, unsorted, and with the further members `more`.
fn list(names: usize, length: usize, more: &str) -> Vec<u8> {
    let mut list = format!("{{\"meta\":{{\"api-version\":\"1.1\"}}{more},\"projects\":[");
    for at in 0..names {
        let separator = if at == 0 { "" } else { "," };
        // The factor is odd, so no two are the same.
        let name = (at as u32).wrapping_mul(0x9e37_79b1);
        _ = write!(list, "{separator}{{\"name\":\"{name:0length$x}\"}}");
    }
    list.push_str("]}");
    list.into_bytes()
}

#[test]
fn lists_of_a_hostile_upstream() {
    let upstream = Upstream::start();
    let process = start();
    let most = |length: usize| NAMES_BYTES_MAX / (length + SPAN_BYTES);
    let blank = " ".repeat(100 << 20);
    let members = format!(",\"x\":[{}0]", "{\"name\":0},".repeat(2 << 20));
    let mut failures = Vec::new();
    for (what, body, expected) in [
        ("few", list(10, 8, ""), "404"),
        ("usual", list(most(15), 15, ""), "404"),
        ("short", list(most(8), 8, ""), "404"),
        ("more", list(most(15) + 1, 15, ""), "502"),
        ("blank", list(10, 8, &blank), "404"),
        ("members", list(10, 8, &members), "404"),
    ] {
        upstream.offer(&format!("/{what}/"), Offer::json(body));
        add_mirror(&process, what, &upstream.url(&format!("/{what}/")), false);
        let rest = at_rest(&process);
        process.forget_memory_peak();
        // A name that is not on the list: the list is all that upstream is asked for.
        let status = asked(&process, &format!("root/{what}"), "+simple/absent/", "");
        let taken = process.memory_peak_bytes().saturating_sub(rest);
        let line = format!("{what}: {status}, {} MiB above rest", taken >> 20);
        eprintln!("{line}");
        if taken > STRANGERS_BYTES_MAX || status != expected {
            failures.push(line);
        }
        // The next list takes its place in the memory of the test.
        upstream.offer(&format!("/{what}/"), Offer::status(500));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
