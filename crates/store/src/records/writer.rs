//! The one task of a process that writes: it takes every batch that waits, and commits them together.
//!
//! queued batches -> one transaction -> an answer to each. While a transaction is under way the queue
//! fills, so that a slow disk makes groups larger instead of making writers wait in a row.

use std::sync::Arc;

use record::{Batch, Serial};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::error::CommitError;
use super::group::GroupOutcome;
use super::observed_store::ObservedStore;
use super::wake::Wake;
use super::{postgres, sqlite};

/// A batch in the queue.
pub(super) struct Request {
    pub(super) batch: Batch,
    pub(super) answer: oneshot::Sender<Result<Serial, CommitError>>,
    /// Its share of the queue's bytes, given back once it is answered.
    pub(super) room: OwnedSemaphorePermit,
}

/// The side of a database that writes.
pub(super) enum Writer {
    Sqlite(sqlite::Writer),
    Postgres(postgres::Writer),
}

impl Writer {
    async fn commit(&mut self, batches: &[&Batch], seen: &ObservedStore) -> GroupOutcome {
        match self {
            Writer::Sqlite(writer) => writer.commit(batches, seen).await,
            Writer::Postgres(writer) => writer.commit(batches, seen).await,
        }
    }

    async fn close(&mut self) {
        match self {
            Writer::Sqlite(writer) => writer.close().await,
            Writer::Postgres(writer) => writer.close().await,
        }
    }
}

/// Writes batches until `closed`, and then those that are still queued.
pub(super) async fn run(
    mut writer: Writer,
    mut queue: mpsc::Receiver<Request>,
    group_batches_max: usize,
    wake: Arc<Wake>,
    closed: CancellationToken,
) {
    let mut group = Vec::with_capacity(group_batches_max);
    loop {
        let taken = tokio::select! {
            biased;
            () = closed.cancelled(), if !queue.is_closed() => {
                // Refuses new batches; queued ones are still handed out.
                queue.close();
                continue;
            }
            taken = queue.recv_many(&mut group, group_batches_max) => taken,
        };
        if taken == 0 {
            break;
        }
        let batches: Vec<&Batch> = group.iter().map(|request| &request.batch).collect();
        let outcome = writer.commit(&batches, &wake.seen()).await;
        match outcome {
            Ok((outcomes, serial)) => {
                let written = batches.iter().zip(&outcomes).rev();
                let mut written = written.filter_map(|(batch, outcome)| {
                    Some((batch.writes.last()?, *outcome.as_ref().ok()?))
                });
                if let Some((write, serial)) = written.next() {
                    wake.mark(&write.key, serial);
                }
                match outcomes.first() {
                    // It is not this store that has come so far.
                    Some(Err(CommitError::Rewound(rewound))) => wake.lose(*rewound),
                    _ => wake.announce(serial),
                }
                for (request, outcome) in group.drain(..).zip(outcomes) {
                    answer(request, outcome);
                }
            }
            Err(error) => {
                tracing::warn!(batches = group.len(), %error, "a commit failed");
                group.drain(..).for_each(|request| answer(request, Err(error.clone())));
            }
        }
    }
    writer.close().await;
}

/// Answers, and gives the room back. A caller that is gone learns it elsewhere.
fn answer(request: Request, outcome: Result<Serial, CommitError>) {
    drop(request.room);
    let _ = request.answer.send(outcome);
}
