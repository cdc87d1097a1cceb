//! Building of the index of bwa-mem3 by conversion of the index of bwa.

use std::io;
use std::path::Path;

use godwit_engines::aligner::bwa::fm_index::{self, SampleStride};
use godwit_engines::aligner::bwa::{IndexError, IndexKind, IndexState, StaleReason, index_files_state};
use godwit_files::AtomicFile;
use godwit_formats::fasta::{self, FastaError};
use godwit_pipeline::PipelineError;
use godwit_pipeline::host_resources;
use godwit_pipeline::observer::{Event, Observer};

use crate::job_plan::format_bytes;

/// Builds the index of bwa-mem3, unless it is current. Returns true if the index was built.
///
/// The index of bwa must be current. `stride`: distance between samples of the suffix array. If it is `None`, an
/// existing index with any stride is current, and a new index has the stride of bwa-mem2.
///
/// # Errors
/// [`PipelineError::File`], [`PipelineError::Index`], [`PipelineError::StaleIndex`] or [`PipelineError::Engine`].
pub(super) fn build_bwa_mem3_index(
    reference: &Path,
    stride: Option<SampleStride>,
    threads: usize,
    observer: &dyn Observer,
) -> Result<bool, PipelineError> {
    if is_current(reference, stride)? {
        return Ok(false);
    }
    let stride = stride.unwrap_or(SampleStride::EVERY_8);
    if convert(reference, stride, threads, observer)?.is_err() {
        // The files of bwa's index have the right sizes but wrong content. Build them again.
        super::rebuild_bundled_index(reference, IndexKind::Bwa, observer)?;
        let stale = |reason| PipelineError::StaleIndex { reference: reference.to_owned(), reason };
        convert(reference, stride, threads, observer)?.map_err(stale)?;
    }
    Ok(true)
}

/// Reports whether the index is complete and has the given stride, if any. Does not compare the bases of the reference.
///
/// # Errors
/// [`PipelineError::Index`] if the index cannot be read.
pub(super) fn is_current(reference: &Path, stride: Option<SampleStride>) -> Result<bool, PipelineError> {
    let failed = |source| PipelineError::Index { reference: reference.to_owned(), source };
    let IndexState::Current { .. } = index_files_state(reference, IndexKind::BwaMem3).map_err(failed)? else {
        return Ok(false);
    };
    Ok(stride.is_none() || stride == fm_index::sample_stride(reference).map_err(failed)?)
}

/// Returns the smallest stride with which the loaded index fits into the memory.
pub(super) fn smallest_stride_within(reference: &Path, memory_bytes: u64) -> Result<SampleStride, PipelineError> {
    let failed = |source| PipelineError::Fasta { path: reference.to_owned(), source };
    let genome_bases = genome_bases(reference).map_err(failed)?;
    SampleStride::smallest_within_memory(memory_bytes, genome_bases).ok_or_else(|| {
        let least = fm_index::resident_bytes(genome_bases, SampleStride::EVERY_32);
        let problem = format!(
            "--index-memory {} is too small for {}: its index needs at least {}; raise the limit, or align with bwa",
            format_bytes(memory_bytes),
            reference.display(),
            format_bytes(least)
        );
        PipelineError::Options { problem }
    })
}

fn genome_bases(reference: &Path) -> Result<u64, FastaError> {
    let mut fasta = fasta::Reader::open(reference, 1)?;
    let mut total = 0;
    while fasta.next_contig()?.is_some() {
        while let Some(bases) = fasta.next_bases()? {
            total += bases.len() as u64;
        }
    }
    Ok(total)
}

/// Converts the index of bwa and publishes the complete result. The inner error is a defect in the index of bwa.
fn convert(
    reference: &Path,
    stride: SampleStride,
    threads: usize,
    observer: &dyn Observer,
) -> Result<Result<(), StaleReason>, PipelineError> {
    observer.event(&Event::Stage { name: "indexing for bwa-mem3" });
    let path = fm_index::index_path(reference);
    check_memory_and_disk(reference, stride, &path)?;
    let staged = AtomicFile::create(&path).map_err(PipelineError::file("write", &path))?;
    let failed = |error| match error {
        IndexError::Write { path, source } => PipelineError::File { action: "write", path, source },
        source => PipelineError::Index { reference: reference.to_owned(), source },
    };
    if let Err(reason) = fm_index::convert_bwa_index(reference, stride, threads, staged.file()).map_err(failed)? {
        return Ok(Err(reason));
    }
    staged.commit().map_err(PipelineError::file("write", &path))?;
    Ok(Ok(()))
}

/// Returns an error if free memory or disk space is too small for the conversion.
fn check_memory_and_disk(reference: &Path, stride: SampleStride, path: &Path) -> Result<(), PipelineError> {
    let failed = |source| PipelineError::Index { reference: reference.to_owned(), source };
    let IndexState::Current { genome } = index_files_state(reference, IndexKind::Bwa).map_err(failed)? else {
        // Continue: the conversion itself will report a missing or invalid index of bwa.
        return Ok(());
    };
    let genome_bases = genome.contigs().iter().map(|contig| u64::from(contig.length)).sum();
    let needs = [
        ("memory", fm_index::conversion_memory_bytes(genome_bases, stride), host_resources::free_memory_bytes()),
        (
            "disk space",
            fm_index::converted_file_bytes(genome_bases, stride),
            host_resources::free_disk_bytes(path).ok(),
        ),
    ];
    for (what, needed, free) in needs {
        if let Some(free) = free.filter(|free| *free < needed) {
            let problem =
                format!("the index needs {} of {what}, but only {} are free", format_bytes(needed), format_bytes(free));
            let source = io::Error::new(io::ErrorKind::StorageFull, problem);
            return Err(PipelineError::File { action: "create", path: path.to_owned(), source });
        }
    }
    Ok(())
}
