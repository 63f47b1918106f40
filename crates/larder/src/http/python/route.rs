//! [`Route`]: what a path of this surface is of, before anything is looked up.

use percent_encoding::percent_decode_str;

/// What a path is of. Names are percent-decoded and otherwise as they were sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) enum Route {
    /// `/`
    Root,
    /// `/+status`
    Status,
    /// `/+api`, `/{user}/+api`, `/{user}/{index}/+api`
    Api { user: Option<String>, index: Option<String> },
    /// `/+authcheck`
    AuthCheck,
    /// `/+login`
    Login,
    /// `/+search`
    Search,
    /// `/{user}`
    User { user: String },
    /// `/{user}/{index}`
    Stage { stage: String },
    /// `/{user}/{index}/+retention`
    Retention { stage: String },
    /// `/{user}/{index}/+f/{path}/+yank`
    FileYank { stage: String, path: Vec<String> },
    /// `/{user}/{index}/{project}/+status`
    ProjectStatus { stage: String, project: String },
    /// `/{user}/{index}/{project}/{version}/+yank`
    Yank { stage: String, project: String, version: String },
    /// `/{user}/{index}/+f/{path}`
    File { stage: String, path: Vec<String> },
    /// `/{user}/{index}/+e/{path}`: files of mirrors without a digest
    ExternalFile { stage: String, path: Vec<String> },
    /// `/{user}/{index}/+simple`
    SimpleList { stage: String },
    /// `/{user}/{index}/+simple/{project}`
    SimpleProject { stage: String, project: String },
    /// `/{user}/{index}/+simple/{project}/refresh`
    Refresh { stage: String, project: String },
    /// `/{user}/{index}/{project}`
    Project { stage: String, project: String },
    /// `/{user}/{index}/{project}/{version}`
    Version { stage: String, project: String, version: String },
    /// `/{user}/{index}/{project}/{version}/+doc/{path}` and `+d`
    Documentation { stage: String, project: String, version: String, path: Vec<String> },
    /// `/{user}/{index}/{project}/{version}/+toxresults/{path}`
    ToxResults { stage: String, project: String, version: String, path: Vec<String> },
}

impl Route {
    /// Reads a path whose leading slashes are one; a slash at its end makes no difference. None for what has
    /// no place here: an escaped slash or bytes that are not UTF-8 within a name, dots for a name, or more
    /// names than any route has.
    pub(in crate::http) fn parse(path: &str) -> Option<Route> {
        let rest = path.strip_prefix('/')?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return Some(Route::Root);
        }
        let names: Vec<String> = rest.split('/').map(decoded).collect::<Option<_>>()?;
        let parts: Vec<&str> = names.iter().map(String::as_str).collect();
        let own = |text: &&str| (*text).to_owned();
        let stage = || format!("{}/{}", parts[0], parts[1]);
        let rest_of = |from: usize| names[from..].to_vec();
        Some(match parts.as_slice() {
            ["+status"] => Route::Status,
            ["+api"] => Route::Api { user: None, index: None },
            ["+authcheck"] => Route::AuthCheck,
            ["+login"] => Route::Login,
            ["+search"] => Route::Search,
            [user, ..] if user.starts_with('+') => return None,
            [user] => Route::User { user: own(user) },
            [user, "+api"] => Route::Api { user: Some(own(user)), index: None },
            [user, index, "+api"] => Route::Api { user: Some(own(user)), index: Some(own(index)) },
            [_, index, ..] if index.starts_with('+') => return None,
            [_, _] => Route::Stage { stage: stage() },
            [_, _, "+retention"] => Route::Retention { stage: stage() },
            [_, _, "+f", _, _, _, "+yank"] => {
                Route::FileYank { stage: stage(), path: names[3..6].to_vec() }
            }
            [_, _, "+f", _, ..] => Route::File { stage: stage(), path: rest_of(3) },
            [_, _, "+e", _, ..] => Route::ExternalFile { stage: stage(), path: rest_of(3) },
            [_, _, "+simple"] => Route::SimpleList { stage: stage() },
            [_, _, "+simple", project] => {
                Route::SimpleProject { stage: stage(), project: own(project) }
            }
            [_, _, "+simple", project, "refresh"] => {
                Route::Refresh { stage: stage(), project: own(project) }
            }
            [_, _, project, ..] if project.starts_with('+') => return None,
            [_, _, project] => Route::Project { stage: stage(), project: own(project) },
            [_, _, project, "+status"] => {
                Route::ProjectStatus { stage: stage(), project: own(project) }
            }
            [_, _, project, version] if !version.starts_with('+') => {
                Route::Version { stage: stage(), project: own(project), version: own(version) }
            }
            [_, _, project, version, ..]
                if project.starts_with('+') || version.starts_with('+') =>
            {
                return None;
            }
            [_, _, project, version, "+yank"] => {
                Route::Yank { stage: stage(), project: own(project), version: own(version) }
            }
            [_, _, project, version, "+doc" | "+d", ..] => Route::Documentation {
                stage: stage(),
                project: own(project),
                version: own(version),
                path: rest_of(5),
            },
            [_, _, project, version, "+toxresults", ..] => Route::ToxResults {
                stage: stage(),
                project: own(project),
                version: own(version),
                path: rest_of(5),
            },
            _ => return None,
        })
    }
}

impl Route {
    /// The stage that it is of.
    pub(super) fn stage(&self) -> Option<&str> {
        match self {
            Route::Root
            | Route::Status
            // Whoever wants to log in has to find out where.
            | Route::Api { .. }
            | Route::AuthCheck
            | Route::Login
            | Route::Search
            | Route::User { .. } => None,
            Route::Stage { stage }
            | Route::Retention { stage }
            | Route::FileYank { stage, .. }
            | Route::ProjectStatus { stage, .. }
            | Route::Yank { stage, .. }
            | Route::File { stage, .. }
            | Route::ExternalFile { stage, .. }
            | Route::SimpleList { stage }
            | Route::SimpleProject { stage, .. }
            | Route::Refresh { stage, .. }
            | Route::Project { stage, .. }
            | Route::Version { stage, .. }
            | Route::Documentation { stage, .. }
            | Route::ToxResults { stage, .. } => Some(stage),
        }
    }

    /// The project that it is of, as it was sent.
    pub(super) fn project(&self) -> Option<&str> {
        match self {
            Route::ProjectStatus { project, .. }
            | Route::Yank { project, .. }
            | Route::SimpleProject { project, .. }
            | Route::Refresh { project, .. }
            | Route::Project { project, .. }
            | Route::Version { project, .. }
            | Route::Documentation { project, .. }
            | Route::ToxResults { project, .. } => Some(project),
            Route::Root
            | Route::Status
            | Route::Api { .. }
            | Route::AuthCheck
            | Route::Login
            | Route::Search
            | Route::User { .. }
            | Route::Stage { .. }
            | Route::Retention { .. }
            | Route::FileYank { .. }
            | Route::File { .. }
            | Route::ExternalFile { .. }
            | Route::SimpleList { .. } => None,
        }
    }

    /// The methods that it has, for those who use another.
    pub(super) fn methods(&self) -> &'static str {
        match self {
            Route::Root
            | Route::Status
            | Route::Api { .. }
            | Route::AuthCheck
            | Route::Search
            | Route::ExternalFile { .. }
            | Route::SimpleList { .. }
            | Route::SimpleProject { .. }
            | Route::Documentation { .. }
            | Route::ToxResults { .. } => "GET, HEAD",
            Route::Login | Route::Retention { .. } | Route::Refresh { .. } => "POST",
            Route::User { .. } => "GET, HEAD, PUT, PATCH, DELETE",
            Route::Stage { .. } => "GET, HEAD, PUT, PATCH, DELETE, POST, PUSH",
            Route::Yank { .. } | Route::FileYank { .. } => "POST, DELETE",
            Route::ProjectStatus { .. } => "GET, HEAD, POST, PUT, DELETE",
            Route::File { .. } => "GET, HEAD, POST, DELETE",
            Route::Project { .. } | Route::Version { .. } => "GET, HEAD, DELETE",
        }
    }
}

/// A name of a path: one that a path can hold.
fn decoded(segment: &str) -> Option<String> {
    let name = percent_decode_str(segment).decode_utf8().ok()?;
    let is_name = !name.is_empty()
        && name != "."
        && name != ".."
        && !name.contains(['/', '\\'])
        && !name.chars().any(char::is_control);
    is_name.then(|| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<Route>) {
        assert_eq!(Route::parse(path), expected, "{path}");
    }

    #[test]
    fn routes() {
        let stage = || "u/i".to_owned();
        let p = || "p".to_owned();
        check("/", Some(Route::Root));
        check("/+api", Some(Route::Api { user: None, index: None }));
        check("/%2Bapi", Some(Route::Api { user: None, index: None }));
        check("/u/i/+api", Some(Route::Api { user: Some("u".into()), index: Some("i".into()) }));
        check("/u/", Some(Route::User { user: "u".into() }));
        check("/u/i", Some(Route::Stage { stage: stage() }));
        check("/u/i/", Some(Route::Stage { stage: stage() }));
        check("/u/i/%2Bsimple/p/", Some(Route::SimpleProject { stage: stage(), project: p() }));
        check("/u/i/+simple", Some(Route::SimpleList { stage: stage() }));
        check("/u/i/+simple/p/refresh", Some(Route::Refresh { stage: stage(), project: p() }));
        check("/u/i/p", Some(Route::Project { stage: stage(), project: p() }));
        let version = "1.0+local".to_owned();
        check("/u/i/p/1.0+local/", Some(Route::Version { stage: stage(), project: p(), version }));
        let version = || "1.0".to_owned();
        check("/u/i/+retention", Some(Route::Retention { stage: stage() }));
        check("/u/i/p/+status", Some(Route::ProjectStatus { stage: stage(), project: p() }));
        check(
            "/u/i/p/1.0/+yank",
            Some(Route::Yank { stage: stage(), project: p(), version: version() }),
        );
        let path = vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
        check("/u/i/+f/a/b/c/+yank", Some(Route::FileYank { stage: stage(), path }));
        let documentation = |path: &[&str]| Route::Documentation {
            stage: stage(),
            project: p(),
            version: version(),
            path: path.iter().map(|name| (*name).to_owned()).collect(),
        };
        check("/u/i/p/1.0/+doc", Some(documentation(&[])));
        check("/u/i/p/1.0/+doc/a/b.html", Some(documentation(&["a", "b.html"])));
        let path = vec!["abc".to_owned(), "0123456789abc".to_owned(), "p-1.0.tar.gz".to_owned()];
        check("/u/i/+f/abc/0123456789abc/p-1.0.tar.gz", Some(Route::File { stage: stage(), path }));
    }

    #[test]
    fn what_is_no_route() {
        for path in [
            "",
            "u",
            "/+files",
            "/u/+f/x",
            "/u/i/+f",
            "/u/i/+x",
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
            check(path, None);
        }
    }
}
