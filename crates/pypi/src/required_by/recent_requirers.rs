//! Changes since the [`Base`](super::base::Base) was made: mutable sets, which share all but a few nodes with those of the
//! index before.

use std::borrow::Borrow;
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};

use super::RequiredNames;
use crate::{ProjectName, StageName};

/// The number of a name.
type Id = u32;

/// Bytes that an entry takes, and a name besides its text, roughly.
const ENTRY_BYTES: usize = 67;
const NAME_BYTES: usize = 64;

fn name_bytes(name: &impl Borrow<str>) -> usize {
    name.borrow().len() + NAME_BYTES
}

/// Which projects of which stages require a project. Names are numbers here, and an entry is three of them in an ordered set.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentRequirers {
    projects: Names<ProjectName>,
    stages: Names<StageName>,
    /// (required project, stage, project of the stage that requires it)
    entries: OrdSet<(Id, Id, Id)>,
    /// The requirements of each project of each stage, to remove them again.
    required: OrdMap<(Id, Id), Arc<[Id]>>,
}

/// Names, each with a number and with how many places have it: a name that is nowhere any more makes room.
#[derive(Clone, Debug)]
struct Names<Name: Ord> {
    ids: OrdMap<Name, Id>,
    names: Vector<Option<(Name, u32)>>,
    free: Vector<Id>,
    /// Bytes of the names, roughly.
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

impl RecentRequirers {
    /// Notes what a project of a stage requires now, replacing what it required before; `None` if the project is gone. A
    /// requirement for itself, with other extras, is ignored.
    pub(super) fn set(
        &mut self,
        stage: &StageName,
        project: &ProjectName,
        required: &RequiredNames,
    ) {
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

    /// The projects that require `name`, grouped by stage; a stage that `admits` refuses is skipped at once, however many
    /// projects it has. Each takes time in proportion to the logarithm of the number of entries.
    pub(super) fn requiring<'index>(
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

    /// Every project of a stage that is noted here, with the names that it requires.
    pub(super) fn all(
        &self,
    ) -> impl Iterator<Item = (&StageName, &ProjectName, impl Iterator<Item = &ProjectName>)> {
        self.required.iter().filter_map(|((stage, project), ids)| {
            let required = ids.iter().filter_map(|id| self.projects.name(*id));
            Some((self.stages.name(*stage)?, self.projects.name(*project)?, required))
        })
    }

    /// The number of pairs of a project and one that it requires.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The memory that it takes, roughly, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.len() * ENTRY_BYTES + self.projects.bytes + self.stages.bytes
    }

    /// Whether only room for other entries is left, and how much room for names there is.
    #[cfg(test)]
    pub(super) fn room(&self) -> Option<usize> {
        let is_empty = self.entries.is_empty()
            && self.required.is_empty()
            && self.projects.ids.is_empty()
            && self.stages.ids.is_empty();
        is_empty.then(|| self.projects.names.len())
    }
}
