//! What a run would need, told before it: reads, blocks, memory, disk and time, and how sure that is.

use std::path::{Path, PathBuf};

use godwit_formats::bgzf;
use serde::Serialize;

use crate::error::PipelineError;
use crate::machine;
use crate::memory::MemoryPlan;
use crate::reduce::Outputs;
use crate::runs::FRAME_BYTES;

/// CPU seconds that sorting, marking and writing take per record: `godwit markdup` needs 9.4 for two million records of
/// 148 bases (bench/results).
pub(crate) const REDUCE_SECONDS_PER_RECORD: f64 = 4.7e-6;
/// Bytes a second at which a reference is compared with its index, and the index is loaded.
const INDEX_BYTES_PER_SECOND: f64 = 400e6;
/// Bytes of duplicate signatures per read: half of a pair's 72, and a key of 16 for the place of each end.
const SIGNATURE_BYTES_PER_READ: u64 = 52;
/// Bytes of a block's signatures per read as they are kept: half of a pair's 72.
const KEPT_SIGNATURE_BYTES_PER_READ: u64 = 36;
/// Bytes of a record's place in the order of its block.
const ORDER_BYTES_PER_RECORD: u64 = 24;

/// How far the truth may be from an estimate, as a factor either way. The end-to-end tests hold them against real runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Certainty {
    /// Of reads, bases and blocks: 1 where everything was counted.
    pub reads: f64,
    /// Of memory.
    pub memory: f64,
    /// Of output and scratch.
    pub disk: f64,
    /// Of time: machines and genomes differ most here.
    pub time: f64,
}

/// What a run would need.
#[derive(Clone, Debug, Serialize)]
pub struct RunPlan {
    /// The verb.
    pub verb: &'static str,
    /// The aligner with its version; `None` for a verb that aligns nothing.
    pub aligner: Option<String>,
    /// The reason of `auto` for the aligner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aligner_reason: Option<String>,
    /// Lanes; empty for a verb that has none.
    pub lanes: Vec<LanePlan>,
    /// Reads of all lanes, or records of the input; `None` where an input is a pipe.
    pub reads: Option<u64>,
    /// Blocks of all lanes.
    pub blocks: Option<u64>,
    /// Nodes, where the run is spread over some.
    pub nodes: Option<u32>,
    /// Threads, those of all nodes together.
    pub threads: usize,
    /// Memory.
    pub memory: MemoryNeed,
    /// The index; `None` for a verb that loads none.
    pub index: Option<IndexNeed>,
    /// Where the outputs go.
    pub output: DiskNeed,
    /// Where scratch goes.
    pub scratch: DiskNeed,
    /// CPU seconds.
    pub cpu_seconds: Option<f64>,
    /// Wall seconds on a machine that does nothing else.
    pub seconds: Option<f64>,
    /// How sure that is.
    pub within: Certainty,
    /// What the run would do to what is there already.
    pub notes: Vec<String>,
    /// What would stop the run.
    pub problems: Vec<String>,
}

/// Memory and time that loading the index takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IndexNeed {
    /// Memory that it takes in each process of the aligner.
    pub resident_bytes: u64,
    /// Seconds that reading it takes; `None` where that cannot be told.
    pub load_seconds: Option<f64>,
}

/// What a lane holds.
#[derive(Clone, Debug, Serialize)]
pub struct LanePlan {
    /// Its files.
    pub files: Vec<PathBuf>,
    /// Its read group.
    pub read_group: String,
    /// Reads, mates counted singly; `None` where a file is a pipe.
    pub reads: Option<u64>,
    /// Their bases.
    pub bases: Option<u64>,
    /// Blocks.
    pub blocks: Option<u64>,
    /// Share of the files that was looked at, 0 to 1; 1: everything was counted.
    pub sampled: f64,
}

/// Memory of all processes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemoryNeed {
    /// godwit itself: its limit.
    pub godwit_bytes: u64,
    /// The aligner with its index.
    pub aligner_bytes: u64,
    /// What could be had now, where that can be told.
    pub free_bytes: Option<u64>,
}

/// Room on a file system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskNeed {
    /// The directory.
    pub directory: PathBuf,
    /// Bytes, where they can be told.
    pub bytes: Option<u64>,
    /// What is free there.
    pub free_bytes: Option<u64>,
}

/// Mean bytes of a record in its forms, from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RecordBytes {
    /// Packed, as BAM has it before compression.
    pub(crate) packed: f64,
    /// Compressed in the output.
    pub(crate) output: f64,
    /// Compressed in scratch.
    pub(crate) scratch: f64,
}

impl DiskNeed {
    pub(crate) fn new(directory: &Path, bytes: Option<u64>) -> Self {
        Self { directory: directory.to_owned(), bytes, free_bytes: machine::free_disk_bytes(directory).ok() }
    }

    fn lacks(&self, others_bytes: u64) -> bool {
        self.bytes.zip(self.free_bytes).is_some_and(|(bytes, free)| bytes + others_bytes > free)
    }
}

impl IndexNeed {
    /// Of files that are read whole. How fast they are read is measured on the largest of them.
    pub fn measured(files: &[PathBuf]) -> Self {
        let sizes = files.iter().map(|file| (std::fs::metadata(file).map_or(0, |found| found.len()), file));
        let resident_bytes = sizes.clone().map(|(bytes, _)| bytes).sum();
        let rate = sizes.max().and_then(|(_, largest)| machine::read_bytes_per_s(largest).ok());
        Self { resident_bytes, load_seconds: rate.map(|rate| resident_bytes as f64 / rate.max(1.0)) }
    }
}

impl RecordBytes {
    /// Means over records that lie packed one behind the other; zero where there are none.
    pub(crate) fn measured(packed: &[u8], records: u64) -> Self {
        let mut compressor = bgzf::BlockCompressor::new(bgzf::Writer::<Vec<u8>>::DEFAULT_LEVEL);
        let mut output = Vec::new();
        packed.chunks(bgzf::MAX_BLOCK_DATA).for_each(|block| compressor.compress(block, &mut output));
        let scratch = packed.chunks(FRAME_BYTES).map(|frame| lz4_flex::block::compress(frame).len()).sum();
        let mean = |bytes: usize| bytes as f64 / records.max(1) as f64;
        Self { packed: mean(packed.len()), output: mean(output.len()), scratch: mean(scratch) }
    }

    /// Bytes of the outputs in so many formats, the index and small files included. All are compressed and come near BAM.
    pub(crate) fn output_bytes(&self, records: u64, formats: usize) -> u64 {
        (records as f64 * self.output * 1.01 * formats as f64) as u64 + (64 << 10)
    }

    /// Bytes of scratch: records that are not kept in memory, and signatures beyond theirs. A run that can be gone on with
    /// keeps all blocks with their signatures besides, and there every partition may have to wait for its turn.
    pub(crate) fn scratch_bytes(&self, records: u64, memory: &MemoryPlan, signatures: bool, resumable: bool) -> u64 {
        let resident_bytes = records as f64 * (self.packed + ORDER_BYTES_PER_RECORD as f64);
        let spilled_share = match resumable {
            true => 1.0,
            false => (1.0 - memory.resident_bytes as f64 / resident_bytes.max(1.0)).max(0.0),
        };
        let sorted_bytes = (records * SIGNATURE_BYTES_PER_READ).saturating_sub(memory.marker_bytes as u64);
        let kept_bytes = if resumable { records * KEPT_SIGNATURE_BYTES_PER_READ } else { 0 };
        let signature_bytes = if signatures { sorted_bytes + kept_bytes } else { 0 };
        let waiting_share = if resumable { self.output } else { 0.0 };
        (records as f64 * (self.scratch * spilled_share + waiting_share)) as u64 + signature_bytes
    }
}

/// Seconds that checking and loading files of these sizes takes.
pub(crate) fn index_seconds(bytes: u64) -> f64 {
    bytes as f64 / INDEX_BYTES_PER_SECOND
}

impl RunPlan {
    /// With what would stop the run as far as the estimates can be trusted.
    pub(crate) fn judged(mut self) -> Self {
        let needed = self.memory.godwit_bytes + self.memory.aligner_bytes;
        if let Some(free) = self.memory.free_bytes.filter(|free| (*free as f64) < needed as f64 / self.within.memory) {
            self.problems.push(format!(
                "about {} of memory is needed, but {} is free; lower --block-bases or --memory, or use a larger machine",
                show_bytes(needed),
                show_bytes(free)
            ));
        }
        let same = same_file_system(&self.output.directory, &self.scratch.directory);
        let scratch_bytes = self.scratch.bytes.unwrap_or(0);
        let mut short = |need: &DiskNeed, what: &str, others_bytes: u64, option: &str| {
            if need.lacks(others_bytes) {
                self.problems.push(format!(
                    "{} needs about {} for {what}, but {} is free there; make room or choose another {option}",
                    need.directory.display(),
                    show_bytes(need.bytes.unwrap_or(0) + others_bytes),
                    show_bytes(need.free_bytes.unwrap_or(0))
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
    let device = |path: &Path| std::fs::metadata(machine::existing(path)).map(|found| found.dev()).ok();
    device(one) == device(other)
}

/// Checks that a run could write `outputs` and use these directories, without writing.
///
/// # Errors
/// [`PipelineError::File`] and [`PipelineError::Options`], as the run would fail.
pub(crate) fn check_room(outputs: &Outputs, directories: &[&Path]) -> Result<(), PipelineError> {
    for directory in directories {
        machine::check_writable(directory).map_err(PipelineError::file("create files in", *directory))?;
    }
    outputs.check_reference()
}

/// What is there under the names of outputs.
pub(crate) fn replaced(outputs: &Outputs) -> Vec<String> {
    let there = outputs.paths().into_iter().filter(|path| path.exists());
    there.map(|path| format!("{} is there and would be replaced", path.display())).collect()
}

/// A size as people read it.
pub fn show_bytes(bytes: u64) -> String {
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

    fn plan(free_disk: u64, free_memory: u64) -> RunPlan {
        let disk = |bytes| DiskNeed { directory: "/".into(), bytes: Some(bytes), free_bytes: Some(free_disk) };
        RunPlan {
            verb: "align",
            aligner: None,
            aligner_reason: None,
            lanes: Vec::new(),
            reads: Some(1000),
            blocks: Some(1),
            nodes: None,
            threads: 1,
            memory: MemoryNeed { godwit_bytes: 1 << 30, aligner_bytes: 1 << 30, free_bytes: Some(free_memory) },
            index: None,
            output: disk(100),
            scratch: disk(50),
            cpu_seconds: None,
            seconds: None,
            within: Certainty { reads: 1.1, memory: 1.5, disk: 1.5, time: 3.0 },
            notes: Vec::new(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn sizes_are_told_with_two_digits_at_least() {
        let told = [0, 900, 1 << 10, 5_259_264, 12 << 20, 8 << 30, (5 << 29) + 1].map(show_bytes);
        assert_eq!(told, ["0", "900", "1K", "5.0M", "12M", "8G", "2.5G"]);
    }

    #[test]
    fn output_and_scratch_on_one_disk_are_added() {
        assert!(plan(150, 8 << 30).judged().problems.is_empty());
        let short = plan(149, 8 << 30).judged().problems;
        assert!(short.len() == 1 && short[0].contains("--out"), "{short:?}");
    }

    #[test]
    fn memory_is_short_only_where_the_estimate_is_sure_of_it() {
        assert!(plan(150, 3 << 29).judged().problems.is_empty());
        assert!(plan(150, 1 << 30).judged().problems[0].contains("of memory is needed"));
    }

    #[test]
    fn scratch_is_what_memory_does_not_hold() {
        let bytes = RecordBytes { packed: 276.0, output: 100.0, scratch: 150.0 };
        let memory = MemoryPlan { resident_bytes: 150_000, marker_bytes: 52_000, merge_bytes: 0, waiting_bytes: 0 };
        assert_eq!(bytes.scratch_bytes(500, &memory, true, false), 0);
        assert_eq!(bytes.scratch_bytes(1000, &memory, true, false), 75_000);
        assert_eq!(bytes.scratch_bytes(2000, &memory, true, false), 225_000 + 52_000);
        assert_eq!(bytes.scratch_bytes(500, &memory, true, true), 75_000 + 50_000 + 18_000);
        assert_eq!(bytes.scratch_bytes(500, &memory, false, true), 75_000 + 50_000);
    }
}
