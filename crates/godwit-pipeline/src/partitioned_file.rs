//! One file written by many workers, each its own part, at offsets that are known only as the parts before it end.
//!
//! The part whose turn it is goes straight to the file. Others wait in memory within a shared limit, then in the spill.
//! Whoever completes a part also places those behind it that are complete, so no worker ever waits for another. A part that
//! an earlier process sealed is completed where it lies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use godwit_kernels::sort::Spill;
use serde::{Deserialize, Serialize};

use crate::scratch::SpillFile;
use crate::staging::StagedFile;

/// Bytes a part gathers before they are handed on.
const HANDOVER_BYTES: usize = 1 << 20;
/// Bytes of a page, or a multiple: what a client of a network file system writes back as one.
const PAGE_BYTES: u64 = 64 << 10;

/// A file in parts. Dropping it removes what is there.
pub struct PartitionedFile<'s> {
    /// None where parts are only made, for a file that another process puts together.
    staged: Option<StagedFile>,
    spill: &'s SpillFile,
    /// Bytes of waiting parts that may stay in memory.
    waiting_budget: usize,
    waiting_bytes: AtomicUsize,
    /// The part whose turn it is; equals `state.turn`, readable without the lock.
    turn: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    turn: usize,
    /// Where the part whose turn it is starts.
    offset: u64,
    complete: BTreeMap<usize, Part>,
    extents: Vec<PartExtent>,
    /// Parts whose bytes are in the file, without those that `landed` counts.
    apart: BTreeSet<usize>,
    /// Parts from the first on whose bytes are all in the file.
    landed: usize,
}

/// Where a part ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartExtent {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Bytes of a part not yet in the file.
#[derive(Default)]
struct Part {
    bytes: u64,
    pieces: Vec<Piece>,
}

enum Piece {
    Memory(Vec<u8>),
    Spilled {
        offset: u64,
        bytes: usize,
    },
    /// In the file, put there by an earlier process.
    Placed {
        offset: u64,
        bytes: u64,
    },
}

/// Where the bytes of a sealed part are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartPlace {
    /// In the file itself.
    File {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// In the spill, as pieces: first byte and number of bytes.
    Spill(Vec<(u64, u64)>),
}

impl PartPlace {
    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Spill(pieces) => pieces.iter().map(|(_, bytes)| bytes).sum(),
        }
    }
}

impl<'s> PartitionedFile<'s> {
    /// Parts of an empty file.
    pub fn new(staged: StagedFile, spill: &'s SpillFile, waiting_budget: usize) -> Self {
        Self {
            staged: Some(staged),
            spill,
            waiting_budget,
            waiting_bytes: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// Parts for a file that another process puts together: all of them are sealed in the spill, none has its turn.
    pub fn apart(spill: &'s SpillFile) -> Self {
        let turn = usize::MAX;
        Self {
            staged: None,
            spill,
            waiting_budget: 0,
            waiting_bytes: AtomicUsize::new(0),
            turn: AtomicUsize::new(turn),
            state: Mutex::new(State { turn, ..State::default() }),
        }
    }

    /// A writer of part `index`. Every part from 0 on must be written exactly once, in any order.
    pub fn part(&self, index: usize) -> PartWriter<'_> {
        PartWriter { file: self, index, buffer: Vec::new(), part: Part::default(), written: 0 }
    }

    /// The file as it is so far.
    pub fn staged(&self) -> &StagedFile {
        self.staged.as_ref().expect("where parts are made apart, none of them gets to the file")
    }

    /// Completes a part that another process put where it belongs.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] where it does not follow the part before it.
    pub fn placed(&self, index: usize, extent: PartExtent) -> io::Result<()> {
        self.restore(index, &PartPlace::File { offset: extent.offset, bytes: extent.bytes })
    }

    /// Bytes of the parts whose places are known.
    pub fn placed_bytes(&self) -> u64 {
        self.lock().offset
    }

    /// Completes a part that an earlier process sealed, instead of writing it.
    ///
    /// # Errors
    /// What the file system reports; [`io::ErrorKind::InvalidData`] where it does not follow the part before it.
    pub fn restore(&self, index: usize, place: &PartPlace) -> io::Result<()> {
        let pieces: Vec<Piece> = match place {
            PartPlace::File { offset, bytes } => vec![Piece::Placed { offset: *offset, bytes: *bytes }],
            PartPlace::Spill(pieces) => pieces
                .iter()
                .map(|(offset, bytes)| Piece::Spilled { offset: *offset, bytes: *bytes as usize })
                .collect(),
        };
        self.complete(index, Part { bytes: pieces.iter().map(Piece::bytes).sum(), pieces })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking worker ends the run, so the state behind a poisoned lock is only ever dropped.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places a complete part, and those behind it that waited for it.
    fn complete(&self, index: usize, part: Part) -> io::Result<()> {
        let mut state = self.lock();
        state.complete.insert(index, part);
        let mut placed = Vec::new();
        while let Some(part) = {
            let turn = state.turn;
            state.complete.remove(&turn)
        } {
            let extent = PartExtent { offset: state.offset, bytes: part.bytes };
            state.extents.push(extent);
            state.offset += part.bytes;
            state.turn += 1;
            placed.push((state.turn - 1, extent, part));
        }
        self.turn.store(state.turn, Ordering::Release);
        drop(state);
        for (index, extent, part) in placed {
            self.place(extent.offset + extent.bytes, part)?;
            let mut state = self.lock();
            state.apart.insert(index);
            while let Some(index) = Some(state.landed).filter(|index| state.apart.contains(index)) {
                state.apart.remove(&index);
                state.landed += 1;
            }
        }
        Ok(())
    }

    /// Where the parts lie whose bytes are in the file, from the first on without a gap: so much of it can be read.
    pub fn landed(&self) -> Vec<PartExtent> {
        let state = self.lock();
        state.extents[..state.landed].to_vec()
    }

    /// Writes the pieces of a part so that they end at `end`: what came before them is in the file already.
    fn place(&self, end: u64, part: Part) -> io::Result<()> {
        let waiting: u64 = part.pieces.iter().map(Piece::bytes).sum();
        let mut offset = end - waiting;
        for piece in part.pieces {
            let bytes = piece.bytes();
            match piece {
                Piece::Memory(data) => {
                    self.staged().file().write_all_at(&data, offset)?;
                    self.waiting_bytes.fetch_sub(bytes as usize, Ordering::Relaxed);
                }
                Piece::Spilled { offset: from, bytes } => self.copy_from_spill(from, offset, bytes)?,
                Piece::Placed { offset: at, .. } if at == offset => {}
                Piece::Placed { offset: at, .. } => {
                    let message = format!("a part kept at byte {at} belongs at {offset}; run again without --resume");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
            }
            offset += bytes;
        }
        Ok(())
    }

    fn copy_from_spill(&self, mut from: u64, mut to: u64, mut bytes: usize) -> io::Result<()> {
        let mut buffer = vec![0; HANDOVER_BYTES.min(bytes)];
        while bytes > 0 {
            let chunk = buffer.len().min(bytes);
            self.spill.read_at(from, &mut buffer[..chunk])?;
            self.staged().file().write_all_at(&buffer[..chunk], to)?;
            from += chunk as u64;
            to += chunk as u64;
            bytes -= chunk;
        }
        Ok(())
    }

    /// Appends the last bytes behind all parts and makes the file durable; it still lacks its name. Returns where each
    /// of the `parts` parts lies.
    ///
    /// # Errors
    /// What the file system reports; a missing part is [`io::ErrorKind::InvalidData`].
    pub fn seal(&self, parts: usize, last_bytes: &[u8]) -> io::Result<Vec<PartExtent>> {
        let (extents, end) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.extents), state.offset)
        };
        if extents.len() != parts {
            let message =
                format!("{} of {parts} parts of {} were written", extents.len(), self.staged().path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let file = self.staged().file();
        file.write_all_at(last_bytes, end)?;
        file.set_len(end + last_bytes.len() as u64)?;
        file.sync_all()?;
        Ok(extents)
    }

    /// A sealed file, to be published with others.
    pub fn into_staged(self) -> StagedFile {
        self.staged.expect("where parts are made apart, there is no file to seal")
    }
}

/// What a part has in pages of the file that it shares with its neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEdges {
    /// Bytes before the first page that is the part's alone; the whole part where there is none.
    pub first: Vec<u8>,
    /// Bytes behind the last such page.
    pub last: Vec<u8>,
}

/// Copies a part that was made apart into the file, as far as it has pages to itself: on network file systems two
/// machines that write one page undo each other's work. Returns what is left for the one who puts the file together.
///
/// # Errors
/// What the file system reports.
pub fn copy_part(spill: &SpillFile, place: &PartPlace, file: &File, offset: u64) -> io::Result<PartEdges> {
    let pieces = match place {
        PartPlace::Spill(pieces) => &pieces[..],
        PartPlace::File { .. } => return Err(io::Error::other("the part is in a file already")),
    };
    let end = offset + place.bytes();
    let own = offset.next_multiple_of(PAGE_BYTES)..end / PAGE_BYTES * PAGE_BYTES;
    let mut edges = PartEdges::default();
    let mut buffer = vec![0; HANDOVER_BYTES];
    let mut at = offset;
    for (from, bytes) in pieces {
        let mut done = 0;
        while done < *bytes {
            let chunk = &mut buffer[..HANDOVER_BYTES.min((bytes - done) as usize)];
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

impl Piece {
    fn bytes(&self) -> u64 {
        match self {
            Self::Memory(data) => data.len() as u64,
            Self::Spilled { bytes, .. } => *bytes as u64,
            Self::Placed { bytes, .. } => *bytes,
        }
    }
}

/// Writes one part. [`PartWriter::finish`] completes it; a dropped writer leaves the part missing, and the file cannot be
/// sealed.
pub struct PartWriter<'f> {
    file: &'f PartitionedFile<'f>,
    index: usize,
    buffer: Vec<u8>,
    part: Part,
    /// Bytes of this part that are in the file.
    written: u64,
}

impl PartWriter<'_> {
    /// Hands over the last bytes. Without room for waiting parts in memory, what is sealed is in the file or in the
    /// spill, and stays there when the part ends; returns where.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn seal(&mut self) -> io::Result<PartPlace> {
        self.hand_over()?;
        if self.written > 0 {
            return Ok(PartPlace::File { offset: self.file.lock().offset, bytes: self.written });
        }
        let spilled = |piece: &Piece| match piece {
            Piece::Spilled { offset, bytes } => Ok((*offset, *bytes as u64)),
            Piece::Memory(_) | Piece::Placed { .. } => Err(io::Error::other("a part to keep is in memory")),
        };
        self.part.pieces.iter().map(spilled).collect::<io::Result<_>>().map(PartPlace::Spill)
    }

    /// Ends the part.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn finish(mut self) -> io::Result<()> {
        self.hand_over()?;
        let mut part = std::mem::take(&mut self.part);
        part.bytes += self.written;
        self.file.complete(self.index, part)
    }

    fn hand_over(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.file.turn.load(Ordering::Acquire) == self.index {
            return self.write_through();
        }
        let bytes = self.buffer.len();
        let waiting = self.file.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let piece = if waiting <= self.file.waiting_budget {
            Piece::Memory(std::mem::take(&mut self.buffer))
        } else {
            self.file.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let offset = self.file.spill.append(&self.buffer)?;
            self.buffer.clear();
            Piece::Spilled { offset, bytes }
        };
        self.part.bytes += bytes as u64;
        self.part.pieces.push(piece);
        Ok(())
    }

    fn write_through(&mut self) -> io::Result<()> {
        let start = self.file.lock().offset;
        let waiting = std::mem::take(&mut self.part);
        if waiting.bytes > 0 {
            self.written += waiting.bytes;
            self.file.place(start + self.written, waiting)?;
        }
        self.file.staged().file().write_all_at(&self.buffer, start + self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl io::Write for PartWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= HANDOVER_BYTES {
            self.hand_over()?;
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
    use crate::staging::Staged;

    fn publish(file: PartitionedFile) {
        let mut staged = Staged::default();
        staged.add(file.into_staged());
        staged.publish().unwrap();
    }

    fn write_parts(order: &[usize], waiting_budget: usize) -> (Vec<u8>, Vec<PartExtent>) {
        let directory = tempfile::tempdir().unwrap();
        let spill = SpillFile::create(directory.path(), Arc::default()).unwrap();
        let path = directory.path().join("whole");
        let file = PartitionedFile::new(StagedFile::create(&path).unwrap(), &spill, waiting_budget);
        for index in order {
            let mut part = file.part(*index);
            let bytes = vec![b'a' + *index as u8; HANDOVER_BYTES / 2 * (index + 1) + index];
            bytes.chunks(300_000).for_each(|chunk| part.write_all(chunk).unwrap());
            assert!(!path.exists());
            part.finish().unwrap();
        }
        let extents = file.seal(order.len(), b"end").unwrap();
        publish(file);
        (fs::read(&path).unwrap(), extents)
    }

    #[test]
    fn parts_land_in_order_whatever_order_they_end_in() {
        let (expected, extents) = write_parts(&[0, 1, 2, 3, 4], usize::MAX);
        assert!(expected.ends_with(b"eeend"));
        assert_eq!(extents[1].offset, extents[0].bytes);
        for order in [[4, 3, 2, 1, 0], [1, 0, 4, 2, 3], [2, 0, 1, 4, 3]] {
            for budget in [0, HANDOVER_BYTES, usize::MAX] {
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
        let parts = PartitionedFile::apart(&spill);
        for (index, bytes) in sizes.into_iter().enumerate() {
            let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 ^ index as u8).collect();
            let mut part = parts.part(index);
            content.chunks(999_999).for_each(|chunk| part.write_all(chunk).unwrap());
            let place = part.seal().unwrap();
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
        let file = PartitionedFile::new(StagedFile::create(&path).unwrap(), &spill, 0);
        file.part(1).finish().unwrap();
        assert!(file.seal(2, b"").is_err());
        drop(file);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn parts_written_at_once_give_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        let spill = SpillFile::create(directory.path(), Arc::default()).unwrap();
        let path = directory.path().join("whole");
        let file = PartitionedFile::new(StagedFile::create(&path).unwrap(), &spill, HANDOVER_BYTES);
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let file = &file;
                scope.spawn(move || {
                    for index in (worker..30).step_by(3) {
                        let mut part = file.part(index);
                        for _ in 0..40 {
                            part.write_all(&vec![index as u8; 50_000]).unwrap();
                        }
                        part.finish().unwrap();
                    }
                });
            }
        });
        file.seal(30, b"").unwrap();
        publish(file);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 30 * 2_000_000);
        assert!(bytes.chunks(2_000_000).enumerate().all(|(i, part)| part.iter().all(|byte| *byte == i as u8)));
    }
}
