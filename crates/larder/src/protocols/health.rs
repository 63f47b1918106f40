//! For operators and their monitoring: alive, ready, version, metrics.

use std::fmt::Write;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::json;
use state::text::counted;
use store::blobs::BlobVerdict;

use crate::app::App;
use crate::front::request::Parts;

const TEXT: &str = "text/plain; charset=utf-8";

/// How long the place of the blobs is waited for.
const BLOBS_TIMEOUT: Duration = Duration::from_secs(2);

/// `/livez`: the process answers.
pub(crate) fn check_alive() -> Response {
    text(StatusCode::OK, "ok\n")
}

/// `/readyz`: every surface has a snapshot and the server is not stopping. With `?verbose` each check
/// is listed, and what troubles the source of a surface that still serves its old snapshot.
pub(crate) async fn check_ready(app: &App, head: &Parts) -> Response {
    let obstacles = app.obstacles();
    let status =
        if obstacles.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = String::new();
    for obstacle in &obstacles {
        // Writing to a string does not fail.
        let _ = writeln!(body, "[-] {obstacle}");
    }
    let query = head.uri.query().unwrap_or_default();
    if query.split('&').any(|pair| pair.split('=').next() == Some("verbose")) {
        if let Some(published) = app.aur.snapshot() {
            let _ = writeln!(
                body,
                "[+] aur: {} packages from {}, modified {}, published {}",
                published.snapshot.package_count(),
                published.origin,
                httpdate::fmt_http_date(published.modified_at),
                httpdate::fmt_http_date(published.published_at),
            );
            if let Some(lag) = app.packages_lag().filter(|lag| lag.as_secs() > 0) {
                let seconds = lag.as_secs();
                let _ = writeln!(
                    body,
                    "[!] aur: not compared with the primary's packages for {seconds} s"
                );
            }
            if let Some(trouble) = app.aur.trouble() {
                let _ = writeln!(
                    body,
                    "[!] aur: the last refresh failed, the snapshot above stays: {trouble}"
                );
            }
        } else if !app.aur.is_on() {
            body.push_str(match app.aur.lacks_source {
                true if app.following.is_some() => {
                    "[+] aur: not served, since the primary has given no packages, and there is no source (aur.source)\n"
                }
                true => "[+] aur: not served, since there is no source (aur.source) and no earlier dump\n",
                false => "[+] aur: switched off\n",
            });
        }
        if let Some(trouble) = &*app.changes.aur_failing.borrow() {
            let _ =
                writeln!(body, "[!] aur: the history of packages is not written now: {trouble}");
        }
        for flaw in app.health.side_files.flaws() {
            let _ = writeln!(body, "[!] {}: {}", flaw.what, flaw.text);
        }
        match tokio::time::timeout(BLOBS_TIMEOUT, app.store.blobs.check_identity()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let _ = writeln!(body, "[!] blobs: what is not in memory cannot be read: {error}");
            }
            Err(_) => {
                let place = app.config.blobs();
                let seconds = BLOBS_TIMEOUT.as_secs();
                let _ = writeln!(
                    body,
                    "[!] blobs: what is not in memory cannot be read: `{place}` has not answered within {seconds} s"
                );
            }
        }
        if let Some((digest, verdict)) = app.store.blobs.damaged().first() {
            let count = app.store.blobs.damaged().len();
            let flaw = match verdict {
                BlobVerdict::Missing => "missing",
                BlobVerdict::Damaged { .. } | BlobVerdict::Whole => "damaged",
            };
            let _ = writeln!(
                body,
                "[!] blobs: {} missing or damaged; {digest} is {flaw}",
                counted(count as u64, "blob")
            );
        }
        if let Some(stored) = app.live_store.snapshot() {
            let _ = writeln!(body, "[+] store: serial {}", stored.serial);
            if let Some(trouble) = app.live_store.trouble() {
                let _ = writeln!(
                    body,
                    "[!] store: it is not read on, what was read before is served: {trouble}"
                );
            }
        }
        push_following(app, &mut body);
        if let Some(trouble) = app.health.clocks.trouble() {
            let _ = writeln!(body, "[!] clock: {trouble}");
        }
        push_advisories(app, &mut body);
        forget_mirrors(app);
        if app.python.mirrors.is_offline() {
            body.push_str("[+] mirrors: no upstream is asked (python.mirrors_offline)\n");
        }
        for (mirror, trouble) in app.python.mirrors.troubles() {
            let _ = writeln!(
                body,
                "[!] mirror {mirror}: its upstream fails, what is known of it is served: {trouble}"
            );
        }
        for (name, trouble) in app.changes.webhooks.troubles() {
            let _ = writeln!(
                body,
                "[!] webhook {name}: nothing is delivered since {}, after {}: {}",
                trouble.since,
                counted(trouble.attempts.into(), "attempt"),
                trouble.failure.shown
            );
        }
        if let Some(free) = app.limits.free_space.look().await {
            let (bytes, min) = (free.bytes, app.limits.free_space.bytes_min);
            let _ = match bytes < min {
                true => writeln!(
                    body,
                    "[!] disk: {bytes} bytes free, less than {min}: only administrators write"
                ),
                false => writeln!(body, "[+] disk: {bytes} bytes free"),
            };
        }
    } else if obstacles.is_empty() {
        body.push_str("ok\n");
    }
    let mut response = text(status, body);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(http::header::RETRY_AFTER, 1.into());
    }
    response
}

/// `/version`
pub(crate) fn show_version() -> Response {
    let body = json!({
        "name": "larder",
        "version": version::VERSION,
        "commit": version::COMMIT,
    });
    ([(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// `/metrics`
pub(crate) async fn show_metrics(app: &App) -> Response {
    app.metrics.blobs_damaged.set(app.store.blobs.damaged().len() as i64);
    let failing = app.changes.webhooks.troubles().count();
    app.metrics.webhooks_failing.set(i64::try_from(failing).unwrap_or(i64::MAX));
    for webhook in app.changes.webhooks.all() {
        let (waiting, lag) = webhook.backlog(app.changes.feed(webhook.surface));
        app.metrics.webhook_is_behind(&webhook.name, waiting, lag);
    }
    app.metrics.rate_limit_clients.set(app.aur.rate_limiter.len() as i64);
    if let Some(free) = app.limits.free_space.look().await {
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        app.metrics.store_free_bytes.set(bytes(free.bytes));
        app.metrics.store_free_bytes_min.set(bytes(app.limits.free_space.bytes_min));
    }
    let lag = app.live_store.lag().unwrap_or_else(|| app.health.started_at.elapsed());
    app.metrics.store_lag_seconds.set(lag.as_secs_f64());
    count_following(app);
    app.metrics.clock_ahead_seconds.set(app.health.clocks.seconds_ahead());
    app.metrics.body_memory_bytes.set(app.limits.bodies.held_bytes() as i64);
    forget_mirrors(app);
    app.metrics.python.update(app.python.pages.counts(), app.python.mirrors.counts());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render())
        .into_response()
}

/// How this server follows its primary, if it does.
fn push_following(app: &App, body: &mut String) {
    if app.health.is_left_behind() {
        body.push_str("[!] follow: a follower of this store was made its primary: nothing is written here any more\n");
    }
    let Some(following) = &app.following else { return };
    let state = following.link.state();
    let (url, serial, primary) = (&following.link.url, state.serial, state.primary_serial);
    if let Some(why) = &state.starts_over {
        let meanwhile = match following.part {
            None => "the old records are served meanwhile",
            Some(_) => "the primary answers meanwhile",
        };
        let _ = writeln!(
            body,
            "[!] follow: everything is read anew from {url}, and {meanwhile}: {why}"
        );
    }
    let _ = match (&state.trouble, state.is_connected()) {
        (_, true) if serial >= primary => {
            writeln!(body, "[+] follow: {url}, up to its serial {primary}")
        }
        (_, true) => writeln!(body, "[+] follow: {url}, at serial {serial} of {primary}"),
        (Some(trouble), false) => {
            writeln!(
                body,
                "[!] follow: at serial {serial} of {primary}, what was read before is served: {trouble}"
            )
        }
        (None, false) => writeln!(body, "[!] follow: {url} has not answered yet"),
    };
}

/// Brings the metrics of a follower up to date.
fn count_following(app: &App) {
    let Some(following) = &app.following else { return };
    let state = following.link.state();
    let metrics = &app.metrics;
    metrics.follow_connected.set(state.is_connected().into());
    let lag = state.lag().unwrap_or_else(|| app.health.started_at.elapsed());
    metrics.follow_lag_seconds.set(lag.as_secs_f64());
    if let Some(lag) = app.packages_lag() {
        metrics.follow_aur_lag_seconds.set(lag.as_secs_f64());
    }
    metrics.follow_serials_behind.set(i64::try_from(state.serials_behind()).unwrap_or(i64::MAX));
    // Two scrapes at once may not count twice.
    for (counter, to) in
        [(&metrics.follow_connections, state.connections), (&metrics.follow_records, state.records)]
    {
        counter.inc_by(to.saturating_sub(counter.get()));
    }
}

/// The number of OSV records that count, their age, and problems with their source.
fn push_advisories(app: &App, body: &mut String) {
    if let Some(served) = app.python.advisories.served() {
        let advisories = &served.bundle.advisories;
        let _ = write!(
            body,
            "[+] advisories: {}, {} of them of malware, from {}, modified {}",
            counted(advisories.len() as u64, "OSV record"),
            advisories.malware(),
            served.origin,
            httpdate::fmt_http_date(served.modified_at),
        );
        let _ = match app.python.advisories.confirmed_at() {
            Some(at) => writeln!(body, ", confirmed {}", httpdate::fmt_http_date(at)),
            None => writeln!(body, ", not confirmed since the start"),
        };
        if served.bundle.unreadable > 0 {
            let _ = writeln!(
                body,
                "[!] advisories: {} of the bundle cannot be read, and do not count",
                counted(served.bundle.unreadable, "record")
            );
        }
    }
    if let Some(trouble) = app.python.advisories.trouble() {
        let _ = writeln!(body, "[!] advisories: the last refresh failed: {trouble}");
    }
}

/// Nothing is told of mirrors that were deleted.
fn forget_mirrors(app: &App) {
    if let Some(stored) = app.live_store.snapshot() {
        app.python.mirrors.keep_those_of(&stored.index);
    }
}

fn text(status: StatusCode, body: impl Into<String>) -> Response {
    (status, [(CONTENT_TYPE, TEXT), (CACHE_CONTROL, "no-store")], body.into()).into_response()
}
