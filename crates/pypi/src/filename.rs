//! [`Filename`]: the name of a release file, and what it tells about the file.
//!
//! text -> [`Filename::parse`] (safe as a name on disk and in a URL, with an archive's ending) -> [`Filename::split`]
//! -> [`FilenameParts`]: project, version, kind, tags. [`Filename::of_upload`] checks an upload against its form. A
//! name is never rewritten, and nothing here opens a file.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::project_name::normalized;
use crate::version::unsafe_in_path;
use crate::{ProjectName, Version};

/// The name of a release file: 1 to 255 bytes, one segment of a path, with an ending of a [`FileKind`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Filename(Arc<str>);

/// Why a text is not the name of a release file, or not of this release. Where devpi has a message, it is the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilenameError {
    /// The text is empty.
    #[error("a filename is missing")]
    Empty,
    /// The text is longer than [`Filename::BYTES_MAX`].
    #[error("a filename of {0} bytes is too long: at most {max} were expected", max = Filename::BYTES_MAX)]
    TooLong(usize),
    /// The text could leave its directory, or be misread.
    #[error("filename {filename:?} is refused: {what} cannot be in one")]
    Unsafe {
        /// The text.
        filename: String,
        /// What a filename cannot contain.
        what: &'static str,
    },
    /// The text does not contain the release's version.
    #[error("filename {} does not contain version {}", Quoted(.filename), Quoted(.version))]
    Version {
        /// The text.
        filename: String,
        /// The version of the form.
        version: String,
    },
    /// The text does not end like an archive.
    #[error(
        "{} is not a valid archive name: one that ends in .whl, .tar.gz, .zip, .tgz, .tar.bz2 or .egg was expected",
        Quoted(.0)
    )]
    NotAnArchive(String),
    /// The text does not begin with the project's name.
    #[error("filename {} does not match project name {}", Quoted(.filename), Quoted(.project))]
    Project {
        /// The text.
        filename: String,
        /// The project's name in the form.
        project: String,
    },
    /// The text ends in `.whl`, but installers could not parse it (PEP 427).
    #[error(
        "filename {} is not a wheel's: `name-version(-build)-python-abi-platform.whl` was expected, \
         a build beginning with a digit, no `__`, and the ending in lower case",
        Quoted(.0)
    )]
    NotAWheel(String),
    /// The version does not follow PEP 440, so installers pass the file over.
    #[error("installers do not know the version {}: one by PEP 440 was expected, as `1.0.post1`", Quoted(.0))]
    LegacyVersion(String),
}

/// The kind of release file that a name's ending stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// `.whl`.
    Wheel,
    /// `.tar.gz`, `.tgz`, `.tar.bz2`, `.zip`: sources (or, in old times, a "dumb" binary).
    Sdist,
    /// `.egg`.
    Egg,
    /// `.exe`: a Windows installer.
    WindowsInstaller,
    /// `.msi`.
    Msi,
    /// `.dmg`.
    Dmg,
    /// `.rpm`.
    Rpm,
    /// `.deb`.
    Deb,
    /// A `.bz2` that is not a `.tar.bz2`.
    Other,
}

/// The part of a wheel's name that says where it runs, with each tag as it is written: `py2.py3`, `none`, `any`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WheelTags<'a> {
    /// The build number; begins with a digit.
    pub build: Option<&'a str>,
    /// Interpreters, joined by dots.
    pub python: &'a str,
    /// Binary interfaces, joined by dots.
    pub abi: &'a str,
    /// Platforms, joined by dots.
    pub platform: &'a str,
}

/// The parts of a filename.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilenameParts<'a> {
    /// The project as it is written (escaped, in a wheel).
    pub project: &'a str,
    /// The version as it is written, except that `1.0_local` in a wheel means `1.0+local`. `None` if the name has
    /// none.
    pub version: Option<Version>,
    /// Kind of file.
    pub kind: FileKind,
    /// A wheel's tags; `None` for other kinds.
    pub tags: Option<WheelTags<'a>>,
}

/// Endings of release files in lower case, with their kinds. A longer ending comes before one that it ends in. The
/// set is devpi's.
const ENDINGS: [(&str, FileKind); 12] = [
    (".whl", FileKind::Wheel),
    (".tar.gz", FileKind::Sdist),
    (".tar.bz2", FileKind::Sdist),
    (".tgz", FileKind::Sdist),
    (".zip", FileKind::Sdist),
    (".egg", FileKind::Egg),
    (".exe", FileKind::WindowsInstaller),
    (".msi", FileKind::Msi),
    (".dmg", FileKind::Dmg),
    (".rpm", FileKind::Rpm),
    (".deb", FileKind::Deb),
    (".bz2", FileKind::Other),
];

/// Endings of sources that only upstreams have, in lower case: installers read most of them.
const UPSTREAMS_ENDINGS: [(&str, FileKind); 12] = [
    (".tar.xz", FileKind::Sdist),
    (".tar.zst", FileKind::Sdist),
    (".tar.lzma", FileKind::Sdist),
    (".tar.lz", FileKind::Sdist),
    (".tar.z", FileKind::Sdist),
    (".tar", FileKind::Sdist),
    (".txz", FileKind::Sdist),
    (".tzst", FileKind::Sdist),
    (".tbz", FileKind::Sdist),
    (".tbz2", FileKind::Sdist),
    (".tlz", FileKind::Sdist),
    (".pyz", FileKind::Other),
];

impl Filename {
    /// Most bytes in a name: what file systems allow.
    pub const BYTES_MAX: usize = 255;

    /// Parses the name of a release file of any project.
    ///
    /// # Errors
    /// [`FilenameError`], depending on what is wrong. A name that ends in `.whl` may have any text before that.
    pub fn parse(text: &str) -> Result<Filename, FilenameError> {
        check_segment(text)?;
        Filename::archive(text)
    }

    /// Parses the name of a file on an upstream's page, which may also have an ending that no upload may have.
    ///
    /// # Errors
    /// [`FilenameError`], as of [`Filename::parse`].
    pub fn of_upstream(text: &str) -> Result<Filename, FilenameError> {
        check_segment(text)?;
        match ending_of_any(text) {
            Some(_) => Ok(Filename(text.into())),
            None => Err(FilenameError::NotAnArchive(text.to_owned())),
        }
    }

    /// Checks the name of an uploaded file in devpi's order: it has the version, has an archive's ending, and begins
    /// with the project's name. Path tricks are refused before that, and after it a name that installers cannot
    /// parse.
    ///
    /// The rules differ from devpi's in this: the parts of the name must be the project and the version, compared
    /// whole, by PEP 503 and PEP 440. `foobar-1.0.zip` is not a file of `foo`, and `foo-1.0.1.zip` is not one of `1.0`.
    ///
    /// # Errors
    /// [`FilenameError`] for the first rule that the name breaks.
    pub fn of_upload(
        text: &str,
        project: &str,
        version: &Version,
    ) -> Result<Filename, FilenameError> {
        check_segment(text)?;
        let other_version =
            || FilenameError::Version { filename: text.to_owned(), version: version.to_string() };
        let Ok(filename) = Filename::archive(text) else {
            let is_of_version = contains_version(text, &normalized(project), version);
            let not_an_archive = || FilenameError::NotAnArchive(text.to_owned());
            return Err(if is_of_version { not_an_archive() } else { other_version() });
        };
        let project_normalized = normalized(project);
        let is_of_project = |part: &str| normalized(part) == project_normalized;
        let kind = filename.kind();
        let parts = filename.possible_parts();
        if !parts.iter().any(|(_, rest)| is_version(rest, kind, version)) {
            return Err(match kind {
                FileKind::Wheel if parts.is_empty() => FilenameError::NotAWheel(text.to_owned()),
                _ => other_version(),
            });
        }
        // If only another way to part it gives the version, it is another project's.
        if !parts.iter().any(|(part, rest)| is_of_project(part) && is_version(rest, kind, version))
        {
            let (filename, project) = (text.to_owned(), project.to_owned());
            return Err(FilenameError::Project { filename, project });
        }
        filename.check_installable(version)?;
        Ok(filename)
    }

    /// Each way to part the name into a project and a version, as they are written. A wheel's name has only one.
    fn possible_parts(&self) -> Vec<(&str, &str)> {
        let kind = self.kind();
        if kind == FileKind::Wheel {
            let is_wheel = self.wheel_parts().is_some();
            let mut parts = self.stem().split('-');
            return parts.next().zip(parts.next()).filter(|_| is_wheel).into_iter().collect();
        }
        let stem = without_platform(self.stem(), kind);
        stem.match_indices(['-', '_']).map(|(at, _)| (&stem[..at], &stem[at + 1..])).collect()
    }

    /// Refuses a name that pip and uv pass over, though devpi accepts it.
    fn check_installable(&self, version: &Version) -> Result<(), FilenameError> {
        let kind = self.kind();
        if !matches!(kind, FileKind::Wheel | FileKind::Sdist) {
            return Ok(());
        }
        if version.is_legacy() {
            return Err(FilenameError::LegacyVersion(version.to_string()));
        }
        let ending = &self.0[self.stem().len()..];
        let is_small = !ending.contains(|c: char| c.is_ascii_uppercase());
        match kind {
            FileKind::Wheel if !is_small || self.0.contains("__") => {
                Err(FilenameError::NotAWheel(self.to_string()))
            }
            FileKind::Sdist if !is_small => Err(FilenameError::NotAnArchive(self.to_string())),
            _ => Ok(()),
        }
    }

    /// Checks the name of an uploaded file by devpi's own rules: it contains the version, has an archive's ending,
    /// and begins with the project's name, even if that ends within a word. A wheel's name may lack its tags.
    ///
    /// # Errors
    /// [`FilenameError`] for the first rule that the name breaks.
    pub fn of_upload_to_devpi(
        text: &str,
        project: &str,
        version: &Version,
    ) -> Result<Filename, FilenameError> {
        check_segment(text)?;
        if !contains_version(text, &normalized(project), version) {
            return Err(FilenameError::Version {
                filename: text.to_owned(),
                version: version.to_string(),
            });
        }
        Filename::of_project(text, project)
    }

    /// Checks that the name has an archive's ending and begins with the project's name: older versions of devpi
    /// accept these.
    ///
    /// # Errors
    /// [`FilenameError`] for the first rule that the name breaks.
    pub fn of_project(text: &str, project: &str) -> Result<Filename, FilenameError> {
        let filename = Filename::parse(text)?;
        let project_normalized = normalized(project);
        if !project_normalized.is_empty() && normalized(text).starts_with(&project_normalized) {
            return Ok(filename);
        }
        let (filename, project) = (text.to_owned(), project.to_owned());
        Err(FilenameError::Project { filename, project })
    }

    fn archive(text: &str) -> Result<Filename, FilenameError> {
        match ending(text) {
            Some(_) => Ok(Filename(text.into())),
            None => Err(FilenameError::NotAnArchive(text.to_owned())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind that the ending stands for.
    pub fn kind(&self) -> FileKind {
        ending_of_any(&self.0).map_or(FileKind::Other, |(_, kind)| kind)
    }

    /// Whether a source archive's name has a platform: it is a binary, which no installer looks for.
    pub(crate) fn names_platform(&self) -> bool {
        self.kind() == FileKind::Sdist
            && without_platform(self.stem(), FileKind::Sdist) != self.stem()
    }

    /// The name without its ending: `foo-1.0` for `foo-1.0.tar.gz`.
    pub fn stem(&self) -> &str {
        ending_of_any(&self.0).map_or(&self.0, |(stem, _)| stem)
    }

    /// The parts of the name. Only a wheel's name is unambiguous. If `project` is given, it is clear where that ends
    /// in other names too; the result is `None` for a file of another project.
    ///
    /// Without `project`, the version begins after the first hyphen whose rest is a PEP 440 version, or else after
    /// the first hyphen before a digit.
    pub fn split(&self, project: Option<&ProjectName>) -> Option<FilenameParts<'_>> {
        let kind = self.kind();
        let parts = match kind {
            FileKind::Wheel => self.wheel_parts()?,
            _ => {
                let wanted = project.map(ProjectName::as_str);
                let (project, version) = split_stem(without_platform(self.stem(), kind), wanted)?;
                FilenameParts { project, version: Version::parse(version).ok(), kind, tags: None }
            }
        };
        let is_wanted = project.is_none_or(|wanted| normalized(parts.project) == wanted.as_str());
        is_wanted.then_some(parts)
    }

    /// The upload form's `filetype` for a file that arrived without a form.
    pub fn filetype(&self) -> &'static str {
        match self.kind() {
            FileKind::Wheel => "bdist_wheel",
            FileKind::Sdist => "sdist",
            FileKind::Egg => "bdist_egg",
            FileKind::WindowsInstaller => "bdist_wininst",
            FileKind::Msi => "bdist_msi",
            FileKind::Dmg => "bdist_dmg",
            FileKind::Rpm => "bdist_rpm",
            FileKind::Deb | FileKind::Other => "bdist_dumb",
        }
    }

    /// The upload form's `pyversion` for a file that arrived without a form: `source`, a wheel's interpreters
    /// (`py3`), an egg's or installer's `2.7`, or `any`.
    pub fn pyversion(&self) -> &str {
        match self.kind() {
            FileKind::Wheel => {
                self.wheel_parts().and_then(|parts| parts.tags).map_or("any", |tags| tags.python)
            }
            FileKind::Sdist => "source",
            _ => python_suffix(self.stem()).map_or("any", |(_, version)| version),
        }
    }

    /// The parts of a wheel's name (PEP 427); `None` unless it has five or six.
    fn wheel_parts(&self) -> Option<FilenameParts<'_>> {
        let parts: Vec<&str> = self.stem().split('-').collect();
        let (project, version, build, [python, abi, platform]) = match parts[..] {
            [project, version, python, abi, platform] => {
                (project, version, None, [python, abi, platform])
            }
            [project, version, build, python, abi, platform] => {
                (project, version, Some(build), [python, abi, platform])
            }
            _ => return None,
        };
        let is_name = |text: &str| text.starts_with(|first: char| first.is_ascii_alphanumeric());
        let is_tag = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte))
        };
        let is_build =
            build.is_none_or(|build| build.starts_with(|first: char| first.is_ascii_digit()));
        if !is_name(project) || !is_build || ![python, abi, platform].into_iter().all(is_tag) {
            return None;
        }
        Some(FilenameParts {
            project,
            version: Some(wheel_version(version)?),
            kind: FileKind::Wheel,
            tags: Some(WheelTags { build, python, abi, platform }),
        })
    }
}

/// Checks that `text` can be the name of a file on disk and one segment of a URL. This also applies to names of other
/// files than releases (documentation, test results).
///
/// # Errors
/// [`FilenameError::Empty`], [`FilenameError::TooLong`], [`FilenameError::Unsafe`].
pub fn check_segment(text: &str) -> Result<(), FilenameError> {
    if text.is_empty() {
        return Err(FilenameError::Empty);
    }
    if text.len() > Filename::BYTES_MAX {
        return Err(FilenameError::TooLong(text.len()));
    }
    let what = match text {
        _ if text.starts_with('.') => Some("a leading dot"),
        _ if text.trim() != text => Some("white space at an end"),
        _ => text.chars().find_map(unsafe_in_path),
    };
    match what {
        Some(what) => Err(FilenameError::Unsafe { filename: text.to_owned(), what }),
        None => Ok(()),
    }
}

/// `text` before its ending, and the kind of that; `None` if it is not the ending of a release file.
fn ending(text: &str) -> Option<(&str, FileKind)> {
    ending_among(&ENDINGS, text)
}

/// The same, also for files that only upstreams have.
fn ending_of_any(text: &str) -> Option<(&str, FileKind)> {
    ending(text).or_else(|| ending_among(&UPSTREAMS_ENDINGS, text))
}

fn ending_among<'text>(
    endings: &[(&str, FileKind)],
    text: &'text str,
) -> Option<(&'text str, FileKind)> {
    endings.iter().find_map(|&(ending, kind)| {
        let stem_bytes = text.len().checked_sub(ending.len()).filter(|&bytes| bytes > 0)?;
        let (stem, found) = text.split_at_checked(stem_bytes)?;
        found.eq_ignore_ascii_case(ending).then_some((stem, kind))
    })
}

/// Whether `text`, from the name of a file of this kind, is `version`. Builders of binaries escape what follows PEP 440
/// nowhere; those of Linux packages append the package's own number.
fn is_version(text: &str, kind: FileKind, version: &Version) -> bool {
    let is = |text: &str| Version::parse(text).is_ok_and(|found| found.is_same_release(version));
    match kind {
        FileKind::Wheel | FileKind::Sdist => is(text),
        FileKind::Rpm | FileKind::Deb => {
            is(text) || text.rsplit_once('-').is_some_and(|(text, _)| is(text))
        }
        _ => is(text) || escaped(text) == escaped(version.as_str()),
    }
}

/// Whether `filename` contains `version`: unchanged, with runs of anything but letters, digits, `_` and `.` replaced
/// by `_`, or as a version that is the same release.
fn contains_version(filename: &str, project: &str, version: &Version) -> bool {
    if filename.contains(version.as_str()) {
        return true;
    }
    if filename.contains(&escaped(version.as_str())) {
        return true;
    }
    let project = ProjectName::normalize(project).ok();
    let parsed = Filename::archive(filename).ok();
    let found = parsed.as_ref().and_then(|filename| filename.split(project.as_ref())?.version);
    found.is_some_and(|found| found.is_same_release(version))
}

/// `version` with each run of anything but letters, digits, `_` and `.` replaced by one `_`.
fn escaped(version: &str) -> String {
    let mut escaped = String::with_capacity(version.len());
    let mut in_run = false;
    for character in version.chars() {
        let is_kept = character.is_alphanumeric() || character == '_' || character == '.';
        if is_kept {
            escaped.push(character);
        } else if !in_run {
            escaped.push('_');
        }
        in_run = !is_kept;
    }
    escaped
}

/// The version that a wheel's name has as `text`: old builders escape `-` and `+` to `_`.
fn wheel_version(text: &str) -> Option<Version> {
    let version = Version::parse(text).ok()?;
    if !version.is_legacy() {
        return Some(version);
    }
    let local = Version::parse(&text.replacen('_', "+", 1)).ok()?;
    Some(if local.is_legacy() { version } else { local })
}

/// `stem` without the suffix that builders of binaries append to the version.
fn without_platform(stem: &str, kind: FileKind) -> &str {
    match kind {
        FileKind::Wheel | FileKind::Other => stem,
        FileKind::Sdist => {
            // A "dumb" binary: `foo-1.0.linux-x86_64`, `foo-1.0.macosx-10.9-x86_64`, `foo-1.0.win32`.
            let cut = [".linux-", ".macosx-", ".win32", ".win-"]
                .into_iter()
                .filter_map(|mark| stem.find(mark))
                .min();
            &stem[..cut.unwrap_or(stem.len())]
        }
        FileKind::Egg | FileKind::Dmg => python_suffix(stem).map_or(stem, |(rest, _)| rest),
        FileKind::WindowsInstaller | FileKind::Msi => {
            let rest = python_suffix(stem).map_or(stem, |(rest, _)| rest);
            [".win32", ".win-amd64", ".win-arm64", ".win-ia64"]
                .into_iter()
                .find_map(|platform| rest.strip_suffix(platform))
                .unwrap_or(rest)
        }
        // In `foo-1.0-1.noarch` and `foo_1.0-1_all`, the package's own number cannot be told from the version and
        // stays with it.
        FileKind::Rpm => stem.rsplit_once('.').map_or(stem, |(rest, _)| rest),
        FileKind::Deb => stem.rsplit_once('_').map_or(stem, |(rest, _)| rest),
    }
}

/// The text before `-py2.7`, and the `2.7`.
fn python_suffix(stem: &str) -> Option<(&str, &str)> {
    let (at, _) = stem.rmatch_indices("-py").next()?;
    let version = &stem[at + 3..];
    let version = version.split('-').next().unwrap_or(version);
    version.starts_with(|first: char| first.is_ascii_digit()).then_some((&stem[..at], version))
}

/// Project and version of `stem`; with `wanted`, only for that project.
fn split_stem<'a>(stem: &'a str, wanted: Option<&str>) -> Option<(&'a str, &'a str)> {
    let separators = if stem.contains('-') { ['-', '-'] } else { ['-', '_'] };
    let splits = || {
        stem.match_indices(separators)
            .map(|(at, _)| (&stem[..at], &stem[at + 1..]))
            .filter(|(project, _)| !project.is_empty())
            .filter(|(project, _)| wanted.is_none_or(|wanted| normalized(project) == wanted))
    };
    let is_pep_440 =
        |version: &str| Version::parse(version).is_ok_and(|version| !version.is_legacy());
    let has_digit = |version: &str| version.starts_with(|first: char| first.is_ascii_digit());
    splits()
        .find(|(_, version)| is_pep_440(version))
        .or_else(|| splits().find(|(_, version)| has_digit(version)))
        .or_else(|| splits().next())
        .or_else(|| {
            let is_wanted = wanted.is_none_or(|wanted| normalized(stem) == wanted);
            is_wanted.then_some((stem, ""))
        })
}

/// Text in quotes as Python's `%r` writes it, for messages that clients compare.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = if self.0.contains('\'') && !self.0.contains('"') { '"' } else { '\'' };
        write!(formatter, "{quote}")?;
        for character in self.0.chars() {
            match character {
                '\\' => formatter.write_str("\\\\")?,
                '\n' => formatter.write_str("\\n")?,
                '\r' => formatter.write_str("\\r")?,
                '\t' => formatter.write_str("\\t")?,
                _ if character == quote => write!(formatter, "\\{quote}")?,
                _ if character.is_control() => write!(formatter, "\\x{:02x}", character as u32)?,
                _ => write!(formatter, "{character}")?,
            }
        }
        write!(formatter, "{quote}")
    }
}

record::checked_text!(Filename, FilenameError);
record::found_by_text!(Filename);
record::stored_as_text!(Filename, Filename::parse, FilenameError);

#[cfg(test)]
mod tests;
