//! [`Frame`]: what the answer to a follower is made of, and its form on the wire.
//!
//! ```text
//! length   u32   of what follows the check sum
//! check    u64   XXH3 of what follows
//! kind     u8
//! payload        records; JSON for all other kinds
//! ```
//! Numbers are little-endian. An answer begins with [`Hello`]. Then come records by ascending serial, and [`Whole`] where those up
//! to it add up to a state of the store. [`Frame::Alive`] comes when there has been nothing else for a while.

use bytes::{Buf as _, Bytes, BytesMut};
use record::{Digest, Key, Record, Serial};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// The type of an answer that is made of frames.
pub const MEDIA_TYPE: &str = "application/vnd.larder.records";

/// Bytes of records in a frame, unless a single one has more.
pub const RECORDS_BYTES_MAX: usize = 128 << 10;

/// Records in a frame.
pub const RECORDS_MAX: usize = 1_024;

/// The largest frame that is read: a record of the largest batch fits.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Length and check sum.
const HEAD_BYTES: usize = 12;

/// A part of the answer to a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The first one: who answers.
    Hello(Hello),
    /// Records, by ascending serial and then by key, after those of earlier frames.
    Records(Vec<Record>),
    /// Everything so far adds up to this state.
    Whole(Whole),
    /// There is nothing new.
    Alive(Whole),
    /// The answer ends here, for this reason.
    End(End),
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The name of its store.
    pub identity: String,
    /// How often a follower of this store was made its primary.
    pub generation: u64,
    /// The serial of its store.
    pub serial: u64,
    /// Whether it follows another server itself.
    pub is_follower: bool,
    /// What the follower gets, if its token does not open everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartialCopy>,
    /// Where the clients of followers write, if this server says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_url: Option<String>,
    /// Its version.
    pub version: String,
}

/// A copy of what the owner of a token may read, without secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartialCopy {
    /// Whether everybody may read the articles of the primary.
    pub has_open_articles: bool,
}

/// How far the server is that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// The serial of its store.
    pub serial: u64,
    /// The serial of the primary, as far as the server knows.
    pub primary_serial: u64,
    /// Which dump of the AUR's packages the server has: another number is another dump. `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aur_dump: Option<u64>,
    /// Of a part: a digest of what may be read. With another one, records of old serials may be lacking, or too many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
}

#[cfg(test)]
impl Whole {
    /// A primary at this serial, without packages of the AUR, and no part.
    pub(crate) fn at(serial: u64) -> Whole {
        Whole { serial, primary_serial: serial, aur_dump: None, view: None }
    }
}

/// Why an answer ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The reason, for the log.
    pub reason: String,
    /// Whether the follower has to read everything anew: it may read more or less than before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_over: bool,
}

/// What arrived is no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is longer than any.
    #[error("a frame of {0} bytes arrived, but at most {FRAME_BYTES_MAX} were expected")]
    TooLong(usize),
    /// Bytes were changed on the way.
    #[error("a frame arrived with another check sum than that of its bytes")]
    CheckSum,
    /// The payload is not what the kind says.
    #[error("a frame arrived that cannot be read: {0}")]
    Malformed(&'static str),
}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const RECORDS: u8 = 2;
    pub(super) const WHOLE: u8 = 3;
    pub(super) const ALIVE: u8 = 4;
    pub(super) const END: u8 = 5;
}

impl Frame {
    /// The frame's bytes.
    pub fn encode(&self) -> Bytes {
        let mut bytes = vec![0; HEAD_BYTES];
        match self {
            Frame::Hello(hello) => json(&mut bytes, kind::HELLO, hello),
            Frame::Whole(whole) => json(&mut bytes, kind::WHOLE, whole),
            Frame::Alive(whole) => json(&mut bytes, kind::ALIVE, whole),
            Frame::End(end) => json(&mut bytes, kind::END, end),
            Frame::Records(records) => {
                bytes.push(kind::RECORDS);
                records.iter().for_each(|record| push_record(&mut bytes, record));
            }
        }
        let length = (bytes.len() - HEAD_BYTES) as u32;
        let check = XxHash3_64::oneshot(&bytes[HEAD_BYTES..]);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..HEAD_BYTES].copy_from_slice(&check.to_le_bytes());
        bytes.into()
    }
}

fn json(bytes: &mut Vec<u8>, kind: u8, value: &impl Serialize) {
    bytes.push(kind);
    serde_json::to_writer(bytes, value).expect("text keys and plain values are always written");
}

/// Serial, key, body and blobs, each with its length; the length of a body is one higher, and 0 says that there is none.
fn push_record(bytes: &mut Vec<u8>, record: &Record) {
    let key = record.key.as_str().as_bytes();
    bytes.extend_from_slice(&record.serial.0.to_le_bytes());
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(key);
    let body_length = record.body.as_ref().map_or(0, |body| body.len() as u32 + 1);
    bytes.extend_from_slice(&body_length.to_le_bytes());
    bytes.extend_from_slice(record.body.as_deref().unwrap_or_default());
    bytes.extend_from_slice(&(record.blobs.len() as u32).to_le_bytes());
    record.blobs.iter().for_each(|digest| bytes.extend_from_slice(digest.as_bytes()));
}

/// Reads frames from bytes that arrive in any pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: BytesMut,
}

impl Decoder {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next frame; `None` until all its bytes are there.
    ///
    /// # Errors
    /// [`FrameError`]; nothing after it can be read.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(head) = self.pending.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let (mut length, mut check) = (&head[..4], &head[4..]);
        let (length, check) = (length.get_u32_le() as usize, check.get_u64_le());
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong(length));
        }
        if self.pending.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        self.pending.advance(HEAD_BYTES);
        let bytes = self.pending.split_to(length).freeze();
        if XxHash3_64::oneshot(&bytes) != check {
            return Err(FrameError::CheckSum);
        }
        parse(bytes).map(Some)
    }
}

fn parse(mut bytes: Bytes) -> Result<Frame, FrameError> {
    if bytes.is_empty() {
        return Err(FrameError::Malformed("it is empty"));
    }
    let kind = bytes.get_u8();
    Ok(match kind {
        kind::HELLO => Frame::Hello(of_json(&bytes)?),
        kind::WHOLE => Frame::Whole(of_json(&bytes)?),
        kind::ALIVE => Frame::Alive(of_json(&bytes)?),
        kind::END => Frame::End(of_json(&bytes)?),
        kind::RECORDS => {
            let mut records = Vec::new();
            while !bytes.is_empty() {
                records.push(
                    record(&mut bytes)
                        .ok_or(FrameError::Malformed("a record is cut or invalid"))?,
                );
            }
            Frame::Records(records)
        }
        _ => {
            return Err(FrameError::Malformed(
                "its kind is unknown: the other server has a later version",
            ));
        }
    })
}

fn of_json<'bytes, T: Deserialize<'bytes>>(bytes: &'bytes [u8]) -> Result<T, FrameError> {
    serde_json::from_slice(bytes)
        .map_err(|_| FrameError::Malformed("its JSON is not what its kind has"))
}

/// Takes a record; `None` if there is none at the beginning of `bytes`.
fn record(bytes: &mut Bytes) -> Option<Record> {
    let serial = Serial(bytes.try_get_u64_le().ok()?);
    let length = u32_of(bytes)?;
    let key = take(bytes, length)?;
    let key = Key::new(std::str::from_utf8(&key).ok()?).ok()?;
    let body = match u32_of(bytes)?.checked_sub(1) {
        None => None,
        Some(length) => Some(take(bytes, length)?),
    };
    let count = u32_of(bytes)?;
    let digests = take(bytes, count.checked_mul(32)?)?;
    let (digests, _) = digests.as_chunks::<32>();
    let blobs = digests.iter().copied().map(Digest::from_bytes).collect();
    Some(Record { key, serial, body, blobs })
}

fn u32_of(bytes: &mut Bytes) -> Option<usize> {
    bytes.try_get_u32_le().ok().map(|number| number as usize)
}

fn take(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, FrameError> {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for piece in bytes.chunks(piece.max(1)) {
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    fn record_of(key: &str, serial: u64, body: Option<&[u8]>, blobs: usize) -> Record {
        Record {
            key: Key::new(key).expect("a key"),
            serial: Serial(serial),
            body: body.map(Bytes::copy_from_slice),
            blobs: (0..blobs).map(|at| Digest::of(&[at as u8])).collect(),
        }
    }

    fn samples() -> Vec<Frame> {
        let hello = Hello {
            identity: "0123456789".to_owned(),
            generation: 1,
            serial: 7,
            is_follower: true,
            part: Some(PartialCopy { has_open_articles: true }),
            primary_url: Some("https://packages.example.org".to_owned()),
            version: "1.0".to_owned(),
        };
        let whole = Whole { primary_serial: 9, ..Whole::at(7) };
        let with_dump = Whole { aur_dump: Some(u64::MAX), ..whole.clone() };
        let records = vec![
            record_of("user/root", 1, Some(b"{}"), 0),
            record_of("article/a", 2, None, 0),
            record_of("article/b", 3, Some(b""), 2),
        ];
        vec![
            Frame::Hello(hello),
            Frame::Records(records),
            Frame::Records(Vec::new()),
            Frame::Whole(whole.clone()),
            Frame::Whole(Whole { view: Some("0a".to_owned()), ..whole.clone() }),
            Frame::Alive(whole),
            Frame::Alive(with_dump),
            Frame::End(End { reason: "why".to_owned(), starts_over: true }),
        ]
    }

    #[test]
    fn frames_are_read_as_they_are_written_in_pieces_of_any_size() {
        let bytes: Vec<u8> = samples().iter().flat_map(Frame::encode).collect();
        for piece in [1, 2, 7, 13, 1_000] {
            assert_eq!(decoded(&bytes, piece), Ok(samples()), "{piece}");
        }
    }

    #[test]
    fn a_changed_bit_anywhere_is_noticed() {
        for frame in samples() {
            let bytes = frame.encode();
            for at in 0..bytes.len() * 8 {
                let mut changed = bytes.to_vec();
                changed[at / 8] ^= 1 << (at % 8);
                // A longer length waits for more; everything else is refused.
                let found = decoded(&changed, usize::MAX);
                assert!(!matches!(&found, Ok(frames) if !frames.is_empty()), "{frame:?} {at}");
            }
        }
    }

    #[test]
    fn a_frame_that_claims_to_be_huge_is_refused_at_once() {
        let found = decoded(&[0xff; HEAD_BYTES], 1);
        assert_eq!(found, Err(FrameError::TooLong(u32::MAX as usize)));
    }

    proptest! {
        #[test]
        fn whatever_arrives_does_no_harm(payload: Vec<u8>) {
            let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
            bytes.extend_from_slice(&XxHash3_64::oneshot(&payload).to_le_bytes());
            bytes.extend_from_slice(&payload);
            let _ = decoded(&bytes, 5);
        }
    }
}
