//! `server.…`: the state of this server.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::arguments::arguments;
use super::{ActionResult, Arguments, Context, Definition, Handler};
use crate::published::aur_published::AurPublished;

pub(crate) const ACTIONS: &[Definition] = &[Definition {
    name: "server.status",
    summary: "The server's version and start time, and what each surface serves.",
    arguments: Status::DESCRIBED,
    example: "{}",
    writes: false,
    handler: Handler::Read(status),
}];

arguments! {
    /// No arguments.
    struct Status {}
}

fn status(context: &Context, arguments: Arguments<'_>) -> ActionResult {
    let Status {} = arguments.read()?;
    let app = &context.app;
    let config = &app.config;
    let now = SystemTime::now();
    let mut aur = json!({"enabled": app.aur.is_on()});
    if let Some(published) = &context.aur {
        describe_packages(published, now, &mut aur);
    }
    let status = json!({
        "version": version::VERSION,
        "commit": version::COMMIT,
        "uptime_seconds": app.health.started_at.elapsed().as_secs(),
        "ready": app.obstacles().is_empty(),
        "surfaces": {
            "aur": aur,
            "article": {"enabled": config.article.enabled},
            "python": {"enabled": config.python.enabled},
        },
        "store": {"serial": context.stored.as_ref().map(|stored| stored.serial.0)},
    });
    Ok(status.to_string().into())
}

fn describe_packages(published: &AurPublished, now: SystemTime, aur: &mut Value) {
    aur["packages"] = published.snapshot.package_count().into();
    aur["package_bases"] = published.snapshot.package_base_count().into();
    aur["modified_unix_seconds"] = unix_seconds(published.modified_at).into();
    aur["published_unix_seconds"] = unix_seconds(published.published_at).into();
    // If the clock was set back, the age counts as zero.
    let age = now.duration_since(published.published_at).unwrap_or_default();
    aur["snapshot_age_seconds"] = age.as_secs().into();
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
