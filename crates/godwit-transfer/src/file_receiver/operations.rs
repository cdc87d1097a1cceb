//! The end of a copy's operations on its files.
//!
//! A copy may end while an operation runs on a thread that cannot be stopped: its future is dropped, or it returns early.
//! From then on none of its operations starts. The next copy of this process waits for the running one. So the locks of an
//! ended copy are always released, and an earlier copy never writes into the files of a later one.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLockReadGuard, TryLockError, Weak};

use super::{FileReceiver, lock};
use crate::error::TransferError;

/// Receivers whose copies ended during an operation.
static ENDED_RECEIVERS: Mutex<Vec<Weak<FileReceiver>>> = Mutex::new(Vec::new());

/// The receiver of one copy. Dropping it ends the operations on its files, even if tasks still share it.
#[derive(Debug)]
pub(crate) struct CopyReceiver(Arc<FileReceiver>);

impl CopyReceiver {
    pub(crate) fn new(inbox: FileReceiver) -> Self {
        Self(Arc::new(inbox))
    }

    /// Returns the receiver, to be shared with tasks of the copy.
    pub(crate) fn share_receiver(&self) -> Arc<FileReceiver> {
        self.0.clone()
    }
}

impl Deref for CopyReceiver {
    type Target = FileReceiver;

    fn deref(&self) -> &FileReceiver {
        &self.0
    }
}

impl Drop for CopyReceiver {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        if !self.0.try_release_files() {
            lock(&ENDED_RECEIVERS).push(Arc::downgrade(&self.0));
        }
    }
}

/// Waits for the operations of ended copies of this process. Blocks; not for threads that hold an [`OperationGuard`].
pub(crate) fn wait_for_ended_copies() {
    let ended = lock(&ENDED_RECEIVERS).clone();
    for inbox in ended.iter().filter_map(Weak::upgrade) {
        let _alone = inbox.operation_lock.write().unwrap_or_else(PoisonError::into_inner);
        inbox.release_files();
    }
    lock(&ENDED_RECEIVERS).retain(|inbox| !ended.iter().any(|released| released.ptr_eq(inbox)));
}

/// The permit for an operation on the files of a receiver.
pub(crate) struct OperationGuard<'i> {
    receiver: &'i FileReceiver,
    guard: Option<RwLockReadGuard<'i, ()>>,
}

impl Drop for OperationGuard<'_> {
    fn drop(&mut self) {
        self.guard = None;
        if self.receiver.has_ended() {
            self.receiver.try_release_files();
        }
    }
}

impl FileReceiver {
    /// Starts an operation.
    ///
    /// # Errors
    /// [`TransferError::Interrupted`] if the copy has ended.
    pub(crate) fn start_operation(&self) -> Result<OperationGuard<'_>, TransferError> {
        let guard = Some(self.operation_lock.read().unwrap_or_else(PoisonError::into_inner));
        let operation = OperationGuard { receiver: self, guard };
        if self.has_ended() { Err(TransferError::Interrupted) } else { Ok(operation) }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Releases all locks, unless an operation runs, which then releases them at its end.
    fn try_release_files(&self) -> bool {
        if let Err(TryLockError::WouldBlock) = self.operation_lock.try_write() {
            return false;
        }
        self.release_files();
        true
    }

    fn release_files(&self) {
        lock(&self.incoming_files).clear();
    }
}
