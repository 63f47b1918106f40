//! [`RequiredBy`]: which projects a project is required by, among those of all stages.
//!
//! the names in the metadata of each project's newest version ([`RequiredNames`]) -> [`RequiredBy::set`], once a commit changed
//! the project -> [`RequiredBy::requiring`], for a page. Most of it is frozen in sorted arrays (`base`). Later changes
//! (`recent_requirers`) are in mutable sets, which are a bounded part of the whole; when there are too many, [`RequiredBy::compacted`]
//! makes new arrays of both. This module does not know who may see a stage.

mod base;
mod recent_requirers;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use imbl::OrdSet;
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use self::base::{Base, Place};
use self::recent_requirers::RecentRequirers;
use crate::{ProjectName, Snapshot, StageName};

/// Names that are taken from the metadata of one version; the rest is left out.
pub(crate) const NAMES_MAX: usize = 1_000;

/// How large `recent` may become: this part of the base, or at least `RECENT_MIN`.
const RECENT_SHARE: usize = 8;
const RECENT_MIN: usize = 2_048;

/// Replaced places of the base at most, however large it is: an answer skips each that it meets.
const REPLACED_MAX: usize = 8_192;

/// Bytes that a replaced place takes, roughly.
const REPLACED_BYTES: usize = 8;

/// Which projects of which stages require a project. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RequiredBy {
    base: Arc<Base>,
    /// Places of the base that were replaced or removed since.
    replaced: OrdSet<Place>,
    recent: RecentRequirers,
}

impl RequiredBy {
    /// An index of nothing.
    pub fn new() -> RequiredBy {
        RequiredBy::default()
    }

    /// Notes what a project of a stage requires now, replacing what it required before; `None` if the project is gone. A
    /// requirement for itself, with other extras, is ignored.
    pub fn set(&mut self, stage: &StageName, project: &ProjectName, required: &RequiredNames) {
        if let Some(place) = self.base.place(stage, project) {
            self.replaced.insert(place);
        }
        self.recent.set(stage, project, required);
    }

    /// The projects that require `name`; a stage that `admits` refuses is passed over at once, however many of its projects
    /// do. Each takes time in proportion to the logarithm of the number of entries; so does each of the places that count no more,
    /// which [`RequiredBy::is_loose`] bounds.
    pub fn requiring<'index>(
        &'index self,
        name: &str,
        admits: impl Fn(&StageName) -> bool,
    ) -> impl Iterator<Item = (&'index StageName, &'index ProjectName)> {
        let admits = Arc::new(admits);
        let old = self.base.requiring(name, {
            let admits = admits.clone();
            move |stage| admits(stage)
        });
        let old = old.filter(|(place, ..)| !self.replaced.contains(place));
        let recent = self.recent.requiring(name, move |stage| admits(stage));
        old.map(|(_, stage, project)| (stage, project)).chain(recent)
    }

    /// Whether there were so many changes since the last [`RequiredBy::compacted`] that they take much memory, or slow answers
    /// down.
    pub fn is_loose(&self) -> bool {
        let noted = self.recent.len() + self.replaced.len();
        self.replaced.len() > REPLACED_MAX || noted > RECENT_MIN.max(self.base.len() / RECENT_SHARE)
    }

    /// Whether there were so few changes since the last [`RequiredBy::compacted`] that another one would gain next to nothing.
    pub fn is_compact(&self) -> bool {
        self.recent.len() + self.replaced.len() <= RECENT_MIN
    }

    /// The same index in as little memory as possible. Takes time in proportion to the whole index, and meanwhile little more
    /// memory than both.
    ///
    /// # Panics
    /// If the index takes 4 GiB or more.
    pub fn compacted(&self) -> RequiredBy {
        let base = Arc::new(self.base.merged(&self.replaced, &self.recent));
        RequiredBy { base, replaced: OrdSet::new(), recent: RecentRequirers::default() }
    }

    /// The memory that it takes, roughly, in bytes, without the texts of projects, which the snapshot has as well.
    pub fn memory_bytes(&self) -> usize {
        let replaced = self.replaced.len() * REPLACED_BYTES;
        self.base.heap_bytes() + replaced + self.recent.heap_bytes()
    }
}

/// The projects that a version requires, with any of its extras: at most [`NAMES_MAX`], each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredNames(BTreeSet<ProjectName>);

impl RequiredNames {
    /// The required names in the JSON of a version's metadata.
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
    /// The projects whose newest version has another metadata blob than in `before`, with that blob; `None` for projects that
    /// are gone, or whose newest version has none. Takes time in proportion to the number of stages and to the differences, if
    /// one of the snapshots was made of the other.
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
        // A requirement for itself with an extra is ignored.
        check(&index, "tool", "");
        check(&index, "nothing", "");
        index.set(&dev, &project("tool"), &names("base"));
        check(&index, "lib", "alice/dev/app");
        index.set(&dev, &project("app"), &RequiredNames::default());
        index.set(&secret, &project("hidden"), &RequiredNames::default());
        index.set(&dev, &project("tool"), &RequiredNames::default());
        check(&index, "lib", "");
        // Of the list, only room for other entries is left.
        let slots = index.recent.room().expect("nothing");
        index.set(&dev, &project("new"), &names("other more"));
        index.set(&dev, &project("new"), &RequiredNames::default());
        assert_eq!(index.recent.room(), Some(slots));
    }

    #[test]
    fn what_is_frozen_is_found_and_replaced() {
        let mut index = RequiredBy::new();
        let (dev, secret) = (stage_name("alice/dev"), stage_name("secret/dev"));
        let project = project_name;
        for number in 0..5 {
            index.set(&secret, &project(&format!("hidden-{number}")), &names("lib"));
        }
        index.set(&dev, &project("tool"), &names("lib base"));
        index.set(&stage_name("zoe/dev"), &project("app"), &names("lib"));
        let mut index = index.compacted();
        assert_eq!(index.recent.room(), Some(0));
        check(&index, "lib", "alice/dev/tool zoe/dev/app");
        let before = index.clone();
        index.set(&dev, &project("tool"), &names("base other"));
        index.set(&dev, &project("new"), &names("lib"));
        for index in [&index, &index.compacted()] {
            check(index, "lib", "alice/dev/new zoe/dev/app");
            check(index, "base", "alice/dev/tool");
            check(index, "other", "alice/dev/tool");
        }
        index.set(&dev, &project("tool"), &RequiredNames::default());
        for index in [&index, &index.compacted()] {
            check(index, "base", "");
        }
        // The earlier index has not changed.
        check(&before, "lib", "alice/dev/tool zoe/dev/app");
        assert_eq!(RequiredBy::new().compacted().memory_bytes(), 0);
    }

    /// The memory for an index of 100,000 projects, each of which requires five others.
    #[test]
    fn memory_of_many_projects() {
        let mut index = RequiredBy::new();
        let stage = stage_name("alice/dev");
        let name = |number: usize| project_name(&format!("project-{:06}", number % 100_000));
        let (mut most, mut compactions) = (0, 0);
        for number in 0..100_000 {
            let required = (1..=5).map(|step| name(number + step * 7_919)).collect();
            index.set(&stage, &name(number), &RequiredNames(required));
            if index.is_loose() {
                most = most.max(index.memory_bytes());
                index = index.compacted();
                compactions += 1;
            }
        }
        assert_eq!(index.requiring("project-000000", |_| true).count(), 5);
        let compact = index.compacted();
        assert_eq!(compact.base.len(), 500_000);
        let bytes = compact.memory_bytes();
        assert!(bytes < 6_500_000 && most < 13_000_000, "{bytes} at the end, at most {most}");
        assert!(compactions < 60, "{compactions}");
    }

    #[test]
    fn an_index_is_loose_once_much_of_it_is_replaced() {
        let mut index = RequiredBy::new();
        let stage = stage_name("alice/dev");
        let name = |number: usize| project_name(&format!("project-{number:06}"));
        for number in 0..100_000 {
            index.set(&stage, &name(number), &names("lib"));
        }
        assert!(index.is_loose() && !index.is_compact());
        index = index.compacted();
        let mut gone = 0;
        while !index.is_loose() {
            assert_eq!(index.is_compact(), gone <= RECENT_MIN);
            index.set(&stage, &name(gone), &RequiredNames::default());
            gone += 1;
        }
        assert_eq!(gone, REPLACED_MAX + 1);
        for index in [&index, &index.compacted()] {
            let found = index.requiring("lib", |_| true).map(|(_, project)| project);
            assert!(found.eq(&(gone..100_000).map(name).collect::<Vec<_>>()));
        }
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
                if required.contains("p3") {
                    index = index.compacted();
                }
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
            let compact = index.compacted();
            prop_assert_eq!(compact.base.len(), noted.values().map(BTreeSet::len).sum::<usize>());
        }
    }
}
