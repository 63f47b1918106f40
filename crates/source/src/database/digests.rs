//! [`LastRead`]: digests of what the last read saw of each package base, which tell the bases that differ now.
//!
//! MariaDB does not tell which rows a commit has changed. So it makes a checksum of each row, adds up those of 512 bases, and sends
//! some hundred sums. Where one differs, Larder asks for the sums of 32 bases each, then of single bases, and reads only the rows of
//! differing bases. A table is compared only if the gate says that it may have changed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use super::catalogue::{
    Catalogue, Kind, NUMBERS_MAX, ROW_COUNTS, USER_NAMES, add_user_name, in_numbers,
};
use super::gate::Tables;
use super::spool::popularity;
use super::transaction::Transaction;

mod sums;

use sums::{ChangedSums, GROUPS, OwnerSums, sum_of};

/// If more sums differ than this, the more exact ones are asked for of all numbers at once.
const RANGES_MAX: usize = 64;

/// The rows that belong to packages: table, and a row of it. They have no sums that are held, since aurweb never changes them on their own.
const PARTS: [(&str, &str); 4] = [
    (
        "PackageDepends",
        "t.PackageID, t.DepTypeID, t.DepName, COALESCE(CONCAT('+', t.DepCondition), '-'), COALESCE(CONCAT('+', t.DepArch), '-'), \
         COALESCE(CONCAT('+', t.DepDesc), '-')",
    ),
    (
        "PackageRelations",
        "t.PackageID, t.RelTypeID, t.RelName, COALESCE(CONCAT('+', t.RelCondition), '-'), COALESCE(CONCAT('+', t.RelArch), '-')",
    ),
    ("PackageGroups", "t.PackageID, t.GroupID"),
    ("PackageLicenses", "t.PackageID, t.LicenseID"),
];

/// A sum that no rows have, so that it differs next time.
const NO_SUM: i64 = -1;

/// Rows with the number of their owner, and the checksum of one of them.
struct Rows {
    table: &'static str,
    /// The column with the number of the base; of users, with their own.
    owner: &'static str,
    /// All columns that answers depend on, with a mark for NULL where a column may have it.
    row: &'static str,
    condition: &'static str,
}

/// Popularity decays without a change of a row: [`LastRead::compare`] looks at it by the clock.
const ROWS: [Rows; 7] = [
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
    Rows {
        table: "PackageBases",
        owner: "ID",
        row: "ID, Name, NumVotes, COALESCE(OutOfDateTS, '-'), SubmittedTS, ModifiedTS, COALESCE(SubmitterUID, '-'), \
              COALESCE(MaintainerUID, '-'), COALESCE(PackagerUID, '-')",
        condition: "TRUE",
    },
];
const BASES: usize = 0;
const PACKAGES: usize = 1;
/// Their names are the rows of no base.
const USERS: usize = 5;
/// The rows of bases but for their popularity. They are compared only if so many bases differ that one statement may have changed the
/// popularity of all.
const BESIDE_POPULARITY: usize = 6;

/// If more bases than this differ in their own rows, only the popularity of those is read that differ in nothing else: aurweb changes
/// that of all in one statement.
const WAVE_MIN: usize = 500;

/// How bases name users: a column with the number of a base, its table, and one with the number of a user.
const NAMED_USERS: [(&str, &str, &str); 4] = [
    ("ID", "PackageBases", "MaintainerUID"),
    ("ID", "PackageBases", "SubmitterUID"),
    ("ID", "PackageBases", "PackagerUID"),
    ("PackageBaseID", "PackageComaintainers", "UsersID"),
];

impl Rows {
    /// The sums of each `size` neighbours, only those in `range`, if it is given, without the `SELECT`.
    fn sums(&self, size: i64, range: Option<&Range<i64>>) -> String {
        let Rows { table, owner, condition, .. } = self;
        let group = if size == 1 { (*owner).to_owned() } else { format!("{owner} DIV {size}") };
        let range = range.map_or_else(String::new, |range| {
            format!(" AND {owner} >= {} AND {owner} < {}", range.start, range.end)
        });
        format!(
            "CAST({group} AS SIGNED) AS k, {} AS s FROM {table} WHERE {condition}{range} GROUP BY {group} ORDER BY NULL",
            sum_of(self.row)
        )
    }

    /// The sums of these owners, without the `SELECT`.
    fn some_sums(&self, owners: &[i64]) -> String {
        let Rows { table, owner, condition, .. } = self;
        let (sum, numbers) = (sum_of(self.row), in_numbers(owners));
        format!(
            "CAST({owner} AS SIGNED), {sum} FROM {table} WHERE {condition} AND {owner}{numbers} \
             GROUP BY {owner} ORDER BY NULL"
        )
    }
}

/// A question for rows of two numbers: the place of the list that they belong to, and a statement without its `SELECT`, so that
/// several can be asked [`together`].
type SumQuery = (usize, String);

/// A comparison of rows that is under way.
struct RowComparison {
    /// The place of the rows in [`ROWS`].
    at: usize,
    /// The numbers among which owners differ; all, if it is not known.
    ranges: Option<Vec<Range<i64>>>,
    /// Owners, or groups of them, that have other sums than those that are held.
    differ: Vec<(i64, Option<i64>)>,
    /// Most groups of bases differ: there is no need to ask which bases, before all are read.
    is_wave: bool,
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
pub(super) struct LastRead {
    sums: [OwnerSums; ROWS.len()],
    names: Names,
    /// Numbers of rows of tables when all were read.
    rows: [usize; ROW_COUNTS],
    /// The database's clock when popularities were last looked at, in Unix seconds.
    decayed_at: i64,
}

/// The differences from [`LastRead`].
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// The numbers of bases that may differ.
    pub(super) bases: BTreeSet<i64>,
    /// Bases of which only the popularity differs, if they are many, with the popularity of today.
    pub(super) popularities: Vec<(i64, f64)>,
    /// New sums, by the place of their rows in [`ROWS`].
    sums: Vec<(usize, ChangedSums)>,
    /// The sums of all bases that are read, in tables that were not compared.
    beside: BTreeMap<usize, ChangedSums>,
    /// The sums of the users that these bases name, if their table was not compared.
    users: BTreeMap<i64, i64>,
    /// The names of all users, one a line, if any of them is another one.
    pub(super) user_names: Option<String>,
    decayed_at: Option<i64>,
    /// The sum of what belongs to the packages of each of the bases that were asked about, of those that have any of it.
    parts: BTreeMap<i64, i64>,
}

impl Difference {
    /// The sum of what belongs to the packages of a base that was asked about.
    pub(super) fn parts_of(&self, base: i64) -> i64 {
        self.parts.get(&base).copied().unwrap_or_default()
    }

    /// Reads the differing bases, and the sums of their rows in the tables that were not `compared`; where a push may have changed
    /// them, also those of what belongs to their packages. Ends the transaction.
    pub(super) async fn read(
        &mut self,
        mut transaction: Transaction<'_>,
        compared: Tables,
    ) -> Result<Catalogue, sqlx::Error> {
        let mut part = Catalogue::empty(transaction.begin().await?.now);
        let bases: Vec<i64> = self.bases.iter().copied().collect();
        let mut asked = self.beside(compared);
        if compared.have_pushes() {
            self.parts.retain(|base, _| !self.bases.contains(base));
            asked.extend(sums_of_parts(&bases));
        }
        let sums = together(asked);
        let (kinds, of_rows): (Vec<Kind>, Vec<String>) = Catalogue::statements(&bases).unzip();
        let places = sums.as_slice().len();
        let have_users_changed =
            self.sums.iter().any(|(at, sums)| *at == USERS && !sums.is_empty());
        let of_users = have_users_changed.then(|| USER_NAMES.to_owned());
        let mut user_names = have_users_changed.then(String::new);
        let statements: Vec<String> = sums.into_iter().chain(of_rows).chain(of_users).collect();
        let take = |at: usize, row: &MySqlRow| match at.checked_sub(places) {
            None => self.take_beside(row),
            Some(at) => match (kinds.get(at), &mut user_names) {
                (Some(kind), _) => part.take(*kind, row),
                (None, Some(names)) => add_user_name(names, row),
                (None, None) => Ok(()),
            },
        };
        transaction.end(&statements, take).await?;
        self.user_names = user_names;
        part.sort();
        Ok(part)
    }

    /// Asks for the sums of the differing bases in the tables that were not `compared`.
    ///
    /// The bases are read with their rows in all tables. Such a table may change after the tables to compare were chosen, and
    /// change back before it is compared. Without these sums it would then never differ, and the state in between would be
    /// served on.
    fn beside(&mut self, compared: Tables) -> Vec<SumQuery> {
        let bases: Vec<i64> = self.bases.iter().copied().collect();
        let mut asked: Vec<SumQuery> = Vec::new();
        for (at, rows) in ROWS.iter().enumerate() {
            let is_compared = at != BESIDE_POPULARITY && compared.has(rows.table);
            if is_compared {
                continue;
            }
            for bases in bases.chunks(NUMBERS_MAX) {
                match at {
                    USERS => asked.extend(named_users(bases).map(|query| (at, query))),
                    _ => asked.push((at, rows.some_sums(bases))),
                }
            }
            if at != USERS {
                let none = bases.iter().map(|base| (*base, None));
                self.beside.insert(at, none.collect());
            }
        }
        asked
    }

    /// Takes a row of one of these.
    fn take_beside(&mut self, row: &MySqlRow) -> Result<(), sqlx::Error> {
        let (at, owner, sum) = place_and_pair(row)?;
        match self.beside.get_mut(&at) {
            Some(beside) => drop(beside.insert(owner, Some(sum))),
            None if at == USERS => drop(self.users.insert(owner, sum)),
            None => add_parts(&mut self.parts, at, owner, sum),
        }
        Ok(())
    }
}

impl LastRead {
    /// Sees everything, in the transaction in which all tables are read.
    pub(super) async fn see(transaction: &mut Transaction<'_>) -> Result<LastRead, sqlx::Error> {
        let now = transaction.begin().await?.now;
        // They are many: one by one, the server sends them as it finds them.
        let statements = ROWS.iter().map(|rows| format!("SELECT {}", rows.sums(1, None)));
        let mut sums: [Vec<(i64, i64)>; ROWS.len()] = Default::default();
        let take = |at: usize, row: &MySqlRow| {
            sums[at].push((row.try_get(0)?, row.try_get(1)?));
            Ok(())
        };
        transaction.ask(&statements.collect::<Vec<_>>(), take).await?;
        let sums = sums.map(OwnerSums::new);
        let mut names = Names::default();
        let query = "SELECT CAST(ID AS SIGNED), Name FROM PackageBases ORDER BY ID".to_owned();
        transaction
            .ask(&[query], |_, row| {
                names.push(row.try_get(0)?, row.try_get(1)?);
                Ok(())
            })
            .await?;
        names.text.shrink_to_fit();
        names.ends.shrink_to_fit();
        Ok(LastRead { sums, names, rows: [0; ROW_COUNTS], decayed_at: now })
    }

    /// Counts the rows of `part`, which is one part of all that was read.
    pub(super) fn count(&mut self, part: &Catalogue) {
        for (count, more) in self.rows.iter_mut().zip(part.row_counts()) {
            *count += more;
        }
    }

    /// How many bases there were.
    #[cfg(test)]
    pub(super) fn bases(&self) -> usize {
        self.sums[BASES].sums.len()
    }

    /// Names of bases without a package, by rising number.
    pub(super) fn empty_bases(&self) -> Vec<String> {
        let names = self.names.ends.iter().filter(|(base, _)| !self.had_packages(*base));
        names.filter_map(|(base, _)| self.name(*base)).map(str::to_owned).collect()
    }

    /// The bases that differ in these tables; if `is_due`, also those whose popularity has decayed since it was looked at. Also
    /// asks what belongs to the packages of the `recent` bases.
    pub(super) async fn compare(
        &self,
        transaction: &mut Transaction<'_>,
        tables: Tables,
        recent: &[i64],
        is_due: bool,
    ) -> Result<Difference, sqlx::Error> {
        let is_compared = |&at: &usize| at != BESIDE_POPULARITY && tables.has(ROWS[at].table);
        let compared = (0..ROWS.len()).filter(is_compared);
        let (changed, parts) = self.changed(transaction, compared, recent).await?;
        let mut difference = Difference { parts, ..Difference::default() };
        let (mut own, mut is_wave) = (BTreeSet::new(), false);
        for RowComparison { at, differ, is_wave: is_most, .. } in changed {
            if is_most {
                is_wave = true;
                continue;
            }
            let changed: ChangedSums = differ.into_iter().collect();
            let owners: Vec<i64> = changed.keys().copied().collect();
            match at {
                USERS => {
                    let naming: Vec<String> =
                        owners.chunks(NUMBERS_MAX).flat_map(bases_naming).collect();
                    let bases = pairs(transaction, naming).await?;
                    difference.bases.extend(bases.into_iter().map(|(base, _)| base));
                }
                BASES => {
                    // The row of a base that is new or gone differs in more than its popularity.
                    let is_there = |base: &i64| {
                        self.sums[BASES].of(*base).is_some() && changed[base].is_some()
                    };
                    let (there, others): (Vec<i64>, Vec<i64>) =
                        owners.into_iter().partition(is_there);
                    own.extend(there);
                    difference.bases.extend(others);
                }
                _ => difference.bases.extend(owners),
            }
            difference.sums.push((at, changed));
        }
        if is_due {
            let (now, then) = (transaction.begin().await?.now, self.decayed_at);
            let bases = pairs(transaction, vec![decayed(now, then)]).await?;
            own.extend(bases.into_iter().map(|(base, _)| base));
            difference.decayed_at = Some(now);
        }
        if is_wave || own.len() > WAVE_MIN {
            self.read_wave(transaction, own, &mut difference).await?;
        } else {
            difference.bases.extend(own);
        }
        Ok(difference)
    }

    /// Reads the popularity of all bases, and notes those of which it differs, or that are among `wanted`. Those that differ in more
    /// are to be read.
    async fn read_wave(
        &self,
        transaction: &mut Transaction<'_>,
        wanted: BTreeSet<i64>,
        difference: &mut Difference,
    ) -> Result<(), sqlx::Error> {
        let now = transaction.begin().await?.now;
        let [sum, beside] = [BASES, BESIDE_POPULARITY].map(|at| sum_of(ROWS[at].row));
        let query = format!(
            "SELECT CAST(ID AS SIGNED), {sum}, {beside}, CAST(MAX(Popularity) AS DOUBLE), \
             CAST(UNIX_TIMESTAMP(MAX(PopularityUpdated)) AS SIGNED) FROM PackageBases GROUP BY ID ORDER BY NULL"
        );
        let (mut sums, mut others) = (ChangedSums::new(), ChangedSums::new());
        let mut seen = HashSet::with_capacity(self.sums[BASES].sums.len());
        let take = |_: usize, row: &MySqlRow| {
            let base: i64 = row.try_get(0)?;
            let [sum, beside]: [i64; 2] = [row.try_get(1)?, row.try_get(2)?];
            seen.insert(base);
            if self.sums[BASES].of(base) == Some(sum) && !wanted.contains(&base) {
                return Ok(());
            }
            sums.insert(base, Some(sum));
            if self.sums[BESIDE_POPULARITY].of(base) != Some(beside) {
                others.insert(base, Some(beside));
            } else if !difference.bases.contains(&base) {
                let (stored, updated) = (row.try_get(3)?, row.try_get::<Option<i64>, _>(4)?);
                let shown = popularity(stored, updated.unwrap_or(0), now);
                difference.popularities.push((base, shown));
            }
            Ok(())
        };
        transaction.ask(&[query], take).await?;
        let gone = self.sums[BASES].sums.iter().map(|(base, _)| *base);
        for base in gone.filter(|base| !seen.contains(base)) {
            sums.insert(base, None);
            others.insert(base, None);
        }
        difference.bases.extend(others.keys().copied());
        difference.sums.extend([(BASES, sums), (BESIDE_POPULARITY, others)]);
        Ok(())
    }

    /// Which owners have other sums in these places of [`ROWS`] than those that are held, and which: none, if they have no rows. They are
    /// asked together, so that the server is asked three times at most; the first time also for the sums of what belongs to the
    /// packages of the `recent` bases.
    async fn changed(
        &self,
        transaction: &mut Transaction<'_>,
        compared: impl IntoIterator<Item = usize>,
        recent: &[i64],
    ) -> Result<(Vec<RowComparison>, BTreeMap<i64, i64>), sqlx::Error> {
        let compared = compared.into_iter();
        let new = |at| RowComparison { at, ranges: None, differ: Vec::new(), is_wave: false };
        let mut comparing: Vec<RowComparison> = compared.map(new).collect();
        let mut parts = BTreeMap::new();
        for size in GROUPS {
            let mut asked: Vec<SumQuery> = Vec::new();
            for RowComparison { at, ranges, is_wave, .. } in &comparing {
                match ranges {
                    _ if *is_wave => {}
                    None => asked.push((*at, ROWS[*at].sums(size, None))),
                    Some(ranges) => asked.extend(
                        ranges.iter().map(|range| (*at, ROWS[*at].sums(size, Some(range)))),
                    ),
                }
            }
            let mut found: [Vec<(i64, i64)>; ROWS.len() + PARTS.len()] = Default::default();
            if size == GROUPS[0] {
                asked.extend(sums_of_parts(recent));
            }
            pairs_of(transaction, asked, &mut found).await?;
            for (at, found) in found.iter().enumerate().skip(ROWS.len()) {
                found.iter().for_each(|(base, sum)| add_parts(&mut parts, at, *base, *sum));
            }
            for RowComparison { at, ranges, differ, is_wave } in &mut comparing {
                if *is_wave {
                    continue;
                }
                let found = &mut found[*at];
                found.sort_unstable();
                *differ = different(&self.sums[*at].grouped(size, ranges.as_deref()), found);
                *is_wave = *at == BASES && differ.len() > RANGES_MAX.max(found.len() / 2);
                let range = |(group, _): &(i64, Option<i64>)| group * size..(group + 1) * size;
                *ranges = (differ.len() <= RANGES_MAX).then(|| differ.iter().map(range).collect());
            }
            comparing.retain(|comparing| !comparing.differ.is_empty());
            if comparing.is_empty() {
                break;
            }
        }
        Ok((comparing, parts))
    }

    /// Whether the base had a package at the last read.
    pub(super) fn had_packages(&self, base: i64) -> bool {
        self.sums[PACKAGES].of(base).is_some()
    }

    /// Whether `now`, which was seen later of all tables, lacks what cannot go in the daily course of things without a push or a migration
    /// that is under way: all packages of a base that is there, or all rows of a table.
    pub(super) fn has_lost(&self, now: &LastRead) -> bool {
        let mut bases = now.names.ends.iter().map(|(base, _)| *base);
        self.rows.iter().zip(now.rows).any(|(before, now)| *before > 0 && now == 0)
            || bases.any(|base| !now.had_packages(base) && self.had_packages(base))
    }

    /// The name that the base had at the last read.
    pub(super) fn name(&self, base: i64) -> Option<&str> {
        self.names.of(base)
    }

    /// Notes that the differing bases were read, as `part`, except for some bases, which will differ again.
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
        // If a user's name changes back before its table is compared, it has to differ all the same, because the new name was
        // read.
        let users = difference.users.into_iter();
        let others = users.filter(|(user, sum)| self.sums[USERS].of(*user) != Some(*sum));
        let others: ChangedSums = others.map(|(user, _)| (user, Some(NO_SUM))).collect();
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

/// Asks for the sums of what belongs to the packages of these bases, with places after those of [`ROWS`].
fn sums_of_parts(bases: &[i64]) -> impl Iterator<Item = SumQuery> {
    PARTS.into_iter().enumerate().flat_map(move |(at, (table, row))| {
        let sum = sum_of(row);
        bases.chunks(NUMBERS_MAX).map(move |bases| {
            let numbers = in_numbers(bases);
            let query = format!(
                "CAST(p.PackageBaseID AS SIGNED) AS k, {sum} AS s FROM Packages p JOIN {table} t ON t.PackageID = p.ID \
                 WHERE p.PackageBaseID{numbers} GROUP BY p.PackageBaseID ORDER BY NULL"
            );
            (ROWS.len() + at, query)
        })
    })
}

/// Adds the sum of what belongs to the packages of a base in one table, which has this place.
fn add_parts(parts: &mut BTreeMap<i64, i64>, at: usize, base: i64, sum: i64) {
    // A row of one table is no row of another.
    let factor = 2 * (at - ROWS.len()) as i64 + 1;
    let total = parts.entry(base).or_default();
    *total = total.wrapping_add(sum.wrapping_mul(factor));
}

/// The bases whose popularity has decayed between two times, in Unix seconds, without the `SELECT`.
fn decayed(now: i64, then: i64) -> String {
    format!(
        "CAST(ID AS SIGNED), 0 FROM PackageBases WHERE Popularity > 0 AND \
         ({now} - CAST(UNIX_TIMESTAMP(PopularityUpdated) AS SIGNED)) DIV 86400 <> \
         ({then} - CAST(UNIX_TIMESTAMP(PopularityUpdated) AS SIGNED)) DIV 86400"
    )
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
        format!("CAST({base} AS SIGNED), 0 FROM {table} WHERE {user}{numbers}")
    })
}

/// Users that these bases name, with the sums of their rows.
fn named_users(bases: &[i64]) -> impl Iterator<Item = String> {
    NAMED_USERS.into_iter().map(move |(base, table, user)| {
        let (sum, numbers) = (sum_of("u.ID, u.Username"), in_numbers(bases));
        format!(
            "CAST(u.ID AS SIGNED), {sum} FROM (SELECT DISTINCT {user} AS ID FROM {table} WHERE {base}{numbers}) n \
             JOIN Users u ON u.ID = n.ID GROUP BY u.ID ORDER BY NULL"
        )
    })
}

/// The rows of all of these statements, which come without their `SELECT`.
async fn pairs(
    transaction: &mut Transaction<'_>,
    statements: Vec<String>,
) -> Result<Vec<(i64, i64)>, sqlx::Error> {
    let asked = statements.into_iter().map(|statement| (0, statement)).collect();
    let mut pairs = [Vec::new()];
    pairs_of(transaction, asked, &mut pairs).await?;
    let [pairs] = pairs;
    Ok(pairs)
}

/// Asks for all of these together, and adds their rows to the lists in their places.
async fn pairs_of(
    transaction: &mut Transaction<'_>,
    asked: Vec<SumQuery>,
    lists: &mut [Vec<(i64, i64)>],
) -> Result<(), sqlx::Error> {
    let take = |_: usize, row: &MySqlRow| {
        let (at, first, second) = place_and_pair(row)?;
        lists[at].push((first, second));
        Ok(())
    };
    transaction.ask(together(asked).as_slice(), take).await
}

/// One statement for all of these; none if there are none.
fn together(asked: Vec<SumQuery>) -> Option<String> {
    let all = asked.into_iter().map(|(at, rows)| format!("(SELECT {at}, {rows})"));
    all.reduce(|all, rows| all + " UNION ALL " + &rows)
}

/// What is in a row of [`together`].
fn place_and_pair(row: &MySqlRow) -> Result<(usize, i64, i64), sqlx::Error> {
    let at: i64 = row.try_get(0)?;
    Ok((at.unsigned_abs() as usize, row.try_get(1)?, row.try_get(2)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(owners: &[(i64, i64)]) -> LastRead {
        let mut sums: [OwnerSums; ROWS.len()] = Default::default();
        sums[0] = OwnerSums::new(owners.to_vec());
        LastRead { sums, names: Names::default(), rows: [0; ROW_COUNTS], decayed_at: 0 }
    }

    /// Expects these held sums after these changes, with base 70 left for later.
    #[track_caller]
    fn check(changed: &[(i64, Option<i64>)], owners: &[(i64, i64)], groups: &[(i64, i64)]) {
        let mut held = held(&[(1, 10), (70, 5), (71, 6)]);
        let changed = changed.iter().copied().collect();
        let difference = Difference { sums: vec![(0, changed)], ..Difference::default() };
        held.learn(difference, &Catalogue::empty(0), &HashSet::from([70]));
        assert_eq!(held.sums[0].sums, owners);
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
