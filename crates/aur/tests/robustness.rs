//! Sends random and mutated bytes to every entry point: each must return an answer or an error, and never panic.
//!
//! The loops are bounded and seeded, so every run uses the same bytes. The fuzzers in `fuzz/` search further.

use std::io::Write;
use std::sync::LazyLock;

use aur::{
    Answer, Body, DumpError, DumpLimits, Kind, Outcome, Params, PathParams, Query, Snapshot,
};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A valid dump that contains everything a reader can meet.
const DUMP: &str = r#"[
{"ID":1,"Name":"yay","PackageBaseID":1,"PackageBase":"yay","Version":"12.5.0-1","Description":"Yet \"another\" yogurt","URL":"https://example.org","NumVotes":2400,"Popularity":24.595536,"OutOfDate":null,"Maintainer":"jo","Submitter":"jo","FirstSubmitted":1475688004,"LastModified":1660494113,"URLPath":"/x","Depends":["pacman>6","git","git"],"License":["MIT"],"Keywords":["aur","helper"]},
{"ID":2,"Name":"gröbner","PackageBaseID":2,"PackageBase":"Gröbner","Version":"1:0-1","Description":"\u0000 日本語 😀 \ud83d\ude00 100% \\","URL":null,"NumVotes":0,"Popularity":0.0,"OutOfDate":1600000000,"Maintainer":null,"FirstSubmitted":0,"LastModified":-1,"Provides":["lib.so=1-64"],"Groups":[],"CoMaintainers":["kim"],"Unknown":{"a":[1e9,{"b":true}]}} ,
	{"ID":3,"Name":"a","PackageBaseID":3,"PackageBase":"a","Version":"1","NumVotes":1,"Popularity":1e-6,"FirstSubmitted":1,"LastModified":1}
]
"#;

/// Small limits, so that small bombs exceed them.
const LIMITS: DumpLimits = DumpLimits { dump_bytes_max: 1 << 20, record_bytes_max: 16 << 10 };

static SNAPSHOT: LazyLock<Snapshot> =
    LazyLock::new(|| aur::dump::read(DUMP.as_bytes(), &LIMITS).expect("a valid dump"));

/// Pseudo-random numbers (xorshift64*), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }

    fn bytes(&mut self, size_max: usize) -> Vec<u8> {
        (0..self.below(size_max + 1)).map(|_| self.next() as u8).collect()
    }

    /// `bytes` with one to four changes: bits flipped, pieces removed, inserted or doubled, or the end cut off.
    fn mutated(&mut self, bytes: &[u8], pieces: &[&str]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(40)).min(bytes.len());
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 => drop(bytes.drain(at..end)),
                2 => bytes.truncate(at),
                3 => {
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                4 => {
                    let piece = self.bytes(6);
                    bytes.splice(at..at, piece);
                }
                _ => {
                    let piece = self.pick(pieces).as_bytes().to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }
}

/// Asks `params` in every way. Each answer must be JSON, or JSON in a callback, and report what became of the query.
fn check(params: &Params, context: &dyn std::fmt::Debug) {
    for (speaks_6, results_max) in [(false, 5_000), (true, 0), (true, 1), (true, usize::MAX)] {
        let answer = Answer::to(params.clone(), &SNAPSHOT, speaks_6, results_max);
        let is_answered = matches!(answer.outcome, Outcome::Answered(..));
        let is_understood = Query::parse(params.clone(), speaks_6).is_ok();
        assert!(is_understood || !is_answered, "{context:?}");
        let text = std::str::from_utf8(&answer.reply.body).expect("UTF-8");
        if answer.reply.content_type == "text/javascript" {
            assert!(text.starts_with("/**/") && text.ends_with(')'), "{text} for {context:?}");
            continue;
        }
        let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
        if let Some(results) = value.get("results") {
            let count = results.as_array().expect("a list").len();
            assert_eq!(value["resultcount"], count, "{context:?}");
            assert!(count <= results_max, "{context:?}");
        }
        assert_eq!(value.get("error").is_some(), !is_answered, "{context:?}");
    }
}

const QUERIES: [&str; 8] = [
    "v=5&type=info&arg[]=yay&arg%5B%5D=gr%C3%B6bner",
    "v=5&type=search&by=depends&arg=pacman",
    "v=5&type=search&arg=yet+%22an&mode=starts-with",
    "v=5&type=msearch&arg=jo&callback=f()",
    "v=6&type=search&by=name-desc&arg=yet+yog",
    "v=6&type=info&by=provides&arg=lib.so&arg=git",
    "v=5&type=opensearch-suggest-pkgbase&arg=gr%2B",
    "by=name&v=+5.0&type=suggest&arg=",
];

const QUERY_PIECES: [&str; 20] = [
    "&",
    "=",
    "+",
    "%",
    "%00",
    "%zz",
    "%26",
    "%3d",
    "%ff",
    "arg=",
    "arg[]=",
    "arg%5b%5d=",
    "v=6",
    "&v=99999999999999999999",
    "&type=search",
    "&by=",
    "&mode=",
    "&callback=",
    "\u{0}",
    "é日😀",
];

#[test]
fn query_strings() {
    let mut random = Random(1);
    for round in 0..6_000 {
        let bytes = if round % 4 == 0 {
            random.bytes(80)
        } else {
            let query = random.pick(&QUERIES);
            random.mutated(query.as_bytes(), &QUERY_PIECES)
        };
        let query = String::from_utf8_lossy(&bytes);
        check(&Params::from_query(PathParams::default(), Some(&query)), &query);
    }
}

#[test]
fn paths() {
    let mut random = Random(2);
    let parts = [
        "",
        "5",
        "6",
        "05",
        "-5",
        "5.",
        "info",
        "multiinfo",
        "search",
        "msearch",
        "suggest",
        "suggest-pkgbase",
        "name",
        "name-desc",
        "depends",
        "contains",
        "starts-with",
        "ya",
        "yay",
        "a b",
        "\u{0}",
        "+",
        "/",
        "..",
        "%2f",
        "日本",
    ];
    let part = |random: &mut Random| match random.below(6) {
        0 => None,
        1 => Some(String::from_utf8_lossy(&random.bytes(12)).into_owned()),
        _ => Some(random.pick(&parts).to_owned()),
    };
    for _ in 0..6_000 {
        let path = PathParams {
            version: part(&mut random),
            type_: part(&mut random),
            by: part(&mut random),
            mode: part(&mut random),
            arg: part(&mut random),
        };
        let query = random.pick(&QUERIES);
        let query = String::from_utf8(random.mutated(query.as_bytes(), &QUERY_PIECES)).ok();
        check(&Params::from_query(path.clone(), query.as_deref()), &(path, query));
    }
}

#[test]
fn bodies() {
    let mut random = Random(3);
    let json_pieces = [
        "{", "}", "[", "]", "\"", ":", ",", "null", "-", "1e999", "\\ud800", "\\", "\"arg\":",
        "\"by\":0", "[[[[", "\u{feff}", "true",
    ];
    let jsons = [
        r#"{"arg":["yay",null,"",1,true,"gröbner"]}"#,
        r#"{"arg":"ya","by":"name","mode":"contains"}"#,
        r#"{"arg":{},"by":null}"#,
    ];
    for round in 0..6_000 {
        let kind = Kind::ALL[random.below(Kind::ALL.len())];
        let path = match random.below(3) {
            0 => PathParams::default(),
            version => PathParams {
                version: Some(if version == 1 { "5" } else { "6" }.to_owned()),
                type_: Some(kind.name().to_owned()),
                ..PathParams::default()
            },
        };
        let bytes = match round % 5 {
            0 => random.bytes(80),
            1 | 2 => {
                let form = random.pick(&QUERIES);
                random.mutated(form.as_bytes(), &QUERY_PIECES)
            }
            _ => {
                let json = random.pick(&jsons);
                random.mutated(json.as_bytes(), &json_pieces)
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        let fields: Vec<(String, String)> = text
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        let query = random.pick(&["", "by=name", "arg=x&v=5", "type=info"]);
        for body in [Body::Form(&bytes), Body::Json(&bytes), Body::Fields(&fields)] {
            check(&Params::from_body(path.clone(), Some(query), body), &(&path, query, body));
        }
    }
}

#[test]
fn deep_and_long_bodies() {
    let path = PathParams {
        version: Some("5".into()),
        type_: Some("info".into()),
        ..PathParams::default()
    };
    let deep = "[".repeat(100_000);
    let wide = format!("{{\"arg\":[{}\"x\"]}}", "\"yay\",".repeat(100_000));
    let long = format!("{{\"arg\":[\"{}\"]}}", "x".repeat(1 << 20));
    let form = "&arg[]=yay".repeat(100_000);
    for text in [deep, wide, long, form] {
        for body in [Body::Json(text.as_bytes()), Body::Form(text.as_bytes())] {
            check(&Params::from_body(path.clone(), None, body), &"a large body");
        }
        check(&Params::from_query(PathParams::default(), Some(&text)), &"a long query");
    }
}

/// Reads `bytes` as a dump. An error must give a position or a reason; a snapshot must answer.
fn check_dump(bytes: &[u8]) -> bool {
    match aur::dump::read(bytes, &LIMITS) {
        Ok(snapshot) => {
            assert!(snapshot.package_count() > 0);
            let params = Params::from_query(PathParams::default(), Some("v=6&type=search&arg=++"));
            let answer = Answer::to(params, &snapshot, true, usize::MAX);
            let value: serde_json::Value =
                serde_json::from_slice(&answer.reply.body).expect("JSON");
            assert_eq!(value["resultcount"], snapshot.package_count());
            true
        }
        Err(error) => {
            let text = error.to_string();
            match error {
                DumpError::Truncated { line, column, expected } => {
                    assert!(line >= 1 && column >= 1 && !expected.is_empty(), "{text}");
                }
                DumpError::Malformed { line, column, problem } => {
                    assert!(line >= 1 && column >= 1 && !problem.is_empty(), "{text}");
                    let lines = 1 + bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
                    assert!(line <= lines || bytes.starts_with(&[0x1f]), "{text}");
                }
                DumpError::Read(_)
                | DumpError::Empty
                | DumpError::TooLarge { .. }
                | DumpError::TooDeep => {
                    assert!(text.len() > 10, "{text}");
                }
            }
            false
        }
    }
}

const DUMP_PIECES: [&str; 18] = [
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "\\ud800",
    "null",
    "-",
    "1e999",
    "\n\n",
    "\u{feff}",
    "\"Name\":\"x\",",
    "{\"ID\":1}",
    "\u{1f}",
];

#[test]
fn dumps() {
    let mut random = Random(4);
    assert!(check_dump(DUMP.as_bytes()));
    let mut taken_count = 0;
    for round in 0..1_500 {
        let bytes = if round % 10 == 0 {
            random.bytes(60)
        } else {
            random.mutated(DUMP.as_bytes(), &DUMP_PIECES)
        };
        taken_count += u32::from(check_dump(&bytes));
    }
    // Some mutations are harmless: the loop must reach both outcomes.
    assert!((20..1_400).contains(&taken_count), "{taken_count}");
}

#[test]
fn every_cut() {
    for end in 0..DUMP.trim_end().len() {
        assert!(!check_dump(&DUMP.as_bytes()[..end]), "{end}");
    }
}

#[test]
fn compressed_dumps() {
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("gzip");
        encoder.finish().expect("gzip")
    };
    let mut random = Random(5);
    let whole = gzip(DUMP.as_bytes());
    let twice = gzip(&whole);
    assert!(check_dump(&whole) && check_dump(&twice));
    for _ in 0..400 {
        check_dump(&gzip(&random.mutated(DUMP.as_bytes(), &DUMP_PIECES)));
        check_dump(&random.mutated(&whole, &["\u{1f}", "\u{0}"]));
        check_dump(&random.mutated(&twice, &["\u{1f}", "\u{0}"]));
        check_dump(&gzip(&random.mutated(&whole, &["\u{1f}", "\u{0}"])));
    }
    for end in 0..whole.len() {
        assert!(!check_dump(&whole[..end]), "{end}");
    }
    // A bomb: its compressed size is a thousandth of what it holds.
    let bomb = gzip(&vec![b' '; 8 << 20]);
    let error = aur::dump::read(&bomb[..], &LIMITS).expect_err("a bomb");
    assert!(matches!(error, DumpError::TooLarge { .. }), "{error}");
}
