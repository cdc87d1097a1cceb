//! Picard's metrics of a BAM: their request, the data that all threads share, and their computation for a file that is
//! written in partitions.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use godwit_files::{AtomicFile, AtomicSet};
use godwit_formats::bam::{self, RecordBuffer};
use godwit_formats::sam::Header;
use godwit_io::bgzf;
use godwit_kernels::qc::{Alignment, AlignmentBuffer, RecordCounts};
use godwit_kernels::threads::for_each_index;
use godwit_metrics::{
    IntervalList, JoinedMetrics, Metric, MetricsError, MetricsFile, OrderedMetrics, PartitionCounts, PartitionJoiner,
    PartitionMetrics, RecordMetrics, ReferenceCounts, TargetLists,
};
use godwit_model::{Genome, RawRecord};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::outputs::{Format, Outputs};
use super::qc::{ReferenceWindows, open_reference};
use super::write::JobMonitor;
use crate::error::PipelineError;
use crate::manifest::range_checksum;
use crate::observer::{Event, Observer};
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
    /// True to leave out [`Metric::OxoG`] if a read has no read group; false: this is an error.
    pub is_oxog_optional: bool,
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

    /// Returns the paths of the interval lists, each once: baits and targets are often the same file.
    pub fn interval_lists(&self) -> BTreeSet<&Path> {
        [&self.targets, &self.baits, &self.amplicons].into_iter().flatten().map(PathBuf::as_path).collect()
    }

    /// Returns a text of all values on which the metrics of given records depend, for fingerprints of jobs: the names of
    /// the metrics, and for each interval list its option, its file name and the checksum of its content. Metrics files
    /// contain the names of the lists.
    ///
    /// # Errors
    /// [`PipelineError::File`] if an interval list cannot be read.
    pub fn fingerprint_text(&self) -> Result<String, PipelineError> {
        let mut text = self.metrics.iter().map(Metric::to_string).collect::<Vec<_>>().join(",");
        for (option, path) in [("--targets", &self.targets), ("--baits", &self.baits), ("--amplicons", &self.amplicons)]
        {
            let Some(path) = path else { continue };
            let checksum = File::open(path).and_then(|file| range_checksum(&file, 0, file.metadata()?.len()));
            let checksum = checksum.map_err(PipelineError::file("read", path))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            text += &format!(" {option} {name} {}", &checksum[..16]);
        }
        Ok(text)
    }

    /// Returns the paths of the files of the requested metrics that are not among `files`.
    pub(super) fn unwritten_paths(&self, files: &[MetricsFile], outputs: &Outputs) -> Vec<PathBuf> {
        let suffixes = self.metrics.iter().flat_map(|metric| metric.suffixes().iter().copied());
        let unwritten = suffixes.filter(|suffix| files.iter().all(|file| file.suffix != *suffix));
        unwritten.map(|suffix| outputs.path_with_suffix(suffix)).collect()
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
    /// The requested metrics.
    requested: Vec<Metric>,
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
            ordered: OrderedMetrics::new(&request.metrics, &genome, &read_groups, lists, request.is_oxog_optional)?,
            needs_reference_counts: request.metrics.iter().any(needs_counts),
            requested: request.metrics.clone(),
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

    fn new_joiner(&self) -> PartitionJoiner<ReferenceWindows> {
        PartitionJoiner::new(self.records.clone(), self.ordered.clone(), self.windows.clone())
    }

    /// Counts the bases of all contigs, if a metric needs their number; each thread counts one contig at a time.
    ///
    /// # Errors
    /// [`MetricsError::Reference`] if the reference cannot be read.
    pub fn count_reference(&self, threads: usize) -> Result<ReferenceCounts, MetricsError> {
        let counts = Mutex::new(ReferenceCounts::default());
        if self.needs_reference_counts {
            let contigs = self.genome.contigs();
            for_each_index(
                threads,
                contigs.len(),
                || self.windows.clone(),
                |windows, at| {
                    let mut contig = ReferenceCounts::default();
                    contig.add_contig(windows, at as i32, contigs[at].length)?;
                    counts.lock().merge(&contig);
                    Ok::<_, MetricsError>(())
                },
            )?;
        }
        Ok(counts.into_inner())
    }

    /// Warns of OxoG if it is requested and not among the files, because a read has no read group.
    pub fn warn_of_omitted_oxog(&self, files: &[MetricsFile], observer: &dyn Observer) {
        let is_written = files.iter().any(|file| file.metric == Metric::OxoG);
        if self.requested.contains(&Metric::OxoG) && !is_written {
            let message = "OxoG is not computed, because it needs a read group of the header for each read, and at most \
                           64 libraries; add RG tags, or name the other metrics with --metrics";
            observer.event(&Event::Warning { message: message.to_owned() });
        }
    }

    /// Warns of the metrics that depend on the order of records, which cannot be computed without a BAM.
    fn warn_of_missing_bam(&self, observer: &dyn Observer) {
        let names = self.requested.iter().filter(|metric| metric.needs_order()).map(Metric::to_string);
        let message = format!(
            "{} are not written: near a border of partitions, an alignment is too long or the reads are too many, and \
             there is no unencrypted BAM among the outputs to count them again; add --format bam, or run `godwit \
             metrics` on a BAM",
            names.collect::<Vec<_>>().join(", ")
        );
        observer.event(&Event::Warning { message });
    }

    /// Counts the records of a BAM in its order, for the metrics that depend on it.
    fn count_in_order(&self, bam: &Path, threads: usize, monitor: JobMonitor) -> Result<OrderedMetrics, PipelineError> {
        monitor.observer.event(&Event::Stage { name: "reading the BAM for metrics" });
        let failed = |error: bam::BamError| PipelineError::alignments(bam, error.into());
        let input = bgzf::Reader::open_any(bam, threads, false).map_err(|error| failed(error.into()))?;
        let mut source = bam::Reader::new(input).map_err(failed)?;
        let (mut ordered, mut windows) = (self.ordered.clone(), self.windows.clone());
        let mut decoder = AlignmentBuffer::default();
        loop {
            if monitor.cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            let mut buffer = RecordBuffer::default();
            if !source.read_records(&mut buffer, BUFFER_BYTES).map_err(failed)? {
                return Ok(ordered);
            }
            for bytes in buffer.records() {
                let record = RawRecord::from_trusted_bytes(bytes);
                ordered.add(record, &decoder.decode(record, record.flag()), &mut windows)?;
            }
        }
    }
}

/// Picard's metrics of the outputs of a job, which all threads share.
pub(super) struct PicardJob {
    inputs: PicardInputs,
    /// Created with the first partition: a worker of a cluster run, which sends its counts to the head, needs none.
    joiner: Mutex<Option<PartitionJoiner<ReferenceWindows>>>,
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
        Self { joiner: Mutex::default(), inputs }
    }

    pub(super) fn new_thread(&self) -> PicardThread<'_> {
        PicardThread { job: self, windows: self.inputs.windows.clone(), partition: None }
    }

    /// Adds the counts of the partition with the index `at` in the file.
    pub(super) fn add_partition(&self, at: usize, counts: PartitionCounts) -> Result<(), MetricsError> {
        let mut joiner = self.joiner.lock();
        joiner.get_or_insert_with(|| self.inputs.new_joiner()).add(at, counts)
    }

    /// Ends the job. `counts`: the counts of all records.
    pub(super) fn finish(self, counts: &RecordCounts) -> FinishedPicardJob {
        let joiner = self.joiner.into_inner();
        let mut joined = joiner.unwrap_or_else(|| self.inputs.new_joiner()).finish();
        joined.records.set_record_counts(counts);
        FinishedPicardJob { inputs: self.inputs, joined }
    }
}

impl PicardThread<'_> {
    pub(super) fn start_partition(&mut self, split: &SplitPartition) {
        let PicardInputs { records, ordered, .. } = &self.job.inputs;
        let records = records.clone().without_record_counts();
        self.partition = Some(PartitionMetrics::new(records, ordered, split.from, split.until));
    }

    /// Counts a record of the partition.
    pub(super) fn add(&mut self, record: RawRecord, alignment: &Alignment) -> Result<(), MetricsError> {
        let Some(partition) = &mut self.partition else { return Ok(()) };
        partition.add(record, alignment, &mut self.windows)
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
    /// among `staged`; without a BAM, the metrics that depend on the order are left out with a warning.
    pub(super) fn write(
        self,
        staged: &mut AtomicSet,
        outputs: &Outputs,
        threads: usize,
        monitor: JobMonitor,
    ) -> Result<Vec<MetricsFile>, PipelineError> {
        let bam = outputs.path(Format::Bam);
        let reference_counts = self.inputs.count_reference(threads)?;
        let JoinedMetrics { records, ordered, is_incomplete } = self.joined;
        let ordered = match is_incomplete {
            true => {
                // The new counts take the memory of these.
                drop(ordered);
                let written = staged.files().iter().find(|file| file.path() == bam);
                let count = |file: &AtomicFile| self.inputs.count_in_order(file.temporary_path(), threads, monitor);
                written.map(count).transpose()?
            }
            false => Some(ordered),
        };
        let input = bam.file_name().unwrap_or_default().to_string_lossy();
        let mut files = records.into_files(&reference_counts, &input);
        match ordered {
            Some(ordered) => {
                files.extend(ordered.into_files(&reference_counts, &mut self.inputs.windows.clone(), &input)?);
                self.inputs.warn_of_omitted_oxog(&files, monitor.observer);
            }
            None => self.inputs.warn_of_missing_bam(monitor.observer),
        }
        for file in &files {
            let path = outputs.path_with_suffix(file.suffix);
            staged.write_file(&path, file.text.as_bytes()).map_err(PipelineError::file("write", &path))?;
        }
        Ok(files)
    }
}
