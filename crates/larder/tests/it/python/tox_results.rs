//! The pages of test results.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Index, Upload, path, result, sdist, wheel};
use crate::asking::Says as _;
use crate::shown::{shown, shown_json};

const LIST: &str = "/alice/dev/p/1.0/+toxresults/p-1.0.zip";

fn report(status: i64) -> Value {
    json!({
        "host": "h<1>",
        "platform": "linux",
        "toxversion": "4.67.13",
        "testenvs": {"py312": {
            "python": {"version": "3.12.1 (main)"},
            "setup": [{"command": ["pip", "install"], "output": "", "retcode": 0}],
            "test": [{"command": ["pytest", "-q"], "output": "<b>1 of 2</b>", "retcode": status}],
        }},
    })
}

/// A release that passed, failed, and got something that is no result of tox; `alice/over` inherits it.
fn tested() -> (Index, Vec<String>) {
    let index = Index::with_dev();
    index.stage("alice/over", json!({"bases": ["alice/dev"]}));
    let content = sdist("x");
    index.upload("alice/dev", "p-1.0.zip", &content);
    let target = path("alice/dev", "p-1.0.zip", &content);
    let names = [report(0), report(1), json!({"x": 1})].map(|report| {
        let path = result(&index.alice().post(&target, report), "toxresultpath");
        let path = path.as_str().expect("a path").split('#').next().expect("a path").to_owned();
        path.rsplit('/').next().expect("a name").to_owned()
    });
    (index, names.to_vec())
}

#[test]
fn a_list_and_one_of_them() {
    let (index, names) = tested();
    let page = index.anybody().with("Accept", "text/html").get(LIST).expect(200);
    page.has("content-type", "text/html; charset=utf-8");
    let text = page.text();
    // The newest first.
    let places: Vec<usize> =
        names.iter().map(|name| text.find(name.as_str()).expect("its name")).collect();
    assert!(places.is_sorted_by(|one, next| one > next), "{text}");
    assert_snapshot!("list", shown(&text));
    text.says(&format!("{LIST}/{}\"", names[0]));
    let one = index.browse(&format!("{LIST}/{}", names[1])).expect(200);
    assert_snapshot!("one", shown(&one.text()));
    // By whatever stage and version it is found.
    for other in ["/alice/over/p/1.0/", "/alice/dev/p/latest/", "/alice/over/p/stable/"] {
        index.anybody().get(&LIST.replace("/alice/dev/p/1.0/", other)).expect(200).says(">passed<");
    }
    let moved = index.anybody().get(&LIST.replace("/p/", "/P/")).expect(302);
    assert!(moved.header("location").ends_with(LIST), "{moved:?}");
}

/// Of the newest run of each environment.
#[test]
fn a_project_says_how_many_passed_and_failed() {
    let (index, _) = tested();
    let target = path("alice/dev", "p-1.0.zip", &sdist("x"));
    let said = |page: &str| {
        let link = page.split(&format!("<a href=\"{LIST}\">")).nth(1).unwrap_or_default();
        let words = link.split("</a>").next().unwrap_or_default();
        words.replace("<b class=\"bad\">", "").replace("</b>", "")
    };
    for place in ["/alice/dev/p", "/alice/dev/p/1.0", "/alice/over/p"] {
        let page = index.browse(place).expect(200).text();
        assert_eq!(said(&page), "tests: 0 passed, 1 without an outcome, 1 failed", "{place}");
    }
    // Elsewhere it passes, and then here.
    let elsewhere = report(0).to_string().replace("h<1>", "other");
    let elsewhere: Value = serde_json::from_str(&elsewhere).expect("JSON");
    for (report, expected) in [
        (elsewhere, "tests: 1 passed, 1 without an outcome, 1 failed"),
        (report(0), "tests: 2 passed, 1 without an outcome"),
    ] {
        index.alice().post(&target, report).expect(200);
        assert_eq!(said(&index.browse("/alice/dev/p").expect(200).text()), expected);
    }
    // Where the files are folded, the sum stands above them.
    let (content, _) = wheel("p", "2.0");
    for tags in ["py3-none-any", "cp312-abi3-win_amd64", "cp312-abi3-linux_x86_64"] {
        let filename = format!("p-2.0-{tags}.whl");
        let upload = Upload::of(&filename, &content).set("description", "What it is.");
        index.alice().upload("alice/dev", &upload).expect(200);
        let target = path("alice/dev", &filename, &content);
        index.alice().post(&target, report(i64::from(tags.contains("win")))).expect(200);
    }
    let folded = index.browse("/alice/dev/p").expect(200).text();
    folded.says("3 files · tests: 2 passed, <span class=\"bad\">1 failed</span></summary>");
}

#[test]
fn as_json() {
    let (index, names) = tested();
    let list = result(&index.anybody().json().get(LIST), "toxresults");
    assert_snapshot!("list_as_json", shown_json(&list));
    let shown = list.as_array().expect("a list").iter().map(|item| &item["basename"]);
    assert!(shown.eq(names.iter().rev()), "{list}");
    let href = list[2]["href"].as_str().expect("a link");
    let file = href.splitn(4, '/').nth(3).expect("a path");
    assert_eq!(index.anybody().get(&format!("/{file}")).json(), report(0));
    let one = index.anybody().json().get(&format!("{LIST}/{}", names[1]));
    assert_snapshot!("one_as_json", shown_json(&result(&one, "toxresults")));
}

#[test]
fn what_is_not_there_and_not_for_everybody() {
    let (index, names) = tested();
    let missing = |target: &str, text: &str| {
        index.anybody().json().get(target).message(404, text);
    };
    let other = LIST.replace("p-1.0.zip", "p-2.0.zip");
    missing(&other, "There is no file p-2.0.zip of p 1.0.");
    missing(&LIST.replace("/1.0/", "/2.0/"), "There is no file p-1.0.zip of p 2.0.");
    missing(&format!("{LIST}/x"), "There is no test result x.");
    missing(&LIST.replace("/p/", "/q/"), "The project q does not exist.");
    missing("/alice/dev/p/1.0/+toxresults", "The name of a release file was expected.");
    // Nor is a result of a result.
    let nested = LIST.replace("p-1.0.zip", &names[0]);
    missing(&nested, &format!("There is no file {} of p 1.0.", names[0]));
    index.alice().patch("/alice/dev", json!({"acl_read": ["alice"]})).expect(200);
    index.anybody().json().get(LIST).expect(401);
    index.alice().json().get(LIST).expect(200);
}
