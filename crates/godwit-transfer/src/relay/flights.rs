//! Blocks that are being fetched: whoever wants one that is on its way already waits for it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::cache::Origin;

/// A block of a file.
pub(super) type Key = (Origin, u64);

/// All that is on its way.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Key, watch::Receiver<()>>>);

/// Blocks that one request fetches. Those that have not landed when it is dropped are anybody's again.
pub(super) struct Claims {
    flights: Arc<Flights>,
    keys: HashSet<Key>,
    landings: watch::Sender<()>,
}

impl Flights {
    fn under_way(&self) -> MutexGuard<'_, HashMap<Key, watch::Receiver<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody fetches a block.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.under_way().contains_key(key)
    }

    /// Whether one request fetches both blocks.
    pub(super) fn are_together(&self, one: &Key, other: &Key) -> bool {
        let under_way = self.under_way();
        let both = under_way.get(one).zip(under_way.get(other));
        both.is_some_and(|(one, other)| one.same_channel(other))
    }

    /// Waits until something that the fetcher of a block fetches has landed, or it fetches nothing any more; false where that takes too long.
    pub(super) async fn wait(&self, key: &Key, patience: Duration) -> bool {
        let Some(mut landings) = self.under_way().get(key).cloned() else { return true };
        // What landed before it was looked for is none that is waited for.
        landings.mark_unchanged();
        if !self.has(key) {
            return true;
        }
        tokio::time::timeout(patience, landings.changed()).await.is_ok()
    }
}

impl Claims {
    /// None so far.
    pub(super) fn new(flights: Arc<Flights>) -> Self {
        Self { flights, keys: HashSet::new(), landings: watch::Sender::new(()) }
    }

    /// Fetches a block where nobody else does; false where somebody does. `takes_over`: in any case.
    pub(super) fn claim(&mut self, key: Key, takes_over: bool) -> bool {
        let mut under_way = self.flights.under_way();
        if under_way.contains_key(&key) && !takes_over {
            return false;
        }
        under_way.insert(key, self.landings.subscribe());
        self.keys.insert(key);
        true
    }

    /// A block has landed, or will not.
    pub(super) fn landed(&mut self, key: &Key) {
        if self.keys.remove(key) {
            self.release(key);
            self.landings.send_replace(());
        }
    }

    fn release(&self, key: &Key) {
        let mut under_way = self.flights.under_way();
        let mine = self.landings.subscribe();
        if under_way.get(key).is_some_and(|held| held.same_channel(&mine)) {
            under_way.remove(key);
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.keys.iter().for_each(|key| self.release(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FileState;

    #[tokio::test]
    async fn a_block_is_fetched_by_one_and_waited_for_by_others() {
        let flights = Arc::new(Flights::default());
        let key = |block| (Origin::of("s", "p", &FileState::Version(1)), block);
        let patience = Duration::from_secs(60);
        let (mut first, mut second) = (Claims::new(flights.clone()), Claims::new(flights.clone()));
        assert!(first.claim(key(0), false) && first.claim(key(1), false));
        assert!(!second.claim(key(0), false) && second.claim(key(2), false));
        assert!(!flights.wait(&key(0), Duration::from_millis(20)).await, "nothing lands");
        let one = key(1);
        let (waited, ()) = tokio::join!(flights.wait(&one, patience), async { first.landed(&key(0)) });
        assert!(waited && !flights.has(&key(0)) && flights.has(&key(1)));
        assert!(flights.wait(&key(0), patience).await, "it has landed");
        // Who takes over is not disturbed by who gives up.
        assert!(second.claim(key(1), true));
        drop(first);
        assert!(flights.has(&key(1)) && flights.has(&key(2)));
        let (waited, ()) = tokio::join!(flights.wait(&one, patience), async { drop(second) });
        assert!(waited && !flights.has(&key(1)) && !flights.has(&key(2)));
    }
}
