//! `/rpc` and `/api`: questions about packages.

mod golden;
