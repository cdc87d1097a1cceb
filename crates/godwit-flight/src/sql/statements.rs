//! Prepared statements: what a client named once and runs again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use tonic::Status;

use crate::gate::Caller;

/// Most of them at a time, of all callers.
const MOST: usize = 4096;
/// How long one is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(3600);
/// How long the columns hold that preparing it told: clients ask for the rows at once, and files may change later.
const TOLD: Duration = Duration::from_secs(1);
/// Random bytes of a handle.
const HANDLE_BYTES: usize = 16;

/// A statement, and values for its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) sql: String,
    pub(crate) parameters: Option<RecordBatch>,
    told: (Instant, SchemaRef),
}

impl Prepared {
    /// Its columns, where they were told a moment ago.
    pub(crate) fn schema(&self) -> Option<SchemaRef> {
        (self.told.0.elapsed() < TOLD).then(|| self.told.1.clone())
    }
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

    /// Keeps a statement with its columns, and returns its handle.
    pub(crate) fn add(&self, caller: &Caller, sql: String, schema: SchemaRef) -> Result<Vec<u8>, Box<Status>> {
        let handle = random_bytes::<HANDLE_BYTES>().to_vec();
        let mut kept = self.locked();
        if kept.len() >= MOST {
            kept.retain(|_, one| one.used.elapsed() < IDLE);
        }
        if kept.len() >= MOST {
            let problem = "there are too many prepared statements; close those that are not used";
            return Err(Box::new(Status::resource_exhausted(problem)));
        }
        let prepared = Prepared { sql, parameters: None, told: (Instant::now(), schema) };
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Schema;

    use super::*;

    #[test]
    fn columns_that_were_told_are_forgotten_before_files_change() {
        let statements = Statements::default();
        let handle = statements.add(&Caller::default(), "SELECT 1".to_owned(), Arc::new(Schema::empty())).unwrap();
        let mut prepared = statements.get(&Caller::default(), &handle).unwrap();
        assert!(prepared.schema().is_some());
        prepared.told.0 = Instant::now().checked_sub(TOLD).unwrap();
        assert!(prepared.schema().is_none());
        statements.close(&Caller::default(), &handle);
        assert!(statements.get(&Caller::default(), &handle).is_err());
    }
}
