//! Release files: the first byte chooses the filename, the rest are the file's bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pypi::Filename;
use pypi::archive::{ArchiveError, ArchiveLimits, inspect};

/// Bounds that keep bombs small.
const LIMITS: ArchiveLimits = ArchiveLimits {
    members_max: 100,
    directory_bytes_max: 8 << 10,
    metadata_bytes_max: 4 << 10,
    ratio_max: 100,
    ratio_free_bytes: 1 << 20,
    inflated_bytes_max: 8 << 20,
};

const NAMES: [&str; 4] = ["a-1-py3-none-any.whl", "a-1.tar.gz", "a-1.zip", "a-1-py3.9.egg"];

fuzz_target!(|data: &[u8]| {
    let Some((&choice, file)) = data.split_first() else { return };
    let filename = Filename::parse(NAMES[usize::from(choice) % NAMES.len()]).expect("a filename");
    match inspect(file, file.len() as u64, &filename, &LIMITS) {
        Ok(facts) => {
            assert!(facts.is_opened && facts.members <= LIMITS.members_max);
            assert!(facts.inflated_bytes <= LIMITS.inflated_bytes_max);
            assert!(
                facts
                    .metadata
                    .as_ref()
                    .is_none_or(|it| it.len() as u64 <= LIMITS.metadata_bytes_max)
            );
            let _ = facts.core_metadata();
        }
        // Memory can always be read.
        Err(ArchiveError::Io(error)) => panic!("{error}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
