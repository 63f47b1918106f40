//! The sinks of records that are read.

use std::convert::Infallible;

use record::Record;

use super::error::ReadError;

/// Takes records one by one. The reader waits until each is taken, so that no queue grows.
pub(super) trait Sink: Send {
    type Error;
    fn take(&mut self, record: Record) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Why reading into a sink ended early.
pub(super) enum ReadStop<E> {
    Read(ReadError),
    Sink(E),
}

impl<E, R: Into<ReadError>> From<R> for ReadStop<E> {
    fn from(error: R) -> ReadStop<E> {
        ReadStop::Read(error.into())
    }
}

/// A function as a sink that never refuses.
pub(super) struct EachRecord<F>(pub(super) F);

impl<F: FnMut(Record) + Send> Sink for EachRecord<F> {
    type Error = Infallible;

    async fn take(&mut self, record: Record) -> Result<(), Infallible> {
        (self.0)(record);
        Ok(())
    }
}
