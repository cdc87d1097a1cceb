//! References.

use std::os::fd::AsRawFd;
use std::path::PathBuf;

use godwit_formats::fasta::Reader;

use crate::file::file;

/// FASTA, plain or packed.
pub(crate) fn fasta(bytes: &[u8]) {
    let file = file(bytes);
    // A file without a name has this one as long as it is open.
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let Ok(mut reader) = Reader::open(&path, 1) else { return };
    while let Ok(Some(_)) = reader.next_contig() {
        while let Ok(Some(bases)) = reader.next_bases() {
            assert!(bases.len() <= bytes.len().max(1) * 1032, "more bases than any compression of these bytes holds");
        }
    }
}
