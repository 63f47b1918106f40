//! A store in memory for tests: it commits batches with their preconditions and applies them to a snapshot.

use std::collections::BTreeMap;

use account::{AuthMethod, Identity, Principal, Scopes, User, UserName};
use bytes::Bytes;
use jiff::Timestamp;
use record::{Batch, Digest, Key, KeyState, Mismatch, Record, Serial};
use serde_json::{Value, json};

use crate::change::{self, Decision, upload::FileUpload};
use crate::{
    ChangeError, ConfigEdit, Directory, FileRole, Filename, ProjectName, Snapshot, StageName,
    Version,
};

#[derive(Default)]
pub(crate) struct World {
    pub(crate) records: BTreeMap<Key, Record>,
    pub(crate) serial: u64,
    pub(crate) snapshot: Snapshot,
}

pub(crate) fn stage_name(text: &str) -> StageName {
    text.parse().expect("a stage's name")
}

pub(crate) fn project_name(text: &str) -> ProjectName {
    ProjectName::normalize(text).expect("a project's name")
}

pub(crate) fn user_name(text: &str) -> UserName {
    text.parse().expect("a user's name")
}

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// The time of everything that happens in a [`World`].
pub(crate) fn now() -> Timestamp {
    time("2026-01-31T12:34:56.789Z")
}

pub(crate) fn principal(name: &str) -> Principal {
    let user = User::new(user_name(name), now());
    let (means, scopes) = (AuthMethod::Password, Scopes::ALL);
    Principal::User(Identity { user: user.into(), means, scopes, limits: None })
}

/// The metadata of uploads in a [`World`].
pub(crate) fn metadata(project: &str, version: &str) -> Bytes {
    json!({"name": project, "version": version, "summary": "a test"}).to_string().into()
}

impl World {
    pub(crate) fn new() -> World {
        let mut world = World::default();
        for user in ["alice", "bob", "root"] {
            world.write(&format!("user/{user}"), Some("{}"));
        }
        world
    }

    /// Writes a body without preconditions.
    pub(crate) fn write(&mut self, key: &str, body: Option<&str>) {
        let key = Key::new(key).expect("a key");
        let expected = record::Expected::Anything;
        let batch = match body {
            Some(body) => Batch::new().put(key, expected, body.to_owned(), Vec::new()),
            None => Batch::new().delete(key, expected),
        };
        self.commit(batch).expect("nothing is expected");
    }

    pub(crate) fn found(&self, key: &Key) -> KeyState {
        match self.records.get(key) {
            Some(record) => KeyState { serial: record.serial, is_present: record.body.is_some() },
            None => KeyState { serial: Serial::ZERO, is_present: false },
        }
    }

    /// Commits as the store would, and applies the records to the snapshot.
    pub(crate) fn commit(&mut self, batch: Batch) -> Result<Serial, Mismatch> {
        assert_eq!(batch.key_written_twice(), None);
        let conditions = batch.writes.iter().map(|write| (&write.key, write.expected));
        let checks = batch.checks.iter().map(|(key, expected)| (key, *expected));
        for (key, expected) in conditions.chain(checks) {
            let found = self.found(key);
            if !expected.holds(found) {
                return Err(Mismatch { key: key.clone(), expected, found });
            }
        }
        self.serial += 1;
        let serial = Serial(self.serial);
        let written: Vec<Record> = batch
            .writes
            .into_iter()
            .map(|write| Record { key: write.key, serial, body: write.body, blobs: write.blobs })
            .collect();
        for record in &written {
            self.records.insert(record.key.clone(), record.clone());
        }
        let applied = self.snapshot.apply(&written);
        assert_eq!(applied.troubles, []);
        self.snapshot = applied.snapshot;
        Ok(serial)
    }

    /// A snapshot built from all records at once.
    pub(crate) fn rebuilt(&self) -> Snapshot {
        let records: Vec<Record> = self.records.values().cloned().collect();
        Snapshot::new().apply(&records).snapshot
    }

    pub(crate) fn create(&mut self, name: &str, config: Value) -> &mut World {
        let edit = ConfigEdit::parse(&config).expect("a configuration");
        let (batch, _) =
            change::stage::create(&self.snapshot, &stage_name(name), &edit).expect("a new stage");
        self.commit(batch).expect("no conflict");
        self
    }

    pub(crate) fn modify(&mut self, name: &str, edit: Value) -> &mut World {
        let edit = ConfigEdit::parse(&edit).expect("an edit");
        let (batch, _) = change::stage::modify(&self.snapshot, &stage_name(name), &edit, false)
            .expect("a stage and a good edit");
        if let Some(batch) = batch {
            self.commit(batch).expect("no conflict");
        }
        self
    }

    /// Decides on alice's upload of a file, without committing it.
    pub(crate) fn decide(
        &self,
        stage: &str,
        filename: &str,
        content: &str,
    ) -> Result<Decision, ChangeError> {
        let (project, version) = filename.split_once('-').expect("project-version");
        let version = version.split(['-']).next().expect("a version");
        let ends = [".tar.gz", ".tgz", ".doc.zip", ".zip", ".whl"];
        let version = ends.iter().find_map(|end| version.strip_suffix(end)).unwrap_or(version);
        let is_wheel = filename.ends_with(".whl");
        let role = match filename.ends_with(".doc.zip") {
            true => FileRole::Docs,
            false => FileRole::Release,
        };
        let upload = FileUpload {
            stage: &stage_name(stage),
            project: &project_name(project),
            version: &Version::parse(version).expect("a version"),
            filename: &Filename::parse(filename).expect("a file name"),
            role,
            digest: Digest::of(content.as_bytes()),
            size_bytes: content.len() as u64,
            requires_python: is_wheel.then_some(">=3.9"),
            core_metadata: is_wheel.then(|| Digest::of(b"METADATA")),
            provenance: None,
            is_attested: false,
            metadata: Some(Digest::of(&metadata(project, version))),
            who: Some(&user_name("alice")),
            publisher: None,
            at: now(),
            log: &[],
        };
        let decision = change::upload::file(&self.snapshot, &upload);
        // The answer before the metadata is known must hold afterwards.
        let early = FileUpload { metadata: None, ..upload };
        match change::upload::is_kept(&self.snapshot, &early) {
            Ok(true) => assert_eq!(decision, Ok(Decision::AlreadyThere)),
            Ok(false) => assert!(decision.is_ok(), "{decision:?}"),
            Err(error) => assert_eq!(decision, Err(error)),
        }
        decision
    }

    pub(crate) fn upload(&mut self, stage: &str, filename: &str, content: &str) -> &mut World {
        match self.decide(stage, filename, content).expect("an upload that is taken") {
            Decision::Commit(batch) => _ = self.commit(batch).expect("no conflict"),
            Decision::AlreadyThere => {}
        }
        self
    }

    /// What stores a result `{}` of tests of the file with this content.
    pub(crate) fn tox_result(&self, stage: &str, content: &str, filename: &str) -> Option<Batch> {
        let upload = change::upload::ToxUpload {
            stage: &stage_name(stage),
            directory: Directory::of(&Digest::of(content.as_bytes())),
            filename,
            name: None,
            digest: Digest::of(b"{}"),
            size_bytes: 2,
            who: None,
            at: now(),
            log: &[],
            is_bounded: true,
        };
        change::upload::tox_result(&self.snapshot, &upload).ok().map(|(batch, _)| batch)
    }

    pub(crate) fn register(&mut self, stage: &str, project: &str, version: &str) -> &mut World {
        assert!(self.register_if_possible(stage, project, version));
        self
    }

    /// Registers a release if the stage exists.
    pub(crate) fn register_if_possible(
        &mut self,
        stage: &str,
        project: &str,
        version: &str,
    ) -> bool {
        let digest = Digest::of(&metadata(project, version));
        let version = Version::parse(version).expect("a version");
        let (stage, project) = (stage_name(stage), project_name(project));
        let decision = change::upload::submit(&self.snapshot, &stage, &project, &version, digest);
        let Ok(decision) = decision else { return false };
        if let Some(batch) = decision.batch() {
            self.commit(batch).expect("no conflict");
        }
        true
    }
}
