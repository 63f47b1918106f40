//! A FAKE S3, not a real one: as much of the protocol as the blob store speaks, in this process, in
//! memory. It checks no signature and knows one bucket, but it fails when a test asks it to, and counts. All
//! that a real server shows as well is tried on one (`testbed::S3`).
//!
//! request -> (a fault, if a test asked for one) -> a map of objects -> response. It keeps to what
//! matters here: reads see finished writes at once, an upload in parts appears whole, the same content
//! has the same ETag, an object cannot be copied onto itself, listings come in pages.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::Response;

/// A running fake; it ends with the value.
pub(crate) struct FakeS3 {
    pub(crate) endpoint: String,
    shared: Arc<Mutex<Bucket>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, (String, BTreeMap<u32, Bytes>)>,
    faults: Vec<Fault>,
    /// "METHOD key", in order of arrival.
    requests: Vec<String>,
}

#[derive(Clone)]
struct Object {
    bytes: Bytes,
    modified: SystemTime,
}

/// A fault that a test asks for.
pub(crate) struct Fault {
    /// For requests with this method …
    pub(crate) method: Method,
    /// … for a path and query that contain this …
    pub(crate) contains: &'static str,
    /// … the next ones, this many …
    pub(crate) times: usize,
    /// … suffer this.
    pub(crate) effect: Effect,
}

#[derive(Clone, Copy)]
pub(crate) enum Effect {
    /// An error instead of the answer; nothing is done.
    Status(u16),
    /// The connection breaks after this many bytes of the answer's body.
    Truncate(usize),
    /// The answer takes its time.
    Delay(Duration),
}

/// Keys in one page of a listing: few, so that small tests have several pages.
const PAGE_KEYS: usize = 5;

impl FakeS3 {
    /// Starts one on its own thread and runtime, because tests sometimes block theirs.
    pub(crate) fn start() -> FakeS3 {
        let shared = Arc::<Mutex<Bucket>>::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::clone(&shared);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let app = axum::Router::new().fallback(answer).with_state(state);
                tokio::select! {
                    served = async { axum::serve(listener, app).await } => served.expect("to serve"),
                    _ = stopped => {}
                }
            });
        });
        FakeS3 { endpoint, shared, stop: Some(stop) }
    }

    fn bucket(&self) -> std::sync::MutexGuard<'_, Bucket> {
        self.shared.lock().expect("the bucket")
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.bucket().faults.push(fault);
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.bucket().objects.keys().cloned().collect()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.bucket().requests.clone()
    }

    pub(crate) fn open_uploads(&self) -> usize {
        self.bucket().uploads.len()
    }

    pub(crate) fn set(&self, key: &str, bytes: &[u8]) {
        let object = Object { bytes: Bytes::copy_from_slice(bytes), modified: SystemTime::now() };
        self.bucket().objects.insert(key.to_owned(), object);
    }

    pub(crate) fn remove(&self, key: &str) {
        self.bucket().objects.remove(key);
    }

    pub(crate) fn set_modified(&self, key: &str, modified: SystemTime) {
        self.bucket().objects.get_mut(key).expect("the object").modified = modified;
    }
}

impl Drop for FakeS3 {
    fn drop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
    }
}

async fn answer(State(shared): State<Arc<Mutex<Bucket>>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let path_and_query = head.uri.to_string();
    let effect = {
        let mut bucket = shared.lock().expect("the bucket");
        bucket.requests.push(format!("{} {path_and_query}", head.method));
        let fault = bucket.faults.iter_mut().find(|fault| {
            fault.times > 0
                && fault.method == head.method
                && path_and_query.contains(fault.contains)
        });
        fault.map(|fault| {
            fault.times -= 1;
            fault.effect
        })
    };
    // A request that was cut off by a broken connection does not count.
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return error(StatusCode::BAD_REQUEST, "IncompleteBody");
    };
    match effect {
        Some(Effect::Status(status)) => {
            return error(StatusCode::from_u16(status).expect("a status"), "Injected");
        }
        Some(Effect::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(Effect::Truncate(_)) | None => {}
    }
    let query: BTreeMap<String, String> = head
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect();
    let path = decoded(head.uri.path());
    let Some(key) = path.strip_prefix("/bucket").map(|key| key.trim_start_matches('/')) else {
        return error(StatusCode::NOT_FOUND, "NoSuchBucket");
    };
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let response = {
        let mut bucket = shared.lock().expect("the bucket");
        match (&head.method, query.get("uploadId")) {
            (&Method::GET, _) if query.contains_key("list-type") => bucket.list(&query),
            (&Method::GET, _) => bucket.get(key, header("range"), true),
            (&Method::HEAD, _) => bucket.get(key, None, false),
            (&Method::PUT, Some(upload)) => bucket.put_part(upload, &query["partNumber"], body),
            (&Method::PUT, None) => match header("x-amz-copy-source") {
                Some(from) => bucket.copy(&decoded(from), key),
                None => bucket.put(key, body),
            },
            (&Method::POST, None) if query.contains_key("uploads") => bucket.create_upload(key),
            (&Method::POST, Some(upload)) => bucket.complete_upload(upload, &body),
            (&Method::DELETE, Some(upload)) => {
                bucket.uploads.remove(upload);
                empty(StatusCode::NO_CONTENT)
            }
            (&Method::DELETE, None) => {
                bucket.objects.remove(key);
                empty(StatusCode::NO_CONTENT)
            }
            _ => error(StatusCode::NOT_IMPLEMENTED, "NotImplemented"),
        }
    };
    match effect {
        Some(Effect::Truncate(bytes)) => truncated(response, bytes).await,
        _ => response,
    }
}

impl Bucket {
    fn get(&self, key: &str, range: Option<&str>, has_body: bool) -> Response {
        let Some(object) = self.objects.get(key) else {
            return error(StatusCode::NOT_FOUND, "NoSuchKey");
        };
        let size = object.bytes.len();
        let response = Response::builder()
            .header(header::ETAG, etag(&object.bytes))
            .header(header::LAST_MODIFIED, http_date(object.modified));
        let response = match range {
            None if has_body => response.body(Body::from(object.bytes.clone())),
            None => response.header(header::CONTENT_LENGTH, size).body(Body::empty()),
            Some(range) => {
                let (start, end) = range
                    .strip_prefix("bytes=")
                    .and_then(|range| range.split_once('-'))
                    .expect("a range");
                let start: usize = start.parse().expect("a start");
                let end = end.parse().map_or(size, |end: usize| size.min(end + 1));
                if start >= end {
                    return error(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange");
                }
                response
                    .status(StatusCode::PARTIAL_CONTENT)
                    .header(header::CONTENT_RANGE, format!("bytes {start}-{}/{size}", end - 1))
                    .body(Body::from(object.bytes.slice(start..end)))
            }
        };
        response.expect("a response")
    }

    fn put(&mut self, key: &str, bytes: Bytes) -> Response {
        let etag = etag(&bytes);
        self.objects.insert(key.to_owned(), Object { bytes, modified: SystemTime::now() });
        let response = Response::builder().header(header::ETAG, etag);
        response.body(Body::empty()).expect("a response")
    }

    fn copy(&mut self, from: &str, to: &str) -> Response {
        let from = from.trim_start_matches('/').strip_prefix("bucket/").unwrap_or_default();
        if from == to {
            return error(StatusCode::BAD_REQUEST, "InvalidRequest");
        }
        let Some(object) = self.objects.get(from) else {
            return error(StatusCode::NOT_FOUND, "NoSuchKey");
        };
        let bytes = object.bytes.clone();
        let result = format!("<CopyObjectResult><ETag>{}</ETag></CopyObjectResult>", etag(&bytes));
        self.put(to, bytes);
        xml(StatusCode::OK, result)
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Response {
        let prefix = query.get("prefix").map_or("", String::as_str);
        let after = query.get("continuation-token").or(query.get("start-after"));
        let after = after.map_or("", String::as_str);
        let mut found = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after)
            .peekable();
        let mut result = String::from("<ListBucketResult>");
        let mut last = String::new();
        for (key, object) in found.by_ref().take(PAGE_KEYS) {
            let (size, modified) = (object.bytes.len(), iso_date(object.modified));
            result += &format!(
                "<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>{modified}</LastModified>\
                 <ETag>{}</ETag></Contents>",
                etag(&object.bytes)
            );
            last.clone_from(key);
        }
        if found.peek().is_some() {
            result += "<IsTruncated>true</IsTruncated>";
            result += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
        }
        xml(StatusCode::OK, result + "</ListBucketResult>")
    }

    fn create_upload(&mut self, key: &str) -> Response {
        let id = format!("upload{}", RandomState::new().build_hasher().finish());
        self.uploads.insert(id.clone(), (key.to_owned(), BTreeMap::new()));
        xml(
            StatusCode::OK,
            format!(
                "<InitiateMultipartUploadResult><UploadId>{id}</UploadId>\
                 </InitiateMultipartUploadResult>"
            ),
        )
    }

    fn put_part(&mut self, upload: &str, number: &str, bytes: Bytes) -> Response {
        let Some((_, parts)) = self.uploads.get_mut(upload) else {
            return error(StatusCode::NOT_FOUND, "NoSuchUpload");
        };
        let response = Response::builder().header(header::ETAG, etag(&bytes));
        parts.insert(number.parse().expect("a part number"), bytes);
        response.body(Body::empty()).expect("a response")
    }

    fn complete_upload(&mut self, upload: &str, body: &[u8]) -> Response {
        let Some((key, parts)) = self.uploads.get(upload).cloned() else {
            return error(StatusCode::NOT_FOUND, "NoSuchUpload");
        };
        let listed = String::from_utf8_lossy(body);
        let mut all = Vec::new();
        let mut numbers = listed
            .split("<PartNumber>")
            .skip(1)
            .map(|rest| rest.split('<').next().and_then(|number| number.parse().ok()))
            .map(|number: Option<u32>| number.expect("a part number"))
            .peekable();
        while let Some(number) = numbers.next() {
            let Some(part) = parts.get(&number) else {
                return error(StatusCode::BAD_REQUEST, "InvalidPart");
            };
            if numbers.peek().is_some() && part.len() < 5 << 20 {
                return error(StatusCode::BAD_REQUEST, "EntityTooSmall");
            }
            all.extend_from_slice(part);
        }
        self.uploads.remove(upload);
        let etag = etag(&all);
        self.put(&key, all.into());
        xml(
            StatusCode::OK,
            format!(
                "<CompleteMultipartUploadResult><ETag>{etag}</ETag>\
                 </CompleteMultipartUploadResult>"
            ),
        )
    }
}

async fn truncated(response: Response, bytes: usize) -> Response {
    let (mut head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    head.headers.insert(header::CONTENT_LENGTH, body.len().into());
    let pieces = [Ok(body.slice(..bytes.min(body.len()))), Err("cut")];
    Response::from_parts(head, Body::from_stream(futures_util::stream::iter(pieces)))
}

fn empty(status: StatusCode) -> Response {
    Response::builder().status(status).body(Body::empty()).expect("a response")
}

fn xml(status: StatusCode, text: String) -> Response {
    Response::builder().status(status).body(Body::from(text)).expect("a response")
}

fn error(status: StatusCode, code: &str) -> Response {
    xml(status, format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>"))
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", &record::Digest::of(bytes).to_string()[..32])
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("an escape"));
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).expect("text")
}

/// (year, month, day, hour, minute, second, millisecond, day of the week from Thursday).
fn civil(time: SystemTime) -> (u64, u64, u64, u64, u64, u64, u32, usize) {
    let since = time.duration_since(UNIX_EPOCH).expect("a time after 1970");
    let seconds = since.as_secs();
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut days) = (1970, seconds / 86_400);
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    let weekday = (seconds / 86_400 % 7) as usize;
    (year, month, days + 1, hour, minute, seconds % 60, since.subsec_millis(), weekday)
}

fn http_date(time: SystemTime) -> String {
    let (year, month, day, hour, minute, second, _, weekday) = civil(time);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][weekday];
    let month =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
            [month as usize - 1];
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

fn iso_date(time: SystemTime) -> String {
    let (year, month, day, hour, minute, second, millisecond, _) = civil(time);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}
