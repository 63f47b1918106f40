//! The crate name `paste`, for `tikv-jemalloc-ctl`, which uses a macro of that crate. The original has been
//! unmaintained since 2024, so this re-exports the macro of `pastey`, its maintained successor. Remove it once a
//! release of `tikv-jemalloc-ctl` no longer needs it.

#![forbid(unsafe_code)]

pub use pastey::paste;
