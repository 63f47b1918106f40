//! Configurations of goaurrpc: what is imported must be a file that loads, or be refused with reasons.

#![no_main]

use std::sync::LazyLock;

use config::{Environment, Flags, Inputs};
use libfuzzer_sys::fuzz_target;

static DIRECTORY: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a directory"));

fuzz_target!(|text: &str| {
    match config::import_goaurrpc(text) {
        Err(error) => assert!(!error.is_empty()),
        Ok(toml) => {
            let path = DIRECTORY.path().join("config.toml");
            std::fs::write(&path, toml).expect("a file");
            let mut flags = Flags::default();
            flags.set("data_dir", "larder-data");
            flags.set("admin.key_file", "");
            let inputs = Inputs { file: Some(path), flags, environment: Environment::default() };
            if let Err(error) = inputs.load() {
                assert!(!error.to_string().is_empty());
            }
        }
    }
});
