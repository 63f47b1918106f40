//! [`Sums`]: the checksums of one table's rows, by the number of their owner.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How many neighbouring numbers share a sum: more and more exact ones are asked for.
pub(super) const GROUPS: [i64; 3] = [512, 32, 1];

/// How the checksums of rows become one sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Join {
    /// By addition: rows may be equal.
    #[default]
    Added,
    /// By exclusive or, each multiplied by the factor of its owner: no two rows are equal. If one owner of a group has changed, the
    /// difference between the group's sums is a multiple of its factor, which traces it.
    Traced,
}

impl Join {
    /// The expression that joins the checksums of rows with these columns, `row`, whose owner is in the column `owner`. They are added
    /// up as a DOUBLE, which costs the server less than a DECIMAL, and is exact for two million rows.
    pub(super) fn expression(self, row: &str, owner: &str) -> String {
        let checksum = format!("CRC32(CONCAT_WS('\\n', {row}))");
        match self {
            Join::Added => format!("CAST(SUM({checksum} + 0e0) AS SIGNED)"),
            Join::Traced => {
                let factor = format!("(({owner} & {FACTOR_BITS}) + {FACTOR_MIN})");
                format!("CAST(BIT_XOR({checksum} * {factor}) AS SIGNED)")
            }
        }
    }

    fn join(self, sum: i64, other: i64) -> i64 {
        match self {
            Join::Added => sum.wrapping_add(other),
            Join::Traced => sum ^ other,
        }
    }
}

/// The lowest factor of an owner, without a pattern in its bits, and those that vary. A checksum multiplied by it has at most 63 bits.
/// Two owners of one group have factors that differ by less than [`GROUPS`], so they have no larger common divisor.
const FACTOR_MIN: i64 = 0x5a82_7999;
const FACTOR_BITS: i64 = (1 << 29) - 1;

/// What the checksums of the rows of an owner are multiplied by.
fn factor(owner: i64) -> i64 {
    (owner & FACTOR_BITS) + FACTOR_MIN
}

/// Whether this may be the checksum of one row of `owner`, multiplied by its factor, or of none.
fn is_of_a_row(sum: i64, owner: i64) -> bool {
    sum % factor(owner) == 0 && (0..1 << 32).contains(&(sum / factor(owner)))
}

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
    join: Join,
}

impl Sums {
    pub(super) fn new(join: Join, mut sums: Vec<(i64, i64)>) -> Sums {
        sums.sort();
        sums.shrink_to_fit();
        let mut sums = Sums { sums, groups: Vec::new(), join };
        sums.groups = sums.grouped(GROUPS[0], None);
        sums
    }

    /// The owner in this largest group that has changed, with the sum that it should have now, or zero for none: if, as the group's
    /// sum `now` looks, one row of it is new or gone, or its only row has changed, or all its rows are gone. Several changes look
    /// like this about once in a million times.
    pub(super) fn traced(&self, group: i64, now: Option<i64>) -> Option<(i64, i64)> {
        let before = self.groups.binary_search_by_key(&group, |(group, _)| *group);
        let before = before.map_or(0, |at| self.groups[at].1);
        let difference = before ^ now.unwrap_or_default();
        if self.join != Join::Traced || difference == 0 {
            return None;
        }
        let start = group.checked_mul(GROUPS[0])?;
        let mut owners = start..start.checked_add(GROUPS[0])?;
        let owner = owners.find(|owner| {
            is_of_a_row(difference, *owner)
                || self.of(*owner).is_some_and(|sum| is_of_a_row(sum ^ difference, *owner))
        })?;
        Some((owner, self.of(owner).unwrap_or_default() ^ difference))
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
            self.groups = self.grouped(GROUPS[0], None);
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
        let total = self.grouped(GROUPS[0], Some(&[range])).pop();
        match (self.groups.binary_search_by_key(&group, |(group, _)| *group), total) {
            (Ok(at), Some(total)) => self.groups[at] = total,
            (Ok(at), None) => drop(self.groups.remove(at)),
            (Err(at), Some(total)) => self.groups.insert(at, total),
            (Err(_), None) => {}
        }
    }

    /// The sums of each `size` neighbours, by rising number; only of those in these ranges of numbers, if there are any.
    pub(super) fn grouped(&self, size: i64, ranges: Option<&[Range<i64>]>) -> Vec<(i64, i64)> {
        let all = i64::MIN..i64::MAX;
        let mut groups: Vec<(i64, i64)> = Vec::new();
        for range in ranges.unwrap_or(std::slice::from_ref(&all)) {
            let start = self.sums.partition_point(|(owner, _)| *owner < range.start);
            let within = self.sums[start..].iter().take_while(|(owner, _)| *owner < range.end);
            for (owner, sum) in within {
                let group = owner.div_euclid(size);
                match groups.last_mut() {
                    Some((last, total)) if *last == group => *total = self.join.join(*total, *sum),
                    _ => groups.push((group, *sum)),
                }
            }
        }
        groups
    }
}

#[cfg(test)]
impl Sums {
    /// Notes other sums of two owners, so that it looks as if `other` had changed.
    pub(super) fn mislead(&mut self, owners: [i64; 2], other: i64) {
        for (owner, changed) in owners.into_iter().zip([7, 7 ^ factor(other)]) {
            let sum = self.of(owner).map(|sum| sum ^ changed);
            self.set(&[(owner, sum)].into_iter().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NO_SUM;
    use super::*;

    fn added(sums: Vec<(i64, i64)>) -> Sums {
        Sums::new(Join::Added, sums)
    }

    #[test]
    fn sums_of_bases_that_were_read_are_replaced() {
        let mut sums = added(vec![(70, 7), (1, 10), (2, 5)]);
        let changed = [(1, Some(11)), (2, None), (3, Some(2)), (70, None), (9000, Some(4))];
        sums.set(&changed.into_iter().collect());
        assert_eq!(sums.sums, [(1, 11), (3, 2), (9000, 4)]);
        assert_eq!(sums.grouped(64, None), [(0, 13), (140, 4)]);
        assert_eq!(sums.grouped(1, Some(&[2..4, 64..9001])), [(3, 2), (9000, 4)]);
        assert_eq!((sums.of(3), sums.of(70)), (Some(2), None));
    }

    #[test]
    fn the_largest_groups_are_those_of_the_sums() {
        for join in [Join::Added, Join::Traced] {
            let mut sums = Sums::new(join, vec![(1, 10), (511, 5), (512, 7), (1200, 4)]);
            for changed in [
                vec![(1, Some(11)), (1200, Some(i64::MAX)), (5, None)],
                vec![(512, None), (1200, Some(i64::MIN))],
                vec![(2, Some(3)), (20_000, Some(1)), (511, Some(NO_SUM))],
                vec![(1, None), (2, None), (511, None)],
            ] {
                sums.set(&changed.iter().copied().collect());
                assert_eq!(sums.groups, sums.grouped(GROUPS[0], None), "after {changed:?}");
            }
            assert_eq!(sums.groups, [(2, i64::MIN), (39, 1)]);
        }
    }

    /// The sum of the rows of an owner that have these checksums.
    fn sum_of(owner: i64, checksums: &[u32]) -> i64 {
        checksums.iter().fold(0, |sum, checksum| sum ^ (i64::from(*checksum) * factor(owner)))
    }

    /// Expects which owner is said to have changed, and its sum, if these owners have these sums now.
    #[track_caller]
    fn check_traced(before: &Sums, changed: &[(i64, i64)], expected: Option<(i64, i64)>) {
        let mut now = Sums::new(Join::Traced, before.sums.clone());
        let changed = changed.iter().map(|&(owner, sum)| (owner, Some(sum).filter(|it| *it != 0)));
        now.set(&changed.collect());
        let of_group = now.groups.iter().find(|(group, _)| *group == 1).map(|(_, sum)| *sum);
        assert_eq!(before.traced(1, of_group), expected);
    }

    #[test]
    fn one_changed_owner_of_a_group_is_traced() {
        let one = |owner: i64| (owner, sum_of(owner, &[0x8000_0000 + owner as u32 * 77]));
        let mut sums: Vec<(i64, i64)> = (500..1000).map(one).collect();
        let many = sum_of(700, &[3, u32::MAX, 0x1234_5678]);
        sums[200].1 = many;
        let before = Sums::new(Join::Traced, sums);
        // A row has changed, is gone, or is new; of an owner with several, one is gone, one is new, or all are gone.
        let changed = sum_of(512, &[u32::MAX]);
        check_traced(&before, &[(512, changed)], Some((512, changed)));
        check_traced(&before, &[(999, 0)], Some((999, 0)));
        check_traced(&before, &[(1023, sum_of(1023, &[1]))], Some((1023, sum_of(1023, &[1]))));
        let fewer = sum_of(700, &[3, u32::MAX]);
        check_traced(&before, &[(700, fewer)], Some((700, fewer)));
        let more = many ^ sum_of(700, &[9]);
        check_traced(&before, &[(700, more)], Some((700, more)));
        check_traced(&before, &[(700, 0)], Some((700, 0)));
        // Nothing has changed; one of several rows, or two owners.
        check_traced(&before, &[], None);
        check_traced(&before, &[(700, sum_of(700, &[3, u32::MAX, 0x1234_5679]))], None);
        check_traced(&before, &[(512, changed), (513, 0)], None);
        assert_eq!(added(vec![(600, 5)]).traced(1, Some(7)), None);
    }

    #[test]
    fn numbers_at_the_ends_have_factors() {
        for owner in [0, 1, i64::from(u32::MAX), i64::MAX, i64::MIN] {
            let sum = sum_of(owner, &[u32::MAX]);
            assert!(sum > 0 && is_of_a_row(sum, owner) && !is_of_a_row(-sum, owner), "{owner}");
        }
        let sums = Sums::new(Join::Traced, vec![(i64::MAX, 5)]);
        assert_eq!(sums.traced(i64::MAX.div_euclid(GROUPS[0]), None), None);
    }
}
