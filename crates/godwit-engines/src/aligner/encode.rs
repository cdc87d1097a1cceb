//! From the records of a block, SAM lines or packed, to what an aligner answers: batches of packed records, and duplicate
//! signatures.
//!
//! [`BlockEncoder`] makes both while the records of a template are neighbours; [`StreamEncoder`] writes them as the streams
//! of the pipe's protocol.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, FixedSizeBinaryArray, Int32Array, RecordBatch, UInt16Array, UInt32Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use bytemuck::Pod;
use godwit_formats::sam::{LineEncoder, SamError};
use godwit_kernels::markdup::SignatureBuilder;
use godwit_model::{BlockId, Genome, RawRecord, schema};

use super::protocol::part_metadata;
use super::{AlignedBlock, BlockEnd, BlockHeader};
use crate::stream::StreamWriter;

/// Bytes of packed records in a batch: large enough that its fixed costs vanish, small enough to stay in cache.
const BATCH_BYTES: usize = 4 << 20;
/// What a full batch may go beyond that, so that its memory is taken once: one record, rarely longer.
const SLACK_BYTES: usize = 16 << 10;

/// Where a record lies, and where it says its mate does; 0-based, -1 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// SAM's flag.
    pub flag: u16,
    /// Contig and position.
    pub own: (i32, i32),
    /// Contig and position of the mate.
    pub mate: (i32, i32),
}

/// Turns lines into batches and signatures, block after block; keeps its buffers.
pub struct BlockEncoder {
    lines: LineEncoder,
    signatures: SignatureBuilder,
    columns: AlignmentColumns,
    /// Records of the block so far: the next one's index.
    records: u32,
}

impl BlockEncoder {
    /// An encoder of records on those contigs.
    pub fn new(genome: &Genome) -> Self {
        let (lines, signatures) = (LineEncoder::new(genome), SignatureBuilder::new());
        Self { lines, signatures, columns: AlignmentColumns::default(), records: 0 }
    }

    /// Takes the next line of the block, without its line end. Returns where the record lies, and a batch once one is full.
    ///
    /// # Errors
    /// [`SamError`] for a line that is no record; the block is of no use then.
    pub fn push(&mut self, header: &BlockHeader, line: &[u8]) -> Result<(Placed, Option<RecordBatch>), SamError> {
        let start = self.columns.values.len();
        self.lines.encode(line, &mut self.columns.values)?;
        Ok(self.close_record(header, start))
    }

    /// Takes the next record of the block, packed by the aligner's own program. Returns as [`push`](Self::push) does.
    pub fn push_packed(&mut self, header: &BlockHeader, record: &[u8]) -> (Placed, Option<RecordBatch>) {
        let start = self.columns.values.len();
        self.columns.values.extend_from_slice(record);
        self.close_record(header, start)
    }

    /// Adds the record at byte `start` to the signatures and to the batch.
    fn close_record(&mut self, header: &BlockHeader, start: usize) -> (Placed, Option<RecordBatch>) {
        let record = RawRecord::trusted(&self.columns.values[start..]);
        let read_group = header.read_group.as_deref().unwrap_or_default().as_bytes();
        let id = header.id.record(self.records);
        self.signatures.push(id, record, header.read_group_index, header.library_index, read_group);
        let (own, mate) = ((record.contig(), record.position()), (record.mate_contig(), record.mate_position()));
        let placed = Placed { flag: record.flag(), own, mate };
        let keys = (record.contig(), record.position(), record.flag(), record.unclipped_five_prime());
        self.columns.push(keys, self.records);
        self.records += 1;
        (placed, (self.columns.values.len() >= BATCH_BYTES).then(|| self.columns.take()))
    }

    /// The end of the block, with all that was not returned yet; the encoder is empty again.
    ///
    /// `reads`: how many went in.
    pub fn finish(&mut self, header: &BlockHeader, reads: u64) -> AlignedBlock {
        let signatures = self.signatures.finish_block();
        let counts = signatures.counts.get(usize::from(header.library_index)).copied().unwrap_or_default();
        let batches = if self.columns.order.is_empty() { Vec::new() } else { vec![self.columns.take()] };
        let records = u64::from(std::mem::take(&mut self.records));
        AlignedBlock { id: header.id, reads, records, batches, pairs: signatures.pairs, ends: signatures.ends, counts }
    }
}

/// Writes a block as the streams of the protocol.
pub struct StreamEncoder<'e, W: Write> {
    encoder: &'e mut BlockEncoder,
    header: &'e BlockHeader,
    stream: StreamWriter<W>,
}

impl<'e, W: Write> StreamEncoder<'e, W> {
    /// Starts a block.
    ///
    /// # Errors
    /// The I/O error of the pipe.
    pub fn start(sink: W, encoder: &'e mut BlockEncoder, header: &'e BlockHeader) -> std::io::Result<Self> {
        let stream = StreamWriter::start(sink, &schema::alignments(), part_metadata(schema::ALIGNMENTS, header.id))?;
        Ok(Self { encoder, header, stream })
    }

    /// Takes the next line, without its line end. The inner error: it is no record.
    ///
    /// # Errors
    /// The I/O error of the pipe.
    pub fn push(&mut self, line: &[u8]) -> std::io::Result<Result<(), SamError>> {
        match self.encoder.push(self.header, line) {
            Ok((_, Some(batch))) => self.stream.write(&batch).map(Ok),
            Ok((_, None)) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Takes the next record, packed by the aligner's own program.
    ///
    /// # Errors
    /// The I/O error of the pipe.
    pub fn push_packed(&mut self, record: &[u8]) -> std::io::Result<()> {
        match self.encoder.push_packed(self.header, record) {
            (_, Some(batch)) => self.stream.write(&batch),
            (_, None) => Ok(()),
        }
    }

    /// Ends the block and gives the sink back. `reads`: how many went in.
    ///
    /// # Errors
    /// The I/O error of the pipe.
    pub fn finish(mut self, reads: u64) -> std::io::Result<W> {
        let AlignedBlock { id, reads, records, batches, pairs, ends, counts } = self.encoder.finish(self.header, reads);
        for batch in &batches {
            self.stream.write(batch)?;
        }
        let sink = write_signatures(self.stream.finish()?, id, schema::PAIRS, &pairs)?;
        let sink = write_signatures(sink, id, schema::ENDS, &ends)?;
        let end = BlockEnd { id, reads, records, counts };
        StreamWriter::start(sink, &schema::message(), end.to_metadata())?.finish()
    }
}

/// Columns of `schema::alignments` in the making; a record's bytes are appended to `values` first.
struct AlignmentColumns {
    contig: Vec<i32>,
    position: Vec<i32>,
    flag: Vec<u16>,
    five_prime: Vec<i32>,
    order: Vec<u32>,
    offsets: Vec<i32>,
    values: Vec<u8>,
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
            values: Vec::with_capacity(BATCH_BYTES + SLACK_BYTES),
        }
    }
}

impl AlignmentColumns {
    /// Closes the record whose bytes are the end of `values`.
    fn push(&mut self, (contig, position, flag, five_prime): (i32, i32, u16, i32), order: u32) {
        self.contig.push(contig);
        self.position.push(position);
        self.flag.push(flag);
        self.five_prime.push(five_prime);
        self.order.push(order);
        // Below 2 GiB: a batch is sent once it has 4 MiB, and no record is longer than twice the longest SAM line.
        self.offsets.push(self.values.len() as i32);
    }

    /// The batch; the columns are empty again.
    fn take(&mut self) -> RecordBatch {
        let full = std::mem::take(self);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(full.offsets));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(full.contig)),
            Arc::new(Int32Array::from(full.position)),
            Arc::new(UInt16Array::from(full.flag)),
            Arc::new(Int32Array::from(full.five_prime)),
            Arc::new(UInt32Array::from(full.order)),
            Arc::new(BinaryArray::new(offsets, Buffer::from_vec(full.values), None)),
        ];
        RecordBatch::try_new(schema::alignments(), columns).expect("the columns are those of the schema, equally long")
    }
}

fn write_signatures<W: Write, T: Pod>(sink: W, id: BlockId, kind: &'static str, all: &[T]) -> std::io::Result<W> {
    let schema = if kind == schema::PAIRS { schema::pairs() } else { schema::ends() };
    let mut stream = StreamWriter::start(sink, &schema, part_metadata(kind, id))?;
    for some in all.chunks(BATCH_BYTES / size_of::<T>()) {
        let bytes: &[u8] = bytemuck::cast_slice(some);
        let column = FixedSizeBinaryArray::new(size_of::<T>() as i32, Buffer::from(bytes), None);
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(column)]);
        stream.write(&batch.map_err(std::io::Error::other)?)?;
    }
    stream.finish()
}
