//! Articles as a static site, with the real binary: every link leads to a file, and nothing needs a server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use insta::assert_snapshot;
use percent_encoding::percent_decode_str;
use tempfile::TempDir;
use url::Url;

use super::folders::{files, serve};
use super::store;
use crate::accounts::Place;
use crate::asking::Says as _;
use crate::pages::check_harmless;
use crate::shown::shown;

/// The files of a site, by path.
struct Site(BTreeMap<String, Vec<u8>>);

impl Site {
    /// Exports the articles of a directory, all of them, and looks at each page.
    #[track_caller]
    fn of(directory: &Path, flags: &str) -> Site {
        let line = format!("export-articles site --html {flags}");
        Place(directory).run(&line);
        let site = Site(files(&directory.join("site")));
        site.crawl();
        fs::remove_dir_all(directory.join("site")).expect("removed");
        site
    }

    #[track_caller]
    fn page(&self, path: &str) -> &str {
        let paths = || self.0.keys().map(String::as_str).collect::<Vec<_>>().join(" ");
        let bytes = self.0.get(path).unwrap_or_else(|| panic!("no `{path}` in {}", paths()));
        std::str::from_utf8(bytes).expect("UTF-8")
    }

    fn paths(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).filter(|path| !path.starts_with("assets/")).collect()
    }

    /// Checks that every link of every page leads to a file, and to a place in it; that each page can be reached from the first
    /// one; and that none has anything for a server.
    #[track_caller]
    fn crawl(&self) {
        let mut reached = BTreeSet::from(["index.html".to_owned()]);
        let mut waiting = vec!["index.html".to_owned()];
        while let Some(path) = waiting.pop() {
            for file in self.check_page(&path) {
                if reached.insert(file.clone()) && file.ends_with(".html") {
                    waiting.push(file);
                }
            }
        }
        for path in self.0.keys().filter(|path| path.ends_with(".html")) {
            // Only a large folder leads to the list of what is in it.
            let is_list = path.ends_with("contents.html");
            assert!(reached.contains(path) || is_list, "nothing leads to {path}");
            self.check_page(path);
        }
        for path in self.0.keys() {
            let is_safe = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
            assert!(path.chars().all(is_safe) && path.len() < 200, "{path}");
        }
        let folded: BTreeSet<String> = self.0.keys().map(|path| path.to_lowercase()).collect();
        assert_eq!(folded.len(), self.0.len(), "no two differ in case only");
    }

    /// The files that a page links to.
    #[track_caller]
    fn check_page(&self, path: &str) -> Vec<String> {
        let page = self.page(path);
        check_harmless(page, path);
        for tag in page.split('<').filter_map(|piece| piece.split('>').next()) {
            let is_form = ["form", "input", "button"].iter().any(|name| tag.starts_with(name));
            let is_served = ["+account", "/+edit", "integrity="].iter().any(|it| tag.contains(it));
            assert!(!is_form && !is_served, "<{tag}> in {path}");
        }
        page.says("http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;;");
        // A place that no link leaves: there is nothing above the folder.
        let base = format!("http://site.invalid/deep/below/{}", encoded(path));
        let base = Url::parse(&base).expect("a URL");
        let mut found = Vec::new();
        for (tag, name, value) in attributes(page) {
            let target = base.join(&value).unwrap_or_else(|error| panic!("{error}: {value}"));
            if target.host_str() != Some("site.invalid") {
                let is_link = (tag.as_str(), name) == ("a", "href");
                assert!(is_link, "{path} loads {value}");
                continue;
            }
            assert!(!value.starts_with('/'), "{value} in {path}");
            let below = target.path().strip_prefix("/deep/below/");
            let below = below.unwrap_or_else(|| panic!("{path} leads to {value}"));
            let file = percent_decode_str(below).decode_utf8().expect("UTF-8").into_owned();
            assert!(self.0.contains_key(&file), "{path} leads to {value}, which is not there");
            if let Some(id) = target.fragment() {
                let id = percent_decode_str(id).decode_utf8().expect("UTF-8");
                let is_there = self.page(&file).contains(&format!("id=\"{id}\""));
                assert!(is_there, "{path} leads to {value}: {}", self.page(&file));
            }
            found.push(file);
        }
        found
    }
}

fn encoded(path: &str) -> String {
    percent_encoding::utf8_percent_encode(path, percent_encoding::CONTROLS).to_string()
}

/// Each `href` and `src` of a page, with the name of its tag.
fn attributes(page: &str) -> Vec<(String, &'static str, String)> {
    let mut found = Vec::new();
    for piece in page.split('<').skip(1) {
        let tag = piece.split('>').next().unwrap_or_default();
        let element = tag.split([' ', '\n']).next().unwrap_or_default().to_owned();
        for name in ["href", "src"] {
            let Some((_, rest)) = tag.split_once(&format!(" {name}=\"")) else { continue };
            let value = rest.split('"').next().unwrap_or_default();
            let value = value.replace("&#38;", "&").replace("&amp;", "&");
            found.push((element.clone(), name, value));
        }
    }
    found
}

/// A directory with a store of articles.
fn sample() -> Arc<TempDir> {
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let server = serve(directory.clone());
    for (name, text) in [
        (
            "welcome",
            "# Welcome\n\n[[guide/start]], [the guide](guide/), [old](old), [none](none), [docs](/docs)\n",
        ),
        (
            "guide/README.md",
            "---\norder: 1\n---\n# The guide\n\n## Part one\n\n[start](start#Part-two)\n",
        ),
        (
            "guide/start",
            "---\ntags: [first steps, Ä/b]\nauthor: Ann\n---\n# Start\n\n## Part two\n\n![plan](plan.png) [sheet](a%20b.csv) ![logo](/article/logo)\n\n[up](../welcome) [this](#part-two) [version](start/1) [out](https://e.example/) [page](evil.html)\n",
        ),
        ("guide/Start", "# Another start\n\n[sibling](start)\n"),
        ("guide/a: b?", "# Odd *name*\n"),
        ("guide/more/deep/x.php", "# Deep\n\n![vector](/article/v.svg)\n"),
        ("lists/one", "# One\n"),
        ("con", "# Device\n"),
        ("draft", "---\ndraft: true\ntags: secret\n---\n# Not yet\n\n[[welcome]]\n"),
        ("was", "# Was\n"),
    ] {
        store(&server, &format!("{}/0", encoded_name(name)), text.as_bytes());
    }
    server.root().post("/article/was/1?rename=old", ()).expect(201);
    server.root().post("/article/old/2?rename=new", ()).expect(201);
    for (name, content_type, bytes) in [
        ("logo", "image/png", &b"\x89PNG\0"[..]),
        ("v.svg", "image/svg+xml", b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>"),
        ("data.json", "application/json", b"{}"),
    ] {
        server.root().typed(content_type).post(&format!("/article/{name}/0"), bytes).expect(201);
    }
    for (file, bytes) in
        [("plan.png", "png"), ("a%20b.csv", "1,2"), ("evil.html", "<script>1</script>")]
    {
        server.root().put(&format!("/+attachments/guide/start/{file}"), bytes).expect(201);
    }
    directory
}

fn encoded_name(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC)
        .to_string()
        .replace("%2F", "/")
}

/// The article on a page.
fn article(page: &str) -> &str {
    let (_, rest) = page.split_once("<article class=\"written text\">").expect("an article");
    rest.split_once("</article>").expect("its end").0
}

#[test]
fn a_site_is_whole_and_needs_no_server() {
    let directory = sample();
    let site = Site::of(directory.path(), "");
    assert_snapshot!("paths", site.paths().join("\n"));
}

/// What a browser gets from the server is what is in the files: the same words in the same frame.
#[test]
fn pages_are_those_of_the_server() {
    let directory = sample();
    let site = Site::of(directory.path(), "");
    let server = serve(directory);
    let page = |target: &str| server.browse(target).expect(200).text();
    let words = |html: &str| {
        let text = html.split('<').map(|piece| piece.split_once('>').map_or("", |(_, text)| text));
        text.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (file, target) in [
        ("guide/index.html", "/article/guide/README.md"),
        ("lists/one.html", "/article/lists/one"),
        ("con_.html", "/article/con"),
    ] {
        let (file, served) = (site.page(file), page(target));
        assert_eq!(words(article(file)), words(article(&served)));
        // The tree beside it, the titles above it, and what is before and after it.
        for part in [
            "<nav aria-label=\"Articles beside this one\">",
            "<p class=\"path\">",
            "<nav class=\"turn ends\"",
        ] {
            let of = |page: &str| {
                page.split(part).nth(1).map(|it| {
                    words(
                        it.split("</nav>")
                            .next()
                            .unwrap_or_default()
                            .split("</p>")
                            .next()
                            .unwrap_or_default(),
                    )
                })
            };
            assert_eq!(of(file), of(&served), "{part} of {target}");
        }
        file.says("<h1>");
    }
    // The style is that of the server, under the same name.
    let style = server.get("/").text();
    let style = style
        .split("/+static/")
        .find(|it| it.starts_with("larder-") && it.contains(".css\""))
        .expect("a style");
    let style = style.split('"').next().expect("a name");
    assert_eq!(
        site.page(&format!("assets/{style}")),
        server.get(&format!("/+static/{style}")).text()
    );
}

/// Neither a version nor what is not there is a link. A vector graphic is no picture: opened by itself, a browser would run it.
#[test]
fn links_lead_to_files() {
    let directory = sample();
    let site = Site::of(directory.path(), "");
    let pages = site.paths().into_iter().filter(|path| path.ends_with(".html"));
    let shown = pages.map(|path| format!("{path}:\n{}\n", shown(site.page(path))));
    assert_snapshot!("pages", shown.collect::<Vec<_>>().join("\n"));
    let start = site.page("guide/start-5516d6c1.html");
    start.says(["<img src=\"start-files/plan.png\" alt=\"plan\"", "<img src=\"../logo.png\""]);
    start.says(["rel=\"prev\">", "rel=\"next\">"]);
}

#[test]
fn only_what_everybody_may_read_is_exported() {
    let directory = sample();
    let site = Site::of(directory.path(), "");
    assert!(!site.0.contains_key("draft.html"));
    let all = site.0.values().map(|bytes| String::from_utf8_lossy(bytes));
    assert!(!all.into_iter().any(|it| it.contains("Not yet") || it.contains("secret")));
    let place = Place(directory.path());
    let says = "not everybody may read the articles of this server (article.acl_read)";
    place.check("export-articles site --html --article-acl-read :AUTHENTICATED:", 1, says);
    assert!(!directory.path().join("site").exists());
    place.check("export-articles site --drafts", 2, "--html");
    // A draft is in no list, but it is there.
    place.run("export-articles site --html --drafts --private --article-acl-read :AUTHENTICATED:");
    let out = directory.path().join("site");
    assert!(out.join("draft.html").exists());
    let mode = |path: &Path| fs::metadata(path).expect("the folder").permissions().mode() & 0o077;
    assert_eq!(mode(&out), 0);
}

#[test]
fn a_part_is_a_site_of_its_own() {
    let directory = sample();
    let site = Site::of(directory.path(), "--prefix guide");
    let page = site.page("index.html");
    page.says("<h1>The guide</h1>");
    assert!(site.0.contains_key("more/deep/x-php.html"), "{:?}", site.paths());
    assert!(!site.0.contains_key("welcome.html"));
    assert!(site.0.values().all(|it| !String::from_utf8_lossy(it).contains("Welcome")));
}

#[test]
fn a_folder_with_something_in_it_stays() {
    let directory = sample();
    let place = Place(directory.path());
    let out = directory.path().join("site");
    fs::create_dir(&out).expect("a folder");
    fs::write(out.join("mine"), "x").expect("a file");
    place.check(
        "export-articles site --html",
        1,
        "is not empty: a new or an empty folder was expected",
    );
    assert_eq!(files(&out).len(), 1);
    fs::remove_file(out.join("mine")).expect("removed");
    let done = place.run_with("export-articles site --html --json", "");
    let report = done.json();
    assert_eq!(
        (done.code, report["left_out"].as_array().map(Vec::len)),
        (Some(0), Some(0)),
        "{done:?}"
    );
    let entries = fs::read_dir(directory.path()).expect("a folder");
    let names = entries.map(|it| it.expect("an entry").file_name().into_string().expect("UTF-8"));
    assert!(names.into_iter().all(|name| !name.ends_with(".new")));
}

/// What the pages of the server make harmless is harmless in the files, too, and each lost content is named.
#[test]
fn what_strangers_wrote_stays_harmless() {
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let server = serve(directory.clone());
    let attacks = include_str!("../../../../../testdata/attacks.txt");
    let attacks = attacks.split("\n\n").collect::<Vec<_>>();
    let attacks = attacks.chunks(10).map(|some| some.join("\n\n"));
    let attacks: Vec<String> = attacks.chain([attacks_of_sites()]).collect();
    for (at, text) in attacks.iter().enumerate() {
        let name = format!("a{at}\" onclick=alert(1) x=\"<b>/<script>{at}");
        let text = format!("---\nauthor: <b>\ntags: \"<script>\"\n---\n# <i>{at}\n\n{text}\n");
        store(&server, &format!("{}/0", encoded_name(&name)), text.as_bytes());
    }
    store(&server, "index/0", b"# First\n");
    server.root().put("/+attachments/index/x%22y.html", "<script>1</script>").expect(201);
    drop(server);
    let site = Site::of(directory.path(), "");
    assert!(site.0.contains_key("index-files/x-y-html.bin"), "{:?}", site.paths());
    // A content that is gone.
    for blob in blobs(&directory.path().join("data/blobs")) {
        if fs::read(&blob).expect("a blob").starts_with(b"# First") {
            fs::remove_file(blob).expect("removed");
        }
    }
    let done = Place(directory.path()).run_with("export-articles site --html --json", "");
    let report = done.json();
    assert_eq!(
        (done.code, report["left_out"][0]["what"].as_str()),
        (Some(1), Some("index")),
        "{done:?}"
    );
}

/// What is harmless on the server and might not be in a file.
fn attacks_of_sites() -> String {
    [
        "[x](../../../../etc/passwd) [y](/+static/x) [z](//evil.example/x) [w](\\\\evil.example\\x)",
        "[a](/article/../../x) [b](/articles?prefix=../) [c](/article/index#\" onclick=alert(1))",
        "[[../x]] [[https://evil.example/]] ![p](../../../x.png) [d](file:///etc/passwd)",
    ]
    .join("\n\n")
}

fn blobs(directory: &Path) -> Vec<PathBuf> {
    files(directory).into_keys().map(|path| directory.join(path)).collect()
}

#[test]
fn the_operators_first_page_is_the_first() {
    let directory = sample();
    let site = Site::of(directory.path(), "--site-home welcome --site-title Ducks");
    site.page("index.html").says("<h1>Welcome</h1>");
    site.page("index.html").says("Welcome · Ducks</title>");
    site.page("contents.html").says("<a class=\"mark\" href=\"index.html\">Ducks</a>");
}

#[test]
fn the_operators_logo_goes_with_the_site() {
    let directory = sample();
    let picture = "<svg xmlns=\"http://www.w3.org/2000/svg\"/>";
    fs::write(directory.path().join("logo"), picture).expect("a file");
    let site = Site::of(directory.path(), "--site-logo logo");
    let logo = site.0.iter().find(|(_, bytes)| **bytes == picture.as_bytes());
    let (path, _) = logo.expect("a logo");
    site.page("index.html").says([format!("<img src=\"{path}\"")]);
}

#[test]
fn an_empty_store_is_a_site_of_one_page() {
    let directory = Arc::new(TempDir::new().expect("a directory"));
    drop(serve(directory.clone()));
    let site = Site::of(directory.path(), "");
    assert_eq!(site.paths(), ["index.html"]);
}
