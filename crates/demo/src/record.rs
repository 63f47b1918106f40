//! Records: the contents of each package of a [`Catalogue`], as the lines of a dump.
//!
//! Base by base, in the order of identifiers: first it draws what all packages of a base share, then each package
//! becomes one line. From one base to the next, only the streams of random numbers stay in memory.

use std::fmt::Write as _;
use std::io;

use crate::catalogue::{
    ATTEST, BIN, Base, Catalogue, GIT, LAST_CHANGE, PLAIN, VARIANTS, coin, plain_of, stem_of,
};
use crate::ecosystem::{APPLICATION, ECOSYSTEMS, Ecosystem, LIBRARY, PYTHON};
use crate::random::Random;
use crate::text;
use crate::words::Words;

/// How often of 1,000 a base has 0, 1, 2 to 3, 4 to 7, … 1,024 to 2,800 votes.
const VOTES: &[u32] = &[290, 250, 170, 110, 75, 45, 27, 17, 9, 4, 2, 1];
/// How often of 1,000 a package draws 0, 1, 2, … 15 dependencies; duplicates are dropped.
const DEPENDS: &[u32] = &[140, 150, 145, 125, 105, 85, 66, 50, 37, 27, 20, 15, 12, 9, 8, 6];
/// Licences and how often of 1,000 a package has each.
const LICENSES: &[(&str, u32)] = &[
    ("MIT", 255),
    ("GPL-3.0-or-later", 120),
    ("Apache-2.0", 105),
    ("GPL3", 90),
    ("GPL-3.0-only", 75),
    ("custom", 70),
    ("GPL-2.0-or-later", 55),
    ("BSD-3-Clause", 50),
    ("GPL", 35),
    ("LGPL-2.1-or-later", 25),
    ("GPL2", 20),
    ("BSD", 20),
    ("MPL-2.0", 18),
    ("AGPL-3.0-or-later", 15),
    ("ISC", 12),
    ("OFL-1.1", 10),
    ("LicenseRef-proprietary", 10),
    ("Artistic-1.0-Perl", 8),
    ("MIT OR Apache-2.0", 5),
    ("unknown", 2),
];
/// Groups, the most usual first; some in capitals.
const GROUPS: &[&str] = &[
    "mingw-w64-libraries",
    "gnome-extra",
    "pro-audio",
    "ros-noetic-desktop",
    "kde-applications",
    "VST-Plugins",
    "xfce4-goodies",
    "python-modules",
    "fonts",
    "LXQt-extra",
    "games",
    "vim-plugins",
    "base-devel-extra",
    "LADSPA",
    "emulators",
    "lib32-extra",
    "Cinnamon-Spices",
    "R-cran",
    "dkms-drivers",
    "MATE-extra",
    "sway-goodies",
];
/// Keywords beside those taken from names and descriptions, some in capitals.
const KEYWORDS: &[&str] =
    &["AUR", "GUI", "CLI", "TUI", "GTK", "Qt", "HTTP", "AI", "x86", "wayland", "rust", "python"];
/// How many descriptions contain `attest`, a word that only a handful of packages have.
const ATTESTING_DESCRIPTIONS: u32 = 6;

/// Writes the whole dump; `progress` is called with the number of records written so far.
pub(crate) fn write_all(
    catalogue: &Catalogue,
    words: &Words,
    seed: u64,
    out: &mut impl io::Write,
    progress: &mut dyn FnMut(u32),
) -> io::Result<()> {
    let packages: u32 = catalogue.bases.iter().map(|base| u32::from(base.package_count)).sum();
    let mut writer = Writer {
        catalogue,
        words,
        random: Random::new(seed, 2),
        line: String::new(),
        id: 200_000,
        written: 0,
        attested: 0,
        attesting: ATTESTING_DESCRIPTIONS.min(packages / 16),
        packages,
    };
    out.write_all(b"[\n")?;
    for position in 0..catalogue.bases.len() {
        let shared = writer.draw_base(position);
        for package in 0..shared.base.package_count {
            writer.line.clear();
            if writer.written > 0 {
                writer.line.push_str(",\n");
            }
            writer.write_package(&shared, shared.base.first_package + u32::from(package));
            out.write_all(writer.line.as_bytes())?;
            writer.written += 1;
            if writer.written.is_multiple_of(1000) || writer.written == packages {
                progress(writer.written);
            }
        }
    }
    out.write_all(b"\n]")
}

/// What the packages of one base have in common.
struct Shared<'a> {
    base: &'a Base,
    ecosystem: &'static Ecosystem,
    stem: &'a str,
    version: String,
    description: String,
    url: Option<String>,
    votes: u32,
    /// Popularity in millionths.
    popularity: u64,
    out_of_date: Option<u64>,
    maintainer: Option<u32>,
    submitter: Option<u32>,
    last_modified: u64,
    license: Vec<String>,
    keywords: Vec<String>,
    comaintainers: Vec<String>,
}

struct Writer<'a> {
    catalogue: &'a Catalogue,
    words: &'a Words,
    random: Random,
    line: String,
    id: u32,
    written: u32,
    attested: u32,
    attesting: u32,
    packages: u32,
}

impl<'a> Writer<'a> {
    fn draw_base(&mut self, position: usize) -> Shared<'a> {
        let base = &self.catalogue.bases[position];
        let ecosystem = &ECOSYSTEMS[usize::from(base.ecosystem)];
        let stem =
            stem_of(self.catalogue.names.get(base.name), ecosystem, usize::from(base.variant));
        let last_modified = self.catalogue.last_modified(position);
        let maintainer = (!self.random.in_1000(84)).then(|| self.user());
        let submitter = match maintainer {
            Some(maintainer) if self.random.in_1000(700) => Some(maintainer),
            _ => (!self.random.in_1000(15)).then(|| self.user()),
        };
        let flag_share = if maintainer.is_none() { 300 } else { 80 };
        let out_of_date = self
            .random
            .in_1000(flag_share)
            .then(|| last_modified + self.random.below_wide(LAST_CHANGE - last_modified + 1));
        let votes = self.votes();
        Shared {
            base,
            ecosystem,
            stem,
            version: self.version(usize::from(base.variant)),
            description: self.description(ecosystem, stem, usize::from(base.variant)),
            url: self.url(ecosystem, stem),
            votes,
            popularity: self.popularity(votes),
            out_of_date,
            maintainer,
            submitter,
            last_modified,
            license: self.license(),
            keywords: self.keywords(stem),
            comaintainers: self.comaintainers(maintainer),
        }
    }

    /// A user: some maintain a great many packages, most only a few.
    fn user(&mut self) -> u32 {
        let count = self.catalogue.users.len();
        if self.random.in_1000(300) { self.random.zipf(count) } else { self.random.below(count) }
    }

    fn votes(&mut self) -> u32 {
        match self.random.weighted(VOTES) as u32 {
            0 => 0,
            octave => {
                let first = 1 << (octave - 1);
                let last = (2 * first - 1).min(if octave as usize == VOTES.len() - 1 {
                    2800
                } else {
                    u32::MAX
                });
                // The lower of two draws: fewer votes are more likely within an octave too.
                self.random.between(first, last).min(self.random.between(first, last))
            }
        }
    }

    /// Popularity in millionths: what is left of `votes` after each has decayed with age, often nothing.
    fn popularity(&mut self, votes: u32) -> u64 {
        if votes == 0 || self.random.in_1000(440) {
            return 0;
        }
        let most = u64::from(votes) * 30_000;
        let octaves = most.ilog2() + 1;
        let octave = self.random.below(octaves).max(self.random.below(octaves));
        let first = 1 << octave;
        (first + self.random.below_wide(first)).min(most)
    }

    fn number_dotted(&mut self, parts: u32) -> String {
        let mut text = self.random.below(12).to_string();
        for _ in 1..parts {
            let most = if self.random.in_1000(200) { 99 } else { 12 };
            let _ = write!(text, ".{}", self.random.below(most));
        }
        text
    }

    fn date(&mut self) -> String {
        let (year, month) = (self.random.between(2012, 2025), self.random.between(1, 12));
        format!("{year}{month:02}{:02}", self.random.between(1, 28))
    }

    fn version(&mut self, variant: usize) -> String {
        let mut version = if self.random.in_1000(30) { "1:".to_owned() } else { String::new() };
        let from_source =
            variant == GIT || VARIANTS[variant] == "-svn" || VARIANTS[variant] == "-hg";
        version += &match self.random.below(20) {
            0 => self.date(),
            1..=9 if from_source => {
                format!("r{}.{}", self.random.between(1, 4000), self.random.hex(7))
            }
            _ if from_source => {
                let (release, commits) = (self.number_dotted(3), self.random.below(600));
                format!("{release}.r{commits}.g{}", self.random.hex(7))
            }
            1..=4 => self.number_dotted(2),
            _ => self.number_dotted(3),
        };
        let release = if self.random.in_1000(780) { 1 } else { self.random.between(2, 9) };
        let _ = write!(version, "-{release}");
        version
    }

    fn description(&mut self, ecosystem: &Ecosystem, stem: &str, variant: usize) -> String {
        let templates = match self.random.below(1000) {
            0..12 => text::NON_ASCII,
            12..26 => text::MARKED,
            26..28 => text::BACKSLASHED,
            _ if ecosystem.descriptions.is_empty() => text::APPLICATION,
            _ => ecosystem.descriptions,
        };
        let mut description = self.sentence(templates, stem);
        if variant == GIT && self.random.in_1000(200) {
            description += " (git version)";
        } else if variant == BIN && self.random.in_1000(250) {
            description += " (binary release)";
        } else if self.random.in_1000(60) {
            description.push('.');
        }
        description
    }

    fn sentence(&mut self, templates: &[&str], stem: &str) -> String {
        let template = self.random.pick(templates);
        let mut sentence = String::new();
        text::fill(&mut sentence, template, stem, self.words, &mut self.random);
        sentence
    }

    /// Uses only the hosts that are reserved for examples, so that no generated URL points at a real project.
    fn url(&mut self, ecosystem: &Ecosystem, stem: &str) -> Option<String> {
        if self.random.in_1000(30) {
            return None;
        }
        let mut url = String::new();
        if let Some(home) = ecosystem.home.filter(|_| self.random.in_1000(600)) {
            text::fill(&mut url, home, stem, self.words, &mut self.random);
            return Some(url);
        }
        let _ = match self.random.below(20) {
            0 => write!(
                url,
                "https://{}.example.com",
                stem.replace(['.', '_', '+', '@'], "-").trim_matches('-')
            ),
            1..=2 => write!(url, "https://projects.example.org/{stem}/"),
            3 => write!(
                url,
                "http://www.example.net/~{}/{stem}.html",
                self.random.pick(&self.words.people)
            ),
            forge => {
                let host = if forge > 5 { "git.example.com" } else { "code.example.org" };
                let user = self.user();
                write!(url, "https://{host}/{}/{stem}", self.catalogue.users.get(user))
            }
        };
        Some(url)
    }

    fn license(&mut self) -> Vec<String> {
        let count = [0, 1, 2][self.random.weighted(&[25, 915, 60])];
        let weights: Vec<u32> = LICENSES.iter().map(|license| license.1).collect();
        let mut licenses = Vec::new();
        for _ in 0..count {
            push_new(&mut licenses, LICENSES[self.random.weighted(&weights)].0.to_owned());
        }
        licenses
    }

    fn keywords(&mut self, stem: &str) -> Vec<String> {
        let mut keywords = Vec::new();
        if self.random.in_1000(150) {
            for _ in 0..self.random.between(1, 8) {
                let keyword = match self.random.below(10) {
                    0 => stem.split(['-', '+', '@']).next().unwrap_or(stem),
                    1 => self.random.pick(KEYWORDS),
                    2..=4 => self.random.pick(&self.words.name),
                    5..=7 => self.random.pick(&self.words.tools),
                    _ => self.random.pick(&self.words.objects),
                };
                push_new(&mut keywords, keyword.to_owned());
            }
            keywords.sort_by_key(|keyword| keyword.to_ascii_lowercase());
        }
        keywords
    }

    fn comaintainers(&mut self, maintainer: Option<u32>) -> Vec<String> {
        let mut names = Vec::new();
        if maintainer.is_some() && self.random.in_1000(65) {
            for _ in 0..1 + self.random.weighted(&[70, 20, 7, 3]) {
                let user = self.user();
                if Some(user) != maintainer {
                    push_new(&mut names, self.catalogue.users.get(user).to_owned());
                }
            }
        }
        names
    }

    fn write_package(&mut self, shared: &Shared<'_>, package: u32) {
        let catalogue = self.catalogue;
        let name = catalogue.names.get(package);
        let base = catalogue.names.get(shared.base.name);
        let description = self.package_description(shared, name);
        self.id += self.random.between(1, 12);
        let _ = write!(self.line, "{{\"ID\":{},\"Name\":", self.id);
        self.push_string(name);
        let _ = write!(self.line, ",\"PackageBaseID\":{},\"PackageBase\":", shared.base.id);
        self.push_string(base);
        self.line.push_str(",\"Version\":");
        self.push_string(&shared.version);
        self.push_optional("Description", description.as_deref());
        self.push_optional("URL", shared.url.as_deref());
        let _ = write!(self.line, ",\"NumVotes\":{},\"Popularity\":", shared.votes);
        push_millionths(&mut self.line, shared.popularity);
        match shared.out_of_date {
            Some(time) => {
                let _ = write!(self.line, ",\"OutOfDate\":{time}");
            }
            None => self.line.push_str(",\"OutOfDate\":null"),
        }
        self.push_optional("Maintainer", shared.maintainer.map(|user| catalogue.users.get(user)));
        self.push_optional("Submitter", shared.submitter.map(|user| catalogue.users.get(user)));
        let (submitted, modified) = (shared.base.first_submitted, shared.last_modified);
        let _ = write!(
            self.line,
            ",\"FirstSubmitted\":{submitted},\"LastModified\":{modified},\"URLPath\":"
        );
        self.push_string(&format!("/cgit/aur.git/snapshot/{name}.tar.gz"));
        self.write_lists(shared, name);
        self.line.push('}');
    }

    fn package_description(&mut self, shared: &Shared<'_>, name: &str) -> Option<String> {
        // These are spread evenly, but never on a package whose name contains the word already.
        let due =
            u64::from(self.attested) * u64::from(self.packages) / u64::from(self.attesting.max(1));
        if self.attested < self.attesting
            && u64::from(self.written) >= due
            && !name.contains(ATTEST)
        {
            self.attested += 1;
            return Some(self.sentence(text::ATTESTING, shared.stem));
        }
        if self.random.in_1000(20) {
            return None;
        }
        let plain = plain_of(name, usize::from(shared.base.variant));
        match plain.rsplit_once('-') {
            Some((_, part)) if shared.base.package_count > 1 && !shared.stem.ends_with(part) => {
                Some(format!("{} ({part})", shared.description))
            }
            _ => Some(shared.description.clone()),
        }
    }

    fn write_lists(&mut self, shared: &Shared<'_>, name: &str) {
        let variant = usize::from(shared.base.variant);
        let depends = self.depends(shared, name);
        let make_depends = self.make_depends(shared, name);
        let check_depends = self.check_depends(shared);
        let optional_depends = self.optional_depends(shared, name);
        let conflicts = self.conflicts(name, variant);
        let provides = self.provides(shared, name);
        let replaces = self.replaces(shared);
        let groups = self.groups();
        for (key, items) in [
            ("Depends", &depends),
            ("MakeDepends", &make_depends),
            ("CheckDepends", &check_depends),
            ("OptDepends", &optional_depends),
            ("Conflicts", &conflicts),
            ("Provides", &provides),
            ("Replaces", &replaces),
            ("Groups", &groups),
            ("License", &shared.license),
            ("Keywords", &shared.keywords),
            ("CoMaintainers", &shared.comaintainers),
        ] {
            self.push_list(key, items);
        }
    }

    fn depends(&mut self, shared: &Shared<'_>, own: &str) -> Vec<String> {
        let mut count = self.random.weighted(DEPENDS);
        if self.random.in_1000(3) {
            count += self.random.between(15, 60) as usize;
        }
        let mut depends = Vec::new();
        for &name in shared.ecosystem.runtime.iter().take(count) {
            if self.random.in_1000(850) {
                let depend = self.conditional(name);
                push_new(&mut depends, depend);
            }
        }
        for _ in depends.len()..count {
            let depend = self.dependency(shared, own);
            push_new_name(&mut depends, depend);
        }
        if !depends.is_empty() && self.random.in_1000(60) {
            // The dependencies of another architecture are merged into the one list.
            for _ in 0..self.random.between(1, 2) {
                let again = self.random.below(depends.len() as u32) as usize;
                let name = name_of(&depends[again]).to_owned();
                let version = self.number_dotted(2);
                push_new(&mut depends, format!("{name}>={version}"));
            }
        }
        depends
    }

    /// A dependency, usually on a package of the distribution or the catalogue, seldom on a name that does not exist.
    fn dependency(&mut self, shared: &Shared<'_>, own: &str) -> String {
        let kind = usize::from(shared.base.ecosystem);
        loop {
            let name = match self.random.below(1000) {
                0..430 => {
                    let rank = self.random.zipf(self.words.official.len() as u32);
                    self.words.official[rank as usize].to_owned()
                }
                430..460 => coin(self.words, &mut self.random),
                460..480 => {
                    let Some(library) = self.wanted(LIBRARY) else { continue };
                    return format!("{}=1-64", soname(library));
                }
                480..760 if kind != APPLICATION => self.wanted(kind).unwrap_or("glibc").to_owned(),
                480..600 => self.wanted(PYTHON).unwrap_or("python").to_owned(),
                600..720 => self.wanted(LIBRARY).unwrap_or("glibc").to_owned(),
                _ => self.wanted(APPLICATION).unwrap_or("bash").to_owned(),
            };
            if name != own {
                return self.conditional(&name);
            }
        }
    }

    /// A package of the catalogue that others depend on.
    fn wanted(&mut self, ecosystem: usize) -> Option<&'a str> {
        let packages = &self.catalogue.wanted[ecosystem];
        let count = packages.len() as u32;
        if count == 0 {
            return None;
        }
        let rank = if self.random.in_1000(750) {
            self.random.zipf(count)
        } else {
            self.random.below(count)
        };
        Some(self.catalogue.names.get(packages[rank as usize]))
    }

    /// `name`, in three of ten cases with a condition on its version.
    fn conditional(&mut self, name: &str) -> String {
        if !self.random.in_1000(310) {
            return name.to_owned();
        }
        let relation = [">=", ">", "=", "<", "<="][self.random.weighted(&[880, 30, 40, 40, 10])];
        let parts = self.random.between(1, 3);
        format!("{name}{relation}{}", self.number_dotted(parts))
    }

    fn make_depends(&mut self, shared: &Shared<'_>, own: &str) -> Vec<String> {
        let mut depends = Vec::new();
        let variant = VARIANTS[usize::from(shared.base.variant)];
        let tool = match variant {
            "-git" => "git",
            "-svn" => "subversion",
            "-hg" => "mercurial",
            _ => "",
        };
        if !tool.is_empty() && self.random.in_1000(960) {
            depends.push(tool.to_owned());
        }
        if variant == "-bin" || variant == "-appimage" || self.random.in_1000(300) {
            return depends;
        }
        for &name in shared.ecosystem.build {
            if self.random.in_1000(600) {
                let depend = self.conditional(name);
                push_new(&mut depends, depend);
            }
        }
        for _ in 0..self.random.weighted(&[30, 30, 20, 12, 5, 3]) {
            let depend = if self.random.in_1000(500) {
                let tools = [
                    "cmake",
                    "git",
                    "go",
                    "cargo",
                    "npm",
                    "ninja",
                    "meson",
                    "make",
                    "gcc",
                    "python-setuptools",
                ];
                let rank = self.random.zipf(tools.len() as u32) as usize;
                self.conditional(tools[rank])
            } else {
                self.dependency(shared, own)
            };
            push_new_name(&mut depends, depend);
        }
        depends
    }

    fn check_depends(&mut self, shared: &Shared<'_>) -> Vec<String> {
        let is_python = usize::from(shared.base.ecosystem) == PYTHON;
        let mut depends = Vec::new();
        if self.random.in_1000(if is_python { 300 } else { 35 }) {
            let first = if is_python {
                "python-pytest"
            } else {
                self.random.pick(&["gtest", "catch2", "python-pytest", "bash"])
            };
            depends.push(first.to_owned());
            for _ in 0..self.random.below(3) {
                let depend = if is_python {
                    self.wanted(PYTHON).unwrap_or("python").to_owned()
                } else {
                    "git".to_owned()
                };
                push_new(&mut depends, depend);
            }
        }
        depends
    }

    fn optional_depends(&mut self, shared: &Shared<'_>, own: &str) -> Vec<String> {
        let mut depends = Vec::new();
        if self.random.in_1000(200) {
            for _ in 0..1 + self.random.weighted(&[40, 22, 14, 9, 6, 4, 3, 2]) {
                let depend = self.dependency(shared, own);
                push_new(&mut depends, name_of(&depend).to_owned());
            }
        }
        depends
    }

    fn conflicts(&mut self, name: &str, variant: usize) -> Vec<String> {
        let plain = plain_of(name, variant);
        let mut conflicts = Vec::new();
        if variant == PLAIN {
            if self.random.in_1000(80) {
                conflicts.push(format!("{plain}-git"));
            }
            if self.random.in_1000(40) {
                let version = self.number_dotted(2);
                conflicts.push(format!("{}<{version}", coin(self.words, &mut self.random)));
            }
            return conflicts;
        }
        if self.random.in_1000(930) {
            conflicts.push(plain.to_owned());
        }
        for other in ["-git", "-bin"] {
            if VARIANTS[variant] != other && self.random.in_1000(150) {
                conflicts.push(format!("{plain}{other}"));
            }
        }
        conflicts
    }

    fn provides(&mut self, shared: &Shared<'_>, name: &str) -> Vec<String> {
        let variant = usize::from(shared.base.variant);
        let plain = plain_of(name, variant);
        let version =
            shared.version.rsplit_once('-').map_or(shared.version.as_str(), |(version, _)| version);
        let mut provides = Vec::new();
        if variant != PLAIN && self.random.in_1000(880) {
            if self.random.in_1000(450) {
                provides.push(format!("{plain}={version}"));
            } else {
                provides.push(plain.to_owned());
            }
        }
        if usize::from(shared.base.ecosystem) == LIBRARY && self.random.in_1000(600) {
            let soname = soname(plain);
            if self.random.in_1000(600) {
                let number = self.random.between(0, 9);
                push_new(&mut provides, format!("{soname}={number}-64"));
            } else {
                push_new(&mut provides, soname);
            }
        }
        if shared.ecosystem.prefix == "ttf-" && self.random.in_1000(700) {
            provides.push("ttf-font".to_owned());
        }
        if self.random.in_1000(30) {
            let alias = format!("{}-{}", shared.stem, self.random.pick(&self.words.tools));
            push_new(&mut provides, format!("{alias}={version}"));
        }
        if self.random.in_1000(14) {
            // Some packages provide a name as build files write it, in capitals; package names themselves are in
            // lower case.
            let alias = if self.random.in_1000(500) {
                shared.stem.to_ascii_uppercase()
            } else {
                let mut alias = String::new();
                text::push_capitalised(&mut alias, shared.stem);
                alias + "Engine"
            };
            push_new(&mut provides, alias);
        }
        provides
    }

    fn replaces(&mut self, shared: &Shared<'_>) -> Vec<String> {
        if !self.random.in_1000(35) {
            return Vec::new();
        }
        let former = coin(self.words, &mut self.random);
        let stem = shared.stem;
        vec![if self.random.in_1000(500) {
            former
        } else {
            format!("{stem}-old<={}", self.number_dotted(2))
        }]
    }

    fn groups(&mut self) -> Vec<String> {
        let mut groups = Vec::new();
        if self.random.in_1000(30) {
            for _ in 0..1 + u32::from(self.random.in_1000(80)) {
                let rank = self.random.zipf(GROUPS.len() as u32) as usize;
                push_new(&mut groups, GROUPS[rank].to_owned());
            }
        }
        groups
    }

    /// Appends `text` as a JSON string, with characters beyond ASCII unescaped.
    fn push_string(&mut self, text: &str) {
        push_json(&mut self.line, text);
    }

    fn push_optional(&mut self, key: &str, text: Option<&str>) {
        let _ = write!(self.line, ",\"{key}\":");
        match text {
            Some(text) => self.push_string(text),
            None => self.line.push_str("null"),
        }
    }

    /// Appends a list, or nothing if it is empty: the format leaves empty lists out.
    fn push_list(&mut self, key: &str, items: &[String]) {
        for (index, item) in items.iter().enumerate() {
            if index == 0 {
                let _ = write!(self.line, ",\"{key}\":[");
            } else {
                self.line.push(',');
            }
            self.push_string(item);
        }
        if !items.is_empty() {
            self.line.push(']');
        }
    }
}

fn push_json(line: &mut String, text: &str) {
    match serde_json::to_string(text) {
        Ok(json) => line.push_str(&json),
        Err(error) => unreachable!("`{text}` is a string, so it is JSON: {error}"),
    }
}

/// Appends `item` unless the list has it in any case, as in the collation of aurweb's database.
fn push_new(items: &mut Vec<String>, item: String) {
    if !items.iter().any(|known| known.eq_ignore_ascii_case(&item)) {
        items.push(item);
    }
}

/// Appends `dependency` unless the list has one on the same package, with any condition.
fn push_new_name(dependencies: &mut Vec<String>, dependency: String) {
    let name = name_of(&dependency);
    if !dependencies.iter().any(|known| name_of(known).eq_ignore_ascii_case(name)) {
        dependencies.push(dependency);
    }
}

/// A dependency without its condition.
fn name_of(dependency: &str) -> &str {
    dependency.split(['<', '>', '=']).next().unwrap_or(dependency)
}

/// The shared object of the library `plain`: `libfoo.so`.
fn soname(plain: &str) -> String {
    let stem = plain.strip_prefix("lib").unwrap_or(plain);
    format!("lib{}.so", stem.replace(['+', '@', '.'], ""))
}

/// Appends a number of millionths as the shortest decimal that orjson prints for it: `0.0`, `1e-6`, `0.00001`, `2.5`.
fn push_millionths(line: &mut String, millionths: u64) {
    let (whole, part) = (millionths / 1_000_000, millionths % 1_000_000);
    let _ = match (whole, part) {
        (_, 0) => write!(line, "{whole}.0"),
        // Below 1e-5 the shortest form has an exponent.
        (0, 1..=9) => write!(line, "{part}e-6"),
        _ => {
            let digits = format!("{part:06}");
            write!(line, "{whole}.{}", digits.trim_end_matches('0'))
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millionths_are_printed_as_the_shortest_float() {
        for (millionths, text) in [
            (0, "0.0"),
            (1, "1e-6"),
            (9, "9e-6"),
            (10, "0.00001"),
            (12, "0.000012"),
            (500_000, "0.5"),
            (1_000_000, "1.0"),
            (39_741_927, "39.741927"),
            (1_000_001, "1.000001"),
            (120_000_000, "120.0"),
        ] {
            let mut line = String::new();
            push_millionths(&mut line, millionths);
            assert_eq!(line, text);
            assert_eq!(line.parse::<f64>().unwrap(), millionths as f64 / 1e6, "{text}");
        }
    }

    #[test]
    fn a_soname_drops_special_characters_of_the_name() {
        assert_eq!(soname("libzelvo++"), "libzelvo.so");
        assert_eq!(soname("zelvo"), "libzelvo.so");
    }
}
