//! The log: events of `tracing` -> lines on stderr, as text for people or JSON for machines.
//!
//! Standard output is for data and never gets a log line. Where the journal stamps each line with the time, no second
//! time is written.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Config, Environment, LogFormat};

/// Libraries whose warnings are about what clients send, a line for each: whoever likes could fill the log. What matters of
/// it is counted, and logged by us.
const SILENT: &str = "h2=off,rustls=off";

/// How lines are written, decided once at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Style {
    is_json: bool,
    is_coloured: bool,
    has_time: bool,
    /// Directives of the filter, in the notation of RUST_LOG.
    filter: String,
}

impl Style {
    fn new(config: &Config, environment: &Environment, is_terminal: bool) -> Self {
        let is_json = match config.log_format {
            LogFormat::Auto => !is_terminal,
            LogFormat::Text => false,
            LogFormat::Json => true,
        };
        Self {
            is_json,
            is_coloured: is_terminal && environment.get("NO_COLOR").is_none(),
            has_time: environment.get("JOURNAL_STREAM").is_none(),
            filter: environment
                .get("RUST_LOG")
                .map_or_else(|| format!("{},{SILENT}", config.log_level), str::to_owned),
        }
    }
}

/// Starts logging to stderr as the configuration says; $RUST_LOG wins over `log_level`. Call it once.
///
/// # Errors
/// A text if $RUST_LOG cannot be read as a filter, or if logging has been started before.
pub fn init(config: &Config, environment: &Environment) -> Result<(), String> {
    let style = Style::new(config, environment, io::stderr().is_terminal());
    subscriber(&style, io::stderr)?
        .try_init()
        .map_err(|error| format!("logging cannot start: {error}"))
}

/// A subscriber in the given style that writes to `writer`.
fn subscriber<W>(
    style: &Style,
    writer: W,
) -> Result<Box<dyn tracing::Subscriber + Send + Sync>, String>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&style.filter).map_err(|error| {
        format!("RUST_LOG = {:?}: {error}; expected such as `info,larder=debug`", style.filter)
    })?;
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(style.is_coloured && !style.is_json);
    Ok(match (style.is_json, style.has_time) {
        (true, true) => Box::new(registry.with(layer.json().flatten_event(true))),
        (true, false) => Box::new(registry.with(layer.json().flatten_event(true).without_time())),
        (false, true) => Box::new(registry.with(layer)),
        (false, false) => Box::new(registry.with(layer.without_time())),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().copied().collect()
    }

    /// The lines that one event at `info` and one at `debug` leave behind.
    fn lines(style: &Style) -> String {
        #[derive(Clone, Default)]
        struct Buffer(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Buffer {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = subscriber(style, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(packages = 3, "snapshot published");
            tracing::debug!("details");
        });
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    fn style(format: LogFormat, pairs: &[(&str, &str)], is_terminal: bool) -> Style {
        let config = Config { log_format: format, ..Config::default() };
        Style::new(&config, &environment(pairs), is_terminal)
    }

    #[test]
    fn auto_is_text_on_a_terminal_and_json_elsewhere() {
        assert!(!style(LogFormat::Auto, &[], true).is_json);
        assert!(style(LogFormat::Auto, &[], false).is_json);
        assert!(style(LogFormat::Json, &[], true).is_json);
        assert!(!style(LogFormat::Text, &[], false).is_json);
    }

    #[test]
    fn colour_needs_a_terminal_and_no_objection() {
        assert!(style(LogFormat::Text, &[], true).is_coloured);
        assert!(!style(LogFormat::Text, &[("NO_COLOR", "1")], true).is_coloured);
        assert!(!style(LogFormat::Text, &[], false).is_coloured);
    }

    #[test]
    fn rust_log_wins_over_the_level() {
        assert_eq!(style(LogFormat::Auto, &[], true).filter, "info,h2=off,rustls=off");
        assert_eq!(
            style(LogFormat::Auto, &[("RUST_LOG", "larder=trace")], true).filter,
            "larder=trace"
        );
    }

    #[test]
    fn a_json_line_holds_message_and_fields_at_the_top() {
        let line = lines(&style(LogFormat::Json, &[], false));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["message"], "snapshot published");
        assert_eq!(value["packages"], 3);
        assert!(value["timestamp"].is_string());
    }

    #[test]
    fn the_journal_gets_no_time() {
        let line = lines(&style(LogFormat::Text, &[("JOURNAL_STREAM", "8:1")], false));
        assert!(line.trim_start().starts_with("INFO"), "{line}");
        let line = lines(&style(LogFormat::Json, &[("JOURNAL_STREAM", "8:1")], false));
        assert!(!line.contains("timestamp"), "{line}");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_refused_with_its_text() {
        let style = style(LogFormat::Text, &[("RUST_LOG", "larder=loud")], false);
        let error = subscriber(&style, io::sink).err().unwrap();
        assert!(error.contains("larder=loud"), "{error}");
    }
}
