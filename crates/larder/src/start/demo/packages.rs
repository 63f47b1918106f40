//! The packages of the demonstration: small wheels that work, in two stages of which one inherits from the other.
//!
//! [`RELEASES`] -> bytes of a wheel -> checked, as an upload is -> blobs and a commit for each.

use std::io::{Cursor, Write as _};

use anyhow::Context;
use bytes::Bytes;
use operations::carry_out;
use operations::indexes::CreateIndex;
use operations::uploads::UploadFile;
use pypi::archive::{ArchiveLimits, inspect};
use pypi::{ConfigEdit, FileRole, Filename, Metadata, StageName};
use rawzip::ZipArchiveWriter;
use record::Digest;
use serde_json::json;
use state::release_metadata;

use super::root;
use crate::app::App;

/// The stage with releases that everybody uses.
const STABLE: &str = "root/stable";

/// The stage with newer packages; the other one is its base.
pub(super) const DEV: &str = "root/dev";

/// A release of one wheel with one module.
pub(super) struct Release {
    pub(super) stage: &'static str,
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) summary: &'static str,
    pub(super) requires: &'static [&'static str],
    pub(super) module: &'static str,
}

const HELLO: &str = "from larder_greetings import greeting\n\n\nif __name__ == \"__main__\":\n    print(greeting(\"Larder\"))\n";
const GREETINGS: &str = "def greeting(name):\n    return f\"Hello from {name}!\"\n";
const COLORS: &str = "NAMES = (\"saffron\", \"pepper\", \"mint\", \"plum\")\n\n\ndef color(number):\n    return NAMES[number % len(NAMES)]\n";

const RELEASES: [Release; 6] = [
    Release {
        stage: STABLE,
        name: "larder-greetings",
        version: "1.0",
        summary: "Greets whoever it is told to greet",
        requires: &[],
        module: GREETINGS,
    },
    Release {
        stage: STABLE,
        name: "larder-greetings",
        version: "1.1",
        summary: "Greets whoever it is told to greet",
        requires: &[],
        module: GREETINGS,
    },
    Release {
        stage: STABLE,
        name: "larder-colors",
        version: "1.0",
        summary: "Names of four colors",
        requires: &[],
        module: COLORS,
    },
    Release {
        stage: STABLE,
        name: "larder-hello",
        version: "0.1",
        summary: "Says hello",
        requires: &["larder-greetings>=1.0"],
        module: HELLO,
    },
    Release {
        stage: DEV,
        name: "larder-hello",
        version: "0.2",
        summary: "Says hello, and is newer",
        requires: &["larder-greetings>=1.1", "larder-colors"],
        module: HELLO,
    },
    Release {
        stage: DEV,
        name: "larder-greetings",
        version: "2.0rc1",
        summary: "Greets whoever it is told to greet; not released yet",
        requires: &[],
        module: GREETINGS,
    },
];

impl Release {
    fn module_name(&self) -> String {
        self.name.replace('-', "_")
    }

    pub(super) fn filename(&self) -> String {
        format!("{}-{}-py3-none-any.whl", self.module_name(), self.version)
    }

    /// The wheel: the same bytes each time.
    pub(super) fn wheel(&self) -> anyhow::Result<Vec<u8>> {
        let (module, version) = (self.module_name(), self.version);
        let about = format!("{module}-{version}.dist-info");
        let requires: String =
            self.requires.iter().map(|name| format!("Requires-Dist: {name}\n")).collect();
        let metadata = format!(
            "Metadata-Version: 2.1\nName: {}\nVersion: {version}\nSummary: {}\nLicense: MIT OR Apache-2.0\n\
             Requires-Python: >=3.8\n{requires}Description-Content-Type: text/markdown\n\n# {}\n\n\
             {}. It comes with the demonstration of Larder.\n",
            self.name, self.summary, self.name, self.summary
        );
        let tags =
            "Wheel-Version: 1.0\nGenerator: larder\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
        let paths = [
            (format!("{module}.py"), self.module.to_owned()),
            (format!("{about}/METADATA"), metadata),
            (format!("{about}/WHEEL"), tags.to_owned()),
        ];
        // Installers write the list of digests themselves; it may be empty here.
        let listed: String = paths.iter().map(|(path, _)| format!("{path},,\n")).collect();
        let record = (format!("{about}/RECORD"), format!("{listed}{about}/RECORD,,\n"));
        let mut archive = ZipArchiveWriter::new(Cursor::new(Vec::new()));
        for (path, text) in paths.iter().chain([&record]) {
            let (mut entry, config) = archive.new_file(path.as_str()).start()?;
            let mut writer = config.wrap(&mut entry);
            writer.write_all(text.as_bytes())?;
            let (_, written) = writer.finish()?;
            entry.finish(written)?;
        }
        Ok(archive.finish()?.into_inner())
    }
}

/// Writes them into a store that has neither stage.
///
/// # Errors
/// Those of the store.
pub(super) async fn write(app: &App) -> anyhow::Result<()> {
    let (stable, dev): (StageName, StageName) = (STABLE.parse()?, DEV.parse()?);
    let Some(stored) = app.live_store.snapshot_full() else { return Ok(()) };
    if [&stable, &dev].iter().any(|name| stored.index.stage(name.as_str()).is_some()) {
        return Ok(());
    }
    drop(stored);
    for (name, bases) in [(&stable, json!([])), (&dev, json!([STABLE]))] {
        let edit = ConfigEdit::parse(&json!({ "bases": bases }))?;
        let creating = CreateIndex { stage: name.clone(), edit };
        carry_out(&mut app.keeper(), &root(app)?, &creating).await?;
    }
    for release in &RELEASES {
        let what = || format!("{} {}", release.name, release.version);
        upload(app, release).await.with_context(what)?;
    }
    Ok(())
}

async fn upload(app: &App, release: &Release) -> anyhow::Result<()> {
    let bytes = Bytes::from(release.wheel()?);
    let filename = Filename::parse(&release.filename())?;
    let size_bytes = bytes.len() as u64;
    let facts = inspect(&bytes[..], size_bytes, &filename, &ArchiveLimits::default())?;
    let core_metadata = Bytes::from(facts.metadata.context("a wheel has metadata")?);
    let metadata = Metadata::read(&core_metadata)?.with_empty_fields();
    let blobs = &app.store.blobs;
    let (digest, core_digest) = (Digest::of(&bytes), Digest::of(&core_metadata));
    let release_digest = blobs.put(release_metadata::blob(&metadata)?).await?.digest;
    blobs.put(bytes).await?;
    blobs.put(core_metadata).await?;
    let uploading = UploadFile {
        stage: release.stage.parse()?,
        project: metadata.project()?,
        version: metadata.version()?,
        filename,
        role: FileRole::Release,
        digest,
        size_bytes,
        requires_python: metadata.requires_python().map(str::to_owned),
        core_metadata: Some(core_digest),
        provenance: None,
        is_attested: false,
        metadata: Some(release_digest),
    };
    carry_out(&mut app.keeper(), &root(app)?, &uploading).await?;
    Ok(())
}
