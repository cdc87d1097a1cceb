//! Bytes as the files that parsers read.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use godwit_formats::bgzf::{BlockCompressor, EOF_BLOCK, Reader};

/// Data of a block: small, so that short inputs have several.
const BLOCK_BYTES: usize = 300;

/// A file without a name that holds these bytes.
pub(crate) fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("there is room for a temporary file");
    file.write_all(bytes).and_then(|()| file.seek(SeekFrom::Start(0))).expect("it can be written to");
    file
}

/// The same, opened as a run opens what it is given.
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
