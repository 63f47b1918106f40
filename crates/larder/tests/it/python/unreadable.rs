//! A stage whose record cannot be read is not shown, and no other stage can be made in its place.

use record::{Batch, Expected};
use serde_json::json;

use super::{Index, sdist};
use crate::server::commit;

#[test]
fn a_stage_that_cannot_be_read_stays_as_it_is() {
    let index = Index::start();
    let live_store = &index.server.app.live_store;
    index.stage("alice/dev", json!({}));
    index.upload("alice/dev", "p-1.zip", &sdist("1"));
    let write = |body: &'static str| {
        let key = pypi::stage_key(&"alice/dev".parse().expect("a name"));
        let batch = Batch::new().put(key, Expected::Anything, body, Vec::new());
        commit(live_store, batch);
    };
    write(r#"{"v":2,"settings":[]}"#);
    index.anybody().get("/alice/dev/+simple/p/").expect(404);
    let text = "index 'alice/dev' exists, but its record cannot be read by this version of the server; \
                the log says why";
    for (method, target, status) in [
        ("PUT", "/alice/dev", 409),
        ("PATCH", "/alice/dev", 409),
        ("DELETE", "/alice/dev?force", 409),
        // Whatever keeps a user from being removed is 403.
        ("DELETE", "/alice?force", 403),
    ] {
        index.root().send(method, target, json!({})).message(status, text);
    }
    write(r#"{"v":1,"config":{"type":"stage","added_later":true}}"#);
    assert_eq!(index.files("alice/dev", "p"), ["p-1.zip"]);
}
