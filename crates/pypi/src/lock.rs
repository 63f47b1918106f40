//! [`Lock`]: the releases in requirements, uv.lock, poetry.lock and pylock.toml.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::{ProjectName, Version};

/// Files of one release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
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

/// Everything that a lock names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Releases, in the order of the lock; the same one may be there twice.
    pub wanted: Vec<Wanted>,
    /// Packages from directories, repositories and the like.
    pub others: usize,
}

impl Lock {
    /// Reads a lock, whichever it is.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Lock, String> {
        // Hardly any line of a requirements file is TOML.
        match text.parse::<Table>() {
            Ok(table) if table.contains_key("package") => packages(&table, "package"),
            Ok(table) if table.contains_key("packages") => packages(&table, "packages"),
            Ok(table)
                if table.contains_key("lock-version") || table.contains_key("requires-python") =>
            {
                Ok(Lock::default())
            }
            _ => requirements(text),
        }
    }

    /// An upper bound of the values in a lock as TOML, including tables, before it is parsed. Each value has one of these marks
    /// before it. A dot in a key makes a table, and that key is followed by `=`, `]` or a quoted part.
    pub fn values_max(text: &str) -> usize {
        let (mut values, mut dots, mut last) = (0, 0, b' ');
        for byte in text.bytes().filter(|byte| !matches!(byte, b' ' | b'\t')) {
            match byte {
                b'.' => dots += 1,
                b'=' | b']' => values += 1 + std::mem::take(&mut dots),
                b'"' | b'\'' if last == b'.' => values += std::mem::take(&mut dots),
                b',' | b'[' | b'{' => (values, dots) = (values + 1, 0),
                b'\n' => dots = 0,
                _ => {}
            }
            last = byte;
        }
        values
    }

    /// How many files it names; a release with all of its files counts as one.
    pub fn files(&self) -> usize {
        let files = self.wanted.iter().map(|wanted| match &wanted.files {
            Files::All => 1,
            Files::Digests(digests) => digests.len(),
            Files::Named(named) => named.len(),
        });
        files.sum()
    }
}

fn packages(table: &Table, key: &str) -> Result<Lock, String> {
    let mut lock = Lock::default();
    let packages = table[key].as_array();
    let packages = packages.ok_or_else(|| format!("`{key}` is no list of tables"))?;
    for (at, package) in packages.iter().enumerate() {
        let text = |key: &str| package.get(key).and_then(Value::as_str);
        let name = text("name").ok_or_else(|| format!("`{key}` number {} has no name", at + 1))?;
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
            lock.others += 1;
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
        lock.wanted.push(release(name, version, Files::Named(named))?);
    }
    Ok(lock)
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

fn release(name: &str, version: &str, files: Files) -> Result<Wanted, String> {
    Ok(Wanted {
        project: ProjectName::parse(name).map_err(|error| error.to_string())?,
        version: Version::parse(version).map_err(|error| format!("{name}: {error}"))?,
        files,
    })
}

fn requirements(text: &str) -> Result<Lock, String> {
    let mut lock = Lock::default();
    let mut begun: Option<(usize, String)> = None;
    // Each requirement is one line, which may be continued.
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let (number, mut whole) = begun.take().unwrap_or((at + 1, String::new()));
        match line.strip_suffix('\\') {
            Some(start) => {
                whole.push_str(start);
                begun = Some((number, whole));
            }
            None => {
                whole.push_str(line);
                lines.push((number, whole));
            }
        }
    }
    lines.extend(begun);
    for (number, line) in lines {
        let line = match line.find(" #") {
            Some(at) => &line[..at],
            None if line.trim_start().starts_with('#') => "",
            None => &line,
        };
        let mut words = line.split_whitespace();
        let hashes = line.split_whitespace().filter_map(|word| word.strip_prefix("--hash="));
        let hashes = comparable(hashes.map(str::to_owned).collect()).map_err(|hash| {
            let expected = ALGORITHMS.join(", ");
            format!("line {number}: the hash `{hash}` cannot be compared; one of {expected} was expected")
        })?;
        let Some(first) = words.next() else { continue };
        if matches!(first, "-r" | "--requirement" | "-c" | "--constraint") {
            return Err(format!("line {number}: `{first}` names another file; give that one, too"));
        }
        if first.starts_with('-') || line.contains(" @ ") || first.contains("://") {
            // Options are for the installer; a URL is no file of an index.
            lock.others += usize::from(!first.starts_with("--") && !first.starts_with("-i"));
            continue;
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
        lock.wanted.push(wanted.map_err(|error| format!("line {number}: {error}"))?);
    }
    Ok(lock)
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
            ("foo==1\nbar>=2\n", "line 2: `bar>=2` names no one version"),
            ("foo==1.*", "line 1: `foo==1.*` names no one version"),
            ("-r other.txt", "line 1: `-r` names another file"),
            ("foo==a/b", "line 1: foo"),
            (
                "foo==1 --hash=blake3:00",
                "line 1: the hash `blake3:00` cannot be compared; one of sha256",
            ),
        ] {
            let error = Lock::parse(text).expect_err(text);
            assert!(error.contains(says), "{error}");
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
            let most = Lock::values_max(text);
            assert!(found <= most && most <= 3 * found + 2, "{text}: {found}, at most {most}");
        }
        // Dots in texts make no tables.
        let wheel = r#"{ url = "https://files.example/foo-1.0-py3-none-any.whl", size = 1 }"#;
        assert_eq!(Lock::values_max(wheel), 4);
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
