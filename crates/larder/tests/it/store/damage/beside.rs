//! Files in or beside a data directory that are not part of the store: the kept dump of the AUR, the configuration, the
//! security log, the password of a new `root`, sockets. Damage to them costs no write, and is reported.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::Harm::{Away, Deleted, Emptied, Garbage, Halved};
use super::{Case, copy, each_harm, harm, write};
use crate::asking::{Says as _, each};
use crate::process::{Done, Process, init, larder};
use crate::{catalogue, wait_until};

const KEPT: &str = "aur/packages-meta-ext-v1.json.gz";
const DOWNLOAD: &str = "/packages-meta-ext-v1.json.gz";
const SEARCH: &str = "/rpc/v5/info/shared-0001";

/// A directory with the data directory `data`, which has kept a dump.
fn kept() -> Arc<TempDir> {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    fs::write(directory.path().join("dump.json.gz"), catalogue::generation(1, 20)).expect("a dump");
    let mut process = serve(&directory, "data", &["--aur-source", "dump.json.gz"]);
    wait_until("the dump to be kept", || process.get(DOWNLOAD).status == 200);
    process.stop();
    directory
}

fn serve(directory: &Arc<TempDir>, data: &str, arguments: &[&str]) -> Process {
    Process::start_in(directory.clone(), data, arguments)
}

fn run(directory: &TempDir, arguments: &[&str]) -> Done {
    Done::of(larder(directory.path()).args(arguments), "")
}

/// The outcome of a start without a source.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    /// The packages are served.
    Serves,
    /// Everything else is served.
    ServesNoPackages,
    /// It is not ready, and says why.
    IsNotReady,
}

#[test]
fn the_kept_dump_at_rest() {
    let directory = kept();
    let cases: &[Case<'_, Start>] = &[
        (KEPT, &[Deleted, Away], Start::ServesNoPackages),
        (KEPT, &[Emptied, Halved, Garbage], Start::IsNotReady),
        ("aur/source.json", &[Deleted, Emptied, Halved, Garbage], Start::Serves),
        ("aur", &[Deleted, Emptied, Away], Start::ServesNoPackages),
    ];
    each_harm(cases, |number, path, harmed, start| {
        let (data, what) = (format!("rest{number}"), format!("{path}: {harmed:?}"));
        copy(&directory.path().join("data"), &directory.path().join(&data));
        let path = directory.path().join(&data).join(path);
        harm(&path, &path, harmed);
        match start {
            Start::Serves | Start::ServesNoPackages => {
                let process = serve(&directory, &data, &[]);
                let expected = if start == Start::Serves { 200 } else { 404 };
                assert_eq!(process.client.get(SEARCH).status, expected, "{what}");
            }
            Start::IsNotReady => {
                let process = Process::start_unready(directory.clone(), &data, &[]);
                let mut said = String::new();
                wait_until("the reason, and the store", || {
                    said = process.get("/readyz").text();
                    said.contains("is not good") && !said.contains("store: ")
                });
                said.says([KEPT, "aur.source"]);
                // All else is served.
                assert_eq!(process.client.get("/articles").status, 200, "{what}");
            }
        }
        // With a source it does not matter, and the file is kept again.
        let process = serve(&directory, &data, &["--aur-source", "dump.json.gz"]);
        assert_eq!(process.client.get(SEARCH).status, 200, "{what}");
        wait_until("the dump to be kept", || process.get(DOWNLOAD).status == 200);
        drop(process);
        fs::remove_dir_all(directory.path().join(&data)).expect("it is ours");
    });
}

#[test]
fn the_kept_dump_while_running() {
    let directory = kept();
    let source = directory.path().join("dump.json.gz");
    let cases: &[Case<'_, u16>] = &[
        // The file is held open.
        (KEPT, &[Deleted, Away], 200),
        (KEPT, &[Emptied, Halved, Garbage], 503),
        ("aur", &[Deleted, Away], 200),
    ];
    each_harm(cases, |number, path, harmed, status| {
        let (data, what) = (format!("run{number}"), format!("{path}: {harmed:?}"));
        fs::write(&source, catalogue::generation(1, 20)).expect("a dump");
        copy(&directory.path().join("data"), &directory.path().join(&data));
        let process = serve(&directory, &data, &["--aur-source", "dump.json.gz"]);
        wait_until("the dump to be kept", || process.get(DOWNLOAD).status == 200);
        let path = directory.path().join(&data).join(path);
        harm(&path, &path, harmed);
        let download = process.get(DOWNLOAD);
        assert_eq!(download.status, status, "{what}");
        if status == 200 {
            let found = catalogue::gunzip(&download.body);
            assert!(found == catalogue::generation(1, 20), "{what}");
        }
        assert_eq!(process.client.get(SEARCH).status, 200, "{what}");
        // The next dump is kept again.
        let number = number + 2;
        let next = catalogue::generation(number, 20);
        fs::write(&source, &next).expect("a dump");
        let version = format!("{number}-1");
        wait_until("the next dump", || {
            process.get(SEARCH).json()["results"][0]["Version"] == version
                && process.get(DOWNLOAD).status == 200
        });
        let found = catalogue::gunzip(&process.get(DOWNLOAD).body);
        assert!(found == next, "{what}");
        drop(process);
        fs::remove_dir_all(directory.path().join(&data)).expect("it is ours");
    });
}

const HISTORY: &str = "aur-history.db";

/// [`kept`], with a history of packages.
fn with_history() -> Arc<TempDir> {
    let directory = kept();
    let mut process = serve(&directory, "data", &["--aur-source", "dump.json.gz"]);
    wait_until("the history", || process.get("/aur/history/shared-0001").status == 200);
    process.stop();
    directory
}

/// The history begins anew, what was of no use is set aside, and people are told.
fn check_begun_anew(process: &Process) {
    wait_until("the history", || process.get("/aur/history/shared-0001").status == 200);
    process.get("/changes?surface=aur").expect(200);
    let told = process.get("/readyz?verbose");
    told.says(["[!] the history of the AUR's packages: ", "set-aside"]);
    let page = process.browse("/status");
    page.says("the history of the AUR&#39;s packages: something was of no use");
}

fn succeed(command: &mut Command) {
    assert!(command.status().expect("it runs").success(), "{command:?}");
}

/// Executes a statement in a database of SQLite.
fn execute(database: &Path, statement: &str) {
    let script =
        "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()";
    succeed(Command::new("python3").args(["-c", script]).arg(database).arg(statement));
}

/// What it is called, and how it is done to a file.
type Damage<'damage> = (&'damage str, &'damage dyn Fn(&Path));

/// Nobody waits.
#[test]
fn the_history_of_packages_at_rest() {
    let directory = with_history();
    let rows: [Damage<'_>; 7] = [
        ("garbage", &|path| harm(path, path, Garbage)),
        ("halved", &|path| harm(path, path, Halved)),
        ("another program's", &|path| {
            fs::remove_file(path).expect("it was there");
            execute(path, "create table x(y)");
        }),
        // The records are in order, and what they say is not.
        ("another state", &|path| {
            execute(path, "update larder_records set body=x'7b7d' where key='state'");
        }),
        ("a directory", &|path| {
            fs::remove_file(path).expect("it was there");
            fs::create_dir(path).expect("a directory");
        }),
        ("a pipe", &|path| {
            fs::remove_file(path).expect("it was there");
            succeed(Command::new("mkfifo").arg(path));
        }),
        ("a loop", &|path| {
            fs::remove_file(path).expect("it was there");
            symlink(path, path).expect("a link");
        }),
    ];
    each(rows, |(kind, damage)| {
        let data = kind.replace([' ', '\''], "-");
        copy(&directory.path().join("data"), &directory.path().join(&data));
        damage(&directory.path().join(&data).join(HISTORY));
        check_begun_anew(&serve(&directory, &data, &["--aur-source", "dump.json.gz"]));
    });
}

#[test]
fn the_history_of_packages_while_running() {
    let directory = with_history();
    let process = serve(&directory, "data", &["--aur-source", "dump.json.gz"]);
    wait_until("the history", || process.get("/aur/history/shared-0001").status == 200);
    let path = directory.path().join("data").join(HISTORY);
    harm(&path, &path, Garbage);
    fs::write(directory.path().join("dump.json.gz"), catalogue::generation(2, 20)).expect("a dump");
    wait_until("the next dump", || process.get(SEARCH).json()["results"][0]["Version"] == "2-1");
    process.wait_for("/readyz?verbose", "set-aside");
    check_begun_anew(&process);
}

/// A configuration that cannot be read again changes nothing, and is named.
#[test]
fn the_configuration_while_running() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let path = directory.path().join("larder.toml");
    let text = "security_log = \"security.log\"\n[aur]\nenabled = false\nrate_limit = 5\n";
    fs::write(&path, text).expect("a file");
    let process = serve(&directory, "data", &["--config", "larder.toml"]);
    let said = || process.log().matches("the configuration cannot be read again").count();
    let reload = || {
        let before = said();
        process.signal("HUP");
        wait_until("the reload", || said() > before);
        process.get("/readyz").expect(200);
        let _ = fs::remove_dir(&path);
        fs::write(&path, text).expect("a file");
    };
    for harmed in [Deleted, Halved, Away] {
        harm(&path, &path, harmed);
        reload();
    }
    fs::write(&path, "\0\u{1}[[").expect("a file");
    reload();
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a directory");
    reload();
    // An empty file is a configuration: it has only defaults.
    harm(&path, &path, Emptied);
    process.signal("HUP");
    process.wait_for_log("this setting has changed");
    process.get("/readyz").expect(200);
    process.log().lacks("panicked");
}

/// The security log is opened again on SIGHUP; the server needs it for nothing else.
#[test]
fn the_security_log() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let path = directory.path().join("logs/security.log");
    fs::create_dir(directory.path().join("logs")).expect("a directory");
    let arguments = ["--aur-enabled=false", "--security-log", "logs/security.log"];
    let process = serve(&directory, "data", &arguments);
    let fail = || process.authorized("Basic cm9vdDp3cm9uZw==").get("/+api");
    let has_line = || fs::read_to_string(&path).is_ok_and(|text| text.contains("root"));
    for harmed in [Deleted, Emptied, Away] {
        harm(&path, &path, harmed);
        assert_ne!(fail().status, 500, "{harmed:?}");
        process.signal("HUP");
        wait_until("a line", || {
            fail();
            has_line()
        });
    }
    // If it cannot be opened again, the old one stays, and the log says so.
    fs::remove_dir_all(directory.path().join("logs")).expect("removed");
    process.signal("HUP");
    process.wait_for_log("security log cannot be opened again");
    assert_ne!(fail().status, 500);
    process.get("/readyz").expect(200);
    drop(process);
    let serve = ["serve", "--data-dir", "data", "--listen", "127.0.0.1:0"];
    let serve = [&serve[..], &["--security-log", "logs/x.log"]].concat();
    run(&directory, &serve).check(1, "security_log = \"logs/x.log\" cannot be");
}

/// The file with the password of a new `root` is for a person, and the server does not need it.
#[test]
fn the_password_file() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let path = directory.path().join("data/root-password");
    let process = serve(&directory, "data", &["--aur-enabled=false"]);
    for harmed in [Emptied, Garbage, Deleted] {
        if fs::metadata(&path).is_ok_and(|found| found.len() == 0) {
            fs::write(&path, "another").expect("a file");
        }
        harm(&path, &path, harmed);
        process.get("/readyz").expect(200);
    }
    drop(process);
    // Neither the file nor another password is made.
    let process = serve(&directory, "data", &["--aur-enabled=false"]);
    assert!(!path.exists());
    drop(process);
    // If the file cannot be written, the message says what else to do.
    fs::create_dir_all(directory.path().join("new/root-password/full")).expect("a directory");
    let serve = ["serve", "--data-dir", "new", "--aur-enabled=false", "--listen", "127.0.0.1:0"];
    run(&directory, &serve).check(1, "larder user password root");
}

/// The server replaces a socket that an earlier one left; it refuses to replace any other file, and names it.
#[test]
fn sockets() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    init(directory.path());
    let path = directory.path().join("larder.sock");
    let arguments = ["--aur-enabled=false", "--listen", "unix:larder.sock"];
    for _ in 0..2 {
        // A killed server leaves its socket.
        let process = serve(&directory, "data", &arguments);
        assert!(UnixStream::connect(&path).is_ok());
        process.signal("KILL");
        drop(process);
        assert!(path.exists());
    }
    let process = serve(&directory, "data", &arguments);
    fs::remove_file(&path).expect("removed");
    assert_eq!(write(&process.client, 1), 201);
    drop(process);
    fs::write(&path, "somebody's").expect("a file");
    let serve = ["serve", "--data-dir", "data", "--listen", "unix:larder.sock"];
    run(&directory, &serve).check(1, "is no socket");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "somebody's");
}
