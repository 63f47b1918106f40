//! Query strings of GET, also beside a path: the path's parts stand before line breaks.

#![no_main]

use aur::{Params, PathParams};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    larder_fuzz::check_question(&Params::from_query(PathParams::default(), Some(&text)));
    let mut parts = text.rsplit('\n').map(str::to_owned);
    let query = parts.next();
    let path = PathParams {
        version: parts.next(),
        type_: parts.next(),
        arg: parts.next(),
        by: parts.next(),
        mode: parts.next(),
    };
    larder_fuzz::check_question(&Params::from_query(path, query.as_deref()));
});
