//! The run directory: what an `align` that was stopped leaves for the next one to go on with.
//!
//! `OUT/.godwit` holds the [journal](crate::journal) and files that only grow: `blocks` (the sorted runs of all blocks
//! with their signatures, which is the spill file of the run) and `parts` (compressed partitions that wait for their
//! place, and summaries of all that are done). It is private, it is removed when the outputs have their names, and it is
//! found again by facts, not by dates: versions, options that change records, and the content of every input.
//!
//! A third file, `windows`, holds the text that deflate needs to go on from where blocks start in the files of reads.
//!
//! Nothing here aligns or merges; [`crate::reduce`] asks what is there already.

mod block_appender;
mod block_starts;

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

pub use block_appender::Finished;
pub use block_starts::BlockStart;
use block_starts::BlockStarts;

use crate::error::PipelineError;
use crate::fingerprint::{blocks_text, facts_text};
use crate::journal::{self, BlockEntry, DATA_PREFIX, Entry, Fact, Journal, OverNodes, PartitionEntry};
use crate::partitioned_file::PartPlace;
use crate::runs::RunTable;
use crate::scratch::{SpillFile, create_private_directory};
use crate::staging::{Staged, StagedFile, is_held, sync_directory};

/// Its name within the output directory.
pub const NAME: &str = ".godwit";
/// What a reader of a run that is not over has to know, within it: the name of its outputs, and their header.
pub(crate) const LIVE: &str = "live";
/// What nodes of a run share, within it.
const NODES: &str = "nodes";
/// The files of its data.
const DATA: [&str; 3] = ["blocks", "parts", block_starts::NAME];
/// Bytes read at a time to check what is there.
const CHECK_BYTES: usize = 1 << 20;

/// An open run directory; its journal is locked.
pub struct RunDirectory {
    out: PathBuf,
    journal: Journal,
    /// Where the other files lie.
    data: PathBuf,
    blocks: Arc<SpillFile>,
    parts: Arc<SpillFile>,
    block_starts: BlockStarts,
    plan: OnceLock<PartitionPlan>,
    finished_blocks: BTreeMap<BlockId, BlockEntry>,
    finished_partitions: HashMap<usize, PartitionEntry>,
    /// Blocks that are being aligned: their reads, and the BLAKE3 of these.
    fed: Mutex<HashMap<BlockId, (u64, String)>>,
    /// Blocks are appended one at a time, so that each is one stretch.
    appending: Mutex<()>,
    /// All blocks in the journal, and the BLAKE3 of their reads.
    kept: Mutex<BTreeMap<BlockId, String>>,
    /// What it is a run of.
    facts: Vec<Fact>,
    /// Blocks of an earlier process that are not gone on with.
    dropped_blocks: usize,
    over_nodes: Option<OverNodes>,
    /// The directory and files aside, until a block is kept.
    resumable: ResumablePaths,
}

/// What is to be run, or what is left to do of it.
pub enum Opened {
    /// Blocks and partitions that are not in it.
    Run(Box<RunDirectory>),
    /// Nothing: the outputs only lacked their names, and have them now.
    Complete,
}

/// What a block left.
pub struct KeptBlock {
    /// The block.
    pub id: BlockId,
    /// Records that came out of it.
    pub records: u64,
    /// Its signatures.
    pub signatures: BlockSignatures,
    /// What else marking has to know of its records, where they are on nodes.
    pub details: BlockDetails,
    /// Where its frames lie.
    pub table: RunTable,
}

impl RunDirectory {
    /// Opens the run directory of an output directory. With `resume` what is there is checked against `facts` and kept,
    /// without it is dropped. `aside`: names of files in the output directory that grow while partitions are written.
    /// `over_nodes`: what a run over nodes is known by, if it starts now.
    ///
    /// # Errors
    /// [`PipelineError::Options`] where the run that was stopped had other facts, [`PipelineError::File`].
    pub fn open(
        out: &Path,
        temp: Option<&Path>,
        facts: &[Fact],
        aside: &[String],
        over_nodes: Option<OverNodes>,
        resume: bool,
    ) -> Result<Opened, PipelineError> {
        let path = out.join(NAME);
        let failed = |error| PipelineError::file("use the run directory", &path)(error);
        // A new directory is on the list of temporary paths from the start, and goes over to `resumable` below.
        let created = TemporaryPath::create_directory(&path, || create_private_directory(&path));
        let _created = created.map_err(PipelineError::file("create", &path))?;
        let (journal, entries) = Journal::open(&path.join("journal")).map_err(failed)?;
        let is_block = |entry: &&Entry| matches!(entry, Entry::Block(_));
        let blocks = entries.iter().filter(is_block).count();
        let going_on = resume && blocks > 0 && matches!(entries.first(), Some(Entry::Start { .. }));
        if !going_on {
            drop_leftovers(out, &entries);
            let _ = fs::remove_dir_all(path.join(NODES));
            let _ = fs::remove_file(path.join(LIVE));
            journal.clear().map_err(failed)?;
            let data = temp.map(|temp| data_below(temp, out));
            let _data = data.as_deref().map(TemporaryPath::new);
            let data_bytes = data.as_ref().map(|data| data.as_os_str().as_bytes().to_vec());
            let mut run = Self::with_data(out, journal, data.unwrap_or_else(|| path.clone())).map_err(failed)?;
            run.dropped_blocks = blocks;
            let dropped = run.blocks.truncate(0).and_then(|()| run.parts.truncate(0));
            dropped.and_then(|()| run.block_starts.clear()).map_err(failed)?;
            run.over_nodes.clone_from(&over_nodes);
            run.facts = facts.to_vec();
            let unfinished: Vec<PathBuf> = aside.iter().map(|name| out.join(name)).collect();
            let directories = [run.data.as_path(), path.as_path()];
            run.resumable = ResumablePaths::new(directories.into_iter().chain(unfinished.iter().map(PathBuf::as_path)));
            let (facts, aside) = (facts.to_vec(), aside.to_vec());
            let start = Entry::Start { facts, aside, data: data_bytes, over_nodes };
            run.journal.append(&start).and_then(|()| run.sync_names()).map_err(failed)?;
            return Ok(Opened::Run(Box::new(run)));
        }
        let (mut data, mut before_over_nodes) = (path.clone(), None);
        if let Some(Entry::Start { facts: before, data: elsewhere, over_nodes: before_over, .. }) = entries.first() {
            compare(out, before, facts)?;
            compare_places(out, before_over.is_some(), over_nodes.is_some())?;
            before_over_nodes.clone_from(before_over);
            if let Some(bytes) = elsewhere {
                data = PathBuf::from(std::ffi::OsString::from_vec(bytes.clone()));
            }
        }
        if let Some(Entry::Publish { names }) = entries.last()
            && names.iter().all(|(aside, name)| out.join(aside).exists() || out.join(name).exists())
        {
            give_names(out, names).map_err(failed)?;
            Self::with_data(out, journal, data).map_err(failed)?.remove();
            return Ok(Opened::Complete);
        }
        let mut run = Self::with_data(out, journal, data).map_err(failed)?;
        run.over_nodes = before_over_nodes;
        run.facts = facts.to_vec();
        run.take_over(entries).map_err(failed)?;
        Ok(Opened::Run(Box::new(run)))
    }

    fn with_data(out: &Path, journal: Journal, data: PathBuf) -> io::Result<Self> {
        create_private_directory(&data)?;
        Ok(Self {
            out: out.to_owned(),
            journal,
            blocks: Arc::new(SpillFile::keep(&data.join("blocks"))?),
            parts: Arc::new(SpillFile::keep(&data.join("parts"))?),
            block_starts: BlockStarts::open(&data)?,
            data,
            plan: OnceLock::new(),
            finished_blocks: BTreeMap::new(),
            finished_partitions: HashMap::new(),
            fed: Mutex::default(),
            appending: Mutex::default(),
            kept: Mutex::default(),
            facts: Vec::new(),
            dropped_blocks: 0,
            over_nodes: None,
            resumable: ResumablePaths::new([]),
        })
    }

    /// Lets others look at the reads that are aligned ([`crate::live_run`]), under the name of the outputs. Over nodes these
    /// have them.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn show(&self, name: &str, header: &Header) -> io::Result<()> {
        if self.over_nodes.is_some() {
            return Ok(());
        }
        let path = self.out.join(NAME).join(LIVE);
        let aside = path.with_extension("aside");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(&[name.as_bytes(), b"\n", &header.text()].concat())?;
        fs::rename(aside, path)
    }

    /// Makes the names of the files durable, so that the journal is not without its data.
    fn sync_names(&self) -> io::Result<()> {
        sync_directory(&self.data)?;
        sync_directory(&self.out.join(NAME))?;
        sync_directory(&self.out)
    }

    /// Takes over what is whole of an earlier process's work; what is damaged is done again.
    fn take_over(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        let (mut blocks_end, mut parts_end) = (0, 0);
        for entry in entries {
            match entry {
                Entry::Plan { starts } => {
                    if let Some(plan) = PartitionPlan::from_starts(starts.into_iter().map(SortKey).collect()) {
                        let _ = self.plan.set(plan);
                    }
                }
                Entry::Block(block) if self.is_whole(&block)? => {
                    blocks_end = blocks_end.max(block.offset + block.bytes());
                    self.finished_blocks.insert(block.id, block);
                }
                Entry::Partition(partition) if partition.parts_end() <= self.parts.bytes() => {
                    parts_end = parts_end.max(partition.parts_end());
                    self.finished_partitions.insert(partition.index, partition);
                }
                Entry::BlockStart(start) => self.block_starts.take_over(start),
                Entry::Partition(_) | Entry::Start { .. } | Entry::Block(_) | Entry::Publish { .. } => {}
            }
        }
        if self.plan.get().is_none() {
            self.finished_blocks.clear();
            blocks_end = 0;
        }
        self.kept = Mutex::new(self.finished_blocks.iter().map(|(id, block)| (*id, block.content.clone())).collect());
        self.blocks.truncate(blocks_end)?;
        self.parts.truncate(parts_end)
    }

    fn is_whole(&self, block: &BlockEntry) -> io::Result<bool> {
        if block.offset + block.bytes() > self.blocks.bytes() {
            return Ok(false);
        }
        let hash =
            hash_stretches(&[(block.offset, block.bytes())], |offset, bytes| self.blocks.read_at(offset, bytes))?;
        Ok(hash == block.checksum)
    }

    /// What decides the records: the facts of the run, and the reads of all blocks that are in the journal by now.
    pub fn records_identity(&self) -> String {
        let blocks = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{} {}", facts_text(&self.facts), blocks_text(&blocks));
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }

    /// What a run over nodes is known by.
    pub fn over_nodes(&self) -> Option<&OverNodes> {
        self.over_nodes.as_ref()
    }

    /// BLAKE3 of the reads of a block that was aligned before, or is being aligned.
    pub fn content_of(&self, id: BlockId) -> Option<String> {
        let fed = self.fed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = || self.finished_blocks.get(&id).map(|entry| entry.content.clone());
        fed.get(&id).map(|(_, content)| content.clone()).or_else(before)
    }

    /// Blocks that were done when the directory was opened, and their reads.
    pub fn finished_blocks(&self) -> impl Iterator<Item = &BlockEntry> {
        self.finished_blocks.values()
    }

    /// Where nodes keep their slices: the name of a directory in their scratch space, and what is used where they have none
    /// of their own.
    pub fn for_slices(&self) -> (String, PathBuf) {
        let (name, own) = (data_below(Path::new(""), &self.out), self.out.join(NAME).join(NODES));
        (name.with_extension("slices").to_string_lossy().into_owned(), own)
    }

    /// A directory for what goes on between nodes, made where it is missing.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn for_nodes(&self) -> io::Result<PathBuf> {
        let path = self.out.join(NAME).join(NODES);
        create_private_directory(&path).map(|()| path)
    }

    /// A directory for reads on their way to nodes, made anew, below `temp` where there is one.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn for_reads(&self, temp: Option<&Path>) -> io::Result<PathBuf> {
        let path = match temp {
            Some(temp) => data_below(temp, &self.out).with_extension("reads"),
            None => self.out.join(NAME).join(NODES).join("reads"),
        };
        let _ = fs::remove_dir_all(&path);
        create_private_directory(&path).map(|()| path)
    }

    /// The spill of sorted runs.
    pub fn blocks(&self) -> &Arc<SpillFile> {
        &self.blocks
    }

    /// The spill of compressed parts.
    pub fn parts(&self) -> &Arc<SpillFile> {
        &self.parts
    }

    /// How the first block cut the genome, where it was finished.
    pub fn plan(&self) -> Option<&PartitionPlan> {
        self.plan.get()
    }

    /// Blocks and partitions that were done when the directory was opened.
    pub fn finished(&self) -> (usize, usize) {
        (self.finished_blocks.len(), self.finished_partitions.len())
    }

    /// Blocks that an earlier process had aligned and that were dropped.
    pub fn dropped_blocks(&self) -> usize {
        self.dropped_blocks
    }

    /// Whether somebody could go on with anything.
    pub fn has_work(&self) -> bool {
        !self.kept.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether a block is in the journal, from before or by now.
    pub fn is_kept(&self, id: BlockId) -> bool {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// A block that need not be aligned again.
    pub fn finished_block(&self, id: BlockId) -> Option<&BlockEntry> {
        self.finished_blocks.get(&id)
    }

    /// Says what goes into a block that is about to be aligned: number of reads and their BLAKE3, hexadecimal.
    pub fn note_reads(&self, id: BlockId, reads: u64, content: String) {
        self.fed.lock().unwrap_or_else(PoisonError::into_inner).insert(id, (reads, content));
    }

    /// What each finished block left, in order.
    pub fn kept_blocks(&self) -> impl Iterator<Item = io::Result<KeptBlock>> {
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
            Ok(KeptBlock { id: entry.id, records: entry.records, signatures, details, table })
        })
    }

    fn read_items<T: Pod>(&self, offset: u64, bytes: u64) -> io::Result<Vec<T>> {
        let mut items = vec![T::zeroed(); bytes as usize / size_of::<T>()];
        self.blocks.read_at(offset, bytemuck::cast_slice_mut(&mut items))?;
        Ok(items)
    }

    /// Keeps a partition whose bytes are in `file`, or among the parts, and its summary.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn keep_partition(&self, index: usize, place: PartPlace, file: &StagedFile, summary: &[u8]) -> io::Result<()> {
        let summary_offset = self.parts.append(summary)?;
        if let PartPlace::File { .. } = place {
            file.file().sync_data()?;
        }
        self.parts.sync()?;
        self.journal.append(&Entry::Partition(PartitionEntry {
            index,
            place,
            summary_offset,
            summary_bytes: summary.len() as u64,
            summary_checksum: blake3::hash(summary).to_hex().to_string(),
        }))
    }

    /// Place and summary of a partition that is done, with the BLAKE3 of its bytes as they are now; `None` where it is
    /// not, or is damaged.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn kept_partition(&self, index: usize, file: &StagedFile) -> io::Result<Option<(PartPlace, Vec<u8>, String)>> {
        use std::os::unix::fs::FileExt;
        let Some(entry) = self.finished_partitions.get(&index) else { return Ok(None) };
        let mut summary = vec![0; entry.summary_bytes as usize];
        let read = self.parts.read_at(entry.summary_offset, &mut summary).and_then(|()| match &entry.place {
            PartPlace::File { offset, bytes } => {
                hash_stretches(&[(*offset, *bytes)], |offset, bytes| file.file().read_exact_at(bytes, offset))
            }
            PartPlace::Spill(pieces) => hash_stretches(pieces, |offset, bytes| self.parts.read_at(offset, bytes)),
        });
        match read {
            Ok(hash) if blake3::hash(&summary).to_hex().as_str() == entry.summary_checksum => {
                Ok(Some((entry.place.clone(), summary, hash)))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes that all files are whole: from here on whoever finds them aside only has to give them their names.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn publishing(&self, staged: &mut Staged) -> io::Result<()> {
        let within = |path: &Path| {
            let name = path.strip_prefix(&self.out).map_err(io::Error::other)?;
            name.to_str().map(str::to_owned).ok_or_else(|| io::Error::other("a file name is not UTF-8"))
        };
        let names = staged.files().iter().map(|file| Ok((within(file.aside())?, within(file.path())?)));
        let names = names.collect::<io::Result<_>>()?;
        sync_directory(&self.out)?;
        // Before the line, which may be there even where appending it fails.
        staged.keep();
        self.journal.append(&Entry::Publish { names })
    }

    /// Removes the directory of a run whose outputs have their names. The journal goes last, so that a run stopped here
    /// is still known to be whole.
    pub fn remove(self) {
        // Best effort: what is left is recognised and removed by the next run.
        DATA.iter().for_each(|name| drop(fs::remove_file(self.data.join(name))));
        let path = self.out.join(NAME);
        let _ = fs::remove_dir_all(path.join(NODES));
        if self.data != path {
            let _ = fs::remove_dir(&self.data);
        }
        let _ = fs::remove_file(path.join(LIVE));
        let _ = fs::remove_file(path.join("journal"));
        let _ = fs::remove_dir(&path);
    }

    /// Removes a run that nobody can go on with, and what it left aside.
    pub fn discard(self, aside: &[String]) {
        remove_aside(&self.out, aside);
        self.remove();
    }
}

/// Whether a run that was stopped lies in an output directory. Touches nothing.
///
/// # Errors
/// [`PipelineError::File`] while another process works there.
pub fn has_stopped_run(out: &Path) -> Result<bool, PipelineError> {
    let path = out.join(NAME);
    let journal = path.join("journal");
    if is_held(&journal) {
        let busy = io::Error::new(io::ErrorKind::ResourceBusy, journal::BUSY);
        return Err(PipelineError::file("use the run directory", path)(busy));
    }
    Ok(journal.metadata().is_ok_and(|found| found.len() > 0))
}

/// Refuses facts that differ from those of the run that was stopped, or is finished, in `out`, and says which.
///
/// # Errors
/// [`PipelineError::Options`].
pub fn compare(out: &Path, before: &[Fact], now: &[Fact]) -> Result<(), PipelineError> {
    let value = |facts: &[Fact], name: &str| {
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

/// Refuses to go on over nodes with what one process has done, and the other way round: the records are elsewhere.
fn compare_places(out: &Path, before: bool, now: bool) -> Result<(), PipelineError> {
    let how = match (before, now) {
        (true, false) => "was spread over nodes; add --on as it had",
        (false, true) => "was one process's; leave out --on",
        _ => return Ok(()),
    };
    let problem = format!("cannot resume the run in {}: it {how}, or leave out --resume to start over", out.display());
    Err(PipelineError::Options { problem })
}

/// Where the data of the run into `out` lies below a scratch directory that many runs share.
fn data_below(temp: &Path, out: &Path) -> PathBuf {
    let whole = out.canonicalize().unwrap_or_else(|_| out.to_owned());
    let prefix = String::from_utf8_lossy(DATA_PREFIX);
    temp.join(format!("{prefix}{}", &blake3::hash(whole.as_os_str().as_bytes()).to_hex()[..16]))
}

/// Removes the data and the unfinished outputs of a run that is not gone on with.
fn drop_leftovers(out: &Path, entries: &[Entry]) {
    for entry in entries {
        let Entry::Start { aside, data, .. } = entry else { continue };
        remove_aside(out, aside);
        if let Some(bytes) = data {
            let data = PathBuf::from(std::ffi::OsString::from_vec(bytes.clone()));
            DATA.iter().for_each(|name| drop(fs::remove_file(data.join(name))));
            let _ = fs::remove_dir(data);
        }
    }
}

fn remove_aside(out: &Path, names: &[String]) {
    for path in names.iter().map(|name| out.join(name)) {
        // Not there where the run ended before it wrote.
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

/// Gives names that an earlier process was about to give; those it gave are no longer aside.
///
/// # Errors
/// What the file system reports.
pub fn give_names(out: &Path, names: &[(String, String)]) -> io::Result<()> {
    for (aside, name) in names {
        match fs::rename(out.join(aside), out.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    sync_directory(out)
}

/// BLAKE3 of stretches, one behind the other, hexadecimal.
pub fn hash_stretches(
    stretches: &[(u64, u64)],
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let longest = stretches.iter().map(|(_, bytes)| *bytes as usize).max().unwrap_or(0);
    let mut buffer = vec![0; CHECK_BYTES.min(longest)];
    for (offset, bytes) in stretches {
        let mut at = *offset;
        while at < offset + bytes {
            let chunk = &mut buffer[..CHECK_BYTES.min((offset + bytes - at) as usize)];
            read(at, chunk)?;
            hasher.update(chunk);
            at += chunk.len() as u64;
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}
