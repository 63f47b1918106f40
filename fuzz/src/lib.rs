//! What the fuzzers share: a small catalogue, and what every answer must be like.

use std::io::{self, Read};
use std::sync::LazyLock;

use aur::{Answer, DumpLimits, Params, Snapshot};

/// The dump behind the fuzzers: few packages, odd ones among them.
pub const DUMP: &str = include_str!("../seeds/dump/small.json");

/// The catalogue of [`DUMP`].
pub static SNAPSHOT: LazyLock<Snapshot> = LazyLock::new(|| {
    aur::dump::read(DUMP.as_bytes(), &DumpLimits::default()).expect("the seed is a dump")
});

/// Asks the catalogue and checks the form of the answer: one line of JSON, or of JSON in a callback.
pub fn check_question(params: &Params) {
    for speaks_6 in [false, true] {
        for results_max in [0, 3, 5_000] {
            check_answer(
                &Answer::to(params.clone(), &SNAPSHOT, speaks_6, results_max),
                results_max,
            );
        }
    }
}

/// Checks the form of an answer with at most `results_max` packages.
pub fn check_answer(answer: &Answer, results_max: usize) {
    let reply = &answer.reply;
    let text = std::str::from_utf8(&reply.body).expect("an answer is UTF-8");
    let json = match reply.content_type {
        "text/javascript" => {
            let open = text.find("({").or_else(|| text.find("([")).expect("a callback is called");
            assert!(text.starts_with("/**/"), "{text}");
            // A callback's name may itself end with a line break or hold parentheses.
            text[open + 1..].strip_suffix(')').expect("the call is closed")
        }
        _ => text,
    };
    assert!(!json.contains('\n'), "an answer is one line: {json}");
    let value: serde_json::Value = serde_json::from_str(json).expect("an answer is JSON");
    if let Some(object) = value.as_object() {
        let results = object["results"].as_array().expect("results are a list");
        assert_eq!(object["resultcount"], results.len(), "{json}");
        assert!(results.len() <= results_max, "{json}");
    }
}

/// A source that gives its bytes in small pieces of changing size, as a socket does.
pub struct Pieces<'a> {
    rest: &'a [u8],
    size: usize,
}

impl<'a> Pieces<'a> {
    /// The bytes in pieces of one to seven.
    pub fn of(bytes: &'a [u8]) -> Pieces<'a> {
        Pieces { rest: bytes, size: 0 }
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.size = self.size % 7 + 1;
        let size = self.size.min(buffer.len()).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(size);
        buffer[..size].copy_from_slice(piece);
        self.rest = rest;
        Ok(size)
    }
}

/// Bounds that keep bombs small.
pub const LIMITS: DumpLimits = DumpLimits { dump_bytes_max: 1 << 20, record_bytes_max: 16 << 10 };

/// Reads `bytes` as a dump; a dump that is taken must be JSON, and what is made of it must answer.
pub fn check_dump(bytes: &[u8]) {
    let read = aur::dump::read(bytes, &LIMITS);
    match &read {
        Ok(snapshot) => {
            assert!(snapshot.package_count() > 0);
            for query in [
                "v=6&type=search&by=name-desc&arg=+++",
                "v=5&type=search&by=maintainer",
                "v=5&type=suggest&arg=",
            ] {
                let params = Params::from_query(aur::PathParams::default(), Some(query));
                check_answer(&Answer::to(params, snapshot, true, usize::MAX), usize::MAX);
            }
            for list in aur::List::ALL {
                for compressed in aur::Compressed::ALL {
                    assert!(!snapshot.list(list, compressed).is_empty());
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    // Of several errors, which one is told depends on how much was looked at together; that there is one does not.
    if bytes.len() < 4_096 {
        let shown = |read: Result<Snapshot, aur::DumpError>| {
            read.ok().map(|snapshot| (snapshot.package_count(), snapshot.package_base_count()))
        };
        let in_pieces = aur::dump::read(Pieces::of(bytes), &LIMITS);
        assert_eq!(shown(read), shown(in_pieces), "whole and in pieces");
    }
}
