//! Provenance of files (PEP 740) at the URL of PyPI's integrity API.
//!
//! project, version, filename -> the nearest file -> its provenance, as at `+f/…/{filename}.provenance`; for a file of a
//! mirror, a redirect to where its upstream says that it is. Nothing here verifies a signature.

use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use pypi::{Filename, ResolutionOrder, Version};

use super::ask::Ask;
use super::error::ApiError;
use super::names::{FilePath, Names};
use super::rights::{IndexPart, admit};
use super::simple::mirrored::{failed, mirrors_of_one_project};
use super::{files, policy, reply};

/// `/{user}/{index}/integrity/{project}/{version}/{filename}/provenance`
pub(crate) async fn show_provenance(ask: &Ask, names: &Names) -> Result<Response, ApiError> {
    let none = |text: &str| Ok(reply::refusal(ask, StatusCode::NOT_FOUND, text));
    let order = ResolutionOrder::of(&ask.stored.index, &names.stage);
    let (Some(order), Some(project), Some(filename)) =
        (order, &names.project.name, names.file.names.last())
    else {
        return none("no such file");
    };
    admit(ask, &order, IndexPart::Project(Some(project))).await?;
    let own = order.project(project.as_str());
    if let Some(part) = own.as_ref().and_then(|own| own.part_with(filename)) {
        let file = part.project.release_files().find(|file| file.filename() == filename);
        let file = file.filter(|it| is_same(Version::parse(it.version()).ok(), &names.version));
        return match file {
            Some(file) if file.provenance().is_some() => {
                let path = FilePath::new(file.directory(), format!("{filename}.provenance"));
                files::download_file(ask, &names.stage, &path).await
            }
            Some(_) => none("the file has no provenance"),
            None => none("no such file"),
        };
    }
    let asked = order.stages()[0];
    let of_name = Filename::of_upstream(filename).ok();
    let of_name = of_name.and_then(|name| name.split(Some(project))?.version);
    if !is_same(of_name, &names.version) {
        return none("no such file");
    }
    for stage in mirrors_of_one_project(ask, &order, project).await? {
        let Some(mirror) = ask.app.python.mirrors.of(stage) else { continue };
        let page = ask.app.python.mirrors.page_to_judge_by(&mirror, project).await;
        let page = page.map_err(|trouble| failed(stage.name().as_str(), &trouble))?;
        let Some(page) = page else { continue };
        let Some(file) = page.files.iter().find(|file| *file.filename == **filename) else {
            continue;
        };
        let refused = policy::refusal_of_upstream(asked, stage, project, &page, file);
        if let Some(refused) = refused {
            return Ok(policy::refused(ask, filename, &refused).await);
        }
        let url = file.provenance.as_deref().and_then(|url| HeaderValue::try_from(url).ok());
        return match url {
            Some(url) => Ok((StatusCode::FOUND, [(LOCATION, url)]).into_response()),
            None => none("the file has no provenance"),
        };
    }
    none("no such file")
}

/// Whether a file's version is the release that was asked for, in whatever spelling.
fn is_same(found: Option<Version>, wanted: &str) -> bool {
    let wanted = Version::parse(wanted).ok();
    found.zip(wanted).is_some_and(|(found, wanted)| found.is_same_release(&wanted))
}
