//! Converts the blocks of a bigWig or bigBed file to record batches.

use std::sync::Arc;

use arrow_array::builder::{Float32Builder, Int32Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use godwit_formats::intervals::IntervalBatchBuilder;
use godwit_model::IntervalSet;
use libdeflater::Decompressor;

use super::window_reader::WindowReader;
use super::{BbiBlock, BbiError, BbiFile, BbiKind, MAX_BLOCK_BYTES, u16_at, u32_at};

/// Number of rows at which a batch is complete. It may have more rows, because a block is not split.
const BATCH_ROWS: usize = 8192;
/// Bytes of blocks after which a batch is complete. A block is never split; its size and the length of names are
/// limited, so that a column of text stays below 2 GiB.
const MAX_BATCH_BYTES: usize = 64 << 20;
/// Size of the header of a bigWig block, bytes.
const SECTION_HEADER_BYTES: usize = 24;
/// Size of the numbers before the text of a line in a bigBed block, bytes.
const LINE_HEADER_BYTES: usize = 12;
/// Maximum ratio of the sizes of a block after and before decompression (RFC 1951: 258 bytes in two bits).
const MAX_COMPRESSION_RATIO: u64 = 1032;

/// A reader of the rows in some blocks of a bigWig or bigBed file.
pub struct BbiRows {
    file: Arc<BbiFile>,
    reader: WindowReader,
    blocks: std::vec::IntoIter<BbiBlock>,
    intervals: Option<IntervalSet>,
    decompressor: Decompressor,
    content: Vec<u8>,
}

impl std::fmt::Debug for BbiRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BbiRows").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

impl BbiRows {
    pub(super) fn new(
        file: Arc<BbiFile>,
        reader: WindowReader,
        blocks: Vec<BbiBlock>,
        intervals: Option<IntervalSet>,
    ) -> Self {
        let (decompressor, content) = (Decompressor::new(), Vec::new());
        Self { file, reader, blocks: blocks.into_iter(), intervals, decompressor, content }
    }

    /// Returns a batch of the next rows, with the columns of [`BbiKind::schema`]; `None` after the last row.
    ///
    /// # Errors
    /// [`BbiError`] if a block cannot be read or is invalid.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, BbiError> {
        let mut columns = match self.file.kind {
            BbiKind::BigWig => RowColumns::BigWig(Box::default()),
            BbiKind::BigBed => RowColumns::BigBed(Box::default()),
        };
        let mut bytes = 0;
        while columns.row_count() < BATCH_ROWS
            && bytes < MAX_BATCH_BYTES
            && let Some(block) = self.blocks.next()
        {
            self.decompress(block)?;
            bytes += self.content.len();
            let decoder = BlockDecoder { file: &self.file, intervals: self.intervals.as_ref(), content: &self.content };
            match &mut columns {
                RowColumns::BigWig(columns) => decoder.push_section(columns)?,
                RowColumns::BigBed(columns) => decoder.push_lines(columns)?,
            }
        }
        if columns.row_count() == 0 {
            return Ok(None);
        }
        Ok(Some(RecordBatch::try_new(self.file.kind.schema(), columns.finish())?))
    }

    /// Reads a block and puts its content into `self.content`.
    fn decompress(&mut self, block: BbiBlock) -> Result<(), BbiError> {
        // `BbiFile::blocks` has limited the size.
        let raw = self.reader.bytes(block.offset, block.bytes as usize, "a block of data")?;
        if self.file.uncompressed_block_bytes == 0 {
            self.content.clear();
            self.content.extend_from_slice(raw);
            return Ok(());
        }
        let limit = u64::from(self.file.uncompressed_block_bytes).min(block.bytes * MAX_COMPRESSION_RATIO);
        self.content.resize(limit.min(MAX_BLOCK_BYTES) as usize, 0);
        let count = self.decompressor.zlib_decompress(raw, &mut self.content);
        let count = count.map_err(|_| {
            let problem = format!("the block at byte {} is damaged: it cannot be decompressed", block.offset);
            BbiError::invalid(self.file.source.path(), problem)
        })?;
        self.content.truncate(count);
        Ok(())
    }
}

/// The columns of a batch that is not complete yet.
enum RowColumns {
    BigWig(Box<SignalColumns>),
    BigBed(Box<IntervalBatchBuilder>),
}

impl RowColumns {
    fn row_count(&self) -> usize {
        match self {
            Self::BigWig(columns) => columns.row_count,
            Self::BigBed(columns) => columns.row_count(),
        }
    }

    fn finish(self) -> Vec<ArrayRef> {
        match self {
            Self::BigWig(columns) => columns.finish(),
            Self::BigBed(columns) => columns.finish_bed(),
        }
    }
}

/// The columns of bigWig rows.
#[derive(Default)]
struct SignalColumns {
    row_count: usize,
    contig: StringBuilder,
    start: Int32Builder,
    end: Int32Builder,
    value: Float32Builder,
}

impl SignalColumns {
    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.contig.finish()),
            Arc::new(self.start.finish()),
            Arc::new(self.end.finish()),
            Arc::new(self.value.finish()),
        ]
    }
}

/// The content of a block, and the rows that are wanted.
struct BlockDecoder<'b> {
    file: &'b BbiFile,
    intervals: Option<&'b IntervalSet>,
    content: &'b [u8],
}

impl BlockDecoder<'_> {
    /// Appends the rows of a bigWig block, which has one of three forms: start, end and value of each item; start and
    /// value, with one length of all items; or values, with one length and one distance of the starts.
    fn push_section(&self, columns: &mut SignalColumns) -> Result<(), BbiError> {
        let header = self.content.get(..SECTION_HEADER_BYTES).ok_or_else(|| self.invalid("a block has no header"))?;
        let contig = u32_at(header, 0);
        let [first_start, step, span] = [4, 12, 16].map(|at| u64::from(u32_at(header, at)));
        let count = usize::from(u16_at(header, 22));
        let item_bytes = match header[20] {
            1 => 12,
            2 => 8,
            3 => 4,
            other => return Err(self.invalid(format!("a block has the unknown form {other}"))),
        };
        let items = self.content[SECTION_HEADER_BYTES..].get(..count * item_bytes);
        let items = items.ok_or_else(|| self.invalid("a block is shorter than its items"))?;
        let name = self.contig_name(contig)?;
        for (at, item) in items.chunks_exact(item_bytes).enumerate() {
            let number = |at: usize| u64::from(u32_at(item, at));
            let (start, end) = match item_bytes {
                12 => (number(0), number(4)),
                8 => (number(0), number(0) + span),
                _ => (first_start + at as u64 * step, first_start + at as u64 * step + span),
            };
            let Some((start, end)) = self.wanted_interval(contig, start, end)? else { continue };
            columns.row_count += 1;
            columns.contig.append_value(name);
            columns.start.append_value(start);
            columns.end.append_value(end);
            columns.value.append_value(f32::from_bits(u32_at(item, item_bytes - 4)));
        }
        Ok(())
    }

    /// Appends the rows of a bigBed block: contig, start, end and the other fields of each line, which are text up to a
    /// zero byte.
    fn push_lines(&self, columns: &mut IntervalBatchBuilder) -> Result<(), BbiError> {
        let mut rest = self.content;
        let mut fields = String::new();
        while !rest.is_empty() {
            let header = rest.get(..LINE_HEADER_BYTES).ok_or_else(|| self.invalid("a block ends within a line"))?;
            let [contig, start, end] = [0, 4, 8].map(|at| u32_at(header, at));
            let text = &rest[LINE_HEADER_BYTES..];
            let length = text.iter().position(|byte| *byte == 0);
            let length = length.ok_or_else(|| self.invalid("a block ends within a line"))?;
            rest = &text[length + 1..];
            let text = std::str::from_utf8(&text[..length]).map_err(|_| self.invalid("a line is not UTF-8 text"))?;
            let name = self.contig_name(contig)?;
            let Some((start, end)) = self.wanted_interval(contig, start.into(), end.into())? else { continue };
            // A line of BED has a tab before each of these fields.
            fields.clear();
            fields.push('\t');
            fields.push_str(text);
            columns.push_bed(name, start, end, &fields, true);
        }
        Ok(())
    }

    fn contig_name(&self, contig: u32) -> Result<&str, BbiError> {
        let name = self.file.contig_names.get(&contig);
        name.map(String::as_str).ok_or_else(|| self.invalid(format!("a block has the unknown contig {contig}")))
    }

    /// Returns the interval if it is valid, and `None` if it does not overlap the wanted intervals.
    fn wanted_interval(&self, contig: u32, start: u64, end: u64) -> Result<Option<(i32, i32)>, BbiError> {
        let (Ok(first), Ok(last)) = (i32::try_from(start), i32::try_from(end)) else {
            return Err(self.invalid(format!("the interval from {start} to {end} ends after base 2,147,483,647")));
        };
        if start > end {
            return Err(self.invalid(format!("an interval starts at {start}, after its end at {end}")));
        }
        let is_wanted = self.intervals.is_none_or(|intervals| intervals.overlaps(contig, start as u32, end as u32));
        Ok(is_wanted.then_some((first, last)))
    }

    fn invalid(&self, problem: impl Into<String>) -> BbiError {
        BbiError::invalid(self.file.source.path(), problem)
    }
}
