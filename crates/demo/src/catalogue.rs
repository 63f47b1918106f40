//! The plan of a catalogue: its bases and packages, their names, and who maintains them.
//!
//! Seed -> families of names -> bases in the order of their last change -> [`Catalogue`]. Only this is in memory,
//! some 60 bytes a package; records are made from it one base at a time.

use std::collections::HashSet;

use crate::ecosystem::{APPLICATION, ECOSYSTEMS, Ecosystem, LIBRARY, PYTHON};
use crate::random::Random;
use crate::sentences::push_capitalised;
use crate::words::Words;

/// The kinds of variants that packages are, by the end of the name; the index is [`Base::variant`].
pub(crate) static VARIANTS: &[&str] =
    &["", "-git", "-bin", "-appimage", "-svn", "-hg", "-nightly", "-beta", "-lts"];
/// The index of the package itself in [`VARIANTS`].
pub(crate) const PLAIN: usize = 0;
/// The index of a build of the latest source in [`VARIANTS`].
pub(crate) const GIT: usize = 1;
/// The index of a repackaged binary in [`VARIANTS`].
pub(crate) const BIN: usize = 2;

/// When the first package base was submitted: June 2005, Unix seconds.
const FIRST_CHANGE: u64 = 1_117_584_000;
/// When the catalogue was last changed: the start of 2026, Unix seconds. No clock is read.
pub(crate) const LAST_CHANGE: u64 = 1_767_225_600;

/// The sets of variants that families of an application have, and how often of 1,000.
const APPLICATION_FAMILIES: &[(&[usize], u32)] = &[
    (&[0], 262),
    (&[1], 128),
    (&[2], 150),
    (&[0, 1], 108),
    (&[0, 2], 90),
    (&[1, 2], 98),
    (&[0, 1, 2], 92),
    (&[3], 14),
    (&[0, 4], 9),
    (&[0, 5], 5),
    (&[4], 5),
    (&[5], 3),
    (&[2, 6], 15),
    (&[2, 7], 12),
    (&[0, 8], 5),
];

/// The sets of variants that families of a module have, and how often of 1,000.
const MODULE_FAMILIES: &[(&[usize], u32)] = &[
    (&[0], 700),
    (&[1], 110),
    (&[2], 33),
    (&[0, 1], 120),
    (&[0, 2], 20),
    (&[0, 1, 2], 12),
    (&[4], 5),
];

/// The suffixes that packages of a split base add to its name.
const PARTS: &[&str] = &[
    "docs", "common", "data", "libs", "cli", "gui", "server", "client", "tools", "devel",
    "examples", "qt", "gtk", "plugins", "utils", "headers", "lang", "extras", "daemon", "fonts",
];

/// How often of 1,000 a split base has 2, 3, … 10 packages.
const SPLIT_SIZES: &[u32] = &[450, 220, 120, 80, 50, 30, 20, 20, 10];

/// Names with the word that only a handful of packages contain, in a catalogue of any size: kind, name, variant.
const ATTESTING: &[(usize, &str, usize)] = &[
    (APPLICATION, "attest", PLAIN),
    (PYTHON, "python-attest", PLAIN),
    (APPLICATION, "tpm2-attest", GIT),
    (APPLICATION, "attestctl", BIN),
    (LIBRARY, "libattest", PLAIN),
    (APPLICATION, "keyring-attestd", PLAIN),
];

/// The word that tests search for. No other name contains it.
pub(crate) const ATTEST: &str = "attest";

/// A package base: one recipe for one package, or for several when it is split.
pub(crate) struct Base {
    /// Its name, an index into [`Names`].
    pub(crate) name: u32,
    /// Its first package, an index into [`Names`]; the others follow.
    pub(crate) first_package: u32,
    pub(crate) package_count: u8,
    /// An index into [`ECOSYSTEMS`].
    pub(crate) ecosystem: u8,
    /// An index into [`VARIANTS`].
    pub(crate) variant: u8,
    /// Unix seconds.
    pub(crate) first_submitted: u32,
    /// Rises with `first_submitted`, with gaps.
    pub(crate) id: u32,
}

/// Names end to end, found by index; no two are equal when case is ignored.
pub(crate) struct Names {
    text: String,
    ends: Vec<u32>,
    /// Digests of the lower-case names. Two names with the same digest count as one: the later one is not used.
    taken: HashSet<u64>,
}

impl Names {
    fn new() -> Self {
        Self { text: String::new(), ends: vec![0], taken: HashSet::new() }
    }

    pub(crate) fn get(&self, index: u32) -> &str {
        let index = index as usize;
        &self.text[self.ends[index] as usize..self.ends[index + 1] as usize]
    }

    pub(crate) fn len(&self) -> u32 {
        self.ends.len() as u32 - 1
    }

    /// Adds `name` unless it is taken; returns its index.
    fn claim(&mut self, name: &str) -> Option<u32> {
        self.taken.insert(digest(name)).then(|| {
            self.text.push_str(name);
            self.ends.push(self.text.len() as u32);
            self.len() - 1
        })
    }

    /// Reserves `name`, so that no package gets it.
    fn forbid(&mut self, name: &str) {
        self.taken.insert(digest(name));
    }

    /// Frees the digests: no further names will be added.
    fn close(&mut self) {
        self.taken = HashSet::new();
    }
}

/// FNV-1a of the lower-case name.
fn digest(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// All bases, in the order of their last change, and all users.
pub(crate) struct Catalogue {
    pub(crate) names: Names,
    pub(crate) bases: Vec<Base>,
    pub(crate) users: Names,
    /// Packages that others depend on, the most popular first: per ecosystem, indices into `names`.
    pub(crate) wanted: Vec<Vec<u32>>,
    packages_max: u32,
    packages: u32,
}

impl Catalogue {
    /// Plans a catalogue of exactly `packages` packages.
    pub(crate) fn plan(packages: u32, seed: u64, words: &Words) -> Self {
        let mut catalogue = Self {
            names: Names::new(),
            bases: Vec::new(),
            users: Names::new(),
            wanted: vec![Vec::new(); ECOSYSTEMS.len()],
            packages_max: packages,
            packages: 0,
        };
        let mut random = Random::new(seed, 0);
        for name in &words.official {
            catalogue.names.forbid(name);
        }
        // A tiny catalogue has fewer of these, so that there is room for other names.
        for &(ecosystem, name, variant) in ATTESTING.iter().take(packages.div_ceil(16) as usize) {
            catalogue.add_single(ecosystem, name, variant);
        }
        catalogue.add_families(words, &mut random);
        catalogue.names.close();
        shuffle(&mut catalogue.bases, &mut random);
        catalogue.date_bases(&mut random);
        catalogue.rank_wanted();
        catalogue.add_users(words, &mut Random::new(seed, 1));
        catalogue
    }

    /// When the base at `position` was last changed, in Unix seconds: ascending, and faster in the past.
    pub(crate) fn last_modified(&self, position: usize) -> u64 {
        let count = self.bases.len() as u128;
        let newer = count - 1 - position as u128;
        let span = u128::from(LAST_CHANGE - FIRST_CHANGE);
        LAST_CHANGE - (span * newer * newer * newer / (count * count * count)) as u64
    }

    fn is_full(&self) -> bool {
        self.packages == self.packages_max
    }

    fn add_families(&mut self, words: &Words, random: &mut Random) {
        let kinds: Vec<u32> = ECOSYSTEMS.iter().map(|ecosystem| ecosystem.weight).collect();
        let weights = |families: &[(&[usize], u32)]| {
            families.iter().map(|family| family.1).collect::<Vec<_>>()
        };
        let (applications, modules) = (weights(APPLICATION_FAMILIES), weights(MODULE_FAMILIES));
        let mut vain = 0;
        while !self.is_full() {
            let kind = random.weighted(&kinds);
            let ecosystem = &ECOSYSTEMS[kind];
            let stem = stem(words, random, vain);
            let plain = format!("{}{stem}{}", ecosystem.prefix, ecosystem.suffix);
            let variants = if ecosystem.is_application {
                APPLICATION_FAMILIES[random.weighted(&applications)].0
            } else {
                MODULE_FAMILIES[random.weighted(&modules)].0
            };
            let before = self.packages;
            if !plain.to_ascii_lowercase().contains(ATTEST) {
                for &variant in variants {
                    if random.in_1000(46) {
                        self.add_split(kind, &plain, variant, random);
                    } else {
                        self.add_single(kind, &plain, variant);
                    }
                }
            }
            vain = if self.packages == before { vain + 1 } else { 0 };
        }
    }

    /// Adds a base of one package, unless the name is taken or the catalogue full.
    fn add_single(&mut self, ecosystem: usize, plain: &str, variant: usize) {
        if self.is_full() {
            return;
        }
        if let Some(name) = self.names.claim(&format!("{plain}{}", VARIANTS[variant])) {
            self.add_base(ecosystem, variant, name, name, 1);
        }
    }

    /// Adds a base of several packages, as long as names are free and the catalogue has room.
    fn add_split(&mut self, ecosystem: usize, plain: &str, variant: usize, random: &mut Random) {
        let end = VARIANTS[variant];
        let count =
            (2 + random.weighted(SPLIT_SIZES) as u32).min(self.packages_max - self.packages);
        // Most bases have the name of their first package; some have a name that no package has.
        let is_own_package = random.in_1000(600);
        let base = if is_own_package || random.in_1000(600) {
            format!("{plain}{end}")
        } else {
            format!("{plain}{}{end}", random.pick(&["-suite", "-all", "-project", "-packages"]))
        };
        if count == 0 {
            return;
        }
        let Some(name) = self.names.claim(&base) else { return };
        let first = if is_own_package { name } else { name + 1 };
        let has_binding = ECOSYSTEMS[ecosystem].is_application && random.in_1000(300);
        if has_binding && self.names.len() - first < count {
            self.names.claim(&format!("python-{plain}{end}"));
        }
        let mut part = random.below(PARTS.len() as u32) as usize;
        for _ in 0..PARTS.len() {
            if self.names.len() - first >= count {
                break;
            }
            // 7 and the number of parts have no common factor, so every part is used.
            part = (part + 7) % PARTS.len();
            self.names.claim(&format!("{plain}-{}{end}", PARTS[part]));
        }
        let count = self.names.len() - first;
        if count > 0 {
            self.add_base(ecosystem, variant, name, first, count);
        }
    }

    fn add_base(
        &mut self,
        ecosystem: usize,
        variant: usize,
        name: u32,
        first_package: u32,
        package_count: u32,
    ) {
        self.packages += package_count;
        self.bases.push(Base {
            name,
            first_package,
            package_count: package_count as u8,
            ecosystem: ecosystem as u8,
            variant: variant as u8,
            first_submitted: 0,
            id: 0,
        });
    }

    /// Sets when each base was submitted, and numbers the bases in that order.
    fn date_bases(&mut self, random: &mut Random) {
        for position in 0..self.bases.len() {
            let last = self.last_modified(position);
            let age =
                if random.in_1000(180) { 0 } else { random.below_wide(last - FIRST_CHANGE + 1) };
            self.bases[position].first_submitted = (last - age) as u32;
        }
        let mut order: Vec<u32> = (0..self.bases.len() as u32).collect();
        order.sort_unstable_by_key(|&position| {
            (self.bases[position as usize].first_submitted, position)
        });
        let mut id = 0;
        for position in order {
            id += random.between(1, 3);
            self.bases[position as usize].id = id;
        }
    }

    /// Others depend most on the bases that changed last, except on variants.
    fn rank_wanted(&mut self) {
        for base in self.bases.iter().rev().filter(|base| usize::from(base.variant) == PLAIN) {
            self.wanted[usize::from(base.ecosystem)].push(base.first_package);
        }
    }

    fn add_users(&mut self, words: &Words, random: &mut Random) {
        let count = self.packages_max / 6 + 25;
        let mut vain = 0;
        while self.users.len() < count {
            let name = user_name(words, random, vain);
            let is_taken =
                name.len() > 16 || name.contains(ATTEST) || self.users.claim(&name).is_none();
            vain = if is_taken { vain + 1 } else { 0 };
        }
        self.users.close();
    }
}

/// The part of `name` without what its ecosystem and its variant add.
pub(crate) fn stem_of<'a>(name: &'a str, ecosystem: &Ecosystem, variant: usize) -> &'a str {
    let name = plain_of(name, variant);
    let name = name.strip_prefix(ecosystem.prefix).unwrap_or(name);
    name.strip_suffix(ecosystem.suffix).unwrap_or(name)
}

/// `name` without the suffix of its variant.
pub(crate) fn plain_of(name: &str, variant: usize) -> &str {
    name.strip_suffix(VARIANTS[variant]).unwrap_or(name)
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u32 + 1) as usize);
    }
}

/// The stem of a project's name. After `vain` attempts that gave only taken names, it is longer.
fn stem(words: &Words, random: &mut Random, vain: u32) -> String {
    let form = if vain > 3 { 9 } else { random.weighted(&[22, 6, 26, 13, 18, 7, 3, 3, 2]) };
    let word = |random: &mut Random| random.pick(&words.name);
    let mut stem = match form {
        0 => coin(words, random),
        1 => word(random).to_owned(),
        2 => format!("{}-{}", word(random), word(random)),
        3 => format!("{}{}", word(random), word(random)),
        4 => format!("{}-{}", coin(words, random), random.pick(&words.tools)),
        5 => format!("{}-{}-{}", word(random), word(random), random.pick(&words.tools)),
        6 => format!(
            "{}{}",
            coin(words, random),
            random.pick(&["2", "3", "64", "360", "4k", "ng", "fs", "d", "ctl"])
        ),
        7 => format!("{}-{}.{}", coin(words, random), random.between(1, 9), random.below(10)),
        8 => marked(words, random),
        _ => format!("{}-{}-{}", coin(words, random), word(random), coin(words, random)),
    };
    if random.in_1000(3) {
        let plain = std::mem::take(&mut stem);
        push_capitalised(&mut stem, &plain);
    }
    stem
}

/// A name with one of the rarer characters that are allowed in names.
fn marked(words: &Words, random: &mut Random) -> String {
    let (one, other) = (random.pick(&words.name), random.pick(&words.name));
    let coined = coin(words, random);
    match random.below(9) {
        0 => format!("{coined}++"),
        1 => format!("{one}+"),
        2 => format!("{one}+{other}"),
        3 => format!("{coined}.js"),
        4 => format!("{one}.{other}"),
        5 => format!("{coined}.nvim"),
        6 => format!("{one}@{other}"),
        7 => format!("{coined}_{one}"),
        _ => format!("{one}_{other}"),
    }
}

/// Coins a word of two or three syllables that no list has.
pub(crate) fn coin(words: &Words, random: &mut Random) -> String {
    let mut word = String::new();
    for _ in 0..2 + u32::from(random.in_1000(350)) {
        word.push_str(random.pick(&words.onsets));
        word.push_str(random.pick(&words.vowels));
    }
    word.push_str(random.pick(&words.codas).trim_matches('-'));
    word
}

fn user_name(words: &Words, random: &mut Random, vain: u32) -> String {
    let person = |random: &mut Random| random.pick(&words.people);
    let form = if vain > 3 { 7 } else { random.below(7) };
    match form {
        0 => person(random).to_owned(),
        1 => format!("{}{}", person(random), random.between(1, 99)),
        2 => format!("{}{}", person(random), random.pick(&words.name)),
        3 => format!("{}{}", random.pick(&words.name), random.pick(&words.name)),
        4 => format!("{}_{}", person(random), coin(words, random)),
        5 => coin(words, random),
        6 => {
            let mut name = String::new();
            push_capitalised(&mut name, person(random));
            push_capitalised(&mut name, &coin(words, random));
            name
        }
        _ => format!("{}{}", coin(words, random), random.between(10, 99_999)),
    }
}
