//! Dumps: nothing is taken that a general JSON parser would refuse.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|data: &[u8]| {
    larder_fuzz::check_dump(data);
    if !data.starts_with(&[0x1f, 0x8b]) && aur::dump::read(data, &larder_fuzz::LIMITS).is_ok() {
        let list: Result<Vec<&RawValue>, _> = serde_json::from_slice(data);
        assert!(list.is_ok(), "taken, but not JSON: {list:?}");
    }
});
