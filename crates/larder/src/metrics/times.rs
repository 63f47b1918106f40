//! [`Times`]: how long requests take, a histogram for each route: the endpoints of one surface that share a label.
//!
//! head of a request -> [`Stopwatch`] -> head of its answer -> [`Times::add`] -> `/metrics`. Adding takes no lock and looks no
//! label up. An answer that is ready in memory takes a few microseconds, and reading the clock twice would be more than one
//! percent of that: so one in [`SAMPLED_OF`] is timed, and counts for all.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};
use prometheus::{Opts, core::Describer as _};

use crate::routes::Endpoint;

/// One in this many ready answers is timed.
pub(crate) const SAMPLED_OF: u32 = 16;

/// The bounds of the buckets, in nanoseconds: 10 us to 30 s, two to a power of ten.
const BOUNDS: [u64; 14] = [
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// A request's running time; `None` if the request is not in the sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    started_at: Option<Instant>,
    /// How many requests this one counts for.
    weight: u32,
}

impl Stopwatch {
    /// Times this request.
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { started_at: Some(Instant::now()), weight: 1 }
    }

    /// Times one of [`SAMPLED_OF`] requests of this thread, chosen at random, so that a rhythm in the requests does not distort
    /// the sample.
    pub(crate) fn start_sampled() -> Stopwatch {
        thread_local! {
            static DRAWN: Cell<u32> = const { Cell::new(0x9E37_79B9) };
        }
        // Marsaglia's xorshift: never 0, and good enough for a sample.
        let mut drawn = DRAWN.get();
        drawn ^= drawn << 13;
        drawn ^= drawn >> 17;
        drawn ^= drawn << 5;
        DRAWN.set(drawn);
        let is_in_sample = drawn < u32::MAX / SAMPLED_OF;
        Stopwatch { started_at: is_in_sample.then(Instant::now), weight: SAMPLED_OF }
    }
}

/// The histograms. A clone counts into the same ones.
#[derive(Clone)]
pub(super) struct Times {
    desc: Desc,
    by_endpoint: Arc<[Histogram]>,
}

/// The times of one endpoint.
#[derive(Default)]
struct Histogram {
    /// Not cumulative; the last one is for times above all bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_nanoseconds: AtomicU64,
}

impl Histogram {
    fn add(&self, took: Duration, weight: u32) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Most are below the first bounds.
        let at = BOUNDS.iter().position(|bound| nanoseconds <= *bound).unwrap_or(BOUNDS.len());
        let weight = u64::from(weight);
        self.buckets[at].fetch_add(weight, Relaxed);
        self.sum_nanoseconds.fetch_add(nanoseconds.saturating_mul(weight), Relaxed);
    }

    /// The sum of these histograms.
    fn render(parts: &[&Histogram]) -> proto::Histogram {
        let sum = |of: &dyn Fn(&Histogram) -> &AtomicU64| -> u64 {
            parts.iter().map(|part| of(part).load(Relaxed)).sum()
        };
        let mut count = 0;
        let mut buckets = Vec::with_capacity(BOUNDS.len());
        for (at, bound) in BOUNDS.into_iter().enumerate() {
            count += sum(&|part| &part.buckets[at]);
            let mut cumulative = proto::Bucket::default();
            cumulative.set_cumulative_count(count);
            cumulative.set_upper_bound(Duration::from_nanos(bound).as_secs_f64());
            buckets.push(cumulative);
        }
        let mut histogram = proto::Histogram::default();
        histogram.set_sample_count(count + sum(&|part| &part.buckets[BOUNDS.len()]));
        let took = Duration::from_nanos(sum(&|part| &part.sum_nanoseconds));
        histogram.set_sample_sum(took.as_secs_f64());
        histogram.set_bucket(buckets);
        histogram
    }
}

impl Times {
    pub(super) fn new(name: &str, help: &str) -> Times {
        let labels = ["surface", "route"].map(str::to_owned).to_vec();
        let desc = Opts::new(name, help).variable_labels(labels).describe();
        let by_endpoint = Endpoint::ALL.iter().map(|_| Histogram::default()).collect();
        Times { desc: desc.expect("the name and the labels are valid"), by_endpoint }
    }

    /// Adds a request that was just answered.
    pub(super) fn add(&self, endpoint: Endpoint, stopwatch: Stopwatch) {
        if let Some(started_at) = stopwatch.started_at {
            self.by_endpoint[endpoint as usize].add(started_at.elapsed(), stopwatch.weight);
        }
    }
}

impl Collector for Times {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let label = |name: &str, value: &str| {
            let mut label = LabelPair::default();
            label.set_name(name.to_owned());
            label.set_value(value.to_owned());
            label
        };
        let mut routes: Vec<(Endpoint, Vec<&Histogram>)> = Vec::new();
        for (endpoint, times) in Endpoint::ALL.iter().zip(self.by_endpoint.iter()) {
            let labels = |it: Endpoint| (it.surface(), it.route());
            match routes.iter_mut().find(|(it, _)| labels(*it) == labels(*endpoint)) {
                Some((_, parts)) => parts.push(times),
                None => routes.push((*endpoint, vec![times])),
            }
        }
        let metrics = routes.into_iter().filter_map(|(at, parts)| {
            let histogram = Histogram::render(&parts);
            // On most servers, most endpoints get no requests.
            if histogram.get_sample_count() == 0 {
                return None;
            }
            let labels = vec![label("route", at.route()), label("surface", at.surface().name())];
            let mut metric = proto::Metric::from_label(labels);
            metric.set_histogram(histogram);
            Some(metric)
        });
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_its_bucket_and_all_above() {
        let histogram = Histogram::default();
        histogram.add(Duration::from_micros(10), 1);
        histogram.add(Duration::from_micros(20), 16);
        histogram.add(Duration::from_millis(400), 1);
        histogram.add(Duration::from_secs(40), 1);
        let rendered = Histogram::render(&[&histogram]);
        let buckets = rendered.get_bucket().iter();
        let buckets: Vec<_> = buckets.map(|it| (it.upper_bound(), it.cumulative_count())).collect();
        assert_eq!(buckets[..3], [(0.00001, 1), (0.00003, 17), (0.0001, 17)]);
        assert_eq!(buckets[9..11], [(0.3, 17), (1.0, 18)]);
        assert_eq!(buckets[13], (30.0, 18));
        assert_eq!(rendered.get_sample_count(), 19);
        assert_eq!(rendered.get_sample_sum(), 40.400_33);
    }

    /// The weighted sample is about the number of all requests.
    #[test]
    fn a_sample_counts_for_all() {
        let drawn = (0..160_000).filter(|_| Stopwatch::start_sampled().started_at.is_some());
        let count = drawn.count();
        assert!((9_000..11_000).contains(&count), "{count} of 160,000");
    }
}
