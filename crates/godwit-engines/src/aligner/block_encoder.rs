//! Encodes the aligned records of a block, given as SAM lines or already packed, as record batches and duplicate
//! signatures.
//!
//! [`BlockEncoder`] makes batches and signatures in one pass, while the records of a template are still adjacent.
//! [`StreamEncoder`] also writes both as the Arrow streams of the pipe protocol.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, FixedSizeBinaryArray, Int32Array, RecordBatch, UInt16Array, UInt32Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use bytemuck::Pod;
use godwit_formats::sam::{LineEncoder, SamError};
use godwit_kernels::markdup::SignatureBuilder;
use godwit_model::{BlockId, Genome, RawRecord, schema};

use super::stream_metadata::part_metadata;
use super::{AlignedBlock, BlockEnd, BlockHeader};
use crate::stream::StreamWriter;

/// Target size of the packed records in a batch, bytes: large enough to amortize fixed costs, small enough to fit in
/// the cache.
const TARGET_BATCH_BYTES: usize = 4 << 20;
/// Capacity beyond the target size, bytes: room for the record that exceeds it, so that the buffer need not grow.
/// Records are rarely longer.
const BATCH_SLACK_BYTES: usize = 16 << 10;

/// Positions of a record and of its mate; 0-based. -1 means unmapped or without a mate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    /// FLAG field of the record (SAMv1).
    pub flag: u16,
    /// Contig index and 0-based position of the record.
    pub position: (i32, i32),
    /// Contig index and 0-based position of the mate.
    pub mate_position: (i32, i32),
}

/// An encoder of SAM lines or packed records into batches and duplicate signatures. One encoder serves many blocks and
/// reuses its buffers.
pub struct BlockEncoder {
    lines: LineEncoder,
    signatures: SignatureBuilder,
    columns: AlignmentColumns,
    /// Number of records of the block so far, which is also the index of the next record.
    record_count: u32,
}

impl BlockEncoder {
    /// Creates an encoder for records that are aligned to the contigs of `genome`.
    pub fn new(genome: &Genome) -> Self {
        let (lines, signatures) = (LineEncoder::new(genome), SignatureBuilder::new());
        Self { lines, signatures, columns: AlignmentColumns::default(), record_count: 0 }
    }

    /// Encodes the next SAM line of the block, without its line end. Returns the positions of the record and its mate,
    /// and a batch if this record filled one.
    ///
    /// # Errors
    /// [`SamError`] if the line is not a SAM record; the block is then unusable.
    pub fn push(
        &mut self,
        header: &BlockHeader,
        line: &[u8],
    ) -> Result<(RecordPosition, Option<RecordBatch>), SamError> {
        let start = self.columns.record_bytes.len();
        self.lines.encode(line, &mut self.columns.record_bytes)?;
        Ok(self.add_record(header, start))
    }

    /// Encodes the next record of the block, which the aligner program has already packed. Returns the same values as
    /// [`push`](Self::push).
    pub fn push_packed(&mut self, header: &BlockHeader, record: &[u8]) -> (RecordPosition, Option<RecordBatch>) {
        let start = self.columns.record_bytes.len();
        self.columns.record_bytes.extend_from_slice(record);
        self.add_record(header, start)
    }

    /// Adds the record that starts at byte `start` of the record bytes to the signatures and to the batch.
    fn add_record(&mut self, header: &BlockHeader, start: usize) -> (RecordPosition, Option<RecordBatch>) {
        let record = RawRecord::from_trusted_bytes(&self.columns.record_bytes[start..]);
        let read_group = header.read_group.as_deref().unwrap_or_default().as_bytes();
        let id = header.id.record(self.record_count);
        self.signatures.push(id, record, header.read_group_index, header.library_index, read_group);
        let (position, mate_position) =
            ((record.contig(), record.position()), (record.mate_contig(), record.mate_position()));
        let placed = RecordPosition { flag: record.flag(), position, mate_position };
        let keys = (record.contig(), record.position(), record.flag(), record.unclipped_five_prime());
        self.columns.finish_record(keys, self.record_count);
        self.record_count += 1;
        (placed, (self.columns.record_bytes.len() >= TARGET_BATCH_BYTES).then(|| self.columns.take_batch()))
    }

    /// Ends the block and returns it with every batch and signature that was not returned yet. The encoder is then
    /// empty.
    ///
    /// `reads`: number of reads in the block.
    pub fn finish(&mut self, header: &BlockHeader, reads: u64) -> AlignedBlock {
        let signatures = self.signatures.finish_block();
        let counts = signatures.counts.get(usize::from(header.library_index)).copied().unwrap_or_default();
        let batches = if self.columns.order.is_empty() { Vec::new() } else { vec![self.columns.take_batch()] };
        let records = u64::from(std::mem::take(&mut self.record_count));
        AlignedBlock { id: header.id, reads, records, batches, pairs: signatures.pairs, ends: signatures.ends, counts }
    }
}

/// An encoder that writes an aligned block as the Arrow streams of the pipe protocol.
pub struct StreamEncoder<'e, W: Write> {
    encoder: &'e mut BlockEncoder,
    header: &'e BlockHeader,
    stream: StreamWriter<W>,
}

impl<'e, W: Write> StreamEncoder<'e, W> {
    /// Starts a block: writes the start of its stream of alignments to `sink`.
    ///
    /// # Errors
    /// The I/O error of writing to the pipe.
    pub fn start(sink: W, encoder: &'e mut BlockEncoder, header: &'e BlockHeader) -> std::io::Result<Self> {
        let stream =
            StreamWriter::start(sink, &schema::pipe_alignments(), part_metadata(schema::ALIGNMENTS, header.id))?;
        Ok(Self { encoder, header, stream })
    }

    /// Encodes the next SAM line of the block, without its line end. The inner error means that the line is not a SAM
    /// record.
    ///
    /// # Errors
    /// The I/O error of writing to the pipe.
    pub fn push(&mut self, line: &[u8]) -> std::io::Result<Result<(), SamError>> {
        match self.encoder.push(self.header, line) {
            Ok((_, Some(batch))) => self.stream.write(&batch).map(Ok),
            Ok((_, None)) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Encodes the next record of the block, which the aligner program has already packed.
    ///
    /// # Errors
    /// The I/O error of writing to the pipe.
    pub fn push_packed(&mut self, record: &[u8]) -> std::io::Result<()> {
        match self.encoder.push_packed(self.header, record) {
            (_, Some(batch)) => self.stream.write(&batch),
            (_, None) => Ok(()),
        }
    }

    /// Writes the remaining streams of the block and returns the sink. `reads`: number of reads in the block.
    ///
    /// # Errors
    /// The I/O error of writing to the pipe.
    pub fn finish(mut self, reads: u64) -> std::io::Result<W> {
        let AlignedBlock { id, reads, records, batches, pairs, ends, counts } = self.encoder.finish(self.header, reads);
        for batch in &batches {
            self.stream.write(batch)?;
        }
        let sink = write_signatures(self.stream.finish()?, id, schema::PAIRS, &pairs)?;
        let sink = write_signatures(sink, id, schema::ENDS, &ends)?;
        let end = BlockEnd { id, reads, records, counts };
        StreamWriter::start(sink, &schema::empty_schema(), end.to_metadata())?.finish()
    }
}

/// A builder of the columns of `schema::pipe_alignments`. The bytes of a record are appended to `record_bytes` before the
/// other columns.
struct AlignmentColumns {
    contig: Vec<i32>,
    position: Vec<i32>,
    flag: Vec<u16>,
    five_prime: Vec<i32>,
    order: Vec<u32>,
    offsets: Vec<i32>,
    record_bytes: Vec<u8>,
}

impl Default for AlignmentColumns {
    fn default() -> Self {
        Self {
            contig: Vec::new(),
            position: Vec::new(),
            flag: Vec::new(),
            five_prime: Vec::new(),
            order: Vec::new(),
            offsets: vec![0],
            record_bytes: Vec::with_capacity(TARGET_BATCH_BYTES + BATCH_SLACK_BYTES),
        }
    }
}

impl AlignmentColumns {
    /// Completes the record whose bytes were appended to `record_bytes` last.
    fn finish_record(&mut self, (contig, position, flag, five_prime): (i32, i32, u16, i32), order: u32) {
        self.contig.push(contig);
        self.position.push(position);
        self.flag.push(flag);
        self.five_prime.push(five_prime);
        self.order.push(order);
        // The offset fits in 32 bits: a batch is emitted at 4 MiB, and a packed record is at most twice as long as the
        // longest SAM line.
        self.offsets.push(self.record_bytes.len() as i32);
    }

    /// Returns the columns as a record batch and clears them.
    fn take_batch(&mut self) -> RecordBatch {
        let full = std::mem::take(self);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(full.offsets));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(full.contig)),
            Arc::new(Int32Array::from(full.position)),
            Arc::new(UInt16Array::from(full.flag)),
            Arc::new(Int32Array::from(full.five_prime)),
            Arc::new(UInt32Array::from(full.order)),
            Arc::new(BinaryArray::new(offsets, Buffer::from_vec(full.record_bytes), None)),
        ];
        RecordBatch::try_new(schema::pipe_alignments(), columns)
            .expect("the columns are those of the schema, equally long")
    }
}

fn write_signatures<W: Write, T: Pod>(sink: W, id: BlockId, kind: &'static str, all: &[T]) -> std::io::Result<W> {
    let schema = if kind == schema::PAIRS { schema::pipe_pairs() } else { schema::pipe_ends() };
    let mut stream = StreamWriter::start(sink, &schema, part_metadata(kind, id))?;
    for some in all.chunks(TARGET_BATCH_BYTES / size_of::<T>()) {
        let bytes: &[u8] = bytemuck::cast_slice(some);
        let column = FixedSizeBinaryArray::new(size_of::<T>() as i32, Buffer::from(bytes), None);
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(column)]);
        stream.write(&batch.map_err(std::io::Error::other)?)?;
    }
    stream.finish()
}
