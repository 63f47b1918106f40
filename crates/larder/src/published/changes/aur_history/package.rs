//! [`PackageHistory`]: who maintained a package and when, and when it and its versions were first seen.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::record::FORM;

/// Earlier maintainers and versions that are kept, each.
const ENTRIES_MAX: usize = 100;

/// What is known of a package. A time that is missing is before the history began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackageHistory {
    v: u32,
    /// A digest of each field, to find out what has changed: base 64 of numbers of four bytes.
    digests: String,
    /// A digest of each field that is only shown on request, if the source knows these fields. An earlier version ignores this.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    unshown: String,
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    maintainer: Option<String>,
    /// Who pushed it last, if the source knew when this was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_packager: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_seen: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    maintainer_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    orphaned_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gone_since: Option<Timestamp>,
    /// Earlier maintainers, by the end of their time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    maintainers: Vec<MaintainerSpan>,
    /// The versions before this one, and this one, by when they were first seen; empty until there is more to say than of one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    versions: Vec<SeenVersion>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MaintainerSpan {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Timestamp>,
    until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SeenVersion {
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    /// Who had pushed it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    packager: Option<String>,
}

impl PackageHistory {
    /// The history of a package that existed when the history began.
    pub(super) fn known(facts: &aur::Facts) -> PackageHistory {
        PackageHistory {
            v: FORM,
            digests: encode(&facts.digests),
            unshown: encode(&facts.unshown),
            version: facts.version.clone(),
            maintainer: facts.maintainer.clone(),
            last_packager: facts.last_packager.clone(),
            ..PackageHistory::default()
        }
    }

    /// What is needed to compare the package called so.
    pub(super) fn facts(&self, name: &str) -> aur::Facts {
        aur::Facts {
            name: name.to_owned(),
            version: self.version.clone(),
            maintainer: self.maintainer.clone(),
            last_packager: self.last_packager.clone(),
            digests: decode(&self.digests),
            unshown: decode(&self.unshown),
        }
    }

    /// Takes in what the package is like now; None if it is gone.
    pub(super) fn take(&mut self, facts: Option<&aur::Facts>, now: Timestamp) {
        let is_new = self.v == 0;
        self.v = FORM;
        let Some(facts) = facts else {
            self.gone_since = Some(now);
            return;
        };
        if is_new {
            self.first_seen = Some(now);
        }
        self.gone_since = None;
        if is_new || self.maintainer != facts.maintainer {
            if let Some(name) = self.maintainer.take() {
                push(
                    &mut self.maintainers,
                    MaintainerSpan { name, from: self.maintainer_since, until: now },
                );
            }
            let is_orphan = facts.maintainer.is_none();
            self.maintainer_since = (!is_orphan).then_some(now);
            self.orphaned_since = is_orphan.then_some(now);
            self.maintainer.clone_from(&facts.maintainer);
        }
        if is_new || self.version != facts.version {
            if self.versions.is_empty() && !is_new {
                let version = std::mem::take(&mut self.version);
                self.versions.push(SeenVersion { version, at: self.first_seen, packager: None });
            }
            let packager = facts.last_packager.clone();
            if !is_new || packager.is_some() {
                let version = facts.version.clone();
                push(&mut self.versions, SeenVersion { version, at: Some(now), packager });
            }
            self.version.clone_from(&facts.version);
        }
        self.learn(facts);
        self.digests = encode(&facts.digests);
        self.unshown = encode(&facts.unshown);
    }

    /// Takes in what a source may have come to know without a change.
    pub(super) fn learn(&mut self, facts: &aur::Facts) {
        if facts.knows_last_packager() {
            self.last_packager.clone_from(&facts.last_packager);
        }
    }

    /// When it got its maintainer, was orphaned or went away; none if that was before the history began.
    pub(crate) fn changed_hands_at(&self) -> Option<Timestamp> {
        [self.maintainer_since, self.orphaned_since, self.gone_since].into_iter().flatten().max()
    }

    /// The answer about it. Times are Unix seconds, as everywhere in the AUR's interface.
    pub(crate) fn render(&self, name: &str, began_at: Timestamp) -> Value {
        let seconds = |at: Option<Timestamp>| at.map(Timestamp::as_second);
        let only =
            [SeenVersion { version: self.version.clone(), at: self.first_seen, packager: None }];
        let versions = if self.versions.is_empty() { &only[..] } else { &self.versions };
        let versions = versions.iter().rev();
        let versions = versions.map(|seen| {
            let mut version = json!({"Version": seen.version, "FirstSeen": seconds(seen.at)});
            if let Some(packager) = &seen.packager {
                version["Packager"] = json!(packager);
            }
            version
        });
        let maintainers = self.maintainers.iter().rev().map(|earlier| {
            let until = earlier.until.as_second();
            json!({"Name": earlier.name, "From": seconds(earlier.from), "Until": until})
        });
        let is_gone = self.gone_since.is_some();
        json!({
            "Name": name,
            "KnownSince": began_at.as_second(),
            "FirstSeen": seconds(self.first_seen),
            "Maintainer": self.maintainer,
            "MaintainerSince": seconds(self.maintainer_since.filter(|_| !is_gone)),
            "OrphanedSince": seconds(self.orphaned_since.filter(|_| !is_gone)),
            "PreviousMaintainers": maintainers.collect::<Vec<_>>(),
            "LastPackager": self.last_packager,
            "Versions": versions.collect::<Vec<_>>(),
            "GoneSince": seconds(self.gone_since),
        })
    }
}

fn push<T>(list: &mut Vec<T>, entry: T) {
    if list.len() >= ENTRIES_MAX {
        list.remove(0);
    }
    list.push(entry);
}

fn encode(digests: &[u32]) -> String {
    let bytes: Vec<u8> = digests.iter().flat_map(|digest| digest.to_le_bytes()).collect();
    BASE64_STANDARD_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Vec<u32> {
    let bytes = BASE64_STANDARD_NO_PAD.decode(text).unwrap_or_default();
    bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(version: &str, maintainer: Option<&str>) -> aur::Facts {
        aur::Facts {
            name: "p".to_owned(),
            version: version.to_owned(),
            maintainer: maintainer.map(str::to_owned),
            last_packager: None,
            digests: vec![1, 0, u32::MAX],
            unshown: Vec::new(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn who_and_when() {
        let mut package = PackageHistory::known(&facts("1-1", Some("anna")));
        assert_eq!(package.facts("p"), facts("1-1", Some("anna")));
        package.take(Some(&facts("1-1", None)), at(10));
        package.take(Some(&facts("2-1", Some("bert"))), at(20));
        package.take(Some(&facts("3-1", Some("carl"))), at(30));
        package.take(None, at(40));
        let expected = json!({
            "Name": "p", "KnownSince": 5, "FirstSeen": null, "Maintainer": "carl",
            "MaintainerSince": null, "OrphanedSince": null, "GoneSince": 40,
            "PreviousMaintainers": [{"Name": "bert", "From": 20, "Until": 30},
                {"Name": "anna", "From": null, "Until": 10}],
            "Versions": [{"Version": "3-1", "FirstSeen": 30}, {"Version": "2-1", "FirstSeen": 20},
                {"Version": "1-1", "FirstSeen": null}],
            "LastPackager": null,
        });
        assert_eq!(package.render("p", at(5)), expected);
        package.take(Some(&facts("3-1", Some("carl"))), at(50));
        let shown = package.render("p", at(5));
        assert_eq!((&shown["GoneSince"], &shown["MaintainerSince"]), (&json!(null), &json!(30)));
    }

    #[test]
    fn the_last_time_that_it_changed_hands() {
        let mut package = PackageHistory::known(&facts("1-1", Some("anna")));
        assert_eq!(package.changed_hands_at(), None);
        for (second, maintainer) in [(10, None), (20, Some("bert"))] {
            package.take(Some(&facts("1-1", maintainer)), at(second));
            assert_eq!(package.changed_hands_at(), Some(at(second)));
        }
        package.take(Some(&facts("2-1", Some("bert"))), at(30));
        assert_eq!(package.changed_hands_at(), Some(at(20)));
        package.take(None, at(40));
        assert_eq!(package.changed_hands_at(), Some(at(40)));
    }

    #[test]
    fn a_new_package_has_dates_from_its_beginning() {
        let mut package = PackageHistory::default();
        package.take(Some(&facts("1-1", None)), at(10));
        let shown = package.render("p", at(5));
        assert_eq!((&shown["FirstSeen"], &shown["OrphanedSince"]), (&json!(10), &json!(10)));
        assert_eq!(shown["Versions"], json!([{"Version": "1-1", "FirstSeen": 10}]));
        assert_eq!(shown["PreviousMaintainers"], json!([]));
    }

    #[test]
    fn who_pushed() {
        let pushed = |version: &str, packager: Option<&str>| aur::Facts {
            last_packager: packager.map(str::to_owned),
            // The source knows it.
            unshown: vec![1; 3],
            ..facts(version, Some("anna"))
        };
        let mut package = PackageHistory::known(&pushed("1-1", Some("anna")));
        assert_eq!(package.facts("p"), pushed("1-1", Some("anna")));
        package.take(Some(&pushed("2-1", Some("bert"))), at(10));
        package.take(Some(&pushed("2-1", Some("carl"))), at(20));
        let shown = package.render("p", at(5));
        assert_eq!(shown["LastPackager"], json!("carl"));
        let first = json!({"Version": "1-1", "FirstSeen": null});
        let second = json!({"Version": "2-1", "FirstSeen": 10, "Packager": "bert"});
        assert_eq!(shown["Versions"], json!([second, first]));
        // A source that does not know packagers changes nothing. If it does, and a package has no packager, the name is removed.
        package.take(Some(&facts("2-2", Some("anna"))), at(30));
        assert_eq!(package.render("p", at(5))["LastPackager"], json!("carl"));
        package.take(Some(&pushed("2-2", None)), at(40));
        assert_eq!(package.render("p", at(5))["LastPackager"], json!(null));
        let mut new = PackageHistory::default();
        new.take(Some(&pushed("1-1", Some("anna"))), at(10));
        new.take(Some(&pushed("2-1", Some("bert"))), at(20));
        let packagers = |version: &Value| version["Packager"].clone();
        let shown = new.render("p", at(5));
        let found = shown["Versions"].as_array().expect("a list").iter().map(packagers);
        assert_eq!(found.collect::<Vec<_>>(), ["bert", "anna"]);
    }

    /// Earlier versions compare all of `digests`.
    #[test]
    fn what_is_only_shown_when_it_is_asked_for_is_stored_apart() {
        let stored = |unshown: Vec<u32>| {
            let package = PackageHistory::known(&aur::Facts { unshown, ..facts("1-1", None) });
            serde_json::to_value(package).expect("JSON")
        };
        let digests = encode(&[1, 0, u32::MAX]);
        let plain = json!({"v": FORM, "digests": digests, "version": "1-1"});
        assert_eq!(stored(Vec::new()), plain);
        let mut known = plain.clone();
        known["unshown"] = json!(encode(&[2, 3, 4]));
        assert_eq!(stored(vec![2, 3, 4]), known);
        for (body, unshown) in [(plain, vec![]), (known, vec![2, 3, 4])] {
            let read: PackageHistory = serde_json::from_value(body).expect("a package");
            assert_eq!(read.facts("p"), aur::Facts { unshown, ..facts("1-1", None) });
        }
    }

    #[test]
    fn it_is_bounded() {
        let mut package = PackageHistory::known(&facts("0", Some("m0")));
        for number in 1..500 {
            let facts = facts(&number.to_string(), Some(&format!("m{number}")));
            package.take(Some(&facts), at(number));
        }
        let shown = package.render("p", at(5));
        assert_eq!(shown["Versions"].as_array().map(Vec::len), Some(ENTRIES_MAX));
        assert_eq!(shown["Versions"][0]["Version"], "499");
        assert_eq!(shown["PreviousMaintainers"].as_array().map(Vec::len), Some(ENTRIES_MAX));
        assert_eq!(shown["PreviousMaintainers"][0]["Name"], "m498");
    }
}
