//! [`Judge`]: the policies that apply to a project in the stages that answer for it, and what they say about a file.

use jiff::Timestamp;

use super::{
    Candidate, FileRefusal, FileWarning, GrantedException, Measure, ProjectPolicy, UploadTime,
};
use crate::osv::AdvisoryStamp;
use crate::upstream::UpstreamFile;
use crate::{FileRole, ProjectName, ReleaseFile, ResolutionOrder, Stage, StageName};

/// Decides about the files of one project at one time.
#[derive(Clone, Debug)]
pub struct Judge<'stages> {
    project: &'stages ProjectName,
    now: Timestamp,
    /// The stage that was asked; its policy counts for all files.
    asked: &'stages StageName,
    policies: Vec<(&'stages StageName, ProjectPolicy<'stages>)>,
    /// The records that it decides by, if a policy asks them.
    judged: Option<AdvisoryStamp>,
}

impl<'stages> Judge<'stages> {
    /// The judge of a project in these stages; `None` if no stage among them has a policy.
    pub fn of(
        order: &ResolutionOrder<'stages>,
        project: &'stages ProjectName,
        now: Timestamp,
    ) -> Option<Judge<'stages>> {
        let asked = order.stages().first()?.name();
        Judge::among(asked, order.stages().iter().map(|stage| &***stage), project, now)
    }

    /// The judge of files of `holder` that `asked` gives out, which may be the same stage; `None` if neither has a policy.
    pub fn between(
        asked: &'stages Stage,
        holder: &'stages Stage,
        project: &'stages ProjectName,
        now: Timestamp,
    ) -> Option<Judge<'stages>> {
        let holder = Some(holder).filter(|holder| holder.name() != asked.name());
        Judge::among(asked.name(), [asked].into_iter().chain(holder), project, now)
    }

    fn among(
        asked: &'stages StageName,
        stages: impl Iterator<Item = &'stages Stage>,
        project: &'stages ProjectName,
        now: Timestamp,
    ) -> Option<Judge<'stages>> {
        let mut policies = Vec::new();
        // All policies use the same records.
        let mut known = None;
        for stage in stages {
            let Some(policy) = stage.config().policy.as_deref() else { continue };
            let affected = policy.asks_advisories().then(|| {
                let (_, affected) = known.get_or_insert_with(|| stage.advisories().about(project));
                affected.clone()
            });
            policies.push((stage.name(), policy.on(project, now, affected.flatten())));
        }
        let judged = known.map(|(judged, _)| judged);
        (!policies.is_empty()).then_some(Judge { project, now, asked, policies, judged })
    }

    /// Whether the stage that was asked has a policy, so that all files are linked below it.
    pub fn is_of_asked(&self) -> bool {
        self.policies.first().is_some_and(|(stage, _)| *stage == self.asked)
    }

    fn counting<'judge>(
        &'judge self,
        holder: &'judge StageName,
    ) -> impl Iterator<Item = &'judge (&'stages StageName, ProjectPolicy<'stages>)> {
        self.policies.iter().filter(move |(stage, _)| *stage == self.asked || *stage == holder)
    }

    /// Why a file that `holder` has is refused; `None` if it is given out.
    pub fn refusal(&self, holder: &StageName, file: &Candidate<'_>) -> Option<FileRefusal> {
        let refusals = self.counting(holder).filter_map(|(stage, policy)| {
            let (rule, reason, until) = policy.refusal(file, self.now)?;
            Some(FileRefusal { stage: (*stage).clone(), rule, reason, until })
        });
        refusals.reduce(FileRefusal::or_stricter)
    }

    /// Why a file that `holder` has is given out although a rule refuses it; `None` if none does, or it is refused.
    pub fn exception(&self, holder: &StageName, file: &Candidate<'_>) -> Option<GrantedException> {
        if self.refusal(holder, file).is_some() {
            return None;
        }
        self.counting(holder).find_map(|(stage, policy)| {
            let exception = policy.exception(file)?.to_string();
            let (rule, ..) = policy.refusal_by_rule(file, self.now)?;
            Some(GrantedException { stage: (*stage).clone(), rule, exception })
        })
    }

    /// Why a file that `holder` has is given out with a warning; `None` if no rule warns of it, or an exception applies.
    pub fn warning(&self, holder: &StageName, file: &Candidate<'_>) -> Option<FileWarning> {
        self.counting(holder).find_map(|(stage, policy)| {
            if policy.exception(file).is_some() {
                return None;
            }
            let (rule, reason) = policy.advised.as_ref()?.found(file, Measure::Warn)?;
            Some(FileWarning { stage: (*stage).clone(), rule, reason })
        })
    }

    /// Whether there may be warnings or exceptions.
    pub fn may_note(&self) -> bool {
        let has_notes =
            |policy: &ProjectPolicy<'_>| policy.advised.is_some() || !policy.exceptions.is_empty();
        self.policies.iter().any(|(_, policy)| has_notes(policy))
    }

    /// The records that it decides by; `None` if it does not ask them. Later records may change its decisions.
    pub(crate) fn judged(&self) -> Option<&AdvisoryStamp> {
        self.judged.as_ref()
    }

    /// When its decisions change because an exception ends.
    pub(crate) fn exceptions_until(&self) -> Option<Timestamp> {
        let exceptions = self.policies.iter().flat_map(|(_, policy)| &policy.exceptions);
        exceptions.map(|exception| exception.until).min()
    }

    /// Why a release file of a stage is refused; other files never are.
    pub fn refusal_of_own(&self, holder: &StageName, file: &ReleaseFile) -> Option<FileRefusal> {
        if file.role() != FileRole::Release {
            return None;
        }
        self.refusal(holder, &self.own(file))
    }

    /// Why a file of an upstream is refused.
    pub fn refusal_of_upstream(
        &self,
        mirror: &StageName,
        file: &UpstreamFile,
    ) -> Option<FileRefusal> {
        self.refusal(mirror, &self.upstreams(file))
    }

    /// A release file of a stage, to be judged.
    pub fn own<'file>(&'file self, file: &'file ReleaseFile) -> Candidate<'file> {
        Candidate {
            project: self.project,
            filename: file.filename(),
            version: Some(file.version()),
            uploaded: UploadTime::At(file.uploaded_at()),
            first_seen: None,
        }
    }

    /// A file of an upstream, to be judged.
    pub fn upstreams<'file>(&'file self, file: &'file UpstreamFile) -> Candidate<'file> {
        Candidate {
            project: self.project,
            filename: &file.filename,
            version: None,
            uploaded: file.upload_time.as_deref().map_or(UploadTime::Unknown, UploadTime::Written),
            first_seen: file.first_seen,
        }
    }

    /// Why all files of the project that these stages hold are quarantined, if they are: the project's status then.
    pub fn quarantine<'judge>(
        &'judge self,
        holders: impl IntoIterator<Item = &'judge StageName>,
    ) -> Option<&'judge str> {
        let mut found = None;
        for holder in holders {
            let reason = self.counting(holder).find_map(|(_, policy)| policy.whole_quarantine());
            found = found.or(Some(reason?));
        }
        found
    }
}

/// Why a file of a stage is refused by the status of its project, or by a policy; test results go with their file.
pub(crate) fn refusal_in_json(
    judge: Option<&Judge<'_>>,
    part: &crate::inherit::ProjectPart<'_>,
    file: &ReleaseFile,
) -> Option<FileRefusal> {
    let stage = part.stage.name();
    let file = match file.for_file() {
        Some(tested) => part.project.file(tested)?,
        None => file,
    };
    if file.role() != FileRole::Release {
        return None;
    }
    match part.project.is_quarantined() {
        true => Some(FileRefusal::by_status(stage, part.project)),
        false => judge?.refusal_of_own(stage, file),
    }
}
