//! Trusted publishing over HTTP: jobs of a CI system, whose identities a [`FakeIssuer`] signs with real keys.

pub(crate) mod attacks;
mod attested;
pub(crate) mod issuer;
mod keys;

use config::Config;
use insta::assert_snapshot;
use serde_json::{Value, json};

use self::issuer::{AUDIENCE, FakeIssuer, Key};
use crate::accounts::prepare;
use crate::asking::{Says as _, each};
use crate::client::Response;
use crate::process::Process;
use crate::python::{Upload, path, sdist};
use crate::server::TestServer;
use crate::shown::{redacted, shown_json};

/// A server that knows an issuer, and the index `team/dev` with a publisher.
struct World {
    server: TestServer,
    issuer: FakeIssuer,
    key: Key,
}

impl World {
    fn start() -> World {
        World::with_key(Key::ec())
    }

    fn with_key(key: Key) -> World {
        let issuer = FakeIssuer::with_keys(json!([key.public("k1")]));
        World::of(issuer, key, |_| ())
    }

    fn of(issuer: FakeIssuer, key: Key, change: impl FnOnce(&mut Config)) -> World {
        let named = format!("github {}", issuer.url).parse().expect("an issuer");
        let server = TestServer::without_aur(|config| {
            config.publishing.issuers = vec![named];
            change(config);
        });
        server.client.add_user("team", "open-sesame");
        let world = World { server, issuer, key };
        world.index("team/dev", json!({"trusted_publishers": [world.publisher("yourproject")]}));
        world
    }

    /// Makes an index of `team`.
    #[track_caller]
    fn index(&self, name: &str, config: Value) {
        self.server.user("team", "open-sesame").put(&format!("/{name}"), config).expect(200);
    }

    /// The same after a restart of the server.
    fn restarted(self) -> World {
        let World { server, issuer, key } = self;
        let issuers = server.app.config.publishing.issuers.clone();
        let server = TestServer::start_in(server.stop(), |config, _| {
            config.aur.enabled = false;
            config.publishing.issuers = issuers;
        })
        .ready();
        World { server, issuer, key }
    }

    /// The publisher that the claims of [`FakeIssuer::claims`] are of.
    fn publisher(&self, projects: &str) -> String {
        format!(
            "{projects} {} repository_id=7 repository_owner_id=3 workflow=release.yml \
             environment=release ref=refs/tags/*",
            self.issuer.url
        )
    }

    /// A token of the issuer, with some claims changed.
    fn token(&self, changes: &Value) -> String {
        let header = json!({"alg": self.key.algorithm(), "kid": "k1", "typ": "JWT"});
        self.key.token(&header, &self.issuer.claims(changes))
    }

    #[track_caller]
    fn mint(&self, token: &str) -> Response {
        let body = json!({"token": token});
        self.server.client.anybody().typed("application/json").post("/_/oidc/mint-token", body)
    }

    /// An upload token.
    #[track_caller]
    fn minted(&self) -> String {
        let answer = self.mint(&self.token(&json!({}))).expect(200).json();
        answer["token"].as_str().expect("a token").to_owned()
    }

    #[track_caller]
    fn upload(&self, token: &str, index: &str, filename: &str) -> Response {
        self.server.user("__token__", token).upload(index, &Upload::of(filename, &sdist(filename)))
    }

    fn metric(&self, result: &str) -> f64 {
        self.server.metric(&format!("larder_upload_tokens_total{{result=\"{result}\"}}"))
    }
}

/// What a job is told that no index names.
const NOT_NAMED: &str = "no index names this identity as a trusted publisher: http://127.0.0.1:PORT repository=org/repo repository_id=7 repository_owner_id=3 job_workflow_ref=org/repo/.github/workflows/release.yml@refs/tags/v1.0 event_name=push environment=release ref=refs/tags/v1.0 sub=repo:org/repo:environment:release";

/// The answer is an error in the public index's shape, with this code and this description.
#[track_caller]
fn refused(answer: &Response, status: u16, code: &str, description: &str) {
    assert_eq!(refusal(answer, status, code), description);
}

/// The description of an error in the public index's shape, which must have this code.
#[track_caller]
fn refusal(answer: &Response, status: u16, code: &str) -> String {
    answer.check_status(status);
    let json = answer.json();
    assert_eq!(json["message"], "Token request failed", "{json}");
    assert_eq!(json["errors"][0]["code"], code, "{json}");
    redacted(json["errors"][0]["description"].as_str().expect("a description"))
}

/// The whole way: no token is stored anywhere, and the project does not exist before.
#[test]
fn a_job_uploads_with_its_identity() {
    for key in [Key::ec(), Key::rsa(), Key::ed()] {
        let world = World::with_key(key);
        let audience = world.server.get("/_/oidc/audience").expect(200).json();
        assert_eq!(audience, json!({"audience": AUDIENCE}));
        let before = jiff::Timestamp::now().as_second();
        let answer = world.mint(&world.token(&json!({}))).expect(200);
        assert_eq!(answer.header("cache-control"), "no-store");
        let answer = answer.json();
        assert_eq!(answer["success"], true);
        let lives = answer["expires"].as_i64().expect("a time") - before;
        assert!((900..960).contains(&lives), "{lives}");
        let token = answer["token"].as_str().expect("a token");
        assert!(token.starts_with("larder_"), "{token}");
        world.upload(token, "team/dev", "yourproject-1.0.zip").expect(200);
        world.upload(token, "team/dev", "yourproject-1.1.zip").expect(200);
        world.server.get("/team/dev/+simple/yourproject/").expect(200).says("yourproject-1.1.zip");
        assert_eq!(world.metric("minted"), 1.0);
    }
}

/// A server with a release of `yourproject` in `team/dev` and one in the private `team/secret`, which name the same job.
fn with_releases() -> World {
    let world = World::start();
    let publishers = json!([world.publisher("yourproject")]);
    world.index("team/secret", json!({"acl_read": ["team"], "trusted_publishers": publishers}));
    for index in ["team/secret", "team/dev"] {
        world.server.user("team", "open-sesame").release(index, "yourproject-0.9.zip");
    }
    world
}

#[test]
fn a_token_uploads_new_files_of_the_project_that_an_index_names_it_for() {
    let world = with_releases();
    world.index("team/other", json!({}));
    let token = world.minted();
    let refused = world.upload(&token, "team/dev", "other-1.0.zip");
    refused.tells(403, "no permission to submit: the upload token of `http://127.0.0.1:PORT org/repo` only uploads what an index names this identity for as a trusted publisher; it may not write `other` of team/dev");
    world.upload(&token, "team/other", "yourproject-1.0.zip").expect(403);
    let replacement = Upload::of("yourproject-0.9.zip", &sdist("other contents"));
    world.server.user("__token__", &token).upload("team/dev", &replacement).expect(403);
    world.upload(&token, "team/secret", "yourproject-1.0.zip").expect(200);
}

#[test]
fn a_token_does_nothing_but_upload() {
    let world = with_releases();
    let token = world.minted();
    let [secret, file] = ["team/secret", "team/dev"]
        .map(|index| path(index, "yourproject-0.9.zip", &sdist("yourproject-0.9.zip")));
    let push = json!({"name": "yourproject", "version": "0.9", "targetindex": "team/secret"});
    let requests = [
        ("GET", "/team/secret/+simple/yourproject/", json!(null)),
        ("GET", "/team/secret/yourproject", json!(null)),
        ("GET", &secret, json!(null)),
        ("DELETE", &file, json!(null)),
        ("DELETE", "/team/dev/yourproject", json!(null)),
        ("DELETE", "/team/dev/yourproject/0.9", json!(null)),
        ("DELETE", "/team/dev", json!(null)),
        ("POST", "/team/dev/yourproject/0.9/+yank", json!({})),
        ("PUT", "/team/dev/yourproject/+status", json!({"status": "archived"})),
        ("PATCH", "/team/dev", json!({"volatile": false})),
        ("PUT", "/team/new", json!({})),
        ("POST", &file, json!({"testenvs": {}})),
        ("POST", "/team/dev", push),
        ("POST", "/team/dev/+retention", json!({"versions": 1})),
        ("PATCH", "/team", json!({"password": "stolen"})),
        ("DELETE", "/team", json!(null)),
        ("PUT", "/newuser", json!({"password": "open-sesame"})),
        ("GET", "/+tokens?user=team", json!(null)),
        ("POST", "/+tokens?user=team", json!({"scopes": ["*"]})),
        ("PUT", "/article/page", json!("text")),
    ];
    for ask in [world.server.user("__token__", &token), world.server.bearer(&token)] {
        each(&requests, |(method, target, body)| {
            let ask = ask.clone().json().typed("application/json");
            ask.send(method, target, body).expect_one_of([401, 403, 404]);
        });
    }
    let team = world.server.user("team", "open-sesame");
    team.get(&file).expect(200);
    team.get("/team/secret/+simple/yourproject/").expect(200);
}

#[test]
fn an_identity_is_exchanged_once() {
    let world = World::start();
    let token = world.token(&json!({}));
    world.mint(&token).expect(200);
    refused(
        &world.mint(&token),
        422,
        "invalid-reuse-token",
        "this identity was used already: ask the CI system for a new one",
    );
    // Another signature of the same text is the same identity.
    let (signed, _) = token.rsplit_once('.').expect("a token");
    use base64::Engine as _;
    let signature = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(world.key.sign(signed));
    let again = format!("{signed}.{signature}");
    assert_ne!(again, token, "ECDSA signs the same text in another way each time");
    refused(
        &world.mint(&again),
        422,
        "invalid-reuse-token",
        "this identity was used already: ask the CI system for a new one",
    );
    assert_eq!(world.metric("refused"), 2.0);
    let world = world.restarted();
    refused(
        &world.mint(&token),
        422,
        "invalid-reuse-token",
        "this identity was used already: ask the CI system for a new one",
    );
    world.mint(&world.token(&json!({}))).expect(200);
}

/// Of many requests with one identity at the same time, one gets a token.
#[test]
fn one_of_many_gets_the_token() {
    let world = World::start();
    let token = world.token(&json!({}));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| world.mint(&token).status)).collect();
        asking.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 422).count(), 7, "{statuses:?}");
}

#[test]
fn a_token_of_a_job_that_was_found_ends() {
    let world = World::start();
    let token = world.minted();
    let body = json!({"token": token}).to_string();
    let found = || {
        let sent = world.server.client.post("/+tokens/found", "application/json", body.as_bytes());
        sent.expect(200).json()[0]["label"].clone()
    };
    assert_eq!(found(), "true_positive");
    assert_eq!(found(), "false_positive", "it has ended");
    world.upload(&token, "team/dev", "yourproject-1.0.tar.gz").expect(401);
}

/// One identity, several indexes at one host: the token uploads to each that names it, and to no other.
#[test]
fn several_indexes_name_one_job() {
    let world = World::start();
    world.index("team/prod", json!({"trusted_publishers": [world.publisher("acme-*")]}));
    let token = world.minted();
    world.upload(&token, "team/dev", "yourproject-1.0.zip").expect(200);
    world.upload(&token, "team/prod", "acme-x-1.0.zip").expect(403);
    let named = Upload::of("acme_x-1.0.zip", &sdist("acme"));
    world.server.user("__token__", &token).upload("team/prod", &named).expect(200);
    world.upload(&token, "team/prod", "yourproject-1.0.zip").expect(403);
    world.upload(&token, "team/dev", "acme_x-1.0.zip").expect(403);
}

/// A publisher that is removed uploads no more, also with a token that it has.
#[test]
fn a_removed_publisher_uploads_no_more() {
    let world = World::start();
    let token = world.minted();
    let removal = json!([format!("trusted_publishers-={}", world.publisher("yourproject"))]);
    world.server.user("team", "open-sesame").patch("/team/dev", removal).expect(200);
    world.upload(&token, "team/dev", "yourproject-1.0.zip").expect(403);
    refused(&world.mint(&world.token(&json!({}))), 422, "invalid-publisher", NOT_NAMED);
}

#[test]
fn what_an_index_may_name() {
    let world = World::start();
    let owner = world.server.user("team", "open-sesame");
    let add = |publisher: &str| {
        owner.patch("/team/dev", json!([format!("trusted_publishers+={publisher}")]))
    };
    add("p https://other.example sub=1").tells(400, "the issuer `https://other.example` is not one of `publishing.issuers` in the configuration");
    let by_name = add(&format!("p {} repository=org/repo", world.issuer.url));
    by_name.tells(400, "the publisher `p http://127.0.0.1:PORT repository=org/repo` lacks `repository_id`: an issuer of the kind github needs it");
    add("p").expect(400);
    add(&world.publisher("second")).expect(200);
    let many: Vec<String> = (0..101).map(|number| world.publisher(&format!("p{number}"))).collect();
    owner
        .patch("/team/dev", json!({"trusted_publishers": many}))
        .tells(400, "'trusted_publishers' is too long: at most 100 items were expected");
    let shown = world.server.client.anybody().json().get("/team/dev").expect(200).json();
    let publishers = shown["result"]["trusted_publishers"].as_array().expect("a list");
    assert_eq!(publishers.len(), 2, "{shown}");
    let stranger = world.server.user("__token__", &world.minted());
    stranger.patch("/team/dev", json!(["trusted_publishers="])).expect(403);
}

/// Readers of an index see its publishers, even those that have not published yet.
#[test]
fn publishers_are_shown() {
    let world = World::start();
    let index = world.server.browse("/team/dev").expect(200);
    let publisher = format!("yourproject {} environment=release", world.issuer.url);
    index.says(["Uploads by CI jobs", &publisher, "repository_id=7"]);
}

/// Who uploaded a file is said as the issuer and the repository, and no user; after a restart, too.
#[test]
fn files_name_their_publisher() {
    let world = World::start();
    world.upload(&world.minted(), "team/dev", "yourproject-1.0.zip").expect(200);
    let job = format!("{} org/repo", world.issuer.url);
    let changes = world.server.get("/changes?surface=python&since=0").expect(200).text();
    let file = changes.lines().find(|line| line.contains("yourproject-1.0.zip")).expect(&changes);
    let file: Value = serde_json::from_str(file).expect("JSON");
    assert_eq!((&file["kind"], &file["by"]), (&json!("added"), &json!(job)));
    let check = |world: &World| {
        let page = world.server.browse("/team/dev/yourproject").expect(200);
        page.says(&format!("by {job}, in team/dev"));
    };
    check(&world);
    check(&world.restarted());
}

/// Changes of publishers and mints are in the audit log.
#[test]
fn mints_and_publishers_are_noted() {
    let world = World::start();
    let _ = world.minted();
    let entries = world.server.root().json().get("/team/dev/+audit").expect(200).json();
    assert_snapshot!("audit", shown_json(&entries["result"]));
}

/// The security log has mints, and of refused jobs the publisher that is most like them. No line has a token.
#[test]
fn the_security_log_names_jobs() {
    let key = Key::ec();
    let issuer = FakeIssuer::with_keys(json!([key.public("k1")]));
    let named = format!("github {}", issuer.url);
    let options = ["--publishing-issuers", &named, "--security-log", "security.log"];
    let process = Process::start(&[&["--aur-enabled=false"], &options[..]].concat(), |directory| {
        prepare(directory).add("team", "open-sesame");
    });
    let publisher = format!(
        "yourproject {} repository_id=7 repository_owner_id=3 workflow=release.yml",
        issuer.url
    );
    let config = json!({"trusted_publishers": [publisher]});
    process.user("team", "open-sesame").put("/team/dev", config).expect(200);
    let mint = |changes: Value| {
        let header = json!({"alg": "ES256", "kid": "k1"});
        let body = json!({"token": key.token(&header, &issuer.claims(&changes))});
        process.anybody().typed("application/json").post("/_/oidc/mint-token", body)
    };
    let minted = mint(json!({})).expect(200).json();
    mint(json!({"repository_id": "8"})).expect(422);
    mint(json!({"aud": "other"})).expect(422);
    let log = process.security_log();
    assert_snapshot!("security_log", redacted(&log));
    let secret = minted["token"].as_str().and_then(|token| token.rsplit('_').next());
    log.lacks([secret.expect("a secret"), "eyJ"]);
}

/// PEP 807, as its draft is.
#[test]
fn clients_discover_where_to_ask() {
    let world = World::start();
    let ask = world.server.client.anybody().accept("application/vnd.pypi.pytp.v1+json");
    let found = ask.get("/.well-known/pytp?discover=%2Fteam%2Fdev%2F").expect(200).json();
    assert_snapshot!("discovered", shown_json(&found));
    for missing in ["%2Fteam%2Fmissing%2F", "%2F", ""] {
        ask.get(&format!("/.well-known/pytp?discover={missing}")).expect(404);
    }
    ask.get("/.well-known/pytp").expect(400);
    let mint = |features: Value| {
        let body = json!({"token": world.token(&json!({})), "features": features});
        ask.clone().typed("application/json").post("/_/oidc/mint-token", body)
    };
    mint(json!(["multi-use-token"])).expect(200);
    let refusal = mint(json!(["single-use-token"]));
    refused(
        &refusal,
        422,
        "invalid-payload",
        "the feature `single-use-token` is not known: `multi-use-token` was expected",
    );
    assert_eq!(refusal.header("content-type"), "application/problem+json");
}

#[test]
fn without_issuers_there_is_none() {
    let server = TestServer::without_aur(|_| ());
    refused(
        &server.get("/_/oidc/audience"),
        404,
        "not-enabled",
        "trusted publishing is not set up here: `publishing.issuers` of the configuration is empty",
    );
    let minting = server.client.anybody().post("/_/oidc/mint-token", json!({"token": "x"}));
    refused(
        &minting,
        403,
        "not-enabled",
        "trusted publishing is not set up here: `publishing.issuers` of the configuration is empty",
    );
    server.get("/.well-known/pytp?discover=%2Fteam%2Fdev%2F").expect(404);
}
