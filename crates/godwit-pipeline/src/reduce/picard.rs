//! Picard's metrics of a BAM: their request, the data that all threads share, and their computation for a file that is
//! written in partitions.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use godwit_files::AtomicSet;
use godwit_formats::bam::{self, RecordBuffer};
use godwit_formats::sam::Header;
use godwit_io::bgzf;
use godwit_metrics::{
    IntervalList, JoinedMetrics, Metric, MetricsError, MetricsFile, OrderedMetrics, PartitionCounts, PartitionJoiner,
    PartitionMetrics, RecordMetrics, ReferenceCounts, TargetLists,
};
use godwit_model::{Genome, RawRecord};
use serde::{Deserialize, Serialize};

use super::outputs::{Format, Outputs};
use super::qc::{ReferenceWindows, open_reference};
use crate::error::PipelineError;
use crate::runs::SplitPartition;

/// Bytes of records that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// The requested metrics of Picard, and their interval lists. A cluster run sends it to its workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PicardMetricsRequest {
    /// The requested metrics.
    pub metrics: Vec<Metric>,
    /// Path of the interval list of the targets, for [`Metric::HsMetrics`] and [`Metric::TargetedPcr`].
    pub targets: Option<PathBuf>,
    /// Path of the interval list of the baits, for [`Metric::HsMetrics`].
    pub baits: Option<PathBuf>,
    /// Path of the interval list of the amplicons, for [`Metric::TargetedPcr`].
    pub amplicons: Option<PathBuf>,
}

impl PicardMetricsRequest {
    /// Checks that each requested metric has its interval lists.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if an interval list is not given.
    pub fn check(&self) -> Result<(), PipelineError> {
        for (metric, probes, option) in
            [(Metric::HsMetrics, &self.baits, "--baits"), (Metric::TargetedPcr, &self.amplicons, "--amplicons")]
        {
            if self.metrics.contains(&metric) && (probes.is_none() || self.targets.is_none()) {
                let problem = format!("{metric} needs the interval lists {option} and --targets");
                return Err(PipelineError::Options { problem });
            }
        }
        Ok(())
    }

    /// Returns the paths of the interval lists.
    pub fn interval_lists(&self) -> impl Iterator<Item = &Path> {
        [&self.targets, &self.baits, &self.amplicons].into_iter().flatten().map(PathBuf::as_path)
    }

    fn open_lists(&self, genome: &Genome) -> Result<TargetLists, PipelineError> {
        self.check()?;
        let open = |path: &Option<PathBuf>| {
            let list = path.as_ref().map(|path| IntervalList::open(path, genome));
            list.transpose().map_err(MetricsError::from)
        };
        Ok(TargetLists { targets: open(&self.targets)?, baits: open(&self.baits)?, amplicons: open(&self.amplicons)? })
    }
}

/// The data that all threads share to compute Picard's metrics.
pub struct PicardInputs {
    genome: Genome,
    /// The reference.
    pub windows: ReferenceWindows,
    /// Counts of no records that do not depend on the order of records.
    pub records: RecordMetrics,
    /// Counts of no records that depend on the order.
    pub ordered: OrderedMetrics,
    needs_reference_counts: bool,
}

impl PicardInputs {
    /// Opens the reference and the interval lists. `header`: the header of the BAM; `origin`: its name, for errors.
    ///
    /// # Errors
    /// [`PipelineError::Options`] or [`PipelineError::Fasta`] for the reference; [`PipelineError::Metrics`] for interval
    /// lists or read groups that do not suffice; [`PipelineError::Header`] for an invalid header.
    pub fn open(
        request: &PicardMetricsRequest,
        reference: &Path,
        header: &Header,
        origin: &str,
    ) -> Result<Self, PipelineError> {
        let invalid = |source| PipelineError::Header { origin: origin.to_owned(), source };
        let genome = header.genome().map_err(invalid)?;
        let windows = ReferenceWindows::from(open_reference(reference, &genome)?);
        let read_groups = header.read_groups().map_err(invalid)?;
        let lists = request.open_lists(&genome)?;
        let needs_counts = |metric: &Metric| matches!(metric, Metric::GcBias | Metric::WgsMetrics);
        Ok(Self {
            windows,
            records: RecordMetrics::new(&request.metrics, &genome),
            ordered: OrderedMetrics::new(&request.metrics, &genome, &read_groups, lists)?,
            needs_reference_counts: request.metrics.iter().any(needs_counts),
            genome,
        })
    }

    /// As [`PicardInputs::open`], for the files of a job. Returns `None` if no metrics of Picard are requested.
    pub(super) fn open_for_job(
        request: Option<&PicardMetricsRequest>,
        reference: Option<&Path>,
        header: &Header,
    ) -> Result<Option<Self>, PipelineError> {
        let requested = request.zip(reference);
        requested.map(|(request, reference)| Self::open(request, reference, header, "the output")).transpose()
    }

    /// Counts the bases of all contigs, if a metric needs their number; each thread counts one contig at a time.
    ///
    /// # Errors
    /// [`MetricsError::Reference`] if the reference cannot be read.
    pub fn count_reference(&self, threads: usize) -> Result<ReferenceCounts, MetricsError> {
        let mut counts = ReferenceCounts::default();
        if !self.needs_reference_counts {
            return Ok(counts);
        }
        let next = AtomicUsize::new(0);
        let count_contigs = || -> Result<ReferenceCounts, MetricsError> {
            let (mut counts, mut windows) = (ReferenceCounts::default(), self.windows.clone());
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(contig) = self.genome.contigs().get(at) else { return Ok(counts) };
                counts.add_contig(&mut windows, at as i32, contig.length)?;
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(count_contigs)).collect();
            for worker in workers {
                counts.merge(&worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(counts)
        })
    }

    /// Counts the records of a BAM in its order, for the metrics that depend on it.
    fn count_in_order(&self, bam: &Path, threads: usize) -> Result<OrderedMetrics, PipelineError> {
        let failed = |error: bam::BamError| PipelineError::alignments(bam, error.into());
        let input = bgzf::Reader::open_any(bam, threads, false).map_err(|error| failed(error.into()))?;
        let mut source = bam::Reader::new(input).map_err(failed)?;
        let (mut ordered, mut windows) = (self.ordered.clone(), self.windows.clone());
        loop {
            let mut buffer = RecordBuffer::default();
            if !source.read_records(&mut buffer, BUFFER_BYTES).map_err(failed)? {
                return Ok(ordered);
            }
            for bytes in buffer.records() {
                let record = RawRecord::from_trusted_bytes(bytes);
                ordered.add(record, record.flag(), &mut windows)?;
            }
        }
    }
}

/// Picard's metrics of the outputs of a job, which all threads share.
pub(super) struct PicardJob {
    inputs: PicardInputs,
    joiner: Mutex<PartitionJoiner<ReferenceWindows>>,
}

/// Picard's metrics of the partition that a thread writes.
pub(super) struct PicardThread<'j> {
    job: &'j PicardJob,
    windows: ReferenceWindows,
    /// Counts of the partition; `None` between partitions.
    partition: Option<PartitionMetrics>,
}

/// Picard's metrics of all partitions.
pub(super) struct FinishedPicardJob {
    inputs: PicardInputs,
    joined: JoinedMetrics,
}

impl PicardJob {
    pub(super) fn new(inputs: PicardInputs) -> Self {
        let PicardInputs { records, ordered, windows, .. } = &inputs;
        let joiner = PartitionJoiner::new(records.clone(), ordered.clone(), windows.clone());
        Self { joiner: Mutex::new(joiner), inputs }
    }

    pub(super) fn new_thread(&self) -> PicardThread<'_> {
        PicardThread { job: self, windows: self.inputs.windows.clone(), partition: None }
    }

    /// Adds the counts of the partition with the index `at` in the file.
    pub(super) fn add_partition(&self, at: usize, counts: PartitionCounts) -> Result<(), MetricsError> {
        self.joiner.lock().unwrap_or_else(PoisonError::into_inner).add(at, counts)
    }

    pub(super) fn finish(self) -> FinishedPicardJob {
        let joined = self.joiner.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
        FinishedPicardJob { inputs: self.inputs, joined }
    }
}

impl PicardThread<'_> {
    pub(super) fn start_partition(&mut self, split: &SplitPartition) {
        let PicardInputs { records, ordered, .. } = &self.job.inputs;
        self.partition = Some(PartitionMetrics::new(records.clone(), ordered, split.from, split.until));
    }

    /// Counts a record of the partition, which is written with this FLAG.
    pub(super) fn add(&mut self, record: RawRecord, flag: u16) -> Result<(), MetricsError> {
        let Some(partition) = &mut self.partition else { return Ok(()) };
        partition.add(record, flag, &mut self.windows)
    }

    /// Ends the partition and returns its counts.
    pub(super) fn take_partition(&mut self) -> Option<PartitionCounts> {
        self.partition.take().map(PartitionMetrics::finish)
    }
}

impl FinishedPicardJob {
    /// Returns true if the finished BAM must be read to compute metrics that depend on the order of records.
    pub(super) fn needs_bam(&self) -> bool {
        self.joined.is_incomplete
    }

    /// Writes the metrics files, and returns their texts. If [`FinishedPicardJob::needs_bam`], they are read from the BAM
    /// among `staged`; without a BAM, the metrics that depend on the order are left out.
    pub(super) fn write(
        self,
        staged: &mut AtomicSet,
        outputs: &Outputs,
        threads: usize,
    ) -> Result<Vec<MetricsFile>, PipelineError> {
        let bam = outputs.path(Format::Bam);
        let counts = self.inputs.count_reference(threads)?;
        let JoinedMetrics { records, ordered, is_incomplete } = self.joined;
        let ordered = match is_incomplete {
            true => {
                let written = staged.files().iter().find(|file| file.path() == bam);
                written.map(|file| self.inputs.count_in_order(file.temporary_path(), threads)).transpose()?
            }
            false => Some(ordered),
        };
        let input = bam.file_name().unwrap_or_default().to_string_lossy();
        let mut files = records.into_files(&counts, &input);
        if let Some(ordered) = ordered {
            files.extend(ordered.into_files(&counts, &mut self.inputs.windows.clone(), &input)?);
        }
        for file in &files {
            let path = outputs.path_with_suffix(file.suffix);
            staged.write_file(&path, file.text.as_bytes()).map_err(PipelineError::file("write", &path))?;
        }
        Ok(files)
    }
}
