//! The cache of mirrors on disk: damage, too much for it, and restarts.

use super::*;

/// Changes a byte in the middle of every entry of the cache that has this content.
fn damage(directory: &TempDir, content: &[u8]) {
    let mut found = 0;
    for part in
        std::fs::read_dir(directory.path().join("data/mirrors")).expect("the cache").flatten()
    {
        for entry in std::fs::read_dir(part.path()).expect("a directory").flatten() {
            let mut bytes = std::fs::read(entry.path()).expect("an entry");
            if bytes.ends_with(content) {
                let at = bytes.len() - content.len() / 2 - 1;
                bytes[at] ^= 1;
                std::fs::write(entry.path(), bytes).expect("a disk");
                found += 1;
            }
        }
    }
    assert_eq!(found, 1, "one file has this content");
}

#[test]
fn what_the_disk_has_changed_is_not_served() {
    let upstream = upstream_of(b"content");
    let (path, target) = (format!("/files/{WHEEL}"), root_place_of(&upstream, WHEEL));
    let directory = start_with_root_pypi(&upstream).stop();
    damage(&directory, b"content");
    upstream.offer(&path, Offer::status(500));
    let server = start_in(directory, |_| ());
    for header in [[("Range", "bytes=1-2")], [("Accept", "*/*")]] {
        server.client.get_with(&target, &header).expect(502);
    }
    upstream.offer(&path, Offer::file("content"));
    assert_eq!(server.get(&target).text(), "content");
    let directory = server.stop();
    damage(&directory, b"content");
    let before = upstream.count(&path);
    let server = start_in(directory, |_| ());
    assert_eq!(server.get(&target).text(), "content", "it is fetched anew");
    assert_eq!(upstream.count(&path), before + 1);
    assert_eq!(server.get(&target).text(), "content");
    assert_eq!(upstream.count(&path), before + 1, "it is kept");
}

#[test]
fn nothing_is_downloaded_onto_a_full_disk() {
    let upstream = upstream_of(b"content");
    let directory = start_with_root_pypi(&upstream).stop();
    let more = "foo-2.0.tar.gz";
    let files = [file(&upstream, WHEEL, b"content"), file(&upstream, more, b"more")];
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    upstream.offer(&format!("/files/{more}"), Offer::file("more"));
    let server = start_in(directory, |config| config.store.free_bytes_min = u64::MAX);
    // Pages are in memory, and existing files stay.
    let page = json_page(server.client, "root/pypi", "foo");
    assert_eq!(page.json()["files"][1]["filename"], more);
    assert_eq!(server.get(&root_place_of(&upstream, WHEEL)).text(), "content");
    let refused = server.get(&root_place_of(&upstream, more)).expect(503);
    let text = format!("; 4100 more would leave less than {} (`store.free_bytes_min`)", u64::MAX);
    assert!(refused.told().ends_with(&text), "{}", refused.told());
    assert!(refused.find("retry-after").is_some(), "{:?}", refused.headers);
    assert_eq!(upstream.count(&format!("/files/{more}")), 0, "upstream is not even asked");
    let server = start_in(server.stop(), |_| ());
    assert_eq!(server.get(&root_place_of(&upstream, more)).text(), "more");
}

#[test]
fn downloads_count_while_they_are_written() {
    let content = vec![7; 400 << 10];
    let upstream = upstream_of(b"content");
    let names = ["foo-1.tar.gz", "foo-2.tar.gz", "foo-3.tar.gz"];
    let files: Vec<Value> = names.iter().map(|name| file(&upstream, name, &content)).collect();
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    for name in names {
        let path = format!("/files/{name}");
        upstream.offer(&path, Offer::file(content.clone()).held_after(100));
        upstream.hold(&path);
    }
    let index = Index::start_with(|config| {
        allow_this_machine(config);
        config.python.mirror_disk_bytes_max = 1 << 20;
    });
    mirror(&index, &upstream, json!({}));
    let client = index.client();
    let get = |name: &str| {
        let target = place_of(&upstream, name);
        std::thread::spawn(move || client.get(&target))
    };
    let first = [get(names[0]), get(names[1])];
    for name in &names[..2] {
        upstream.wait_for(&format!("/files/{name}"), 1);
    }
    assert!(index.server.metric("larder_mirror_disk_bytes") >= (800 << 10) as f64);
    // Upstream has sent 100 bytes of each, but their full space is promised.
    client.get(&place_of(&upstream, names[2])).tells(503, "the mirror alice/up has no usable answer from its upstream: the cache of the mirrors has no room: 413696 bytes more do not go into 1048576 (`python.mirror_disk_bytes_max`) beside what is read and written now");
    for name in names {
        upstream.release(&format!("/files/{name}"));
    }
    for download in first {
        assert!(download.join().expect("an answer").body == content);
    }
    // Readers may still have the files of the first two open for a moment.
    wait_until("the third instead of one that nobody reads", || {
        let answer = client.get(&place_of(&upstream, names[2]));
        answer.status == 200 && answer.body == content
    });
    assert!(index.server.metric("larder_mirror_disk_bytes") <= (1 << 20) as f64);
}

#[test]
fn the_cache_survives_a_restart_without_its_upstream() {
    let upstream = upstream_of(b"content");
    let target = root_place_of(&upstream, WHEEL);
    let directory = start_with_root_pypi(&upstream).stop();

    upstream.break_with(Some(500));
    // A kill leaves an unfinished file.
    let unfinished = directory.path().join("data/mirrors/tmp");
    std::fs::create_dir_all(&unfinished).expect("a directory");
    std::fs::write(unfinished.join("half"), "half").expect("a file");
    let server = start_in(directory, |_| ());
    assert!(!unfinished.join("half").exists());
    let page = json_page(server.client, "root/pypi", "foo");
    assert_eq!((page.status, &page.json()["files"][0]["filename"]), (200, &json!(WHEEL)));
    assert!(page.find("warning").is_some(), "it is not confirmed");
    assert_eq!(server.get(&target).text(), "content");
    assert_eq!(json_page(server.client, "root/pypi", "bar").status, 502, "it was never known");
    assert_eq!(json_page(server.client, "root/pypi", "nothing").status, 404, "the list is known");
}
