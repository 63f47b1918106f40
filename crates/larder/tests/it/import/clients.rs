//! `larder use`: the files of pip, uv, twine and Poetry are told of an index.

use serde_json::json;

use super::*;
use crate::asking::Says as _;
use crate::process::Done;
use crate::shown::redacted;

/// A server with the index `alice/dev`, and the home of somebody who is to use it.
struct Home {
    directory: TempDir,
    server: TestServer,
    /// Of the index.
    url: String,
}

/// The words that name `alice`, whose password is then read.
const ALICE: [&str; 3] = ["--user", "alice", "--password-stdin"];
const PASSWORD: &str = "alice-secret\n";
const PIP: &str = ".config/pip/pip.conf";
const FILES: [&str; 4] = [PIP, ".config/uv/uv.toml", ".pypirc", ".config/pypoetry/auth.toml"];
const OWN: &str = "# mine\n[global]\ntimeout = 9\n";

impl Home {
    /// A home in which pip has settings already.
    fn start() -> Home {
        let directory = tempfile::tempdir().expect("a directory");
        let server = TestServer::without_aur(|_| ());
        server.add_user("alice", PASSWORD.trim_end());
        server.root().put("/alice/dev", json!({})).expect(200);
        let url = format!("http://{}/alice/dev", server.client.address);
        let home = Home { directory, server, url };
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
    assert_eq!(
        said,
        "larder: http://127.0.0.1:PORT/alice/dev/ does not accept this user with this password or token\n"
    );
    assert!(!home.path(".pypirc").exists());
    assert_eq!(home.read(PIP), OWN);
}

impl Home {
    /// The tokens in the files, each once, in order.
    fn tokens(&self) -> Vec<String> {
        let rule = regex::Regex::new("larder_[0-9a-f]{12}_[0-9a-f]{64}").expect("a rule");
        let mut found: Vec<String> = Vec::new();
        for name in FILES {
            let text = self.read(name);
            for token in rule.find_iter(&text).map(|it| it.as_str()) {
                if !found.iter().any(|it| it == token) {
                    found.push(token.to_owned());
                }
            }
        }
        found
    }

    /// The tokens of the user at the server.
    fn listed(&self) -> Vec<Value> {
        let all = self.server.user("alice", PASSWORD.trim_end()).get("/+tokens").expect(200);
        all.json()["tokens"].as_array().expect("a list").clone()
    }
}

#[test]
fn every_client_is_told_with_tokens_that_others_cannot_read() {
    let home = Home::start();
    assert_snapshot!("told_all", home.tell_all());
    let tokens = home.tokens();
    let [reads, uploads] = &tokens[..] else { panic!("{tokens:?}") };
    let url = &home.url;
    let with = |token: &str| url.replace("http://", &format!("http://__token__:{token}@"));
    let uv = format!(
        "[[index]]\nname = \"alice-dev\"\nurl = \"{}/+simple/\"\npublish-url = \"{}/\"\ndefault = true\n",
        with(reads),
        with(uploads)
    );
    let pypirc = format!(
        "[distutils]\nindex-servers =\n    pypi\n    testpypi\n    alice-dev\n\n[alice-dev]\n\
         repository = {url}/\nusername = __token__\npassword = {uploads}\n"
    );
    let auth = format!(
        "[http-basic.alice-dev]\nusername = \"__token__\"\npassword = \"{reads}\"\n\n\
         [pypi-token]\nalice-dev = \"{uploads}\"\n"
    );
    for (name, text) in [
        (PIP, format!("{OWN}index-url = {}/+simple/\n", with(reads))),
        (".config/uv/uv.toml", uv),
        (".pypirc", pypirc),
        (".config/pypoetry/auth.toml", auth),
    ] {
        assert_eq!(home.read(name), text, "{name}");
        let mode = fs::metadata(home.path(name)).expect(name).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let repository = format!("[repositories.alice-dev]\nurl = \"{url}/\"\n");
    assert_eq!(home.read(".config/pypoetry/config.toml"), repository);
    assert_eq!(home.read(".config/pip/pip.conf.bak"), OWN);
    // Each is for this index alone, and ends.
    let mut scopes = Vec::new();
    for token in home.listed() {
        scopes.push(token["scopes"].to_string());
        assert_eq!(token["indexes"], json!(["alice/dev"]), "{token}");
        assert!(token["expires_at"].is_string(), "{token}");
        assert!(token["comment"].as_str().expect("a text").starts_with("larder use"), "{token}");
    }
    scopes.sort();
    assert_eq!(scopes, ["[\"python:read\"]", "[\"python:upload\"]"]);
}

#[test]
fn a_token_that_is_no_longer_good_is_made_anew() {
    let home = Home::start();
    home.tell_all();
    let before = home.tokens();
    let id = before[0].split('_').nth(1).expect("an id");
    let alice = || home.server.user("alice", PASSWORD.trim_end());
    alice().delete(&format!("/+tokens/{id}")).expect(204);
    let said = home.tell_all();
    assert_snapshot!("made_anew", said);
    let after = home.tokens();
    assert!(after[0] != before[0] && after[1] == before[1], "{before:?} {after:?}");
    // One that lives much longer or shorter than it should is another one.
    let year = [&["--all", "--only", "--expires", "1y"][..], &ALICE].concat();
    assert_eq!(home.tell(&year, PASSWORD, 0).matches("made the token").count(), 2);
    assert_eq!(home.tell(&year, PASSWORD, 0).matches("is still good").count(), 2);
    assert_eq!(home.tell_all().matches("made the token").count(), 2);
    let past = [&["--uv", "--expires", "2020-01-01"][..], &ALICE].concat();
    let said = home.tell(&past, PASSWORD, 1);
    assert_eq!(said, "larder: --expires: a time that is still to come was expected\n");
    for when in ["never", "soon"] {
        let words = [&["--uv", "--expires", when][..], &ALICE].concat();
        assert_eq!(
            home.tell(&words, PASSWORD, 2),
            format!(
                "error: invalid value '{when}' for '--expires <WHEN>': `{when}` is no time to expire at; expected: a length such as `90d`, a date such as `DATE`, a time such as `TIME`\n\nFor more information, try '--help'.\n"
            )
        );
    }
}

#[test]
fn a_dry_run_makes_no_token() {
    let home = Home::start();
    let words = [&["--all", "--only", "--dry-run"][..], &ALICE].concat();
    let said = home.tell(&words, PASSWORD, 0);
    assert_snapshot!("dry_run_of_all", said);
    assert!(home.listed().is_empty() && home.tokens().is_empty());
    // A file that cannot be changed is found before a token is made.
    fs::create_dir_all(home.path(".config/uv")).expect("a directory");
    fs::write(home.path(".config/uv/uv.toml"), "index = 5").expect("a file");
    let said = home.tell(&[&["--all"][..], &ALICE].concat(), PASSWORD, 1);
    assert_eq!(
        said,
        "larder: `HOME/.config/uv/uv.toml` cannot be changed: its `index` is not a list of [[index]] tables; the file was left unchanged\n"
    );
    assert!(home.listed().is_empty());
}

#[test]
fn what_uploads_is_taken_out_for_whoever_only_reads() {
    let home = Home::start();
    home.tell_all();
    let tokens = home.tokens();
    let words = [&["--all", "--only", "--read-only"][..], &ALICE].concat();
    let said = home.tell(&words, PASSWORD, 0);
    assert_snapshot!("only_reads", said);
    assert_eq!(home.tokens(), tokens[..1]);
    assert!(!home.read(".pypirc").contains("password"));
    // A password that an older version wrote is replaced, too.
    home.server.add_user("bob", "horse");
    let words = ["--all", "--only", "--user", "bob", "--password-stdin"];
    let said = home.tell(&words, "horse\n", 0);
    assert_snapshot!("may_not_upload", said);
    assert_eq!(home.tokens().len(), 1);
}

/// Another server than Larder makes no tokens.
#[test]
fn a_server_that_makes_no_tokens_gets_the_password() {
    let home = Home::start();
    let other = testbed::Upstream::start();
    let at = |path: &str| other.url(path);
    let api = json!({
        "type": "apiconfig",
        "result": {
            "authstatus": ["ok", "alice", []],
            "pypisubmit": at("/alice/dev/"),
            "simpleindex": at("/alice/dev/+simple/"),
        },
    });
    other.offer("/alice/dev/+api", testbed::Offer::file(api.to_string()));
    let elsewhere = Home { url: at("/alice/dev"), ..home };
    let words = [&["--uv", "--twine"][..], &ALICE].concat();
    let said = elsewhere.tell(&words, PASSWORD, 0);
    assert_snapshot!("another_server", said);
    elsewhere.read(".pypirc").says("username = alice\npassword = alice-secret\n");
    elsewhere.read(".config/uv/uv.toml").says("alice:alice-secret@");
    // A busy server makes them later.
    other.offer("/+tokens", testbed::Offer { status: 503, ..testbed::Offer::file("{}") });
    assert_eq!(
        elsewhere.tell(&words, PASSWORD, 1),
        "larder: http://127.0.0.1:PORT/+tokens answers 503. Nothing was written; try again later\n"
    );
}

/// The certificate of a server is of an authority that no machine knows.
#[test]
fn an_authority_of_ones_own_is_named_in_what_fails_and_in_what_is_written() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
    let file = |name: &str, text: String| {
        fs::write(directory.path().join(name), text).expect("a file");
    };
    file("cert.pem", pair.cert.pem());
    file("key.pem", pair.signing_key.serialize_pem());
    crate::process::init(directory.path());
    let tls = ["--tls-certificate", "cert.pem", "--tls-key", "key.pem"];
    let process = crate::process::Process::start_unready(directory.clone(), "data", &tls);
    let url = format!("https://localhost:{}", process.client.address.port());
    let run = |words: &[&str], input: &str, ca: Option<&str>| {
        let mut command = crate::process::larder(directory.path());
        if let Some(ca) = ca {
            command.env("SSL_CERT_FILE", ca);
        }
        Done::of(command.args(words), input)
    };
    let index = format!("{url}/root/dev");
    let root = ["--user", "root", "--password-stdin"];
    let use_it = [&["use", &index, "--all", "--only"][..], &root].concat();
    let password = crate::server::ROOT_PASSWORD;
    let unknown =
        ["signed by an authority that this machine does not know", "`SSL_CERT_FILE=FILE`"];
    run(&use_it, password, None).check(1, unknown).check(1, ["PIP_CERT", "TWINE_CERT"]);
    run(&["index", "list", "--server", &url], "", None).check(1, unknown);
    run(&["login", &url], "", None).check(1, unknown);
    let add = [&["index", "add", "root/dev", "--server", &url][..], &root].concat();
    crate::wait_until("readiness", || run(&add, password, Some("cert.pem")).code == Some(0));
    let ca = directory.path().join("cert.pem").display().to_string();
    let done = run(&use_it, password, Some("cert.pem"));
    done.check(0, &format!("uv: it has no setting for the authority: export SSL_CERT_FILE='{ca}'"));
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).expect(name);
    read(PIP).says(&format!("\ncert = {ca}\n"));
    read(".pypirc").says(&format!("\nca_cert = {ca}\n"));
    read(".config/pypoetry/auth.toml").says(&format!("[certificates.root-dev]\ncert = \"{ca}\"\n"));
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
    assert_eq!(
        home.tell(&["--uv", "--project", "none.toml"], "", 2),
        "larder: --project `none.toml`: an existing pyproject.toml was expected\n"
    );
    home.tell(&["--pip", "--user", "alice"], "", 2);
    let url = home.url.replace("/alice/dev", "/alice/none");
    let elsewhere = Home { url, ..home };
    assert_eq!(
        elsewhere.tell(&["--pip"], "", 1),
        "larder: http://127.0.0.1:PORT/alice/none/ is not an index: http://127.0.0.1:PORT/alice/none/+api answered 404 Not Found: The stage alice/none could not be found.\n"
    );
}
