//! The store as a whole: two processes on one database and one place of blobs, a database that is lost or falls back, `kill -9`
//! and a full disk under writes, histories that a checker judges, and uploads that are large or slow.

mod behind;
pub(crate) mod clocks;
mod damage;
mod disk;
mod downloads;
mod follow;
mod history;
mod kill;
mod large;
mod outage;
mod pair;
mod rewound;
mod serial;
mod shared_mirrors;

use std::process::Command;
use std::sync::Arc;

use record::Digest;
use tempfile::TempDir;

use crate::client::{Client, Response};
use crate::process::{Done, Process, larder};
use crate::python::{Upload, Zip};
use crate::server::{ROOT, ROOT_PASSWORD};
use testbed::Postgres;
use testbed::S3;

/// A database and a place of blobs, for any number of processes.
struct Place {
    directory: Arc<TempDir>,
    database: String,
    postgres: Option<Postgres>,
    blobs: String,
    /// The environment of the processes.
    variables: Vec<(&'static str, String)>,
}

impl Place {
    fn sqlite() -> Place {
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        let database = format!("sqlite:{}", directory.path().join("shared.db").display());
        let (blobs, variables) = ("blobs".to_owned(), Vec::new());
        Place { directory, database, postgres: None, blobs, variables }
    }

    /// None, and a line that says so, where there is no PostgreSQL.
    fn postgres() -> Option<Place> {
        let postgres = Postgres::start()?;
        let database = postgres.url();
        Some(Place { postgres: Some(postgres), database, ..Place::sqlite() })
    }

    /// [`Place::postgres`], with the blobs in a bucket; `None` if either is missing.
    fn postgres_and_s3() -> Option<Place> {
        let (place, s3) = (Place::postgres()?, S3::shared()?);
        let blobs = format!("s3://{}/some/prefix", s3.make_bucket());
        Some(Place { blobs, variables: s3.variables(), ..place })
    }

    /// A command on the store.
    fn command(&self, command: &[&str]) -> Command {
        let mut larder = larder(self.directory.path());
        larder.args(command).args(["--data-dir", "data", "--database", &self.database]);
        larder.args(["--blobs", &self.blobs]);
        larder.envs(self.variables.iter().map(|(name, value)| (name, value)));
        larder
    }

    fn run(&self, command: &[&str]) -> Done {
        Done::of(&mut self.command(command), "")
    }

    /// Checks that everything that records name exists; with `verify`, and without `--quick`, also that it is whole.
    #[track_caller]
    fn check(&self, command: &[&str]) {
        self.run(command).check(0, "");
    }

    /// Makes `root` with the password that [`ROOT`] has.
    #[track_caller]
    fn init(&self) {
        self.check(&["init", "--root-password", ROOT_PASSWORD]);
    }

    /// A process with its own data directory.
    fn start(&self, data: &str) -> Process {
        self.start_with(data, &[])
    }

    /// A process with more in its environment.
    fn start_in(&self, data: &str, more: &[(&'static str, String)]) -> Process {
        let mut arguments = vec!["--aur-enabled=false", "--database", &self.database];
        arguments.extend(["--blobs", &self.blobs, "--store-wait-for-serial-seconds", "60"]);
        let variables = [&self.variables[..], more].concat();
        Process::start_with(self.directory.clone(), data, &arguments, &variables)
    }

    fn start_with(&self, data: &str, more: &[&str]) -> Process {
        let mut arguments = vec!["--aur-enabled=false", "--database", &self.database];
        arguments.extend(["--blobs", &self.blobs, "--store-wait-for-serial-seconds", "60"]);
        arguments.extend(more);
        Process::start_with(self.directory.clone(), data, &arguments, &self.variables)
    }

    /// The names of the spools: what uploads that have not ended take of the disk.
    fn spools(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path().join("blobs/tmp"));
        let names = entries.expect("a directory").map(|entry| entry.expect("an entry").file_name());
        names.map(|name| name.into_string().expect("a name")).collect()
    }
}

/// Makes the user `team` and their index `team/dev`, which `root` may upload to.
#[track_caller]
fn make_stage(client: &Client) {
    client.add_user("team", "team");
    client.root().put("/team/dev", "{}").expect(200);
}

/// The request that stores the next revision of an article, as `root`.
fn article_request(name: &str, base: u32, body: &[u8]) -> Vec<u8> {
    request(&format!("POST /article/{name}/{base}"), "text/plain", body)
}

/// A whole request, as `root`.
fn request(method_and_target: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let (name, value) = ROOT;
    let length = body.len();
    let head = format!(
        "{method_and_target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{name}: {value}\r\n\
         Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Bytes that do not compress, the same for the same seed.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ (seed + 1).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(bytes).collect()
}

/// A wheel as bytes to send: its start, a block that is repeated, and its end.
struct Wheel {
    filename: String,
    metadata: String,
    head: Vec<u8>,
    block: Vec<u8>,
    blocks: u32,
    tail: Vec<u8>,
}

impl Wheel {
    /// A wheel with a module that is `blocks` times `block`.
    fn new(project: &str, version: &str, block: Vec<u8>, blocks: u32) -> Wheel {
        let metadata = format!(
            "Metadata-Version: 2.1\nName: {project}\nVersion: {version}\nRequires-Python: >=3.8\n"
        );
        let info = format!("{project}-{version}.dist-info");
        let mut zip = Zip::default();
        for (name, text) in [
            ("METADATA", metadata.as_str()),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ] {
            zip.add(&format!("{info}/{name}"), text.as_bytes());
        }
        let (mut crc, mut whole) = (flate2::Crc::new(), flate2::Crc::new());
        crc.update(&block);
        (0..blocks).for_each(|_| whole.combine(&crc));
        let size = block.len() * blocks as usize;
        zip.begin(&format!("{project}/data.bin"), whole.sum(), size);
        let filename = format!("{project}-{version}-py3-none-any.whl");
        let tail = zip.end(zip.bytes.len() + size);
        Wheel { filename, metadata, head: zip.bytes, block, blocks, tail }
    }

    /// The file, in pieces.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let blocks = (0..self.blocks).map(|_| self.block.as_slice());
        std::iter::once(self.head.as_slice()).chain(blocks).chain([self.tail.as_slice()])
    }

    fn bytes(&self) -> Vec<u8> {
        self.pieces().collect::<Vec<_>>().concat()
    }

    fn digest(&self) -> Digest {
        let mut hasher = record::Hasher::new();
        self.pieces().for_each(|piece| hasher.update(piece));
        hasher.finish()
    }

    fn size_bytes(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    /// The parts of an upload's form before and after the file.
    fn form(&self) -> (String, String) {
        let (_, form) = Upload::of(&self.filename, b"").form();
        let form = String::from_utf8(form).expect("text");
        let (before, after) = form.split_at(form.rfind("\r\n--").expect("an end"));
        (before.to_owned(), after.to_owned())
    }

    /// The request that uploads it to an index, as `root`.
    fn request(&self, stage: &str) -> Vec<u8> {
        let (before, after) = self.form();
        let body = [before.into_bytes(), self.bytes(), after.into_bytes()].concat();
        request(&format!("POST /{stage}/"), FORM, &body)
    }

    /// Uploads it to an index, as `root`.
    #[track_caller]
    fn upload(&self, client: &Client, stage: &str) -> Response {
        client.exchange(&self.request(stage), false).expect(200)
    }

    /// Its path in an index.
    fn path(&self, stage: &str) -> String {
        let digest = self.digest().to_string();
        format!("/{stage}/+f/{}/{}/{}", &digest[..3], &digest[3..16], self.filename)
    }

    /// Checks that an index has this wheel: its link on the page, its bytes, and its metadata file.
    #[track_caller]
    fn check(&self, client: &Client, stage: &str, headers: &[(&str, &str)]) {
        let project = self.filename.split('-').next().expect("a project");
        let page = client.get_with(&format!("/{stage}/+simple/{project}/"), headers).expect(200);
        let link = format!("{}#sha256={}", self.filename, self.digest());
        page.says(&link);
        let file = client.get_with(&self.path(stage), headers).expect(200);
        assert!(file.body == self.bytes(), "{}", self.filename);
        let done = client.get_with(&format!("{}.metadata", self.path(stage)), headers);
        done.expect(200).is(self.metadata.clone());
    }
}

const FORM: &str = "multipart/form-data; boundary=f0e1d2c3b4a5";
