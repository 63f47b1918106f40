//! Logging in with a browser: what the cookie opens and what it does not, which forms count, and how a session ends.

use std::time::Duration;

use config::Config;
use insta::assert_snapshot;
use serde_json::json;

use crate::asking::{Says as _, each};
use crate::browser::{ACCEPT, Browser, encoded, field, filled};
use crate::pages::check_harmless;
use crate::server::{ROOT_PASSWORD, TestServer};
use crate::shown::shown;

/// A server without packages, with Alice, whose password is `staple`, and a private index of hers.
fn start(change: impl FnOnce(&mut Config)) -> TestServer {
    let server = TestServer::without_aur(|config| {
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
        change(config);
    });
    server.add_user("alice", "staple");
    server.root().put("/alice/secret", json!({"acl_read": ["alice"]})).expect(200);
    server
}

const SESSION: &str = "larder-session";

fn alice(server: &TestServer) -> Browser {
    Browser::of(server.client, "alice", "staple")
}

/// Without the right to see something, a browser gets a link for logging in, and does not ask for a password itself.
#[test]
fn a_user_logs_in_and_comes_back_to_the_page() {
    let server = start(|_| ());
    let mut browser = Browser::new(server.client);
    let refused = browser.get("/alice/secret").expect(401);
    assert!(!refused.header("www-authenticate").starts_with("Basic"), "{refused:?}");
    let link = "/+account/login?next=%2Farticles%3Fq%3Da%2520b";
    browser.get("/articles?q=a%20b").expect(401).says(&format!("href=\"{link}\""));
    let page = browser.get(link).expect(200);
    page.has("cache-control", "no-store");
    let values = [("name", "alice"), ("password", "staple")];
    let response = browser.submit(&page.text(), "Log in", &values).expect(303);
    response.has("location", "/articles?q=a%20b");
    let cookies = response.headers.iter().filter(|(name, _)| name == "set-cookie");
    let cookies = cookies.filter_map(|(_, cookie)| cookie.strip_prefix(SESSION)?.split_once("; "));
    // With `Secure` it would not come back without TLS.
    let attributes: Vec<&str> = cookies.map(|(_, attributes)| attributes).collect();
    assert_eq!(attributes, ["Path=/; Max-Age=36000; HttpOnly; SameSite=Lax"]);
}

#[test]
fn a_session_opens_what_its_user_may_see() {
    let server = start(|_| ());
    let mut browser = alice(&server);
    for target in ["/articles", "/alice/secret", "/alice/secret/+simple/"] {
        let seen = browser.get(target).expect(200);
        seen.header("cache-control").says("private");
        let mut varies = seen.headers.iter().filter(|(name, _)| name == "vary");
        assert!(varies.any(|(_, by)| by.contains("Cookie")), "{target}: {seen:?}");
    }
    browser.get("/+account").has("cache-control", "no-store").says("this browser");
}

/// A copied cookie no longer works either.
#[test]
fn a_user_logs_out() {
    let server = start(|_| ());
    let mut browser = alice(&server);
    let mut copied = browser.clone();
    browser.fill("/+account", "Log out", &[]).expect(303).has("location", "/+account/login");
    assert_eq!(browser.cookies.get(SESSION), None);
    for browser in [&mut browser, &mut copied] {
        browser.get("/articles").expect(401);
        browser.get("/+account").says("<h1>Log in</h1>");
    }
}

#[test]
fn the_cookie_opens_pages_and_nothing_that_programs_ask() {
    let server = start(|_| ());
    let browser = Browser::root(server.client);
    let cookie = browser.cookie();
    let with_cookie = ("Cookie", cookie.as_str());
    let writes = [
        ("PUT", "/mallory", json!({"password": "x"})),
        ("PUT", "/alice/new", json!({})),
        ("DELETE", "/alice", json!(null)),
        ("POST", "/article/x/0", json!("text")),
        ("POST", "/+tokens", json!({"scopes": ["*"]})),
    ];
    for accept in [&[][..], &[ACCEPT]] {
        each(&writes, |(method, target, body)| {
            let ask = server.anybody().with_all(&[with_cookie]).with_all(accept);
            let answer = ask.typed("application/json").send(method, target, body);
            answer.expect_one_of([401, 403, 404]);
        });
    }
    // A program that does not ask for pages is anonymous, whatever cookies it sends; credentials win over the cookie.
    let original = ("X-Original-URI", "/alice/secret/+simple/");
    let reads = [
        ("/articles", &[][..]),
        ("/alice/secret", &[("Accept", "application/json")]),
        ("/+authcheck", &[ACCEPT, original]),
        ("/articles", &[("Sec-Fetch-Site", "cross-site")]),
        ("/articles", &[ACCEPT, ("Authorization", "Basic YWxpY2U6d3Jvbmc=")]),
    ];
    each(reads, |(target, headers)| {
        let answer = server.anybody().with_all(&[with_cookie]).with_all(headers).get(target);
        answer.expect_one_of([401, 403]);
    });
    let actions = json!({"actions": {"article.put": {"name": "x", "version": 0, "text": "x"}}});
    let refused = server.anybody().with_all(&[with_cookie]).post("/actions", actions).json();
    assert_eq!(refused["status"], 401, "{refused}");
    // A request by our own page is its reader's.
    let own = [with_cookie, ("Sec-Fetch-Site", "same-origin")];
    server.client.get_with("/articles", &own).expect(200);
}

/// The form for a new token, with this token of the form and this password.
fn new_token(token: &str, password: &str) -> String {
    let fields = [("form", token), ("scope", "*"), ("own", password)];
    encoded(&fields.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

/// The number of tokens that `alice` has.
fn tokens(server: &TestServer) -> usize {
    let stored = server.stored();
    stored.accounts.tokens_of(&"alice".parse().expect("a name")).len()
}

#[test]
fn a_form_without_the_right_token_does_nothing() {
    let server = start(|_| ());
    server.add_user("bob", "horse");
    let mut alice = Browser::of(server.client, "alice", "staple");
    let own = field(&alice.get("/+account").text(), "New token", "form");
    let mut bob = Browser::of(server.client, "bob", "horse");
    let others = field(&bob.get("/+account").text(), "New token", "form");
    let login = Browser::new(server.client).get("/+account/login").text();
    for token in ["", "x", &others, &field(&login, "Log in", "form"), &own[1..]] {
        for target in ["tokens", "tokens/revoke", "password", "logout"] {
            let target = format!("/+account/{target}");
            let response = alice.post(&target, &new_token(token, "staple")).expect(403);
            check_harmless(&response.text(), &target);
        }
    }
    alice.post("/+account/tokens", "scope=*").expect(403);
    // No session, with a valid token.
    let nobody = &mut Browser::new(server.client);
    nobody.post("/+account/tokens", &new_token(&own, "staple")).expect(401);
    assert_eq!(tokens(&server), 0);
    // She is still logged in.
    alice.get("/articles").expect(200);
}

#[test]
fn a_page_of_another_origin_sends_no_form() {
    let server = start(|_| ());
    let mut alice = Browser::of(server.client, "alice", "staple");
    let body = new_token(&field(&alice.get("/+account").text(), "New token", "form"), "staple");
    for page in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let headers = [("Content-Type", "application/x-www-form-urlencoded"), page];
        for target in ["/+account/tokens", "/+account/logout", "/+account/login"] {
            alice.send("POST", target, &headers, body.as_bytes()).expect(403);
        }
    }
    assert_eq!(tokens(&server), 0);
    alice.get("/articles").expect(200);
}

/// The browser alone makes no token, which would outlive the session.
#[test]
fn a_new_token_takes_the_password() {
    let server = start(|_| ());
    let mut alice = Browser::of(server.client, "alice", "staple");
    let own = field(&alice.get("/+account").text(), "New token", "form");
    for password in ["", "horse", "staple "] {
        let refused = alice.post("/+account/tokens", &new_token(&own, password));
        refused.tells(403, "Nothing was changed. Your own password is asked for once more, and what was sent is not it.");
    }
    assert_eq!(tokens(&server), 0);
    alice.post("/+account/tokens", &new_token(&own, "staple")).expect(201);
    assert_eq!(tokens(&server), 1);
}

/// No other page can log the browser in as somebody else.
#[test]
fn a_login_takes_the_token_of_this_browser() {
    let server = start(|_| ());
    let page = Browser::new(server.client).get("/+account/login").text();
    let (_, fields) = filled(&page, "Log in", &[("name", "alice"), ("password", "staple")]);
    let mut nobody = Browser::new(server.client);
    nobody.post("/+account/login", &encoded(&fields)).expect(403);
    assert_eq!(nobody.cookies.get(SESSION), None);
}

#[test]
fn a_session_that_was_planted_is_not_the_users() {
    let server = start(|_| ());
    // Mallory logs in, and plants their own session in Alice's browser.
    server.add_user("mallory", "horse");
    let mallory = Browser::of(server.client, "mallory", "horse");
    let mut alice = Browser::new(server.client);
    let planted = mallory.cookies[SESSION].clone();
    alice.cookies.insert(SESSION.to_owned(), planted.clone());
    alice.log_in("alice", "staple").expect(303);
    assert_ne!(alice.cookies[SESSION], planted);
    alice.get("/+account").says("<h1>alice</h1>");
    // The session has ended, so its cookie is anonymous.
    mallory.clone().get("/articles").expect(401);
    // An invented session is not taken over either.
    let mut other = Browser::new(server.client);
    let made_up = format!("{}YWxpY2U.0", "A".repeat(43));
    for cookie in [made_up.as_str(), "", ".", "x.y", "a.1", &"A".repeat(4_000)] {
        other.cookies.insert(SESSION.to_owned(), cookie.to_owned());
        other.get("/articles").expect(401);
        other.log_in("alice", "staple").expect(303);
        assert_ne!(other.cookies[SESSION], cookie);
    }
    // Each log-in opens a new session, and ends the one before.
    let before = other.clone();
    other.log_in("alice", "staple").expect(303);
    assert_eq!((before.clone().get("/articles").status, other.get("/articles").status), (401, 200));
}

/// The user changes the password in one of three browsers: that one stays, the others are out.
#[test]
fn a_new_password_ends_the_other_sessions() {
    let server = start(|_| ());
    let [mut one, mut two, mut three] = [alice(&server), alice(&server), alice(&server)];
    let page = one.get("/+account").text();
    for (old, again, status) in [("wrong", "n3w-words", 403), ("staple", "other", 422)] {
        let values = [("old", old), ("new", "n3w-words"), ("again", again)];
        one.submit(&page, "Change the password", &values).expect(status);
    }
    assert_eq!((two.get("/articles").status, three.get("/articles").status), (200, 200));
    let right = [("old", "staple"), ("new", "n3w-words"), ("again", "n3w-words")];
    one.submit(&page, "Change the password", &right).expect(200);
    one.get("/articles").expect(200);
    assert_eq!((two.get("/articles").status, three.get("/articles").status), (401, 401));
    Browser::new(server.client).log_in("alice", "staple").expect(401);
}

#[test]
fn a_user_logs_out_everywhere() {
    let server = start(|_| ());
    let [mut one, mut two] = [alice(&server), alice(&server)];
    two.fill("/+account", "Log out everywhere", &[]).expect(303);
    assert_eq!((one.get("/articles").status, two.get("/articles").status), (401, 401));
}

/// The next user with that name is a different one.
#[test]
fn a_session_ends_with_its_user() {
    let server = start(|_| ());
    let mut browser = alice(&server);
    let account = browser.get("/+account").text();
    server.root().delete("/alice?force").expect(200);
    browser.get("/articles").expect(401);
    server.add_user("alice", "staple");
    browser.get("/articles").expect(401);
    browser.submit(&account, "New token", &[("scope", "*")]).expect(401);
}

/// The record has the expiry: a server at that time refuses the session.
#[test]
fn a_session_ends_with_its_time() {
    let server = start(|config| config.users.login = Duration::from_secs(3_600));
    let mut browser = alice(&server);
    let text = browser.cookies[SESSION].split('.').next().expect("a session").to_owned();
    let session: account::SessionText = text.parse().expect("a session");
    let stored = server.stored();
    let at = |seconds: i64| {
        let later = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        account::identify_session(&stored.accounts, &session, later).is_ok()
    };
    assert!(at(0) && !at(3_600));
    browser.get("/articles").expect(200);
}

/// A number that anybody can write into a cookie keeps no request waiting: the time for that is longer than the client's.
#[test]
fn a_commit_that_nobody_was_told_of_is_not_waited_for() {
    let server = start(|config| config.store.wait_for_serial = Duration::from_secs(3_600));
    let mut browser = Browser::of(server.client, "alice", "staple");
    browser.get("/articles").expect(200);
    let cookie = browser.cookies[SESSION].clone();
    let parts: Vec<&str> = cookie.split('.').collect();
    let [session, _, mac] = parts.as_slice() else { panic!("{cookie}") };
    let never = u64::MAX;
    for made_up in [format!("{session}.{never}"), format!("{session}.{never}.{mac}")] {
        browser.cookies.insert(SESSION.to_owned(), made_up);
        browser.get("/articles").expect(200);
        browser.get("/+account").expect(200);
        browser.get("/+manage").expect(200);
    }
}

/// After a backup was restored, the first page waits for the lost commit, and the next ones do not.
#[test]
fn a_commit_that_is_gone_is_waited_for_once() {
    let server = start(|config| config.store.wait_for_serial = Duration::from_millis(10));
    let mut browser = Browser::of(server.client, "alice", "staple");
    let gone = |session: &account::SessionText| {
        let stored = server.stored();
        let seen = record::Serial(stored.serial.0 + 1_000);
        let mac = stored.accounts.login_secret().expect("a secret").sign_seen(session, seen);
        format!("{}.{}.{mac}", session.reveal(), seen.0)
    };
    let text = browser.cookies[SESSION].split('.').next().expect("a session").to_owned();
    let cookie = gone(&text.parse().expect("a session"));
    browser.cookies.insert(SESSION.to_owned(), cookie.clone());
    let seen = browser.get("/articles").expect(200);
    assert!(seen.header("cache-control").contains("private"), "{seen:?}");
    let renewed = browser.cookies[SESSION].clone();
    assert!(renewed.starts_with(&text) && renewed != cookie, "{renewed}");
    let again = browser.get("/articles");
    assert!(again.headers.iter().all(|(name, _)| name != "set-cookie"), "{again:?}");
    // A session that is gone as well is taken away.
    let nobodys = account::SessionText::new("alice".parse().expect("a name"), [7; 32]);
    browser.cookies.insert(SESSION.to_owned(), gone(&nobodys));
    browser.get("/articles").expect(401);
    assert_eq!(browser.cookies.get(SESSION), None);
}

/// The store has the sessions: the next process knows them, and their number per user is bounded.
#[test]
fn sessions_outlive_the_process() {
    let server = start(|_| ());
    let mut browsers: Vec<Browser> =
        (0..17).map(|_| Browser::of(server.client, "alice", "staple")).collect();
    let directory = server.stop();
    let server = TestServer::start_in(directory, |config, _| {
        config.aur.enabled = false;
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
    });
    crate::wait_until("the store", || server.app.live_store.snapshot().is_some());
    for browser in &mut browsers {
        browser.client = server.client;
    }
    let statuses: Vec<u16> =
        browsers.iter_mut().map(|browser| browser.get("/articles").status).collect();
    assert_eq!(statuses[0], 401, "the oldest one ended");
    assert!(statuses[1..].iter().all(|status| *status == 200), "{statuses:?}");
}

#[test]
fn guesses_in_the_form_are_throttled_as_others() {
    let server = start(|config| config.users.wrong_passwords_max = 3);
    let mut browser = Browser::new(server.client);
    for number in 0..3 {
        let refused = browser.log_in("alice", &format!("guess-{number}"));
        refused.tells(401, "Not logged in. The name or the password is wrong.");
    }
    let response = browser.log_in("alice", "guess-3").expect(429);
    assert!(response.header("retry-after").parse::<u64>().is_ok_and(|it| it > 0));
    // Wrong passwords in Basic count together with those in the login form.
    let basic = [("Authorization", "Basic YWxpY2U6Z3Vlc3MtNA==")];
    server.client.get_with("/articles", &basic).expect(429);
}

/// A token is no password. Its form revokes it.
#[test]
fn a_token_is_shown_once_and_then_with_its_use() {
    let server = start(|_| ());
    let mut root = Browser::root(server.client);
    let made =
        root.fill("/+account", "New token", &[("scope", "*"), ("own", ROOT_PASSWORD)]).text();
    let token = made.split("<pre><code>larder_").nth(1).expect("a token");
    let token = format!("larder_{}", token.split('<').next().expect("its end"));
    Browser::new(server.client).log_in("root", &token).tells(
        401,
        "Not logged in. A token is no password: a browser logs in with the password of its user.",
    );
    let used = root.get("/+account").text();
    used.says("not used yet");
    let bearer = format!("Bearer {token}");
    server.authorized(&bearer).get("/articles").expect(200);
    root.get("/+account").says("last used <time");
    let id = &token["larder_".len()..][..12];
    root.fill("/+account", &format!("Revoke {id}"), &[]).expect(200);
    server.authorized(&bearer).get("/articles").expect(401);
}

/// The page of an index that not everybody may read leads to the form for a token, filled in for this index.
#[test]
fn a_private_index_leads_to_a_token_for_it() {
    let server = start(|_| ());
    server.add_user("ann", "staple");
    server.root().put("/ann/open", json!({})).expect(200);
    server.root().put("/ann/dev", json!({"acl_read": ["ann"]})).expect(200);
    let mut ann = Browser::of(server.client, "ann", "staple");
    ann.get("/ann/open").expect(200).lacks("Make a token");
    ann.get("/ann/dev").says("href=\"/+account?index=ann/dev#new-token\">Make a token for it");
    let made = ann.fill("/+account?index=ann/dev", "New token", &[("own", "staple")]).expect(201);
    assert_snapshot!("token_for_an_index", shown(&made.text()));
    let next = "name=\"next\" value=\"/+account?index=ann/dev\"";
    Browser::new(server.client).get("/+account?index=ann/dev").says(next);
    // A link can fill in nothing else.
    let page = ann.get("/+account?index=%22%3E&scope=*&own=staple").expect(200);
    page.lacks("name=\"scope\" value=\"*\" checked").says("name=\"indexes\" value=\"\"");
}

#[test]
fn what_a_form_says_is_shown_as_text_and_leads_nowhere_else() {
    let server = start(|_| ());
    let mut browser = Browser::new(server.client);
    let attack = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'";
    let escaped: String = form_urlencoded::byte_serialize(attack.as_bytes()).collect();
    for next in [
        "//evil.example/",
        "https://evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        attack,
    ] {
        let escaped: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
        let page = browser.get(&format!("/+account/login?next={escaped}")).text();
        check_harmless(&page, next);
        page.lacks("evil.example");
        let fields = [("name", "alice"), ("password", "staple"), ("next", next)];
        browser.submit(&page, "Log in", &fields).expect(303).has("location", "/+account");
        let page =
            browser.submit(&page, "Log in", &[("name", attack), ("password", "x"), ("next", next)]);
        check_harmless(&page.text(), next);
    }
    check_harmless(&browser.get(&format!("/articles?x={escaped}")).text(), "an error");
    browser.log_in("alice", "staple").expect(303);
    let page = browser.get("/+account").text();
    for field in ["comment", "expires", "indexes", "projects", "prefixes", "scope"] {
        let values = [("scope", "article:read"), ("own", "staple"), (field, attack)];
        let answer = browser.submit(&page, "New token", &values);
        check_harmless(&answer.text(), field);
    }
    check_harmless(&browser.get("/+account").text(), "with a token of that comment");
    let answer = browser.submit(
        &page,
        "Change the password",
        &[("old", attack), ("new", "a"), ("again", attack)],
    );
    check_harmless(&answer.text(), "a password");
}

#[test]
fn forms_that_are_too_long_or_broken_are_refused() {
    let server = start(|_| ());
    let mut browser = Browser::of(server.client, "alice", "staple");
    for target in [
        "/+account/login",
        "/+account/logout",
        "/+account/password",
        "/+account/tokens",
        "/+account/tokens/revoke",
    ] {
        browser.post(target, &"x".repeat(40_000)).expect(413);
        browser.post(target, &"a=1&".repeat(201)).expect(400);
        browser.post(target, "a=%ff").expect(400);
        browser.post(target, "form=a&form=b").expect(400);
        for media_type in ["text/plain", "multipart/form-data; boundary=x", "application/json", ""]
        {
            let headers = [("Content-Type", media_type)];
            browser.send("POST", target, &headers, b"{}").expect(415);
        }
    }
    browser.get("/articles").expect(200);
}

/// Behind a proxy that ends TLS, the cookie belongs to this host alone and comes back by TLS only.
#[test]
fn with_tls_the_cookie_is_bound_to_the_host() {
    let server = start(|config| config.public_url = Some("https://larder.example/pre".to_owned()));
    let mut browser = Browser::new(server.client);
    let page = browser.get("/+account/login?next=/articles").text();
    let (action, fields) = filled(&page, "Log in", &[("name", "alice"), ("password", "staple")]);
    assert_eq!(action, "/pre/+account/login");
    assert!(browser.cookies.contains_key("__Host-larder-form"), "{:?}", browser.cookies);
    let response = browser.post("/+account/login", &encoded(&fields)).expect(303);
    response.has("location", "/pre/articles");
    let set =
        response.headers.iter().find(|(_, value)| value.starts_with("__Host-larder-session="));
    let (_, set) = set.expect("a cookie");
    assert!(set.ends_with("; Secure") && set.contains("; Path=/;"), "{set}");
    browser.get("/articles").expect(200);
    // A cookie that was set without TLS, for example by another host, does not count.
    let value = browser.cookies.remove("__Host-larder-session").expect("a session");
    browser.cookies.insert(SESSION.to_owned(), value);
    browser.get("/articles").expect(401);
}
