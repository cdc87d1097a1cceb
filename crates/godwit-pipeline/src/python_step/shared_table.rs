//! A table that another process reads. It is a file in memory up to a size limit, and an unnamed scratch file beyond
//! that.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use godwit_files::create_unnamed_file;

/// A writer of a table for another process. It overwrites the file in memory instead of creating one for each table,
/// because allocating pages costs more than filling them.
pub(crate) struct SharedTableWriter {
    memory: File,
    /// Scratch file that replaces the file in memory when the table exceeds the limit.
    overflow_file: Option<File>,
    bytes: u64,
    limit_bytes: u64,
    scratch: PathBuf,
}

/// A table that is completely written. Dropping it removes the scratch file; a file in memory is reused.
pub(super) struct SharedTable {
    file: File,
    pub(super) bytes: u64,
    pub(super) in_memory: bool,
}

impl SharedTableWriter {
    /// Creates a writer that writes to `memory` from its start. If the table exceeds `limit_bytes`, it continues in a
    /// file in the directory `scratch`.
    pub(super) fn new(memory: &File, limit_bytes: u64, scratch: PathBuf) -> io::Result<Self> {
        let mut memory = memory.try_clone()?;
        memory.seek(SeekFrom::Start(0))?;
        Ok(Self { memory, overflow_file: None, bytes: 0, limit_bytes, scratch })
    }

    pub(super) fn finish(self) -> SharedTable {
        let in_memory = self.overflow_file.is_none();
        SharedTable { file: self.overflow_file.unwrap_or(self.memory), bytes: self.bytes, in_memory }
    }

    /// Copies the bytes in memory to a scratch file, to which the rest of the table is written.
    fn move_to_scratch(&mut self) -> io::Result<&mut File> {
        let mut beyond = create_unnamed_file(&self.scratch)?;
        self.memory.seek(SeekFrom::Start(0))?;
        io::copy(&mut (&self.memory).take(self.bytes), &mut beyond)?;
        Ok(self.overflow_file.insert(beyond))
    }
}

impl Write for SharedTableWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_full = self.bytes + bytes.len() as u64 > self.limit_bytes;
        let file = match &mut self.overflow_file {
            Some(beyond) => beyond,
            None if is_full => self.move_to_scratch()?,
            None => &mut self.memory,
        };
        let written = file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SharedTable {
    /// Returns the path with which another process opens the table.
    pub(super) fn proc_path(&self) -> PathBuf {
        proc_path(&self.file)
    }
}

/// Returns the path with which another process of the same user opens a file that this process has open.
pub(super) fn proc_path(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_file::create_memory_file;

    #[test]
    fn what_is_too_much_for_memory_is_whole_in_the_scratch_file() {
        let scratch = tempfile::tempdir().unwrap();
        let memory = create_memory_file().unwrap();
        for (count, in_memory) in [(3u8, true), (40, false), (2, true)] {
            let mut writer = SharedTableWriter::new(&memory, 100, scratch.path().to_owned()).unwrap();
            let bytes: Vec<u8> = (0..count * 5u8).collect();
            bytes.chunks(7).for_each(|chunk| writer.write_all(chunk).unwrap());
            let table = writer.finish();
            assert_eq!((table.bytes, table.in_memory), (bytes.len() as u64, in_memory));
            let mut found = vec![0; bytes.len()];
            File::open(table.proc_path()).unwrap().read_exact(&mut found).unwrap();
            assert!(found == bytes);
        }
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
