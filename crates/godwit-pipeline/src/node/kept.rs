//! What a node keeps for whoever comes after it in the same run: its slices in a file that has a name, and a line for
//! each block that says which these are and what their bytes have to be.
//!
//! A node takes the first directory of its run that no living process holds, or makes one. Nothing is made durable on the
//! way: what a machine that lost its power did not write is found by checksum, and is not there then. Directories of other
//! runs into the same output are removed, for nobody will go on with them.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use godwit_exchange::Share;
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, SortKey};
use serde::{Deserialize, Serialize};

use crate::journal::{Journal, Line};
use crate::partitioned_file::PartPlace;
use crate::reduce::MadePart;
use crate::run_directory::hash_stretches;
use crate::runs::{RunTable, SlicePlace, SliceStore};
use crate::scratch::{SpillFile, create_private_directory};
use crate::staging::{is_held, write_whole};

/// How long to wait for processes of the head before this one, which end when they find it gone.
const PREDECESSORS: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Files of a directory.
const JOURNAL: &str = "journal";
const SLICES: &str = "slices";
const HOLDER: &str = "holder";
/// Bytes read at a time to check what is there.
const CHECK_BYTES: u64 = 1 << 20;

/// Where nodes of a run keep what they have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeepAt {
    /// Tells the run from all others; all heads of it have the same.
    pub(crate) run: String,
    /// Tells this head from those before it.
    pub(crate) head: String,
    /// Name of the directory in a node's scratch space.
    pub(crate) name: String,
    /// Where a node keeps it that was given no scratch space.
    pub(crate) otherwise: PathBuf,
}

impl KeepAt {
    fn root(&self, temp: Option<&Path>) -> PathBuf {
        temp.unwrap_or(&self.otherwise).join(&self.name)
    }
}

/// A line about what is kept.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub(super) enum KeptLine {
    /// How the genome is cut and dealt out; everything behind it goes by that.
    Plan { starts: Vec<u64>, shares: u16 },
    /// Slices of a block.
    Slices { block: BlockId, content: String, slices: Vec<KeptSlice> },
    /// A part of the file.
    Part(KeptPart),
}

/// A part of the file that was made and may not be in it yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptPart {
    /// What it was made of and how: a checksum.
    made_of: String,
    /// Its place among all.
    part: usize,
    /// Where its bytes lie, and their BLAKE3, hexadecimal.
    pieces: Vec<(u64, u64)>,
    checksum: String,
    /// What there is to say about it.
    report_offset: u64,
    report_bytes: u64,
    report_checksum: String,
}

impl KeptPart {
    fn end(&self) -> u64 {
        let pieces = self.pieces.iter().map(|(offset, bytes)| offset + bytes);
        pieces.max().unwrap_or(0).max(self.report_offset + self.report_bytes)
    }
}

/// Where a slice lies among what is kept.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptSlice {
    share: Share,
    offset: u64,
    bytes: u64,
    /// BLAKE3 of the bytes, hexadecimal.
    checksum: String,
    /// Its table, behind the bytes of all slices of the line.
    table_offset: u64,
    table_bytes: u64,
    table_checksum: String,
}

impl KeptSlice {
    fn end(&self) -> u64 {
        (self.offset + self.bytes).max(self.table_offset + self.table_bytes)
    }

    /// BLAKE3 of its bytes as they are now; each stretch of them is also handed on, with its place in the slice.
    fn hash(
        &self,
        spill: &SpillFile,
        mut hand_on: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; CHECK_BYTES.min(self.bytes) as usize];
        for start in (0..self.bytes).step_by(CHECK_BYTES as usize) {
            let chunk = &mut buffer[..CHECK_BYTES.min(self.bytes - start) as usize];
            spill.read_at(self.offset + start, chunk)?;
            hasher.update(chunk);
            hand_on(start, chunk)?;
        }
        Ok(hasher.finalize())
    }
}

impl Line for KeptLine {
    fn is_sound(&self) -> bool {
        let ends = |slice: &KeptSlice| {
            slice.offset.checked_add(slice.bytes).is_some()
                && slice.table_offset.checked_add(slice.table_bytes).is_some()
        };
        match self {
            Self::Plan { .. } => true,
            Self::Slices { slices, .. } => slices.iter().all(ends),
            Self::Part(part) => {
                let report = (part.report_offset, part.report_bytes);
                let all = part.pieces.iter().chain([&report]);
                // Their sum is the size of the part.
                let sum = all.clone().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes));
                sum.is_some() && all.into_iter().all(|(offset, bytes)| offset.checked_add(*bytes).is_some())
            }
        }
    }
}

/// What this process keeps, and has to itself.
pub(super) struct Kept {
    directory: PathBuf,
    run: String,
    journal: Journal<KeptLine>,
    spill: Arc<SpillFile>,
    /// What was there when it was opened, until it is recalled.
    found: Mutex<Vec<KeptLine>>,
    /// Parts that were there, once the rest is recalled.
    parts: Mutex<HashMap<usize, KeptPart>>,
}

impl Kept {
    /// Takes what an earlier process of the run left, or starts with nothing.
    pub(super) fn open(at: &KeepAt, temp: Option<&Path>, cancelled: &Arc<AtomicBool>) -> io::Result<Self> {
        let root = at.root(temp);
        create_private_directory(&root)?;
        let until = Instant::now() + PREDECESSORS;
        loop {
            let names = names_in(&root)?;
            remove_others(&root, &names, &at.run);
            let mut awaited = false;
            for name in names.iter().filter(|name| is_of(name, &at.run)) {
                if let Some(kept) = Self::take(&root.join(name), at, cancelled)? {
                    return Ok(kept);
                }
                let holder = fs::read_to_string(root.join(name).join(HOLDER)).unwrap_or_default();
                awaited |= !holder.is_empty() && holder != at.head;
            }
            if !awaited || Instant::now() > until {
                return Self::make(&root, &names, at, cancelled);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn make(root: &Path, names: &[String], at: &KeepAt, cancelled: &Arc<AtomicBool>) -> io::Result<Self> {
        let mut number = names.len();
        loop {
            let directory = root.join(format!("{}-{number}", at.run));
            match fs::create_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made?;
                    if let Some(kept) = Self::take(&directory, at, cancelled)? {
                        return Ok(kept);
                    }
                }
            }
            number += 1;
        }
    }

    /// `None` where another process has it.
    fn take(directory: &Path, at: &KeepAt, cancelled: &Arc<AtomicBool>) -> io::Result<Option<Self>> {
        let (journal, found) = match Journal::open(&directory.join(JOURNAL)) {
            // Somebody else has it, or is removing it.
            Err(error) if matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::NotFound) => {
                return Ok(None);
            }
            opened => opened?,
        };
        write_whole(&directory.join(HOLDER), at.head.as_bytes())?;
        let spill = Arc::new(SpillFile::reopen(&directory.join(SLICES), cancelled.clone())?);
        Ok(Some(Self {
            directory: directory.to_owned(),
            run: at.run.clone(),
            journal,
            spill,
            found: Mutex::new(found),
            parts: Mutex::default(),
        }))
    }

    pub(super) fn spill(&self) -> &Arc<SpillFile> {
        &self.spill
    }

    /// Puts what was found into the store, where its bytes are what they have to be. Returns what that is: blocks, their
    /// reads and the shares.
    pub(super) fn recall(
        &self,
        starts: &[SortKey],
        shares: u16,
        store: &SliceStore,
    ) -> io::Result<Vec<(BlockId, String, Vec<Share>)>> {
        let plan = plan_line(starts, shares);
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        if found.first() != Some(&plan) {
            self.journal.clear()?;
            self.spill.truncate(0)?;
            self.journal.note(&plan)?;
            return Ok(Vec::new());
        }
        let (mut recalled, mut end) = (Vec::new(), 0);
        for line in found {
            let (block, content, slices) = match line {
                KeptLine::Slices { block, content, slices } => (block, content, slices),
                KeptLine::Part(part) if part.end() <= self.spill.bytes() => {
                    end = end.max(part.end());
                    self.lock_parts().insert(part.part, part);
                    continue;
                }
                KeptLine::Part(_) | KeptLine::Plan { .. } => continue,
            };
            let mut whole = Vec::new();
            for slice in slices {
                if self.spill.is_abandoned() {
                    return Ok(Vec::new());
                }
                end = end.max(slice.end().min(self.spill.bytes()));
                if self.restore(block, &slice, store)? {
                    whole.push(slice.share);
                }
            }
            recalled.push((block, content, whole));
        }
        // What is behind was being written.
        self.spill.truncate(end)?;
        Ok(recalled)
    }

    /// Takes over what processes left that nobody came after: copies it, and removes it there. Nodes that do so at the same
    /// time begin at different places. Returns what [`Kept::recall`] does.
    pub(super) fn inherit(
        &self,
        (starts, shares): (&[SortKey], u16),
        begin: usize,
        store: &SliceStore,
    ) -> io::Result<Vec<(BlockId, String, Vec<Share>)>> {
        let Some(root) = self.directory.parent() else { return Ok(Vec::new()) };
        let mut names = names_in(root)?;
        names.retain(|name| is_of(name, &self.run));
        let (plan, mut inherited, turn) = (plan_line(starts, shares), Vec::new(), begin % names.len().max(1));
        names.rotate_left(turn);
        for directory in names.iter().map(|name| root.join(name)) {
            let Ok((journal, lines)) = Journal::<KeptLine>::open(&directory.join(JOURNAL)) else { continue };
            let from = SpillFile::reopen(&directory.join(SLICES), Arc::default())?;
            for line in lines.into_iter().skip_while(|line| *line != plan) {
                let KeptLine::Slices { block, content, slices } = line else { continue };
                if self.spill.is_abandoned() {
                    return Ok(inherited);
                }
                let copied = slices.iter().map(|slice| self.copy(block, slice, &from, store));
                let copied: Vec<Option<Share>> = copied.collect::<io::Result<_>>()?;
                let shares: Vec<Share> = copied.into_iter().flatten().collect();
                self.note(block, &content, shares.iter().copied(), store)?;
                inherited.push((block, content, shares));
            }
            remove_unheld(&directory, false);
            drop(journal);
        }
        Ok(inherited)
    }

    /// Copies a slice here where it is what it has to be.
    fn copy(
        &self,
        block: BlockId,
        slice: &KeptSlice,
        from: &SpillFile,
        store: &SliceStore,
    ) -> io::Result<Option<Share>> {
        if slice.end() > from.bytes() || store.slice(block, usize::from(slice.share.0)).is_some() {
            return Ok(None);
        }
        let mut table = vec![0; slice.table_bytes as usize];
        from.read_at(slice.table_offset, &mut table)?;
        let offset = self.spill.reserve(slice.bytes);
        let checksum = slice.hash(from, |at, chunk| self.spill.write_at(offset + at, chunk))?;
        let is_whole = checksum.to_hex().as_str() == slice.checksum && hash(&table) == slice.table_checksum;
        let place = SlicePlace { offset, bytes: slice.bytes, checksum };
        let taken = is_whole && store.add_slice(block, usize::from(slice.share.0), place, &RunTable(table));
        Ok(taken.then_some(slice.share))
    }

    fn restore(&self, block: BlockId, slice: &KeptSlice, store: &SliceStore) -> io::Result<bool> {
        if slice.end() > self.spill.bytes() {
            return Ok(false);
        }
        let mut table = vec![0; slice.table_bytes as usize];
        self.spill.read_at(slice.table_offset, &mut table)?;
        let checksum = slice.hash(&self.spill, |_, _| Ok(()))?;
        let is_whole = checksum.to_hex().as_str() == slice.checksum && hash(&table) == slice.table_checksum;
        let place = SlicePlace { offset: slice.offset, bytes: slice.bytes, checksum };
        Ok(is_whole && store.add_slice(block, usize::from(slice.share.0), place, &RunTable(table)))
    }

    /// Keeps slices that are in the store.
    pub(super) fn note(
        &self,
        block: BlockId,
        content: &str,
        shares: impl Iterator<Item = Share>,
        store: &SliceStore,
    ) -> io::Result<()> {
        let held: Vec<(Share, SlicePlace, RunTable)> = shares
            .filter_map(|share| {
                let (place, table) = store.slice(block, usize::from(share.0))?;
                Some((share, place, table))
            })
            .collect();
        let tables: Vec<u8> = held.iter().flat_map(|(_, _, table)| table.0.iter().copied()).collect();
        let mut table_offset = self.spill.append(&tables)?;
        let slice = |(share, place, table): (Share, SlicePlace, RunTable)| {
            let table_bytes = table.0.len() as u64;
            table_offset += table_bytes;
            KeptSlice {
                share,
                offset: place.offset,
                bytes: place.bytes,
                checksum: place.checksum.to_hex().to_string(),
                table_offset: table_offset - table_bytes,
                table_bytes,
                table_checksum: hash(&table.0),
            }
        };
        let slices = held.into_iter().map(slice).collect();
        self.journal.note(&KeptLine::Slices { block, content: content.to_owned(), slices })
    }

    fn lock_parts(&self) -> MutexGuard<'_, HashMap<usize, KeptPart>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a part that lies in the spill.
    pub(super) fn note_part(&self, made_of: &str, part: usize, made: &MadePart) -> io::Result<()> {
        let ([Some(PartPlace::Spill(pieces)), None], Some(checksum)) = (&made.places, &made.checksum) else {
            return Ok(());
        };
        let report_offset = self.spill.append(&made.report)?;
        self.journal.note(&KeptLine::Part(KeptPart {
            made_of: made_of.to_owned(),
            part,
            pieces: pieces.clone(),
            checksum: checksum.clone(),
            report_offset,
            report_bytes: made.report.len() as u64,
            report_checksum: hash(&made.report),
        }))
    }

    /// A part from before, where it was made of the same and is whole.
    pub(super) fn part(&self, made_of: &str, part: usize) -> io::Result<Option<MadePart>> {
        let Some(kept) = self.lock_parts().remove(&part).filter(|kept| kept.made_of == made_of) else {
            return Ok(None);
        };
        let mut report = vec![0; kept.report_bytes as usize];
        self.spill.read_at(kept.report_offset, &mut report)?;
        let found = hash_stretches(&kept.pieces, |offset, bytes| self.spill.read_at(offset, bytes))?;
        if found != kept.checksum || hash(&report) != kept.report_checksum {
            return Ok(None);
        }
        let bytes = kept.pieces.iter().map(|(_, bytes)| bytes).sum();
        let places = [Some(PartPlace::Spill(kept.pieces)), None];
        Ok(Some(MadePart { places, bytes: [bytes, 0], checksum: Some(kept.checksum), report }))
    }

    /// Removes what is kept, and what lost nodes of the run kept here: nobody needs it any more.
    pub(super) fn remove(self) {
        let Some(root) = self.directory.parent() else { return };
        remove_unheld(&self.directory, false);
        for name in names_in(root).unwrap_or_default().iter().filter(|name| is_of(name, &self.run)) {
            remove_unheld(&root.join(name), true);
        }
        // Others may still be at theirs.
        let _ = fs::remove_dir(root);
    }
}

fn plan_line(starts: &[SortKey], shares: u16) -> KeptLine {
    KeptLine::Plan { starts: starts.iter().map(|start| start.0).collect(), shares }
}

fn hash(bytes: &[u8]) -> String {
    crate::journal::checksum(bytes)
}

fn names_in(root: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(root)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(entries.collect::<BTreeSet<_>>().into_iter().collect())
}

fn is_of(name: &str, run: &str) -> bool {
    name.strip_prefix(run).is_some_and(|rest| rest.starts_with('-'))
}

fn remove_others(root: &Path, names: &[String], run: &str) {
    names.iter().filter(|name| !is_of(name, run)).for_each(|name| remove_unheld(&root.join(name), true));
}

/// Best effort: what is left is found by the next run into the same output.
fn remove_unheld(directory: &Path, unless_held: bool) {
    if unless_held && is_held(&directory.join(JOURNAL)) {
        return;
    }
    for name in [SLICES, HOLDER, JOURNAL] {
        let _ = fs::remove_file(directory.join(name));
    }
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep_at(directory: &Path, run: &str, head: &str) -> KeepAt {
        let [run, head] = [run, head].map(str::to_owned);
        KeepAt { run, head, name: "slices".into(), otherwise: directory.to_owned() }
    }

    fn open(at: &KeepAt) -> Kept {
        Kept::open(at, None, &Arc::default()).unwrap()
    }

    #[test]
    fn nodes_of_one_run_have_directories_of_their_own_and_later_ones_take_those() {
        let scratch = tempfile::tempdir().unwrap();
        let at = keep_at(scratch.path(), "a", "1");
        let (first, second) = (open(&at), open(&at));
        assert_ne!(first.directory, second.directory);
        let mut before = [first.directory.clone(), second.directory.clone()];
        drop((first, second));
        let again = keep_at(scratch.path(), "a", "2");
        let kept = [open(&again), open(&again)];
        let mut after = kept.each_ref().map(|kept| kept.directory.clone());
        before.sort();
        after.sort();
        assert_eq!(before, after);
    }

    #[test]
    fn what_another_run_left_is_removed_and_what_it_holds_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let (left, held) = (keep_at(scratch.path(), "a", "1"), keep_at(scratch.path(), "b", "1"));
        drop(open(&left));
        let held = open(&held);
        let own = open(&keep_at(scratch.path(), "c", "1"));
        let mut names = names_in(&scratch.path().join("slices")).unwrap();
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
        assert!(is_of("ab-0", "ab") && !is_of("abc-0", "ab") && !is_of("ab", "ab"));
    }

    #[test]
    fn lines_that_lead_beyond_all_files_are_not_believed() {
        let slice = |offset, table_bytes| KeptSlice {
            share: Share(0),
            offset,
            bytes: 2,
            checksum: String::new(),
            table_offset: 1,
            table_bytes,
            table_checksum: String::new(),
        };
        let line = |slice| KeptLine::Slices {
            block: BlockId { lane: 0, ordinal: 0 },
            content: String::new(),
            slices: vec![slice],
        };
        assert!(line(slice(5, 5)).is_sound());
        assert!(!line(slice(u64::MAX, 5)).is_sound() && !line(slice(5, u64::MAX)).is_sound());
    }
}
