//! Recalibration of slices by godwit itself.

use std::io;

use godwit_formats::bam::RecordBuffer;
use godwit_model::{Genome, RawRecord};
use godwit_pipeline::PipelineError;
use godwit_pipeline::reduce::{BaseRecalibration, RecalibrationOptions};
use godwit_recalibrate::RecordBuffers;

use super::RecalibrateOptions;
use super::bam_slicer::{BamPart, BamPartBuilder};
use super::slice_pass::Pass;
use crate::call::call_inputs::AlignedReads;

/// Default number of records in a slice, which is held in memory: about 40 MB of records of 150 bases.
pub(super) const SLICE_RECORDS: u64 = 100_000;

/// The known sites, the reference and the read groups of a job.
pub(super) struct OwnEngine {
    inputs: BaseRecalibration,
}

impl OwnEngine {
    /// Reads the known sites and opens the reference.
    ///
    /// # Errors
    /// The errors of [`BaseRecalibration::open`].
    pub(super) fn new(options: &RecalibrateOptions, reads: &AlignedReads) -> Result<Self, PipelineError> {
        let inputs = RecalibrationOptions {
            reference: options.reference.clone(),
            known_sites: options.known_sites.clone(),
            quality: options.quality.clone(),
        };
        let inputs = BaseRecalibration::open(&inputs, &reads.header, &reads.genome, options.threads)?;
        Ok(Self { inputs })
    }

    /// Processes a slice. Returns the report of the first pass, or the encoded [`BamPart`] of the second.
    ///
    /// # Errors
    /// [`PipelineError::Recalibration`] for a read that cannot be recalibrated, [`PipelineError::Interrupted`] if `stop`
    /// returns true.
    pub(super) fn process(
        &self,
        pass: Pass,
        slice: &[RecordBuffer],
        genome: &Genome,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, PipelineError> {
        let Pass::Change(table) = pass else { return self.count(slice, stop) };
        let failed = |error: io::Error| PipelineError::file("compress records of", &table.path)(error);
        let (mut part, mut buffers) = (BamPartBuilder::new(genome), RecordBuffers::default());
        for records in slice {
            if stop() {
                return Err(PipelineError::Interrupted);
            }
            for bytes in records.records() {
                let record = RawRecord::from_trusted_bytes(bytes);
                part.push(table.recalibrator.recalibrate(record, record.flag(), &mut buffers)?).map_err(failed)?;
            }
        }
        part.finish().and_then(|part: BamPart<Vec<u8>>| part.to_bytes()).map_err(failed)
    }

    fn count(&self, slice: &[RecordBuffer], stop: &dyn Fn() -> bool) -> Result<Vec<u8>, PipelineError> {
        let mut counter = self.inputs.new_counter();
        for records in slice {
            if stop() {
                return Err(PipelineError::Interrupted);
            }
            for bytes in records.records() {
                let record = RawRecord::from_trusted_bytes(bytes);
                counter.add(record, record.flag())?;
            }
        }
        Ok(counter.into_counts().to_report().into_bytes())
    }
}
