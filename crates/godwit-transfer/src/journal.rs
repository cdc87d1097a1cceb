//! The journal of a file that is being received: a header that identifies the file, and a record for each block that
//! was written.
//!
//! The header also identifies the partial file: blocks of another file are hashed before they are accepted.
//!
//! A block is written before its record. If the process dies, the kernel still writes both to disk. If the host
//! restarts, either may be missing, so blocks from before the restart are hashed before they are accepted.
//!
//! Disk space for all records is reserved before the first block is written. Otherwise a full disk could prevent
//! records of blocks that are on it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use godwit_files::JournalFile;
use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use godwit_transfer_session::blake3_tree::{BlockHash, block_count};
use godwit_transfer_session::partial_paths::NEW_JOURNAL_SUFFIX;

/// Version of the journal format. In version 1, blocks had 1 MiB.
const FORMAT_VERSION: u32 = 2;

/// The first line of a journal, as JSON: identifies the file that is being received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalHeader {
    /// Version of the journal format.
    #[serde(rename = "godwit_journal")]
    format_version: u32,
    pub(crate) size_bytes: u64,
    pub(crate) version: u64,
    /// Random identifier of the current boot of the host, from the Linux kernel.
    #[serde(rename = "boot")]
    pub(crate) boot_id: String,
    /// Inode number of the partial file to which the blocks were written; 0 in journals of earlier versions of godwit,
    /// which did not record it. The records are not valid for another file.
    #[serde(rename = "inode", default)]
    pub(crate) part_inode: u64,
}

impl JournalHeader {
    pub(crate) fn new(size_bytes: u64, version: u64, part_inode: u64) -> Self {
        Self { format_version: FORMAT_VERSION, size_bytes, version, boot_id: read_boot_id(), part_inode }
    }

    /// Reports whether the journal was written after the last start of the host.
    pub(crate) fn is_from_this_boot(&self) -> bool {
        !self.boot_id.is_empty() && self.boot_id == read_boot_id()
    }
}

fn read_boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Size of a record, bytes. A record consists of the block index, the hash of the block (zeros if the block was
/// discarded), and a checksum: the first eight bytes of the hash of both.
const RECORD_BYTES: usize = 8 + blake3::OUT_LEN + 8;

fn encode_record(block: u64, hash: &BlockHash) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..8 + blake3::OUT_LEN].copy_from_slice(hash);
    let check = blake3::hash(&bytes[..8 + blake3::OUT_LEN]);
    bytes[8 + blake3::OUT_LEN..].copy_from_slice(&check.as_bytes()[..8]);
    bytes
}

/// A journal that is open for writing. Its lock keeps other processes from writing the file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: JournalFile,
}

fn open_locked(path: &Path) -> Result<JournalFile, TransferError> {
    JournalFile::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => TransferError::busy(path),
        _ => TransferError::io_error("open", path)(error),
    })
}

/// Reserves disk space for a record of each block. Errors are ignored; without the reservation, the disk may be full
/// later.
fn reserve_space(file: &File, from: u64, header: &JournalHeader) {
    // The header has less than 4096 bytes.
    let _ =
        fallocate(file, FallocateFlags::KEEP_SIZE, from, 4096 + block_count(header.size_bytes) * RECORD_BYTES as u64);
}

/// Hashes of the blocks of a file by block index; `None` for blocks that are missing.
pub(crate) type BlockHashes = Vec<Option<BlockHash>>;

/// A journal, and its header and block hashes unless it is new or invalid.
pub(crate) type OpenedJournal = (Journal, Option<(JournalHeader, BlockHashes)>);

impl Journal {
    /// Opens or creates the journal at `path` and locks it.
    ///
    /// # Errors
    /// [`TransferError::Busy`] if another copy has locked the journal, [`TransferError::Io`] if it cannot be opened or
    /// read.
    pub(crate) fn open(path: &Path) -> Result<OpenedJournal, TransferError> {
        let mut file = open_locked(path)?;
        let (end_offset, found) = read_records(file.file()).map_err(TransferError::io_error("read", path))?;
        // Remove all bytes from the first incomplete record on.
        file.truncate(end_offset).map_err(TransferError::io_error("write", path))?;
        if let Some((header, _)) = &found {
            reserve_space(file.file(), end_offset, header);
        }
        Ok((Self { file }, found))
    }

    /// Opens a journal as [`Self::open`] does, but removes its contents without reading them.
    pub(crate) fn open_empty(path: &Path) -> Result<Self, TransferError> {
        let mut file = open_locked(path)?;
        file.truncate(0).map_err(TransferError::io_error("write", path))?;
        Ok(Self { file })
    }

    /// Opens a journal as [`Self::open`] does, but takes it over from a process that can no longer be reached. That
    /// process then writes to a file that has no name.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub(crate) fn take_over(path: &Path) -> Result<OpenedJournal, TransferError> {
        let found = Self::read_unlocked(path);
        if let Err(error) = std::fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(TransferError::io_error("remove", path)(error));
        }
        let (journal, _) = Self::open(path)?;
        Ok((journal, found))
    }

    /// Reads a journal without locking it; `None` if it does not exist or is invalid.
    pub(crate) fn read_unlocked(path: &Path) -> Option<(JournalHeader, BlockHashes)> {
        read_records(&File::open(path).ok()?).ok()?.1
    }

    /// Rewrites the journal with this header and these hashes. The old contents stay valid until the new ones are
    /// complete.
    pub(crate) fn rewrite(&mut self, header: &JournalHeader, known: &BlockHashes) -> Result<(), TransferError> {
        let mut bytes =
            serde_json::to_vec(header).map_err(|error| TransferError::Internal { problem: error.to_string() })?;
        bytes.push(b'\n');
        for (block, hash) in (0..).zip(known) {
            bytes.extend(hash.iter().flat_map(|hash| encode_record(block, hash)));
        }
        let path = self.file.path().to_owned();
        let mut new_path = path.clone().into_os_string();
        new_path.push(NEW_JOURNAL_SUFFIX);
        // The temporary file needs no lock of its own, because only the process that has locked the journal writes it.
        let new_path = PathBuf::from(new_path);
        let mut file = Self::open_empty(&new_path)?.file;
        reserve_space(file.file(), 0, header);
        file.append(&bytes).map_err(TransferError::io_error("write", &new_path))?;
        file.rename(&path).map_err(TransferError::io_error("rename", &path))?;
        self.file = file;
        Ok(())
    }

    /// Appends the record of a block; a hash of `None` means that the block is discarded.
    pub(crate) fn append(&mut self, block: u64, hash: Option<&BlockHash>) -> Result<(), TransferError> {
        let bytes = encode_record(block, hash.unwrap_or(&[0; blake3::OUT_LEN]));
        self.file.append(&bytes).map_err(TransferError::io_error("write", self.file.path()))
    }

    /// Removes the journal file.
    pub(crate) fn remove(self) -> Result<(), TransferError> {
        // If another process has taken the journal over, the path names the journal of that process.
        let path = self.file.path();
        if !self.file.is_at_path().map_err(TransferError::io_error("inspect", path))? {
            return Ok(());
        }
        std::fs::remove_file(path).map_err(TransferError::io_error("remove", path))
    }
}

/// Reads the header and all complete records. Returns the offset of the first incomplete record, and the contents
/// before it.
fn read_records(mut file: &File) -> io::Result<(u64, Option<(JournalHeader, BlockHashes)>)> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    // The header has less than 4096 bytes; a file without a line end is not read further.
    let length = reader.by_ref().take(4096).read_until(b'\n', &mut line)?;
    let header =
        serde_json::from_slice::<JournalHeader>(&line).ok().filter(|header| header.format_version == FORMAT_VERSION);
    let Some(header) = header.filter(|_| line.ends_with(b"\n")) else { return Ok((0, None)) };
    let blocks = block_count(header.size_bytes);
    // Grow the list with the records, so that a forged header alone cannot cause a large allocation.
    let mut known: BlockHashes = Vec::new();
    let (mut bytes, mut whole) = ([0; RECORD_BYTES], length as u64);
    loop {
        match reader.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            // Return the error. Without it, the caller would truncate the journal at a record that may be readable
            // later.
            Err(error) => return Err(error),
        }
        let (block, hash) = (u64::from_le_bytes(*bytes.first_chunk().unwrap_or(&[0; 8])), &bytes[8..]);
        let hash: BlockHash = *hash.first_chunk().unwrap_or(&[0; blake3::OUT_LEN]);
        if block >= blocks || encode_record(block, &hash) != bytes {
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
    use godwit_transfer_session::blake3_tree::BLOCK_BYTES;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_truncated_or_damaged_journal_reports_blocks_of_before_and_is_appended_to(
            blocks in proptest::collection::vec((0u64..9, any::<bool>()), 0..20),
            cut in 0usize..1200,
            damaged in proptest::option::of((0usize..1200, 1u8..)),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("journal");
            let header = JournalHeader::new(9 * BLOCK_BYTES, 77, 5);
            let (mut journal, found) = Journal::open(&path).unwrap();
            let is_busy = matches!(Journal::open(&path), Err(TransferError::Busy { .. }));
            prop_assert!(found.is_none() && is_busy);
            journal.rewrite(&header, &vec![None; 9]).unwrap();
            let mut states = vec![vec![None; 9]];
            for (number, (block, there)) in (1u8..).zip(&blocks) {
                let hash = there.then_some([number; blake3::OUT_LEN]);
                journal.append(*block, hash.as_ref()).unwrap();
                let mut state = states.last().cloned().unwrap();
                state[*block as usize] = hash;
                states.push(state);
            }
            // A child process that starts at this moment has inherited the file.
            let _inherited = journal.file.file().try_clone().unwrap();
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
            journal.append(3, Some(&[99; blake3::OUT_LEN])).unwrap();
            drop(journal);
            let mut expected = states[kept].clone();
            expected[3] = Some([99; blake3::OUT_LEN]);
            prop_assert_eq!(Journal::read_unlocked(&path).unwrap().1, expected);
        }
    }
}
