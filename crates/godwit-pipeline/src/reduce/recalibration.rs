//! Recalibration of base qualities: the counts of bases over all partitions, and the recalibrator that changes the
//! records that are written. Bases are counted when duplicates are decided, in one more merge of the runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_formats::fasta::IndexedReader;
use godwit_formats::sam::Header;
use godwit_formats::vcf;
use godwit_kernels::threads::for_each_index;
use godwit_model::{Genome, RawRecord};
use godwit_recalibrate::{
    KnownSites, KnownSitesBuilder, QualityOptions, ReadCounter, ReadError, RecalibrationCounts, RecalibrationGroups,
    Recalibrator,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::partition::{PartitionContext, RecordMarker, merge_runs};
use super::qc::{ReferenceWindows, open_reference};
use super::write::{JobMonitor, MarkedRuns, merging_threads, writing_error};
use crate::error::PipelineError;
use crate::observer::Event;
use crate::runs::SplitPartition;

/// Suffix of the report, which is appended to the stem of the outputs.
pub(super) const REPORT_SUFFIX: &str = ".recal.table";

/// The inputs and options of a recalibration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecalibrationOptions {
    /// File of the reference sequence.
    pub reference: PathBuf,
    /// VCF or BCF files of known variants, at least one. Mismatches at these variants do not count as sequencing errors.
    pub known_sites: Vec<PathBuf>,
    /// Options that change the new qualities.
    pub quality: QualityOptions,
}

impl RecalibrationOptions {
    /// Returns the options that change records as a command line, with a space before it. Files have names without
    /// directories.
    pub fn command_line(&self) -> String {
        let mut line = String::new();
        for sites in &self.known_sites {
            line += &format!(" --recalibrate {}", sites.file_name().unwrap_or_default().to_string_lossy());
        }
        let QualityOptions { static_levels, quantizing_levels, emit_original, use_original } = &self.quality;
        if !static_levels.is_empty() {
            let levels: Vec<String> = static_levels.iter().map(u8::to_string).collect();
            line += &format!(" --static-quantized-quals {}", levels.join(","));
        }
        line += &quantizing_levels.map_or(String::new(), |levels| format!(" --quantize-quals {levels}"));
        line += if *emit_original { " --emit-original-quals" } else { "" };
        line + if *use_original { " --use-original-qualities" } else { "" }
    }
}

/// The data that all threads share to count bases.
pub struct BaseRecalibration {
    quality: QualityOptions,
    groups: RecalibrationGroups,
    contig_lengths: Vec<u32>,
    sites: KnownSites,
    reference: IndexedReader,
}

/// A counter of bases that belongs to one thread.
pub struct BaseCounter<'j> {
    counter: ReadCounter<'j>,
    reference: ReferenceWindows,
}

/// The recalibrator of the records of a job, and the report of the counts.
pub(super) struct RunRecalibration {
    pub(super) recalibrator: Recalibrator,
    pub(super) report: String,
}

impl BaseRecalibration {
    /// Reads the known sites and opens the reference. `threads`: the number of threads that decompress.
    ///
    /// # Errors
    /// [`PipelineError::Header`] for invalid read groups; [`PipelineError::Options`] or [`PipelineError::Fasta`] for a
    /// reference that lacks contigs of the genome or cannot be read; [`PipelineError::Vcf`] for a file of known sites
    /// that cannot be read, [`PipelineError::Corrupt`] if it has no site on a contig of the genome.
    pub fn open(
        options: &RecalibrationOptions,
        header: &Header,
        genome: &Genome,
        threads: usize,
    ) -> Result<Self, PipelineError> {
        let reference = open_reference(&options.reference, genome)?;
        Ok(Self {
            quality: options.quality.clone(),
            groups: read_recalibration_groups(header)?,
            contig_lengths: genome.contigs().iter().map(|contig| contig.length).collect(),
            sites: read_known_sites(&options.known_sites, genome, threads)?,
            reference,
        })
    }

    /// Returns a counter of bases for one thread.
    pub fn new_counter(&self) -> BaseCounter<'_> {
        let Self { groups, contig_lengths, sites, quality, reference } = self;
        let counter = ReadCounter::new(groups, contig_lengths, sites, quality.use_original);
        BaseCounter { counter, reference: reference.clone().into() }
    }

    /// Estimates all qualities from the counts of all records.
    pub fn recalibrator(&self, counts: &RecalibrationCounts) -> Recalibrator {
        Recalibrator::new(counts, &self.groups, self.contig_lengths.clone(), self.quality.clone())
    }
}

impl BaseCounter<'_> {
    /// Counts the bases of a record with FLAG `flag`.
    #[inline]
    pub fn add(&mut self, record: RawRecord, flag: u16) -> Result<(), ReadError> {
        self.counter.add(record, flag, &mut self.reference)
    }

    /// Returns the counts.
    pub fn into_counts(self) -> RecalibrationCounts {
        self.counter.into_counts()
    }
}

/// Counts the bases of all records whose duplicates are decided, if the job recalibrates base qualities. `stem`: path of
/// the outputs, for errors.
///
/// # Errors
/// The errors of [`BaseRecalibration::open`]; [`PipelineError::Recalibration`] for a read that cannot be recalibrated;
/// [`PipelineError::Interrupted`] if the job is cancelled; [`PipelineError::File`] if a scratch file cannot be read.
pub(super) fn recalibrate_runs(
    decided: &MarkedRuns,
    header: &Header,
    genome: &Genome,
    monitor: JobMonitor,
    stem: &Path,
) -> Result<Option<RunRecalibration>, PipelineError> {
    let MarkedRuns { collected, partitions } = decided;
    let Some(options) = &collected.options.writing.recalibration else { return Ok(None) };
    monitor.observer.event(&Event::Stage { name: "counting qualities" });
    let inputs = BaseRecalibration::open(options, header, genome, collected.options.threads)?;
    let total = Mutex::new(RecalibrationCounts::default());
    if let Some(runs) = &collected.runs {
        let threads = merging_threads(collected, runs, partitions, 0);
        let known = PartitionContext::new(collected, runs, genome);
        let count = |(): &mut (), at: usize| {
            let counts = count_partition(&inputs, known, &partitions[at], monitor.cancelled)?;
            total.lock().merge(&counts);
            Ok(())
        };
        for_each_index(threads, partitions.len(), || (), count).map_err(|error| writing_error(error, stem))?;
    }
    let counts = total.into_inner();
    Ok(Some(RunRecalibration { recalibrator: inputs.recalibrator(&counts), report: counts.to_report() }))
}

/// Counts the bases of the records of a partition that will be written.
pub(super) fn count_partition(
    inputs: &BaseRecalibration,
    known: PartitionContext,
    split: &SplitPartition,
    cancelled: &AtomicBool,
) -> io::Result<RecalibrationCounts> {
    let (mut counter, mut marker) = (inputs.new_counter(), RecordMarker::new(known));
    merge_runs(known, split, cancelled, |record, judgement| match marker.mark(record, judgement) {
        Some((record, flag)) => counter.add(record, flag).map_err(io::Error::other),
        None => Ok(()),
    })?;
    Ok(counter.into_counts())
}

/// Checks that files of known sites can be read: their headers and first records.
///
/// # Errors
/// [`PipelineError::Vcf`] for a file that cannot be read.
pub fn check_known_sites(paths: &[PathBuf]) -> Result<(), PipelineError> {
    for path in paths {
        vcf::Reader::open(path, 1)?.next_record()?;
    }
    Ok(())
}

/// Returns the read groups of a header, whose names in reports are their platform units.
///
/// # Errors
/// [`PipelineError::Header`] for invalid read groups.
pub fn read_recalibration_groups(header: &Header) -> Result<RecalibrationGroups, PipelineError> {
    let groups =
        header.read_groups().map_err(|source| PipelineError::Header { origin: "the reads".to_owned(), source })?;
    Ok(RecalibrationGroups::new(groups.iter().map(|group| {
        let unit = group.line.split('\t').find_map(|field| field.strip_prefix("PU:"));
        (group.id.as_str(), unit)
    })))
}

/// Reads the positions of known variants on the contigs of a genome.
fn read_known_sites(paths: &[PathBuf], genome: &Genome, threads: usize) -> Result<KnownSites, PipelineError> {
    let mut sites = KnownSitesBuilder::new(genome.contigs().len());
    for path in paths {
        add_known_sites(path, genome, threads, &mut sites)?;
    }
    Ok(sites.finish())
}

fn add_known_sites(
    path: &Path,
    genome: &Genome,
    threads: usize,
    sites: &mut KnownSitesBuilder,
) -> Result<(), PipelineError> {
    let mut reader = vcf::Reader::open(path, threads)?;
    let (mut records, mut used) = (0u64, 0u64);
    let mut contig: (String, Option<usize>) = (String::new(), None);
    while let Some(record) = reader.next_record()? {
        records += 1;
        if record.contig != contig.0 {
            let index = genome.contigs().iter().position(|known| known.name == record.contig);
            contig = (record.contig.to_owned(), index);
        }
        if let Some(index) = contig.1 {
            used += 1;
            sites.push(index, record.position.max(0) as u32, record.end_position().max(0) as u32);
        }
    }
    if records > 0 && used == 0 {
        let problem = "none of its variants is on a contig of the reads; give known sites of the same reference";
        return Err(PipelineError::Corrupt { path: path.to_owned(), problem: problem.to_owned() });
    }
    Ok(())
}
