//! Prepared statements, which a client creates once and can run repeatedly.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use godwit_dataset::Principal;
use tonic::Status;

use godwit_auth::random_bytes;
use parking_lot::Mutex;

/// Maximum number of prepared statements of all principals together.
const MAX_PREPARED_STATEMENTS: usize = 4096;
/// Time after which an unused prepared statement is removed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Time for which the schema of a new prepared statement is reused. Clients usually request the rows at once; later the
/// files may have changed.
const ADVERTISED_SCHEMA_LIFETIME: Duration = Duration::from_secs(1);
/// Number of random bytes in the handle of a prepared statement.
const HANDLE_BYTES: usize = 16;

/// A prepared statement, and the values of its parameters.
#[derive(Clone, Debug)]
pub(crate) struct PreparedStatement {
    pub(crate) sql: String,
    pub(crate) parameters: Option<RecordBatch>,
    advertised: (Instant, SchemaRef),
}

impl PreparedStatement {
    /// Returns the schema that was sent to the client, if the statement was prepared less than
    /// [`ADVERTISED_SCHEMA_LIFETIME`] ago.
    pub(crate) fn recent_schema(&self) -> Option<SchemaRef> {
        (self.advertised.0.elapsed() < ADVERTISED_SCHEMA_LIFETIME).then(|| self.advertised.1.clone())
    }
}

#[derive(Debug)]
struct StatementEntry {
    principal: Principal,
    last_used: Instant,
    statement: PreparedStatement,
}

/// All prepared statements of a server, by handle.
#[derive(Debug, Default)]
pub(crate) struct PreparedStatements {
    entries: Mutex<HashMap<Vec<u8>, StatementEntry>>,
}

impl PreparedStatements {
    /// Stores a statement with its schema, and returns its handle.
    pub(crate) fn add(&self, principal: &Principal, sql: String, schema: SchemaRef) -> Result<Vec<u8>, Box<Status>> {
        let handle = random_bytes::<HANDLE_BYTES>().to_vec();
        let mut entries = self.entries.lock();
        if entries.len() >= MAX_PREPARED_STATEMENTS {
            entries.retain(|_, one| one.last_used.elapsed() < IDLE_TIMEOUT);
        }
        if entries.len() >= MAX_PREPARED_STATEMENTS {
            let problem = "too many prepared statements; close unused ones";
            return Err(Box::new(Status::resource_exhausted(problem)));
        }
        let statement = PreparedStatement { sql, parameters: None, advertised: (Instant::now(), schema) };
        entries.insert(
            handle.clone(),
            StatementEntry { principal: principal.clone(), last_used: Instant::now(), statement },
        );
        Ok(handle)
    }

    /// Returns the statement with this handle; fails if another principal created it.
    pub(crate) fn get(&self, principal: &Principal, handle: &[u8]) -> Result<PreparedStatement, Box<Status>> {
        self.with_statement(principal, handle, |prepared| prepared.clone())
    }

    /// Stores values for the parameters of a statement.
    pub(crate) fn bind(
        &self,
        principal: &Principal,
        handle: &[u8],
        values: Option<RecordBatch>,
    ) -> Result<(), Box<Status>> {
        self.with_statement(principal, handle, |prepared| prepared.parameters = values)
    }

    fn with_statement<T>(
        &self,
        principal: &Principal,
        handle: &[u8],
        work: impl FnOnce(&mut PreparedStatement) -> T,
    ) -> Result<T, Box<Status>> {
        let mut entries = self.entries.lock();
        let found = entries.get_mut(handle).filter(|entry| &entry.principal == principal);
        let found = found
            .ok_or_else(|| Box::new(Status::not_found("the prepared statement does not exist; prepare it again")))?;
        found.last_used = Instant::now();
        Ok(work(&mut found.statement))
    }

    /// Returns the number of prepared statements.
    pub(crate) fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// Removes a prepared statement of this principal.
    pub(crate) fn close(&self, principal: &Principal, handle: &[u8]) {
        let mut entries = self.entries.lock();
        if entries.get(handle).is_some_and(|entry| &entry.principal == principal) {
            entries.remove(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Schema;

    use super::*;

    #[test]
    fn an_advertised_schema_expires_before_files_change() {
        let statements = PreparedStatements::default();
        let handle = statements.add(&Principal::default(), "SELECT 1".to_owned(), Arc::new(Schema::empty())).unwrap();
        let mut prepared = statements.get(&Principal::default(), &handle).unwrap();
        assert!(prepared.recent_schema().is_some());
        prepared.advertised.0 = Instant::now().checked_sub(ADVERTISED_SCHEMA_LIFETIME).unwrap();
        assert!(prepared.recent_schema().is_none());
        statements.close(&Principal::default(), &handle);
        assert!(statements.get(&Principal::default(), &handle).is_err());
    }
}
