//! Releases of a store, looked at and changed by this process.

use config::Config;
use operations::pushes::{Order, PushRelease};
use operations::releases::{DeleteProject, DeleteRelease, YankRelease};
use pypi::change::push::PushContent;
use pypi::change::remove::RemovalExtent;
use pypi::index_log::{DeedKind, IndexLog};
use pypi::{ChangeError, FileRole, Project, ProjectName, StageName, Version};
use state::accounts;

use super::{Action, CommandResult, File, ReleaseRow, Target, YankedBy, removed, yanked};
use crate::Exit;
use crate::directory::{Directory, Purpose};
use crate::remote::refused;

/// Carries it out on the store of `config`.
///
/// # Errors
/// A store that cannot be opened, or a rule that forbids it.
pub(super) async fn run(
    config: &Config,
    stage: &StageName,
    action: Action,
) -> Result<CommandResult, Exit> {
    let purpose = match action {
        Action::List(_) => Purpose::ShowAll,
        Action::Push { .. } => Purpose::Push,
        _ => Purpose::ChangeAll,
    };
    Directory::with(config, purpose, async |directory| match action {
        Action::List(project) => list(directory, stage, project.as_ref()),
        Action::Yank { project, version, reason } => {
            let said = yanked(stage, &project, &version, reason.is_some());
            let stage = stage.clone();
            directory.carry_out(&YankRelease { stage, project, version, reason }).await?;
            Ok(CommandResult::Done(said))
        }
        Action::Push { project, version, to: Target::Stage(target), content } => {
            pushed(directory, stage, &target, &project, &version, content).await
        }
        // Refused before.
        Action::Push { to: Target::Outside { url, .. }, .. } => {
            Err(Exit::failure(format!("only a running server uploads to {url}: add --server URL")))
        }
        Action::Remove { project, version, releases_name, is_forced } => {
            let said = removed(stage, &project, version.as_deref(), releases_name);
            let (stage, force) = (stage.clone(), is_forced);
            match version {
                Some(version) => {
                    let deleting = DeleteRelease { stage, project, version, force };
                    directory.carry_out(&deleting).await?;
                }
                None => {
                    let extent = match releases_name {
                        true => RemovalExtent::ContentsAndName,
                        false => RemovalExtent::Contents,
                    };
                    let deleting = DeleteProject { stage, project, extent, force };
                    directory.carry_out(&deleting).await?;
                }
            }
            Ok(CommandResult::Done(said))
        }
    })
    .await
}

async fn pushed(
    directory: &mut Directory,
    source: &StageName,
    target: &StageName,
    project: &ProjectName,
    version: &str,
    content: PushContent,
) -> Result<CommandResult, Exit> {
    // A command on the data directory has no account, so the history names no user for the push.
    let order = Order {
        source: source.clone(),
        target: target.clone(),
        name: project.to_string(),
        version: version.to_owned(),
        content,
    };
    let done = directory.carry_out(&PushRelease(order)).await?;
    let (actions, is_news) = (done.outcome, done.serial.is_some());
    if !is_news {
        return Ok(CommandResult::Done(format!("{project} {version} is in {target} already")));
    }
    let files = actions.len() - 1;
    Ok(CommandResult::Done(format!(
        "pushed {project} {version} from {source} to {target} (files: {files})"
    )))
}

fn list(
    directory: &Directory,
    stage: &StageName,
    wanted: Option<&ProjectName>,
) -> Result<CommandResult, Exit> {
    let found = directory.index().stage_to_change(stage).map_err(refused)?;
    if let Some(wanted) = wanted
        && !found.owns_name(wanted.as_str())
    {
        return Err(refused(ChangeError::NoProject(wanted.clone())));
    }
    let is_wanted = |name: &ProjectName| wanted.is_none_or(|it| it == name);
    let projects = found.projects().filter(|(name, _)| is_wanted(name));
    let held = found.held_names().filter(|name| is_wanted(name)).map(ToString::to_string);
    let log = directory.logs().log(stage.as_str());
    let rows = projects.flat_map(|(name, project)| rows(name, project, log)).collect();
    Ok(CommandResult::List(rows, held.collect()))
}

/// The releases of a project, newest first.
fn rows(name: &ProjectName, project: &Project, log: Option<&IndexLog>) -> Vec<ReleaseRow> {
    let mut versions: Vec<_> =
        project.versions().into_iter().map(|text| (Version::parse(text).ok(), text)).collect();
    versions.sort();
    let row = |(_, version): (_, &str)| {
        let files = project.files_of(version).filter(|file| file.role() == FileRole::Release);
        let file = |file: &pypi::ReleaseFile| File {
            filename: file.filename().to_owned(),
            size_bytes: file.size_bytes(),
            uploaded: accounts::shown(file.uploaded_at()),
            yanked: project.yanked(file).map(str::to_owned),
        };
        ReleaseRow {
            project: name.to_string(),
            version: version.to_owned(),
            files: files.map(file).collect(),
            yanked_by: log.and_then(|log| {
                let line = log.last(DeedKind::Yanked, name, Some(version))?;
                Some(YankedBy {
                    who: line.by.user().map(str::to_owned),
                    at: accounts::shown(line.at),
                })
            }),
        }
    };
    versions.into_iter().rev().map(row).collect()
}
