//! `larder prefetch`: asks an index for every file that a lock names, so that its mirrors keep them.
//!
//! lock files -> [`LockedRelease`] -> [`mirrors::prefetch`], which asks for the page of each project and for the files over HTTP.
//! Nothing is written here: what is kept is the cache of the mirrors behind the index.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use config::{Environment, TOKEN_VARIABLE};
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::header::ACCEPT;
use mirrors::prefetch::{FetchCounts, FileStream, Index, IndexFile, fetch};
use pypi::ProjectName;
use pypi::lock::{Lock, LockedRelease};
use reqwest::{Client, Url};
use serde_json::Value;
use state::maintenance::Progress;
use state::text::counted;

use super::remote::TOKEN_USER;
use super::{Exit, note, print, runtime};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without a byte: the server may itself wait for the upstream.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// Largest page of a project.
const PAGE_BYTES_MAX: usize = 128 << 20;

/// The end of the help.
pub(super) const HELP: &str = "A file that the index does not have, or of another digest than the lock's, makes the exit code 1; the others are \
    fetched all the same. Credentials are in the URL, or a token is in LARDER_TOKEN.";

#[derive(Args)]
pub(super) struct Command {
    /// Locks: requirements files with `name==version`, uv.lock, poetry.lock, pylock.toml
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The index: https://host/user/index
    #[arg(long, value_name = "URL")]
    index: String,
    /// How many projects are fetched at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
}

impl Command {
    /// Fetches everything.
    ///
    /// # Errors
    /// A lock that cannot be read; what could not be fetched.
    pub(super) fn run(self, environment: &Environment, out: &mut dyn Write) -> Result<(), Exit> {
        let index = index_url(&self.index).map_err(Exit::usage)?;
        let mut wanted: Vec<LockedRelease> = Vec::new();
        for path in &self.files {
            let problem = |text: String| Exit::failure(format!("{}: {text}", path.display()));
            let text = std::fs::read_to_string(path)
                .map_err(|error| problem(format!("cannot be read: {error}")))?;
            let lock = Lock::parse(&text).map_err(problem)?;
            if lock.others > 0 {
                note(&format!(
                    "{}: {} of its packages come from elsewhere than an index, and are left out",
                    path.display(),
                    lock.others
                ));
            }
            for one in lock.wanted {
                if !wanted.contains(&one) {
                    wanted.push(one);
                }
            }
        }
        let token = environment.get(TOKEN_VARIABLE).map(str::to_owned);
        let token = token.filter(|_| index.username().is_empty());
        let jobs = usize::from(self.jobs);
        let (fetched, problems) = runtime()?.block_on(fetch_all(index, token, wanted, jobs))?;
        let text = format!("files: {}, bytes: {}\n", fetched.files, fetched.bytes);
        print(&text, out)?;
        if fetched.uncompared > 0 {
            let files = counted(fetched.uncompared, "file");
            note(&format!("not compared, as no lock and no page names a digest: {files}"));
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Exit::failure(problems.join("\n"))),
        }
    }
}

/// The URL below which the pages of projects are.
fn index_url(text: &str) -> Result<Url, String> {
    let expected = "the URL of an index was expected, as https://larder.example/team/dev";
    let mut url: Url = text.parse().map_err(|error| format!("`{text}`: {expected} ({error})"))?;
    let path = url.path().trim_end_matches('/').to_owned();
    let stage = path.strip_suffix("/+simple").unwrap_or(&path);
    let is_index =
        stage.trim_start_matches('/').split('/').filter(|part| !part.is_empty()).count() >= 2;
    if !matches!(url.scheme(), "http" | "https") || !is_index {
        return Err(format!("`{text}`: {expected}"));
    }
    url.set_path(&format!("{stage}/+simple/"));
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

async fn fetch_all(
    index: Url,
    token: Option<String>,
    wanted: Vec<LockedRelease>,
    jobs: usize,
) -> Result<(FetchCounts, Vec<String>), Exit> {
    let builder = || {
        Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(format!("larder/{}", version::VERSION))
    };
    let client = net::build_client(builder)
        .map_err(|error| Exit::failure(format!("cannot use the network: {error}")))?;
    let fetching = Prefetcher { client, index, token };
    let progress = Progress::on_terminal();
    progress.begin_counted("fetching", wanted.len() as u64);
    let (mut total, mut problems) = (FetchCounts::default(), Vec::new());
    let mut running =
        futures_util::stream::iter(&wanted).map(|one| fetch(&fetching, one)).buffer_unordered(jobs);
    while let Some((fetched, told)) = running.next().await {
        total += fetched;
        problems.extend(told);
        progress.step();
    }
    progress.end();
    problems.sort();
    Ok((total, problems))
}

struct Prefetcher {
    client: Client,
    index: Url,
    token: Option<String>,
}

impl Prefetcher {
    async fn get(&self, url: Url) -> Result<reqwest::Response, String> {
        let is_own = url.origin() == self.index.origin();
        let mut request =
            self.client.get(url).header(ACCEPT, "application/vnd.pypi.simple.v1+json, */*;q=0.1");
        if let Some(token) = self.token.as_ref().filter(|_| is_own) {
            request = request.basic_auth(TOKEN_USER, Some(token));
        }
        let answer = request.send().await.map_err(|error| told(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let text = answer.text().await.unwrap_or_default();
        let said: Value = serde_json::from_str(&text).unwrap_or_default();
        let detail = said["detail"].as_str().or(said["message"].as_str()).unwrap_or_default();
        Err(format!("the index answers {status} {detail}").trim_end().to_owned())
    }

    async fn page(&self, url: Url) -> Result<Vec<u8>, String> {
        let mut answer = self.get(url).await?;
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| told(&error))? {
            if body.len() + piece.len() > PAGE_BYTES_MAX {
                return Err(format!("its page has more than {PAGE_BYTES_MAX} bytes"));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

impl Index for Prefetcher {
    async fn offered(&self, project: &ProjectName) -> Result<Vec<IndexFile>, String> {
        let page = self.index.join(&format!("{project}/")).map_err(|it| it.to_string())?;
        let body = self.page(page.clone()).await?;
        let said: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("the index answers something else than a page: {error}"))?;
        let mut offered: Vec<IndexFile> = Vec::new();
        for file in said["files"].as_array().into_iter().flatten() {
            let Some(name) = file["filename"].as_str() else { continue };
            let url = file["url"].as_str().unwrap_or_default();
            let url = page.join(url).map_err(|error| format!("`{url}`: {error}"))?;
            let hashes = file["hashes"].as_object().into_iter().flatten();
            let hashes =
                hashes.filter_map(|(kind, digits)| Some((kind.as_str(), digits.as_str()?)));
            offered.push(IndexFile::new(name, url.into(), hashes));
        }
        Ok(offered)
    }

    async fn open(&self, file: &IndexFile) -> Result<FileStream, String> {
        let url = file.url.parse::<Url>().map_err(|error| format!("`{}`: {error}", file.url))?;
        let answer = self.get(url).await?;
        Ok(answer.bytes_stream().map_err(|error| told(&error)).boxed())
    }
}

/// The error with its causes, without the URL, which may have credentials.
fn told(error: &reqwest::Error) -> String {
    let causes = net::causes(error).map(|cause| format!(": {cause}"));
    format!("no whole answer{}", causes.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_indexes() {
        for text in [
            "http://h:1/team/dev",
            "http://h:1/team/dev/",
            "http://h:1/team/dev/+simple",
            "http://h:1/team/dev/+simple/?q#f",
        ] {
            assert_eq!(index_url(text).expect(text).as_str(), "http://h:1/team/dev/+simple/");
        }
        assert_eq!(
            index_url("https://u:p@h/larder/team/dev").expect("a prefix").as_str(),
            "https://u:p@h/larder/team/dev/+simple/"
        );
        for text in ["team/dev", "https://h/", "https://h/team", "ftp://h/team/dev"] {
            assert!(index_url(text).is_err(), "{text}");
        }
    }
}
