//! A cache that could not be told of anything for an hour, by the clock of the server.

use super::*;
use crate::process::{Process, init};
use crate::store::clocks::ahead;

/// More changes than are told at once.
const CHANGES: usize = 210;

#[test]
fn purges_wait_for_an_hour_and_are_delivered_in_order() {
    let Some(later) = ahead("+1h") else { return };
    let edge = Edge::start();
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    init(directory.path());
    let hooks = directory.path().join("webhooks.toml");
    let entry = format!(
        "[[webhook]]\nname = \"edge\"\nsurface = \"articles\"\nshape = \"keys\"\nurl = \"http://{}/\"\n\
         headers = {{\"X-Api-Key\" = \"s3cret\"}}\n",
        edge.receiver.address
    );
    std::fs::write(&hooks, entry).expect("a file");
    let hooks = hooks.display().to_string();
    let arguments = [
        "--aur-enabled=false",
        "--cdn-seconds=3600",
        "--egress-allow=127.0.0.1",
        "--changes-webhooks-file",
        &hooks,
    ];
    let server = Process::start_in(directory.clone(), "data", &arguments);
    edge.wait_for("articles");
    let kept = directory.path().join("data/webhooks/edge.position");
    wait_until("the position to be kept", || kept.exists());
    server.get("/status").says("edge: everything is told");
    edge.status.store(503, SeqCst);
    edge.keys();
    for at in 0..CHANGES {
        server.root().write(&format!("n{at}/0"), "text").expect(201);
    }
    server.wait_for("/readyz?verbose", "[!] webhook edge: ");
    drop(server);

    let server = Process::start_with(directory, "data", &arguments, &later);
    server.wait_for("/readyz?verbose", "[!] webhook edge: ");
    let metric = |name: &str| server.metric(&format!("{name}{{webhook=\"edge\"}}"));
    assert_eq!(metric("larder_webhook_waiting"), CHANGES as f64);
    let lag = metric("larder_webhook_lag_seconds");
    assert!((3_600.0..7_200.0).contains(&lag), "{lag}");
    server.get("/status").says(["edge: behind for 1 h", "with 210 changes to be told"]);
    assert!(edge.keys().is_empty());

    edge.status.store(200, SeqCst);
    let keys = edge.wait_for(&format!("article:n{}", CHANGES - 1));
    assert!(!keys.contains(&"articles".to_owned()), "only what has changed: {keys:?}");
    let place = |at: usize| keys.iter().position(|key| *key == format!("article:n{at}"));
    let places: Vec<usize> = (0..CHANGES).map(|at| place(at).expect("each is told")).collect();
    // What is told at once has no order.
    assert!(places[..200].iter().max() < places[200..].iter().min(), "{places:?}");
    wait_until("nothing to wait", || metric("larder_webhook_waiting") == 0.0);
    server.wait_until_gone("/readyz?verbose", "webhook");
    assert_eq!(metric("larder_webhook_lag_seconds"), 0.0);
}
