//! Tells the media type from an article's name, for a text that was sent without one.

use crate::{ArticleName, ContentType};

/// Endings of names in lower case, each with its media type.
const ENDINGS: [(&str, &str); 48] = [
    ("7z", "application/x-7z-compressed"),
    ("adoc", "text/asciidoc"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("diff", "text/x-diff"),
    ("epub", "application/epub+zip"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("log", "text/plain"),
    ("markdown", "text/markdown"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("patch", "text/x-diff"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("rst", "text/x-rst"),
    ("sh", "application/x-sh"),
    ("sql", "application/sql"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tex", "application/x-tex"),
    ("toml", "application/toml"),
    ("tsv", "text/tab-separated-values"),
    ("txt", "text/plain"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("woff2", "font/woff2"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

/// The media type that the end of a name stands for; `None` if this table does not know it.
pub fn of_name(name: &ArticleName) -> Option<ContentType> {
    let segment = name.as_str().rsplit('/').next()?;
    let (stem, ending) = segment.rsplit_once('.')?;
    let ending = ending.to_ascii_lowercase();
    let at = ENDINGS.binary_search_by(|(known, _)| (*known).cmp(&ending)).ok()?;
    // A name that is only an extension, such as `.md`, is a hidden file without one.
    let told = (!stem.is_empty()).then(|| ENDINGS[at].1)?;
    ContentType::parse(told).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Option<&str>) {
        let name = ArticleName::parse(name).expect("a name");
        let found = of_name(&name);
        assert_eq!(found.as_ref().map(ContentType::as_str), expected, "{name}");
    }

    #[test]
    fn a_name_tells_a_media_type() {
        check("guide/start.md", Some("text/markdown"));
        check("READ.ME.MarkDown", Some("text/markdown"));
        check("logo.svg", Some("image/svg+xml"));
        check("v1.0/notes", None);
        check("notes.", None);
        check("notes", None);
        check("a/.md", None);
        check("a.md/b", None);
        check("a.unknown", None);
    }

    #[test]
    fn every_ending_is_found_and_tells_a_media_type() {
        for (ending, told) in ENDINGS {
            check(&format!("x.{ending}"), Some(told));
        }
    }
}
