//! Ends the operations of a copy on its files when the copy ends.
//!
//! A copy may end while an operation still runs on a thread that cannot be stopped: the future of the copy is dropped,
//! or the copy returns early. After that, the copy starts no further operations, and the next copy of this process
//! waits for the running one. So the locks of an ended copy are always released, and an earlier copy never writes to
//! the files of a later one.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLockReadGuard};

use super::FileReceiver;
use crate::error::TransferError;

/// Receivers of copies that ended while one of their operations was running.
static ENDED_RECEIVERS: Mutex<Vec<Weak<FileReceiver>>> = Mutex::new(Vec::new());

/// The owner of the receiver of a copy. Dropping the owner prevents further operations, even if tasks still share the
/// receiver.
#[derive(Debug)]
pub(crate) struct CopyReceiver(Arc<FileReceiver>);

impl CopyReceiver {
    pub(crate) fn new(inbox: FileReceiver) -> Self {
        Self(Arc::new(inbox))
    }

    /// Returns the receiver, so that tasks of the copy can share it.
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
            ENDED_RECEIVERS.lock().push(Arc::downgrade(&self.0));
        }
    }
}

/// Waits until no operation of an ended copy of this process runs. Blocks the thread, which must not hold an
/// [`OperationGuard`].
pub(crate) fn wait_for_ended_copies() {
    let ended = ENDED_RECEIVERS.lock().clone();
    for inbox in ended.iter().filter_map(Weak::upgrade) {
        let _alone = inbox.operation_lock.write();
        inbox.release_files();
    }
    ENDED_RECEIVERS.lock().retain(|inbox| !ended.iter().any(|released| released.ptr_eq(inbox)));
}

/// A guard that an operation on the files of a receiver holds while it runs.
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
    /// Starts an operation; returns the guard that it must hold.
    ///
    /// # Errors
    /// [`TransferError::Interrupted`] if the copy has ended.
    pub(crate) fn start_operation(&self) -> Result<OperationGuard<'_>, TransferError> {
        let guard = Some(self.operation_lock.read());
        let operation = OperationGuard { receiver: self, guard };
        if self.has_ended() { Err(TransferError::Interrupted) } else { Ok(operation) }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Releases the locks of all files and returns true. If an operation is running, returns false, and that operation
    /// releases the locks when it ends.
    fn try_release_files(&self) -> bool {
        if self.operation_lock.try_write().is_none() {
            return false;
        }
        self.release_files();
        true
    }

    fn release_files(&self) {
        self.incoming_files.lock().clear();
    }
}
