//! A token opens what its scopes are for and nothing else, operation by operation.

use account::Scope;
use http::StatusCode;

use super::operations::{Row, TABLE};
use super::{World, only};

#[track_caller]
fn check(world: &World, row: &Row, scope: Scope) {
    for role in row.roles {
        let case = world.case(*role);
        let sent = case.prepared(row);
        let (_, token) = case.token(only(scope), None);
        let before = world.serial();
        let response = world.send(&sent, &token);
        let called = format!("{} as {role:?} for {}", row.called(), scope.as_str());
        let may = row.scope.is_none_or(|needed| only(scope).admit(needed));
        let expected = match row.scope {
            // A token without the scope may do whatever everybody may.
            None => world.send(&sent, "").status,
            Some(_) if may => row.done,
            Some(_) if response.status == row.refused => row.refused,
            Some(_) => 403,
        };
        assert_eq!(response.status, expected, "{called}: {}", response.text());
        assert_eq!(world.serial() > before, may && row.writes, "{called}: whether it is written");
        let text = response.text();
        assert!(may || text.contains("lacks the scope `"), "{called}: {text}");
    }
}

#[test]
fn a_token_opens_what_its_scopes_are_for() {
    let world = World::start();
    for row in TABLE {
        for scope in Scope::EVERY {
            check(&world, row, scope);
        }
    }
}

/// The causes for users without the right: the list that does not name them, or who may.
const CAUSES: [&str; 4] = [
    " is not in `a",
    " is not in `article.acl_write`",
    " is not in `python.acl_push_outside`",
    " administrators may",
];

/// Without credentials, with invalid ones, and as another user: refused. A known user is told why.
#[test]
fn nobody_in_particular_may_nothing() {
    let world = World::start();
    for row in TABLE.iter().filter(|row| row.scope.is_some()) {
        let case = world.case(row.roles[0]);
        let sent = case.prepared(row);
        let stranger = format!("stranger{}", case.number);
        world.make_user(&stranger, &[]);
        let token = super::bearer(&world.make_token(&stranger, account::Scopes::ALL, None));
        let before = world.serial();
        let wrong = "Basic bm9ib2R5Ondyb25n";
        for authorization in ["", wrong, &token] {
            let response = world.send(&sent, authorization);
            let status = StatusCode::from_u16(response.status).expect("a status");
            let is_refused = matches!(status.as_u16(), 401 | 403)
                // The answer does not reveal which tokens exist.
                || (row.operation == "DELETE /+tokens/{id}" && status == StatusCode::NOT_FOUND);
            assert!(is_refused, "{}: {status} {}", row.called(), response.text());
            let text = response.text();
            let is_told = CAUSES.iter().any(|cause| text.contains(cause));
            let is_somebody = authorization == token && status != StatusCode::NOT_FOUND;
            assert!(is_told || !is_somebody, "{}: no cause in {text}", row.called());
            assert_eq!(world.serial(), before, "{}: nothing is written", row.called());
        }
    }
}
