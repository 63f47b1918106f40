//! Pages of a hostile upstream, as large as one may be, in every form that anybody may ask for. What a page takes while it is read,
//! kept and rendered is bounded like everything else that strangers cause, in builds without optimization, too. The caches of pages
//! are as small as they can be here, so that each request reads and renders its page anew, and so that nothing else is counted.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use testbed::{Offer, Upstream};

use super::memory::{STRANGERS_BYTES_MAX, at_rest};
use crate::asking::each;
use crate::process::{Process, init};

/// Whose the mirrors are.
const OWNER: &str = "root";

/// The most files that a page may have.
const FILES: usize = 40_000;

/// The most of those that the public index has, by the memory that they take.
const USUAL_FILES: usize = 32_000;

/// Projects with such pages.
const AT_ONCE: usize = 5;

/// The bytes that a page may have.
const PAGE_BYTES: usize = 32 << 20;

/// What one asks for: the path below the stage, and headers.
const FORMS: [(&str, &str); 9] = [
    ("+simple/{}/", "Accept: application/vnd.pypi.simple.v1+json"),
    ("+simple/{}/", "Accept: application/vnd.pypi.simple.v1+json\r\nAccept-Encoding: gzip"),
    ("+simple/{}/", "Accept: text/html\r\nUser-Agent: pip/26.0"),
    ("+simple/{}/", "Accept: text/html\r\nAccept-Encoding: zstd"),
    ("+simple/{}/", "Accept: application/vnd.pypi.simple.v1+json\r\nX-Devpi-Absolute-URLs: 1"),
    ("{}", "Accept: application/json"),
    ("{}", "Accept: text/html"),
    ("{}?versions=all", "Accept: text/html"),
    ("pypi/{}/json", "Accept: application/json"),
];

/// A page as JSON: `file` adds the members of a file besides its name, its URL and its digests.
fn json_page(project: &str, files: usize, file: &str, more: &str) -> Vec<u8> {
    let mut page = format!("{{\"meta\":{{\"api-version\":\"1.1\"}}{more},\"files\":[");
    for at in 0..files {
        let separator = if at == 0 { "" } else { "," };
        // Digests that no compression makes shorter than half.
        let digits = format!("{:016x}", (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let digits = digits.repeat(4);
        let name =
            format!("{project}-{}.{}.{at}-cp312-cp312-manylinux_2_17_x86_64.whl", at / 100, at % 7);
        _ = write!(
            page,
            "{separator}{{\"filename\":\"{name}\",\"url\":\"../../packages/{}/{}/{name}\",\
             \"hashes\":{{\"sha256\":\"{digits}\"}}{file}}}",
            &digits[..2],
            &digits[2..64]
        );
    }
    page.push_str("]}");
    page.into_bytes()
}

/// What the files of the public index have.
const USUAL: &str = ",\"requires-python\":\">=3.9\",\"size\":123456,\"upload-time\":\"2026-01-02T03:04:05.678901Z\",\
     \"core-metadata\":{\"sha256\":\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"}";

/// Pages that are refused, by the names of their projects.
fn refused_pages() -> Vec<(&'static str, Offer)> {
    let mut pages = vec![("more", Offer::json(json_page("more", FILES + 1, "", "")))];
    // Characters that are several times as long on a page.
    let quotes = format!(",\"yanked\":\"{}\"", "'".repeat(400));
    pages.push(("quotes", Offer::json(json_page("quotes", FILES, &quotes, ""))));
    let few = format!(",\"yanked\":\"{}\"", "'".repeat(60_000));
    pages.push(("few", Offer::json(json_page("few", 500, &few, ""))));
    let text = ",\"yanked\":\"".to_owned() + &"x".repeat(PAGE_BYTES - 1_000) + "\"";
    pages.push(("text", Offer::json(json_page("text", 1, &text, ""))));
    let depths = ",\"x\":".to_owned() + &"[".repeat(PAGE_BYTES - 1_000);
    pages.push(("depths", Offer::json(json_page("depths", 1, "", &depths))));
    let versions: Vec<String> =
        (0..FILES).map(|at| format!("\"1.{at}.{}\"", "1".repeat(700))).collect();
    let versions = format!(",\"versions\":[{}]", versions.join(","));
    pages.push(("versions", Offer::json(json_page("versions", 1, "", &versions))));
    let link = "<a href=/f/links-1.0.zip data-yanked=\"";
    let attribute = link.to_owned() + &"'".repeat(PAGE_BYTES - 1_000) + "\">";
    pages.push(("links", Offer::of("text/html", attribute)));
    // A byte of this charset becomes three.
    let mut links = Vec::new();
    for at in 0..FILES {
        links.extend(format!("<a href=charset-1.{at}.zip data-requires-python=\"").bytes());
        links.extend([0x80; 600]);
        links.extend(b"\">x</a>");
    }
    pages.push(("charset", Offer::of("text/html; charset=windows-1252", links)));
    pages
}

/// A server whose caches of pages are small.
pub(super) fn start() -> Process {
    let arguments = [
        "--egress-allow",
        "127.0.0.0/8",
        "--python-mirror-memory-bytes-max",
        "1048576",
        "--aur-enabled=false",
    ];
    Process::start(&arguments, init)
}

/// Makes a mirror of `root`.
pub(super) fn add_mirror(process: &Process, name: &str, url: &str, has_no_list: bool) {
    let mirror =
        json!({"type": "mirror", "mirror_url": url, "mirror_no_project_list": has_no_list});
    process.client.root().put(&format!("/{OWNER}/{name}"), mirror).expect(200);
}

/// The indexes whose pages are asked for: the mirror, and one above it that judges by a policy.
const STAGES: [&str; 2] = ["root/up", "root/dev"];

/// A server that mirrors a hostile upstream, and the memory that it takes at rest.
struct Mirroring {
    upstream: Upstream,
    process: Process,
    rest: u64,
}

impl Mirroring {
    fn start() -> Mirroring {
        let (upstream, process) = (Upstream::start(), start());
        add_mirror(&process, "up", &upstream.url("/simple/"), true);
        let stage = json!({"bases": ["root/up"], "policy_cooldown_days": 7});
        process.client.root().put("/root/dev", stage).expect(200);
        // The first answers open what stays open.
        upstream.offer("/simple/first/", Offer::json(json_page("first", 10, "", "")));
        for (path, headers) in FORMS {
            for stage in STAGES {
                asked(&process, stage, &path.replace("{}", "first"), headers);
            }
        }
        let rest = at_rest(&process);
        Mirroring { upstream, process, rest }
    }

    /// Offers the projects `{name}0`, `{name}1` and so on, each with a page of this many files.
    fn offer(&self, name: &str, files: usize, file: &str) {
        for at in 0..AT_ONCE {
            let project = format!("{name}{at}");
            let page = json_page(&project, files, file, "");
            self.upstream.offer(&format!("/simple/{project}/"), Offer::json(page));
        }
    }

    /// Asks; the answers have these statuses, and took no more memory than strangers may cause.
    fn check(&self, what: &str, expected: &[&str], ask: impl FnOnce() -> Vec<String>) {
        std::thread::sleep(Duration::from_millis(500));
        self.process.forget_memory_peak();
        let statuses = ask();
        let taken = self.process.memory_peak_bytes().saturating_sub(self.rest);
        let line = format!("{what}: {statuses:?}, {} MiB above rest", taken >> 20);
        eprintln!("{line}");
        let is_expected = statuses.iter().all(|status| expected.contains(&status.as_str()));
        assert!(taken <= STRANGERS_BYTES_MAX && is_expected, "{line}");
    }

    /// Asks for pages of `{name}0` and so on in all forms at once.
    fn check_at_once(&self, name: &str) {
        let ask = |at: usize| {
            let (path, headers) = FORMS[at % FORMS.len()];
            let path = path.replace("{}", &format!("{name}{}", at % AT_ONCE));
            asked(&self.process, STAGES[at % 2], &path, headers)
        };
        self.check(&format!("{name}, all at once"), &["200", "302", "501", "503"], || {
            std::thread::scope(|scope| {
                let asking: Vec<_> =
                    (0..2 * FORMS.len()).map(|at| scope.spawn(move || ask(at))).collect();
                asking.into_iter().map(|it| it.join().expect("no panic")).collect()
            })
        });
    }
}

#[test]
fn a_page_that_is_refused_takes_little_memory() {
    let mirroring = Mirroring::start();
    each(refused_pages(), |(project, offer)| {
        assert!(offer.body.len() <= PAGE_BYTES, "{project}: {} bytes", offer.body.len());
        mirroring.upstream.offer(&format!("/simple/{project}/"), offer);
        let (path, headers) = FORMS[0];
        let path = path.replace("{}", project);
        mirroring.check(project, &["502"], || {
            vec![asked(&mirroring.process, "root/up", &path, headers)]
        });
    });
}

#[test]
fn each_form_of_the_largest_page_takes_little_memory() {
    let mirroring = Mirroring::start();
    mirroring.offer("most", USUAL_FILES, USUAL);
    let forms = FORMS.into_iter().enumerate();
    each(forms.flat_map(|form| STAGES.map(|stage| (form, stage))), |((at, form), stage)| {
        let (path, headers) = form;
        let path = path.replace("{}", &format!("most{}", at % AT_ONCE));
        let what = format!("{stage}/{path}, {}", headers.replace("\r\n", ", "));
        // Its JSON in the shape of the public index, and its page for people, have bounds of their own.
        mirroring.check(&what, &["200", "302", "501"], || {
            vec![asked(&mirroring.process, stage, &path, headers)]
        });
    });
}

#[test]
fn the_largest_pages_at_once_take_little_memory() {
    let mirroring = Mirroring::start();
    mirroring.offer("most", USUAL_FILES, USUAL);
    mirroring.check_at_once("most");
    // Few files that take as much as many, and so are shown one page at a time.
    mirroring.offer("few", 1_000, &format!(",\"yanked\":\"{}\"", "'".repeat(3_000)));
    mirroring.check_at_once("few");
}

/// The status of an answer that is read to its end.
pub(super) fn asked(process: &Process, stage: &str, path: &str, headers: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = process.client.connect();
    stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a timeout");
    let request = format!(
        "GET /{stage}/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    let (mut piece, mut start) = (vec![0; 64 << 10], Vec::new());
    loop {
        match stream.read(&mut piece).expect("an answer") {
            0 => break,
            bytes => {
                start.extend_from_slice(&piece[..bytes.min(32_usize.saturating_sub(start.len()))])
            }
        }
    }
    String::from_utf8_lossy(start.get(9..12).unwrap_or_default()).into_owned()
}
