//! Folders of articles for people: the tree beside a page, previous and next, breadcrumbs, and URLs of folders.

use insta::assert_snapshot;
use serde_json::json;

use super::words::limited;
use super::{closed_wiki, store, wiki};
use crate::asking::Says as _;
use crate::pages::check_harmless;
use crate::shown::{shown, shown_json};

/// The lines of the tree beside an article, its lists in parentheses, and what is read before and after it.
#[track_caller]
fn check(page: &str, tree: &str, previous: &str, next: &str) {
    let start = page.find("aria-label=\"Articles beside this one\"");
    let nav = start.map_or("", |start| page[start..].split("</nav>").next().unwrap_or_default());
    let mut shown = String::new();
    for piece in nav.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("a tag");
        let text = text.trim();
        match tag.split(' ').next() {
            Some("ul") => shown.push('('),
            Some("/ul") => shown = format!("{})", shown.trim_end()),
            Some("a") if tag.contains("aria-current=\"page\"") => shown += &format!(" *{text}"),
            Some("a") => shown += &format!(" {text}"),
            _ => {}
        }
    }
    assert_eq!(shown.replace("( ", "("), tree);
    let neighbour = |rel: &str| {
        let start = page.find(&format!("rel=\"{rel}\">")).map(|at| at + rel.len() + 7);
        start.map_or("", |start| page[start..].split('<').next().unwrap_or_default())
    };
    assert_eq!((neighbour("prev"), neighbour("next")), (previous, next));
}

fn crumbs(page: &str) -> String {
    let path = page.split("<p class=\"path\">").nth(1).expect("a path");
    path.split("</p>").next().unwrap_or_default().to_owned()
}

fn text(title: &str, order: &str) -> Vec<u8> {
    format!("---\norder: {order}\n---\n# {title}\n").into_bytes()
}

#[test]
fn a_page_shows_what_is_around_it() {
    let server = wiki();
    for (name, title, order) in [
        ("guide/README", "The guide", "2"),
        ("guide/start", "Start here", "1"),
        ("guide/more/deep", "Deep <b>", ""),
        ("guide/a", "A", ""),
        ("news", "News", "1"),
        ("other/x", "X", ""),
    ] {
        store(&server, &format!("{name}/0"), &text(title, order));
    }
    let start = server.page("/article/guide/start");
    check(&start, "(News The guide(*Start here A more) other)", "← The guide", "A →");
    start.says("<a href=\"/articles?prefix=guide%2Fmore%2F\">more</a>");
    let crumb =
        "<a href=\"/articles\">Articles</a> / <a href=\"/article/guide/README\">The guide</a>";
    assert_eq!(crumbs(&start), crumb);
    let index = server.page("/article/guide/README");
    check(&index, "(News *The guide(Start here A more) other)", "← News", "Start here →");
    assert_eq!(crumbs(&index), "<a href=\"/articles\">Articles</a>");
    let deep = server.page("/article/guide/more/deep");
    check(&deep, "(News The guide(Start here A more(*Deep &#60;b&#62;)) other)", "← A", "X →");
    assert!(crumbs(&deep).ends_with("/ <a href=\"/articles?prefix=guide%2Fmore%2F\">more</a>"));
    check_harmless(&deep, "a title of a stranger");
    // Its history is below the same folders, and an old version has the same tree.
    assert!(crumbs(&server.page("/article/guide/start/history")).starts_with(crumb));
    let old = server.page("/article/guide/start?version=1");
    check(&old, "(News The guide(*Start here A more) other)", "← The guide", "A →");
}

/// The pages are kept, but a page changes with its neighbours.
#[test]
fn the_tree_of_a_kept_page_changes_with_its_neighbours() {
    let server = wiki();
    let a = || server.page("/article/g/a");
    store(&server, "g/a/0", b"# A\n");
    check(&a(), "", "", "");
    store(&server, "g/b/0", b"# B\n");
    check(&a(), "(g(*A B))", "", "B →");
    store(&server, "g/b/1", &text("B first", "1"));
    check(&a(), "(g(B first *A))", "← B first", "");
    store(&server, "g/0/x/0", b"# X\n");
    check(&a(), "(g(B first 0 *A))", "← X", "");
    server.root().post("/article/g/b/2?rename=h/c", ()).expect(201);
    check(&a(), "(g(0 *A) h)", "← X", "B first →");
    server.root().delete("/article/g/0/x/1").expect(200);
    server.root().delete("/article/h/c/3").expect(200);
    check(&a(), "", "", "");
    store(&server, "g/index/0", b"# The folder\n");
    check(&a(), "", "← The folder", "");
    assert!(crumbs(&a()).ends_with("/ <a href=\"/article/g/index\">The folder</a>"));
    store(&server, "g/index/1", b"# A folder\n");
    check(&a(), "", "← A folder", "");
}

#[test]
fn what_one_may_not_read_is_not_beside_a_page() {
    let server = closed_wiki();
    for name in ["docs/a", "docs/sub/b", "secret/c", "zebra"] {
        store(&server, &format!("{name}/0"), format!("# Title of {name}\n").as_bytes());
    }
    store(&server, "docs/b/0", b"# B\n");
    let shown = |token: &str, target: &str| {
        let ask = server.anybody().browser().with("Authorization", token);
        ask.get(target).expect(200).text()
    };
    let token = limited(&server, &["article:read"]);
    let a = shown(&token, "/article/docs/a");
    check(&a, "(docs(*Title of docs/a B sub))", "", "B →");
    let b = shown(&token, "/article/docs/sub/b");
    check(&b, "(docs(Title of docs/a B sub(*Title of docs/sub/b)))", "← B", "");
    for page in [&a, &b] {
        page.lacks("secret");
        page.lacks("zebra");
    }
    let root = server.root().browser().get("/article/docs/sub/b").html();
    check(
        &root,
        "(docs(Title of docs/a B sub(*Title of docs/sub/b)) secret Title of zebra)",
        "← B",
        "Title of secret/c →",
    );
    server.browse("/article/docs/").expect(401);
    server.browse("/article/none/").expect(401);
}

#[test]
fn urls_of_folders_lead_to_their_page_or_list() {
    let server = wiki();
    for name in ["guide/README", "guide/2024/x", "both", "both/y", "gone/z"] {
        store(&server, &format!("{name}/0"), format!("# Title of {name}\n").as_bytes());
    }
    server.root().delete("/article/gone/z/1").expect(200);
    let check = |folder: &str, place: &str| {
        let ask = server.anybody().browser();
        let response = ask.get(&format!("/article/{folder}/")).expect(303);
        response.has("location", place);
    };
    check("guide", "/article/guide/README");
    check("guide/2024", "/articles?prefix=guide%2F2024%2F");
    check("both", "/article/both");
    let ask = || server.anybody().browser();
    for folder in ["none", "gone", "guide/2024/y"] {
        ask().get(&format!("/article/{folder}/")).expect(404);
    }
    ask().get("/article/guide//").expect(400);
    assert_snapshot!("folder", shown(&server.page("/articles?prefix=guide/")));
    let all = server.page("/articles?prefix=guide/&limit=100");
    all.says("href=\"/article/guide/2024/x\"");
}

/// A program gets to the page or to the list as JSON, and is told of both where it asks for a folder as for an article.
#[test]
fn programs_find_what_is_in_a_folder() {
    let server = wiki();
    for name in ["guide/README", "guide/a b/x", "gone/z", "data/numbers.csv"] {
        let name = name.replace(' ', "%20");
        store(&server, &format!("{name}/0"), b"# A title\n");
    }
    server.root().delete("/article/gone/z/1").expect(200);
    let ask = || server.anybody().json();
    let check = |folder: &str, place: &str| {
        let response = ask().get(&format!("/article/{folder}/"));
        let expected = format!("`{}/` is a folder: {place}", folder.replace("%20", " "));
        response.tells(303, &expected).has("location", place);
    };
    check("guide", "/article/guide/README");
    check("guide/a%20b", "/articles?prefix=guide%2Fa+b%2F");
    check("data", "/articles?prefix=data%2F");
    let listed = ask().get("/articles?prefix=guide%2Fa+b%2F").json();
    assert_eq!(listed["articles"][0]["name"], "guide/a b/x", "{listed}");

    let error = |folder: &str| ask().get(&format!("/article/{folder}")).expect(404).json();
    assert_snapshot!("folder_for_programs", shown_json(&error("guide/a%20b")));
    assert_snapshot!("folder_with_a_page_for_programs", shown_json(&error("guide")));
    // A person gets there by themselves.
    let person = server.anybody().browser().get("/article/guide").expect(303);
    person.has("location", "/article/guide/README");
    let person = server.anybody().browser().get("/article/data").expect(303);
    person.has("location", "/articles?prefix=data%2F");
    // Nothing is there, or no longer.
    for name in ["none", "gone", "guid"] {
        let found = error(name);
        assert!(found["code"].is_null() && found["list"].is_null(), "{found}");
        ask().get(&format!("/article/{name}/")).expect(404);
        server.anybody().browser().get(&format!("/article/{name}")).expect(404);
    }
    ask().get("/article/guide//").expect(400);
    server.root().typed("text/plain").post("/article/guide//0", b"x").expect(400);
}

/// The URL of a folder does not tell of a draft.
#[test]
fn a_draft_is_no_page_of_a_folder() {
    let server = wiki();
    store(&server, "plans/index/0", b"---\ndraft: true\n---\n# Not yet\n");
    let ask = || server.anybody().json();
    ask().get("/article/plans/").expect(404);
    assert_eq!(ask().get("/article/plans").expect(404).json()["code"], json!(null));
    server.anybody().browser().get("/article/plans").expect(404);
    store(&server, "plans/public/0", b"# For all\n");
    let list = "/articles?prefix=plans%2F";
    ask().get("/article/plans/").expect(303).has("location", list);
    let found = ask().get("/article/plans").expect(404).json();
    assert_eq!((&found["page"], &found["list"]), (&json!(null), &json!(list)), "{found}");
    // Where everybody may read, nobody is asked who they are: all get the same.
    server.root().json().get("/article/plans/").expect(303).has("location", list);
}

#[test]
fn who_may_not_read_a_folder_is_not_told_of_it() {
    let server = closed_wiki();
    for name in ["docs/a", "secret/c"] {
        store(&server, &format!("{name}/0"), b"# A title\n");
    }
    for target in ["/article/secret", "/article/secret/", "/article/none", "/article/none/"] {
        server.anybody().json().get(target).expect(401);
    }
    let token = limited(&server, &["article:read"]);
    let ask = || server.anybody().json().with("Authorization", &token);
    for target in ["/article/secret", "/article/secret/", "/article/none", "/article/none/"] {
        ask().get(target).expect(403);
    }
    ask().get("/article/docs/").expect(303).has("location", "/articles?prefix=docs%2F");
    assert_eq!(ask().get("/article/docs").expect(404).json()["list"], "/articles?prefix=docs%2F");
}

/// A front matter names a text that has no heading of its own.
#[test]
fn the_title_of_a_text_may_be_in_its_front_matter() {
    let server = wiki();
    store(&server, "a/0", b"---\ntitle: 'The <i>title</i>'\n---\nText.\n");
    let shown = server.page("/article/a");
    shown.says(["<h1>The &#60;i&#62;title&#60;/i&#62;</h1>", "<p>Text.</p>"]);
    shown.lacks("title:");
    store(&server, "b/0", b"---\ntitle: In a list\n---\n# On the page\n");
    server.page("/article/b").says("<h1>On the page</h1>");
    server.page("/articles").says("In a list");
}

#[test]
fn the_page_in_a_large_folder_is_small() {
    let server = wiki();
    let long = "%C3%A9".repeat(60);
    for at in 0..120 {
        let title = format!("# {at} {}\n", "é".repeat(150));
        store(&server, &format!("{long}/{long}/p{at:03}/0"), title.as_bytes());
    }
    let shown = server.page(&format!("/article/{long}/{long}/p060"));
    assert!(shown.len() < 50_000, "{}", shown.len());
    shown.says(["Earlier ones", ">More</a>", "rel=\"next\">61 "]);
}
