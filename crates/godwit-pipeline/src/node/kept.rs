//! What a node keeps for whoever comes after it in the same run: its slices in a file that has a name, and a line for
//! each block that says which these are and what their bytes have to be.
//!
//! A node takes the first directory of its run that no living process holds, or makes one. Nothing is made durable on the
//! way: what a machine that lost its power did not write is found by checksum, and is not there then. Directories of other
//! runs into the same output are removed, for nobody will go on with them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_exchange::Share;
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, SortKey};
use serde::{Deserialize, Serialize};

use crate::journal::{Journal, Line};
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
            let KeptLine::Slices { block, content, slices } = line else { continue };
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
        // What is behind was being written, or was parts of the file.
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
