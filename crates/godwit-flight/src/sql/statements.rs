//! Prepared statements: what a client named once and runs again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use tonic::Status;

use crate::gate::Caller;

/// Most of them at a time, of all callers.
const MOST: usize = 4096;
/// How long one is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(3600);
/// Random bytes of a handle.
const HANDLE_BYTES: usize = 16;

/// A statement, and values for its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) sql: String,
    pub(crate) parameters: Option<RecordBatch>,
}

#[derive(Debug)]
struct Kept {
    caller: Caller,
    used: Instant,
    prepared: Prepared,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    kept: Mutex<HashMap<Vec<u8>, Kept>>,
}

impl Statements {
    fn locked(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a statement, and returns its handle.
    pub(crate) fn add(&self, caller: &Caller, sql: String) -> Result<Vec<u8>, Box<Status>> {
        let handle = random_bytes::<HANDLE_BYTES>().to_vec();
        let mut kept = self.locked();
        if kept.len() >= MOST {
            kept.retain(|_, one| one.used.elapsed() < IDLE);
        }
        if kept.len() >= MOST {
            let problem = "there are too many prepared statements; close those that are not used";
            return Err(Box::new(Status::resource_exhausted(problem)));
        }
        let prepared = Prepared { sql, parameters: None };
        kept.insert(handle.clone(), Kept { caller: caller.clone(), used: Instant::now(), prepared });
        Ok(handle)
    }

    /// The statement of a handle that its caller shows.
    pub(crate) fn get(&self, caller: &Caller, handle: &[u8]) -> Result<Prepared, Box<Status>> {
        self.with(caller, handle, |prepared| prepared.clone())
    }

    /// Gives it values.
    pub(crate) fn bind(&self, caller: &Caller, handle: &[u8], values: Option<RecordBatch>) -> Result<(), Box<Status>> {
        self.with(caller, handle, |prepared| prepared.parameters = values)
    }

    fn with<T>(&self, caller: &Caller, handle: &[u8], work: impl FnOnce(&mut Prepared) -> T) -> Result<T, Box<Status>> {
        let mut kept = self.locked();
        let found = kept.get_mut(handle).filter(|kept| &kept.caller == caller);
        let found = found
            .ok_or_else(|| Box::new(Status::not_found("there is no such prepared statement; prepare it again")))?;
        found.used = Instant::now();
        Ok(work(&mut found.prepared))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.locked().len()
    }

    /// Forgets it.
    pub(crate) fn close(&self, caller: &Caller, handle: &[u8]) {
        let mut kept = self.locked();
        if kept.get(handle).is_some_and(|kept| &kept.caller == caller) {
            kept.remove(handle);
        }
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    // Linux since 3.17 has it; without it no handle, ticket or token would be safe.
    filled.expect("the system gives random bytes");
    bytes
}
