//! [`Advisories`]: which versions of which projects are malware or have known vulnerabilities, as OSV records say.
//!
//! JSON of a record (<https://ossf.github.io/osv-schema/>) -> [`AdvisoriesBuilder::add`] -> [`Advisories`] -> the [`Advisory`]s
//! of a project, or of one version of it. [`LiveAdvisories`] is the cell with the current ones: policies ask it, and pages that
//! were judged by earlier ones are out of date ([`AdvisoryStamp`]).
//!
//! [`Bundle`] is a zip of records. Only what policies need is kept in memory. The caller keeps the whole records, and gives
//! each a number ([`Advisory::place`]) to find it again. Records of other ecosystems than `PyPI` are left out. A withdrawn one
//! stays, but affects nothing.

mod affected;
mod bundle;
mod live;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

pub(crate) use self::affected::AffectedVersions;
pub use self::bundle::{BUNDLE_SHRINK_MAX, Bundle, BundleError, RECORD_BYTES_MAX, RECORDS_MAX};
pub use self::live::{AdvisoryStamp, LiveAdvisories};
pub use self::wire::is_ecosystem;
use crate::{ProjectName, Version};

/// The ecosystem of the records that count.
pub const ECOSYSTEM: &str = "PyPI";

/// Identifiers that begin so are of malicious packages.
const MALWARE_PREFIX: &str = "MAL-";

/// Longest identifier of a record, in bytes.
pub(crate) const ID_BYTES_MAX: usize = 128;

/// Memory for all records together at most, in bytes. It is counted for the worst case; they really take a fraction of it.
const WEIGHT_MAX: usize = 512 << 20;

/// Most packages, events and versions of one record.
const PARTS_MAX: usize = 50_000;

/// Why a record is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OsvError {
    /// The record is not JSON of the schema's form.
    #[error("it is not an OSV record: {0}")]
    Form(String),
    /// A value does not follow the schema.
    #[error("its `{member}` is `{value}`, but {expected} was expected")]
    Value {
        /// The member with the value.
        member: &'static str,
        /// What was found, shortened.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The record has too many parts.
    #[error("it has {count} packages, events and versions, but at most {max} were expected", max = PARTS_MAX)]
    TooLarge {
        /// How many.
        count: usize,
    },
    /// All records together say more than can be kept.
    #[error("the versions of all records take more than {max} bytes of memory, the most that is used for them", max = WEIGHT_MAX)]
    TooMany,
}

/// How a record was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// None of the packages that it affects is of [`ECOSYSTEM`], so it is left out.
    Foreign,
    /// The whole record counts.
    Whole,
    /// The record counts, without the parts that cannot be read; this is the error of the first one.
    InPart(OsvError),
}

/// The part of a record that is kept in memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Advisory {
    id: Box<str>,
    modified: Timestamp,
    place: u32,
    is_withdrawn: bool,
}

impl Advisory {
    /// Its identifier: ASCII letters, digits, `-`, `.`, `_` and `:`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When it was last changed.
    pub fn modified(&self) -> Timestamp {
        self.modified
    }

    /// The number that the caller gave it.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// Whether it is about malware; if not, it is about a vulnerability.
    pub(crate) fn is_malware(&self) -> bool {
        self.id.starts_with(MALWARE_PREFIX)
    }
}

/// Whether this can be the identifier of a record.
pub fn is_id(text: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_fit)
}

/// The records of a bundle, indexed by project. It never changes.
#[derive(Debug, Default)]
pub struct Advisories {
    /// By identifier.
    all: Box<[Arc<Advisory>]>,
    /// The records of each project, by its normalized name: ascending by identifier.
    of_projects: HashMap<Box<str>, Arc<[AffectedVersions]>>,
    malware: usize,
    vulnerabilities: usize,
}

impl Advisories {
    /// How many records there are, withdrawn ones included.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether it has no record.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of records about malware.
    pub fn malware(&self) -> usize {
        self.malware
    }

    /// The number of records about vulnerabilities.
    pub fn vulnerabilities(&self) -> usize {
        self.vulnerabilities
    }

    /// How many projects the records that count are about.
    pub fn projects(&self) -> usize {
        self.of_projects.len()
    }

    /// The record with this identifier.
    pub fn by_id(&self, id: &str) -> Option<&Advisory> {
        let at = self.all.binary_search_by(|advisory| (*advisory.id).cmp(id)).ok()?;
        Some(&self.all[at])
    }

    /// The records that affect this version of a project, or any version if none is given: ascending by identifier, each once.
    /// A version that PEP 440 cannot compare is affected by records that name it or all versions.
    pub fn affecting<'own>(
        &'own self,
        project: &ProjectName,
        version: Option<&'own Version>,
    ) -> impl Iterator<Item = &'own Advisory> + use<'own> {
        let mut last = None;
        let affected = self.of_project(project.as_str()).map(|it| &**it).unwrap_or_default();
        let affecting =
            affected.iter().filter(move |it| version.is_none_or(|version| it.names(version)));
        affecting.map(AffectedVersions::advisory).filter(move |advisory| {
            let is_new = last != Some(advisory.id());
            last = Some(advisory.id());
            is_new
        })
    }

    /// How many comparisons [`Advisories::affecting`] needs for a version of the project.
    pub fn comparisons(&self, project: &ProjectName) -> usize {
        let affected = self.of_project(project.as_str()).map(|it| &**it).unwrap_or_default();
        affected.iter().map(AffectedVersions::comparisons).sum()
    }

    /// The records of the project with this normalized name.
    pub(crate) fn of_project(&self, project: &str) -> Option<&Arc<[AffectedVersions]>> {
        self.of_projects.get(project)
    }
}

/// Reads records, one after the other.
#[derive(Debug)]
pub struct AdvisoriesBuilder {
    read: Vec<ReadRecord>,
    /// Bytes that further records may take.
    room: usize,
}

impl Default for AdvisoriesBuilder {
    fn default() -> AdvisoriesBuilder {
        AdvisoriesBuilder { read: Vec::new(), room: WEIGHT_MAX }
    }
}

/// A record that was read.
#[derive(Debug)]
struct ReadRecord {
    advisory: Arc<Advisory>,
    affected: Vec<(ProjectName, AffectedVersions)>,
}

impl AdvisoriesBuilder {
    /// Takes a record, without the parts of it that cannot be read.
    ///
    /// # Errors
    /// [`OsvError`]; after [`OsvError::TooMany`], the other records are of no use either.
    pub fn add(&mut self, json: &[u8], place: u32) -> Result<RecordOutcome, OsvError> {
        let Some(record) = wire::read(json)? else { return Ok(RecordOutcome::Foreign) };
        let advisory = Arc::new(Advisory {
            id: record.id.into(),
            modified: record.modified,
            place,
            is_withdrawn: record.is_withdrawn,
        });
        let affected: Vec<_> = record
            .affected
            .into_iter()
            .map(|(project, versions)| (project, AffectedVersions::of(advisory.clone(), versions)))
            .collect();
        let weight = affected.iter().map(|(_, it)| it.weight()).sum();
        self.room = self.room.checked_sub(weight).ok_or(OsvError::TooMany)?;
        self.read.push(ReadRecord { advisory, affected });
        Ok(record.problem.map_or(RecordOutcome::Whole, RecordOutcome::InPart))
    }

    /// All that was read. Of several records with one identifier, that which was changed last counts.
    pub fn finish(mut self) -> Advisories {
        self.read.sort_by(|one, other| {
            let (one, other) = (&one.advisory, &other.advisory);
            one.id.cmp(&other.id).then_with(|| other.modified.cmp(&one.modified))
        });
        self.read.dedup_by(|later, kept| later.advisory.id == kept.advisory.id);
        let mut all = Vec::with_capacity(self.read.len());
        let mut of_projects: HashMap<Box<str>, Vec<AffectedVersions>> = HashMap::new();
        for ReadRecord { advisory, affected } in self.read {
            for (project, affected) in affected.into_iter().filter(|_| !advisory.is_withdrawn) {
                of_projects.entry(project.as_str().into()).or_default().push(affected);
            }
            all.push(advisory);
        }
        let count_of = |is_malware| {
            let counts = |it: &&Arc<Advisory>| it.is_malware() == is_malware && !it.is_withdrawn;
            all.iter().filter(counts).count()
        };
        Advisories {
            malware: count_of(true),
            vulnerabilities: count_of(false),
            all: all.into(),
            of_projects: of_projects.into_iter().map(|(name, it)| (name, it.into())).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
