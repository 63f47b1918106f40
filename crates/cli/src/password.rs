//! The sources of a new password: a terminal, a file, standard input, or the system's random numbers.
//!
//! Only `init` accepts one on its command line, where others on the machine can see it; only there it may be empty.

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::path::PathBuf;

use account::{PasswordHash, UserName};
use clap::Args;
use state::secrets;

use crate::Exit;

/// Most bytes that are read of a file or of standard input: a password and the end of its line.
const READ_BYTES_MAX: u64 = account::Password::BYTES_MAX as u64 + 2;

/// Where a new password comes from; without a flag, the user types it, twice.
#[derive(Args)]
#[group(multiple = false)]
pub(super) struct PasswordSource {
    /// Take the password from a file of one line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Take the password from the first line of standard input
    #[arg(long)]
    password_stdin: bool,
    /// Make a password and print it, this once
    #[arg(long)]
    generate: bool,
    /// Set no password: the user can only use tokens
    #[arg(long)]
    no_password: bool,
}

/// Where the password of `root` comes from; without a flag, one is made.
#[derive(Args)]
#[group(multiple = false)]
pub(super) struct RootPassword {
    /// Password of root, which others on this machine can see while the command runs; '' is the empty one. Without it,
    /// one is made
    #[arg(long, value_name = "PASSWORD", allow_hyphen_values = true)]
    root_password: Option<String>,
    /// Take the password of root from a file of one line
    #[arg(long, value_name = "FILE")]
    root_password_file: Option<PathBuf>,
}

/// A password that was given, or made.
pub(super) struct Password {
    /// `None` if the user gets no password.
    password: Option<account::Password>,
    is_made: bool,
}

impl RootPassword {
    /// The chosen password; `None` if the command should make one.
    ///
    /// # Errors
    /// What cannot be read, or is not a password.
    pub(super) fn chosen(&self) -> Result<Option<account::Password>, Exit> {
        match (&self.root_password, &self.root_password_file) {
            (Some(text), _) => {
                account::Password::new_or_empty(text).map(Some).map_err(Exit::failure)
            }
            (None, Some(path)) => from_file(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

impl PasswordSource {
    /// Reads the password for `name`, asking for it if need be.
    ///
    /// # Errors
    /// What cannot be read, or is not a password; without a flag and a terminal, exit code 2.
    pub(super) fn read(&self, name: &UserName) -> Result<Password, Exit> {
        let password = match self {
            Self { password_file: Some(path), .. } => Some(from_file(path)?),
            Self { password_stdin: true, .. } => Some(from_stdin()?),
            Self { generate: true, .. } => Some(secrets::random_password().map_err(Exit::failure)?),
            Self { no_password: true, .. } => None,
            _ => Some(prompt(name)?),
        };
        Ok(Password { password, is_made: self.generate })
    }
}

impl Password {
    /// Its hash, with its own salt; slow.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn hash(&self) -> Result<Option<PasswordHash>, Exit> {
        let salt = secrets::random().map_err(Exit::failure)?;
        let hash =
            |password: &account::Password| tokio::task::block_in_place(|| password.hash(salt));
        Ok(self.password.as_ref().map(hash))
    }

    /// Whether the user gets no password.
    pub(super) fn is_none(&self) -> bool {
        self.password.is_none()
    }

    /// Its text, if it was made here.
    pub(super) fn made(&self) -> Option<&str> {
        self.password.as_ref().filter(|_| self.is_made).map(account::Password::reveal)
    }
}

fn prompt(name: &UserName) -> Result<account::Password, Exit> {
    if !io::stdin().is_terminal() {
        let text = "the password cannot be asked for, because standard input is not a terminal: \
                    --password-file FILE, --password-stdin, --generate or --no-password was expected";
        return Err(Exit::usage(text));
    }
    let ask = |question: String| {
        rpassword::prompt_password(question)
            .map_err(|error| Exit::failure(format!("the password cannot be asked for: {error}")))
    };
    let password = account::Password::new(&ask(format!("New password of {name}: "))?);
    let password = password.map_err(Exit::failure)?;
    if ask("The same again: ".to_owned())? != password.reveal() {
        return Err(Exit::failure("the two passwords differ: nothing was changed"));
    }
    Ok(password)
}

fn from_file(path: &PathBuf) -> Result<account::Password, Exit> {
    let problem = |what: String| Exit::failure(format!("`{}` {what}", path.display()));
    let mut text = String::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(READ_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| problem(format!("cannot be read: {error}")))?;
    let line = without_line_end(&text);
    if line.contains('\n') {
        return Err(problem("has several lines: a password on one line was expected".to_owned()));
    }
    account::Password::new(line).map_err(|error| problem(format!("holds no password: {error}")))
}

fn from_stdin() -> Result<account::Password, Exit> {
    let mut line = String::new();
    let read = io::stdin().lock().take(READ_BYTES_MAX).read_line(&mut line);
    read.map_err(|error| Exit::failure(format!("standard input cannot be read: {error}")))?;
    account::Password::new(without_line_end(&line))
        .map_err(|error| Exit::failure(format!("standard input: {error}")))
}

fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}
