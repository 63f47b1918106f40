//! [`Names`]: the names in a path of this surface, each parsed once, before anything is looked up.

use http::Method;
use operations::releases::FilePlace;
use pypi::{Directory, ProjectName, ResolutionOrder, Version};

use super::ask::Ask;
use crate::routes::{Place, Route, Tree};

/// The names in a path, percent-decoded, and its place in the table. A name that the path does not have is empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Names {
    pub(crate) place: &'static Place,
    pub(crate) user: String,
    /// `user/index`
    pub(crate) stage: String,
    pub(crate) project: Project,
    pub(crate) version: String,
    pub(crate) file: FilePath,
}

/// A project, as a path names it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Project {
    pub(crate) as_sent: String,
    /// None: no project can be called so.
    pub(crate) name: Option<ProjectName>,
}

impl Project {
    /// Whether it is written in the canonical spelling.
    pub(crate) fn is_normalized(&self) -> bool {
        self.name.as_ref().is_some_and(|name| name.as_str() == self.as_sent)
    }
}

/// The words in paths that a file's names follow.
const ABOVE_FILES: [&str; 7] = ["+f", "+e", "+upstream", "+doc", "+d", "+toxresults", "+contents"];

/// The names after one of [`ABOVE_FILES`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FilePath {
    pub(crate) names: Vec<String>,
    directory: Option<Directory>,
}

impl FilePath {
    fn of(names: Vec<String>) -> FilePath {
        let directory = match names.as_slice() {
            [first, second, _] => Directory::parse(first, second),
            _ => None,
        };
        FilePath { names, directory }
    }

    /// The path of a file with this name in this directory.
    pub(crate) fn new(directory: Directory, filename: String) -> FilePath {
        let text = directory.to_string();
        let (first, second) = text.split_once('/').unwrap_or_default();
        FilePath {
            names: vec![first.to_owned(), second.to_owned(), filename],
            directory: Some(directory),
        }
    }

    /// The directory and the name of a release file, if it is the path of one.
    pub(crate) fn place(&self) -> Option<(Directory, &str)> {
        Some((self.directory?, self.names.last()?))
    }

    /// The release file, if it is the path of one.
    pub(crate) fn file(&self) -> Option<FilePlace> {
        let (directory, filename) = self.place()?;
        Some(FilePlace { directory, filename: filename.to_owned() })
    }

    /// As it was sent.
    pub(crate) fn joined(&self) -> String {
        self.names.join("/")
    }
}

impl Names {
    /// The names in a path of this tree. With a method, places that have it go first. `None` for a path without a place here: an
    /// escaped slash or bytes that are not UTF-8 within a name, dots for a name, or more names than any place has.
    pub(crate) fn parse(path: &str, method: Option<&Method>) -> Option<Names> {
        let route = Route::find(Tree::Python, path, method)?;
        let name = |placeholder| route.name(placeholder).into_owned();
        let (user, index, project) = (name("{user}"), name("{index}"), name("{project}"));
        let stage = if index.is_empty() { String::new() } else { format!("{user}/{index}") };
        let file = match route.place.path.ends_with("/{filename}/provenance") {
            true => vec![name("{filename}")],
            false => route.names_below(&ABOVE_FILES),
        };
        Some(Names {
            place: route.place,
            user,
            stage,
            project: Project { name: ProjectName::normalize(&project).ok(), as_sent: project },
            version: name("{version}"),
            file: FilePath::of(file),
        })
    }

    /// This path below `simple` as one of the project that is called so, or of its version.
    pub(crate) fn of_project_simple(&self) -> Option<Names> {
        let path = match self.place.path {
            "/{user}/{index}/simple" => "/{user}/{index}/{project}",
            "/{user}/{index}/simple/{project}" => "/{user}/{index}/{project}/{version}",
            _ => return None,
        };
        let place = Place::named(Tree::Python, path)?;
        let name = "simple".to_owned();
        let project = Project { name: ProjectName::parse(&name).ok(), as_sent: name };
        let version = self.project.as_sent.clone();
        Some(Names { place, project, version, ..self.clone() })
    }

    /// The stage in the path; `None` for `+api`, which all clients may read to find out where to log in.
    pub(crate) fn stage(&self) -> Option<&str> {
        let has_stage = !self.stage.is_empty() && !self.place.path.ends_with("/+api");
        has_stage.then_some(self.stage.as_str())
    }
}

/// The names in a path below `simple`, which stands for the simple pages, unless a project is called so and is meant: if an index
/// has it, with the version that the path names. Only clients of devpi's API ask mirrors for it.
pub(crate) fn settled(ask: &Ask, names: Names) -> Names {
    let Some(of_project) = names.of_project_simple() else { return names };
    let Some(order) = ResolutionOrder::of(&ask.stored.index, &names.stage) else { return names };
    let version = of_project.version.as_str();
    let is_meant = match order.project(of_project.project.as_sent.as_str()) {
        Some(own) => {
            version.is_empty() || own.versions().iter().any(|it| it.version.as_str() == version)
        }
        None => {
            let is_version = || Version::parse(version).is_ok_and(|it| !it.is_legacy());
            order.has_mirror() && ask.wants_json() && (version.is_empty() || is_version())
        }
    };
    if is_meant { of_project } else { names }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Endpoint;
    use crate::routes::Endpoint::*;

    /// What a path is of, and `stage project version file` of it.
    #[track_caller]
    fn check(method: &str, path: &str, endpoint: Endpoint, names: &str) {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let found = Names::parse(path, Some(&method)).expect(path);
        assert_eq!(found.place.endpoint(&method), Some(endpoint), "{method} {path}");
        let Names { user, stage, project, version, file, .. } = &found;
        let of = if stage.is_empty() { user } else { stage };
        let found = format!("{of} {} {version} {}", project.as_sent, file.joined());
        assert_eq!(found.trim_end(), names, "{method} {path}");
    }

    #[test]
    fn routes() {
        check("GET", "/", ListUsers, "");
        check("GET", "/+api", ShowApi, "");
        check("GET", "/%2Bapi", ShowApi, "");
        check("GET", "/u/+api", ShowApi, "u");
        check("GET", "/u/i/+api", ShowApi, "u/i");
        check("PROPFIND", "/+authcheck", CheckAccess, "");
        check("HEAD", "/u/", ShowUser, "u");
        check("PUT", "/u", CreateUser, "u");
        check("GET", "/u/i", ShowIndex, "u/i");
        check("POST", "/u/i/", UploadFile, "u/i");
        check("PUSH", "/u/i", PushRelease, "u/i");
        check("POST", "/u/i/+retention", ApplyRetention, "u/i");
        check("GET", "/u/i/+log", ShowIndexLog, "u/i");
        check("DELETE", "/u/i/+prefetch", StopPrefetch, "u/i");
        check("GET", "/u/i/%2Bsimple/p/", ShowSimplePage, "u/i p");
        check("GET", "/u/i/+simple/+p", ShowSimplePage, "u/i +p");
        check("GET", "/u/i/+simple", ListProjects, "u/i");
        check("GET", "/u/i/simple/", ListProjects, "u/i");
        check("GET", "/u/i/simple/P/", ShowSimplePage, "u/i P");
        check("DELETE", "/u/i/simple/1.0", DeleteRelease, "u/i simple 1.0");
        check("GET", "/u/i/pypi", ShowProject, "u/i pypi");
        check("GET", "/u/i/pypi/1.0", ShowRelease, "u/i pypi 1.0");
        check("GET", "/u/i/pypi/p/json", ShowPublicJson, "u/i p");
        check("GET", "/u/i/pypi/p/1.0/json", ShowPublicJsonOfRelease, "u/i p 1.0");
        check("POST", "/u/i/+simple/p/refresh", RefreshPage, "u/i p");
        check("POST", "/u/i/p/refresh", RefreshPage, "u/i p");
        check("GET", "/u/i/p/refresh", ShowRelease, "u/i p refresh");
        check("DELETE", "/u/i/p", DeleteProject, "u/i p");
        check("GET", "/u/i/p/+downloads", ShowDownloads, "u/i p");
        check("GET", "/u/i/p/1.0+local/", ShowRelease, "u/i p 1.0+local");
        check("PUT", "/u/i/p/+status", ChangeProjectStatus, "u/i p");
        check("DELETE", "/u/i/p/1.0/+yank", YankRelease, "u/i p 1.0");
        check("POST", "/u/i/+f/a/b/c/+yank", YankFile, "u/i   a/b/c");
        check("DELETE", "/u/i/+f/a", DeleteFile, "u/i   a");
        check("GET", "/u/i/+e/a/b", FindExternalFile, "u/i   a/b");
        let path = "/u/i/+upstream/files.example:8443/a%20b/p.whl";
        check("GET", path, FindUpstreamFile, "u/i   files.example:8443/a b/p.whl");
        check("GET", "/u/i/p/1.0/+doc", ShowDocumentation, "u/i p 1.0");
        check("GET", "/u/i/p/1.0/+doc/a/b.html", ShowDocumentation, "u/i p 1.0 a/b.html");
        check("GET", "/u/i/p/1.0/+d/a", ShowDocumentation, "u/i p 1.0 a");
        check("GET", "/u/i/integrity/p/1.0/f.whl/provenance", ShowProvenance, "u/i p 1.0 f.whl");
        check("GET", "/u/i/p/1.0/+contents/f.whl", ShowContents, "u/i p 1.0 f.whl");
        check("GET", "/u/i/p/1.0/+compare", CompareReleases, "u/i p 1.0");
        check("GET", "/u/i/p/1.0/+toxresults/f/r", ShowToxResults, "u/i p 1.0 f/r");
    }

    #[test]
    fn each_name_is_parsed() {
        let parsed = |path| Names::parse(path, None).expect("a path");
        let project = parsed("/u/i/A.B").project;
        assert_eq!(
            (project.name.as_ref().map(|name| name.as_str()), project.is_normalized()),
            (Some("a-b"), false)
        );
        assert_eq!(parsed("/u/i/%C3%A4").project.name, None);
        assert_eq!(parsed("/u/i").stage(), Some("u/i"));
        assert_eq!(parsed("/u/i/+api").stage(), None);
        let file = parsed("/u/i/+f/abc/0123456789abc/p-1.0.tar.gz").file;
        assert!(file.place().is_some_and(|(_, name)| name == "p-1.0.tar.gz"));
        assert_eq!(parsed("/u/i/+f/xyz/0123456789abc/p-1.0.tar.gz").file.place(), None);
    }

    #[test]
    fn what_is_no_route() {
        for path in [
            "",
            "u",
            "/+files",
            "/+tokens",
            "/u/+f/x",
            "/u/i/+f",
            "/u/i/+x",
            "/u/i/+upstream",
            "/u/i/+upstream/h/%2e%2e/x",
            "/u/i/../x",
            "/u/%2e%2e/x",
            "/u/a%2Fb",
            "/u/i/p%5cq",
            "/u/%ff",
            "/u//i",
            "/u/i/p/1/x",
            "/u/i/p/+x",
            "/u/i/p/+x/+doc",
            "/u/i/p/1/+doc/../x",
            "/u/i/p/1/+doc/%2e%2e/x",
            "/u/i/p/1/+doc/a%2fb",
            "/u/i/%00",
        ] {
            assert_eq!(Names::parse(path, None), None, "{path}");
        }
    }
}
