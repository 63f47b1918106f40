//! Rules that a compiler does not know: which crate may use which, no circle of modules within a crate, a module doc in every
//! file, and no path of the machine that a file was written on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("the workspace")
}

/// The floors, lowest first: dependencies point down, never sideways.
const FLOORS: [&[&str]; 9] = [
    &["postings", "reply", "record", "demo", "markup", "net", "version", "testbed", "paste"],
    &["account"],
    &["aur", "article", "pypi", "passwords", "resources", "store"],
    &["audit", "mirrors", "source"],
    &["config"],
    &["state"],
    &["import", "logging"],
    &["cli"],
    &["larder"],
];

/// Crates without I/O, clock or runtime. Of this workspace, they use only each other, for tests, too.
const PURE: [&str; 9] =
    ["aur", "article", "pypi", "account", "postings", "reply", "record", "demo", "markup"];

/// Libraries that the pure ones must not use.
const IMPURE: [&str; 11] = [
    "tokio",
    "tokio-util",
    "axum",
    "hyper",
    "hyper-util",
    "http",
    "http-body-util",
    "reqwest",
    "tower",
    "tower-http",
    "rustls",
];

/// Libraries for connections and answers: only the crates that serve use them.
const SERVING: [&str; 5] = ["axum", "hyper", "hyper-util", "tower", "tower-http"];

/// The names in all dependency sections of a crate's manifest, those for tests included if asked for.
fn dependencies(name: &str, with_tests: bool) -> BTreeSet<String> {
    let path = root().join("crates").join(name).join("Cargo.toml");
    let manifest: toml::Table =
        fs::read_to_string(&path).expect("a manifest").parse().expect("TOML");
    let mut sections = vec!["dependencies", "build-dependencies"];
    if with_tests {
        sections.push("dev-dependencies");
    }
    assert!(
        !manifest.contains_key("target"),
        "{}: this test does not read [target]",
        path.display()
    );
    sections
        .into_iter()
        .filter_map(|section| manifest.get(section)?.as_table())
        .flat_map(|table| table.keys().cloned())
        .collect()
}

#[test]
fn every_crate_has_its_floor() {
    let listed: BTreeSet<String> = FLOORS.concat().into_iter().map(str::to_owned).collect();
    let entries = fs::read_dir(root().join("crates")).expect("crates");
    let found =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    assert_eq!(found.collect::<BTreeSet<_>>(), listed);
}

#[test]
fn dependencies_point_down() {
    for (floor, names) in FLOORS.iter().enumerate() {
        for name in *names {
            let used = dependencies(name, false);
            for other in FLOORS[floor..].iter().copied().flatten() {
                assert!(!used.contains(*other), "`{name}` uses `{other}`, which is not below it");
            }
        }
    }
    assert!(dependencies("aur", false).contains("postings"), "manifests are read");
}

#[test]
fn the_surfaces_are_pure() {
    for name in PURE {
        let used = dependencies(name, true);
        for other in IMPURE {
            assert!(!used.contains(other), "`{name}` uses `{other}`");
        }
        for other in FLOORS.into_iter().flatten().filter(|other| !PURE.contains(other)) {
            assert!(!used.contains(*other), "`{name}` uses `{other}`, which is not pure");
        }
    }
}

/// The command line starts the server, and not the other way round.
#[test]
fn only_the_binary_knows_the_command_line() {
    let source = root().join("crates/larder/src");
    for path in rust_files(&source).into_iter().filter(|path| *path != source.join("main.rs")) {
        let text = fs::read_to_string(&path).expect("text");
        let is_named = text.contains("use cli::") || text.contains(" cli::");
        assert!(!is_named, "{} uses `cli`", path.display());
    }
}

#[test]
fn only_two_crates_serve() {
    for name in FLOORS.into_iter().flatten().filter(|name| !["net", "larder"].contains(name)) {
        let used = dependencies(name, false);
        for other in SERVING {
            assert!(!used.contains(other), "`{name}` uses `{other}`");
        }
    }
}

/// The names of metrics among the texts between these quotation marks: letters, figures and `_` after a prefix of ours.
fn metric_names(text: &str, quotation_mark: char) -> BTreeSet<String> {
    let is_name = |text: &&str| {
        (text.starts_with("larder_") || text.starts_with("rpc_"))
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let quoted = text.split(quotation_mark).skip(1).step_by(2);
    quoted
        .map(|text| text.split('{').next().unwrap_or_default())
        .filter(is_name)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_metric_is_documented() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("text");
    let table = read("crates/larder/src/metrics.rs");
    let counters = read("crates/larder/src/metrics/counters.rs");
    let counted = metric_names(&(table + &counters), '"');
    assert!(counted.len() > 40, "{counted:?}");
    let manual = read("docs/operating.md");
    let table: String = manual.lines().filter(|line| line.starts_with("| `")).collect();
    let documented: BTreeSet<String> = metric_names(&table, '`');
    assert_eq!(documented, counted);
    // What is drawn and watched is there: histograms by their parts.
    for path in ["packaging/grafana/larder.json", "packaging/prometheus/larder.rules.yml"] {
        let text = read(path);
        let words = text.split(|part: char| !part.is_ascii_alphanumeric() && part != '_');
        let is_name = |word: &&str| word.starts_with("larder_") || word.starts_with("rpc_");
        // `rpc_.*` stands for many.
        for word in words.filter(is_name).filter(|word| !word.ends_with('_')) {
            let whole = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|part| word.strip_suffix(part))
                .unwrap_or(word);
            assert!(counted.contains(whole), "{path} asks for `{word}`");
        }
    }
}

/// A rule that never fires looks like one that has nothing to say.
#[test]
fn every_alert_has_a_case_in_which_it_fires() {
    let read = |name: &str| {
        fs::read_to_string(root().join("packaging/prometheus").join(name)).expect("text")
    };
    let rules = read("larder.rules.yml");
    let alerts: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    let cases = read("larder.rules.test.yml");
    let firing: BTreeSet<&str> = cases
        .match_indices("alertname=\"")
        .filter_map(|(at, found)| cases[at + found.len()..].split('"').next())
        .collect();
    assert_eq!(firing, alerts);
}

/// Every file below `directory` that is no build product.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("text");
        let kind = entry.file_type().expect("a type");
        if kind.is_dir()
            && !matches!(name.as_str(), "target" | ".git" | "corpus" | "artifacts" | "node_modules")
        {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// The Rust files below `directory`.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(directory, &mut found);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    found
}

/// The modules that `text`, without its tests, names by a path from the root of its crate.
fn named_modules(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n");
    let is_of_name = |it: char| it.is_alphanumeric() || it == '_';
    let first_name = |text: &str| text.split(|it| !is_of_name(it)).next().unwrap_or("").to_owned();
    let mut named = BTreeSet::new();
    for (at, path) in text.match_indices("crate::") {
        if text[..at].ends_with(is_of_name) {
            continue;
        }
        let rest = &text[at + path.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            named.insert(first_name(rest));
            continue;
        };
        let mut depth = 1;
        let mut is_start = true;
        for (at, it) in list.char_indices() {
            if is_start && depth == 1 && is_of_name(it) {
                named.insert(first_name(&list[at..]));
                is_start = false;
            }
            match it {
                '{' => depth += 1,
                '}' if depth == 1 => break,
                '}' => depth -= 1,
                ',' if depth == 1 => is_start = true,
                _ => {}
            }
        }
    }
    named
}

/// What each module at the top of a crate uses of the others.
fn used_modules(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in rust_files(source) {
        let inner = path.strip_prefix(source).expect("a file of the crate");
        let top = inner.components().next().expect("a name").as_os_str().to_string_lossy();
        let module = top.trim_end_matches(".rs").to_owned();
        let is_root = matches!(top.as_ref(), "lib.rs" | "main.rs");
        let is_test = inner.iter().any(|part| part == "tests" || part == "tests.rs");
        if is_root || is_test {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        let is_top = inner.components().count() == 1;
        // At the top, `super` is the root of the crate.
        let text = if is_top { text.replace("super::", "crate::") } else { text };
        used.entry(module).or_default().extend(named_modules(&text));
    }
    let modules: BTreeSet<String> = used.keys().cloned().collect();
    for (module, used) in &mut used {
        used.retain(|it| it != module && modules.contains(it));
    }
    used
}

/// A circle in `used`, if there is one: modules each of which uses the next.
fn circle(used: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut left = used.clone();
    // A module that uses none of the others is not in a circle.
    while let Some(done) = left.iter().find(|(_, used)| used.is_empty()).map(|it| it.0.clone()) {
        left.remove(&done);
        left.values_mut().for_each(|used| _ = used.remove(&done));
    }
    let mut way = vec![left.keys().next()?.clone()];
    loop {
        let next = left[way.last()?].first()?.clone();
        if let Some(at) = way.iter().position(|it| *it == next) {
            return Some(way.split_off(at));
        }
        way.push(next);
    }
}

#[test]
fn modules_of_a_crate_use_each_other_in_one_direction() {
    let of = |text: &str| named_modules(text).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(
        of("use crate::{a::{x, y}, b, c as d};\nfn f() { crate::e::g() } // crate::no"),
        "a b c e"
    );
    let used = |edges: &[(&str, &str)]| {
        let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, other) in edges {
            used.entry((*module).to_owned()).or_default().insert((*other).to_owned());
            used.entry((*other).to_owned()).or_default();
        }
        used
    };
    assert_eq!(circle(&used(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let found = circle(&used(&[("a", "b"), ("b", "c"), ("c", "b")]));
    assert_eq!(found, Some(vec!["b".to_owned(), "c".to_owned()]));

    for name in FLOORS.into_iter().flatten() {
        let found = circle(&used_modules(&root().join("crates").join(name).join("src")));
        assert_eq!(found, None, "modules of crates/{name} use each other in a circle");
    }
}

#[test]
fn every_module_says_what_it_is() {
    let found = rust_files(&root().join("crates"));
    assert!(found.len() > 60, "{} files", found.len());
    for path in found {
        let text = fs::read_to_string(&path).expect("text");
        let first = text.lines().find(|line| !line.starts_with("#!["));
        let is_documented = first.is_some_and(|line| line.starts_with("//! ") && line.len() > 10);
        assert!(is_documented, "{} does not begin with a module doc", path.display());
    }
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    let mut found = Vec::new();
    for part in [".ci", ".github", "bench", "clients", "crates", "docs", "fuzz", "packaging"] {
        files(&root().join(part), &mut found);
    }
    let at_top =
        fs::read_dir(root()).expect("the workspace").map(|entry| entry.expect("an entry").path());
    // In a further worktree, `.git` is a file that names the repository.
    found.extend(at_top.filter(|path| path.is_file() && !path.ends_with(".git")));
    assert!(found.len() > 100, "{} files", found.len());
    // In two pieces, so that this file does not name them.
    let places = [["/wo", "rk/"].concat(), ["/ro", "ot/"].concat()];
    // Indexes of the user `root`, in URLs.
    let indexes = ["dev", "up", "stable", "pypi"];
    let is_path = |text: &str, place: &str| {
        text.match_indices(place).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let name = text[at + place.len()..].split(|it: char| !it.is_alphanumeric()).next();
            if name.is_some_and(|name| indexes.contains(&name)) {
                return false;
            }
            // `networks/work/x` is no such path, nor is a URL's.
            !before.is_some_and(|before| {
                before.is_alphanumeric() || matches!(before, '/' | '.' | '-' | '_' | '}' | ')')
            })
        })
    };
    assert!(is_path(&format!("see {}x", places[0]), &places[0]), "it would be found");
    for path in found {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for place in &places {
            assert!(!is_path(&text, place), "{} names a path under {place}", path.display());
        }
    }
}
