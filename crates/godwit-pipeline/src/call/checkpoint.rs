//! The job directory of `call`: records of finished regions and a journal with their checksums, to resume a job.
//!
//! The directory `.NAME.godwit-run` beside the output is private and is removed when the output has its name. `records` only
//! grows; the records of a region are durable before the journal line that names them. A later process accepts a region only
//! if its bytes still have their checksum.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use godwit_kernels::sort::Spill;
use godwit_process::{ResumablePaths, TemporaryPath};
use serde::{Deserialize, Serialize};

use super::fingerprint::is_about_reads;
use super::region_calling::RegionCalls;
use crate::atomic_files::{AtomicFileSet, is_locked, is_relative_descendant, sync_directory};
use crate::error::PipelineError;
use crate::job_directory::{check_fingerprint, rename_to_final};
use crate::journal::{FingerprintEntry, Journal, JournalEntry};
use crate::scratch::{ScratchDirectory, SpillFile, create_private_directory, unique_name};

/// Subdirectory that the workers of a job share.
const WORKERS_DIRECTORY: &str = "nodes";
/// Subdirectory of reads that are called from while they are written.
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
    /// A fingerprint of the reads, when more is known than at the start. Several such entries may describe one file: by what
    /// decides its records, and by its content once it is complete.
    Reads {
        /// Fingerprint of the reads.
        #[serde(rename = "facts")]
        fingerprint: Vec<FingerprintEntry>,
    },
    /// A region is called and its calls are stored.
    Region {
        /// Its index in the grid.
        index: usize,
        /// Its calls.
        #[serde(rename = "kept")]
        checkpoint: RegionCheckpoint,
    },
    /// All files are complete and durable, and are about to get their names.
    Publish {
        /// Temporary and final name of each file, both within the output's directory.
        names: Vec<(String, String)>,
    },
}

/// A range of bytes in `records`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct ByteRange {
    offset: u64,
    bytes: u64,
}

/// The checkpoint of a finished region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RegionCheckpoint {
    /// Header of its VCF.
    pub(super) header: ByteRange,
    /// Lines of its records.
    pub(super) lines: ByteRange,
    /// Number of records.
    pub(super) records: u64,
    /// BLAKE3 of header and lines, hexadecimal.
    checksum: String,
    /// Wall time of the caller, seconds.
    pub(super) seconds: f64,
    /// Number of attempts, and the worker.
    #[serde(flatten)]
    pub(super) effort: RegionAttempts,
}

/// Attempts at calling a region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RegionAttempts {
    /// Number of times that the caller was started.
    pub(super) attempts: u32,
    /// The worker that called it, in a cluster run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "node")]
    pub(super) worker: Option<String>,
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
                names.iter().all(|(aside, name)| is_relative_descendant(aside) && is_relative_descendant(name))
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
    /// Headers that are stored already. Locked while a region is appended.
    header_ranges: Mutex<HashMap<Vec<u8>, ByteRange>>,
    /// Regions that were finished when the directory was opened.
    pub(super) finished_regions: HashMap<usize, RegionCheckpoint>,
    /// Number of regions of an earlier process that are dropped.
    pub(super) dropped_regions: usize,
    /// Fingerprints of the job: at its start, and each later one of its reads.
    fingerprints: Mutex<Vec<Vec<FingerprintEntry>>>,
    /// The directory, until a checkpoint is stored.
    resumable: ResumablePaths,
}

/// The state in which a call starts.
pub(super) enum CallDirectoryState {
    /// Regions without a checkpoint remain.
    Open(Box<CallJobDirectory>),
    /// Nothing remains: the output only lacked its name, and has it now.
    Complete,
}

impl CallJobDirectory {
    /// Returns the path of the job directory of an output.
    pub(super) fn path_of(out: &Path) -> PathBuf {
        out.with_file_name(format!(".{}.godwit-run", out.file_name().unwrap_or_default().to_string_lossy()))
    }

    /// Opens the job directory of an output. With `resume`, its checkpoints are compared with `fingerprint` and kept,
    /// otherwise dropped. Entries about reads may be added later: [`CallJobDirectory::set_reads_fingerprint`].
    ///
    /// # Errors
    /// [`PipelineError::Options`] where the stopped job had another fingerprint, [`PipelineError::File`].
    pub(super) fn open(
        out: &Path,
        fingerprint: &[FingerprintEntry],
        resume: bool,
    ) -> Result<CallDirectoryState, PipelineError> {
        let path = Self::path_of(out);
        let failed = |error| PipelineError::file("use the run directory", &path)(error);
        // A new directory is on the list of temporary paths from the start, and moves to `resumable` below.
        let created = TemporaryPath::create_directory(&path, || create_private_directory(&path));
        let _created = created.map_err(PipelineError::file("create", &path))?;
        let (journal, entries) = Journal::<CallJournalEntry>::open(&path.join("journal")).map_err(failed)?;
        let directory = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let records_file = SpillFile::open_resumable(&path.join("records")).map_err(failed)?;
        // Callers that were killed with their godwit leave their files.
        let _ = fs::remove_dir_all(path.join("scratch"));
        // Workers of an earlier head see by its absence that this head is gone.
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
            && names.iter().all(|(aside, name)| directory.join(aside).exists() || directory.join(name).exists())
        {
            rename_to_final(directory, names).map_err(failed)?;
            run.remove();
            return Ok(CallDirectoryState::Complete);
        }
        run.restore_regions(entries).map_err(failed)?;
        Ok(CallDirectoryState::Open(Box::new(run)))
    }

    /// Sets the fingerprint of the reads. Regions that were called from other reads are dropped.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn set_reads_fingerprint(&mut self, reads: &[FingerprintEntry]) -> io::Result<()> {
        let is_known = |known: &Vec<FingerprintEntry>| reads.iter().all(|fact| known.contains(fact));
        let known = self.fingerprints.get_mut().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(is_known) {
            return Ok(());
        }
        if !self.finished_regions.is_empty() {
            let start: Vec<FingerprintEntry> =
                known.iter().take(1).flatten().filter(|fact| !is_about_reads(fact)).cloned().collect();
            self.dropped_regions += std::mem::take(&mut self.finished_regions).len();
            self.lock_headers().clear();
            self.reset(&start)?;
        }
        self.add_reads_fingerprint(reads)
    }

    /// Adds a further fingerprint of the reads.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn add_reads_fingerprint(&self, reads: &[FingerprintEntry]) -> io::Result<()> {
        self.journal.append(&CallJournalEntry::Reads { fingerprint: reads.to_vec() })?;
        self.fingerprints.lock().unwrap_or_else(PoisonError::into_inner).push(reads.to_vec());
        Ok(())
    }

    fn reset(&self, fingerprint: &[FingerprintEntry]) -> io::Result<()> {
        self.journal.clear()?;
        self.records_file.truncate(0)?;
        self.journal.append(&CallJournalEntry::Start { fingerprint: fingerprint.to_vec() })?;
        *self.fingerprints.lock().unwrap_or_else(PoisonError::into_inner) = vec![fingerprint.to_vec()];
        sync_directory(&self.path)?;
        sync_directory(&self.out_directory)
    }

    /// Restores the undamaged regions of an earlier process; damaged ones are called again.
    fn restore_regions(&mut self, entries: Vec<CallJournalEntry>) -> io::Result<()> {
        let (mut end, there) = (0, self.records_file.bytes());
        for entry in entries {
            let CallJournalEntry::Region { index, checkpoint } = entry else { continue };
            let ends = [checkpoint.header, checkpoint.lines].map(|place| place.end().unwrap_or(u64::MAX));
            if ends.iter().any(|end| *end > there) {
                continue;
            }
            let (header, lines) = (self.read_range(checkpoint.header)?, self.read_range(checkpoint.lines)?);
            if region_checksum(&header, &lines) != checkpoint.checksum {
                continue;
            }
            end = end.max(ends[0]).max(ends[1]);
            self.lock_headers().insert(header, checkpoint.header);
            self.finished_regions.insert(index, checkpoint);
        }
        self.records_file.truncate(end)
    }

    fn lock_headers(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, ByteRange>> {
        // A panicking thread ends the job; no journal line names what it appended.
        self.header_ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a region: makes its records durable and adds a journal entry.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn save_region(
        &self,
        index: usize,
        called: RegionCalls,
        effort: RegionAttempts,
    ) -> io::Result<RegionCheckpoint> {
        let RegionCalls { header, lines, records, seconds } = called;
        let mut headers = self.lock_headers();
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
        let kept = RegionCheckpoint { header, lines, records, checksum, seconds, effort };
        self.journal.append(&CallJournalEntry::Region { index, checkpoint: kept.clone() })?;
        self.resumable.unregister();
        Ok(kept)
    }

    /// Reports whether a later process can resume from this directory.
    pub(super) fn has_checkpoints(&self) -> bool {
        self.records_file.bytes() > 0
    }

    /// Returns bytes that a region stored.
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

    /// Creates a directory for the files of callers: in this directory, or below `temp`.
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

    /// Returns a directory for reads that are called from while they are written: beside the output, as the BAM is.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn create_reads_directory(&self) -> io::Result<PathBuf> {
        let path = self.path.join(READS_DIRECTORY);
        create_private_directory(&path)?;
        path.canonicalize()
    }

    /// Records that all files are complete: a later process only has to give them their names.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn record_publish(&self, staged: &mut AtomicFileSet) -> io::Result<()> {
        let name = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            name.ok_or_else(|| io::Error::other("a file name is not UTF-8"))
        };
        let names = staged.files().iter().map(|file| Ok((name(file.temporary_path())?, name(file.path())?)));
        let names = names.collect::<io::Result<_>>()?;
        sync_directory(&self.out_directory)?;
        staged.keep_on_drop();
        self.journal.append(&CallJournalEntry::Publish { names })
    }

    /// Removes the directory. The journal is removed last, so that a job stopped here is still known to be complete.
    pub(super) fn remove(self) {
        // Best effort: the next job recognises and removes what is left.
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

/// Returns the entries to compare with `now`: those of the start, and of the reads' fingerprints the matching or else the
/// last one. Entries without a counterpart in `now` are left out; they are compared once it is known.
fn comparable_fingerprint(known: &[Vec<FingerprintEntry>], now: &[FingerprintEntry]) -> Vec<FingerprintEntry> {
    let Some((start, reads)) = known.split_first() else { return Vec::new() };
    let fits = |reads: &&Vec<FingerprintEntry>| reads.iter().all(|fact| now.contains(fact));
    let is_spoken_of = |fact: &&FingerprintEntry| now.iter().any(|other| other.name == fact.name);
    let reads = reads.iter().find(fits).or(reads.last());
    start.iter().chain(reads.into_iter().flatten()).filter(is_spoken_of).cloned().collect()
}

/// Reports whether another process works on the output; a later start of a job waits until it ends.
pub fn is_call_running(out: &Path) -> bool {
    is_locked(&CallJobDirectory::path_of(out).join("journal"))
}

fn region_checksum(header: &[u8], lines: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(header.len() as u64).to_le_bytes()).update(header).update(lines);
    hasher.finalize().to_hex().to_string()
}
