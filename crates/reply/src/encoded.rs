//! [`EncodedBody`]: a body that is sent again and again, with its compressed forms.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::Encoding;

/// Shorter bodies are sent uncompressed: they fit into a packet anyway.
pub const ENCODED_BYTES_MIN: usize = 256;

/// One value for each encoding.
#[derive(Debug, Default)]
pub struct PerEncoding<T>([T; 3]);

impl<T> PerEncoding<T> {
    /// The values that `make` gives.
    pub fn from_fn(make: impl FnMut(Encoding) -> T) -> PerEncoding<T> {
        PerEncoding([Encoding::Identity, Encoding::Gzip, Encoding::Zstd].map(make))
    }

    /// The value for `encoding`.
    #[inline]
    pub fn get(&self, encoding: Encoding) -> &T {
        &self.0[encoding as usize]
    }
}

/// A body, and its compressed forms that were made.
#[derive(Debug)]
pub struct EncodedBody(PerEncoding<OnceLock<Bytes>>);

impl EncodedBody {
    /// A body whose compressed forms are made when [`EncodedBody::form`] is first asked for them.
    pub fn new(identity: Bytes) -> EncodedBody {
        let forms = PerEncoding::<OnceLock<Bytes>>::default();
        forms.get(Encoding::Identity).get_or_init(|| identity);
        EncodedBody(forms)
    }

    /// A body whose compressed forms are made now, if they are worth sending: shorter by at least a tenth.
    pub fn compressed(identity: Bytes) -> EncodedBody {
        let body = EncodedBody::new(identity);
        let identity = body.identity();
        if identity.len() >= ENCODED_BYTES_MIN {
            for encoding in [Encoding::Gzip, Encoding::Zstd] {
                let form = encoding.encode(identity);
                if form.len() < identity.len() / 10 * 9 {
                    body.0.get(encoding).get_or_init(|| form);
                }
            }
        }
        body
    }

    /// The uncompressed body.
    #[inline]
    pub fn identity(&self) -> &Bytes {
        self.0.get(Encoding::Identity).get().expect("it is set from the start")
    }

    /// The body in `encoding`. A form that was not made yet is made now, which takes time in proportion to the body.
    #[inline]
    pub fn form(&self, encoding: Encoding) -> &Bytes {
        self.0.get(encoding).get_or_init(|| encoding.encode(self.identity()))
    }

    /// Whether the form for `encoding` was made.
    #[inline]
    pub fn has(&self, encoding: Encoding) -> bool {
        self.0.get(encoding).get().is_some()
    }

    /// The best existing form for a client that accepts `wanted`, and its encoding: that form, else the uncompressed body.
    #[inline]
    pub fn best(&self, wanted: Encoding) -> (Encoding, &Bytes) {
        match self.0.get(wanted).get() {
            Some(form) => (wanted, form),
            None => (Encoding::Identity, self.identity()),
        }
    }

    /// The bytes of all forms that were made.
    pub fn memory_bytes(&self) -> usize {
        self.0.0.iter().filter_map(OnceLock::get).map(Bytes::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The encodings of [`EncodedBody::best`] for clients that accept gzip and zstd.
    #[track_caller]
    fn check(body: Vec<u8>, gzip: Encoding, zstd: Encoding) {
        let identity = Bytes::from(body);
        let body = EncodedBody::compressed(identity.clone());
        assert_eq!(body.best(Encoding::Identity), (Encoding::Identity, &identity));
        for (wanted, expected) in [(Encoding::Gzip, gzip), (Encoding::Zstd, zstd)] {
            assert_eq!(body.best(wanted), (expected, &expected.encode(&identity)));
            assert_eq!(body.has(wanted), expected == wanted);
        }
    }

    #[test]
    fn a_form_is_made_beforehand_where_it_is_shorter() {
        check("word ".repeat(1_000).into(), Encoding::Gzip, Encoding::Zstd);
        check(b"short".into(), Encoding::Identity, Encoding::Identity);
        check(vec![b'a'; ENCODED_BYTES_MIN - 1], Encoding::Identity, Encoding::Identity);
        check(vec![b'a'; ENCODED_BYTES_MIN], Encoding::Gzip, Encoding::Zstd);
        // A fixed xorshift sequence: compressors find nothing to shorten in it.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let noise = std::iter::repeat_with(next).take(4_096).collect();
        check(noise, Encoding::Identity, Encoding::Identity);
    }

    #[test]
    fn a_form_is_made_when_it_is_asked_for() {
        let identity = Bytes::from_static(b"short");
        let body = EncodedBody::new(identity.clone());
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            assert!(!body.has(encoding));
            assert_eq!(body.best(encoding).0, Encoding::Identity);
            let form = encoding.encode(&identity);
            assert_eq!(body.form(encoding), &form);
            assert_eq!(body.best(encoding), (encoding, &form));
        }
        let forms = [Encoding::Identity, Encoding::Gzip, Encoding::Zstd];
        let bytes: usize = forms.iter().map(|it| it.encode(&identity).len()).sum();
        assert_eq!(body.memory_bytes(), bytes);
    }
}
