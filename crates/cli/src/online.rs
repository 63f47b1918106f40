//! `larder config check --online`: tries what the configuration and the indexes name, once each, as the server would.
//!
//! configuration -> a [`Trial`] for each thing that is somewhere else, some at once, each with a bound -> a line for each
//!
//! Nothing is changed: a store that is not there is not made.

use std::fmt::Write as _;
use std::time::Duration;

use account::UserName;
use config::{AurSource, Config, Environment, read_providers};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream;
use issuers::{Issuers, Provider, ProviderSettings};
use net::Egress;
use pypi::{MirrorSettings, StageName};
use source::{Source, SourceNews, SourceOptions, SourceSpec};
use state::text::counted;
use store::{BlobError, BlobStore, DatabaseLocation, Records, RecordsOptions};

use super::directory::{Directory, Purpose};
use super::{Exit, runtime};

/// Time for each: a large dump or database is read as a whole.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Things that are tried at once.
const AT_ONCE: usize = 16;

/// A name and a password that no directory has.
const NOBODY: &str = "larder-config-check";

/// What is said of a place that no store has used.
const AT_FIRST_START: &str = "it is not there yet: the first start makes it";

/// One thing that is tried: what names it, where it is, and the attempt, with what was found there.
struct Trial {
    setting: String,
    place: String,
    attempt: BoxFuture<'static, Result<String, String>>,
}

impl Trial {
    fn new(
        setting: impl Into<String>,
        place: impl ToString,
        attempt: impl Future<Output = anyhow::Result<String>> + Send + 'static,
    ) -> Trial {
        let attempt = async {
            match tokio::time::timeout(TIME_MAX, attempt).await {
                Ok(outcome) => outcome.map_err(|error| format!("{error:#}")),
                Err(_) => Err(format!("no answer within {} s", TIME_MAX.as_secs())),
            }
        };
        Trial { setting: setting.into(), place: place.to_string(), attempt: Box::pin(attempt) }
    }
}

/// A line for each thing; the count of those that do not work.
pub(super) fn check(config: &Config, environment: &Environment) -> Result<(String, usize), Exit> {
    runtime()?.block_on(async {
        let mut trials = vec![database(config), blobs(config)?];
        trials.extend(aur(config)?);
        trials.extend(issuers(config)?);
        trials.extend(providers(config, environment)?);
        trials.extend(directory(config)?);
        trials.extend(upstreams(config).await);
        let ran = trials.into_iter().map(|trial| async move {
            (format!("{} = {}", trial.setting, trial.place), trial.attempt.await)
        });
        let (mut text, mut failures) = (String::new(), 0);
        let ran: Vec<_> = stream::iter(ran).buffered(AT_ONCE).collect().await;
        for (named, outcome) in ran {
            failures += usize::from(outcome.is_err());
            let _ = match outcome {
                Ok(found) => writeln!(text, "works: {named}: {found}"),
                Err(reason) => writeln!(text, "fails: {named}: {reason}"),
            };
        }
        Ok((text, failures))
    })
}

fn egress(config: &Config) -> Egress {
    Egress::new(config.egress_allow.iter().copied())
}

fn database(config: &Config) -> Trial {
    let location = config.database();
    let place = location.to_string();
    Trial::new("store.database", place, async move {
        if let DatabaseLocation::Sqlite(path) = &location
            && !path.exists()
        {
            return Ok(AT_FIRST_START.to_owned());
        }
        let records = Records::open_read_only(&location, RecordsOptions::default()).await?;
        let serial = records.serial().await;
        records.close().await;
        Ok(format!("it is at serial {}", serial?.0))
    })
}

fn blobs(config: &Config) -> Result<Trial, Exit> {
    let (place, spool) = (config.blobs(), tempfile::tempdir()?);
    let shown = place.to_string();
    Ok(Trial::new("store.blobs", shown, async move {
        let blobs = match BlobStore::open_existing(&place, spool.path()).await {
            Err(BlobError::Absent { .. }) => return Ok(AT_FIRST_START.to_owned()),
            opened => opened?,
        };
        Ok(match blobs.identity().await? {
            Some(_) => "it is the place of a store".to_owned(),
            None => "it can be read, and is of no store yet".to_owned(),
        })
    }))
}

fn aur(config: &Config) -> Result<Option<Trial>, Exit> {
    let spec = match config.aur.source.as_ref().filter(|_| config.aur.enabled) {
        None => return Ok(None),
        Some(AurSource::File(path)) => SourceSpec::File(path.clone()),
        Some(AurSource::Url(url)) => SourceSpec::parse(url).map_err(Exit::failure)?,
        Some(AurSource::Database(url)) => SourceSpec::Database(Box::new(url.clone())),
    };
    let (place, spool) = (spec.to_string(), tempfile::tempdir()?);
    let options = SourceOptions { egress: egress(config), ..SourceOptions::default() };
    let mut source = Source::open(spec, options, spool.path()).map_err(Exit::failure)?;
    Ok(Some(Trial::new("aur.source", place, async move {
        let news = source.poll(true).await?;
        drop(spool);
        Ok(match news {
            Some(SourceNews::Dump(_)) => "it has a whole catalogue".to_owned(),
            Some(SourceNews::Changes(_)) | None => "it answers".to_owned(),
        })
    })))
}

fn issuers(config: &Config) -> Result<Vec<Trial>, Exit> {
    let mut trials = Vec::new();
    for issuer in &config.publishing.issuers {
        let one = std::slice::from_ref(issuer);
        let issuers = Issuers::new(one, &config.publishing_audience(), &egress(config));
        let issuers = issuers.map_err(|error| Exit::failure(format!("{error:#}")))?;
        trials.push(Trial::new("publishing.issuers", &issuer.url, async move {
            let keys = issuers.try_keys().await?;
            Ok(format!("it has {}", counted(keys as u64, "key")))
        }));
    }
    Ok(trials)
}

fn providers(config: &Config, environment: &Environment) -> Result<Vec<Trial>, Exit> {
    let Some(path) = &config.oidc.providers_file else { return Ok(Vec::new()) };
    let all = read_providers(path, environment).map_err(Exit::failure)?;
    let trial = |settings: ProviderSettings| {
        let (name, issuer) = (format!("provider {}", settings.name), settings.issuer.clone());
        let provider = Provider::new(settings, &egress(config));
        let provider = provider.map_err(|error| Exit::failure(format!("{error:#}")))?;
        Ok(Trial::new(name, issuer, async move {
            let keys = provider.try_log_in().await?;
            Ok(format!("people can log in there, and it has {}", counted(keys as u64, "key")))
        }))
    };
    all.into_iter().map(trial).collect()
}

/// The directory is asked about a user that no directory has.
fn directory(config: &Config) -> Result<Option<Trial>, Exit> {
    let Some(settings) = config.ldap.directory() else { return Ok(None) };
    let urls: Vec<String> = config.ldap.urls.iter().map(ToString::to_string).collect();
    let directory = ldap::Directory::new(settings).map_err(Exit::failure)?;
    let nobody: UserName = NOBODY.parse().map_err(Exit::failure)?;
    Ok(Some(Trial::new("ldap.urls", urls.join(", "), async move {
        directory.check(&nobody, NOBODY).await?;
        Ok("it answers".to_owned())
    })))
}

/// The upstreams of mirrors, if there is a store.
async fn upstreams(config: &Config) -> Vec<Trial> {
    let egress = egress(config);
    let listing = Directory::with(config, Purpose::ShowAll, async |directory: &mut Directory| {
        let stages = directory.index().stages();
        Ok(stages
            .filter_map(|stage| {
                let settings = stage.config().mirror()?;
                Some((stage.name().clone(), settings.shown_url()?, settings.clone()))
            })
            .collect::<Vec<_>>())
    });
    // What is wrong with the store is said of the store.
    let Ok(mirrors) = listing.await else { return Vec::new() };
    let trial = |(name, shown, settings): (StageName, String, MirrorSettings)| {
        let egress = egress.clone();
        Trial::new(format!("mirror_url of {name}"), shown, async move {
            mirrors::try_upstream(&settings, egress).await?;
            Ok("it answers".to_owned())
        })
    };
    mirrors.into_iter().map(trial).collect()
}
