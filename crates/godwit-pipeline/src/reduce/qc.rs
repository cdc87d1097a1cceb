//! Quality metrics of the output. Each thread counts the records of its partitions when it writes them, while they are
//! in the processor cache.

use std::io;
use std::path::Path;
use std::sync::Arc;

use godwit_files::AtomicSet;
use godwit_formats::fasta::{self, FaiRecord, IndexedReader};
use godwit_kernels::qc::{
    AlignmentBuffer, DepthMerger, GenomeCoverage, PartitionCoverage, PartitionDepth, RecordCounts, ReferenceBases,
};
use godwit_metrics::{Metric, MetricsFile, PartitionCounts};
use godwit_model::{Genome, RawRecord};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::collector::WritingOptions;
use super::outputs::Outputs;
use super::picard::{FinishedPicardJob, PicardInputs, PicardJob, PicardThread};
use crate::error::{PipelineError, with_file};
use crate::runs::SplitPartition;

/// Returns the suffixes of the metrics files, which are appended to the stem of the outputs.
pub(super) fn metrics_suffixes() -> impl Iterator<Item = &'static str> {
    let suffixes = [
        INSERT_SIZE_SUFFIX,
        ALIGNMENT_SUMMARY_SUFFIX,
        STATS_SUFFIX,
        MOSDEPTH_SUMMARY_SUFFIX,
        MOSDEPTH_DISTRIBUTION_SUFFIX,
    ];
    suffixes.into_iter().chain(Metric::ALL.into_iter().flat_map(|metric| metric.suffixes().iter().copied()))
}
const INSERT_SIZE_SUFFIX: &str = ".insert_size.txt";
const ALIGNMENT_SUMMARY_SUFFIX: &str = ".alignment_summary.txt";
const STATS_SUFFIX: &str = ".stats.txt";
const MOSDEPTH_SUMMARY_SUFFIX: &str = ".mosdepth.summary.txt";
const MOSDEPTH_DISTRIBUTION_SUFFIX: &str = ".mosdepth.global.dist.txt";

/// Metrics of the job, which all threads share.
pub(super) struct QcJob {
    contig_lengths: Vec<u32>,
    reference: Option<IndexedReader>,
    counts: Mutex<RecordCounts>,
    depth: Mutex<DepthMerger>,
    picard: Option<PicardJob>,
}

/// Metrics that one thread has counted.
pub(super) struct QcThread<'j> {
    job: &'j QcJob,
    buffer: AlignmentBuffer,
    counts: RecordCounts,
    depth: PartitionDepth,
    reference: Option<ReferenceWindows>,
    picard: Option<PicardThread<'j>>,
}

/// Metrics of one part of the output, which a worker sends to the head.
#[derive(Serialize, Deserialize)]
pub(super) struct QcPart {
    counts: RecordCounts,
    depth: PartitionCoverage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    picard: Option<PartitionCounts>,
}

/// The quality metrics of the output.
#[derive(Clone, Debug)]
pub struct Qc {
    /// Counts over all records of the output.
    pub counts: RecordCounts,
    /// Depth of coverage along the genome.
    pub coverage: GenomeCoverage,
    /// True if the bases of reads were compared with the reference.
    pub is_reference_compared: bool,
    /// The files of Picard's metrics; empty if they were not requested.
    pub picard_files: Vec<MetricsFile>,
}

/// A reader of reference bases for metrics and recalibration.
#[derive(Clone)]
pub struct ReferenceWindows {
    windows: IndexedReader,
    /// Path of the reference, for error messages.
    path: Arc<Path>,
}

impl From<IndexedReader> for ReferenceWindows {
    fn from(windows: IndexedReader) -> Self {
        Self { path: windows.path().into(), windows }
    }
}

impl ReferenceBases for ReferenceWindows {
    fn codes(&mut self, contig: i32, start: u32, end: u32) -> io::Result<&[u8]> {
        let codes = self.windows.base_codes(contig.max(0) as usize, u64::from(start), u64::from(end));
        codes.map_err(with_file("read the reference", &self.path))
    }
}

impl QcJob {
    /// Returns `None` if no metrics are requested. `reference`: the result of [`open_reference`], with which bases are
    /// compared. `picard`: the inputs of Picard's metrics, if they are requested.
    pub(super) fn new(
        options: &WritingOptions,
        genome: &Genome,
        reference: Option<IndexedReader>,
        picard: Option<PicardInputs>,
    ) -> Option<Self> {
        options.metrics.as_ref()?;
        Some(Self {
            contig_lengths: genome.contigs().iter().map(|contig| contig.length).collect(),
            reference,
            counts: Mutex::default(),
            depth: Mutex::new(DepthMerger::new(genome)),
            picard: picard.map(PicardJob::new),
        })
    }

    pub(super) fn new_thread(&self) -> QcThread<'_> {
        QcThread {
            job: self,
            buffer: AlignmentBuffer::default(),
            counts: RecordCounts::default(),
            depth: PartitionDepth::default(),
            reference: self.reference.clone().map(ReferenceWindows::from),
            picard: self.picard.as_ref().map(PicardJob::new_thread),
        }
    }

    /// Adds the metrics of a part that a worker wrote. `at`: the index of the part in the file.
    pub(super) fn take_part(&self, at: usize, part: QcPart) -> Result<(), PipelineError> {
        if let (Some(job), Some(counts)) = (&self.picard, part.picard) {
            job.add_partition(at, counts)?;
        }
        self.counts.lock().merge(&part.counts);
        self.depth.lock().add(at, part.depth);
        Ok(())
    }

    /// Returns the metrics of the whole output, and Picard's metrics, if requested. All threads must have ended.
    pub(super) fn finish(self, genome: &Genome) -> (Qc, Option<FinishedPicardJob>) {
        let counts = self.counts.into_inner();
        let depth = self.depth.into_inner();
        let is_reference_compared = self.reference.is_some();
        let picard = self.picard.map(|job| job.finish(&counts));
        let qc = Qc { counts, coverage: depth.finish(genome), is_reference_compared, picard_files: Vec::new() };
        (qc, picard)
    }
}

impl QcThread<'_> {
    /// Starts a partition, whose records are then added in their order.
    pub(super) fn start_partition(&mut self, split: &SplitPartition) {
        if let Some(picard) = &mut self.picard {
            picard.start_partition(split);
        }
    }

    /// Counts a record that is written with this FLAG.
    pub(super) fn add(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        let contig = usize::try_from(record.contig()).unwrap_or(usize::MAX);
        self.depth.add(record, flag, self.job.contig_lengths.get(contig).copied().unwrap_or(0));
        let alignment = self.buffer.decode(record, flag);
        self.counts.add(record, &alignment, self.reference.as_mut())?;
        match &mut self.picard {
            Some(picard) => picard.add(record, &alignment).map_err(io::Error::other),
            None => Ok(()),
        }
    }

    /// Adds the depth and Picard's metrics of a finished partition to the job. `at`: the index of the partition in the
    /// file.
    pub(super) fn end_partition(&mut self, at: usize) -> io::Result<()> {
        let counts = self.picard.as_mut().and_then(PicardThread::take_partition);
        if let (Some(job), Some(counts)) = (&self.job.picard, counts) {
            job.add_partition(at, counts).map_err(io::Error::other)?;
        }
        let depth = self.depth.finish();
        self.job.depth.lock().add(at, depth);
        Ok(())
    }

    /// Returns the metrics since the last call, which a worker sends to the head, and resets them.
    pub(super) fn take_part(&mut self) -> QcPart {
        let picard = self.picard.as_mut().and_then(PicardThread::take_partition);
        QcPart { counts: std::mem::take(&mut self.counts), depth: self.depth.finish(), picard }
    }
}

impl Drop for QcThread<'_> {
    fn drop(&mut self) {
        self.job.counts.lock().merge(&self.counts);
    }
}

impl Qc {
    /// Writes the files with the quality metrics.
    pub(super) fn write(&self, staged: &mut AtomicSet, outputs: &Outputs) -> Result<(), PipelineError> {
        let mut write = |suffix: &str, text: String| {
            let path = outputs.path_with_suffix(suffix);
            staged.write_file(&path, text.as_bytes()).map_err(PipelineError::file("write", &path))
        };
        let comment = |tool: &str| outputs.picard_comment(tool);
        if let Some(text) = self.counts.insert_sizes.to_text(&comment("CollectInsertSizeMetrics")) {
            write(INSERT_SIZE_SUFFIX, text)?;
        }
        write(ALIGNMENT_SUMMARY_SUFFIX, self.counts.summary.to_text(&comment("CollectAlignmentSummaryMetrics")))?;
        let origin = format!("counted by godwit {}", env!("CARGO_PKG_VERSION"));
        let depths = self.coverage.samtools_depths.as_ref();
        write(STATS_SUFFIX, self.counts.stats.to_text(&self.counts.cycles, depths, &origin))?;
        if let Some(mosdepth) = &self.coverage.mosdepth {
            write(MOSDEPTH_SUMMARY_SUFFIX, mosdepth.summary())?;
            write(MOSDEPTH_DISTRIBUTION_SUFFIX, mosdepth.distribution())?;
        }
        Ok(())
    }
}

/// Opens a reference to read its bases. Its contigs are put into the order of the genome.
///
/// # Errors
/// [`PipelineError::Options`] if the reference lacks contigs of the genome. [`PipelineError::Fasta`] if it cannot be
/// read.
pub fn open_reference(path: &Path, genome: &Genome) -> Result<IndexedReader, PipelineError> {
    let of_genome = |records: &[FaiRecord]| -> Option<Arc<[FaiRecord]>> {
        let find = |name: &str| records.iter().find(|record| record.name == name);
        let same = genome.contigs().iter().zip(records).all(|(contig, record)| contig.name == record.name);
        let contigs = genome.contigs().iter().enumerate().map(|(at, contig)| {
            let record = if same { records.get(at) } else { find(&contig.name) };
            record.filter(|record| record.bases == u64::from(contig.length)).cloned()
        });
        contigs.collect()
    };
    let failed = |source| PipelineError::Fasta { path: path.to_owned(), source };
    let fai = path.with_added_extension("fai");
    let present = std::fs::read_to_string(&fai).ok().and_then(|text| fasta::parse_fai(&text));
    // Check an existing `.fai`, because it may belong to an earlier version of the reference.
    let checked = |contigs: Arc<[FaiRecord]>| {
        let mut windows = IndexedReader::open(path, contigs).ok()?;
        windows.check_index().ok().map(|()| windows)
    };
    if let Some(windows) = present.as_deref().and_then(of_genome).and_then(checked) {
        return Ok(windows);
    }
    let contigs = of_genome(&fasta::build_fai(path).map_err(failed)?).ok_or_else(|| PipelineError::Options {
        problem: format!("{} lacks contigs of the input, or their lengths differ", path.display()),
    })?;
    IndexedReader::open(path, contigs).map_err(failed)
}

/// Checks that [`open_reference`] would succeed.
///
/// # Errors
/// The errors of [`open_reference`].
pub fn check_metrics_reference(path: &Path, genome: &Genome) -> Result<(), PipelineError> {
    open_reference(path, genome).map(drop)
}
