//! [`SiteFiles`]: which file of a static site has what this server has at a path, so that pages link to each other without a server.
//!
//! paths of this server, as pages link to them -> [`PageFile::to`] -> paths from one file to another. They work below any prefix,
//! and from a disk.

use std::collections::HashMap;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::display::in_path;

/// The files of a site, by the paths that this server has for what is in them.
#[derive(Debug, Default)]
pub(crate) struct SiteFiles {
    /// Paths without a fragment; names of articles are encoded as pages encode them.
    pub(crate) by_path: HashMap<String, String>,
    /// The style sheet, the script and the icon of all pages.
    pub(crate) style: String,
    pub(crate) script: String,
    pub(crate) icon: String,
    /// The operator's logo.
    pub(crate) logo: Option<String>,
}

/// A page that is a file of a site.
#[derive(Clone, Debug)]
pub(crate) struct PageFile {
    pub(crate) site: Arc<SiteFiles>,
    /// Its own path below the folder of the site.
    pub(crate) own: String,
}

impl PageFile {
    /// The link to what this server has at a path; `None` if the site does not have it.
    pub(crate) fn to(&self, path: &str) -> Option<String> {
        let (path, fragment) = match path.find('#') {
            Some(at) => path.split_at(at),
            None => (path, ""),
        };
        let file = self.site.by_path.get(path).or_else(|| {
            // As somebody wrote it.
            let name = percent_decode_str(path.strip_prefix("/article/")?).decode_utf8().ok()?;
            self.site.by_path.get(&format!("/article/{}", in_path(&name)))
        })?;
        Some(format!("{}{fragment}", self.file(file)))
    }

    /// The link to a file of the site.
    pub(crate) fn file(&self, file: &str) -> String {
        // The folders that both are in.
        let shared = self.own.bytes().zip(file.bytes()).take_while(|(one, other)| one == other);
        let shared = self.own[..self.own.floor_char_boundary(shared.count())].rfind('/');
        let shared = shared.map_or(0, |at| at + 1);
        let up = "../".repeat(self.own[shared..].matches('/').count());
        format!("{up}{}", in_path(&file[shared..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_file_to_file() {
        let by_path = [
            ("/articles", "index.html"),
            ("/article/guide/a%20b", "guide/a-b.html"),
            ("/article/%C3%A9", "é.html"),
            ("/article/guide/more/x", "guide/more/x.html"),
        ];
        let by_path = by_path.map(|(path, file)| (path.to_owned(), file.to_owned()));
        let site = Arc::new(SiteFiles { by_path: by_path.into(), ..SiteFiles::default() });
        let check = |own: &str, path: &str, expected: Option<&str>| {
            let page = PageFile { site: site.clone(), own: own.to_owned() };
            assert_eq!(page.to(path).as_deref(), expected, "{path} from {own}");
        };
        check("index.html", "/articles", Some("index.html"));
        check("guide/more/x.html", "/articles", Some("../../index.html"));
        check("guide/more/x.html", "/article/guide/a%20b#u-c", Some("../a-b.html#u-c"));
        check("guide/a-b.html", "/article/guide/more/x", Some("more/x.html"));
        check("guides/a.html", "/article/guide/more/x", Some("../guide/more/x.html"));
        check("a.html", "/article/é", Some("%C3%A9.html"));
        check("ê/a.html", "/article/%c3%a9", Some("../%C3%A9.html"));
        check("a.html", "/article/guide/%61 b", Some("guide/a-b.html"));
        check("a.html", "/article/none", None);
        check("a.html", "/articles?prefix=none%2F", None);
    }
}
