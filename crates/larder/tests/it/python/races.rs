//! Writes that meet: files of one version, and an upload into a stage that is being deleted.

use larder::tasks::blob_sweep::sweep;
use pypi::change::stage;
use serde_json::json;

use super::{Index, Upload, sdist, wheel};
use crate::server::{commit, wait_for};

#[test]
fn what_a_deleted_stage_left_behind_is_swept() {
    let index = Index::start();
    let app = &index.server.app;
    let state = || app.live_store.snapshot_full().expect("a state").index.clone();
    index.stage("alice/dev", json!({}));
    index.stage("alice/other", json!({}));
    index.upload("alice/other", "p-1.zip", &sdist("1"));
    let name = "alice/dev".parse().expect("a name");
    let deletion = stage::delete(&state(), &name, false).expect("a stage");
    // Decided on, and not committed yet.
    index.upload("alice/dev", "p-1.zip", &sdist("1"));
    commit(&app.live_store, deletion);
    assert!(stage::sweep_leftovers(&state()).is_some());
    wait_for(sweep(app));
    assert_eq!(stage::sweep_leftovers(&state()), None);
    assert_eq!(index.files("alice/other", "p"), ["p-1.zip"]);
    let serial = app.metrics.store_serial.get();
    wait_for(sweep(app));
    assert_eq!(app.metrics.store_serial.get(), serial, "nothing is written where nothing is left");
}

#[test]
fn many_files_of_one_version_at_once_are_all_taken() {
    let index = Index::with_dev();
    index.upload("alice/dev", "p-1.zip", &sdist("1"));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let upload = |number: usize| {
            let name = format!("p-1-{number}-py3-none-any.whl");
            let (wheel, _) = wheel("p", "1");
            let index = &index;
            scope
                .spawn(move || index.alice().upload("alice/dev", &Upload::of(&name, &wheel)).status)
        };
        let uploads: Vec<_> = (1..=40).map(upload).collect();
        uploads.into_iter().map(|it| it.join().expect("no panic")).collect()
    });
    assert_eq!(statuses, [200; 40]);
}
