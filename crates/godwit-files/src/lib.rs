//! Files that survive a crash whole or not at all.
//!
//! - [`AtomicFile`]: an output file with a temporary name until it is complete. [`AtomicDirectory`]: the same for a
//!   directory of files. [`AtomicSet`]: several of them, all or none of which get their final names.
//! - [`OutputTarget`]: whether an output path names a file to replace, or a device, pipe or socket to write to.
//! - [`LockedFile`]: an open file that no other process can lock.
//! - [`JournalFile`]: an append-only file of bytes that only this process writes. [`Journal`]: the same for entries,
//!   each a line with a checksum.
//! - [`Spill`]: a scratch file to which bytes are appended, and from which they are read at any offset.
//! - [`FileStamp`]: size, modification time and inode of a file, to detect that it was changed.
//!
//! If a signal stops the process, the temporary files are removed, because they are on the list of temporary paths of
//! `godwit-process`. This crate does not know the content of any file.

mod atomic_directory;
mod atomic_file;
mod atomic_set;
mod file_stamp;
mod journal;
mod journal_file;
mod locked_file;
mod output_target;
mod paths;
mod spill;

pub use atomic_directory::{AtomicDirectory, backup_name};
pub use atomic_file::{AtomicFile, check_available, rename_durably, temporary_name, write_atomically};
pub use atomic_set::{AtomicSet, finish_publishing};
pub use file_stamp::FileStamp;
pub use journal::{Journal, JournalEntry, line_checksum};
pub use journal_file::{BUSY_MESSAGE, JournalFile};
pub use locked_file::{LockedFile, is_file_at_path, is_locked};
pub use output_target::{OutputTarget, is_stdout, open_stream};
pub use paths::{
    create_directories, is_relative_descendant, is_same_file, parent_directory, set_attributes, sync_directory,
};
pub use spill::{Spill, create_unnamed_file};
