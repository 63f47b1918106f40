//! Fills the empty store of a data directory with release files, fast: `fill DATA_DIR PROJECTS FILES_PER_PROJECT`.
//!
//! uploads decided by `pypi::change` -> their records -> one restore into `records.db`. The stage is `root/big`. There
//! are no blobs: lists and pages are answered, files are not. For `bench/python`, whose sections `million` and
//! `names` measure a server on such a directory; the same arguments give the same records.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use account::UserName;
use jiff::Timestamp;
use pypi::change::{stage, upload};
use pypi::{ConfigEdit, FileRole, Filename, ProjectName, Snapshot, StageName, Version};
use record::{Batch, Digest, Key, Record, Serial};
use store::{BlobLocation, BlobStore, DatabaseLocation, Records, RecordsOptions};

const STAGE: &str = "root/big";

/// The first upload, in seconds since 1970; the others follow, one a second.
const FIRST_UPLOAD: i64 = 1_500_000_000;

/// Names are two of these and a few letters: they compress about as real ones do.
const WORDS: [&str; 32] = [
    "async", "auth", "aws", "bio", "cache", "client", "cloud", "config", "core", "data", "django",
    "fast", "flask", "geo", "graph", "http", "image", "json", "lib", "ml", "net", "open", "parse",
    "plot", "py", "query", "rest", "simple", "stream", "test", "tools", "web",
];

/// Letters that tell names apart, as a number: five of 26.
const LETTERS: u32 = 26u32.pow(5);

/// Has no divisor in common with [`LETTERS`], so no two numbers below it give the same letters.
const SCATTER: u64 = 7_368_787;

/// The name of project number `number`; below [`LETTERS`] all differ.
fn name(number: u32) -> String {
    let scattered = u64::from(number) * SCATTER % u64::from(LETTERS);
    let word = |at: u64| WORDS[(at % WORDS.len() as u64) as usize];
    let mut name = format!("{}-{}-", word(scattered / 7), word(scattered / 331));
    let mut rest = scattered;
    for _ in 0..5 {
        name.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
    name
}

/// What the uploads so far left behind: the latest record under each key.
#[derive(Default)]
struct Latest {
    serial: Serial,
    records: BTreeMap<Key, Record>,
}

impl Latest {
    fn commit(&mut self, batch: Batch) {
        self.serial = Serial(self.serial.0 + 1);
        for write in batch.writes {
            let record = Record {
                key: write.key.clone(),
                serial: self.serial,
                body: write.body,
                blobs: write.blobs,
            };
            self.records.insert(write.key, record);
        }
    }
}

/// The batch of one upload, decided on `snapshot`.
fn uploaded(
    snapshot: &Snapshot,
    stage: &StageName,
    project: &str,
    file: u32,
) -> anyhow::Result<Batch> {
    let version: Version =
        Version::parse(&format!("{}.{}.{}", file / 6, file / 2, project.len() % 7))?;
    let is_wheel = file.is_multiple_of(2);
    let end = if is_wheel { "-cp312-cp312-manylinux_2_28_x86_64.whl" } else { ".tar.gz" };
    let filename = format!("{}-{}{end}", project.replace('-', "_"), version.as_str());
    let who: UserName = stage.user_name();
    let decision = upload::file(
        snapshot,
        &upload::FileUpload {
            stage,
            project: &ProjectName::normalize(project)?,
            version: &version,
            filename: &Filename::parse(&filename)?,
            role: FileRole::Release,
            digest: Digest::of(filename.as_bytes()),
            size_bytes: 123_456,
            requires_python: Some(">=3.9"),
            core_metadata: is_wheel
                .then(|| Digest::of(format!("metadata of {filename}").as_bytes())),
            provenance: None,
            is_attested: false,
            metadata: Some(Digest::of(
                format!("release {project} {}", version.as_str()).as_bytes(),
            )),
            who: Some(&who),
            publisher: None,
            at: Timestamp::from_second(FIRST_UPLOAD + i64::from(file))?,
            log: &[],
        },
    )?;
    decision.batch().ok_or_else(|| anyhow::anyhow!("{filename} is there already"))
}

async fn fill(data_dir: &Path, projects: u32, files: u32) -> anyhow::Result<()> {
    anyhow::ensure!(projects < LETTERS, "expected fewer than {LETTERS} projects, got {projects}");
    state::setup::create_data_dir(data_dir)?;
    let location = DatabaseLocation::Sqlite(data_dir.join("records.db"));
    let store = Records::open(&location, RecordsOptions::default()).await?;
    let mut restore = store.restore().await?;

    let stage: StageName = STAGE.parse()?;
    let mut latest = Latest::default();
    let edit = ConfigEdit::parse(&serde_json::json!({}))?;
    latest.commit(stage::create(&Snapshot::default(), &stage, &edit)?.0);
    let created: Vec<Record> = latest.records.values().cloned().collect();
    let snapshot = Snapshot::default().apply(&created).snapshot;
    for number in 0..projects {
        let project = name(number);
        for file in 0..files {
            latest.commit(uploaded(&snapshot, &stage, &project, file)?);
        }
        for record in std::mem::take(&mut latest.records).into_values() {
            restore.take(record).await?;
        }
    }
    restore.finish(latest.serial).await?;
    store.close().await;
    // An empty place for blobs, for `larder adopt`: a server refuses to start where blobs that records name are gone.
    let blobs = BlobLocation::Directory(data_dir.join("blobs"));
    BlobStore::open(&blobs, &data_dir.join("spool")).await?;
    println!("{} files of {projects} projects in {STAGE}", u64::from(projects) * u64::from(files));
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data_dir, projects, files] = arguments.as_slice() else {
        anyhow::bail!("expected DATA_DIR PROJECTS FILES_PER_PROJECT, got {arguments:?}");
    };
    fill(&PathBuf::from(data_dir), projects.parse()?, files.parse()?).await
}
