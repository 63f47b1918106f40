//! Pages with the contents of a release file, and with the changes between two versions, for users who may download the files.

use insta::assert_snapshot;
use serde_json::json;

use super::{Index, Upload, zip};
use crate::asking::{Says as _, line};
use crate::client::Response;
use crate::pages::check_harmless;
use crate::shown::shown;

const ATTACK: &str = "<script>alert(1)</script>";

#[track_caller]
fn page(response: &Response) -> String {
    response.check_status(200);
    response.has("content-type", "text/html; charset=utf-8");
    response.has("cache-control", "private, no-cache");
    let text = response.text();
    check_harmless(&text, "a page of an archive");
    text
}

fn wheel(version: &str, code: &str, more: &[(&str, &[u8])]) -> Vec<u8> {
    let metadata = format!("Metadata-Version: 2.1\nName: tool\nVersion: {version}\n");
    let info = format!("tool-{version}.dist-info");
    let names = ["METADATA", "WHEEL", "RECORD"].map(|name| format!("{info}/{name}"));
    let mut members: Vec<(&str, &[u8])> = vec![
        ("tool/code.py", code.as_bytes()),
        (&names[0], metadata.as_bytes()),
        (&names[1], b"Wheel-Version: 1.0\n"),
        (&names[2], b""),
    ];
    members.extend(more);
    zip(&members)
}

fn tar_gz(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, content) in members {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        tar.extend(header);
        tar.extend(*content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &tar).expect("memory");
    encoder.finish().expect("memory")
}

const OLD: &str = "/alice/dev/tool/1.0/+contents/tool-1.0-py3-none-any.whl";
const SOURCE: &str = "/alice/dev/tool/2.0/+contents/tool-2.0.tar.gz";
const COMPARED: &str = "/alice/dev/tool/2.0/+compare?with=1.0";

fn sample() -> Index {
    let index = Index::with_dev();
    let upload = |filename: &str, content: &[u8], summary: &str| {
        let upload = Upload::of(filename, content).set("summary", summary);
        index.alice().upload("alice/dev", &upload).expect(200);
    };
    let attack = format!("# {ATTACK}\nx = '\u{202e}'\n");
    let evil = format!("tool/{ATTACK}.bin");
    let more: [(&str, &[u8]); 2] = [(&evil, b"\0binary"), ("tool/gone.py", b"gone")];
    upload("tool-1.0-py3-none-any.whl", &wheel("1.0", &attack, &more), "The old one");
    let more: [(&str, &[u8]); 1] = [("tool/new.py", b"new")];
    upload("tool-2.0-py3-none-any.whl", &wheel("2.0", "x = 'safe'\n", &more), "The new one");
    let long = "long \u{e9}\n".repeat(40_000);
    let members: [(&str, &[u8]); 3] = [
        ("tool-2.0/long.txt", long.as_bytes()),
        ("tool-2.0/a\u{202e}b", b"odd"),
        ("tool-2.0/setup.py", b""),
    ];
    upload("tool-2.0.tar.gz", &tar_gz(&members), "The new one");
    index
}

#[test]
fn the_members_of_an_archive_are_listed_and_looked_at() {
    let index = sample();
    let listed = page(&index.anybody().get(OLD));
    assert_snapshot!("members", shown(&listed));
    let code = page(&index.anybody().get(&format!("{OLD}?member=0")));
    // A character that reorders a line is shown by its number.
    assert_snapshot!("member", shown(&code));
    let binary = shown(&page(&index.anybody().get(&format!("{OLD}?member=4"))));
    assert_eq!(line(&binary, "It is not text"), "It is not text, so it is not shown here.");
    let source = page(&index.anybody().get(SOURCE));
    source.says("tool-2.0/a⟨U+202E⟩b");
    let long = page(&index.anybody().get(&format!("{SOURCE}?member=0")));
    let bounds = "320 kB, in alice/dev. Only the beginning is shown.";
    assert_eq!(line(&shown(&long), "320 kB"), bounds);
    assert!(long.len() < 300_000 && long.matches("long \u{e9}\n").count() > 30_000);
    // Again, from the cache.
    assert_eq!(page(&index.anybody().get(OLD)), listed);
    for (path, status) in [
        (format!("{OLD}?member=6"), 404),
        (format!("{OLD}?member=x"), 400),
        (format!("{OLD}?from=-1"), 400),
        ("/alice/dev/tool/2.0/+contents/tool-1.0-py3-none-any.whl".to_owned(), 404),
        ("/alice/dev/tool/1.0/+contents/none.whl".to_owned(), 404),
        ("/alice/dev/tool/1.0/+contents".to_owned(), 404),
        ("/alice/dev/tool/3.0/+contents/tool-3.0.tar.gz".to_owned(), 404),
    ] {
        index.anybody().get(&path).expect(status);
    }
    let beyond = index.anybody().get(&format!("{OLD}?from=99999999999"));
    beyond.says("<a href=\"?from=0\" rel=\"prev\">Previous members</a>");
    let beyond = shown(&page(&beyond));
    let sum = "6 members, 114 B when unpacked, in alice/dev.";
    assert_eq!(line(&beyond, "6 members"), sum);
    let browser = ("Accept", "text/html");
    let project = index.anybody().with(browser.0, browser.1).get("/alice/dev/tool/1.0").text();
    project.says(&format!("<a href=\"{OLD}\">contents</a>"));
    project.says("action=\"/alice/dev/tool/1.0/+compare\"");
}

#[test]
fn two_versions_are_compared() {
    let index = sample();
    let found = page(&index.anybody().get(COMPARED));
    assert_snapshot!("compared", shown(&found));
    found.says(["<mark>old</mark>", "<mark>new</mark>"]);
    let code = "&file=tool-2.0-py3-none-any.whl&old=0&new=0";
    found.says(&code[1..].replace('&', "&#38;"));
    let member = page(&index.anybody().get(&format!("{COMPARED}{code}")));
    assert_snapshot!("compared_member", shown(&member));
    let same = page(&index.anybody().get("/alice/dev/tool/2.0/+compare?with=2.0"));
    shown(&same).says(["0 added, 0 removed, 0 changed, 5 the same.", "Both are the same."]);
    for (path, status) in [
        ("/alice/dev/tool/2.0/+compare".to_owned(), 400),
        ("/alice/dev/tool/2.0/+compare?with=9".to_owned(), 404),
        ("/alice/dev/tool/9/+compare?with=2.0".to_owned(), 404),
        (format!("{COMPARED}&file=none.whl"), 404),
        (format!("{COMPARED}&file=tool-2.0-py3-none-any.whl&old=99&new=0"), 404),
    ] {
        index.anybody().get(&path).expect(status);
    }
}

/// Every way to a file's contents checks what a download checks.
#[test]
fn what_may_not_be_downloaded_may_not_be_looked_into() {
    let index = sample();
    let paths = [OLD.to_owned(), format!("{OLD}?member=0"), COMPARED.to_owned()];
    let edit = json!(["policy_quarantine+=tool==1.0 stolen"]);
    index.alice().patch("/alice/dev", edit).expect(200);
    for path in &paths {
        index
            .alice()
            .get(path)
            .tells(403, "tool 1.0 is refused by the policy of alice/dev: quarantined: stolen");
    }
    index.alice().get(SOURCE).expect(200);
    let edit = json!(["policy_quarantine-=tool==1.0"]);
    index.alice().patch("/alice/dev", edit).expect(200);
    let word = json!({"status": "quarantined", "reason": "wait"});
    index.alice().put("/alice/dev/tool/+status", word).expect(200);
    for path in &paths {
        index.alice().get(path).expect(403);
    }
    let word = json!({"status": "active"});
    index.alice().put("/alice/dev/tool/+status", word).expect(200);
    for path in &paths {
        page(&index.anybody().get(path));
    }
    let edit = json!({"acl_read": ["alice"]});
    index.alice().patch("/alice/dev", edit).expect(200);
    for path in &paths {
        index.anybody().get(path).expect(401);
        index.user("bob").get(path).expect(403);
        page(&index.alice().get(path));
    }
}
