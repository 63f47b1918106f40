//! Inheritance: what a stage shows together with its bases, in which order stages are asked, and which mirrors are blocked.
//!
//! [`ResolutionOrder::of`] a stage -> [`ResolutionOrder::project`] -> the parts of it in those stages, nearest first.
//! Of several files with one name, and of several entries for one version, the nearest counts.
//!
//! The rules are devpi's. Bases are asked breadth first, each stage once, mirrors after everything else, in the order
//! in which they were found. If a private stage has a project, mirrors are not asked for it unless it is whitelisted:
//! otherwise a stranger who registers the name upstream could slip in a newer version. Unlike in devpi, the same holds for a
//! project that the stage had, until somebody releases its name.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use account::{Acl, Object, Portion, Principal};
use record::Serial;

use crate::osv::LiveAdvisories;
use crate::upstream::Locations;
use crate::{
    FileRole, MirrorMerge, Project, ProjectName, ReleaseFile, Snapshot, Stage, StageName, Version,
    WhitelistInheritance,
};

/// The stages that together answer for one stage, in the order in which they are asked. That stage comes first. A
/// mirror has no bases and is alone.
#[derive(Clone, Debug)]
pub struct ResolutionOrder<'snapshot> {
    stages: Vec<&'snapshot Arc<Stage>>,
    missing: Vec<&'snapshot StageName>,
    configs_serial: Serial,
}

/// The parts of one project in a stage and its bases.
#[derive(Clone, Debug)]
pub struct ProjectView<'snapshot> {
    parts: Vec<ProjectPart<'snapshot>>,
    blocked_mirrors: Vec<&'snapshot StageName>,
}

/// The part of a project that one stage has.
#[derive(Clone, Copy, Debug)]
pub struct ProjectPart<'snapshot> {
    /// The stage.
    pub stage: &'snapshot Arc<Stage>,
    /// The project in this stage.
    pub project: &'snapshot Arc<Project>,
}

/// Which mirrors are asked for a project: see [`ResolutionOrder::mirrors_of`].
#[derive(Clone, Debug, Default)]
pub struct Mirrors<'snapshot> {
    /// The mirrors that are asked for it, nearest first.
    pub asked: Vec<&'snapshot Arc<Stage>>,
    /// The mirrors that are not asked, because a private stage has the project.
    pub blocked: Vec<&'snapshot StageName>,
    /// Whether the configuration says that several mirrors with this name have one project: it is on a whitelist or pinned to
    /// them, or the stage that was asked merges all mirrors. Otherwise [`of_one_project`](crate::of_one_project) decides.
    pub are_one: bool,
}

/// A file of a [`ProjectView`].
#[derive(Clone, Copy, Debug)]
pub struct FileView<'snapshot> {
    /// The part that has the file.
    pub part: ProjectPart<'snapshot>,
    /// Position of `part` in [`ProjectView::parts`].
    pub part_index: usize,
    /// The file.
    pub file: &'snapshot ReleaseFile,
}

/// A version of a [`ProjectView`], and every stage that has it.
#[derive(Clone, Debug)]
pub struct VersionView<'snapshot> {
    /// The version.
    pub version: Version,
    /// The stages that have it, nearest first; never empty. The first one counts and shadows the others.
    pub parts: Vec<ProjectPart<'snapshot>>,
}

impl<'snapshot> VersionView<'snapshot> {
    /// The version that somebody means by `wanted`, as [`Version::position`] finds it.
    pub fn meant<'views>(
        views: &'views [VersionView<'snapshot>],
        wanted: &str,
    ) -> Option<&'views VersionView<'snapshot>> {
        Version::position(wanted, views.iter().map(|view| view.version.as_str()))
            .map(|at| &views[at])
    }
}

/// The state of a walk along the stages for one project: whether a private stage has it, and whether it is
/// whitelisted.
struct Whitelists<'walk> {
    project: &'walk str,
    inheritance: WhitelistInheritance,
    /// The only bases that the project may come from: the pins of the nearest stage so far that has any for it. They count for
    /// the stages behind that one; empty: any base.
    pinned_to: Vec<&'walk StageName>,
    joined: Option<HashSet<&'walk str>>,
    is_whitelisted: bool,
    is_private: bool,
}

/// Whether resolution asks a stage for a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// The stage is asked.
    Asked,
    /// The stage is a mirror, and a private stage has the project.
    Blocked,
    /// The project is pinned to another base.
    Elsewhere,
}

impl<'snapshot> ResolutionOrder<'snapshot> {
    /// The order for the stage with this name; `None` if it does not exist.
    pub fn of(snapshot: &'snapshot Snapshot, stage: &str) -> Option<ResolutionOrder<'snapshot>> {
        let first = snapshot.stage(stage)?;
        let mut order = ResolutionOrder {
            stages: Vec::new(),
            missing: Vec::new(),
            configs_serial: Serial::ZERO,
        };
        let mut mirrors = Vec::new();
        let mut seen = HashSet::from([first.name()]);
        let mut queue = VecDeque::from([first]);
        while let Some(stage) = queue.pop_front() {
            order.configs_serial = order.configs_serial.max(stage.config_serial());
            match stage.config().is_mirror() {
                true => mirrors.push(stage),
                false => order.stages.push(stage),
            }
            for base in stage.config().bases().iter().filter(|base| seen.insert(base)) {
                match snapshot.stage(base.as_str()) {
                    Some(base) => queue.push_back(base),
                    None => {
                        // Deleting or creating this base counts as a change of this order.
                        let serial = snapshot.config_serial(base.as_str());
                        order.configs_serial = order.configs_serial.max(serial);
                        order.missing.push(base);
                    }
                }
            }
        }
        order.stages.extend(mirrors);
        Some(order)
    }

    /// The order that consists of one stage only.
    pub fn alone(snapshot: &'snapshot Snapshot, stage: &str) -> Option<ResolutionOrder<'snapshot>> {
        let stage = snapshot.stage(stage)?;
        let configs_serial = stage.config_serial();
        Some(ResolutionOrder { stages: vec![stage], missing: Vec::new(), configs_serial })
    }

    /// The stages, nearest first, mirrors last; never empty.
    pub fn stages(&self) -> &[&'snapshot Arc<Stage>] {
        &self.stages
    }

    /// Bases that the configurations name but that do not exist.
    pub fn missing(&self) -> &[&'snapshot StageName] {
        &self.missing
    }

    /// Whether a mirror is among the stages.
    pub fn has_mirror(&self) -> bool {
        self.stages.last().is_some_and(|stage| stage.config().is_mirror())
    }

    /// Who may read what these stages show: those that all of these lists include. Without a list, everybody may.
    pub fn readers(&self) -> Vec<Acl> {
        let mut readers: Vec<Acl> = Vec::new();
        for stage in self.stages.iter().filter(|stage| !stage.config().is_public()) {
            let acl = &stage.config().acl_read;
            if !readers.contains(acl) {
                readers.push(acl.clone());
            }
        }
        readers
    }

    /// The object of a right to read this part of these stages: it names the first stage, which was asked for.
    pub fn object<'order>(&'order self, portion: Portion<'order>) -> Object<'order> {
        let asked = self.stages.first().map_or("", |stage| stage.name().as_str());
        Object::Index(asked, portion)
    }

    /// Whether `principal` may read these stages. A token that is limited to the first one may read what that shows of the
    /// others.
    pub fn admits(&self, principal: &Principal, portion: Portion<'_>) -> bool {
        let object = self.object(portion);
        self.stages.iter().all(|stage| stage.may_be_read_as(principal, object))
    }

    /// The newest commit that touched what these stages show of a project. A page of the project is valid as long as
    /// this number stays the same, and every change to what it shows raises the number.
    pub fn project_stamp(&self, project: &str) -> Serial {
        let traces = self.stages.iter().filter_map(|stage| stage.project_trace(project));
        traces.map(|project| project.serial()).fold(self.configs_serial, Serial::max)
    }

    /// Whether any of the stages has a policy.
    pub fn has_policy(&self) -> bool {
        self.stages.iter().any(|stage| stage.config().policy.is_some())
    }

    /// The records of malware and vulnerabilities, if a policy of these stages asks them.
    pub(crate) fn asked_advisories(&self) -> Option<&'snapshot Arc<LiveAdvisories>> {
        let asks = |stage: &&&'snapshot Arc<Stage>| {
            stage.config().policy.as_ref().is_some_and(|policy| policy.asks_advisories())
        };
        self.stages.iter().find(asks).map(|stage| stage.advisories())
    }

    /// The newest commit that touched the list of these stages' projects; it works like
    /// [`ResolutionOrder::project_stamp`]. With a policy, each file may decide whether its project is listed.
    pub fn list_stamp(&self) -> Serial {
        let has_policy = self.has_policy();
        let serials = self.stages.iter().map(|stage| match has_policy {
            true => stage.changed_serial(),
            false => stage.projects_serial(),
        });
        serials.fold(self.configs_serial, Serial::max)
    }

    /// The project in these stages; `None` if no stage has it.
    pub fn project(&self, name: &str) -> Option<ProjectView<'snapshot>> {
        let queried = self.stages.first()?;
        let mut whitelists = Whitelists::new(name, queried);
        let mut view = ProjectView { parts: Vec::new(), blocked_mirrors: Vec::new() };
        for &stage in &self.stages {
            let project = stage.project(name);
            match (whitelists.admit(stage, stage.owns_name(name)), project) {
                (Admission::Asked, Some(project)) => {
                    view.parts.push(ProjectPart { stage, project })
                }
                (Admission::Blocked, _) => view.blocked_mirrors.push(stage.name()),
                (Admission::Asked | Admission::Elsewhere, _) => {}
            }
        }
        (!view.parts.is_empty()).then_some(view)
    }

    /// Which mirrors among these stages are asked for a project. A name that is blocked is never sent upstream.
    pub fn mirrors_of(&self, name: &str) -> Mirrors<'snapshot> {
        let mut mirrors = Mirrors::default();
        let Some(queried) = self.stages.first() else { return mirrors };
        let mut whitelists = Whitelists::new(name, queried);
        for &stage in &self.stages {
            let admission = whitelists.admit(stage, stage.owns_name(name));
            match admission {
                Admission::Asked if stage.config().is_mirror() => mirrors.asked.push(stage),
                Admission::Blocked => mirrors.blocked.push(stage.name()),
                Admission::Asked | Admission::Elsewhere => {}
            }
        }
        // A base says it of itself: who inherits from it would not know that strangers' files count.
        let merge = queried.config().upload().and_then(|settings| settings.mirror_merge);
        mirrors.are_one = whitelists.is_whitelisted
            || !whitelists.pinned_to.is_empty()
            || merge == Some(MirrorMerge::All);
        mirrors
    }

    /// Whether the project with this name is pinned to other bases than this stage.
    pub(crate) fn is_elsewhere(&self, name: &str, stage: &StageName) -> bool {
        let before = self.stages.iter().take_while(|it| it.name() != stage);
        let mut pins = before.map(|it| pinned_to(it, name)).filter(|pins| !pins.is_empty());
        pins.next().is_some_and(|pins| !pins.contains(&stage))
    }

    /// Whether projects are pinned to bases.
    pub(crate) fn has_pins(&self) -> bool {
        let mut settings = self.stages.iter().filter_map(|stage| stage.config().upload());
        settings.any(|settings| !settings.base_pins.is_empty())
    }

    /// The mirrors among these stages, nearest first.
    pub fn mirrors(&self) -> impl Iterator<Item = &'snapshot Arc<Stage>> {
        self.stages.iter().copied().filter(|stage| stage.config().is_mirror())
    }

    /// The names of all projects of these stages, ascending, each once. Those of a single stage are not copied: a list of hundreds of
    /// thousands takes megabytes, which the system has to clear first.
    pub fn project_names(&self) -> Box<dyn Iterator<Item = &'snapshot str> + 'snapshot> {
        if let [stage] = *self.stages {
            return Box::new(stage.names());
        }
        let most = self.stages.iter().map(|stage| stage.project_map().len()).sum();
        let mut names: Vec<&str> = Vec::with_capacity(most);
        names.extend(self.stages.iter().flat_map(|stage| stage.names()));
        // Stable, as this sort merges what is sorted already.
        names.sort();
        names.dedup();
        Box::new(names.into_iter())
    }

    /// The name of a project of these stages; `None` if no stage has it.
    pub fn project_name(&self, name: &str) -> Option<&'snapshot ProjectName> {
        self.stages.iter().find_map(|stage| Some(stage.project_entry(name)?.0))
    }
}

/// The bases to which the stage pins a project.
fn pinned_to<'stage>(stage: &'stage Stage, project: &str) -> Vec<&'stage StageName> {
    let pins = stage.config().upload().into_iter().flat_map(|settings| &settings.base_pins);
    let pins = pins.filter(|pin| pin.projects.matches_name(project));
    pins.map(|pin| &pin.base).collect()
}

impl<'walk> Whitelists<'walk> {
    fn new(project: &'walk str, queried: &'walk Stage) -> Whitelists<'walk> {
        let upload = queried.config().upload();
        Whitelists {
            project,
            inheritance: upload.map(|it| it.mirror_whitelist_inheritance).unwrap_or_default(),
            pinned_to: Vec::new(),
            joined: None,
            is_whitelisted: false,
            is_private: false,
        }
    }

    /// Whether `stage` is asked for the project, after the stages before it. A pin does not loosen the whitelist: a private
    /// stage that has the project blocks mirrors even if the project is pinned to another base.
    fn admit(&mut self, stage: &'walk Stage, owns_name: bool) -> Admission {
        let is_elsewhere = !self.pinned_to.is_empty() && !self.pinned_to.contains(&stage.name());
        if self.pinned_to.is_empty() {
            self.pinned_to = pinned_to(stage, self.project);
        }
        let is_admitted = self.is_admitted(stage, owns_name);
        match is_elsewhere {
            true => Admission::Elsewhere,
            false if is_admitted => Admission::Asked,
            false => Admission::Blocked,
        }
    }

    /// Whether the whitelists let it be asked.
    fn is_admitted(&mut self, stage: &'walk Stage, owns_name: bool) -> bool {
        let Some(settings) = stage.config().upload() else {
            return self.is_whitelisted || !self.is_private;
        };
        let own = settings.mirror_whitelist.iter().map(|name| &**name);
        match (&mut self.joined, self.inheritance) {
            (None, _) => self.joined = Some(own.collect()),
            (Some(joined), WhitelistInheritance::Union) => joined.extend(own),
            (Some(joined), WhitelistInheritance::Intersection) => {
                let own: HashSet<&str> = own.collect();
                joined.retain(|name| own.contains(name));
            }
        }
        let joined = self.joined.iter();
        let is_listed =
            joined.into_iter().any(|names| names.contains(self.project) || names.contains("*"));
        if is_listed {
            self.is_whitelisted = true;
        } else if owns_name {
            self.is_private = true;
        }
        true
    }
}

impl<'snapshot> ProjectView<'snapshot> {
    /// The part of a project that one stage has.
    pub fn alone(
        stage: &'snapshot Arc<Stage>,
        project: &'snapshot Arc<Project>,
    ) -> ProjectView<'snapshot> {
        ProjectView { parts: vec![ProjectPart { stage, project }], blocked_mirrors: Vec::new() }
    }

    /// The part of each stage that has the project, nearest first; never empty.
    pub fn parts(&self) -> &[ProjectPart<'snapshot>] {
        &self.parts
    }

    /// The project's other places, as the stages that have it say.
    pub fn locations(&self, project: &str) -> Locations {
        let mut locations = Locations::default();
        for settings in self.parts.iter().filter_map(|part| part.stage.config().upload()) {
            locations.extend(&settings.locations_of(project));
        }
        locations
    }

    /// Mirrors that are not asked, because a private stage has the project.
    pub fn blocked_mirrors(&self) -> &[&'snapshot StageName] {
        &self.blocked_mirrors
    }

    /// How many files its parts have: what the cost of [`ProjectView::files`] and [`ProjectView::versions`] grows with.
    pub fn file_count(&self) -> usize {
        self.parts.iter().map(|part| part.project.files().len()).sum()
    }

    /// The files that installers may choose from: for each name the nearest file, in the order of the stages and then
    /// of the names. Files of quarantined projects are left out.
    pub fn files(&self) -> Vec<FileView<'snapshot>> {
        let file_count = self.file_count();
        let mut files = Vec::with_capacity(file_count);
        let mut seen = HashSet::with_capacity(if self.parts.len() > 1 { file_count } else { 0 });
        for (part_index, &part) in self.parts.iter().enumerate() {
            let is_quarantined = part.project.is_quarantined();
            for file in part.project.release_files() {
                // A hidden file still hides farther ones with the same name.
                let is_first = self.parts.len() == 1 || seen.insert(file.filename());
                if is_first && !is_quarantined {
                    files.push(FileView { part, part_index, file });
                }
            }
        }
        files
    }

    /// The nearest part that has a file with this name.
    pub fn part_with(&self, filename: &str) -> Option<&ProjectPart<'snapshot>> {
        let is_release = |file: &ReleaseFile| file.role() == FileRole::Release;
        self.parts.iter().find(|part| part.project.file(filename).is_some_and(is_release))
    }

    /// The versions that are registered or have files, newest first.
    pub fn versions(&self) -> Vec<VersionView<'snapshot>> {
        let mut versions: std::collections::BTreeMap<&str, Vec<ProjectPart<'snapshot>>> =
            std::collections::BTreeMap::new();
        for part in &self.parts {
            for version in part.project.versions() {
                versions.entry(version).or_default().push(*part);
            }
        }
        let mut versions: Vec<VersionView<'snapshot>> = versions
            .into_iter()
            .filter_map(|(version, parts)| {
                Some(VersionView { version: Version::parse(version).ok()?, parts })
            })
            .collect();
        versions.sort_by(|one, other| other.version.cmp(&one.version));
        versions
    }
}

#[cfg(test)]
mod tests;
