//! Blocks of files as Arrow batches: encoding, and verification of received blocks.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, RecordBatch, UInt32Array, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;

use crate::error::TransferError;
use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, BlockHash, block_count, hash_block};

/// Arrow schema of the batches in which blocks are sent.
pub(crate) static BLOCK_SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("file", DataType::UInt32, false),
        Field::new("offset", DataType::UInt64, false),
        Field::new("hash", DataType::FixedSizeBinary(blake3::OUT_LEN as i32), false),
        // Uncompressed size of the block, bytes. If `data` has fewer bytes, it is a zstd frame.
        Field::new("bytes", DataType::UInt32, false),
        Field::new("data", DataType::Binary, false),
    ]))
});

/// A block that is added to a batch to be sent.
#[derive(Debug)]
pub(crate) struct OutgoingBlock {
    pub(crate) file: u32,
    pub(crate) block_index: u64,
    pub(crate) hash: BlockHash,
    /// Uncompressed size of the block, bytes.
    pub(crate) block_bytes: u32,
    /// End, in the data of the batch, of the bytes of the block or of its zstd frame.
    pub(crate) data_end: usize,
}

/// Returns an Arrow batch of blocks whose bytes are contiguous in `data`.
pub(crate) fn encode_blocks(blocks: &[OutgoingBlock], data: Vec<u8>) -> Result<RecordBatch, TransferError> {
    let bug = |error: arrow_schema::ArrowError| TransferError::Internal { problem: error.to_string() };
    let mut hashes = FixedSizeBinaryBuilder::with_capacity(blocks.len(), blake3::OUT_LEN as i32);
    for block in blocks {
        hashes.append_value(block.hash).map_err(bug)?;
    }
    let ends = std::iter::once(0).chain(blocks.iter().map(|block| block.data_end as i32)).collect::<Vec<i32>>();
    let data = BinaryArray::try_new(OffsetBuffer::new(ends.into()), Buffer::from_vec(data), None).map_err(bug)?;
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(blocks.iter().map(|block| Some(block.file)).collect::<UInt32Array>()),
        Arc::new(blocks.iter().map(|block| Some(block.block_index * BLOCK_BYTES)).collect::<UInt64Array>()),
        Arc::new(hashes.finish()),
        Arc::new(blocks.iter().map(|block| Some(block.block_bytes)).collect::<UInt32Array>()),
        Arc::new(data),
    ];
    RecordBatch::try_new(BLOCK_SCHEMA.clone(), columns).map_err(bug)
}

/// A received batch of blocks, by column.
pub(crate) struct BlockBatch {
    files: UInt32Array,
    offsets: UInt64Array,
    hashes: FixedSizeBinaryArray,
    bytes: UInt32Array,
    data: BinaryArray,
}

/// A received block, which is not verified yet.
pub(crate) struct IncomingBlock<'b> {
    pub(crate) file: u32,
    pub(crate) block_index: u64,
    hash: &'b [u8],
    block_bytes: u32,
    data: &'b [u8],
    /// The buffer of the batch that contains `data`.
    batch_data: &'b Buffer,
}

impl BlockBatch {
    /// Parses a received Arrow batch; fails if its schema is not [`BLOCK_SCHEMA`].
    pub(crate) fn from_batch(batch: &RecordBatch) -> Result<Self, TransferError> {
        let wrong = || TransferError::rejected("the other end sent a batch that lacks the columns of file blocks");
        if batch.schema().fields() != BLOCK_SCHEMA.fields() {
            return Err(wrong());
        }
        let column = |at: usize| batch.column(at).as_any();
        Ok(Self {
            files: column(0).downcast_ref::<UInt32Array>().ok_or_else(wrong)?.clone(),
            offsets: column(1).downcast_ref::<UInt64Array>().ok_or_else(wrong)?.clone(),
            hashes: column(2).downcast_ref::<FixedSizeBinaryArray>().ok_or_else(wrong)?.clone(),
            bytes: column(3).downcast_ref::<UInt32Array>().ok_or_else(wrong)?.clone(),
            data: column(4).downcast_ref::<BinaryArray>().ok_or_else(wrong)?.clone(),
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = IncomingBlock<'_>> {
        (0..self.files.len()).map(|row| IncomingBlock {
            file: self.files.value(row),
            block_index: self.offsets.value(row) / BLOCK_BYTES,
            hash: self.hashes.value(row),
            block_bytes: self.bytes.value(row),
            data: self.data.value(row),
            batch_data: self.data.values(),
        })
    }
}

/// A part of the buffer of a batch, as the owner of [`Bytes`].
struct SharedBuffer(Buffer);

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl<'b> IncomingBlock<'b> {
    /// Returns the uncompressed bytes of the block and its hash if both match, as this block of a file of `size_bytes`
    /// bytes.
    pub(crate) fn verify(&self, size_bytes: u64) -> Option<(std::borrow::Cow<'b, [u8]>, BlockHash)> {
        let data = if self.data.len() == self.block_bytes as usize {
            std::borrow::Cow::Borrowed(self.data)
        } else {
            std::borrow::Cow::Owned(decompress_block(self.data, self.block_bytes as usize)?)
        };
        // Return no hash if the bytes cannot be a block of the file: they are longer than a block, or empty although
        // the file has several blocks.
        if data.len() as u64 > BLOCK_BYTES || data.is_empty() && block_count(size_bytes) > 1 {
            return None;
        }
        let hash = hash_block(&data, self.block_index, size_bytes);
        (hash[..] == *self.hash).then_some((data, hash))
    }

    /// Verifies the block as [`Self::verify`] does, and returns its bytes, which share the buffer of the batch.
    pub(crate) fn verified_bytes(&self, size_bytes: u64) -> Option<Bytes> {
        let (data, _) = self.verify(size_bytes)?;
        Some(match data {
            std::borrow::Cow::Owned(data) => data.into(),
            std::borrow::Cow::Borrowed(data) => {
                let start = data.as_ptr() as usize - self.batch_data.as_ptr() as usize;
                Bytes::from_owner(SharedBuffer(self.batch_data.slice_with_length(start, data.len())))
            }
        })
    }

    /// Verifies the block as [`Self::verify`] does, but for a file of unknown size.
    pub(crate) fn verify_without_file_size(&self) -> Option<(std::borrow::Cow<'b, [u8]>, BlockHash)> {
        let bytes = u64::from(self.block_bytes);
        let of_several = (self.block_index > 0 || bytes == BLOCK_BYTES).then(|| self.verify(u64::MAX)).flatten();
        of_several.or_else(|| (self.block_index == 0).then(|| self.verify(bytes)).flatten())
    }
}

/// Compresses a block with zstd; returns `None` if the result is not shorter than the block.
pub(crate) fn compress_block(data: &[u8]) -> Option<Vec<u8>> {
    // zstd at level 1 compresses 1 Gbit/s on half a core. Compressed files (BAM, CRAM, gzip) do not shrink and are sent
    // unchanged.
    let mut frame: Vec<u8> = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
    zstd_safe::compress(&mut frame, data, 1).ok()?;
    (frame.len() < data.len()).then_some(frame)
}

fn decompress_block(frame: &[u8], bytes: usize) -> Option<Vec<u8>> {
    if bytes as u64 > BLOCK_BYTES {
        return None;
    }
    let mut data: Vec<u8> = Vec::with_capacity(bytes);
    zstd_safe::decompress(&mut data, frame).ok()?;
    (data.len() == bytes).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_a_block_never_verify() {
        let most = BLOCK_BYTES as usize;
        for (block_index, count, is_block) in
            [(0, 0, true), (1, 0, false), (1, most, true), (1, most + 1, false), (0, most + 1, false)]
        {
            let data = vec![7; count];
            let hash = if is_block {
                hash_block(&data, block_index, block_index * BLOCK_BYTES + count as u64)
            } else {
                [0; 32]
            };
            let sent = OutgoingBlock { file: 0, block_index, hash, block_bytes: count as u32, data_end: count };
            let came = BlockBatch::from_batch(&encode_blocks(&[sent], data).unwrap()).unwrap();
            let came = came.iter().next().unwrap();
            assert_eq!(came.verify_without_file_size().is_some(), is_block, "{count} bytes as block {block_index}");
            assert_eq!(
                came.verify(block_index * BLOCK_BYTES + count as u64).is_some(),
                is_block,
                "{count} bytes as block {block_index}"
            );
        }
    }
}
