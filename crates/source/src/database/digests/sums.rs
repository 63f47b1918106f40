//! [`OwnerSums`]: the checksums of one table's rows, by the number of their owner.

use std::collections::BTreeMap;
use std::ops::Range;

/// How many neighbouring numbers share a sum: more and more exact ones are asked for.
pub(super) const GROUPS: [i64; 3] = [512, 32, 1];

/// The expression that adds up the checksums of rows with these columns: as DOUBLE, which costs the server less than DECIMAL, and is
/// exact for two million rows.
pub(super) fn sum_of(row: &str) -> String {
    format!("CAST(SUM(CRC32(CONCAT_WS('\\n', {row})) + 0e0) AS SIGNED)")
}

/// The sums of some owners; `None` for those without rows.
pub(super) type ChangedSums = BTreeMap<i64, Option<i64>>;

/// Owners with the sums of their rows, by rising number.
#[derive(Debug, Default)]
pub(super) struct OwnerSums {
    pub(super) sums: Vec<(i64, i64)>,
}

impl OwnerSums {
    pub(super) fn new(mut sums: Vec<(i64, i64)>) -> OwnerSums {
        sums.sort();
        sums.shrink_to_fit();
        OwnerSums { sums }
    }

    pub(super) fn of(&self, owner: i64) -> Option<i64> {
        self.place(owner).map(|at| self.sums[at].1)
    }

    pub(super) fn set(&mut self, changed: &ChangedSums) {
        let (mut new, mut has_gone) = (Vec::new(), false);
        for (owner, sum) in changed {
            match (self.place(*owner), sum) {
                (Some(at), Some(sum)) => self.sums[at].1 = *sum,
                (None, Some(sum)) => new.push((*owner, *sum)),
                (at, None) => has_gone |= at.is_some(),
            }
        }
        if has_gone {
            self.sums.retain(|(owner, _)| changed.get(owner) != Some(&None));
        }
        if !new.is_empty() {
            self.sums.extend(new);
            self.sums.sort();
        }
    }

    fn place(&self, owner: i64) -> Option<usize> {
        self.sums.binary_search_by_key(&owner, |(owner, _)| *owner).ok()
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
                    Some((last, total)) if *last == group => *total = total.wrapping_add(*sum),
                    _ => groups.push((group, *sum)),
                }
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_bases_that_were_read_are_replaced() {
        let mut sums = OwnerSums::new(vec![(70, 7), (1, 10), (2, 5)]);
        let changed = [(1, Some(11)), (2, None), (3, Some(2)), (70, None), (9000, Some(4))];
        sums.set(&changed.into_iter().collect());
        assert_eq!(sums.sums, [(1, 11), (3, 2), (9000, 4)]);
        assert_eq!(sums.grouped(64, None), [(0, 13), (140, 4)]);
        assert_eq!(sums.grouped(1, Some(&[2..4, 64..9001])), [(3, 2), (9000, 4)]);
        assert_eq!((sums.of(3), sums.of(70)), (Some(2), None));
    }
}
