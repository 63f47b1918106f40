//! The pages for people: `/` shows each surface, `/+use` how to use it, nothing private is shown, and `/docs` has every path of the OpenAPI
//! documents.

use config::Config;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::asking::Says as _;
use crate::browser::{ACCEPT, Browser};
use crate::catalogue;
use crate::described;
use crate::server::{ROOT, TestServer, small};
use crate::shown::shown;

/// The values of the inputs of a form to a path, by their names.
fn form_to(page: &str, action: &str) -> Option<String> {
    let start = page.find(&format!("action=\"{action}\""))?;
    let form = &page[start..start + page[start..].find("</form>")?];
    let value = form.split("value=\"").last()?;
    Some(value.split('"').next()?.replace("&#34;", "\""))
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Checks that no tag of a page runs, loads or links to anything that our own tags would not: no text of strangers has become
/// one.
#[track_caller]
pub(crate) fn check_harmless(page: &str, what: &str) {
    let tags: Vec<String> = page
        .split('<')
        .skip(1)
        .filter_map(|rest| rest.split_once('>'))
        .map(|(tag, _)| tag.to_lowercase())
        .collect();
    assert!(tags.len() > 20, "{what}: {page}");
    // The one script is ours.
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("script")).count(), 1, "{what}");
    for tag in &tags {
        let name = tag.split([' ', '/', '\n']).next().unwrap_or_default();
        let never = ["iframe", "svg", "style", "object", "embed", "base", "template"];
        assert!(!never.contains(&name), "{what}: <{tag}>");
        // A formula of an article has nothing that its library does not write.
        let is_formula =
            name != "math" || ["math", "math display=\"block\""].contains(&tag.as_str());
        assert!(is_formula, "{what}: <{tag}>");
        // Names of attributes are outside of quotation marks.
        let names = tag.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        for name in names.split([' ', '\n']) {
            let is_harm = name.starts_with("on") || name == "style=" || name == "srcdoc=";
            assert!(!is_harm, "{what}: <{tag}>");
        }
        let values = ["\"javascript:", "\"data:", "\"vbscript:", "src=\"http", "src=\"//"];
        assert!(!values.iter().any(|harm| tag.contains(harm)), "{what}: <{tag}>");
    }
}

/// A server with these surfaces, by the letters of `aur`, `python`, `article`, `actions`, `metrics`.
fn with_surfaces(on: [bool; 5]) -> TestServer {
    let [aur, python, article, actions, metrics] = on;
    let change = |config: &mut Config| {
        config.python.enabled = python;
        config.article.enabled = article;
        config.actions.enabled = actions;
        config.metrics.enabled = metrics;
    };
    if aur {
        return TestServer::serving_with(&catalogue::small(), change);
    }
    TestServer::without_aur(change)
}

#[test]
fn each_surface_is_there_or_said_to_be_off() {
    let all = [true; 5];
    let alone = (0..5).map(|at| std::array::from_fn(|other| other == at));
    let without = (0..5).map(|at| std::array::from_fn(|other| other != at));
    for on in alone.chain(without).chain([all, [false; 5]]) {
        let server = with_surfaces(on);
        let page = server.get("/+use").html();
        let [aur, python, article, actions, metrics] = on;
        for (is_on, heading, action, off) in [
            (aur, "<h2 id=\"aur\">", None, "aur.enabled = false"),
            (python, "<h2 id=\"python\">", None, "python.enabled = false"),
            (article, "<h2 id=\"articles\">", None, "article.enabled = false"),
            (actions, "<h2 id=\"actions\">", Some("/"), "actions.enabled = false"),
            (metrics, "href=\"/metrics\"", None, "metrics.enabled = false"),
        ] {
            assert_eq!(page.contains(heading), is_on, "{on:?}: {heading}");
            assert_eq!(page.contains(off), !is_on, "{on:?}: {off}");
            if let Some(action) = action {
                assert_eq!(form_to(&page, action).is_some(), is_on, "{on:?}: {action}");
            }
        }
        assert_eq!(page.contains("Not on this server"), on != all, "{on:?}");
        // What people look for is at `/`, without a command.
        let home = server.get("/").html();
        for (is_on, heading) in [(aur, "aur"), (python, "python"), (article, "articles")] {
            assert_eq!(
                home.contains(&format!("<h2 id=\"{heading}\">")),
                is_on,
                "{on:?}: {heading}"
            );
        }
        assert_eq!(form_to(&home, "/rpc").is_some(), aur, "{on:?}");
        home.says("href=\"/+use\">Use this server</a>: how to point clients at it.");
        home.lacks(["<pre>", "<code>curl", "pip install", "enabled = false"]);
        let is_nothing = !aur && !python && !article;
        assert_eq!(home.contains("are switched off here"), is_nothing, "{on:?}");
        // Nothing is found on a server that has nothing, so nothing is to be searched there.
        for action in ["/+search", "/articles"] {
            assert_eq!(form_to(&home, action), None, "{on:?}");
        }
        // Every link answers, whatever is off.
        for target in ["/", "/+use", "/docs", "/docs/aur"] {
            let page = server.get(target).html();
            for link in page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let link = link.split('#').next().unwrap_or_default();
                let status = if link.is_empty() { 200 } else { server.get(link).status };
                assert_eq!(status, 200, "{on:?}: {target} links to {link}");
            }
        }
    }
}

#[test]
fn without_a_source_it_says_so() {
    let server = TestServer::without_source(|_| ()).ready();
    for target in ["/+use", "/docs"] {
        let page = server.get(target).html();
        page.says(["no source of packages is named", "--aur-source FILE|URL"]);
        page.lacks("aur.enabled = false");
    }
}

#[test]
fn the_forms_find_what_is_there() {
    for server in [crate::server::small(), crate::server::large()] {
        let word = form_to(&server.get("/").html(), "/rpc").expect("a form");
        let found = server.get(&format!("/rpc?v=5&type=search&arg={}", encoded(&word)));
        let count = found.json()["resultcount"].as_u64().expect("a count");
        assert!((1..=200).contains(&count), "{word}: {count}");
        let name = form_to(&server.get("/docs/aur").html(), "/rpc");
        assert_eq!(name, Some(word));
    }
    // Its commands name an existing package.
    let page = small().get("/+use").text();
    let path = page.split("/rpc/v5/info/").nth(1).and_then(|rest| rest.split('\'').next());
    let info = small().get(&format!("/rpc/v5/info/{}", path.expect("a command")));
    assert_eq!(info.json()["resultcount"], 1);
    let actions = form_to(&page, "/").expect("a form");
    assert_eq!(small().get(&format!("/?actions={}", encoded(&actions))).text(), "\"Hello world!\"");
}

#[test]
fn it_shows_what_its_reader_may_see_and_nothing_else() {
    let server = TestServer::without_source(|_| ()).ready();
    let client = &server.client;
    server.add_user("ann", "staple");
    let make = |index: &str, config: Value| {
        client.root().put(&["", "ann", index].join("/"), config).expect(200);
    };
    make("secret", json!({"acl_read": ["root"], "acl_upload": [], "title": "hidden title"}));
    make("own", json!({"acl_read": ["ann"], "title": "for ann alone"}));
    make("open", json!({"title": "<b>for all</b>"}));
    for name in ["zebra", "guide/caf%C3%A9", "welcome"] {
        client.root().post(&format!("/article/{name}/0"), "x").expect(201);
    }
    let bob = ("Authorization", "Basic Ym9iOmhvcnNl");
    let views = [
        (vec![], vec!["ann/open"], vec!["ann/secret", "hidden title", "ann/own", "for ann alone"]),
        (vec![ROOT], vec!["ann/open", "ann/secret", "ann/own", "hidden title"], vec![]),
        (vec![bob], vec!["ann/open"], vec!["ann/own", "ann/secret"]),
    ];
    server.add_user("bob", "horse");
    for (headers, seen, unseen) in views {
        let headers = [&headers[..], &[ACCEPT]].concat();
        for target in ["/", "/+search"] {
            let page = client.get_with(target, &headers).html();
            page.says(["href=\"/ann/open\"", "&#60;b&#62;for all"]);
            page.says(&seen[..]);
            page.lacks("<b>for all");
            page.lacks(&unseen[..]);
        }
        // Each index has commands of its own.
        let page = client.get_with("/+use", &headers).html();
        page.says("href=\"/ann/open#use\"");
        page.lacks(&unseen[..]);
    }
    // Articles that readers start with come first, then what changed last; folders have lists of their own.
    let page = server.get("/").html();
    let places = ["/article/welcome\"", "/article/guide/caf%C3%A9\"", "/article/zebra\""]
        .map(|link| page.find(link).expect("a link"));
    assert!(places.is_sorted(), "{places:?}");
    page.says("<a href=\"/articles?prefix=guide%2F\">guide/</a>");
    let word = form_to(&page, "/articles").expect("a form");
    let found = server.get(&format!("/articles?q={}", encoded(&word))).json();
    assert_eq!(found["articles"][0]["name"], "welcome", "{found}");
    // The index that changed last comes first.
    let order = |page: &str| page.find("href=\"/ann/open\"") < page.find("href=\"/ann/own\"");
    let of_root = || client.root().get("/").html();
    assert!(order(&of_root()));
    client.root().patch("/ann/own", json!(["title=changed"])).expect(200);
    assert!(!order(&of_root()));
}

#[test]
fn strangers_are_told_to_log_in_where_nothing_is_open() {
    let closed = TestServer::without_aur(|config| {
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
    });
    closed.client.root().post("/article/inner/0", "x").expect(201);
    closed.add_user("ann", "staple");
    closed.client.root().put("/ann/inside", json!({"acl_read": ["root"]})).expect(200);
    let (page, search) = (closed.page("/"), closed.page("/+search"));
    assert_snapshot!("closed", shown(&page).replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    page.lacks(["inner", "inside", "href=\"/articles\""]);
    assert_snapshot!("closed_search", shown(&search));
    search.lacks("inside");
    let used = shown(&closed.page("/+use")).replace(env!("CARGO_PKG_VERSION"), "VERSION");
    assert_snapshot!("closed_use", used);
    let page = closed.client.root().get("/+use").html();
    page.says(["Not everybody may read <b>ann/inside</b>", "/+account?index=ann/inside#new-token"]);
    let page = closed.client.root().get("/").html();
    page.says(["/article/inner\"", "href=\"/ann/inside\""]);
    page.lacks("Nothing here is open");
}

#[test]
fn lists_are_short() {
    let server = TestServer::without_source(|_| ()).ready();
    for number in 0..12 {
        server.root().put(&["", "root", &format!("i{number}")].join("/"), "{}").expect(200);
        let target = format!("/article/a{number}/0");
        server.root().post(&target, "x").expect(201);
    }
    let page = server.get("/").html();
    let index = |number: &str| format!("/{}/i{number}", "root");
    assert_eq!(page.matches(&format!("<li><a href=\"{}", index(""))).count(), 8);
    assert_eq!(page.matches("href=\"/article/a").count(), 8);
    page.says([&format!("{}\"", index("11")), "/article/a11\"", "All indexes", "All articles"]);
    page.lacks([&format!("{}\"", index("0")), "/article/a0\""]);
}

#[test]
fn commands_begin_with_the_url_that_is_known_outside() {
    let check = |server: &TestServer, headers: &[(&str, &str)], url: &str, link: &str| {
        for target in ["/+use", "/docs"] {
            let page = server.client.get_with(target, headers).html();
            page.says([format!("{url}/rpc"), format!("href=\"{link}\"")]);
        }
    };
    let own = format!("http://{}", small().client.address);
    check(small(), &[], &own, "/openapi.json");
    let named = TestServer::serving_with(&catalogue::small(), |config| {
        config.public_url = Some("https://pkgs.example/larder".to_owned());
    });
    check(&named, &[], "https://pkgs.example/larder", "/larder/openapi.json");
    let outside = [("X-Outside-URL", "https://other.example/")];
    check(&named, &outside, "https://other.example", "/openapi.json");
}

#[test]
fn the_documentation_has_every_path_of_the_openapi_documents() {
    let server = TestServer::serving_with(&catalogue::small(), crate::server::with_key);
    let page = server.get("/docs").html();
    let [programs, pages] = described::DOCUMENTS.map(|path| server.get(path).json());
    let mut count = 0;
    for document in [programs, pages, server.admin("GET", "/admin/openapi.json").json()] {
        for (path, item) in document["paths"].as_object().expect("paths") {
            for path in described::also(item).chain([path.as_str()]) {
                page.says(&format!("<code>{path}</code>"));
            }
            count += 1;
            for method in ["get", "put", "post", "patch", "delete"] {
                let summary = item[method]["summary"].as_str().unwrap_or_default();
                let plain = summary.split(['`', '\'', '"', '&']).next().unwrap_or_default();
                page.says(plain);
            }
        }
    }
    assert!(count > 80, "{count}");
    // Each surface has its part.
    let ids = ["accounts", "aur", "python", "articles", "actions", "health", "admin", "pages"];
    page.says(ids.map(|id| format!("<h2 id=\"{id}\">")));
}

#[test]
fn browsers_get_errors_as_pages() {
    let server = small();
    let mut pages = Vec::new();
    for (target, status) in [
        ("/nothing/is/here/at/all", 404),
        ("/article/none", 404),
        ("/rpc/x", 404),
        ("/articles?%3Ci%3E=1", 400),
    ] {
        let page = server.browse(target).expect(status);
        page.has("content-type", "text/html; charset=utf-8");
        page.header("content-security-policy").says("frame-ancestors 'none'");
        page.has("content-length", page.body.len()).lacks("<i>");
        pages.push(format!("{target}:\n{}\n", shown(&page.text())));
        // Programs get what they know.
        for accept in
            ["*/*", "application/json", "application/vnd.pypi.simple.v1+json, text/html; q=0.01"]
        {
            let problem = server.client.get_with(target, &[("Accept", accept)]).expect(status);
            let content_type = problem.header("content-type");
            assert!(!content_type.starts_with("text/html"), "{target} {accept}: {content_type}");
        }
    }
    assert_snapshot!("errors", pages.join("\n"));
    // Headers that tell a browser how to go on stay.
    let closed = TestServer::without_source(|config| {
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
    })
    .ready();
    let refused = closed.browse("/articles").expect(401);
    // The browser gets a form and does not ask for a password itself; if it sent one, it must ask for another.
    assert!(refused.header("www-authenticate").starts_with("Cookie "));
    let wrong = [ACCEPT, ("Authorization", "Basic eDp5")];
    let wrong = closed.client.get_with("/articles", &wrong).expect(401);
    assert!(wrong.header("www-authenticate").starts_with("Basic"));
    assert!(refused.header("content-type").starts_with("text/html"));
    let response = small().anybody().browser().put("/docs", ()).expect(405);
    assert!(!response.header("allow").is_empty());
}

#[test]
fn the_documentation_is_searched_by_words() {
    let found = small().get("/docs?q=YANK+version").html();
    assert_snapshot!("documentation_by_words", shown(&found));
    let none = small().get("/docs?q=%3Cnothing%3E").html();
    none.says(["No path is found", "value=\"&#60;nothing&#62;\""]);
    // No words are all of it, where the lists are folded.
    let all = small().get("/docs?q=+").html();
    all.says(["id=\"start\"", "<details><summary>"]);
}

/// The files that a page loads are cacheable forever under their names, and there are no others.
#[test]
fn pages_load_a_style_sheet_and_a_script_that_never_change() {
    let server = small();
    let page = server.get("/docs").text();
    let named = |before: &str| {
        let start = page.find(before).expect(before) + before.len();
        page[start..].split('"').next().expect("a path").to_owned()
    };
    let style = named("<link rel=\"stylesheet\" href=\"");
    let script = named("<script src=\"");
    for (path, content_type) in
        [(&style, "text/css; charset=utf-8"), (&script, "text/javascript; charset=utf-8")]
    {
        let asset = server.get(path).expect(200);
        asset
            .has("content-type", content_type)
            .has("cache-control", "public, max-age=31536000, immutable");
        server.client.get_with(path, &[("If-None-Match", asset.header("etag"))]).expect(304);
        server.get(&format!("{path}x")).expect(404);
    }
    server.get("/+static/").expect(404);
    server.get("/+static/larder-0000000000000000.css").expect(404);
}

/// A page may be kept, and a shared cache gives it only to those whom it is for.
#[test]
fn pages_say_whom_they_are_for() {
    let server = small();
    let answer = server.get("/packages/");
    answer.has("cache-control", "no-cache");
    let of_rights = server.browse("/+search?query=a");
    of_rights.has("cache-control", "private, no-cache");
    for answer in [answer, of_rights] {
        answer.has("vary", "Accept, Accept-Encoding, Authorization, Cookie, X-Devpi-Auth");
    }
}

/// If browsers get a page at a URL, the answer for programs says so, so that a cache does not give it to browsers.
#[test]
fn what_programs_get_differs_by_accept() {
    let server = TestServer::without_source(|_| ()).ready();
    server
        .root()
        .with("If-None-Match", "*")
        .typed("text/markdown")
        .put("/article/negotiated", "# A title")
        .expect(201);
    for target in [
        "/article/negotiated",
        "/article/negotiated?version=1",
        "/article/negotiated/history",
        "/article/negotiated/diff",
        "/article/missing",
        "/articles",
        "/root",
        concat!("/root", "/"),
        "/nobody",
        concat!("/root", "/missing/"),
        "/+search?query=a",
        "/",
        "/nothing/is/here/at/all",
    ] {
        for accept in ["application/json", "*/*", ACCEPT.1] {
            let answer = server.client.get_with(target, &[("Accept", accept)]);
            let varies_by = answer.find("vary").unwrap_or_default();
            let is_named = varies_by.split(", ").filter(|name| *name == "Accept").count();
            assert_eq!(is_named, 1, "{target} {accept} {}: {varies_by}", answer.status);
        }
    }
    let known = [("If-None-Match", "*")];
    server.client.get_with("/article/negotiated", &known).expect(304).has("vary", "Accept");
}

/// Machines ask `/` as well.
#[test]
fn programs_get_what_they_got() {
    let users = small().client.get_with("/", &[("Accept", "application/json")]).json();
    assert_eq!(users["type"], "list:userconfig");
    assert_ne!(users["result"], Value::Null);
}

/// The operator's site: a title, a line, a colour, links, and an article as the landing page.
#[test]
fn a_site_is_the_operators() {
    let server = TestServer::without_aur(|config| {
        config.public_url = Some("https://index.example/below".to_owned());
        config.site.title = config::Line("Ducks <&> Co".to_owned());
        config.site.line = Some(config::Line("What <we> install".to_owned()));
        config.site.links = vec![config::SiteLink {
            label: "Imprint".to_owned(),
            url: "/article/imprint".to_owned(),
        }];
        config.site.home = Some(config::Line("welcome".to_owned()));
    });
    let client = &server.client;
    // Until the article is there, the page is what it is without it.
    let home = client.get("/").html();
    home.says("<title>index.example · Ducks &#60;&#38;&#62; Co</title>");
    home.says(["<h1>Ducks &#60;&#38;&#62; Co</h1>", "What &#60;we&#62; install"]);
    home.says("<a href=\"/below/article/imprint\" rel=\"noopener\">Imprint</a>");
    client.root().typed("text/markdown").post("/article/welcome/0", b"# Hello").expect(201);
    let answer = client.get("/");
    assert_eq!((answer.status, answer.header("location")), (302, "/below/article/welcome"));
    client.get("/+use").html().says("<title>Use this server · Ducks");
    // One that was renamed is found; one that was deleted, or is a draft, is not there.
    client.root().post("/article/welcome/1?rename=start/here", ()).expect(201);
    let led = client.get("/").expect(302);
    led.has("location", "/below/article/start/here");
    let draft = "---\ndraft: true\n---\n# Not yet\n";
    let write = |base: u32, text: &str| {
        let target = format!("/article/start/here/{base}");
        client.root().typed("text/markdown").post(&target, text).expect(201);
    };
    write(2, draft);
    client.get("/").html().says("What &#60;we&#62; install");
    let mut root = Browser::root(*client);
    root.get("/").expect(302).has("location", "/below/article/start/here");
    client.root().with("If-Match", "*").delete("/article/start/here").done();
    client.get("/").html();
    root.get("/").html();
    // A program gets what it asked for.
    client.get("/?actions={\"example.hello_world\":{}}").expect(200);
}

/// A reader who may not read the article gets the page of this server, and no error.
#[test]
fn a_home_is_for_those_who_may_read_it() {
    let home = |change: fn(&mut config::Config)| {
        TestServer::without_aur(|config| {
            config.site.home = Some(config::Line("welcome".to_owned()));
            change(config);
        })
    };
    let server = home(|config| config.article.acl_read = "team".parse().expect("a list"));
    ["team", "other"].iter().for_each(|name| server.add_user(name, "staple"));
    server.root().typed("text/markdown").post("/article/welcome/0", b"# Hello").expect(201);
    server.get("/").html();
    Browser::of(server.client, "other", "staple").get("/").html();
    let mut team = Browser::of(server.client, "team", "staple");
    team.get("/").expect(302).has("location", "/article/welcome");
    team.get("/article/welcome").html();
    let directory = server.stop();
    // Without articles, there is none.
    let server = TestServer::start_in(directory, |config, _| {
        config.aur.enabled = false;
        config.article.enabled = false;
        config.site.home = Some(config::Line("welcome".to_owned()));
    });
    server.get("/").html();
}

#[test]
fn a_site_has_its_colour() {
    let server = TestServer::without_aur(|config| {
        config.site.accent = Some("#1d4ed8".parse().expect("a colour"));
    });
    let style = |server: &TestServer| {
        let page = server.get("/").html();
        let (_, path) = page.split_once("rel=\"stylesheet\" href=\"").expect("a style sheet");
        let path = path.split('"').next().expect("a path").to_owned();
        (server.get(&path).expect(200).text(), path)
    };
    let (coloured, path) = style(&server);
    coloured.says([":root{--accent:#1d4ed8}", "@media screen and (prefers-color-scheme:dark)"]);
    let (plain, other) = style(small());
    assert!(path != other && !plain.contains("#1d4ed8"), "{path}");
    small().get(&path).expect(404);
}

#[test]
fn a_site_has_a_logo() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("logo");
    let picture = "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";
    std::fs::write(&file, picture).expect("a file");
    let server = TestServer::without_aur(|config| config.site.logo = Some(file));
    let page = server.get("/").html();
    let (_, path) = page.split_once("<img src=\"").expect("a logo");
    let path = path.split('"').next().expect("a path");
    let logo = server.get(path);
    assert_eq!((logo.status, logo.text()), (200, picture.to_owned()));
    logo.has("content-type", "image/svg+xml");
    // What is in a picture runs on no page, nor when the picture is opened by itself.
    logo.has("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox");
    small().get(path).expect(404);
}
