//! Pushes of a release into an index: from another index, or from a mirror, whose files are approved by that.

use std::sync::Arc;

use account::Portion;
use pypi::change::push::{
    Approval, ApprovedFile, Push, PushAction, PushContent, PushSource, approve, push, replaced,
    replaced_by_approval,
};
use pypi::index_log::{Deed, DeedKind};
use pypi::upstream::{UpstreamFile, UpstreamPage};
use pypi::{Judge, ProjectName, Stage, StageName, StatusMarker};
use record::Digest;

use crate::audit_notes::{ServedFile, entries_of_approved};
use crate::carry_out::OldBlobs;
use crate::rights::{IndexPart, no_replacing, reader, uploader};
use crate::{Basis, Decided, Name, Operation, Refusal, Right};

/// Which release is pushed where.
#[derive(Clone, Debug)]
pub struct Order {
    /// The index or mirror that has it; its bases are not searched.
    pub source: StageName,
    /// The index that gets it.
    pub target: StageName,
    /// The project, as given: the actions repeat it like this.
    pub name: String,
    /// The version, as given.
    pub version: String,
    /// Which parts of it.
    pub content: PushContent,
}

impl Order {
    fn project(&self) -> Option<ProjectName> {
        ProjectName::normalize(&self.name).ok()
    }

    fn push<'wish>(&'wish self, basis: &'wish Basis) -> Push<'wish> {
        Push {
            source: &self.source,
            target: &self.target,
            name: &self.name,
            version: &self.version,
            content: self.content,
            who: basis.principal().user_name(),
            at: basis.now,
        }
    }

    /// What the target's log says of it.
    fn deed(&self, project: &ProjectName) -> Deed {
        Deed::of(DeedKind::Pushed, project).version(&self.version).from(&self.source)
    }

    /// The source, and the target if a token that may only add files must not replace one there.
    ///
    /// # Errors
    /// [`Refusal::Denied`] for senders who may not read the source or push into the target.
    pub fn admit<'basis>(
        &self,
        basis: &'basis Basis,
    ) -> Result<(&'basis Arc<Stage>, bool), Refusal> {
        let project = self.project();
        let about = IndexPart::Project(project.as_ref());
        let source = reader(basis, &self.source, about)?;
        let of_project = about.of(source);
        let target = self.target(basis, of_project.portion())?;
        let adds_only = target.config().volatile
            && !basis.sender().is_on_the_machine()
            && !target.may_replace(basis.principal(), of_project.portion());
        Ok((source, adds_only))
    }

    fn target<'basis>(
        &self,
        basis: &'basis Basis,
        portion: Portion<'_>,
    ) -> Result<&'basis Arc<Stage>, Refusal> {
        uploader(basis, &self.target, portion, Right::Push(self.target.clone()))
    }
}

/// Refuses to push files that a download of the index would refuse: for clients, a push is no way around a policy.
///
/// # Errors
/// [`Refusal::Withheld`].
pub fn check_withheld(
    basis: &Basis,
    found: &PushSource<'_>,
    content: PushContent,
) -> Result<(), Refusal> {
    match found.withheld(content, basis.now) {
        Some((filename, refused)) if !basis.sender().is_on_the_machine() => {
            Err(withheld(filename, refused))
        }
        _ => Ok(()),
    }
}

fn withheld(filename: &str, refused: pypi::FileRefusal) -> Refusal {
    Refusal::Withheld { what: filename.to_owned(), refused: Box::new(refused) }
}

/// Pushes a release from one index into another. No byte is copied.
#[derive(Clone, Debug)]
pub struct PushRelease(pub Order);

impl Operation for PushRelease {
    const NAME: Name = Name::PushRelease;

    type Outcome = Vec<PushAction>;

    fn decide(&self, basis: &Basis) -> Result<Decided<Self::Outcome>, Refusal> {
        let (order, index) = (&self.0, &basis.stored.index);
        let (_, adds_only) = order.admit(basis)?;
        let pushed = order.push(basis);
        if adds_only && let Some(filename) = replaced(index, &pushed) {
            return Err(no_replacing(basis.principal(), &filename));
        }
        let found = PushSource::find(index, &order.source, &order.name, &order.version)?;
        check_withheld(basis, &found, order.content)?;
        let (batch, actions) = push(index, &pushed)?;
        let (stage, project) = (found.stage, found.project_name());
        let entries = basis.noting(|noter| {
            let files = found.release_files(order.content);
            files
                .flat_map(|file| noter.given(stage, stage, project, ServedFile::Own(file)))
                .collect()
        });
        let deed = order.deed(project);
        let decided = Decided::new(batch, actions).noting(entries).naming(OldBlobs::Needed);
        Ok(decided.logging(&order.target, deed))
    }
}

/// Pushes a release from a mirror into an index, after its files were fetched and stored: somebody approves it.
#[derive(Clone, Debug)]
pub struct ApproveRelease {
    /// Which release is pushed where.
    pub order: Order,
    /// The project.
    pub project: ProjectName,
    /// The digest of the release's metadata as JSON.
    pub metadata: Digest,
    /// The page of the upstream that lists the files.
    pub page: Arc<UpstreamPage>,
    /// Its files.
    pub files: Vec<ApprovedFile>,
}

impl ApproveRelease {
    /// The files on the page, each with what was stored of it.
    fn listed(&self) -> impl Iterator<Item = &UpstreamFile> {
        let is_approved = |listed: &&UpstreamFile| {
            self.files.iter().any(|file| file.filename.as_str() == &*listed.filename)
        };
        self.page.files.iter().filter(is_approved)
    }
}

impl Operation for ApproveRelease {
    const NAME: Name = Name::ApproveRelease;

    type Outcome = Vec<PushAction>;

    fn decide(&self, basis: &Basis) -> Result<Decided<Self::Outcome>, Refusal> {
        let ApproveRelease { order, project, metadata, page, files } = self;
        let index = &basis.stored.index;
        let (source, adds_only) = order.admit(basis)?;
        let mut yanked = self.listed().map(|file| file.yanked.as_deref());
        let first = yanked.next().flatten();
        let approval = Approval {
            push: order.push(basis),
            project,
            metadata: *metadata,
            yanked: first.filter(|_| yanked.all(|yanked| yanked.is_some())),
            files,
        };
        if adds_only && let Some(filename) = replaced_by_approval(index, &approval) {
            return Err(no_replacing(basis.principal(), &filename));
        }
        // The policy may have changed, and so may the age of a file.
        check_withheld_upstream(basis, source, project, page, self.listed())?;
        let (batch, actions) = approve(index, &approval)?;
        let mut entries = basis.noting(|noter| {
            let listed = self.listed();
            listed
                .flat_map(|file| noter.given(source, source, project, ServedFile::Upstreams(file)))
                .collect()
        });
        if batch.is_some() {
            let digests = files.iter().map(|file| (file.filename.as_str(), file.digest));
            entries.extend(entries_of_approved(basis, &order.source, &order.target, digests));
        }
        let decided = Decided::new(batch, actions).noting(entries).naming(OldBlobs::Needed);
        Ok(decided.logging(&order.target, order.deed(project)))
    }
}

/// Refuses to push files of a mirror that a download would refuse. As on pages, an upstream's own quarantine counts even without
/// a policy.
///
/// # Errors
/// [`Refusal::Withheld`].
pub fn check_withheld_upstream<'page>(
    basis: &Basis,
    mirror: &Stage,
    project: &ProjectName,
    page: &UpstreamPage,
    files: impl Iterator<Item = &'page UpstreamFile>,
) -> Result<(), Refusal> {
    let quarantine = match &page.status {
        Some((StatusMarker::Quarantined, reason)) => {
            Some(pypi::FileRefusal::by_upstream(mirror.name(), reason.as_deref()))
        }
        _ => None,
    };
    let judge = Judge::between(mirror, mirror, project, basis.now);
    for file in files {
        let judged = || judge.as_ref()?.refusal_of_upstream(mirror.name(), file);
        if let Some(refused) = quarantine.clone().or_else(judged) {
            return Err(withheld(&file.filename, refused));
        }
    }
    Ok(())
}
