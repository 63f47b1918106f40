//! [`Held`]: what the last read saw of each package base, as digests, and with them which bases differ now.
//!
//! MariaDB does not tell which rows a commit has changed. So the server adds up a checksum of each row, for 64 bases at a time, and
//! sends a few thousand sums; only for sums that differ are those of single bases asked for, and only of bases that differ are rows
//! read. A table is looked at only if the gate says that it has moved.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use sqlx::{MySqlConnection, Row as _};

use super::catalogue::{Catalogue, ROW_COUNTS, each};
use super::gate::Tables;

/// How many neighbouring numbers share a sum.
const CHUNK: i64 = 64;

/// If more sums differ than this, all single bases are asked for at once.
const CHUNKS_MAX: usize = 64;

/// What no rows add up to: the chunk differs next time.
const NO_SUM: i64 = -1;

/// Rows that belong to a base, and the checksum of one of them.
struct Rows {
    table: &'static str,
    /// The column with the number of the base.
    owner: &'static str,
    /// Everything that answers are made of, with a sign for NULL where a column may be that.
    row: &'static str,
    condition: &'static str,
}

/// Popularity decays without a change of a row: [`Held::compare`] looks at it by the clock.
const ROWS: [Rows; 5] = [
    Rows {
        table: "PackageBases",
        owner: "ID",
        row: "ID, Name, NumVotes, Popularity, PopularityUpdated, COALESCE(OutOfDateTS, '-'), SubmittedTS, ModifiedTS, \
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
];
const PACKAGES: usize = 1;

/// The names of users, which are the rows of no base.
const USERS: &str = "SELECT CAST(ID DIV 64 AS SIGNED), \
     CAST(SUM(CRC32(CONCAT_WS('\\n', ID, Username))) AS SIGNED) FROM Users GROUP BY ID DIV 64";

impl Rows {
    fn sum(&self) -> String {
        format!("CAST(SUM(CRC32(CONCAT_WS('\\n', {}))) AS SIGNED)", self.row)
    }

    /// The sum of each chunk.
    fn chunks(&self) -> String {
        let Rows { table, owner, condition, .. } = self;
        format!(
            "SELECT CAST({owner} DIV {CHUNK} AS SIGNED), {} FROM {table} WHERE {condition} GROUP BY {owner} DIV {CHUNK}",
            self.sum()
        )
    }

    /// The sums of these bases.
    fn some_owners(&self, bases: &[i64]) -> String {
        let Rows { table, owner, condition, .. } = self;
        let numbers: Vec<String> = bases.iter().map(i64::to_string).collect();
        format!(
            "SELECT CAST({owner} AS SIGNED), {} FROM {table} WHERE {condition} AND {owner} IN ({}) GROUP BY {owner}",
            self.sum(),
            numbers.join(",")
        )
    }

    /// The sum of each base; only of those in a range of numbers, if there is one.
    fn owners(&self, range: Option<Range<i64>>) -> String {
        let Rows { table, owner, condition, .. } = self;
        let range = range.map_or_else(String::new, |range| {
            format!(" AND {owner} >= {} AND {owner} < {}", range.start, range.end)
        });
        format!(
            "SELECT CAST({owner} AS SIGNED), {} FROM {table} WHERE {condition}{range} GROUP BY {owner}",
            self.sum()
        )
    }
}

/// The sums of one kind of rows.
#[derive(Debug, Default)]
struct Sums {
    owners: BTreeMap<i64, i64>,
    chunks: HashMap<i64, i64>,
}

impl Sums {
    /// Sets the sums of some bases; those without rows have none.
    fn replace(&mut self, sums: impl Iterator<Item = (i64, Option<i64>)>) {
        for (owner, sum) in sums {
            if self.owners.get(&owner).copied() == sum {
                continue;
            }
            match sum {
                Some(sum) => drop(self.owners.insert(owner, sum)),
                None => drop(self.owners.remove(&owner)),
            }
            let chunk = owner.div_euclid(CHUNK);
            if self.chunks.get(&chunk) == Some(&NO_SUM) {
                continue;
            }
            let all =
                self.owners.range(range(chunk)).map(|(_, sum)| *sum).reduce(i64::wrapping_add);
            match all {
                Some(sum) => drop(self.chunks.insert(chunk, sum)),
                None => drop(self.chunks.remove(&chunk)),
            }
        }
    }
}

/// Sums that differ from those that are held.
#[derive(Debug)]
struct NewSums {
    rows: usize,
    /// The sums of some chunks; those without rows are missing in the second field.
    chunks: Vec<(i64, Option<i64>)>,
    owners: BTreeMap<i64, i64>,
}

/// The sums of all bases that are read, in a table that was not compared.
#[derive(Debug)]
struct Beside {
    rows: usize,
    owners: BTreeMap<i64, i64>,
}

/// What the last read saw.
#[derive(Debug)]
pub(super) struct Held {
    sums: [Sums; ROWS.len()],
    users: HashMap<i64, i64>,
    names: BTreeMap<i64, Box<str>>,
    /// How many rows tables had when all of them were read.
    rows: [usize; ROW_COUNTS],
    /// The database's clock when popularities were last looked at, in Unix seconds.
    decayed_at: i64,
}

/// What differs from that.
#[derive(Debug)]
pub(super) struct Difference {
    /// The numbers of bases that may differ.
    pub(super) bases: BTreeSet<i64>,
    sums: Vec<NewSums>,
    beside: Vec<Beside>,
    users: Option<HashMap<i64, i64>>,
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
        if bases.is_empty() {
            return Ok(());
        }
        for (at, rows) in ROWS.iter().enumerate().filter(|(_, rows)| !compared.has(rows.table)) {
            let owners = pairs(connection, rows.some_owners(&bases), stall).await?;
            self.beside.push(Beside { rows: at, owners: owners.into_iter().collect() });
        }
        Ok(())
    }
}

impl Held {
    /// Sees everything: what `catalogue` was read of, in the same transaction.
    pub(super) async fn see(
        connection: &mut MySqlConnection,
        stall: Duration,
        catalogue: &Catalogue,
    ) -> Result<Held, sqlx::Error> {
        let mut sums: [Sums; ROWS.len()] = Default::default();
        for (sums, rows) in sums.iter_mut().zip(&ROWS) {
            for (owner, sum) in pairs(connection, rows.owners(None), stall).await? {
                sums.owners.insert(owner, sum);
                *sums.chunks.entry(owner.div_euclid(CHUNK)).or_default() += sum;
            }
        }
        let users = pairs(connection, USERS.to_owned(), stall).await?.into_iter().collect();
        let names = catalogue.bases.iter().map(|(id, base)| (*id, base.name.as_str().into()));
        let rows = catalogue.row_counts();
        Ok(Held { sums, users, names: names.collect(), rows, decayed_at: catalogue.now })
    }

    /// Which bases differ in these tables. With `now`, the database's clock, also those whose popularity has decayed since.
    pub(super) async fn compare(
        &self,
        connection: &mut MySqlConnection,
        stall: Duration,
        tables: Tables,
        now: Option<i64>,
    ) -> Result<Difference, sqlx::Error> {
        let mut difference = Difference {
            bases: BTreeSet::new(),
            sums: Vec::new(),
            beside: Vec::new(),
            users: None,
            decayed_at: now,
        };
        for (at, rows) in ROWS.iter().enumerate().filter(|(_, rows)| tables.has(rows.table)) {
            let sums = &self.sums[at];
            let found: HashMap<i64, i64> =
                pairs(connection, rows.chunks(), stall).await?.into_iter().collect();
            let chunks: Vec<(i64, Option<i64>)> = different(&sums.chunks, &found)
                .map(|chunk| (chunk, found.get(&chunk).copied()))
                .collect();
            if chunks.is_empty() {
                continue;
            }
            let mut owners = BTreeMap::new();
            if chunks.len() > CHUNKS_MAX {
                owners.extend(pairs(connection, rows.owners(None), stall).await?);
            } else {
                for (chunk, _) in &chunks {
                    let query = rows.owners(Some(range(*chunk)));
                    owners.extend(pairs(connection, query, stall).await?);
                }
            }
            for (chunk, _) in &chunks {
                let (before, now) = (sums.owners.range(range(*chunk)), owners.range(range(*chunk)));
                let (before, now): (HashMap<_, _>, HashMap<_, _>) =
                    (before.map(copied).collect(), now.map(copied).collect());
                difference.bases.extend(different(&before, &now));
            }
            difference.sums.push(NewSums { rows: at, chunks, owners });
        }
        if tables.has("Users") {
            let found: HashMap<i64, i64> =
                pairs(connection, USERS.to_owned(), stall).await?.into_iter().collect();
            for chunk in different(&self.users, &found) {
                difference.bases.extend(of_users(connection, stall, range(chunk)).await?);
            }
            difference.users = Some(found);
        }
        if let Some(now) = now {
            let then = self.decayed_at;
            let query = format!(
                "SELECT CAST(ID AS SIGNED), 0 FROM PackageBases WHERE Popularity > 0 AND \
                 ({now} - CAST(UNIX_TIMESTAMP(PopularityUpdated) AS SIGNED)) DIV 86400 <> \
                 ({then} - CAST(UNIX_TIMESTAMP(PopularityUpdated) AS SIGNED)) DIV 86400"
            );
            difference.bases.extend(numbers(pairs(connection, query, stall).await?));
        }
        Ok(difference)
    }

    /// Whether the base had a package at the last read.
    pub(super) fn had_packages(&self, base: i64) -> bool {
        self.sums[PACKAGES].owners.contains_key(&base)
    }

    /// Whether `catalogue`, which was read of all tables, lacks what cannot go in the daily course of things without a push or a migration
    /// that is under way: all packages of a base that is there, or all rows of a table.
    pub(super) fn has_lost(&self, catalogue: &Catalogue) -> bool {
        let mut empty: HashSet<i64> = catalogue.bases.keys().copied().collect();
        for package in &catalogue.packages {
            empty.remove(&package.base);
        }
        self.rows.iter().zip(catalogue.row_counts()).any(|(before, now)| *before > 0 && now == 0)
            || empty.into_iter().any(|base| self.had_packages(base))
    }

    /// The name that the base had at the last read.
    pub(super) fn name(&self, base: i64) -> Option<&str> {
        self.names.get(&base).map(|name| &**name)
    }

    /// What differs has been read, as `part`, except for some bases: they will differ again.
    pub(super) fn learn(
        &mut self,
        difference: Difference,
        part: &Catalogue,
        except: &HashSet<i64>,
    ) {
        for NewSums { rows, chunks, mut owners } in difference.sums {
            let sums = &mut self.sums[rows];
            for (chunk, sum) in chunks {
                let before: Vec<i64> =
                    sums.owners.range(range(chunk)).map(|(owner, _)| *owner).collect();
                for owner in before.into_iter().filter(|owner| !except.contains(owner)) {
                    sums.owners.remove(&owner);
                }
                let is_done = !range(chunk).any(|owner| except.contains(&owner));
                match sum {
                    _ if !is_done => drop(sums.chunks.insert(chunk, NO_SUM)),
                    Some(sum) => drop(sums.chunks.insert(chunk, sum)),
                    None => drop(sums.chunks.remove(&chunk)),
                }
            }
            owners.retain(|owner, _| !except.contains(owner));
            sums.owners.append(&mut owners);
        }
        for Beside { rows, owners } in difference.beside {
            let read = difference.bases.iter().filter(|id| !except.contains(id));
            self.sums[rows].replace(read.map(|id| (*id, owners.get(id).copied())));
        }
        if let Some(users) = difference.users {
            self.users = users;
        }
        if let Some(now) = difference.decayed_at {
            self.decayed_at = now;
        }
        for id in difference.bases.iter().filter(|id| !except.contains(id)) {
            match part.bases.get(id) {
                Some(base) => drop(self.names.insert(*id, base.name.as_str().into())),
                None => drop(self.names.remove(id)),
            }
        }
    }
}

fn range(chunk: i64) -> Range<i64> {
    chunk * CHUNK..(chunk + 1) * CHUNK
}

fn copied((owner, sum): (&i64, &i64)) -> (i64, i64) {
    (*owner, *sum)
}

fn numbers(pairs: Vec<(i64, i64)>) -> impl Iterator<Item = i64> {
    pairs.into_iter().map(|(number, _)| number)
}

/// The keys whose values differ.
fn different<'a>(
    before: &'a HashMap<i64, i64>,
    now: &'a HashMap<i64, i64>,
) -> impl Iterator<Item = i64> + 'a {
    let changed = now.iter().filter(|(key, sum)| before.get(key) != Some(sum));
    let gone = before.iter().filter(|(key, _)| !now.contains_key(key));
    changed.chain(gone).map(|(key, _)| *key)
}

/// The bases that users with these numbers maintain, have submitted, have pushed last, or help with.
async fn of_users(
    connection: &mut MySqlConnection,
    stall: Duration,
    users: Range<i64>,
) -> Result<Vec<i64>, sqlx::Error> {
    let (start, end) = (users.start, users.end);
    let mut bases = Vec::new();
    for (column, table, user) in [
        ("ID", "PackageBases", "MaintainerUID"),
        ("ID", "PackageBases", "SubmitterUID"),
        ("ID", "PackageBases", "PackagerUID"),
        ("PackageBaseID", "PackageComaintainers", "UsersID"),
    ] {
        let query = format!(
            "SELECT CAST({column} AS SIGNED), 0 FROM {table} WHERE {user} >= {start} AND {user} < {end}"
        );
        bases.extend(numbers(pairs(connection, query, stall).await?));
    }
    Ok(bases)
}

/// Rows of two numbers.
async fn pairs(
    connection: &mut MySqlConnection,
    query: String,
    stall: Duration,
) -> Result<Vec<(i64, i64)>, sqlx::Error> {
    let mut pairs = Vec::new();
    each(connection, query, stall, |row| {
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
        for &(owner, sum) in owners {
            sums[0].owners.insert(owner, sum);
            *sums[0].chunks.entry(owner / CHUNK).or_default() += sum;
        }
        Held {
            sums,
            users: HashMap::new(),
            names: BTreeMap::new(),
            rows: [0; ROW_COUNTS],
            decayed_at: 0,
        }
    }

    /// Expects what is held after these sums of a chunk were found, with base 70 left for later.
    #[track_caller]
    fn check(found: &[(i64, i64)], owners: &[(i64, i64)], chunk: Option<i64>) {
        let mut held = held(&[(1, 10), (70, 5), (71, 6)]);
        let sum = (!found.is_empty()).then(|| found.iter().map(|(_, sum)| sum).sum());
        let new =
            NewSums { rows: 0, chunks: vec![(1, sum)], owners: found.iter().copied().collect() };
        let difference = Difference {
            bases: BTreeSet::new(),
            sums: vec![new],
            beside: Vec::new(),
            users: None,
            decayed_at: None,
        };
        held.learn(difference, &Catalogue::empty(0), &HashSet::from([70]));
        let sums = &held.sums[0];
        assert_eq!(sums.owners.iter().map(copied).collect::<Vec<_>>(), owners);
        assert_eq!((sums.chunks.get(&0), sums.chunks.get(&1).copied()), (Some(&10), chunk));
    }

    #[test]
    fn a_base_that_was_left_for_later_differs_again() {
        check(&[(70, 8), (71, 9)], &[(1, 10), (70, 5), (71, 9)], Some(NO_SUM));
        check(&[(71, 9)], &[(1, 10), (70, 5), (71, 9)], Some(NO_SUM));
        check(&[], &[(1, 10), (70, 5)], Some(NO_SUM));
    }

    #[test]
    fn sums_of_bases_that_were_read_are_replaced() {
        let mut sums = held(&[(1, 10), (2, 5), (70, 7)]).sums.into_iter().next().expect("sums");
        sums.replace(
            [(1, Some(11)), (2, None), (3, Some(2)), (70, None), (200, Some(4))].into_iter(),
        );
        assert_eq!(sums.owners.iter().map(copied).collect::<Vec<_>>(), [(1, 11), (3, 2), (200, 4)]);
        assert_eq!(sums.chunks, HashMap::from([(0, 13), (3, 4)]));
        // A base of this chunk was left for later: it has to differ again.
        sums.chunks.insert(0, NO_SUM);
        sums.replace([(1, Some(12))].into_iter());
        assert_eq!(sums.chunks[&0], NO_SUM);
    }

    #[test]
    fn keys_that_differ() {
        let sums = |pairs: &[(i64, i64)]| pairs.iter().copied().collect::<HashMap<_, _>>();
        let mut found: Vec<i64> =
            different(&sums(&[(1, 1), (2, 2), (3, 3)]), &sums(&[(1, 1), (2, 0), (4, 4)])).collect();
        found.sort_unstable();
        assert_eq!(found, [2, 3, 4]);
    }
}
