//! [`Porcupine`]: the program that judges recorded histories, `crates/testbed/porcupine`.
//!
//! `LARDER_TEST_PORCUPINE` is its path; without it, the one that `./test` builds is used if it exists.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The installed program.
pub struct Porcupine {
    program: PathBuf,
}

impl Porcupine {
    /// If the program is not there, the result is `None` and a line says so.
    pub fn prepare() -> Option<Porcupine> {
        let installed =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/porcupine");
        let named = std::env::var_os("LARDER_TEST_PORCUPINE").map(PathBuf::from);
        let Some(program) = named.or_else(|| installed.is_file().then_some(installed)) else {
            crate::skipped(
                "no judge of histories: LARDER_TEST_PORCUPINE is not set, and ./test has not built one",
            );
            return None;
        };
        Some(Porcupine { program })
    }

    /// Judges the history in a file: whether it holds, and the report. Pictures of what does not hold are put beside the file.
    ///
    /// # Panics
    /// The history cannot be read.
    #[track_caller]
    pub fn judge(&self, history: &Path) -> (bool, String) {
        let pictures = history.parent().expect("a directory");
        let mut command = Command::new(&self.program);
        let output = command.arg("--pictures").arg(pictures).arg(history).output();
        let output = output.expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
        (output.status.success(), said)
    }
}
