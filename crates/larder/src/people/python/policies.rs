//! A policy in words, for the page of an index, whether it is the index's own or that of a base.

use jiff::Timestamp;
use pypi::policy::{Measure, Policy};

use crate::front::display::{Time, count};

/// Rules, projects and exceptions that are named; of others it is said how many they are.
const NAMED_MAX: usize = 5;

/// What the policy does, as sentences without an end.
pub(super) fn rules(policy: &Policy) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(days) = policy.cooldown_days {
        let days = count(days as usize, "day", "days");
        said.push(format!("files are held back until they are {days} old"));
    }
    if let Some(cutoff) = policy.cutoff {
        said.push(format!("files from {} on are held back", Time(cutoff)));
    }
    if !policy.cooldown_except.is_empty() && !said.is_empty() {
        said.push(format!("the age does not count for {}", named(&policy.cooldown_except)));
    }
    if !policy.allow.is_empty() {
        said.push(format!("nothing is given out but {}", named(&policy.allow)));
    }
    if !policy.deny.is_empty() {
        said.push(format!("refused: {}", named(&policy.deny)));
    }
    if !policy.quarantine.is_empty() {
        let rules: Vec<_> = policy.quarantine.iter().map(|it| &it.rule).collect();
        said.push(format!("in quarantine: {}", named(&rules)));
    }
    for (what, measure) in [
        ("known malware", policy.malware),
        ("releases with known vulnerabilities", policy.vulnerabilities),
    ] {
        match measure {
            Measure::Off => {}
            Measure::Warn => said.push(format!("{what}: given out with a warning")),
            Measure::Refuse => said.push(format!("{what}: refused")),
        }
    }
    said
}

/// The exceptions that have not ended.
pub(super) fn exceptions(policy: &Policy, now: Timestamp) -> Vec<String> {
    let lasting: Vec<_> = policy.exceptions.iter().filter(|it| now < it.until).collect();
    let shown = lasting.iter().take(NAMED_MAX);
    let shown = shown.map(|it| format!("{} until {}: {}", it.rule, Time(it.until), it.reason));
    let more = lasting.len().saturating_sub(NAMED_MAX);
    let more = (more > 0).then(|| format!("and {}", count(more, "other", "others")));
    shown.chain(more).collect()
}

fn named(all: &[impl ToString]) -> String {
    let mut named: Vec<String> = all.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        named.push(count(more, "other", "others"));
    }
    match named.split_last() {
        Some((last, first @ [_, ..])) => format!("{} and {last}", first.join(", ")),
        _ => named.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    #[test]
    fn rules_are_named_up_to_a_number() {
        let policy = Policy {
            cooldown_days: Some(1),
            cooldown_except: parsed(&["acme-*"]),
            allow: parsed(&["a", "b>=2", "c", "d", "e", "f", "g"]),
            deny: parsed(&["leftpad", "*@sdist"]),
            quarantine: parsed(&["evil we look at it"]),
            malware: Measure::Refuse,
            vulnerabilities: Measure::Warn,
            ..Policy::default()
        };
        let expected = [
            "files are held back until they are 1 day old",
            "the age does not count for acme-*",
            "nothing is given out but a, b>=2, c, d, e and 2 others",
            "refused: leftpad and *@sdist",
            "in quarantine: evil",
            "known malware: refused",
            "releases with known vulnerabilities: given out with a warning",
        ];
        assert_eq!(rules(&policy), expected);
        assert!(rules(&Policy::default()).is_empty());
    }

    #[test]
    fn exceptions_that_have_ended_are_not_said() {
        let mut texts = vec!["old until 2026-01-01 over".to_owned()];
        texts.extend((0..6).map(|at| format!("p{at} until 2026-03-01 fixes <a hole>")));
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let policy = Policy { exceptions: parsed(&texts), ..Policy::default() };
        let now = "2026-02-01T00:00:00Z".parse().expect("a time");
        let said = exceptions(&policy, now);
        assert!(said[0].starts_with("p0 until 2026-03-") && said[0].ends_with(": fixes <a hole>"));
        assert_eq!((said.len(), said[5].as_str()), (6, "and 1 other"));
    }
}
