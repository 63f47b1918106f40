//! Most of the index, frozen: sorted arrays, which take a fraction of a mutable set's memory.
//!
//! ```text
//! places:   (stage, project), sorted; a place is a position here
//! required: names, sorted ─► ends ─► the places that require the name, ascending
//! ```

use std::ops::Range;

use imbl::OrdSet;

use super::recent_requirers::RecentRequirers;
use crate::{ProjectName, StageName};

/// A position among the places.
pub(super) type Place = u32;

/// Which places require which names. It never changes.
#[derive(Debug, Default)]
pub(super) struct Base {
    /// The stages in their order, with the place where each begins.
    stages: Box<[(StageName, Place)]>,
    /// The project of each place; the texts are those of the snapshot.
    projects: Box<[ProjectName]>,
    /// The required names in their order, one behind the other.
    names: Box<str>,
    /// Where each name ends in `names`, and where the places that require it end in `requiring`.
    ends: Box<[(u32, u32)]>,
    /// The places that require the first name, then those that require the second, and so on.
    requiring: Box<[Place]>,
}

/// A base that is being made. Places are added in their order, then names in theirs.
#[derive(Default)]
struct Builder {
    stages: Vec<(StageName, Place)>,
    projects: Vec<ProjectName>,
    names: String,
    ends: Vec<(u32, u32)>,
    requiring: Vec<Place>,
}

impl Builder {
    /// Adds the next place, and returns it.
    fn place(&mut self, stage: &StageName, project: &ProjectName) -> Place {
        let place = number(self.projects.len());
        if self.stages.last().is_none_or(|(last, _)| last != stage) {
            self.stages.push((stage.clone(), place));
        }
        self.projects.push(project.clone());
        place
    }

    /// Adds the next name, with the places that require it: two ascending rows. A name that no place requires is left out.
    fn name(
        &mut self,
        name: &str,
        moved: impl Iterator<Item = Place>,
        added: impl Iterator<Item = Place>,
    ) {
        let start = self.requiring.len();
        self.requiring.extend(moved);
        let middle = self.requiring.len();
        self.requiring.extend(added);
        let end = self.requiring.len();
        if (start + 1..end).contains(&middle) {
            // This sort algorithm detects both sorted runs, and merges them.
            self.requiring[start..].sort();
        }
        if end > start {
            self.names.push_str(name);
            self.ends.push((number(self.names.len()), number(end)));
        }
    }

    fn finish(self) -> Base {
        Base {
            stages: self.stages.into(),
            projects: self.projects.into(),
            names: self.names.into(),
            ends: self.ends.into(),
            requiring: self.requiring.into(),
        }
    }
}

/// # Panics
/// Beyond 4 GiB. Callers of [`RequiredBy::set`](super::RequiredBy::set) bound the index far below that.
fn number(size: usize) -> u32 {
    u32::try_from(size).expect("an index of less than 4 GiB")
}

impl Base {
    /// This base without the `replaced` places, and with the entries of `recent`. Only `recent` is sorted; besides the result,
    /// this takes eight bytes for each place, and 24 for each pair in `recent`.
    pub(super) fn merged(&self, replaced: &OrdSet<Place>, recent: &RecentRequirers) -> Base {
        let mut added: Vec<_> = recent.all().collect();
        added.sort_unstable_by_key(|(stage, project, _)| (*stage, *project));
        let mut builder = Builder {
            projects: Vec::with_capacity(self.projects.len() + added.len() - replaced.len()),
            requiring: Vec::with_capacity(self.len() + recent.len()),
            ..Builder::default()
        };

        // Where each place of this base is in the next one.
        let mut moved: Vec<Option<Place>> = vec![None; self.projects.len()];
        let mut pairs: Vec<(&str, Place)> = Vec::with_capacity(recent.len());
        let mut old = self.all().filter(|(place, ..)| !replaced.contains(place)).peekable();
        for (stage, project, required) in added {
            while let Some((place, before, name)) =
                old.next_if(|(_, before, name)| (*before, *name) < (stage, project))
            {
                moved[place as usize] = Some(builder.place(before, name));
            }
            let place = builder.place(stage, project);
            pairs.extend(required.map(|name| (name.as_str(), place)));
        }
        for (place, stage, project) in old {
            moved[place as usize] = Some(builder.place(stage, project));
        }

        pairs.sort_unstable();
        let place_of = |pair: &(&str, Place)| pair.1;
        let mut groups = pairs.chunk_by(|one, other| one.0 == other.0).peekable();
        for (name, places) in self.required() {
            while let Some(group) = groups.next_if(|group| group[0].0 < name) {
                builder.name(group[0].0, std::iter::empty(), group.iter().map(place_of));
            }
            let group = groups.next_if(|group| group[0].0 == name).unwrap_or_default();
            let moved = places.iter().filter_map(|place| moved[*place as usize]);
            builder.name(name, moved, group.iter().map(place_of));
        }
        for group in groups {
            builder.name(group[0].0, std::iter::empty(), group.iter().map(place_of));
        }
        builder.finish()
    }

    /// How many pairs of a place and a name that it requires there are.
    pub(super) fn len(&self) -> usize {
        self.requiring.len()
    }

    /// The places of a stage.
    fn places_of(&self, stage: usize) -> Range<Place> {
        let end = self.stages.get(stage + 1).map_or(number(self.projects.len()), |it| it.1);
        self.stages[stage].1..end
    }

    /// The place of a project of a stage, if it is here.
    pub(super) fn place(&self, stage: &StageName, project: &ProjectName) -> Option<Place> {
        let stage = self.stages.binary_search_by(|(name, _)| name.cmp(stage)).ok()?;
        let range = self.places_of(stage);
        let projects = &self.projects[range.start as usize..range.end as usize];
        let at = projects.binary_search(project).ok()?;
        Some(range.start + number(at))
    }

    /// Every place, in ascending order.
    fn all(&self) -> impl Iterator<Item = (Place, &StageName, &ProjectName)> {
        self.stages.iter().enumerate().flat_map(move |(at, (name, _))| {
            self.places_of(at).map(move |place| (place, name, &self.projects[place as usize]))
        })
    }

    /// Every required name, with the places that require it, in ascending order.
    fn required(&self) -> impl Iterator<Item = (&str, &[Place])> {
        (0..self.ends.len()).map(|at| (self.name(at), self.places_requiring(at)))
    }

    /// Where the name before this one ends, and its places.
    fn start(&self, name: usize) -> (u32, u32) {
        name.checked_sub(1).map_or((0, 0), |before| self.ends[before])
    }

    fn name(&self, at: usize) -> &str {
        &self.names[self.start(at).0 as usize..self.ends[at].0 as usize]
    }

    fn places_requiring(&self, name: usize) -> &[Place] {
        &self.requiring[self.start(name).1 as usize..self.ends[name].1 as usize]
    }

    fn position(&self, name: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.name(middle).cmp(name) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The places that require `name`, by their stages; a stage that `admits` refuses is passed over by a binary search.
    pub(super) fn requiring<'base>(
        &'base self,
        name: &str,
        mut admits: impl FnMut(&StageName) -> bool,
    ) -> impl Iterator<Item = (Place, &'base StageName, &'base ProjectName)> {
        let places = self.position(name).map(|at| self.places_requiring(at));
        let mut left = places.unwrap_or_default();
        let mut admitted: Option<(usize, Range<Place>)> = None;
        std::iter::from_fn(move || {
            loop {
                let (place, rest) = left.split_first()?;
                let of = match &admitted {
                    Some((stage, range)) if range.contains(place) => *stage,
                    _ => {
                        let stage = self.stages.partition_point(|(_, start)| start <= place) - 1;
                        let range = self.places_of(stage);
                        if !admits(&self.stages[stage].0) {
                            left = &left[left.partition_point(|place| *place < range.end)..];
                            continue;
                        }
                        admitted = Some((stage, range));
                        stage
                    }
                };
                left = rest;
                return Some((*place, &self.stages[of].0, &self.projects[*place as usize]));
            }
        })
    }

    /// The memory that it takes, in bytes, without the texts of projects, which the snapshot has as well.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.stages)
            + size_of_val(&*self.projects)
            + self.names.len()
            + size_of_val(&*self.ends)
            + size_of_val(&*self.requiring)
    }
}
