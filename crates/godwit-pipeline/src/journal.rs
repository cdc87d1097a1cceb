//! The journal of a run: what is finished and durable, one line each, in the order it became so.
//!
//! A line is a checksum and JSON. Data is made durable before its line is appended, so a line that is there can be
//! trusted; one that was being written when the machine stopped is recognised by its checksum and dropped. The open
//! journal is locked: two processes never work on one run.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use godwit_formats::fastq::FilePlace;
use godwit_model::{BlockId, DuplicateCounts};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::partitioned_file::PartPlace;
use crate::staging::is_within;

/// What the name of a directory of data starts with, where that lies elsewhere.
pub const DATA_PREFIX: &[u8] = b".godwit-";
/// Hexadecimal digits of the checksum before each line.
const CHECKSUM_DIGITS: usize = 16;

/// Something that decides what a run writes, and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What users know it by, as `--block-bases` or `the reference`.
    pub name: String,
    /// Its value, or a checksum of it.
    pub value: String,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// A run began.
    Start {
        /// What it is a run of.
        facts: Vec<Fact>,
        /// Names of files in the output directory that lie aside until the run is whole.
        aside: Vec<String>,
        /// Where its data lies, as bytes of a path; beside the journal where `None`.
        data: Option<Vec<u8>>,
        /// Where nodes do the work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        over_nodes: Option<OverNodes>,
    },
    /// The first block cut the genome: smallest key of each partition.
    Plan {
        /// As `PartitionPlan::starts` has them.
        starts: Vec<u64>,
    },
    /// A block is aligned, sorted and kept.
    Block(BlockEntry),
    /// Where a block starts in the files of its lane.
    BlockStart(BlockStartEntry),
    /// A partition is compressed and kept.
    Partition(PartitionEntry),
    /// All files are whole and durable, and are about to get their names.
    Publish {
        /// Where each lies and the name it gets, both within the output directory.
        names: Vec<(String, String)>,
    },
}

/// What all starts of one run over nodes have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverNodes {
    /// Tells it from all other runs.
    pub run: String,
    /// Shares that the genome is cut into.
    pub shares: u16,
}

/// A block in the data: its frames, its pairs, its ends and the table of its frames, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEntry {
    /// The block.
    pub id: BlockId,
    /// Reads that went into it.
    pub reads: u64,
    /// BLAKE3 of these reads, hexadecimal.
    pub content: String,
    /// Records that came out.
    pub records: u64,
    /// Reference bases from the first to the last of a record, at most; where nobody counted, as many as there can be.
    #[serde(default = "any_length")]
    pub longest_bases: u32,
    /// Records per library, as the duplicate metrics count them.
    pub counts: Vec<DuplicateCounts>,
    /// First byte in the data.
    pub offset: u64,
    /// Bytes of frames.
    pub frame_bytes: u64,
    /// Bytes of pairs.
    pub pair_bytes: u64,
    /// Bytes of ends.
    pub end_bytes: u64,
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Bytes of templates, where the records are on nodes.
    #[serde(default)]
    pub template_bytes: u64,
    /// Bytes of barcodes, where the records are on nodes.
    #[serde(default)]
    pub barcode_bytes: u64,
    /// BLAKE3 of all of it, hexadecimal.
    pub checksum: String,
}

fn any_length() -> u32 {
    u32::MAX
}

impl BlockEntry {
    /// Bytes in the data.
    pub fn bytes(&self) -> u64 {
        self.sizes().into_iter().sum()
    }

    fn sizes(&self) -> [u64; 6] {
        [self.frame_bytes, self.pair_bytes, self.end_bytes, self.table_bytes, self.template_bytes, self.barcode_bytes]
    }

    /// Whether no sum of its numbers is beyond all files.
    fn is_sound(&self) -> bool {
        self.sizes().iter().try_fold(self.offset, |end, bytes| end.checked_add(*bytes)).is_some()
    }
}

/// Where a block starts in the files of its lane, so that what lies before need not be read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockStartEntry {
    /// The block; not the first of its lane.
    pub id: BlockId,
    /// Reads of the lane before it.
    pub first_ordinal: u64,
    /// Where it starts in each file, without the windows.
    pub places: Vec<FilePlace>,
    /// First byte of the windows, one behind the other, in their file.
    pub window_offset: u64,
    /// Bytes of the window of each file.
    pub window_bytes: Vec<u32>,
    /// BLAKE3 of all windows, hexadecimal.
    pub window_checksum: String,
}

/// A partition that is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionEntry {
    /// Its place among all of them.
    pub index: usize,
    /// Where its compressed bytes are.
    pub place: PartPlace,
    /// First byte of its summary among the kept parts.
    pub summary_offset: u64,
    /// Bytes of its summary.
    pub summary_bytes: u64,
    /// BLAKE3 of its summary, hexadecimal.
    pub summary_checksum: String,
}

/// Why a journal cannot be opened while another process has it.
pub const BUSY: &str = "another godwit works there; wait for it to end";

impl PartitionEntry {
    /// One past the last of its bytes among the kept parts.
    pub fn parts_end(&self) -> u64 {
        let pieces = match &self.place {
            PartPlace::Spill(pieces) => &pieces[..],
            PartPlace::File { .. } => &[],
        };
        let end = pieces.iter().map(|(offset, bytes)| offset + bytes).max().unwrap_or(0);
        end.max(self.summary_offset + self.summary_bytes)
    }

    /// Whether no sum of its numbers is beyond all files.
    fn is_sound(&self) -> bool {
        let ends = |offset: &u64, bytes: &u64| offset.checked_add(*bytes).is_some();
        ends(&self.summary_offset, &self.summary_bytes)
            && match &self.place {
                PartPlace::Spill(pieces) => pieces.iter().all(|(offset, bytes)| ends(offset, bytes)),
                PartPlace::File { offset, bytes } => ends(offset, bytes),
            }
    }
}

/// What a line of a journal can be.
pub trait Line: Serialize + DeserializeOwned {
    /// Whether it can be of a run: an output directory of unknown origin must not lead anywhere else.
    fn is_sound(&self) -> bool;
}

impl Line for Entry {
    fn is_sound(&self) -> bool {
        match self {
            Self::Start { aside, data, .. } => {
                let name = data.as_deref().map(|data| Path::new(OsStr::from_bytes(data)).file_name());
                let is_ours = |name: Option<&OsStr>| name.is_some_and(|name| name.as_bytes().starts_with(DATA_PREFIX));
                aside.iter().all(|name| is_within(name)) && name.is_none_or(is_ours)
            }
            Self::Publish { names } => names.iter().all(|(aside, name)| is_within(aside) && is_within(name)),
            Self::Block(block) => block.is_sound(),
            Self::BlockStart(start) => start.is_sound(),
            Self::Partition(partition) => partition.is_sound(),
            Self::Plan { .. } => true,
        }
    }
}

/// An open, locked journal.
pub struct Journal<L = Entry> {
    file: Mutex<File>,
    lines: PhantomData<fn(L)>,
}

impl<L: Line> Journal<L> {
    /// Opens a journal, made where it is missing, locks it and reads its lines; a torn end is dropped.
    ///
    /// # Errors
    /// What the file system reports; [`io::ErrorKind::ResourceBusy`] while another process has it.
    pub fn open(path: &Path) -> io::Result<(Self, Vec<L>)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, BUSY);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The other process may have ended and removed what was opened, between opening and locking.
        let (ours, named) = (file.metadata()?, fs::metadata(path));
        if !named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
            return Err(busy());
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (entries, whole) = intact(&bytes);
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::Start(whole as u64))?;
        Ok((Self { file: Mutex::new(file), lines: PhantomData }, entries))
    }

    /// Appends a line and makes it durable.
    ///
    /// # Errors
    /// What the file system reports. The line may be there in part then, which the next to open it drops.
    pub fn append(&self, entry: &L) -> io::Result<()> {
        self.note(entry)?;
        self.sync()
    }

    /// Appends a line that may be lost where the machine stops: what it says is checked by whoever reads it.
    ///
    /// # Errors
    /// As for [`Journal::append`].
    pub fn note(&self, entry: &L) -> io::Result<()> {
        let text = serde_json::to_string(entry).map_err(io::Error::other)?;
        let line = format!("{} {text}\n", checksum(text.as_bytes()));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let end = file.stream_position()?;
        file.write_all(line.as_bytes()).inspect_err(|_| {
            // Best effort: another thread may append behind it, and a torn line would hide that one.
            let _ = file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end)));
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).sync_data()
    }

    /// Drops all lines.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn clear(&self) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.sync_data()
    }
}

/// The lines of a journal that another process may be writing; an end that is torn is left out.
///
/// # Errors
/// What the file system reports.
pub fn read<L: Line>(path: &Path) -> io::Result<Vec<L>> {
    Ok(intact(&fs::read(path)?).0)
}

/// Lines up to the first that is not whole, and their bytes.
fn intact<L: Line>(bytes: &[u8]) -> (Vec<L>, usize) {
    let (mut entries, mut whole) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(entry) = parse(line) else { break };
        entries.push(entry);
        whole += line.len();
    }
    (entries, whole)
}

fn parse<L: Line>(line: &[u8]) -> Option<L> {
    let (digits, text) = line.strip_suffix(b"\n")?.split_at_checked(CHECKSUM_DIGITS)?;
    let text = text.strip_prefix(b" ")?;
    if checksum(text).as_bytes() != digits {
        return None;
    }
    serde_json::from_slice(text).ok().filter(L::is_sound)
}

/// What stands before a line.
pub fn checksum(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..CHECKSUM_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(count: u64) -> Vec<Entry> {
        (0..count).map(|start| Entry::Plan { starts: vec![start, u64::MAX] }).collect()
    }

    fn written(path: &Path, entries: &[Entry]) {
        let (journal, _) = Journal::<Entry>::open(path).unwrap();
        entries.iter().for_each(|entry| journal.append(entry).unwrap());
    }

    #[test]
    fn lines_come_back_and_a_torn_end_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let entries = plans(3);
        written(&path, &entries);
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(Journal::<Entry>::open(&path).unwrap().1, entries[..lines]);
            // What is appended next stands behind the last whole line.
            written(&path, &entries[lines..]);
            assert!(fs::read(&path).unwrap() == whole);
        }
    }

    #[test]
    fn a_changed_line_and_those_behind_it_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        written(&path, &plans(3));
        let whole = fs::read(&path).unwrap();
        let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap();
        let mut changed = whole.clone();
        changed[first_line + 30] ^= 1;
        fs::write(&path, changed).unwrap();
        assert_eq!(Journal::<Entry>::open(&path).unwrap().1, plans(1));
    }

    #[test]
    fn entries_that_lead_out_of_the_run_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let start = |aside: &str, data: Option<&str>| Entry::Start {
            facts: Vec::new(),
            aside: vec![aside.to_owned()],
            data: data.map(|data| data.as_bytes().to_vec()),
            over_nodes: None,
        };
        let publish = |aside: &str, name: &str| Entry::Publish { names: vec![(aside.to_owned(), name.to_owned())] };
        let place = PartPlace::Spill(vec![(u64::MAX, 1)]);
        let partition = |place, summary_bytes| {
            let (summary_offset, summary_checksum) = (1, String::new());
            Entry::Partition(PartitionEntry { index: 0, place, summary_offset, summary_bytes, summary_checksum })
        };
        let sound = [
            start(".a.bam.part", Some("/scratch/.godwit-0123")),
            publish(".a.bam.part", "a.bam"),
            partition(PartPlace::File { offset: 1, bytes: 1 }, 1),
        ];
        written(&path, &sound);
        assert_eq!(Journal::<Entry>::open(&path).unwrap().1, sound);
        let unsound = [
            start("/etc", None),
            start("../x", None),
            start("x", Some("/home/somebody")),
            start("x", Some("/home/.godwit-0123/..")),
            publish("x", "../y"),
            publish("", "y"),
            partition(place, 1),
            partition(PartPlace::File { offset: 2, bytes: u64::MAX - 1 }, 1),
            partition(PartPlace::File { offset: 1, bytes: 1 }, u64::MAX),
        ];
        for entry in unsound {
            fs::remove_file(&path).unwrap();
            written(&path, std::slice::from_ref(&entry));
            assert_eq!(Journal::<Entry>::open(&path).unwrap().1, [], "{entry:?}");
        }
    }

    #[test]
    fn two_processes_never_have_one_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let first = Journal::<Entry>::open(&path).unwrap();
        assert_eq!(Journal::<Entry>::open(&path).err().map(|error| error.kind()), Some(io::ErrorKind::ResourceBusy));
        drop(first);
        assert!(Journal::<Entry>::open(&path).is_ok());
    }
}
