//! Bytes as the files that parsers read.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::Compression;
use flate2::write::GzEncoder;
use godwit_formats::bgzf::{BlockCompressor, EOF_BLOCK, Reader};
use tempfile::TempDir;

/// Data of a block: small, so that short inputs have several.
const BLOCK_BYTES: usize = 300;

/// A file without a name that holds these bytes.
pub(crate) fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("there is room for a temporary file");
    file.write_all(bytes).and_then(|()| file.seek(SeekFrom::Start(0))).expect("it can be written to");
    file
}

/// Stands between parts of an input that become files of their own.
pub(crate) const BETWEEN_PARTS: &[u8] = b"\xff\xfe";

/// The parts of an input; those that are not there are empty, the last goes to the end.
pub(crate) fn parts<const N: usize>(mut bytes: &[u8]) -> [&[u8]; N] {
    let mut parts = [&bytes[..0]; N];
    for (index, part) in parts.iter_mut().enumerate() {
        let end = bytes.windows(BETWEEN_PARTS.len()).position(|window| window == BETWEEN_PARTS);
        match end.filter(|_| index + 1 < N) {
            Some(end) => (*part, bytes) = (&bytes[..end], &bytes[end + BETWEEN_PARTS.len()..]),
            None => (*part, bytes) = (bytes, &[]),
        }
    }
    parts
}

/// A directory of this thread, which every input writes anew.
pub(crate) struct Scratch(Rc<TempDir>);

impl Scratch {
    pub(crate) fn get() -> Self {
        thread_local! {
            static DIRECTORY: Rc<TempDir> = Rc::new(tempfile::tempdir().expect("there is room for a directory"));
        }
        Self(DIRECTORY.with(Rc::clone))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("it can be written to");
        path
    }
}

/// A file without a name, opened as a run opens what it is given.
pub(crate) fn input(bytes: &[u8]) -> Reader {
    Reader::from_file(Path::new("input"), file(bytes), 1).expect("a thread can be started")
}

/// As a BGZF file.
pub(crate) fn bgzf(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut compressor = BlockCompressor::new(1);
    bytes.chunks(BLOCK_BYTES).for_each(|block| compressor.compress(block, &mut packed));
    packed.extend(EOF_BLOCK);
    packed
}

/// As a gzip file of two members.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    for part in [&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]] {
        let mut encoder = GzEncoder::new(&mut packed, Compression::fast());
        encoder.write_all(part).and_then(|()| encoder.finish().map(drop)).expect("memory can be written to");
    }
    packed
}
