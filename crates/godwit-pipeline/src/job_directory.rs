//! The job directory `OUT/.godwit`: the state on disk from which a stopped `align` is resumed.
//!
//! The directory is private to godwit and is removed when the outputs are published. It contains the
//! [journal](crate::journal) and three append-only files:
//!
//! - `blocks`: the sorted runs of all blocks with their duplicate signatures (the spill file of the job).
//! - `parts`: compressed partitions that wait until the partitions before them are written, and the summaries of all
//!   finished partitions.
//! - `windows`: the preceding text that DEFLATE needs to resume reading a compressed FASTQ file at the start of a
//!   block.
//!
//! A job is resumed only if its fingerprint is equal: versions of programs, options that change records, and the
//! content of all inputs. This module does not align or merge; [`crate::reduce`] reads the checkpoints from it.

mod block_appender;
mod block_starts;
mod leftovers;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use godwit_files::{AtomicFile, AtomicSet, BUSY_MESSAGE, Journal, finish_publishing, is_locked, sync_directory};
use godwit_formats::sam::Header;
use godwit_kernels::markdup::{BlockDetails, BlockSignatures, BlockTemplates};
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, PartitionPlan, SortKey};
use godwit_process::{ResumablePaths, TemporaryPath};

pub use block_appender::BlockSummary;
pub use block_starts::BlockStart;
use block_starts::BlockStarts;
use leftovers::{remove_leftovers, remove_temporary_files};
use parking_lot::Mutex;

use crate::error::PipelineError;
use crate::fingerprint::{blocks_text, entries_text, verb_forms};
use crate::journal::{
    AlignJournalEntry, BlockEntry, ClusterRun, DATA_DIRECTORY_PREFIX, FingerprintEntry, PartitionEntry,
};
use crate::partitioned_file::PartLocation;
use crate::runs::RunTable;
use crate::scratch::{SpillFile, create_private_directory, output_id};

/// Name of the job directory within the output directory.
pub const DIRECTORY_NAME: &str = ".godwit";
/// File in the job directory for processes that read the output of an unfinished job: the name of the outputs, and
/// their SAM header.
pub(crate) const HEADER_FILE: &str = "live";
/// Subdirectory of the job directory that all workers of a cluster job share.
const WORKERS_DIRECTORY: &str = "nodes";
/// Names of the append-only files with checkpoints.
const DATA_FILES: [&str; 3] = ["blocks", "parts", block_starts::WINDOWS_FILE];
/// Size of the buffer with which checkpoints are read to verify them, bytes.
const CHECK_BUFFER_BYTES: usize = 1 << 20;

/// An open job directory. Its journal is locked against other processes.
pub struct JobDirectory {
    out: PathBuf,
    journal: Journal<AlignJournalEntry>,
    /// Directory of the files in [`DATA_FILES`].
    data_directory: PathBuf,
    blocks_file: Arc<SpillFile>,
    parts_file: Arc<SpillFile>,
    block_starts: BlockStarts,
    partition_plan: OnceLock<PartitionPlan>,
    finished_blocks: BTreeMap<BlockId, BlockEntry>,
    finished_partitions: HashMap<usize, PartitionEntry>,
    /// Blocks that are being aligned, with the number of their reads and the BLAKE3 of the reads.
    fed_blocks: Mutex<HashMap<BlockId, (u64, String)>>,
    /// The BLAKE3 of the reads of each block that this process has read. A cluster run may read a block again.
    fed_checksums: Mutex<HashMap<BlockId, String>>,
    /// Lock that serialises appends, so that the bytes of each block are contiguous.
    append_lock: Mutex<()>,
    /// All blocks in the journal, with the BLAKE3 of their reads.
    checkpointed_blocks: Mutex<BTreeMap<BlockId, String>>,
    /// The fingerprint of the job, with which its outputs and checkpoints are compared.
    fingerprint: Vec<FingerprintEntry>,
    /// Number of blocks that an earlier process aligned and that are not reused.
    dropped_blocks: usize,
    cluster_run: Option<ClusterRun>,
    /// The job directory and temporary output files. A stop removes them, unless the first block is stored.
    resumable: ResumablePaths,
}

/// The state of a job directory after opening.
pub enum JobDirectoryState {
    /// The job is unfinished. The directory contains the finished blocks and partitions.
    Open(Box<JobDirectory>),
    /// The job is finished: all outputs were complete, and opening the directory has published them.
    Complete,
}

/// The results of a finished block, as stored in the job directory.
pub(crate) struct BlockCheckpoint {
    /// The identifier of the block.
    pub id: BlockId,
    /// Number of records in the block.
    pub records: u64,
    /// Signatures of the records, for duplicate marking.
    pub signatures: BlockSignatures,
    /// Additional data for duplicate marking; empty unless workers store the records.
    pub details: BlockDetails,
    /// Locations of the frames of the sorted run in the `blocks` file.
    pub table: RunTable,
}

impl JobDirectory {
    /// Opens the job directory of an output directory. With `resume`, verifies the checkpoints and compares
    /// `fingerprint`; without it, removes the checkpoints. `temporary_names`: names in the output directory of files
    /// that grow while partitions are written. `cluster_run`: the properties of a new cluster run.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if the stopped job has another fingerprint or was a cluster run and this job is not,
    /// or the reverse. [`PipelineError::File`] if the directory cannot be used.
    pub fn open(
        out: &Path,
        temp: Option<&Path>,
        fingerprint: &[FingerprintEntry],
        temporary_names: &[String],
        cluster_run: Option<ClusterRun>,
        resume: bool,
    ) -> Result<JobDirectoryState, PipelineError> {
        let path = out.join(DIRECTORY_NAME);
        let failed = |error| PipelineError::file("use the job directory", &path)(error);
        // `TemporaryPath` removes a new directory if the process is stopped. `ResumablePaths` below takes over that
        // task.
        let created = TemporaryPath::create_directory(&path, || create_private_directory(&path));
        let _created = created.map_err(PipelineError::file("create", &path))?;
        let (journal, entries) = Journal::<AlignJournalEntry>::open(&path.join("journal")).map_err(failed)?;
        let is_block = |entry: &&AlignJournalEntry| matches!(entry, AlignJournalEntry::Block(_));
        let blocks = entries.iter().filter(is_block).count();
        let going_on = resume && blocks > 0 && matches!(entries.first(), Some(AlignJournalEntry::Start { .. }));
        if !going_on {
            remove_leftovers(out, &entries);
            let _ = fs::remove_dir_all(path.join(WORKERS_DIRECTORY));
            let _ = fs::remove_file(path.join(HEADER_FILE));
            journal.clear().map_err(failed)?;
            let data = temp.map(|temp| data_directory_below(temp, out));
            let _data = data.as_deref().map(TemporaryPath::new);
            let data_bytes = data.as_ref().map(|data| data.as_os_str().as_bytes().to_vec());
            let mut run = Self::open_data_files(out, journal, data.unwrap_or_else(|| path.clone())).map_err(failed)?;
            run.dropped_blocks = blocks;
            let dropped = run.blocks_file.truncate(0).and_then(|()| run.parts_file.truncate(0));
            dropped.and_then(|()| run.block_starts.clear()).map_err(failed)?;
            run.cluster_run.clone_from(&cluster_run);
            run.fingerprint = fingerprint.to_vec();
            let unfinished: Vec<PathBuf> = temporary_names.iter().map(|name| out.join(name)).collect();
            let directories = [run.data_directory.as_path(), path.as_path()];
            run.resumable = ResumablePaths::new(directories.into_iter().chain(unfinished.iter().map(PathBuf::as_path)));
            let (entries, temporary) = (fingerprint.to_vec(), temporary_names.to_vec());
            let start = AlignJournalEntry::Start {
                fingerprint: entries,
                temporary_names: temporary,
                data_directory: data_bytes,
                cluster_run,
            };
            run.journal.append(&start).and_then(|()| run.sync_directories()).map_err(failed)?;
            return Ok(JobDirectoryState::Open(Box::new(run)));
        }
        let (mut data, mut before_over_nodes) = (path.clone(), None);
        if let Some(AlignJournalEntry::Start {
            fingerprint: before,
            data_directory: elsewhere,
            cluster_run: before_over,
            ..
        }) = entries.first()
        {
            check_fingerprint(out, before, fingerprint)?;
            check_cluster_mode(out, before_over.is_some(), cluster_run.is_some())?;
            before_over_nodes.clone_from(before_over);
            if let Some(bytes) = elsewhere {
                data = PathBuf::from(std::ffi::OsString::from_vec(bytes.clone()));
            }
        }
        if let Some(AlignJournalEntry::Publish { names }) = entries.last()
            && names.iter().all(|(temporary, name)| out.join(temporary).exists() || out.join(name).exists())
        {
            finish_publishing(out, names).map_err(failed)?;
            Self::open_data_files(out, journal, data).map_err(failed)?.remove();
            return Ok(JobDirectoryState::Complete);
        }
        let mut run = Self::open_data_files(out, journal, data).map_err(failed)?;
        run.cluster_run = before_over_nodes;
        run.fingerprint = fingerprint.to_vec();
        run.restore_entries(entries).map_err(failed)?;
        Ok(JobDirectoryState::Open(Box::new(run)))
    }

    fn open_data_files(out: &Path, journal: Journal<AlignJournalEntry>, data_directory: PathBuf) -> io::Result<Self> {
        create_private_directory(&data_directory)?;
        Ok(Self {
            out: out.to_owned(),
            journal,
            blocks_file: Arc::new(SpillFile::open_resumable(&data_directory.join("blocks"))?),
            parts_file: Arc::new(SpillFile::open_resumable(&data_directory.join("parts"))?),
            block_starts: BlockStarts::open(&data_directory)?,
            data_directory,
            partition_plan: OnceLock::new(),
            finished_blocks: BTreeMap::new(),
            finished_partitions: HashMap::new(),
            fed_blocks: Mutex::default(),
            fed_checksums: Mutex::default(),
            append_lock: Mutex::default(),
            checkpointed_blocks: Mutex::default(),
            fingerprint: Vec::new(),
            dropped_blocks: 0,
            cluster_run: None,
            resumable: ResumablePaths::new([]),
        })
    }

    /// Writes the header file, with which other processes read the aligned reads of an unfinished job
    /// ([`crate::unfinished_job`]). `name`: the base name of the outputs. Does nothing in a cluster run, whose workers
    /// store the reads.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn write_header_file(&self, name: &str, header: &Header) -> io::Result<()> {
        if self.cluster_run.is_some() {
            return Ok(());
        }
        let mut file = AtomicFile::create(&self.out.join(DIRECTORY_NAME).join(HEADER_FILE))?;
        file.file().set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(&[name.as_bytes(), b"\n", &header.text()].concat())?;
        file.commit_unsynced()
    }

    /// Makes the names of the files durable, so that journal lines never refer to lost files.
    fn sync_directories(&self) -> io::Result<()> {
        sync_directory(&self.data_directory)?;
        sync_directory(&self.out.join(DIRECTORY_NAME))?;
        sync_directory(&self.out)
    }

    /// Restores the undamaged blocks and partitions of an earlier process. Damaged ones are computed again.
    fn restore_entries(&mut self, entries: Vec<AlignJournalEntry>) -> io::Result<()> {
        let (mut blocks_end, mut parts_end) = (0, 0);
        for entry in entries {
            match entry {
                AlignJournalEntry::Plan { starts } => {
                    if let Some(plan) = PartitionPlan::from_starts(starts.into_iter().map(SortKey).collect()) {
                        let _ = self.partition_plan.set(plan);
                    }
                }
                AlignJournalEntry::Block(block) if self.is_whole(&block)? => {
                    blocks_end = blocks_end.max(block.offset + block.total_bytes());
                    self.finished_blocks.insert(block.id, block);
                }
                AlignJournalEntry::Partition(partition) if partition.parts_end() <= self.parts_file.bytes() => {
                    parts_end = parts_end.max(partition.parts_end());
                    self.finished_partitions.insert(partition.index, partition);
                }
                AlignJournalEntry::BlockStart(start) => self.block_starts.add_entry(start),
                AlignJournalEntry::Partition(_)
                | AlignJournalEntry::Start { .. }
                | AlignJournalEntry::Block(_)
                | AlignJournalEntry::Publish { .. } => {}
            }
        }
        if self.partition_plan.get().is_none() {
            self.finished_blocks.clear();
            blocks_end = 0;
        }
        self.checkpointed_blocks =
            Mutex::new(self.finished_blocks.iter().map(|(id, block)| (*id, block.reads_checksum.clone())).collect());
        self.blocks_file.truncate(blocks_end)?;
        self.parts_file.truncate(parts_end)
    }

    fn is_whole(&self, block: &BlockEntry) -> io::Result<bool> {
        if block.offset + block.total_bytes() > self.blocks_file.bytes() {
            return Ok(false);
        }
        let hash = hash_byte_ranges(&[(block.offset, block.total_bytes())], |offset, bytes| {
            self.blocks_file.read_at(offset, bytes)
        })?;
        Ok(hash == block.checksum)
    }

    /// Returns a hash of all values on which the records depend: the fingerprint, and the reads of all blocks in the
    /// journal.
    pub fn records_fingerprint(&self) -> String {
        let blocks = self.checkpointed_blocks.lock();
        let text = format!("{} {}", entries_text(&self.fingerprint), blocks_text(&blocks));
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }

    /// Returns the properties of the cluster run; `None` if the job runs in one process.
    pub fn cluster_run(&self) -> Option<&ClusterRun> {
        self.cluster_run.as_ref()
    }

    /// Returns the BLAKE3 of the reads of a block that an earlier process aligned or that this process is aligning.
    pub fn reads_checksum(&self, id: BlockId) -> Option<String> {
        let fed = self.fed_blocks.lock();
        let before = || self.finished_blocks.get(&id).map(|entry| entry.reads_checksum.clone());
        fed.get(&id).map(|(_, content)| content.clone()).or_else(before)
    }

    /// Returns the blocks that were already finished when the directory was opened.
    pub fn finished_blocks(&self) -> impl Iterator<Item = &BlockEntry> {
        self.finished_blocks.values()
    }

    /// Returns the location at which workers store their slices: the name of a directory in their scratch space, and a
    /// path for workers without scratch space.
    pub fn worker_slices_location(&self) -> (String, PathBuf) {
        let (name, own) =
            (data_directory_below(Path::new(""), &self.out), self.out.join(DIRECTORY_NAME).join(WORKERS_DIRECTORY));
        (name.with_extension("slices").to_string_lossy().into_owned(), own)
    }

    /// Creates the subdirectory that all workers share, if it does not exist, and returns its path.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn create_workers_directory(&self) -> io::Result<PathBuf> {
        let path = self.out.join(DIRECTORY_NAME).join(WORKERS_DIRECTORY);
        create_private_directory(&path).map(|()| path)
    }

    /// Creates an empty directory for the reads that the head sends to workers, and returns its path. The directory is
    /// below `temp`, if given, or else in the job directory.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn create_reads_directory(&self, temp: Option<&Path>) -> io::Result<PathBuf> {
        let path = match temp {
            Some(temp) => data_directory_below(temp, &self.out).with_extension("reads"),
            None => self.out.join(DIRECTORY_NAME).join(WORKERS_DIRECTORY).join("reads"),
        };
        let _ = fs::remove_dir_all(&path);
        create_private_directory(&path).map(|()| path)
    }

    /// Returns the spill file with the sorted runs of all blocks.
    pub(crate) fn blocks_file(&self) -> &Arc<SpillFile> {
        &self.blocks_file
    }

    /// Returns the spill file of compressed partitions.
    pub(crate) fn parts_file(&self) -> &Arc<SpillFile> {
        &self.parts_file
    }

    /// Returns the division of the genome into partitions, which is made when the first block is stored; `None` before.
    pub fn partition_plan(&self) -> Option<&PartitionPlan> {
        self.partition_plan.get()
    }

    /// Returns the numbers of blocks and partitions that were finished when the directory was opened.
    pub fn finished_counts(&self) -> (usize, usize) {
        (self.finished_blocks.len(), self.finished_partitions.len())
    }

    /// Returns the number of blocks that an earlier process aligned and that are not reused.
    pub fn dropped_blocks(&self) -> usize {
        self.dropped_blocks
    }

    /// Reports whether at least one block is stored, so that the job can be resumed.
    pub fn has_checkpoints(&self) -> bool {
        !self.checkpointed_blocks.lock().is_empty()
    }

    /// Reports whether this process or an earlier one has written the block to the journal.
    pub fn is_checkpointed(&self, id: BlockId) -> bool {
        self.checkpointed_blocks.lock().contains_key(&id)
    }

    /// Returns the entry of a block that an earlier process aligned; `None` if the block must be aligned.
    pub fn finished_block(&self, id: BlockId) -> Option<&BlockEntry> {
        self.finished_blocks.get(&id)
    }

    /// Records the reads of a block before they are aligned. `content`: their BLAKE3, hexadecimal. Returns false if this
    /// process has read other reads for the block before.
    #[must_use]
    pub fn record_reads(&self, id: BlockId, reads: u64, content: String) -> bool {
        self.fed_blocks.lock().insert(id, (reads, content.clone()));
        let mut fed_checksums = self.fed_checksums.lock();
        *fed_checksums.entry(id).or_insert_with(|| content.clone()) == content
    }

    /// Returns the checkpoints of all finished blocks, in the order of the blocks.
    pub(crate) fn block_checkpoints(&self) -> impl Iterator<Item = io::Result<BlockCheckpoint>> {
        self.finished_blocks.values().map(|entry| {
            let pairs_at = entry.offset + entry.frame_bytes;
            let ends_at = pairs_at + entry.pair_bytes;
            let pairs = self.read_items(pairs_at, entry.pair_bytes)?;
            let ends = self.read_items(ends_at, entry.end_bytes)?;
            let table_at = ends_at + entry.end_bytes;
            let table = RunTable(self.read_items(table_at, entry.table_bytes)?);
            let templates_at = table_at + entry.table_bytes;
            let templates = match self.read_items(templates_at, entry.template_bytes)? {
                none if none.is_empty() => BlockTemplates::default(),
                bytes => BlockTemplates::from_bytes(&bytes).ok_or(io::ErrorKind::InvalidData)?,
            };
            let barcodes = self.read_items(templates_at + entry.template_bytes, entry.barcode_bytes)?;
            let details = BlockDetails { templates, barcodes };
            let signatures = BlockSignatures { pairs, ends, counts: entry.counts.clone() };
            Ok(BlockCheckpoint { id: entry.id, records: entry.records, signatures, details, table })
        })
    }

    fn read_items<T: Pod>(&self, offset: u64, bytes: u64) -> io::Result<Vec<T>> {
        let mut items = vec![T::zeroed(); bytes as usize / size_of::<T>()];
        self.blocks_file.read_at(offset, bytemuck::cast_slice_mut(&mut items))?;
        Ok(items)
    }

    /// Writes the summary of a finished partition and its journal line. The bytes of the partition are already in
    /// `file` or in the `parts` file.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub(crate) fn save_partition(
        &self,
        index: usize,
        location: PartLocation,
        file: &AtomicFile,
        summary: &[u8],
    ) -> io::Result<()> {
        let summary_offset = self.parts_file.append(summary)?;
        if let PartLocation::File { .. } = location {
            file.file().sync_data()?;
        }
        self.parts_file.sync()?;
        self.journal.append(&AlignJournalEntry::Partition(PartitionEntry {
            index,
            location,
            summary_offset,
            summary_bytes: summary.len() as u64,
            summary_checksum: blake3::hash(summary).to_hex().to_string(),
        }))
    }

    /// Returns the location and summary of a finished partition, and the BLAKE3 of its bytes on disk. Returns `None` if
    /// the partition is unfinished or damaged.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub(crate) fn restore_partition(
        &self,
        index: usize,
        file: &AtomicFile,
    ) -> io::Result<Option<(PartLocation, Vec<u8>, String)>> {
        use std::os::unix::fs::FileExt;
        let Some(entry) = self.finished_partitions.get(&index) else { return Ok(None) };
        let mut summary = vec![0; entry.summary_bytes as usize];
        let read = self.parts_file.read_at(entry.summary_offset, &mut summary).and_then(|()| match &entry.location {
            PartLocation::File { offset, bytes } => {
                hash_byte_ranges(&[(*offset, *bytes)], |offset, bytes| file.file().read_exact_at(bytes, offset))
            }
            PartLocation::Spill(pieces) => {
                hash_byte_ranges(pieces, |offset, bytes| self.parts_file.read_at(offset, bytes))
            }
        });
        match read {
            Ok(hash) if blake3::hash(&summary).to_hex().as_str() == entry.summary_checksum => {
                Ok(Some((entry.location.clone(), summary, hash)))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records in the journal that all output files are complete. A resumed job then only has to rename the files.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn record_publish(&self, staged: &mut AtomicSet) -> io::Result<()> {
        // The files are kept before the append: if it fails, the line may still be in the journal.
        let names = staged.prepare_publishing(&self.out)?;
        self.journal.append(&AlignJournalEntry::Publish { names })
    }

    /// Removes the job directory after the outputs are published. The journal is removed last, so that a job that is
    /// stopped during the removal is still recognised as complete.
    pub fn remove(self) {
        // Errors are ignored, because the next job removes the remaining files.
        DATA_FILES.iter().for_each(|name| drop(fs::remove_file(self.data_directory.join(name))));
        let path = self.out.join(DIRECTORY_NAME);
        let _ = fs::remove_dir_all(path.join(WORKERS_DIRECTORY));
        if self.data_directory != path {
            let _ = fs::remove_dir(&self.data_directory);
        }
        let _ = fs::remove_file(path.join(HEADER_FILE));
        let _ = fs::remove_file(path.join("journal"));
        let _ = fs::remove_dir(&path);
    }

    /// Removes the state of a job that cannot be resumed, and its temporary output files.
    pub fn discard(self, temporary: &[String]) {
        remove_temporary_files(&self.out, temporary);
        self.remove();
    }
}

/// Reports whether an output directory contains a stopped job. Changes no files.
///
/// # Errors
/// [`PipelineError::File`] if another process is using the job directory.
pub fn has_unfinished_job(out: &Path) -> Result<bool, PipelineError> {
    let path = out.join(DIRECTORY_NAME);
    let journal = path.join("journal");
    if is_locked(&journal) {
        let busy = io::Error::new(io::ErrorKind::ResourceBusy, BUSY_MESSAGE);
        return Err(PipelineError::file("use the job directory", path)(busy));
    }
    Ok(journal.metadata().is_ok_and(|found| found.len() > 0))
}

/// Compares the fingerprint of the stopped or finished job in `out` with that of this job.
///
/// # Errors
/// [`PipelineError::Options`] if the fingerprints differ. The message lists the differences.
pub fn check_fingerprint(
    out: &Path,
    before: &[FingerprintEntry],
    now: &[FingerprintEntry],
) -> Result<(), PipelineError> {
    let value = |entries: &[FingerprintEntry], name: &str| {
        entries
            .iter()
            .find(|entry| entry.name == name)
            .map_or_else(|| "not set".to_owned(), |entry| entry.value.clone())
    };
    let mut names: Vec<&str> = before.iter().chain(now).map(|entry| entry.name.as_str()).collect();
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(*name) && value(before, name) != value(now, name));
    if names.is_empty() {
        return Ok(());
    }
    let differences: Vec<String> = names
        .iter()
        .map(|name| {
            let (was, is) = verb_forms(name);
            format!("{name} {was} {} in the stopped job, but {is} {} now", value(before, name), value(now, name))
        })
        .collect();
    let problem = format!(
        "cannot resume the job in {}: {}; use the original options, or start over without --resume",
        out.display(),
        differences.join(", ")
    );
    Err(PipelineError::Options { problem })
}

/// Rejects a resumed job that was a cluster run but now has no workers, or the reverse, because its records are on
/// other hosts.
fn check_cluster_mode(out: &Path, before: bool, now: bool) -> Result<(), PipelineError> {
    let how = match (before, now) {
        (true, false) => "was a cluster run; add its --on options",
        (false, true) => "ran in one process; omit --on",
        _ => return Ok(()),
    };
    let problem = format!("cannot resume the job in {}: it {how}, or start over without --resume", out.display());
    Err(PipelineError::Options { problem })
}

/// Returns the path of the data directory of the job that writes to `out`, within a scratch directory that many jobs
/// share.
fn data_directory_below(temp: &Path, out: &Path) -> PathBuf {
    let prefix = String::from_utf8_lossy(DATA_DIRECTORY_PREFIX);
    temp.join(format!("{prefix}{}", output_id(out)))
}

/// Returns the BLAKE3 of concatenated byte ranges of a file, hexadecimal. Each range is an offset and a length, bytes.
pub fn hash_byte_ranges(
    extents: &[(u64, u64)],
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let longest = extents.iter().map(|(_, bytes)| *bytes as usize).max().unwrap_or(0);
    let mut buffer = vec![0; CHECK_BUFFER_BYTES.min(longest)];
    for (offset, bytes) in extents {
        let mut at = *offset;
        while at < offset + bytes {
            let chunk = &mut buffer[..CHECK_BUFFER_BYTES.min((offset + bytes - at) as usize)];
            read(at, chunk)?;
            hasher.update(chunk);
            at += chunk.len() as u64;
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests;
