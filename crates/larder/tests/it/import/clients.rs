//! `larder use`: the files of pip, uv, twine and Poetry are told of an index.

use serde_json::json;

use super::*;
use crate::asking::Says as _;
use crate::process::Done;
use crate::shown::redacted;

/// A server with the index `alice/dev`, and the home of somebody who is to use it.
struct Home {
    directory: TempDir,
    _server: TestServer,
    /// Of the index.
    url: String,
}

/// The words that name `alice`, whose password is then read.
const ALICE: [&str; 3] = ["--user", "alice", "--password-stdin"];
const PASSWORD: &str = "alice-secret\n";
const PIP: &str = ".config/pip/pip.conf";
const OWN: &str = "# mine\n[global]\ntimeout = 9\n";

impl Home {
    /// A home in which pip has settings already.
    fn start() -> Home {
        let directory = tempfile::tempdir().expect("a directory");
        let server = TestServer::without_aur(|_| ());
        server.add_user("alice", PASSWORD.trim_end());
        server.root().put("/alice/dev", json!({})).expect(200);
        let url = format!("http://{}/alice/dev", server.client.address);
        let home = Home { directory, _server: server, url };
        fs::create_dir_all(home.path(".config/pip")).expect("a directory");
        fs::write(home.path(PIP), OWN).expect("a file");
        fs::set_permissions(home.path(PIP), fs::Permissions::from_mode(0o644)).expect("a mode");
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Runs `larder use URL WORDS…`, which must end with this code; returns what it says.
    #[track_caller]
    fn tell(&self, words: &[&str], input: &str, code: i32) -> String {
        let words = [&["use", &self.url][..], words].concat();
        let done = Done::of(crate::process::larder(self.directory.path()).args(words), input);
        let said = done.check(code, "").said();
        redacted(&said.replace(self.directory.path().to_str().expect("UTF-8"), "HOME"))
    }

    /// Tells every client, of this index alone.
    #[track_caller]
    fn tell_all(&self) -> String {
        self.tell(&[&["--all", "--only"][..], &ALICE].concat(), PASSWORD, 0)
    }
}

#[test]
fn a_dry_run_shows_the_change_and_writes_nothing() {
    let home = Home::start();
    assert_snapshot!("dry_run", home.tell(&["--pip", "--only", "--dry-run"], "", 0));
    assert_eq!(home.read(PIP), OWN);
}

#[test]
fn a_password_that_the_server_refuses_is_not_written() {
    let home = Home::start();
    let said = home.tell(&[&["--all"][..], &ALICE].concat(), "no\n", 1);
    said.says("does not accept this user");
    assert!(!home.path(".pypirc").exists());
    assert_eq!(home.read(PIP), OWN);
}

#[test]
fn every_client_is_told_with_credentials_that_others_cannot_read() {
    let home = Home::start();
    assert_snapshot!("told_all", home.tell_all());
    let url = &home.url;
    let with_user = url.replace("http://", "http://alice:alice-secret@");
    let uv = format!(
        "[[index]]\nname = \"alice-dev\"\nurl = \"{with_user}/+simple/\"\n\
         publish-url = \"{with_user}/\"\ndefault = true\n"
    );
    let pypirc = format!(
        "[distutils]\nindex-servers =\n    pypi\n    testpypi\n    alice-dev\n\n[alice-dev]\n\
         repository = {url}/\nusername = alice\npassword = alice-secret\n"
    );
    let auth = "[http-basic.alice-dev]\nusername = \"alice\"\npassword = \"alice-secret\"\n";
    for (name, text) in [
        (PIP, format!("{OWN}index-url = {with_user}/+simple/\n")),
        (".config/uv/uv.toml", uv),
        (".pypirc", pypirc),
        (".config/pypoetry/auth.toml", auth.to_owned()),
    ] {
        assert_eq!(home.read(name), text, "{name}");
        let mode = fs::metadata(home.path(name)).expect(name).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let repository = format!("[repositories.alice-dev]\nurl = \"{url}/\"\n");
    assert_eq!(home.read(".config/pypoetry/config.toml"), repository);
    assert_eq!(home.read(".config/pip/pip.conf.bak"), OWN);
}

#[test]
fn whoever_was_told_is_not_told_again() {
    let home = Home::start();
    home.tell_all();
    let said = home.tell_all();
    assert_eq!(said.matches("nothing to change").count(), 5, "{said}");
    assert!(!home.path(".config/pip/pip.conf.bak.1").exists());
}

#[test]
fn uv_has_an_index_beside_the_public_one() {
    let home = Home::start();
    assert_snapshot!("told_uv", home.tell(&["--uv", "--dir", "here"], "", 0));
    assert_snapshot!("uv.toml", redacted(&home.read("here/uv.toml")));
}

/// pip has no way to be told of an index beside another.
#[test]
fn pip_is_not_told_of_an_index_beside_the_public_one() {
    let home = Home::start();
    assert_snapshot!("told_pip", home.tell(&["--pip", "--dir", "pips"], "", 0));
    assert!(!home.path("pips").exists());
}

#[test]
fn a_project_is_told_without_the_password() {
    let home = Home::start();
    fs::create_dir(home.path("app")).expect("a directory");
    fs::write(home.path("app/pyproject.toml"), "[project]\nname = \"app\"\n").expect("a file");
    let words = [&["--uv", "--poetry", "--project", "app"][..], &ALICE].concat();
    home.tell(&words, PASSWORD, 0);
    assert_snapshot!("pyproject.toml", redacted(&home.read("app/pyproject.toml")));
}

#[test]
fn what_cannot_be_told_is_refused() {
    let home = Home::start();
    home.tell(&["--uv", "--project", "none.toml"], "", 2).says("`none.toml`");
    home.tell(&["--pip", "--user", "alice"], "", 2);
    let url = home.url.replace("/alice/dev", "/alice/none");
    let elsewhere = Home { url, ..home };
    elsewhere.tell(&["--pip"], "", 1).says("The stage alice/none could not be found.");
}
