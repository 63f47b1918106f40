//! Projects that only mirrors have, as devpi's JSON: versions with the links of their files.
//!
//! project -> the pages of the mirrors -> files that the policies let pass, by version -> JSON. The links are devpi's own
//! (`+f`, `+e`), which tools of devpi take apart. What upstream does not say is not there: no metadata, no history.

use std::collections::{BTreeMap, HashSet};

use axum::response::Response;
use http::StatusCode;
use pypi::upstream::UpstreamFile;
use pypi::{Filename, Judge, ProjectName, ResolutionOrder, StatusMarker, Version};
use serde_json::{Map, Value, json};

use crate::http::error::HttpError;
use crate::http::python::ask::Ask;
use crate::http::python::simple::mirrored::{marked, project_of};
use crate::http::python::{policy, reply};
use crate::mirrors::Stale;

/// The versions of a project, newest first; `None` if no mirror has it.
async fn versions(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    project: &ProjectName,
) -> Result<Option<(Vec<(Version, Value)>, Option<Stale>)>, HttpError> {
    let (heard, stale) = project_of(ask, order, project, false).await?;
    if heard.iter().all(|(_, known)| known.page().is_none()) {
        return Ok(None);
    }
    let asked = order.stages()[0];
    let made = tokio::task::block_in_place(|| {
        let (mut seen, mut versions): (HashSet<&str>, BTreeMap<Version, Map<String, Value>>) =
            Default::default();
        for (stage, known) in &heard {
            let Some(page) = known.page() else { continue };
            let is_quarantined = matches!(page.status, Some((StatusMarker::Quarantined, _)));
            let judge = policy::judge(asked, stage, project);
            // Below the index that was asked, if it has a policy, so that the policy counts for the link.
            let is_of_asked = judge.as_ref().is_some_and(Judge::is_of_asked);
            let holder = if is_of_asked { asked } else { stage };
            for file in &page.files {
                let filename = Filename::parse(&file.filename).ok();
                let parts = filename.as_ref().and_then(|it| it.split(Some(project)));
                let Some(version) = parts.and_then(|parts| parts.version) else { continue };
                let refused =
                    judge.as_ref().and_then(|judge| judge.refusal_of_upstream(stage.name(), file));
                // A file that is refused still hides farther ones with the same name.
                if !seen.insert(&file.filename) || refused.is_some() || is_quarantined {
                    continue;
                }
                let data =
                    versions.entry(version).or_insert_with_key(|version| begun(project, version));
                if let Some(text) = &file.requires_python {
                    data.entry("requires_python").or_insert_with(|| (**text).into());
                }
                let href = format!("{}/{}/{}", ask.root_url, holder.name(), file.devpi_link());
                if let Some(links) = data.get_mut("+links").and_then(Value::as_array_mut) {
                    links.push(link(file, href));
                }
            }
        }
        versions.into_iter().rev().map(|(version, data)| (version, data.into())).collect()
    });
    Ok(Some((made, stale)))
}

fn begun(project: &ProjectName, version: &Version) -> Map<String, Value> {
    let data = json!({"name": project.as_str(), "version": version.as_str(), "+links": []});
    data.as_object().cloned().unwrap_or_default()
}

fn link(file: &UpstreamFile, href: String) -> Value {
    let mut link = json!({"rel": "releasefile", "href": href, "hashes": {}, "log": []});
    for (name, digits) in &file.hashes {
        link["hashes"][&**name] = (**digits).into();
    }
    let spec = file.sha256().map(|digits| format!("sha256={digits}"));
    link["hash_spec"] = spec.unwrap_or_default().into();
    if let Some(reason) = &file.yanked {
        link["yanked"] = (**reason).into();
    }
    link
}

/// `GET /{user}/{index}/{project}` of a project that is none of ours; `None` if no mirror has it.
pub(super) async fn project(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    project: &ProjectName,
) -> Result<Option<Response>, HttpError> {
    let Some((versions, stale)) = versions(ask, order, project).await? else { return Ok(None) };
    let all: Map<String, Value> =
        versions.into_iter().map(|(version, data)| (version.to_string(), data)).collect();
    let response = reply::result(StatusCode::OK, "projectconfig", all, None);
    Ok(Some(marked(response, stale)))
}

/// `GET /{user}/{index}/{project}/{version}` of such a project.
pub(super) async fn release(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    project: &ProjectName,
    version: &str,
) -> Result<Option<Response>, HttpError> {
    let Some((versions, stale)) = versions(ask, order, project).await? else { return Ok(None) };
    let found = versions.into_iter().find(|(found, _)| found.as_str() == version);
    Ok(found
        .map(|(_, data)| marked(reply::result(StatusCode::OK, "versiondata", data, None), stale)))
}
