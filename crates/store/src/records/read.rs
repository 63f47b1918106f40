//! The sinks of records that are read.

use std::convert::Infallible;

use record::{Key, Record, Serial};

use super::error::ReadError;

/// Takes records one by one. The reader waits until each is taken, so that no queue grows.
pub(super) trait Sink: Send {
    type Error;
    fn take(&mut self, record: Record) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Why reading into a sink ended early.
pub(super) enum Stop<E> {
    Read(ReadError),
    Sink(E),
}

impl<E, R: Into<ReadError>> From<R> for Stop<E> {
    fn from(error: R) -> Stop<E> {
        Stop::Read(error.into())
    }
}

/// A sink that remembers the last record which it passed on: that of the highest serial.
pub(super) struct Marking<'a, S> {
    pub(super) sink: &'a mut S,
    pub(super) latest: Option<(Key, Serial)>,
}

impl<S: Sink> Sink for Marking<'_, S> {
    type Error = S::Error;

    async fn take(&mut self, record: Record) -> Result<(), S::Error> {
        match &mut self.latest {
            // Any record of a commit will do.
            Some((_, serial)) if *serial == record.serial => {}
            latest => *latest = Some((record.key.clone(), record.serial)),
        }
        self.sink.take(record).await
    }
}

/// A function as a sink that never refuses.
pub(super) struct Each<F>(pub(super) F);

impl<F: FnMut(Record) + Send> Sink for Each<F> {
    type Error = Infallible;

    async fn take(&mut self, record: Record) -> Result<(), Infallible> {
        (self.0)(record);
        Ok(())
    }
}
