//! Conversion of attributes and error numbers of the file system to those of NFS.

use std::io;

use nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, nfstime3, post_op_attr, specdata3};
use rustix::fs::{FileType, Statx, StatxTimestamp};
use rustix::io::Errno;

/// Identifier of the file system. It is the same at all pool members, so that clients see one file system.
const FILE_SYSTEM_ID: u64 = 0x676f_6477_6974;
/// Bits of the mode that clients see and set.
pub(crate) const MODE_BITS: u32 = 0o777;
/// Unit of the number of blocks in statx(2), bytes.
const STATX_BLOCK_BYTES: u64 = 512;

/// Returns the type of a file in NFS; `None` for devices, sockets and pipes, which are not served.
pub(crate) fn served_type(found: &Statx) -> Option<ftype3> {
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::RegularFile => Some(ftype3::NF3REG),
        FileType::Directory => Some(ftype3::NF3DIR),
        FileType::Symlink => Some(ftype3::NF3LNK),
        _ => None,
    }
}

/// Converts a time. NFSv3 has times from 1970 to 2106.
fn time(value: StatxTimestamp) -> nfstime3 {
    match u32::try_from(value.tv_sec) {
        Ok(seconds) => nfstime3 { seconds, nseconds: value.tv_nsec },
        Err(_) if value.tv_sec < 0 => nfstime3 { seconds: 0, nseconds: 0 },
        Err(_) => nfstime3 { seconds: u32::MAX, nseconds: 0 },
    }
}

/// Returns the attributes of a file as clients receive them.
pub(crate) fn attributes(found: &Statx) -> fattr3 {
    fattr3 {
        type_: served_type(found).unwrap_or_default(),
        mode: u32::from(found.stx_mode) & MODE_BITS,
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        used: found.stx_blocks.saturating_mul(STATX_BLOCK_BYTES),
        rdev: specdata3::default(),
        fsid: FILE_SYSTEM_ID,
        fileid: found.stx_ino,
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
    }
}

/// Returns attributes that accompany the result of a call, if they could be read.
pub(crate) fn optional_attributes(found: Option<&Statx>) -> post_op_attr {
    found.map_or(post_op_attr::None, |found| post_op_attr::Some(attributes(found)))
}

/// Returns the status for an error of the file system.
pub(crate) fn status(error: Errno) -> nfsstat3 {
    match error {
        Errno::PERM => nfsstat3::NFS3ERR_PERM,
        Errno::NOENT => nfsstat3::NFS3ERR_NOENT,
        Errno::ACCESS | Errno::BUSY | Errno::TXTBSY => nfsstat3::NFS3ERR_ACCES,
        Errno::EXIST => nfsstat3::NFS3ERR_EXIST,
        Errno::XDEV => nfsstat3::NFS3ERR_XDEV,
        Errno::NOTDIR => nfsstat3::NFS3ERR_NOTDIR,
        Errno::ISDIR => nfsstat3::NFS3ERR_ISDIR,
        Errno::INVAL | Errno::LOOP => nfsstat3::NFS3ERR_INVAL,
        Errno::FBIG => nfsstat3::NFS3ERR_FBIG,
        Errno::NOSPC => nfsstat3::NFS3ERR_NOSPC,
        Errno::ROFS => nfsstat3::NFS3ERR_ROFS,
        Errno::MLINK => nfsstat3::NFS3ERR_MLINK,
        Errno::NAMETOOLONG => nfsstat3::NFS3ERR_NAMETOOLONG,
        Errno::NOTEMPTY => nfsstat3::NFS3ERR_NOTEMPTY,
        Errno::DQUOT => nfsstat3::NFS3ERR_DQUOT,
        Errno::STALE => nfsstat3::NFS3ERR_STALE,
        Errno::OPNOTSUPP => nfsstat3::NFS3ERR_NOTSUPP,
        // The client retries later.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => nfsstat3::NFS3ERR_JUKEBOX,
        _ => nfsstat3::NFS3ERR_IO,
    }
}

/// Returns the status for an I/O error.
pub(crate) fn io_status(error: &io::Error) -> nfsstat3 {
    error.raw_os_error().map_or(nfsstat3::NFS3ERR_IO, |number| status(Errno::from_raw_os_error(number)))
}
