//! Explains why an object store cannot be used: which settings are missing, and whether the cause is the credentials, the
//! bucket or the connection.

use std::fmt;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey as Key};
use tokio::time::timeout;

use super::error::{BlobError, FailureKind};

/// How long the machine's role is looked for where no credentials are set.
const ROLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings that are wrong whatever the store says: half a pair of keys, and plain HTTP that was not allowed.
pub(super) fn check(builder: &AmazonS3Builder) -> Result<(), BlobError> {
    let has = |key: Key| builder.get_config_value(&key).is_some();
    let wrong = |text: String| Err(BlobError::Settings(text));
    match (has(Key::AccessKeyId), has(Key::SecretAccessKey)) {
        (true, false) => {
            return wrong("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not".to_owned());
        }
        (false, true) => {
            return wrong("AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not".to_owned());
        }
        _ => {}
    }
    let allows_http = Key::Client(object_store::ClientConfigKey::AllowHttp);
    let is_allowed = builder.get_config_value(&allows_http).is_some_and(|text| is_true(&text));
    match endpoint(builder) {
        Some(url) if url.starts_with("http://") && !is_allowed => wrong(format!(
            "AWS_ENDPOINT_URL is `{url}`, without TLS: AWS_ALLOW_HTTP=true allows that"
        )),
        _ => Ok(()),
    }
}

/// Texts that the object store's library accepts for true.
fn is_true(text: &str) -> bool {
    ["1", "true", "on", "yes", "y"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// The server of the requests, if it is not Amazon's.
pub(super) fn endpoint(builder: &AmazonS3Builder) -> Option<String> {
    builder.get_config_value(&Key::S3Endpoint).or_else(|| builder.get_config_value(&Key::Endpoint))
}

/// Whether the machine's role is the only possible source of credentials.
pub(super) fn has_none(builder: &AmazonS3Builder) -> bool {
    let others = [
        Key::AccessKeyId,
        Key::WebIdentityTokenFile,
        Key::ContainerCredentialsRelativeUri,
        Key::ContainerCredentialsFullUri,
    ];
    let skips = builder.get_config_value(&Key::SkipSignature);
    !skips.is_some_and(|text| is_true(&text))
        && others.iter().all(|key| builder.get_config_value(key).is_none())
}

/// If no credentials are set, asks for the machine's role once, before anything else is tried.
pub(super) async fn check_role(store: &AmazonS3) -> Result<(), BlobError> {
    match timeout(ROLE_TIMEOUT, store.credentials().get_credential()).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(BlobError::Settings(
            "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_ENDPOINT_URL, for another \
             store than Amazon's); this machine has no role that would give some"
                .to_owned(),
        )),
    }
}

/// Why an object store could not be opened, in a sentence before the store's own words.
#[derive(Debug)]
struct ExplainedError {
    sentence: String,
    cause: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for ExplainedError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.sentence, self.cause)
    }
}

impl std::error::Error for ExplainedError {}

/// `error` with a sentence that says what the administrator can do about it.
pub(super) fn explained(error: BlobError, bucket: &str, endpoint: Option<&str>) -> BlobError {
    let BlobError::Failed { kind, action, place, cause } = error else { return error };
    let said = cause.to_string();
    let store =
        endpoint.map_or_else(|| "Amazon S3".to_owned(), |url| format!("the object store at {url}"));
    let sentence = match kind {
        FailureKind::Denied if said.contains("AccessDenied") => {
            format!("{store} knows these credentials, but they may not use the bucket `{bucket}`")
        }
        FailureKind::Denied if said.contains("RequestTimeTooSkewed") => {
            format!("{store} does not accept requests of this time: this machine's clock is wrong")
        }
        FailureKind::Denied => format!(
            "{store} does not accept the credentials: AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is wrong, or the \
             rights on the bucket `{bucket}` are missing"
        ),
        _ if said.contains("NoSuchBucket") => {
            format!("{store} has no bucket `{bucket}`: make it, or name another one")
        }
        FailureKind::Unavailable => format!(
            "{store} cannot be reached, or fails: does it run, and is AWS_ENDPOINT_URL its address?"
        ),
        _ => return BlobError::Failed { kind, action, place, cause },
    };
    BlobError::Failed { kind, action, place, cause: Box::new(ExplainedError { sentence, cause }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(settings: &[(Key, &str)]) -> AmazonS3Builder {
        let start = AmazonS3Builder::new().with_bucket_name("b");
        settings.iter().fold(start, |builder, (key, value)| builder.with_config(*key, *value))
    }

    #[track_caller]
    fn check_settings(settings: &[(Key, &str)], expected: Option<&str>) {
        let said = check(&builder(settings)).err().map(|error| error.to_string());
        let start = "the object store's settings cannot be used: ";
        assert_eq!(said, expected.map(|it| format!("{start}{it}")), "{settings:?}");
    }

    #[test]
    fn settings_that_cannot_be() {
        let allow = Key::Client(object_store::ClientConfigKey::AllowHttp);
        check_settings(&[], None);
        check_settings(
            &[(Key::AccessKeyId, "a")],
            Some("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not"),
        );
        check_settings(
            &[(Key::SecretAccessKey, "a")],
            Some("AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not"),
        );
        check_settings(&[(Key::AccessKeyId, "a"), (Key::SecretAccessKey, "b")], None);
        check_settings(
            &[(Key::Endpoint, "http://h:1")],
            Some("AWS_ENDPOINT_URL is `http://h:1`, without TLS: AWS_ALLOW_HTTP=true allows that"),
        );
        check_settings(&[(Key::Endpoint, "http://h:1"), (allow, "true")], None);
        check_settings(&[(Key::Endpoint, "https://h:1")], None);
    }

    #[test]
    fn where_credentials_may_come_from() {
        assert!(has_none(&builder(&[])));
        for key in [Key::AccessKeyId, Key::WebIdentityTokenFile, Key::ContainerCredentialsFullUri] {
            assert!(!has_none(&builder(&[(key, "x")])));
        }
        assert!(!has_none(&builder(&[(Key::SkipSignature, "true")])));
    }
}
