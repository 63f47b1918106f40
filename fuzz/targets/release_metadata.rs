//! `METADATA` and `PKG-INFO`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pypi::Metadata;

fuzz_target!(|data: &[u8]| {
    let Ok(metadata) = Metadata::read(data) else { return };
    let (project, version) = (metadata.project(), metadata.version());
    assert!(project.is_ok() && version.is_ok(), "what is taken names its release");
    // What is kept of it and read again is the same.
    let json = metadata.to_json();
    let again = Metadata::from_json(&json).expect("it was written a moment ago");
    assert_eq!(again.to_json(), json);
    assert_eq!((again.project(), again.version()), (project, version));
});
