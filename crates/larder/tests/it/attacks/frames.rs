//! HTTP/2 as bytes, as far as an attack needs it: frames, and header blocks without compression.

/// The first bytes of a client: the preface, and settings that change nothing.
pub(crate) fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, b"")].concat()
}

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Data that does not end the stream.
pub(crate) fn data(stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(0, 0, stream, payload)
}

/// A header field, spelled out.
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.len();
        if rest < 127 {
            bytes.push(rest as u8);
        } else {
            bytes.push(127);
            rest -= 127;
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
        bytes.extend(text.bytes());
        bytes
    };
    [vec![0], text(name), text(value)].concat()
}

/// How a request's head ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Not at all.
    Open,
    /// A body follows.
    Body,
    /// The request ends here.
    Request,
}

/// The head of a request with this many fields of a thousand bytes, in frames.
pub(crate) fn head(stream: u32, method: &str, path: &str, fields: usize, end: End) -> Vec<u8> {
    let known = [(":method", method), (":scheme", "http"), (":authority", "x"), (":path", path)];
    let mut block: Vec<u8> = known.iter().flat_map(|(name, value)| field(name, value)).collect();
    block.extend(field("content-type", "application/json"));
    block.extend((0..fields).flat_map(|it| field(&format!("x-{it}"), &"a".repeat(1_000))));
    let parts: Vec<&[u8]> = block.chunks(16_000).collect();
    let frames = parts.iter().enumerate().map(|(index, part)| {
        let ends_head = index + 1 == parts.len() && end != End::Open;
        let ends_request = index == 0 && end == End::Request;
        let flags = if ends_head { 4 } else { 0 } | u8::from(ends_request);
        frame(if index == 0 { 1 } else { 9 }, flags, stream, part)
    });
    frames.flatten().collect()
}
