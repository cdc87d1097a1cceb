//! The blocks of a chain file in memory, which lifts intervals to the other assembly.
//!
//! An interval is lifted by the rules of UCSC liftOver (<https://genome.ucsc.edu/cgi-bin/hgLiftOver>, without
//! `-multiple`): exactly one chain must align a sufficient part of its bases, and the result reaches from the first to
//! the last of these bases.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use godwit_dataset::{Dataset, DatasetError, Scan};

use crate::interval_index::{BYTES_PER_ENTRY, IntervalEntry, IntervalIndex};
use crate::table_functions::to_datafusion_error;

/// The columns of a dataset of a chain file that the index uses.
pub(crate) const CHAIN_COLUMNS: [&str; 7] =
    ["contig", "position", "end_position", "lifted_contig", "lifted_position", "lifted_strand", "chain"];

/// Largest position of a contig: positions are 32-bit numbers.
const MAX_POSITION: i64 = i32::MAX as i64;

/// A block of a chain.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: i64,
    end: i64,
    /// Start in the new assembly, on the forward strand.
    lifted_start: i64,
    lifted_contig: u32,
    is_reverse: bool,
    chain: i64,
}

/// The blocks of one contig of the old assembly.
#[derive(Debug, Default)]
struct ContigBlocks {
    blocks: Vec<Block>,
    index: IntervalIndex,
}

/// An interval in the new assembly, 0-based and half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiftedInterval<'c> {
    pub(crate) contig: &'c str,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// True if the chain aligns the reverse strand of the new assembly.
    pub(crate) is_reverse: bool,
}

/// The blocks of all chains of a file.
#[derive(Debug)]
pub(crate) struct ChainIndex {
    contigs: HashMap<String, ContigBlocks>,
    lifted_contigs: Vec<String>,
    /// Size of all names of contigs, bytes.
    name_bytes: usize,
    /// The reserved memory, which is released when the index is dropped.
    reservation: MemoryReservation,
}

fn invalid(problem: String) -> DataFusionError {
    to_datafusion_error(DatasetError::Data(problem.into()))
}

impl ChainIndex {
    /// Reads all blocks of a dataset. Their memory is taken from `reservation`.
    ///
    /// # Errors
    /// The errors of reading the dataset; an error if it has no rows, or if there is not enough memory.
    pub(crate) fn read(name: &str, dataset: &dyn Dataset, reservation: MemoryReservation) -> Result<Self> {
        let schema = dataset.schema();
        let mut columns =
            CHAIN_COLUMNS.map(|column| schema.index_of(column)).into_iter().collect::<Result<Vec<_>, _>>()?;
        columns.sort_unstable();
        let scan = Scan { columns: Some(columns), regions: None };
        let mut index = Self { contigs: HashMap::new(), lifted_contigs: Vec::new(), name_bytes: 0, reservation };
        let mut lifted_contig_ids = HashMap::new();
        let mut count = 0;
        for part in dataset.parts(&scan, 1).map_err(to_datafusion_error)? {
            for batch in dataset.read(&scan, &part).map_err(to_datafusion_error)? {
                let batch = batch.map_err(to_datafusion_error)?;
                count += batch.num_rows();
                index.push_batch(name, &batch, &mut lifted_contig_ids)?;
                let block_bytes = count.saturating_mul(size_of::<Block>() + BYTES_PER_ENTRY);
                index.reservation.try_resize(block_bytes.saturating_add(index.name_bytes))?;
            }
        }
        if count == 0 {
            return Err(invalid(format!("{name} has no chains, so it lifts nothing")));
        }
        for contig in index.contigs.values_mut() {
            let entry = |(row, block): (u32, &Block)| IntervalEntry { low: block.start, high: block.end, row };
            contig.index = IntervalIndex::new((0..).zip(&contig.blocks).map(entry).collect(), false);
        }
        Ok(index)
    }

    fn push_batch(
        &mut self,
        dataset: &str,
        batch: &RecordBatch,
        lifted_contig_ids: &mut HashMap<String, u32>,
    ) -> Result<()> {
        let column = |name: &str, data_type| -> Result<_> {
            let at = batch.schema().index_of(name)?;
            let values = cast(batch.column(at), &data_type)?;
            // Access rules may hide values of a column.
            if values.null_count() > 0 {
                return Err(invalid(format!(
                    "{dataset} cannot be used as a chain file: {name} has missing or hidden values"
                )));
            }
            Ok(values)
        };
        let texts = |name: &str| column(name, DataType::Utf8);
        let numbers = |name: &str| column(name, DataType::Int64);
        let (contigs, lifted_contigs, strands) = (texts("contig")?, texts("lifted_contig")?, texts("lifted_strand")?);
        let (contigs, lifted_contigs) = (contigs.as_string::<i32>(), lifted_contigs.as_string::<i32>());
        let (starts, ends) = (numbers("position")?, numbers("end_position")?);
        let (lifted_starts, chains) = (numbers("lifted_position")?, numbers("chain")?);
        for row in 0..batch.num_rows() {
            let number = |column: &dyn Array| column.as_primitive::<Int64Type>().value(row);
            let lifted_contig = lifted_contigs.value(row);
            let lifted_contig = match lifted_contig_ids.get(lifted_contig) {
                Some(id) => *id,
                None => {
                    let id = self.lifted_contigs.len() as u32;
                    self.name_bytes += 2 * lifted_contig.len();
                    self.lifted_contigs.push(lifted_contig.to_owned());
                    lifted_contig_ids.insert(lifted_contig.to_owned(), id);
                    id
                }
            };
            let block = Block {
                start: number(&starts),
                end: number(&ends),
                lifted_start: number(&lifted_starts),
                lifted_contig,
                is_reverse: strands.as_string::<i32>().value(row) == "-",
                chain: number(&chains),
            };
            let last = block.end.saturating_sub(block.start).saturating_add(block.lifted_start);
            if block.start < 0
                || block.end < block.start
                || block.lifted_start < 0
                || last.max(block.end) > MAX_POSITION
            {
                return Err(invalid(format!(
                    "{dataset} cannot be used as a chain file: a block has invalid positions"
                )));
            }
            match self.contigs.get_mut(contigs.value(row)) {
                Some(contig) => contig.blocks.push(block),
                None => {
                    self.name_bytes += contigs.value(row).len();
                    let contig = ContigBlocks { blocks: vec![block], index: IntervalIndex::default() };
                    self.contigs.insert(contigs.value(row).to_owned(), contig);
                }
            }
        }
        Ok(())
    }

    /// Returns the interval in the new assembly; `None` if no chain, or more than one, aligns at least the fraction
    /// `min_match` of its bases, or if it has no bases. `rows` is filled with the blocks that align some of its bases.
    pub(crate) fn lift(
        &self,
        contig: &str,
        start: i64,
        end: i64,
        min_match: f64,
        rows: &mut Vec<u32>,
    ) -> Option<LiftedInterval<'_>> {
        let contig = self.contigs.get(contig)?;
        let block = |row: u32| &contig.blocks[row as usize];
        rows.clear();
        contig.index.for_each_overlap(start, end, |row| {
            // A block without bases aligns nothing.
            if start.max(block(row).start) < end.min(block(row).end) {
                rows.push(row);
            }
            ControlFlow::Continue(())
        });
        rows.sort_unstable_by_key(|row| block(*row).chain);
        let min_bases = min_match * (end - start) as f64;
        let mut found = None;
        for of_chain in rows.chunk_by(|one, next| block(*one).chain == block(*next).chain) {
            let (mut bases, mut lifted_start, mut lifted_end) = (0, i64::MAX, i64::MIN);
            for block in of_chain.iter().map(|row| block(*row)) {
                let (low, high) = (start.max(block.start), end.min(block.end));
                let skipped = if block.is_reverse { block.end - high } else { low - block.start };
                let first = block.lifted_start + skipped;
                bases += high - low;
                (lifted_start, lifted_end) = (lifted_start.min(first), lifted_end.max(first + (high - low)));
            }
            if (bases as f64) < min_bases {
                continue;
            }
            if found.is_some() {
                return None;
            }
            // The blocks of a chain have one contig and strand in the new assembly.
            let Block { lifted_contig, is_reverse, .. } = *block(of_chain[0]);
            let contig = &self.lifted_contigs[lifted_contig as usize];
            found = Some(LiftedInterval { contig, start: lifted_start, end: lifted_end, is_reverse });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
    use datafusion::arrow::datatypes::SchemaRef;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use godwit_dataset::{BatchReader, DatasetKind, ScanPart};

    use super::*;

    /// A table of one block for each position.
    #[derive(Debug)]
    struct Blocks(RecordBatch);

    impl Blocks {
        fn new(count: i64) -> Self {
            let numbers = |offset: i64| Arc::new((0..count).map(|at| at + offset).collect::<Int64Array>()) as ArrayRef;
            let texts = |text| Arc::new((0..count).map(|_| Some(text)).collect::<StringArray>()) as ArrayRef;
            let columns = [texts("a"), numbers(0), numbers(1), texts("b"), numbers(5), texts("+"), numbers(0)];
            Self(RecordBatch::try_from_iter(CHAIN_COLUMNS.into_iter().zip(columns)).unwrap())
        }
    }

    impl Dataset for Blocks {
        fn kind(&self) -> DatasetKind {
            DatasetKind::Table
        }

        fn schema(&self) -> SchemaRef {
            self.0.schema()
        }

        fn bytes(&self) -> u64 {
            0
        }

        fn version(&self) -> u64 {
            0
        }

        fn has_regions(&self) -> bool {
            false
        }

        fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
            Ok(vec![ScanPart::default()])
        }

        fn read(&self, _: &Scan, _: &ScanPart) -> Result<BatchReader, DatasetError> {
            Ok(Box::new(std::iter::once(Ok(self.0.clone()))))
        }
    }

    #[test]
    fn chains_share_the_memory_of_their_statement() {
        let count = 1000;
        let of_blocks = count as usize * (size_of::<Block>() + BYTES_PER_ENTRY);
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(of_blocks * 3 / 2));
        let read = || ChainIndex::read("c.chain", &Blocks::new(count), MemoryConsumer::new("chains").register(&pool));
        let first = read().unwrap();
        assert!(matches!(read().unwrap_err(), DataFusionError::ResourcesExhausted(_)));
        drop(first);
        let again = read().unwrap();
        let lifted = again.lift("a", 10, 11, 1.0, &mut Vec::new());
        assert_eq!(lifted, Some(LiftedInterval { contig: "b", start: 15, end: 16, is_reverse: false }));
    }
}
