//! [`RequiredBy`]: which projects a project is required by, among those of all stages.
//!
//! the names in the metadata of each project's newest version ([`RequiredNames`]) -> [`RequiredBy::set`], once a commit
//! changed the project -> [`RequiredBy::requiring`], for a page.
//! Names are numbers here, and an entry is three of them in an ordered set. So the next index shares all but a few nodes
//! with the one before, and what a reader may not see is passed over a stage at a time. Whether somebody may see a stage
//! is not known here.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::{ProjectName, Snapshot, StageName};

/// Names that are taken from the metadata of one version; the rest is left out.
pub(crate) const NAMES_MAX: usize = 1_000;

/// The number of a name.
type Id = u32;

/// What an entry takes, and a name beside its text, roughly, in bytes.
const ENTRY_BYTES: usize = 67;
const NAME_BYTES: usize = 64;

fn name_bytes(name: &impl Borrow<str>) -> usize {
    name.borrow().len() + NAME_BYTES
}

/// Which projects of which stages require a project. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RequiredBy {
    projects: Names<ProjectName>,
    stages: Names<StageName>,
    /// (required project, stage, project of the stage that requires it)
    entries: OrdSet<(Id, Id, Id)>,
    /// What each project of each stage requires: to take it out again.
    required: OrdMap<(Id, Id), Arc<[Id]>>,
}

/// Names, each with a number and with how many places have it: a name that is nowhere any more makes room.
#[derive(Clone, Debug)]
struct Names<Name: Ord> {
    ids: OrdMap<Name, Id>,
    names: Vector<Option<(Name, u32)>>,
    free: Vector<Id>,
    /// What the names take, roughly.
    bytes: usize,
}

impl<Name: Ord> Default for Names<Name> {
    fn default() -> Names<Name> {
        Names { ids: OrdMap::new(), names: Vector::new(), free: Vector::new(), bytes: 0 }
    }
}

impl<Name: Ord + Clone + Borrow<str>> Names<Name> {
    fn taken(&mut self, name: &Name) -> Id {
        if let Some(id) = self.ids.get(name) {
            let id = *id;
            if let Some(Some((_, places))) = self.names.get_mut(id as usize) {
                *places += 1;
            }
            return id;
        }
        let entry = Some((name.clone(), 1));
        let id = match self.free.pop_back() {
            Some(id) => {
                self.names.set(id as usize, entry);
                id
            }
            None => {
                self.names.push_back(entry);
                Id::try_from(self.names.len() - 1).expect("fewer names than fit into memory")
            }
        };
        self.ids.insert(name.clone(), id);
        self.bytes += name_bytes(name);
        id
    }

    fn left(&mut self, id: Id) {
        let Some(slot) = self.names.get_mut(id as usize) else { return };
        match slot {
            Some((_, places)) if *places > 1 => *places -= 1,
            _ => {
                if let Some((name, _)) = slot.take() {
                    self.ids.remove(&name);
                    self.bytes -= name_bytes(&name);
                    self.free.push_back(id);
                }
            }
        }
    }

    fn name(&self, id: Id) -> Option<&Name> {
        self.names.get(id as usize)?.as_ref().map(|(name, _)| name)
    }
}

impl RequiredBy {
    /// An index of nothing.
    pub fn new() -> RequiredBy {
        RequiredBy::default()
    }

    /// Notes what a project of a stage requires now, in place of what it required before; nothing, if it is gone. That it
    /// requires itself, with other extras, is left out.
    pub fn set(&mut self, stage: &StageName, project: &ProjectName, required: &RequiredNames) {
        self.clear(stage, project);
        let names: Vec<&ProjectName> = required.0.iter().filter(|name| *name != project).collect();
        if names.is_empty() {
            return;
        }
        let of = (self.stages.taken(stage), self.projects.taken(project));
        let ids: Arc<[Id]> = names.into_iter().map(|name| self.projects.taken(name)).collect();
        for id in &*ids {
            self.entries.insert((*id, of.0, of.1));
        }
        self.required.insert(of, ids);
    }

    fn clear(&mut self, stage: &StageName, project: &ProjectName) {
        let ids = self.stages.ids.get(stage).zip(self.projects.ids.get(project));
        let Some((stage, project)) = ids.map(|(stage, project)| (*stage, *project)) else { return };
        let Some(ids) = self.required.remove(&(stage, project)) else { return };
        for id in &*ids {
            self.entries.remove(&(*id, stage, project));
            self.projects.left(*id);
        }
        self.projects.left(project);
        self.stages.left(stage);
    }

    /// The projects that require `name`, those of a stage together; a stage that `admits` refuses is passed over at once,
    /// however many of its projects do. Each takes time in proportion to the logarithm of the number of entries.
    pub fn requiring<'index>(
        &'index self,
        name: &str,
        mut admits: impl FnMut(&StageName) -> bool,
    ) -> impl Iterator<Item = (&'index StageName, &'index ProjectName)> {
        let required = self.projects.ids.get(name).copied();
        let mut after = required.map(|required| Bound::Included((required, 0, 0)));
        let mut admitted = None;
        std::iter::from_fn(move || {
            loop {
                let (required, from) = (required?, after?);
                let found = self.entries.range((from, Bound::Unbounded)).next();
                let (_, stage, project) = *found.filter(|entry| entry.0 == required)?;
                let stage_name = self.stages.name(stage)?;
                if admitted != Some(stage) {
                    if !admits(stage_name) {
                        after = Some(Bound::Excluded((required, stage, Id::MAX)));
                        continue;
                    }
                    admitted = Some(stage);
                }
                after = Some(Bound::Excluded((required, stage, project)));
                return Some((stage_name, self.projects.name(project)?));
            }
        })
    }

    /// How many pairs of a project and one that it requires there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The memory that it takes, roughly, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.len() * ENTRY_BYTES + self.projects.bytes + self.stages.bytes
    }

    /// Whether no project requires another one.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The projects that a version requires, with any of its extras: at most [`NAMES_MAX`], each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredNames(BTreeSet<ProjectName>);

impl RequiredNames {
    /// Those in the JSON of a version's metadata.
    ///
    /// # Errors
    /// If it is no JSON, or its `requires_dist` is no list.
    pub fn of_metadata(json: &[u8]) -> Result<RequiredNames, serde_json::Error> {
        #[derive(serde::Deserialize)]
        struct Wire {
            #[serde(default)]
            requires_dist: RequiredNames,
        }
        serde_json::from_slice(json).map(|Wire { requires_dist }| requires_dist)
    }

    /// The names, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &ProjectName> {
        self.0.iter()
    }
}

impl<'text> FromIterator<&'text str> for RequiredNames {
    fn from_iter<Texts: IntoIterator<Item = &'text str>>(texts: Texts) -> RequiredNames {
        RequiredNames(texts.into_iter().filter_map(required_name).take(NAMES_MAX).collect())
    }
}

/// The project that a requirement such as `foo[bar]>=1; extra == "baz"` is for.
pub fn required_name(requirement: &str) -> Option<ProjectName> {
    let text = requirement.trim_start();
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')));
    ProjectName::parse(&text[..end.unwrap_or(text.len())]).ok()
}

impl<'de> Deserialize<'de> for RequiredNames {
    /// Reads a list of requirements, or `null`. However long the list is, no more than [`NAMES_MAX`] names are in memory.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequiredNames, D::Error> {
        struct Requirements;
        impl<'de> Visitor<'de> for Requirements {
            type Value = RequiredNames;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of requirements")
            }

            fn visit_unit<E>(self) -> Result<RequiredNames, E> {
                Ok(RequiredNames::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RequiredNames, A::Error> {
                let mut names = BTreeSet::new();
                while names.len() < NAMES_MAX {
                    let Some(Text(text)) = list.next_element()? else {
                        return Ok(RequiredNames(names));
                    };
                    names.extend(required_name(&text));
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(RequiredNames(names))
            }
        }
        deserializer.deserialize_any(Requirements)
    }
}

/// A text, borrowed where it can be.
#[derive(serde::Deserialize)]
struct Text<'text>(#[serde(borrow)] std::borrow::Cow<'text, str>);

impl Snapshot {
    /// The projects whose newest version is described by another metadata blob than in `before`, with that blob; `None` for
    /// those that are gone, or have no version that says anything. Takes time in proportion to the number of stages and
    /// to what differs, if one of both snapshots was made of the other.
    pub fn described_anew_since(
        &self,
        before: &Snapshot,
    ) -> Vec<(StageName, ProjectName, Option<record::Digest>)> {
        let mut changed = Vec::new();
        let stages = self.traces().map(|stage| stage.name()).chain(
            before
                .traces()
                .map(|stage| stage.name())
                .filter(|name| self.trace(name.as_str()).is_none()),
        );
        for name in stages {
            let (old, new) = (before.trace(name.as_str()), self.trace(name.as_str()));
            if let (Some(old), Some(new)) = (old, new)
                && Arc::ptr_eq(old, new)
            {
                continue;
            }
            let (old, new) = (old.filter(|it| it.exists()), new.filter(|it| it.exists()));
            let projects = |stage: Option<&Arc<crate::Stage>>| {
                stage.map(|stage| stage.project_map().clone()).unwrap_or_default()
            };
            let (old, new) = (projects(old), projects(new));
            for item in old.diff(&new) {
                use imbl::ordmap::DiffItem;
                let (project, old, new) = match item {
                    DiffItem::Add(project, new) => (project, None, Some(new)),
                    DiffItem::Update { old: (_, old), new: (project, new) } => {
                        (project, Some(old), Some(new))
                    }
                    DiffItem::Remove(project, old) => (project, Some(old), None),
                };
                let [old, new] = [old, new].map(|project| project?.described_by());
                if old != new {
                    changed.push((name.clone(), project.clone(), new));
                }
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::{World, project_name, stage_name};
    use serde_json::json;

    fn names(texts: &str) -> RequiredNames {
        texts.split_whitespace().collect()
    }

    #[track_caller]
    fn check(index: &RequiredBy, name: &str, expected: &str) {
        let found = index.requiring(name, |stage| stage.user() != "secret");
        let mut found: Vec<String> =
            found.map(|(stage, project)| format!("{stage}/{project}")).collect();
        found.sort();
        assert_eq!(found.join(" "), expected, "{name}");
    }

    #[test]
    fn a_requirement_begins_with_its_name() {
        let name = |text| required_name(text).map(|name| name.to_string()).unwrap_or_default();
        assert_eq!(name("Foo_Bar>=1"), "foo-bar");
        assert_eq!(name(" a.b [x] ~= 2 ; extra == \"all\""), "a-b");
        assert_eq!(name("foo @ https://e.example/foo.whl"), "foo");
        assert_eq!((name(""), name("-"), name("ä>1"), name("=1")), Default::default());
    }

    #[test]
    fn what_metadata_requires_is_bounded() {
        let of = |json: serde_json::Value| RequiredNames::of_metadata(json.to_string().as_bytes());
        let found = of(json!({"name": "x", "requires_dist": ["b>1", "A", "a[x]", "?"], "n": [1]}));
        assert_eq!(found.expect("names"), names("a b"));
        for json in [json!({}), json!({"requires_dist": null}), json!({"requires_dist": []})] {
            assert_eq!(of(json).expect("names"), RequiredNames::default());
        }
        assert!(of(json!({"requires_dist": "a"})).is_err());
        assert!(of(json!({"requires_dist": [1]})).is_err());
        let many: Vec<String> = (0..NAMES_MAX + 50).map(|number| format!("p{number:05}")).collect();
        let found = of(json!({"requires_dist": many, "summary": "after it"})).expect("names");
        assert_eq!(found.iter().count(), NAMES_MAX);
    }

    #[test]
    fn projects_are_found_by_what_they_require() {
        let mut index = RequiredBy::new();
        let (dev, secret) = (stage_name("alice/dev"), stage_name("secret/dev"));
        let project = project_name;
        index.set(&dev, &project("tool"), &names("lib base tool"));
        index.set(&secret, &project("hidden"), &names("lib"));
        index.set(&dev, &project("app"), &names("lib"));
        check(&index, "lib", "alice/dev/app alice/dev/tool");
        check(&index, "base", "alice/dev/tool");
        // With an extra of its own.
        check(&index, "tool", "");
        check(&index, "nothing", "");
        index.set(&dev, &project("tool"), &names("base"));
        check(&index, "lib", "alice/dev/app");
        index.set(&dev, &project("app"), &RequiredNames::default());
        index.set(&secret, &project("hidden"), &RequiredNames::default());
        index.set(&dev, &project("tool"), &RequiredNames::default());
        check(&index, "lib", "");
        // Nothing of it is left but room for others.
        assert!(index.is_empty() && index.required.is_empty());
        assert!(index.projects.ids.is_empty() && index.stages.ids.is_empty());
        let slots = index.projects.names.len();
        index.set(&dev, &project("new"), &names("other more"));
        assert_eq!(index.projects.names.len(), slots);
    }

    #[test]
    fn only_what_is_described_anew_is_read_again() {
        let mut world = World::new();
        let before = world.snapshot.clone();
        world.create("alice/dev", json!({}));
        world.upload("alice/dev", "tool-1.0.tar.gz", "a");
        let first = world.snapshot.clone();
        let since = |now: &Snapshot, before: &Snapshot| {
            let found = now.described_anew_since(before);
            let text = |(stage, project, digest): (StageName, ProjectName, Option<_>)| {
                format!("{stage}/{project} {}", if digest.is_some() { "is" } else { "gone" })
            };
            found.into_iter().map(text).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(since(&first, &before), "alice/dev/tool is");
        assert_eq!(since(&first, &first), "");
        // An older version says nothing new; a newer one does.
        world.upload("alice/dev", "tool-0.9.tar.gz", "b");
        assert_eq!(since(&world.snapshot, &first), "");
        world.upload("alice/dev", "tool-1.1.tar.gz", "c");
        assert_eq!(since(&world.snapshot, &first), "alice/dev/tool is");
        let second = world.snapshot.clone();
        world.write("python/stage/alice/dev", None);
        assert_eq!(since(&world.snapshot, &second), "alice/dev/tool gone");
    }

    proptest! {
        #[test]
        fn the_index_is_what_was_noted_last(
            steps in prop::collection::vec((0..3_u8, 0..6_u8, prop::collection::btree_set(0..8_u8, 0..5)), 1..40)
        ) {
            let mut index = RequiredBy::new();
            let mut noted: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
            for (stage, project, required) in steps {
                let (stage, project) = (format!("u{stage}/dev"), format!("p{project}"));
                let mut required: BTreeSet<String> =
                    required.iter().map(|number| format!("p{number}")).collect();
                let names = required.iter().map(String::as_str).collect();
                index.set(&stage_name(&stage), &project_name(&project), &names);
                required.remove(&project);
                noted.insert((stage, project), required);
            }
            for number in 0..8 {
                let name = format!("p{number}");
                let found = index.requiring(&name, |stage| stage.user() != "u1");
                let found: BTreeSet<(String, String)> =
                    found.map(|(stage, project)| (stage.to_string(), project.to_string())).collect();
                let expected = noted.iter().filter(|(of, names)| {
                    names.contains(&name) && !of.0.starts_with("u1")
                });
                prop_assert_eq!(found, expected.map(|(of, _)| of.clone()).collect::<BTreeSet<_>>());
            }
            prop_assert_eq!(index.len(), noted.values().map(BTreeSet::len).sum::<usize>());
        }
    }
}
