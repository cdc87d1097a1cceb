//! The checkpoints that a worker leaves for a later worker of the same job: a file with its slices, and a journal with
//! one line per block. A line contains the locations and checksums of the slices of the block.
//!
//! A worker takes over the first directory of its job that no running process has locked, or creates a new one. Data
//! are not flushed to disk: data that a power failure destroys have a wrong checksum and count as missing. Directories
//! of other jobs with the same output are removed, because these jobs cannot be resumed.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use godwit_exchange::{PerFile, ShardId};
use godwit_files::{Journal, JournalEntry, is_locked, write_atomically};
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, SortKey};
use godwit_pipeline::job_directory::hash_byte_ranges;
use godwit_pipeline::partitioned_file::PartLocation;
use godwit_pipeline::reduce::CompressedPart;
use godwit_pipeline::runs::{RunTable, SliceLocation, SliceStore};
use godwit_pipeline::scratch::{SpillFile, create_private_directory};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::align_messages::CheckpointLocation;

/// Maximum time to wait for workers of the previous head, which end when they detect that their head has ended.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(15);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Names of the files in a checkpoint directory.
const JOURNAL_FILE: &str = "journal";
const SLICES_FILE: &str = "slices";
const HOLDER_FILE: &str = "holder";
/// Size of the buffer with which checkpoints are read and verified, bytes.
const CHECK_BUFFER_BYTES: u64 = 1 << 20;

/// A line of the journal of a worker.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub(super) enum WorkerJournalEntry {
    /// The partitions of the genome and the number of shards; all later lines depend on both.
    Plan {
        starts: Vec<u64>,
        #[serde(rename = "shares")]
        shards: u16,
    },
    /// Locations of slices of a block.
    Slices {
        block: BlockId,
        #[serde(rename = "content")]
        reads_checksum: String,
        slices: Vec<SliceCheckpoint>,
    },
    /// Location of a part of the output file.
    Part(PartCheckpoint),
}

/// A part of the output file that is complete in the spill file, but may not have been copied into the output file yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PartCheckpoint {
    /// Checksum of the inputs and options from which the part was built.
    #[serde(rename = "made_of")]
    input_checksum: String,
    /// 0-based number of the part.
    part: usize,
    /// Byte ranges of the part in the spill file, as offset and length. `checksum` is the BLAKE3 of their bytes,
    /// hexadecimal.
    #[serde(rename = "pieces")]
    byte_ranges: Vec<(u64, u64)>,
    checksum: String,
    /// Location and checksum of the report about the part.
    report_offset: u64,
    report_bytes: u64,
    report_checksum: String,
}

impl PartCheckpoint {
    fn end(&self) -> u64 {
        let pieces = self.byte_ranges.iter().map(|(offset, bytes)| offset + bytes);
        pieces.max().unwrap_or(0).max(self.report_offset + self.report_bytes)
    }
}

/// The location of a slice in the slices file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SliceCheckpoint {
    #[serde(rename = "share")]
    shard: ShardId,
    offset: u64,
    bytes: u64,
    /// BLAKE3 of the bytes of the slice, hexadecimal.
    checksum: String,
    /// Location and checksum of the frame table of the slice. The tables follow the bytes of all slices of the journal
    /// line.
    table_offset: u64,
    table_bytes: u64,
    table_checksum: String,
}

impl SliceCheckpoint {
    fn end(&self) -> u64 {
        (self.offset + self.bytes).max(self.table_offset + self.table_bytes)
    }

    /// Returns the BLAKE3 of the bytes of the slice in `spill`. Also passes each chunk and its offset in the slice to
    /// `hand_on`.
    fn hash_bytes(
        &self,
        spill: &SpillFile,
        mut hand_on: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; CHECK_BUFFER_BYTES.min(self.bytes) as usize];
        for start in (0..self.bytes).step_by(CHECK_BUFFER_BYTES as usize) {
            let chunk = &mut buffer[..CHECK_BUFFER_BYTES.min(self.bytes - start) as usize];
            spill.read_at(self.offset + start, chunk)?;
            hasher.update(chunk);
            hand_on(start, chunk)?;
        }
        Ok(hasher.finalize())
    }
}

impl JournalEntry for WorkerJournalEntry {
    fn is_sound(&self) -> bool {
        let ends = |slice: &SliceCheckpoint| {
            slice.offset.checked_add(slice.bytes).is_some()
                && slice.table_offset.checked_add(slice.table_bytes).is_some()
        };
        match self {
            Self::Plan { .. } => true,
            Self::Slices { slices, .. } => slices.iter().all(ends),
            Self::Part(part) => {
                let report = (part.report_offset, part.report_bytes);
                let all = part.byte_ranges.iter().chain([&report]);
                // Reject lengths whose sum overflows. The sum is the size of the part and its report.
                let sum = all.clone().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes));
                sum.is_some() && all.into_iter().all(|(offset, bytes)| offset.checked_add(*bytes).is_some())
            }
        }
    }
}

/// The checkpoints of this worker, locked against other processes.
pub(super) struct WorkerCheckpoints {
    directory: PathBuf,
    cluster_run_id: String,
    journal: Journal<WorkerJournalEntry>,
    spill: Arc<SpillFile>,
    /// Journal lines of an earlier process, until they are restored.
    unread_entries: Mutex<Vec<WorkerJournalEntry>>,
    /// Parts of an earlier process, by number of the part, after the journal was restored.
    part_checkpoints: Mutex<HashMap<usize, PartCheckpoint>>,
}

impl WorkerCheckpoints {
    /// Opens the checkpoint directory of an earlier worker of the job, or creates a new one. Waits for workers of the
    /// previous head that have not ended yet.
    pub(super) fn open(at: &CheckpointLocation, temp: Option<&Path>, cancelled: &Arc<AtomicBool>) -> io::Result<Self> {
        let root = at.root(temp);
        create_private_directory(&root)?;
        let until = Instant::now() + PREDECESSOR_TIMEOUT;
        loop {
            let names = directory_names(&root)?;
            remove_other_runs(&root, &names, &at.cluster_run_id);
            let mut awaited = false;
            for name in names.iter().filter(|name| belongs_to_run(name, &at.cluster_run_id)) {
                if let Some(kept) = Self::open_directory(&root.join(name), at, cancelled)? {
                    return Ok(kept);
                }
                let holder = fs::read_to_string(root.join(name).join(HOLDER_FILE)).unwrap_or_default();
                awaited |= !holder.is_empty() && holder != at.head_id;
            }
            if !awaited || Instant::now() > until {
                return Self::create_directory(&root, &names, at, cancelled);
            }
            std::thread::sleep(LOCK_POLL_INTERVAL);
        }
    }

    fn create_directory(
        root: &Path,
        names: &[String],
        at: &CheckpointLocation,
        cancelled: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let mut number = names.len();
        loop {
            let directory = root.join(format!("{}-{number}", at.cluster_run_id));
            match fs::create_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made?;
                    if let Some(kept) = Self::open_directory(&directory, at, cancelled)? {
                        return Ok(kept);
                    }
                }
            }
            number += 1;
        }
    }

    /// Opens a directory; returns `None` if another process has locked it.
    fn open_directory(
        directory: &Path,
        at: &CheckpointLocation,
        cancelled: &Arc<AtomicBool>,
    ) -> io::Result<Option<Self>> {
        let (journal, found) = match Journal::open(&directory.join(JOURNAL_FILE)) {
            // Another process has locked the directory, or is removing it.
            Err(error) if matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::NotFound) => {
                return Ok(None);
            }
            opened => opened?,
        };
        write_atomically(&directory.join(HOLDER_FILE), at.head_id.as_bytes())?;
        let spill = Arc::new(SpillFile::open_without_digest(&directory.join(SLICES_FILE), cancelled.clone())?);
        Ok(Some(Self {
            directory: directory.to_owned(),
            cluster_run_id: at.cluster_run_id.clone(),
            journal,
            spill,
            unread_entries: Mutex::new(found),
            part_checkpoints: Mutex::default(),
        }))
    }

    pub(super) fn spill(&self) -> &Arc<SpillFile> {
        &self.spill
    }

    /// Adds the slices of an earlier process to `store` if their checksums match. Returns these slices as blocks,
    /// checksums of the reads of the blocks, and shards.
    pub(super) fn restore_slices(
        &self,
        starts: &[SortKey],
        shares: u16,
        store: &SliceStore,
    ) -> io::Result<Vec<(BlockId, String, Vec<ShardId>)>> {
        let plan = plan_entry(starts, shares);
        let found = std::mem::take(&mut *self.unread_entries.lock());
        if found.first() != Some(&plan) {
            self.journal.clear()?;
            self.spill.truncate(0)?;
            self.journal.append_unsynced(&plan)?;
            return Ok(Vec::new());
        }
        let (mut recalled, mut end) = (Vec::new(), 0);
        for line in found {
            let (block, content, slices) = match line {
                WorkerJournalEntry::Slices { block, reads_checksum, slices } => (block, reads_checksum, slices),
                WorkerJournalEntry::Part(part) if part.end() <= self.spill.bytes() => {
                    end = end.max(part.end());
                    self.part_checkpoints.lock().insert(part.part, part);
                    continue;
                }
                WorkerJournalEntry::Part(_) | WorkerJournalEntry::Plan { .. } => continue,
            };
            let mut whole = Vec::new();
            for slice in slices {
                if self.spill.is_cancelled() {
                    return Ok(Vec::new());
                }
                end = end.max(slice.end().min(self.spill.bytes()));
                if self.restore_slice(block, &slice, store)? {
                    whole.push(slice.shard);
                }
            }
            recalled.push((block, content, whole));
        }
        // Remove the bytes after `end`, which the earlier process had not written completely.
        self.spill.truncate(end)?;
        Ok(recalled)
    }

    /// Adopts slices of earlier workers whose directories no running worker has taken over: copies the slices, and
    /// removes the originals. `begin` lets concurrent workers start at different directories. Returns the same as
    /// [`WorkerCheckpoints::restore_slices`].
    pub(super) fn adopt_slices(
        &self,
        (starts, shares): (&[SortKey], u16),
        begin: usize,
        store: &SliceStore,
    ) -> io::Result<Vec<(BlockId, String, Vec<ShardId>)>> {
        let Some(root) = self.directory.parent() else { return Ok(Vec::new()) };
        let mut names = directory_names(root)?;
        names.retain(|name| belongs_to_run(name, &self.cluster_run_id));
        let (plan, mut inherited, turn) = (plan_entry(starts, shares), Vec::new(), begin % names.len().max(1));
        names.rotate_left(turn);
        for directory in names.iter().map(|name| root.join(name)) {
            let Ok((journal, lines)) = Journal::<WorkerJournalEntry>::open(&directory.join(JOURNAL_FILE)) else {
                continue;
            };
            let from = SpillFile::open_without_digest(&directory.join(SLICES_FILE), Arc::default())?;
            for line in lines.into_iter().skip_while(|line| *line != plan) {
                let WorkerJournalEntry::Slices { block, reads_checksum, slices } = line else { continue };
                if self.spill.is_cancelled() {
                    return Ok(inherited);
                }
                let copied = slices.iter().map(|slice| self.copy_slice(block, slice, &from, store));
                let copied: Vec<Option<ShardId>> = copied.collect::<io::Result<_>>()?;
                let shares: Vec<ShardId> = copied.into_iter().flatten().collect();
                self.record_slices(block, &reads_checksum, shares.iter().copied(), store)?;
                inherited.push((block, reads_checksum, shares));
            }
            remove_unlocked(&directory, false);
            drop(journal);
        }
        Ok(inherited)
    }

    /// Copies a slice from the spill file `from` if its checksum matches.
    fn copy_slice(
        &self,
        block: BlockId,
        slice: &SliceCheckpoint,
        from: &SpillFile,
        store: &SliceStore,
    ) -> io::Result<Option<ShardId>> {
        if slice.end() > from.bytes() || store.slice(block, usize::from(slice.shard.0)).is_some() {
            return Ok(None);
        }
        let mut table = vec![0; slice.table_bytes as usize];
        from.read_at(slice.table_offset, &mut table)?;
        let offset = self.spill.reserve(slice.bytes);
        let checksum = slice.hash_bytes(from, |at, chunk| self.spill.write_at(offset + at, chunk))?;
        let is_whole = checksum.to_hex().as_str() == slice.checksum && short_checksum(&table) == slice.table_checksum;
        let place = SliceLocation { offset, bytes: slice.bytes, checksum };
        let taken = is_whole && store.add_slice(block, usize::from(slice.shard.0), place, &RunTable(table));
        Ok(taken.then_some(slice.shard))
    }

    fn restore_slice(&self, block: BlockId, slice: &SliceCheckpoint, store: &SliceStore) -> io::Result<bool> {
        if slice.end() > self.spill.bytes() {
            return Ok(false);
        }
        let mut table = vec![0; slice.table_bytes as usize];
        self.spill.read_at(slice.table_offset, &mut table)?;
        let checksum = slice.hash_bytes(&self.spill, |_, _| Ok(()))?;
        let is_whole = checksum.to_hex().as_str() == slice.checksum && short_checksum(&table) == slice.table_checksum;
        let place = SliceLocation { offset: slice.offset, bytes: slice.bytes, checksum };
        Ok(is_whole && store.add_slice(block, usize::from(slice.shard.0), place, &RunTable(table)))
    }

    /// Writes a journal line with the locations of slices that are in `store`.
    pub(super) fn record_slices(
        &self,
        block: BlockId,
        content: &str,
        shares: impl Iterator<Item = ShardId>,
        store: &SliceStore,
    ) -> io::Result<()> {
        let held: Vec<(ShardId, SliceLocation, RunTable)> = shares
            .filter_map(|share| {
                let (place, table) = store.slice(block, usize::from(share.0))?;
                Some((share, place, table))
            })
            .collect();
        let tables: Vec<u8> = held.iter().flat_map(|(_, _, table)| table.0.iter().copied()).collect();
        let mut table_offset = self.spill.append(&tables)?;
        let slice = |(shard, place, table): (ShardId, SliceLocation, RunTable)| {
            let table_bytes = table.0.len() as u64;
            table_offset += table_bytes;
            SliceCheckpoint {
                shard,
                offset: place.offset,
                bytes: place.bytes,
                checksum: place.checksum.to_hex().to_string(),
                table_offset: table_offset - table_bytes,
                table_bytes,
                table_checksum: short_checksum(&table.0),
            }
        };
        let slices = held.into_iter().map(slice).collect();
        self.journal.append_unsynced(&WorkerJournalEntry::Slices { block, reads_checksum: content.to_owned(), slices })
    }

    /// Writes a journal line with the location of a part that is in the spill file.
    pub(super) fn record_part(&self, made_of: &str, part: usize, made: &CompressedPart) -> io::Result<()> {
        let PerFile { bam: Some(PartLocation::Spill(pieces)), cram: None } = &made.locations else { return Ok(()) };
        let Some(checksum) = &made.checksum else { return Ok(()) };
        let report_offset = self.spill.append(&made.report)?;
        self.journal.append_unsynced(&WorkerJournalEntry::Part(PartCheckpoint {
            input_checksum: made_of.to_owned(),
            part,
            byte_ranges: pieces.clone(),
            checksum: checksum.clone(),
            report_offset,
            report_bytes: made.report.len() as u64,
            report_checksum: short_checksum(&made.report),
        }))
    }

    /// Returns a part that an earlier process built, if its inputs are unchanged and its checksums match.
    pub(super) fn restore_part(&self, made_of: &str, part: usize) -> io::Result<Option<CompressedPart>> {
        let Some(kept) = self.part_checkpoints.lock().remove(&part).filter(|kept| kept.input_checksum == made_of)
        else {
            return Ok(None);
        };
        let mut report = vec![0; kept.report_bytes as usize];
        self.spill.read_at(kept.report_offset, &mut report)?;
        let found = hash_byte_ranges(&kept.byte_ranges, |offset, bytes| self.spill.read_at(offset, bytes))?;
        if found != kept.checksum || short_checksum(&report) != kept.report_checksum {
            return Ok(None);
        }
        let bytes = kept.byte_ranges.iter().map(|(_, bytes)| bytes).sum();
        let locations = PerFile { bam: Some(PartLocation::Spill(kept.byte_ranges)), cram: None };
        let bytes = PerFile { bam: bytes, cram: 0 };
        Ok(Some(CompressedPart { locations, bytes, checksum: Some(kept.checksum), report }))
    }

    /// Removes these checkpoints, and those of lost workers of the job on this host, because the job does not need them
    /// any more.
    pub(super) fn remove(self) {
        let Some(root) = self.directory.parent() else { return };
        remove_unlocked(&self.directory, false);
        for name in
            directory_names(root).unwrap_or_default().iter().filter(|name| belongs_to_run(name, &self.cluster_run_id))
        {
            remove_unlocked(&root.join(name), true);
        }
        // Removing the parent directory fails as long as it contains the directories of other workers.
        let _ = fs::remove_dir(root);
    }
}

fn plan_entry(starts: &[SortKey], shards: u16) -> WorkerJournalEntry {
    WorkerJournalEntry::Plan { starts: starts.iter().map(|start| start.0).collect(), shards }
}

fn short_checksum(bytes: &[u8]) -> String {
    godwit_files::line_checksum(bytes)
}

fn directory_names(root: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(root)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(entries.collect::<BTreeSet<_>>().into_iter().collect())
}

fn belongs_to_run(name: &str, run: &str) -> bool {
    name.strip_prefix(run).is_some_and(|rest| rest.starts_with('-'))
}

fn remove_other_runs(root: &Path, names: &[String], run: &str) {
    names.iter().filter(|name| !belongs_to_run(name, run)).for_each(|name| remove_unlocked(&root.join(name), true));
}

/// Removes a checkpoint directory; if `unless_held` is true, only if no process has locked it. Ignores errors, because
/// the next job removes remaining directories.
fn remove_unlocked(directory: &Path, unless_held: bool) {
    if unless_held && is_locked(&directory.join(JOURNAL_FILE)) {
        return;
    }
    for name in [SLICES_FILE, HOLDER_FILE, JOURNAL_FILE] {
        let _ = fs::remove_file(directory.join(name));
    }
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint_location(directory: &Path, run: &str, head: &str) -> CheckpointLocation {
        let [cluster_run_id, head_id] = [run, head].map(str::to_owned);
        CheckpointLocation {
            cluster_run_id,
            head_id,
            directory_name: "slices".into(),
            default_root: directory.to_owned(),
        }
    }

    fn open(at: &CheckpointLocation) -> WorkerCheckpoints {
        WorkerCheckpoints::open(at, None, &Arc::default()).unwrap()
    }

    #[test]
    fn workers_of_one_cluster_run_have_directories_of_their_own_and_later_ones_take_those() {
        let scratch = tempfile::tempdir().unwrap();
        let at = checkpoint_location(scratch.path(), "a", "1");
        let (first, second) = (open(&at), open(&at));
        assert_ne!(first.directory, second.directory);
        let mut before = [first.directory.clone(), second.directory.clone()];
        drop((first, second));
        let again = checkpoint_location(scratch.path(), "a", "2");
        let kept = [open(&again), open(&again)];
        let mut after = kept.each_ref().map(|kept| kept.directory.clone());
        before.sort();
        after.sort();
        assert_eq!(before, after);
    }

    #[test]
    fn what_another_run_left_is_removed_and_what_it_holds_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let (left, held) =
            (checkpoint_location(scratch.path(), "a", "1"), checkpoint_location(scratch.path(), "b", "1"));
        drop(open(&left));
        let held = open(&held);
        let own = open(&checkpoint_location(scratch.path(), "c", "1"));
        let mut names = directory_names(&scratch.path().join("slices")).unwrap();
        names.retain(|name| name.starts_with("a-"));
        assert_eq!(names, Vec::<String>::new());
        assert!(held.directory.is_dir());
        own.remove();
        assert!(held.directory.is_dir());
        held.remove();
        assert!(!scratch.path().join("slices").exists());
    }

    #[test]
    fn a_name_that_only_begins_like_the_runs_is_not_of_it() {
        assert!(belongs_to_run("ab-0", "ab") && !belongs_to_run("abc-0", "ab") && !belongs_to_run("ab", "ab"));
    }

    #[test]
    fn lines_that_lead_beyond_all_files_are_not_believed() {
        let slice = |offset, table_bytes| SliceCheckpoint {
            shard: ShardId(0),
            offset,
            bytes: 2,
            checksum: String::new(),
            table_offset: 1,
            table_bytes,
            table_checksum: String::new(),
        };
        let line = |slice| WorkerJournalEntry::Slices {
            block: BlockId { lane: 0, ordinal: 0 },
            reads_checksum: String::new(),
            slices: vec![slice],
        };
        assert!(line(slice(5, 5)).is_sound());
        assert!(!line(slice(u64::MAX, 5)).is_sound() && !line(slice(5, u64::MAX)).is_sound());
    }
}
