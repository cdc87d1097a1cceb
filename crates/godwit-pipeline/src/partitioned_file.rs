//! An output file, BAM or CRAM, that many threads or processes write in numbered parts: the header, then one part for
//! each partition. The offset of a part is known only when all parts before it are complete.
//!
//! The next part in order is written directly to the file. Later parts wait in memory up to a shared limit, and beyond
//! it in the spill file. The thread that completes a part also writes all complete parts that follow it, so that no
//! thread waits for another. A part that an earlier process completed is copied to its offset.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use godwit_files::AtomicFile;
use godwit_kernels::sort::Spill;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::scratch::SpillFile;

/// Size of the buffer of a part before its bytes are written, bytes.
const PART_BUFFER_BYTES: usize = 1 << 20;
/// Unit in which clients of network file systems write, bytes: the page size or a multiple of it.
const PAGE_BYTES: u64 = 64 << 10;

/// A file that is written in numbered parts. Dropping it removes the file if it is not published.
pub(crate) struct PartitionedFile<'s> {
    /// The output file; `None` if this process only builds parts of a file that another process writes.
    atomic_file: Option<AtomicFile>,
    spill: &'s SpillFile,
    /// Limit for the total size of the waiting parts in memory, bytes.
    waiting_budget_bytes: usize,
    waiting_bytes: AtomicUsize,
    /// Number of the next part in order. It equals `state.next_part`, but is readable without the lock.
    next_part: AtomicUsize,
    state: Mutex<PartitionedFileState>,
}

#[derive(Default)]
struct PartitionedFileState {
    next_part: usize,
    /// Offset at which the next part in order will start, bytes.
    next_offset: u64,
    complete_parts: BTreeMap<usize, BufferedPart>,
    extents: Vec<PartExtent>,
    /// Numbers of parts that are written to the file but follow a part that is not yet written.
    written_out_of_order: BTreeSet<usize>,
    /// Number of contiguous parts from the start of the file that are written.
    written_prefix_parts: usize,
}

/// The location of a part in the finished file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartExtent {
    /// Offset of the part in the file, bytes.
    pub offset: u64,
    /// Size of the part, bytes.
    pub bytes: u64,
}

/// Bytes of a complete part that are not yet in the file.
#[derive(Default)]
struct BufferedPart {
    bytes: u64,
    buffers: Vec<BufferedBytes>,
}

enum BufferedBytes {
    Memory(Vec<u8>),
    Spilled {
        offset: u64,
        bytes: usize,
    },
    /// Bytes that an earlier process wrote to the file.
    InFile {
        offset: u64,
        bytes: u64,
    },
}

/// The location of the bytes of a part before the output file is finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartLocation {
    /// In the output file.
    File {
        /// Offset in the output file, bytes.
        offset: u64,
        /// Size of the part, bytes.
        bytes: u64,
    },
    /// In the spill file, as pieces. Each piece is an offset and a number of bytes.
    Spill(Vec<(u64, u64)>),
}

impl PartLocation {
    /// Returns the size of the part, bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Spill(pieces) => pieces.iter().map(|(_, bytes)| bytes).sum(),
        }
    }
}

impl<'s> PartitionedFile<'s> {
    /// Creates a file without parts. `waiting_budget_bytes`: memory limit for parts that wait.
    pub fn new(staged: AtomicFile, spill: &'s SpillFile, waiting_budget_bytes: usize) -> Self {
        Self {
            atomic_file: Some(staged),
            spill,
            waiting_budget_bytes,
            waiting_bytes: AtomicUsize::new(0),
            next_part: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// Creates a value that builds parts for a file of another process. All parts are written to the spill file.
    pub(crate) fn detached(spill: &'s SpillFile) -> Self {
        let next_part = usize::MAX;
        Self {
            atomic_file: None,
            spill,
            waiting_budget_bytes: 0,
            waiting_bytes: AtomicUsize::new(0),
            next_part: AtomicUsize::new(next_part),
            state: Mutex::new(PartitionedFileState { next_part, ..PartitionedFileState::default() }),
        }
    }

    /// Returns a writer for part `index`. Every part, starting with 0, must be written exactly once. The order is
    /// arbitrary.
    pub(crate) fn part_writer(&self, index: usize) -> PartWriter<'_> {
        PartWriter { file: self, index, buffer: Vec::new(), part: BufferedPart::default(), written_bytes: 0 }
    }

    /// Returns the output file, which is not published yet.
    pub fn atomic_file(&self) -> &AtomicFile {
        self.atomic_file.as_ref().expect("detached parts have no file")
    }

    /// Registers a part that another process has written to its final offset in the file.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the part does not start at the end of the preceding part.
    pub(crate) fn add_written_part(&self, index: usize, extent: PartExtent) -> io::Result<()> {
        self.restore_part(index, &PartLocation::File { offset: extent.offset, bytes: extent.bytes })
    }

    /// Returns the total size of the contiguous parts from the start of the file, bytes.
    pub(crate) fn contiguous_bytes(&self) -> u64 {
        self.state.lock().next_offset
    }

    /// Registers a part that an earlier process completed, instead of writing it again.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::InvalidData`] if the part does not start at the end of the
    /// preceding part.
    pub fn restore_part(&self, index: usize, place: &PartLocation) -> io::Result<()> {
        let buffers: Vec<BufferedBytes> = match place {
            PartLocation::File { offset, bytes } => vec![BufferedBytes::InFile { offset: *offset, bytes: *bytes }],
            PartLocation::Spill(pieces) => pieces
                .iter()
                .map(|(offset, bytes)| BufferedBytes::Spilled { offset: *offset, bytes: *bytes as usize })
                .collect(),
        };
        self.complete_part(index, BufferedPart { bytes: buffers.iter().map(BufferedBytes::bytes).sum(), buffers })
    }

    /// Registers a complete part. Writes this part and the complete parts that follow it as soon as their offsets are
    /// known.
    fn complete_part(&self, index: usize, part: BufferedPart) -> io::Result<()> {
        let mut state = self.state.lock();
        state.complete_parts.insert(index, part);
        let mut placed = Vec::new();
        while let Some(part) = {
            let turn = state.next_part;
            state.complete_parts.remove(&turn)
        } {
            let extent = PartExtent { offset: state.next_offset, bytes: part.bytes };
            state.extents.push(extent);
            state.next_offset += part.bytes;
            state.next_part += 1;
            placed.push((state.next_part - 1, extent, part));
        }
        self.next_part.store(state.next_part, Ordering::Release);
        drop(state);
        for (index, extent, part) in placed {
            self.write_part(extent.offset + extent.bytes, part)?;
            let mut state = self.state.lock();
            state.written_out_of_order.insert(index);
            while let Some(index) =
                Some(state.written_prefix_parts).filter(|index| state.written_out_of_order.contains(index))
            {
                state.written_out_of_order.remove(&index);
                state.written_prefix_parts += 1;
            }
        }
        Ok(())
    }

    /// Returns the locations of the contiguous written parts from the start of the file. Other processes can read these
    /// parts.
    pub(crate) fn written_prefix(&self) -> Vec<PartExtent> {
        let state = self.state.lock();
        state.extents[..state.written_prefix_parts].to_vec()
    }

    /// Writes the buffers of a part, of which the last byte precedes offset `end`. Earlier bytes of the part are
    /// already in the file.
    fn write_part(&self, end: u64, part: BufferedPart) -> io::Result<()> {
        let waiting: u64 = part.buffers.iter().map(BufferedBytes::bytes).sum();
        let mut offset = end - waiting;
        for piece in part.buffers {
            let bytes = piece.bytes();
            match piece {
                BufferedBytes::Memory(data) => {
                    self.atomic_file().file().write_all_at(&data, offset)?;
                    self.waiting_bytes.fetch_sub(bytes as usize, Ordering::Relaxed);
                }
                BufferedBytes::Spilled { offset: from, bytes } => self.copy_from_spill(from, offset, bytes)?,
                BufferedBytes::InFile { offset: at, .. } if at == offset => {}
                BufferedBytes::InFile { offset: at, .. } => {
                    let message = format!(
                        "a stored part is at offset {at} instead of {offset}; run the command again without --resume"
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
            }
            offset += bytes;
        }
        Ok(())
    }

    fn copy_from_spill(&self, mut from: u64, mut to: u64, mut bytes: usize) -> io::Result<()> {
        let mut buffer = vec![0; PART_BUFFER_BYTES.min(bytes)];
        while bytes > 0 {
            let chunk = buffer.len().min(bytes);
            self.spill.read_at(from, &mut buffer[..chunk])?;
            self.atomic_file().file().write_all_at(&buffer[..chunk], to)?;
            from += chunk as u64;
            to += chunk as u64;
            bytes -= chunk;
        }
        Ok(())
    }

    /// Writes `last_bytes` after all parts and makes the file durable, but does not publish the file. Returns the
    /// locations of all parts. `parts`: the expected number of parts.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::InvalidData`] if a part is missing.
    pub fn finish_file(&self, parts: usize, last_bytes: &[u8]) -> io::Result<Vec<PartExtent>> {
        let (extents, end) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.extents), state.next_offset)
        };
        if extents.len() != parts {
            let message =
                format!("{} of {parts} parts of {} were written", extents.len(), self.atomic_file().path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let file = self.atomic_file().file();
        file.write_all_at(last_bytes, end)?;
        file.set_len(end + last_bytes.len() as u64)?;
        Ok(extents)
    }

    /// Returns the finished file, which the caller publishes together with others.
    pub(crate) fn into_atomic_file(self) -> AtomicFile {
        self.atomic_file.expect("detached parts have no file")
    }
}

/// Bytes of a part in pages of the file that contain bytes of other parts, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEdges {
    /// Bytes before the first page that contains only this part; the whole part if there is no such page.
    pub first: Vec<u8>,
    /// Bytes after the last page that contains only this part.
    pub last: Vec<u8>,
}

/// Copies a part from the spill file to the output file, except for pages that contain bytes of other parts. On network
/// file systems, two hosts that write the same page overwrite each other's bytes. Returns the bytes in shared pages,
/// for the process that assembles the file.
///
/// # Errors
/// The I/O error of the file system.
pub(crate) fn copy_part(spill: &SpillFile, place: &PartLocation, file: &File, offset: u64) -> io::Result<PartEdges> {
    let pieces = match place {
        PartLocation::Spill(pieces) => &pieces[..],
        PartLocation::File { .. } => return Err(io::Error::other("the part is in a file already")),
    };
    let end = offset + place.bytes();
    let own = offset.next_multiple_of(PAGE_BYTES)..end / PAGE_BYTES * PAGE_BYTES;
    let mut edges = PartEdges::default();
    let mut buffer = vec![0; PART_BUFFER_BYTES];
    let mut at = offset;
    for (from, bytes) in pieces {
        let mut done = 0;
        while done < *bytes {
            let chunk = &mut buffer[..PART_BUFFER_BYTES.min((bytes - done) as usize)];
            spill.read_at(from + done, chunk)?;
            let within = |position: u64| position.clamp(at, at + chunk.len() as u64) - at;
            let (start, stop) = match own.is_empty() {
                true => (chunk.len(), chunk.len()),
                false => (within(own.start) as usize, within(own.end) as usize),
            };
            edges.first.extend_from_slice(&chunk[..start]);
            file.write_all_at(&chunk[start..stop], at + start as u64)?;
            edges.last.extend_from_slice(&chunk[stop..]);
            at += chunk.len() as u64;
            done += chunk.len() as u64;
        }
    }
    Ok(edges)
}

impl BufferedBytes {
    fn bytes(&self) -> u64 {
        match self {
            Self::Memory(data) => data.len() as u64,
            Self::Spilled { bytes, .. } => *bytes as u64,
            Self::InFile { bytes, .. } => *bytes,
        }
    }
}

/// A writer of one part. [`PartWriter::finish`] completes the part. If the writer is dropped before, the part is
/// missing, and the file cannot be finished.
pub(crate) struct PartWriter<'f> {
    file: &'f PartitionedFile<'f>,
    index: usize,
    buffer: Vec<u8>,
    part: BufferedPart,
    /// Number of bytes of this part that are already in the file.
    written_bytes: u64,
}

impl PartWriter<'_> {
    /// Writes the buffered bytes and returns the location of the part. Requires a memory limit of 0 for waiting parts.
    /// The part is then in the file or in the spill file, and stays there.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub(crate) fn flush_for_checkpoint(&mut self) -> io::Result<PartLocation> {
        self.flush_buffer()?;
        if self.written_bytes > 0 {
            return Ok(PartLocation::File { offset: self.file.state.lock().next_offset, bytes: self.written_bytes });
        }
        let spilled = |piece: &BufferedBytes| match piece {
            BufferedBytes::Spilled { offset, bytes } => Ok((*offset, *bytes as u64)),
            BufferedBytes::Memory(_) | BufferedBytes::InFile { .. } => {
                Err(io::Error::other("a bug in godwit: a part to be stored in the job directory is in memory"))
            }
        };
        self.part.buffers.iter().map(spilled).collect::<io::Result<_>>().map(PartLocation::Spill)
    }

    /// Completes the part. Writes it as soon as all parts before it are complete.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush_buffer()?;
        let mut part = std::mem::take(&mut self.part);
        part.bytes += self.written_bytes;
        self.file.complete_part(self.index, part)
    }

    fn flush_buffer(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.file.next_part.load(Ordering::Acquire) == self.index {
            return self.write_through();
        }
        let bytes = self.buffer.len();
        let waiting = self.file.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let piece = if waiting <= self.file.waiting_budget_bytes {
            BufferedBytes::Memory(std::mem::take(&mut self.buffer))
        } else {
            self.file.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let offset = self.file.spill.append(&self.buffer)?;
            self.buffer.clear();
            BufferedBytes::Spilled { offset, bytes }
        };
        self.part.bytes += bytes as u64;
        self.part.buffers.push(piece);
        Ok(())
    }

    fn write_through(&mut self) -> io::Result<()> {
        let start = self.file.state.lock().next_offset;
        let waiting = std::mem::take(&mut self.part);
        if waiting.bytes > 0 {
            self.written_bytes += waiting.bytes;
            self.file.write_part(start + self.written_bytes, waiting)?;
        }
        self.file.atomic_file().file().write_all_at(&self.buffer, start + self.written_bytes)?;
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl io::Write for PartWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PART_BUFFER_BYTES {
            self.flush_buffer()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::sync::Arc;

    use super::*;
    use godwit_files::AtomicSet;

    fn publish(file: PartitionedFile) {
        let mut staged = AtomicSet::default();
        staged.add(file.into_atomic_file()).unwrap();
        staged.publish().unwrap();
    }

    fn write_parts(order: &[usize], waiting_budget: usize) -> (Vec<u8>, Vec<PartExtent>) {
        let directory = tempfile::tempdir().unwrap();
        let spill = SpillFile::create(directory.path(), Arc::default()).unwrap();
        let path = directory.path().join("whole");
        let file = PartitionedFile::new(AtomicFile::create(&path).unwrap(), &spill, waiting_budget);
        for index in order {
            let mut part = file.part_writer(*index);
            let bytes = vec![b'a' + *index as u8; PART_BUFFER_BYTES / 2 * (index + 1) + index];
            bytes.chunks(300_000).for_each(|chunk| part.write_all(chunk).unwrap());
            assert!(!path.exists());
            part.finish().unwrap();
        }
        let extents = file.finish_file(order.len(), b"end").unwrap();
        publish(file);
        (fs::read(&path).unwrap(), extents)
    }

    #[test]
    fn parts_land_in_order_whatever_order_they_end_in() {
        let (expected, extents) = write_parts(&[0, 1, 2, 3, 4], usize::MAX);
        assert!(expected.ends_with(b"eeend"));
        assert_eq!(extents[1].offset, extents[0].bytes);
        for order in [[4, 3, 2, 1, 0], [1, 0, 4, 2, 3], [2, 0, 1, 4, 3]] {
            for budget in [0, PART_BUFFER_BYTES, usize::MAX] {
                assert_eq!(write_parts(&order, budget), (expected.clone(), extents.clone()));
            }
        }
    }

    #[test]
    fn parts_made_apart_fill_the_file_with_their_edges() {
        let directory = tempfile::tempdir().unwrap();
        let spill = SpillFile::create(directory.path(), Arc::default()).unwrap();
        let file = tempfile::tempfile().unwrap();
        let sizes = [10, 300_000, PAGE_BYTES as usize, 0, 5_000_000, 70_000, 1];
        let (mut offset, mut expected) = (7, vec![0; 7]);
        let parts = PartitionedFile::detached(&spill);
        for (index, bytes) in sizes.into_iter().enumerate() {
            let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 ^ index as u8).collect();
            let mut part = parts.part_writer(index);
            content.chunks(999_999).for_each(|chunk| part.write_all(chunk).unwrap());
            let place = part.flush_for_checkpoint().unwrap();
            let edges = copy_part(&spill, &place, &file, offset).unwrap();
            file.write_all_at(&edges.first, offset).unwrap();
            offset += bytes as u64;
            file.write_all_at(&edges.last, offset - edges.last.len() as u64).unwrap();
            assert!(edges.first.len() + edges.last.len() < 2 * PAGE_BYTES as usize);
            expected.extend(content);
        }
        let mut written = vec![0; expected.len()];
        file.read_exact_at(&mut written, 0).unwrap();
        assert!(written == expected);
    }

    #[test]
    fn a_missing_part_keeps_the_file_from_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let spill = SpillFile::create(directory.path(), Arc::default()).unwrap();
        let path = directory.path().join("whole");
        let file = PartitionedFile::new(AtomicFile::create(&path).unwrap(), &spill, 0);
        file.part_writer(1).finish().unwrap();
        assert!(file.finish_file(2, b"").is_err());
        drop(file);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn parts_written_at_once_give_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        let spill = SpillFile::create(directory.path(), Arc::default()).unwrap();
        let path = directory.path().join("whole");
        let file = PartitionedFile::new(AtomicFile::create(&path).unwrap(), &spill, PART_BUFFER_BYTES);
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let file = &file;
                scope.spawn(move || {
                    for index in (worker..30).step_by(3) {
                        let mut part = file.part_writer(index);
                        for _ in 0..40 {
                            part.write_all(&vec![index as u8; 50_000]).unwrap();
                        }
                        part.finish().unwrap();
                    }
                });
            }
        });
        file.finish_file(30, b"").unwrap();
        publish(file);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 30 * 2_000_000);
        assert!(bytes.chunks(2_000_000).enumerate().all(|(i, part)| part.iter().all(|byte| *byte == i as u8)));
    }
}
