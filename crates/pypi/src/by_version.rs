//! Files by their versions, and the version that installers take.

use crate::Version;

/// These items by their versions, the lowest first. Versions that PEP 440 counts as the same are one.
pub fn by_version<T>(items: impl IntoIterator<Item = (Version, T)>) -> Vec<(Version, Vec<T>)> {
    // Files of one version are mostly beside each other, and versions in their order: then few are compared.
    let mut runs: Vec<(Version, Vec<T>)> = Vec::new();
    for (version, item) in items {
        match runs.last_mut().filter(|(last, _)| last.as_str() == version.as_str()) {
            Some((_, items)) => items.push(item),
            None => runs.push((version, vec![item])),
        }
    }
    runs.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut versions: Vec<(Version, Vec<T>)> = Vec::with_capacity(runs.len());
    for (version, items) in runs {
        match versions.last_mut().filter(|(before, _)| before.is_same_release(&version)) {
            Some((_, before)) => before.extend(items),
            None => versions.push((version, items)),
        }
    }
    versions
}

/// The place of the version that installers take, of those that ascend: the highest that is neither yanked nor a pre-release, or a
/// pre-release if there is nothing else, or a yanked one.
pub fn installed_by_default<'a>(
    versions: impl DoubleEndedIterator<Item = (&'a Version, bool)> + ExactSizeIterator + Clone,
) -> Option<usize> {
    let good =
        versions.clone().rposition(|(version, is_yanked)| !is_yanked && !version.is_prerelease());
    let any = || versions.clone().rposition(|(_, is_yanked)| !is_yanked);
    good.or_else(any).or_else(|| versions.len().checked_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_versions_are_one() {
        let items =
            ["1.10", "1.0.0", "1.2", "1.0"].map(|text| (Version::parse(text).expect(text), text));
        let found = by_version(items);
        let found: Vec<Vec<&str>> = found.into_iter().map(|(_, items)| items).collect();
        assert_eq!(found, [vec!["1.0", "1.0.0"], vec!["1.2"], vec!["1.10"]]);
        let items = [("2", 'a'), ("1", 'b'), ("2", 'c'), ("2", 'd'), ("1", 'e')]
            .map(|(text, item)| (Version::parse(text).expect(text), item));
        let found = by_version(items).into_iter().map(|(_, items)| items);
        assert_eq!(found.collect::<Vec<_>>(), [['b', 'e'].to_vec(), ['a', 'c', 'd'].to_vec()]);
    }

    #[test]
    fn what_installers_take() {
        let check = |versions: &[(&str, bool)], place: Option<usize>| {
            let versions =
                versions.iter().map(|(text, is)| (Version::parse(text).expect(text), *is));
            let versions: Vec<(Version, bool)> = versions.collect();
            let found = installed_by_default(versions.iter().map(|(version, is)| (version, *is)));
            assert_eq!(found, place, "{versions:?}");
        };
        check(&[("1.0", false), ("1.1", true), ("2.0rc1", false)], Some(0));
        check(&[("1.0", true), ("2.0rc1", false), ("2.0rc2", true)], Some(1));
        check(&[("1.0", true), ("1.1", true)], Some(1));
        check(&[], None);
    }
}
