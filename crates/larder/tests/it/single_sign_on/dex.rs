//! The whole way at a real provider, Dex: its own discovery document, keys, forms and tokens.

use testbed::{DEX_EMAIL, DEX_PASSWORD, Dex};

use crate::browser::{Browser, encoded};
use crate::client::{Client, Response};
use crate::server::TestServer;

/// The path and query of a URL on this machine.
fn below(url: &str) -> &str {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    rest.find('/').map_or(rest, |at| &rest[at..])
}

/// Somebody logs in at the provider, to which this URL leads: where the browser is sent back to.
fn authorized(dex: &Dex, url: &str, password: &str) -> Response {
    let mut browser = Browser::new(Client { address: dex.address() });
    let mut answer = browser.get(below(url));
    while answer.status != 200 {
        assert!(matches!(answer.status, 302 | 303), "{}", answer.text());
        let location = answer.header("location").to_owned();
        answer = browser.get(below(&location));
    }
    let page = answer.text();
    let action = page.split("action=\"").nth(1).and_then(|it| it.split('"').next());
    let action = crate::browser::unescaped(action.expect("a form"));
    let fields = [("login", DEX_EMAIL), ("password", password)];
    let body = encoded(&fields.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let mut answer = browser.post(below(&action), &body);
    loop {
        let location = answer.header("location").to_owned();
        if !matches!(answer.status, 302 | 303) || location.contains("/+account/oidc/") {
            return answer;
        }
        answer = browser.get(below(&location));
    }
}

#[test]
fn a_person_logs_in_at_dex() {
    let Some(mut dex) = Dex::prepare() else { return };
    let files = tempfile::tempdir().expect("a directory");
    let path = files.path().join("providers.toml");
    let file = format!(
        "[[provider]]\nname = \"dex\"\ntitle = \"Dex\"\nissuer = \"{}\"\nclient_id = \"larder\"\nclient_secret = \"s3cret\"\n\
         scopes = [\"openid\", \"profile\", \"email\", \"groups\"]\nmake_users = true\ngroups_claim = \"groups\"\n\
         groups = {{ developers = \"dev\", \"site admins\" = \"ops\" }}\n",
        dex.issuer()
    );
    std::fs::write(&path, file).expect("a file");
    let server = TestServer::without_aur(|config| config.oidc.providers_file = Some(path));
    let callback = format!("http://{}/+account/oidc/dex/callback", server.client.address);
    let log_in = |dex: &Dex| {
        let mut browser = Browser::new(server.client);
        let sent = browser.get("/+account/oidc/dex?next=%2Farticles").expect(303);
        let back = authorized(dex, sent.header("location"), DEX_PASSWORD);
        let back = below(back.header("location")).to_owned();
        let answer = browser.get(&back);
        (browser, answer, back)
    };
    dex.start(&callback, &["developers", "site admins", "others"]);
    let (mut browser, answer, back) = log_in(&dex);
    answer.expect(303).has("location", "/articles");
    browser.get("/+account").says("<h1>alice</h1>").says("Groups: dev, ops");
    // A real provider takes a code once, and the right password.
    let (mut copy, answer, _) = log_in(&dex);
    answer.expect(303);
    copy.get(&back).expect(403);
    let sent = Browser::new(server.client).get("/+account/oidc/dex").expect(303);
    let refused = authorized(&dex, sent.header("location"), "wrong");
    assert!(!refused.header("location").contains("code="), "{refused:?}");
    // Its keys are new after a restart, and the person is in fewer groups.
    dex.start(&callback, &["developers"]);
    crate::wait_until("the new keys to be fetched", || {
        let (mut browser, answer, _) = log_in(&dex);
        answer.status == 303 && {
            let page = browser.get("/+account").text();
            assert!(page.contains("Groups: dev<"), "{page}");
            true
        }
    });
    // It is gone: whoever begins now cannot come back, and those who are logged in stay.
    let mut late = Browser::new(server.client);
    let sent = late.get("/+account/oidc/dex").expect(303);
    let back = authorized(&dex, sent.header("location"), DEX_PASSWORD);
    dex.stop();
    let answer = late.get(below(back.header("location")));
    answer.tells(503, &format!("Not logged in. {}", super::UNREACHABLE.replace("Acme", "Dex")));
    browser.get("/+account").says("<h1>alice</h1>");
}
