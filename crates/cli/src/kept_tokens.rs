//! [`KeptTokens`]: the tokens of `larder login`, by server, in a file of the user's own that nobody else may read.
//!
//! `$XDG_CONFIG_HOME/larder/tokens.json` (`~/.config` without that variable): `{"https://host/": {"token": …, "user": …}}`

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use config::Environment;
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::Exit;

/// The file, and what is in it.
pub(super) struct KeptTokens {
    path: PathBuf,
    tokens: Map<String, Value>,
}

/// A token of `larder login`.
pub(super) struct KeptToken {
    /// The server's URL.
    pub(super) server: String,
    pub(super) token: String,
}

/// Where the file is; `None` without a home.
fn path(environment: &Environment) -> Option<PathBuf> {
    let own = environment.get("XDG_CONFIG_HOME").map(PathBuf::from);
    let own = own.filter(|path| path.is_absolute());
    let usual = || Some(PathBuf::from(environment.get("HOME")?).join(".config"));
    Some(own.or_else(usual)?.join("larder").join("tokens.json"))
}

impl KeptTokens {
    /// Reads the file; one that is not there has no tokens.
    ///
    /// # Errors
    /// It cannot be read, or is not what this program writes.
    pub(super) fn read(environment: &Environment) -> Result<KeptTokens, Exit> {
        let none = || Exit::failure("none of XDG_CONFIG_HOME and HOME is set");
        let path = path(environment).ok_or_else(none)?;
        let bad =
            |error: &dyn std::fmt::Display| Exit::failure(format!("`{}`: {error}", path.display()));
        let tokens = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| bad(&error))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(bad(&error)),
        };
        Ok(KeptTokens { path, tokens })
    }

    /// The token for a URL of a server, if `larder login` has kept one.
    ///
    /// # Errors
    /// As [`KeptTokens::read`]; without a home there is none.
    pub(super) fn find(environment: &Environment, url: &Url) -> Result<Option<KeptToken>, Exit> {
        match path(environment) {
            Some(_) => Ok(KeptTokens::read(environment)?.of(url)),
            None => Ok(None),
        }
    }

    /// Where they are.
    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The token for a URL of a server: that of the longest server's URL that it is below.
    pub(super) fn of(&self, url: &Url) -> Option<KeptToken> {
        let is_below = |server: &Url| {
            let prefix = server.path().trim_end_matches('/');
            let rest = url.path().strip_prefix(prefix);
            url.origin() == server.origin()
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let servers = self
            .tokens
            .iter()
            .filter(|(server, _)| Url::parse(server).is_ok_and(|server| is_below(&server)));
        let (server, kept) = servers.max_by_key(|(server, _)| server.len())?;
        let token = kept["token"].as_str()?.to_owned();
        Some(KeptToken { server: server.clone(), token })
    }

    /// Keeps a token for a server in the place of another.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn keep(&mut self, server: &Url, token: &str, user: &str) -> Result<(), Exit> {
        self.tokens.insert(server.to_string(), json!({"token": token, "user": user}));
        self.write()
    }

    /// Forgets the token of a server.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn forget(&mut self, server: &str) -> Result<(), Exit> {
        self.tokens.remove(server);
        self.write()
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self) -> Result<(), Exit> {
        let bad = |error: &dyn std::fmt::Display| {
            Exit::failure(format!("`{}` cannot be written: {error}", self.path.display()))
        };
        let directory = self.path.parent().unwrap_or(&self.path);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| bad(&error))?;
        // A temporary file has the mode 0600 from its beginning.
        let mut file = tempfile::NamedTempFile::new_in(directory).map_err(|error| bad(&error))?;
        let text = format!("{:#}\n", Value::Object(self.tokens.clone()));
        file.write_all(text.as_bytes()).map_err(|error| bad(&error))?;
        file.persist(&self.path).map_err(|error| bad(&error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_for_its_server_alone() {
        let home = tempfile::tempdir().expect("a directory");
        let environment: Environment =
            [("HOME", home.path().display().to_string())].into_iter().collect();
        let mut kept = KeptTokens::read(&environment).expect("an empty file");
        for (server, token) in [
            ("https://index.example/", "one"),
            ("https://index.example/larder", "two"),
            ("http://127.0.0.1:8080/", "three"),
        ] {
            kept.keep(&server.parse().expect("a URL"), token, "alice").expect("a file");
        }
        let mode = fs::metadata(kept.path()).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let kept = KeptTokens::read(&environment).expect("the file");
        for (url, expected) in [
            ("https://index.example/team/dev", Some("one")),
            ("https://index.example/larder/team/dev", Some("two")),
            ("https://index.example/larderx/team", Some("one")),
            ("http://127.0.0.1:8080/", Some("three")),
            ("http://127.0.0.1:8081/", None),
            ("http://index.example/", None),
            ("https://index.example.evil.example/", None),
        ] {
            let found = kept.of(&url.parse().expect("a URL")).map(|it| it.token);
            assert_eq!(found.as_deref(), expected, "{url}");
        }
        let mut kept = kept;
        kept.forget("https://index.example/larder").expect("a file");
        let found = kept.of(&"https://index.example/larder/x".parse().expect("a URL"));
        assert_eq!(found.map(|it| it.token).as_deref(), Some("one"));
        fs::write(kept.path(), "no").expect("a file");
        assert!(KeptTokens::read(&environment).is_err());
    }
}
