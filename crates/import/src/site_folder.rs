//! A static site as a folder: names of files that every system and every file server takes, and a folder that is there whole or
//! not at all.
//!
//! names of articles and their files -> [`FileNames`] -> paths below the folder; bytes -> [`SiteFolder`], a new folder beside the
//! wanted one, which takes its place at the end.
//!
//! Whoever opens a file of the site gets it from a server that knows nothing of Larder, so its ending decides what a browser does
//! with it: only endings of files that no browser runs are kept.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use record::Digest;
use serde::Serialize;
use store::BlobStore;

use crate::article_folder::{Omission, whole_prefix};
use crate::articles_export::write_blob;

/// What to export as a static site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteExport {
    /// The folder, which is empty or does not exist.
    pub directory: PathBuf,
    /// Only articles in this folder of names. Empty for all.
    pub prefix: String,
    /// Also drafts.
    pub with_drafts: bool,
    /// Even if not everybody may read articles.
    pub with_private: bool,
}

/// The outcome of such an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SiteReport {
    /// Articles that are pages now.
    pub pages: u64,
    /// Lists: of what is in a folder, and of the articles with a tag.
    pub lists: u64,
    /// Other files: attachments, pictures, and articles that are no text.
    pub files: u64,
    /// What was not exported.
    pub left_out: Vec<Omission>,
}

impl SiteReport {
    /// A summary of what was not exported; `None` if the export is complete.
    pub fn shortfall(&self) -> Option<String> {
        Omission::shortfall(&self.left_out, "exported")
    }
}

impl fmt::Display for SiteReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for left_out in &self.left_out {
            writeln!(formatter, "failure: {left_out}")?;
        }
        let SiteReport { pages, lists, files, .. } = self;
        writeln!(formatter, "articles: {pages}, lists: {lists}, other files: {files}")
    }
}

impl SiteExport {
    /// The folder of names that is exported, with a slash at its end; empty for all.
    ///
    /// # Errors
    /// If no article's name can begin so.
    pub fn whole_prefix(&self) -> anyhow::Result<String> {
        Ok(whole_prefix(&self.prefix)?)
    }
}

/// Bytes in the name of a file or a folder, without its ending, and in a path. Some systems take no more than 260 in all.
const NAME_BYTES_MAX: usize = 80;
const PATH_BYTES_MAX: usize = 180;

/// Where what would have a longer path is.
const LONG: &str = "long";

/// Endings that are kept. No browser runs what is in such a file, and no server does.
const ENDINGS: [&str; 50] = [
    "7z", "avif", "bmp", "bz2", "csv", "deb", "diff", "doc", "docx", "epub", "flac", "gif", "gz",
    "ico", "jpeg", "jpg", "json", "log", "m4a", "md", "mov", "mp3", "mp4", "odp", "ods", "odt",
    "ogg", "otf", "patch", "pdf", "png", "pptx", "rpm", "rst", "tar", "tgz", "toml", "tsv", "ttf",
    "txt", "wav", "webm", "webp", "whl", "woff", "woff2", "xlsx", "xz", "zip", "zst",
];

/// Pictures of dots: their media types and endings, the first of which a picture without any gets.
const PICTURES: [(&str, &[&str]); 5] = [
    ("image/avif", &["avif"]),
    ("image/gif", &["gif"]),
    ("image/jpeg", &["jpg", "jpeg"]),
    ("image/png", &["png"]),
    ("image/webp", &["webp"]),
];

/// Names that Windows has for devices, whatever follows a dot.
const DEVICES: [&str; 4] = ["AUX", "CON", "NUL", "PRN"];

/// The paths of a site's files, below its folder and with slashes. No two are the same, or differ only in what some systems do not
/// tell apart.
#[derive(Debug, Default)]
pub struct FileNames {
    /// Folded.
    taken: HashSet<String>,
    /// The paths of folders, by the names of articles that they are made of.
    folders: BTreeMap<String, String>,
}

impl FileNames {
    /// The path of a folder of names, with a slash at its end; empty for the root.
    pub fn folder(&mut self, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        if let Some(known) = self.folders.get(name) {
            return known.clone();
        }
        let (above, own) = name.rsplit_once('/').unwrap_or(("", name));
        let above = self.folder(above);
        let path = format!("{}/", self.take(&above, own, ""));
        self.folders.insert(name.to_owned(), path.clone());
        path
    }

    /// The path of a page in a folder, whose path has a slash at its end.
    pub fn page(&mut self, folder: &str, name: &str) -> String {
        let endings = [".md", ".rst", ".html", ".txt"];
        let shorter = endings.iter().find_map(|ending| name.strip_suffix(ending));
        self.take(folder, shorter.filter(|it| !it.is_empty()).unwrap_or(name), ".html")
    }

    /// The path of any other file. Its media type counts if it is a picture; else its name does.
    pub fn file(&mut self, folder: &str, name: &str, essence: &str) -> String {
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
        let ending = ending.to_ascii_lowercase();
        let picture = PICTURES.iter().find(|(media_type, _)| *media_type == essence);
        let is_kept = match picture {
            Some((_, endings)) => endings.contains(&ending.as_str()),
            None => ENDINGS.contains(&ending.as_str()),
        };
        if is_kept && !stem.is_empty() {
            return self.take(folder, stem, &format!(".{ending}"));
        }
        let ending = picture.map_or("bin", |(_, endings)| endings[0]);
        self.take(folder, name, &format!(".{ending}"))
    }

    fn take(&mut self, folder: &str, name: &str, ending: &str) -> String {
        let stem = safe(name);
        let digest = Digest::of(format!("{folder}{name}{ending}").as_bytes()).to_string();
        let plain = format!("{folder}{stem}{ending}");
        if plain.len() > PATH_BYTES_MAX {
            let path = format!("{LONG}/{digest}{ending}");
            self.taken.insert(path.clone());
            return path;
        }
        let others = (8..digest.len()).map(|digits| &digest[..digits]);
        let others = others.map(|digits| format!("{folder}{stem}-{digits}{ending}"));
        let mut paths = std::iter::once(plain).chain(others);
        // The whole digest is nobody else's.
        let free = paths.find(|path| self.taken.insert(folded(path)));
        free.unwrap_or_else(|| format!("{folder}{digest}{ending}"))
    }
}

/// Whether a page may show the file as a picture.
pub fn is_picture(path: &str) -> bool {
    let ending = path.rsplit('.').next().unwrap_or_default();
    PICTURES.iter().any(|(_, endings)| endings.contains(&ending))
}

/// What file systems may not tell apart is the same here.
fn folded(path: &str) -> String {
    path.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// A name without characters that have a meaning somewhere, and of which no part is an ending: some servers run `shell.php.txt`.
fn safe(name: &str) -> String {
    let mut safe = String::new();
    for (at, character) in name.char_indices() {
        let rest = &name[at + character.len_utf8()..];
        let is_kept = match character {
            '-' | '_' => true,
            // As in `larder-1.2.tar.gz`.
            '.' => rest == "tar" || rest.starts_with(|next: char| next.is_ascii_digit()),
            other => other.is_alphanumeric(),
        };
        if safe.len() + character.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        safe.push(if is_kept { character } else { '-' });
    }
    let mut safe = safe.trim_matches(['-', '.']).to_owned();
    let first = safe.split('.').next().unwrap_or_default().to_uppercase();
    let port = first.strip_prefix("COM").or_else(|| first.strip_prefix("LPT"));
    let is_port =
        port.is_some_and(|it| it.chars().count() == 1 && it.chars().all(char::is_numeric));
    if safe.is_empty() || is_port || DEVICES.contains(&first.as_str()) {
        safe.push('_');
    }
    safe
}

/// A folder in the making: nobody sees it at its place until it is whole, and if it never is, it is removed.
#[derive(Debug)]
pub struct SiteFolder {
    directory: PathBuf,
    new: PathBuf,
}

impl SiteFolder {
    /// Begins a folder in the place of `directory`, which must be empty or not exist. With `is_private`, only this user may read it.
    ///
    /// # Errors
    /// If it has something in it, or cannot be made.
    pub fn begin(directory: &Path, is_private: bool) -> anyhow::Result<SiteFolder> {
        let shown = directory.display();
        match fs::read_dir(directory) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    bail!("`{shown}` is not empty: a new or an empty folder was expected");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("`{shown}` cannot be read")),
        }
        let unusable = || format!("`{shown}` cannot be made");
        let directory = std::path::absolute(directory).with_context(unusable)?;
        let (Some(above), Some(name)) = (directory.parent(), directory.file_name()) else {
            bail!("`{shown}` is not a folder that can be made");
        };
        let name = format!(".{}.{}.new", name.to_string_lossy(), std::process::id());
        let new = above.join(name);
        fs::create_dir_all(above).with_context(unusable)?;
        let mode = if is_private { 0o700 } else { 0o777 };
        DirBuilder::new().mode(mode).create(&new).with_context(unusable)?;
        Ok(SiteFolder { new, directory })
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// Those of writing, with its path.
    pub fn write(&self, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let place = self.new.join(path);
        let unwritable = || format!("`{}` cannot be written", place.display());
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).with_context(unwritable)?;
        }
        let mut file = fs::File::create_new(&place).with_context(unwritable)?;
        io::Write::write_all(&mut file, bytes).with_context(unwritable)
    }

    /// Writes a blob to a new file. The inner error says why it is left out.
    ///
    /// # Errors
    /// Those of reading and of writing.
    pub async fn write_blob(
        &self,
        blobs: &BlobStore,
        path: &str,
        (digest, size_bytes): (Digest, u64),
    ) -> anyhow::Result<Result<(), String>> {
        let mut no_notes = |_: &[u8]| ();
        write_blob(&self.new, blobs, path, (digest, size_bytes), &mut no_notes).await
    }

    /// Puts the folder into its place.
    ///
    /// # Errors
    /// If there is something by now, or the place is not one for a folder.
    pub fn finish(self) -> anyhow::Result<()> {
        let shown = self.directory.display();
        fs::rename(&self.new, &self.directory).with_context(|| {
            format!("the finished folder cannot be moved to `{shown}`: an empty folder that is no mount point was expected")
        })
    }
}

impl Drop for SiteFolder {
    fn drop(&mut self) {
        // It is gone if it was finished.
        let _ = fs::remove_dir_all(&self.new);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_safe_everywhere() {
        for (name, expected) in [
            ("start", "start"),
            ("Über uns", "Über-uns"),
            ("v1.2", "v1.2"),
            ("larder-1.2.tar", "larder-1.2.tar"),
            ("shell.php", "shell-php"),
            (".htaccess", "htaccess"),
            ("a:b*c?d\"e<f>g|h", "a-b-c-d-e-f-g-h"),
            ("x.", "x"),
            ("con", "con_"),
            ("Com1.2", "Com1.2_"),
            ("lpt¹", "lpt¹_"),
            ("???", "_"),
            ("+", "_"),
        ] {
            assert_eq!(safe(name), expected);
        }
        assert_eq!(safe(&"é".repeat(100)).len(), NAME_BYTES_MAX);
    }

    #[test]
    fn endings_are_those_of_files_that_nobody_runs() {
        let check = |name: &str, essence: &str, expected: &str| {
            assert_eq!(FileNames::default().file("a/", name, essence), expected, "{name}");
        };
        check("plan.PNG", "image/png", "a/plan.png");
        check("plan", "image/jpeg", "a/plan.jpg");
        check("plan.txt", "image/png", "a/plan-txt.png");
        check("data.csv", "text/csv", "a/data.csv");
        check("larder-1.2.tar.gz", "application/gzip", "a/larder-1.2.tar.gz");
        for active in ["html", "svg", "js", "xml", "php", "xhtml", "shtml", "cgi", "css", "mht"] {
            let name = format!("evil.{active}");
            check(&name, "application/octet-stream", &format!("a/evil-{active}.bin"));
            check(&format!("{name}.txt"), "text/plain", &format!("a/evil-{active}.txt"));
        }
        check("logo.svg", "image/svg+xml", "a/logo-svg.bin");
        assert!(!is_picture("a/logo-svg.bin") && is_picture("a/plan.png"));
    }

    #[test]
    fn no_two_files_meet() {
        let mut names = FileNames::default();
        assert_eq!(names.page("", "Start.md"), "Start.html");
        let others =
            [names.page("", "start"), names.page("", "start.html"), names.page("", "START")];
        for other in &others {
            assert!(
                other.to_lowercase().starts_with("start-") && other.ends_with(".html"),
                "{other}"
            );
        }
        assert_eq!(names.folder("a b/c"), "a-b/c/");
        assert_eq!(names.folder("a b"), "a-b/");
        let other = names.folder("a:b");
        assert!(other.starts_with("a-b-"), "{other}");
        let deep = vec!["x".repeat(70); 7].join("/");
        let folder = names.folder(&deep);
        let page = names.page(&folder, "page");
        assert!(page.len() <= PATH_BYTES_MAX + 10, "{page}");
    }

    proptest! {
        #[test]
        fn any_names_have_safe_paths(all in prop::collection::vec(".{1,40}", 1..12)) {
            let mut names = FileNames::default();
            let mut seen = HashSet::new();
            for name in &all {
                let folder = names.folder(&name.replace('\\', "/"));
                for path in [names.page(&folder, name), names.file("", name, "image/png")] {
                    prop_assert!(seen.insert(path.to_lowercase()), "{path}");
                    prop_assert!(!path.contains(['\\', ':', '*', '?', '"', '<', '>', '|', '%', '#', ' ', '\0']));
                    prop_assert!(path.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with('.')));
                }
            }
        }
    }

    #[test]
    fn a_folder_is_whole_or_not_there() {
        let above = tempfile::tempdir().expect("a directory");
        let names = || {
            let entries = fs::read_dir(above.path()).expect("a folder");
            entries.map(|it| it.expect("an entry").file_name()).collect::<Vec<_>>()
        };
        let place = above.path().join("site");
        let begun = SiteFolder::begin(&place, false).expect("a folder");
        begun.write("a/b.html", b"x").expect("a file");
        assert!(!place.exists());
        drop(begun);
        assert!(names().is_empty());
        fs::create_dir(&place).expect("an empty folder");
        let begun = SiteFolder::begin(&place, true).expect("a folder");
        begun.write("a/b.html", b"x").expect("a file");
        begun.finish().expect("in its place");
        assert_eq!(
            (names().len(), fs::read(place.join("a/b.html")).expect("a file")),
            (1, b"x".to_vec())
        );
        for (at, expected) in [
            ("", "`PLACE` is not empty: a new or an empty folder was expected"),
            ("/a/b.html", "`PLACE` cannot be read: Not a directory (os error 20)"),
        ] {
            let place = format!("{}{at}", place.display());
            let error = SiteFolder::begin(Path::new(&place), false).expect_err("it is there");
            assert_eq!(format!("{error:#}").replace(&place, "PLACE"), expected);
        }
    }
}
