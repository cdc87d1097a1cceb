//! Sessions of clients that send files, and which session writes which file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use godwit_flight::Caller;

use super::{lock, random_name};
use crate::error::TransferError;
use crate::inbox::{Inbox, Incoming};
use crate::manifest::Entry;
use crate::protocol::Have;
use crate::tree::block_count;

/// Sessions that nobody has used for so long are forgotten when another begins; their journals stay.
const SESSION_LIFETIME: Duration = Duration::from_secs(3600);

/// The sessions of a server.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: Mutex<HashMap<String, Arc<Session>>>,
    /// The session that writes a file of several blocks.
    owners: Mutex<HashMap<PathBuf, Owner>>,
    /// Number of sessions that were begun.
    begun: AtomicU64,
}

/// Files that a client sends.
#[derive(Debug)]
pub(super) struct Session {
    caller: String,
    /// Path below the root.
    pub(super) base: String,
    pub(super) inbox: Inbox,
    /// Its place among all sessions in the order of their beginnings, 0-based.
    ordinal: u64,
    used: Mutex<Instant>,
    /// Held while files of it are begun.
    pub(super) beginning: Mutex<()>,
}

impl Session {
    /// Notes that the client is there.
    pub(super) fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }
}

/// The session that writes a file.
#[derive(Debug)]
struct Owner {
    caller: String,
    /// As in [`Session`].
    ordinal: u64,
    incoming: Weak<Incoming>,
}

impl Sessions {
    /// Begins a session; its name.
    pub(super) fn begin(
        &self,
        caller: &Caller,
        base: &str,
        inbox: Inbox,
    ) -> Result<(String, Arc<Session>), TransferError> {
        let name = random_name()?;
        let session = Arc::new(Session {
            caller: caller.name().to_owned(),
            base: base.to_owned(),
            inbox,
            ordinal: self.begun.fetch_add(1, Ordering::Relaxed),
            used: Mutex::new(Instant::now()),
            beginning: Mutex::default(),
        });
        let mut open = lock(&self.open);
        open.retain(|_, session| lock(&session.used).elapsed() < SESSION_LIFETIME);
        lock(&self.owners).retain(|_, owner| owner.incoming.strong_count() > 0);
        open.insert(name.clone(), session.clone());
        Ok((name, session))
    }

    /// The session of that name.
    ///
    /// # Errors
    /// [`TransferError::UnknownSession`] where the caller has none of that name.
    pub(super) fn find(&self, caller: &Caller, name: &str) -> Result<Arc<Session>, TransferError> {
        let found = lock(&self.open).get(name).filter(|session| session.caller == caller.name()).cloned();
        let session = found.ok_or(TransferError::UnknownSession)?;
        session.touch();
        Ok(session)
    }

    /// Ends a session.
    pub(super) fn end(&self, name: &str) {
        lock(&self.open).remove(name);
    }

    /// Begins a file of a session, or a directory, which goes to `target`. `seize`: as in [`Inbox::begin_over`].
    pub(super) fn begin_file(
        &self,
        session: &Session,
        (file, entry): (u32, Entry),
        target: PathBuf,
        seize: bool,
    ) -> Result<Have, TransferError> {
        let is_long = block_count(entry.size_bytes) > 1;
        self.take_over(session, &target)?;
        let have = match session.inbox.begin_over(file, entry.clone(), seize) {
            // An earlier session, whose client has gone, may be just about to begin it.
            Err(TransferError::Busy { .. }) => {
                self.wait_for_earlier(session);
                self.take_over(session, &target)?;
                session.inbox.begin_over(file, entry, seize)?
            }
            begun => begun?,
        };
        if is_long && let Some(incoming) = session.inbox.incoming(file).filter(|incoming| incoming.is_open()) {
            let (caller, ordinal) = (session.caller.clone(), session.ordinal);
            let owner = Owner { caller, ordinal, incoming: Arc::downgrade(&incoming) };
            lock(&self.owners).insert(target, owner);
        }
        Ok(have)
    }

    /// Takes a file from an earlier session of the same caller: a client that was cut off and comes back has another session.
    ///
    /// # Errors
    /// [`TransferError::Busy`] where a later session of the caller writes it.
    fn take_over(&self, session: &Session, target: &Path) -> Result<(), TransferError> {
        let owners = lock(&self.owners);
        let Some(owner) = owners.get(target).filter(|owner| owner.caller == session.caller) else { return Ok(()) };
        let Some(incoming) = owner.incoming.upgrade() else { return Ok(()) };
        if owner.ordinal > session.ordinal {
            return Err(TransferError::Busy { place: target.display().to_string() });
        }
        drop(owners);
        incoming.give_up();
        Ok(())
    }

    /// Waits until no earlier session of the same caller is beginning files.
    fn wait_for_earlier(&self, session: &Session) {
        let is_earlier = |other: &&Arc<Session>| other.caller == session.caller && other.ordinal < session.ordinal;
        let earlier: Vec<_> = lock(&self.open).values().filter(is_earlier).cloned().collect();
        for other in earlier {
            drop(lock(&other.beginning));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_takes_a_file_from_an_earlier_one_of_its_client_and_never_from_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::default();
        let begin = || sessions.begin(&Caller::default(), "", Inbox::new(directory.path(), true)).unwrap().1;
        let source = directory.path().join("source");
        std::fs::write(&source, vec![7; 3 << 20]).unwrap();
        let entry = Entry::of("f".to_owned(), &std::fs::metadata(&source).unwrap());
        let begin_file =
            |session: &Session| sessions.begin_file(session, (0, entry.clone()), directory.path().join("f"), false);
        let is_open = |session: &Session| session.inbox.incoming(0).unwrap().is_open();
        let (earlier, later) = (begin(), begin());
        assert_eq!(begin_file(&later).unwrap(), Have::Nothing);
        // A request of a client that has gone may be served late.
        assert!(matches!(begin_file(&earlier), Err(TransferError::Busy { .. })));
        assert!(is_open(&later));
        let latest = begin();
        assert_eq!(begin_file(&latest).unwrap(), Have::Nothing);
        assert!(is_open(&latest) && !is_open(&later));
    }
}
