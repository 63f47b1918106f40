//! [`Links`]: the links of a source archive, and the rule that no path leads through them.
//!
//! A link whose own text stays within the archive may still leave it by way of another link: `a -> .` is harmless,
//! and so is `b -> a/..` read alone. So no path may lead through a link: no later member, whose bytes would land
//! where the link points, and no target of another link, wherever the two are in the archive. Then every target means
//! exactly what it says, and it is enough to look at each alone.

use std::collections::HashMap;

use super::ArchiveError;
use super::path::link_depth_min;

/// Most bytes that all links may take: names, targets, and each segment of a symbolic link's name in the tree.
const LINK_BYTES_MAX: u64 = 16 << 20;
const SEGMENT_BYTES: usize = 320;

const OUT: &str = "a link that leads out of the archive";

/// Most segments in the name of a symbolic link.
const SEGMENTS_MAX: usize = 256;

/// The links found so far.
#[derive(Default)]
pub(super) struct Links {
    tree: Tree,
    met: Vec<Link>,
    /// The memory that they take, in bytes.
    bytes: u64,
    /// The first symbolic link that leads to the root of the archive, or through it.
    to_root: Option<Vec<u8>>,
}

/// The paths of symbolic links, segment by segment.
#[derive(Default)]
struct Tree {
    below: HashMap<Box<[u8]>, Tree>,
    is_link: bool,
}

struct Link {
    name: Vec<u8>,
    target: Vec<u8>,
    is_hard: bool,
}

impl Links {
    /// Adds a member: its name, and the target if it is a link. A hard link's target is relative to the top of the
    /// archive, wherever the link itself is.
    ///
    /// # Errors
    /// [`ArchiveError::Member`] if it points outside the archive, or is at or below an earlier link;
    /// [`ArchiveError::TooMuch`].
    pub(super) fn meet(
        &mut self,
        name: &[u8],
        target: Option<&[u8]>,
        is_hard: bool,
    ) -> Result<(), ArchiveError> {
        if !self.met.is_empty() && self.tree.leads_through(segments(name)) {
            return refused(name, "the path of a link, or one below it");
        }
        let Some(target) = target else { return Ok(()) };
        if name.contains(&b'\\') || target.contains(&b'\\') {
            return refused(name, "a link with a backslash, which systems read differently");
        }
        match link_depth_min(if is_hard { b"top" } else { name }, target) {
            None => return refused(name, OUT),
            Some(0) if !is_hard => _ = self.to_root.get_or_insert_with(|| name.to_vec()),
            Some(_) => {}
        }
        let segment_count = if is_hard { 0 } else { segments(name).count() };
        if segment_count > SEGMENTS_MAX {
            return refused(name, "a link in more than 255 directories");
        }
        self.bytes += (name.len() + target.len() + segment_count * SEGMENT_BYTES) as u64;
        if self.bytes > LINK_BYTES_MAX {
            let (what, found) = ("bytes of links", self.bytes);
            return Err(ArchiveError::TooMuch { what, found, max: LINK_BYTES_MAX });
        }
        if !is_hard {
            self.tree.add(segments(name));
        }
        self.met.push(Link { name: name.to_vec(), target: target.to_vec(), is_hard });
        Ok(())
    }

    /// Checks that no link's target leads through another link, after all members have been added.
    ///
    /// # Errors
    /// [`ArchiveError::Member`] for the first link whose target does.
    pub(super) fn check(&self) -> Result<(), ArchiveError> {
        for link in &self.met {
            if self.tree.misleads(link) {
                return refused(&link.name, "a link that leads through another link");
            }
        }
        Ok(())
    }

    /// Checks what installers check besides: each symbolic link has a target, none leads in a circle, and with `is_one_top`
    /// none leads out of the one top directory, which they leave out.
    ///
    /// # Errors
    /// [`ArchiveError::Member`] for the first link that installers refuse.
    pub(super) fn check_for_installers(&self, is_one_top: bool) -> Result<(), ArchiveError> {
        if let Some(name) = self.to_root.as_ref().filter(|_| is_one_top) {
            return refused(name, OUT);
        }
        for link in self.met.iter().filter(|link| !link.is_hard) {
            if link.target.is_empty() {
                return refused(&link.name, "a link without a target");
            }
            if segments(&link.target).skip_while(|it| *it == b"..").any(|it| it == b"..") {
                return refused(&link.name, "a link with `..` behind a name");
            }
        }
        let place = |link| segments(link).collect::<Vec<_>>();
        let met = || self.met.iter().enumerate();
        let at: HashMap<_, _> = met().map(|(at, link)| (place(&link.name), at)).collect();
        // The link from which a way first came to each link.
        let mut came_from: Vec<Option<usize>> = vec![None; self.met.len()];
        for start in 0..self.met.len() {
            let mut next = Some(start);
            while let Some(here) = next.filter(|here| !self.met[*here].is_hard) {
                match came_from[here] {
                    Some(from) if from == start => {
                        return refused(&self.met[here].name, "a link that leads in a circle");
                    }
                    Some(_) => break,
                    None => came_from[here] = Some(start),
                }
                next = at.get(&self.met[here].place_of_target()).copied();
            }
        }
        Ok(())
    }
}

impl Link {
    /// The path of a symbolic link's target, from the root of the archive.
    fn place_of_target(&self) -> Vec<&[u8]> {
        let mut place: Vec<&[u8]> = segments(&self.name).collect();
        place.pop();
        for segment in segments(&self.target) {
            match segment {
                b".." => _ = place.pop(),
                _ => place.push(segment),
            }
        }
        place
    }
}

impl Tree {
    fn add<'path>(&mut self, path: impl Iterator<Item = &'path [u8]>) {
        let mut tree = self;
        for segment in path {
            tree = tree.below.entry(segment.into()).or_default();
        }
        tree.is_link = true;
    }

    /// Whether a path without `..` is that of a link, or is below one.
    fn leads_through<'path>(&self, path: impl Iterator<Item = &'path [u8]>) -> bool {
        let mut tree = self;
        for segment in path {
            let Some(next) = tree.below.get(segment) else { return false };
            if next.is_link {
                return true;
            }
            tree = next;
        }
        false
    }

    /// Whether the target of `link` leads through another link. A symbolic link may end at another one, which is
    /// checked by itself. A hard link may not: it would put the other link into another directory, from where it
    /// points elsewhere.
    fn misleads(&self, link: &Link) -> bool {
        let mut way: Vec<Option<&Tree>> = Vec::new();
        if !link.is_hard {
            let place: Vec<&[u8]> = segments(&link.name).collect();
            for segment in &place[..place.len().saturating_sub(1)] {
                way.push(self.below(way.last(), segment));
            }
        }
        let is_link = |way: &[Option<&Tree>]| way.iter().flatten().any(|tree| tree.is_link);
        if is_link(&way) {
            return true;
        }
        for segment in segments(&link.target) {
            if way.last().is_some_and(|tree| tree.is_some_and(|tree| tree.is_link)) {
                return true;
            }
            match segment {
                b".." => _ = way.pop(),
                _ => way.push(self.below(way.last(), segment)),
            }
        }
        link.is_hard && is_link(&way)
    }

    /// The tree at `segment` below the last place of a path; an empty path is at the top.
    fn below<'tree>(
        &'tree self,
        last: Option<&Option<&'tree Tree>>,
        segment: &[u8],
    ) -> Option<&'tree Tree> {
        match last {
            None => self.below.get(segment),
            Some(last) => last.and_then(|tree| tree.below.get(segment)),
        }
    }
}

/// The segments of a path, without `.` and empty ones.
fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let segments = path.split(|byte| matches!(byte, b'/' | b'\\'));
    segments.filter(|segment| !segment.is_empty() && *segment != b".")
}

fn refused<T>(name: &[u8], what: &str) -> Result<T, ArchiveError> {
    let name = String::from_utf8_lossy(name).into_owned();
    Err(ArchiveError::Member { name, what: what.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects this error of an archive with these members: `name`, `name -> target`, or `name => target` for a hard
    /// link.
    #[track_caller]
    fn check(members: &[&str], expected: &str) {
        let mut links = Links::default();
        let meet = |member: &&str| {
            let (name, target, is_hard) =
                match (member.split_once(" -> "), member.split_once(" => ")) {
                    (Some((name, target)), _) => (name, Some(target), false),
                    (None, Some((name, target))) => (name, Some(target), true),
                    (None, None) => (*member, None, false),
                };
            links.meet(name.as_bytes(), target.map(str::as_bytes), is_hard)
        };
        let met: Result<(), ArchiveError> = members.iter().try_for_each(meet);
        let found = met.and_then(|()| links.check());
        let found = found.map_or_else(|error| error.to_string(), |()| "right".to_owned());
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn misleading(members: &[&str], name: &str) {
        let what = "which has a link that leads through another link";
        check(members, &format!("the archive has a member {name:?}, {what}"));
        let reversed: Vec<&str> = members.iter().rev().copied().collect();
        check(&reversed, &format!("the archive has a member {name:?}, {what}"));
    }

    #[test]
    fn links_within_the_archive_are_accepted() {
        check(&["f/a", "f/b -> a", "f/c -> b", "f/d/e -> ../a", "f/g => f/a"], "right");
        check(&["f/v1/x", "f/now -> v1", "f/other/x"], "right");
        check(&["f/a -> .", "f/b -> ../f/a"], "right");
        check(&["f/a -> a"], "right");
    }

    #[test]
    fn nothing_leads_through_a_link() {
        misleading(&["f/x/a -> ../..", "f/x/b -> a/.."], "f/x/b");
        misleading(&["f/a -> .", "f/b -> ./a/../.."], "f/b");
        misleading(&["f/a -> x", "f/b -> a/y"], "f/b");
        misleading(&["f/a -> x", "b => f/a/y"], "b");
        // The same link in another directory points outside.
        misleading(&["f/x/a -> ../..", "b => f/x/a"], "b");
        misleading(&["f/x/a -> ../..", "f/x/../b => f/x/./a"], "f/x/../b");
        let below = "which has the path of a link, or one below it";
        for member in ["f/a/b", "f/a", "f//a/./b/c", "f/a/b -> c", "f/a -> c", "f\\a\\b"] {
            let expected = format!("the archive has a member {member:?}, {below}");
            let expected = expected.replace(" -> c\"", "\"");
            check(&["f/b", "f/a -> .", member], &expected);
        }
        // A link where a directory was: no member was written through it, and no link leads through it.
        check(&["f/a/b", "f/a -> x"], "right");
        check(
            &["f/a/b -> ../c", "f/a -> x"],
            "the archive has a member \"f/a/b\", which has a link that leads through another link",
        );
    }

    #[test]
    fn links_that_installers_refuse() {
        let check = |members: &[&str], is_one_top: bool, expected: Option<&str>| {
            let mut links = Links::default();
            for member in members {
                let (name, target) = member.split_once(" -> ").expect("a link");
                links
                    .meet(name.as_bytes(), Some(target.as_bytes()), false)
                    .expect("it stays within");
            }
            let found = links.check_for_installers(is_one_top).map_err(|error| error.to_string());
            let expected = expected.map(|what| format!("the archive has a member {what}"));
            assert_eq!(found.err(), expected, "{members:?}");
        };
        check(&["f/a -> b", "f/b -> c", "f/c -> nothing"], true, None);
        check(&["f/d/a -> ../b", "f/d/up -> .."], true, None);
        let out = "\"f/b\", which has a link that leads out of the archive";
        check(&["f/a -> x", "f/b -> ../LICENSE"], true, Some(out));
        check(&["f/b -> ../f/a"], true, Some(out));
        check(&["f/b -> .."], true, Some(out));
        // At the root are several directories, so nothing is left out.
        check(&["f/b -> ../LICENSE"], false, None);
        check(&["f/a -> "], true, Some("\"f/a\", which has a link without a target"));
        let back = "\"f/b\", which has a link with `..` behind a name";
        let circle = "\"f/a\", which has a link that leads in a circle";
        check(&["f/a -> a"], true, Some(circle));
        check(&["f/x -> a", "f/a -> b", "f/d/b -> x", "f/b -> ./../f/d/../a"], false, Some(back));
        check(&["f/x -> a", "f/a -> d/b", "f/d/b -> ./../a"], true, Some(circle));
    }

    #[test]
    fn links_are_few_and_plain() {
        let backslash = "which has a link with a backslash, which systems read differently";
        let expected = "the archive has a member \"a\\\\b\\\\c\", ".to_owned() + backslash;
        check(&["a\\b\\c -> ../x"], &expected);
        let long: Vec<String> =
            (1000..9000).map(|it| format!("{it} -> {}", "x".repeat(4096))).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let found = "the archive has 16778320 bytes of links: at most 16777216 were expected";
        check(&long, found);
        let deep = |count| "d/".repeat(count) + "l";
        check(&[&format!("{} -> x", deep(255))], "right");
        let expected = format!(
            "the archive has a member {:?}, which has a link in more than 255 directories",
            deep(256)
        );
        check(&[&format!("{} -> x", deep(256))], &expected);
        // These names take few bytes, but each segment takes a place in the tree.
        let names: Vec<String> = (0..250).map(|it| format!("{it}/{} -> x", deep(254))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = "the archive has 16816426 bytes of links: at most 16777216 were expected";
        check(&names, found);
    }
}
