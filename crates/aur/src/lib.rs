//! The AUR's metadata and its query interface, `/rpc`, without the network.
//!
//! dump bytes -> [`dump::read`] -> [`Snapshot`] <- [`Query`] <- [`Params`]
//!                                     |
//!                                  [`Answer`]: finished bytes
//!
//! A [`Snapshot`] holds every package of one dump and never changes; a refresh builds the next one. If little differs, that one
//! shares the large indexes of the last one, and has small ones of its own for what has changed: [`Snapshot::updated`].
//! Reading a dump needs an [`std::io::Read`] from the caller; beyond that nothing here does I/O,
//! reads a clock or knows HTTP.
//!
//! The rules are those of aurweb (the reference for this API) and goaurrpc (which its clients meet in production).
//! Where the two contradict each other, `docs/aur-differences.md` says which answer Larder gives and why.

mod answer;
mod arch;
mod browse;
mod buffer;
pub mod delta;
mod difference;
pub mod dump;
mod error;
mod faur;
mod field;
mod find;
mod fit;
mod fold;
mod hidden_members;
mod layers;
mod lists;
mod needles;
mod options;
mod package;
mod params;
mod pattern;
mod query;
mod record;
mod refined;
mod scan;
mod search_context;
mod searchable;
mod segment;
mod snapshot;
mod sort_key;
mod update;
mod words;

pub use answer::{Answer, Outcome};
pub use browse::{
    Base, Details, Filter, ListWindow, Order, PackageList, PackageSelection, PackageSummary,
};
pub use difference::{Difference, Facts};
pub use dump::{DumpError, DumpLimits};
pub use error::QueryError;
pub use faur::FaurBy;
pub use field::{By, Mode};
pub use fold::fold;
pub use lists::{Compressed, List};
pub use params::{Body, Params, PathParams};
pub use query::{Kind, Query, Refusal, RequestKind, Version};
pub use search_context::SearchContext;
pub use snapshot::{Popularities, Snapshot};
pub use update::Changes;
