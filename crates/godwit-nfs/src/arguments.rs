//! Decodes the arguments of calls: XDR (RFC 4506) of untrusted bytes, without copies and without allocations of sizes
//! that the client chooses.

use nfs3_types::nfs3::{NFS3_FHSIZE, nfstime3};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

/// The error of arguments that are not what the procedure expects. The client receives `GARBAGE_ARGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedArguments;

/// The bytes of a call that were not decoded yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'m>(&'m [u8]);

/// The directory and the name of an entry, as a client names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryName<'m> {
    pub(crate) directory: &'m [u8],
    pub(crate) name: &'m [u8],
}

/// Attributes that a client sets (`sattr3`); `None` keeps the present value.
#[derive(Clone, Debug)]
pub(crate) struct NewAttributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) times: Timestamps,
}

impl<'m> Arguments<'m> {
    pub(crate) fn new(bytes: &'m [u8]) -> Self {
        Self(bytes)
    }

    fn bytes(&mut self, size: usize) -> Result<&'m [u8], MalformedArguments> {
        let (head, rest) = self.0.split_at_checked(size).ok_or(MalformedArguments)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MalformedArguments> {
        let bytes = self.bytes(4)?.try_into().map_err(|_| MalformedArguments)?;
        Ok(u32::from_be_bytes(bytes))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MalformedArguments> {
        let bytes = self.bytes(8)?.try_into().map_err(|_| MalformedArguments)?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// Returns a value of fixed size, such as a verifier.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedArguments> {
        self.bytes(N)?.try_into().map_err(|_| MalformedArguments)
    }

    /// Returns bytes that are preceded by their number.
    pub(crate) fn opaque(&mut self) -> Result<&'m [u8], MalformedArguments> {
        let size = self.u32()? as usize;
        let value = self.bytes(size)?;
        self.bytes(size.next_multiple_of(4) - size)?;
        Ok(value)
    }

    /// Returns the bytes of a file handle.
    pub(crate) fn handle(&mut self) -> Result<&'m [u8], MalformedArguments> {
        self.opaque().and_then(|bytes| (bytes.len() <= NFS3_FHSIZE).then_some(bytes).ok_or(MalformedArguments))
    }

    pub(crate) fn entry_name(&mut self) -> Result<EntryName<'m>, MalformedArguments> {
        Ok(EntryName { directory: self.handle()?, name: self.opaque()? })
    }

    fn is_present(&mut self) -> Result<bool, MalformedArguments> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MalformedArguments),
        }
    }

    fn optional_u32(&mut self) -> Result<Option<u32>, MalformedArguments> {
        if self.is_present()? { self.u32().map(Some) } else { Ok(None) }
    }

    pub(crate) fn optional_time(&mut self) -> Result<Option<nfstime3>, MalformedArguments> {
        if !self.is_present()? {
            return Ok(None);
        }
        Ok(Some(nfstime3 { seconds: self.u32()?, nseconds: self.u32()? }))
    }

    /// Returns a time as utimensat(2) expects it.
    fn new_time(&mut self) -> Result<Timespec, MalformedArguments> {
        match self.u32()? {
            0 => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }),
            1 => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_NOW }),
            2 => {
                let (seconds, nanoseconds) = (self.u32()?, self.u32()?);
                if nanoseconds >= 1_000_000_000 {
                    return Err(MalformedArguments);
                }
                Ok(Timespec { tv_sec: seconds.into(), tv_nsec: nanoseconds.into() })
            }
            _ => Err(MalformedArguments),
        }
    }

    pub(crate) fn new_attributes(&mut self) -> Result<NewAttributes, MalformedArguments> {
        let (mode, uid, gid) = (self.optional_u32()?, self.optional_u32()?, self.optional_u32()?);
        let size_bytes = if self.is_present()? { Some(self.u64()?) } else { None };
        let times = Timestamps { last_access: self.new_time()?, last_modification: self.new_time()? };
        Ok(NewAttributes { mode, uid, gid, size_bytes, times })
    }

    /// Checks that all bytes were decoded.
    pub(crate) fn end(self) -> Result<(), MalformedArguments> {
        if self.0.is_empty() { Ok(()) } else { Err(MalformedArguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_clients_invent_are_errors() {
        assert_eq!(Arguments::new(&[0xff, 0xff, 0xff, 0xff, 1, 2]).opaque(), Err(MalformedArguments));
        assert_eq!(Arguments::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5]).opaque(), Err(MalformedArguments));
        assert_eq!(Arguments::new(&[0, 0, 0]).u32(), Err(MalformedArguments));
        let mut long = vec![0, 0, 0, 68];
        long.resize(72, 0);
        assert_eq!(Arguments::new(&long).handle(), Err(MalformedArguments));
        assert_eq!(Arguments::new(&[0, 0, 0, 2]).optional_u32(), Err(MalformedArguments));
    }

    #[test]
    fn values_are_padded_to_four_bytes_and_nothing_may_follow() {
        let mut arguments = Arguments::new(&[0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 9]);
        assert_eq!(arguments.opaque(), Ok(&[7, 8][..]));
        assert_eq!(arguments.end(), Err(MalformedArguments));
        assert_eq!(arguments.u32(), Ok(9));
        assert_eq!(arguments.end(), Ok(()));
    }
}
