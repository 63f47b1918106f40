//! Trusted publishing: an identity of a CI job, checked by its issuer's keys, becomes a token that uploads; and what an index may
//! name as a publisher.

use account::{CiIdentity, TokenText, UploadToken, mint};
use audit::{Entry, Event};
use issuers::VerifiedIdentity;
use pypi::{Mismatch, Publisher, Stage, StageConfig, StageName};

use crate::{Basis, Decided, Name, Operation, Refusal, Rule, Rules};

/// Makes an upload token for the identity of a CI job. Nobody needs a right for it but that identity: some index has to name it.
/// The outcome is the token's text, which nobody gets to know again.
#[derive(Clone, Debug)]
pub struct MintUploadToken {
    /// Who asks, as the issuer has signed it.
    pub verified: VerifiedIdentity,
    /// Random bytes.
    pub secret: [u8; 32],
}

/// An upload token that was made.
#[derive(Clone, Debug)]
pub struct MintedToken {
    /// Its text.
    pub text: TokenText,
    /// What is stored of it.
    pub token: UploadToken,
    /// What it uploads now: indexes with their publishers.
    pub admits: Vec<(StageName, Publisher)>,
}

/// No index names an identity as a publisher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no index names this identity as a trusted publisher: {claims}")]
pub struct NoPublisher {
    /// The identity, as logs name it.
    pub called: String,
    /// Its claims, for whoever sent it.
    claims: String,
    /// The publisher that is most like it, and in what they differ: for the operator alone.
    pub nearest: Option<Box<(StageName, Publisher, Mismatch)>>,
}

/// Publishers among which the one is looked for that is most like an identity.
const LOOKED_AT_MAX: usize = 1000;

/// Claims that are shown to whoever sent an identity that nobody names.
const SHOWN_CLAIMS: [&str; 12] = [
    "repository",
    "repository_id",
    "repository_owner_id",
    "job_workflow_ref",
    "event_name",
    "project_path",
    "project_id",
    "namespace_id",
    "ci_config_ref_uri",
    "environment",
    "ref",
    "sub",
];

impl NoPublisher {
    fn of(identity: &CiIdentity, basis: &Basis) -> NoPublisher {
        let shown = SHOWN_CLAIMS.iter().filter_map(|name| {
            Some(format!("{name}={}", record::escaped_excerpt(identity.claim(name)?, 200)))
        });
        let is_equal = |(name, value): &(&str, &str)| {
            identity.claim(name).is_some_and(|found| found == *value)
        };
        let of_issuer = publishers(basis).filter(|(_, it)| it.issuer() == identity.issuer);
        let of_issuer = of_issuer.take(LOOKED_AT_MAX);
        let nearest = of_issuer.max_by_key(|(_, it)| it.claims().filter(is_equal).count());
        let nearest = nearest.and_then(|(stage, publisher)| {
            let mismatch = publisher.admit(identity).err()?;
            Some(Box::new((stage.name().clone(), publisher.clone(), mismatch)))
        });
        let claims = [identity.issuer.clone()].into_iter().chain(shown).collect::<Vec<_>>();
        NoPublisher { called: identity.name(), claims: claims.join(" "), nearest }
    }
}

/// All publishers, with the indexes that name them.
fn publishers(basis: &Basis) -> impl Iterator<Item = (&Stage, &Publisher)> {
    basis.stored.index.stages().flat_map(|stage| {
        let named = stage.config().upload().map_or(&[][..], |it| &it.trusted_publishers);
        named.iter().map(move |publisher| (&**stage, publisher))
    })
}

impl Operation for MintUploadToken {
    const NAME: Name = Name::MintUploadToken;

    type Outcome = MintedToken;

    fn decide(&self, basis: &Basis) -> Result<Decided<MintedToken>, Refusal> {
        let identity = self.verified.identity();
        let admits = publishers(basis).filter(|(_, publisher)| publisher.admit(identity).is_ok());
        let admits: Vec<(StageName, Publisher)> =
            admits.map(|(stage, publisher)| (stage.name().clone(), publisher.clone())).collect();
        if admits.is_empty() {
            return Err(NoPublisher::of(identity, basis).into());
        }
        let proof = (identity, self.verified.proof(), self.verified.ends_at());
        let (text, token, batch) =
            mint(&basis.stored.accounts, proof, self.secret, basis.now, basis.forget_before)?;
        let noted = basis.noting(|noter| {
            let reason = format!("upload token {} for {}", token.id, identity.name());
            let entry = |(stage, publisher): &(StageName, Publisher)| {
                let projects = publisher.projects().to_string();
                noter.entry(Event::Minted, stage, &projects, None, reason.clone())
            };
            admits.iter().map(entry).collect()
        });
        Ok(Decided::new(batch, MintedToken { text, token, admits }).noting(noted))
    }
}

fn named(config: Option<&StageConfig>) -> &[Publisher] {
    config.and_then(StageConfig::upload).map_or(&[], |it| &it.trusted_publishers)
}

/// Refuses publishers that a change adds to an index, and that would never be admitted, or that are not safe with their issuer.
pub(crate) fn check_publishers(
    rules: &Rules,
    before: Option<&StageConfig>,
    after: &StageConfig,
) -> Result<(), Refusal> {
    for publisher in named(Some(after)).iter().filter(|it| !named(before).contains(it)) {
        let issuer = rules.issuers.iter().find(|issuer| issuer.url == publisher.issuer());
        let issuer = issuer.ok_or_else(|| Rule::UnknownIssuer(publisher.issuer().to_owned()))?;
        publisher.check_kind(issuer.kind)?;
    }
    Ok(())
}

/// The audit log's entries for a change to the publishers of an index.
pub(crate) fn entries_of_publishers(
    basis: &Basis,
    stage: &StageName,
    before: Option<&StageConfig>,
    after: Option<&StageConfig>,
) -> Vec<Entry> {
    let (before, after) = (named(before), named(after));
    let added = after.iter().filter(|it| !before.contains(it)).map(|it| format!("added: {it}"));
    let removed = before.iter().filter(|it| !after.contains(it)).map(|it| format!("removed: {it}"));
    basis.noting(|noter| {
        let entry = |reason| noter.entry(Event::Changed, stage, "publisher", None, reason);
        added.chain(removed).map(entry).collect()
    })
}
