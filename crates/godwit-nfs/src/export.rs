//! An export: dispatches the calls of both programs, and answers those of MOUNT.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use godwit_dataset::AccessLog;
use nfs3_types::mount::{
    MNTPATHLEN, MOUNT_PROGRAM, dirpath, export_node, exports, fhandle3, mountlist, mountres3, mountres3_ok, mountstat3,
};
use nfs3_types::nfs3::{NFS_PROGRAM, Nfs3Result, nfsstat3};
use nfs3_types::rpc::{accept_stat, auth_flavor, auth_stat};
use nfs3_types::xdr_codec::{List, Opaque, Void};
use nfs3_types::{mount, nfs3};
use parking_lot::Mutex;

use crate::arguments::{Arguments, MalformedArguments};
use crate::client_access::{Client, ClientAccess};
use crate::export_root::{ExportRoot, Node, parse_name};
use crate::listings::Listings;
use crate::opened_files::OpenedFiles;
use crate::rpc_message::{Call, CallError, failure, success, unauthorized, version_mismatch};

/// Time in which the numbers of messages are limited.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Largest number of messages about mounts in this time.
const MAX_MOUNT_MESSAGES: u64 = 1000;
/// Largest number of messages about rejected connections in this time.
const MAX_REJECTION_MESSAGES: u64 = 10;

/// A function that writes a line to the log of the server.
pub type ServerLog = Arc<dyn Fn(&str) + Send + Sync>;

/// Options of an [`Export`].
pub struct ExportOptions {
    /// Which clients may connect, and what they may do.
    pub access: ClientAccess,
    /// The audit log; `None` if accesses are not recorded.
    pub access_log: Option<Arc<dyn AccessLog>>,
    /// The log of the server.
    pub log: ServerLog,
}

/// Limits the number of messages that clients can cause.
#[derive(Debug)]
struct MessageLimit {
    max_messages: u64,
    /// Start of the present interval, and the number of messages in it, with those that were omitted.
    counted: Mutex<(Instant, u64)>,
}

impl MessageLimit {
    fn new(max_messages: u64) -> Self {
        Self { max_messages, counted: Mutex::new((Instant::now(), 0)) }
    }

    /// Returns the text to write for a message: `None` if it is omitted. The first message of an interval reports how
    /// many were omitted.
    fn admit(&self, text: &str) -> Option<String> {
        let mut counted = self.counted.lock();
        let mut omitted = 0;
        if counted.0.elapsed() >= LOG_INTERVAL {
            omitted = counted.1.saturating_sub(self.max_messages);
            *counted = (Instant::now(), 0);
        }
        counted.1 += 1;
        match omitted {
            _ if counted.1 > self.max_messages => None,
            0 => Some(text.to_owned()),
            omitted => Some(format!("{text} ({omitted} messages of this kind were omitted)")),
        }
    }
}

/// The files below one directory, as clients of NFS see and change them.
pub struct Export {
    pub(crate) root: ExportRoot,
    pub(crate) access: ClientAccess,
    pub(crate) opened: OpenedFiles,
    pub(crate) listings: Listings,
    /// A random number of this start of the server, plus the number of failed syncs. A client that receives another one
    /// sends data again that are not committed.
    pub(crate) write_verifier: AtomicU64,
    log: ServerLog,
    mount_messages: MessageLimit,
    rejection_messages: MessageLimit,
}

impl fmt::Debug for Export {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Export").field("root", &self.root).field("access", &self.access).finish_non_exhaustive()
    }
}

/// Returns the reply of a procedure. Replies of failures have no attributes; clients request them if they need them.
pub(crate) fn reply<T, E>(result: Result<T, nfsstat3>, failed: E) -> Nfs3Result<T, E> {
    match result {
        Ok(value) => Nfs3Result::Ok(value),
        Err(status) => Nfs3Result::Err((status, failed)),
    }
}

impl Export {
    /// Opens a directory for clients.
    ///
    /// # Errors
    /// The I/O error if the directory cannot be opened, or if the system has no random numbers.
    pub fn open(root: &Path, options: ExportOptions) -> io::Result<Self> {
        let ExportOptions { access, access_log, log } = options;
        let write_verifier = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self {
            root: ExportRoot::open(root)?,
            access,
            opened: OpenedFiles::new(access_log),
            listings: Listings::default(),
            write_verifier: AtomicU64::new(write_verifier),
            log,
            mount_messages: MessageLimit::new(MAX_MOUNT_MESSAGES),
            rejection_messages: MessageLimit::new(MAX_REJECTION_MESSAGES),
        })
    }

    pub(crate) fn log(&self, text: &str) {
        (self.log)(text);
    }

    fn log_mount(&self, text: &str) {
        if let Some(text) = self.mount_messages.admit(text) {
            self.log(&text);
        }
    }

    pub(crate) fn log_rejection(&self, text: &str) {
        if let Some(text) = self.rejection_messages.admit(text) {
            self.log(&text);
        }
    }

    /// Carries out the call in a record of a client with this address. Returns the reply as the connection sends it;
    /// `None` if the record is not a call, so that the connection must be closed.
    pub fn answer_record(&self, address: IpAddr, record: &[u8]) -> Option<Vec<u8>> {
        match Call::decode(record) {
            Ok(call) => Some(self.answer(address, &call)),
            Err(CallError::Rejected(reply)) => Some(reply),
            Err(CallError::NotACall) => None,
        }
    }

    /// Returns the record of the reply to a call from this address.
    fn answer(&self, address: IpAddr, call: &Call<'_>) -> Vec<u8> {
        let answered = match (call.program, call.version) {
            (nfs3::PROGRAM, nfs3::VERSION) => self.answer_nfs(address, call),
            (mount::PROGRAM, mount::VERSION) => self.answer_mount(address, call),
            (nfs3::PROGRAM, _) => Ok(version_mismatch(call.xid, nfs3::VERSION)),
            (mount::PROGRAM, _) => Ok(version_mismatch(call.xid, mount::VERSION)),
            _ => Ok(failure(call.xid, accept_stat::PROG_UNAVAIL)),
        };
        answered.unwrap_or_else(|MalformedArguments| failure(call.xid, accept_stat::GARBAGE_ARGS))
    }

    fn answer_nfs(&self, address: IpAddr, call: &Call<'_>) -> Result<Vec<u8>, MalformedArguments> {
        let (xid, arguments) = (call.xid, call.arguments);
        let Ok(procedure) = NFS_PROGRAM::try_from(call.procedure) else {
            return Ok(failure(xid, accept_stat::PROC_UNAVAIL));
        };
        if matches!(procedure, NFS_PROGRAM::NFSPROC3_NULL) {
            return Ok(success(xid, &Void));
        }
        let Some(client) = &self.access.identify(address) else {
            return Ok(unauthorized(xid, auth_stat::AUTH_TOOWEAK));
        };
        Ok(match procedure {
            NFS_PROGRAM::NFSPROC3_NULL => success(xid, &Void),
            NFS_PROGRAM::NFSPROC3_GETATTR => success(xid, &self.get_attributes(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_SETATTR => success(xid, &self.set_attributes(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_LOOKUP => success(xid, &self.lookup(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_ACCESS => success(xid, &self.check_access(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_READLINK => success(xid, &self.read_link(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_READ => success(xid, &self.read(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_WRITE => success(xid, &self.write(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_CREATE => success(xid, &self.create(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_MKDIR => success(xid, &self.make_directory(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_SYMLINK => success(xid, &self.reject_symbolic_link()),
            NFS_PROGRAM::NFSPROC3_MKNOD => success(xid, &self.reject_special_file()),
            NFS_PROGRAM::NFSPROC3_REMOVE => success(xid, &self.remove_file(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_RMDIR => success(xid, &self.remove_directory(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_RENAME => success(xid, &self.rename(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_LINK => success(xid, &self.reject_hard_link()),
            NFS_PROGRAM::NFSPROC3_READDIR => success(xid, &self.read_directory(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_READDIRPLUS => success(xid, &self.read_directory_with_attributes(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_FSSTAT => success(xid, &self.file_system_space(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_FSINFO => success(xid, &self.file_system_limits(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_PATHCONF => success(xid, &self.path_limits(client, arguments)?),
            NFS_PROGRAM::NFSPROC3_COMMIT => success(xid, &self.commit(client, arguments)?),
        })
    }

    fn answer_mount(&self, address: IpAddr, call: &Call<'_>) -> Result<Vec<u8>, MalformedArguments> {
        let xid = call.xid;
        Ok(match MOUNT_PROGRAM::try_from(call.procedure) {
            // The server does not remember mounts, so their end changes nothing, and their list is empty.
            Ok(MOUNT_PROGRAM::MOUNTPROC3_NULL | MOUNT_PROGRAM::MOUNTPROC3_UMNT | MOUNT_PROGRAM::MOUNTPROC3_UMNTALL) => {
                success(xid, &Void)
            }
            Ok(MOUNT_PROGRAM::MOUNTPROC3_DUMP) => success(xid, &mountlist::default()),
            Ok(MOUNT_PROGRAM::MOUNTPROC3_MNT) => success(xid, &self.mount(address, call.arguments)?),
            Ok(MOUNT_PROGRAM::MOUNTPROC3_EXPORT) => {
                let root = export_node { ex_dir: dirpath(Opaque::borrowed(b"/")), ex_groups: List::default() };
                let exports: exports<'_, '_> = List(vec![root]);
                success(xid, &exports)
            }
            Err(_) => failure(xid, accept_stat::PROC_UNAVAIL),
        })
    }

    /// Returns the handle of a directory that a client mounts, and logs the mount.
    fn mount(&self, address: IpAddr, mut arguments: Arguments<'_>) -> Result<mountres3<'static>, MalformedArguments> {
        let path = arguments.opaque()?;
        arguments.end()?;
        if path.len() > MNTPATHLEN {
            return Ok(mountres3::Err(mountstat3::MNT3ERR_NAMETOOLONG));
        }
        let (shown, address) = (String::from_utf8_lossy(path).escape_debug().to_string(), address.to_canonical());
        let Some(client) = self.access.identify(address) else {
            self.log_mount(&format!("NFS: {address} may not mount {shown}: the rules do not list its address"));
            return Ok(mountres3::Err(mountstat3::MNT3ERR_ACCES));
        };
        let name = match client.principal.name() {
            "" => String::new(),
            name => format!(" as {name}"),
        };
        match self.mounted_directory(&client, path) {
            Ok(node) => {
                self.log_mount(&format!("NFS: {address} mounts {shown}{name}"));
                Ok(mountres3::Ok(mountres3_ok {
                    fhandle: fhandle3(node.handle.to_nfs().data),
                    auth_flavors: vec![auth_flavor::AUTH_UNIX as u32, auth_flavor::AUTH_NULL as u32],
                }))
            }
            Err(status) => {
                self.log_mount(&format!("NFS: {address} cannot mount {shown}{name}: {status}"));
                Ok(mountres3::Err(match status {
                    nfsstat3::NFS3ERR_NOENT => mountstat3::MNT3ERR_NOENT,
                    nfsstat3::NFS3ERR_ACCES => mountstat3::MNT3ERR_ACCES,
                    nfsstat3::NFS3ERR_NOTDIR => mountstat3::MNT3ERR_NOTDIR,
                    nfsstat3::NFS3ERR_NAMETOOLONG => mountstat3::MNT3ERR_NAMETOOLONG,
                    nfsstat3::NFS3ERR_INVAL => mountstat3::MNT3ERR_INVAL,
                    _ => mountstat3::MNT3ERR_IO,
                }))
            }
        }
    }

    fn mounted_directory(&self, client: &Client, path: &[u8]) -> Result<Node, nfsstat3> {
        let node = self.root.node_at(Path::new(OsStr::from_bytes(path)))?;
        match self.access.sees(client, &self.root, &node.path, node.is_directory()) {
            true if node.is_directory() => Ok(node),
            true => Err(nfsstat3::NFS3ERR_NOTDIR),
            false => Err(nfsstat3::NFS3ERR_NOENT),
        }
    }

    /// Returns the file of a handle.
    ///
    /// # Errors
    /// `BADHANDLE` if the bytes are not a handle; `STALE` if the file does not exist for the client.
    pub(crate) fn node(&self, client: &Client, handle: &[u8]) -> Result<Node, nfsstat3> {
        let node = self.root.resolve(handle)?;
        match self.access.sees(client, &self.root, &node.path, node.is_directory()) {
            true => Ok(node),
            false => Err(nfsstat3::NFS3ERR_STALE),
        }
    }

    /// Returns the regular file of a handle.
    ///
    /// # Errors
    /// Those of [`Self::node`]; `ISDIR` or `INVAL` if it is not a regular file.
    pub(crate) fn regular_file(&self, client: &Client, handle: &[u8]) -> Result<Node, nfsstat3> {
        let node = self.node(client, handle)?;
        match node.file_type() {
            Some(nfs3::ftype3::NF3REG) => Ok(node),
            Some(nfs3::ftype3::NF3DIR) => Err(nfsstat3::NFS3ERR_ISDIR),
            _ => Err(nfsstat3::NFS3ERR_INVAL),
        }
    }

    /// Returns the directory of a handle.
    ///
    /// # Errors
    /// Those of [`Self::node`]; `NOTDIR` if it is not a directory.
    pub(crate) fn directory(&self, client: &Client, handle: &[u8]) -> Result<Node, nfsstat3> {
        let node = self.node(client, handle)?;
        if node.is_directory() { Ok(node) } else { Err(nfsstat3::NFS3ERR_NOTDIR) }
    }

    /// Returns an entry of a directory.
    ///
    /// # Errors
    /// `NOENT` if the entry does not exist for the client.
    pub(crate) fn entry(&self, client: &Client, directory: &Node, name: &[u8]) -> Result<Node, nfsstat3> {
        let node = self.root.child(directory, parse_name(name)?)?;
        match self.access.sees(client, &self.root, &node.path, node.is_directory()) {
            true => Ok(node),
            false => Err(nfsstat3::NFS3ERR_NOENT),
        }
    }
}

#[cfg(test)]
mod tests {
    use godwit_dataset::Principal;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;
    use crate::file_handle::FileHandle;

    #[test]
    fn messages_that_clients_cause_are_limited_and_omitted_ones_counted() {
        let limit = MessageLimit::new(2);
        let admitted: Vec<bool> = (0..5).map(|_| limit.admit("m").is_some()).collect();
        assert_eq!(admitted, [true, true, false, false, false]);
        limit.counted.lock().0 -= LOG_INTERVAL;
        assert_eq!(limit.admit("m").unwrap(), "m (3 messages of this kind were omitted)");
        assert_eq!(limit.admit("m").unwrap(), "m");
    }

    #[test]
    fn calls_with_any_arguments_are_answered() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("f"), "f").unwrap();
        let access = ClientAccess::new(Box::new(|_| Some(Principal::default())), None, true);
        let options = ExportOptions { access, access_log: None, log: Arc::new(|_| ()) };
        let export = Export::open(directory.path(), options).unwrap();
        let root = FileHandle::root().to_bytes();
        for round in 0..20_000_u64 {
            let random = |at: u64| xxh3_64_with_seed(&round.to_le_bytes(), at);
            let mut arguments = Vec::new();
            if random(0) % 2 == 0 {
                arguments.extend((root.len() as u32).to_be_bytes());
                arguments.extend(&root);
                arguments.resize(arguments.len().next_multiple_of(4), 0);
            }
            // Small numbers, so that lists, flags and sizes are valid now and then.
            let words = (1..1 + random(0) / 2 % 16).map(|at| (random(at) % 6) as u32);
            arguments.extend(words.flat_map(u32::to_be_bytes));
            let (program, procedure) = match round % 7 {
                0 => (mount::PROGRAM, (round / 7 % 8) as u32),
                _ => (nfs3::PROGRAM, (round / 7 % 24) as u32),
            };
            let arguments = Arguments::new(&arguments);
            let call = Call { xid: round as u32, program, version: 3, procedure, arguments };
            let reply = export.answer(IpAddr::from([127, 0, 0, 1]), &call);
            assert_eq!(reply[4..8], (round as u32).to_be_bytes());
            assert_eq!(reply.len() % 4, 0);
        }
        assert!(directory.path().join("f").exists());
    }
}
