//! From bwa's SAM text of a block to its streams: alignments, pairs, ends, end.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, FixedSizeBinaryArray, Int32Array, RecordBatch, UInt16Array, UInt32Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use bytemuck::Pod;
use godwit_engines::aligner::protocol::part_metadata;
use godwit_engines::aligner::{BlockEnd, BlockHeader};
use godwit_engines::stream::StreamWriter;
use godwit_formats::sam::LineEncoder;
use godwit_kernels::markdup::SignatureBuilder;
use godwit_model::{BlockId, Genome, RawRecord, schema};

use crate::error::Error;
use crate::sequences::SamTexts;

/// Bytes of packed records in a batch: large enough that its fixed costs vanish, small enough to stay in cache.
const BATCH_BYTES: usize = 4 << 20;
/// What a full batch may go beyond that, so that its memory is taken once: one record, rarely longer.
const SLACK_BYTES: usize = 16 << 10;

/// Turns blocks of text into streams; keeps its buffers from block to block.
pub struct Encoder {
    lines: LineEncoder,
    signatures: SignatureBuilder,
}

impl Encoder {
    /// An encoder of records on those contigs.
    pub fn new(genome: &Genome) -> Self {
        Self { lines: LineEncoder::new(genome), signatures: SignatureBuilder::new() }
    }

    /// Writes the four streams of a block and gives the sink back. Text is freed as it is encoded.
    ///
    /// # Errors
    /// [`Error::Record`] for a line that is no record, [`Error::Output`].
    pub fn write_block<W: Write>(&mut self, sink: W, header: &BlockHeader, mut texts: SamTexts) -> Result<W, Error> {
        let id = header.id;
        let reads = texts.reads() as u64;
        let stream = StreamWriter::start(sink, &schema::alignments(), part_metadata(schema::ALIGNMENTS, id))?;
        let mut alignments = Alignments { stream, columns: AlignmentColumns::default(), records: 0 };
        let mut read = 0;
        while let Some(encoded) = texts.next_read(|text| self.encode_read(header, read, text, &mut alignments)) {
            encoded?;
            read += 1;
        }
        alignments.flush()?;
        let Alignments { stream, records, .. } = alignments;
        let signatures = self.signatures.finish_block();
        let sink = write_signatures(stream.finish()?, id, schema::PAIRS, &signatures.pairs)?;
        let sink = write_signatures(sink, id, schema::ENDS, &signatures.ends)?;
        let counts = signatures.counts.get(usize::from(header.library_index)).copied().unwrap_or_default();
        let end = BlockEnd { id, reads, records: u64::from(records), counts };
        Ok(StreamWriter::start(sink, &schema::message(), end.to_metadata())?.finish()?)
    }

    /// Encodes the lines of one read.
    fn encode_read<W: Write>(
        &mut self,
        header: &BlockHeader,
        read: usize,
        text: &[u8],
        alignments: &mut Alignments<W>,
    ) -> Result<(), Error> {
        let read_group = header.read_group.as_deref().unwrap_or_default().as_bytes();
        for line in text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n') {
            let values = &mut alignments.columns.values;
            let start = values.len();
            let encoded = self.lines.encode(line, values);
            encoded.map_err(|source| Error::Record { id: header.id, index: read, source })?;
            let record = RawRecord::trusted(&values[start..]);
            let id = header.id.record(alignments.records);
            self.signatures.push(id, record, header.read_group_index, header.library_index, read_group);
            let keys = (record.contig(), record.position(), record.flag(), record.unclipped_five_prime());
            alignments.push(keys)?;
        }
        Ok(())
    }
}

/// The stream of alignments of a block.
struct Alignments<W: Write> {
    stream: StreamWriter<W>,
    columns: AlignmentColumns,
    /// Records so far: the next one's index in the block.
    records: u32,
}

impl<W: Write> Alignments<W> {
    /// Closes the record whose bytes are the end of `columns.values`, and sends the batch if it is full.
    fn push(&mut self, keys: (i32, i32, u16, i32)) -> Result<(), Error> {
        self.columns.push(keys, self.records);
        self.records += 1;
        if self.columns.values.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.columns.order.is_empty() {
            self.stream.write(&self.columns.take()?)?;
        }
        Ok(())
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
    fn take(&mut self) -> Result<RecordBatch, Error> {
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
        RecordBatch::try_new(schema::alignments(), columns).map_err(|error| std::io::Error::other(error).into())
    }
}

fn write_signatures<W: Write, T: Pod>(sink: W, id: BlockId, kind: &'static str, all: &[T]) -> Result<W, Error> {
    let schema = if kind == schema::PAIRS { schema::pairs() } else { schema::ends() };
    let mut stream = StreamWriter::start(sink, &schema, part_metadata(kind, id))?;
    for some in all.chunks(BATCH_BYTES / size_of::<T>()) {
        let bytes: &[u8] = bytemuck::cast_slice(some);
        let column = FixedSizeBinaryArray::new(size_of::<T>() as i32, Buffer::from(bytes), None);
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(column)]);
        stream.write(&batch.map_err(std::io::Error::other)?)?;
    }
    Ok(stream.finish()?)
}
