//! Tells the binary which commit it was built from: `LARDER_BUILD_COMMIT`, for `larder --version` and `/version`.
//!
//! A variable of that name in the environment wins: an archive of the sources, or an image's build, has no repository.
//! Builds for development carry no commit, since each new commit would build the crate again.

use std::process::Command;

const VARIABLE: &str = "LARDER_BUILD_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os(VARIABLE).is_some_and(|commit| !commit.is_empty()) {
        return;
    }
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    // Sources that were unpacked inside of another project's repository are not at that one's commit.
    let root = std::fs::canonicalize("../..").ok();
    if root.is_none() || git(&["rev-parse", "--show-toplevel"]).map(Into::into) != root {
        return;
    }
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return };
    println!("cargo::rustc-env={VARIABLE}={commit}");
    // HEAD names a branch, and the branch names the commit: either file may change.
    for name in ["HEAD", "packed-refs"].map(str::to_owned).into_iter().chain(git(&[
        "symbolic-ref",
        "--quiet",
        "HEAD",
    ])) {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", &name])
            && std::fs::exists(&path).unwrap_or(false)
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// What git prints, without the line's end; none where there is no git, or no repository of this project.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
