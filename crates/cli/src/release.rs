//! `larder release …`: lists, yanks, pushes and removes releases, on the data directory or through a running server.
//!
//! arguments -> [`Command::run`] -> [`store`], which commits changes of [`pypi::change`], or
//! [`server`], which asks for them -> lines, or JSON where something is listed.

mod server;
mod store;

use clap::{Args, Subcommand};
use pypi::change::push::PushContent;
use pypi::{ProjectName, StageName};
use serde_json::{Value, json};

use super::remote::{CommandTarget, Remote};
use super::{Answer, Exit, line_of_stdin, runtime, table};

#[derive(Subcommand)]
pub(super) enum Command {
    /// List the releases that an index has itself; those of its bases are not among them
    List {
        /// Which index, as team/dev
        #[arg(value_name = "USER/INDEX")]
        index: StageName,
        /// Only the releases of this project
        #[arg(value_parser = project)]
        project: Option<ProjectName>,
        #[command(flatten)]
        answer: Answer,
    },
    /// Yank a release: installers take it only for requirements that name exactly this version
    Yank {
        #[command(flatten)]
        release: Release,
        /// Why, in one line; installers show it
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        reason: Option<String>,
        /// Take a yank back
        #[arg(long, conflicts_with = "reason")]
        undo: bool,
    },
    /// Take a yank back, as yank --undo does
    Unyank(Release),
    /// Copy a release to another index of this server, or upload it to another server
    Push {
        #[command(flatten)]
        release: Release,
        // A comment for the help, where angle brackets would be shown.
        #[allow(rustdoc::bare_urls)]
        /// Where to: USER/INDEX, or with --server an upload URL: https://upload.pypi.org/legacy/
        #[arg(value_name = "TARGET")]
        to: String,
        /// The user at an upload URL; __token__ for a token
        #[arg(long, value_name = "NAME", requires = "to_password_stdin")]
        to_user: Option<String>,
        /// Take the password or token for an upload URL from the first line of standard input
        #[arg(long, requires = "to_user", conflicts_with_all = ["token_stdin", "password_stdin"])]
        to_password_stdin: bool,
        /// Everything but the documentation
        #[arg(long, conflicts_with = "only_docs")]
        no_docs: bool,
        /// Only the documentation
        #[arg(long)]
        only_docs: bool,
    },
    /// Remove a release with its files; their URLs answer 410 from then on
    Remove {
        /// Which index, as team/dev
        #[arg(value_name = "USER/INDEX")]
        index: StageName,
        #[arg(value_parser = project)]
        project: ProjectName,
        #[arg(required_unless_present = "all_versions")]
        version: Option<String>,
        /// Remove the whole project; the index keeps its name, so that no mirror's project takes its place
        #[arg(long, conflicts_with = "version")]
        all_versions: bool,
        /// Release the name as well: from then on mirrors may be asked for it
        #[arg(long, requires = "all_versions")]
        release_name: bool,
        /// Remove it even from an index that is not volatile
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args)]
pub(super) struct Release {
    /// Which index, as team/dev
    #[arg(value_name = "USER/INDEX")]
    index: StageName,
    #[arg(value_parser = project)]
    project: ProjectName,
    version: String,
}

fn project(text: &str) -> Result<ProjectName, String> {
    let expected = "the name of a project was expected, as yourproject";
    ProjectName::normalize(text).map_err(|error| format!("{error}: {expected}"))
}

/// A change of a stage.
enum Action {
    List(Option<ProjectName>),
    /// Without a reason, the release is unyanked.
    Yank {
        project: ProjectName,
        version: String,
        reason: Option<String>,
    },
    Push {
        project: ProjectName,
        version: String,
        to: Target,
        content: PushContent,
    },
    /// Without a version, all versions.
    Remove {
        project: ProjectName,
        version: Option<String>,
        releases_name: bool,
        is_forced: bool,
    },
}

/// The target of a push.
enum Target {
    Stage(StageName),
    /// An upload API elsewhere.
    Outside {
        url: String,
        user: String,
        password: String,
    },
}

/// The result of a command.
enum CommandResult {
    /// The releases, and the names that the index keeps without any.
    List(Vec<ReleaseRow>, Vec<String>),
    Done(String),
}

/// A release in a list.
struct ReleaseRow {
    project: String,
    version: String,
    files: Vec<File>,
    /// Who yanked it last, if the log of the index says so; it counts only while the release is yanked.
    yanked_by: Option<YankedBy>,
}

/// Who yanked a release.
struct YankedBy {
    /// `None` if it was no user.
    who: Option<String>,
    at: String,
}

/// A file that installers take.
struct File {
    filename: String,
    size_bytes: u64,
    uploaded: String,
    /// Why it is yanked, if it is.
    yanked: Option<String>,
}

impl Command {
    /// Carries out the command at `place`, and returns the text for stdout.
    ///
    /// # Errors
    /// What went wrong, with the exit code. Nothing is changed then, unless files went to another server one by one.
    pub(super) fn run(
        self,
        place: impl FnOnce() -> Result<CommandTarget, Exit>,
    ) -> Result<String, Exit> {
        let is_json = matches!(&self, Command::List { answer, .. } if answer.is_json);
        let yank = |Release { index, project, version }, reason: Option<String>| {
            if let Some(reason) = &reason {
                pypi::change::yank::check_reason(reason).map_err(Exit::usage)?;
            }
            Ok::<_, Exit>((index, Action::Yank { project, version, reason }))
        };
        let place = place()?;
        let (stage, action) = match self {
            Command::List { index, project, .. } => (index, Action::List(project)),
            Command::Yank { release, reason, undo } => {
                yank(release, (!undo).then(|| reason.unwrap_or_default()))?
            }
            Command::Unyank(release) => yank(release, None)?,
            Command::Push { release, to, to_user, to_password_stdin: _, no_docs, only_docs } => {
                let Release { index, project, version } = release;
                let to = target(to, to_user, &place)?;
                let content = match (no_docs, only_docs) {
                    (true, _) => PushContent::NoDocs,
                    (_, true) => PushContent::OnlyDocs,
                    _ => PushContent::Everything,
                };
                (index, Action::Push { project, version, to, content })
            }
            Command::Remove { index, project, version, all_versions: _, release_name, force } => {
                let (releases_name, is_forced) = (release_name, force);
                (index, Action::Remove { project, version, releases_name, is_forced })
            }
        };
        let outcome = runtime()?.block_on(async {
            match place {
                CommandTarget::Store(loaded) => store::run(&loaded.config, &stage, action).await,
                CommandTarget::Server(address) => {
                    server::run(&Remote::connect(*address).await?, &stage, action).await
                }
            }
        })?;
        Ok(shown(outcome, is_json))
    }
}

fn target(to: String, user: Option<String>, place: &CommandTarget) -> Result<Target, Exit> {
    if !to.contains("://") {
        let stage = to.parse::<StageName>();
        let expected = "USER/INDEX was expected, as team/prod, or an upload URL";
        return stage.map(Target::Stage).map_err(|_| Exit::usage(format!("`{to}`: {expected}")));
    }
    if matches!(place, CommandTarget::Store(_)) {
        return Err(Exit::usage(format!(
            "`{to}` is another server, and only a running server uploads there: add --server URL"
        )));
    }
    let Some(user) = user else {
        return Err(Exit::usage("an upload URL needs --to-user NAME and --to-password-stdin"));
    };
    Ok(Target::Outside { url: to, user, password: line_of_stdin()? })
}

/// The message for a yank, on the store or by a server.
fn yanked(stage: &StageName, project: &ProjectName, version: &str, is_yanked: bool) -> String {
    match is_yanked {
        true => format!("yanked {project} {version} in {stage}"),
        false => format!("{project} {version} in {stage} is no longer yanked"),
    }
}

/// The message for a removal, on the store or by a server.
fn removed(
    stage: &StageName,
    project: &ProjectName,
    version: Option<&str>,
    releases_name: bool,
) -> String {
    match version {
        Some(version) => format!("removed {project} {version} from {stage}"),
        None if releases_name => format!("removed all of {project} from {stage}, with its name"),
        None => format!(
            "removed all of {project} from {stage}, which keeps the name (--release-name releases it)"
        ),
    }
}

impl ReleaseRow {
    fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    /// The reason, if the whole release is yanked.
    fn yanked(&self) -> Option<&str> {
        let first = self.files.first()?.yanked.as_deref()?;
        self.files.iter().all(|file| file.yanked.is_some()).then_some(first)
    }

    /// When its newest file was uploaded.
    fn uploaded(&self) -> &str {
        self.files.iter().map(|file| file.uploaded.as_str()).max().unwrap_or_default()
    }

    fn json(&self) -> Value {
        let file = |file: &File| {
            json!({
                "filename": file.filename,
                "size": file.size_bytes,
                "uploaded": file.uploaded,
                "yanked": file.yanked,
            })
        };
        let files: Vec<Value> = self.files.iter().map(file).collect();
        let (project, version) = (&self.project, &self.version);
        let mut row = json!({"project": project, "version": version, "yanked": self.yanked()});
        if let Some(by) = self.yanked_by.as_ref().filter(|_| self.yanked().is_some()) {
            row["yanked_by"] = by.who.as_deref().into();
            row["yanked_at"] = by.at.as_str().into();
        }
        row["files"] = files.into();
        row
    }

    fn cells(&self) -> [String; 6] {
        let by = self.yanked_by.as_ref().and_then(|by| by.who.as_ref());
        let by = by.map(|who| format!(", by {who}")).unwrap_or_default();
        let some = self.files.iter().filter(|file| file.yanked.is_some()).count();
        let yanked = match self.yanked() {
            Some("") => format!("yes{by}"),
            Some(reason) => format!("yes{by}: {reason}"),
            None if some > 0 => format!("{some} of {} files", self.files.len()),
            None => String::new(),
        };
        [
            self.project.clone(),
            self.version.clone(),
            self.files.len().to_string(),
            self.size_bytes().to_string(),
            self.uploaded().to_owned(),
            yanked,
        ]
    }
}

fn shown(outcome: CommandResult, is_json: bool) -> String {
    match outcome {
        CommandResult::List(rows, _) if is_json => {
            format!("{:#}\n", Value::Array(rows.iter().map(ReleaseRow::json).collect()))
        }
        CommandResult::List(rows, held) => {
            let rows: Vec<_> = rows.iter().map(ReleaseRow::cells).collect();
            let columns = ["PROJECT", "VERSION", "FILES", "BYTES", "UPLOADED", "YANKED"];
            let mut text = table::columns(columns, &rows);
            if !held.is_empty() {
                text.push_str(&format!(
                    "names that are kept without a release: {}\n",
                    held.join(", ")
                ));
            }
            text
        }
        CommandResult::Done(said) => format!("{said}\n"),
    }
}
