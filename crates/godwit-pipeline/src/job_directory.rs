//! The job directory: the persisted state with which a stopped `align` is resumed.
//!
//! `OUT/.godwit` holds the [journal](crate::journal) and append-only files: `blocks` (the sorted runs of all blocks with
//! their signatures, which is the spill file of the job) and `parts` (compressed partitions that wait for their turn, and
//! summaries of all finished ones). It is private. It is removed when the outputs are published. It is matched by its
//! fingerprint, not by dates: versions, options that change records, and the content of every input.
//!
//! A third file, `windows`, holds the text that deflate needs to resume at block starts in the files of reads.
//!
//! This module does not align or merge; [`crate::reduce`] reads the checkpoints from it.

mod block_appender;
mod block_starts;
mod leftovers;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytemuck::Pod;
use godwit_formats::sam::Header;
use godwit_kernels::markdup::{BlockDetails, BlockSignatures, BlockTemplates};
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, PartitionPlan, SortKey};
use godwit_process::{ResumablePaths, TemporaryPath};

pub use block_appender::BlockSummary;
pub use block_starts::BlockStart;
use block_starts::BlockStarts;
pub use leftovers::rename_to_final;
use leftovers::{remove_leftovers, remove_temporary_files};

use crate::atomic_files::{AtomicFile, AtomicFileSet, is_locked, sync_directory};
use crate::error::PipelineError;
use crate::fingerprint::{blocks_text, facts_text};
use crate::journal::{
    self, AlignJournalEntry, BlockEntry, ClusterRun, DATA_DIRECTORY_PREFIX, FingerprintEntry, Journal, PartitionEntry,
};
use crate::partitioned_file::PartLocation;
use crate::runs::RunTable;
use crate::scratch::{SpillFile, create_private_directory};

/// Name of the job directory within the output directory.
pub const DIRECTORY_NAME: &str = ".godwit";
/// File in the job directory for readers of an unfinished job: the name of its outputs, and their header.
pub(crate) const HEADER_FILE: &str = "live";
/// Directory in the job directory that the workers of a job share.
const WORKERS_DIRECTORY: &str = "nodes";
/// Names of the data files.
const DATA_FILES: [&str; 3] = ["blocks", "parts", block_starts::WINDOWS_FILE];
/// Bytes read at a time while checkpoints are verified.
const CHECK_BUFFER_BYTES: usize = 1 << 20;

/// An open job directory, whose journal is locked.
pub struct JobDirectory {
    out: PathBuf,
    journal: Journal,
    /// Directory of the data files.
    data_directory: PathBuf,
    blocks_file: Arc<SpillFile>,
    parts_file: Arc<SpillFile>,
    block_starts: BlockStarts,
    partition_plan: OnceLock<PartitionPlan>,
    finished_blocks: BTreeMap<BlockId, BlockEntry>,
    finished_partitions: HashMap<usize, PartitionEntry>,
    /// Blocks being aligned: the number of their reads, and the BLAKE3 of these.
    fed_blocks: Mutex<HashMap<BlockId, (u64, String)>>,
    /// Serialises appends, so that each block is contiguous.
    append_lock: Mutex<()>,
    /// All blocks in the journal, and the BLAKE3 of their reads.
    checkpointed_blocks: Mutex<BTreeMap<BlockId, String>>,
    /// The fingerprint of the job.
    fingerprint: Vec<FingerprintEntry>,
    /// Number of blocks of an earlier process that are not resumed.
    dropped_blocks: usize,
    cluster_run: Option<ClusterRun>,
    /// The directory and temporary files, to be removed on a stop until the first block is stored.
    resumable: ResumablePaths,
}

/// The state of a job directory after opening.
pub enum JobDirectoryState {
    /// Work is left; the directory holds the finished blocks and partitions.
    Open(Box<JobDirectory>),
    /// No work is left: all outputs were complete and are published now.
    Complete,
}

/// The stored results of a finished block.
pub struct BlockCheckpoint {
    /// The block.
    pub id: BlockId,
    /// Number of its records.
    pub records: u64,
    /// Its signatures.
    pub signatures: BlockSignatures,
    /// Further details for duplicate marking, if workers hold the records.
    pub details: BlockDetails,
    /// Locations of its frames.
    pub table: RunTable,
}

impl JobDirectory {
    /// Opens the job directory of an output directory. With `resume`, the checkpoints are verified against `fingerprint`;
    /// without it, they are removed. `temporary_names`: names, in the output directory, of files that grow while partitions
    /// are written. `cluster_run`: the properties of a new cluster run.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if the stopped job has another fingerprint, and [`PipelineError::File`].
    pub fn open(
        out: &Path,
        temp: Option<&Path>,
        fingerprint: &[FingerprintEntry],
        temporary_names: &[String],
        cluster_run: Option<ClusterRun>,
        resume: bool,
    ) -> Result<JobDirectoryState, PipelineError> {
        let path = out.join(DIRECTORY_NAME);
        let failed = |error| PipelineError::file("use the run directory", &path)(error);
        // A new directory is a temporary path from the start; `resumable` below takes over its removal.
        let created = TemporaryPath::create_directory(&path, || create_private_directory(&path));
        let _created = created.map_err(PipelineError::file("create", &path))?;
        let (journal, entries) = Journal::open(&path.join("journal")).map_err(failed)?;
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
            let (facts, aside) = (fingerprint.to_vec(), temporary_names.to_vec());
            let start = AlignJournalEntry::Start {
                fingerprint: facts,
                temporary_names: aside,
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
            && names.iter().all(|(aside, name)| out.join(aside).exists() || out.join(name).exists())
        {
            rename_to_final(out, names).map_err(failed)?;
            Self::open_data_files(out, journal, data).map_err(failed)?.remove();
            return Ok(JobDirectoryState::Complete);
        }
        let mut run = Self::open_data_files(out, journal, data).map_err(failed)?;
        run.cluster_run = before_over_nodes;
        run.fingerprint = fingerprint.to_vec();
        run.restore_entries(entries).map_err(failed)?;
        Ok(JobDirectoryState::Open(Box::new(run)))
    }

    fn open_data_files(out: &Path, journal: Journal, data_directory: PathBuf) -> io::Result<Self> {
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
            append_lock: Mutex::default(),
            checkpointed_blocks: Mutex::default(),
            fingerprint: Vec::new(),
            dropped_blocks: 0,
            cluster_run: None,
            resumable: ResumablePaths::new([]),
        })
    }

    /// Writes the file with which readers find the aligned reads ([`crate::unfinished_job`]), under the name of the outputs.
    /// In a cluster run, the workers hold the reads, and no file is written.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn write_header_file(&self, name: &str, header: &Header) -> io::Result<()> {
        if self.cluster_run.is_some() {
            return Ok(());
        }
        let path = self.out.join(DIRECTORY_NAME).join(HEADER_FILE);
        let aside = path.with_extension("aside");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(&[name.as_bytes(), b"\n", &header.text()].concat())?;
        fs::rename(aside, path)
    }

    /// Makes the file names durable, so that data of journal lines are not lost.
    fn sync_directories(&self) -> io::Result<()> {
        sync_directory(&self.data_directory)?;
        sync_directory(&self.out.join(DIRECTORY_NAME))?;
        sync_directory(&self.out)
    }

    /// Restores the intact work of an earlier process; damaged work is repeated.
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

    /// Returns a hash of all values that decide the records: the fingerprint, and the reads of all blocks in the journal.
    pub fn records_fingerprint(&self) -> String {
        let blocks = self.checkpointed_blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{} {}", facts_text(&self.fingerprint), blocks_text(&blocks));
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }

    /// Returns the properties of the cluster run, if it is one.
    pub fn cluster_run(&self) -> Option<&ClusterRun> {
        self.cluster_run.as_ref()
    }

    /// Returns the BLAKE3 of the reads of a block that was aligned before, or is being aligned.
    pub fn reads_checksum(&self, id: BlockId) -> Option<String> {
        let fed = self.fed_blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let before = || self.finished_blocks.get(&id).map(|entry| entry.reads_checksum.clone());
        fed.get(&id).map(|(_, content)| content.clone()).or_else(before)
    }

    /// Returns the blocks that were finished when the directory was opened.
    pub fn finished_blocks(&self) -> impl Iterator<Item = &BlockEntry> {
        self.finished_blocks.values()
    }

    /// Returns where workers store their slices: the name of a directory in their scratch space, and the path for workers
    /// without scratch space.
    pub fn worker_slices_location(&self) -> (String, PathBuf) {
        let (name, own) =
            (data_directory_below(Path::new(""), &self.out), self.out.join(DIRECTORY_NAME).join(WORKERS_DIRECTORY));
        (name.with_extension("slices").to_string_lossy().into_owned(), own)
    }

    /// Creates the directory that workers share, unless it exists, and returns its path.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn create_workers_directory(&self) -> io::Result<PathBuf> {
        let path = self.out.join(DIRECTORY_NAME).join(WORKERS_DIRECTORY);
        create_private_directory(&path).map(|()| path)
    }

    /// Creates an empty directory for reads to be sent to workers, below `temp` if given, and returns its path.
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

    /// Returns the spill file of sorted runs.
    pub fn blocks_file(&self) -> &Arc<SpillFile> {
        &self.blocks_file
    }

    /// Returns the spill file of compressed parts.
    pub fn parts_file(&self) -> &Arc<SpillFile> {
        &self.parts_file
    }

    /// Returns the partitions that the first block defined, if it is finished.
    pub fn partition_plan(&self) -> Option<&PartitionPlan> {
        self.partition_plan.get()
    }

    /// Returns the numbers of blocks and partitions that were finished when the directory was opened.
    pub fn finished_counts(&self) -> (usize, usize) {
        (self.finished_blocks.len(), self.finished_partitions.len())
    }

    /// Returns the number of aligned blocks of an earlier process that were dropped.
    pub fn dropped_blocks(&self) -> usize {
        self.dropped_blocks
    }

    /// Reports whether there is work that can be resumed.
    pub fn has_checkpoints(&self) -> bool {
        !self.checkpointed_blocks.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Reports whether a block is in the journal, written by an earlier process or by this one.
    pub fn is_checkpointed(&self, id: BlockId) -> bool {
        self.checkpointed_blocks.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// Returns a block that need not be aligned again.
    pub fn finished_block(&self, id: BlockId) -> Option<&BlockEntry> {
        self.finished_blocks.get(&id)
    }

    /// Records the input of a block before it is aligned: number of reads and their BLAKE3, hexadecimal.
    pub fn record_reads(&self, id: BlockId, reads: u64, content: String) {
        self.fed_blocks.lock().unwrap_or_else(PoisonError::into_inner).insert(id, (reads, content));
    }

    /// Returns the checkpoint of each finished block, in order.
    pub fn block_checkpoints(&self) -> impl Iterator<Item = io::Result<BlockCheckpoint>> {
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

    /// Stores a partition, whose bytes are in `file` or in the parts file, and its summary.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn save_partition(
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

    /// Returns location and summary of a finished partition, with the BLAKE3 of its present bytes; `None` if it is
    /// unfinished or damaged.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn restore_partition(
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

    /// Records that all files are complete: from now on a resumed job only has to rename them.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn record_publish(&self, staged: &mut AtomicFileSet) -> io::Result<()> {
        let within = |path: &Path| {
            let name = path.strip_prefix(&self.out).map_err(io::Error::other)?;
            name.to_str().map(str::to_owned).ok_or_else(|| io::Error::other("a file name is not UTF-8"))
        };
        let names = staged.files().iter().map(|file| Ok((within(file.temporary_path())?, within(file.path())?)));
        let names = names.collect::<io::Result<_>>()?;
        sync_directory(&self.out)?;
        // Before the append: the line may have been written even if appending fails.
        staged.keep_on_drop();
        self.journal.append(&AlignJournalEntry::Publish { names })
    }

    /// Removes the directory of a job whose outputs are published. The journal is removed last, so that a job stopped here
    /// is still known to be complete.
    pub fn remove(self) {
        // Best effort: the next job recognises and removes what is left.
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

    /// Removes a job that cannot be resumed, and its temporary files.
    pub fn discard(self, aside: &[String]) {
        remove_temporary_files(&self.out, aside);
        self.remove();
    }
}

/// Reports whether an output directory holds a stopped job. Changes nothing.
///
/// # Errors
/// [`PipelineError::File`] if another process works there.
pub fn has_unfinished_job(out: &Path) -> Result<bool, PipelineError> {
    let path = out.join(DIRECTORY_NAME);
    let journal = path.join("journal");
    if is_locked(&journal) {
        let busy = io::Error::new(io::ErrorKind::ResourceBusy, journal::BUSY_MESSAGE);
        return Err(PipelineError::file("use the run directory", path)(busy));
    }
    Ok(journal.metadata().is_ok_and(|found| found.len() > 0))
}

/// Rejects a fingerprint that differs from that of the stopped or finished job in `out`, and names the differences.
///
/// # Errors
/// [`PipelineError::Options`] if the fingerprints differ.
pub fn check_fingerprint(
    out: &Path,
    before: &[FingerprintEntry],
    now: &[FingerprintEntry],
) -> Result<(), PipelineError> {
    let value = |facts: &[FingerprintEntry], name: &str| {
        facts.iter().find(|fact| fact.name == name).map_or_else(|| "not given".to_owned(), |fact| fact.value.clone())
    };
    let mut names: Vec<&str> = before.iter().chain(now).map(|fact| fact.name.as_str()).collect();
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(*name) && value(before, name) != value(now, name));
    if names.is_empty() {
        return Ok(());
    }
    let differences: Vec<String> = names
        .iter()
        .map(|name| format!("{name} was {} and is {} now", value(before, name), value(now, name)))
        .collect();
    let problem = format!(
        "cannot resume the run in {}: {}; give what it was given, or leave out --resume to start over",
        out.display(),
        differences.join(", ")
    );
    Err(PipelineError::Options { problem })
}

/// Rejects a resumed cluster run without workers, and the other way round: the records are elsewhere.
fn check_cluster_mode(out: &Path, before: bool, now: bool) -> Result<(), PipelineError> {
    let how = match (before, now) {
        (true, false) => "was spread over nodes; add --on as it had",
        (false, true) => "was one process's; leave out --on",
        _ => return Ok(()),
    };
    let problem = format!("cannot resume the run in {}: it {how}, or leave out --resume to start over", out.display());
    Err(PipelineError::Options { problem })
}

/// Returns the data directory of the job into `out`, below a scratch directory that many jobs share.
fn data_directory_below(temp: &Path, out: &Path) -> PathBuf {
    let whole = out.canonicalize().unwrap_or_else(|_| out.to_owned());
    let prefix = String::from_utf8_lossy(DATA_DIRECTORY_PREFIX);
    temp.join(format!("{prefix}{}", &blake3::hash(whole.as_os_str().as_bytes()).to_hex()[..16]))
}

/// Returns the BLAKE3 of the concatenated byte ranges (offset, bytes), hexadecimal.
pub fn hash_byte_ranges(
    stretches: &[(u64, u64)],
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let longest = stretches.iter().map(|(_, bytes)| *bytes as usize).max().unwrap_or(0);
    let mut buffer = vec![0; CHECK_BUFFER_BYTES.min(longest)];
    for (offset, bytes) in stretches {
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
