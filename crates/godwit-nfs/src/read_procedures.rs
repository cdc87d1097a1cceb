//! Procedures that change nothing: attributes, names, access, links, data, and limits.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use godwit_dataset::FileAccess;
use nfs3_types::nfs3::{
    ACCESS3_DELETE, ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ, ACCESS3res,
    ACCESS3resfail, ACCESS3resok, FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSINFO3res, FSINFO3resfail, FSINFO3resok,
    FSSTAT3res, FSSTAT3resfail, FSSTAT3resok, GETATTR3res, GETATTR3resok, LOOKUP3res, LOOKUP3resfail, LOOKUP3resok,
    PATHCONF3res, PATHCONF3resfail, PATHCONF3resok, READ3res, READ3resfail, READ3resok, READLINK3res, READLINK3resfail,
    READLINK3resok, ftype3, nfspath3, nfsstat3, nfstime3,
};
use nfs3_types::xdr_codec::{Opaque, Void};
use rustix::fs::{Mode, OFlags, readlinkat};

use crate::arguments::{Arguments, EntryName, MalformedArguments};
use crate::attributes::{attributes, io_status, optional_attributes, status};
use crate::client_access::Client;
use crate::export::{Export, reply};
use crate::export_root::{MAX_NAME_BYTES, Node, inspect};
use crate::rpc_message::MAX_TRANSFER_BYTES;

/// Preferred size of a page of a directory, bytes.
const PREFERRED_PAGE_BYTES: u32 = 64 << 10;
/// Unit of the sizes of reads and writes, bytes.
const TRANSFER_UNIT_BYTES: u32 = 4096;
/// Bits of the mode that permit the execution of a file.
const EXECUTE_BITS: u16 = 0o111;
/// Number of names of a file: links are not supported.
const MAX_LINKS: u32 = 1;

/// Decodes arguments that are only a handle.
fn only_handle<'m>(mut arguments: Arguments<'m>) -> Result<&'m [u8], MalformedArguments> {
    let handle = arguments.handle()?;
    arguments.end()?;
    Ok(handle)
}

/// Reads until `data` is full or the file ends, and returns the number of bytes.
fn read_fully_at(file: &File, data: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < data.len() {
        match file.read_at(&mut data[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

impl Export {
    pub(crate) fn get_attributes(
        &self,
        client: &Client,
        arguments: Arguments<'_>,
    ) -> Result<GETATTR3res, MalformedArguments> {
        let node = self.node(client, only_handle(arguments)?);
        Ok(reply(node.map(|node| GETATTR3resok { obj_attributes: attributes(&node.found) }), Void))
    }

    pub(crate) fn lookup(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<LOOKUP3res, MalformedArguments> {
        let EntryName { directory, name } = arguments.entry_name()?;
        arguments.end()?;
        let found = self.directory(client, directory).and_then(|directory| {
            let node = match name {
                b"." => self.node(client, &directory.handle.to_bytes())?,
                b".." => self.parent(&directory)?,
                name => self.entry(client, &directory, name)?,
            };
            Ok(LOOKUP3resok {
                object: node.handle.to_nfs(),
                obj_attributes: optional_attributes(Some(&node.found)),
                dir_attributes: optional_attributes(Some(&directory.found)),
            })
        });
        Ok(reply(found, LOOKUP3resfail::default()))
    }

    pub(crate) fn check_access(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<ACCESS3res, MalformedArguments> {
        let (handle, requested) = (arguments.handle()?, arguments.u32()?);
        arguments.end()?;
        let granted = self.node(client, handle).map(|node| ACCESS3resok {
            obj_attributes: optional_attributes(Some(&node.found)),
            access: requested & self.granted_access(client, &node),
        });
        Ok(reply(granted, ACCESS3resfail::default()))
    }

    /// Returns the kinds of access that a client has to a file, as bits of `ACCESS`. Clients check them when a program opens
    /// a file, so they follow the mode of the file, unlike reads and writes of open files.
    fn granted_access(&self, client: &Client, node: &Node) -> u32 {
        if node.is_directory() {
            let change = match self.access.authorize_change(client, &node.path, true) {
                Ok(_) => ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE,
                Err(_) => 0,
            };
            return ACCESS3_READ | ACCESS3_LOOKUP | change;
        }
        let may = |access| self.access.authorize(client, &node.path, access).is_ok();
        let (may_read, may_write) = (may(FileAccess::Read), may(FileAccess::Write));
        let read = if may_read && node.has_mode(Mode::RUSR) { ACCESS3_READ } else { 0 };
        let execute = if may_read && node.found.stx_mode & EXECUTE_BITS != 0 { ACCESS3_EXECUTE } else { 0 };
        let write = if may_write && node.has_mode(Mode::WUSR) { ACCESS3_MODIFY | ACCESS3_EXTEND } else { 0 };
        read | execute | write
    }

    pub(crate) fn read_link(
        &self,
        client: &Client,
        arguments: Arguments<'_>,
    ) -> Result<READLINK3res<'static>, MalformedArguments> {
        let handle = only_handle(arguments)?;
        let target = self.node(client, handle).and_then(|node| {
            if node.file_type() != Some(ftype3::NF3LNK) {
                return Err(nfsstat3::NFS3ERR_INVAL);
            }
            let target = readlinkat(&node.descriptor, "", Vec::new()).map_err(status)?;
            Ok(READLINK3resok {
                symlink_attributes: optional_attributes(Some(&node.found)),
                data: nfspath3(Opaque::owned(target.into_bytes())),
            })
        });
        Ok(reply(target, READLINK3resfail::default()))
    }

    pub(crate) fn read(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<READ3res<'static>, MalformedArguments> {
        let (handle, offset, count) = (arguments.handle()?, arguments.u64()?, arguments.u32()?);
        arguments.end()?;
        Ok(reply(self.read_range(client, handle, offset, count), READ3resfail::default()))
    }

    fn read_range(
        &self,
        client: &Client,
        handle: &[u8],
        offset: u64,
        count: u32,
    ) -> Result<READ3resok<'static>, nfsstat3> {
        let node = self.regular_file(client, handle)?;
        let rule = self.access.authorize(client, &node.path, FileAccess::Read)?;
        let file = self.root.open_node(&node, OFlags::RDONLY)?;
        let left = inspect(&file)?.stx_size.saturating_sub(offset);
        let mut data = vec![0; left.min(count.min(MAX_TRANSFER_BYTES).into()) as usize];
        let read = read_fully_at(&file, &mut data, offset).map_err(|error| io_status(&error))?;
        data.truncate(read);
        self.opened.record_transfer(client, &node, FileAccess::Read, &rule, read as u64)?;
        let found = inspect(&file)?;
        Ok(READ3resok {
            file_attributes: optional_attributes(Some(&found)),
            count: read as u32,
            eof: offset.saturating_add(read as u64) >= found.stx_size,
            data: Opaque::owned(data),
        })
    }

    pub(crate) fn file_system_space(
        &self,
        client: &Client,
        arguments: Arguments<'_>,
    ) -> Result<FSSTAT3res, MalformedArguments> {
        let handle = only_handle(arguments)?;
        let space = self.node(client, handle).and_then(|node| {
            let space = self.root.space()?;
            let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
            Ok(FSSTAT3resok {
                obj_attributes: optional_attributes(Some(&node.found)),
                tbytes: bytes(space.f_blocks),
                fbytes: bytes(space.f_bfree),
                abytes: bytes(space.f_bavail),
                tfiles: space.f_files,
                ffiles: space.f_ffree,
                afiles: space.f_favail,
                invarsec: 0,
            })
        });
        Ok(reply(space, FSSTAT3resfail::default()))
    }

    pub(crate) fn file_system_limits(
        &self,
        client: &Client,
        arguments: Arguments<'_>,
    ) -> Result<FSINFO3res, MalformedArguments> {
        let limits = self.node(client, only_handle(arguments)?).map(|node| FSINFO3resok {
            obj_attributes: optional_attributes(Some(&node.found)),
            rtmax: MAX_TRANSFER_BYTES,
            rtpref: MAX_TRANSFER_BYTES,
            rtmult: TRANSFER_UNIT_BYTES,
            wtmax: MAX_TRANSFER_BYTES,
            wtpref: MAX_TRANSFER_BYTES,
            wtmult: TRANSFER_UNIT_BYTES,
            dtpref: PREFERRED_PAGE_BYTES,
            maxfilesize: i64::MAX as u64,
            time_delta: nfstime3 { seconds: 0, nseconds: 1 },
            properties: FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
        });
        Ok(reply(limits, FSINFO3resfail::default()))
    }

    pub(crate) fn path_limits(
        &self,
        client: &Client,
        arguments: Arguments<'_>,
    ) -> Result<PATHCONF3res, MalformedArguments> {
        let limits = self.node(client, only_handle(arguments)?).map(|node| PATHCONF3resok {
            obj_attributes: optional_attributes(Some(&node.found)),
            linkmax: MAX_LINKS,
            name_max: MAX_NAME_BYTES as u32,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        });
        Ok(reply(limits, PATHCONF3resfail::default()))
    }
}
