//! What is there of a file that is not whole yet: a line that says of which file, and a record for each block.
//!
//! Data is written before its record. A process that is killed leaves both in the kernel's hands; after a restart of the machine
//! either may be missing, so blocks of an earlier boot are read and hashed before they count.
//!
//! Room for all records is reserved before the first block is written: a disk that is full has room for what says what is on it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use crate::manifest::NEW_ENDING;
use crate::tree::{BlockHash, block_count};

/// Of journals; the first one counted blocks of 1 MiB.
const FORMAT: u32 = 2;

/// Which file is being written. The first line of a journal, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Of this file format.
    godwit_journal: u32,
    pub(crate) size_bytes: u64,
    pub(crate) version: u64,
    /// The kernel's name for the time since it started.
    pub(crate) boot: String,
}

impl Header {
    pub(crate) fn new(size_bytes: u64, version: u64) -> Self {
        Self { godwit_journal: FORMAT, size_bytes, version, boot: boot() }
    }

    /// Whether it was written since this machine started.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot()
    }
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Number of the block, its hash (zeros: it is not there any more), and the first bytes of the hash of both.
const RECORD_BYTES: usize = 8 + blake3::OUT_LEN + 8;

fn record(block: u64, hash: &BlockHash) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..8 + blake3::OUT_LEN].copy_from_slice(hash);
    let check = blake3::hash(&bytes[..8 + blake3::OUT_LEN]);
    bytes[8 + blake3::OUT_LEN..].copy_from_slice(&check.as_bytes()[..8]);
    bytes
}

/// A journal that is being written. The lock on it keeps other processes away from its file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// Where the next record goes. A record that could not be written whole is written over.
    end: u64,
}

/// Opens a file of ours and locks it.
fn locked(path: &Path, empty: bool) -> Result<File, TransferError> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(empty).mode(0o600).open(path);
    let file = opened.map_err(TransferError::file("open", path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(TransferError::Busy { place: path.display().to_string() }),
        Err(TryLockError::Error(source)) => Err(TransferError::File { doing: "lock", path: path.to_owned(), source }),
    }
}

/// Takes room for a record of each block. File systems that cannot do so have room later, or not.
fn reserve(file: &File, from: u64, header: &Header) {
    // A header is shorter than the block of a file system that it begins in.
    let _ =
        fallocate(file, FallocateFlags::KEEP_SIZE, from, 4096 + block_count(header.size_bytes) * RECORD_BYTES as u64);
}

/// Whether a file is still what has that name: who held its lock before may have renamed another over it, or removed it.
pub(crate) fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let (held, named) = (file.metadata()?, std::fs::metadata(path));
    Ok(named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())))
}

/// Blocks by their number; `None` where one is not there.
pub(crate) type Known = Vec<Option<BlockHash>>;

impl Journal {
    /// Opens the journal at `path`, which need not exist; with what it says where it says something.
    ///
    /// # Errors
    /// [`TransferError::Busy`], [`TransferError::File`].
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<(Header, Known)>), TransferError> {
        let file = locked(path, false)?;
        if !has_name(&file, path).map_err(TransferError::file("open", path))? {
            return Err(TransferError::Busy { place: path.display().to_string() });
        }
        let (end, found) = read(&file).map_err(TransferError::file("read", path))?;
        // What comes behind a record that is not whole says nothing any more.
        if file.metadata().is_ok_and(|metadata| metadata.len() != end) {
            file.set_len(end).map_err(TransferError::file("write", path))?;
        }
        if let Some((header, _)) = &found {
            reserve(&file, end, header);
        }
        Ok((Self { file, path: path.to_owned(), end }, found))
    }

    /// As [`Self::open`], from another process that has it open and that nobody hears from any more. What that one writes to it from now
    /// on is written to a file without a name.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn seize(path: &Path) -> Result<(Self, Option<(Header, Known)>), TransferError> {
        let found = Self::look(path);
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(TransferError::file("remove", path)(error));
            }
            _ => {}
        }
        let (journal, _) = Self::open(path)?;
        Ok((journal, found))
    }

    /// What a journal says, without taking it over.
    pub(crate) fn look(path: &Path) -> Option<(Header, Known)> {
        read(&File::open(path).ok()?).ok()?.1
    }

    /// Begins it anew. What it said before counts until all of the new one is written.
    pub(crate) fn start(&mut self, header: &Header, known: &Known) -> Result<(), TransferError> {
        let mut bytes =
            serde_json::to_vec(header).map_err(|error| TransferError::Bug { problem: error.to_string() })?;
        bytes.push(b'\n');
        for (block, hash) in (0..).zip(known) {
            bytes.extend(hash.iter().flat_map(|hash| record(block, hash)));
        }
        let mut aside = self.path.clone().into_os_string();
        aside.push(NEW_ENDING);
        // Whoever holds the lock of the journal is alone here.
        let aside = PathBuf::from(aside);
        let file = locked(&aside, true)?;
        reserve(&file, 0, header);
        file.write_all_at(&bytes, 0).map_err(TransferError::file("write", &aside))?;
        std::fs::rename(&aside, &self.path).map_err(TransferError::file("name", &self.path))?;
        (self.file, self.end) = (file, bytes.len() as u64);
        Ok(())
    }

    /// Adds a block; `None`: it is not there any more.
    pub(crate) fn add(&mut self, block: u64, hash: Option<&BlockHash>) -> Result<(), TransferError> {
        let bytes = record(block, hash.unwrap_or(&[0; blake3::OUT_LEN]));
        self.file.write_all_at(&bytes, self.end).map_err(TransferError::file("write", &self.path))?;
        self.end += RECORD_BYTES as u64;
        Ok(())
    }

    /// Takes it away.
    pub(crate) fn remove(self) -> Result<(), TransferError> {
        // One that another process took has another file of that name.
        if !has_name(&self.file, &self.path).map_err(TransferError::file("look at", &self.path))? {
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(TransferError::file("remove", &self.path))
    }
}

/// Reads up to the first record that is not whole; where that is, and what is said before it.
fn read(mut file: &File) -> io::Result<(u64, Option<(Header, Known)>)> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    // A header is shorter than this; what is not one need not be read to its end.
    let length = reader.by_ref().take(4096).read_until(b'\n', &mut line)?;
    let header = serde_json::from_slice::<Header>(&line).ok().filter(|header| header.godwit_journal == FORMAT);
    let Some(header) = header.filter(|_| line.ends_with(b"\n")) else { return Ok((0, None)) };
    let blocks = block_count(header.size_bytes);
    // Each record of a block takes room in the file, so that a header cannot make this reserve more than there is.
    let mut known: Known = Vec::new();
    let (mut bytes, mut whole) = ([0; RECORD_BYTES], length as u64);
    while reader.read_exact(&mut bytes).is_ok() {
        let (block, hash) = (u64::from_le_bytes(*bytes.first_chunk().unwrap_or(&[0; 8])), &bytes[8..]);
        let hash: BlockHash = *hash.first_chunk().unwrap_or(&[0; blake3::OUT_LEN]);
        if block >= blocks || record(block, &hash) != bytes {
            break;
        }
        if known.len() <= block as usize {
            known.resize(block as usize + 1, None);
        }
        known[block as usize] = (hash != [0; blake3::OUT_LEN]).then_some(hash);
        whole += RECORD_BYTES as u64;
    }
    known.resize(blocks as usize, None);
    Ok((whole, Some((header, known))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::BLOCK_BYTES;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_journal_that_was_cut_or_damaged_tells_of_blocks_that_were_there_and_goes_on(
            blocks in proptest::collection::vec((0u64..9, any::<bool>()), 0..20),
            cut in 0usize..1200,
            damaged in proptest::option::of((0usize..1200, 1u8..)),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("journal");
            let header = Header::new(9 * BLOCK_BYTES, 77);
            let (mut journal, found) = Journal::open(&path).unwrap();
            let is_busy = matches!(Journal::open(&path), Err(TransferError::Busy { .. }));
            prop_assert!(found.is_none() && is_busy);
            journal.start(&header, &vec![None; 9]).unwrap();
            let mut states = vec![vec![None; 9]];
            for (number, (block, there)) in (1u8..).zip(&blocks) {
                let hash = there.then_some([number; blake3::OUT_LEN]);
                journal.add(*block, hash.as_ref()).unwrap();
                let mut state = states.last().cloned().unwrap();
                state[*block as usize] = hash;
                states.push(state);
            }
            drop(journal);
            let mut bytes = std::fs::read(&path).unwrap();
            let start = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            let mut whole = bytes.len();
            if let Some((at, change)) = damaged.filter(|(at, _)| start + at < whole) {
                bytes[start + at] ^= change;
                whole = start + at;
            }
            whole = whole.min(start + cut);
            bytes.truncate(start + cut);
            std::fs::write(&path, &bytes).unwrap();
            let (mut journal, found) = Journal::open(&path).unwrap();
            let (read, known) = found.unwrap();
            let kept = (whole - start) / RECORD_BYTES;
            prop_assert_eq!(&read, &header);
            prop_assert_eq!(&known, &states[kept]);
            journal.add(3, Some(&[99; blake3::OUT_LEN])).unwrap();
            drop(journal);
            let mut expected = states[kept].clone();
            expected[3] = Some([99; blake3::OUT_LEN]);
            prop_assert_eq!(Journal::look(&path).unwrap().1, expected);
        }
    }
}
