//! The work of the threads around a running aligner, in one process and on workers: one feeds reads to it, one receives its
//! records.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, UInt16Type};
use arrow_array::{BinaryArray, RecordBatch};
use godwit_engines::EngineError;
use godwit_model::{SortKey, flags};
use godwit_pipeline::PipelineError;

/// Returns the packed records of a block in the order in which the aligner returned them, and their sort keys.
pub(crate) fn records_and_keys(batches: Vec<RecordBatch>, records: u64) -> (Vec<BinaryArray>, Vec<SortKey>) {
    let mut keys = Vec::with_capacity(records as usize);
    let mut chunks: Vec<BinaryArray> = Vec::with_capacity(batches.len());
    for batch in batches {
        // Column numbers follow `schema::pipe_alignments`; the reader of the aligner's output checked every batch against
        // it.
        let (contigs, positions) =
            (batch.column(0).as_primitive::<Int32Type>(), batch.column(1).as_primitive::<Int32Type>());
        let flag = batch.column(2).as_primitive::<UInt16Type>();
        let places = contigs.values().iter().zip(positions.values()).zip(flag.values());
        keys.extend(
            places.map(|((contig, position), flag)| SortKey::new(*contig, *position, flag & flags::REVERSE != 0)),
        );
        chunks.push(batch.column(5).as_binary::<i32>().clone());
    }
    (chunks, keys)
}

/// Returns the earlier of two failures: that of the thread that feeds the aligner, and that of the thread that receives
/// its records. A failure outside the aligner makes godwit stop the aligner, so the aligner's own failure is then the
/// later one.
pub(crate) fn root_cause(feeding: PipelineError, taking: PipelineError) -> PipelineError {
    let stopped = |error: &PipelineError| matches!(error, PipelineError::Engine(error) if error.is_stopped_by_godwit());
    match (&feeding, &taking) {
        _ if stopped(&feeding) => taking,
        _ if stopped(&taking) => feeding,
        (PipelineError::Engine(_), PipelineError::Engine(EngineError::Exited { .. })) => taking,
        (PipelineError::Engine(EngineError::Exited { .. }), PipelineError::Engine(_)) => feeding,
        (PipelineError::Engine(_), _) => taking,
        _ => feeding,
    }
}
