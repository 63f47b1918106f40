//! The name `paste`, for `tikv-jemalloc-ctl`, which asks for a macro of that crate, unmaintained since 2024: the macro here
//! is that of `pastey`, its maintained successor. To be removed once a release of `tikv-jemalloc-ctl` does without.

#![forbid(unsafe_code)]

pub use pastey::paste;
