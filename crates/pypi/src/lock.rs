//! [`Lock`]: the releases in requirements, uv.lock, poetry.lock and pylock.toml.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::{ProjectName, Version};

/// Files of one release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedRelease {
    /// The project.
    pub project: ProjectName,
    /// The version.
    pub version: Version,
    /// Its files.
    pub files: Files,
}

/// The files of a release that a lock means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// All that the index has.
    All,
    /// Files with these digests.
    Digests(BTreeSet<String>),
    /// Files with these names, each with one of its digests; without digests, whatever the index has.
    Named(BTreeMap<String, BTreeSet<String>>),
}

/// The kinds of digests that are compared, by their names in locks and pages.
pub const ALGORITHMS: [&str; 4] = ["sha256", "sha384", "sha512", "md5"];

impl Files {
    /// How many they are; all that the index has count as one.
    fn count(&self) -> usize {
        match self {
            Files::All => 1,
            Files::Digests(digests) => digests.len(),
            Files::Named(named) => named.len(),
        }
    }
}

/// Everything that a lock names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Releases, in the order of the lock; the same one may be there twice.
    pub wanted: Vec<LockedRelease>,
    /// Packages from directories, repositories and the like.
    pub others: usize,
}

/// How much a lock may name.
#[derive(Clone, Copy, Debug)]
pub struct LockBounds {
    /// Releases.
    pub releases_max: usize,
    /// Files of all releases together; a release with all of its files counts as one.
    pub files_max: usize,
}

impl LockBounds {
    /// As many as there are.
    pub const NONE: LockBounds = LockBounds { releases_max: usize::MAX, files_max: usize::MAX };
}

/// The numbers of a lock's parts, counted before it is parsed: never fewer than there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockShape {
    /// Values as TOML, including tables.
    pub values: usize,
    /// The most values of one package. The packages of a lock are parsed one after the other.
    pub package_values: usize,
    /// The most tables of one package, with inline ones and lists.
    pub package_tables: usize,
    /// Releases.
    pub releases: usize,
}

/// Bytes that a table, any other value, a release and a file take at most: the first node of a map twice, as it is parsed and as
/// it is read, with the text of a key.
const TABLE_BYTES: usize = 1_800;
const VALUE_BYTES: usize = 120;
const RELEASE_BYTES: usize = 900;
const FILE_BYTES: usize = 550;

impl LockShape {
    /// Counts the parts of this text.
    pub fn of(text: &str) -> LockShape {
        let mut shape = LockShape::default();
        if !is_toml(text) {
            let releases = text.matches("==").count();
            return LockShape { values: counted(text).0, releases, ..shape };
        }
        for (part, piece) in parts(text) {
            let (values, tables) = counted(piece);
            shape.values += values;
            shape.releases += match part {
                LockPart::Package => 1,
                LockPart::Head => tables,
                LockPart::Other => continue,
            };
            shape.package_values = shape.package_values.max(values);
            shape.package_tables = shape.package_tables.max(tables);
        }
        shape
    }

    /// The memory that reading the lock within these bounds takes at most, besides the text.
    pub fn memory_bytes(&self, bounds: LockBounds) -> usize {
        self.package_tables * TABLE_BYTES
            + self.package_values * VALUE_BYTES
            + self.releases.min(bounds.releases_max) * RELEASE_BYTES
            + self.values.min(bounds.files_max) * FILE_BYTES
    }
}

/// Values and tables in a part of a lock as TOML. Each value has one of these marks before it. A dot in a key makes a table, and
/// that key is followed by `=`, `]` or a quoted part.
fn counted(piece: &str) -> (usize, usize) {
    let (mut values, mut tables, mut dots, mut last) = (0, 0, 0, b' ');
    for byte in piece.bytes().filter(|byte| !matches!(byte, b' ' | b'\t')) {
        match byte {
            b'.' => dots += 1,
            b'=' | b']' => {
                values += 1 + dots;
                tables += std::mem::take(&mut dots);
            }
            b'"' | b'\'' if last == b'.' => {
                values += dots;
                tables += std::mem::take(&mut dots);
            }
            b',' => (values, dots) = (values + 1, 0),
            b'[' | b'{' => (values, tables, dots) = (values + 1, tables + 1, 0),
            b'\n' => dots = 0,
            _ => {}
        }
        last = byte;
    }
    (values, tables)
}

/// A part of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockPart {
    /// What is before the first header; of requirements, everything.
    Head,
    /// A package of the list, with the tables below it.
    Package,
    /// A table that is not read.
    Other,
}

impl LockPart {
    /// The part that begins at this line; `None` if the one before it goes on.
    fn beginning_at(line: &str) -> Option<LockPart> {
        let header = line.strip_prefix('[')?;
        for (key, list) in [("package", "[package"), ("packages", "[packages")] {
            if header.strip_prefix(list).is_some_and(|rest| rest.starts_with("]]")) {
                return Some(LockPart::Package);
            }
            let below = [key, list].into_iter().find_map(|name| header.strip_prefix(name));
            if below.is_some_and(|rest| rest.starts_with('.')) {
                return None;
            }
        }
        let name = header.strip_prefix('[').unwrap_or(header);
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c))?;
        let is_header = end > 0 && name[end..].starts_with(']');
        // A list of numbers may begin a line, too.
        (is_header && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(LockPart::Other)
    }
}

/// The parts of a lock. Together they are the whole text.
fn parts(text: &str) -> impl Iterator<Item = (LockPart, &str)> {
    let mut rest = Some((LockPart::Head, text));
    std::iter::from_fn(move || {
        let (part, text) = rest.take()?;
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            // The first line is the header of this part.
            let begins =
                (at > 0 || part == LockPart::Head).then(|| LockPart::beginning_at(line)).flatten();
            if let Some(next) = begins {
                rest = Some((next, &text[at..]));
                return Some((part, &text[..at]));
            }
            at += line.len();
        }
        Some((part, text))
    })
}

/// Whether the first line with something on it is one of TOML: a header, or a key and a value. A requirement is neither.
fn is_toml(text: &str) -> bool {
    let lines = text.lines().map(str::trim);
    let first = lines.into_iter().find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| {
        let is_key = |key: &str| {
            let mut chars = key.trim_end().chars();
            chars.all(|c| c.is_ascii_alphanumeric() || "-_.\"'".contains(c))
        };
        let pair = line.split_once('=');
        line.starts_with('[')
            || pair.is_some_and(|(key, value)| {
                !value.starts_with('=') && !key.starts_with('-') && is_key(key)
            })
    })
}

impl Lock {
    /// Reads a lock, whichever it is.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Lock, String> {
        Lock::parse_within(text, LockBounds::NONE)
    }

    /// Reads a lock that names no more than `bounds`.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse_within(text: &str, bounds: LockBounds) -> Result<Lock, String> {
        let mut lock = LockReader { bounds, lock: Lock::default(), files: 0, packages: 0 };
        match is_toml(text) {
            true => lock.read_toml(text)?,
            false => lock.read_requirements(text)?,
        }
        Ok(lock.lock)
    }
}

/// A lock that is being read.
struct LockReader {
    bounds: LockBounds,
    lock: Lock,
    files: usize,
    /// Packages of a lock in TOML so far.
    packages: usize,
}

impl LockReader {
    fn add(&mut self, wanted: LockedRelease) -> Result<(), String> {
        let LockBounds { releases_max, files_max } = self.bounds;
        self.files += wanted.files.count();
        self.lock.wanted.push(wanted);
        if self.lock.wanted.len() > releases_max || self.files > files_max {
            return Err(format!(
                "it names more than {releases_max} releases, or more than {files_max} files, the most that were expected"
            ));
        }
        Ok(())
    }

    /// Reads the packages, each by itself: however many there are, only one is in memory as TOML.
    fn read_toml(&mut self, text: &str) -> Result<(), String> {
        let (mut is_lock, mut is_toml) = (false, true);
        for (part, piece) in parts(text) {
            let table = match part {
                LockPart::Other => continue,
                _ => piece.parse::<Table>(),
            };
            let Ok(table) = table else {
                is_toml = false;
                break;
            };
            is_lock |= part != LockPart::Head
                || ["lock-version", "requires-python"].iter().any(|key| table.contains_key(*key));
            for key in ["package", "packages"] {
                if let Some(list) = table.get(key) {
                    is_lock = true;
                    self.read_packages(list, key)?;
                }
            }
        }
        match is_lock && is_toml {
            true => Ok(()),
            // Its first line may look like TOML all the same. If not, that tells where it is neither.
            false => self.read_requirements(text),
        }
    }

    fn read_packages(&mut self, list: &Value, key: &str) -> Result<(), String> {
        let packages = list.as_array().ok_or_else(|| format!("`{key}` is no list of tables"))?;
        for package in packages {
            self.packages += 1;
            let text = |key: &str| package.get(key).and_then(Value::as_str);
            let number = self.packages;
            let name =
                text("name").ok_or_else(|| format!("`{key}` number {number} has no name"))?;
            let mut files: Vec<&Value> = Vec::new();
            for key in ["wheels", "files"] {
                files.extend(package.get(key).and_then(Value::as_array).into_iter().flatten());
            }
            files.extend(package.get("sdist"));
            // A package without a URL is not from an index: it is a directory or an archive on the disk.
            let is_somewhere = |file: &&Value| file.get("url").is_some() || has_name(file);
            let (Some(version), true, false) =
                (text("version"), files.iter().any(is_somewhere), is_elsewhere(package))
            else {
                self.lock.others += 1;
                continue;
            };
            let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for file in files {
                let text = |key: &str| file.get(key).and_then(Value::as_str);
                let place = text("url").or(text("path")).map(|place| {
                    let place = place.split(['?', '#']).next().unwrap_or_default();
                    place.rsplit('/').next().unwrap_or_default()
                });
                let Some(filename) = text("name").or(text("file")).or(text("filename")).or(place)
                else {
                    return Err(format!("{name} {version}: a file without a name and a URL"));
                };
                let filename = percent_encoding::percent_decode_str(filename).decode_utf8_lossy();
                let digests = digests(file).map_err(|hash| {
                    format!(
                        "{name} {version}: the hash `{hash}` of {filename} cannot be compared; one of {} was expected",
                        ALGORITHMS.join(", ")
                    )
                })?;
                named.entry(filename.into_owned()).or_default().extend(digests);
            }
            self.add(release(name, version, Files::Named(named))?)?;
        }
        Ok(())
    }

    /// Reads requirements. Each is one line, which may be continued.
    fn read_requirements(&mut self, text: &str) -> Result<(), String> {
        let mut begun: Option<(usize, String)> = None;
        for (at, line) in text.lines().enumerate() {
            let (start, is_whole) = match line.strip_suffix('\\') {
                Some(start) => (start, false),
                None => (line, true),
            };
            match begun.take() {
                None if is_whole => self.read_requirement(at + 1, line)?,
                before => {
                    let (number, mut whole) = before.unwrap_or((at + 1, String::new()));
                    whole.push_str(start);
                    match is_whole {
                        true => self.read_requirement(number, &whole)?,
                        false => begun = Some((number, whole)),
                    }
                }
            }
        }
        match begun {
            Some((number, whole)) => self.read_requirement(number, &whole),
            None => Ok(()),
        }
    }

    fn read_requirement(&mut self, number: usize, line: &str) -> Result<(), String> {
        let line = match line.find(" #") {
            Some(at) => &line[..at],
            None if line.trim_start().starts_with('#') => "",
            None => line,
        };
        let mut words = line.split_whitespace();
        let hashes = line.split_whitespace().filter_map(|word| word.strip_prefix("--hash="));
        let hashes = comparable(hashes.map(str::to_owned).collect()).map_err(|hash| {
            let expected = ALGORITHMS.join(", ");
            format!("line {number}: the hash `{hash}` cannot be compared; one of {expected} was expected")
        })?;
        let Some(first) = words.next() else { return Ok(()) };
        if matches!(first, "-r" | "--requirement" | "-c" | "--constraint") {
            return Err(format!("line {number}: `{first}` names another file; give that one, too"));
        }
        if first.starts_with('-') || line.contains(" @ ") || first.contains("://") {
            // Options are for the installer; a URL is no file of an index.
            self.lock.others += usize::from(!first.starts_with("--") && !first.starts_with("-i"));
            return Ok(());
        }
        let requirement = line.split(" --").next().unwrap_or_default();
        let requirement = requirement.split(';').next().unwrap_or_default().trim();
        let pinned = requirement.split_once("==").map(|(name, version)| {
            let name = name.split('[').next().unwrap_or_default().trim();
            (name, version.trim_start_matches('=').trim())
        });
        let pinned = pinned.filter(|(_, version)| !version.contains(['*', ',', ' ']));
        let Some((name, version)) = pinned else {
            return Err(format!(
                "line {number}: `{requirement}` names no one version; `name==version` was expected, as `uv export` and \
                 `pip freeze` write it"
            ));
        };
        let files = if hashes.is_empty() { Files::All } else { Files::Digests(hashes) };
        let wanted = release(name, version, files);
        self.add(wanted.map_err(|error| format!("line {number}: {error}"))?)
    }
}

fn has_name(file: &Value) -> bool {
    ["name", "file", "filename", "path"].iter().any(|key| file.get(key).is_some())
}

/// Whether the lock says that the package is from elsewhere than an index.
fn is_elsewhere(package: &Value) -> bool {
    if ["vcs", "directory", "archive"].iter().any(|key| package.get(key).is_some()) {
        return true;
    }
    let Some(source) = package.get("source") else { return false };
    let kind = source.get("type").and_then(Value::as_str);
    let registry = source.get("registry").and_then(Value::as_str);
    match (kind, registry) {
        (Some(kind), _) => matches!(kind, "directory" | "file" | "git" | "url" | "vcs"),
        // A directory of files counts as a registry for uv.
        (None, Some(registry)) => !registry.contains("://"),
        (None, None) => true,
    }
}

/// The digests of a file of a lock, as `name:digits`.
///
/// # Errors
/// A hash of the file, if it has hashes, but none with a known algorithm.
fn digests(file: &Value) -> Result<BTreeSet<String>, String> {
    let mut all: Vec<String> = Vec::new();
    all.extend(file.get("hash").and_then(Value::as_str).map(str::to_owned));
    for (name, digits) in file.get("hashes").and_then(Value::as_table).into_iter().flatten() {
        all.extend(digits.as_str().map(|digits| format!("{name}:{digits}")));
    }
    comparable(all)
}

/// The digests that can be compared, in lower case.
fn comparable(all: Vec<String>) -> Result<BTreeSet<String>, String> {
    let known: BTreeSet<String> =
        all.iter().map(|it| it.to_ascii_lowercase()).filter(|it| is_known(it)).collect();
    match all.into_iter().next() {
        Some(hash) if known.is_empty() => Err(hash),
        _ => Ok(known),
    }
}

fn is_known(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(name, _)| ALGORITHMS.contains(&name))
}

fn release(name: &str, version: &str, files: Files) -> Result<LockedRelease, String> {
    Ok(LockedRelease {
        project: ProjectName::parse(name).map_err(|error| error.to_string())?,
        version: Version::parse(version).map_err(|error| format!("{name}: {error}"))?,
        files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares `project version files` of each release, and the number of packages that do not come from an index.
    #[track_caller]
    fn check(text: &str, expected: &[&str], others: usize) {
        let lock = Lock::parse(text).expect("a lock");
        let of = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join("|");
        let files = |files: &Files| match files {
            Files::All => "*".to_owned(),
            Files::Digests(digests) => of(digests),
            Files::Named(named) => {
                let named = named.iter().map(|(name, digests)| format!("{name}={}", of(digests)));
                named.collect::<Vec<_>>().join(" ")
            }
        };
        let found: Vec<String> = lock
            .wanted
            .iter()
            .map(|it| format!("{} {} {}", it.project, it.version.as_str(), files(&it.files)))
            .collect();
        assert_eq!(
            (found, lock.others),
            (expected.iter().map(|it| it.to_string()).collect(), others)
        );
    }

    #[test]
    fn requirements_files() {
        check(
            "# a comment\n--index-url https://index.example/simple\n\nFoo.Bar==1.0  # why\n\
             baz[extra]==2.0 ; python_version > '3' \\\n    --hash=sha256:AA \\\n    --hash=sha512:bb\n\
             -e ./here\nqux @ https://files.example/qux.zip\n",
            &["foo-bar 1.0 *", "baz 2.0 sha256:aa|sha512:bb"],
            2,
        );
        check("", &[], 0);
        for (text, says) in [
            (
                "foo==1\nbar>=2\n",
                "line 2: `bar>=2` names no one version; `name==version` was expected, as `uv export` and `pip freeze` write it",
            ),
            (
                "foo==1.*",
                "line 1: `foo==1.*` names no one version; `name==version` was expected, as `uv export` and `pip freeze` write it",
            ),
            ("-r other.txt", "line 1: `-r` names another file; give that one, too"),
            ("foo==a/b", r#"line 1: foo: "a/b" is not a version: a slash cannot be in one"#),
            (
                "foo==1 --hash=blake3:00",
                "line 1: the hash `blake3:00` cannot be compared; one of sha256, sha384, sha512, md5 was expected",
            ),
        ] {
            let error = Lock::parse(text).expect_err(text);
            assert_eq!(error, says);
        }
    }

    #[test]
    fn values_are_counted_without_parsing() {
        fn values(value: &Value) -> usize {
            1 + match value {
                Value::Table(table) => table.values().map(values).sum(),
                Value::Array(list) => list.iter().map(values).sum(),
                _ => 0,
            }
        }
        for text in [
            "a = 1",
            "a.b.c.d = 1\na.b.c.\",=\" = 2\n",
            "a . b . 'c,d' . e = 1",
            "[a.b.\"c,\".d]\ne.f = [[1, 2], [], {g = 1, h.i.'j' = 2}]",
            "[[a.b]]\n[[a.b]]\nc = '''x\n.'''\n",
        ] {
            let table: Table = text.parse().expect(text);
            let found = values(&Value::Table(table)) - 1;
            let most = LockShape::of(text).values;
            assert!(found <= most && most <= 3 * found + 2, "{text}: {found}, at most {most}");
        }
        // Dots in texts make no tables.
        let wheel = r#"{ url = "https://files.example/foo-1.0-py3-none-any.whl", size = 1 }"#;
        assert_eq!(LockShape::of(wheel).values, 4);
    }

    #[test]
    fn packages_are_parsed_one_by_one() {
        let lock = "version = 1\n[[package]]\nname = \"a\"\n[package.x.y]\nz = [{ b = 1 }]\n[[package.files]]\n\
                    [[package]]\nname = \"b\"\n[metadata]\nc.d = 1\n[[package]]\n";
        let found: Vec<_> = parts(lock).map(|(part, piece)| (part, piece.len())).collect();
        let package = LockPart::Package;
        let expected = [
            (LockPart::Head, 12),
            (package, 71),
            (package, 23),
            (LockPart::Other, 19),
            (package, 12),
        ];
        assert_eq!(found, expected);
        let shape = LockShape::of(lock);
        assert_eq!((shape.releases, shape.package_tables), (3, 10));
        // Lists of lists go on.
        for line in [
            "[1, 2],",
            "[1]",
            "[\"a\"]",
            "  [a]",
            "[[1], [2]]",
            "[package.x]",
            "[[packages.wheels]]",
        ] {
            assert_eq!(LockPart::beginning_at(line), None, "{line}");
        }
        for line in ["[metadata]", "[[x.y-z]] # comment", "[packages]"] {
            assert_eq!(LockPart::beginning_at(line), Some(LockPart::Other), "{line}");
        }
    }

    #[test]
    fn a_lock_that_names_too_much_is_not_read_to_its_end() {
        let bounds = LockBounds { releases_max: 2, files_max: 3 };
        let named = |text: &str| Lock::parse_within(text, bounds);
        assert!(named("a==1\nb==1\n").is_ok());
        let toml = "[[package]]\nname = \"a\"\nversion = \"1\"\nsource.registry = \"https://x\"\nwheels = [{ url = \"w\" }]\n";
        assert!(named(&toml.repeat(2)).is_ok());
        for text in
            [toml.repeat(3), "a==1\n".repeat(3), "a==1 --hash=md5:1 --hash=md5:2\n".repeat(2)]
        {
            let error = named(&text).expect_err(&text);
            assert_eq!(
                error,
                "it names more than 2 releases, or more than 3 files, the most that were expected"
            );
        }
        // However many dots, lines and lists a lock has, it is known before it is parsed.
        for (text, tables) in
            [("[[package]]\na.a.a = 1\n".repeat(5), 4), ("a.b = 1\n".repeat(70_000), 70_000)]
        {
            assert_eq!(LockShape::of(&text).package_tables, tables);
        }
    }

    #[test]
    fn uv_lock() {
        check(
            r#"version = 1
requires-python = ">=3.9"
[[package]]
name = "consumer"
version = "0"
source = { virtual = "." }
[[package]]
name = "foo"
version = "1.0"
source = { registry = "https://index.example/simple" }
sdist = { url = "https://files.example/foo-1.0.tar.gz", hash = "sha256:AA", size = 1 }
wheels = [{ url = "https://files.example/foo-1.0%2Bx-py3-none-any.whl#egg", hash = "sha256:bb" }]
"#,
            &["foo 1.0 foo-1.0+x-py3-none-any.whl=sha256:bb foo-1.0.tar.gz=sha256:aa"],
            1,
        );
        // Archives and directories on a disk, a repository, an archive at a URL.
        check(
            r#"version = 1
[[package]]
name = "a"
version = "1"
source = { path = "a-1.tar.gz" }
sdist = { hash = "sha256:aa" }
[[package]]
name = "b"
version = "1"
source = { registry = "wheels" }
wheels = [{ path = "b-1-py3-none-any.whl" }]
[[package]]
name = "c"
version = "1"
source = { git = "https://git.example/c?rev=1#0" }
[[package]]
name = "d"
version = "1"
source = { url = "https://files.example/d-1.tar.gz" }
sdist = { url = "https://files.example/d-1.tar.gz", hash = "sha256:aa" }
"#,
            &[],
            4,
        );
    }

    #[test]
    fn poetry_lock_and_pylock() {
        check(
            r#"[[package]]
name = "Foo"
version = "1.0"
files = [{ file = "foo-1.0.tar.gz", hash = "sha256:aa" }]
[metadata]
lock-version = "2.0"
"#,
            &["foo 1.0 foo-1.0.tar.gz=sha256:aa"],
            0,
        );
        check(
            r#"lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "foo"
version = "1.0"
sdist = { name = "foo-1.0.tar.gz", url = "https://files.example/x", hashes = { sha256 = "aa", blake2b = "cc" } }
wheels = [{ url = "https://files.example/foo-1.0-py3-none-any.whl", hashes = { sha256 = "bb" } }]
[[packages]]
name = "here"
directory = { path = "." }
"#,
            &["foo 1.0 foo-1.0-py3-none-any.whl=sha256:bb foo-1.0.tar.gz=sha256:aa"],
            1,
        );
    }
}
