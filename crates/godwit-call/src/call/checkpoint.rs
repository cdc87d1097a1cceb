//! The job directory of `call`, from which a stopped job resumes: the VCF records of finished regions, and a journal
//! with their checksums.
//!
//! The directory `.NAME.godwit-run` beside the output is private, and is removed when the output is published. The file
//! `records` only grows. The records of a region are flushed to disk before the journal line that refers to them is
//! written. A later process accepts a region only if its bytes still have the recorded checksum.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use godwit_files::{
    AtomicSet, Journal, JournalEntry, finish_publishing, is_locked, is_relative_descendant, parent_directory,
    sync_directory,
};
use godwit_kernels::sort::Spill;
use godwit_pipeline::FingerprintEntry;
use godwit_pipeline::PipelineError;
use godwit_pipeline::job_directory::check_fingerprint;
use godwit_pipeline::scratch::{ScratchDirectory, SpillFile, create_private_directory, unique_name};
use godwit_process::{ResumablePaths, TemporaryPath};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::fingerprint::is_about_reads;
use super::region_calling::RegionCalls;
use super::stall::RegionStall;

/// Subdirectory that the head and the workers of a job share.
const WORKERS_DIRECTORY: &str = "nodes";
/// Subdirectory of links to a BAM that callers read while it is written.
const READS_DIRECTORY: &str = "reads";

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
enum CallJournalEntry {
    /// A job started.
    Start {
        /// Fingerprint of the job.
        #[serde(rename = "facts")]
        fingerprint: Vec<FingerprintEntry>,
    },
    /// A fingerprint of the reads that was not known at the start. Several such entries may describe the same BAM: the
    /// first by the inputs that decide its records, a later one by the content of the complete file.
    Reads {
        /// Fingerprint of the reads.
        #[serde(rename = "facts")]
        fingerprint: Vec<FingerprintEntry>,
    },
    /// A journal entry: a region was called, and its calls are stored.
    Region {
        /// 0-based index of the region in the grid.
        index: usize,
        /// Location and checksum of the calls.
        #[serde(rename = "kept")]
        checkpoint: RegionCheckpoint,
    },
    /// All output files are complete and flushed to disk, and are about to be renamed to their final names.
    Publish {
        /// Temporary and final name of each file, relative to the directory of the output.
        names: Vec<(String, String)>,
    },
}

/// A range of bytes in the file `records`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct ByteRange {
    offset: u64,
    bytes: u64,
}

/// The checkpoint of a finished region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RegionCheckpoint {
    /// Location of the VCF header that the caller wrote for the region.
    pub(super) header: ByteRange,
    /// Location of the lines of the VCF records.
    pub(super) lines: ByteRange,
    /// Number of records.
    pub(super) records: u64,
    /// BLAKE3 of header and lines, hexadecimal.
    checksum: String,
    /// Wall time of the caller, seconds.
    pub(super) seconds: f64,
    /// Number of attempts to call the region, and the worker that called it.
    #[serde(flatten)]
    pub(super) effort: RegionAttempts,
}

/// The attempts to call a region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RegionAttempts {
    /// Number of times that the caller was started.
    pub(super) attempts: u32,
    /// Name of the worker that called the region; `None` without a cluster run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "node")]
    pub(super) worker: Option<String>,
    /// The region or its pieces, where the caller stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) stalls: Vec<RegionStall>,
}

impl ByteRange {
    fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

impl JournalEntry for CallJournalEntry {
    fn is_sound(&self) -> bool {
        match self {
            Self::Start { .. } | Self::Reads { .. } => true,
            Self::Region { checkpoint, .. } => checkpoint.header.end().is_some() && checkpoint.lines.end().is_some(),
            Self::Publish { names } => {
                names.iter().all(|(temporary, name)| is_relative_descendant(temporary) && is_relative_descendant(name))
            }
        }
    }
}

/// An open job directory of `call`.
pub(super) struct CallJobDirectory {
    path: PathBuf,
    /// Directory of the output.
    out_directory: PathBuf,
    journal: Journal<CallJournalEntry>,
    records_file: SpillFile,
    /// VCF headers that are stored already, with their locations. Locked while the calls of a region are appended.
    header_ranges: Mutex<HashMap<Vec<u8>, ByteRange>>,
    /// Regions that were finished when the directory was opened, by their index in the grid.
    pub(super) finished_regions: HashMap<usize, RegionCheckpoint>,
    /// Number of finished regions of an earlier process that were dropped.
    pub(super) dropped_regions: usize,
    /// Fingerprint of the job at its start, followed by each later fingerprint of its reads.
    fingerprints: Mutex<Vec<Vec<FingerprintEntry>>>,
    /// Registers the directory for removal if a signal stops the process, until the first checkpoint is stored.
    resumable: ResumablePaths,
}

/// The state of the job directory at the start of a job.
pub(super) enum CallDirectoryState {
    /// An open job directory; regions without a checkpoint have to be called.
    Open(Box<CallJobDirectory>),
    /// No work remains: the output was complete, and has just been renamed to its final name.
    Complete,
}

impl CallJobDirectory {
    /// Returns the path of the job directory of an output.
    pub(super) fn path_of(out: &Path) -> PathBuf {
        out.with_file_name(format!(".{}.godwit-run", out.file_name().unwrap_or_default().to_string_lossy()))
    }

    /// Opens the job directory of an output. With `resume`, verifies that the stopped job had the same `fingerprint`,
    /// and keeps its checkpoints; otherwise drops them. Entries about reads may be added later:
    /// [`CallJobDirectory::set_reads_fingerprint`].
    ///
    /// # Errors
    /// [`PipelineError::Options`] if the stopped job had another fingerprint, [`PipelineError::File`] for an error of
    /// the file system.
    pub(super) fn open(
        out: &Path,
        fingerprint: &[FingerprintEntry],
        resume: bool,
    ) -> Result<CallDirectoryState, PipelineError> {
        let path = Self::path_of(out);
        let failed = |error| PipelineError::file("use the job directory", &path)(error);
        // A stop by a signal removes a new directory. It is registered as a temporary path here, and as a resumable
        // path below.
        let created = TemporaryPath::create_directory(&path, || create_private_directory(&path));
        let _created = created.map_err(PipelineError::file("create", &path))?;
        let (journal, entries) = Journal::<CallJournalEntry>::open(&path.join("journal")).map_err(failed)?;
        let directory = parent_directory(out);
        let records_file = SpillFile::open_resumable(&path.join("records")).map_err(failed)?;
        // Remove the scratch files of callers that were killed together with an earlier godwit process.
        let _ = fs::remove_dir_all(path.join("scratch"));
        // Remove the rendezvous directory of an earlier head, so that its workers detect the end of that head.
        let _ = fs::remove_dir_all(path.join(WORKERS_DIRECTORY));
        let _ = fs::remove_dir_all(path.join(READS_DIRECTORY));
        let mut run = Self {
            out_directory: directory.to_owned(),
            path: path.clone(),
            journal,
            records_file,
            header_ranges: Mutex::default(),
            finished_regions: HashMap::new(),
            dropped_regions: 0,
            fingerprints: Mutex::default(),
            resumable: ResumablePaths::new([]),
        };
        let regions = entries.iter().filter(|entry| matches!(entry, CallJournalEntry::Region { .. })).count();
        let known = recorded_fingerprints(&entries);
        if !resume || regions == 0 || known.is_empty() {
            run.dropped_regions = regions;
            run.resumable = ResumablePaths::new([path.as_path()]);
            run.reset(fingerprint).map_err(failed)?;
            return Ok(CallDirectoryState::Open(Box::new(run)));
        }
        check_fingerprint(directory, &comparable_fingerprint(&known, fingerprint), fingerprint)?;
        run.fingerprints = Mutex::new(known);
        if let Some(CallJournalEntry::Publish { names }) = entries.last()
            && names.iter().all(|(temporary, name)| directory.join(temporary).exists() || directory.join(name).exists())
        {
            finish_publishing(directory, names).map_err(failed)?;
            run.remove();
            return Ok(CallDirectoryState::Complete);
        }
        run.restore_regions(entries).map_err(failed)?;
        Ok(CallDirectoryState::Open(Box::new(run)))
    }

    /// Sets the fingerprint of the reads. Drops the regions that were called from other reads.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn set_reads_fingerprint(&mut self, reads: &[FingerprintEntry]) -> io::Result<()> {
        let is_known = |known: &Vec<FingerprintEntry>| reads.iter().all(|fact| known.contains(fact));
        let known = self.fingerprints.get_mut();
        if known.iter().any(is_known) {
            return Ok(());
        }
        if !self.finished_regions.is_empty() {
            let start: Vec<FingerprintEntry> =
                known.iter().take(1).flatten().filter(|fact| !is_about_reads(fact)).cloned().collect();
            self.dropped_regions += std::mem::take(&mut self.finished_regions).len();
            self.header_ranges.lock().clear();
            self.reset(&start)?;
        }
        self.add_reads_fingerprint(reads)
    }

    /// Adds another fingerprint of the same reads.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn add_reads_fingerprint(&self, reads: &[FingerprintEntry]) -> io::Result<()> {
        self.journal.append(&CallJournalEntry::Reads { fingerprint: reads.to_vec() })?;
        self.fingerprints.lock().push(reads.to_vec());
        Ok(())
    }

    fn reset(&self, fingerprint: &[FingerprintEntry]) -> io::Result<()> {
        self.journal.clear()?;
        self.records_file.truncate(0)?;
        self.journal.append(&CallJournalEntry::Start { fingerprint: fingerprint.to_vec() })?;
        *self.fingerprints.lock() = vec![fingerprint.to_vec()];
        sync_directory(&self.path)?;
        sync_directory(&self.out_directory)
    }

    /// Restores the finished regions of an earlier process. Regions with a wrong checksum are called again.
    fn restore_regions(&mut self, entries: Vec<CallJournalEntry>) -> io::Result<()> {
        let (mut end, there) = (0, self.records_file.bytes());
        for entry in entries {
            let CallJournalEntry::Region { index, checkpoint } = entry else { continue };
            let ends = [checkpoint.header, checkpoint.lines].map(|place| place.end().unwrap_or(u64::MAX));
            // A region with a piece that was set apart is called again: the caller may get more time now.
            if ends.iter().any(|end| *end > there) || checkpoint.effort.stalls.iter().any(RegionStall::is_set_apart) {
                continue;
            }
            let (header, lines) = (self.read_range(checkpoint.header)?, self.read_range(checkpoint.lines)?);
            if region_checksum(&header, &lines) != checkpoint.checksum {
                continue;
            }
            end = end.max(ends[0]).max(ends[1]);
            self.header_ranges.lock().insert(header, checkpoint.header);
            self.finished_regions.insert(index, checkpoint);
        }
        self.records_file.truncate(end)
    }

    /// Stores the calls of a region: flushes them to disk, then adds a journal entry.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn save_region(
        &self,
        index: usize,
        called: RegionCalls,
        effort: RegionAttempts,
    ) -> io::Result<RegionCheckpoint> {
        let RegionCalls { header, lines, records, seconds, stalls } = called;
        let mut headers = self.header_ranges.lock();
        let checksum = region_checksum(&header, &lines);
        let append = |bytes: &[u8]| -> io::Result<ByteRange> {
            Ok(ByteRange { offset: self.records_file.append(bytes)?, bytes: bytes.len() as u64 })
        };
        let lines = append(&lines)?;
        let header = match headers.get(&header) {
            Some(place) => *place,
            None => *headers.entry(header.clone()).insert_entry(append(&header)?).get(),
        };
        self.records_file.sync()?;
        let kept =
            RegionCheckpoint { header, lines, records, checksum, seconds, effort: RegionAttempts { stalls, ..effort } };
        self.journal.append(&CallJournalEntry::Region { index, checkpoint: kept.clone() })?;
        self.resumable.unregister();
        Ok(kept)
    }

    /// Returns whether a later process can resume from this directory.
    pub(super) fn has_checkpoints(&self) -> bool {
        self.records_file.bytes() > 0
    }

    /// Returns the bytes of a range in the file `records`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn read_range(&self, place: ByteRange) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; place.bytes as usize];
        self.records_file.read_at(place.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the directory that workers and head share, and creates it if it is missing.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn create_workers_directory(&self) -> io::Result<PathBuf> {
        let path = self.path.join(WORKERS_DIRECTORY);
        create_private_directory(&path).map(|()| path)
    }

    /// Creates a directory for the scratch files of callers: below `temp` if it is given, otherwise in the job
    /// directory.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn create_scratch_directory(&self, temp: Option<&Path>) -> io::Result<ScratchDirectory> {
        let path = match temp {
            Some(temp) => temp.join(format!(".godwit-call-{}", unique_name())),
            None => self.path.join("scratch"),
        };
        ScratchDirectory::create(&path)
    }

    /// Creates a directory for hard links to a BAM that callers read while it is written. The directory is beside the
    /// output, like the BAM.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn create_reads_directory(&self) -> io::Result<PathBuf> {
        let path = self.path.join(READS_DIRECTORY);
        create_private_directory(&path)?;
        path.canonicalize()
    }

    /// Records in the journal that all output files are complete: a later process only has to rename them.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn record_publish(&self, staged: &mut AtomicSet) -> io::Result<()> {
        let names = staged.prepare_publishing(&self.out_directory)?;
        self.journal.append(&CallJournalEntry::Publish { names })
    }

    /// Removes the job directory. The journal is removed last, so that a job that stops here is still known to be
    /// complete.
    pub(super) fn remove(self) {
        // Ignore errors: the next job detects and removes the remaining files.
        let _ = fs::remove_dir_all(self.path.join("scratch"));
        let _ = fs::remove_dir_all(self.path.join(WORKERS_DIRECTORY));
        let _ = fs::remove_dir_all(self.path.join(READS_DIRECTORY));
        let _ = fs::remove_file(self.path.join("records"));
        let _ = fs::remove_file(self.path.join("journal"));
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns the fingerprints in a journal.
fn recorded_fingerprints(entries: &[CallJournalEntry]) -> Vec<Vec<FingerprintEntry>> {
    let fingerprint_of = |entry: &CallJournalEntry| match entry {
        CallJournalEntry::Start { fingerprint } | CallJournalEntry::Reads { fingerprint } => Some(fingerprint.clone()),
        CallJournalEntry::Region { .. } | CallJournalEntry::Publish { .. } => None,
    };
    entries.iter().filter_map(fingerprint_of).collect()
}

/// Returns the recorded entries to compare with `now`: the fingerprint of the start, and that fingerprint of the reads
/// which matches, or otherwise the last one. Entries without a counterpart in `now` are omitted; they are compared when
/// the counterpart is known.
fn comparable_fingerprint(known: &[Vec<FingerprintEntry>], now: &[FingerprintEntry]) -> Vec<FingerprintEntry> {
    let Some((start, reads)) = known.split_first() else { return Vec::new() };
    let fits = |reads: &&Vec<FingerprintEntry>| reads.iter().all(|fact| now.contains(fact));
    let is_spoken_of = |fact: &&FingerprintEntry| now.iter().any(|other| other.name == fact.name);
    let reads = reads.iter().find(fits).or(reads.last());
    start.iter().chain(reads.into_iter().flatten()).filter(is_spoken_of).cloned().collect()
}

/// Returns whether another process is calling variants into the output; a job that starts later waits until that
/// process ends.
pub fn is_call_running(out: &Path) -> bool {
    is_locked(&CallJobDirectory::path_of(out).join("journal"))
}

fn region_checksum(header: &[u8], lines: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(header.len() as u64).to_le_bytes()).update(header).update(lines);
    hasher.finalize().to_hex().to_string()
}
