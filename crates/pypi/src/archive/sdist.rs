//! [`Layout`]: where installers look for the project in a source archive, and what is there.
//!
//! If all members are in one directory, installers leave it out, whatever it is called; else the project is at the root of the
//! archive. There they need `setup.py` or `pyproject.toml`, and there is the `PKG-INFO` of the release: one below, as in
//! `src/foo.egg-info`, can be another project's.

use super::ArchiveError;
use crate::Filename;

/// What the members so far say. `Info` is what the caller keeps of a `PKG-INFO`.
pub(super) struct Layout<Info> {
    /// The first name in the path of the first member.
    top: Option<Box<str>>,
    /// Whether it is that of every member.
    is_one_top: bool,
    root: DirectoryContent<Info>,
    below: DirectoryContent<Info>,
}

/// What is in one directory.
pub(super) struct DirectoryContent<Info> {
    has_project: bool,
    pkg_infos: usize,
    pub(super) pkg_info: Option<Info>,
}

impl<Info> Default for DirectoryContent<Info> {
    fn default() -> DirectoryContent<Info> {
        DirectoryContent { has_project: false, pkg_infos: 0, pkg_info: None }
    }
}

impl<Info> Default for Layout<Info> {
    fn default() -> Layout<Info> {
        let (root, below) = Default::default();
        Layout { top: None, is_one_top: true, root, below }
    }
}

impl<Info> Layout<Info> {
    /// Adds a member of any kind. Returns the place of which it is the first `PKG-INFO`.
    pub(super) fn meet(
        &mut self,
        name: &str,
        is_directory: bool,
    ) -> Option<&mut DirectoryContent<Info>> {
        let mut segments = name.split('/').filter(|segment| !segment.is_empty());
        let top = segments.next()?;
        let mut below = segments.filter(|segment| *segment != ".");
        let first = self.top.get_or_insert_with(|| top.into());
        let is_first = **first == *top;
        self.is_one_top &= is_first;
        let (place, name) = match (below.next(), below.next()) {
            (None, _) => (&mut self.root, top),
            (Some(name), None) if is_first => (&mut self.below, name),
            _ => return None,
        };
        match name {
            "PKG-INFO" => place.pkg_infos += 1,
            "setup.py" | "pyproject.toml" => place.has_project |= !is_directory,
            _ => {}
        }
        (name == "PKG-INFO" && place.pkg_infos == 1).then_some(place)
    }

    /// Whether all members are in one directory.
    pub(super) fn is_one_top(&self) -> bool {
        self.is_one_top
    }

    /// The `PKG-INFO` of the release, after all members of `filename` have been added. An archive for one platform, as
    /// `foo-1.0.linux-x86_64.tar.gz`, need not have a project: installers pass it over.
    ///
    /// # Errors
    /// [`ArchiveError::NoProject`]; [`ArchiveError::Ambiguous`] if there are two: readers that take the first and readers that
    /// take the last would see two releases.
    pub(super) fn pkg_info(self, filename: &Filename) -> Result<Option<Info>, ArchiveError> {
        let place = if self.is_one_top { self.below } else { self.root };
        if place.pkg_infos > 1 {
            return Err(ArchiveError::Ambiguous("`PKG-INFO` is in it twice".to_owned()));
        }
        match place.has_project || filename.names_platform() {
            true => Ok(place.pkg_info),
            false => Err(ArchiveError::NoProject),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects this `PKG-INFO` of an archive with these members, the last character of a directory's name being a slash.
    #[track_caller]
    fn check(members: &[&str], expected: &str) {
        let filename = Filename::parse("f-1.tar.gz").expect("a filename");
        let mut layout = Layout::default();
        for name in members {
            if let Some(place) = layout.meet(name, name.ends_with('/')) {
                place.pkg_info = Some(*name);
            }
        }
        let found = layout.pkg_info(&filename).map(|found| found.unwrap_or("none").to_owned());
        assert_eq!(found.unwrap_or_else(|error| error.to_string()), expected, "{members:?}");
    }

    #[test]
    fn the_project_is_where_installers_look() {
        check(&["f-1/", "f-1/PKG-INFO", "f-1/setup.py"], "f-1/PKG-INFO");
        check(&["any/pyproject.toml", "any/x.egg-info/PKG-INFO", "any/PKG-INFO"], "any/PKG-INFO");
        check(&["any/setup.py", "any/x.egg-info/PKG-INFO"], "none");
        check(&["f//setup.py", "f/./PKG-INFO"], "f/./PKG-INFO");
        // At the root, another project's beside it.
        check(&["PKG-INFO", "setup.py", "f/PKG-INFO"], "PKG-INFO");
        check(&["f/PKG-INFO", "f/setup.py", "PKG-INFO", "setup.py"], "PKG-INFO");
        check(&["./PKG-INFO", "./setup.py"], "./PKG-INFO");
    }

    #[test]
    fn an_archive_whose_project_installers_do_not_find_is_refused() {
        let nothing = "the archive has no `setup.py` and no `pyproject.toml` where installers look: in its one top \
                       directory, or at its root if it has several";
        check(&[], nothing);
        check(&["f/PKG-INFO"], nothing);
        check(&["f/setup.py", "g/x.py"], nothing);
        check(&["f/setup.py", "README"], nothing);
        check(&["./f/setup.py", "./f/PKG-INFO"], nothing);
        check(&["f/setup.py", "./f/PKG-INFO"], nothing);
        check(&["f/g/setup.py", "f/setup.py/"], nothing);
        check(
            &["f/setup.py", "f/PKG-INFO", "f/PKG-INFO"],
            "the archive is ambiguous: `PKG-INFO` is in it twice",
        );
    }
}
