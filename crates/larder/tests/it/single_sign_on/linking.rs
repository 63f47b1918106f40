//! Users who are there already link an account at a provider, and users without a password make tokens.

use serde_json::json;

use super::{World, refused};
use crate::browser::{Browser, attribute};

/// The place that the page of a link leads to.
#[track_caller]
fn link_on(page: &str) -> String {
    let at = page.find("<a class=\"button\"").unwrap_or_else(|| panic!("no button: {page}"));
    attribute(&page[at..], "href").expect("a link")
}

#[test]
fn a_user_links_an_account_with_their_password() {
    let world = World::start();
    world.server.add_user("alice", "staple");
    let claims = json!({"sub": "7", "preferred_username": "alice"});
    let mut stranger = world.browser();
    let answer = world.log_in(&mut stranger, &claims);
    refused(
        &mut stranger,
        &answer,
        403,
        "Your name at the provider is `alice`, and this server has a user of that name who is not linked with your account there; if that is you, log in with your password and link the two on the page of your account.",
    );
    let mut alice = Browser::of(world.server.client, "alice", "staple");
    let page = alice.get("/+account").text();
    alice.submit(&page, "Link company", &[("own", "wrong")]).expect(403);
    let answer = alice.submit(&page, "Link company", &[("own", "staple")]).expect(200);
    let location = link_on(&answer.text());
    // Another session of hers, or of somebody else, does not take the link.
    let back = world.provider.authorize(&location, &claims);
    let mut other = Browser::of(world.server.client, "alice", "staple");
    other.cookies.insert("larder-pending".to_owned(), alice.cookies["larder-pending"].clone());
    other.get(&back).expect(401);
    let back = world.provider.authorize(&location, &claims);
    alice.get(&back).expect(303).has("location", "/+account");
    let page = alice.get("/+account").text();
    assert!(page.contains("Acme: <code>7</code>"), "{page}");
    assert_eq!(world.metric("linked"), 1.0);
    world.logged_in(&claims).get("/+account").says("<h1>alice</h1>");
    // A form without its token does nothing.
    alice.post("/+account/oidc/company", "own=staple").expect(403);
    alice.post("/+account/oidc/company/unlink", "subject=7").expect(403);
    alice.submit(&page, "Unlink company", &[]).expect(303);
    let mut browser = world.browser();
    let answer = world.log_in(&mut browser, &claims);
    refused(
        &mut browser,
        &answer,
        403,
        "Your name at the provider is `alice`, and this server has a user of that name who is not linked with your account there; if that is you, log in with your password and link the two on the page of your account.",
    );
}

#[test]
fn an_account_is_linked_with_one_user() {
    let world = World::start();
    let claims = json!({"sub": "7", "preferred_username": "alice"});
    world.logged_in(&claims);
    world.server.add_user("bob", "horse");
    let mut bob = Browser::of(world.server.client, "bob", "horse");
    let answer = bob.fill("/+account", "Link company", &[("own", "horse")]).expect(200);
    let back = world.provider.authorize(&link_on(&answer.text()), &claims);
    let linked = bob.get(&back);
    linked.tells(
        403,
        "Not logged in. This account at the provider is linked with another user of this server.",
    );
}

/// Without a password, a log-in of a moment ago stands for it.
#[test]
fn a_user_without_a_password_makes_a_token() {
    let world = World::start();
    let mut browser = world.logged_in(&json!({"sub": "7", "preferred_username": "alice"}));
    let page = browser.get("/+account").text();
    assert!(!page.contains("name=\"own\"") && !page.contains("aria-label=\"Change the password\""));
    let answer = browser.submit(&page, "New token", &[("scope", "python:read")]).expect(201);
    let text = answer.text();
    let token = text.split("larder_").nth(1).and_then(|it| it.split('<').next());
    let token = format!("larder_{}", token.expect("a token"));
    let api = world.server.user("__token__", &token).json().get("/+api").expect(200).json();
    assert_eq!(api["result"]["authstatus"][0], "ok", "{api}");
    let fields = [("form", ""), ("old", ""), ("new", "x"), ("again", "x")];
    let token = crate::browser::form(&page, "New token").1[0].1.clone();
    let fields = fields.map(|(name, value)| match name {
        "form" => (name.to_owned(), token.clone()),
        _ => (name.to_owned(), value.to_owned()),
    });
    let body = crate::browser::encoded(&fields);
    browser.post("/+account/password", &body).tells(403, "Nothing was changed. You have no password here, so you cannot change it. Whoever runs this server can give you one.");
}
