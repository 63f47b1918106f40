//! Logging in at an identity provider with a browser. [`FakeProvider`] is a fake that signs with real keys; `dex` has a real one.

mod attacks;
mod device;
mod dex;
mod linking;
mod provider;

use std::sync::Barrier;

use config::Config;
use insta::assert_snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Postgres;

use self::provider::{FakeProvider, authorization};
use crate::accounts::prepare;
use crate::asking::Says as _;
use crate::browser::Browser;
use crate::client::Response;
use crate::process::Process;
use crate::publishing::issuer::Key;
use crate::server::TestServer;
use crate::shown::redacted;

/// A server that knows the provider `company`, called Acme.
struct World {
    server: TestServer,
    provider: FakeProvider,
    _files: TempDir,
}

/// What the file of providers says besides where the provider is.
const SETTINGS: &str = "make_users = true\ngroups_claim = \"groups\"\n\
    [provider.groups]\nDevelopers = \"dev\"\nAdmins = \"admin\"\n";

impl World {
    fn start() -> World {
        World::of(FakeProvider::new(Key::ec()), SETTINGS, |_| ())
    }

    fn of(provider: FakeProvider, settings: &str, change: impl FnOnce(&mut Config)) -> World {
        World::with_file(&provider.settings("company", settings), provider, change)
    }

    fn with_file(file: &str, provider: FakeProvider, change: impl FnOnce(&mut Config)) -> World {
        let files = tempfile::tempdir().expect("a directory");
        let path = files.path().join("providers.toml");
        std::fs::write(&path, file).expect("a file");
        let server = TestServer::without_aur(|config| {
            config.oidc.providers_file = Some(path);
            change(config);
        });
        World { server, provider, _files: files }
    }

    fn browser(&self) -> Browser {
        Browser::new(self.server.client)
    }

    /// A browser goes to the provider, whose user has these claims, and comes back.
    fn log_in(&self, browser: &mut Browser, claims: &Value) -> Response {
        let sent = browser.get("/+account/oidc/company").expect(303);
        let back = self.provider.authorize(sent.header("location"), claims);
        browser.get(&back)
    }

    /// A new browser in which somebody with these claims has logged in.
    #[track_caller]
    fn logged_in(&self, claims: &Value) -> Browser {
        let mut browser = self.browser();
        self.log_in(&mut browser, claims).expect(303);
        browser
    }

    fn metric(&self, result: &str) -> f64 {
        let labels = format!("{{provider=\"company\",result=\"{result}\"}}");
        self.server.metric(&format!("larder_provider_logins_total{labels}"))
    }
}

/// Why nobody is logged in by a provider that is down.
const UNREACHABLE: &str = "Acme cannot be reached now, or does not answer as it should. Try it again in a minute; a password still works.";

/// The form for passwords, with why the provider did not log anybody in; no session.
#[track_caller]
fn refused(browser: &mut Browser, answer: &Response, status: u16, words: &str) {
    answer.tells(status, &format!("Not logged in. {words}")).says("<h1>Log in</h1>");
    browser.get("/+account").says("<h1>Log in</h1>");
}

#[test]
fn a_user_is_made_and_comes_back_to_the_page() {
    for key in [Key::ec(), Key::rsa(), Key::ed()] {
        let world = World::of(FakeProvider::new(key), SETTINGS, |_| ());
        let mut browser = world.browser();
        let page = browser.get("/+account/login?next=%2Farticles%3Fq%3Da").expect(200).text();
        page.says("href=\"/+account/oidc/company?next=%2Farticles%3Fq%3Da\">Log in with Acme</a>");
        let sent = browser.get("/+account/oidc/company?next=%2Farticles%3Fq%3Da").expect(303);
        sent.has("cache-control", "no-store");
        let asked = authorization(sent.header("location"));
        let root = format!("http://{}", world.server.client.address);
        for (name, value) in [
            ("response_type", "code"),
            ("client_id", "larder"),
            ("scope", "openid profile email"),
            ("redirect_uri", &format!("{root}/+account/oidc/company/callback")),
            ("code_challenge_method", "S256"),
        ] {
            assert_eq!(asked[name], value, "{name}");
        }
        assert_eq!(asked["code_challenge"].len(), 43);
        let back = world.provider.authorize(
            sent.header("location"),
            &json!({"sub": "7", "preferred_username": "alice", "groups": ["Developers", "Other"]}),
        );
        browser.get(&back).expect(303).has("location", "/articles?q=a");
        browser.get("/+account").says("<h1>alice</h1>").says("Groups: dev");
        assert_eq!(world.metric("opened"), 1.0);
        assert!(!browser.cookies.contains_key("larder-pending"), "{:?}", browser.cookies);
    }
}

/// The subject says who it is. Groups that the provider's settings map come and go, others stay.
#[test]
fn the_same_subject_is_the_same_user() {
    let world = World::start();
    let claims = |name: Value, groups: Value| json!({"sub": "7", "preferred_username": name, "groups": groups});
    world.logged_in(&claims(json!("alice"), json!(["Developers", "Admins"])));
    assert_eq!(world.server.groups("alice"), "admin dev");
    for (name, said, expected) in [
        (json!("renamed"), json!(["Admins"]), "admin"),
        (json!(7), json!("Developers"), "dev"),
        (json!(null), json!(null), ""),
    ] {
        let mut browser = world.logged_in(&claims(name, said));
        browser.get("/+account").says("<h1>alice</h1>");
        assert_eq!(world.server.groups("alice"), expected);
    }
    // Log-out ends the session here; the next log-in opens another.
    let mut browser = world.logged_in(&claims(json!("alice"), json!([])));
    let page = browser.get("/+account").text();
    browser.submit(&page, "Log out", &[]).expect(303);
    browser.get("/+account").says("<h1>Log in</h1>");
    world.log_in(&mut browser, &claims(json!("alice"), json!([]))).expect(303);
    // The user stays the same over a restart.
    let World { server, provider, _files } = world;
    let path = server.app.config.oidc.providers_file.clone();
    let server = TestServer::without_aur_in(server.stop(), |config| {
        config.oidc.providers_file = path;
    });
    let world = World { server, provider, _files };
    let mut browser = world.logged_in(&claims(json!("renamed"), json!([])));
    browser.get("/+account").says("<h1>alice</h1>");
}

/// Beside what the browser does there, a log-in asks the provider once: to redeem the code.
#[test]
fn a_log_in_is_one_question_to_the_provider() {
    let world = World::start();
    world.logged_in(&json!({}));
    let before = world.provider.issuer.requests().len();
    world.logged_in(&json!({}));
    assert_eq!(world.provider.issuer.requests()[before..], ["/token"]);
}

/// Whoever logs out here may want to log out at the provider, if that has a page for it.
#[test]
fn a_log_out_leads_on_to_the_provider() {
    let log_out = |browser: &mut Browser| {
        let page = browser.get("/+account").text();
        browser.submit(&page, "Log out", &[]).expect(303).header("location").to_owned()
    };
    for (endpoint, is_shown) in [
        ("{url}/end?a=1", true),
        ("https://evil.example/end", false),
        ("javascript:alert(1)", false),
    ] {
        let provider = FakeProvider::new(Key::ec());
        let endpoint = endpoint.replace("{url}", &provider.issuer.url);
        provider.describe(&json!({"end_session_endpoint": endpoint}));
        let world = World::of(provider, SETTINGS, |_| ());
        let mut browser = world.logged_in(&json!({}));
        let place = log_out(&mut browser);
        assert_eq!(place, "/+account/login?left=company");
        assert!(!browser.cookies.contains_key("larder-provider"), "{:?}", browser.cookies);
        let page = crate::browser::unescaped(&browser.get(&place).expect(200).text());
        let link = format!("perhaps not at Acme. <a href=\"{endpoint}&client_id=larder\">");
        assert_eq!(page.contains(&link), is_shown, "{page}");
        assert_eq!(page.contains("perhaps not at"), is_shown, "{page}");
        browser.get("/+account/login?left=other").expect(200).lacks("perhaps not at");
    }
    // Without such a page, and for somebody who came by a password.
    let world = World::start();
    let mut browser = world.logged_in(&json!({}));
    let place = log_out(&mut browser);
    browser.get(&place).expect(200).lacks("perhaps not at");
    world.log_in(&mut browser, &json!({})).expect(303);
    browser.log_in("root", crate::server::ROOT_PASSWORD).expect(303);
    assert_eq!(log_out(&mut browser), "/+account/login");
}

/// One person comes back in two browsers at once, each to another process of the server.
#[test]
fn two_processes_make_one_user() {
    let Some(postgres) = Postgres::start() else { return };
    let (provider, files) = (FakeProvider::new(Key::ec()), tempfile::tempdir().expect("files"));
    let path = files.path().join("providers.toml");
    std::fs::write(&path, provider.settings("company", SETTINGS)).expect("a file");
    let servers = [(); 2].map(|()| {
        TestServer::without_aur(|config| {
            config.database = Some(postgres.url().parse().expect("a database"));
            config.blobs = Some(files.path().display().to_string().parse().expect("a place"));
            config.oidc.providers_file = Some(path.clone());
        })
    });
    for round in 0..20 {
        let name = format!("user{round}");
        let claims = json!({"sub": name, "preferred_username": name, "groups": ["Developers"]});
        let (barrier, provider) = (Barrier::new(2), &provider);
        let come_back = |server: &TestServer| {
            let mut browser = Browser::new(server.client);
            let sent = browser.get("/+account/oidc/company").expect(303);
            let back = provider.authorize(sent.header("location"), &claims);
            barrier.wait();
            browser.get(&back).expect(303);
            browser.get("/+account").says(&format!("<h1>{name}</h1>")).says("Groups: dev");
        };
        std::thread::scope(|scope| {
            for server in &servers {
                scope.spawn(|| come_back(server));
            }
        });
        let stored = servers[0].stored();
        let identity = account::identity_digest(&provider.issuer.url, &name);
        let linked = stored.accounts.linked(&identity).expect("a link");
        let user = stored.accounts.user(&linked.user).expect("a user");
        assert!(linked.belongs_to(user) && user.name.as_str() == name, "{linked:?}");
    }
    let opened = |server: &TestServer| {
        server.metric("larder_provider_logins_total{provider=\"company\",result=\"opened\"}")
    };
    assert_eq!(servers.each_ref().map(opened), [20.0; 2]);
}

#[test]
fn who_is_not_logged_in() {
    let world = World::start();
    world.server.add_user("bob", "staple");
    for (claims, words) in [
        (
            json!({"sub": "1", "preferred_username": "bob"}),
            "Your name at the provider is `bob`, and this server has a user of that name who is not linked with your account there; if that is you, log in with your password and link the two on the page of your account.",
        ),
        (
            json!({"sub": "1", "preferred_username": "root"}),
            "Your name at the provider is `root`, and this server has a user of that name who is not linked with your account there; if that is you, log in with your password and link the two on the page of your account.",
        ),
        (
            json!({"sub": "1", "preferred_username": "rpc"}),
            "Your name at the provider is `rpc`, which no user of this server can have.",
        ),
        (
            json!({"sub": "1", "preferred_username": "a b"}),
            "No user can be made for your account at the provider: its claim `preferred_username`: username 'a b' contains characters that aren't allowed. Any ascii symbol besides -.@_ is blocked.",
        ),
        (
            json!({"sub": "1", "preferred_username": "<script>"}),
            "No user can be made for your account at the provider: its claim `preferred_username`: username '<script>' contains characters that aren't allowed. Any ascii symbol besides -.@_ is blocked.",
        ),
        (
            json!({"sub": "1", "preferred_username": ["x"]}),
            "No user can be made for your account at the provider: its claim `preferred_username` is [\"x\"], and the name of a user was expected.",
        ),
        (
            json!({"sub": "1", "preferred_username": null}),
            "No user can be made for your account at the provider: it has no claim `preferred_username` for the name of a user.",
        ),
    ] {
        let mut browser = world.browser();
        let answer = world.log_in(&mut browser, &claims);
        refused(&mut browser, &answer, 403, words);
        answer.lacks("<script>&");
    }
    // A disabled user.
    world.logged_in(&json!({"sub": "7", "preferred_username": "alice"}));
    let mut root = Browser::root(world.server.client);
    let page = root.get("/+manage/users/alice").expect(200).text();
    root.submit(&page, "Disable", &[]);
    let mut browser = world.browser();
    let answer = world.log_in(&mut browser, &json!({"sub": "7", "preferred_username": "alice"}));
    refused(&mut browser, &answer, 403, "User 'alice' is disabled.");
    // A provider that makes no users, and one whose settings want a claim.
    let world = World::of(FakeProvider::new(Key::ec()), "", |_| ());
    let mut browser = world.browser();
    let answer = world.log_in(&mut browser, &json!({"sub": "7", "preferred_username": "alice"}));
    refused(
        &mut browser,
        &answer,
        403,
        "No user of this server is linked with your account at the provider, and none is made by logging in.",
    );
    let settings = "make_users = true\nrequire = { hd = \"acme.example\" }\n";
    let world = World::of(FakeProvider::new(Key::ec()), settings, |_| ());
    let mut browser = world.browser();
    let mut claims = json!({"sub": "7", "preferred_username": "alice", "hd": "evil.example"});
    let answer = world.log_in(&mut browser, &claims);
    refused(
        &mut browser,
        &answer,
        403,
        "Acme knows you, and this server admits only some of those whom it knows.",
    );
    claims["hd"] = json!("acme.example");
    world.log_in(&mut browser, &claims).expect(303);
}

/// A provider that is down: a page says so, and passwords go on.
#[test]
fn a_provider_that_is_down() {
    let world = World::start();
    world.provider.issuer.serve_status("/.well-known/openid-configuration", "500 Oops");
    let mut browser = world.browser();
    let answer = browser.get("/+account/oidc/company?next=%2Farticles");
    refused(&mut browser, &answer, 503, UNREACHABLE);
    assert_eq!(world.metric("unavailable"), 1.0);
    let page = answer.text();
    let root = [("name", "root"), ("password", crate::server::ROOT_PASSWORD)];
    browser.submit(&page, "Log in", &root).expect(303).has("location", "/articles");
    // It goes down while somebody is there.
    let world = World::start();
    let mut browser = world.browser();
    let sent = browser.get("/+account/oidc/company").expect(303);
    let back = world.provider.authorize(sent.header("location"), &json!({"sub": "7"}));
    world.provider.issuer.serve_status("/token", "502 Bad Gateway");
    let answer = browser.get(&back);
    refused(&mut browser, &answer, 503, UNREACHABLE);
    // Or refuses: its text is shown as text.
    let sent = browser.get("/+account/oidc/company").expect(303);
    let state = &authorization(sent.header("location"))["state"];
    let error = "error=access_denied&error_description=%3Cb%3Eno%3C%2Fb%3E";
    let answer = browser.get(&format!("/+account/oidc/company/callback?{error}&state={state}"));
    refused(&mut browser, &answer, 403, "Acme did not log you in: access_denied. <b>no</b>");
    answer.lacks("<b>no</b>");
}

#[test]
fn without_providers_there_is_no_button() {
    let server = TestServer::without_aur(|_| ());
    let mut browser = Browser::new(server.client);
    browser.get("/+account/login").expect(200).lacks("Log in with");
    browser.get("/+account/oidc/company").expect(404);
    browser.get("/+account/oidc/company/callback?code=x").expect(404);
}

/// The security log names who logged in where, and who did not. No line has a code, a state or a secret.
#[test]
fn log_ins_are_logged() {
    let provider = FakeProvider::new(Key::ec());
    let options = ["--oidc-providers-file", "providers.toml", "--security-log", "security.log"];
    let process = Process::start(&[&["--aur-enabled=false"], &options[..]].concat(), |directory| {
        prepare(directory);
        let file = provider.settings("company", SETTINGS);
        std::fs::write(directory.join("providers.toml"), file).expect("a file");
    });
    let mut browser = Browser::new(*process);
    let mut log_in = |claims: &Value| {
        let sent = browser.get("/+account/oidc/company").expect(303);
        let back = provider.authorize(sent.header("location"), claims);
        (browser.get(&back), back)
    };
    let (answer, back) = log_in(&json!({"sub": "7", "preferred_username": "alice"}));
    answer.expect(303);
    log_in(&json!({"sub": "8", "preferred_username": "alice"})).0.expect(403);
    log_in(&json!({"sub": "8", "aud": "other"})).0.expect(403);
    let log = process.security_log();
    assert_snapshot!("security_log", redacted(&log));
    let state = back.split("state=").nth(1).and_then(|it| it.split('&').next()).expect("a state");
    log.lacks([state, "s3cret", "eyJ"]);
}
