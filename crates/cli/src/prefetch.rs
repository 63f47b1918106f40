//! `larder prefetch`: asks an index for every file that a lock names, so that its mirrors keep them.
//!
//! lock files -> [`Wanted`] -> the page of each project -> the files that the lock means, read to their end and compared
//! with their digests. Nothing is written here: what is kept is the cache of the mirrors behind the index.

mod wanted;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use config::{Environment, TOKEN_VARIABLE};
use futures_util::StreamExt as _;
use http::header::ACCEPT;
use md5::Md5;
use pypi::{Filename, ProjectName, Version};
use reqwest::{Client, Url};
use serde_json::Value;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha384, Sha512};
use state::maintenance::Progress;

use self::wanted::{ALGORITHMS, Files, Wanted};
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

/// What was fetched.
#[derive(Clone, Copy, Default)]
struct Fetched {
    files: u64,
    bytes: u64,
    /// Files that neither the lock nor the index names a digest of.
    uncompared: u64,
}

impl Command {
    /// Fetches everything.
    ///
    /// # Errors
    /// A lock that cannot be read; what could not be fetched.
    pub(super) fn run(self, environment: &Environment, out: &mut dyn Write) -> Result<(), Exit> {
        let index = index_url(&self.index).map_err(Exit::usage)?;
        let mut wanted: Vec<Wanted> = Vec::new();
        for path in &self.files {
            let problem = |text: String| Exit::failure(format!("{}: {text}", path.display()));
            let text = std::fs::read_to_string(path)
                .map_err(|error| problem(format!("cannot be read: {error}")))?;
            let lock = wanted::parse(&text).map_err(problem)?;
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
            let count = fetched.uncompared;
            note(&format!(
                "{count} files were not compared: no lock and no page names a digest of them"
            ));
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
    wanted: Vec<Wanted>,
    jobs: usize,
) -> Result<(Fetched, Vec<String>), Exit> {
    let client = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .user_agent(format!("larder/{}", version::VERSION))
        .build()
        .map_err(|error| Exit::failure(format!("cannot use the network: {error}")))?;
    let fetching = Fetching { client, index, token };
    let progress = Progress::on_terminal();
    progress.begin_counted("fetching", wanted.len() as u64);
    let (mut total, mut problems) = (Fetched::default(), Vec::new());
    let mut running =
        futures_util::stream::iter(&wanted).map(|one| fetching.fetch(one)).buffer_unordered(jobs);
    while let Some((fetched, problem)) = running.next().await {
        total.files += fetched.files;
        total.bytes += fetched.bytes;
        total.uncompared += fetched.uncompared;
        problems.extend(problem);
        progress.step();
    }
    progress.end();
    problems.sort();
    Ok((total, problems))
}

struct Fetching {
    client: Client,
    index: Url,
    token: Option<String>,
}

impl Fetching {
    /// Fetches the files of one release; what was fetched, and why not all of it.
    async fn fetch(&self, wanted: &Wanted) -> (Fetched, Option<String>) {
        let mut fetched = Fetched::default();
        let problem = self.files_of(wanted, &mut fetched).await.err();
        (fetched, problem.map(|text| format!("{} {}: {text}", wanted.project, wanted.version)))
    }

    async fn files_of(&self, wanted: &Wanted, fetched: &mut Fetched) -> Result<(), String> {
        let page = self.index.join(&format!("{}/", wanted.project)).map_err(|it| it.to_string())?;
        let body = self.page(page.clone()).await?;
        let said: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("the index answers something else than a page: {error}"))?;
        let mut offered: Vec<Offered> = Vec::new();
        for file in said["files"].as_array().into_iter().flatten() {
            offered.extend(Offered::of(file, &page)?);
        }
        let mut problems = Vec::new();
        // What the lock means, and not every release has a file of.
        let mut missing: BTreeSet<String> = match &wanted.files {
            Files::All => BTreeSet::new(),
            Files::Digests(digests) => digests.clone(),
            Files::Named(named) => named.keys().cloned().collect(),
        };
        let (mut found, nothing) = (0, BTreeSet::new());
        for file in &offered {
            let expected = match &wanted.files {
                Files::All if is_of(&file.name, &wanted.project, &wanted.version) => &nothing,
                // A page need not name the digest that the lock has; the bytes have every one.
                Files::Digests(digests)
                    if !file.digests.is_disjoint(digests)
                        || is_of(&file.name, &wanted.project, &wanted.version)
                            && file.may_have_one_of(digests) =>
                {
                    digests
                }
                Files::Named(named) => match named.get(&file.name) {
                    Some(digests) => digests,
                    None => continue,
                },
                _ => continue,
            };
            missing.remove(&file.name);
            found += 1;
            if !file.may_have_one_of(expected) {
                problems.push(format!(
                    "{} has {}, which is not the lock's",
                    file.name,
                    joined(&file.digests)
                ));
                continue;
            }
            let read = self.read(file, expected).await;
            match (read, &wanted.files) {
                (Ok((bytes, has)), _) => {
                    missing.retain(|digest| !has.contains(digest));
                    fetched.files += 1;
                    fetched.bytes += bytes;
                    fetched.uncompared += u64::from(expected.is_empty() && file.digests.is_empty());
                }
                // Another file of the release, as the lock sees it.
                (Err(Unread::Other { .. }), Files::Digests(_)) => {}
                (Err(error), _) => problems.push(format!("{}: {error}", file.name)),
            }
        }
        if !missing.is_empty() {
            let what = match wanted.files {
                Files::Digests(_) => "a file of it with ",
                _ => "",
            };
            problems.push(format!("the index does not have {what}{}", joined(&missing)));
        }
        if found == 0 && missing.is_empty() {
            problems.push("the index has no file of it".to_owned());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

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

    /// Reads a file to its end: its size in bytes, and its digests of all kinds that the page and `expected` have.
    ///
    /// # Errors
    /// [`Unread`]; a digest of the page, and one of those that are expected, have to be right.
    async fn read(
        &self,
        file: &Offered,
        expected: &BTreeSet<String>,
    ) -> Result<(u64, BTreeSet<String>), Unread> {
        let mut answer = self.get(file.url.clone()).await.map_err(Unread::DownloadError)?;
        let kinds = ALGORITHMS.into_iter().filter(|kind| {
            let is_of_kind = |digest: &String| digest.split(':').next() == Some(*kind);
            file.digests.iter().chain(expected).any(is_of_kind)
        });
        let mut hashers: Vec<(&str, Box<dyn DynDigest + Send>)> =
            kinds.map(|kind| (kind, hasher(kind))).collect();
        let mut bytes = 0;
        while let Some(piece) =
            answer.chunk().await.map_err(|error| Unread::DownloadError(told(&error)))?
        {
            for (_, hasher) in &mut hashers {
                hasher.update(&piece);
            }
            bytes += piece.len() as u64;
        }
        let digest = |(kind, hasher): (&str, Box<dyn DynDigest + Send>)| {
            format!("{kind}:{}", hex::encode(hasher.finalize()))
        };
        let found: BTreeSet<String> = hashers.into_iter().map(digest).collect();
        if !file.digests.is_subset(&found) {
            let expected = joined(&file.digests);
            return Err(Unread::Wrong { found: joined(&found), expected });
        }
        if !expected.is_empty() && expected.is_disjoint(&found) {
            let expected = joined(expected);
            return Err(Unread::Other { found: joined(&found), expected });
        }
        Ok((bytes, found))
    }
}

/// Why a file was not fetched.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("{0}")]
    DownloadError(String),
    /// The bytes are not what the page says.
    #[error("it has {found}; the index says {expected}")]
    Wrong { found: String, expected: String },
    /// The bytes are not what the lock says.
    #[error("it has {found}; {expected} was expected")]
    Other { found: String, expected: String },
}

/// A file on the page of a project.
struct Offered {
    name: String,
    url: Url,
    /// Those that can be compared, as `name:digits`.
    digests: BTreeSet<String>,
}

impl Offered {
    fn of(file: &Value, page: &Url) -> Result<Option<Offered>, String> {
        let Some(name) = file["filename"].as_str() else { return Ok(None) };
        let url = file["url"].as_str().unwrap_or_default();
        let url = page.join(url).map_err(|error| format!("`{url}`: {error}"))?;
        let digests = ALGORITHMS.into_iter().filter_map(|kind| {
            let digits = file["hashes"][kind].as_str()?;
            Some(format!("{kind}:{}", digits.to_ascii_lowercase()))
        });
        Ok(Some(Offered { name: name.to_owned(), url, digests: digests.collect() }))
    }

    /// Whether the page does not say that the file has none of these digests.
    fn may_have_one_of(&self, expected: &BTreeSet<String>) -> bool {
        let kind = |digest: &str| digest.split(':').next().map(str::to_owned);
        let is_possible = |wanted: &String| {
            self.digests.contains(wanted)
                || !self.digests.iter().any(|own| kind(own) == kind(wanted))
        };
        expected.is_empty() || expected.iter().any(is_possible)
    }
}

fn hasher(kind: &str) -> Box<dyn DynDigest + Send> {
    match kind {
        "sha256" => Box::new(Sha256::default()),
        "sha384" => Box::new(Sha384::default()),
        "sha512" => Box::new(Sha512::default()),
        _ => Box::new(Md5::default()),
    }
}

fn joined(words: &BTreeSet<String>) -> String {
    words.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// What went wrong, with its causes, without the URL: it may have credentials.
fn told(error: &reqwest::Error) -> String {
    let mut text = "no whole answer".to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn is_of(filename: &str, project: &ProjectName, version: &Version) -> bool {
    let Ok(filename) = Filename::parse(filename) else { return false };
    let parts = filename.split(Some(project));
    parts.and_then(|parts| parts.version).as_ref() == Some(version)
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
