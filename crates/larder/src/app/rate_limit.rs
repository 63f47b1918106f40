//! [`RateLimiter`]: bounds the requests of each client by a fixed window, as aurweb and goaurrpc do.
//!
//! peer + headers -> [`net::ClientAddress::resolve`] -> [`net::ClientAddress::key`] -> [`RateLimiter::check`] -> [`Decision`]
//! -> headers of the response. A client's window begins with its first request. It allows `limit` requests; further
//! ones are refused until the window is over. Every request counts, refused ones too.
//!
//! Memory is a fixed table, made when there is something to count: no client can make it grow. If there are more
//! clients than places, those whose windows are over are evicted first, then those with the fewest requests. So a
//! flood of new addresses never helps a client out of a limit that it has reached. The price is that such a flood
//! resets some small counts: the limiter then errs on the client's side.
//!
//! The limiter does no I/O and waits for nothing while it holds a lock, and it reads no clock (time is an argument).

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) use net::ClientKey;

const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Clients whose hashes collide share a bucket of this size; the least important of them is evicted.
const BUCKET_CLIENTS: usize = 8;

/// The decision about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is within the limit.
    pub allowed: bool,
    /// Requests per window; 0 if there is no limit and nothing is counted.
    pub limit: u32,
    /// Requests that the client has left in its window, after this one.
    pub remaining: u32,
    /// Whole seconds until the client's window is over, rounded up: at least 1 while there is a limit.
    pub reset_after_seconds: u64,
}

impl Decision {
    const UNLIMITED: Self = Self { allowed: true, limit: 0, remaining: 0, reset_after_seconds: 0 };
}

/// Counts the requests of every client.
pub struct RateLimiter {
    limit: AtomicU32,
    window_milliseconds: AtomicU64,
    /// The value of `RateLimit-Policy`, made once per change.
    policy: ArcSwap<HeaderValue>,
    /// Instants are stored as milliseconds since this one, in half the space.
    epoch: Instant,
    hasher: RandomState,
    bucket_count: usize,
    /// One lock for each bucket: two requests wait for each other only if their clients share one. Empty until the
    /// first request is counted.
    buckets: OnceLock<Box<[Mutex<Bucket>]>>,
    /// Clients in the table.
    clients: AtomicUsize,
}

type Bucket = [Option<Window>; BUCKET_CLIENTS];

/// One client's window.
#[derive(Clone, Copy, Debug)]
struct Window {
    key: ClientKey,
    /// Requests so far, refused ones included.
    requests: u32,
    /// When the window began.
    start_milliseconds: u64,
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("limit", &self.limit())
            .field("window", &self.window())
            .field("clients", &self.len())
            .finish_non_exhaustive()
    }
}

impl RateLimiter {
    /// A limiter of `limit` requests per `window` (0: no limit) that remembers about `clients_max` clients, at least
    /// 8. It takes 33 bytes per client when it counts the first request, and never more.
    pub fn new(limit: u32, window: Duration, clients_max: usize) -> Self {
        let limiter = Self {
            limit: AtomicU32::new(limit),
            window_milliseconds: AtomicU64::new(0),
            policy: ArcSwap::from_pointee(HeaderValue::from_static("")),
            epoch: Instant::now(),
            hasher: RandomState::new(),
            bucket_count: clients_max.div_ceil(BUCKET_CLIENTS).max(1),
            buckets: OnceLock::new(),
            clients: AtomicUsize::new(0),
        };
        limiter.set_window(window);
        limiter
    }

    /// Counts a request of `key` at `now` and decides whether it is allowed.
    pub fn check(&self, key: ClientKey, now: Instant) -> Decision {
        let limit = self.limit();
        if limit == 0 {
            return Decision::UNLIMITED;
        }
        let window_milliseconds = self.window_milliseconds.load(Relaxed);
        let now = self.milliseconds(now);
        let mut bucket = self.bucket(key);
        let (index, is_running) = position(&bucket, key, now, window_milliseconds);
        if bucket[index].is_none() {
            self.clients.fetch_add(1, Relaxed);
        }
        let window = match &mut bucket[index] {
            Some(window) if is_running => window,
            place => place.insert(Window { key, requests: 0, start_milliseconds: now }),
        };
        window.requests = window.requests.saturating_add(1);
        let Window { requests, start_milliseconds, .. } = *window;
        drop(bucket);
        let ends_at = start_milliseconds.saturating_add(window_milliseconds);
        Decision {
            allowed: requests <= limit,
            limit,
            remaining: limit.saturating_sub(requests),
            reset_after_seconds: ends_at.saturating_sub(now).div_ceil(1000).max(1),
        }
    }

    /// Adds the header fields of draft-ietf-httpapi-ratelimit-headers-06 (later editions fold the first three into
    /// one structured field, which clients do not read yet): `RateLimit-Limit`, `RateLimit-Remaining`,
    /// `RateLimit-Reset` (seconds from now), and `RateLimit-Policy` (`4000;w=86400`). A refused request also gets
    /// `Retry-After` (RFC 9110). Without a limit nothing is added.
    pub(crate) fn insert_headers(&self, decision: &Decision, headers: &mut HeaderMap) {
        if decision.limit == 0 {
            return;
        }
        headers.insert(RATELIMIT_LIMIT, decision.limit.into());
        // A value that differs each time would push all others out of the table by which HTTP/2 sends headers as numbers.
        let mut remaining = HeaderValue::from(decision.remaining);
        remaining.set_sensitive(true);
        headers.insert(RATELIMIT_REMAINING, remaining);
        headers.insert(RATELIMIT_RESET, decision.reset_after_seconds.into());
        headers.insert(RATELIMIT_POLICY, HeaderValue::clone(&self.policy.load()));
        if !decision.allowed {
            headers.insert(RETRY_AFTER, decision.reset_after_seconds.into());
        }
    }

    /// Requests per window; 0 means no limit.
    pub fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// Changes the limit, also for windows that have begun; 0 disables it and leaves the counts.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Relaxed);
        self.render_policy();
    }

    /// Length of a window.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_milliseconds.load(Relaxed))
    }

    /// Changes the length of windows, also of those that have begun. It is counted in whole milliseconds, at least
    /// one.
    pub(crate) fn set_window(&self, window: Duration) {
        let milliseconds = u64::try_from(window.as_millis()).unwrap_or(u64::MAX).max(1);
        self.window_milliseconds.store(milliseconds, Relaxed);
        self.render_policy();
    }

    /// Clients in the table; the windows of some may be over.
    pub fn len(&self) -> usize {
        self.clients.load(Relaxed)
    }

    /// Whether no client is in the table.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all clients; returns how many there were.
    pub fn wipe(&self) -> usize {
        self.remove(|_| true)
    }

    /// Removes the clients whose windows are over; returns how many there were. The table does not need this, since
    /// their places can be used again, but [`len`](Self::len) is more accurate afterwards.
    pub(crate) fn clean_up(&self, now: Instant) -> usize {
        let now = self.milliseconds(now);
        let window_milliseconds = self.window_milliseconds.load(Relaxed);
        self.remove(|window| window.is_over(now, window_milliseconds))
    }

    fn remove(&self, is_unwanted: impl Fn(&Window) -> bool) -> usize {
        let mut removed = 0;
        for bucket in self.buckets.get().into_iter().flatten() {
            for place in lock(bucket).iter_mut() {
                if place.as_ref().is_some_and(&is_unwanted) {
                    *place = None;
                    removed += 1;
                    self.clients.fetch_sub(1, Relaxed);
                }
            }
        }
        removed
    }

    fn bucket(&self, key: ClientKey) -> MutexGuard<'_, Bucket> {
        // The hash has a random key, so that nobody can choose addresses that collide.
        let hash = self.hasher.hash_one(key);
        let index = (u128::from(hash) * self.bucket_count as u128) >> 64;
        let buckets = self.buckets.get_or_init(|| {
            std::iter::repeat_with(Mutex::default).take(self.bucket_count).collect()
        });
        lock(&buckets[index as usize])
    }

    fn milliseconds(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    fn render_policy(&self) {
        let seconds = self.window_milliseconds.load(Relaxed).div_ceil(1000);
        let text = format!("{};w={seconds}", self.limit());
        self.policy
            .store(HeaderValue::try_from(text).expect("digits are valid in a header").into());
    }
}

impl Window {
    fn is_over(&self, now: u64, window_milliseconds: u64) -> bool {
        now.saturating_sub(self.start_milliseconds) >= window_milliseconds
    }
}

/// Nothing panics while it holds a lock; if something ever does, the counts are still valid.
fn lock(bucket: &Mutex<Bucket>) -> MutexGuard<'_, Bucket> {
    bucket.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The place for the client's window: its current window, or a free one, or that of the least important other client. Also
/// whether the client's own window is there and not over.
fn position(bucket: &Bucket, key: ClientKey, now: u64, window_milliseconds: u64) -> (usize, bool) {
    let own = bucket.iter().enumerate().find_map(|(index, place)| {
        let window = place.as_ref().filter(|window| window.key == key)?;
        Some((index, !window.is_over(now, window_milliseconds)))
    });
    if let Some(found) = own {
        return found;
    }
    let importance = |place: &Option<Window>| match place {
        None => (0, 0, 0),
        Some(window) if window.is_over(now, window_milliseconds) => {
            (1, 0, window.start_milliseconds)
        }
        Some(window) => (2, window.requests, window.start_milliseconds),
    };
    let least = (0..BUCKET_CLIENTS).min_by_key(|index| importance(&bucket[*index]));
    (least.expect("a bucket has places"), false)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn client(number: u32) -> ClientKey {
        ClientKey::Ipv4(number)
    }

    /// Requests as `client@second`, results as `remaining/reset`, or `!reset` for a refusal; 3 per 10 seconds.
    #[track_caller]
    fn check(requests: &str, answers: &str) {
        let limiter = RateLimiter::new(3, 10 * SECOND, 100);
        let found = requests
            .split(' ')
            .map(|request| {
                let (number, second) = request.split_once('@').unwrap();
                let now = limiter.epoch + SECOND.mul_f64(second.parse().unwrap());
                let decision = limiter.check(client(number.parse().unwrap()), now);
                let Decision { remaining, reset_after_seconds, .. } = decision;
                if decision.allowed {
                    format!("{remaining}/{reset_after_seconds}")
                } else {
                    format!("!{reset_after_seconds}")
                }
            })
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(found, answers);
    }

    #[test]
    fn the_window_begins_with_the_first_request() {
        check("1@5 1@6 1@7 1@8 1@14.9 1@15", "2/10 1/9 0/8 !7 !1 2/10");
    }

    #[test]
    fn clients_are_counted_apart() {
        check("1@0 1@0 1@0 1@0 2@1 1@2", "2/10 1/10 0/10 !10 2/10 !8");
    }

    #[test]
    fn refused_requests_do_not_prolong_the_window() {
        check("1@0 1@0 1@0 1@9 1@9.5 1@10", "2/10 1/10 0/10 !1 !1 2/10");
    }

    #[test]
    fn zero_is_no_limit() {
        let limiter = RateLimiter::new(0, SECOND, 8);
        for _ in 0..10_000 {
            assert_eq!(limiter.check(client(1), limiter.epoch), Decision::UNLIMITED);
        }
        assert!(limiter.is_empty());
    }

    #[test]
    fn limit_and_window_change_while_serving() {
        let limiter = RateLimiter::new(1, 100 * SECOND, 8);
        let allowed =
            |second: u32| limiter.check(client(1), limiter.epoch + second * SECOND).allowed;
        assert_eq!([allowed(0), allowed(0)], [true, false]);
        limiter.set_limit(3);
        assert_eq!([allowed(1), allowed(1)], [true, false]);
        limiter.set_window(10 * SECOND);
        assert_eq!([allowed(9), allowed(10)], [false, true]);
        assert_eq!((limiter.limit(), limiter.window()), (3, 10 * SECOND));
    }

    #[test]
    fn wiping_and_cleaning_return_how_many_were_removed() {
        let limiter = RateLimiter::new(1, 10 * SECOND, 10_000);
        for number in 0..10 {
            limiter.check(client(number), limiter.epoch + number * SECOND);
        }
        assert_eq!(limiter.len(), 10);
        assert_eq!(limiter.clean_up(limiter.epoch + 13 * SECOND), 4);
        assert_eq!(limiter.len(), 6);
        assert!(!limiter.check(client(9), limiter.epoch + 13 * SECOND).allowed);
        assert_eq!(limiter.wipe(), 6);
        assert!(limiter.is_empty());
        assert!(limiter.check(client(9), limiter.epoch + 13 * SECOND).allowed);
    }

    #[test]
    fn a_flood_of_addresses_neither_grows_the_table_nor_frees_the_greedy() {
        let limiter = RateLimiter::new(50, 1000 * SECOND, 1_000);
        let greedy = client(u32::MAX);
        for _ in 0..60 {
            limiter.check(greedy, limiter.epoch);
        }
        for number in 0..100_000 {
            limiter.check(client(number), limiter.epoch + SECOND);
        }
        assert!(limiter.len() <= 1_000, "{}", limiter.len());
        assert!(!limiter.check(greedy, limiter.epoch + 2 * SECOND).allowed);
    }

    #[test]
    fn windows_that_are_over_give_way_first() {
        let limiter = RateLimiter::new(50, 10 * SECOND, BUCKET_CLIENTS);
        for number in 0..BUCKET_CLIENTS as u32 {
            let start = if number == 0 { 0 } else { 5 };
            // The client whose window is over has made the most requests.
            for _ in 0..40 - number {
                limiter.check(client(number), limiter.epoch + start * SECOND);
            }
        }
        let now = limiter.epoch + 12 * SECOND;
        limiter.check(client(99), now);
        assert_eq!(limiter.len(), BUCKET_CLIENTS);
        assert_eq!(limiter.check(client(7), now).remaining, 50 - 34);
        assert_eq!(
            limiter.check(client(0), now).remaining,
            49,
            "it was forgotten, and so was the newcomer"
        );
        assert_eq!(limiter.check(client(1), now).remaining, 50 - 40);
    }

    #[test]
    fn headers_say_where_the_client_stands() {
        let limiter = RateLimiter::new(2, 86_400 * SECOND, 8);
        let headers = |second: u32| {
            let decision = limiter.check(client(1), limiter.epoch + second * SECOND);
            let mut headers = HeaderMap::new();
            limiter.insert_headers(&decision, &mut headers);
            assert!(headers.get(RATELIMIT_REMAINING).is_none_or(HeaderValue::is_sensitive));
            let mut lines: Vec<_> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            lines.sort();
            lines.join("\n")
        };
        let first = "ratelimit-limit: 2\nratelimit-policy: 2;w=86400\nratelimit-remaining: 1\nratelimit-reset: 86400";
        assert_eq!(headers(0), first);
        assert!(!headers(1).contains("retry-after"));
        let refused = "ratelimit-limit: 2\nratelimit-policy: 2;w=86400\nratelimit-remaining: 0\n\
                       ratelimit-reset: 86390\nretry-after: 86390";
        assert_eq!(headers(10), refused);
        limiter.set_limit(0);
        assert_eq!(headers(11), "");
        limiter.set_limit(9);
        assert!(headers(12).contains("policy: 9;w=86400"));
    }

    #[test]
    fn two_threads_lose_no_request() {
        let limiter = RateLimiter::new(u32::MAX, 1000 * SECOND, 8);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..10_000).for_each(|_| {
                        limiter.check(client(1), limiter.epoch);
                    })
                });
            }
        });
        assert_eq!(limiter.check(client(1), limiter.epoch).remaining, u32::MAX - 20_001);
    }

    #[test]
    fn a_place_takes_33_bytes() {
        assert_eq!(size_of::<Mutex<Bucket>>(), BUCKET_CLIENTS * 33);
    }

    proptest! {
        /// As long as all clients fit, the table counts exactly like a map.
        #[test]
        fn equals_a_map(requests in prop::collection::vec((0..6_u32, 0..3_000_u64), 1..200)) {
            let limiter = RateLimiter::new(5, 10 * SECOND, 4_096);
            let mut windows: HashMap<u32, (u64, u32)> = HashMap::new();
            let mut now = 0;
            for (number, pause) in requests {
                now += pause;
                let window = windows.entry(number).or_insert((now, 0));
                if now - window.0 >= 10_000 {
                    *window = (now, 0);
                }
                window.1 += 1;
                let decision = limiter.check(client(number), limiter.epoch + Duration::from_millis(now));
                prop_assert_eq!(decision, Decision {
                    allowed: window.1 <= 5,
                    limit: 5,
                    remaining: 5_u32.saturating_sub(window.1),
                    reset_after_seconds: (window.0 + 10_000 - now).div_ceil(1000),
                });
            }
        }
    }
}
