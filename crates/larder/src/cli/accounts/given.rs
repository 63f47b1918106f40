//! Where a new password comes from: a terminal, a file, standard input, or the system's random numbers.
//!
//! Only `init` takes one on its command line, where others on the machine see it, and only there it may be
//! empty.

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::path::PathBuf;

use account::{PasswordHash, UserName};
use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::accounts;
use crate::cli::Exit;

/// Ids of the flags of which one says where a password comes from.
pub(super) const IDS: [&str; 4] = ["password-file", "password-stdin", "generate", "no-password"];

/// The same of `init`.
pub(super) const ROOT_IDS: [&str; 2] = ["root-password", "root-password-file"];

/// Most bytes that are read of a file or of standard input: a password and the end of its line.
const READ_BYTES_MAX: u64 = account::Password::BYTES_MAX as u64 + 2;

/// Where a password comes from.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Given {
    /// Somebody types it, twice.
    Prompt,
    /// The only line of a file.
    File(PathBuf),
    /// The first line of standard input.
    Stdin,
    /// It is made here and shown once.
    Generate,
    /// There is none.
    Nothing,
    /// It stood on the command line.
    Text(String),
}

/// No password gets into a log.
impl std::fmt::Debug for Given {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Given::Prompt => "Prompt",
            Given::File(_) => "File(…)",
            Given::Stdin => "Stdin",
            Given::Generate => "Generate",
            Given::Nothing => "Nothing",
            Given::Text(_) => "Text(…)",
        })
    }
}

/// A password that was given, or made.
pub(super) struct Password {
    /// None if there is to be none.
    password: Option<account::Password>,
    is_made: bool,
}

/// The flags that say where a password comes from; a group makes them exclude each other.
pub(super) fn args() -> [Arg; 4] {
    let switch = |id: &'static str, help: &'static str| {
        Arg::new(id).long(id).help(help).action(ArgAction::SetTrue)
    };
    let file = Arg::new(IDS[0])
        .long(IDS[0])
        .value_name("FILE")
        .help("Take the password from a file of one line")
        .value_parser(value_parser!(PathBuf));
    [
        file,
        switch(IDS[1], "Take the password from the first line of standard input"),
        switch(IDS[2], "Make a password and print it, this once"),
        switch(IDS[3], "No password: only tokens open"),
    ]
}

/// The flags of `init`.
pub(super) fn root_args() -> [Arg; 2] {
    [
        Arg::new(ROOT_IDS[0])
            .long(ROOT_IDS[0])
            .value_name("PASSWORD")
            .allow_hyphen_values(true)
            .help("Password of root, which others on this machine see meanwhile; '' is the empty one. Without: one is made"),
        Arg::new(ROOT_IDS[1])
            .long(ROOT_IDS[1])
            .value_name("FILE")
            .help("Take the password of root from a file of one line")
            .value_parser(value_parser!(PathBuf)),
    ]
}

impl Given {
    /// What the flags of [`args`] say.
    pub(super) fn of(matches: &ArgMatches) -> Given {
        let [file, stdin, generate, none] = IDS;
        match matches.get_one::<PathBuf>(file) {
            Some(path) => Given::File(path.clone()),
            None if matches.get_flag(stdin) => Given::Stdin,
            None if matches.get_flag(generate) => Given::Generate,
            None if matches.get_flag(none) => Given::Nothing,
            None => Given::Prompt,
        }
    }

    /// What the flags of [`root_args`] say.
    pub(super) fn of_root(matches: &ArgMatches) -> Given {
        let [text, file] = ROOT_IDS;
        match (matches.get_one::<String>(text), matches.get_one::<PathBuf>(file)) {
            (Some(text), _) => Given::Text(text.clone()),
            (None, Some(path)) => Given::File(path.clone()),
            (None, None) => Given::Generate,
        }
    }

    /// The password that was chosen for `root`; none if one is to be made.
    ///
    /// # Errors
    /// What cannot be read, or is no password.
    pub(super) fn chosen_for_root(&self) -> Result<Option<account::Password>, Exit> {
        match self {
            Given::Text(text) => {
                account::Password::new_or_empty(text).map(Some).map_err(Exit::failure)
            }
            Given::File(path) => from_file(path).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads the password for `name`, asking for it if need be.
    ///
    /// # Errors
    /// What cannot be read, or is no password; without a flag and a terminal, exit code 2.
    pub(super) fn read(&self, name: &UserName) -> Result<Password, Exit> {
        let given = |password| Password { password: Some(password), is_made: false };
        match self {
            Given::Prompt => prompt(name).map(given),
            Given::File(path) => from_file(path).map(given),
            Given::Stdin => from_stdin().map(given),
            Given::Text(text) => account::Password::new(text).map(given).map_err(Exit::failure),
            Given::Generate => {
                let password = accounts::random_password().map_err(Exit::failure)?;
                Ok(Password { password: Some(password), is_made: true })
            }
            Given::Nothing => Ok(Password { password: None, is_made: false }),
        }
    }
}

impl Password {
    /// Its hash, under a salt of its own; slow.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn hash(&self) -> Result<Option<PasswordHash>, Exit> {
        let salt = accounts::random().map_err(Exit::failure)?;
        let hash =
            |password: &account::Password| tokio::task::block_in_place(|| password.hash(salt));
        Ok(self.password.as_ref().map(hash))
    }

    /// Whether there is to be none.
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
        let text = "a password is asked for on a terminal, and standard input is none: \
                    --password-file FILE, --password-stdin, --generate or --no-password was expected";
        return Err(Exit::Message { code: 2, text: text.to_owned() });
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
