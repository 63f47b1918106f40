//! The generated catalogue as SQL: aurweb's tables, filled from the dump as it is written.
//!
//! bytes of a dump -> [`SqlWriter`] -> a line for each record -> rows -> `INSERT` statements of many rows. The tables also have
//! what a dump lacks: package bases without a package, open requests, the last packager, architectures, and descriptions of
//! optional dependencies.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::Value;

/// The part of aurweb's tables that its metadata is made of.
pub const AURWEB_SCHEMA: &str = include_str!("aurweb.sql");
/// The rows of a table are written when they have this many bytes.
const STATEMENT_BYTES: usize = 256 << 10;
/// Every base with this many before it has an open request.
const REQUEST_EVERY: usize = 40;
/// After this many bases comes one without a package.
const EMPTY_BASE_EVERY: usize = 50;
/// The number of the first base without a package: higher than those of a dump.
const EMPTY_BASES_START: usize = 100_000_000;

/// The tables in an order in which each row's references are there before it.
const TABLES: [&str; 12] = [
    "Users (ID, Username)",
    "PackageBases (ID, Name, NumVotes, Popularity, PopularityUpdated, OutOfDateTS, SubmittedTS, ModifiedTS, SubmitterUID, \
     MaintainerUID, PackagerUID)",
    "Packages (ID, PackageBaseID, Name, Version, Description, URL)",
    "`Groups` (ID, Name)",
    "Licenses (ID, Name)",
    "PackageDepends (PackageID, DepTypeID, DepName, DepCondition, DepDesc, DepArch)",
    "PackageRelations (PackageID, RelTypeID, RelName, RelCondition)",
    "PackageGroups (PackageID, GroupID)",
    "PackageLicenses (PackageID, LicenseID)",
    "PackageKeywords (PackageBaseID, Keyword)",
    "PackageComaintainers (UsersID, PackageBaseID, Priority)",
    "PackageRequests (ReqTypeID, PackageBaseID, Status, RequestTS)",
];
const USERS: usize = 0;
const BASES: usize = 1;
const PACKAGES: usize = 2;
const GROUPS: usize = 3;
const LICENSES: usize = 4;
const DEPENDS: usize = 5;
const RELATIONS: usize = 6;
const PACKAGE_GROUPS: usize = 7;
const PACKAGE_LICENSES: usize = 8;
const KEYWORDS: usize = 9;
const COMAINTAINERS: usize = 10;
const REQUESTS: usize = 11;

/// Takes a generated dump, which has a record in each line, and writes it as SQL.
pub struct SqlWriter<W: Write> {
    out: W,
    line: Vec<u8>,
    rows: [String; TABLES.len()],
    numbers: [HashMap<String, usize>; 3],
    /// The base of the last record, and how many there were.
    base: i64,
    bases: usize,
}

impl<W: Write> SqlWriter<W> {
    /// Writes the tables.
    pub fn begin(mut out: W) -> io::Result<SqlWriter<W>> {
        out.write_all(AURWEB_SCHEMA.as_bytes())?;
        out.write_all(b"START TRANSACTION;\n")?;
        Ok(SqlWriter {
            out,
            line: Vec::new(),
            rows: Default::default(),
            numbers: Default::default(),
            base: 0,
            bases: 0,
        })
    }

    /// Writes the remaining rows.
    pub fn finish(mut self) -> io::Result<W> {
        self.line_ended()?;
        self.write_rows()?;
        self.out.write_all(b"COMMIT;\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn line_ended(&mut self) -> io::Result<()> {
        let line = self.line.strip_suffix(b",").unwrap_or(&self.line);
        if line.starts_with(b"{") {
            let record: Value = serde_json::from_slice(line)?;
            self.add(&record);
            if self.rows.iter().any(|rows| rows.len() > STATEMENT_BYTES) {
                self.write_rows()?;
            }
        }
        self.line.clear();
        Ok(())
    }

    fn write_rows(&mut self) -> io::Result<()> {
        for (table, rows) in TABLES.iter().zip(&mut self.rows) {
            if !rows.is_empty() {
                writeln!(self.out, "INSERT INTO {table} VALUES\n{rows};")?;
                rows.clear();
            }
        }
        Ok(())
    }

    fn add(&mut self, record: &Value) {
        let (id, base) = (number(&record["ID"]), number(&record["PackageBaseID"]));
        if base != self.base {
            self.base = base;
            self.add_base(record, base);
        }
        let texts: Vec<String> = ["Name", "Version", "Description", "URL"]
            .iter()
            .map(|&key| record[key].as_str().map_or_else(|| "NULL".to_owned(), quoted))
            .collect();
        self.row(PACKAGES, &format!("{id},{base},{}", texts.join(",")));
        let depends = ["Depends", "MakeDepends", "CheckDepends", "OptDepends"];
        let relations = ["Conflicts", "Provides", "Replaces"];
        for (table, keys) in [(DEPENDS, &depends[..]), (RELATIONS, &relations[..])] {
            for (kind, key) in (1..).zip(keys) {
                let mut names = HashSet::new();
                for text in list(record, key) {
                    let (name, condition) =
                        text.split_at(text.find(['<', '=', '>']).unwrap_or(text.len()));
                    let mut row = format!("{id},{kind},{},{}", quoted(name), quoted(condition));
                    if table == DEPENDS {
                        let description = match *key {
                            "OptDepends" => quoted(&format!("for what {name} can do")),
                            _ => "NULL".to_owned(),
                        };
                        // A repeated name is for another architecture.
                        let arch = if names.insert(name) { "NULL" } else { "'aarch64'" };
                        let _ = write!(row, ",{description},{arch}");
                    }
                    self.row(table, &row);
                }
            }
        }
        for (key, names, table) in
            [("Groups", GROUPS, PACKAGE_GROUPS), ("License", LICENSES, PACKAGE_LICENSES)]
        {
            for text in list(record, key) {
                let number = self.number_of(names, text);
                self.row(table, &format!("{id},{number}"));
            }
        }
    }

    fn add_base(&mut self, record: &Value, base: i64) {
        let user = |writer: &mut Self, key: &str| match record[key].as_str() {
            Some(name) => writer.number_of(USERS, name).to_string(),
            None => "NULL".to_owned(),
        };
        let (submitter, maintainer) = (user(self, "Submitter"), user(self, "Maintainer"));
        let packager = if maintainer == "NULL" { &submitter } else { &maintainer };
        let row = format!(
            "{base},{},{},{},CURRENT_TIMESTAMP,{},{},{},{submitter},{maintainer},{packager}",
            quoted(record["PackageBase"].as_str().unwrap_or_default()),
            record["NumVotes"],
            record["Popularity"],
            record["OutOfDate"],
            record["FirstSubmitted"],
            record["LastModified"],
        );
        self.row(BASES, &row.replace(",null,", ",NULL,"));
        for keyword in list(record, "Keywords") {
            self.row(KEYWORDS, &format!("{base},{}", quoted(keyword)));
        }
        for (priority, name) in (1..).zip(list(record, "CoMaintainers")) {
            let user = self.number_of(USERS, name);
            self.row(COMAINTAINERS, &format!("{user},{base},{priority}"));
        }
        self.bases += 1;
        if self.bases.is_multiple_of(REQUEST_EVERY) {
            self.row(REQUESTS, &format!("2,{base},0,{}", record["LastModified"]));
        }
        if self.bases.is_multiple_of(EMPTY_BASE_EVERY) {
            let number = self.bases / EMPTY_BASE_EVERY;
            let row = format!(
                "{},'empty-base-{number}',0,0,CURRENT_TIMESTAMP,NULL,{submitted},{submitted},NULL,NULL,NULL",
                EMPTY_BASES_START + number,
                submitted = record["FirstSubmitted"],
            );
            self.row(BASES, &row);
        }
    }

    /// The number of a user, a group or a licence; a new one gets a row.
    fn number_of(&mut self, table: usize, name: &str) -> usize {
        let numbers = &mut self.numbers[match table {
            USERS => 0,
            GROUPS => 1,
            _ => 2,
        }];
        if let Some(number) = numbers.get(name) {
            return *number;
        }
        let number = numbers.len() + 1;
        numbers.insert(name.to_owned(), number);
        self.row(table, &format!("{number},{}", quoted(name)));
        number
    }

    fn row(&mut self, table: usize, values: &str) {
        let rows = &mut self.rows[table];
        let separator = if rows.is_empty() { "" } else { ",\n" };
        let _ = write!(rows, "{separator}({values})");
    }
}

impl<W: Write> Write for SqlWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(end) => {
                    self.line.extend_from_slice(end);
                    self.line_ended()?;
                }
                None => self.line.extend_from_slice(part),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn list<'a>(record: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    record[key].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// A text as a literal of MariaDB.
fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for char in text.chars() {
        if matches!(char, '\'' | '\\') {
            literal.push('\\');
        }
        literal.push(char);
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_after_what_they_refer_to() {
        let mut writer = SqlWriter::begin(Vec::new()).unwrap();
        let dump = "[\n{\"ID\":7,\"Name\":\"a'b\",\"PackageBaseID\":3,\"PackageBase\":\"a\",\"Version\":\"1\",\"Description\":null,\
            \"URL\":null,\"NumVotes\":2,\"Popularity\":0.5,\"OutOfDate\":null,\"Maintainer\":null,\"Submitter\":\"who\",\
            \"FirstSubmitted\":1,\"LastModified\":2,\"Depends\":[\"glibc>=2\",\"glibc>=3\"],\"OptDepends\":[\"less\"],\"License\":[\"MIT\"]}\n]";
        // However the bytes are cut.
        for byte in dump.as_bytes() {
            writer.write_all(&[*byte]).unwrap();
        }
        let sql = String::from_utf8(writer.finish().unwrap()).unwrap();
        let (_, rows) = sql.split_once("START TRANSACTION;\n").unwrap();
        let rows: Vec<&str> = rows.lines().filter(|line| line.starts_with('(')).collect();
        assert_eq!(
            rows,
            [
                "(1,'who');",
                "(3,'a',2,0.5,CURRENT_TIMESTAMP,NULL,1,2,1,NULL,1);",
                "(7,3,'a\\'b','1',NULL,NULL);",
                "(1,'MIT');",
                "(7,1,'glibc','>=2',NULL,NULL),",
                "(7,1,'glibc','>=3',NULL,'aarch64'),",
                "(7,4,'less','','for what less can do',NULL);",
                "(7,1);",
            ]
        );
    }
}
