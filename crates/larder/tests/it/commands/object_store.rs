//! `larder serve` on an object store that cannot be used: it says which of the reasons it is, and what to set.

use testbed::S3;

use crate::process::{Done, larder};

/// An address without a listener.
fn nowhere() -> String {
    let bound = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    format!("http://{}", bound.expect("an address"))
}

/// A server with these variables ends with 1 and says this.
#[track_caller]
fn check(blobs: &str, variables: &[(&str, &str)], says: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = larder(directory.path());
    command.args(["serve", "--data-dir", "data", "--listen", "127.0.0.1:0", "--blobs", blobs]);
    // Whatever this machine is: its role is not asked for.
    command.env("AWS_METADATA_ENDPOINT", nowhere()).envs(variables.iter().copied());
    Done::of(&mut command, "").fails(1, says);
}

#[test]
fn credentials_that_are_missing_are_named() {
    let keys = [("AWS_ENDPOINT_URL", "https://127.0.0.1:1"), ("AWS_ACCESS_KEY_ID", "")];
    let both = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    check("s3://bucket/x", &keys, &["there are no credentials", both, "s3://bucket/x"]);
    let half = [("AWS_ACCESS_KEY_ID", "a")];
    check("s3://bucket", &half, &["AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not"]);
}

#[test]
fn a_store_that_is_not_there_is_told_from_one_that_refuses() {
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
    let url = nowhere();
    let endpoint = [("AWS_ENDPOINT_URL", url.as_str())];
    check("s3://bucket", &[&keys[..], &endpoint].concat(), &["without TLS: AWS_ALLOW_HTTP=true"]);
    let allowed = [&keys[..], &endpoint, &[("AWS_ALLOW_HTTP", "true")]].concat();
    check(
        "s3://bucket",
        &allowed,
        &["cannot be reached, or fails", "is AWS_ENDPOINT_URL its address?"],
    );

    let Some(s3) = S3::shared() else { return };
    let blobs = format!("s3://{}/x", s3.make_bucket());
    let known = s3.variables();
    let known: Vec<(&str, &str)> =
        known.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let wrong = [&known[..], &[("AWS_SECRET_ACCESS_KEY", "wrong")]].concat();
    check(&blobs, &wrong, &["does not accept the credentials: AWS_ACCESS_KEY_ID or"]);
    check("s3://no-such-bucket-here/x", &known, &["has no bucket `no-such-bucket-here`"]);
}
