//! How a line of the table becomes a metric that is registered.

use prometheus::core::Collector;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// A metric that a line of the table makes.
pub(super) trait Metric: Collector + Clone + Sized + 'static {
    /// A label, or the bound of a bucket.
    type Part;

    fn new(opts: Opts, parts: &[Self::Part]) -> prometheus::Result<Self>;
}

macro_rules! kinds {
    ($($Kind:ty: $Part:ty = |$opts:ident, $parts:pat_param| $made:expr;)+) => {
        $(impl Metric for $Kind {
            type Part = $Part;

            fn new($opts: Opts, $parts: &[$Part]) -> prometheus::Result<Self> {
                $made
            }
        })+
    };
}

kinds! {
    IntCounter: () = |opts, _| IntCounter::with_opts(opts);
    IntGauge: () = |opts, _| IntGauge::with_opts(opts);
    Gauge: () = |opts, _| Gauge::with_opts(opts);
    Histogram: f64 = |opts, bounds| {
        Histogram::with_opts(HistogramOpts::from(opts).buckets(bounds.to_vec()))
    };
    IntCounterVec: &'static str = |opts, labels| IntCounterVec::new(opts, labels);
    IntGaugeVec: &'static str = |opts, labels| IntGaugeVec::new(opts, labels);
}

/// Makes metrics, and registers them.
pub(super) struct Maker(pub(super) Registry);

impl Maker {
    pub(super) fn metric<M: Metric>(&self, name: &str, help: &str, parts: &[M::Part]) -> M {
        self.registered(M::new(Opts::new(name, help.trim_start()), parts))
    }

    pub(super) fn registered<C: Collector + Clone + 'static>(
        &self,
        metric: prometheus::Result<C>,
    ) -> C {
        let metric = metric.expect("metric names and labels are valid");
        self.0.register(Box::new(metric.clone())).expect("metric names are unique");
        metric
    }
}

/// A struct of metrics, which are made in the order of the table.
///
/// A line is `field: Type = "name" [labels or bounds of buckets];` and its doc comment is the help text; or
/// `field: Type => expression;`, where the expression may use the maker and the fields above it.
macro_rules! metrics {
    (
        $(#[doc = $struct_doc:literal])+
        pub struct $Struct:ident, made by $make:ident {
            $(
                $(#[doc = $doc:literal])+
                $vis:vis $field:ident: $Type:ty
                    $(= $name:literal $([$($part:expr),+ $(,)?])?)? $(=> $made:expr)?;
            )+
        }
    ) => {
        $(#[doc = $struct_doc])+
        pub struct $Struct {
            $($(#[doc = $doc])+ $vis $field: $Type,)+
        }

        impl $Struct {
            fn made($make: &Maker) -> Self {
                $(let $field: $Type =
                    value!($make, concat!($($doc),+), $(= $name [$($($part),+)?])? $(=> $made)?);)+
                Self { $($field,)+ }
            }
        }
    };
}

/// The value of a line of the table.
macro_rules! value {
    ($make:ident, $help:expr, = $name:literal [$($part:expr),*]) => {
        $make.metric($name, $help, &[$($part),*])
    };
    ($make:ident, $help:expr, => $made:expr) => { $made };
}

pub(super) use {metrics, value};
