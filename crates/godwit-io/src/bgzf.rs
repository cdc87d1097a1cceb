//! BGZF (SAMv1 §4.1): a series of gzip members ("blocks") of at most 64 KiB of data each. Decompression can begin at
//! any block, and several threads can decompress one file.
//!
//! Flows in: bytes of records ([`Writer`], [`BlockCompressor`]), or a file on disk ([`Reader`], [`open_text`], and
//! FASTQ). Flows out: blocks with the virtual offsets that an index needs, or the decompressed and verified bytes. All
//! sequential readers of files decompress in this module, on threads that run ahead of the consumer: several
//! threads for BGZF blocks, one thread for gzip members and plain text. Only the zero padding that gzip tolerates may
//! follow the last member. A text file can be read from a [`ResumePoint`] that an earlier read recorded. Lookups
//! through an index use [`SeekReader`], on the caller's thread.

mod access_point;
mod block;
mod block_recompressor;
mod block_table;
mod chunk_blocks;
mod error;
mod gzip;
mod indexed_reader;
mod line;
mod member_inflater;
mod parallel_inflate;
mod peek_reader;
mod read_ahead;
mod reader;
mod seek_reader;
mod writer;

#[cfg(test)]
mod access_point_tests;
#[cfg(test)]
mod tests;

pub use access_point::{
    AccessPoint, AccessPointKind, AccessPointMode, AccessPointSpacing, DeflateState, ResumePoint, WINDOW_BYTES,
};
pub use block::{BlockCompressor, EOF_BLOCK, MAX_BLOCK_DATA_BYTES};
pub use block_recompressor::{BlockEncoding, BlockRecompressor, block_length};
pub use block_table::{BgzfText, BlockTable, starts_with_block};
pub use chunk_blocks::{ChunkBlocks, extract_chunk};
pub use error::{BgzfError, InputError};
pub use gzip::GZIP_MAGIC;
pub use indexed_reader::IndexedReader;
pub use line::{LineStatus, next_line};
pub use read_ahead::{ExpectedFormat, ReadAhead, STDIN_PATH};
pub use reader::{BgzfBufRead, Reader, open_text, open_text_source};
pub use seek_reader::{SeekReader, VirtualOffset};
pub use writer::{RecordOffsets, Writer};
