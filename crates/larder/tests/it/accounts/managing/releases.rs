//! Releases managed in a browser.

use serde_json::{Value, json};

use super::{start, upload};
use crate::browser::{Browser, encoded, form};
use crate::server::{ROOT, ROOT_PASSWORD};

#[test]
fn releases_are_yanked_pushed_and_removed() {
    let server = start();
    for (name, config) in [
        ("root/dev", json!({"volatile": false})),
        ("root/stable", json!({"acl_upload": ["root"]})),
        ("root/pypi", json!({"type": "mirror", "mirror_url": "https://upstream.example/simple/"})),
    ] {
        let made =
            server.client.send("PUT", &format!("/{name}"), &[ROOT], config.to_string().as_bytes());
        assert_eq!(made.status, 200, "{}", made.text());
    }
    for filename in ["tool-1.0.zip", "tool-1.1.zip", "tool-2.0.zip", "lib-1.0.zip"] {
        upload(&server, "root/dev", filename);
    }
    let json = |path: &str| {
        let accept = ("Accept", "application/vnd.pypi.simple.v1+json");
        server.client.get_with(path, &[accept]).json()["files"].clone()
    };
    let yanked = |filename: &str| {
        let files = json("/root/dev/+simple/tool/");
        let files = files.as_array().expect("files").iter();
        let mut files = files.filter(|file| file["filename"] == filename);
        files.next().map(|file| match &file["yanked"] {
            Value::Null => json!(false),
            yanked => yanked.clone(),
        })
    };
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let list = root.get("/+manage/releases/root/dev").text();
    assert!(list.contains("/+manage/releases/root/dev/tool\""), "{list}");
    assert!(!root.get("/+manage/releases/root/dev?q=li").text().contains(">tool<"));
    let at = "/+manage/releases/root/dev/tool";
    let project = root.get(at).text();
    assert!(project.contains("?version=1.1"), "{project}");
    let page = root.get(&format!("{at}?version=1.1")).text();
    // Yanking, with a reason, and back.
    let shown = root.submit(&page, "Yank", &[("reason", "it <breaks>")]);
    assert_eq!(shown.status, 200, "{}", shown.text());
    assert!(shown.text().contains("“it &#60;breaks&#62;”"), "{}", shown.text());
    assert_eq!(yanked("tool-1.1.zip"), Some(json!("it <breaks>")));
    let shown = root.submit(&shown.text(), "Take the yank back", &[]);
    assert_eq!((shown.status, yanked("tool-1.1.zip")), (200, Some(json!(false))));
    let shown = root.submit(&shown.text(), "Yank tool-1.1.zip", &[("reason", "one file")]);
    assert_eq!((shown.status, yanked("tool-1.1.zip")), (200, Some(json!("one file"))));
    let shown = root.submit(&shown.text(), "Take the yank of tool-1.1.zip back", &[]);
    assert_eq!((shown.status, yanked("tool-1.1.zip")), (200, Some(json!(false))));
    let long = "x".repeat(2_000);
    let refused = root.submit(&shown.text(), "Yank", &[("reason", &long)]);
    assert_eq!((refused.status, yanked("tool-1.1.zip")), (400, Some(json!(false))));
    // Pushing, and where it may not go.
    let pushed = root.submit(&page, "Push", &[("target", "root/stable"), ("content", "all")]);
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    assert!(server.client.get("/root/stable/+simple/tool/").text().contains("tool-1.1.zip"));
    for (target, status) in
        [("root/none", 404), ("prod", 400), ("root/pypi", 403), ("http://127.0.0.1:1/", 502)]
    {
        let refused = root.submit(&page, "Push", &[("target", target), ("content", "all")]);
        assert_eq!(refused.status, status, "{target}: {}", refused.text());
        assert!(refused.text().contains("Nothing was changed"), "{target}: {}", refused.text());
    }
    // Removing takes the name and, where files are to stay, one word more.
    let removed = |root: &mut Browser, label: &str, values: &[(&str, &str)]| {
        let page = root.get(&format!("{at}?version=1.0")).text();
        root.submit(&page, label, values)
    };
    for (values, status) in [
        (&[("confirm", "1.1")][..], 422),
        (&[("confirm", "1.0")], 403),
        (&[("confirm", "1.0"), ("force", "yes")], 200),
    ] {
        let shown = removed(&mut root, "Remove", values);
        assert_eq!(shown.status, status, "{values:?}: {}", shown.text());
        assert_eq!(yanked("tool-1.0.zip").is_none(), status == 200, "{values:?}");
    }
    let page = root.get(&format!("{at}?version=2.0")).text();
    let file = [("confirm", "tool-2.0.zip"), ("force", "yes")];
    assert_eq!(root.submit(&page, "Remove tool-2.0.zip", &file[1..]).status, 422);
    assert_eq!(root.submit(&page, "Remove tool-2.0.zip", &file).status, 200);
    assert_eq!(yanked("tool-2.0.zip"), None);
    // A status, and the whole project.
    let set = root.submit(&project, "Status", &[("status", "deprecated"), ("reason", "old")]);
    assert_eq!(set.status, 200, "{}", set.text());
    assert!(root.get("/root/dev/tool").text().contains("This project is deprecated"));
    assert_eq!(root.submit(&project, "Status", &[("status", "active")]).status, 200);
    assert!(!root.get("/root/dev/tool").text().contains("This project is"));
    let all = [("confirm", "tool"), ("force", "yes")];
    assert_eq!(root.submit(&project, "Remove the project", &all[1..]).status, 422);
    let gone = root.submit(&project, "Remove the project", &all);
    assert_eq!((gone.status, gone.header("location")), (303, "/+manage/releases/root/dev"));
    assert_eq!(root.get(at).status, 404);
    // A mirror has no page for releases, and neither has an unknown project or version.
    assert_eq!(root.get("/+manage/releases/root/pypi").status, 404);
    assert_eq!(root.get("/+manage/releases/root/dev/none").status, 404);
    assert_eq!(root.get("/+manage/releases/root/dev/lib?version=9").status, 404);
}

#[test]
fn whoever_may_not_change_releases_sees_no_more_than_they_may_read() {
    let server = start();
    let made = server.client.send("PUT", "/alice", &[ROOT], br#"{"password": "staple"}"#);
    assert_eq!(made.status, 201);
    for (name, config) in [
        ("root/up", json!({"policy_quarantine": ["tool==1.1 for a look"]})),
        ("root/dev", json!({"acl_read": ["root"]})),
        ("alice/own", json!({})),
    ] {
        let made =
            server.client.send("PUT", &format!("/{name}"), &[ROOT], config.to_string().as_bytes());
        assert_eq!(made.status, 200, "{}", made.text());
    }
    for (index, filename) in
        [("root/up", "tool-1.0.zip"), ("root/up", "tool-1.1.zip"), ("root/dev", "hidden-1.0.zip")]
    {
        upload(&server, index, filename);
    }
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let mut alice = Browser::of(server.client, "alice", "staple");
    let at = "/+manage/releases/root/up/tool";
    // Alice may push from the index, and nothing else.
    let page = alice.get(&format!("{at}?version=1.0")).text();
    let pushed = alice.submit(&page, "Push", &[("target", "alice/own"), ("content", "all")]);
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    // She may not push what a policy hides from her.
    let (action, mut fields) = form(&page, "Push");
    for (name, value) in &mut fields {
        match name.as_str() {
            "version" => *value = "1.1".to_owned(),
            "target" => *value = "alice/own".to_owned(),
            _ => {}
        }
    }
    let refused = alice.post(&action, &encoded(&fields));
    assert!(matches!(refused.status, 403 | 404), "{}: {}", refused.status, refused.text());
    let own = server.client.get("/alice/own/+simple/tool/").text();
    assert!(own.contains("tool-1.0.zip") && !own.contains("tool-1.1.zip"), "{own}");
    for label in ["Yank", "Remove", "Status", "Remove the project"] {
        assert!(!page.contains(&format!("aria-label=\"{label}\"")), "{label}: {page}");
    }
    assert!(!page.contains(">1.1<") && !page.contains("tool-1.0.zip"), "{page}");
    assert_eq!(alice.get(&format!("{at}?version=1.1")).status, 404);
    let own = root.get(&format!("{at}?version=1.1")).text();
    assert!(own.contains("tool-1.1.zip"), "{own}");
    for path in ["root/dev", "root/dev/hidden", "root/none"] {
        let missing = alice.get(&format!("/+manage/releases/{path}"));
        assert_eq!(missing.status, 404, "{path}: {}", missing.text());
        assert!(!missing.text().contains("may not"), "{}", missing.text());
        assert_eq!(
            Browser::new(server.client).get(&format!("/+manage/releases/{path}")).status,
            401
        );
    }
    assert!(root.get("/+manage/releases/root/dev").text().contains(">hidden<"));
    // She sends the forms of users with more rights, with a form token of her own.
    let token = form(&alice.get("/+account").text(), "New token").1[0].1.clone();
    let page = root.get(&format!("{at}?version=1.0")).text();
    let project = root.get(at).text();
    let secret = root.get("/+manage/releases/root/dev/hidden?version=1.0").text();
    for (page, label, more) in [
        (&page, "Yank", ("reason", "x")),
        (&page, "Yank tool-1.0.zip", ("reason", "x")),
        (&page, "Remove", ("confirm", "1.0")),
        (&page, "Remove tool-1.0.zip", ("confirm", "tool-1.0.zip")),
        (&project, "Status", ("status", "quarantined")),
        (&project, "Remove the project", ("confirm", "tool")),
        (&secret, "Yank", ("reason", "x")),
        (&secret, "Push", ("target", "alice/own")),
        (&secret, "Remove", ("confirm", "1.0")),
    ] {
        let (action, mut fields) = form(page, label);
        for (name, value) in &mut fields {
            match name.as_str() {
                "form" => value.clone_from(&token),
                name if name == more.0 => *value = more.1.to_owned(),
                _ => {}
            }
        }
        if !fields.iter().any(|(name, _)| name == more.0) {
            fields.push((more.0.to_owned(), more.1.to_owned()));
        }
        let refused = alice.post(&action, &encoded(&fields));
        assert!(
            matches!(refused.status, 401 | 403 | 404),
            "{label}: {} {}",
            refused.status,
            refused.text()
        );
        assert!(!refused.text().contains("hidden-1.0.zip"), "{label}: {}", refused.text());
    }
    let files = server.client.send("GET", "/root/up/+simple/tool/", &[ROOT], b"").text();
    assert!(files.contains("tool-1.0.zip") && !files.contains("data-yanked"), "{files}");
    let hidden = server.client.send("GET", "/root/dev/+simple/hidden/", &[ROOT], b"").text();
    assert!(hidden.contains("hidden-1.0.zip") && !hidden.contains("data-yanked"), "{hidden}");
    assert!(!server.client.get("/alice/own/+simple/").text().contains("hidden"));
    // The owner of an index is not offered releases that they may not read.
    let link = "/+manage/releases/alice/own";
    assert!(alice.get("/+manage/indexes/alice/own").text().contains(link));
    let closed = json!({"acl_read": ["root"]}).to_string();
    let closed = server.client.send("PATCH", "/alice/own", &[ROOT], closed.as_bytes());
    assert_eq!(closed.status, 200, "{}", closed.text());
    let own = alice.get("/+manage/indexes/alice/own");
    assert!(own.status == 200 && !own.text().contains(link), "{}", own.text());
    assert_eq!(alice.get(link).status, 404);
    assert!(root.get("/+manage/indexes/alice/own").text().contains(link));
}
