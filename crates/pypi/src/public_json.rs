//! The JSON of the public index's API about a project, or a version of it: `/pypi/{name}/json`.
//!
//! simple page of the project, as JSON -> [`PublicFiles`], by version -> with the metadata of a version -> JSON. So it shows the
//! files that the page shows, from the same places; what neither the page nor the metadata says is null.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::{Filename, ProjectName, Version, by_version, installed_by_default};

/// The files of a page, each with its version.
#[derive(Debug)]
pub struct PublicFiles<'page> {
    /// In the order of versions. Those that PEP 440 counts as the same are one.
    versions: Vec<(Version, Vec<(Filename, File<'page>)>)>,
    last_serial: Option<u64>,
    /// The version that installers take.
    newest: Option<usize>,
}

/// The URLs that the JSON has.
#[derive(Clone, Copy, Debug)]
pub struct PublicUrls<'text> {
    /// The start of this server's URLs, without a slash at its end.
    pub root: &'text str,
    /// The index: `user/index`, encoded for a URL.
    pub stage: &'text str,
}

/// The page is not as this module expects it.
#[derive(Debug, thiserror::Error)]
#[error("the page of the project cannot be read: {0}")]
pub struct PublicJsonError(#[from] serde_json::Error);

#[derive(Debug, Deserialize)]
struct Page<'page> {
    meta: Meta,
    #[serde(borrow)]
    files: Vec<File<'page>>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    #[serde(rename = "_last-serial")]
    last_serial: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File<'page> {
    #[serde(borrow)]
    filename: Cow<'page, str>,
    #[serde(borrow)]
    url: Cow<'page, str>,
    #[serde(borrow)]
    hashes: Digests<'page>,
    size: Option<u64>,
    #[serde(borrow)]
    upload_time: Option<Cow<'page, str>>,
    #[serde(borrow)]
    requires_python: Option<Cow<'page, str>>,
    #[serde(borrow, default)]
    yanked: YankState<'page>,
}

/// The digests that the public index has.
#[derive(Debug, Deserialize, Serialize)]
struct Digests<'page> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    blake2b_256: Option<Cow<'page, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    md5: Option<Cow<'page, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    sha256: Option<Cow<'page, str>>,
}

/// Whether a file is yanked, or why.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum YankState<'page> {
    Is(bool),
    #[serde(borrow)]
    For(Cow<'page, str>),
}

impl Default for YankState<'_> {
    fn default() -> Self {
        YankState::Is(false)
    }
}

impl YankState<'_> {
    fn is_yanked(&self) -> bool {
        !matches!(self, YankState::Is(false))
    }

    fn reason(&self) -> Option<&str> {
        match self {
            YankState::For(reason) => Some(reason),
            YankState::Is(_) => None,
        }
    }
}

impl<'page> PublicFiles<'page> {
    /// The files of a simple page in JSON. Files whose names tell no version are left out.
    ///
    /// # Errors
    /// [`PublicJsonError`] if it is no such page.
    pub fn read(
        page: &'page [u8],
        project: &ProjectName,
    ) -> Result<PublicFiles<'page>, PublicJsonError> {
        let page: Page<'page> = serde_json::from_slice(page)?;
        let files = page.files.into_iter().filter_map(|file| {
            let filename = Filename::parse(&file.filename).ok()?;
            let version = filename.split(Some(project))?.version?;
            Some((version, (filename, file)))
        });
        let versions = by_version(files);
        let newest = installed_by_default(versions.iter().map(|(version, files)| {
            (version, files.iter().all(|(_, file)| file.yanked.is_yanked()))
        }));
        Ok(PublicFiles { versions, last_serial: page.meta.last_serial, newest })
    }

    /// The version that the JSON of the project is about. `None` if there is no file.
    pub fn newest(&self) -> Option<&Version> {
        Some(&self.versions.get(self.newest?)?.0)
    }

    /// The version that is written like this, or equal to it (PEP 440).
    pub fn version(&self, text: &str) -> Option<&Version> {
        let at = Version::position(text, self.versions.iter().map(|(it, _)| it.as_str()))?;
        Some(&self.versions[at].0)
    }

    /// The JSON about this version; with `is_whole`, of the project, whose newest it is. `metadata` is that of the version as it
    /// is stored, if it is known; `serial` is told if the page has none.
    pub fn json(
        &self,
        project: &ProjectName,
        version: Option<&Version>,
        is_whole: bool,
        metadata: &Map<String, Value>,
        urls: PublicUrls<'_>,
        serial: u64,
    ) -> Vec<u8> {
        let none = Vec::new();
        let found = self.versions.iter().find(|(it, _)| Some(it) == version);
        let files = found.map_or(&none, |(_, files)| files);
        let shown = ProjectJson {
            info: info(project, version, files, metadata, urls),
            last_serial: self.last_serial.unwrap_or(serial),
            releases: is_whole.then_some(Releases { files: self, project, urls }),
            urls: listed(files, project, urls),
            vulnerabilities: [],
        };
        let mut bytes =
            serde_json::to_vec(&shown).expect("texts and numbers are written to memory");
        bytes.push(b'\n');
        bytes
    }
}

#[derive(Serialize)]
struct ProjectJson<'files> {
    info: Value,
    last_serial: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    releases: Option<Releases<'files>>,
    urls: Vec<PublicFile<'files>>,
    vulnerabilities: [Value; 0],
}

/// All versions, each with its files.
struct Releases<'files> {
    files: &'files PublicFiles<'files>,
    project: &'files ProjectName,
    urls: PublicUrls<'files>,
}

impl Serialize for Releases<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let versions = self.files.versions.iter();
        let versions = versions
            .map(|(version, files)| (version.as_str(), listed(files, self.project, self.urls)));
        serializer.collect_map(versions)
    }
}

fn listed<'files>(
    files: &'files [(Filename, File<'_>)],
    project: &ProjectName,
    urls: PublicUrls<'_>,
) -> Vec<PublicFile<'files>> {
    files.iter().map(|(filename, file)| PublicFile::of(filename, file, project, urls)).collect()
}

#[derive(Serialize)]
struct PublicFile<'file> {
    comment_text: &'static str,
    digests: &'file Digests<'file>,
    downloads: i8,
    filename: &'file str,
    has_sig: bool,
    md5_digest: Option<&'file str>,
    packagetype: &'static str,
    python_version: &'file str,
    requires_python: Option<&'file str>,
    size: Option<u64>,
    /// Without a fraction and a zone.
    upload_time: Option<&'file str>,
    upload_time_iso_8601: Option<&'file str>,
    url: String,
    yanked: bool,
    yanked_reason: Option<&'file str>,
}

impl<'file> PublicFile<'file> {
    fn of(
        filename: &'file Filename,
        file: &'file File<'_>,
        project: &ProjectName,
        urls: PublicUrls<'_>,
    ) -> PublicFile<'file> {
        let time = file.upload_time.as_deref();
        PublicFile {
            comment_text: "",
            digests: &file.hashes,
            downloads: -1,
            filename: filename.as_str(),
            has_sig: false,
            md5_digest: file.hashes.md5.as_deref(),
            packagetype: filename.filetype(),
            python_version: filename.pyversion(),
            requires_python: file.requires_python.as_deref(),
            size: file.size,
            upload_time: time.map(|time| time.split(['.', 'Z', '+']).next().unwrap_or_default()),
            upload_time_iso_8601: time,
            url: absolute(&file.url, project, urls),
            yanked: file.yanked.is_yanked(),
            yanked_reason: file.yanked.reason(),
        }
    }
}

/// The URL of a link on the simple page of the project.
fn absolute(link: &str, project: &ProjectName, urls: PublicUrls<'_>) -> String {
    let below = link.trim_start_matches("../");
    let ups = (link.len() - below.len()) / "../".len();
    if ups == 0 {
        return link.to_owned();
    }
    let page = format!("{}/{}/+simple/{project}", urls.root, urls.stage);
    let start = page.rsplitn(ups + 1, '/').last().unwrap_or_default();
    format!("{start}/{below}")
}

/// What is known of a version.
fn info(
    project: &ProjectName,
    version: Option<&Version>,
    files: &[(Filename, File<'_>)],
    metadata: &Map<String, Value>,
    urls: PublicUrls<'_>,
) -> Value {
    let text = |key: &str| {
        let text = metadata.get(key).and_then(Value::as_str);
        text.filter(|text| !matches!(text.trim(), "" | "UNKNOWN"))
    };
    let list = |key: &str| {
        let list = metadata.get(key).and_then(Value::as_array);
        list.filter(|list| !list.is_empty()).cloned()
    };
    let labelled: Map<String, Value> = list("project_urls")
        .unwrap_or_default()
        .iter()
        .filter_map(|line| line.as_str()?.split_once(','))
        .map(|(label, url)| (label.trim().to_owned(), url.trim().into()))
        .collect();
    let PublicUrls { root, stage } = urls;
    let project_url = format!("{root}/{stage}/{project}");
    let release_url =
        version.map(|version| format!("{project_url}/{}", crate::url::encoded(version.as_str())));
    let requires_python = files.iter().find_map(|(_, file)| file.requires_python.as_deref());
    let is_yanked = !files.is_empty() && files.iter().all(|(_, file)| file.yanked.is_yanked());
    let reason = files.iter().find_map(|(_, file)| file.yanked.reason());
    let platform = metadata.get("platform").and_then(|value| match value {
        Value::Array(list) => list.first().and_then(Value::as_str),
        value => value.as_str(),
    });
    json!({
        "author": text("author"),
        "author_email": text("author_email"),
        "bugtrack_url": null,
        "classifiers": list("classifiers").unwrap_or_default(),
        "description": text("description"),
        "description_content_type": text("description_content_type"),
        "docs_url": null,
        "download_url": text("download_url"),
        "downloads": {"last_day": -1, "last_month": -1, "last_week": -1},
        "dynamic": list("dynamic"),
        "home_page": text("home_page"),
        "keywords": text("keywords"),
        "license": text("license"),
        "license_expression": text("license_expression"),
        "license_files": list("license_file"),
        "maintainer": text("maintainer"),
        "maintainer_email": text("maintainer_email"),
        "name": text("name").unwrap_or(project.as_str()),
        "package_url": project_url,
        "platform": platform.filter(|text| !matches!(*text, "" | "UNKNOWN")),
        "project_url": project_url,
        "project_urls": (!labelled.is_empty()).then_some(labelled),
        "provides_extra": list("provides_extras"),
        "release_url": release_url,
        "requires_dist": list("requires_dist"),
        "requires_python": text("requires_python").or(requires_python),
        "summary": text("summary"),
        "version": version.map(Version::as_str),
        "yanked": is_yanked,
        "yanked_reason": reason.filter(|_| is_yanked),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"{"meta": {"api-version": "1.3", "_last-serial": 7}, "name": "foo", "versions": [], "files": [
        {"filename": "foo-1.0.tar.gz", "url": "../../+f/ab/c/foo-1.0.tar.gz", "hashes": {"sha256": "aa", "other": "b"},
         "size": 3, "upload-time": "2026-01-31T12:34:56.789000Z"},
        {"filename": "foo-1.0-py3-none-any.whl", "url": "https://files.example/f%2B.whl", "hashes": {}, "requires-python": ">=3.9",
         "yanked": "it's \"old\""},
        {"filename": "foo-1.1-py2.py3-none-any.whl", "url": "../../../../u/base/+f/x", "hashes": {"md5": "cc"}, "yanked": true},
        {"filename": "foo-2.0rc1.zip", "url": "x", "hashes": {}},
        {"filename": "README", "url": "x", "hashes": {}}]}"#;

    fn json(version: Option<&str>, metadata: Value) -> Value {
        let project: ProjectName = "foo".parse().expect("a name");
        let files = PublicFiles::read(PAGE.as_bytes(), &project).expect("a page");
        let found = match version {
            Some(text) => Some(files.version(text).expect("it is there")),
            None => files.newest(),
        };
        let urls = PublicUrls { root: "https://index.example", stage: "u/i" };
        let metadata = metadata.as_object().cloned().unwrap_or_default();
        let bytes = files.json(&project, found, version.is_none(), &metadata, urls, 1);
        serde_json::from_slice(&bytes).expect("JSON")
    }

    #[test]
    fn a_project() {
        let found = json(
            None,
            json!({"name": "Foo", "summary": "s", "license": "UNKNOWN", "project_urls": ["Home, https://x", "no"],
                   "classifiers": ["a :: b"], "requires_dist": ["x>1"], "provides_extras": ["e"]}),
        );
        assert_eq!(found["last_serial"], 7);
        let info = &found["info"];
        assert_eq!((&info["name"], &info["version"]), (&json!("Foo"), &json!("1.0")));
        assert_eq!((&info["summary"], &info["license"]), (&json!("s"), &Value::Null));
        assert_eq!(info["project_urls"], json!({"Home": "https://x"}));
        assert_eq!(
            (&info["requires_dist"], &info["provides_extra"]),
            (&json!(["x>1"]), &json!(["e"]))
        );
        assert_eq!((&info["requires_python"], &info["yanked"]), (&json!(">=3.9"), &json!(false)));
        assert_eq!(info["release_url"], "https://index.example/u/i/foo/1.0");
        assert_eq!(found["vulnerabilities"], json!([]));
        let versions: Vec<&String> =
            found["releases"].as_object().expect("an object").keys().collect();
        assert_eq!(versions, ["1.0", "1.1", "2.0rc1"]);
        assert_eq!(found["releases"]["1.0"], found["urls"]);
        assert_eq!(
            found["urls"][0],
            json!({"comment_text": "", "digests": {"sha256": "aa"}, "downloads": -1, "filename": "foo-1.0.tar.gz",
                   "has_sig": false, "md5_digest": null, "packagetype": "sdist", "python_version": "source",
                   "requires_python": null, "size": 3, "upload_time": "2026-01-31T12:34:56",
                   "upload_time_iso_8601": "2026-01-31T12:34:56.789000Z",
                   "url": "https://index.example/u/i/+f/ab/c/foo-1.0.tar.gz", "yanked": false, "yanked_reason": null})
        );
        let wheel = &found["urls"][1];
        assert_eq!(wheel["url"], "https://files.example/f%2B.whl");
        assert_eq!(
            (&wheel["yanked"], &wheel["yanked_reason"]),
            (&json!(true), &json!("it's \"old\""))
        );
        assert_eq!(
            (&wheel["packagetype"], &wheel["python_version"]),
            (&json!("bdist_wheel"), &json!("py3"))
        );
    }

    #[test]
    fn a_version() {
        let found = json(Some("1.1.0"), Value::Null);
        assert!(found.get("releases").is_none());
        assert_eq!(
            (&found["info"]["version"], &found["info"]["name"]),
            (&json!("1.1"), &json!("foo"))
        );
        assert_eq!(
            (&found["info"]["yanked"], &found["info"]["author"]),
            (&json!(true), &Value::Null)
        );
        assert_eq!(found["urls"][0]["digests"], json!({"md5": "cc"}));
        assert_eq!(found["urls"][0]["python_version"], "py2.py3");
        assert_eq!(found["urls"][0]["url"], "https://index.example/u/base/+f/x");
    }
}
