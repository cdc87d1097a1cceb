//! Blocks that requests are fetching from upstream servers. Other requests for the same block wait until it arrives.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::cache::Origin;

/// A block: the version of the file, and the 0-based index of the block.
pub(super) type BlockKey = (Origin, u64);

/// All blocks that are being fetched. The receiver is notified when a block of the same request is completed.
#[derive(Debug, Default)]
pub(super) struct PendingFetches(Mutex<HashMap<BlockKey, watch::Receiver<()>>>);

/// The blocks that one request has claimed to fetch. Dropping it releases the blocks that have not arrived.
pub(super) struct FetchClaims {
    pending_fetches: Arc<PendingFetches>,
    keys: HashSet<BlockKey>,
    completions: watch::Sender<()>,
}

impl PendingFetches {
    /// Reports whether any request is fetching a block.
    pub(super) fn is_pending(&self, key: &BlockKey) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Reports whether the same request is fetching both blocks.
    pub(super) fn are_of_one_request(&self, one: &BlockKey, other: &BlockKey) -> bool {
        let under_way = self.0.lock();
        let both = under_way.get(one).zip(under_way.get(other));
        both.is_some_and(|(one, other)| one.same_channel(other))
    }

    /// Waits until the request that fetches a block completes any of its blocks, or ends. Returns false after the
    /// timeout.
    pub(super) async fn wait_for_progress(&self, key: &BlockKey, timeout: Duration) -> bool {
        let Some(mut landings) = self.0.lock().get(key).cloned() else { return true };
        // Ignore notifications of blocks that were completed before this call.
        landings.mark_unchanged();
        if !self.is_pending(key) {
            return true;
        }
        tokio::time::timeout(timeout, landings.changed()).await.is_ok()
    }
}

impl FetchClaims {
    /// Returns an empty set of claims of a new request.
    pub(super) fn new(pending_fetches: Arc<PendingFetches>) -> Self {
        Self { pending_fetches, keys: HashSet::new(), completions: watch::Sender::new(()) }
    }

    /// Claims a block for this request. Returns false if another request is fetching it and `take_over` is false.
    pub(super) fn claim(&mut self, key: BlockKey, take_over: bool) -> bool {
        let mut under_way = self.pending_fetches.0.lock();
        if under_way.contains_key(&key) && !take_over {
            return false;
        }
        under_way.insert(key, self.completions.subscribe());
        self.keys.insert(key);
        true
    }

    /// Releases a claimed block, which was stored or will not be stored, and notifies the waiting requests.
    pub(super) fn complete_block(&mut self, key: &BlockKey) {
        if self.keys.remove(key) {
            self.release_block(key);
            self.completions.send_replace(());
        }
    }

    fn release_block(&self, key: &BlockKey) {
        let mut under_way = self.pending_fetches.0.lock();
        let mine = self.completions.subscribe();
        if under_way.get(key).is_some_and(|held| held.same_channel(&mine)) {
            under_way.remove(key);
        }
    }
}

impl Drop for FetchClaims {
    fn drop(&mut self) {
        self.keys.iter().for_each(|key| self.release_block(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy_protocol::FileVersion;

    #[tokio::test]
    async fn a_block_is_fetched_by_one_and_waited_for_by_others() {
        let flights = Arc::new(PendingFetches::default());
        let key = |block| (Origin::new("s", "p", &FileVersion::ServerVersion(1)), block);
        let patience = Duration::from_secs(60);
        let (mut first, mut second) = (FetchClaims::new(flights.clone()), FetchClaims::new(flights.clone()));
        assert!(first.claim(key(0), false) && first.claim(key(1), false));
        assert!(!second.claim(key(0), false) && second.claim(key(2), false));
        assert!(!flights.wait_for_progress(&key(0), Duration::from_millis(20)).await, "nothing lands");
        let one = key(1);
        let (waited, ()) =
            tokio::join!(flights.wait_for_progress(&one, patience), async { first.complete_block(&key(0)) });
        assert!(waited && !flights.is_pending(&key(0)) && flights.is_pending(&key(1)));
        assert!(flights.wait_for_progress(&key(0), patience).await, "it has landed");
        // When a request ends, it does not release blocks that another request has taken over.
        assert!(second.claim(key(1), true));
        drop(first);
        assert!(flights.is_pending(&key(1)) && flights.is_pending(&key(2)));
        let (waited, ()) = tokio::join!(flights.wait_for_progress(&one, patience), async { drop(second) });
        assert!(waited && !flights.is_pending(&key(1)) && !flights.is_pending(&key(2)));
    }
}
