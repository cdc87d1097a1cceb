//! What one identity may take of a server: calls at a time, and bytes a second. Who has no name is not held to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tonic::Status;

/// Identities that are remembered before those are forgotten that have nothing open.
const MOST_REMEMBERED: usize = 1024;
/// Waits that are not worth a timer.
const SHORT: Duration = Duration::from_millis(5);

/// Limits that hold for each identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerLimits {
    /// Calls at a time; `None`: as many as it likes.
    pub calls: Option<u32>,
    /// Bytes of answers a second, all its calls together; `None`: as fast as they go.
    pub bytes_per_s: Option<u64>,
}

/// Who has calls open.
#[derive(Debug)]
pub(super) struct Callers {
    limits: CallerLimits,
    known: Mutex<HashMap<Arc<str>, Known>>,
}

/// What an identity has under way.
#[derive(Debug)]
struct Known {
    open: u32,
    account: Arc<Account>,
}

/// When all that was sent to an identity would have been sent at the rate that it has.
#[derive(Debug)]
struct Account(Mutex<Instant>);

impl Account {
    fn locked(&self) -> MutexGuard<'_, Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is open, until its last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    bytes_per_s: Option<u64>,
    account: Arc<Account>,
    _taken: Arc<Taken>,
}

#[derive(Debug)]
struct Taken {
    callers: Arc<Callers>,
    name: Arc<str>,
}

impl Callers {
    pub(super) fn new(limits: CallerLimits) -> Self {
        Self { limits, known: Mutex::default() }
    }

    /// A call of an identity begins; `None` where nothing is limited.
    ///
    /// # Errors
    /// [`Status::resource_exhausted`] where it has as many open as it may.
    pub(super) fn enter(self: &Arc<Self>, name: &str) -> Result<Option<Seat>, Box<Status>> {
        if name.is_empty() || self.limits == CallerLimits::default() {
            return Ok(None);
        }
        let now = Instant::now();
        let mut known = self.locked();
        if known.len() >= MOST_REMEMBERED {
            known.retain(|_, found| found.open > 0 || *found.account.locked() > now);
        }
        let name: Arc<str> = name.into();
        let fresh = || Known { open: 0, account: Arc::new(Account(Mutex::new(now))) };
        let found = known.entry(name.clone()).or_insert_with(fresh);
        if let Some(most) = self.limits.calls.filter(|most| found.open >= *most) {
            let problem = format!("{name} has {most} calls open, as many as this server lets a caller have; end one");
            return Err(Box::new(Status::resource_exhausted(problem)));
        }
        found.open += 1;
        let account = found.account.clone();
        drop(known);
        let taken = Arc::new(Taken { callers: self.clone(), name });
        Ok(Some(Seat { bytes_per_s: self.limits.bytes_per_s, account, _taken: taken }))
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(found) = self.callers.locked().get_mut(&self.name) {
            found.open -= 1;
        }
    }
}

impl Seat {
    /// Until when a call that begins has to wait, for what others of its caller have sent.
    pub(super) fn owes(&self, now: Instant) -> Option<Instant> {
        self.bytes_per_s?;
        Some(*self.account.locked()).filter(|free| *free > now + SHORT)
    }

    /// So many bytes are sent; returns until when the next ones have to wait.
    pub(super) fn pay(&self, bytes: u64, now: Instant) -> Option<Instant> {
        let rate = self.bytes_per_s?;
        let mut free = self.account.locked();
        *free = (*free).max(now) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        Some(*free).filter(|free| *free > now + SHORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers(calls: Option<u32>, bytes_per_s: Option<u64>) -> Arc<Callers> {
        Arc::new(Callers::new(CallerLimits { calls, bytes_per_s }))
    }

    #[test]
    fn an_identity_has_so_many_calls_open_and_others_are_not_held_to_it() {
        let callers = callers(Some(2), None);
        let (one, two) = (callers.enter("alice").unwrap(), callers.enter("alice").unwrap());
        let refused = callers.enter("alice").unwrap_err();
        assert!(refused.message().contains("alice has 2 calls open"), "{refused}");
        assert!(callers.enter("bob").is_ok());
        let again = one.clone();
        drop(one);
        assert!(callers.enter("alice").is_err(), "a clone is still open");
        drop(again);
        assert!(callers.enter("alice").is_ok());
        drop(two);
        for _ in 0..5 {
            assert!(callers.enter("").unwrap().is_none(), "who has no name has no limit");
        }
    }

    #[test]
    fn calls_of_an_identity_share_its_rate() {
        let callers = callers(None, Some(1000));
        let (one, two) = (callers.enter("alice").unwrap().unwrap(), callers.enter("alice").unwrap().unwrap());
        let now = Instant::now();
        let until = |seat: &Seat, bytes, at| seat.pay(bytes, at).map(|until| (until - now).as_millis());
        assert_eq!(until(&one, 3, now), None, "3 ms are not waited for");
        assert_eq!(until(&one, 500, now), Some(503));
        assert_eq!(until(&two, 500, now), Some(1003));
        let later = now + Duration::from_secs(10);
        assert_eq!(until(&two, 100, later), Some(10_100), "what was not used is not saved up");
        let other = callers.enter("bob").unwrap().unwrap();
        assert_eq!(until(&other, 500, now), Some(500));
        let next = callers.enter("bob").unwrap().unwrap();
        assert_eq!(next.owes(now).map(|until| (until - now).as_millis()), Some(500), "one that begins waits, too");
        assert_eq!(next.owes(later), None);
    }

    #[test]
    fn who_has_nothing_open_is_forgotten() {
        let callers = callers(Some(1), None);
        let kept = callers.enter("kept").unwrap();
        for number in 0..2 * MOST_REMEMBERED {
            callers.enter(&number.to_string()).unwrap();
        }
        assert!(callers.locked().len() <= MOST_REMEMBERED + 1);
        assert!(callers.enter("kept").is_err());
        drop(kept);
    }
}
