//! Real files, polled quickly: what is handed out, in which order, and which errors are reported.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

const LOOK: Duration = Duration::from_millis(10);

fn watch(path: &Path) -> FileWatch {
    FileWatch::new(path.to_owned(), "fingerprint".to_owned(), 1000, LOOK)
}

/// The result of one look: the content of the arrival, `-` for nothing, or the error.
async fn look(watch: &mut FileWatch, force: bool) -> String {
    match watch.poll(force).await {
        Ok(Some(arrival)) => content(&arrival),
        Ok(None) => "-".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn content(arrival: &Arrival) -> String {
    let mut text = String::new();
    arrival.reader().read_to_string(&mut text).unwrap();
    text
}

/// Expects these results of as many looks, unforced.
#[track_caller]
fn check(watch: &mut FileWatch, expected: &[&str]) {
    let runtime = runtime();
    let found: Vec<String> =
        expected.iter().map(|_| runtime.block_on(look(watch, false))).collect();
    assert_eq!(found, expected);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn replace(path: &Path, text: &str) {
    let aside = path.with_extension("aside");
    fs::write(&aside, text).unwrap();
    fs::rename(&aside, path).unwrap();
}

#[test]
fn a_file_is_taken_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    fs::write(&path, "one").unwrap();
    check(&mut watch(&path), &["one", "-", "-"]);
}

#[test]
fn a_renamed_file_is_taken_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    fs::write(&path, "one").unwrap();
    let mut watch = watch(&path);
    check(&mut watch, &["one", "-"]);
    // The new files have the same size, and there are several, so that inode numbers are used again.
    for text in ["two", "six", "ten"] {
        replace(&path, text);
        check(&mut watch, &[text, "-"]);
    }
}

#[test]
fn a_rewritten_file_is_taken_at_the_second_look() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    fs::write(&path, "one").unwrap();
    let mut watch = watch(&path);
    check(&mut watch, &["one"]);
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    file.write_all(b"t").unwrap();
    check(&mut watch, &["-"]);
    assert_eq!(watch.next_look(), LOOK / 4);
    file.write_all(b"wo").unwrap();
    check(&mut watch, &["-", "two", "-"]);
    assert_eq!(watch.next_look(), LOOK);
}

#[test]
fn a_flipped_link_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("1"), directory.path().join("2"));
    let (link, aside) = (directory.path().join("link"), directory.path().join("aside"));
    fs::write(&first, "one").unwrap();
    fs::write(&second, "two").unwrap();
    symlink(&first, &link).unwrap();
    let mut watch = watch(&link);
    check(&mut watch, &["one", "-"]);
    symlink(&second, &aside).unwrap();
    fs::rename(&aside, &link).unwrap();
    check(&mut watch, &["two", "-"]);
    replace(&second, "three");
    check(&mut watch, &["three", "-"]);
}

#[test]
fn a_missing_file_is_reported_once_and_taken_when_it_appears() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    let error = format!(
        "cannot read the dump `{}`: No such file or directory (os error 2)",
        path.display()
    );
    let mut watch = watch(&path);
    check(&mut watch, &[&error, "-"]);
    assert_eq!(watch.trouble(), Some(error.as_str()));
    assert_eq!(runtime().block_on(look(&mut watch, true)), error);
    fs::write(&path, "one").unwrap();
    check(&mut watch, &["one", "-"]);
    assert_eq!(watch.trouble(), None);
    fs::remove_file(&path).unwrap();
    check(&mut watch, &[&error, "-"]);
    fs::create_dir(&path).unwrap();
    let error = format!("cannot read the dump `{}`: it is not a regular file", path.display());
    check(&mut watch, &[&error, "-"]);
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "two").unwrap();
    check(&mut watch, &["two", "-"]);
}

#[test]
fn a_rejected_file_is_handed_out_again_only_when_forced_or_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    fs::write(&path, "bad").unwrap();
    let mut watch = watch(&path);
    check(&mut watch, &["bad"]);
    watch.rejected();
    check(&mut watch, &["-"]);
    assert_eq!(runtime().block_on(look(&mut watch, true)), "bad");
    watch.accepted();
    assert_eq!(runtime().block_on(look(&mut watch, true)), "-");
    replace(&path, "good");
    check(&mut watch, &["good", "-"]);
}

#[test]
fn a_forced_look_waits_for_the_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    fs::write(&path, "one").unwrap();
    let mut watch = watch(&path);
    check(&mut watch, &["one"]);
    fs::write(&path, "one more").unwrap();
    assert_eq!(runtime().block_on(look(&mut watch, true)), "one more");
    check(&mut watch, &["-"]);
}

#[test]
fn a_large_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    fs::write(&path, vec![b'x'; 1001]).unwrap();
    let error = format!(
        "the dump from `{}` has more than 1000 bytes, the largest that is accepted",
        path.display()
    );
    check(&mut watch(&path), &[&error, "-"]);
}

#[test]
fn replacing_mixes_nothing_and_rewriting_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    fs::write(&path, "one").unwrap();
    let arrival = runtime().block_on(watch(&path).poll(false)).unwrap().unwrap();
    replace(&path, "two");
    assert_eq!(content(&arrival), "one");
    arrival.check_unchanged().unwrap();

    let arrival = runtime().block_on(watch(&path).poll(false)).unwrap().unwrap();
    fs::write(&path, "longer").unwrap();
    assert_eq!(
        arrival.check_unchanged().unwrap_err().to_string(),
        format!(
            "the dump `{}` changed while it was read; it is read again when it no longer changes",
            path.display()
        )
    );
}
