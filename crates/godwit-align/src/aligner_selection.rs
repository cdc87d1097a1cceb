//! Selects the program for `--aligner auto`, `bwa` and `bwa-mem3` on this host.
//!
//! All these programs give the records of bwa 0.7.17, so the selection never changes an output. Hosts of one cluster
//! run may select different programs, and a stopped job may resume with another program. `auto` selects the fastest
//! program that supports the options and for which the host has a suitable processor, enough memory and an index. A
//! program that the user named is used or rejected.

use std::path::Path;

use godwit_engines::EngineError;
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::aligner::bwa::{self, IndexKind, IndexState, index_files_state};
use godwit_model::message_with_causes;
use godwit_pipeline::PipelineError;
use godwit_pipeline::host_resources;

use crate::reference::{current_index, require_current_index};

/// Memory of an aligner process besides its index: a fixed amount, an amount per thread, and an amount per base of a
/// block.
struct WorkingMemory {
    base_bytes: u64,
    thread_bytes: u64,
    bytes_per_base: f64,
}

/// Working memory of bwa. Measured (bench/results): 960 MB with `-K 100000000` and 135 MB with `-K 10000000`, for any
/// number of threads.
const BWA_MEMORY: WorkingMemory = WorkingMemory { base_bytes: 48 << 20, thread_bytes: 0, bytes_per_base: 9.2 };
/// Working memory of bwa-mem3. Measured with reads of 101 bases and 1, 2 and 4 threads: 105, 184 and 284 MB for blocks
/// of 500,000 bases; 295, 358 and 457 MB for blocks of 10 million; 475, 521 and 620 MB for blocks of 20 million.
const BWA_MEM3_MEMORY: WorkingMemory =
    WorkingMemory { base_bytes: 48 << 20, thread_bytes: 50 << 20, bytes_per_base: 19.0 };
/// Reason in the report if `auto` selects bwa-mem3, the fastest program.
const FASTEST_REASON: &str = "the fastest aligner with the records of bwa, and this host meets its requirements";

/// The aligner program that was selected for this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectedAligner {
    /// The program, identified by the kind of index that it loads.
    pub(crate) kind: IndexKind,
    /// The reason why `auto` selected the program; `None` for a program that the user named.
    pub(crate) reason: Option<String>,
}

impl SelectedAligner {
    /// Returns name and version of the program, such as `bwa-mem3 0.15.0`.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", bwa::library_name(self.kind), bwa::library_version(self.kind))
    }

    /// Returns name and version of the program.
    pub(crate) fn name_and_version(&self) -> (String, String) {
        (bwa::library_name(self.kind).to_owned(), bwa::library_version(self.kind).to_owned())
    }

    /// Returns a warning for the user if `auto` did not select the fastest program.
    pub(crate) fn fallback_note(&self) -> Option<String> {
        let reason = self.reason.as_ref().filter(|_| self.kind == IndexKind::Bwa)?;
        Some(format!("{} aligns: {reason}; the records are the same", self.label()))
    }
}

/// The hosts where the aligner runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlignerLocation {
    /// The selection for this host, where several processes may load an index at the same time.
    Local {
        /// Number of these processes, including this one.
        processes: u64,
    },
    /// The selection in a cluster run, where each host selects its own program.
    Remote,
}

/// Inputs of a selection.
pub(crate) struct AlignerSelection<'a> {
    /// Choice of the user; only aligners with the records of bwa.
    pub(crate) choice: &'a AlignerChoice,
    /// File of the reference sequence, whose index files are in the same directory.
    pub(crate) reference: &'a Path,
    /// Additional command-line options of `bwa mem`.
    pub(crate) arguments: &'a [String],
    /// The hosts where the aligner runs.
    pub(crate) location: AlignerLocation,
    /// Threads of the aligner.
    pub(crate) threads: usize,
    /// Maximum number of bases of a block.
    pub(crate) block_bases: u64,
    /// If true, the index is compared with the reference, base by base. If false, only the index files are compared
    /// with each other.
    pub(crate) compares_reference: bool,
}

impl AlignerSelection<'_> {
    /// Selects a program.
    ///
    /// # Errors
    /// [`PipelineError`] if the named program cannot be used, or none of the programs for `auto`: because of the
    /// processor, the memory, the index or the options.
    pub(crate) fn select(&self) -> Result<SelectedAligner, PipelineError> {
        self.select_with_free_memory(host_resources::free_memory_bytes())
    }

    fn select_with_free_memory(&self, free_bytes: Option<u64>) -> Result<SelectedAligner, PipelineError> {
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
            return Ok(SelectedAligner { kind: IndexKind::BwaMem3, reason: Some(FASTEST_REASON.to_owned()) });
        };
        if let Err(error) = self.check_index(IndexKind::Bwa) {
            // If both indexes are missing, the error names bwa's index. Otherwise the reason against bwa-mem3 is more
            // useful.
            let both_missing =
                matches!(problem, PipelineError::Missing { .. } | PipelineError::Engine(EngineError::NotFound { .. }));
            return Err(if both_missing { error } else { problem });
        }
        let reason = format!("bwa-mem3 cannot be used ({})", short_reason(&problem));
        Ok(SelectedAligner { kind: IndexKind::Bwa, reason: Some(reason) })
    }

    /// Rejects bwa-mem3 if the processor does not support it, memory is insufficient, or the index is missing or
    /// outdated.
    fn check_bwa_mem3(&self, free_bytes: Option<u64>) -> Result<(), PipelineError> {
        let kind = IndexKind::BwaMem3;
        if let AlignerLocation::Local { processes } = self.location {
            if let Some(problem) = bwa::processor_problem(kind) {
                return Err(EngineError::Processor { problem }.into());
            }
            // Check the memory before the index, because it requires only the sizes of the index files.
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
        let state: IndexState = index_files_state(reference, kind)
            .map_err(|source| PipelineError::Index { reference: reference.to_owned(), source })?;
        require_current_index(reference, state).map(drop)
    }
}

/// Returns the memory that an aligner process uses besides its index, bytes.
pub(crate) fn working_bytes(kind: IndexKind, threads: usize, block_bases: u64) -> u64 {
    let WorkingMemory { base_bytes, thread_bytes, bytes_per_base } = match kind {
        IndexKind::Bwa => BWA_MEMORY,
        IndexKind::BwaMem3 => BWA_MEM3_MEMORY,
    };
    base_bytes + threads as u64 * thread_bytes + (block_bases as f64 * bytes_per_base) as u64
}

/// Returns an error as a text that fits into parentheses in a message.
fn short_reason(problem: &PipelineError) -> String {
    match problem {
        PipelineError::Missing { path, remedy, .. } => format!("{} is missing; {remedy}", path.display()),
        other => message_with_causes(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies a reference of 40 bases, the files that all kinds of index share, and its indexes of `kinds` to a
    /// directory.
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
        let location = AlignerLocation::Local { processes: 2 };
        let (threads, block_bases) = (2, 1_000_000);
        let selection = AlignerSelection {
            choice,
            reference,
            arguments: &[],
            location,
            threads,
            block_bases,
            compares_reference: false,
        };
        selection.select_with_free_memory(Some(free_bytes))
    }

    #[test]
    fn bwa_aligns_where_the_memory_or_the_index_of_bwa_mem3_is_missing() {
        let (one, other) = (directory(), directory());
        let both = reference(&one, &[IndexKind::Bwa, IndexKind::BwaMem3]);
        let selected = select(&AlignerChoice::Auto, &both, 1 << 20).unwrap();
        assert_eq!(selected.kind, IndexKind::Bwa);
        let note = selected.fallback_note().unwrap();
        assert!(note.contains("349 MB") && note.contains("2 MB are free") && note.contains("2 processes"), "{note}");
        let of_bwa = reference(&other, &[IndexKind::Bwa]);
        let selected = select(&AlignerChoice::Auto, &of_bwa, u64::MAX).unwrap();
        let note = selected.fallback_note().unwrap();
        assert!(note.contains("is missing") && note.contains("godwit index"), "{note}");
    }

    #[test]
    fn a_named_aligner_is_refused_where_memory_is_missing() {
        let directory = directory();
        let both = reference(&directory, &[IndexKind::Bwa, IndexKind::BwaMem3]);
        let error = select(&AlignerChoice::BwaMem3, &both, 1 << 20).unwrap_err();
        let text = message_with_causes(&error);
        assert!(text.contains("349 MB") && text.contains("2 MB are free") && text.contains("--aligner bwa"), "{text}");
        assert_eq!(error.kind(), godwit_model::ErrorKind::Machine);
        assert_eq!(select(&AlignerChoice::BwaMem2, &both, u64::MAX).unwrap().kind, IndexKind::BwaMem3);
        assert_eq!(select(&AlignerChoice::Bwa, &both, 0).unwrap().kind, IndexKind::Bwa);
    }

    #[test]
    fn without_any_index_that_of_bwa_is_reported_missing() {
        let directory = directory();
        let error = select(&AlignerChoice::Auto, &reference(&directory, &[]), u64::MAX).unwrap_err();
        assert!(matches!(&error, PipelineError::Missing { path, .. } if path.ends_with("ref.fa.bwt")), "{error}");
    }
}
