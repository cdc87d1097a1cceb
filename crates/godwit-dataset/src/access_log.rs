//! Records of data accesses for the audit log: the server writes one record before it sends data, and one at the end.

use std::fmt;
use std::pin::Pin;

use crate::dataset::{DatasetAccess, DatasetError};
use crate::principal::Principal;

/// A record of one data access, for the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRecord {
    /// Name of the principal; empty if authentication is disabled.
    pub principal: String,
    /// The scope to which the token limits the principal; `None` if it is not limited.
    pub scope: Option<String>,
    /// Name of the call, such as `DoGet`.
    pub call: String,
    /// The accessed resource: a dataset, an SQL statement, a file or an action.
    pub resource: String,
    /// The datasets that the call opened, each with the access rule that allowed it.
    pub datasets: Vec<DatasetAccess>,
    /// Number of rows that were sent or received.
    pub rows: u64,
    /// Bytes of these rows as Arrow buffers, without message framing; for files, bytes of the file.
    pub bytes: u64,
    /// `begun`, `done`, `broken off`, or, after a failure, the name of the gRPC code and the error message.
    pub outcome: String,
}

impl AccessRecord {
    /// Creates a record that contains only the principal and the name of the call.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_dataset::{AccessRecord, Principal};
    ///
    /// let record = AccessRecord::new(&Principal::with_scope("alice", "read a.bam"), "DoGet");
    /// assert_eq!((record.principal.as_str(), record.scope.as_deref()), ("alice", Some("read a.bam")));
    /// assert_eq!(record.with_outcome("done".to_owned()).outcome, "done");
    /// ```
    pub fn new(principal: &Principal, call: &str) -> Self {
        let scope = principal.scope().map(str::to_owned);
        Self { principal: principal.name().to_owned(), scope, call: call.to_owned(), ..Self::default() }
    }

    /// Returns a copy of the record with this outcome.
    #[must_use]
    pub fn with_outcome(&self, outcome: String) -> Self {
        Self { outcome, ..self.clone() }
    }
}

/// A boxed future that completes when a record is durable, or when it cannot be recorded.
pub type AccessLogFuture<'a> = Pin<Box<dyn Future<Output = Result<(), DatasetError>> + Send + 'a>>;

/// A durable log of data accesses (audit log).
///
/// # Examples
///
/// ```
/// use godwit_dataset::{AccessLog, AccessLogFuture, AccessRecord, Principal};
/// use parking_lot::Mutex;
///
/// #[derive(Debug, Default)]
/// struct MemoryLog(Mutex<Vec<AccessRecord>>);
///
/// impl AccessLog for MemoryLog {
///     fn record(&self, access: AccessRecord) -> AccessLogFuture<'_> {
///         self.record_in_background(access);
///         Box::pin(std::future::ready(Ok(())))
///     }
///
///     fn record_in_background(&self, access: AccessRecord) {
///         self.0.lock().push(access);
///     }
/// }
///
/// let log = MemoryLog::default();
/// log.record_in_background(AccessRecord::new(&Principal::named("alice"), "DoGet"));
/// let records = log.0.lock();
/// assert_eq!((records[0].principal.as_str(), records[0].call.as_str()), ("alice", "DoGet"));
/// ```
pub trait AccessLog: fmt::Debug + Send + Sync {
    /// Records an access. The returned future completes when the record is durable.
    ///
    /// # Errors
    /// [`DatasetError::Local`] if the record cannot be stored. The server then sends no data.
    fn record(&self, access: AccessRecord) -> AccessLogFuture<'_>;

    /// Records an access without waiting until it is durable, for callers in synchronous code.
    fn record_in_background(&self, access: AccessRecord);
}
