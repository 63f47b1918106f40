//! What a package needs, provides, replaces and conflicts with, and the groups it is in.

use super::*;
use crate::catalogue::PLAIN;
use crate::ecosystem::{LIBRARY, PYTHON};

/// How often of 1,000 a package draws 0, 1, 2, … 15 dependencies; duplicates are dropped.
const DEPENDS: &[u32] = &[140, 150, 145, 125, 105, 85, 66, 50, 37, 27, 20, 15, 12, 9, 8, 6];
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

impl<'a> Writer<'a> {
    pub(super) fn depends(&mut self, shared: &BaseFacts<'_>, own: &str) -> Vec<String> {
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
    fn dependency(&mut self, shared: &BaseFacts<'_>, own: &str) -> String {
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

    pub(super) fn make_depends(&mut self, shared: &BaseFacts<'_>, own: &str) -> Vec<String> {
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

    pub(super) fn check_depends(&mut self, shared: &BaseFacts<'_>) -> Vec<String> {
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

    pub(super) fn optional_depends(&mut self, shared: &BaseFacts<'_>, own: &str) -> Vec<String> {
        let mut depends = Vec::new();
        if self.random.in_1000(200) {
            for _ in 0..1 + self.random.weighted(&[40, 22, 14, 9, 6, 4, 3, 2]) {
                let depend = self.dependency(shared, own);
                push_new(&mut depends, name_of(&depend).to_owned());
            }
        }
        depends
    }

    pub(super) fn conflicts(&mut self, name: &str, variant: usize) -> Vec<String> {
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

    pub(super) fn provides(&mut self, shared: &BaseFacts<'_>, name: &str) -> Vec<String> {
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
                sentences::push_capitalised(&mut alias, shared.stem);
                alias + "Engine"
            };
            push_new(&mut provides, alias);
        }
        provides
    }

    pub(super) fn replaces(&mut self, shared: &BaseFacts<'_>) -> Vec<String> {
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

    pub(super) fn groups(&mut self) -> Vec<String> {
        let mut groups = Vec::new();
        if self.random.in_1000(30) {
            for _ in 0..1 + u32::from(self.random.in_1000(80)) {
                let rank = self.random.zipf(GROUPS.len() as u32) as usize;
                push_new(&mut groups, GROUPS[rank].to_owned());
            }
        }
        groups
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soname_drops_special_characters_of_the_name() {
        assert_eq!(soname("libzelvo++"), "libzelvo.so");
        assert_eq!(soname("zelvo"), "libzelvo.so");
    }
}
