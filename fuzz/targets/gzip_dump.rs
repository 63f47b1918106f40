//! Compressed dumps: raw bytes as gzip, and gzip of the bytes with one byte changed or the end cut off.

#![no_main]

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [choice, high, low, rest @ ..] = data else { return };
    if choice % 4 == 0 {
        larder_fuzz::check_dump(rest);
        return;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(rest).expect("gzip into memory");
    let mut gzip = encoder.finish().expect("gzip into memory");
    let at = usize::from(u16::from_be_bytes([*high, *low])) % gzip.len();
    match choice % 4 {
        1 => gzip[at] ^= 1 << (choice / 4 % 8),
        2 => gzip.truncate(at),
        _ => {
            let again = gzip.clone();
            gzip.extend_from_slice(&again[at..]);
        }
    }
    larder_fuzz::check_dump(&gzip);
});
