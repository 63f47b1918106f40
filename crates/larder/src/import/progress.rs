//! [`Progress`]: shows how far an import is, if there is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar on stderr if that is a terminal; otherwise it shows nothing.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar for `length` things.
    pub(super) fn begin(what: &'static str, length: u64) -> Progress {
        // It draws nothing if stderr is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Progress(bar)
    }

    pub(super) fn step(&self) {
        self.0.inc(1);
    }

    pub(super) fn end(&self) {
        self.0.finish_and_clear();
    }
}
