//! Writes the input of a fuzz target to files for the parsers.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::Compression;
use flate2::write::GzEncoder;
use godwit_io::bgzf::{BlockCompressor, EOF_BLOCK, Reader};
use tempfile::TempDir;

/// Uncompressed size of a BGZF block, bytes; small, so that a short input has several blocks.
const BLOCK_BYTES: usize = 300;

/// Returns an open temporary file without a name that contains `bytes`.
pub(crate) fn anonymous_file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("there is room for a temporary file");
    file.write_all(bytes).and_then(|()| file.seek(SeekFrom::Start(0))).expect("it can be written to");
    file
}

/// Separator between the parts of an input, for targets that read several files.
pub(crate) const PART_SEPARATOR: &[u8] = b"\xff\xfe";

/// Splits an input into `N` parts at [`PART_SEPARATOR`]. If there are fewer separators, the missing parts are empty; if
/// there are more, they belong to the last part.
pub(crate) fn split_parts<const N: usize>(mut bytes: &[u8]) -> [&[u8]; N] {
    let mut parts = [&bytes[..0]; N];
    for (index, part) in parts.iter_mut().enumerate() {
        let end = bytes.windows(PART_SEPARATOR.len()).position(|window| window == PART_SEPARATOR);
        match end.filter(|_| index + 1 < N) {
            Some(end) => (*part, bytes) = (&bytes[..end], &bytes[end + PART_SEPARATOR.len()..]),
            None => (*part, bytes) = (bytes, &[]),
        }
    }
    parts
}

/// A temporary directory of this thread. Each input overwrites the files of the previous input.
pub(crate) struct ScratchDirectory(Rc<TempDir>);

impl ScratchDirectory {
    pub(crate) fn for_this_thread() -> Self {
        thread_local! {
            static DIRECTORY: Rc<TempDir> = Rc::new(tempfile::tempdir().expect("there is room for a directory"));
        }
        Self(DIRECTORY.with(Rc::clone))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file in the directory and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("it can be written to");
        path
    }
}

/// Writes the bytes to an unnamed file, and opens it with the reader that jobs use for their input.
pub(crate) fn open_input(bytes: &[u8]) -> Reader {
    Reader::from_file(Path::new("input"), anonymous_file(bytes), 1).expect("a thread can be started")
}

/// Returns a BGZF file with these bytes.
pub(crate) fn compress_bgzf(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut compressor = BlockCompressor::new(1);
    bytes.chunks(BLOCK_BYTES).for_each(|block| compressor.compress(block, &mut packed));
    packed.extend(EOF_BLOCK);
    packed
}

/// Returns a gzip file with two members that contains these bytes.
pub(crate) fn compress_gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    for part in [&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]] {
        let mut encoder = GzEncoder::new(&mut packed, Compression::fast());
        encoder.write_all(part).and_then(|()| encoder.finish().map(drop)).expect("memory can be written to");
    }
    packed
}
