//! [`FormReader`]: reads a multipart form field by field, with a bound on the bytes between the fields.
//!
//! The caller bounds a field as it reads it, piece by piece. But the multipart parser looks for the next field in memory: it
//! hands out nothing until it has everything up to the first boundary, or a field's whole head. So this counts the bytes that
//! arrive meanwhile, one piece at a time, and gives the form up at [`HEAD_BYTES_MAX`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use multer::{Field, Multipart};

use super::error::HttpError;
use crate::front::request::Parts;

/// Bytes, give or take a piece, that are read while a field is looked for: a head has some hundred.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;

/// While a field's own bytes are read, which are not counted here.
const UNCOUNTED: usize = usize::MAX;

/// A form.
pub(crate) struct FormReader {
    multipart: Multipart<'static>,
    /// Bytes that may still come until the next field is found.
    left: Arc<AtomicUsize>,
    fields: usize,
    fields_max: usize,
}

/// The boundary between the fields of a form that one of our pages has sent.
///
/// # Errors
/// 415 for a body that is no such form.
pub(crate) fn boundary_of_page(head: &Parts) -> Result<String, HttpError> {
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    multer::parse_boundary(content_type.unwrap_or_default()).map_err(|_| {
        HttpError::unsupported(
            "the body is not the form of this page: `multipart/form-data` was expected",
        )
    })
}

/// Why there is no next field.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormError {
    #[error(
        "the form has more than {HEAD_BYTES_MAX} bytes before its first boundary, or in the head of a field"
    )]
    Head,
    #[error("the form has more than {0} fields")]
    Fields(usize),
    #[error("the form did not arrive whole: {0}")]
    Broken(#[from] multer::Error),
}

impl FormReader {
    /// A reader of the form in these bytes.
    pub(crate) fn new<E>(
        pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
        boundary: String,
    ) -> FormReader
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let left = Arc::new(AtomicUsize::new(UNCOUNTED));
        let counted =
            CountedPieces { pieces: Box::pin(pieces), left: left.clone(), is_pausing: false };
        let multipart = Multipart::new(counted, boundary);
        FormReader { multipart, left, fields: 0, fields_max: usize::MAX }
    }

    /// The same, with a bound on the number of fields.
    pub(crate) fn with_fields_max(self, fields_max: usize) -> FormReader {
        FormReader { fields_max, ..self }
    }

    /// The next field; `None` at the end. The caller must have read the previous one to its end.
    ///
    /// # Errors
    /// [`FormError`].
    pub(crate) async fn next_field(&mut self) -> Result<Option<Field<'static>>, FormError> {
        self.left.store(HEAD_BYTES_MAX, Relaxed);
        let found = self.multipart.next_field().await;
        let left = self.left.swap(UNCOUNTED, Relaxed);
        self.fields += 1;
        match found {
            Ok(Some(_)) if self.fields > self.fields_max => Err(FormError::Fields(self.fields_max)),
            Err(_) if left == 0 => Err(FormError::Head),
            found => Ok(found?),
        }
    }
}

/// The name of a field's file; `None` if the field is a text. Some clients send a name beyond ASCII as `filename*` (RFC 5987)
/// alone.
pub(crate) fn file_name(field: &Field<'_>) -> Option<String> {
    let plain = || field.file_name().map(str::to_owned);
    let Some(disposition) = field.headers().get(CONTENT_DISPOSITION) else { return plain() };
    plain().or_else(|| extended_name(disposition.as_bytes()))
}

/// The value of the parameter `filename*`: a character set, a language that nobody needs, and the name with escapes.
fn extended_name(disposition: &[u8]) -> Option<String> {
    let mut parameters = disposition.split(|byte| *byte == b';');
    let value = parameters.find_map(|parameter| {
        let equals = parameter.iter().position(|byte| *byte == b'=')?;
        let (name, value) =
            (parameter[..equals].trim_ascii(), parameter[equals + 1..].trim_ascii());
        name.eq_ignore_ascii_case(b"filename*").then_some(value)
    })?;
    let value = value.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\"")).unwrap_or(value);
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let (charset, escaped) = (parts.next()?, parts.nth(1)?);
    let bytes: Vec<u8> = percent_encoding::percent_decode(escaped).collect();
    if charset.eq_ignore_ascii_case(b"utf-8") {
        return String::from_utf8(bytes).ok();
    }
    // In latin-1 each byte is the character of its number.
    let is_latin = charset.eq_ignore_ascii_case(b"iso-8859-1");
    is_latin.then(|| bytes.into_iter().map(char::from).collect())
}

/// The body's pieces, one at a time, and counted while a field is looked for.
struct CountedPieces<S> {
    pieces: Pin<Box<S>>,
    left: Arc<AtomicUsize>,
    /// A piece was handed out, and is looked through before the next.
    is_pausing: bool,
}

impl<S, E> Stream for CountedPieces<S>
where
    S: Stream<Item = Result<Bytes, E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.is_pausing) {
            // The parser reads all that is ready before it parses, so pause after each piece.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let left = self.left.load(Relaxed);
        if left == 0 {
            return Poll::Ready(Some(Err(FormError::Head.into())));
        }
        let polled = self.pieces.as_mut().poll_next(context);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            if left != UNCOUNTED {
                self.left.store(left.saturating_sub(piece.len()), Relaxed);
            }
            self.is_pausing = true;
        }
        polled.map(|piece| piece.map(|piece| piece.map_err(Into::into)))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream};

    use super::*;

    const PIECE_BYTES: usize = 16 << 10;
    const ENDLESS_BYTES: usize = 10 * PIECE_BYTES;

    /// Reads a form that begins with `start` and continues with `x` forever: `name=length` of each field, then why it is
    /// refused; and at most how many pieces of the rest are read.
    async fn check(start: &str, expected: &str, pieces_max: usize) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let rest = stream::repeat_with(move || {
            counter.fetch_add(1, Relaxed);
            Bytes::from(vec![b'x'; PIECE_BYTES])
        });
        let start = Bytes::from(start.replace('|', "\r\n"));
        let pieces = stream::iter([start]).chain(rest).map(Ok::<_, Infallible>);
        let mut form = FormReader::new(pieces, "b".to_owned());
        let mut said = String::new();
        loop {
            match form.next_field().await {
                Ok(Some(mut field)) => {
                    let name = field.name().unwrap_or_default().to_owned();
                    let mut length = 0;
                    while length < ENDLESS_BYTES
                        && let Some(piece) = field.chunk().await.expect("bytes")
                    {
                        length += piece.len();
                    }
                    if length >= ENDLESS_BYTES {
                        said.push_str("endless");
                        break;
                    }
                    said.push_str(&format!("{name}={length} "));
                }
                Ok(None) => break,
                Err(error) => {
                    said.push_str(&error.to_string());
                    break;
                }
            }
        }
        assert!(said.starts_with(expected), "{said}");
        let asked = asked.load(Relaxed);
        assert!(asked <= pieces_max, "{asked} pieces of {PIECE_BYTES} bytes");
    }

    #[test]
    fn a_name_beyond_ascii_may_be_alone() {
        let check = |disposition: &str, expected: Option<&str>| {
            assert_eq!(extended_name(disposition.as_bytes()).as_deref(), expected, "{disposition}");
        };
        check("form-data; name=\"content\"; filename*=UTF-8''foo-1.0.zip", Some("foo-1.0.zip"));
        check("form-data; filename* = utf-8'de'j%C3%BCrgen.txt; name=a", Some("j\u{fc}rgen.txt"));
        check("form-data; FILENAME*=iso-8859-1''j%fcrgen.txt", Some("j\u{fc}rgen.txt"));
        check("form-data; filename*=\"utf-8''a%20b%3bc\"", Some("a b;c"));
        check("form-data; filename*=utf-8''%ff", None);
        check("form-data; filename*=utf-7''a", None);
        check("form-data; filename*=a", None);
        check("form-data; name=\"filename*\"", None);
    }

    const NAMED: &str = "Content-Disposition: form-data; name=";

    #[tokio::test]
    async fn what_has_no_end_is_given_up() {
        let refused = "the form has more than 65536 bytes";
        check("", refused, 6).await;
        check("--b|X: ", refused, 6).await;
        check(&format!("--b|{NAMED}\"a\"||12|--b|X: "), &format!("a=2 {refused}"), 6).await;
        check(&format!("--b|{NAMED}\"a\"||12|--b--"), "a=2 ", 6).await;
        // The caller reads the field's own bytes; no more are in memory than it asks for.
        check(&format!("--b|{NAMED}\"a\"||"), "endless", 12).await;
    }
}
