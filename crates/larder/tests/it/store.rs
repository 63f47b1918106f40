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

use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;

use record::Digest;
use tempfile::TempDir;

use crate::client::Client;
use crate::process::{Done, Process, larder};
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

/// Sends a request; returns its status and the rest of the answer, or `None` if the server is gone.
fn try_exchange(client: &Client, request: &[u8]) -> Option<(u16, String)> {
    let mut stream = std::net::TcpStream::connect(client.address).ok()?;
    stream.set_read_timeout(Some(crate::PATIENCE)).ok()?;
    stream.write_all(request).ok()?;
    let mut answer = Vec::new();
    // A reset is an end: what came before counts.
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    Some((text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?, text))
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
        let (mut front, mut directory, mut members) = (Vec::new(), Vec::new(), 0_u16);
        let mut member = |name: String, crc: u32, size: u32, start: u32| {
            members += 1;
            let facts = facts(&name, crc, size);
            directory.extend(b"PK\x01\x02\x14\x00");
            directory.extend(&facts);
            // Comment, disk, attributes.
            directory.extend([0; 10]);
            directory.extend(start.to_le_bytes());
            directory.extend(name.as_bytes());
            [b"PK\x03\x04".as_slice(), &facts, name.as_bytes()].concat()
        };
        for (name, text) in [
            ("METADATA", metadata.as_str()),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ] {
            let mut crc = flate2::Crc::new();
            crc.update(text.as_bytes());
            let start = front.len() as u32;
            front.extend(member(format!("{info}/{name}"), crc.sum(), text.len() as u32, start));
            front.extend(text.as_bytes());
        }
        let (mut crc, mut whole) = (flate2::Crc::new(), flate2::Crc::new());
        crc.update(&block);
        (0..blocks).for_each(|_| whole.combine(&crc));
        let size = block.len() as u32 * blocks;
        let start = front.len() as u32;
        front.extend(member(format!("{project}/data.bin"), whole.sum(), size, start));
        let mut tail = directory.clone();
        tail.extend(b"PK\x05\x06\0\0\0\0");
        tail.extend([members.to_le_bytes(), members.to_le_bytes()].concat());
        tail.extend((directory.len() as u32).to_le_bytes());
        tail.extend((front.len() as u32 + size).to_le_bytes());
        tail.extend([0, 0]);
        let filename = format!("{project}-{version}-py3-none-any.whl");
        Wheel { filename, metadata, head: front, block, blocks, tail }
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
        let mut name = self.filename.split('-');
        let fields = [
            (":action", "file_upload"),
            ("protocol_version", "1"),
            ("metadata_version", "2.1"),
            ("name", name.next().expect("a project")),
            ("version", name.next().expect("a version")),
            ("filetype", "bdist_wheel"),
            ("pyversion", "py3"),
        ];
        let fields = fields.map(|(key, value)| {
            format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{key}\"\r\n\r\n{value}\r\n"
            )
        });
        let before = format!(
            "{}--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"content\"; filename=\"{}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n",
            fields.concat(),
            self.filename
        );
        (before, format!("\r\n--{BOUNDARY}--\r\n"))
    }

    /// The request that uploads it to an index, as `root`.
    fn request(&self, stage: &str) -> Vec<u8> {
        let (before, after) = self.form();
        let body = [before.into_bytes(), self.bytes(), after.into_bytes()].concat();
        request(&format!("POST /{stage}/"), FORM, &body)
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

const BOUNDARY: &str = "f0e1d2c3b4a5";
const FORM: &str = "multipart/form-data; boundary=f0e1d2c3b4a5";

/// The fields that both headers of a zip's member share: it is stored, and this long.
fn facts(name: &str, crc: u32, size: u32) -> Vec<u8> {
    // Needed version, flags, method, time, date.
    let mut facts = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
    facts.extend([crc.to_le_bytes(), size.to_le_bytes(), size.to_le_bytes()].concat());
    facts.extend((name.len() as u16).to_le_bytes());
    facts.extend([0, 0]);
    facts
}
