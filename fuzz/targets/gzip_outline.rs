//! The gzip encoder of lists: whatever it is told of where a body repeats itself, the body comes out of it again.

#![no_main]

use std::io::Read as _;

use flate2::read::GzDecoder;
use libfuzzer_sys::fuzz_target;
use reply::{Encoding, Outline, Reply};

fuzz_target!(|data: &[u8]| {
    let [count, times, rest @ ..] = data else { return };
    let (places, text) = rest.split_at(rest.len().min(usize::from(*count) * 4));
    let times = 1 + usize::from(*times);
    let mut outline = Outline::with_capacity(places.len() / 4);
    if places.is_empty() {
        // As a list is: every record begins as the one before.
        (1..times).for_each(|time| outline.note(time * text.len(), (time - 1) * text.len()));
    }
    let mut at = 0;
    for place in places.as_chunks::<4>().0 {
        let [gap_high, gap_low, back_high, back_low] = *place;
        at += usize::from(u16::from_be_bytes([gap_high, gap_low]));
        let back = usize::from(u16::from_be_bytes([back_high, back_low]));
        outline.note(at, at.saturating_sub(back));
    }
    let body = text.repeat(times);
    let reply = Reply { outline: Some(outline), ..Reply::untagged("text/plain", body.clone()) };
    let encoded = reply.encoded(Encoding::Gzip);

    let mut decoder = GzDecoder::new(&encoded[..]);
    let mut decoded = Vec::new();
    decoder.read_to_end(&mut decoded).expect("gzip with its checksum");
    assert!(decoded == body, "another body of {} bytes", body.len());
    assert!(decoder.into_inner().is_empty(), "bytes after the end");
});
