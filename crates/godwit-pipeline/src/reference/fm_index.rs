//! The index of bwa-mem3 beside bwa's, which it is made from.

use std::io;
use std::path::Path;

use godwit_engines::aligner::bwa::fm_index::{self, SampleStride};
use godwit_engines::aligner::bwa::{IndexError, IndexKind, IndexState, StaleReason, index_layout};
use godwit_formats::fasta::{self, FastaError};

use crate::error::PipelineError;
use crate::machine;
use crate::observer::{Event, Observer};
use crate::run_plan::show_bytes;
use crate::staging::{Staged, StagedFile};

/// Makes the index of bwa-mem3 unless it is current. Returns whether it had to be made.
///
/// The index of bwa is current. Without a `stride`, a present index of any stride is current, and a new one has the stride of
/// bwa-mem2.
///
/// # Errors
/// [`PipelineError::File`], [`PipelineError::Index`], [`PipelineError::StaleIndex`] and [`PipelineError::Engine`].
pub(super) fn build(
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
        // The sizes of bwa's files are right, but what is in them is not.
        super::make_own(reference, IndexKind::Bwa, observer)?;
        let stale = |reason| PipelineError::StaleIndex { reference: reference.to_owned(), reason };
        convert(reference, stride, threads, observer)?.map_err(stale)?;
    }
    Ok(true)
}

/// Returns whether the index is complete and, if a stride is given, of that stride. The bases of the reference are not compared.
///
/// # Errors
/// [`PipelineError::Index`].
pub(super) fn is_current(reference: &Path, stride: Option<SampleStride>) -> Result<bool, PipelineError> {
    let failed = |source| PipelineError::Index { reference: reference.to_owned(), source };
    let IndexState::Current { .. } = index_layout(reference, IndexKind::BwaMem3).map_err(failed)? else {
        return Ok(false);
    };
    Ok(stride.is_none() || stride == fm_index::sample_stride(reference).map_err(failed)?)
}

/// The smallest stride with which the index fits into memory.
pub(super) fn stride_within(reference: &Path, memory_bytes: u64) -> Result<SampleStride, PipelineError> {
    let failed = |source| PipelineError::Fasta { path: reference.to_owned(), source };
    let genome_bases = genome_bases(reference).map_err(failed)?;
    SampleStride::within(memory_bytes, genome_bases).ok_or_else(|| {
        let least = fm_index::resident_bytes(genome_bases, SampleStride::EVERY_32);
        let problem = format!(
            "--index-memory {} is too small for {}: its index takes at least {}; give more, or align with bwa",
            show_bytes(memory_bytes),
            reference.display(),
            show_bytes(least)
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

/// Writes the file aside and gives it its name when it is whole. The inner error: what is wrong with bwa's index.
fn convert(
    reference: &Path,
    stride: SampleStride,
    threads: usize,
    observer: &dyn Observer,
) -> Result<Result<(), StaleReason>, PipelineError> {
    observer.event(&Event::Stage { name: "indexing for bwa-mem3" });
    let path = fm_index::path(reference);
    check_room(reference, stride, &path)?;
    let staged = StagedFile::create(&path).map_err(PipelineError::file("write", &path))?;
    let failed = |error| match error {
        IndexError::Write { path, source } => PipelineError::File { action: "write", path, source },
        source => PipelineError::Index { reference: reference.to_owned(), source },
    };
    if let Err(reason) = fm_index::convert(reference, stride, threads, staged.file()).map_err(failed)? {
        return Ok(Err(reason));
    }
    staged.file().sync_all().map_err(PipelineError::file("write", &path))?;
    let mut publishing = Staged::default();
    publishing.add(staged);
    publishing.publish().map_err(|(path, source)| PipelineError::File { action: "write", path, source })?;
    Ok(Ok(()))
}

/// Refuses to begin where memory or disk would not suffice.
fn check_room(reference: &Path, stride: SampleStride, path: &Path) -> Result<(), PipelineError> {
    let failed = |source| PipelineError::Index { reference: reference.to_owned(), source };
    let IndexState::Current { genome } = index_layout(reference, IndexKind::Bwa).map_err(failed)? else {
        // The conversion reports what is missing or wrong.
        return Ok(());
    };
    let genome_bases = genome.contigs().iter().map(|contig| u64::from(contig.length)).sum();
    let needs = [
        ("memory", fm_index::conversion_bytes(genome_bases, stride), machine::free_memory_bytes()),
        ("disk space", fm_index::stored_bytes(genome_bases, stride), machine::free_disk_bytes(path).ok()),
    ];
    for (what, needed, free) in needs {
        if let Some(free) = free.filter(|free| *free < needed) {
            let problem = format!("it takes {} of {what}, but {} is free", show_bytes(needed), show_bytes(free));
            let source = io::Error::new(io::ErrorKind::StorageFull, problem);
            return Err(PipelineError::File { action: "make", path: path.to_owned(), source });
        }
    }
    Ok(())
}
