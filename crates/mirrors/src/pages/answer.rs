//! Requests for a page or a list, and reading upstream's answers.

use std::io::BufReader;
use std::time::Duration;

use http::header::{ACCEPT, AGE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pypi::upstream::{CoreMetadata, UpstreamNames, UpstreamPage};
use reqwest::Url;
use resources::turns::Turn;

use super::{CachedPage, Content, Subject};
use crate::ahead::UpstreamResponse;
use crate::upstream::{PageBody, UpstreamError, accepting_gzip, read_body};
use crate::{LARGE_PAGE_COUNTS, Mirror, Mirrors};

/// The upstream's serial of a page; a lower one is an older state.
const X_PYPI_LAST_SERIAL: HeaderName = HeaderName::from_static("x-pypi-last-serial");

impl Mirrors {
    /// Asks upstream, on a condition if something is known.
    pub(super) async fn request(
        &self,
        mirror: &Mirror,
        subject: &Subject,
        old: Option<&CachedPage>,
        is_forced: bool,
    ) -> Result<Answer, UpstreamError> {
        let url = match subject {
            Subject::List => Ok(mirror.origin.url.clone()),
            Subject::Project(name) => mirror.origin.url.join(&format!("{name}/")),
        };
        let url = url.map_err(|error| UpstreamError::new(error.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(pypi::upstream::ACCEPT));
        let conditions =
            old.map(|old| [(IF_NONE_MATCH, &old.etag), (IF_MODIFIED_SINCE, &old.last_modified)]);
        for (name, value) in conditions.into_iter().flatten() {
            if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_str(value).ok())
            {
                headers.insert(name, value);
            }
        }
        let headers = accepting_gzip(headers);
        let UpstreamResponse { response, url, is_ahead } =
            self.get(mirror, &subject.path(), url, headers, is_forced).await?;
        let text = |name: HeaderName| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.filter(|value| value.len() <= 500).map(str::to_owned)
        };
        let serial = text(X_PYPI_LAST_SERIAL).and_then(|text| text.parse().ok());
        let serial = serial.filter(|serial: &u64| *serial > 0);
        let age = text(AGE).and_then(|text| text.parse().ok());
        let age = is_ahead.then(|| Duration::from_secs(age.unwrap_or(0)));
        if response.status() == StatusCode::NOT_MODIFIED {
            return match old {
                Some(_) => Ok(Answer::NotModified { serial, age }),
                None => Err(UpstreamError::new("it answered 304 to an unconditional request")),
            };
        }
        if let (Some(before), Some(now), false) =
            (old.and_then(|old| old.serial), serial, mirror.ignores_serials)
            && now < before
        {
            // What is here came from upstream while the other server was away.
            if is_ahead {
                return Ok(Answer::NotModified { serial: None, age });
            }
            return Err(UpstreamError::new(format!(
                "it answered with serial {now}, which is older than the known {before}"
            )));
        }
        let (etag, last_modified) = (text(ETAG), text(LAST_MODIFIED));
        let content_type = text(http::header::CONTENT_TYPE).unwrap_or_default();
        let body = read_body(response, subject.bytes_max(), &self.disk).await;
        let body = body.inspect_err(|trouble| self.ahead_failed_if(is_ahead, trouble))?;
        let page = UnreadPage { body, url, content_type, etag, last_modified, serial, age };
        Ok(Answer::Page(page.into()))
    }

    /// Parses a page. It goes on when its clients leave. The turn lasts until the page is written to disk, since a page takes a
    /// multiple of its bytes on the wire in memory.
    pub(super) async fn understand(
        &self,
        mirror: &Mirror,
        subject: &Subject,
        page: UnreadPage,
    ) -> Result<(UpstreamAnswer, Option<Turn>), UpstreamError> {
        let UnreadPage { body, url, content_type, etag, last_modified, serial, age } = page;
        let mut working = self.pages_work.take().await;
        let looking = tokio::task::spawn_blocking(move || (body.is_small(), body)).await;
        let (is_small, body) = looking.map_err(|error| UpstreamError::new(error.to_string()))?;
        if !is_small {
            drop(working);
            working = self.pages_work.take_many(LARGE_PAGE_COUNTS).await;
        }
        let subject = subject.clone();
        let provides_metadata = mirror.provides_metadata;
        let parsing = tokio::task::spawn_blocking(move || match &subject {
            // A large page or list is never in memory as it came.
            Subject::List if age.is_some() => {
                let names = body.parsed(subject.bytes_max(), |source| {
                    UpstreamNames::from_lines(BufReader::new(source))
                })?;
                Ok(Content::Names(names.into()))
            }
            Subject::List => {
                let names = body.parsed(subject.bytes_max(), |source| {
                    UpstreamNames::read(&content_type, source)
                })?;
                Ok(Content::Names(names.into()))
            }
            Subject::Project(project) => {
                let mut page = body.parsed(subject.bytes_max(), |source| {
                    UpstreamPage::read(&content_type, source, &url)
                })?;
                page.keep_files_of(project);
                say_metadata(&mut page, provides_metadata);
                page.last_serial = serial.or(page.last_serial);
                Ok(Content::Page(Some(page.into())))
            }
        });
        let parsed = parsing.await.map_err(|error| UpstreamError::new(error.to_string()))?;
        let content = parsed.inspect_err(|trouble| self.ahead_failed_if(age.is_some(), trouble))?;
        Ok((UpstreamAnswer::Changed { content, etag, last_modified, serial, age }, Some(working)))
    }
}

/// What upstream answered, before its page is parsed.
pub(super) enum Answer {
    /// 304: the cached page is still right.
    NotModified { serial: Option<u64>, age: Option<Duration> },
    /// A page or a list.
    Page(Box<UnreadPage>),
}

pub(super) struct UnreadPage {
    body: PageBody,
    url: Url,
    content_type: String,
    etag: Option<String>,
    last_modified: Option<String>,
    serial: Option<u64>,
    age: Option<Duration>,
}

/// What upstream answered.
pub(super) enum UpstreamAnswer {
    /// The cached page is still right.
    Confirmed { serial: Option<u64>, age: Option<Duration> },
    /// A page or a list; its content may be the cached one.
    Changed {
        content: Content,
        etag: Option<String>,
        last_modified: Option<String>,
        serial: Option<u64>,
        /// How long ago upstream confirmed it, if the server that this one follows said it.
        age: Option<Duration>,
    },
    /// Upstream has no such project.
    Absent,
}

impl UpstreamAnswer {
    /// Whether it is a page with files of which upstream does not say when they were uploaded.
    pub(super) fn has_undated(&self) -> bool {
        match self {
            UpstreamAnswer::Changed { content: Content::Page(Some(page)), .. } => {
                page.files.iter().any(|file| file.upload_time.is_none())
            }
            _ => false,
        }
    }
}

/// Applies the setting that overrides the page about metadata beside the wheels.
fn say_metadata(page: &mut UpstreamPage, provides_metadata: Option<bool>) {
    for file in &mut page.files {
        match provides_metadata {
            Some(false) => file.core_metadata = None,
            Some(true) if file.filename.ends_with(".whl") => {
                file.core_metadata.get_or_insert(CoreMetadata::Unhashed);
            }
            _ => {}
        }
    }
}
