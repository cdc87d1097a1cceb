//! Cuts a FASTA file of queries into pieces, by the offsets of the sequences.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::search_plan::partition_by_weight;

/// The query sequences of a FASTA file, in the order in which the tool reports them.
pub(super) struct QueryFile {
    file: File,
    /// Offset and size in the file of each FASTA record, bytes.
    record_extents: Vec<(u64, u64)>,
    /// Index of the first sequence of each piece; the last element is the number of sequences.
    piece_starts: Vec<usize>,
}

impl QueryFile {
    /// Opens a FASTA file, sorts its sequences by number modulo `stride`, and cuts them into at most `pieces` pieces of
    /// about equal size in bytes.
    pub(super) fn open(path: &Path, stride: usize, pieces: usize) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let found = read_record_extents(BufReader::with_capacity(1 << 20, &file))?;
        let interleaved = (0..stride).flat_map(|remainder| found.iter().skip(remainder).step_by(stride));
        let record_extents: Vec<(u64, u64)> = interleaved.copied().collect();
        let weights: Vec<u64> = record_extents.iter().map(|(_, bytes)| *bytes).collect();
        let piece_starts = partition_by_weight(&weights, pieces);
        Ok(Self { file, record_extents, piece_starts })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.record_extents.is_empty()
    }

    /// Returns the number of sequences of a piece, and true for the last piece; `None` if there is no piece with this
    /// number.
    pub(super) fn piece_size(&self, number: usize) -> Option<(u32, bool)> {
        let (first, end) = (self.piece_starts.get(number)?, self.piece_starts.get(number + 1)?);
        Some(((end - first) as u32, number + 2 == self.piece_starts.len()))
    }

    /// Writes the sequences of a piece, which must exist, to the FASTA file `path`.
    pub(super) fn write_piece(&self, number: usize, path: &Path) -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        let mut record = Vec::new();
        for (offset, bytes) in &self.record_extents[self.piece_starts[number]..self.piece_starts[number + 1]] {
            record.resize(*bytes as usize, 0);
            self.file.read_exact_at(&mut record, *offset)?;
            out.write_all(&record)?;
            if record.last() != Some(&b'\n') {
                out.write_all(b"\n")?;
            }
        }
        out.flush()
    }
}

fn read_record_extents(mut from: impl BufRead) -> std::io::Result<Vec<(u64, u64)>> {
    let (mut records, mut line, mut offset): (Vec<(u64, u64)>, _, _) = (Vec::new(), Vec::new(), 0);
    loop {
        line.clear();
        let bytes = from.read_until(b'\n', &mut line)? as u64;
        if bytes == 0 {
            return Ok(records);
        }
        if line[0] == b'>' {
            records.push((offset, 0));
        }
        if let Some(record) = records.last_mut() {
            record.1 += bytes;
        }
        offset += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_their_order_have_every_sequence_once() {
        let directory = tempfile::tempdir().expect("scratch");
        let (path, out) = (directory.path().join("q.fa"), directory.path().join("piece.fa"));
        let text: String = (0..70).map(|number| format!(">q{number}\nMK\n{}\n", "A".repeat(number * 7 % 50))).collect();
        std::fs::write(&path, text.trim_end()).expect("scratch can be written");
        for (stride, pieces) in [(1, 1), (1, 4), (32, 3), (32, 100)] {
            let queries = QueryFile::open(&path, stride, pieces).expect("it can be read");
            let mut names = Vec::new();
            for number in 0.. {
                let Some((count, last)) = queries.piece_size(number) else { break };
                queries.write_piece(number, &out).expect("scratch can be written");
                let piece = std::fs::read_to_string(&out).expect("it was written");
                let found: Vec<&str> = piece.lines().filter_map(|line| line.strip_prefix(">q")).collect();
                assert_eq!((found.len(), last), (count as usize, queries.piece_size(number + 1).is_none()));
                names.extend(found.into_iter().map(|name| name.parse::<usize>().expect("a number")));
            }
            let expected: Vec<usize> = (0..stride).flat_map(|remainder| (remainder..70).step_by(stride)).collect();
            assert_eq!(names, expected, "{stride} {pieces}");
        }
        std::fs::write(&path, "\n").expect("scratch can be written");
        assert!(QueryFile::open(&path, 1, 4).expect("it can be read").is_empty());
    }
}
