//! Procedures that change files, names and attributes.
//!
//! A change is durable when its reply is sent, except for writes that the client commits later. Replies have no
//! attributes from before a change: they cannot be read at one moment with it, and a client that trusts them would
//! overlook the changes of others.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use godwit_dataset::FileAccess;
use nfs3_types::nfs3::{
    COMMIT3res, COMMIT3resfail, COMMIT3resok, CREATE3res, CREATE3resfail, CREATE3resok, LINK3res, LINK3resfail,
    MKDIR3res, MKDIR3resfail, MKDIR3resok, MKNOD3res, MKNOD3resfail, NFS3_CREATEVERFSIZE, Nfs3Option, REMOVE3res,
    REMOVE3resfail, REMOVE3resok, RENAME3res, RENAME3resfail, RENAME3resok, RMDIR3res, RMDIR3resfail, RMDIR3resok,
    SETATTR3res, SETATTR3resfail, SETATTR3resok, SYMLINK3res, SYMLINK3resfail, WRITE3res, WRITE3resfail, WRITE3resok,
    ftype3, nfsstat3, nfstime3, post_op_attr, stable_how, wcc_data, writeverf3,
};
use rustix::fs::{
    AtFlags, Mode, OFlags, Statx, Timespec, Timestamps, UTIME_OMIT, ftruncate, futimens, mkdirat, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;

use crate::arguments::{Arguments, EntryName, MalformedArguments, NewAttributes};
use crate::attributes::{MODE_BITS, attributes, io_status, optional_attributes, served_type, status};
use crate::client_access::Client;
use crate::export::{Export, reply};
use crate::export_root::{Node, SERVER_FILE_MODE, inspect, parse_new_name};
use crate::rpc_message::MAX_TRANSFER_BYTES;

/// Bits of the mode of directories that the server needs to use them for clients.
const SERVER_DIRECTORY_MODE: Mode = Mode::RWXU;
/// Bits of the times in which the verifier of an exclusive creation is stored, so that no file system rejects them.
const VERIFIER_BITS: u32 = 0x7fff_ffff;

/// The mode in which a client creates a file.
enum CreateMode {
    /// An existing file is used.
    Unchecked(NewAttributes),
    /// An existing file is an error.
    Guarded(NewAttributes),
    /// An existing file is an error, unless the same call created it: the verifier is stored in the times of the file.
    Exclusive([u8; NFS3_CREATEVERFSIZE]),
}

/// A write of a client.
struct WriteRequest<'m> {
    handle: &'m [u8],
    offset: u64,
    stable: stable_how,
    data: &'m [u8],
}

impl<'m> WriteRequest<'m> {
    fn decode(mut arguments: Arguments<'m>) -> Result<Self, MalformedArguments> {
        let (handle, offset, count) = (arguments.handle()?, arguments.u64()?, arguments.u32()?);
        let stable = match arguments.u32()? {
            0 => stable_how::UNSTABLE,
            1 => stable_how::DATA_SYNC,
            2 => stable_how::FILE_SYNC,
            _ => return Err(MalformedArguments),
        };
        let data = arguments.opaque()?;
        arguments.end()?;
        match data.len() == count as usize && count <= MAX_TRANSFER_BYTES {
            true => Ok(Self { handle, offset, stable, data }),
            false => Err(MalformedArguments),
        }
    }
}

/// Returns the attributes of a file after a change.
fn after(found: Result<Statx, nfsstat3>) -> wcc_data {
    wcc_data { after: optional_attributes(found.ok().as_ref()), ..wcc_data::default() }
}

/// Returns the times in which the verifier of an exclusive creation is stored, as seconds.
fn verifier_times(verifier: [u8; NFS3_CREATEVERFSIZE]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = verifier;
    [u32::from_be_bytes([a, b, c, d]) & VERIFIER_BITS, u32::from_be_bytes([e, f, g, h]) & VERIFIER_BITS]
}

/// Returns the attributes of a new file or directory. Owners are ignored: some clients send those of the process.
fn creation_attributes(new: NewAttributes) -> NewAttributes {
    NewAttributes { uid: None, gid: None, ..new }
}

/// Removes a new entry if its creation fails afterwards, so that the client can repeat the call.
fn complete_or_remove(
    parent: &Node,
    name: &OsStr,
    flags: AtFlags,
    complete: impl FnOnce() -> Result<Node, nfsstat3>,
) -> Result<Node, nfsstat3> {
    complete().inspect_err(|_| {
        // The client receives the first error.
        let _ = unlinkat(&parent.descriptor, name, flags);
    })
}

impl Export {
    /// Returns the verifier of the writes and commits of this moment.
    fn write_verifier(&self) -> writeverf3 {
        writeverf3(self.write_verifier.load(Ordering::SeqCst).to_be_bytes())
    }

    /// Evaluates the result of a sync. The system reports an error of writing back only once, to any of the calls that
    /// sync the file. So the verifier changes, and all clients send again what they have not committed.
    fn synced(&self, result: io::Result<()>) -> Result<(), nfsstat3> {
        result.map_err(|error| {
            self.write_verifier.fetch_add(1, Ordering::SeqCst);
            io_status(&error)
        })
    }

    /// Sets attributes of an open file. Owners are not changed: all files belong to the user of the server. Its own
    /// rights to directories remain, because it uses them for every call about their files.
    fn apply(&self, file: &File, new: &NewAttributes) -> Result<(), nfsstat3> {
        let found = inspect(file)?;
        if new.uid.is_some_and(|uid| uid != found.stx_uid) || new.gid.is_some_and(|gid| gid != found.stx_gid) {
            return Err(nfsstat3::NFS3ERR_PERM);
        }
        if let Some(size) = new.size_bytes {
            ftruncate(file, size).map_err(status)?;
        }
        let is_omitted = |time: &Timespec| time.tv_nsec == UTIME_OMIT;
        if !is_omitted(&new.times.last_access) || !is_omitted(&new.times.last_modification) {
            futimens(file, &new.times).map_err(status)?;
        }
        if let Some(mode) = new.mode {
            let is_directory = served_type(&found) == Some(ftype3::NF3DIR);
            let server_mode = if is_directory { SERVER_DIRECTORY_MODE } else { Mode::empty() };
            self.root.set_mode(file, Mode::from_raw_mode(mode & MODE_BITS) | server_mode)?;
        }
        self.synced(file.sync_all())
    }

    pub(crate) fn set_attributes(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<SETATTR3res, MalformedArguments> {
        let (handle, new, expected) = (arguments.handle()?, arguments.new_attributes()?, arguments.optional_time()?);
        arguments.end()?;
        let changed = self.change_attributes(client, handle, &new, expected);
        Ok(reply(changed.map(|obj_wcc| SETATTR3resok { obj_wcc }), SETATTR3resfail::default()))
    }

    fn change_attributes(
        &self,
        client: &Client,
        handle: &[u8],
        new: &NewAttributes,
        expected: Option<nfstime3>,
    ) -> Result<wcc_data, nfsstat3> {
        let node = self.node(client, handle)?;
        let rule = self.access.authorize_change(client, &node.path, node.is_directory())?;
        if expected.is_some_and(|time| time != attributes(&node.found).ctime) {
            return Err(nfsstat3::NFS3ERR_NOT_SYNC);
        }
        let flags = match (node.file_type(), new.size_bytes) {
            (Some(ftype3::NF3REG), Some(_)) => OFlags::WRONLY,
            (Some(ftype3::NF3REG | ftype3::NF3DIR), None) => OFlags::RDONLY,
            (Some(ftype3::NF3DIR), Some(_)) => return Err(nfsstat3::NFS3ERR_ISDIR),
            _ => return Err(nfsstat3::NFS3ERR_NOTSUPP),
        };
        let file = self.root.open_node(&node, flags)?;
        self.opened.record_change(client, "NFS SETATTR", &node.path, &rule)?;
        self.apply(&file, new)?;
        Ok(after(inspect(&file)))
    }

    pub(crate) fn write(&self, client: &Client, arguments: Arguments<'_>) -> Result<WRITE3res, MalformedArguments> {
        let request = WriteRequest::decode(arguments)?;
        // The verifier of a moment before the write: if a sync fails meanwhile, the client sends the data again.
        let verf = self.write_verifier();
        let written = self.write_range(client, &request).map(|file_wcc| WRITE3resok {
            file_wcc,
            count: request.data.len() as u32,
            committed: request.stable,
            verf,
        });
        Ok(reply(written, WRITE3resfail::default()))
    }

    fn write_range(&self, client: &Client, request: &WriteRequest<'_>) -> Result<wcc_data, nfsstat3> {
        let node = self.regular_file(client, request.handle)?;
        let rule = self.access.authorize(client, &node.path, FileAccess::Write)?;
        let end = request.offset.checked_add(request.data.len() as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(nfsstat3::NFS3ERR_FBIG);
        }
        let file = self.root.open_node(&node, OFlags::WRONLY)?;
        self.opened.record_transfer(client, &node, FileAccess::Write, &rule, request.data.len() as u64)?;
        file.write_all_at(request.data, request.offset).map_err(|error| io_status(&error))?;
        match request.stable {
            stable_how::UNSTABLE => {}
            stable_how::DATA_SYNC => self.synced(file.sync_data())?,
            stable_how::FILE_SYNC => self.synced(file.sync_all())?,
        }
        Ok(after(inspect(&file)))
    }

    pub(crate) fn commit(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<COMMIT3res, MalformedArguments> {
        // The complete file is committed, whatever the range.
        let (handle, _offset, _count) = (arguments.handle()?, arguments.u64()?, arguments.u32()?);
        arguments.end()?;
        let committed = self.regular_file(client, handle).and_then(|node| {
            self.access.authorize(client, &node.path, FileAccess::Write)?;
            let file = self.root.open_node(&node, OFlags::RDONLY)?;
            self.synced(file.sync_all())?;
            Ok(COMMIT3resok { file_wcc: after(inspect(&file)), verf: self.write_verifier() })
        });
        Ok(reply(committed, COMMIT3resfail { file_wcc: wcc_data::default() }))
    }

    pub(crate) fn create(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<CREATE3res, MalformedArguments> {
        let entry = arguments.entry_name()?;
        let mode = match arguments.u32()? {
            0 => CreateMode::Unchecked(arguments.new_attributes()?),
            1 => CreateMode::Guarded(arguments.new_attributes()?),
            2 => CreateMode::Exclusive(arguments.array()?),
            _ => return Err(MalformedArguments),
        };
        arguments.end()?;
        let created = self.create_file(client, entry, &mode).map(|(node, dir_wcc)| CREATE3resok {
            obj: Nfs3Option::Some(node.handle.to_nfs()),
            obj_attributes: post_op_attr::Some(attributes(&node.found)),
            dir_wcc,
        });
        Ok(reply(created, CREATE3resfail::default()))
    }

    fn create_file(
        &self,
        client: &Client,
        entry: EntryName<'_>,
        mode: &CreateMode,
    ) -> Result<(Node, wcc_data), nfsstat3> {
        let (directory, name) = (self.directory(client, entry.directory)?, parse_new_name(entry.name)?);
        let path = directory.path.join(name);
        let rule = self.access.authorize(client, &path, FileAccess::Write)?;
        self.opened.record_change(client, "NFS CREATE", &path, &rule)?;
        let new = match mode {
            CreateMode::Unchecked(new) | CreateMode::Guarded(new) => new.clone(),
            CreateMode::Exclusive(verifier) => {
                let time = |seconds: u32| Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
                let [last_access, last_modification] = verifier_times(*verifier).map(time);
                let times = Timestamps { last_access, last_modification };
                NewAttributes { mode: None, uid: None, gid: None, size_bytes: None, times }
            }
        };
        let new = creation_attributes(new);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let first_mode = Mode::from_raw_mode(new.mode.unwrap_or_default() & MODE_BITS) | SERVER_FILE_MODE;
        let node = match openat(&directory.descriptor, name, flags, first_mode).map(File::from) {
            Ok(file) => complete_or_remove(&directory, name, AtFlags::empty(), || {
                self.apply(&file, &new)?;
                self.root.child(&directory, name)
            })?,
            Err(Errno::EXIST) => {
                self.use_existing_file(client, &directory, entry.name, mode)?;
                self.root.child(&directory, name)?
            }
            Err(error) => return Err(status(error)),
        };
        Ok((node, self.sync_directory(&directory)?))
    }

    /// Uses an existing file instead of a new one, if the client permits it.
    ///
    /// # Errors
    /// `EXIST` if the client requires a new file; `ACCES` if the file must be truncated and its mode does not permit it.
    fn use_existing_file(
        &self,
        client: &Client,
        directory: &Node,
        name: &[u8],
        mode: &CreateMode,
    ) -> Result<(), nfsstat3> {
        let node = self.entry(client, directory, name)?;
        if node.file_type() != Some(ftype3::NF3REG) {
            return Err(nfsstat3::NFS3ERR_EXIST);
        }
        match mode {
            CreateMode::Unchecked(NewAttributes { size_bytes: Some(size), .. }) => {
                if !node.has_mode(Mode::WUSR) {
                    // A repeated call finds the file that it has created with this mode and size before.
                    return if node.found.stx_size == *size { Ok(()) } else { Err(nfsstat3::NFS3ERR_ACCES) };
                }
                let file = self.root.open_node(&node, OFlags::WRONLY)?;
                ftruncate(&file, *size).map_err(status)?;
                self.synced(file.sync_all())
            }
            CreateMode::Unchecked(_) => Ok(()),
            CreateMode::Guarded(_) => Err(nfsstat3::NFS3ERR_EXIST),
            CreateMode::Exclusive(verifier) => {
                let found = attributes(&node.found);
                let is_same_call = [found.atime.seconds, found.mtime.seconds] == verifier_times(*verifier);
                if is_same_call { Ok(()) } else { Err(nfsstat3::NFS3ERR_EXIST) }
            }
        }
    }

    pub(crate) fn make_directory(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<MKDIR3res, MalformedArguments> {
        let (EntryName { directory, name }, new) = (arguments.entry_name()?, arguments.new_attributes()?);
        arguments.end()?;
        let made = self.directory(client, directory).and_then(|parent| {
            let name = parse_new_name(name)?;
            let path = parent.path.join(name);
            let rule = self.access.authorize_change(client, &path, true)?;
            self.opened.record_change(client, "NFS MKDIR", &path, &rule)?;
            let new = NewAttributes { size_bytes: None, ..creation_attributes(new) };
            let first_mode = Mode::from_raw_mode(new.mode.unwrap_or_default() & MODE_BITS) | SERVER_DIRECTORY_MODE;
            mkdirat(&parent.descriptor, name, first_mode).map_err(status)?;
            let node = complete_or_remove(&parent, name, AtFlags::REMOVEDIR, || {
                let made = self.root.open_node(&self.root.child(&parent, name)?, OFlags::RDONLY | OFlags::DIRECTORY)?;
                self.apply(&made, &new)?;
                self.root.child(&parent, name)
            })?;
            let dir_wcc = self.sync_directory(&parent)?;
            Ok(MKDIR3resok {
                obj: Nfs3Option::Some(node.handle.to_nfs()),
                obj_attributes: post_op_attr::Some(attributes(&node.found)),
                dir_wcc,
            })
        });
        Ok(reply(made, MKDIR3resfail::default()))
    }

    pub(crate) fn remove_file(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<REMOVE3res, MalformedArguments> {
        let entry = arguments.entry_name()?;
        arguments.end()?;
        let removed = self.remove(client, entry, false).map(|dir_wcc| REMOVE3resok { dir_wcc });
        Ok(reply(removed, REMOVE3resfail::default()))
    }

    pub(crate) fn remove_directory(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<RMDIR3res, MalformedArguments> {
        let entry = arguments.entry_name()?;
        arguments.end()?;
        let removed = self.remove(client, entry, true).map(|dir_wcc| RMDIR3resok { dir_wcc });
        Ok(reply(removed, RMDIR3resfail { dir_wcc: wcc_data::default() }))
    }

    fn remove(&self, client: &Client, entry: EntryName<'_>, is_directory: bool) -> Result<wcc_data, nfsstat3> {
        let (directory, name) = (self.directory(client, entry.directory)?, parse_new_name(entry.name)?);
        let node = self.entry(client, &directory, entry.name)?;
        let rule = self.access.authorize_change(client, &node.path, node.is_directory())?;
        let (call, flags) = match is_directory {
            true => ("NFS RMDIR", AtFlags::REMOVEDIR),
            false => ("NFS REMOVE", AtFlags::empty()),
        };
        self.opened.record_change(client, call, &node.path, &rule)?;
        unlinkat(&directory.descriptor, name, flags).map_err(status)?;
        self.sync_directory(&directory)
    }

    pub(crate) fn rename(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<RENAME3res, MalformedArguments> {
        let (from, to) = (arguments.entry_name()?, arguments.entry_name()?);
        arguments.end()?;
        let renamed = self.rename_entry(client, from, to);
        let renamed = renamed.map(|(fromdir_wcc, todir_wcc)| RENAME3resok { fromdir_wcc, todir_wcc });
        Ok(reply(renamed, RENAME3resfail::default()))
    }

    fn rename_entry(
        &self,
        client: &Client,
        from: EntryName<'_>,
        to: EntryName<'_>,
    ) -> Result<(wcc_data, wcc_data), nfsstat3> {
        let (source, destination) = (self.directory(client, from.directory)?, self.directory(client, to.directory)?);
        let (name, new_name) = (parse_new_name(from.name)?, parse_new_name(to.name)?);
        let node = self.entry(client, &source, from.name)?;
        let new_path = destination.path.join(new_name);
        self.access.authorize_rename(client, &self.root, &node, &new_path)?;
        for (call, path) in [("NFS RENAME (old path)", &node.path), ("NFS RENAME", &new_path)] {
            let rule = self.access.authorize_change(client, path, node.is_directory())?;
            self.opened.record_change(client, call, path, &rule)?;
        }
        renameat(&source.descriptor, name, &destination.descriptor, new_name).map_err(status)?;
        // The client may use the present handles, which lead to the previous directory, until it looks the files up
        // again.
        self.root.remember(&node.handle, &new_path);
        if node.is_directory() {
            self.root.remember_move(&node.path, &new_path);
        }
        Ok((self.sync_directory(&source)?, self.sync_directory(&destination)?))
    }

    /// Makes the names in a directory durable, and returns its attributes.
    fn sync_directory(&self, directory: &Node) -> Result<wcc_data, nfsstat3> {
        let file = self.root.open_node(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.synced(file.sync_all())?;
        Ok(after(inspect(&file)))
    }

    pub(crate) fn reject_symbolic_link(&self) -> SYMLINK3res {
        reply(Err(nfsstat3::NFS3ERR_NOTSUPP), SYMLINK3resfail::default())
    }

    pub(crate) fn reject_special_file(&self) -> MKNOD3res {
        reply(Err(nfsstat3::NFS3ERR_NOTSUPP), MKNOD3resfail { dir_wcc: wcc_data::default() })
    }

    pub(crate) fn reject_hard_link(&self) -> LINK3res {
        let failed = LINK3resfail { file_attributes: post_op_attr::None, linkdir_wcc: wcc_data::default() };
        reply(Err(nfsstat3::NFS3ERR_NOTSUPP), failed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use godwit_dataset::Principal;

    use super::*;
    use crate::client_access::ClientAccess;
    use crate::export::ExportOptions;

    #[test]
    fn a_failed_sync_changes_the_verifier() {
        let directory = tempfile::tempdir().unwrap();
        let access = ClientAccess::new(Box::new(|_| Some(Principal::default())), None, true);
        let options = ExportOptions { access, access_log: None, log: Arc::new(|_| ()) };
        let export = Export::open(directory.path(), options).unwrap();
        let verifiers = [Ok(()), Err(Errno::IO.into()), Ok(())].map(|result| {
            let is_synced = export.synced(result).is_ok();
            (is_synced, export.write_verifier().0)
        });
        assert_ne!(verifiers[0].1, verifiers[1].1);
        assert_eq!(verifiers[1].1, verifiers[2].1);
        assert_eq!(verifiers.map(|(is_synced, _)| is_synced), [true, false, true]);
    }
}
