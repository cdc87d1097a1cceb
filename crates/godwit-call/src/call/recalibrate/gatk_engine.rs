//! Recalibration of slices by BaseRecalibrator and ApplyBQSR of GATK.

use std::path::Path;

use godwit_engines::gatk::{DEFAULT_MEMORY_BYTES, GatkToolkit, PROGRAM};
use godwit_engines::recalibrator::{RecalibrationInvocation, start_apply_bqsr, start_base_recalibrator};
use godwit_engines::{EngineError, ProcessPipeline};
use godwit_model::Genome;
use godwit_pipeline::PipelineError;

use super::RecalibrateOptions;
use super::bam_slicer::BamPart;
use super::slice_pass::Pass;
use crate::call::{CallerBudget, CallerSlots};

/// Default number of records in a slice, which one GATK process processes.
pub(super) const SLICE_RECORDS: u64 = 500_000;

/// The installed GATK, and its limits.
pub(super) struct GatkEngine {
    toolkit: GatkToolkit,
    slots: CallerSlots,
    /// Additional arguments of BaseRecalibrator.
    count_arguments: Vec<String>,
    /// Additional arguments of ApplyBQSR.
    change_arguments: Vec<String>,
}

/// A slice for GATK.
#[derive(Clone, Copy)]
pub(super) struct GatkSlice<'s> {
    pub(super) options: &'s RecalibrateOptions,
    pub(super) genome: &'s Genome,
    /// Path of a BAM with the records of the slice.
    pub(super) reads: &'s Path,
    /// Number of the records.
    pub(super) records: u64,
    /// Path of a private directory for temporary files.
    pub(super) directory: &'s Path,
}

impl GatkEngine {
    /// Finds the installed GATK.
    ///
    /// # Errors
    /// [`PipelineError::Engine`] if GATK is not installed, [`PipelineError::Options`] if the memory limit is too small.
    pub(super) fn new(options: &RecalibrateOptions) -> Result<Self, PipelineError> {
        let toolkit = GatkToolkit::find_installed()?;
        let budget = CallerBudget {
            threads: options.threads,
            threads_per_caller: 1,
            memory_bytes: options.memory_bytes,
            memory_per_caller_bytes: options.gatk_memory_bytes,
            host_processes: 1,
        };
        let slots = CallerSlots::new(&budget, DEFAULT_MEMORY_BYTES, (PROGRAM, "--gatk-memory"))?;
        let quality = &options.quality;
        let flag = |is_set: bool, name: &str| is_set.then(|| name.to_owned());
        let count_arguments: Vec<String> = flag(quality.use_original, "--use-original-qualities").into_iter().collect();
        let levels = quality.static_levels.iter();
        let mut change_arguments = count_arguments.clone();
        change_arguments.extend(levels.flat_map(|level| ["--static-quantized-quals".to_owned(), level.to_string()]));
        let quantizing = quality.quantizing_levels.map(|levels| ["--quantize-quals".to_owned(), levels.to_string()]);
        change_arguments.extend(quantizing.into_iter().flatten());
        change_arguments.extend(flag(quality.emit_original, "--emit-original-quals"));
        Ok(Self { toolkit, slots, count_arguments, change_arguments })
    }

    /// Returns the version of GATK.
    pub(super) fn version(&self) -> &str {
        self.toolkit.version()
    }

    /// Returns the number of GATK processes that run at the same time.
    pub(super) fn processes(&self) -> usize {
        self.slots.count
    }

    /// Processes a slice. Returns the report of the first pass, or the encoded [`BamPart`] of the second.
    ///
    /// # Errors
    /// [`EngineError`] if GATK fails or its output is invalid.
    pub(super) fn process(
        &self,
        pass: Pass,
        slice: GatkSlice,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, EngineError> {
        let work = |arguments| RecalibrationInvocation {
            reference: &slice.options.reference,
            reads: slice.reads,
            directory: slice.directory,
            memory_bytes: self.slots.memory_per_caller_bytes,
            arguments,
        };
        match pass {
            Pass::Count => {
                let out = slice.directory.join("recal.table");
                let work = work(&self.count_arguments);
                let chain = start_base_recalibrator(&self.toolkit, &work, &slice.options.known_sites, &out)?;
                wait_for_output(chain, stop, &out)?;
                std::fs::read(&out).map_err(|source| io_engine_error(&out, source))
            }
            Pass::Change(table) => {
                let out = slice.directory.join("changed.bam");
                let work = work(&self.change_arguments);
                let chain = start_apply_bqsr(&self.toolkit, &work, &table.path, &out)?;
                chain.wait(stop)?;
                let part = BamPart::from_bam(&out, slice.genome)
                    .map_err(|error| chain.output_error(format!("its output: {error}")))?;
                if part.records != slice.records {
                    let problem = format!(
                        "it wrote {} of {} records; GATK drops records that are not well-formed, such as those without a \
                         read group or without qualities. Use --engine own, which keeps them",
                        part.records, slice.records
                    );
                    return Err(chain.output_error(problem));
                }
                part.to_bytes().map_err(|source| io_engine_error(&out, source))
            }
        }
    }
}

/// Waits until a program ends, and verifies that it has written the file `out`.
fn wait_for_output(chain: ProcessPipeline, stop: &dyn Fn() -> bool, out: &Path) -> Result<(), EngineError> {
    chain.wait(stop)?;
    match out.is_file() {
        true => Ok(()),
        false => Err(chain.output_error("it exited without an error, but wrote no output".to_owned())),
    }
}

fn io_engine_error(path: &Path, source: std::io::Error) -> EngineError {
    EngineError::Io { program: path.to_owned(), action: "use", source }
}
