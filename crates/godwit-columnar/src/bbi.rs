//! A reader of bigWig and bigBed files as Arrow record batches.
//!
//! Flows in: a file with random access, in UCSC's format of indexed binary files (BBI; Kent et al. 2010,
//! doi:10.1093/bioinformatics/btq351, supplement), compressed or not. Flows out: record batches with 0-based, half-open
//! positions, of the blocks of data that the R tree of the file names for some regions, or of all. Summaries at zoom
//! levels are not read. Files in big-endian byte order are rejected.

mod block_rows;
mod window_reader;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use godwit_formats::file_format::{BIGBED_MAGIC, BIGWIG_MAGIC};
use godwit_formats::intervals::IntervalFormat;
use godwit_io::random_access::RandomAccess;
use godwit_model::{IntervalSet, Region};

use window_reader::WindowReader;

pub use block_rows::BbiRows;

/// First four bytes of the B+ tree of contigs.
const CONTIG_TREE_MAGIC: u32 = 0x78CA_8C91;
/// First four bytes of the R tree of blocks.
const BLOCK_TREE_MAGIC: u32 = 0x2468_ACE0;
/// Size of the file header, bytes.
const HEADER_BYTES: usize = 64;
/// Size of the entry of a zoom level after the file header, bytes.
const ZOOM_ENTRY_BYTES: usize = 24;
/// Size of the header of the B+ tree of contigs, bytes.
const CONTIG_TREE_HEADER_BYTES: usize = 32;
/// Size of the header of the R tree of blocks, bytes.
const BLOCK_TREE_HEADER_BYTES: usize = 48;
/// Maximum bytes of a contig name.
const MAX_NAME_BYTES: u32 = 256;
/// Maximum bytes of a block of data, compressed or not. Files have some hundred kilobytes at most.
const MAX_BLOCK_BYTES: u64 = 16 << 20;

/// The content of a BBI file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BbiKind {
    /// Numbers at intervals of the genome.
    BigWig,
    /// Lines of BED.
    BigBed,
}

/// A reason why a bigWig or bigBed file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BbiError {
    /// The file cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system or the network.
        #[source]
        source: io::Error,
    },
    /// The file does not begin with the magic number of either format.
    #[error("{} ({bytes} bytes) is not a bigWig or bigBed file: it does not begin as one", .path.display())]
    Magic {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file, bytes.
        bytes: u64,
    },
    /// The file ends before data that its header or index names.
    #[error("{} is truncated: it has {bytes} bytes and ends before or within {item}; copy it again", .path.display())]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file, bytes.
        bytes: u64,
        /// The data that are missing.
        item: &'static str,
    },
    /// The content of the file is invalid.
    #[error("{}: {problem}", .path.display())]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// The columns of a batch do not fit its schema, which is a bug in godwit.
    #[error("a bug in godwit: columns do not fit their schema")]
    Columns(#[from] ArrowError),
}

impl BbiError {
    fn invalid(path: &Path, problem: impl Into<String>) -> Self {
        Self::Invalid { path: path.to_owned(), problem: problem.into() }
    }
}

impl BbiKind {
    /// Returns the schema of the record batches: for bigWig `contig`, `position`, `end_position` and `value`, for bigBed
    /// the columns of BED ([`IntervalFormat::schema`]). Positions are 0-based, and intervals are half-open.
    pub fn schema(self) -> SchemaRef {
        let position_field = |name: &str| Field::new(name, DataType::Int32, false);
        match self {
            Self::BigBed => IntervalFormat::Bed.schema(),
            Self::BigWig => Arc::new(Schema::new(vec![
                Field::new("contig", DataType::Utf8, false),
                position_field("position"),
                position_field("end_position"),
                Field::new("value", DataType::Float32, false),
            ])),
        }
    }
}

/// The location of a block of data in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BbiBlock {
    /// Offset of the first byte.
    pub offset: u64,
    /// Size in the file, bytes.
    pub bytes: u64,
}

/// An open bigWig or bigBed file. [`BbiFile::open`] reads its header and its contigs.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use godwit_columnar::bbi::BbiFile;
/// use godwit_io::random_access::LocalFile;
/// use godwit_model::Region;
///
/// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/bbi");
/// # let path = std::path::Path::new(directory).join("signal.bw");
/// let file = Arc::new(BbiFile::open(Arc::new(LocalFile::open(&path)?))?);
/// let regions = [Region { contig: "chr1".to_owned(), start: 1000, end: 2000 }];
/// let mut rows = file.rows(file.blocks(Some(&regions))?, Some(&regions));
/// let batch = rows.next_batch()?.unwrap();
/// assert_eq!(batch.schema(), file.kind().schema());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BbiFile {
    source: Arc<dyn RandomAccess>,
    kind: BbiKind,
    /// Offset of the R tree of blocks; 0 if the file has no blocks, as pyBigWig 0.3.29 writes it.
    block_tree_offset: u64,
    /// Maximum size of a block after decompression, bytes; 0 if blocks are not compressed.
    uncompressed_block_bytes: u32,
    contig_ids: HashMap<String, u32>,
    contig_names: HashMap<u32, String>,
}

impl BbiFile {
    /// Opens a file, and reads its header and its contigs.
    ///
    /// # Errors
    /// [`BbiError::Magic`] if the file is empty or of another format, [`BbiError::Truncated`] if parts that the header
    /// names are missing, other variants if the file cannot be read or is invalid.
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, BbiError> {
        let path = source.path().to_owned();
        let mut reader = WindowReader::new(source.clone());
        let magic = match reader.bytes(0, 4, "the magic number") {
            Ok(bytes) => array_at(bytes, 0),
            Err(BbiError::Truncated { .. }) => [0; 4],
            Err(error) => return Err(error),
        };
        let mut reversed = magic;
        reversed.reverse();
        let kind = match magic {
            BIGWIG_MAGIC => BbiKind::BigWig,
            BIGBED_MAGIC => BbiKind::BigBed,
            _ if [BIGWIG_MAGIC, BIGBED_MAGIC].contains(&reversed) => {
                return Err(BbiError::invalid(&path, "it is in big-endian byte order, which is not supported"));
            }
            _ => return Err(BbiError::Magic { path, bytes: source.byte_len() }),
        };
        let header = reader.bytes(0, HEADER_BYTES, "the file header")?;
        let zoom_levels = usize::from(u16_at(header, 6));
        let (contig_tree_offset, block_tree_offset) = (u64_at(header, 8), u64_at(header, 24));
        let uncompressed_block_bytes = u32_at(header, 52);
        let zoom_entries = reader.bytes(HEADER_BYTES as u64, zoom_levels * ZOOM_ENTRY_BYTES, "the zoom levels")?;
        // Summaries are not read, but a file without them has been truncated.
        let zoom_indexes: Vec<u64> =
            zoom_entries.chunks_exact(ZOOM_ENTRY_BYTES).map(|entry| u64_at(entry, 16)).collect();
        for offset in zoom_indexes {
            reader.bytes(offset, BLOCK_TREE_HEADER_BYTES, "the index of a zoom level")?;
        }
        let mut contig_ids = HashMap::new();
        let mut contig_names = HashMap::new();
        for (name, id) in read_contigs(&mut reader, contig_tree_offset)? {
            if contig_names.insert(id, name.clone()).is_some() {
                return Err(BbiError::invalid(&path, format!("two contigs have the number {id}")));
            }
            if contig_ids.insert(name.clone(), id).is_some() {
                return Err(BbiError::invalid(&path, format!("two contigs have the name {name}")));
            }
        }
        if block_tree_offset > 0 {
            let tree_header = reader.bytes(block_tree_offset, BLOCK_TREE_HEADER_BYTES, "the index")?;
            if u32_at(tree_header, 0) != BLOCK_TREE_MAGIC {
                return Err(BbiError::invalid(&path, "it has no index where its header names one"));
            }
        }
        Ok(Self { source, kind, block_tree_offset, uncompressed_block_bytes, contig_ids, contig_names })
    }

    /// Returns the content of the file.
    pub fn kind(&self) -> BbiKind {
        self.kind
    }

    /// Returns whether the file lists a contig. The list is complete, but may lack contigs without data.
    pub fn has_contig(&self, name: &str) -> bool {
        self.contig_ids.contains_key(name)
    }

    /// Returns the blocks that may contain rows that overlap one of the regions, or all blocks without regions, in the
    /// order of the file, which is that of contigs and positions. Regions of other contigs have no blocks.
    ///
    /// # Errors
    /// [`BbiError`] if the index cannot be read, is invalid, or names data beyond the end of the file.
    pub fn blocks(&self, regions: Option<&[Region]>) -> Result<Vec<BbiBlock>, BbiError> {
        let intervals = regions.map(|regions| self.intervals(regions));
        let intervals: Option<Vec<_>> = intervals.as_ref().map(|intervals| intervals.iter().collect());
        let is_wanted = |item: &[u8]| {
            let (start, end) = ((u32_at(item, 0), u32_at(item, 4)), (u32_at(item, 8), u32_at(item, 12)));
            // The bounds are inclusive here, because intervals without bases count as one base long.
            intervals.as_ref().is_none_or(|intervals| {
                let at = intervals.partition_point(|(contig, _, to)| (*contig, *to) < start);
                intervals.get(at).is_some_and(|(contig, from, _)| (*contig, *from) <= end)
            })
        };
        let mut blocks = Vec::new();
        if self.block_tree_offset == 0 {
            return Ok(blocks);
        }
        let mut reader = WindowReader::new(self.source.clone());
        let root = self.block_tree_offset + BLOCK_TREE_HEADER_BYTES as u64;
        walk_tree(&mut reader, root, (24, 32), "the index", |is_leaf, item| {
            if !is_wanted(item) {
                return Ok(None);
            }
            if !is_leaf {
                return Ok(Some(u64_at(item, 16)));
            }
            blocks.push(BbiBlock { offset: u64_at(item, 16), bytes: u64_at(item, 24) });
            Ok(None)
        })?;
        blocks.sort_unstable_by_key(|block| block.offset);
        blocks.dedup_by_key(|block| block.offset);
        for block in &blocks {
            let (path, bytes) = (self.source.path(), self.source.byte_len());
            if block.bytes > MAX_BLOCK_BYTES {
                return Err(BbiError::invalid(path, format!("a block of {} bytes is too large", block.bytes)));
            }
            if block.offset.checked_add(block.bytes).is_none_or(|end| end > bytes) {
                return Err(BbiError::Truncated { path: path.to_owned(), bytes, item: "a block of data" });
            }
        }
        Ok(blocks)
    }

    /// Returns a reader of the rows in some blocks. With regions, it returns only rows that overlap one of them; a row
    /// without bases counts as one base long.
    pub fn rows(self: &Arc<Self>, blocks: Vec<BbiBlock>, regions: Option<&[Region]>) -> BbiRows {
        let intervals = regions.map(|regions| self.intervals(regions));
        BbiRows::new(self.clone(), WindowReader::new(self.source.clone()), blocks, intervals)
    }

    fn intervals(&self, regions: &[Region]) -> IntervalSet {
        let known = |region: &Region| Some((*self.contig_ids.get(&region.contig)?, region.start, region.end));
        IntervalSet::new(regions.iter().filter_map(known))
    }
}

/// Reads the B+ tree of contigs; returns the name and the number of each.
fn read_contigs(reader: &mut WindowReader, offset: u64) -> Result<Vec<(String, u32)>, BbiError> {
    let path = reader.path().to_owned();
    let header = reader.bytes(offset, CONTIG_TREE_HEADER_BYTES, "the contigs")?;
    let (magic, name_bytes, value_bytes) = (u32_at(header, 0), u32_at(header, 8), u32_at(header, 12));
    if magic != CONTIG_TREE_MAGIC || name_bytes > MAX_NAME_BYTES || value_bytes != 8 {
        return Err(BbiError::invalid(&path, "it has no valid list of contigs where its header names one"));
    }
    let name_bytes = name_bytes as usize;
    let mut contigs = Vec::new();
    let root = offset + CONTIG_TREE_HEADER_BYTES as u64;
    walk_tree(reader, root, (name_bytes + 8, name_bytes + 8), "the contigs", |is_leaf, item| {
        if !is_leaf {
            return Ok(Some(u64_at(item, name_bytes)));
        }
        let name = item[..name_bytes].split(|byte| *byte == 0).next().unwrap_or_default();
        let name = std::str::from_utf8(name);
        let name = name.map_err(|_| BbiError::invalid(&path, "the name of a contig is not UTF-8 text"))?;
        contigs.push((name.to_owned(), u32_at(item, name_bytes)));
        Ok(None)
    })?;
    Ok(contigs)
}

/// Visits the items of a tree in their order. Both trees of the format have the same nodes: whether the node is a leaf,
/// the number of its items, and these. `visit` receives whether an item is in a leaf, and its bytes; it returns the
/// offset of the child that is visited next.
fn walk_tree(
    reader: &mut WindowReader,
    root: u64,
    (inner_item_bytes, leaf_item_bytes): (usize, usize),
    item: &'static str,
    mut visit: impl FnMut(bool, &[u8]) -> Result<Option<u64>, BbiError>,
) -> Result<(), BbiError> {
    let mut pending = vec![root];
    let mut visited = HashSet::new();
    let mut node_bytes = 0;
    while let Some(offset) = pending.pop() {
        if !visited.insert(offset) {
            return Err(BbiError::invalid(reader.path(), format!("{item}: a node of the tree is reached twice")));
        }
        let head = reader.bytes(offset, 4, item)?;
        let (is_leaf, count) = (head[0] == 1, usize::from(u16_at(head, 2)));
        let item_bytes = if is_leaf { leaf_item_bytes } else { inner_item_bytes };
        node_bytes += 4 + (count * item_bytes) as u64;
        if node_bytes > reader.byte_len() {
            return Err(BbiError::invalid(reader.path(), format!("{item}: nodes of the tree overlap")));
        }
        let first_child = pending.len();
        // The offset does not overflow, because the four bytes before it exist.
        for found in reader.bytes(offset + 4, count * item_bytes, item)?.chunks_exact(item_bytes) {
            pending.extend(visit(is_leaf, found)?);
        }
        pending[first_child..].reverse();
    }
    Ok(())
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests;
