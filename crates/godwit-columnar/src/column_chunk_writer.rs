//! A writer of Parquet column chunks of byte arrays, which replaces the column writers of the parquet crate. Pages are
//! compressed with a strategy that suits their content, in one zstd context, and values are not inspected one by one.
//!
//! Flows in: arrays of text or bytes. Flows out: a column chunk, to be appended to a row group. Each array becomes a
//! page (version 1), which consists of definition levels if the column may have nulls, then all lengths as differences,
//! then all bytes (`DELTA_LENGTH_BYTE_ARRAY`).

use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryType, ByteArrayType, Utf8Type};
use arrow_array::{Array, ArrayRef, GenericByteArray};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use bytes::Bytes;
use godwit_io::varint::append_varint;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use zstd_safe::{CCtx, CParameter, ParamSwitch};

/// Number of values per block of differences, and per miniblock, each of which has its own bit width (Parquet "Delta
/// Encoding").
const BLOCK_VALUES: usize = 128;
const MINIBLOCK_VALUES: usize = 32;

/// The strategy with which zstd compresses the pages of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZstdStrategy {
    /// A search for matches with the lowest regular level. It suits text, and bases, which adjacent reads mostly share.
    Matches,
    /// No search for matches, only Huffman codes. This suits qualities, which rarely repeat: a search would take twice
    /// the time and save a tenth of their bytes (a fifth for simulated qualities).
    HuffmanOnly,
}

impl ZstdStrategy {
    /// Returns the compression level of zstd. A negative level makes zstd skip faster over data without matches.
    fn level(self) -> i32 {
        match self {
            Self::Matches => 1,
            Self::HuffmanOnly => -100_000,
        }
    }
}

/// The compressor that the pages of all columns share.
pub(super) struct PageCompressor {
    context: CCtx<'static>,
    page: Vec<u8>,
    lengths: Vec<i32>,
}

impl PageCompressor {
    pub(super) fn new() -> Result<Self> {
        let mut context = CCtx::create();
        // With a negative level, zstd would otherwise not compress literals at all.
        let set = context.set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable));
        set.map_err(zstd_error)?;
        Ok(Self { context, page: Vec::new(), lengths: Vec::new() })
    }

    fn compress(&mut self, strategy: ZstdStrategy) -> Result<Bytes> {
        self.context.set_parameter(CParameter::CompressionLevel(strategy.level())).map_err(zstd_error)?;
        let mut packed = Vec::with_capacity(zstd_safe::compress_bound(self.page.len()));
        self.context.compress2(&mut packed, &self.page).map_err(zstd_error)?;
        packed.shrink_to_fit();
        Ok(packed.into())
    }
}

fn zstd_error(code: usize) -> ParquetError {
    ParquetError::General(format!("zstd: {}", zstd_safe::get_error_name(code)))
}

/// A writer of one column chunk of byte arrays.
pub(super) struct ColumnChunkWriter {
    descriptor: ColumnDescPtr,
    strategy: ZstdStrategy,
    pages: TrackedWrite<Vec<u8>>,
    offset_index: OffsetIndexBuilder,
    uncompressed_bytes: usize,
    rows: u64,
}

impl ColumnChunkWriter {
    pub(super) fn new(descriptor: ColumnDescPtr, strategy: ZstdStrategy) -> Self {
        let (pages, offset_index) = (TrackedWrite::new(Vec::new()), OffsetIndexBuilder::new());
        Self { descriptor, strategy, pages, offset_index, uncompressed_bytes: 0, rows: 0 }
    }

    /// Writes an array as a page. Returns the size of the page in bytes before compression.
    pub(super) fn write(&mut self, array: &ArrayRef, compressor: &mut PageCompressor) -> Result<usize> {
        compressor.page.clear();
        if self.descriptor.max_def_level() > 0 {
            append_definition_levels(array.nulls(), array.len(), &mut compressor.page);
        }
        match array.data_type() {
            DataType::Utf8 => append_values::<Utf8Type>(array.as_string(), compressor),
            _ => append_values::<BinaryType>(array.as_binary(), compressor),
        }
        let buf = compressor.compress(self.strategy)?;
        let page = Page::DataPage {
            buf,
            num_values: array.len() as u32,
            encoding: Encoding::DELTA_LENGTH_BYTE_ARRAY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let mut writer = SerializedPageWriter::new(&mut self.pages);
        let written = writer.write_page(CompressedPage::new(page, compressor.page.len()))?;
        self.offset_index.append_row_count(array.len() as i64);
        self.offset_index.append_offset_and_size(written.offset as i64, written.compressed_size as i32);
        self.uncompressed_bytes += written.uncompressed_size;
        self.rows += array.len() as u64;
        Ok(compressor.page.len())
    }

    /// Returns the bytes of the column chunk, and the metadata that a row group needs.
    pub(super) fn close(self) -> Result<(Bytes, ColumnCloseResult)> {
        let bytes = self.pages.into_inner()?;
        let metadata = ColumnChunkMetaData::builder(self.descriptor)
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_encodings(vec![Encoding::RLE, Encoding::DELTA_LENGTH_BYTE_ARRAY])
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(self.uncompressed_bytes as i64)
            .set_num_values(self.rows as i64)
            .set_data_page_offset(0)
            .build()?;
        let result = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: self.rows,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(self.offset_index.build()),
        };
        Ok((bytes.into(), result))
    }
}

/// Appends definition levels of one bit: their length in bytes, then a single run (Parquet "RLE/Bit-Packing Hybrid").
fn append_definition_levels(nulls: Option<&NullBuffer>, rows: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => {
            append_varint(out, (rows as u64) << 1);
            out.push(1);
        }
        Some(nulls) => {
            let bytes = rows.div_ceil(8);
            append_varint(out, (bytes as u64) << 1 | 1);
            let bits = nulls.inner().sliced();
            out.extend_from_slice(&bits.as_slice()[..bytes]);
        }
    }
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends the lengths and then the bytes of the values that are not null.
fn append_values<T: ByteArrayType<Offset = i32>>(array: &GenericByteArray<T>, compressor: &mut PageCompressor) {
    let offsets = array.value_offsets();
    compressor.lengths.clear();
    let is_valid = |row: usize| array.nulls().is_none_or(|nulls| nulls.is_valid(row));
    let rows = offsets.windows(2).enumerate().filter(|(row, _)| is_valid(*row));
    compressor.lengths.extend(rows.clone().map(|(_, ends)| ends[1] - ends[0]));
    append_delta_binary_packed(&compressor.lengths, &mut compressor.page);
    let (first, last) = (offsets[0] as usize, offsets[array.len()] as usize);
    let valid_bytes: usize = compressor.lengths.iter().map(|length| *length as usize).sum();
    if valid_bytes == last - first {
        compressor.page.extend_from_slice(&array.value_data()[first..last]);
    } else {
        // A null value may have bytes in the array, which are left out.
        rows.for_each(|(_, ends)| {
            compressor.page.extend_from_slice(&array.value_data()[ends[0] as usize..ends[1] as usize])
        });
    }
}

/// Appends 32-bit values in the encoding `DELTA_BINARY_PACKED` (Parquet "Delta Encoding").
fn append_delta_binary_packed(values: &[i32], out: &mut Vec<u8>) {
    append_varint(out, BLOCK_VALUES as u64);
    append_varint(out, (BLOCK_VALUES / MINIBLOCK_VALUES) as u64);
    append_varint(out, values.len() as u64);
    append_zigzag(values.first().copied().unwrap_or_default(), out);
    for block in (1..values.len()).step_by(BLOCK_VALUES) {
        let end = values.len().min(block + BLOCK_VALUES);
        let mut differences = [0i32; BLOCK_VALUES];
        let known = end - block;
        for (difference, pair) in differences.iter_mut().zip(values[block - 1..end].windows(2)) {
            *difference = pair[1].wrapping_sub(pair[0]);
        }
        let minimum = differences[..known].iter().copied().min().unwrap_or_default();
        append_zigzag(minimum, out);
        let mut offsets = [0u32; BLOCK_VALUES];
        for (above, difference) in offsets.iter_mut().zip(&differences[..known]) {
            *above = difference.wrapping_sub(minimum) as u32;
        }
        let parts = || offsets.chunks(MINIBLOCK_VALUES);
        let width = |part: &[u32]| 32 - part.iter().fold(0, |all, value| all | value).leading_zeros();
        out.extend(parts().map(|part| width(part) as u8));
        // Only miniblocks that contain values are written.
        for part in parts().take(known.div_ceil(MINIBLOCK_VALUES)) {
            append_bit_packed(part, width(part), out);
        }
    }
}

/// Appends values of `width` bits each, from the lowest bit. The number of values must fill whole bytes.
fn append_bit_packed(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let (mut bits, mut held) = (0u64, 0);
    for value in values {
        bits |= u64::from(*value) << held;
        held += width;
        while held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
}

fn append_zigzag(value: i32, out: &mut Vec<u8>) {
    append_varint(out, u64::from((value << 1 ^ value >> 31) as u32));
}
