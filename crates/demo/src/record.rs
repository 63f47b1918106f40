//! Records: the contents of each package of a [`Catalogue`], as the lines of a dump.
//!
//! Base by base, in the order of identifiers: first it draws what all packages of a base share, then each package
//! becomes one line. From one base to the next, only the streams of random numbers stay in memory.

mod relations;

use std::fmt::Write as _;
use std::io;

use crate::catalogue::{
    ATTEST, BIN, Base, Catalogue, GIT, LAST_CHANGE, VARIANTS, coin, plain_of, stem_of,
};
use crate::ecosystem::{APPLICATION, ECOSYSTEMS, Ecosystem};
use crate::random::Random;
use crate::sentences;
use crate::words::Words;

/// How often of 1,000 a base has 0, 1, 2 to 3, 4 to 7, … 1,024 to 2,800 votes.
const VOTES: &[u32] = &[290, 250, 170, 110, 75, 45, 27, 17, 9, 4, 2, 1];
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

/// What the packages of one base share.
struct BaseFacts<'a> {
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
    fn draw_base(&mut self, position: usize) -> BaseFacts<'a> {
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
        BaseFacts {
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
            0..12 => sentences::NON_ASCII,
            12..26 => sentences::MARKED,
            26..28 => sentences::BACKSLASHED,
            _ if ecosystem.descriptions.is_empty() => sentences::APPLICATION,
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
        sentences::fill(&mut sentence, template, stem, self.words, &mut self.random);
        sentence
    }

    /// Uses only the hosts that are reserved for examples, so that no generated URL points at a real project.
    fn url(&mut self, ecosystem: &Ecosystem, stem: &str) -> Option<String> {
        if self.random.in_1000(30) {
            return None;
        }
        let mut url = String::new();
        if let Some(home) = ecosystem.home.filter(|_| self.random.in_1000(600)) {
            sentences::fill(&mut url, home, stem, self.words, &mut self.random);
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

    fn write_package(&mut self, shared: &BaseFacts<'_>, package: u32) {
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

    fn package_description(&mut self, shared: &BaseFacts<'_>, name: &str) -> Option<String> {
        // These are spread evenly, but never on a package whose name contains the word already.
        let due =
            u64::from(self.attested) * u64::from(self.packages) / u64::from(self.attesting.max(1));
        if self.attested < self.attesting
            && u64::from(self.written) >= due
            && !name.contains(ATTEST)
        {
            self.attested += 1;
            return Some(self.sentence(sentences::ATTESTING, shared.stem));
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

    fn write_lists(&mut self, shared: &BaseFacts<'_>, name: &str) {
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
}
