//! JSON bodies on every path that takes them; the first byte chooses the path.

#![no_main]

use aur::{Body, Kind, Params, PathParams};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, body)) = data.split_first() else { return };
    let kind = Kind::ALL[choice as usize % Kind::ALL.len()];
    for version in ["5", "6"] {
        let path = PathParams {
            version: Some(version.to_owned()),
            type_: Some(kind.name().to_owned()),
            ..PathParams::default()
        };
        larder_fuzz::check_question(&Params::from_body(path.clone(), None, Body::Json(body)));
        larder_fuzz::check_question(&Params::from_body(path, None, Body::Form(body)));
    }
});
