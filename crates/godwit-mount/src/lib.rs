//! A file system for programs that know nothing of godwit: the files of a server, of a pool or of a directory, mounted
//! by FUSE.
//!
//! [`Storage`] is the interface to the files. [`ServerStorage`] uses the client of `godwit-transfer`: when a pool member
//! is lost, reads continue at another member with the next block, and programs notice only a delay. [`FileTree`]
//! translates inode numbers and open files to paths: a file that is written is held in a scratch file, and replaces the
//! stored file when it is closed or synced. [`Mount`] connects it to the kernel through the crate fuser.
//!
//! The rules of the server authorize the token of the mount; this crate has no rules.

mod block_cache;
mod file_tree;
mod fuse_adapter;
mod inode_table;
mod local_storage;
mod mount;
mod read_ahead;
mod server_storage;
mod slow_calls;
#[cfg(test)]
mod slow_storage;
mod staged_file;
mod storage;

pub use file_tree::{FileTree, MountLog};
pub use local_storage::LocalStorage;
pub use mount::{Mount, MountOptions, is_dead_mount, mounted_device, unmount_lazily};
pub use server_storage::{ServerStorage, ServerStorageOptions};
pub use storage::{Attributes, DirectoryEntry, Storage, StorageError, StoredFile, WriteOptions};
