//! The log: events of `tracing` -> lines on stderr, as text for people or JSON for machines.
//!
//! Standard output is for data and never gets a log line. If the journal stamps each line with the time, Larder
//! writes no second one. Events of the security log ([`security::TARGET`]) go to a file of their own if one is
//! configured: all of them, at any level.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use config::{Config, Environment, LogFormat};
use state::security;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// The file of the security log, if this process has one.
static SECURITY_FILE: OnceLock<Arc<SecurityFile>> = OnceLock::new();

/// Libraries that log a warning for each bad thing that a client sends: any client could fill the log with them.
/// Larder counts the important ones, and logs them itself.
const SILENT: &str = "h2=off,rustls=off";

/// The format of lines, chosen once at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Style {
    is_json: bool,
    is_coloured: bool,
    has_time: bool,
    /// The directives of the filter, in the syntax of RUST_LOG.
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

/// Starts logging to stderr with the configured format; $RUST_LOG takes precedence over `log_level`. Call this once.
///
/// # Errors
/// A message if $RUST_LOG is not a valid filter, if the file of the security log cannot be opened, or if logging has
/// been started already.
pub fn init(config: &Config, environment: &Environment) -> Result<(), String> {
    let style = Style::new(config, environment, io::stderr().is_terminal());
    let security = security_file(config)?;
    subscriber(&style, io::stderr, security)?
        .try_init()
        .map_err(|error| format!("logging cannot start: {error}"))
}

/// Starts logging for a command: only the security log, if it has a file. The command prints everything else itself.
///
/// # Errors
/// Those of [`init`].
pub fn init_command(config: &Config, environment: &Environment) -> Result<(), String> {
    let Some(file) = security_file(config)? else { return Ok(()) };
    let style = Style::new(config, environment, io::stderr().is_terminal());
    tracing_subscriber::registry()
        .with(security_layer(&style, file))
        .try_init()
        .map_err(|error| format!("logging cannot start: {error}"))
}

/// Opens the file of the security log again, in case it was moved away.
///
/// # Errors
/// If it cannot be opened; the old one then stays in use.
pub fn reopen() -> io::Result<()> {
    SECURITY_FILE.get().map_or(Ok(()), |file| file.reopen())
}

fn security_file(config: &Config) -> Result<Option<Arc<SecurityFile>>, String> {
    let Some(path) = &config.security_log else { return Ok(None) };
    let file = SecurityFile::open(path);
    let file =
        file.map_err(|error| format!("security_log = {path:?} cannot be opened: {error}"))?;
    Ok(Some(SECURITY_FILE.get_or_init(|| Arc::new(file)).clone()))
}

/// A file that whole lines are appended to.
struct SecurityFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl SecurityFile {
    fn open(path: &Path) -> io::Result<SecurityFile> {
        Ok(SecurityFile { path: path.to_owned(), file: Mutex::new(SecurityFile::append_to(path)?) })
    }

    fn append_to(path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(path)
    }

    fn reopen(&self) -> io::Result<()> {
        let file = SecurityFile::append_to(&self.path)?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }
}

impl<'file> MakeWriter<'file> for SecurityFile {
    type Writer = &'file SecurityFile;

    fn make_writer(&'file self) -> &'file SecurityFile {
        self
    }
}

impl Write for &SecurityFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// A layer that writes lines in this style to `writer`.
fn lines_to<W>(style: &Style, writer: W) -> BoxedLayer
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(style.is_coloured && !style.is_json);
    match (style.is_json, style.has_time) {
        (true, true) => layer.json().flatten_event(true).boxed(),
        (true, false) => layer.json().flatten_event(true).without_time().boxed(),
        (false, true) => layer.boxed(),
        (false, false) => layer.without_time().boxed(),
    }
}

/// A layer for the security log alone, to a file: always with the time, and without colours.
fn security_layer(style: &Style, file: Arc<SecurityFile>) -> BoxedLayer {
    let style = Style { is_coloured: false, has_time: true, ..style.clone() };
    lines_to(&style, file).with_filter(filter_fn(is_security)).boxed()
}

fn is_security(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.target() == security::TARGET
}

/// A filter that the message about an invalid one suggests: targets are the names of crates, `-` written as `_`.
const FILTER_EXAMPLE: &str = "info,larder=debug,store=debug";

/// A subscriber in this style that writes to `writer`; if `security` is given, the security log goes to that file.
fn subscriber<W>(
    style: &Style,
    writer: W,
    security: Option<Arc<SecurityFile>>,
) -> Result<Box<dyn tracing::Subscriber + Send + Sync>, String>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&style.filter).map_err(|error| {
        format!("RUST_LOG = {:?}: {error}; expected for example `{FILTER_EXAMPLE}`", style.filter)
    })?;
    let lines = lines_to(style, writer);
    let registry = tracing_subscriber::registry();
    Ok(match security {
        None => Box::new(registry.with(lines.with_filter(filter))),
        Some(file) => {
            let others = filter.and(filter_fn(|metadata| !is_security(metadata)));
            let layers: Vec<BoxedLayer> =
                vec![lines.with_filter(others).boxed(), security_layer(style, file)];
            Box::new(registry.with(layers))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().copied().collect()
    }

    /// The lines that one event at `info` and one at `debug` produce.
    fn lines(style: &Style) -> String {
        lines_beside(style, None)
    }

    /// The lines that these two events and one of the security log produce.
    fn lines_beside(style: &Style, security: Option<Arc<SecurityFile>>) -> String {
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
        let is_secure = security.is_some();
        let subscriber = subscriber(style, move || writer.clone(), security).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(packages = 3, "snapshot published");
            tracing::debug!("details");
            if is_secure {
                tracing::info!(target: security::TARGET, event = "test", "a right was changed");
            }
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
        assert_eq!(line, " INFO logging::tests: snapshot published packages=3\n");
        let line = lines(&style(LogFormat::Json, &[("JOURNAL_STREAM", "8:1")], false));
        assert!(!line.contains("timestamp"), "{line}");
    }

    #[test]
    fn an_invalid_filter_is_quoted_and_refused() {
        let style = style(LogFormat::Text, &[("RUST_LOG", "larder=loud")], false);
        let error = subscriber(&style, io::sink, None).err().unwrap();
        assert_eq!(
            error,
            r#"RUST_LOG = "larder=loud": error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5; expected for example `info,larder=debug,store=debug`"#
        );
    }

    #[test]
    fn the_suggested_filter_names_crates_that_exist() {
        let directives =
            FILTER_EXAMPLE.split(',').filter_map(|directive| directive.split_once('='));
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let names: Vec<&str> = directives.map(|(name, _)| name).collect();
        assert!(
            !names.is_empty() && names.iter().all(|name| crates.join(name).is_dir()),
            "{names:?}"
        );
        let style = style(LogFormat::Text, &[("RUST_LOG", FILTER_EXAMPLE)], false);
        assert!(subscriber(&style, io::sink, None).is_ok());
    }

    #[test]
    fn the_security_log_has_a_file_of_its_own_at_any_level() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("security.log");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let file = Arc::new(SecurityFile::open(&path).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for (level, others) in [("info", true), ("off", false)] {
            let pairs = [("RUST_LOG", level), ("JOURNAL_STREAM", "8:1")];
            let style = style(LogFormat::Json, &pairs, false);
            let lines = lines_beside(&style, Some(file.clone()));
            assert_eq!(lines.contains("snapshot published"), others, "{lines}");
            assert!(!lines.contains("a right was changed"), "{lines}");
        }
        let lines = read(&path);
        assert_eq!(lines.lines().count(), 2, "{lines}");
        let value: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!((&value["event"], &value["target"]), (&"test".into(), &security::TARGET.into()));
        assert!(value["timestamp"].is_string(), "{lines}");

        // The file is moved away and opened again: later lines are in the new one.
        let moved = directory.path().join("security.log.1");
        std::fs::rename(&path, &moved).unwrap();
        file.reopen().unwrap();
        lines_beside(&style(LogFormat::Text, &[], false), Some(file));
        assert_eq!(read(&moved), lines);
        let line = read(&path);
        assert!(line.contains("a right was changed") && line.lines().count() == 1, "{line}");
    }
}
