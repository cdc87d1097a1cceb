//! Records of the audit log for reads and writes.
//!
//! NFSv3 has no open files, only single reads and writes. The reads of one file by one client are one access, which
//! begins with the first and ends when the client has been silent for a minute; writes likewise.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_dataset::{AccessLog, AccessRecord, FileAccess};
use godwit_transfer_session::path_text::path_to_text;
use nfs3_types::nfs3::nfsstat3;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::client_access::Client;
use crate::export_root::Node;
use crate::file_handle::FileHandle;

/// Time without reads and writes after which an access has ended.
const MAX_IDLE_TIME: Duration = Duration::from_secs(60);
/// Largest number of accesses that are collected. If there are more, all are recorded as ended.
const MAX_OPENED_FILES: usize = 10_000;
/// Outcome of an access that has begun.
const OUTCOME_BEGUN: &str = "begun";
/// Outcome of a complete access.
const OUTCOME_DONE: &str = "done";

/// The client, the file, and whether it is written.
type AccessKey = (IpAddr, FileHandle, bool);

/// An access to a file.
#[derive(Debug)]
struct OpenedFile {
    record: AccessRecord,
    last_used: Instant,
}

/// The accesses that have not ended.
#[derive(Debug, Default)]
pub(crate) struct OpenedFiles {
    log: Option<Arc<dyn AccessLog>>,
    opened: Mutex<HashMap<AccessKey, OpenedFile>>,
}

fn new_record(client: &Client, call: &str, path: &Path, rule: &str) -> AccessRecord {
    let resource = path_to_text(path);
    // A principal collects the accesses of one call.
    let principal = client.principal.clone();
    if !rule.is_empty() {
        principal.accesses().add(&resource, rule);
    }
    let datasets = principal.accesses().drain();
    AccessRecord { resource, datasets, ..AccessRecord::new(&principal, &format!("{call} from {}", client.address)) }
}

impl OpenedFiles {
    pub(crate) fn new(log: Option<Arc<dyn AccessLog>>) -> Self {
        Self { log, opened: Mutex::default() }
    }

    /// Records that a client reads or writes `bytes` bytes of a file by the rule of this name. Waits until the first
    /// record of the access is durable.
    ///
    /// # Errors
    /// `IO` if the access cannot be recorded.
    pub(crate) fn record_transfer(
        &self,
        client: &Client,
        node: &Node,
        access: FileAccess,
        rule: &str,
        bytes: u64,
    ) -> Result<(), nfsstat3> {
        let Some(log) = &self.log else { return Ok(()) };
        let is_write = access == FileAccess::Write;
        let key = (client.address, node.handle.clone(), is_write);
        if let Some(opened) = self.opened.lock().get_mut(&key) {
            opened.record.bytes += bytes;
            opened.last_used = Instant::now();
            return Ok(());
        }
        let record = new_record(client, if is_write { "NFS WRITE" } else { "NFS READ" }, &node.path, rule);
        wait_for_record(&**log, record.with_outcome(OUTCOME_BEGUN.to_owned()))?;
        if self.opened.lock().len() >= MAX_OPENED_FILES {
            self.end(true);
        }
        let mut opened = self.opened.lock();
        let opened = opened.entry(key).or_insert(OpenedFile { record, last_used: Instant::now() });
        opened.record.bytes += bytes;
        Ok(())
    }

    /// Records a change of a name or of attributes before it is made.
    ///
    /// # Errors
    /// `IO` if the change cannot be recorded.
    pub(crate) fn record_change(&self, client: &Client, call: &str, path: &Path, rule: &str) -> Result<(), nfsstat3> {
        let Some(log) = &self.log else { return Ok(()) };
        wait_for_record(&**log, new_record(client, call, path, rule).with_outcome(OUTCOME_BEGUN.to_owned()))
    }

    /// Records the end of accesses that are idle, or of all.
    pub(crate) fn end(&self, is_all: bool) {
        let Some(log) = &self.log else { return };
        let mut opened = self.opened.lock();
        let ended = opened.extract_if(|_, opened| is_all || opened.last_used.elapsed() >= MAX_IDLE_TIME);
        for (_, opened) in ended {
            log.record_in_background(opened.record.with_outcome(OUTCOME_DONE.to_owned()));
        }
    }
}

/// Waits until a record is durable. The threads of calls may wait.
fn wait_for_record(log: &dyn AccessLog, record: AccessRecord) -> Result<(), nfsstat3> {
    Handle::current().block_on(log.record(record)).map_err(|_| nfsstat3::NFS3ERR_IO)
}
