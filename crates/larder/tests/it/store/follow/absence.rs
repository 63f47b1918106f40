//! A follower whose primary is away for days: the follower's clock is ahead by them.

use serde_json::json;

use super::*;
use crate::store::clocks::ahead;

#[test]
fn days_without_the_primary_change_no_answer() {
    let Some(later) = ahead("+5d") else { return };
    let primary = Primary::start();
    fill(&primary.server);
    let wheel = upload(&primary.server, "pkg", "3.0");
    let line = Line::to(primary.server.client.address);
    let all = ["--follow-blobs", "all"];
    let second = primary.follower("second", &line.url(), &all);
    check_equal(&second, &primary.server);
    let wanted = blobs_in(&primary.directory.path().join("data"));
    let there = primary.directory.path().join("second");
    wait_until("all blobs", || blobs_in(&there) == wanted);
    let asked = |server: &Client| -> Vec<_> {
        let answers = targets().into_iter().map(|(target, accept)| {
            let answer = server.root().accept(accept).get(&target);
            (target, answer.status, answer.text().replace(&server.address.to_string(), "HOST"))
        });
        answers.collect()
    };
    let before = asked(&second);
    let Primary { directory, server, .. } = primary;
    drop(server);
    drop(second);

    let (url, data) = (line.url(), "second");
    let arguments = ["--aur-enabled=false", "--follow", &url, "--follow-token-file", TOKEN_FILE];
    let arguments = [&arguments[..], &all].concat();
    let second = Process::start_with(directory.clone(), data, &arguments, &later);
    assert_eq!(asked(&second), before);
    wheel.check(&second, "team/dev", &[]);
    let body = json!({"user": "root", "password": crate::server::ROOT_PASSWORD});
    second.anybody().typed("application/json").post("/+login", body).expect(200);
    second.root().post("/article/notes/one/2", "there".as_bytes()).expect(307);
    second.get("/readyz?verbose").expect(200).says("[!] follow");

    let primary = Primary::start_in(directory);
    line.leads_to(primary.server.client.address);
    write(&primary.server, "notes/days", 0, "after days");
    wait_until_equal(&second, &primary.server);
    check_equal(&second, &primary.server);
}
