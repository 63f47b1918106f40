//! Measures the Python index alone, without a server: `scale [PROJECTS] [FILES_PER_PROJECT]`.
//!
//! Prints the resident memory and the time for loading this many release files (a million by default), and the times
//! for a finished page, for checking whether one is valid, and for making one: 255 files in a stage over 28 bases,
//! and 6,000 files in one stage. See bench/README.md.

use std::time::{Duration, Instant};

use account::UserName;
use jiff::Timestamp;
use pypi::change::{stage, upload};
use pypi::{
    ConfigEdit, FileRole, Filename, PageBudget, PageForm, PageRequest, Pages, ProjectName,
    Snapshot, StageName, Version,
};
use record::{Batch, Digest, Record, Serial};
use reply::Encoding;

/// Turns batches into records as a store would, without checking their preconditions.
#[derive(Default)]
struct Store {
    serial: u64,
    snapshot: Snapshot,
    pending: Vec<Record>,
    applying: Duration,
}

impl Store {
    fn commit(&mut self, batch: Batch) {
        self.serial += 1;
        let serial = Serial(self.serial);
        self.pending.extend(batch.writes.into_iter().map(|write| Record {
            key: write.key,
            serial,
            body: write.body,
            blobs: write.blobs,
        }));
    }

    fn apply(&mut self) {
        let started = Instant::now();
        let applied = self.snapshot.apply(&self.pending);
        assert!(applied.troubles.is_empty(), "{:?}", applied.troubles);
        self.snapshot = applied.snapshot;
        self.pending.clear();
        self.applying += started.elapsed();
    }

    fn create(&mut self, name: &str, config: serde_json::Value) -> StageName {
        let name: StageName = name.parse().expect("a name");
        let edit = ConfigEdit::parse(&config).expect("a configuration");
        let (batch, _) = stage::create(&self.snapshot, &name, &edit).expect("a new stage");
        self.commit(batch);
        self.apply();
        name
    }

    /// Adds a file, decided on the snapshot `on`, which need not be the newest.
    fn upload(
        &mut self,
        on: &Snapshot,
        stage: &StageName,
        project: &str,
        version: &str,
        end: &str,
    ) {
        let filename = format!("{project}-{version}{end}");
        let is_wheel = end.ends_with(".whl");
        let user: UserName = stage.user_name();
        let decision = upload::file(
            on,
            &upload::FileUpload {
                stage,
                project: &ProjectName::normalize(project).expect("a name"),
                version: &Version::parse(version).expect("a version"),
                filename: &Filename::parse(&filename).expect("a name"),
                role: FileRole::Release,
                digest: Digest::of(format!("{stage}{filename}").as_bytes()),
                size_bytes: 123_456,
                requires_python: Some(">=3.9"),
                core_metadata: is_wheel.then(|| Digest::of(format!("m{filename}").as_bytes())),
                provenance: None,
                is_attested: false,
                metadata: Some(Digest::of(format!("{project}{version}").as_bytes())),
                who: Some(&user),
                publisher: None,
                at: Timestamp::from_second(1_769_862_896 + self.serial as i64).expect("a time"),
                log: &[],
            },
        );
        self.commit(decision.expect("an upload").batch().expect("a change"));
    }
}

/// Resident memory, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    1024 * kilobytes.unwrap_or_default()
}

fn timed(what: &str, rounds: u32, mut work: impl FnMut()) {
    let started = Instant::now();
    for _ in 0..rounds {
        work();
    }
    println!("{:>10.2?}  {what}", started.elapsed() / rounds);
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let projects: u32 = numbers.next().unwrap_or(100_000);
    let files: u32 = numbers.next().unwrap_or(10);

    let mut store = Store::default();
    let stage = store.create("team/releases", serde_json::json!({}));
    let empty = store.snapshot.clone();
    store.applying = Duration::ZERO;
    let before = resident_bytes();
    for project in 0..projects {
        for file in 0..files {
            let version = format!("{}.{}.{}", file / 6, file / 2, project % 7);
            let end = ["-cp312-cp312-manylinux_2_28_x86_64.whl", ".tar.gz"][(file % 2) as usize];
            let name = format!("some_company_package_{project}");
            store.upload(&empty, &stage, &name, &version, end);
        }
        if project % 256 == 0 || project + 1 == projects {
            store.apply();
        }
    }
    // Memory reserved for further records is not part of the snapshot.
    store.pending = Vec::new();
    let grown = resident_bytes().saturating_sub(before);
    let count = store.snapshot.file_count() as u64;
    println!(
        "{count} files in {projects} projects: {} MB, {} bytes a file; applied in {:.2?}",
        grown >> 20,
        grown / count.max(1),
        store.applying
    );

    let bases: Vec<String> = (0..28).map(|number| format!("team/base{number}")).collect();
    for base in &bases {
        store.create(base, serde_json::json!({}));
    }
    let dev = store.create("team/dev", serde_json::json!({ "bases": bases }));
    let on = store.snapshot.clone();
    for number in 0..255 {
        let target = match number % 29 {
            28 => dev.clone(),
            base => bases[base as usize].parse().expect("a name"),
        };
        store.upload(&on, &target, "slow", &format!("1.{number}"), "-py3-none-any.whl");
    }
    for number in 0..6000 {
        store.upload(&on, &dev, "large", &format!("1.{number}"), "-py3-none-any.whl");
    }
    store.apply();

    let budget = PageBudget { page_bytes_max: 256 << 20, list_bytes_max: 256 << 20 };
    let pages = Pages::new(budget, jiff::Timestamp::now);
    let request = |stage, project, form, depth| PageRequest { stage, project, form, depth };
    let slow = request("team/dev", "slow", PageForm::Html, 4);
    let page = pages.page(&store.snapshot, slow).expect("a page");
    println!(
        "255 files over 28 bases: {} bytes, gzip {}, zstd {}",
        page.body().form(Encoding::Identity).len(),
        page.body().form(Encoding::Gzip).len(),
        page.body().form(Encoding::Zstd).len()
    );
    timed("a page that is ready", 200_000, || {
        std::hint::black_box(pages.ready(&store.snapshot, slow).expect("a page"));
    });
    for (what, project, form) in [
        ("making 255 files over 28 bases, HTML", "slow", PageForm::Html),
        ("making 255 files over 28 bases, JSON", "slow", PageForm::Json),
        ("making 6,000 files of one stage, HTML", "large", PageForm::Html),
    ] {
        timed(what, 100, || {
            let pages = Pages::new(
                PageBudget { page_bytes_max: 1 << 20, list_bytes_max: 1 },
                jiff::Timestamp::now,
            );
            let request = request("team/dev", project, form, 4);
            std::hint::black_box(pages.page(&store.snapshot, request).expect("a page"));
        });
    }
    let body = &page.reply().body;
    timed("gzip of that page", 100, || _ = std::hint::black_box(Encoding::Gzip.encode(body)));
    timed("zstd of that page", 100, || _ = std::hint::black_box(Encoding::Zstd.encode(body)));
    timed("making the list of all projects, JSON", 3, || {
        let pages =
            Pages::new(PageBudget { page_bytes_max: 1, list_bytes_max: 1 }, jiff::Timestamp::now);
        let request = request("team/releases", "", PageForm::Json, 3);
        std::hint::black_box(pages.page(&store.snapshot, request).expect("a list"));
    });

    // Something unrelated is committed between any two requests.
    let on = store.snapshot.clone();
    let mut elapsed = (Duration::ZERO, Duration::ZERO);
    for number in 0..1000 {
        store.upload(&on, &stage, "unrelated", &format!("1.{number}"), ".tar.gz");
        let started = Instant::now();
        store.apply();
        elapsed.0 += started.elapsed();
        let started = Instant::now();
        std::hint::black_box(pages.ready(&store.snapshot, slow).expect("a page"));
        elapsed.1 += started.elapsed();
    }
    println!("{:>10.2?}  applying one upload", elapsed.0 / 1000);
    println!("{:>10.2?}  looking whether that page is still right, 28 bases", elapsed.1 / 1000);
}
