//! A journal: a text file with a line for each entry, in the order of completion.
//!
//! A line consists of a checksum and JSON. The data to which an entry refers are made durable before the entry is
//! appended, so a complete line is reliable. If the machine stops while a line is written, the checksum of the line is
//! wrong, and the next process drops the line. An open journal is locked, so that two processes never work on the same
//! job.

use std::fs;
use std::io::{self, Read as _};
use std::marker::PhantomData;
use std::path::Path;

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::journal_file::JournalFile;

/// Number of hexadecimal digits of [`line_checksum`].
const CHECKSUM_DIGITS: usize = 16;

/// An entry that is stored as one line of a journal.
pub trait JournalEntry: Serialize + DeserializeOwned {
    /// Reports whether godwit can have written this entry. A forged entry must not refer to paths outside the directory
    /// of the job.
    fn is_sound(&self) -> bool;

    /// Returns the checksum of the JSON of a line, without spaces.
    fn checksum(text: &[u8]) -> String {
        line_checksum(text)
    }
}

/// Returns the checksum of the JSON of a line for most entries: the first 16 hexadecimal digits of its BLAKE3.
pub fn line_checksum(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..CHECKSUM_DIGITS].to_owned()
}

/// An open and locked journal.
///
/// # Examples
///
/// ```
/// use godwit_files::{Journal, JournalEntry};
///
/// #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
/// struct Block(u64);
///
/// impl JournalEntry for Block {
///     fn is_sound(&self) -> bool {
///         true
///     }
/// }
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("journal");
/// let (journal, _) = Journal::open(&path)?;
/// journal.append(&Block(7))?;
/// drop(journal);
///
/// // A line that a crash has cut short is dropped.
/// let mut bytes = std::fs::read(&path)?;
/// bytes.extend(b"1234");
/// std::fs::write(&path, bytes)?;
/// let (_journal, entries) = Journal::<Block>::open(&path)?;
/// assert_eq!(entries, [Block(7)]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Journal<E> {
    file: Mutex<JournalFile>,
    entry_type: PhantomData<fn(E)>,
}

impl<E: JournalEntry> Journal<E> {
    /// Opens or creates a journal, locks it and returns its entries. The first damaged or incomplete line, and all lines
    /// after it, are removed.
    ///
    /// # Errors
    /// The errors of [`JournalFile::open`].
    pub fn open(path: &Path) -> io::Result<(Self, Vec<E>)> {
        let mut file = JournalFile::open(path)?;
        let mut bytes = Vec::new();
        file.file().read_to_end(&mut bytes)?;
        let (entries, intact_bytes) = parse_intact_lines(&bytes);
        file.truncate(intact_bytes as u64)?;
        Ok((Self { file: Mutex::new(file), entry_type: PhantomData }, entries))
    }

    /// Reads the entries of a journal to which another process may be writing. Ignores an incomplete last line.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn read(path: &Path) -> io::Result<Vec<E>> {
        Ok(parse_intact_lines(&fs::read(path)?).0)
    }

    /// Appends an entry as a line and makes it durable.
    ///
    /// # Errors
    /// The errors of [`JournalFile::append_durably`]. If the process stops meanwhile, the line may be incomplete; the next
    /// [`Journal::open`] removes it.
    pub fn append(&self, entry: &E) -> io::Result<()> {
        self.file.lock().append_durably(encode_line(entry)?.as_bytes())
    }

    /// Appends an entry that may be lost if the machine stops. Only for entries whose content is verified when it is
    /// used.
    ///
    /// # Errors
    /// The errors of [`JournalFile::append`].
    pub fn append_unsynced(&self, entry: &E) -> io::Result<()> {
        self.file.lock().append(encode_line(entry)?.as_bytes())
    }

    /// Removes all lines of the journal.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn clear(&self) -> io::Result<()> {
        let mut file = self.file.lock();
        file.truncate(0)?;
        file.sync()
    }
}

fn encode_line<E: JournalEntry>(entry: &E) -> io::Result<String> {
    let text = serde_json::to_string(entry).map_err(io::Error::other)?;
    Ok(format!("{} {text}\n", E::checksum(text.as_bytes())))
}

/// Returns the entries before the first incomplete line, and the size of their lines, bytes.
fn parse_intact_lines<E: JournalEntry>(bytes: &[u8]) -> (Vec<E>, usize) {
    let (mut entries, mut intact_bytes) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(entry) = parse_line(line) else { break };
        entries.push(entry);
        intact_bytes += line.len();
    }
    (entries, intact_bytes)
}

fn parse_line<E: JournalEntry>(line: &[u8]) -> Option<E> {
    let line = line.strip_suffix(b"\n")?;
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (checksum, text) = (&line[..space], &line[space + 1..]);
    if E::checksum(text).as_bytes() != checksum {
        return None;
    }
    serde_json::from_slice(text).ok().filter(E::is_sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Entry {
        name: String,
        number: u64,
    }

    impl JournalEntry for Entry {
        fn is_sound(&self) -> bool {
            self.name != "../x"
        }
    }

    fn entries(count: u64) -> Vec<Entry> {
        (0..count).map(|number| Entry { name: format!("entry {number}"), number }).collect()
    }

    fn write_journal(path: &Path, entries: &[Entry]) {
        let (journal, _) = Journal::open(path).unwrap();
        entries.iter().for_each(|entry| journal.append(entry).unwrap());
    }

    fn read_journal(path: &Path) -> Vec<Entry> {
        Journal::open(path).unwrap().1
    }

    #[test]
    fn lines_come_back_and_a_torn_end_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let entries = entries(3);
        write_journal(&path, &entries);
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(Journal::<Entry>::read(&path).unwrap(), entries[..lines]);
            assert_eq!(read_journal(&path), entries[..lines]);
            // Append after the last complete line.
            write_journal(&path, &entries[lines..]);
            assert!(fs::read(&path).unwrap() == whole);
        }
    }

    #[test]
    fn a_changed_line_and_those_behind_it_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        write_journal(&path, &entries(3));
        let whole = fs::read(&path).unwrap();
        let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap();
        let mut changed = whole.clone();
        changed[first_line + 30] ^= 1;
        fs::write(&path, changed).unwrap();
        assert_eq!(read_journal(&path), entries(1));
    }

    #[test]
    fn an_unsound_entry_and_those_behind_it_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut forged = entries(3);
        forged[1].name = "../x".to_owned();
        write_journal(&path, &forged);
        assert_eq!(read_journal(&path), entries(1));
    }

    #[test]
    fn two_processes_never_have_one_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let open = || Journal::<Entry>::open(&path);
        let (journal, _) = open().unwrap();
        assert_eq!(open().err().unwrap().kind(), io::ErrorKind::ResourceBusy);
        // A child process that starts at this moment has inherited the file.
        let _inherited = journal.file.lock().file().try_clone().unwrap();
        drop(journal);
        assert!(open().is_ok());
    }

    #[test]
    fn a_cleared_journal_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (journal, _) = Journal::open(&path).unwrap();
        entries(3).iter().for_each(|entry| journal.append(entry).unwrap());
        journal.clear().unwrap();
        journal.append(&entries(1)[0]).unwrap();
        drop(journal);
        assert_eq!(read_journal(&path), entries(1));
    }
}
