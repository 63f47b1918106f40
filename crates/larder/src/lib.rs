//! The server, in rooms. What requests are answered from: [`published`], and the state of the server around it, [`app`], which
//! [`tasks`] keep up to date. The table of paths, [`routes`], and what every request goes through, [`front`]. Handlers:
//! [`protocols`] for programs, [`people`] for pages and forms. Above them the [`door`], which sends a request to its handler,
//! and the [`mod@start`] of a server, or of an
//! export of its pages. Each room uses only those before it.

pub mod app;
mod door;
mod front;
mod metrics;
mod people;
pub mod protocols;
mod published;
pub mod routes;
mod start;
pub mod tasks;

pub use start::demo::articles::write as write_demo_articles;
pub use start::site::export_site;
pub use start::{RunningServer, run, start};
