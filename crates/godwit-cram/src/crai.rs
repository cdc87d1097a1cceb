//! The index of a CRAM file, `.crai` (CRAMv3 §12).

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

/// A line of a `.crai` index: the position in the file of the records of one contig in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// Index of the contig in the header; -1 for unmapped reads.
    pub contig: i32,
    /// First aligned position, 1-based as in the index file.
    pub start_1based: i64,
    /// Number of reference bases from the first to the last aligned position.
    pub span: i64,
    /// Offset of the container in the file, bytes.
    pub container_offset: u64,
    /// Offset of the slice from the end of the container header, bytes.
    pub slice_offset: u64,
    /// Size of the slice, bytes.
    pub slice_bytes: u64,
}

impl IndexEntry {
    /// Reads the entries of a gzip-compressed index.
    ///
    /// # Errors
    /// Read errors of `compressed`; [`io::ErrorKind::InvalidData`] if a line is invalid.
    pub fn read_all(compressed: impl Read) -> io::Result<Vec<Self>> {
        let mut text = String::new();
        MultiGzDecoder::new(compressed).read_to_string(&mut text)?;
        Self::parse_all(&text)
    }

    /// Parses the entries in the text of an index.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if a line is invalid.
    pub fn parse_all(text: &str) -> io::Result<Vec<Self>> {
        let entries = text.lines().map(|line| Self::parse(line).ok_or(line));
        entries.collect::<Result<_, _>>().map_err(|line| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{line:?} is not a line of a CRAM index"))
        })
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let entry = Self {
            contig: fields.next()?.parse().ok()?,
            start_1based: fields.next()?.parse().ok()?,
            span: fields.next()?.parse().ok()?,
            container_offset: fields.next()?.parse().ok()?,
            slice_offset: fields.next()?.parse().ok()?,
            slice_bytes: fields.next()?.parse().ok()?,
        };
        fields.next().is_none().then_some(entry)
    }
}

/// Writes the index of a CRAM file. `parts` contains the index entries of each part, and the offset of the part in the
/// file.
///
/// # Errors
/// Write errors of `out`.
pub fn write_index(parts: impl Iterator<Item = (Vec<IndexEntry>, u64)>, out: impl Write) -> io::Result<()> {
    let mut out = GzEncoder::new(out, Compression::default());
    for (entries, offset) in parts {
        for entry in entries {
            let IndexEntry { contig, start_1based, span, container_offset, slice_offset, slice_bytes } = entry;
            let container = container_offset + offset;
            writeln!(out, "{contig}\t{start_1based}\t{span}\t{container}\t{slice_offset}\t{slice_bytes}")?;
        }
    }
    out.finish().map(drop)
}
