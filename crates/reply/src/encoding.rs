//! Content encodings: which one a client gets, and the encoded bytes.

use std::cell::RefCell;

use bytes::Bytes;
use libdeflater::{CompressionLvl, Compressor};

/// A content encoding (RFC 9110, 8.4.1) that replies are sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The bytes as they are.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Encoding {
    /// The encoding for a request with this `Accept-Encoding` value. The highest quality wins; with equal ones zstd goes before
    /// gzip, and gzip before identity. Encodings that the value does not name are not used, except identity, which is always
    /// the last resort.
    pub fn negotiate(accept_encoding: &str) -> Encoding {
        let mut qualities = [None, None];
        let mut any = None;
        let mut identity = None;
        for item in accept_encoding.split(',') {
            let mut parts = item.split(';');
            let name = parts.next().unwrap_or_default().trim();
            let quality = parts
                .find_map(|parameter| {
                    let (key, value) = parameter.split_once('=')?;
                    key.trim()
                        .eq_ignore_ascii_case("q")
                        .then(|| value.trim().parse::<f32>().unwrap_or(0.0))
                })
                .unwrap_or(1.0);
            if name.eq_ignore_ascii_case("zstd") {
                qualities[0] = Some(quality);
            } else if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
                qualities[1] = Some(quality);
            } else if name.eq_ignore_ascii_case("identity") {
                identity = Some(quality);
            } else if name == "*" {
                any = Some(quality);
            }
        }
        let zstd = qualities[0].or(any).unwrap_or(0.0);
        let gzip = qualities[1].or(any).unwrap_or(0.0);
        // An identity that is not named is acceptable, but any named encoding is preferred to it.
        let identity = identity.or(any.filter(|&quality| quality == 0.0)).unwrap_or(0.0);
        if zstd > 0.0 && zstd >= gzip && zstd >= identity {
            Encoding::Zstd
        } else if gzip > 0.0 && gzip >= identity {
            Encoding::Gzip
        } else {
            Encoding::Identity
        }
    }

    /// Value of `Content-Encoding`; `None` for identity, which has no header.
    pub fn header_value(self) -> Option<&'static str> {
        match self {
            Encoding::Identity => None,
            Encoding::Gzip => Some("gzip"),
            Encoding::Zstd => Some("zstd"),
        }
    }

    /// The suffix that distinguishes this encoding's tag from that of the identity.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Encoding::Identity => "",
            Encoding::Gzip => "gz",
            Encoding::Zstd => "zst",
        }
    }

    pub(crate) fn is_suffix(text: &str) -> bool {
        matches!(text, "" | "-gz" | "-zst")
    }

    /// `body` in this encoding. Takes some ten microseconds even for a short body, and time in proportion for a long one.
    pub fn encode(self, body: &Bytes) -> Bytes {
        match self {
            Encoding::Identity => body.clone(),
            Encoding::Gzip => gzip(body),
            Encoding::Zstd => zstd(body),
        }
    }
}

/// Fast enough for every request; higher levels save a few percent of size for half as much time again.
const GZIP_LEVEL: i32 = 1;
const ZSTD_LEVEL: i32 = 1;

fn gzip(body: &[u8]) -> Bytes {
    thread_local! {
        // The compressor's tables are as large as many bodies, so each thread has its own.
        static COMPRESSOR: RefCell<Compressor> = RefCell::new(Compressor::new(
            CompressionLvl::new(GZIP_LEVEL).expect("a level that libdeflate has"),
        ));
    }
    COMPRESSOR.with_borrow_mut(|compressor| {
        let mut out = vec![0; compressor.gzip_compress_bound(body.len())];
        let written = compressor.gzip_compress(body, &mut out);
        out.truncate(
            written.expect("gzip into a buffer of the largest possible size does not fail"),
        );
        // The buffer was larger than the body.
        out.shrink_to_fit();
        out.into()
    })
}

fn zstd(body: &[u8]) -> Bytes {
    thread_local! {
        static COMPRESSOR: RefCell<zstd::bulk::Compressor<'static>> =
            RefCell::new(zstd::bulk::Compressor::new(ZSTD_LEVEL).expect("memory for a zstd compressor"));
    }
    let encoded = COMPRESSOR.with_borrow_mut(|compressor| compressor.compress(body));
    encoded.expect("zstd into a buffer of the largest possible size does not fail").into()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[track_caller]
    fn check(accept_encoding: &str, expected: Encoding) {
        assert_eq!(Encoding::negotiate(accept_encoding), expected, "{accept_encoding}");
    }

    #[test]
    fn negotiation() {
        check("", Encoding::Identity);
        check("gzip", Encoding::Gzip);
        check("GZIP", Encoding::Gzip);
        check("gzip, deflate, br", Encoding::Gzip);
        check("gzip, deflate, br, zstd", Encoding::Zstd);
        check("gzip;q=1.0, zstd;q=0.5", Encoding::Gzip);
        check("zstd;q=0, gzip;q=0", Encoding::Identity);
        check("*", Encoding::Zstd);
        check("*;q=0", Encoding::Identity);
        check("*, zstd;q=0", Encoding::Gzip);
        check("identity", Encoding::Identity);
        check("identity, gzip;q=0.5", Encoding::Identity);
        check("br", Encoding::Identity);
        check("gzip;q=nonsense", Encoding::Identity);
        check(";;,,=;q=,\u{e9}", Encoding::Identity);
    }

    #[test]
    fn encoded_bodies_decode_to_themselves() {
        for body in ["", "[]", &"attest ".repeat(40_000), &"é日😀".repeat(999)] {
            let body = Bytes::copy_from_slice(body.as_bytes());
            let mut inflated = Vec::new();
            flate2::read::GzDecoder::new(&Encoding::Gzip.encode(&body)[..])
                .read_to_end(&mut inflated)
                .expect("gzip");
            assert_eq!(inflated, body);
            assert_eq!(zstd::decode_all(&Encoding::Zstd.encode(&body)[..]).expect("zstd"), body);
            assert_eq!(Encoding::Identity.encode(&body), body);
        }
    }
}
