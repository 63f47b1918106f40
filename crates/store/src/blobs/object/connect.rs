//! Connecting to an object store: settings of the environment, time limits and retries.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};

use super::Objects;
use crate::blobs::error::BlobError;
use crate::blobs::s3_settings;

/// Retries of one request, after the first attempt; 5xx answers and lost connections are retried.
const RETRIES_MAX: usize = 5;
/// Waiting before a retry, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// No retry begins later than this after the first attempt.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);
/// Settings that the environment may override: an unused connection, a new one, a pause within an answer (or the time
/// to take in a whole part), a whole request.
const TIMEOUTS: [(ClientConfigKey, &str); 4] = [
    // A connection that is idle for longer may have been forgotten by a firewall, which tells nobody.
    (ClientConfigKey::PoolIdleTimeout, "5 seconds"),
    (ClientConfigKey::ConnectTimeout, "5 seconds"),
    (ClientConfigKey::ReadTimeout, "60 seconds"),
    (ClientConfigKey::Timeout, "1 hour"),
];

impl Objects {
    /// Connects, and prepares the prefix or recognizes it; if `must_exist`, it is not prepared. `settings` are `AWS_…`
    /// variables.
    pub(in crate::blobs) async fn open(
        bucket: &str,
        prefix: &str,
        settings: impl IntoIterator<Item = (String, String)>,
        must_exist: bool,
    ) -> Result<Objects, BlobError> {
        let (init_backoff, max_backoff) = BACKOFF;
        let retry = RetryConfig {
            backoff: BackoffConfig { init_backoff, max_backoff, base: 2.0 },
            max_retries: RETRIES_MAX,
            retry_timeout: RETRY_TIME_MAX,
        };
        let mut builder = AmazonS3Builder::new().with_retry(retry);
        for (key, value) in TIMEOUTS {
            builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
        }
        for (name, value) in settings {
            if name.starts_with("AWS_")
                && !value.is_empty()
                && let Ok(key) = name.to_ascii_lowercase().parse()
            {
                builder = builder.with_config(key, value);
            }
        }
        s3_settings::check(&builder)?;
        let endpoint = s3_settings::endpoint(&builder);
        let has_no_credentials = s3_settings::has_none(&builder);
        let store = builder
            .with_bucket_name(bucket)
            // A sweep deletes one object at a time, and not every store has the bulk request.
            .with_disable_bulk_delete(true)
            .build()
            .map_err(|error| BlobError::Settings(error.to_string()))?;
        if has_no_credentials {
            s3_settings::check_role(&store).await?;
        }
        let prefix = match prefix {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let name = format!("s3://{bucket}/");
        let (bound, is_away) = (Mutex::default(), AtomicBool::new(false));
        let objects = Objects { store: Arc::new(store), name, prefix, bound, is_away };
        let prepared = objects.prepare_version(must_exist).await;
        prepared.map_err(|error| s3_settings::explained(error, bucket, endpoint.as_deref()))?;
        Ok(objects)
    }
}
