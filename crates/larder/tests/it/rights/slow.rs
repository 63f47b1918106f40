//! A right that is taken away while the body arrives is gone when it has come: the head and a part of a body are sent,
//! then the right is taken away and that is acknowledged, then the rest of the body is sent.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use account::change;
use account::{Password, Scopes};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::operations::{Row, TABLE};
use super::{Case, Role, Sent, World};
use crate::client::Response;

/// A request of which a part of the body is under way.
struct Begun {
    stream: TcpStream,
    rest: Vec<u8>,
}

/// Sends the head, waits until the server asks for the body, and sends half of that; the answer, if there is one
/// before.
#[track_caller]
fn begin(world: &World, sent: &Sent, authorization: &str) -> Result<Begun, Response> {
    begin_with(world, sent, authorization, sent.body.len() / 2)
}

/// Begins the request with this many bytes of the body.
#[track_caller]
fn begin_with(
    world: &World,
    sent: &Sent,
    authorization: &str,
    bytes: usize,
) -> Result<Begun, Response> {
    let Sent { method, target, content_type, headers, body } = sent;
    let mut head = format!(
        "{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\n\
         Authorization: {authorization}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = world.server.connect();
    stream.write_all((head + "\r\n").as_bytes()).expect("the server reads");
    let mut first = Vec::new();
    while !first.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        first.push(byte[0]);
    }
    if !first.starts_with(b"HTTP/1.1 100 ") {
        return Err(Response::read(&mut first.as_slice().chain(stream), false));
    }
    let (part, rest) = body.split_at(bytes);
    stream.write_all(part).expect("the server reads");
    Ok(Begun { stream, rest: rest.to_vec() })
}

impl Begun {
    #[track_caller]
    fn finish(mut self) -> Response {
        // A server that has refused meanwhile may have closed.
        let _ = self.stream.write_all(&self.rest);
        Response::read(&mut self.stream, false)
    }
}

/// How a right ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    TokenRevoked,
    UserDisabled,
    UserDeleted,
    PasswordChanged,
    LeftGroup,
    ListChanged,
}

const ENDS: [End; 6] = [
    End::TokenRevoked,
    End::UserDisabled,
    End::UserDeleted,
    End::PasswordChanged,
    End::LeftGroup,
    End::ListChanged,
];

impl End {
    /// Whether this event ends a right that a user has for this reason.
    fn ends(self, role: Role) -> bool {
        match self {
            End::LeftGroup => role != Role::Owner,
            End::ListChanged => role == Role::Listed,
            _ => true,
        }
    }
}

/// Takes the right away, and returns once that is acknowledged.
fn take_away(case: &Case<'_>, end: End, token: account::TokenId) {
    let (world, name, now) = (case.world, case.name(), Timestamp::now());
    let stored = world.stored();
    let accounts = &stored.accounts;
    match end {
        End::TokenRevoked => world.commit(change::revoke_token(accounts, token).expect("a token")),
        End::UserDisabled => {
            let batch = change::set_disabled(accounts, &name, true, now).expect("a user");
            world.commit(batch.expect("a change"));
        }
        End::UserDeleted => world.commit(change::delete_user(accounts, &name).expect("a user")),
        End::PasswordChanged => {
            let hash = Some(Password::new("another").expect("a password").hash([1; 16]));
            let batch = change::set_password(accounts, &name, hash, now).expect("a user");
            world.commit(batch.expect("a change"));
        }
        End::LeftGroup => world.leave_groups(case),
        End::ListChanged => {
            let lists = json!(["acl_upload=", "acl_toxresult_upload=", "acl_read="]);
            let target = format!("/{}", case.stage());
            case.as_owner(&Sent::new("PATCH", target).json(&lists));
        }
    }
}

#[track_caller]
fn check_refused(called: &str, response: &Response) {
    let status = response.status;
    assert!(matches!(status, 401 | 403), "{called}: {status} {}", response.text());
}

/// Rows with a body that need a right.
fn rows() -> impl Iterator<Item = (&'static Row, Role)> {
    let rows = TABLE.iter().filter(|row| row.scope.is_some());
    rows.flat_map(|row| row.roles.iter().map(move |role| (row, *role)))
}

#[test]
fn a_right_that_ends_while_the_body_comes_is_gone() {
    let world = World::start();
    let mut tried = 0;
    for (row, role) in rows() {
        for end in ENDS.into_iter().filter(|end| end.ends(role)) {
            let case = world.case(role);
            let sent = case.prepared(row);
            if sent.body.is_empty() {
                break;
            }
            let (token, bearer) = case.token(Scopes::ALL, None);
            let authorization = if end == End::PasswordChanged { case.login() } else { bearer };
            let called = format!("{} as {role:?}: {end:?}", row.called());
            let half = begin(&world, &sent, &authorization);
            let half = half.unwrap_or_else(|early| panic!("{called}: {}", early.text()));
            take_away(&case, end, token);
            let before = world.serial();
            check_refused(&called, &half.finish());
            assert_eq!(world.serial(), before, "{called}: nothing is written");
            tried += 1;
        }
    }
    assert!(tried > 150, "{tried}");
}

/// Revokes before the first byte of the body, in the middle, and before the last byte. Forms end before their last byte.
#[test]
fn a_token_is_revoked_at_any_point_of_a_body() {
    let world = World::start();
    for (row, role) in rows() {
        for (part, of) in [(0, 1), (1, 5), (4, 5), (1, 1)] {
            let case = world.case(role);
            let sent = case.prepared(row);
            if sent.body.is_empty() || sent.content_type.starts_with("multipart/") {
                break;
            }
            let (token, authorization) = case.token(Scopes::ALL, None);
            let bytes = (sent.body.len() - 1) * part / of;
            let called = format!("{} as {role:?} after {bytes} bytes", row.called());
            let begun = begin_with(&world, &sent, &authorization, bytes);
            let begun = begun.unwrap_or_else(|early| panic!("{called}: {}", early.text()));
            take_away(&case, End::TokenRevoked, token);
            let before = world.serial();
            check_refused(&called, &begun.finish());
            assert_eq!(world.serial(), before, "{called}: nothing is written");
        }
    }
}

/// All at once, so that the test waits only once for time to pass.
#[test]
fn a_token_that_expires_while_the_body_comes_opens_nothing() {
    let world = World::start();
    let mut lifetime = SignedDuration::from_secs(4);
    loop {
        let cases: Vec<_> = rows()
            .map(|(row, role)| {
                let case = world.case(role);
                let sent = case.prepared(row);
                (row, case, sent)
            })
            .filter(|(_, _, sent)| !sent.body.is_empty())
            .collect();
        let expires_at = Timestamp::now() + lifetime;
        let tokens = cases.iter().map(|(_, case, _)| case.token(Scopes::ALL, Some(expires_at)).1);
        let tokens: Vec<String> = tokens.collect();
        let halves = cases.iter().zip(&tokens);
        let halves = halves.map(|((_, _, sent), token)| begin(&world, sent, token));
        let halves: Vec<_> = halves.collect();
        if halves.iter().any(Result::is_err) {
            // On a busy machine the token expired before all requests had begun.
            assert!(Timestamp::now() >= expires_at, "refused too early");
            lifetime *= 2;
            continue;
        }
        while Timestamp::now() <= expires_at {
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = world.serial();
        for ((row, case, _), half) in cases.iter().zip(halves) {
            let half = half.unwrap_or_else(|early| panic!("{}", early.text()));
            let called = format!("{} as {:?}: expired", row.called(), case.role);
            check_refused(&called, &half.finish());
        }
        assert_eq!(world.serial(), before, "nothing is written");
        return;
    }
}

/// Requests that are as slow succeed if no right ends meanwhile.
#[test]
fn a_slow_body_is_taken() {
    let world = World::start();
    for (row, role) in rows() {
        let case = world.case(role);
        let sent = case.prepared(row);
        if sent.body.is_empty() {
            continue;
        }
        let (_, authorization) = case.token(Scopes::ALL, None);
        let called = format!("{} as {role:?}", row.called());
        let half = begin(&world, &sent, &authorization);
        let half = half.unwrap_or_else(|early| panic!("{called}: {}", early.text()));
        let before = world.serial();
        let response = half.finish();
        assert_eq!(response.status, row.done, "{called}: {}", response.text());
        assert_eq!(world.serial() > before, row.writes, "{called}: whether it is written");
    }
}

/// The right to an external push is checked when its body has come; without it nothing is sent.
#[test]
fn a_push_to_elsewhere_is_judged_at_its_start() {
    let world = World::start();
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    elsewhere.set_nonblocking(true).expect("it can be asked without waiting");
    let url = format!("http://{}/", elsewhere.local_addr().expect("an address"));
    for end in ENDS.into_iter().filter(|end| *end != End::ListChanged) {
        let case = world.case(Role::Configured);
        let row = TABLE.iter().find(|row| row.operation == "PUSH /{user}/{index}");
        let pushed = case.prepared(row.expect("a row"));
        let order = json!({"name": "q", "version": "1.0", "posturl": url});
        let sent = Sent { target: pushed.target, ..Sent::new("PUSH", "") }.json(&order);
        let (token, bearer) = case.token(Scopes::ALL, None);
        let authorization = if end == End::PasswordChanged { case.login() } else { bearer };
        let half = begin(&world, &sent, &authorization);
        let half = half.unwrap_or_else(|early| panic!("{end:?}: {}", early.text()));
        take_away(&case, end, token);
        check_refused(&format!("{end:?}"), &half.finish());
        let asked = elsewhere.accept().map(|_| ());
        let kind = asked.expect_err("nobody asks").kind();
        assert_eq!(kind, std::io::ErrorKind::WouldBlock, "{end:?}");
    }
}
