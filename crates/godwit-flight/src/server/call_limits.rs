//! Limits of concurrent calls and bytes per second for each principal of a server. Principals without a name are not
//! limited.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::Status;

use crate::transport::CallLimits;

/// Number of stored principals above which principals without open calls are removed.
const MAX_REMEMBERED_PRINCIPALS: usize = 1024;
/// Shortest delay for which a timer is set; shorter delays are ignored.
const MIN_DELAY: Duration = Duration::from_millis(5);

/// The limiter of a server, which counts the open calls of all principals.
#[derive(Debug)]
pub(super) struct CallLimiter {
    limits: CallLimits,
    principals: Mutex<HashMap<Arc<str>, PrincipalUsage>>,
}

/// The number of open calls of a principal, and its rate limiter.
#[derive(Debug)]
struct PrincipalUsage {
    open_calls: u32,
    rate_limiter: Arc<RateLimiter>,
}

/// The rate limiter of a principal. It contains the time at which all bytes sent so far would be sent at the allowed
/// rate.
#[derive(Debug)]
struct RateLimiter(Mutex<Instant>);

/// A permit for one call. The call counts as open until the last clone of the permit is dropped.
#[derive(Clone, Debug)]
pub(super) struct CallPermit {
    bytes_per_s: Option<u64>,
    rate_limiter: Arc<RateLimiter>,
    _open_call: Arc<OpenCall>,
}

#[derive(Debug)]
struct OpenCall {
    limiter: Arc<CallLimiter>,
    name: Arc<str>,
}

impl CallLimiter {
    pub(super) fn new(limits: CallLimits) -> Self {
        Self { limits, principals: Mutex::default() }
    }

    /// Starts a call of a principal. `None` if the server has no limits or the principal has no name.
    ///
    /// # Errors
    /// [`Status::resource_exhausted`] if the principal has reached its limit of open calls.
    pub(super) fn acquire(self: &Arc<Self>, name: &str) -> Result<Option<CallPermit>, Box<Status>> {
        if name.is_empty() || self.limits == CallLimits::default() {
            return Ok(None);
        }
        let now = Instant::now();
        let mut known = self.principals.lock();
        if known.len() >= MAX_REMEMBERED_PRINCIPALS {
            known.retain(|_, found| found.open_calls > 0 || *found.rate_limiter.0.lock() > now);
        }
        let name: Arc<str> = name.into();
        let fresh = || PrincipalUsage { open_calls: 0, rate_limiter: Arc::new(RateLimiter(Mutex::new(now))) };
        let found = known.entry(name.clone()).or_insert_with(fresh);
        if let Some(most) = self.limits.concurrent_calls.filter(|most| found.open_calls >= *most) {
            let problem =
                format!("{name} already has {most} open calls, which is the limit of this server; close one first");
            return Err(Box::new(Status::resource_exhausted(problem)));
        }
        found.open_calls += 1;
        let rate_limiter = found.rate_limiter.clone();
        drop(known);
        let taken = Arc::new(OpenCall { limiter: self.clone(), name });
        Ok(Some(CallPermit { bytes_per_s: self.limits.bytes_per_s, rate_limiter, _open_call: taken }))
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(found) = self.limiter.principals.lock().get_mut(&self.name) {
            found.open_calls -= 1;
        }
    }
}

impl CallPermit {
    /// Returns the time until which a new call must wait because of bytes that other calls of its principal have sent;
    /// `None` if it need not wait.
    pub(super) fn ready_at(&self, now: Instant) -> Option<Instant> {
        self.bytes_per_s?;
        Some(*self.rate_limiter.0.lock()).filter(|free| *free > now + MIN_DELAY)
    }

    /// Counts sent bytes. Returns the time until which the next bytes must wait; `None` if they need not wait.
    pub(super) fn charge(&self, bytes: u64, now: Instant) -> Option<Instant> {
        let rate = self.bytes_per_s?;
        let mut free = self.rate_limiter.0.lock();
        *free = (*free).max(now) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        Some(*free).filter(|free| *free > now + MIN_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(concurrent_calls: Option<u32>, bytes_per_s: Option<u64>) -> Arc<CallLimiter> {
        Arc::new(CallLimiter::new(CallLimits { concurrent_calls, bytes_per_s }))
    }

    #[test]
    fn a_principal_has_a_limit_of_open_calls_that_does_not_count_for_others() {
        let callers = limiter(Some(2), None);
        let (one, two) = (callers.acquire("alice").unwrap(), callers.acquire("alice").unwrap());
        let refused = callers.acquire("alice").unwrap_err();
        assert!(refused.message().contains("alice already has 2 open calls"), "{refused}");
        assert!(callers.acquire("bob").is_ok());
        let again = one.clone();
        drop(one);
        assert!(callers.acquire("alice").is_err(), "a clone is still open");
        drop(again);
        assert!(callers.acquire("alice").is_ok());
        drop(two);
        for _ in 0..5 {
            assert!(callers.acquire("").unwrap().is_none(), "a client without a name has no limit");
        }
    }

    #[test]
    fn calls_of_a_principal_share_its_rate() {
        let callers = limiter(None, Some(1000));
        let (one, two) = (callers.acquire("alice").unwrap().unwrap(), callers.acquire("alice").unwrap().unwrap());
        let now = Instant::now();
        let until = |permit: &CallPermit, bytes, at| permit.charge(bytes, at).map(|until| (until - now).as_millis());
        assert_eq!(until(&one, 3, now), None, "3 ms are not waited for");
        assert_eq!(until(&one, 500, now), Some(503));
        assert_eq!(until(&two, 500, now), Some(1003));
        let later = now + Duration::from_secs(10);
        assert_eq!(until(&two, 100, later), Some(10_100), "what was not used is not saved up");
        let other = callers.acquire("bob").unwrap().unwrap();
        assert_eq!(until(&other, 500, now), Some(500));
        let next = callers.acquire("bob").unwrap().unwrap();
        assert_eq!(next.ready_at(now).map(|until| (until - now).as_millis()), Some(500), "one that begins waits, too");
        assert_eq!(next.ready_at(later), None);
    }

    #[test]
    fn principals_without_open_calls_are_forgotten() {
        let callers = limiter(Some(1), None);
        let kept = callers.acquire("kept").unwrap();
        for number in 0..2 * MAX_REMEMBERED_PRINCIPALS {
            callers.acquire(&number.to_string()).unwrap();
        }
        assert!(callers.principals.lock().len() <= MAX_REMEMBERED_PRINCIPALS + 1);
        assert!(callers.acquire("kept").is_err());
        drop(kept);
    }
}
