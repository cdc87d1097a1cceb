//! The registry of open downloads by ticket, by which a client can cancel a download from another connection.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::Status;

use crate::call_streams::{BatchItem, Download};
use crate::sql::StatementProgress;
use godwit_auth::now_unix_s;

/// Maximum number of cancelled tickets that are stored. If there are more, those that expire first are forgotten.
const MAX_CANCELLED_TICKETS: usize = 65_536;

/// A registry of open downloads and cancelled tickets, by ticket identifier.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamRegistry {
    tickets: Arc<Mutex<HashMap<u64, TicketState>>>,
}

#[derive(Debug)]
struct TicketState {
    /// Becomes true when the ticket is cancelled.
    cancelled: watch::Sender<bool>,
    /// The progress of the statement that was started last.
    progress: StatementProgress,
    open_streams: usize,
    /// Expiry time of the ticket, seconds since 1970. The entry of a cancelled ticket is stored until then.
    expires_unix_s: u64,
}

/// An open download, which is registered until this value is dropped.
pub(super) struct RegisteredStream {
    registry: StreamRegistry,
    ticket_id: u64,
    cancelled: watch::Receiver<bool>,
    progress: StatementProgress,
}

fn cancelled_status() -> Status {
    Status::cancelled("cancelled by the client")
}

impl StreamRegistry {
    /// Registers a download of a ticket; fails if the ticket is cancelled.
    pub(super) fn register(&self, ticket_id: u64) -> Result<RegisteredStream, Status> {
        let mut claims = self.tickets.lock();
        let state = claims.entry(ticket_id).or_insert_with(|| TicketState {
            cancelled: watch::channel(false).0,
            progress: StatementProgress::default(),
            open_streams: 0,
            expires_unix_s: u64::MAX,
        });
        if *state.cancelled.borrow() {
            return Err(cancelled_status());
        }
        state.open_streams += 1;
        let (cancelled, progress) = (state.cancelled.subscribe(), state.progress.clone());
        Ok(RegisteredStream { registry: self.clone(), ticket_id, cancelled, progress })
    }

    /// Cancels the open downloads of a ticket, and rejects new downloads until the ticket has expired.
    pub(super) fn cancel(&self, claim: u64, expires_unix_s: u64) {
        let mut claims = self.tickets.lock();
        if claims.len() >= MAX_CANCELLED_TICKETS {
            let now = now_unix_s();
            claims.retain(|_, state| state.open_streams > 0 || state.expires_unix_s > now);
        }
        if claims.len() >= MAX_CANCELLED_TICKETS {
            let idle = claims.iter().filter(|(_, state)| state.open_streams == 0);
            let first = idle.min_by_key(|(_, state)| state.expires_unix_s).map(|(claim, _)| *claim);
            first.map(|claim| claims.remove(&claim));
        }
        let state = claims.entry(claim).or_insert_with(|| TicketState {
            cancelled: watch::channel(false).0,
            progress: StatementProgress::default(),
            open_streams: 0,
            expires_unix_s,
        });
        state.expires_unix_s = expires_unix_s;
        state.cancelled.send_replace(true);
    }

    /// Returns the progress of a ticket's statement; `None` if it has no open download.
    pub(super) fn progress(&self, ticket_id: u64) -> Option<f32> {
        let claims = self.tickets.lock();
        claims.get(&ticket_id).filter(|state| state.open_streams > 0).map(|state| state.progress.fraction())
    }

    /// Returns the number of open downloads.
    pub(super) fn open_streams(&self) -> usize {
        self.tickets.lock().values().map(|state| state.open_streams).sum()
    }
}

impl Drop for RegisteredStream {
    fn drop(&mut self) {
        let mut claims = self.registry.tickets.lock();
        let Some(state) = claims.get_mut(&self.ticket_id) else { return };
        state.open_streams -= 1;
        if state.open_streams == 0 && !*state.cancelled.borrow() {
            claims.remove(&self.ticket_id);
        }
    }
}

impl RegisteredStream {
    /// Returns the progress to which the engine of the ticket's statement reports.
    pub(super) fn progress(&self) -> &StatementProgress {
        &self.progress
    }

    /// Runs a future until it completes or the ticket is cancelled.
    pub(super) async fn run_unless_cancelled<T>(
        &mut self,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        tokio::select! {
            done = work => done,
            _ = self.cancelled.wait_for(|ended| *ended) => Err(cancelled_status()),
        }
    }

    /// Wraps a download so that it ends with an error when the ticket is cancelled.
    pub(super) fn guard_download(self, download: Download) -> Download {
        let mut ended = self.cancelled.clone();
        let cancellation = Box::pin(async move {
            let seen = ended.wait_for(|ended| *ended).await.is_ok();
            if !seen {
                // Wait forever: the registry entry was dropped, so no cancellation can follow.
                std::future::pending::<()>().await;
            }
        });
        let batches = CancellableBatches { batches: Some(download.batches), cancellation, _stream: self };
        Download { schema: download.schema, batches: Box::pin(batches) }
    }
}

/// The batches of a download.
type BatchItemStream = Pin<Box<dyn Stream<Item = Result<BatchItem, Status>> + Send>>;

struct CancellableBatches {
    /// The batches of the download; `None` after it was cancelled.
    batches: Option<BatchItemStream>,
    cancellation: Pin<Box<dyn Future<Output = ()> + Send>>,
    _stream: RegisteredStream,
}

impl Stream for CancellableBatches {
    type Item = Result<BatchItem, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(batches) = &mut self.batches else { return Poll::Ready(None) };
        let next = batches.as_mut().poll_next(context);
        if self.cancellation.as_mut().poll(context).is_ready() {
            self.batches = None;
            return Poll::Ready(Some(Err(cancelled_status())));
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_ticket_cannot_be_used_again_and_other_entries_are_removed() {
        let running = StreamRegistry::default();
        let (first, second) = (running.register(1).ok().unwrap(), running.register(1).ok().unwrap());
        assert_eq!(running.open_streams(), 2);
        drop(first);
        running.cancel(1, u64::MAX);
        assert_eq!(running.register(1).err().unwrap().code(), tonic::Code::Cancelled);
        drop(second);
        assert!(running.register(1).is_err());
        let open = running.register(2).ok().unwrap();
        open.progress().provide(|| 0.5);
        assert_eq!((running.progress(2), running.progress(3)), (Some(0.5), None));
        drop(open);
        assert_eq!(running.progress(2), None);
        assert_eq!(running.tickets.lock().len(), 1);
    }

    #[test]
    fn cancelled_tickets_take_bounded_memory() {
        let running = StreamRegistry::default();
        let open = running.register(0).ok().unwrap();
        for claim in 1..=MAX_CANCELLED_TICKETS as u64 + 100 {
            running.cancel(claim, u64::MAX - claim);
        }
        assert_eq!(running.tickets.lock().len(), MAX_CANCELLED_TICKETS);
        assert_eq!(running.open_streams(), 1);
        drop(open);
    }
}
