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

/// The part of an interval that one chain aligns.
struct AlignedPart {
    bases: i64,
    lifted_start: i64,
    lifted_end: i64,
    lifted_contig: u32,
    is_reverse: bool,
}

/// The blocks of all chains of a file.
#[derive(Debug, Default)]
pub(crate) struct ChainIndex {
    contigs: HashMap<String, ContigBlocks>,
    lifted_contigs: Vec<String>,
    /// Size of all names of contigs, bytes.
    name_bytes: usize,
}

fn invalid(problem: String) -> DataFusionError {
    to_datafusion_error(DatasetError::Data(problem.into()))
}

impl ChainIndex {
    /// Reads all blocks of a dataset.
    ///
    /// # Errors
    /// The errors of reading the dataset; an error if it has no rows, or if the blocks need more than `memory_bytes`.
    pub(crate) fn read(name: &str, dataset: &dyn Dataset, memory_bytes: usize) -> Result<Self> {
        let schema = dataset.schema();
        let mut columns =
            CHAIN_COLUMNS.map(|column| schema.index_of(column)).into_iter().collect::<Result<Vec<_>, _>>()?;
        columns.sort_unstable();
        let scan = Scan { columns: Some(columns), regions: None };
        let mut index = Self::default();
        let mut lifted_contig_ids = HashMap::new();
        let mut count = 0;
        for part in dataset.parts(&scan, 1).map_err(to_datafusion_error)? {
            for batch in dataset.read(&scan, &part).map_err(to_datafusion_error)? {
                let batch = batch.map_err(to_datafusion_error)?;
                count += batch.num_rows();
                index.push_batch(name, &batch, &mut lifted_contig_ids)?;
                let block_bytes = count.saturating_mul(size_of::<Block>() + BYTES_PER_ENTRY);
                if block_bytes.saturating_add(index.name_bytes) > memory_bytes {
                    return Err(DataFusionError::ResourcesExhausted(format!(
                        "the blocks of {name} need more than {memory_bytes} bytes of memory"
                    )));
                }
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
    /// `min_match` of its bases, or if it has no bases.
    pub(crate) fn lift(&self, contig: &str, start: i64, end: i64, min_match: f64) -> Option<LiftedInterval<'_>> {
        let contig = self.contigs.get(contig)?;
        let mut parts: Vec<AlignedPart> = Vec::new();
        let mut part_of_chain = HashMap::new();
        contig.index.for_each_overlap(start, end, |row| {
            let block = &contig.blocks[row as usize];
            let (low, high) = (start.max(block.start), end.min(block.end));
            // A block without bases aligns nothing.
            if low >= high {
                return ControlFlow::Continue(());
            }
            let skipped = if block.is_reverse { block.end - high } else { low - block.start };
            let lifted_start = block.lifted_start + skipped;
            let lifted_end = lifted_start + (high - low);
            let at = *part_of_chain.entry(block.chain).or_insert_with(|| {
                parts.push(AlignedPart {
                    bases: 0,
                    lifted_start,
                    lifted_end,
                    lifted_contig: block.lifted_contig,
                    is_reverse: block.is_reverse,
                });
                parts.len() - 1
            });
            let part = &mut parts[at];
            part.bases += high - low;
            part.lifted_start = part.lifted_start.min(lifted_start);
            part.lifted_end = part.lifted_end.max(lifted_end);
            ControlFlow::Continue(())
        });
        let min_bases = min_match * (end - start) as f64;
        let mut sufficient = parts.iter().filter(|part| part.bases as f64 >= min_bases);
        let part = sufficient.next()?;
        if sufficient.next().is_some() {
            return None;
        }
        let contig = &self.lifted_contigs[part.lifted_contig as usize];
        Some(LiftedInterval { contig, start: part.lifted_start, end: part.lifted_end, is_reverse: part.is_reverse })
    }
}
