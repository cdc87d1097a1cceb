//! Upload sessions of clients, and which session writes which file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use godwit_auth::random_id;
use godwit_dataset::Principal;
use parking_lot::Mutex;

use crate::copy_protocol::ReceiverState;
use crate::error::TransferError;
use crate::file_listing::Entry;
use crate::file_receiver::{FileReceiver, IncomingFile};
use godwit_transfer_session::blake3_tree::block_count;

/// Idle time after which a session may be removed; this happens when another session starts. The journals of its files
/// stay.
const SESSION_LIFETIME: Duration = Duration::from_secs(3600);

/// The upload sessions of a server.
#[derive(Debug, Default)]
pub(super) struct UploadSessions {
    by_name: Mutex<HashMap<String, Arc<UploadSession>>>,
    /// The session that currently writes each file of several blocks, by path.
    file_owners: Mutex<HashMap<PathBuf, FileOwner>>,
    /// Number of sessions that were started since the server started.
    session_count: AtomicU64,
}

/// The upload session of a client, which receives files below one path.
#[derive(Debug)]
pub(super) struct UploadSession {
    principal: String,
    /// Path below the root of the server.
    pub(super) base_path: String,
    pub(super) receiver: FileReceiver,
    /// 0-based number of the session in the order in which sessions were started.
    ordinal: u64,
    last_used: Mutex<Instant>,
    /// Locked while files of the session are being started.
    pub(super) start_lock: Mutex<()>,
}

impl UploadSession {
    /// Records the current time as that of the last use.
    pub(super) fn mark_used(&self) {
        *self.last_used.lock() = Instant::now();
    }
}

/// The session that writes a file, and the file while it is being received.
#[derive(Debug)]
struct FileOwner {
    principal: String,
    /// Number of the session; see [`UploadSession::ordinal`].
    ordinal: u64,
    incoming_file: Weak<IncomingFile>,
}

impl UploadSessions {
    /// Starts a session; returns its name and the session.
    pub(super) fn start_session(
        &self,
        principal: &Principal,
        base: &str,
        receiver: FileReceiver,
    ) -> (String, Arc<UploadSession>) {
        let name = random_id();
        let session = Arc::new(UploadSession {
            principal: principal.name().to_owned(),
            base_path: base.to_owned(),
            receiver,
            ordinal: self.session_count.fetch_add(1, Ordering::Relaxed),
            last_used: Mutex::new(Instant::now()),
            start_lock: Mutex::default(),
        });
        let mut open = self.by_name.lock();
        open.retain(|_, session| session.last_used.lock().elapsed() < SESSION_LIFETIME);
        self.file_owners.lock().retain(|_, owner| owner.incoming_file.strong_count() > 0);
        open.insert(name.clone(), session.clone());
        (name, session)
    }

    /// Returns the session with this name, and records its use.
    ///
    /// # Errors
    /// [`TransferError::UnknownSession`] if the principal has no session with this name.
    pub(super) fn find_session(&self, principal: &Principal, name: &str) -> Result<Arc<UploadSession>, TransferError> {
        let found = self.by_name.lock().get(name).filter(|session| session.principal == principal.name()).cloned();
        let session = found.ok_or(TransferError::UnknownSession)?;
        session.mark_used();
        Ok(session)
    }

    /// Removes the session with this name, if it exists.
    pub(super) fn remove_session(&self, name: &str) {
        self.by_name.lock().remove(name);
    }

    /// Starts to receive an entry of a session at `target`. For `take_over`, see
    /// [`FileReceiver::start_or_take_over_file`].
    pub(super) fn start_file(
        &self,
        session: &UploadSession,
        (file, entry): (u32, Entry),
        target: PathBuf,
        take_over: bool,
    ) -> Result<ReceiverState, TransferError> {
        let is_long = block_count(entry.size_bytes) > 1;
        self.take_over_file(session, &target)?;
        let have = match session.receiver.start_or_take_over_file(file, entry.clone(), take_over) {
            // An earlier session, whose client has disconnected, may be starting the file at this moment.
            Err(TransferError::Busy { .. }) => {
                self.wait_for_earlier_sessions(session);
                self.take_over_file(session, &target)?;
                session.receiver.start_or_take_over_file(file, entry, take_over)?
            }
            begun => begun?,
        };
        if is_long && let Some(incoming) = session.receiver.incoming_file(file).filter(|incoming| incoming.is_partial())
        {
            let (principal, ordinal) = (session.principal.clone(), session.ordinal);
            let owner = FileOwner { principal, ordinal, incoming_file: Arc::downgrade(&incoming) };
            self.file_owners.lock().insert(target, owner);
        }
        Ok(have)
    }

    /// Takes a file over from an earlier session of the same principal, because a client that reconnects starts a new
    /// session.
    ///
    /// # Errors
    /// [`TransferError::Busy`] if a later session of the principal writes the file.
    fn take_over_file(&self, session: &UploadSession, target: &Path) -> Result<(), TransferError> {
        let owners = self.file_owners.lock();
        let Some(owner) = owners.get(target).filter(|owner| owner.principal == session.principal) else {
            return Ok(());
        };
        let Some(incoming) = owner.incoming_file.upgrade() else { return Ok(()) };
        if owner.ordinal > session.ordinal {
            return Err(TransferError::busy(target));
        }
        drop(owners);
        incoming.release();
        Ok(())
    }

    /// Waits until no earlier session of the same principal is starting files.
    fn wait_for_earlier_sessions(&self, session: &UploadSession) {
        let is_earlier =
            |other: &&Arc<UploadSession>| other.principal == session.principal && other.ordinal < session.ordinal;
        let earlier: Vec<_> = self.by_name.lock().values().filter(is_earlier).cloned().collect();
        for other in earlier {
            drop(other.start_lock.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_takes_over_a_file_from_an_earlier_session_of_its_client_and_never_from_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = UploadSessions::default();
        let begin = || sessions.start_session(&Principal::default(), "", FileReceiver::new(directory.path(), true)).1;
        let source = directory.path().join("source");
        std::fs::write(&source, vec![7; 3 << 20]).unwrap();
        let entry = Entry::from_metadata("f".to_owned(), &std::fs::metadata(&source).unwrap());
        let begin_file = |session: &UploadSession| {
            sessions.start_file(session, (0, entry.clone()), directory.path().join("f"), false)
        };
        let is_open = |session: &UploadSession| session.receiver.incoming_file(0).unwrap().is_partial();
        let (earlier, later) = (begin(), begin());
        assert_eq!(begin_file(&later).unwrap(), ReceiverState::Absent);
        // The server may process a request after its client has disconnected and started a later session.
        assert!(matches!(begin_file(&earlier), Err(TransferError::Busy { .. })));
        assert!(is_open(&later));
        let latest = begin();
        assert_eq!(begin_file(&latest).unwrap(), ReceiverState::Absent);
        assert!(is_open(&latest) && !is_open(&later));
    }
}
