//! Values of `Accept-Encoding`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use reply::Encoding;

fuzz_target!(|text: &str| {
    let encoding = Encoding::negotiate(text);
    let names = text.to_ascii_lowercase();
    let wanted = match encoding {
        Encoding::Identity => return,
        Encoding::Gzip => "gzip",
        Encoding::Zstd => "zstd",
    };
    assert!(names.contains(wanted) || names.contains('*'), "nobody asked for {wanted}: {text}");
});
