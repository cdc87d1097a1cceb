//! The part of a file that is in the page cache of this host.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::database_volumes::DatabaseExtent;

/// Size of a mapping of which the resident pages are counted at a time, bytes. A byte of the answer stands for a page.
const MAPPING_BYTES: u64 = 1 << 30;

/// Returns how many bytes of an extent are in the page cache. The count is exact to a page at each end. Linux reports
/// all pages of a file as resident to processes that may not write it and do not own it; a file that cannot be read
/// counts as not resident.
pub(crate) fn resident_bytes(extent: &DatabaseExtent) -> u64 {
    let Ok(file) = File::open(&extent.path) else { return 0 };
    // SAFETY: sysconf has no preconditions.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let (start, end) = (extent.offset / page * page, extent.offset + extent.bytes);
    let mut resident = 0;
    let mut at = start;
    while at < end {
        let bytes = MAPPING_BYTES.min(end - at);
        resident += resident_pages(&file, at, bytes, page).unwrap_or(0) * page;
        at += bytes;
    }
    resident.min(extent.bytes)
}

/// Returns the number of resident pages among `bytes` bytes of a file from `offset` on, which is a multiple of `page`.
/// Returns `None` if a system call fails.
fn resident_pages(file: &File, offset: u64, bytes: u64, page: u64) -> Option<u64> {
    let (length, offset) = (usize::try_from(bytes).ok()?, libc::off_t::try_from(offset).ok()?);
    let mut pages = vec![0_u8; bytes.div_ceil(page) as usize];
    // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory. Nothing reads or writes
    // through it.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), offset)
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range is the mapping made above, and `pages` has a byte for each of its pages.
    let outcome = unsafe { libc::mincore(address, length, pages.as_mut_ptr()) };
    // SAFETY: the range is the mapping made above, and no reference into it exists.
    unsafe { libc::munmap(address, length) };
    // Only the lowest bit is defined (mincore(2)).
    (outcome == 0).then(|| pages.iter().filter(|flags| **flags & 1 == 1).count() as u64)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_file_that_was_just_written_is_resident() {
        let directory = tempfile::tempdir().expect("scratch");
        let path = directory.path().join("letters");
        std::fs::write(&path, vec![7; 300_000]).expect("scratch can be written");
        let extent = DatabaseExtent { path, offset: 5000, bytes: 200_000 };
        assert_eq!(resident_bytes(&extent), 200_000);
        assert_eq!(resident_bytes(&DatabaseExtent { path: PathBuf::from("no-such-file"), ..extent }), 0);
    }
}
