//! The writing end: files that are taken block by block, under names of their own until they are whole.
//!
//! A file of one block is written, made durable and named when it comes. A longer one has a journal beside it; it is named when
//! the source has proved it. Nothing is written that its hash does not vouch for.

mod beside;
mod ending;
mod links;
mod whole;

pub(crate) use beside::is_begun;
pub(crate) use ending::{CopyInbox, wait_for_ended_copies};
pub(crate) use whole::Whole;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;

use crate::error::TransferError;
use crate::journal::{Header, Journal, Known, has_name};
use crate::manifest::{Entry, EntryFailure, JOURNAL_ENDING, PART_ENDING, below, is_unfinished};
use crate::names::{path_of, shown, text_of};
use crate::place::directory_of;
use crate::protocol::{CameBlock, CameBlocks, Have, Taken, Trouble};
use crate::ranges::RangeSet;
use crate::sums::Sum;
use crate::tree::{BlockHash, block_count, block_span, hash_block};
use crate::write_back;
use beside::beside;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files on their way in, below one place.
#[derive(Debug)]
pub(crate) struct Inbox {
    base: PathBuf,
    /// Whether names that begin with a dot are refused.
    strict: bool,
    files: Mutex<Vec<Option<Arc<Incoming>>>>,
    /// Directories, whose modes and times are set at the end.
    directories: Mutex<Vec<(PathBuf, Entry)>>,
    /// Links, which are made at the end.
    links: Mutex<Vec<(PathBuf, Entry)>>,
    /// Directories in which names changed.
    touched: Mutex<BTreeSet<PathBuf>>,
    /// Checksums that files have to have before they get their names, by their paths below the base.
    sums: HashMap<String, Sum>,
    /// True once the copy has ended: no operation starts after that.
    ended: AtomicBool,
    /// Read by each operation that is under way.
    operations: RwLock<()>,
}

/// A file on its way in.
#[derive(Debug)]
pub(crate) struct Incoming {
    target: PathBuf,
    entry: Entry,
    state: Mutex<State>,
    /// Read while a block is written.
    writing: RwLock<()>,
}

/// The outcome of received blocks.
#[derive(Debug, Default)]
pub(crate) struct BlockOutcomes {
    /// File and block of those that are written.
    pub(crate) written: Vec<(u32, u64)>,
    /// Of those that were damaged.
    pub(crate) damaged: Vec<(u32, u64)>,
    /// Files that cannot be written, and why.
    pub(crate) refused: Vec<(u32, TransferError)>,
}

impl From<BlockOutcomes> for Taken {
    fn from(written: BlockOutcomes) -> Self {
        let refused = written.refused.iter().map(|(file, why)| (*file, Trouble::of(why))).collect();
        Self { written: written.written, damaged: written.damaged, refused }
    }
}

#[derive(Debug)]
enum State {
    /// A file of one block, or one that needs nothing.
    Plain,
    /// A longer one.
    Open(Box<Open>),
    /// Another copy writes to the same place now.
    TakenOver,
    Named,
}

#[derive(Debug)]
struct Open {
    part: Arc<File>,
    journal: Journal,
    known: Known,
}

impl Incoming {
    /// Whether it has a journal that is in use.
    pub(crate) fn is_open(&self) -> bool {
        matches!(*lock(&self.state), State::Open(_))
    }

    /// Gives the place up for another copy. When this returns, nothing more is written to it, and its lock is released.
    pub(crate) fn give_up(&self) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Open(_)) {
            return;
        }
        let open = std::mem::replace(&mut *state, State::TakenOver);
        drop(state);
        let _alone = self.writing.write().unwrap_or_else(PoisonError::into_inner);
        drop(open);
    }
}

fn blocks_of(known: &Known) -> RangeSet {
    let mut blocks = RangeSet::default();
    for (block, hash) in (0..).zip(known) {
        if hash.is_some() {
            blocks.insert(block, block + 1);
        }
    }
    blocks
}

impl Inbox {
    /// For files below `base`, or for the one file that is there.
    pub(crate) fn new(base: &Path, strict: bool) -> Self {
        let base = base.to_owned();
        Self {
            base,
            strict,
            files: Mutex::default(),
            directories: Mutex::default(),
            links: Mutex::default(),
            touched: Mutex::default(),
            sums: HashMap::new(),
            ended: AtomicBool::new(false),
            operations: RwLock::default(),
        }
    }

    /// The same, for files that have to have these checksums, by their paths below the base.
    pub(crate) fn expecting(self, sums: HashMap<String, Sum>) -> Self {
        Self { sums, ..self }
    }

    /// Fails where a file that is there already has another checksum than it is to have.
    fn check_named(&self, entry: &Entry, target: &Path) -> Result<(), TransferError> {
        let Some(sum) = self.sums.get(&entry.path) else { return Ok(()) };
        let file = File::open(target).map_err(TransferError::file("read", target))?;
        sum.check(&file, target).map_err(|error| match error {
            TransferError::Unlike { problem } => TransferError::Unlike {
                problem: format!("{problem}; it was there before, remove it and it is copied again"),
            },
            error => error,
        })
    }

    fn target_of(&self, entry: &Entry) -> Result<PathBuf, TransferError> {
        if entry.path.is_empty() { Ok(self.base.clone()) } else { self.path_of(&entry.path) }
    }

    fn path_of(&self, path: &str) -> Result<PathBuf, TransferError> {
        let found = below_any(&self.base, path)?;
        if self.strict { below(&self.base, path) } else { Ok(found) }
    }

    /// What is there of a file; nothing is written.
    pub(crate) fn look(&self, entry: &Entry) -> Result<Have, TransferError> {
        let target = self.target_of(entry)?;
        if let Some(link) = &entry.link {
            return self.look_at_link(&target, entry, link);
        }
        match fs::metadata(&target) {
            Ok(found) if entry.directory && found.is_dir() => return Ok(Have::All),
            Ok(found) if entry.looks_like(&found) => return Ok(Have::All),
            _ => {}
        }
        if entry.directory || block_count(entry.size_bytes) == 1 {
            return Ok(Have::Nothing);
        }
        Ok(match Journal::look(&beside(&target, JOURNAL_ENDING)) {
            Some((header, known)) if header.version == entry.version => Have::Part(blocks_of(&known)),
            Some((_, known)) => Have::Stale(blocks_of(&known)),
            None => Have::Nothing,
        })
    }

    /// Begins to take a file as number `file`, or makes a directory; says what is there already.
    pub(crate) fn begin(&self, file: u32, entry: Entry) -> Result<Have, TransferError> {
        self.begin_over(file, entry, false)
    }

    /// As [`Self::begin`]; `take_over`: also where another process has begun, which is lost to whoever sends the file.
    pub(crate) fn begin_over(&self, file: u32, entry: Entry, take_over: bool) -> Result<Have, TransferError> {
        let _operation = self.operation()?;
        let target = self.target_of(&entry)?;
        if entry.directory {
            fs::create_dir_all(&target).map_err(TransferError::file("make", &target))?;
            lock(&self.directories).push((target.clone(), entry));
            return Ok(Have::All);
        }
        if let Some(link) = entry.link.clone() {
            return self.begin_link(target, entry, &link);
        }
        let parent = directory_of(&target);
        // Most files are in a directory that is there: asking is less than trying to make it.
        if !parent.is_dir() {
            fs::create_dir_all(parent).map_err(TransferError::file("make", parent))?;
        }
        let (have, state) = match fs::metadata(&target) {
            Ok(found) if found.is_dir() => {
                let problem = "it is a directory, and a file at the source; move it away";
                return Err(TransferError::file("write", &target)(io::Error::new(
                    io::ErrorKind::IsADirectory,
                    problem,
                )));
            }
            Ok(found) if entry.looks_like(&found) => {
                self.check_named(&entry, &target)?;
                (Have::All, State::Plain)
            }
            _ if block_count(entry.size_bytes) == 1 => (Have::Nothing, State::Plain),
            _ => open(&target, &entry, take_over, &self.ended)?,
        };
        let mut files = lock(&self.files);
        if files.len() <= file as usize {
            files.resize(file as usize + 1, None);
        }
        files[file as usize] =
            Some(Arc::new(Incoming { target, entry, state: Mutex::new(state), writing: RwLock::default() }));
        Ok(have)
    }

    /// A file that was begun.
    pub(crate) fn incoming(&self, file: u32) -> Option<Arc<Incoming>> {
        lock(&self.files).get(file as usize).cloned().flatten()
    }

    /// Takes the blocks of a batch.
    ///
    /// # Errors
    /// Where the batch is none of blocks, or this machine cannot write. What is wrong with single files or blocks is in the answer.
    pub(crate) fn take(&self, batch: &RecordBatch) -> Result<BlockOutcomes, TransferError> {
        let _operation = self.operation()?;
        let mut answer = BlockOutcomes::default();
        for came in CameBlocks::of(batch)?.iter() {
            let (file, block) = (came.file, came.block);
            let Some(incoming) = self.incoming(file) else {
                let problem = format!("the other end sent a block of file {file}, which was not begun");
                answer.refused.push((file, TransferError::refused(problem)));
                continue;
            };
            match self.take_block(&incoming, &came) {
                Ok(true) => answer.written.push((file, block)),
                Ok(false) => answer.damaged.push((file, block)),
                Err(error) if error.is_of_one_file() => answer.refused.push((file, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(answer)
    }

    /// Writes a block; false where it is damaged.
    fn take_block(&self, incoming: &Incoming, came: &CameBlock<'_>) -> Result<bool, TransferError> {
        let _writing = incoming.writing.read().unwrap_or_else(PoisonError::into_inner);
        let size_bytes = incoming.entry.size_bytes;
        if came.block >= block_count(size_bytes) {
            return Ok(false);
        }
        let (start, end) = block_span(came.block, size_bytes);
        let Some((data, hash)) = came.verified(size_bytes).filter(|(data, _)| data.len() as u64 == end - start) else {
            return Ok(false);
        };
        let part = match &*lock(&incoming.state) {
            State::Plain => None,
            State::Open(open) => Some(open.part.clone()),
            State::TakenOver => return Err(TransferError::Busy { place: incoming.target.display().to_string() }),
            State::Named => return Ok(true),
        };
        let Some(part) = part else {
            return self.take_whole(incoming, &data).map(|()| true);
        };
        part.write_all_at(&data, start).map_err(TransferError::file("write", &incoming.target))?;
        write_back::begin(&part, start, end);
        match &mut *lock(&incoming.state) {
            State::Open(open) => {
                open.journal.add(came.block, Some(&hash))?;
                open.known[came.block as usize] = Some(hash);
            }
            State::TakenOver => return Err(TransferError::Busy { place: incoming.target.display().to_string() }),
            State::Plain | State::Named => {}
        }
        Ok(true)
    }

    /// A file of one block.
    fn take_whole(&self, incoming: &Incoming, data: &[u8]) -> Result<(), TransferError> {
        let mut state = lock(&incoming.state);
        if matches!(*state, State::Named) {
            return Ok(());
        }
        let part = beside(&incoming.target, PART_ENDING);
        let file = create(&part, true)?;
        file.write_all_at(data, 0).map_err(TransferError::file("write", &part))?;
        let named = self.name(&incoming.target, &incoming.entry, &file, &part);
        if matches!(named, Err(TransferError::Unlike { .. })) {
            // Nothing of a file of one block is kept.
            let _ = fs::remove_file(&part);
        }
        named?;
        *state = State::Named;
        Ok(())
    }

    /// Makes a whole file durable, which is what is at `part`, and gives it its name, where it has the checksum that it is to have.
    fn name(&self, target: &Path, entry: &Entry, file: &File, part: &Path) -> Result<(), TransferError> {
        if let Some(sum) = self.sums.get(&entry.path) {
            sum.check(file, target)?;
        }
        dress(file, entry).and_then(|()| file.sync_all()).map_err(TransferError::file("write", part))?;
        // Another server of the same directory may have taken it over: what has the part's name now may be another file.
        if !has_name(file, part).map_err(TransferError::file("look at", part))? {
            if !directory_of(target).exists() {
                let removed = std::io::Error::new(std::io::ErrorKind::NotFound, "its directory was removed meanwhile");
                return Err(TransferError::file("write", target)(removed));
            }
            let is_named = has_name(file, target).map_err(TransferError::file("look at", target))?;
            return if is_named { Ok(()) } else { Err(TransferError::Busy { place: target.display().to_string() }) };
        }
        fs::rename(part, target).map_err(TransferError::file("name", target))?;
        lock(&self.touched).insert(directory_of(target).to_owned());
        Ok(())
    }

    /// Compares the blocks of a file with what the source says their hashes are. Where all are there and the same, the file gets its
    /// name; else those that are others are forgotten, and told. With `keep_only` blocks of an earlier state are sorted so, and the file is not
    /// finished.
    pub(crate) fn prove(&self, file: u32, hashes: &[BlockHash], keep_only: bool) -> Result<RangeSet, TransferError> {
        let _operation = self.operation()?;
        let unknown = || TransferError::refused(format!("file {file} was never begun"));
        let incoming = self.incoming(file).ok_or_else(unknown)?;
        let entry = &incoming.entry;
        let mut state = lock(&incoming.state);
        let open = match &mut *state {
            State::Open(open) => open,
            State::TakenOver => return Err(TransferError::Busy { place: incoming.target.display().to_string() }),
            State::Plain | State::Named => return Ok(RangeSet::default()),
        };
        if hashes.len() as u64 != block_count(entry.size_bytes) {
            return Err(TransferError::Changed { place: incoming.target.display().to_string() });
        }
        let mut wrong = RangeSet::default();
        for (block, hash) in (0..).zip(hashes) {
            let known = open.known[block as usize];
            if known != Some(*hash) && (known.is_some() || !keep_only) {
                wrong.insert(block, block + 1);
                open.known[block as usize] = None;
                if !keep_only {
                    open.journal.add(block, None)?;
                }
            }
        }
        if keep_only {
            let known = open.known.clone();
            open.journal.start(&Header::new(entry.size_bytes, entry.version), &known)?;
            return Ok(wrong);
        }
        if wrong.is_empty() {
            let part = beside(&incoming.target, PART_ENDING);
            open.part.set_len(entry.size_bytes).map_err(TransferError::file("write", &part))?;
            self.name(&incoming.target, entry, &open.part, &part)?;
            if let State::Open(open) = std::mem::replace(&mut *state, State::Named) {
                open.journal.remove()?;
            }
        }
        Ok(wrong)
    }

    /// Ends: links are made, directories get their modes and times, and names are made durable. Returns what could not be ended.
    ///
    /// # Errors
    /// The I/O error of a write on this host.
    pub(crate) fn end(&self) -> Result<Vec<EntryFailure>, TransferError> {
        let _operation = self.operation()?;
        let mut failures = self.make_links();
        let mut directories = std::mem::take(&mut *lock(&self.directories));
        // What is in a directory changes its time: the deepest come first.
        directories.sort_by(|one, other| other.0.cmp(&one.0));
        for (place, entry) in directories {
            let set = File::open(&place).and_then(|directory| dress(&directory, &entry));
            if let Err(why) = set.map_err(TransferError::file("change", &place)) {
                failures.push(EntryFailure { path: entry.path, why });
            }
        }
        for place in std::mem::take(&mut *lock(&self.touched)) {
            let synced = File::open(&place).and_then(|directory| directory.sync_all());
            if let Err(why) = synced.map_err(TransferError::file("write", &place)) {
                let path = text_of(place.strip_prefix(&self.base).unwrap_or(&place));
                failures.push(EntryFailure { path, why });
            }
        }
        match failures.iter().position(|failure| !failure.why.is_of_one_file()) {
            Some(first) => Err(failures.swap_remove(first).why),
            None => Ok(failures),
        }
    }

    /// Removes a file, or an empty directory, that the source does not have.
    pub(crate) fn remove(&self, path: &str) -> Result<(), TransferError> {
        let _operation = self.operation()?;
        let target = self.path_of(path)?;
        let removed =
            if target.is_dir() && !target.is_symlink() { fs::remove_dir(&target) } else { fs::remove_file(&target) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(TransferError::file("remove", &target)),
        }
    }
}

/// A path that the other end names, below a directory of ours. Hidden parts may be: they are those of a listing.
fn below_any(directory: &Path, path: &str) -> Result<PathBuf, TransferError> {
    let is_plain = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let below = path_of(path).filter(|_| is_plain && !is_unfinished(path));
    let refused = || TransferError::refused(format!("{:?} is not a path below {}", shown(path), directory.display()));
    Ok(directory.join(below.ok_or_else(refused)?))
}

fn create(path: &Path, empty: bool) -> Result<File, TransferError> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(empty).mode(0o600).open(path);
    opened.map_err(TransferError::file("write", path))
}

/// Mode and times as the source has them.
fn dress(file: &File, entry: &Entry) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(entry.mode & 0o777))?;
    file.set_times(FileTimes::new().set_modified(time_of(entry)))
}

fn time_of(entry: &Entry) -> SystemTime {
    let seconds = Duration::from_secs(entry.modified_s.unsigned_abs());
    let whole = if entry.modified_s < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    let time = whole.and_then(|whole| whole.checked_add(Duration::from_nanos(u64::from(entry.modified_ns))));
    time.unwrap_or(UNIX_EPOCH)
}

/// A file of several blocks: its part and its journal, where they are from before.
fn open(target: &Path, entry: &Entry, take_over: bool, ended: &AtomicBool) -> Result<(Have, State), TransferError> {
    let (journal_path, part_path) = (beside(target, JOURNAL_ENDING), beside(target, PART_ENDING));
    let header = Header::new(entry.size_bytes, entry.version);
    let (mut journal, found, seized) = match Journal::open(&journal_path) {
        Err(TransferError::Busy { .. }) if take_over => {
            let (journal, found) = Journal::seize(&journal_path)?;
            let found = found.filter(|(before, _)| before.version == header.version);
            // The other process may still write blocks of its own state, or give its file the name: not this one.
            if found.is_none() {
                let _ = fs::remove_file(&part_path);
            }
            (journal, found, true)
        }
        opened => {
            let (journal, found) = opened?;
            (journal, found, false)
        }
    };
    let part = create(&part_path, false)?;
    let blocks = block_count(entry.size_bytes) as usize;
    // A journal that says all that there is to say is left as it is.
    let goes_on = !seized && found.as_ref().is_some_and(|(before, _)| *before == header);
    let (is_stale, known) = match found {
        Some((before, mut known)) => {
            let is_stale = before.version != entry.version || before.size_bytes != entry.size_bytes;
            // The last block of a file of another size has other bytes.
            known.resize(blocks, None);
            if !before.is_of_this_boot() {
                check_again(&part, &mut known, before.size_bytes, ended)?;
            }
            (is_stale, known)
        }
        None => (false, vec![None; blocks]),
    };
    if !is_stale && !goes_on {
        journal.start(&header, &known)?;
    }
    let there = blocks_of(&known);
    let have = match (there.is_empty(), is_stale) {
        (true, _) => Have::Nothing,
        (false, true) => Have::Stale(there),
        (false, false) => Have::Part(there),
    };
    Ok((have, State::Open(Box::new(Open { part: Arc::new(part), journal, known }))))
}

/// Forgets blocks that are not what they were before the machine went down.
fn check_again(part: &File, known: &mut Known, size_bytes: u64, ended: &AtomicBool) -> Result<(), TransferError> {
    let mut data = Vec::new();
    for (block, hash) in (0..).zip(known) {
        if ended.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        let Some(expected) = hash else { continue };
        let (start, end) = block_span(block, size_bytes);
        data.resize(end.saturating_sub(start) as usize, 0);
        let is_there =
            part.read_exact_at(&mut data, start).is_ok() && hash_block(&data, block, size_bytes) == *expected;
        if !is_there {
            *hash = None;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
