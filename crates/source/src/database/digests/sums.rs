//! [`Sums`]: the checksums of one table's rows, by the number of their owner.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How many neighbouring numbers share a sum: more and more exact ones are asked for.
pub(super) const GROUPS: [i64; 3] = [4096, 64, 1];

/// If more sums are new or gone than this, all are sorted; fewer are put in their places, one by one.
const MOVES_MAX: usize = 16;

/// The sums of some owners; `None` for those without rows.
pub(super) type Changed = BTreeMap<i64, Option<i64>>;

/// Owners with the sums of their rows, by rising number.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) sums: Vec<(i64, i64)>,
    /// The sums of the largest groups: each comparison begins with these.
    pub(super) groups: Vec<(i64, i64)>,
}

impl Sums {
    pub(super) fn new(mut sums: Vec<(i64, i64)>) -> Sums {
        sums.sort();
        sums.shrink_to_fit();
        let groups = grouped(&sums, GROUPS[0], None);
        Sums { sums, groups }
    }

    pub(super) fn of(&self, owner: i64) -> Option<i64> {
        self.place(owner).ok().map(|at| self.sums[at].1)
    }

    pub(super) fn set(&mut self, changed: &Changed) {
        let (mut new, mut gone) = (Vec::new(), 0);
        for (owner, sum) in changed {
            match (self.place(*owner), sum) {
                (Ok(at), Some(sum)) => self.sums[at].1 = *sum,
                (Err(_), Some(sum)) => new.push((*owner, *sum)),
                (Ok(_), None) => gone += 1,
                (Err(_), None) => {}
            }
        }
        if gone + new.len() > MOVES_MAX {
            self.sums.retain(|(owner, _)| changed.get(owner) != Some(&None));
            self.sums.extend(new);
            self.sums.sort();
            self.groups = grouped(&self.sums, GROUPS[0], None);
            return;
        }
        for (owner, sum) in new {
            let at = self.sums.partition_point(|(other, _)| *other < owner);
            self.sums.insert(at, (owner, sum));
        }
        if gone > 0 {
            for owner in changed.iter().filter(|(_, sum)| sum.is_none()).map(|(owner, _)| *owner) {
                if let Ok(at) = self.place(owner) {
                    self.sums.remove(at);
                }
            }
        }
        let groups: BTreeSet<i64> =
            changed.keys().map(|owner| owner.div_euclid(GROUPS[0])).collect();
        for group in groups {
            self.group_again(group);
        }
    }

    /// The place of the sum of `owner`, or that where it would be.
    fn place(&self, owner: i64) -> Result<usize, usize> {
        self.sums.binary_search_by_key(&owner, |(owner, _)| *owner)
    }

    /// Adds up one of the largest groups again.
    fn group_again(&mut self, group: i64) {
        let range = group * GROUPS[0]..(group + 1) * GROUPS[0];
        let total = grouped(&self.sums, GROUPS[0], Some(&[range])).pop();
        match (self.groups.binary_search_by_key(&group, |(group, _)| *group), total) {
            (Ok(at), Some(total)) => self.groups[at] = total,
            (Ok(at), None) => drop(self.groups.remove(at)),
            (Err(at), Some(total)) => self.groups.insert(at, total),
            (Err(_), None) => {}
        }
    }
}

/// The sums of each `size` neighbours, by rising number; only of those in these ranges of numbers, if there are any.
pub(super) fn grouped(
    sums: &[(i64, i64)],
    size: i64,
    ranges: Option<&[Range<i64>]>,
) -> Vec<(i64, i64)> {
    let all = i64::MIN..i64::MAX;
    let mut groups: Vec<(i64, i64)> = Vec::new();
    for range in ranges.unwrap_or(std::slice::from_ref(&all)) {
        let start = sums.partition_point(|(owner, _)| *owner < range.start);
        let within = sums[start..].iter().take_while(|(owner, _)| *owner < range.end);
        for (owner, sum) in within {
            let group = owner.div_euclid(size);
            match groups.last_mut() {
                Some((last, total)) if *last == group => *total = total.wrapping_add(*sum),
                _ => groups.push((group, *sum)),
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::NO_SUM;
    use super::*;

    #[test]
    fn sums_of_bases_that_were_read_are_replaced() {
        let mut sums = Sums::new(vec![(70, 7), (1, 10), (2, 5)]);
        let changed = [(1, Some(11)), (2, None), (3, Some(2)), (70, None), (9000, Some(4))];
        sums.set(&changed.into_iter().collect());
        assert_eq!(sums.sums, [(1, 11), (3, 2), (9000, 4)]);
        assert_eq!(grouped(&sums.sums, 64, None), [(0, 13), (140, 4)]);
        assert_eq!(grouped(&sums.sums, 1, Some(&[2..4, 64..9001])), [(3, 2), (9000, 4)]);
        assert_eq!((sums.of(3), sums.of(70)), (Some(2), None));
    }

    #[test]
    fn the_largest_groups_are_those_of_the_sums() {
        let mut sums = Sums::new(vec![(1, 10), (4095, 5), (4096, 7), (9000, 4)]);
        for changed in [
            vec![(1, Some(11)), (9000, Some(i64::MAX)), (5, None)],
            vec![(4096, None), (9000, Some(i64::MIN))],
            vec![(2, Some(3)), (20_000, Some(1)), (4095, Some(NO_SUM))],
            vec![(1, None), (2, None), (4095, None)],
        ] {
            sums.set(&changed.iter().copied().collect());
            assert_eq!(sums.groups, grouped(&sums.sums, GROUPS[0], None), "after {changed:?}");
        }
        assert_eq!(sums.groups, [(2, i64::MIN), (4, 1)]);
    }
}
