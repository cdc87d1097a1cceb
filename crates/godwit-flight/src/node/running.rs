//! What is being fetched, so that it can be ended by who asked for it, from another connection.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::watch;
use tonic::Status;

use crate::server::{Download, Item};
use crate::tickets::now_unix_s;

/// Claims that were ended and may still be shown, at most. Past it, those that end first are forgotten.
const MOST_ENDED: usize = 65_536;

/// Streams by the number of their claim.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    claims: Arc<Mutex<HashMap<u64, State>>>,
}

#[derive(Debug)]
struct State {
    /// True once it is ended.
    ended: watch::Sender<bool>,
    open: usize,
    /// Kept until then, where it is ended.
    expires_unix_s: u64,
}

/// A stream that is open.
pub(super) struct Open {
    running: Running,
    claim: u64,
    ended: watch::Receiver<bool>,
}

fn cancelled() -> Status {
    Status::cancelled("it was ended by who asked for it")
}

impl Running {
    fn locked(&self) -> MutexGuard<'_, HashMap<u64, State>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream of a claim.
    pub(super) fn open(&self, claim: u64) -> Result<Open, Status> {
        let mut claims = self.locked();
        let state = claims.entry(claim).or_insert_with(|| State {
            ended: watch::channel(false).0,
            open: 0,
            expires_unix_s: u64::MAX,
        });
        if *state.ended.borrow() {
            return Err(cancelled());
        }
        state.open += 1;
        Ok(Open { running: self.clone(), claim, ended: state.ended.subscribe() })
    }

    /// Ends the streams of a claim, and lets nobody open another until the claim has expired.
    pub(super) fn end(&self, claim: u64, expires_unix_s: u64) {
        let mut claims = self.locked();
        if claims.len() >= MOST_ENDED {
            let now = now_unix_s();
            claims.retain(|_, state| state.open > 0 || state.expires_unix_s > now);
        }
        if claims.len() >= MOST_ENDED {
            let idle = claims.iter().filter(|(_, state)| state.open == 0);
            let first = idle.min_by_key(|(_, state)| state.expires_unix_s).map(|(claim, _)| *claim);
            first.map(|claim| claims.remove(&claim));
        }
        let state =
            claims.entry(claim).or_insert_with(|| State { ended: watch::channel(false).0, open: 0, expires_unix_s });
        state.expires_unix_s = expires_unix_s;
        state.ended.send_replace(true);
    }

    /// Streams that are open.
    pub(super) fn count(&self) -> usize {
        self.locked().values().map(|state| state.open).sum()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut claims = self.running.locked();
        let Some(state) = claims.get_mut(&self.claim) else { return };
        state.open -= 1;
        if state.open == 0 && !*state.ended.borrow() {
            claims.remove(&self.claim);
        }
    }
}

impl Open {
    /// Does some work, unless its claim is ended first.
    pub(super) async fn unless_ended<T>(&mut self, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        tokio::select! {
            done = work => done,
            _ = self.ended.wait_for(|ended| *ended) => Err(cancelled()),
        }
    }

    /// The same batches, until the claim is ended.
    pub(super) fn guard(self, download: Download) -> Download {
        let mut ended = self.ended.clone();
        let waits = Box::pin(async move {
            let seen = ended.wait_for(|ended| *ended).await.is_ok();
            if !seen {
                // Nobody is left who could end it.
                std::future::pending::<()>().await;
            }
        });
        let batches = Guarded { batches: Some(download.batches), waits, _open: self };
        Download { schema: download.schema, batches: Box::pin(batches) }
    }
}

/// The batches of a download.
type Incoming = Pin<Box<dyn Stream<Item = Result<Item, Status>> + Send>>;

struct Guarded {
    /// `None` once they are ended.
    batches: Option<Incoming>,
    waits: Pin<Box<dyn Future<Output = ()> + Send>>,
    _open: Open,
}

impl Stream for Guarded {
    type Item = Result<Item, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(batches) = &mut self.batches else { return Poll::Ready(None) };
        let next = batches.as_mut().poll_next(context);
        if self.waits.as_mut().poll(context).is_ready() {
            self.batches = None;
            return Poll::Ready(Some(Err(cancelled())));
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ended_is_not_opened_again_and_the_rest_is_forgotten() {
        let running = Running::default();
        let (first, second) = (running.open(1).ok().unwrap(), running.open(1).ok().unwrap());
        assert_eq!(running.count(), 2);
        drop(first);
        running.end(1, u64::MAX);
        assert_eq!(running.open(1).err().unwrap().code(), tonic::Code::Cancelled);
        drop(second);
        assert!(running.open(1).is_err());
        drop(running.open(2).ok().unwrap());
        assert_eq!(running.locked().len(), 1);
    }

    #[test]
    fn claims_that_were_ended_take_bounded_memory() {
        let running = Running::default();
        let open = running.open(0).ok().unwrap();
        for claim in 1..=MOST_ENDED as u64 + 100 {
            running.end(claim, u64::MAX - claim);
        }
        assert_eq!(running.locked().len(), MOST_ENDED);
        assert_eq!(running.count(), 1);
        drop(open);
    }
}
