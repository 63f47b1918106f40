//! The store as Larder uses it: its published state, writes, the first start, and maintenance.
//!
//! [`setup`] opens a store, whose name [`identity`] checks -> records, read into [`stored::Stored`] -> published in
//! [`stored::LiveStore`]; a write goes through it to the store, and [`security`] logs which rights it changes. [`maintenance`]
//! works on the store as a whole, also while servers run on it; [`clocks`] are compared before anything is deleted by time. Nothing here knows a request or a route.

pub mod accounts;
pub mod clocks;
pub mod identity;
pub mod live;
pub mod maintenance;
pub mod named_blobs;
pub mod release_metadata;
pub mod secrets;
pub mod security;
pub mod setup;
pub mod shared_settings;
pub mod side_files;
pub mod stored;
pub mod text;
