//! `/status`: what this server serves, how fresh it is and what is wrong, in words. It names nothing that is private.

use std::collections::BTreeSet;
use std::time::Duration;

use askama::Template;
use axum::response::Response;

use super::days::Day;
use crate::app::App;
use crate::front::chart::points;
use crate::front::display;
use crate::front::page::{self, Audience, Site};
use crate::front::request::Parts;
use crate::published::changes::shapes::WebhookShape;
use crate::routes::Surface;

/// A process that has not looked at the store for longer than this does not follow it.
const LAG_MAX: Duration = Duration::from_secs(60);

/// A line of the page.
struct Line {
    name: &'static str,
    text: String,
    is_good: bool,
}

impl Line {
    fn good(name: &'static str, text: impl Into<String>) -> Line {
        Line { name, text: text.into(), is_good: true }
    }

    fn bad(name: &'static str, text: impl Into<String>) -> Line {
        Line { name, text: text.into(), is_good: false }
    }
}

#[derive(Template)]
#[template(path = "status.html")]
struct Status {
    site: Site,
    surfaces: Vec<Line>,
    process: Vec<Line>,
    wrong_count: usize,
    /// Empty if metrics are off: numbers of requests are theirs.
    charts: Vec<Chart>,
    now: Day,
    metrics: bool,
}

/// Requests a second of a surface in the last hour.
struct Chart {
    name: &'static str,
    now: String,
    most: String,
    /// The points of its line, the newest at the right.
    points: String,
}

fn charts(app: &App) -> Vec<Chart> {
    let config = &app.config;
    let surfaces = [
        (Surface::Aur, "AUR", app.aur.is_on()),
        (Surface::Python, "Python index", config.python.enabled),
        (Surface::Article, "Articles", config.article.enabled),
        (Surface::Action, "Actions", config.actions.enabled),
        (Surface::Server, "Pages, health and metrics", true),
    ];
    let served = surfaces.into_iter().filter(|(_, _, is_on)| *is_on);
    served.map(|(surface, name, _)| Chart::of(name, &app.metrics.rates.of(surface))).collect()
}

impl Chart {
    fn of(name: &'static str, rates: &[f64]) -> Chart {
        let said = |rate: f64| match rate {
            rate if rate >= 10.0 => page::separated(rate.round() as usize),
            rate => format!("{rate:.1}"),
        };
        let most = rates.iter().copied().fold(0.0, f64::max);
        Chart {
            name,
            now: said(rates.last().copied().unwrap_or_default()),
            most: said(most),
            points: points(rates, 1.0),
        }
    }
}

/// `/status`
pub(crate) async fn show_status(app: &App, head: &Parts) -> Response {
    let mut surfaces = vec![packages(app)];
    surfaces.extend(store(app));
    let mut process = vec![
        Line::good("Version", format!("Larder {}", version::VERSION)),
        Line::good("Running for", duration(app.health.started_at.elapsed())),
    ];
    if let Some(bytes) = resident_bytes() {
        process
            .push(Line::good("Memory", format!("{} MiB resident", page::separated(bytes >> 20))));
    }
    if let Some(free) = app.limits.free_space.look().await {
        let gib = page::separated(usize::try_from(free.bytes >> 20).unwrap_or(usize::MAX));
        process.push(match free.bytes < app.limits.free_space.bytes_min {
            true => {
                Line::bad("Disk", format!("only {gib} MiB free: only administrators write now"))
            }
            false => Line::good("Disk", format!("{gib} MiB free")),
        });
    }
    if app.changes.aur_failing.borrow().is_some() {
        let text = "cannot be written now; the log says why";
        process.push(Line::bad("AUR history", text));
    }
    for what in
        app.health.side_files.flaws().into_iter().map(|flaw| flaw.what).collect::<BTreeSet<_>>()
    {
        let text = format!("{what}: something was of no use; the log names it");
        process.push(Line::bad("Set aside", text));
    }
    for obstacle in app.obstacles() {
        process.push(Line::bad("Not ready", obstacle));
    }
    let wrong_count = surfaces.iter().chain(&process).filter(|line| !line.is_good).count();
    let page = Status {
        site: Site::of(app, head),
        surfaces,
        process,
        wrong_count,
        charts: if app.config.metrics.enabled { charts(app) } else { Vec::new() },
        now: Day::of_time(std::time::SystemTime::now()),
        metrics: app.config.metrics.enabled,
    };
    page::send(&page, head, Audience::Everybody).await
}

fn packages(app: &App) -> Line {
    const NAME: &str = "AUR packages";
    if !app.aur.is_on() {
        let text =
            if app.aur.lacks_source { "not served: there is no source" } else { "switched off" };
        return Line::good(NAME, text);
    }
    let Some(published) = app.aur.snapshot() else {
        return Line::bad(NAME, "being read; questions are answered once they are there");
    };
    let text = format!(
        "{} packages of {} bases; data of {} UTC, served since {} UTC",
        page::separated(published.snapshot.package_count() as usize),
        page::separated(published.snapshot.package_base_count() as usize),
        Day::of_time(published.modified_at).minute,
        Day::of_time(published.published_at).minute,
    );
    match (app.aur.trouble(), app.packages_lag()) {
        (None, Some(lag)) if lag > LAG_MAX => Line::bad(
            NAME,
            format!("{text}; not compared with those of the primary for {}", duration(lag)),
        ),
        (None, Some(_)) => Line::good(NAME, format!("{text}; from the primary")),
        (None, None) => Line::good(NAME, text),
        (Some(_), _) => Line::bad(
            NAME,
            format!(
                "{text}; the last look at the source failed, and this state goes on being served"
            ),
        ),
    }
}

fn store(app: &App) -> Vec<Line> {
    const NAME: &str = "Store";
    let switch =
        |name, is_on: bool| Line::good(name, if is_on { "served" } else { "switched off" });
    let mut lines = vec![
        switch("Python index", app.config.python.enabled),
        switch("Articles", app.config.article.enabled),
        switch("Actions", app.config.actions.enabled),
    ];
    let Some(stored) = app.live_store.snapshot() else {
        lines.push(Line::bad(NAME, "being read"));
        return lines;
    };
    let serial = format!(
        "serial {}",
        page::separated(usize::try_from(stored.serial.0).unwrap_or(usize::MAX))
    );
    lines.push(match (app.live_store.trouble(), app.live_store.lag()) {
        (Some(_), _) => Line::bad(
            NAME,
            format!("{serial}; it cannot be read on, and what was read before is served"),
        ),
        (None, Some(lag)) if lag > LAG_MAX => {
            Line::bad(NAME, format!("{serial}, last compared {} ago", duration(lag)))
        }
        _ => Line::good(NAME, serial),
    });
    lines.extend(following(app));
    let damaged = app.store.blobs.damaged().len();
    if damaged > 0 {
        lines.push(Line::bad("Files", format!("{damaged} missing or damaged; the log names them")));
    }
    let failing = app.python.mirrors.troubles().len();
    if failing > 0 {
        let text = format!("{failing} cannot reach their upstream; what is known of it is served");
        lines.push(Line::bad("Mirrors", text));
    }
    let (all, failing) =
        (app.changes.webhooks.all().len(), app.changes.webhooks.troubles().count());
    if failing > 0 {
        let text = format!("nothing can be delivered to {failing} of {all}; the log names them");
        lines.push(Line::bad("Webhooks", text));
    }
    lines.extend(caches(app));
    lines
}

/// What shared caches were not told of yet, each by the name of its webhook.
fn caches(app: &App) -> impl Iterator<Item = Line> {
    let all =
        app.changes.webhooks.all().iter().filter(|it| matches!(it.shape, WebhookShape::Cache(_)));
    all.map(|webhook| {
        let (waiting, lag) = webhook.backlog(app.changes.feed(webhook.surface));
        let (name, changes) = (&webhook.name, display::count(waiting, "change", "changes"));
        match (waiting, lag > LAG_MAX) {
            (0, false) => Line::good("Cache", format!("{name}: everything is told")),
            (_, false) => Line::good("Cache", format!("{name}: {changes} to be told")),
            (_, true) => {
                let lag = duration(lag);
                Line::bad("Cache", format!("{name}: behind for {lag}, with {changes} to be told"))
            }
        }
    })
}

/// Which server this one follows, and how that goes.
fn following(app: &App) -> Option<Line> {
    const NAME: &str = "Copy";
    if app.health.is_left_behind() {
        let text =
            "a copy of this store was made the primary, and nothing is written here any more";
        return Some(Line::bad(NAME, text));
    }
    let following = app.following.as_ref()?;
    let (state, primary) = (following.link.state(), following.primary_url(&app.config));
    let behind = state.serials_behind();
    Some(match (&state.starts_over, state.is_connected(), state.lag()) {
        (Some(_), ..) => Line::bad(
            NAME,
            match following.part {
                None => {
                    format!("of {primary}, which has another history than before: read anew now")
                }
                Some(_) => {
                    format!("of what may be read of {primary}, which has changed: read anew now")
                }
            },
        ),
        (None, true, _) if behind == 0 => {
            Line::good(NAME, format!("of {primary}, with everything that is there"))
        }
        (None, true, _) => {
            Line::good(NAME, format!("of {primary}, catching up: {behind} commits behind"))
        }
        (None, false, Some(lag)) => {
            let lag = duration(lag);
            Line::bad(
                NAME,
                format!(
                    "of {primary}, which has not been reached for {lag}; what was read before is served"
                ),
            )
        }
        (None, false, None) => {
            Line::bad(NAME, format!("of {primary}, which has not been reached yet"))
        }
    })
}

/// The memory that the process has in use, as Linux counts it.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().split(' ').next()?.parse().ok()?;
    Some(kib << 10)
}

/// A time in its two largest units.
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} days {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_ends_at_the_right_and_stays_within_its_height() {
        let chart = Chart::of("x", &[0.0, 4.0, 2.0]);
        assert_eq!(chart.points, "238,39.0 239,1.0 240,20.0");
        assert_eq!((chart.now.as_str(), chart.most.as_str()), ("2.0", "4.0"));
        let chart = Chart::of("x", &[]);
        assert_eq!((chart.points.as_str(), chart.now.as_str()), ("", "0.0"));
        assert_eq!(Chart::of("x", &[0.5]).points, "240,20.0");
        assert_eq!(Chart::of("x", &[12_345.6]).now, "12,346");
    }

    #[test]
    fn times_are_short() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (125, "2 min"),
            (7_260, "2 h 1 min"),
            (180_000, "2 days 2 h"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
