//! Which version of Larder this is, and which commit it was built from.

/// The version, as in Cargo.toml.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, abbreviated; empty for a build for development, and for sources without their repository.
pub const COMMIT: &str = match option_env!("LARDER_BUILD_COMMIT") {
    Some(commit) => commit,
    None => "",
};

/// Both, for people: `0.1.0 (3f2c1ab90d12)`.
pub fn text() -> String {
    match COMMIT {
        "" => VERSION.to_owned(),
        commit => format!("{VERSION} ({commit})"),
    }
}
