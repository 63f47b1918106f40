//! Users of a directory, a real one: they log in at every door, with the groups that they have there.

use std::io::Write as _;
use std::time::Duration;

use config::Config;
use serde_json::{Value, json};
use testbed::Slapd;

use crate::asking::{Ask, basic, each};
use crate::browser::Browser;
use crate::client::Response;
use crate::server::TestServer;
use crate::{PATIENCE, wait_until};

const PEOPLE: &str = "ou=people,dc=example,dc=org";

/// A server that asks a directory. Articles are for those who are logged in.
struct World {
    server: TestServer,
    slapd: Slapd,
}

impl World {
    fn start() -> Option<World> {
        World::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Config)) -> Option<World> {
        let slapd = Slapd::start()?;
        let server = TestServer::without_aur(|config| {
            config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
            let ldap = &mut config.ldap;
            ldap.urls = vec![slapd.url().parse().expect("a URL")];
            ldap.ca_file = Some(slapd.ca_file());
            ldap.user_base = Some(PEOPLE.to_owned());
            ldap.user_filter = Some("(uid={username})".parse().expect("a filter"));
            ldap.group_base = Some("ou=groups,dc=example,dc=org".to_owned());
            ldap.group_filter = Some("(member={userdn})".parse().expect("a filter"));
            ldap.groups = ["ops=crew", "*=ldap-*"].map(|it| it.parse().expect(it)).into();
            ldap.timeout = Duration::from_secs(2);
            change(config);
        });
        Some(World { server, slapd })
    }

    fn read(&self, name: &str, password: &str) -> Response {
        self.server.user(name, password).get("/articles")
    }

    #[track_caller]
    fn profile(&self, name: &str) -> Value {
        self.server.root().get(&format!("/{name}")).expect(200).json()["result"].clone()
    }

    fn metric(&self, result: &str) -> f64 {
        self.server.metric(&format!("larder_ldap_logins_total{{result=\"{result}\"}}"))
    }

    #[track_caller]
    fn change_member(&self, what: &str, group: &str, user: &str) {
        self.slapd.change(&format!(
            "dn: cn={group},ou=groups,dc=example,dc=org\nchangetype: modify\n{what}: member\n\
             member: uid={user},{PEOPLE}\n"
        ));
    }
}

#[test]
fn a_user_of_the_directory_logs_in_at_every_door() {
    let Some(world) = World::start() else { return };
    world.server.root().get("/alice").expect(404);
    world.read("alice", "wrong").expect(401);
    world.server.root().get("/alice").expect(404);
    world.read("alice", "wonderland").expect(200);
    assert_eq!(world.profile("alice")["username"], "alice");
    assert_eq!(world.server.groups("alice"), "ldap-developers");

    let login = world.server.log_in("bob", "builder");
    assert_eq!(world.server.groups("bob"), "crew ldap-developers");
    world.read("bob", &login).expect(200);
    let wrong = json!({"user": "bob", "password": "wonderland"});
    world.server.anybody().json().post("/+login", wrong).expect(401);

    let mut browser = Browser::of(world.server.client, "alice", "wonderland");
    browser.get("/+account").expect(200).says("alice");
    browser.get("/articles").expect(200);
    Browser::new(world.server.client).log_in("alice", "wrong").expect(401);

    // What the session gives is as with a password here: a token, for example.
    let alice = world.server.user("alice", "wonderland");
    let token = alice.make_token(json!({"scopes": ["article:read"]}));
    world.server.bearer(&token).get("/articles").expect(200);
}

/// An unattended browser gives no lasting rights: forms ask the directory for the password once more.
#[test]
fn forms_ask_for_the_password_of_the_directory() {
    let Some(world) = World::start() else { return };
    let mut browser = Browser::of(world.server.client, "alice", "wonderland");
    let mut make = |own: &str| {
        browser.fill("/+account", "New token", &[("scope", "article:read"), ("own", own)])
    };
    make("wrong").expect(403);
    make("").expect(403);
    make("wonderland").expect(201);
}

/// An installer sends its password with each of its requests, on several connections.
#[test]
fn three_hundred_requests_are_one_bind() {
    let Some(world) = World::start() else { return };
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..30 {
                    world.read("alice", "wonderland").expect(200);
                }
            });
        }
    });
    assert_eq!(world.metric("right"), 1.0);
    assert_eq!(world.slapd.binds("uid=alice"), 1);
}

#[test]
fn groups_go_when_they_are_gone_there() {
    let Some(world) = World::with(|config| config.ldap.remember = Duration::ZERO) else { return };
    world.read("bob", "builder").expect(200);
    assert_eq!(world.server.groups("bob"), "crew ldap-developers");
    let set = |groups: &str| {
        let wish = operations::users::SetGroups {
            name: "bob".parse().expect("a name"),
            groups: groups.split(' ').map(|group| group.parse().expect(group)).collect(),
        };
        let done = crate::server::wait_for(async {
            let mut keeper = world.server.app.keeper();
            operations::carry_out(&mut keeper, &operations::Sender::Server, &wish).await
        });
        done.expect("a commit");
    };
    // Groups of the directory's kind come from there alone; others are not touched.
    set("crew ldap-developers ldap-forged mine");
    world.read("bob", "builder").expect(200);
    assert_eq!(world.server.groups("bob"), "crew ldap-developers mine");
    // A group has to have a member.
    world.change_member("add", "ops", "alice");
    world.change_member("delete", "ops", "bob");
    world.read("bob", "builder").expect(200);
    assert_eq!(world.server.groups("bob"), "ldap-developers mine");
    world.slapd.change(&format!("dn: uid=bob,{PEOPLE}\nchangetype: delete\n"));
    world.read("bob", "builder").expect(401);
}

/// What the directory says after somebody has hung up is remembered, so the next log-in does not ask.
#[test]
fn groups_go_though_somebody_hangs_up() {
    let Some(world) = World::with(|config| config.ldap.timeout = PATIENCE) else { return };
    world.read("bob", "builder").expect(200);
    assert_eq!(world.server.groups("bob"), "crew ldap-developers");
    world.change_member("add", "ops", "alice");
    world.change_member("delete", "ops", "bob");
    world.slapd.change(&format!(
        "dn: uid=bob,{PEOPLE}\nchangetype: modify\nreplace: userPassword\nuserPassword: mason\n"
    ));
    let open = || world.server.metric("larder_http_connections_open");
    let before = open();
    // Whose question has not begun when they hang up is not asked.
    wait_until("an answer for nobody", || {
        let frozen = world.slapd.freeze();
        let mut hasty = world.server.connect();
        let header = basic("bob", "mason");
        let request =
            format!("GET /articles HTTP/1.1\r\nHost: x\r\nAuthorization: {header}\r\n\r\n");
        hasty.write_all(request.as_bytes()).expect("a server that reads");
        std::thread::sleep(Duration::from_millis(100));
        drop(hasty);
        wait_until("the server to see it", || open() <= before);
        drop(frozen);
        (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            world.metric("right") == 2.0
        })
    });
    assert_eq!(world.server.groups("bob"), "crew ldap-developers", "nobody has noted them");
    world.read("bob", "mason").expect(200);
    assert_eq!(world.server.groups("bob"), "ldap-developers");
    assert_eq!(world.metric("right"), 2.0, "the directory was not asked again");
}

#[test]
fn wrong_passwords_are_throttled_before_the_directory() {
    let Some(world) = World::start() else { return };
    for number in 0..10 {
        world.read("alice", &format!("wrong{number}")).expect(401);
        world.read("alice", &format!("wrong{number}")).expect(401);
    }
    let refused = world.read("alice", "wonderland").expect(429);
    let wait = refused.header("retry-after");
    refused.tells(429, &format!("too many wrong passwords were tried: this one was not looked at; try again in {wait} seconds, or use a token"));
    assert_eq!(world.slapd.binds("uid=alice"), 10);
    world.read("bob", "builder").expect(200);
}

/// None of these is a user, whatever it would mean in a filter or in a DN.
#[test]
fn names_that_are_no_names_find_nobody() {
    let Some(world) = World::start() else { return };
    let long = "a".repeat(10_000);
    each(
        [
            "*",
            "*)(uid=*",
            "alice)(objectClass=*",
            "alice\\",
            "alice\0",
            "\\61lice",
            "alice,ou=people",
            "alice+cn=x",
            " alice",
            "Alice",
            "ALICE",
            "ａlice",
            "uid=alice,ou=people,dc=example,dc=org",
            "",
            long.as_str(),
        ],
        |name| {
            world.read(name, "wonderland").expect(401);
            let login = json!({"user": name, "password": "wonderland"});
            world.server.anybody().json().post("/+login", login).expect(401);
        },
    );
    for password in ["", "\0", "wonderland\0"] {
        world.read("alice", password).expect(401);
        let login = json!({"user": "alice", "password": password});
        world.server.anybody().json().post("/+login", login).expect(401);
    }
    assert_eq!(world.slapd.binds("uid=alice"), 0);
    world.read("alice", "wonderland").expect(200);
}

/// All who need the directory no more: a token, a login and a session of `alice`, and local users.
struct Independent {
    asks: Vec<Ask>,
    browser: Browser,
}

impl Independent {
    fn of(world: &World) -> Independent {
        let server = &world.server;
        let alice = server.user("alice", "wonderland");
        let token = server.bearer(&alice.make_token(json!({"scopes": ["article:read"]})));
        let login = server.user("alice", &server.log_in("alice", "wonderland"));
        server.add_user("local", "staple");
        let asks = vec![token, login, server.user("local", "staple"), server.root()];
        Independent { asks, browser: Browser::of(server.client, "alice", "wonderland") }
    }

    #[track_caller]
    fn check(&mut self) {
        for ask in &self.asks {
            ask.get("/articles").expect(200);
        }
        self.browser.get("/articles").expect(200);
    }
}

/// A server that remembers no password.
fn forgetful() -> Option<World> {
    World::with(|config| {
        config.ldap.remember = Duration::ZERO;
        config.ldap.at_once_max = 2;
    })
}

/// A directory that is frozen holds up those who need it, for a moment, and nobody else.
#[test]
fn while_the_directory_hangs_tokens_logins_and_sessions_work() {
    let Some(world) = forgetful() else { return };
    let mut independent = Independent::of(&world);
    let frozen = world.slapd.freeze();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..60)
            .map(|number| {
                let (name, server) = (format!("user{number}"), &world.server);
                scope.spawn(move || server.user(&name, "wonderland").get("/articles"))
            })
            .collect();
        (0..20).for_each(|_| independent.check());
        for waiting in waiting {
            let answer = waiting.join().expect("an answer").expect(503);
            let seconds: u32 = answer.header("retry-after").parse().expect("a number");
            assert!((1..=5).contains(&seconds), "{seconds}");
        }
    });
    let busy = world.read("alice", "wonderland").expect(503);
    let wait = busy.header("retry-after");
    busy.tells(503, &format!("the directory that knows this password cannot say now whether it is right; try again in {wait} seconds, or use a token"));
    drop(frozen);
    wait_until("the directory", || world.read("alice", "wonderland").status == 200);
}

#[test]
fn without_the_directory_tokens_logins_and_sessions_work() {
    let Some(world) = forgetful() else { return };
    let mut independent = Independent::of(&world);
    world.slapd.stop();
    world.read("alice", "wonderland").expect(503);
    independent.check();
    Browser::new(world.server.client).log_in("alice", "wonderland").expect(503);
    world.slapd.resume();
    wait_until("the directory", || world.read("alice", "wonderland").status == 200);
    assert!(world.metric("failed") >= 2.0);
}

#[test]
fn who_is_local_is_never_asked_about() {
    let Some(world) = World::with(|config| {
        config.ldap.local_users = "bob".parse().expect("a list");
    }) else {
        return;
    };
    world.slapd.change(&format!(
        "dn: uid=root,{PEOPLE}\nchangetype: add\nobjectClass: inetOrgPerson\nuid: root\ncn: r\n\
         sn: r\nuserPassword: forged\n"
    ));
    world.read("root", "forged").expect(401);
    world.read("bob", "builder").expect(401);
    world.server.add_user("alice", "staple");
    world.read("alice", "wonderland").expect(401);
    world.read("alice", "staple").expect(200);
    assert_eq!(world.slapd.binds("uid="), 0);
}

#[test]
fn a_user_who_is_disabled_or_not_made_here_is_refused() {
    let Some(world) = World::with(|config| config.ldap.creates_users = false) else { return };
    world.read("alice", "wonderland").expect(401);
    world.server.root().get("/alice").expect(404);
    assert_eq!(world.server.metric("larder_login_failures_total{reason=\"not_admitted\"}"), 1.0);
    let run = |wish: &operations::users::SetDisabled| {
        crate::server::wait_for(async {
            let mut keeper = world.server.app.keeper();
            operations::carry_out(&mut keeper, &operations::Sender::Server, wish).await
        })
        .expect("a commit");
    };
    let wish = operations::users::CreateUser::named("alice".parse().expect("a name"));
    crate::server::wait_for(async {
        let mut keeper = world.server.app.keeper();
        operations::carry_out(&mut keeper, &operations::Sender::Server, &wish).await
    })
    .expect("a commit");
    world.read("alice", "wonderland").expect(200);
    let mut browser = Browser::of(world.server.client, "alice", "wonderland");
    let set = |is_disabled| operations::users::SetDisabled {
        name: "alice".parse().expect("a name"),
        is_disabled,
    };
    run(&set(true));
    let binds = world.slapd.binds("uid=alice");
    world.read("alice", "wonderland").expect(401);
    browser.get("/articles").expect_one_of([303, 401]);
    assert_eq!(world.slapd.binds("uid=alice"), binds);
    run(&set(false));
    world.read("alice", "wonderland").expect(200);
}

/// With a password here, somebody could stay after the directory has forgotten them.
#[test]
fn users_of_the_directory_have_no_password_here() {
    let Some(world) = World::start() else { return };
    world.read("alice", "wonderland").expect(200);
    let alice = world.server.user("alice", "wonderland");
    let answer = alice.json().patch("/alice", json!({"password": "mine"})).expect(403);
    answer.says("the password of user 'alice' is kept in the directory");
    world.server.root().json().patch("/alice", json!({"password": "staple"})).expect(200);
    world.read("alice", "staple").expect(200);
    world.read("alice", "wonderland").expect(401);
}

#[test]
fn a_user_who_is_deleted_here_is_made_again() {
    let Some(world) = World::start() else { return };
    world.read("alice", "wonderland").expect(200);
    world.server.root().delete("/alice").expect(200);
    world.read("alice", "wonderland").expect(200);
    assert_eq!(world.server.groups("alice"), "ldap-developers");
    let header = basic("alice", "wonderland");
    world.server.anybody().with("X-Devpi-Auth", &header[6..]).get("/articles").expect(200);
}
