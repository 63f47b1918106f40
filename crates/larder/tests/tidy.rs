//! Rules that a compiler does not know: which crate may use which, no circle of modules, a module doc in every
//! file, and no path of the machine that a file was written on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("the workspace")
}

/// The floors, lowest first: dependencies point down, never sideways.
const FLOORS: [&[&str]; 10] = [
    &["postings", "reply", "record", "demo", "markup", "net", "version", "testbed", "paste"],
    &["account"],
    &["aur", "article", "pypi", "resources", "store"],
    &["audit", "following", "issuers", "ldap", "mirrors", "passwords", "source"],
    &["config"],
    &["state"],
    &["operations"],
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

/// The text of every Rust file below a directory of the workspace, without its tests, by path.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    let files = rust_files(&root().join(directory)).into_iter();
    let texts = files.map(|path| {
        let text = fs::read_to_string(&path).expect("text");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (path, code)
    });
    texts.collect()
}

fn sources_of(name: &str) -> Vec<(PathBuf, String)> {
    sources(&format!("crates/{name}/src"))
}

/// An operation knows no protocol, and nothing is committed but by the loop that carries operations out.
#[test]
fn operations_have_one_home() {
    let used = dependencies("operations", false);
    for other in IMPURE {
        assert!(!used.contains(other), "`operations` uses `{other}`");
    }
    for (path, text) in ["larder", "cli", "import"].into_iter().flat_map(sources_of) {
        let forges = text.contains("without_checking(");
        assert!(!forges, "{} makes an identity that nobody has signed", path.display());
    }
    let keepers = [
        "cli/src/directory.rs",
        "import/src/writer.rs",
        "larder/src/app/keeper.rs",
        // What the server's keeper commits to.
        "state/src/stored.rs",
    ];
    // What no sender asks for: who a store is, its first user, what its processes note of themselves, and the AUR's past.
    let others = [
        "larder/src/published/changes/aur_history.rs",
        "state/src/identity.rs",
        "state/src/maintenance/promote.rs",
        "state/src/setup.rs",
        "state/src/shared_settings.rs",
    ];
    let commits = |text: &str| {
        let calls = ["records.commit(", "records().commit(", "live_store.commit("];
        calls.iter().any(|call| text.contains(call))
    };
    let crates = FLOORS.concat().into_iter().filter(|name| !["store", "testbed"].contains(name));
    let found = crates.flat_map(sources_of);
    let found = found.filter(|(path, text)| !path.ends_with("testing.rs") && commits(text));
    let found = found.map(|(path, _)| {
        let inner = path.strip_prefix(root().join("crates")).expect("a crate").to_owned();
        inner.into_os_string().into_string().expect("text")
    });
    let expected = [&keepers[..], &others].concat().into_iter().map(str::to_owned);
    assert_eq!(found.collect::<BTreeSet<_>>(), expected.collect::<BTreeSet<_>>());
}

/// Pages and forms call what the handlers of programs call, and not these handlers: they take no answer of theirs apart.
#[test]
fn pages_ask_no_handler_of_programs() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("text");
    let mut forbidden: BTreeSet<String> =
        ["door::", "Ask::", "to_bytes("].map(str::to_owned).into();
    for (file, handlers) in [("handlers.rs", "protocols"), ("python.rs", "protocols/python")] {
        let text = read(&format!("crates/larder/src/door/{file}"));
        let is_part = |it: char| it.is_alphanumeric() || it == '_' || it == ':';
        for (at, _) in text.match_indices('(') {
            let start = text[..at].rfind(|it| !is_part(it)).map_or(0, |found| found + 1);
            let called = &text[start..at];
            let module = called.split("::").next().unwrap_or_default();
            let place = format!("crates/larder/src/{handlers}/{module}.rs");
            if called.contains("::") && root().join(place).exists() {
                forbidden.insert(format!("{called}("));
            }
        }
    }
    assert!(forbidden.len() > 80, "{forbidden:?}");
    for (path, text) in sources("crates/larder/src/people") {
        let found = forbidden.iter().find(|call| text.contains(call.as_str()));
        assert_eq!(found, None, "{}", path.display());
    }
}

/// Each operation has a name of its own. Its doors are a table in the tests of rights, which does not compile without.
#[test]
fn every_operation_has_its_name() {
    let list = fs::read_to_string(root().join("crates/operations/src/name.rs")).expect("text");
    let list = list.split("pub enum Name {").nth(1).and_then(|rest| rest.split('}').next());
    let listed = list.expect("the list").split(',').map(str::trim).filter(|name| !name.is_empty());
    let texts = sources_of("operations");
    let made = texts.iter().flat_map(|(_, text)| text.split("const NAME: Name = Name::").skip(1));
    let mut made: Vec<&str> = made.filter_map(|rest| rest.split(';').next()).collect();
    made.sort_unstable();
    let mut listed: Vec<&str> = listed.collect();
    listed.sort_unstable();
    assert!(listed.len() > 30, "{listed:?}");
    assert_eq!(made, listed);
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
    // The metrics in the dashboard and in alerts exist: histograms by their parts.
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

/// The path of a module within its crate: `["http", "article"]`. The root is empty.
type Module = Vec<String>;

/// The files of a crate that are modules, without the root and without tests.
fn modules(source: &Path) -> BTreeMap<Module, PathBuf> {
    let of = |path: &PathBuf| -> Module {
        let inner = path.strip_prefix(source).expect("a file of the crate").with_extension("");
        inner.iter().map(|part| part.to_str().expect("text").to_owned()).collect()
    };
    let is_code = |module: &Module| {
        let is_root = matches!(&module[..], [name] if name == "lib" || name == "main");
        !is_root && !module.iter().any(|part| part == "tests")
    };
    let files = rust_files(source).into_iter().map(|path| (of(&path), path));
    files.filter(|(module, _)| is_code(module)).collect()
}

/// The ones of `modules` that `text`, the source of `module` without its tests, names by a path of `crate`, `super` or `self`.
fn named_modules(
    text: &str,
    module: &Module,
    modules: &BTreeMap<Module, PathBuf>,
) -> BTreeSet<Module> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n");
    let parent = &module[..module.len() - 1];
    let mut named = BTreeSet::new();
    for (start, base) in [("crate::", &[][..]), ("super::", parent), ("self::", &module[..])] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            // Within a path it stands for something else.
            if !before.is_some_and(|it| it.is_alphanumeric() || it == '_' || it == ':') {
                follow(base.to_vec(), &text[at + start.len()..], modules, &mut named);
            }
        }
    }
    named
}

/// Adds the modules that a path, or each of a list of paths, names when it begins in the module `base`.
fn follow(
    mut base: Module,
    path: &str,
    modules: &BTreeMap<Module, PathBuf>,
    named: &mut BTreeSet<Module>,
) {
    let path = path.trim_start();
    if let Some(list) = path.strip_prefix('{') {
        let (mut depth, mut start) = (0, 0);
        for (at, it) in list.char_indices() {
            match it {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    follow(base.clone(), &list[start..at], modules, named);
                    start = at + 1;
                    if it == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
        return;
    }
    let end = path.find(|it: char| !(it.is_alphanumeric() || it == '_')).unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    if name == "super" {
        base.pop();
    } else {
        base.push(name.to_owned());
        if !modules.contains_key(&base) {
            // An item of the module before it.
            base.pop();
            named.insert(base);
            return;
        }
    }
    match rest.strip_prefix("::") {
        Some(rest) => follow(base, rest, modules, named),
        None => _ = named.insert(base),
    }
}

/// For each module with modules in it: what each of these, with all that is in it, uses of the others.
fn used_modules(source: &Path) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
    let modules = modules(source);
    let mut used: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, path) in &modules {
        let text = fs::read_to_string(path).expect("text");
        for other in named_modules(&text, module, &modules) {
            let common = module.iter().zip(&other).take_while(|(one, other)| one == other).count();
            // A module and its submodules may use each other.
            let (Some(one), Some(other)) = (module.get(common), other.get(common)) else {
                continue;
            };
            let siblings = used.entry(module[..common].to_vec()).or_default();
            siblings.entry(one.clone()).or_default().insert(other.clone());
            siblings.entry(other.clone()).or_default();
        }
    }
    used
}

/// A circle in `used`, if there is one: modules each of which uses the next.
fn circle(used: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut left = used.clone();
    // A module that uses none of the others is in no circle.
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
fn modules_use_each_other_in_one_direction() {
    let of = |text: &str| -> BTreeSet<String> {
        let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
        let known =
            ["a", "a::b", "a::b::c", "d", "d::e"].map(|path| (module(path), PathBuf::new()));
        let named = named_modules(text, &module("a::b"), &BTreeMap::from(known));
        named.iter().map(|module| module.join("::")).collect()
    };
    let check = |text: &str, expected: &[&str]| {
        assert_eq!(of(text), expected.iter().copied().map(str::to_owned).collect(), "{text}");
    };
    check("use crate::{d::{e::{X, y}, Z}, a as other};", &["a", "d", "d::e"]);
    check("use super::{Item, super::d::e};\nuse self::c::Item;", &["a", "a::b::c", "d::e"]);
    check("use crate::a::b::c;\nfn f() { crate::d::g() } // crate::no", &["a::b::c", "d"]);
    check("use other::d::e; use my_crate::d;", &[]);

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

    let mut levels = 0;
    for name in FLOORS.into_iter().flatten() {
        for (module, used) in used_modules(&root().join("crates").join(name).join("src")) {
            let module = [vec![(*name).to_owned()], module].concat().join("::");
            assert_eq!(circle(&used), None, "modules of {module} use each other in a circle");
            levels += 1;
        }
    }
    assert!(levels > 40, "{levels} modules have modules that use each other");
}

/// The rooms of the server, lowest first: each uses only those below it.
const ROOMS: [&[&str]; 8] = [
    &["routes"],
    &["metrics", "published"],
    &["app"],
    &["front", "tasks"],
    &["protocols"],
    &["people"],
    &["door"],
    &["start"],
];

#[test]
fn rooms_use_those_below() {
    let source = root().join("crates/larder/src");
    let used = used_modules(&source).remove(&Module::new()).expect("rooms");
    let listed: BTreeSet<&str> = ROOMS.concat().into_iter().collect();
    assert_eq!(used.keys().map(String::as_str).collect::<BTreeSet<_>>(), listed);
    let floor = |room: &str| ROOMS.iter().position(|rooms| rooms.contains(&room));
    for (room, others) in &used {
        for other in others {
            let is_beside = [room.as_str(), other] == ["metrics", "published"];
            assert!(is_beside || floor(other) < floor(room), "`{room}` uses `{other}`");
        }
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
            // `networks/work/x` is no such path, and neither is a URL's.
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
