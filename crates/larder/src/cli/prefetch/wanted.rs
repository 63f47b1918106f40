//! What a lock names: [`parse`] reads requirements, uv.lock, poetry.lock and pylock.toml.

use std::collections::BTreeSet;

use pypi::{ProjectName, Version};
use toml::{Table, Value};

/// The files of one release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) project: ProjectName,
    pub(super) version: Version,
    /// Their names, if the lock has them.
    pub(super) filenames: BTreeSet<String>,
    /// Their digests in lower case, if the lock has them.
    pub(super) sha256: BTreeSet<String>,
}

/// Everything that a lock names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) wanted: Vec<Wanted>,
    /// Packages from directories, repositories and the like.
    pub(super) others: usize,
}

/// Reads a lock, whichever it is.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn parse(text: &str) -> Result<Lock, String> {
    // Of a requirements file, hardly a line is TOML.
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
        let (Some(version), false) = (text("version"), files.is_empty()) else {
            lock.others += 1;
            continue;
        };
        let mut wanted = release(name, version)?;
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
            wanted.filenames.insert(filename.into_owned());
            let hash = text("hash").and_then(|hash| hash.strip_prefix("sha256:"));
            let hashes = file.get("hashes").and_then(|it| it.get("sha256")).and_then(Value::as_str);
            wanted.sha256.extend(hash.or(hashes).map(str::to_ascii_lowercase));
        }
        lock.wanted.push(wanted);
    }
    Ok(lock)
}

fn release(name: &str, version: &str) -> Result<Wanted, String> {
    Ok(Wanted {
        project: ProjectName::parse(name).map_err(|error| error.to_string())?,
        version: Version::parse(version).map_err(|error| format!("{name}: {error}"))?,
        filenames: BTreeSet::new(),
        sha256: BTreeSet::new(),
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
        let hashes: BTreeSet<String> = line
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("--hash=sha256:"))
            .map(str::to_ascii_lowercase)
            .collect();
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
        let wanted = release(name, version).map_err(|error| format!("line {number}: {error}"))?;
        lock.wanted.push(Wanted { sha256: hashes, ..wanted });
    }
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `project version filenames digests` of each release, and how many packages come from elsewhere.
    #[track_caller]
    fn check(text: &str, expected: &[&str], others: usize) {
        let lock = parse(text).expect("a lock");
        let of = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(",");
        let found: Vec<String> = lock
            .wanted
            .iter()
            .map(|it| {
                let parts =
                    [it.project.as_str(), it.version.as_str(), &of(&it.filenames), &of(&it.sha256)];
                parts.join(" ").trim_end().to_owned()
            })
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
             baz[extra]==2.0 ; python_version > '3' \\\n    --hash=sha256:AA \\\n    --hash=sha256:bb\n\
             -e ./here\nqux @ https://files.example/qux.zip\n",
            &["foo-bar 1.0", "baz 2.0  aa,bb"],
            2,
        );
        check("", &[], 0);
        for (text, says) in [
            ("foo==1\nbar>=2\n", "line 2: `bar>=2` names no one version"),
            ("foo==1.*", "line 1: `foo==1.*` names no one version"),
            ("-r other.txt", "line 1: `-r` names another file"),
            ("foo==a/b", "line 1: foo"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(says), "{error}");
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
            &["foo 1.0 foo-1.0+x-py3-none-any.whl,foo-1.0.tar.gz aa,bb"],
            1,
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
            &["foo 1.0 foo-1.0.tar.gz aa"],
            0,
        );
        check(
            r#"lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "foo"
version = "1.0"
sdist = { name = "foo-1.0.tar.gz", url = "https://files.example/x", hashes = { sha256 = "aa" } }
wheels = [{ url = "https://files.example/foo-1.0-py3-none-any.whl", hashes = { sha256 = "bb" } }]
[[packages]]
name = "here"
directory = { path = "." }
"#,
            &["foo 1.0 foo-1.0-py3-none-any.whl,foo-1.0.tar.gz aa,bb"],
            1,
        );
    }
}
