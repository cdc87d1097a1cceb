//! The end of a copy's work on its files.
//!
//! A copy may end while one of its operations is under way on a thread that nothing can stop: its future is dropped, or it returns early. From then on no
//! operation of it begins; the one that is under way is finished, and the next copy of this process waits for it. So locks are never found held by a copy that
//! has ended, and nothing of an earlier copy is written into the files of a later one.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLockReadGuard, TryLockError, Weak};

use super::{Inbox, lock};
use crate::error::TransferError;

/// Inboxes whose copies ended while an operation was under way.
static ENDED: Mutex<Vec<Weak<Inbox>>> = Mutex::new(Vec::new());

/// The inbox of one copy. Dropping it ends the work on its files, also where tasks still share the inbox.
#[derive(Debug)]
pub(crate) struct CopyInbox(Arc<Inbox>);

impl CopyInbox {
    pub(crate) fn new(inbox: Inbox) -> Self {
        Self(Arc::new(inbox))
    }

    /// The inbox, to be shared with tasks of the copy.
    pub(crate) fn share(&self) -> Arc<Inbox> {
        self.0.clone()
    }
}

impl Deref for CopyInbox {
    type Target = Inbox;

    fn deref(&self) -> &Inbox {
        &self.0
    }
}

impl Drop for CopyInbox {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        if !self.0.try_release() {
            lock(&ENDED).push(Arc::downgrade(&self.0));
        }
    }
}

/// Waits for the operations of copies of this process that have ended. Blocks; not for threads that hold an [`Operation`].
pub(crate) fn wait_for_ended_copies() {
    let ended = lock(&ENDED).clone();
    for inbox in ended.iter().filter_map(Weak::upgrade) {
        let _alone = inbox.operations.write().unwrap_or_else(PoisonError::into_inner);
        inbox.release();
    }
    lock(&ENDED).retain(|inbox| !ended.iter().any(|released| released.ptr_eq(inbox)));
}

/// The right to work on the files of an inbox.
pub(crate) struct Operation<'i> {
    inbox: &'i Inbox,
    guard: Option<RwLockReadGuard<'i, ()>>,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.guard = None;
        if self.inbox.has_ended() {
            self.inbox.try_release();
        }
    }
}

impl Inbox {
    /// Begins an operation.
    ///
    /// # Errors
    /// [`TransferError::Interrupted`] where the copy has ended.
    pub(crate) fn operation(&self) -> Result<Operation<'_>, TransferError> {
        let guard = Some(self.operations.read().unwrap_or_else(PoisonError::into_inner));
        let operation = Operation { inbox: self, guard };
        if self.has_ended() { Err(TransferError::Interrupted) } else { Ok(operation) }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Releases all locks, unless an operation is under way: that one does it at its end.
    fn try_release(&self) -> bool {
        if let Err(TryLockError::WouldBlock) = self.operations.try_write() {
            return false;
        }
        self.release();
        true
    }

    fn release(&self) {
        lock(&self.files).clear();
    }
}
