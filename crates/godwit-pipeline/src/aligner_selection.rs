//! Selects the program for `--aligner auto`, `bwa` and `bwa-mem3` on this machine.
//!
//! All of them give the records of bwa 0.7.17, so the selection never changes an output: machines of one cluster run may
//! select differently, and a run that was stopped may resume with another. `auto` takes the fastest program for which the
//! machine has the processor, the memory and the index, and which takes the options; the others are taken as named or
//! refused.

use std::path::Path;

use godwit_engines::EngineError;
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::aligner::bwa::{self, IndexKind, IndexState, index_layout};
use godwit_formats::with_causes;

use crate::error::PipelineError;
use crate::machine;
use crate::reference::{current_index, refuse_absent};

/// Bytes that a program holds besides its index: always, for each thread, and for each base of a block.
struct WorkingMemory {
    base_bytes: u64,
    thread_bytes: u64,
    bytes_per_base: f64,
}

/// 960 MB with `-K 100000000` and 135 MB with `-K 10000000`, whatever the threads (bench/results).
const BWA_MEMORY: WorkingMemory = WorkingMemory { base_bytes: 48 << 20, thread_bytes: 0, bytes_per_base: 9.2 };
/// Of reads of 101 bases: 105, 184 and 284 MB with 1, 2 and 4 threads and blocks of 500,000 bases; 295, 358 and 457 MB with blocks of
/// 10 million; 475, 521 and 620 MB with blocks of 20 million.
const BWA_MEM3_MEMORY: WorkingMemory =
    WorkingMemory { base_bytes: 48 << 20, thread_bytes: 50 << 20, bytes_per_base: 19.0 };
/// The reason given for the fastest of all.
const FASTEST: &str = "the fastest aligner with the records of bwa, and this machine has what it needs";

/// A program, selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectedAligner {
    /// The program, known by its index.
    pub(crate) kind: IndexKind,
    /// The reason of `auto`; `None` for a program that the user named.
    pub(crate) reason: Option<String>,
}

impl SelectedAligner {
    /// Name and version, as `bwa-mem3 0.15.0`.
    pub(crate) fn text(&self) -> String {
        format!("{} {}", bwa::library_name(self.kind), bwa::library_version(self.kind))
    }

    /// Name and version.
    pub(crate) fn name_and_version(&self) -> (String, String) {
        (bwa::library_name(self.kind).to_owned(), bwa::library_version(self.kind).to_owned())
    }

    /// A message for the user of `auto` where it is not the fastest.
    pub(crate) fn note(&self) -> Option<String> {
        let reason = self.reason.as_ref().filter(|_| self.kind == IndexKind::Bwa)?;
        Some(format!("{} aligns: {reason}; the records are the same", self.text()))
    }
}

/// The place where the aligner runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On this machine, as one of so many processes that load an index.
    Here {
        /// Processes, this one included.
        processes: u64,
    },
    /// On machines that select for themselves.
    Elsewhere,
}

/// Inputs of a selection.
pub(crate) struct Selection<'a> {
    /// One of the choices whose records are those of bwa.
    pub(crate) choice: &'a AlignerChoice,
    /// The reference, with its indexes beside it.
    pub(crate) reference: &'a Path,
    /// Options of `bwa mem`.
    pub(crate) arguments: &'a [String],
    /// The place where the aligner runs.
    pub(crate) place: Place,
    /// Threads of the aligner.
    pub(crate) threads: usize,
    /// Bases of a block, at most.
    pub(crate) block_bases: u64,
    /// True: the index is compared with the reference, base by base. False: its files are compared with each other.
    pub(crate) compares_reference: bool,
}

impl Selection<'_> {
    /// Selects a program.
    ///
    /// # Errors
    /// [`PipelineError`] where the named program cannot be used, or where `auto` finds none: the processor, the memory, the
    /// program, the index or the options.
    pub(crate) fn select(&self) -> Result<SelectedAligner, PipelineError> {
        self.select_with(machine::free_memory_bytes())
    }

    fn select_with(&self, free_bytes: Option<u64>) -> Result<SelectedAligner, PipelineError> {
        let named = |kind| SelectedAligner { kind, reason: None };
        match self.choice {
            AlignerChoice::Auto => {}
            AlignerChoice::Bwa => return self.check_index(IndexKind::Bwa).map(|()| named(IndexKind::Bwa)),
            _ => return self.check_bwa_mem3(free_bytes).map(|()| named(IndexKind::BwaMem3)),
        }
        let faster = self
            .check_bwa_mem3(free_bytes)
            .and_then(|()| bwa::check_arguments(IndexKind::BwaMem3, self.arguments).map_err(PipelineError::from));
        let Err(problem) = faster else {
            return Ok(SelectedAligner { kind: IndexKind::BwaMem3, reason: Some(FASTEST.to_owned()) });
        };
        if let Err(error) = self.check_index(IndexKind::Bwa) {
            // Where both indexes are missing, that of bwa is the one to name; else the reason against bwa-mem3 says more.
            let both_missing =
                matches!(problem, PipelineError::Missing { .. } | PipelineError::Engine(EngineError::NotFound { .. }));
            return Err(if both_missing { error } else { problem });
        }
        let reason = format!("bwa-mem3 cannot be used ({})", reason_of(&problem));
        Ok(SelectedAligner { kind: IndexKind::Bwa, reason: Some(reason) })
    }

    /// Refuses bwa-mem3 where the processor, the memory or the index does not suffice.
    fn check_bwa_mem3(&self, free_bytes: Option<u64>) -> Result<(), PipelineError> {
        let kind = IndexKind::BwaMem3;
        if let Place::Here { processes } = self.place {
            if let Some(problem) = bwa::processor_problem(kind) {
                return Err(EngineError::Processor { problem }.into());
            }
            // Sizes are known before the files are read.
            self.check_files(kind)?;
            let needed_bytes = processes
                * (bwa::loaded_bytes(self.reference, kind) + working_bytes(kind, self.threads, self.block_bases));
            if let Some(free_bytes) = free_bytes.filter(|free| *free < needed_bytes) {
                return Err(EngineError::Memory {
                    engine: bwa::library_name(kind),
                    reference: self.reference.to_owned(),
                    processes,
                    needed_bytes,
                    free_bytes,
                    remedy: "free memory, or use --aligner bwa, whose index is smaller",
                }
                .into());
            }
        }
        self.check_index(kind)
    }

    fn check_index(&self, kind: IndexKind) -> Result<(), PipelineError> {
        if self.compares_reference { current_index(self.reference, kind).map(drop) } else { self.check_files(kind) }
    }

    fn check_files(&self, kind: IndexKind) -> Result<(), PipelineError> {
        let reference = self.reference;
        let state: IndexState = index_layout(reference, kind)
            .map_err(|source| PipelineError::Index { reference: reference.to_owned(), source })?;
        refuse_absent(reference, state).map(drop)
    }
}

/// Bytes that a process of a program holds besides its index.
pub(crate) fn working_bytes(kind: IndexKind, threads: usize, block_bases: u64) -> u64 {
    let WorkingMemory { base_bytes, thread_bytes, bytes_per_base } = match kind {
        IndexKind::Bwa => BWA_MEMORY,
        IndexKind::BwaMem3 => BWA_MEM3_MEMORY,
    };
    base_bytes + threads as u64 * thread_bytes + (block_bases as f64 * bytes_per_base) as u64
}

/// An error as a part of a sentence.
fn reason_of(problem: &PipelineError) -> String {
    match problem {
        PipelineError::Missing { path, remedy, .. } => format!("{} is missing; {remedy}", path.display()),
        other => with_causes(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies a reference of 40 bases and its indexes of these kinds to a directory, and the files that all kinds share.
    fn reference(directory: &tempfile::TempDir, kinds: &[IndexKind]) -> std::path::PathBuf {
        let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/small_index/ref.fa"));
        let path = directory.path().join("ref.fa");
        std::fs::copy(golden, &path).expect("a file can be copied");
        let of_kinds = kinds.iter().flat_map(|kind| kind.extensions());
        for extension in ["amb", "ann", "pac"].iter().chain(of_kinds) {
            let (from, to) = (golden.with_added_extension(extension), path.with_added_extension(extension));
            std::fs::copy(from, to).expect("a file can be copied");
        }
        path
    }

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory can be made")
    }

    fn select(choice: &AlignerChoice, reference: &Path, free_bytes: u64) -> Result<SelectedAligner, PipelineError> {
        let place = Place::Here { processes: 2 };
        let (threads, block_bases) = (2, 1_000_000);
        let selection =
            Selection { choice, reference, arguments: &[], place, threads, block_bases, compares_reference: false };
        selection.select_with(Some(free_bytes))
    }

    #[test]
    fn bwa_aligns_where_the_memory_or_the_index_of_bwa_mem3_is_missing() {
        let (one, other) = (directory(), directory());
        let both = reference(&one, &[IndexKind::Bwa, IndexKind::BwaMem3]);
        let selected = select(&AlignerChoice::Auto, &both, 1 << 20).unwrap();
        assert_eq!(selected.kind, IndexKind::Bwa);
        let note = selected.note().unwrap();
        assert!(note.contains("349 MB") && note.contains("2 MB are free") && note.contains("2 processes"), "{note}");
        let of_bwa = reference(&other, &[IndexKind::Bwa]);
        let selected = select(&AlignerChoice::Auto, &of_bwa, u64::MAX).unwrap();
        let note = selected.note().unwrap();
        assert!(note.contains("is missing") && note.contains("godwit index"), "{note}");
    }

    #[test]
    fn a_named_aligner_is_refused_where_memory_is_missing() {
        let directory = directory();
        let both = reference(&directory, &[IndexKind::Bwa, IndexKind::BwaMem3]);
        let error = select(&AlignerChoice::BwaMem3, &both, 1 << 20).unwrap_err();
        let text = with_causes(&error);
        assert!(text.contains("349 MB") && text.contains("2 MB are free") && text.contains("--aligner bwa"), "{text}");
        assert_eq!(error.blame(), crate::error::Blame::Machine);
        assert_eq!(select(&AlignerChoice::BwaMem2, &both, u64::MAX).unwrap().kind, IndexKind::BwaMem3);
        assert_eq!(select(&AlignerChoice::Bwa, &both, 0).unwrap().kind, IndexKind::Bwa);
    }

    #[test]
    fn without_any_index_that_of_bwa_is_asked_for() {
        let directory = directory();
        let error = select(&AlignerChoice::Auto, &reference(&directory, &[]), u64::MAX).unwrap_err();
        assert!(matches!(&error, PipelineError::Missing { path, .. } if path.ends_with("ref.fa.bwt")), "{error}");
    }
}
