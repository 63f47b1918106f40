//! [`Catalogue`]: the rows of packages, or of some of them, in one consistent snapshot of the database, compactly.
//!
//! A dozen plain selects, each over one table or with the table of its names, are read row by row; rows are joined here, and
//! not by the server. Lists keep the order of their rows, which is that of the recipe. Selects that do not depend on each other
//! are sent together.

use std::collections::{HashMap, HashSet};

use aur::fold;
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use super::transaction::Transaction;

/// A statement that reads rows of some packages or bases.
struct Select {
    rows: &'static str,
    /// The column with the numbers of packages or bases, and what comes before a condition about it.
    owner: &'static str,
    end: &'static str,
}

const BASES: Select = Select {
    rows: "SELECT CAST(b.ID AS SIGNED), b.Name, CAST(b.NumVotes AS SIGNED), CAST(b.Popularity AS DOUBLE), \
           CAST(UNIX_TIMESTAMP(b.PopularityUpdated) AS SIGNED), CAST(b.OutOfDateTS AS SIGNED), CAST(b.SubmittedTS AS SIGNED), \
           CAST(b.ModifiedTS AS SIGNED), m.Username, s.Username, p.Username FROM PackageBases b \
           LEFT JOIN Users m ON m.ID = b.MaintainerUID LEFT JOIN Users s ON s.ID = b.SubmitterUID \
           LEFT JOIN Users p ON p.ID = b.PackagerUID",
    owner: " WHERE b.ID",
    end: "",
};
const PACKAGES: Select = Select {
    rows: "SELECT CAST(ID AS SIGNED), CAST(PackageBaseID AS SIGNED), Name, Version, Description, URL FROM Packages",
    owner: " WHERE PackageBaseID",
    end: " ORDER BY ID",
};
const DEPENDS: Select = Select {
    rows: "SELECT CAST(PackageID AS SIGNED), CAST(DepTypeID AS SIGNED), \
           CONCAT(DepName, COALESCE(DepCondition, '')), DepArch, DepDesc FROM PackageDepends",
    owner: " WHERE PackageID",
    end: "",
};
const RELATIONS: Select = Select {
    rows: "SELECT CAST(PackageID AS SIGNED), CAST(RelTypeID AS SIGNED), \
           CONCAT(RelName, COALESCE(RelCondition, '')), RelArch FROM PackageRelations",
    owner: " WHERE PackageID",
    end: "",
};
const GROUPS: Select = Select {
    rows: "SELECT CAST(p.PackageID AS SIGNED), g.Name FROM PackageGroups p JOIN `Groups` g ON g.ID = p.GroupID",
    owner: " WHERE p.PackageID",
    end: " ORDER BY p.PackageID, p.GroupID",
};
const LICENSES: Select = Select {
    rows: "SELECT CAST(p.PackageID AS SIGNED), l.Name FROM PackageLicenses p JOIN Licenses l ON l.ID = p.LicenseID",
    owner: " WHERE p.PackageID",
    end: " ORDER BY p.PackageID, p.LicenseID",
};
const KEYWORDS: Select = Select {
    rows: "SELECT CAST(PackageBaseID AS SIGNED), Keyword FROM PackageKeywords",
    owner: " WHERE PackageBaseID",
    end: " ORDER BY PackageBaseID, Keyword",
};
const COMAINTAINERS: Select = Select {
    rows: "SELECT CAST(c.PackageBaseID AS SIGNED), u.Username FROM PackageComaintainers c JOIN Users u ON u.ID = c.UsersID",
    owner: " WHERE c.PackageBaseID",
    end: " ORDER BY c.PackageBaseID, c.Priority",
};
const REQUESTS: Select = Select {
    rows: "SELECT CAST(PackageBaseID AS SIGNED), COUNT(*) FROM PackageRequests \
           WHERE Status = 0 AND ClosedTS IS NULL AND PackageBaseID IS NOT NULL",
    owner: " AND PackageBaseID",
    end: " GROUP BY PackageBaseID",
};

/// The names of all users, in the order of the index, which is that of aurweb's own list.
pub(super) const USER_NAMES: &str = "SELECT Username FROM Users ORDER BY Username";

/// Adds a row of [`USER_NAMES`] to names with one a line.
pub(super) fn add_user_name(names: &mut String, row: &MySqlRow) -> Result<(), sqlx::Error> {
    names.push_str(row.try_get(0)?);
    names.push('\n');
    Ok(())
}

/// How many numbers one statement may have.
pub(super) const NUMBERS_MAX: usize = 500;
/// How many packages are read at once where all are.
pub(super) const PACKAGES_AT_ONCE: usize = 1000;

impl Select {
    /// The statements that read the rows of these packages or bases.
    fn of<'a>(&self, numbers: &'a [i64]) -> impl Iterator<Item = String> + use<'a, '_> {
        let Select { rows, owner, end } = self;
        let some = move |numbers| format!("{rows}{owner}{}{end}", in_numbers(numbers));
        numbers.chunks(NUMBERS_MAX).map(some)
    }

    /// The statements that read the rows of the packages of these bases.
    fn of_packages<'a>(&self, bases: &'a [i64]) -> impl Iterator<Item = String> + use<'a, '_> {
        let Select { rows, owner, end } = self;
        let some = move |bases| {
            let packages =
                format!("SELECT ID FROM Packages WHERE PackageBaseID{}", in_numbers(bases));
            format!("{rows}{owner} IN ({packages}){end}")
        };
        bases.chunks(NUMBERS_MAX).map(some)
    }

    /// The statement that reads the rows of all packages with numbers from `first` to `last`.
    fn between(&self, first: i64, last: i64) -> String {
        let Select { rows, owner, end } = self;
        format!("{rows}{owner} BETWEEN {first} AND {last}{end}")
    }
}

/// A condition: the column has one of these numbers.
pub(super) fn in_numbers(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    format!(" IN ({})", numbers.join(","))
}

/// The lists of a package, in the order of a dump.
pub(super) const LISTS: [&str; 9] = [
    "Depends",
    "MakeDepends",
    "CheckDepends",
    "OptDepends",
    "Conflicts",
    "Provides",
    "Replaces",
    "Groups",
    "License",
];
/// The number of the list of optional dependencies.
pub(super) const OPT_DEPENDS_LIST: u8 = 3;
const DEPENDS_LIST: u8 = 0;
const RELATIONS_LIST: u8 = 4;
const GROUPS_LIST: u8 = 7;
const LICENSES_LIST: u8 = 8;
/// The lists of a base.
pub(super) const BASE_LISTS: [&str; 2] = ["Keywords", "CoMaintainers"];

/// The tables whose rows are counted: bases, packages, dependencies, relations, groups, licences, keywords, comaintainers.
pub(super) const ROW_COUNTS: usize = 8;

/// A package base.
pub(super) struct Base {
    pub(super) name: String,
    pub(super) votes: i64,
    pub(super) popularity: f64,
    /// When that was computed, in Unix seconds.
    pub(super) popularity_updated: i64,
    pub(super) out_of_date: Option<i64>,
    pub(super) submitted: i64,
    pub(super) modified: i64,
    pub(super) maintainer: Option<String>,
    pub(super) submitter: Option<String>,
    /// The user who pushed last.
    pub(super) packager: Option<String>,
}

/// A package.
pub(super) struct Package {
    pub(super) id: i64,
    pub(super) base: i64,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) description: Option<String>,
    pub(super) url: Option<String>,
}

/// Lists of texts, by the number of their owner and the number of the list.
#[derive(Default)]
pub(super) struct Lists {
    text: String,
    items: Vec<Item>,
}

/// A row of a list.
struct Item {
    owner: u32,
    list: u8,
    /// Bytes of the name of its architecture, which comes after its text; 0 if it is for all.
    architecture: u16,
    /// Bytes of its description, which comes next.
    description: u16,
    /// Where its text starts and ends.
    start: u32,
    end: u32,
}

/// A text of a list, with the facts of all rows that have it.
pub(super) struct Entry<'a> {
    pub(super) text: &'a str,
    /// Its architectures; empty if it is for all.
    pub(super) architectures: Vec<&'a str>,
    is_for_all: bool,
    pub(super) description: Option<&'a str>,
}

/// An entry for this architecture is for all.
const ANY: &str = "any";

impl Lists {
    fn push(&mut self, owner: i64, list: u8, text: &str) -> Result<(), sqlx::Error> {
        self.push_row(owner, list, text, None, None)
    }

    fn push_row(
        &mut self,
        owner: i64,
        list: u8,
        text: &str,
        architecture: Option<&str>,
        description: Option<&str>,
    ) -> Result<(), sqlx::Error> {
        let refuse =
            || sqlx::Error::Decode("a list has more than 4 GiB, or a number 32 bits".into());
        let start = u32::try_from(self.text.len()).map_err(|_| refuse())?;
        self.text.push_str(text);
        let end = u32::try_from(self.text.len()).map_err(|_| refuse())?;
        // The columns are far too narrow for a longer text.
        let mut add = |text: Option<&str>| {
            let text = text.unwrap_or_default();
            let bytes = u16::try_from(text.len()).unwrap_or(0);
            self.text.push_str(&text[..usize::from(bytes)]);
            bytes
        };
        let architecture = add(architecture.filter(|name| *name != ANY));
        let description = add(description);
        let owner = u32::try_from(owner).map_err(|_| refuse())?;
        self.items.push(Item { owner, list, architecture, description, start, end });
        Ok(())
    }

    fn sort(&mut self) {
        self.items.sort_by_key(|item| (item.owner, item.list));
    }

    fn items(&self, owner: i64, list: u8) -> &[Item] {
        let Ok(owner) = u32::try_from(owner) else { return &[] };
        let start = self.items.partition_point(|item| (item.owner, item.list) < (owner, list));
        let rest = &self.items[start..];
        let count = rest.partition_point(|item| (item.owner, item.list) == (owner, list));
        &rest[..count]
    }

    fn text(&self, item: &Item) -> &str {
        &self.text[item.start as usize..item.end as usize]
    }

    /// Its architecture and its description, or empty texts.
    fn more(&self, item: &Item) -> (&str, &str) {
        let start = item.end as usize;
        let middle = start + usize::from(item.architecture);
        (&self.text[start..middle], &self.text[middle..middle + usize::from(item.description)])
    }

    /// The texts of this list of this owner, each once: the collation ignores case, and so does a `DISTINCT` of aurweb.
    pub(super) fn of(&self, owner: i64, list: u8) -> Vec<&str> {
        let mut seen: HashSet<String> = HashSet::new();
        let mut texts = Vec::new();
        for item in self.items(owner, list) {
            let text = self.text(item);
            if seen.insert(fold(text.trim_end_matches(' '))) {
                texts.push(text);
            }
        }
        texts
    }

    /// The entries of this list of this owner; empty unless one has an architecture or a description.
    pub(super) fn entries(&self, owner: i64, list: u8) -> Vec<Entry<'_>> {
        let items = self.items(owner, list);
        if items.iter().all(|item| item.architecture == 0 && item.description == 0) {
            return Vec::new();
        }
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for item in items {
            let text = self.text(item);
            let place = *places.entry(fold(text.trim_end_matches(' '))).or_insert_with(|| {
                let architectures = Vec::new();
                entries.push(Entry { text, architectures, is_for_all: false, description: None });
                entries.len() - 1
            });
            let entry = &mut entries[place];
            let (architecture, description) = self.more(item);
            entry.is_for_all |= architecture.is_empty();
            entry.architectures.push(architecture);
            entry.description = entry.description.or(Some(description).filter(|it| !it.is_empty()));
        }
        for entry in &mut entries {
            if entry.is_for_all {
                entry.architectures.clear();
            }
            let mut seen = HashSet::new();
            entry.architectures.retain(|name| seen.insert(*name));
        }
        entries
    }
}

/// All rows of some packages.
pub(super) struct Catalogue {
    pub(super) bases: HashMap<i64, Base>,
    /// By rising number.
    pub(super) packages: Vec<Package>,
    pub(super) package_lists: Lists,
    pub(super) base_lists: Lists,
    /// Open requests by the number of their base.
    pub(super) requests: HashMap<i64, i64>,
    /// The database's clock, in Unix seconds.
    pub(super) now: i64,
}

impl Catalogue {
    /// The highest number of a package.
    pub(super) fn last_package(&self) -> i64 {
        self.packages.last().map_or(0, |package| package.id)
    }

    /// How many rows each table has, except for that of requests: the last open one may be closed at any time.
    pub(super) fn row_counts(&self) -> [usize; ROW_COUNTS] {
        let mut counts = [0; ROW_COUNTS];
        (counts[0], counts[1]) = (self.bases.len(), self.packages.len());
        for item in &self.package_lists.items {
            counts[match item.list {
                DEPENDS_LIST..RELATIONS_LIST => 2,
                RELATIONS_LIST..GROUPS_LIST => 3,
                GROUPS_LIST => 4,
                _ => 5,
            }] += 1;
        }
        for item in &self.base_lists.items {
            counts[6 + usize::from(item.list)] += 1;
        }
        counts
    }

    /// Nothing, at this time of the database.
    pub(super) fn empty(now: i64) -> Catalogue {
        Catalogue {
            bases: HashMap::new(),
            packages: Vec::new(),
            package_lists: Lists::default(),
            base_lists: Lists::default(),
            requests: HashMap::new(),
            now,
        }
    }

    /// The statements that read these bases with their packages, each with the kind of its rows.
    pub(super) fn statements(bases: &[i64]) -> impl Iterator<Item = (Kind, String)> {
        let packages = PACKAGES.of(bases).map(|statement| (Kind::Packages, statement));
        let parts = PARTS.into_iter().flat_map(|(kind, select)| {
            select.of_packages(bases).map(move |statement| (kind, statement))
        });
        packages.chain(of_bases(bases)).chain(parts)
    }

    /// Reads the first packages with numbers higher than `after`, and their bases; empty if there are no more.
    pub(super) async fn read_after(
        transaction: &mut Transaction<'_>,
        after: i64,
    ) -> Result<Catalogue, sqlx::Error> {
        let mut catalogue = Catalogue::empty(transaction.begin().await?.now);
        let packages =
            format!("{} WHERE ID > {after} ORDER BY ID LIMIT {PACKAGES_AT_ONCE}", PACKAGES.rows);
        catalogue.take_all(transaction, vec![(Kind::Packages, packages)]).await?;
        let (Some(first), Some(last)) = (catalogue.packages.first(), catalogue.packages.last())
        else {
            return Ok(catalogue);
        };
        let (first, last) = (first.id, last.id);
        let mut bases: Vec<i64> = catalogue.packages.iter().map(|package| package.base).collect();
        bases.sort_unstable();
        bases.dedup();
        let parts = PARTS.into_iter().map(|(kind, select)| (kind, select.between(first, last)));
        let statements = parts.chain(of_bases(&bases)).collect();
        catalogue.take_all(transaction, statements).await?;
        catalogue.sort();
        Ok(catalogue)
    }

    /// Sorts what was taken, once all of it was.
    pub(super) fn sort(&mut self) {
        self.packages.sort_by_key(|package| package.id);
        self.package_lists.sort();
        self.base_lists.sort();
    }

    async fn take_all(
        &mut self,
        transaction: &mut Transaction<'_>,
        statements: Vec<(Kind, String)>,
    ) -> Result<(), sqlx::Error> {
        let (kinds, statements): (Vec<Kind>, Vec<String>) = statements.into_iter().unzip();
        transaction.ask(&statements, |at, row| self.take(kinds[at], row)).await
    }

    /// Takes a row of a statement with this kind of rows.
    pub(super) fn take(&mut self, kind: Kind, row: &MySqlRow) -> Result<(), sqlx::Error> {
        match kind {
            Kind::Bases => {
                let base = Base {
                    name: row.try_get(1)?,
                    votes: row.try_get(2)?,
                    popularity: row.try_get(3)?,
                    popularity_updated: row.try_get::<Option<i64>, _>(4)?.unwrap_or(0),
                    out_of_date: row.try_get(5)?,
                    submitted: row.try_get(6)?,
                    modified: row.try_get(7)?,
                    maintainer: row.try_get(8)?,
                    submitter: row.try_get(9)?,
                    packager: row.try_get(10)?,
                };
                self.bases.insert(row.try_get(0)?, base);
            }
            Kind::Packages => self.packages.push(Package {
                id: row.try_get(0)?,
                base: row.try_get(1)?,
                name: row.try_get(2)?,
                version: row.try_get(3)?,
                description: row.try_get(4)?,
                url: row.try_get(5)?,
            }),
            Kind::Related { first, types } => {
                let of_type: i64 = row.try_get(1)?;
                // Types that a later aurweb may add.
                if !(1..=types).contains(&of_type) {
                    return Ok(());
                }
                let list = first + of_type as u8 - 1;
                let description = if list == OPT_DEPENDS_LIST { row.try_get(4)? } else { None };
                let (owner, text) = (row.try_get(0)?, row.try_get(2)?);
                self.package_lists.push_row(owner, list, text, row.try_get(3)?, description)?;
            }
            Kind::PackageList(list) => {
                self.package_lists.push(row.try_get(0)?, list, row.try_get(1)?)?;
            }
            Kind::BaseList(list) => self.base_lists.push(row.try_get(0)?, list, row.try_get(1)?)?,
            Kind::Requests => drop(self.requests.insert(row.try_get(0)?, row.try_get(1)?)),
        }
        Ok(())
    }
}

/// The table of a row.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Bases,
    Packages,
    /// Dependencies or relations: the list of the first type, and how many types there are.
    Related {
        first: u8,
        types: i64,
    },
    PackageList(u8),
    BaseList(u8),
    Requests,
}

/// The tables with parts of packages.
const PARTS: [(Kind, &Select); 4] = [
    (Kind::Related { first: DEPENDS_LIST, types: 4 }, &DEPENDS),
    (Kind::Related { first: RELATIONS_LIST, types: 3 }, &RELATIONS),
    (Kind::PackageList(GROUPS_LIST), &GROUPS),
    (Kind::PackageList(LICENSES_LIST), &LICENSES),
];

/// The statements that read bases, and their other parts besides packages.
fn of_bases(bases: &[i64]) -> impl Iterator<Item = (Kind, String)> {
    [
        (Kind::Bases, &BASES),
        (Kind::BaseList(0), &KEYWORDS),
        (Kind::BaseList(1), &COMAINTAINERS),
        (Kind::Requests, &REQUESTS),
    ]
    .into_iter()
    .flat_map(move |(kind, select)| select.of(bases).map(move |statement| (kind, statement)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_few_numbers_each() {
        let statements: Vec<String> = REQUESTS.of(&[1, 20]).collect();
        assert!(
            statements[0]
                .ends_with("IS NOT NULL AND PackageBaseID IN (1,20) GROUP BY PackageBaseID")
        );
        assert_eq!(REQUESTS.of(&[7; 501]).count(), 2);
        assert_eq!(REQUESTS.of(&[]).count(), 0);
        let of_packages: Vec<String> = GROUPS.of_packages(&[1, 20]).collect();
        assert!(of_packages[0].ends_with(
            " WHERE p.PackageID IN (SELECT ID FROM Packages WHERE PackageBaseID IN (1,20)) ORDER BY p.PackageID, p.GroupID"
        ));
        let between = LICENSES.between(3, 9);
        assert!(
            between
                .ends_with(" WHERE p.PackageID BETWEEN 3 AND 9 ORDER BY p.PackageID, p.LicenseID")
        );
    }

    #[test]
    fn lists_keep_their_order_and_have_each_text_once() {
        let mut lists = Lists::default();
        for (owner, list, text) in [
            (2, 0, "zlib"),
            (1, 1, "x"),
            (2, 0, "GLIBC>=2"),
            (2, 0, "glibc>=2"),
            (2, 1, "y"),
            (2, 0, "a "),
        ] {
            lists.push(owner, list, text).unwrap();
        }
        lists.sort();
        assert_eq!(lists.of(2, 0), ["zlib", "GLIBC>=2", "a "]);
        assert_eq!(lists.of(2, 1), ["y"]);
        assert_eq!(lists.of(1, 0), [""; 0]);
        assert_eq!(lists.of(3, 0), [""; 0]);
        assert!(lists.entries(2, 0).is_empty());
    }

    #[test]
    fn rows_of_one_text_say_what_it_is_for() {
        let mut lists = Lists::default();
        for (text, architecture, description) in [
            ("a", None, None),
            ("b", Some("x86_64"), Some("")),
            ("c", Some("x86_64"), Some("to see")),
            ("B", Some("armv7h"), Some("to be")),
            ("b", Some("armv7h"), Some("or not")),
            ("c", Some("any"), None),
            ("d", Some(""), None),
        ] {
            lists.push_row(1, OPT_DEPENDS_LIST, text, architecture, description).unwrap();
        }
        lists.push(1, OPT_DEPENDS_LIST + 1, "e").unwrap();
        lists.sort();
        let entries = lists.entries(1, OPT_DEPENDS_LIST);
        let shown = entries.iter().map(|entry| {
            let description = entry.description.unwrap_or("-");
            format!("{} [{}] {description}", entry.text, entry.architectures.join(" "))
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            ["a [] -", "b [x86_64 armv7h] to be", "c [] to see", "d [] -"]
        );
        assert!(lists.entries(1, OPT_DEPENDS_LIST + 1).is_empty());
    }
}
