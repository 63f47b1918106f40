//! [`Progress`]: a bar on a terminal that shows how far a long piece of work is.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on stderr if that is a terminal, and nothing else. Clones share it.
#[derive(Clone)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar on stderr, if that is a terminal.
    pub fn on_terminal() -> Progress {
        // It draws nothing if stderr is no terminal.
        Progress(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()))
    }

    /// A stage of unknown length begins.
    pub(super) fn begin(&self, what: &'static str) {
        self.0.reset();
        self.0.unset_length();
        let style = ProgressStyle::with_template("{spinner} {msg} {human_pos}");
        self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        self.0.set_message(what);
        self.0.enable_steady_tick(Duration::from_millis(200));
    }

    /// A stage of `length` things begins.
    pub fn begin_counted(&self, what: &'static str, length: u64) {
        self.0.reset();
        self.0.set_length(length);
        let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}");
        self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.0.set_message(what);
    }

    /// Sets how many are done.
    pub fn reach(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Counts one more as done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// The bar goes away.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
