//! The Python index over HTTP: requests of devpi's clients, installers and uploaders, and refusals.

mod advisories;
mod attestations;
mod contents;
mod documentation;
mod downloads;
mod files;
mod index_log;
pub(crate) mod mirrors;
mod people;
mod policy;
mod projects;
mod public_json;
mod push;
mod quirks;
mod races;
mod retention;
mod search;
mod tox_results;
mod turns;
mod unreadable;
mod uploads;
mod visibility;
mod yank;

use std::io::{Read, Write};
use std::ops::Deref;

use config::Config;
use record::Digest;
use serde_json::{Value, json};

use crate::asking::{Ask, basic};
use crate::client::{Client, Response};
use crate::server::TestServer;
use crate::shown::shown;

pub(crate) use downloads::counted;

/// The password of `alice`, `bob` and all other users of these tests.
const PASSWORD: &str = "open-sesame";

const JSON: (&str, &str) = ("Accept", "application/json");

/// A server of this surface alone, and the users `alice` and `bob` on it.
struct Index {
    server: TestServer,
}

/// An index is asked as its server is.
impl Deref for Index {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

impl Index {
    fn start() -> Index {
        Index::start_with(|_| ())
    }

    fn start_with(change: impl FnOnce(&mut Config)) -> Index {
        let server = TestServer::without_aur(change);
        let index = Index { server };
        for user in ["alice", "bob"] {
            index.root().put(&format!("/{user}"), json!({"password": PASSWORD})).expect(201);
        }
        index
    }

    /// A server with the index `alice/dev`, which is empty.
    fn with_dev() -> Index {
        let index = Index::start();
        index.stage("alice/dev", json!({}));
        index
    }

    fn client(&self) -> Client {
        self.server.client
    }

    fn user(&self, name: &str) -> Ask {
        self.server.user(name, PASSWORD)
    }

    fn alice(&self) -> Ask {
        self.user("alice")
    }

    /// Makes a stage, as the user whose it is.
    #[track_caller]
    fn stage(&self, name: &str, config: Value) {
        let user = name.split('/').next().expect("a user");
        self.user(user).put(&format!("/{name}"), config).expect(200);
    }

    /// Uploads as the stage's user, and expects success.
    #[track_caller]
    fn upload(&self, stage: &str, filename: &str, content: &[u8]) {
        let user = stage.split('/').next().expect("a user");
        self.user(user).upload(stage, &Upload::of(filename, content)).expect(200).is("");
    }

    /// The text of a simple page, as an installer sees it.
    #[track_caller]
    fn page(&self, stage: &str, project: &str) -> String {
        let page = self
            .client()
            .get_with(&format!("/{stage}/+simple/{project}/"), &[("User-Agent", "pip/25.0 {}")])
            .expect(200);
        page.text()
    }

    /// The names of the files on a simple page, as an installer sees it.
    #[track_caller]
    fn files(&self, stage: &str, project: &str) -> Vec<String> {
        let page = self.page(stage, project);
        let names = page.split("</a>").filter_map(|it| it.rsplit_once('>')).map(|(_, name)| name);
        names.filter(|name| !name.trim().is_empty()).map(str::to_owned).collect()
    }

    /// What a simple page says to people, a line for each note.
    #[track_caller]
    fn notes(&self, stage: &str, project: &str) -> String {
        let page = self.browse(&format!("/{stage}/+simple/{project}/")).expect(200).text();
        let notes = page.lines().filter(|line| line.starts_with("<p><strong>"));
        notes.map(shown).collect::<Vec<_>>().join("\n")
    }

    /// Number of blobs in the store.
    fn blobs(&self) -> usize {
        fn files(path: &std::path::Path) -> usize {
            let Ok(entries) = std::fs::read_dir(path) else { return 0 };
            entries
                .flatten()
                .map(|entry| match entry.path().is_dir() {
                    true => files(&entry.path()),
                    // One file beside the blobs, which are named by their digest, says which store they belong to.
                    false => usize::from(entry.file_name().len() == 64),
                })
                .sum()
        }
        files(&self.server.app.config.data_dir.join("blobs").join("sha256"))
    }
}

impl Ask {
    /// The status line's reason of an upload.
    #[track_caller]
    fn upload_reason(self, stage: &str, upload: &Upload) -> String {
        let (content_type, body) = upload.form();
        let mut request = format!(
            "POST /{stage}/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n",
            body.len()
        );
        request.push_str(&self.header_lines());
        let mut bytes = (request + "\r\n").into_bytes();
        bytes.extend(body);
        let mut stream = self.client().connect();
        // The server may refuse before all is sent.
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.split("\r\n").next().expect("a line").trim_start_matches("HTTP/1.1 ").to_owned()
    }
}

/// A form with a file.
#[derive(Clone)]
pub(crate) struct Upload {
    fields: Vec<(String, String)>,
    filename: String,
    content: Vec<u8>,
}

impl Upload {
    /// A release file, whose name has project and version.
    pub(crate) fn of(filename: &str, content: &[u8]) -> Upload {
        let (project, rest) = filename.split_once('-').expect("a project");
        let version = rest.split(['-']).next().expect("a version");
        let version = version.trim_end_matches(".zip").trim_end_matches(".tar.gz");
        Upload::named(project, version, filename, content)
    }

    fn named(project: &str, version: &str, filename: &str, content: &[u8]) -> Upload {
        let fields = [
            (":action", "file_upload"),
            ("protocol_version", "1"),
            ("metadata_version", "2.1"),
            ("name", project),
            ("version", version),
            ("filetype", "sdist"),
        ];
        let own = |text: &str| text.to_owned();
        Upload {
            fields: fields.iter().map(|(key, value)| (own(key), own(value))).collect(),
            filename: filename.to_owned(),
            content: content.to_vec(),
        }
    }

    /// Documentation.
    pub(crate) fn docs(project: &str, version: &str, content: &[u8]) -> Upload {
        Upload::named(project, version, &format!("{project}.zip"), content)
            .set(":action", "doc_upload")
    }

    pub(crate) fn set(mut self, key: &str, value: &str) -> Upload {
        self.fields.retain(|(known, _)| known != key);
        self.fields.push((key.to_owned(), value.to_owned()));
        self
    }

    fn without(mut self, key: &str) -> Upload {
        self.fields.retain(|(known, _)| known != key);
        self
    }

    /// Content type and body.
    pub(crate) fn form(&self) -> (String, Vec<u8>) {
        let boundary = "f0e1d2c3b4a5";
        let mut body = Vec::new();
        for (key, value) in &self.fields {
            let field = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{key}\"\r\n\r\n{value}\r\n"
            );
            body.extend(field.into_bytes());
        }
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"content\"; filename=\"{}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n",
            self.filename
        );
        body.extend(head.into_bytes());
        body.extend(&self.content);
        body.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
        (format!("multipart/form-data; boundary={boundary}"), body)
    }
}

/// A zip in the making, whose members are not compressed.
#[derive(Default)]
pub(crate) struct Zip {
    pub(crate) bytes: Vec<u8>,
    directory: Vec<u8>,
    members: u16,
}

impl Zip {
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        self.begin(name, crc.sum(), content.len());
        self.bytes.extend(content);
    }

    /// Begins a member, whose content follows.
    pub(crate) fn begin(&mut self, name: &str, crc: u32, size: usize) {
        let start = (self.bytes.len() as u32).to_le_bytes();
        // Needed version, flags, method, time, date.
        let mut facts = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        for number in [crc, size as u32, size as u32] {
            facts.extend(number.to_le_bytes());
        }
        facts.extend((name.len() as u16).to_le_bytes());
        facts.extend([0, 0]);
        let name = name.as_bytes();
        self.bytes.extend([b"PK\x03\x04", &facts[..], name].concat());
        // Comment, disk, attributes.
        let rest = [&[0; 10], &start[..], name].concat();
        self.directory.extend([b"PK\x01\x02\x14\x00", &facts[..], &rest].concat());
        self.members += 1;
    }

    /// The end of the zip, after this many bytes.
    pub(crate) fn end(&self, bytes: usize) -> Vec<u8> {
        let members = self.members.to_le_bytes();
        let [length, start] = [self.directory.len(), bytes].map(|it| (it as u32).to_le_bytes());
        let counts = [&members[..], &members, &length, &start, &[0, 0]].concat();
        [&self.directory[..], b"PK\x05\x06\0\0\0\0", &counts].concat()
    }
}

/// A zip of these members, not compressed.
pub(crate) fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = Zip::default();
    members.iter().for_each(|(name, content)| zip.add(name, content));
    [&zip.bytes[..], &zip.end(zip.bytes.len())].concat()
}

/// A source archive that differs by `text`.
pub(crate) fn sdist(text: &str) -> Vec<u8> {
    zip(&[("p/setup.py", text.as_bytes())])
}

/// A wheel of `name` and `version`, and what its METADATA says.
pub(crate) fn wheel(name: &str, version: &str) -> (Vec<u8>, String) {
    let metadata = format!(
        "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.8\n"
    );
    let info = format!("{name}-{version}.dist-info");
    let members = [
        (format!("{name}/__init__.py"), "x = 1\n"),
        (format!("{info}/METADATA"), metadata.as_str()),
        (format!("{info}/WHEEL"), "Wheel-Version: 1.0\n"),
        (format!("{info}/RECORD"), ""),
    ];
    let members: Vec<(&str, &[u8])> =
        members.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    (zip(&members), metadata)
}

/// The path of a file with this content.
pub(crate) fn path(stage: &str, filename: &str, content: &[u8]) -> String {
    let digest = Digest::of(content).to_string();
    format!("/{stage}/+f/{}/{}/{filename}", &digest[..3], &digest[3..16])
}

/// A result of this type.
#[track_caller]
fn result(response: &Response, kind: &str) -> Value {
    response.check_status(200);
    response.has("content-type", "application/json");
    let json = response.json();
    assert_eq!(json["type"], kind, "{json}");
    json["result"].clone()
}
