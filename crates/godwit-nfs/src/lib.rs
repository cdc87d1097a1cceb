//! A server of NFSv3 and MOUNT (RFC 1813) over TCP, for the files below one directory.
//!
//! [`NfsServer`] accepts connections and passes each call to an [`Export`], which answers it. No call depends on the
//! memory of a server: a [`FileHandle`] is computed from inode numbers, and the cookies of a directory from names, so
//! that every pool member with the same files understands the handles of every other. What a server remembers (paths of
//! handles, listings) only saves time.
//!
//! NFSv3 does not authenticate users. A [`ClientAccess`] identifies a client by its address and authorizes each call by
//! the rules of the server. Paths are resolved without symbolic links; clients resolve links themselves.
//!
//! Not supported: NFSv4, locks (NLM), the portmapper, UDP, and the creation of links and special files.

mod arguments;
mod attributes;
mod client_access;
mod directory_pages;
mod export;
mod export_root;
mod file_handle;
mod keyed_lock;
mod listings;
mod nfs_health;
mod nfs_server;
mod opened_files;
mod read_procedures;
mod rpc_message;
mod write_procedures;

pub use client_access::{ClientAccess, ClientIdentifier};
pub use export::{Export, ExportOptions, ServerLog};
pub use file_handle::FileHandle;
pub use nfs_health::NfsHealth;
pub use nfs_server::NfsServer;
