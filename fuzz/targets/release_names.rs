//! A project, a version and a filename, in lines: what an upload's form says of its file.

#![no_main]

use std::cmp::Ordering;

use libfuzzer_sys::fuzz_target;
use pypi::{FileKind, Filename, ProjectName, Version};

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(3, '\n');
    let (project, version) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let filename = lines.next().unwrap_or_default();

    let project_name = ProjectName::parse(project);
    if let Ok(name) = &project_name {
        assert!(ProjectName::is_normalized(name.as_str()), "{name}");
        check_segment(name.as_str());
        assert_eq!(ProjectName::normalize(name.as_str()).as_ref(), Ok(name));
    }
    // Any two versions have an order, which does not depend on who is asked.
    let other = Version::parse(filename);
    let version = Version::parse(version);
    if let Ok(version) = &version {
        check_segment(version.as_str());
        let normalized = version.normalized();
        // `c` is `rc` then, so that it may grow.
        if normalized.len() <= Version::BYTES_MAX {
            let again = Version::parse(&normalized);
            assert!(again.is_ok_and(|again| again.is_same_release(version)), "{version}");
        }
        if let Ok(other) = &other {
            assert_eq!(version.cmp(other), other.cmp(version).reverse());
            assert_eq!(version.cmp(other) == Ordering::Equal, version == other);
        }
    }
    if let Ok(parsed) = Filename::parse(filename) {
        check_segment(parsed.as_str());
        let _ = (parsed.split(None), parsed.filetype(), parsed.pyversion());
        if let Ok(name) = &project_name {
            let split = parsed.split(Some(name));
            assert!(
                split
                    .is_none_or(|parts| ProjectName::normalize(parts.project).as_ref() == Ok(name))
            );
        }
    }
    let (Ok(name), Ok(version)) = (project_name, version) else { return };
    if let Ok(found) = Filename::of_upload(filename, project, &version) {
        assert_eq!(found.as_str(), filename);
        if found.kind() == FileKind::Wheel {
            let parts = found.split(Some(&name)).expect("a wheel's name is unambiguous");
            assert!(parts.version.is_some() && parts.tags.is_some());
        }
    }
});

/// A name that is taken is one segment of a path, and not one that leads elsewhere.
fn check_segment(text: &str) {
    assert!(!text.is_empty() && text.len() <= 255 && !text.starts_with('.'), "{text:?}");
    assert!(
        !text.chars().any(|character| "/\\".contains(character) || character.is_control()),
        "{text:?}"
    );
}
