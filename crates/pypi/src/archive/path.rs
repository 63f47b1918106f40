//! Names of archive members: which are refused, and which is that of the metadata.
//!
//! A name is refused if some reader on some system would write it outside the target directory.

use crate::{Filename, ProjectName, Version};

/// Most bytes in a member's name: what systems allow for a path.
const NAME_BYTES_MAX: usize = 4096;

/// Why `name` is refused as a path below a directory; `None` if it is fine. `.` and empty segments are fine.
pub(super) fn trick(name: &[u8]) -> Option<&'static str> {
    let is_separator = |byte: &u8| matches!(byte, b'/' | b'\\');
    let drive = name.first().is_some_and(u8::is_ascii_alphabetic) && name.get(1) == Some(&b':');
    match name {
        [] => Some("no name"),
        _ if name.len() > NAME_BYTES_MAX => Some("a name of more than 4096 bytes"),
        _ if name.contains(&0) => Some("a zero byte in its name"),
        _ if name.first().is_some_and(is_separator) || drive => Some("an absolute path"),
        _ if name.split(is_separator).any(|segment| segment == b"..") => Some("a path with `..`"),
        _ => None,
    }
}

/// Why `name` is refused in a zip, where names are always written with plain slashes; `None` if it is fine.
pub(super) fn trick_in_zip(name: &[u8]) -> Option<&'static str> {
    let path = name.strip_suffix(b"/").unwrap_or(name);
    trick(name).or_else(|| {
        let is_plain = |segment: &[u8]| !segment.is_empty() && segment != b".";
        if name.contains(&b'\\') {
            Some("a backslash in its name")
        } else if !path.split(|byte| *byte == b'/').all(is_plain) {
            Some("a path with an empty segment or `.`")
        } else if name.iter().any(u8::is_ascii_control) {
            Some("a control character in its name")
        } else {
            None
        }
    })
}

/// Whether a link at `name` to `target`, as it is written there, points outside the archive's directory.
pub(super) fn link_escapes(name: &[u8], target: &[u8]) -> bool {
    let segments = |path: &[u8]| -> Vec<Vec<u8>> {
        let segments = path.split(|byte| matches!(byte, b'/' | b'\\'));
        segments
            .filter(|segment| !segment.is_empty() && *segment != b".")
            .map(<[u8]>::to_vec)
            .collect()
    };
    let drive = target.first().is_some_and(u8::is_ascii_alphabetic) && target.get(1) == Some(&b':');
    if target.first().is_some_and(|byte| matches!(byte, b'/' | b'\\'))
        || drive
        || target.contains(&0)
    {
        return true;
    }
    // The depth of the link's own directory; a target that goes above the top is outside.
    let mut depth = segments(name).len().saturating_sub(1);
    for segment in segments(target) {
        if segment == b".." {
            let Some(above) = depth.checked_sub(1) else { return true };
            depth = above;
        } else {
            depth += 1;
        }
    }
    false
}

/// Whether `name` is the `PKG-INFO` of the source archive `filename`: in a directory named after its project and
/// version.
pub(super) fn is_pkg_info(name: &str, filename: &Filename) -> bool {
    let mut segments = name.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
    let (Some(top), Some("PKG-INFO"), None) = (segments.next(), segments.next(), segments.next())
    else {
        return false;
    };
    top == filename.stem()
        || filename.split(None).is_some_and(|parts| {
            let project = ProjectName::normalize(parts.project).ok();
            project
                .zip(parts.version)
                .is_some_and(|(project, version)| is_release(top, &project, &version))
        })
}

/// Whether `directory` is `{project}-{version}` in any escaping and normalization.
pub(super) fn is_release(directory: &str, project: &ProjectName, version: &Version) -> bool {
    directory.match_indices('-').any(|(at, _)| {
        let (name, rest) = (&directory[..at], &directory[at + 1..]);
        ProjectName::normalize(name).is_ok_and(|name| name == *project)
            && Version::parse(rest).is_ok_and(|found| {
                let unescaped = |version: &Version| version.as_str().replace(['-', '+'], "_");
                found.is_same_release(version) || unescaped(&found) == unescaped(version)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_outside_the_directory_is_a_trick() {
        let tricks =
            ["", "/a", "../a", "a/..", "a/../../b", "a\\..\\b", "\\a", "C:\\a", "c:a", "a\0b"];
        for name in tricks {
            assert!(trick(name.as_bytes()).is_some(), "{name:?}");
            assert!(trick_in_zip(name.as_bytes()).is_some(), "{name:?}");
        }
        for name in ["a", "a/b", "a..b/c..", "...", "ü/b"] {
            assert_eq!(trick(name.as_bytes()), None, "{name:?}");
            assert_eq!(trick_in_zip(name.as_bytes()), None, "{name:?}");
        }
        for name in ["./a", "a//b", "a/./b", "a\\b", "a\nb"] {
            assert_eq!(trick(name.as_bytes()), None, "{name:?}");
            assert!(trick_in_zip(name.as_bytes()).is_some(), "{name:?}");
        }
        assert!(trick(&[b'a'; 4097]).is_some());
        assert_eq!(trick_in_zip(b"a/b/"), None);
    }

    #[test]
    fn a_link_may_only_point_into_the_archive() {
        let check = |name: &str, target: &str| link_escapes(name.as_bytes(), target.as_bytes());
        assert!(!check("foo/a", "b"));
        assert!(!check("foo/x/a", "../b"));
        assert!(!check("foo/a", "../b"));
        assert!(check("foo/a", "../../b"));
        assert!(check("foo/a", "/etc/passwd"));
        assert!(check("foo/a", "x/../../../b"));
        assert!(check("a", ".."));
        assert!(check("a", "C:\\x"));
    }

    #[test]
    fn the_metadata_of_a_source_archive_is_in_its_directory() {
        let check = |name: &str, filename: &str| {
            is_pkg_info(name, &Filename::parse(filename).expect("a filename"))
        };
        assert!(check("foo-1.0/PKG-INFO", "foo-1.0.tar.gz"));
        assert!(check("./foo-1.0/PKG-INFO", "foo-1.0.tar.gz"));
        assert!(check("Foo.Bar-1.0.0/PKG-INFO", "foo_bar-1.0.tar.gz"));
        assert!(check("foo-1.0+a.b/PKG-INFO", "foo-1.0+a.b.zip"));
        assert!(!check("foo-1.0/src/PKG-INFO", "foo-1.0.tar.gz"));
        assert!(!check("PKG-INFO", "foo-1.0.tar.gz"));
        assert!(!check("bar-1.0/PKG-INFO", "foo-1.0.tar.gz"));
        assert!(!check("foo-1.1/PKG-INFO", "foo-1.0.tar.gz"));
        assert!(!check("foo-1.0/pkg-info", "foo-1.0.tar.gz"));
    }
}
