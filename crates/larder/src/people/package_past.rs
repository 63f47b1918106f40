//! The history of a package, for its page: its maintainers with dates, and since when its versions are known.
//!
//! members of the answer of `/aur/history/{package}` -> [`PackagePast`], which says in words whether it changed hands lately.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::days::{Day, PageLink};

/// Days after which new hands are no news.
const LATELY_DAYS: i64 = 30;

/// Lines of each list.
const LINES_MAX: usize = 20;

/// The past of a package.
#[derive(Default)]
pub(crate) struct PackagePast {
    /// Since when there is a history.
    pub(crate) known_since: Option<Day>,
    /// A warning, if it changed hands lately.
    pub(crate) warning: Option<OwnershipWarning>,
    /// Its maintainers, newest first.
    pub(crate) maintainers: Vec<MaintainerPeriod>,
    /// Its versions, newest first.
    pub(crate) versions: Vec<VersionSighting>,
    pub(crate) more_versions: usize,
}

/// The package changed hands lately.
pub(crate) struct OwnershipWarning {
    pub(crate) since: Day,
    /// The maintainer now; `None` if it is an orphan.
    pub(crate) now: Option<String>,
    pub(crate) before: String,
    /// Whether it was an orphan in between.
    pub(crate) was_orphan: bool,
}

pub(crate) struct MaintainerPeriod {
    /// `None` while it was an orphan.
    pub(crate) who: Option<PageLink>,
    pub(crate) from: Option<Day>,
    /// Until now, if it is missing.
    pub(crate) until: Option<Day>,
}

pub(crate) struct VersionSighting {
    pub(crate) version: String,
    pub(crate) at: Option<Day>,
}

impl PackagePast {
    pub(crate) fn of(members: &Map<String, Value>, now: Timestamp) -> PackagePast {
        let seconds = |value: &Value| value.as_i64();
        let at = |key: &str| members.get(key).and_then(seconds);
        let list =
            |key: &str| members.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let current = members.get("Maintainer").and_then(Value::as_str);
        let since = match current {
            Some(_) => at("MaintainerSince"),
            None => at("OrphanedSince"),
        };
        let earlier = list("PreviousMaintainers");
        let last = earlier.first().map(|last| (text(&last["Name"]), seconds(&last["Until"])));
        let lately = now - SignedDuration::from_hours(24 * LATELY_DAYS);
        let warning = last.zip(since).filter(|(_, since)| *since >= lately.as_second());
        let warning = warning.and_then(|((before, until), since)| {
            Some(OwnershipWarning {
                since: Day::of(since)?,
                now: current.map(str::to_owned),
                before,
                was_orphan: current.is_some() && until.is_some_and(|until| until < since),
            })
        });
        let mut maintainers = vec![MaintainerPeriod {
            who: current.map(|name| name.to_owned().into()),
            from: since.and_then(Day::of),
            until: None,
        }];
        // Between two maintainers' times, it was an orphan.
        let mut next_from = since;
        for entry in earlier.iter().take(LINES_MAX) {
            let until = seconds(&entry["Until"]);
            if until != next_from && current.is_some() | (maintainers.len() > 1) {
                let (from, until) = (until.and_then(Day::of), next_from.and_then(Day::of));
                maintainers.push(MaintainerPeriod { who: None, from, until });
            }
            next_from = seconds(&entry["From"]);
            maintainers.push(MaintainerPeriod {
                who: Some(text(&entry["Name"]).into()),
                from: next_from.and_then(Day::of),
                until: until.and_then(Day::of),
            });
        }
        let versions = list("Versions");
        PackagePast {
            known_since: at("KnownSince").and_then(Day::of),
            warning,
            maintainers,
            more_versions: versions.len().saturating_sub(LINES_MAX),
            versions: versions
                .iter()
                .take(LINES_MAX)
                .map(|seen| VersionSighting {
                    version: text(&seen["Version"]),
                    at: seconds(&seen["FirstSeen"]).and_then(Day::of),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DAY: i64 = 86_400;

    fn past(members: Value, day: i64) -> PackagePast {
        let Value::Object(members) = members else { panic!("members were expected") };
        PackagePast::of(&members, Timestamp::from_second(day * DAY).expect("a time"))
    }

    fn line(entry: &MaintainerPeriod) -> String {
        let who = entry.who.as_ref().map_or("-", |who| who.name.as_str());
        let day = |day: &Option<Day>| day.as_ref().map_or("?".to_owned(), |day| day.day.clone());
        format!("{who} {} {}", day(&entry.from), day(&entry.until))
    }

    #[test]
    fn hands_are_told_with_the_time_between_them() {
        let adopted = json!({
            "KnownSince": 0, "Maintainer": "carl", "MaintainerSince": 9 * DAY, "OrphanedSince": null,
            "PreviousMaintainers": [{"Name": "bert", "From": 2 * DAY, "Until": 5 * DAY},
                {"Name": "anna", "From": null, "Until": 2 * DAY}],
            "Versions": [{"Version": "2", "FirstSeen": 3 * DAY}, {"Version": "1", "FirstSeen": null}],
        });
        let found = past(adopted.clone(), 20);
        let lines: Vec<String> = found.maintainers.iter().map(line).collect();
        let expected = [
            "carl 1970-01-10 ?",
            "- 1970-01-06 1970-01-10",
            "bert 1970-01-03 1970-01-06",
            "anna ? 1970-01-03",
        ];
        assert_eq!(lines, expected);
        let warning = found.warning.expect("it changed hands lately");
        assert_eq!((warning.now.as_deref(), warning.before.as_str()), (Some("carl"), "bert"));
        assert!(warning.was_orphan);
        assert_eq!(found.versions.len(), 2);
        assert!(found.versions[1].at.is_none());
        // Later, it is no news.
        assert!(past(adopted, 9 + LATELY_DAYS + 1).warning.is_none());
    }

    #[test]
    fn only_new_hands_are_a_warning() {
        let new =
            json!({"Maintainer": "anna", "MaintainerSince": 9 * DAY, "PreviousMaintainers": []});
        let found = past(new, 10);
        assert!(found.warning.is_none() && found.maintainers.len() == 1);
        let known =
            json!({"Maintainer": "anna", "MaintainerSince": null, "PreviousMaintainers": []});
        assert!(past(known, 10).warning.is_none());
        let orphan = json!({"Maintainer": null, "OrphanedSince": 9 * DAY,
            "PreviousMaintainers": [{"Name": "anna", "From": null, "Until": 9 * DAY}]});
        let found = past(orphan, 10);
        let lines: Vec<String> = found.maintainers.iter().map(line).collect();
        assert_eq!(lines, ["- 1970-01-10 ?", "anna ? 1970-01-10"]);
        let warning = found.warning.expect("it was left lately");
        assert_eq!((warning.now, warning.was_orphan), (None, false));
    }
}
