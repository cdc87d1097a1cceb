//! The estimate of a job before it starts: numbers of reads and blocks, memory, disk space and time, each with its
//! uncertainty.

use std::path::{Path, PathBuf};

use godwit_io::bgzf;
use godwit_pipeline::MemoryPlan;
use godwit_pipeline::PipelineError;
use godwit_pipeline::host_resources;
use godwit_pipeline::reduce::Outputs;
use godwit_pipeline::runs::FRAME_BYTES;
use serde::Serialize;

/// CPU seconds per record for sorting, duplicate marking and writing. Measured: `godwit markdup` needs 9.4 CPU seconds
/// for two million records of 148 bases (bench/results).
pub(crate) const REDUCE_SECONDS_PER_RECORD: f64 = 4.7e-6;
/// Rate at which an index is compared with its reference and loaded, bytes/s.
const INDEX_BYTES_PER_SECOND: f64 = 400e6;
/// Bytes of duplicate signatures per read: half of the 72 bytes of a pair, and half of the 8 bytes of its name. Keys of
/// ends at the position of a fragment are not included, because there are few.
const SIGNATURE_BYTES_PER_READ: u64 = 40;
/// Bytes of duplicate signatures per read in a checkpoint: half of the 72 bytes of a pair.
const CHECKPOINT_SIGNATURE_BYTES_PER_READ: u64 = 36;
/// Bytes per record that sorting a block needs besides the record.
const ORDER_BYTES_PER_RECORD: u64 = 24;

/// Maximum factor by which the true value may be larger or smaller than the estimate. The end-to-end tests check the
/// factors on real jobs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UncertaintyFactors {
    /// Factor for the numbers of reads, bases and blocks; 1 if all of them were counted.
    pub reads: f64,
    /// Factor for the memory of the job.
    pub memory: f64,
    /// Factor for the sizes of outputs and scratch files.
    pub disk: f64,
    /// Factor for time, which differs most between machines and genomes.
    pub time: f64,
}

/// The estimated resources that a job needs.
#[derive(Clone, Debug, Serialize)]
pub struct JobPlan {
    /// The subcommand of godwit, for example `align`.
    pub verb: &'static str,
    /// Name and version of the aligner; `None` for a subcommand that does not align.
    pub aligner: Option<String>,
    /// The reason why `--aligner auto` selected this aligner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aligner_reason: Option<String>,
    /// The lanes; empty for a subcommand without lanes.
    pub lanes: Vec<LanePlan>,
    /// Number of reads in all lanes, or of records in the input file; `None` if an input is a pipe.
    pub reads: Option<u64>,
    /// Number of blocks in all lanes.
    pub blocks: Option<u64>,
    /// Number of workers of a cluster run; `None` if the job runs in one process.
    #[serde(rename = "nodes")]
    pub workers: Option<u32>,
    /// Number of threads of all workers together.
    pub threads: usize,
    /// Memory of all processes of the job.
    pub memory: MemoryNeed,
    /// The index of the aligner; `None` for a subcommand that loads no index.
    pub index: Option<IndexNeed>,
    /// Disk space that the outputs need.
    pub output: DiskNeed,
    /// Disk space that the scratch files need.
    pub scratch: DiskNeed,
    /// Estimated CPU time of the job, seconds.
    pub cpu_seconds: Option<f64>,
    /// Estimated wall time in seconds on an otherwise idle machine.
    pub seconds: Option<f64>,
    /// Factors by which the estimates may differ from the true values.
    #[serde(rename = "within")]
    pub uncertainty: UncertaintyFactors,
    /// Notes for the user, for example that an existing file would be replaced.
    pub notes: Vec<String>,
    /// Reasons why the job would fail.
    pub problems: Vec<String>,
}

/// Memory and time that it takes to load the index of an aligner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IndexNeed {
    /// Memory of the index in each aligner process, bytes.
    pub resident_bytes: u64,
    /// Seconds to read the index files; `None` if the read rate cannot be measured.
    pub load_seconds: Option<f64>,
}

/// The estimated content of a lane.
#[derive(Clone, Debug, Serialize)]
pub struct LanePlan {
    /// FASTQ files of the lane.
    pub files: Vec<PathBuf>,
    /// Identifier of the read group.
    pub read_group: String,
    /// Number of reads, counting both mates of a pair; `None` if a file is a pipe.
    pub reads: Option<u64>,
    /// Number of bases in the reads.
    pub bases: Option<u64>,
    /// Number of blocks.
    pub blocks: Option<u64>,
    /// Fraction of the files that was read for the estimate, 0 to 1. If it is 1, all reads were counted.
    #[serde(rename = "sampled")]
    pub inspected_fraction: f64,
}

/// Memory that all processes of a job need.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemoryNeed {
    /// Memory limit of the godwit process, bytes.
    pub godwit_bytes: u64,
    /// Memory of the aligner and its index, bytes.
    pub aligner_bytes: u64,
    /// Available memory, bytes; `None` if it is unknown.
    pub free_bytes: Option<u64>,
}

/// Disk space that the files in one directory need.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskNeed {
    /// The directory in which the files are written.
    pub directory: PathBuf,
    /// Bytes needed; `None` if the number is unknown.
    pub bytes: Option<u64>,
    /// Bytes available on the file system of the directory.
    pub free_bytes: Option<u64>,
}

/// Mean bytes per record in memory, output and scratch, measured on a sample of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RecordBytes {
    /// Bytes of the packed record, which is that of BAM before compression.
    pub(crate) packed: f64,
    /// Bytes in the compressed output.
    pub(crate) output: f64,
    /// Bytes in the compressed scratch file.
    pub(crate) scratch: f64,
}

impl DiskNeed {
    pub(crate) fn new(directory: &Path, bytes: Option<u64>) -> Self {
        Self { directory: directory.to_owned(), bytes, free_bytes: host_resources::free_disk_bytes(directory).ok() }
    }

    fn exceeds_free(&self, others_bytes: u64) -> bool {
        self.bytes.zip(self.free_bytes).is_some_and(|(bytes, free)| bytes + others_bytes > free)
    }
}

impl IndexNeed {
    /// Estimates memory and time for index files that are read completely. The read rate is measured on the largest
    /// file.
    pub fn measure(files: &[PathBuf]) -> Self {
        let sizes = files.iter().map(|file| (std::fs::metadata(file).map_or(0, |found| found.len()), file));
        let resident_bytes = sizes.clone().map(|(bytes, _)| bytes).sum();
        let rate = sizes.max().and_then(|(_, largest)| host_resources::read_bytes_per_s(largest).ok());
        Self { resident_bytes, load_seconds: rate.map(|rate| resident_bytes as f64 / rate.max(1.0)) }
    }
}

impl RecordBytes {
    /// Returns the means for packed records that are contiguous in memory. All means are 0 if there are no records.
    pub(crate) fn measure(packed: &[u8], records: u64) -> Self {
        let mut compressor = bgzf::BlockCompressor::new(bgzf::Writer::<Vec<u8>>::DEFAULT_LEVEL);
        let mut output = Vec::new();
        packed.chunks(bgzf::MAX_BLOCK_DATA_BYTES).for_each(|block| compressor.compress(block, &mut output));
        let scratch = packed.chunks(FRAME_BYTES).map(|frame| lz4_flex::block::compress(frame).len()).sum();
        let mean = |bytes: usize| bytes as f64 / records.max(1) as f64;
        Self { packed: mean(packed.len()), output: mean(output.len()), scratch: mean(scratch) }
    }

    /// Returns the size of all outputs, including index and small files. It assumes that every format is about as large
    /// as BAM.
    pub(crate) fn output_bytes(&self, records: u64, formats: usize) -> u64 {
        (records as f64 * self.output * 1.01 * formats as f64) as u64 + (64 << 10)
    }

    /// Returns the size of the scratch files: the records and signatures that exceed the memory limits. A resumable job
    /// also stores all blocks with their signatures, and the partitions that wait until those before them are written.
    pub(crate) fn scratch_bytes(&self, records: u64, memory: &MemoryPlan, signatures: bool, resumable: bool) -> u64 {
        let resident_bytes = records as f64 * (self.packed + ORDER_BYTES_PER_RECORD as f64);
        let spilled_share = match resumable {
            true => 1.0,
            false => (1.0 - memory.resident_bytes as f64 / resident_bytes.max(1.0)).max(0.0),
        };
        let sorted_bytes = (records * SIGNATURE_BYTES_PER_READ).saturating_sub(memory.marker_bytes as u64);
        let kept_bytes = if resumable { records * CHECKPOINT_SIGNATURE_BYTES_PER_READ } else { 0 };
        let signature_bytes = if signatures { sorted_bytes + kept_bytes } else { 0 };
        let waiting_share = if resumable { self.output } else { 0.0 };
        (records as f64 * (self.scratch * spilled_share + waiting_share)) as u64 + signature_bytes
    }
}

/// Returns the seconds that it takes to check and load index files of this total size.
pub(crate) fn index_seconds(bytes: u64) -> f64 {
    bytes as f64 / INDEX_BYTES_PER_SECOND
}

impl JobPlan {
    /// Adds a problem for each resource that is insufficient, if the estimate is certain enough.
    pub(crate) fn with_problems(mut self) -> Self {
        let needed = self.memory.godwit_bytes + self.memory.aligner_bytes;
        if let Some(free) =
            self.memory.free_bytes.filter(|free| (*free as f64) < needed as f64 / self.uncertainty.memory)
        {
            self.problems.push(format!(
                "the job needs about {} of memory, but only {} are free; lower --block-bases or --memory, or use a \
                 larger machine",
                format_bytes(needed),
                format_bytes(free)
            ));
        }
        let same = same_file_system(&self.output.directory, &self.scratch.directory);
        let scratch_bytes = self.scratch.bytes.unwrap_or(0);
        let mut short = |need: &DiskNeed, what: &str, others_bytes: u64, option: &str| {
            if need.exceeds_free(others_bytes) {
                self.problems.push(format!(
                    "{} needs about {} for {what}, but only {} are free; delete files there, or choose another \
                     directory with {option}",
                    need.directory.display(),
                    format_bytes(need.bytes.unwrap_or(0) + others_bytes),
                    format_bytes(need.free_bytes.unwrap_or(0))
                ));
            }
        };
        short(&self.output, "the output", if same { scratch_bytes } else { 0 }, "--out");
        if !same {
            short(&self.scratch, "scratch files", 0, "--temp");
        }
        self
    }
}

fn same_file_system(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::metadata(host_resources::nearest_existing(path)).map(|found| found.dev()).ok();
    device(one) == device(other)
}

/// Checks that a job could write `outputs` and create files in `directories`. Writes no files.
///
/// # Errors
/// [`PipelineError::File`] and [`PipelineError::Options`], as in a real job.
pub(crate) fn check_outputs_writable(outputs: &Outputs, directories: &[&Path]) -> Result<(), PipelineError> {
    for directory in directories {
        host_resources::check_writable(directory).map_err(PipelineError::file("create files in", *directory))?;
    }
    outputs.check_reference()
}

/// Returns a note for each output that already exists.
pub(crate) fn replaced_outputs(outputs: &Outputs) -> Vec<String> {
    let there = outputs.paths().into_iter().filter(|path| path.exists());
    there.map(|path| format!("{} exists and will be replaced", path.display())).collect()
}

/// Formats a size with a binary unit (K, M or G) and at least two digits.
pub fn format_bytes(bytes: u64) -> String {
    let units = [("G", 30), ("M", 20), ("K", 10)];
    match units.into_iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) if bytes >= 10 << shift || bytes.trailing_zeros() >= shift => {
            format!("{}{unit}", bytes.div_ceil(1 << shift))
        }
        Some((unit, shift)) => format!("{:.1}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(free_disk: u64, free_memory: u64) -> JobPlan {
        let disk = |bytes| DiskNeed { directory: "/".into(), bytes: Some(bytes), free_bytes: Some(free_disk) };
        JobPlan {
            verb: "align",
            aligner: None,
            aligner_reason: None,
            lanes: Vec::new(),
            reads: Some(1000),
            blocks: Some(1),
            workers: None,
            threads: 1,
            memory: MemoryNeed { godwit_bytes: 1 << 30, aligner_bytes: 1 << 30, free_bytes: Some(free_memory) },
            index: None,
            output: disk(100),
            scratch: disk(50),
            cpu_seconds: None,
            seconds: None,
            uncertainty: UncertaintyFactors { reads: 1.1, memory: 1.5, disk: 1.5, time: 3.0 },
            notes: Vec::new(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn sizes_are_written_with_two_digits_at_least() {
        let formatted = [0, 900, 1 << 10, 5_259_264, 12 << 20, 8 << 30, (5 << 29) + 1].map(format_bytes);
        assert_eq!(formatted, ["0", "900", "1K", "5.0M", "12M", "8G", "2.5G"]);
    }

    #[test]
    fn output_and_scratch_on_one_disk_are_added() {
        assert!(plan(150, 8 << 30).with_problems().problems.is_empty());
        let short = plan(149, 8 << 30).with_problems().problems;
        assert!(short.len() == 1 && short[0].contains("--out"), "{short:?}");
    }

    #[test]
    fn memory_is_short_only_where_the_estimate_is_sure_of_it() {
        assert!(plan(150, 3 << 29).with_problems().problems.is_empty());
        assert!(plan(150, 1 << 30).with_problems().problems[0].contains("of memory, but only"));
    }

    #[test]
    fn scratch_is_what_memory_does_not_hold() {
        let bytes = RecordBytes { packed: 276.0, output: 100.0, scratch: 150.0 };
        let memory = MemoryPlan { resident_bytes: 150_000, marker_bytes: 40_000, merge_bytes: 0, waiting_bytes: 0 };
        assert_eq!(bytes.scratch_bytes(500, &memory, true, false), 0);
        assert_eq!(bytes.scratch_bytes(1000, &memory, true, false), 75_000);
        assert_eq!(bytes.scratch_bytes(2000, &memory, true, false), 225_000 + 40_000);
        assert_eq!(bytes.scratch_bytes(500, &memory, true, true), 75_000 + 50_000 + 18_000);
        assert_eq!(bytes.scratch_bytes(500, &memory, false, true), 75_000 + 50_000);
    }
}
