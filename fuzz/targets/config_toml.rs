//! Configuration files.

#![no_main]

use std::sync::LazyLock;

use config::{Environment, Flags, Inputs};
use libfuzzer_sys::fuzz_target;

static DIRECTORY: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a directory"));

fuzz_target!(|data: &[u8]| {
    let path = DIRECTORY.path().join("config.toml");
    std::fs::write(&path, data).expect("a file");
    let mut flags = Flags::default();
    flags.set("data_dir", "larder-data");
    // The file that holds the key would be read; a fuzzer must not choose what is read.
    flags.set("admin.key_file", "");
    let inputs = Inputs { file: Some(path), flags, environment: Environment::default() };
    match inputs.load() {
        Ok(loaded) => assert!(!config::show(&loaded).is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
