//! [`Held`]: what the last read saw of each package base, as digests, and with them which bases differ now.
//!
//! MariaDB does not tell which rows a commit has changed. So the server adds up a checksum of each row, for 4096 bases at a time, and
//! sends a few dozen sums. Only where one differs are those of 64 bases asked for, then those of single bases, and only of bases that
//! differ are rows read. A table is looked at only if the gate says that it has moved.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::time::Duration;

use sqlx::{MySqlConnection, Row as _};

use super::catalogue::{Catalogue, NUMBERS_MAX, ROW_COUNTS, each, in_numbers};
use super::gate::Tables;

/// How many neighbouring numbers share a sum: more and more exact ones are asked for.
const GROUPS: [i64; 3] = [4096, 64, 1];

/// If more sums differ than this, the more exact ones are asked for of all numbers at once.
const RANGES_MAX: usize = 64;

/// What no rows add up to: it differs next time.
const NO_SUM: i64 = -1;

/// Rows with the number of their owner, and the checksum of one of them.
struct Rows {
    table: &'static str,
    /// The column with the number of the base; of users, with their own.
    owner: &'static str,
    /// Everything that answers are made of, with a sign for NULL where a column may be that.
    row: &'static str,
    condition: &'static str,
}

/// Popularity decays without a change of a row: [`Held::compare`] looks at it by the clock.
const ROWS: [Rows; 6] = [
    Rows {
        table: "PackageBases",
        owner: "ID",
        row: "ID, Name, NumVotes, Popularity, UNIX_TIMESTAMP(PopularityUpdated), COALESCE(OutOfDateTS, '-'), SubmittedTS, ModifiedTS, \
              COALESCE(SubmitterUID, '-'), COALESCE(MaintainerUID, '-'), COALESCE(PackagerUID, '-')",
        condition: "TRUE",
    },
    Rows {
        table: "Packages",
        owner: "PackageBaseID",
        row: "ID, Name, Version, COALESCE(CONCAT('+', Description), '-'), COALESCE(CONCAT('+', URL), '-')",
        condition: "TRUE",
    },
    Rows {
        table: "PackageKeywords",
        owner: "PackageBaseID",
        row: "PackageBaseID, Keyword",
        condition: "TRUE",
    },
    Rows {
        table: "PackageComaintainers",
        owner: "PackageBaseID",
        row: "PackageBaseID, UsersID, Priority",
        condition: "TRUE",
    },
    Rows {
        table: "PackageRequests",
        owner: "PackageBaseID",
        row: "ID",
        condition: "Status = 0 AND ClosedTS IS NULL AND PackageBaseID IS NOT NULL",
    },
    Rows { table: "Users", owner: "ID", row: "ID, Username", condition: "TRUE" },
];
const PACKAGES: usize = 1;
/// Their names are the rows of no base.
const USERS: usize = 5;

/// How bases name users: a column with the number of a base, its table, and one with the number of a user.
const NAMED_USERS: [(&str, &str, &str); 4] = [
    ("ID", "PackageBases", "MaintainerUID"),
    ("ID", "PackageBases", "SubmitterUID"),
    ("ID", "PackageBases", "PackagerUID"),
    ("PackageBaseID", "PackageComaintainers", "UsersID"),
];

/// The checksum of a row. It is added up as a DOUBLE, which costs the server less than a DECIMAL, and is exact for two million rows.
fn sum(row: &str) -> String {
    format!("CAST(SUM(CRC32(CONCAT_WS('\\n', {row})) + 0e0) AS SIGNED)")
}

impl Rows {
    /// The sums of each `size` neighbours; only of those in a range of numbers, if there is one.
    fn sums(&self, size: i64, range: Option<&Range<i64>>) -> String {
        let Rows { table, owner, condition, .. } = self;
        let group = if size == 1 { (*owner).to_owned() } else { format!("{owner} DIV {size}") };
        let range = range.map_or_else(String::new, |range| {
            format!(" AND {owner} >= {} AND {owner} < {}", range.start, range.end)
        });
        format!(
            "SELECT CAST({group} AS SIGNED), {} FROM {table} WHERE {condition}{range} GROUP BY {group} ORDER BY NULL",
            sum(self.row)
        )
    }

    /// The sums of these owners.
    fn some_sums(&self, owners: &[i64]) -> String {
        let Rows { table, owner, condition, .. } = self;
        let (sum, numbers) = (sum(self.row), in_numbers(owners));
        format!(
            "SELECT CAST({owner} AS SIGNED), {sum} FROM {table} WHERE {condition} AND {owner}{numbers} \
             GROUP BY {owner} ORDER BY NULL"
        )
    }

    /// Which owners have other sums than those that are held, and which: none, if they have no rows.
    async fn compare(
        &self,
        connection: &mut MySqlConnection,
        stall: Duration,
        held: &Sums,
    ) -> Result<Changed, sqlx::Error> {
        let mut ranges: Option<Vec<Range<i64>>> = None;
        let mut differ = Vec::new();
        for size in GROUPS {
            let statements: Vec<String> = match &ranges {
                None => vec![self.sums(size, None)],
                Some(ranges) => ranges.iter().map(|range| self.sums(size, Some(range))).collect(),
            };
            let mut found = pairs(connection, &statements, stall).await?;
            found.sort_unstable();
            differ = different(&held.grouped(size, ranges.as_deref()), &found);
            if differ.is_empty() {
                break;
            }
            let range = |(group, _): &(i64, Option<i64>)| group * size..(group + 1) * size;
            ranges = (differ.len() <= RANGES_MAX).then(|| differ.iter().map(range).collect());
        }
        Ok(differ.into_iter().collect())
    }
}

/// The sums of some owners; none for those that have no rows.
type Changed = BTreeMap<i64, Option<i64>>;

/// Owners with the sums of their rows, by rising number.
#[derive(Debug, Default)]
struct Sums(Vec<(i64, i64)>);

impl Sums {
    fn of(&self, owner: i64) -> Option<i64> {
        let at = self.0.binary_search_by_key(&owner, |(owner, _)| *owner).ok()?;
        Some(self.0[at].1)
    }

    /// The sums of each `size` neighbours, by rising number; only of those in these ranges of numbers, if there are any.
    fn grouped(&self, size: i64, ranges: Option<&[Range<i64>]>) -> Vec<(i64, i64)> {
        let all = i64::MIN..i64::MAX;
        let mut groups: Vec<(i64, i64)> = Vec::new();
        for range in ranges.unwrap_or(std::slice::from_ref(&all)) {
            let start = self.0.partition_point(|(owner, _)| *owner < range.start);
            let within = self.0[start..].iter().take_while(|(owner, _)| *owner < range.end);
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

    fn set(&mut self, changed: &Changed) {
        let mut new = Vec::new();
        for (owner, sum) in changed {
            match (self.0.binary_search_by_key(owner, |(owner, _)| *owner), sum) {
                (Ok(at), Some(sum)) => self.0[at].1 = *sum,
                (Err(_), Some(sum)) => new.push((*owner, *sum)),
                (_, None) => {}
            }
        }
        if changed.values().any(Option::is_none) {
            self.0.retain(|(owner, _)| changed.get(owner) != Some(&None));
        }
        if !new.is_empty() {
            self.0.extend(new);
            self.0.sort();
        }
    }
}

/// The names of bases: those of the first read, together in one text, and what has become of some since.
#[derive(Debug, Default)]
struct Names {
    text: String,
    /// Numbers of bases, ascending, with where their names end.
    ends: Vec<(i64, usize)>,
    changed: BTreeMap<i64, Option<Box<str>>>,
}

impl Names {
    fn push(&mut self, base: i64, name: &str) {
        self.text.push_str(name);
        self.ends.push((base, self.text.len()));
    }

    fn of(&self, base: i64) -> Option<&str> {
        if let Some(changed) = self.changed.get(&base) {
            return changed.as_deref();
        }
        let at = self.ends.binary_search_by_key(&base, |(base, _)| *base).ok()?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        Some(&self.text[start..self.ends[at].1])
    }
}

/// What the last read saw.
#[derive(Debug)]
pub(super) struct Held {
    sums: [Sums; ROWS.len()],
    names: Names,
    /// How many rows tables had when all of them were read.
    rows: [usize; ROW_COUNTS],
    /// The database's clock when popularities were last looked at, in Unix seconds.
    decayed_at: i64,
}

/// What differs from that.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// The numbers of bases that may differ.
    pub(super) bases: BTreeSet<i64>,
    /// New sums, by the place of their rows in [`ROWS`].
    sums: Vec<(usize, Changed)>,
    /// The sums of all bases that are read, in tables that were not compared.
    beside: BTreeMap<usize, Changed>,
    /// The sums of the users that these bases name, if their table was not compared.
    users: BTreeMap<i64, i64>,
    decayed_at: Option<i64>,
}

impl Difference {
    /// Sees what the tables that were not compared have of the bases that differ, in the transaction in which these bases are read.
    ///
    /// They are read with their rows of all tables. A row that was committed after these tables were chosen, and that goes back to
    /// what is held before they are compared, would never differ, and what was read in between would be served on.
    pub(super) async fn see_beside(
        &mut self,
        connection: &mut MySqlConnection,
        stall: Duration,
        compared: Tables,
    ) -> Result<(), sqlx::Error> {
        let bases: Vec<i64> = self.bases.iter().copied().collect();
        let mut statements: Vec<(usize, String)> = Vec::new();
        for (at, rows) in ROWS.iter().enumerate().filter(|(_, rows)| !compared.has(rows.table)) {
            for bases in bases.chunks(NUMBERS_MAX) {
                match at {
                    USERS => statements.extend(named_users(bases).map(|query| (at, query))),
                    _ => statements.push((at, rows.some_sums(bases))),
                }
            }
            if at != USERS {
                let none = bases.iter().map(|base| (*base, None));
                self.beside.insert(at, none.collect());
            }
        }
        let (of, statements): (Vec<usize>, Vec<String>) = statements.into_iter().unzip();
        each(connection, &statements, stall, |at, row| {
            let (owner, sum) = (row.try_get(0)?, row.try_get(1)?);
            match self.beside.get_mut(&of[at]) {
                Some(beside) => drop(beside.insert(owner, Some(sum))),
                None => drop(self.users.insert(owner, sum)),
            }
            Ok(())
        })
        .await
    }
}

impl Held {
    /// Sees everything, in the transaction in which all tables are read; `now` is its time.
    pub(super) async fn see(
        connection: &mut MySqlConnection,
        stall: Duration,
        now: i64,
    ) -> Result<Held, sqlx::Error> {
        let mut sums: [Sums; ROWS.len()] = Default::default();
        let statements: Vec<String> = ROWS.iter().map(|rows| rows.sums(1, None)).collect();
        each(connection, &statements, stall, |at, row| {
            sums[at].0.push((row.try_get(0)?, row.try_get(1)?));
            Ok(())
        })
        .await?;
        for sums in &mut sums {
            sums.0.sort();
            sums.0.shrink_to_fit();
        }
        let mut names = Names::default();
        let query = "SELECT CAST(ID AS SIGNED), Name FROM PackageBases ORDER BY ID".to_owned();
        each(connection, &[query], stall, |_, row| {
            names.push(row.try_get(0)?, row.try_get(1)?);
            Ok(())
        })
        .await?;
        names.text.shrink_to_fit();
        names.ends.shrink_to_fit();
        Ok(Held { sums, names, rows: [0; ROW_COUNTS], decayed_at: now })
    }

    /// Counts the rows of `part`, which is one part of all that was read.
    pub(super) fn count(&mut self, part: &Catalogue) {
        for (count, more) in self.rows.iter_mut().zip(part.row_counts()) {
            *count += more;
        }
    }

    /// Names of bases without a package, by rising number.
    pub(super) fn empty_bases(&self) -> Vec<String> {
        let names = self.names.ends.iter().filter(|(base, _)| !self.had_packages(*base));
        names.filter_map(|(base, _)| self.name(*base)).map(str::to_owned).collect()
    }

    /// Which bases differ in these tables. With `now`, the database's clock, also those whose popularity has decayed since.
    pub(super) async fn compare(
        &self,
        connection: &mut MySqlConnection,
        stall: Duration,
        tables: Tables,
        now: Option<i64>,
    ) -> Result<Difference, sqlx::Error> {
        let mut difference = Difference { decayed_at: now, ..Difference::default() };
        for (at, rows) in ROWS.iter().enumerate().filter(|(_, rows)| tables.has(rows.table)) {
            let changed = rows.compare(connection, stall, &self.sums[at]).await?;
            let owners: Vec<i64> = changed.keys().copied().collect();
            match at {
                USERS => {
                    let naming: Vec<String> =
                        owners.chunks(NUMBERS_MAX).flat_map(bases_naming).collect();
                    let bases = pairs(connection, &naming, stall).await?;
                    difference.bases.extend(bases.into_iter().map(|(base, _)| base));
                }
                _ => difference.bases.extend(owners),
            }
            difference.sums.push((at, changed));
        }
        if let Some(now) = now {
            let then = self.decayed_at;
            let query = format!(
                "SELECT CAST(ID AS SIGNED), 0 FROM PackageBases WHERE Popularity > 0 AND \
                 ({now} - CAST(UNIX_TIMESTAMP(PopularityUpdated) AS SIGNED)) DIV 86400 <> \
                 ({then} - CAST(UNIX_TIMESTAMP(PopularityUpdated) AS SIGNED)) DIV 86400"
            );
            let bases = pairs(connection, &[query], stall).await?;
            difference.bases.extend(bases.into_iter().map(|(base, _)| base));
        }
        Ok(difference)
    }

    /// Whether the base had a package at the last read.
    pub(super) fn had_packages(&self, base: i64) -> bool {
        self.sums[PACKAGES].of(base).is_some()
    }

    /// Whether `now`, which was seen later of all tables, lacks what cannot go in the daily course of things without a push or a migration
    /// that is under way: all packages of a base that is there, or all rows of a table.
    pub(super) fn has_lost(&self, now: &Held) -> bool {
        let mut bases = now.names.ends.iter().map(|(base, _)| *base);
        self.rows.iter().zip(now.rows).any(|(before, now)| *before > 0 && now == 0)
            || bases.any(|base| !now.had_packages(base) && self.had_packages(base))
    }

    /// The name that the base had at the last read.
    pub(super) fn name(&self, base: i64) -> Option<&str> {
        self.names.of(base)
    }

    /// What differs has been read, as `part`, except for some bases: they will differ again.
    pub(super) fn learn(
        &mut self,
        difference: Difference,
        part: &Catalogue,
        except: &HashSet<i64>,
    ) {
        for (at, mut changed) in difference.sums.into_iter().chain(difference.beside) {
            if at != USERS {
                changed.retain(|base, _| !except.contains(base));
            }
            self.sums[at].set(&changed);
        }
        // If such a name goes back to what it was before its table is compared, it has to differ all the same: what was read has it.
        let users = difference.users.into_iter();
        let others = users.filter(|(user, sum)| self.sums[USERS].of(*user) != Some(*sum));
        let others: Changed = others.map(|(user, _)| (user, Some(NO_SUM))).collect();
        self.sums[USERS].set(&others);
        if let Some(now) = difference.decayed_at {
            self.decayed_at = now;
        }
        for id in difference.bases.iter().filter(|id| !except.contains(id)) {
            let name = part.bases.get(id).map(|base| base.name.as_str());
            if self.name(*id) != name {
                self.names.changed.insert(*id, name.map(Box::from));
            }
        }
    }
}

/// The keys whose values differ, with the values that they have now, if any. Both are in the order of their keys.
fn different(before: &[(i64, i64)], now: &[(i64, i64)]) -> Vec<(i64, Option<i64>)> {
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    let mut different = Vec::new();
    while let Some(key) = before.peek().into_iter().chain(now.peek()).map(|(key, _)| *key).min() {
        let [old, new] = [&mut before, &mut now]
            .map(|pairs| pairs.next_if(|(other, _)| *other == key).map(|(_, value)| *value));
        if old != new {
            different.push((key, new));
        }
    }
    different
}

/// The bases that users with these numbers maintain, have submitted, have pushed last, or help with.
fn bases_naming(users: &[i64]) -> impl Iterator<Item = String> {
    NAMED_USERS.into_iter().map(move |(base, table, user)| {
        let numbers = in_numbers(users);
        format!("SELECT CAST({base} AS SIGNED), 0 FROM {table} WHERE {user}{numbers}")
    })
}

/// Users that these bases name, with the sums of their rows.
fn named_users(bases: &[i64]) -> impl Iterator<Item = String> {
    NAMED_USERS.into_iter().map(move |(base, table, user)| {
        let (sum, numbers) = (sum("u.ID, u.Username"), in_numbers(bases));
        format!(
            "SELECT CAST(u.ID AS SIGNED), {sum} FROM (SELECT DISTINCT {user} AS ID FROM {table} WHERE {base}{numbers}) n \
             JOIN Users u ON u.ID = n.ID GROUP BY u.ID ORDER BY NULL"
        )
    })
}

/// Rows of two numbers.
async fn pairs(
    connection: &mut MySqlConnection,
    statements: &[String],
    stall: Duration,
) -> Result<Vec<(i64, i64)>, sqlx::Error> {
    let mut pairs = Vec::new();
    each(connection, statements, stall, |_, row| {
        pairs.push((row.try_get(0)?, row.try_get(1)?));
        Ok(())
    })
    .await?;
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(owners: &[(i64, i64)]) -> Held {
        let mut sums: [Sums; ROWS.len()] = Default::default();
        sums[0] = Sums(owners.to_vec());
        Held { sums, names: Names::default(), rows: [0; ROW_COUNTS], decayed_at: 0 }
    }

    /// Expects what is held after these sums were found, with base 70 left for later.
    #[track_caller]
    fn check(changed: &[(i64, Option<i64>)], owners: &[(i64, i64)], groups: &[(i64, i64)]) {
        let mut held = held(&[(1, 10), (70, 5), (71, 6)]);
        let changed = changed.iter().copied().collect();
        let difference = Difference { sums: vec![(0, changed)], ..Difference::default() };
        held.learn(difference, &Catalogue::empty(0), &HashSet::from([70]));
        assert_eq!(held.sums[0].0, owners);
        assert_eq!(held.sums[0].grouped(64, None), groups);
    }

    #[test]
    fn a_base_that_was_left_for_later_differs_again() {
        let later = [(1, 10), (70, 5), (71, 9)];
        check(&[(70, Some(8)), (71, Some(9))], &later, &[(0, 10), (1, 14)]);
        check(&[(70, None), (71, Some(9))], &later, &[(0, 10), (1, 14)]);
        check(&[(70, None), (71, None)], &[(1, 10), (70, 5)], &[(0, 10), (1, 5)]);
    }

    #[test]
    fn sums_of_bases_that_were_read_are_replaced() {
        let mut sums = Sums(vec![(1, 10), (2, 5), (70, 7)]);
        let changed = [(1, Some(11)), (2, None), (3, Some(2)), (70, None), (9000, Some(4))];
        sums.set(&changed.into_iter().collect());
        assert_eq!(sums.0, [(1, 11), (3, 2), (9000, 4)]);
        assert_eq!(sums.grouped(64, None), [(0, 13), (140, 4)]);
        assert_eq!(sums.grouped(1, Some(&[2..4, 64..9001])), [(3, 2), (9000, 4)]);
        assert_eq!((sums.of(3), sums.of(70)), (Some(2), None));
    }

    #[test]
    fn keys_that_differ() {
        let before = [(1, 1), (2, 2), (3, 3), (9, 9)];
        let now = [(0, 5), (1, 1), (2, 0), (4, 4)];
        let found = [(0, Some(5)), (2, Some(0)), (3, None), (4, Some(4)), (9, None)];
        assert_eq!(different(&before, &now), found);
        assert_eq!(different(&now, &now), []);
        assert_eq!(different(&[], &[(1, 2)]), [(1, Some(2))]);
    }

    #[test]
    fn names_are_those_of_the_last_read() {
        let mut names = Names::default();
        for (base, name) in [(2, "two"), (5, ""), (9, "nine")] {
            names.push(base, name);
        }
        names.changed.extend([(9, None), (11, Some("eleven".into()))]);
        let found = [1, 2, 5, 9, 11].map(|base| names.of(base));
        assert_eq!(found, [None, Some("two"), Some(""), None, Some("eleven")]);
    }
}
