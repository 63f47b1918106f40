//! A write is visible at once, for everybody whom it concerns; and no other page is made again.

use serde_json::json;

use super::{Index, sdist};
use crate::asking::Says as _;

const RENDERED: &str = "larder_python_pages_rendered_total";

#[test]
fn an_upload_is_seen_wherever_it_is_inherited_and_spoils_no_other_page() {
    let index = Index::start();
    index.stage("alice/base", json!({}));
    index.stage("alice/middle", json!({"bases": ["alice/base"]}));
    index.stage("bob/dev", json!({"bases": ["alice/middle"]}));
    index.stage("bob/other", json!({}));
    for filename in ["p-1.0.zip", "q-1.0.zip"] {
        index.upload("alice/base", filename, &sdist("x"));
        index.upload("bob/other", filename, &sdist("x"));
    }
    let all = [
        ("alice/base", "p"),
        ("alice/middle", "p"),
        ("bob/dev", "p"),
        ("bob/dev", "q"),
        ("bob/other", "p"),
        ("bob/other", "q"),
    ];
    let look = || {
        let before = index.server.metric(RENDERED);
        for (stage, project) in all {
            index.page(stage, project);
        }
        index.server.metric(RENDERED) - before
    };
    assert_eq!(look(), 6.0);
    assert_eq!(look(), 0.0);
    index.upload("alice/base", "p-2.0.zip", &sdist("y"));
    assert_eq!(index.files("bob/dev", "p"), ["p-1.0.zip", "p-2.0.zip"]);
    assert_eq!(look(), 2.0);
    index.page("bob/other", "p").lacks("p-2.0.zip");
    // A change of bases changes the pages of that stage, and of those that inherit it.
    index.user("bob").patch("/bob/dev", json!(["bases="])).expect(200);
    index.anybody().get("/bob/dev/+simple/p/").expect(404);
    index.user("bob").patch("/bob/dev", json!({"bases": "alice/middle"})).expect(200);
    assert_eq!(look(), 2.0);
    index.alice().delete("/alice/base/p/2.0").expect(200);
    index.page("bob/dev", "p").lacks("p-2.0.zip");
    assert!(index.server.metric("larder_python_pages") >= 6.0);
    assert!(index.server.metric("larder_python_page_bytes") > 0.0);
    assert_eq!(index.server.metric("larder_python_uploads_total{outcome=\"stored\"}"), 5.0);
    assert!(index.server.metric("larder_python_upload_bytes_total") > 0.0);
}

#[test]
fn a_write_names_its_commit_and_later_reads_are_not_older() {
    let index = Index::with_dev();
    let serial = |response: &super::Response| -> u64 {
        response.header("x-devpi-serial").parse().expect("a serial")
    };
    let before = serial(&index.anybody().get("/+api"));
    let upload = super::Upload::of("p-1.0.zip", &sdist("x"));
    let written = serial(&index.alice().upload("alice/dev", &upload));
    assert_eq!(written, before + 1);
    assert_eq!(serial(&index.anybody().get("/alice/dev/+simple/p/")), written);
    let next = serial(&index.alice().delete("/alice/dev/p"));
    assert_eq!(next, written + 1);
}
