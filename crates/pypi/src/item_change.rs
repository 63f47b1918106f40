//! [`ItemChange`]: what a record changed in the index, for followers.
//!
//! a record's key, the snapshot before, the snapshot after -> [`ItemChange::of`] -> an item that was added, changed or removed.

use account::Acl;
use jiff::Timestamp;
use record::{ChangeKind, Key};

use crate::record::Subject;
use crate::{Project, ProjectName, Release, ReleaseFile, Snapshot, Stage, StageConfig, StageName};

/// The item of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A stage, or its configuration.
    Stage,
    /// A project's status.
    Project,
    /// A version, by its name.
    Release(Box<str>),
    /// A file, by its name.
    File(Box<str>),
}

/// A change of one item of a stage.
#[derive(Clone, Debug)]
pub struct ItemChange {
    /// The stage with the item.
    pub stage: StageName,
    /// Its project; None for the stage itself.
    pub project: Option<ProjectName>,
    /// The item.
    pub item: Item,
    /// Whether it was added, changed or removed.
    pub kind: ChangeKind,
    /// What differs, if it existed before: settings of a stage, fields of other items.
    pub fields: Vec<&'static str>,
    /// Who uploaded the file: a user, or a job of a CI system.
    pub by: Option<String>,
    /// When the file was uploaded.
    pub at: Option<Timestamp>,
    /// Who could read the item at the change: after it, or before it if the item is gone; `None` if that is not known.
    pub readers: Option<Acl>,
    /// Who could read the item before, if it existed and its stage was removed or has other readers now.
    pub readers_before: Option<Acl>,
}

impl ItemChange {
    /// The change that the record under `key` made; `None` if it is no record of the index, or shows nothing new. Without
    /// `before`, everything that exists counts as added, and everything else as removed.
    pub fn of(before: Option<&Snapshot>, key: &Key, after: &Snapshot) -> Option<ItemChange> {
        let subject = Subject::of(key)?.ok()?;
        let (stage, project) = match subject {
            Subject::Stage { stage } => (stage, None),
            Subject::Project { stage, project }
            | Subject::Version { stage, project, .. }
            | Subject::File { stage, project, .. } => (stage, Some(project)),
        };
        let is_first = before.is_none();
        let (old, new) = (before.and_then(|before| before.stage(stage)), after.stage(stage));
        let project_in = |stage: Option<&'_ std::sync::Arc<Stage>>| {
            stage.and_then(|stage| stage.project(project?)).cloned()
        };
        let (old_project, new_project) = (project_in(old), project_in(new));
        let (old_project, new_project) = (old_project.as_deref(), new_project.as_deref());
        let (mut by, mut at) = (None, None);
        // Whether a project was there is known only from the state before.
        let mut could_be_read = true;
        let (item, was_there, is_there, fields) = match subject {
            Subject::Stage { .. } => {
                let fields = match (old, new) {
                    (Some(old), Some(new)) => settings(old.config(), new.config()),
                    _ => Vec::new(),
                };
                (Item::Stage, old.is_some(), new.is_some(), fields)
            }
            // A project is there through its files; its record is its status.
            Subject::Project { .. } => {
                let (old, new) = (status(old_project), status(new_project));
                if old == new && !is_first {
                    return None;
                }
                let fields = vec!["status"];
                let is_there = new_project.is_some();
                could_be_read = old_project.is_some();
                (Item::Project, old_project.is_some() || is_there, is_there, fields)
            }
            Subject::Version { version, .. } => {
                let find = |project: Option<&'_ Project>| {
                    project.and_then(|project| project.release(version)).cloned()
                };
                let (old, new) = (find(old_project), find(new_project));
                let fields = match (&old, &new) {
                    (Some(old), Some(new)) => release_fields(old, new),
                    _ => Vec::new(),
                };
                (Item::Release(version.into()), old.is_some(), new.is_some(), fields)
            }
            Subject::File { filename, .. } => {
                let find = |project: Option<&'_ Project>| {
                    project.and_then(|project| project.file(filename)).cloned()
                };
                let (old, new) = (find(old_project), find(new_project));
                let fields = match (&old, &new) {
                    (Some(old), Some(new)) => file_fields(old, new),
                    _ => Vec::new(),
                };
                if let Some(new) = &new {
                    at = Some(new.uploaded_at());
                    by = new.brought_by().map(str::to_owned);
                }
                (Item::File(filename.into()), old.is_some(), new.is_some(), fields)
            }
        };
        let kind = match ChangeKind::of(was_there, is_there) {
            None if is_first => ChangeKind::Removed,
            kind => kind?,
        };
        if kind == ChangeKind::Changed && fields.is_empty() {
            return None;
        }
        if kind == ChangeKind::Changed {
            // If an existing file changed in other ways, the record says neither who did it, nor when.
            let is_replaced = fields.contains(&"sha256");
            (by, at) = if is_replaced { (by, at) } else { (None, None) };
        }
        // Clients that can no longer read the stage must not learn a name that came with the change.
        let readers_before = old
            .filter(|_| was_there && could_be_read)
            .map(|old| &old.config().acl_read)
            .filter(|before| new.is_none_or(|new| new.config().acl_read != **before));
        let held_by = if is_there || is_first { new } else { old };
        let readers = held_by.map(|stage| stage.config().acl_read.clone());
        Some(ItemChange {
            stage: stage.parse().ok()?,
            project: match project {
                Some(project) => Some(ProjectName::normalize(project).ok()?),
                None => None,
            },
            item,
            kind,
            fields,
            by,
            at,
            readers,
            readers_before: readers_before.cloned(),
        })
    }

    /// The stage of a record, and whether it is the stage's own record, which says who may read. After that has changed, only
    /// those who saw it know who could read before. `None` for other records.
    pub fn stage_of(key: &Key) -> Option<(&str, bool)> {
        Some(match Subject::of(key)?.ok()? {
            Subject::Stage { stage } => (stage, true),
            Subject::Project { stage, .. }
            | Subject::Version { stage, .. }
            | Subject::File { stage, .. } => (stage, false),
        })
    }
}

fn status(project: Option<&Project>) -> Option<&crate::ProjectStatus> {
    project.and_then(Project::status)
}

/// The names of the settings that differ.
fn settings(old: &StageConfig, new: &StageConfig) -> Vec<&'static str> {
    StageConfig::differing(old, new)
}

fn release_fields(old: &Release, new: &Release) -> Vec<&'static str> {
    let fields = [("metadata", old.metadata != new.metadata), ("yanked", old.yanked != new.yanked)];
    differing(fields)
}

fn file_fields(old: &ReleaseFile, new: &ReleaseFile) -> Vec<&'static str> {
    differing([
        ("sha256", old.digest() != new.digest()),
        ("yanked", old.yanked() != new.yanked()),
        ("requires_python", old.requires_python() != new.requires_python()),
        ("core_metadata", old.core_metadata() != new.core_metadata()),
        ("provenance", old.provenance() != new.provenance()),
        ("uploader", old.uploader() != new.uploader()),
        ("uploaded_at", old.uploaded_at() != new.uploaded_at()),
    ])
}

fn differing<const COUNT: usize>(fields: [(&'static str, bool); COUNT]) -> Vec<&'static str> {
    fields.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    const STAGE: &str = r#"{"v":1,"config":{"type":"stage","bases":[]}}"#;

    /// Writes `body` under `key` and says what that changed: kind, type and name, fields.
    #[track_caller]
    fn check(world: &mut World, key: &str, body: Option<&str>, expected: &str) {
        let before = world.snapshot.clone();
        world.write(key, body);
        let key = Key::new(key).expect("a key");
        let change = ItemChange::of(Some(&before), &key, &world.snapshot);
        let found = change.map_or_else(String::new, |change| {
            let project = change.project.as_ref().map_or("", |project| project.as_str());
            let fields = change.fields.join(",");
            format!(
                "{} {} {project} {:?} {fields}",
                change.kind.as_str(),
                change.stage,
                change.item
            )
        });
        assert_eq!(found.trim_end(), expected, "{key} {body:?}");
    }

    #[test]
    fn records_are_told_apart_by_what_was_there_before() {
        let mut world = World::new();
        check(&mut world, "user/carl", Some("{}"), "");
        check(&mut world, "python/stage/bob/dev", Some(STAGE), "added bob/dev  Stage");
        check(&mut world, "python/stage/bob/dev", Some(STAGE), "");
        let title = STAGE.replace(r#""bases""#, r#""title":"x","bases""#);
        check(&mut world, "python/stage/bob/dev", Some(&title), "changed bob/dev  Stage title");
        let digest = "0".repeat(64);
        let version = format!(r#"{{"v":1,"metadata":"{digest}"}}"#);
        let yanked = format!(r#"{{"v":1,"metadata":"{digest}","yanked":"bad"}}"#);
        let key = "python/version/bob/dev/p/1";
        check(&mut world, key, Some(&version), r#"added bob/dev p Release("1")"#);
        check(&mut world, key, Some(&yanked), r#"changed bob/dev p Release("1") yanked"#);
        check(&mut world, key, None, r#"removed bob/dev p Release("1")"#);
        check(&mut world, key, None, "");
        check(&mut world, "python/stage/bob/dev", None, "removed bob/dev  Stage");
    }

    #[test]
    fn who_could_read_is_kept_where_the_stage_does_not_say_it_any_more() {
        let mut world = World::new();
        world.write("python/stage/bob/dev", Some(STAGE));
        let key = Key::new("python/stage/bob/dev").expect("a key");
        let private = STAGE.replace(r#""bases""#, r#""acl_read":["bob"],"bases""#);
        for body in [Some(private.as_str()), None] {
            let before = world.snapshot.clone();
            world.write("python/stage/bob/dev", body);
            let change = ItemChange::of(Some(&before), &key, &world.snapshot).expect("a change");
            let readers = &before.stage("bob/dev").expect("it").config().acl_read;
            assert_eq!(change.readers_before.as_ref(), Some(readers), "{body:?}");
        }
        let change = ItemChange::of(None, &key, &world.snapshot).expect("a change");
        assert_eq!((change.kind, change.readers_before), (ChangeKind::Removed, None));
    }

    /// Several commits are applied at once: clients that could read before never saw the new items.
    #[test]
    fn what_was_not_there_is_told_only_to_those_who_may_read_it_now() {
        let digest = "0".repeat(64);
        let version = format!(r#"{{"v":1,"metadata":"{digest}"}}"#);
        let status = r#"{"v":1,"status":"archived"}"#;
        let private = STAGE.replace(r#""bases""#, r#""acl_read":["bob"],"bases""#);
        for (key, body) in [
            ("python/version/bob/dev/secret/1", version.as_str()),
            ("python/project/bob/dev/secret", status),
        ] {
            let mut world = World::new();
            world.write("python/stage/bob/dev", Some(STAGE));
            let before = world.snapshot.clone();
            world.write("python/stage/bob/dev", Some(&private));
            world.write("python/version/bob/dev/secret/1", Some(&version));
            world.write(key, Some(body));
            let key = Key::new(key).expect("a key");
            let change = ItemChange::of(Some(&before), &key, &world.snapshot).expect("a change");
            let readers = &world.snapshot.stage("bob/dev").expect("it").config().acl_read;
            assert_eq!(
                (change.readers.as_ref(), change.readers_before),
                (Some(readers), None),
                "{key}"
            );
        }
        // An item that was removed when the stage was opened is known to those who could read it then.
        let mut world = World::new();
        world.write("python/stage/bob/dev", Some(&private));
        let key = Key::new("python/version/bob/dev/secret/1").expect("a key");
        world.write(key.as_str(), Some(&version));
        let before = world.snapshot.clone();
        world.write(key.as_str(), None);
        world.write("python/stage/bob/dev", Some(STAGE));
        let change = ItemChange::of(Some(&before), &key, &world.snapshot).expect("a change");
        let readers = before.stage("bob/dev").expect("it").config().acl_read.clone();
        assert_eq!(change.readers.as_ref(), Some(&readers));
        assert_eq!(change.readers_before.as_ref(), Some(&readers));
    }
}
