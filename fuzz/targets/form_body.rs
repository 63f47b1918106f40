//! Urlencoded bodies and the fields of multipart ones, on `/rpc` and on the typed paths.

#![no_main]

use aur::{Body, Params, PathParams};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    larder_fuzz::check_question(&Params::from_body(PathParams::default(), None, Body::Form(data)));
    let typed = PathParams {
        version: Some("5".to_owned()),
        type_: Some("search".to_owned()),
        ..PathParams::default()
    };
    larder_fuzz::check_question(&Params::from_body(
        typed.clone(),
        Some("by=depends"),
        Body::Form(data),
    ));
    let text = String::from_utf8_lossy(data);
    let fields: Vec<(String, String)> = text
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    larder_fuzz::check_question(&Params::from_body(typed, None, Body::Fields(&fields)));
});
