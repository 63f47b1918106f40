//! Values of `If-None-Match`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use reply::{Encoding, Reply};

static REPLY: LazyLock<Reply> = LazyLock::new(|| Reply::tagged("application/json", "[]"));

fuzz_target!(|text: &str| {
    let is_known = REPLY.is_known_by(text);
    let tag = REPLY.etag.expect("a tagged reply").header_value(Encoding::Identity);
    let tag = tag.trim_matches('"');
    // The MD5 of `[]`, which was aurweb's tag.
    let names = text.to_ascii_lowercase();
    let may_be_known = names.contains(tag)
        || names.contains("d751713988987e9331980363e24189ce")
        || names.contains('*');
    assert!(!is_known || may_be_known, "{text}");
    assert!(
        REPLY.is_known_by(&format!("{text},\"{tag}\"")),
        "a tag at the end of a list counts: {text}"
    );
});
