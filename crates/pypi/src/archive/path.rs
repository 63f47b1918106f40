//! Names of archive members: which are refused, where links lead, and which directory is a wheel's own.
//!
//! A name is refused if some reader on some system would write it outside the target directory.

use crate::{ProjectName, Version};

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

/// Whether no system can write this path: most allow 255 bytes for a name.
pub(super) fn has_long_segment(name: &str) -> bool {
    name.split('/').any(|segment| segment.len() > 255)
}

/// Whether a character leaves no mark of its own: control, format and private characters. uv refuses them in a zip.
pub(super) fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{e000}'..='\u{f8ff}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..
        )
}

/// How far up a link at `name` to `target`, as it is written there, leads on its way: 0 is the root of the archive. `None` if it
/// leads out of the archive.
pub(super) fn link_depth_min(name: &[u8], target: &[u8]) -> Option<usize> {
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
        return None;
    }
    // The depth of the link's own directory; a target that goes above the top is outside.
    let mut depth = segments(name).len().saturating_sub(1);
    let mut depth_min = depth;
    for segment in segments(target) {
        match segment.as_slice() {
            b".." => depth = depth.checked_sub(1)?,
            _ => depth += 1,
        }
        depth_min = depth_min.min(depth);
    }
    Some(depth_min)
}

/// Whether `directory` is `{project}-{version}`, with one `-`, as installers expect it of a `*.dist-info`.
pub(super) fn is_release(directory: &str, project: &ProjectName, version: &Version) -> bool {
    directory.split_once('-').is_some_and(|(name, rest)| {
        ProjectName::normalize(name).is_ok_and(|name| name == *project)
            && Version::parse(rest).is_ok_and(|found| found.is_same_release(version))
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
        let check = |name: &str, target: &str, depth_min| {
            assert_eq!(link_depth_min(name.as_bytes(), target.as_bytes()), depth_min, "{target}");
        };
        check("foo/a", "b", Some(1));
        check("foo/x/a", "../b", Some(1));
        check("foo/x/y/a", "../b", Some(2));
        check("foo/a", "../foo/b", Some(0));
        check("foo/x/a", "y/../../z/../../foo", Some(0));
        check("foo/a", "../../b", None);
        check("foo/a", "/etc/passwd", None);
        check("foo/a", "x/../../../b", None);
        check("a", "..", None);
        check("a", "C:\\x", None);
    }
}
