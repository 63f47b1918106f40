//! A version and its files, for pages about their contents: checked as a download is, by the reader's rights and by policy.

use jiff::Timestamp;
use pypi::{
    FileRefusal, FileRole, Judge, ProjectName, ProjectView, RefusedFiles, ReleaseFile,
    ResolutionOrder, VersionView,
};

use crate::front::error::HttpError;
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::names::Project;
use crate::protocols::python::policy::{self, ServedFile};
use crate::protocols::python::project::{in_one_spelling, readable};
use crate::protocols::python::rights::IndexPart;
use crate::published::archives::{ArchiveFile, LookError};

/// A project that the sender may read.
pub(crate) struct Readable<'ask> {
    pub(crate) order: ResolutionOrder<'ask>,
    pub(crate) name: &'ask ProjectName,
    found: ProjectView<'ask>,
}

impl<'ask> Readable<'ask> {
    /// The project that a path names.
    pub(crate) async fn of(
        ask: &'ask Ask,
        stage: &str,
        project: &'ask Project,
    ) -> Result<Readable<'ask>, ApiError> {
        let order = readable(ask, stage, false, IndexPart::Project(project.name.as_ref())).await?;
        let missing =
            || HttpError::not_found(format!("{stage} has no project `{}`", project.as_sent));
        let name = in_one_spelling(ask, project, || missing().into())?;
        let found = order.project(name.as_str()).ok_or_else(missing)?;
        Ok(Readable { order, name, found })
    }

    /// The index that was asked.
    pub(crate) fn stage(&self) -> &'ask str {
        self.order.stages().first().map_or("", |stage| stage.name().as_str())
    }

    /// A version that no policy refuses.
    pub(crate) async fn version(
        &self,
        ask: &Ask,
        wanted: &str,
    ) -> Result<VersionView<'ask>, ApiError> {
        let finding = async {
            let versions = self.found.versions();
            let version = VersionView::meant(&versions, wanted).ok_or_else(|| {
                let (stage, name) = (self.stage(), self.name);
                HttpError::not_found(format!("{stage} has no version `{wanted}` of {name}"))
            })?;
            let judge = Judge::of(&self.order, self.name, Timestamp::now());
            let refusal = RefusedFiles::of(&self.found, judge.as_ref())
                .and_then(|shown| shown.refusal_of(version.version.as_str()).cloned());
            Ok((version.clone(), refusal))
        };
        let (version, refusal) = ask.step_over(&self.found, finding).await?;
        match refusal {
            None => Ok(version),
            Some(refused) => {
                let what = format!("{} {}", self.name, version.version);
                Err(ApiError::from(policy::refused(ask, &what, &refused).await))
            }
        }
    }

    /// The first release files of a version that no policy refuses, nearest first.
    pub(crate) fn files(
        &self,
        version: &VersionView<'ask>,
        files_max: usize,
    ) -> Vec<&'ask ReleaseFile> {
        let judge = Judge::of(&self.order, self.name, Timestamp::now());
        let files = version.parts.iter().flat_map(|part| {
            let of_version = part.project.files_of(version.version.as_str());
            of_version.map(move |file| (part, file))
        });
        let given = files.filter(|(part, file)| {
            let nearest = self.found.part_with(file.filename());
            file.role() == FileRole::Release
                && nearest.is_some_and(|nearest| nearest.stage.name() == part.stage.name())
                && !part.project.is_quarantined()
                && judge
                    .as_ref()
                    .is_none_or(|judge| judge.refusal_of_own(part.stage.name(), file).is_none())
        });
        given.take(files_max).map(|(_, file)| file).collect()
    }

    /// The file of a version with this name, as for a download. The audit log gets the entry of a download.
    pub(crate) async fn file(
        &self,
        ask: &Ask,
        version: &VersionView<'ask>,
        filename: &str,
    ) -> Result<&'ask ReleaseFile, ApiError> {
        let part = self.found.part_with(filename);
        let file = part.and_then(|part| part.project.file(filename)).filter(|file| {
            file.role() == FileRole::Release && file.version() == version.version.as_str()
        });
        let (Some(part), Some(file)) = (part, file) else {
            let (name, version) = (self.name, &version.version);
            let text = format!("there is no file `{filename}` of {name} {version}");
            return Err(HttpError::not_found(text).into());
        };
        let refused = match part.project.is_quarantined() {
            true => Some(FileRefusal::by_status(part.stage.name(), part.project)),
            false => Judge::of(&self.order, self.name, Timestamp::now())
                .and_then(|judge| judge.refusal_of_own(part.stage.name(), file)),
        };
        if let Some(refused) = refused {
            return Err(ApiError::from(policy::refused(ask, filename, &refused).await));
        }
        let asked = self.order.stages()[0];
        policy::note_given(ask, asked, part.stage, self.name, ServedFile::Own(file)).await;
        Ok(file)
    }
}

/// How to read the file as an archive.
pub(crate) fn archive_of(file: &ReleaseFile) -> Result<ArchiveFile, ApiError> {
    let filename = pypi::Filename::parse(file.filename());
    let filename = filename.map_err(HttpError::not_found)?;
    Ok(ArchiveFile { digest: *file.digest(), filename })
}

/// The answer where an archive cannot be read now.
pub(crate) fn unread(unread: LookError) -> ApiError {
    let error = match unread {
        LookError::Missing => HttpError::lost("file"),
        LookError::Busy(waiting) => HttpError::unavailable(
            format!("{waiting} archives are being looked into already; try again in a moment"),
            2,
        ),
        LookError::Failed(error) => {
            tracing::error!(error, "a file cannot be read");
            HttpError::unavailable("the file cannot be read now; it has been logged", 5)
        }
    };
    error.into()
}

/// The text of a member; `None` if it is not text. A character that was cut off at the end is left out.
pub(crate) fn text_of(bytes: &[u8], is_cut: bool) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_text() {
        assert_eq!(text_of("aé".as_bytes(), false), Some("aé"));
        assert_eq!(text_of(&"aé".as_bytes()[..2], true), Some("a"));
        assert_eq!(text_of(&"aé".as_bytes()[..2], false), None);
        assert_eq!(text_of(b"a\xffb", true), None);
        assert_eq!(text_of(b"a\0b", false), None);
    }
}
