//! [`Limits`]: how much of the machine requests get, whatever they ask: threads, memory, disk, turns, and where they may lead.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use account::UserName;
use anyhow::Context;
use config::Config;
use net::{Egress, TrustedProxies};
use passwords::{Bounds, Passwords};
use resources::bodies::Bodies;
use resources::cpu_pool::CpuPool;
use resources::free_space::FreeSpace;
use resources::turns::ThreadShare;
use store::{BlobLocation, DatabaseLocation};
use tokio::sync::Semaphore;

use super::{ANSWERS_WAITING_MAX, egress};
use crate::metrics::Metrics;
use crate::routes::Surface;

/// Answers of one surface that are made at once, if their cost grows with the data.
const ANSWERS_AT_ONCE: usize = 4;

/// Requests that wait for files which are being made for downloads.
const MAKING_WAITING_MAX: usize = 128;

/// Servers that follow this one at once.
pub(crate) const FOLLOWERS_MAX: usize = 32;

/// Of them, those with tokens of one user who is no administrator.
pub(crate) const FOLLOWERS_PER_USER_MAX: usize = 4;

/// How many followers each user has, who is no administrator.
#[derive(Default)]
pub(crate) struct FollowersOfUsers(Mutex<HashMap<UserName, usize>>);

impl FollowersOfUsers {
    fn lock(&self) -> MutexGuard<'_, HashMap<UserName, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more; false if there are too many.
    pub(crate) fn enter(&self, user: &UserName) -> bool {
        let mut counts = self.lock();
        let count = counts.entry(user.clone()).or_default();
        let has_place = *count < FOLLOWERS_PER_USER_MAX;
        *count += usize::from(has_place);
        has_place
    }

    /// Counts one less.
    pub(crate) fn leave(&self, user: &UserName) {
        let mut counts = self.lock();
        if let Some(count) = counts.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(user);
            }
        }
    }
}

/// The bounds that all surfaces share.
pub struct Limits {
    /// Checks passwords.
    pub passwords: Passwords,
    /// Memory for the bodies of requests.
    pub bodies: Bodies,
    /// Threads for work that only computes.
    pub cpu_pool: CpuPool,
    /// Free space on the disks.
    pub free_space: Arc<FreeSpace>,
    /// Turns to make answers whose cost grows with the data, by [`Surface`].
    pub(crate) making_answers: [ThreadShare; Surface::COUNT],
    /// Turns to make a file for downloads that is not at hand: one at a time.
    pub(crate) making_downloads: ThreadShare,
    /// Places for servers that follow this one.
    pub(crate) followers: Arc<Semaphore>,
    /// Places for those that get only what a user may read. They take none from the others.
    pub(crate) followers_of_parts: Arc<Semaphore>,
    /// How many of these places each user has.
    pub(crate) followers_of_users: FollowersOfUsers,
    /// Proxies whose word about their clients is taken.
    pub trusted: TrustedProxies,
    /// Where this process may connect to on behalf of users.
    pub egress: Egress,
}

impl Limits {
    pub(super) fn new(
        config: &Config,
        cpu_threads: usize,
        cores: usize,
        metrics: &Metrics,
    ) -> anyhow::Result<Limits> {
        let users = &config.users;
        let bounds = Bounds {
            pair: users.wrong_passwords_max,
            client: users.wrong_passwords_per_client_max,
            account: users.wrong_passwords_per_account_max,
        };
        let bodies_max = config.limits.bodies_memory_bytes_max;
        Ok(Limits {
            passwords: Passwords::new(users.remember, cores, bounds, metrics.passwords.clone())?,
            bodies: Bodies::new(bodies_max, metrics.bodies_refused.clone()),
            cpu_pool: CpuPool::start(
                cpu_threads,
                config.actions.cpu_queue_max,
                metrics.cpu_pool.clone(),
            )
            .context("cannot start the threads for computations")?,
            free_space: Arc::new(free_space(config)),
            making_answers: std::array::from_fn(|_| {
                ThreadShare::new(ANSWERS_AT_ONCE, ANSWERS_WAITING_MAX)
            }),
            making_downloads: ThreadShare::one(MAKING_WAITING_MAX),
            followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
            followers_of_parts: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
            followers_of_users: FollowersOfUsers::default(),
            trusted: config.proxies(),
            egress: egress(config),
        })
    }
}

/// The disks of the database and of the blobs, where they are on this machine.
fn free_space(config: &Config) -> FreeSpace {
    // Uploads are spooled in the data directory, even if blobs are stored elsewhere.
    let mut places = vec![config.data_dir.clone()];
    if let DatabaseLocation::Sqlite(file) = config.database() {
        places.extend(file.parent().map(PathBuf::from));
    }
    if let BlobLocation::Directory(directory) = config.blobs() {
        places.push(directory);
    }
    FreeSpace::new(places, config.store.free_bytes_min)
}
