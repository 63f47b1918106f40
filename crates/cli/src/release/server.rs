//! Releases of a running server, asked for and changed over HTTP.

use std::collections::HashMap;

use http::Method;
use jiff::Timestamp;
use pypi::change::push::PushContent;
use pypi::{ProjectName, StageName};
use serde_json::{Value, json};
use state::accounts;

use super::{Action, CommandResult, File, ReleaseRow, Target, YankedBy, removed, yanked};
use crate::Exit;
use crate::remote::{Failure, Remote, action};

/// Has the server carry it out.
///
/// # Errors
/// No answer, or the server's refusal, in its words.
pub(super) async fn run(
    remote: &Remote,
    stage: &StageName,
    action: Action,
) -> Result<CommandResult, Exit> {
    let (mut stages, mut project) = (vec![stage.clone()], None);
    match &action {
        Action::Push { to: Target::Stage(target), .. } => stages.push(target.clone()),
        Action::Remove { project: removed, .. } => project = Some(removed.clone()),
        _ => {}
    }
    let asked = asked(remote, stage, action).await;
    asked.map_err(|failure| failure.hinted(&stages, project.as_ref()))
}

async fn asked(
    remote: &Remote,
    stage: &StageName,
    action: Action,
) -> Result<CommandResult, Failure> {
    let (user, index) = (stage.user(), stage.index());
    match action {
        Action::List(project) => list(remote, stage, project.as_ref()).await,
        Action::Yank { project, version, reason } => {
            let place = [user, index, project.as_str(), &version, "+yank"];
            let body = reason.as_ref().map(|reason| json!({"reason": reason}));
            let method = if reason.is_some() { Method::POST } else { Method::DELETE };
            remote.send(method, &place, &[], body.as_ref()).await?;
            Ok(CommandResult::Done(yanked(stage, &project, &version, reason.is_some())))
        }
        Action::Push { project, version, to, content } => {
            pushed(remote, stage, &project, &version, &to, content).await
        }
        Action::Remove { project, version, releases_name, is_forced } => {
            let mut place = vec![user, index, project.as_str()];
            place.extend(version.as_deref());
            let wishes = [("force", is_forced), ("release_name", releases_name)];
            let query: Vec<&str> = wishes.iter().filter(|it| it.1).map(|it| it.0).collect();
            remote.send(Method::DELETE, &place, &query, None).await?;
            let said = removed(stage, &project, version.as_deref(), releases_name);
            Ok(CommandResult::Done(said))
        }
    }
}

async fn pushed(
    remote: &Remote,
    stage: &StageName,
    project: &ProjectName,
    version: &str,
    to: &Target,
    content: PushContent,
) -> Result<CommandResult, Failure> {
    let mut order = json!({"name": project.as_str(), "version": version});
    match to {
        Target::Stage(target) => order["targetindex"] = target.as_str().into(),
        Target::Outside { url, user, password } => {
            order["posturl"] = url.as_str().into();
            order["username"] = user.as_str().into();
            order["password"] = password.as_str().into();
        }
    }
    match content {
        PushContent::Everything => {}
        PushContent::NoDocs => order["no_docs"] = true.into(),
        PushContent::OnlyDocs => order["only_docs"] = true.into(),
    }
    let answer =
        remote.send(Method::POST, &[stage.user(), stage.index()], &[], Some(&order)).await?;
    let log = answer["result"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(CommandResult::Done(match to {
        Target::Stage(target) => {
            let files = log.len().saturating_sub(1);
            format!("pushed {project} {version} from {stage} to {target} (files: {files})")
        }
        Target::Outside { url, .. } => {
            let lines = log.iter().map(|entry| format!("\n  {}", action(entry)));
            format!(
                "pushed {project} {version} from {stage} to {url}:{}",
                lines.collect::<String>()
            )
        }
    }))
}

async fn list(
    remote: &Remote,
    stage: &StageName,
    wanted: Option<&ProjectName>,
) -> Result<CommandResult, Failure> {
    let (user, index) = (stage.user(), stage.index());
    let settings = remote.get(&[user, index]).await?;
    let named = |key: &str| -> Vec<String> {
        let names = settings[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = names.iter().filter_map(Value::as_str).map(str::to_owned);
        names.filter(|name| wanted.is_none_or(|it| it.as_str() == name)).collect()
    };
    let held = named("held_names");
    let projects = match wanted {
        Some(project) if held.is_empty() => vec![project.to_string()],
        _ => named("projects"),
    };
    let mut rows = Vec::new();
    for project in projects {
        let place = [user, index, project.as_str()];
        let versions = remote.send(Method::GET, &place, &["ignore_bases"], None).await?;
        // devpi's API says nothing of sizes and yanks, a simple page nothing of versions.
        let page = remote.simple(&[user, index, "+simple", &project]).await?;
        let files = page["files"].as_array().map(Vec::as_slice).unwrap_or_default();
        let facts: HashMap<&str, &Value> =
            files.iter().filter_map(|file| Some((file["filename"].as_str()?, file))).collect();
        let versions = versions["result"].as_object().into_iter().flatten();
        let mut of_project: Vec<ReleaseRow> = versions
            .map(|(version, data)| ReleaseRow {
                project: project.clone(),
                version: version.clone(),
                files: files_of(data, &facts),
                yanked_by: None,
            })
            .collect();
        if of_project.iter().any(|row| row.yanked().is_some()) {
            say_who_yanked(remote, stage, &project, &mut of_project).await;
        }
        of_project.sort_by_cached_key(|row| {
            std::cmp::Reverse((pypi::Version::parse(&row.version).ok(), row.version.clone()))
        });
        rows.extend(of_project);
    }
    Ok(CommandResult::List(rows, held))
}

/// Looks up who yanked the releases of a project. A server of an earlier version does not say.
async fn say_who_yanked(
    remote: &Remote,
    stage: &StageName,
    project: &str,
    rows: &mut [ReleaseRow],
) {
    let place = [stage.user(), stage.index(), "+log"];
    let query = [format!("project={project}"), "limit=200".to_owned()];
    let query = query.each_ref().map(String::as_str);
    let Ok(answer) = remote.send(Method::GET, &place, &query, None).await else { return };
    let lines = answer["result"]["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    for row in rows {
        let of_it =
            |line: &&Value| line["what"] == "yanked" && line["version"] == row.version.as_str();
        row.yanked_by = lines.iter().find(of_it).map(|line| {
            let at = line["time"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
            YankedBy {
                who: line["by"].as_str().map(str::to_owned),
                at: at.map(accounts::shown).unwrap_or_default(),
            }
        });
    }
}

/// The release files of a version, with the facts on the simple page.
fn files_of(data: &Value, facts: &HashMap<&str, &Value>) -> Vec<File> {
    let links = data["+links"].as_array().map(Vec::as_slice).unwrap_or_default();
    let releases = links.iter().filter(|link| link["rel"] == "releasefile");
    let names = releases.filter_map(|link| link["href"].as_str()?.rsplit('/').next());
    let file = |name: &str| {
        let fact = facts.get(name).copied().unwrap_or(&Value::Null);
        let uploaded = fact["upload-time"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        File {
            filename: name.to_owned(),
            size_bytes: fact["size"].as_u64().unwrap_or_default(),
            uploaded: uploaded.map(accounts::shown).unwrap_or_default(),
            yanked: match &fact["yanked"] {
                Value::Bool(true) => Some(String::new()),
                Value::String(reason) => Some(reason.clone()),
                _ => None,
            },
        }
    };
    names.map(file).collect()
}
