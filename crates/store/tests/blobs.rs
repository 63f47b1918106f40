//! The contract of the blob store, on each place where blobs can be: a directory, and a bucket of a real
//! S3-type server, which the tests start if `LARDER_TEST_S3` or `./test` provides one. What no real server
//! does when it is asked to, fail above all, is tried on a fake in this process.

#[path = "blobs/cache.rs"]
mod cache;
#[path = "blobs/contents.rs"]
mod contents;
#[path = "blobs/damage.rs"]
mod damage;
#[path = "blobs/disks.rs"]
mod disks;
#[path = "blobs/failing.rs"]
mod failing;
#[path = "blobs/fake_s3.rs"]
mod fake_s3;
#[path = "blobs/files.rs"]
mod files;
#[path = "blobs/identity.rs"]
mod identity;
#[path = "blobs/objects.rs"]
mod objects;
#[path = "blobs/place.rs"]
mod place;
#[path = "blobs/sweeping.rs"]
mod sweeping;

/// Makes a test of each function, once for each place.
macro_rules! on_each {
    ($($name:ident),+ $(,)?) => {
        mod directory {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name($crate::place::Place::directory().await).await }
        )+}
        mod s3 {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(place) = $crate::place::Place::s3().await { super::$name(place).await }
            }
        )+}
    };
}
use on_each;
