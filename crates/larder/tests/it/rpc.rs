//! `/rpc` and `/api`: questions about packages.

mod cors;
mod encodings;
mod faur;
mod golden;
mod headers;
mod paths;
mod post;
mod rate_limit;
mod refined;
mod version_6;
