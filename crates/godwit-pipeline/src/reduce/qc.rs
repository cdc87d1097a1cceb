//! Metrics of the file being written: each thread counts the records of its partitions while they are in the cache.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use godwit_formats::fasta::{self, FaiRecord, Windows};
use godwit_kernels::qc::{Coverage, DepthMerger, FinishedDepth, PartitionDepth, RecordCounts, ReferenceBases};
use godwit_model::{Genome, RawRecord};
use serde::{Deserialize, Serialize};

use super::collector::WritingOptions;
use super::outputs::Outputs;
use crate::error::{PipelineError, named};
use crate::staging::Staged;

/// What the files of the metrics have behind the stem of the outputs.
pub(super) const SUFFIXES: [&str; 5] = [INSERT_SIZE, ALIGNMENT_SUMMARY, STATS, MOSDEPTH_SUMMARY, MOSDEPTH_DISTRIBUTION];
const INSERT_SIZE: &str = ".insert_size.txt";
const ALIGNMENT_SUMMARY: &str = ".alignment_summary.txt";
const STATS: &str = ".stats.txt";
const MOSDEPTH_SUMMARY: &str = ".mosdepth.summary.txt";
const MOSDEPTH_DISTRIBUTION: &str = ".mosdepth.global.dist.txt";

/// What all threads share.
pub(super) struct QcJob {
    contig_lengths: Vec<u32>,
    reference: Option<Windows>,
    counts: Mutex<RecordCounts>,
    depth: Mutex<DepthMerger>,
}

/// What one thread has.
pub(super) struct QcWorker<'j> {
    job: &'j QcJob,
    counts: RecordCounts,
    depth: PartitionDepth,
    reference: Option<ReferenceWindows>,
}

/// The metrics of one part.
#[derive(Serialize, Deserialize)]
pub(super) struct QcPart {
    counts: RecordCounts,
    depth: FinishedDepth,
}

/// The metrics of a file.
#[derive(Clone, Debug)]
pub struct Qc {
    /// What was counted record by record.
    pub counts: RecordCounts,
    /// Depth along the genome.
    pub coverage: Coverage,
    /// Whether bases were compared with the reference.
    pub compared: bool,
}

/// Reference bases for the kernels.
struct ReferenceWindows {
    windows: Windows,
    /// For messages.
    path: Arc<Path>,
}

impl From<Windows> for ReferenceWindows {
    fn from(windows: Windows) -> Self {
        Self { path: windows.path().into(), windows }
    }
}

impl ReferenceBases for ReferenceWindows {
    fn codes(&mut self, contig: i32, start: u32, end: u32) -> io::Result<&[u8]> {
        let codes = self.windows.codes(contig.max(0) as usize, u64::from(start), u64::from(end));
        codes.map_err(named("read the reference", &self.path))
    }
}

impl QcJob {
    /// `None` where no metrics are asked for. `reference`: what bases are compared with, from [`open_reference`].
    pub(super) fn new(options: &WritingOptions, genome: &Genome, reference: Option<Windows>) -> Option<Self> {
        options.metrics.as_ref()?;
        Some(Self {
            contig_lengths: genome.contigs().iter().map(|contig| contig.length).collect(),
            reference,
            counts: Mutex::default(),
            depth: Mutex::new(DepthMerger::new(genome)),
        })
    }

    pub(super) fn worker(&self) -> QcWorker<'_> {
        QcWorker {
            job: self,
            counts: RecordCounts::default(),
            depth: PartitionDepth::default(),
            reference: self.reference.clone().map(ReferenceWindows::from),
        }
    }

    /// Takes the metrics of a part that was written elsewhere, the `at`th of the file.
    pub(super) fn take_part(&self, at: usize, part: QcPart) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).merge(&part.counts);
        self.depth.lock().unwrap_or_else(PoisonError::into_inner).add(at, part.depth);
    }

    /// When all threads have ended.
    pub(super) fn finish(self, genome: &Genome) -> Qc {
        let counts = self.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        let depth = self.depth.into_inner().unwrap_or_else(PoisonError::into_inner);
        Qc { counts, coverage: depth.finish(genome), compared: self.reference.is_some() }
    }
}

impl QcWorker<'_> {
    /// Counts a record that is written with this FLAG.
    pub(super) fn add(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        let contig = usize::try_from(record.contig()).unwrap_or(usize::MAX);
        self.depth.add(record, flag, self.job.contig_lengths.get(contig).copied().unwrap_or(0));
        self.counts.add(record, flag, self.reference.as_mut())
    }

    /// Hands on the depth of the partition, the `at`th of the file.
    pub(super) fn end_partition(&mut self, at: usize) {
        let depth = self.depth.finish();
        self.job.depth.lock().unwrap_or_else(PoisonError::into_inner).add(at, depth);
    }
}

impl QcWorker<'_> {
    /// What was counted since the last time, for a job elsewhere.
    pub(super) fn take_part(&mut self) -> QcPart {
        QcPart { counts: std::mem::take(&mut self.counts), depth: self.depth.finish() }
    }
}

impl Drop for QcWorker<'_> {
    fn drop(&mut self) {
        self.job.counts.lock().unwrap_or_else(PoisonError::into_inner).merge(&self.counts);
    }
}

impl Qc {
    /// Writes the files of the metrics beside the others.
    pub(super) fn write(&self, staged: &mut Staged, outputs: &Outputs) -> Result<(), PipelineError> {
        let mut write = |suffix: &str, text: String| {
            let path = outputs.beside(suffix);
            staged.write(&path, text.as_bytes()).map_err(PipelineError::file("write", &path))
        };
        let comment = |tool: &str| outputs.picard_comment(tool);
        if let Some(text) = self.counts.inserts.to_text(&comment("CollectInsertSizeMetrics")) {
            write(INSERT_SIZE, text)?;
        }
        write(ALIGNMENT_SUMMARY, self.counts.summary.to_text(&comment("CollectAlignmentSummaryMetrics")))?;
        let origin = format!("counted by godwit {}", env!("CARGO_PKG_VERSION"));
        let depths = self.coverage.all_records.as_ref();
        write(STATS, self.counts.stats.to_text(&self.counts.cycles, depths, &origin))?;
        if let Some(mosdepth) = &self.coverage.mosdepth {
            write(MOSDEPTH_SUMMARY, mosdepth.summary())?;
            write(MOSDEPTH_DISTRIBUTION, mosdepth.distribution())?;
        }
        Ok(())
    }
}

/// The reference's bases, contigs in the order of the genome.
///
/// # Errors
/// [`PipelineError::Options`] where it lacks contigs of the genome, [`PipelineError::Fasta`] where it cannot be read at any
/// place.
pub(super) fn open_reference(path: &Path, genome: &Genome) -> Result<Windows, PipelineError> {
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
    // An index that lies there may be of an earlier file.
    let checked = |contigs: Arc<[FaiRecord]>| {
        let mut windows = Windows::open(path, contigs).ok()?;
        windows.check().ok().map(|()| windows)
    };
    if let Some(windows) = present.as_deref().and_then(of_genome).and_then(checked) {
        return Ok(windows);
    }
    let contigs = of_genome(&fasta::index(path).map_err(failed)?).ok_or_else(|| PipelineError::Options {
        problem: format!("{} lacks contigs of the input, or has them in another length", path.display()),
    })?;
    Windows::open(path, contigs).map_err(failed)
}

/// Checks that metrics can compare bases with a reference, as [`open_reference`] would.
///
/// # Errors
/// Those of [`open_reference`].
pub(crate) fn check_compared(path: &Path, genome: &Genome) -> Result<(), PipelineError> {
    open_reference(path, genome).map(drop)
}
