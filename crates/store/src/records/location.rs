//! [`DatabaseLocation`]: which database the records are in, read from its text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

/// The database of the records. Its text hides a password, and so do errors.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseLocation {
    /// A file of SQLite: `sqlite:PATH` or `sqlite://PATH`.
    Sqlite(PathBuf),
    /// A database of a PostgreSQL server, as its URL: `postgres://…` or `postgresql://…`.
    Postgres(String),
}

/// Text that names no database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` is not a database: {flaw}")]
pub struct DatabaseLocationError {
    shown: String,
    flaw: String,
}

impl FromStr for DatabaseLocation {
    type Err = DatabaseLocationError;

    /// A path is taken as it stands: nothing in it is decoded, and it has no parameters.
    fn from_str(text: &str) -> Result<DatabaseLocation, DatabaseLocationError> {
        let error = |flaw: String| DatabaseLocationError { shown: without_password(text), flaw };
        if text.contains('\0') {
            return Err(error("it contains a NUL".to_owned()));
        }
        if let Some(rest) = text.strip_prefix("sqlite:") {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            return match path {
                "" => Err(error("it names no file".to_owned())),
                ":memory:" => Err(error(
                    "a file was expected: what is in memory is lost with the process".to_owned(),
                )),
                path => Ok(DatabaseLocation::Sqlite(PathBuf::from(path))),
            };
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return match text.parse::<PgConnectOptions>() {
                Ok(_) => Ok(DatabaseLocation::Postgres(text.to_owned())),
                Err(sqlx::Error::Configuration(flaw)) => Err(error(flaw.to_string())),
                Err(flaw) => Err(error(flaw.to_string())),
            };
        }
        Err(error("it begins with neither `sqlite:` nor `postgres://`".to_owned()))
    }
}

impl fmt::Display for DatabaseLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseLocation::Sqlite(path) => write!(formatter, "sqlite:{}", path.display()),
            DatabaseLocation::Postgres(url) => formatter.write_str(&without_password(url)),
        }
    }
}

/// Prints what `Display` prints, so that `{:?}` does not write a password into a log.
impl fmt::Debug for DatabaseLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// `url` with `***` in place of what follows the user's name, and of `password=` parameters.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (rest, parameters) = match rest.split_once('?') {
        Some((rest, parameters)) => (rest, Some(parameters)),
        None => (rest, None),
    };
    // The last `@`: an unescaped one in a password must not show what follows it.
    let mut shown = match rest.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:***@{host}"),
            None => format!("{scheme}://{rest}"),
        },
        None => format!("{scheme}://{rest}"),
    };
    for (number, parameter) in parameters.into_iter().flat_map(|it| it.split('&')).enumerate() {
        shown.push(if number == 0 { '?' } else { '&' });
        match parameter.split_once('=') {
            Some((name, _)) if name.to_ascii_lowercase().contains("password") => {
                shown.push_str(name);
                shown.push_str("=***");
            }
            _ => shown.push_str(parameter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = match text.parse::<DatabaseLocation>() {
            Ok(location) => location.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn a_file_is_a_path_as_it_stands() {
        check("sqlite:a/b c.db", "sqlite:a/b c.db");
        check("sqlite:/a?b=%20", "sqlite:/a?b=%20");
        check("sqlite:///a/b", "sqlite:/a/b");
        check("sqlite://a/b", "sqlite:a/b");
        check("sqlite:", "`sqlite:` is not a database: it names no file");
        check(
            "sqlite::memory:",
            "`sqlite::memory:` is not a database: a file was expected: what is in memory is lost with the process",
        );
    }

    #[test]
    fn a_password_is_never_shown() {
        check("postgres://host/name", "postgres://host/name");
        check("postgresql://me@host:1/name", "postgresql://me@host:1/name");
        check("postgres://me:secret@host/name", "postgres://me:***@host/name");
        check(
            "postgres://host/name?password=secret&user=me",
            "postgres://host/name?password=***&user=me",
        );
        let error = "mysql://me:se@cret@host/name".parse::<DatabaseLocation>().expect_err("mysql");
        assert_eq!(
            error.to_string(),
            "`mysql://me:***@host/name` is not a database: it begins with neither `sqlite:` nor `postgres://`"
        );
        let location = "postgres://me:secret@host/name".parse::<DatabaseLocation>();
        assert_eq!(format!("{location:?}"), "Ok(postgres://me:***@host/name)");
    }

    #[test]
    fn anything_else_is_refused() {
        check(
            "larder.db",
            "`larder.db` is not a database: it begins with neither `sqlite:` nor `postgres://`",
        );
        check("", "`` is not a database: it begins with neither `sqlite:` nor `postgres://`");
        check(
            "postgres://host:port/name",
            "`postgres://host:port/name` is not a database: invalid port number",
        );
    }
}
