//! Where a table lies for the other process: in memory up to a limit, beyond that in a scratch file without a name.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use crate::scratch;

/// A table in the making. Pages of the file in memory are used again from table to table: making them costs more than filling them.
pub(crate) struct TableWriter {
    memory: File,
    /// What is used in place of it, once there is too much.
    beyond: Option<File>,
    bytes: u64,
    limit_bytes: u64,
    scratch: PathBuf,
}

/// A table that is whole. Its place is gone when it is dropped, unless it is in memory.
pub(super) struct Table {
    file: File,
    pub(super) bytes: u64,
    pub(super) in_memory: bool,
}

impl TableWriter {
    /// A table in `memory`, from its start on; beyond `limit_bytes` in the directory `scratch`.
    pub(super) fn new(memory: &File, limit_bytes: u64, scratch: PathBuf) -> io::Result<Self> {
        let mut memory = memory.try_clone()?;
        memory.seek(SeekFrom::Start(0))?;
        Ok(Self { memory, beyond: None, bytes: 0, limit_bytes, scratch })
    }

    pub(super) fn finish(self) -> Table {
        let in_memory = self.beyond.is_none();
        Table { file: self.beyond.unwrap_or(self.memory), bytes: self.bytes, in_memory }
    }

    /// Goes on in a scratch file, behind what is there.
    fn leave_memory(&mut self) -> io::Result<&mut File> {
        let mut beyond = scratch::unnamed(&self.scratch)?;
        self.memory.seek(SeekFrom::Start(0))?;
        io::copy(&mut (&self.memory).take(self.bytes), &mut beyond)?;
        Ok(self.beyond.insert(beyond))
    }
}

impl Write for TableWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_full = self.bytes + bytes.len() as u64 > self.limit_bytes;
        let file = match &mut self.beyond {
            Some(beyond) => beyond,
            None if is_full => self.leave_memory()?,
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

impl Table {
    /// Where another process opens it.
    pub(super) fn path(&self) -> PathBuf {
        path_of(&self.file)
    }
}

/// Where another process of this user opens what this one has open.
pub(super) fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_file::memory_file;

    #[test]
    fn what_is_too_much_for_memory_is_whole_in_the_scratch_file() {
        let scratch = tempfile::tempdir().unwrap();
        let memory = memory_file().unwrap();
        for (count, in_memory) in [(3u8, true), (40, false), (2, true)] {
            let mut writer = TableWriter::new(&memory, 100, scratch.path().to_owned()).unwrap();
            let bytes: Vec<u8> = (0..count * 5u8).collect();
            bytes.chunks(7).for_each(|chunk| writer.write_all(chunk).unwrap());
            let table = writer.finish();
            assert_eq!((table.bytes, table.in_memory), (bytes.len() as u64, in_memory));
            let mut found = vec![0; bytes.len()];
            File::open(table.path()).unwrap().read_exact(&mut found).unwrap();
            assert!(found == bytes);
        }
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
