//! Stretches of a plain FASTA file, by its index.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use godwit_model::BASE_LETTERS;

use super::FaiRecord;

/// Bases read at once: neighbours of what was asked for, because it is mostly asked for in order.
const WINDOW_BASES: u64 = 64 << 10;

/// 4-bit code of each letter (SAMv1 §4.2.3); 0 for letters that stand for no base.
const CODES: [u8; 256] = {
    let mut codes = [0; 256];
    let mut code = 1;
    while code < BASE_LETTERS.len() {
        codes[BASE_LETTERS[code] as usize] = code as u8;
        codes[BASE_LETTERS[code].to_ascii_lowercase() as usize] = code as u8;
        code += 1;
    }
    codes
};

/// Hands out bases of contigs, best in ascending order: one window is held.
#[derive(Clone, Debug)]
pub struct Windows {
    file: Arc<File>,
    contigs: Arc<[FaiRecord]>,
    contig: usize,
    start: u64,
    codes: Vec<u8>,
    raw: Vec<u8>,
}

impl Windows {
    /// Of a plain FASTA file whose contigs are `contigs`; they are called by their place in this list.
    pub fn new(file: Arc<File>, contigs: Arc<[FaiRecord]>) -> Self {
        Self { file, contigs, contig: usize::MAX, start: 0, codes: Vec::new(), raw: Vec::new() }
    }

    /// 4-bit codes (SAMv1 §4.2.3) of the bases in `[start, end)`, 0-based; fewer where the contig ends, none of a contig
    /// that is not there. Letters that stand for no base have code 0.
    ///
    /// # Errors
    /// What the file system reports; [`io::ErrorKind::InvalidData`] where the file does not fit its index.
    pub fn codes(&mut self, contig: usize, start: u64, end: u64) -> io::Result<&[u8]> {
        let length = self.contigs.get(contig).map_or(0, |record| record.bases);
        let (start, end) = (start.min(length), end.min(length));
        let held = contig == self.contig && start >= self.start && end <= self.start + self.codes.len() as u64;
        if !held {
            self.read(contig, start, end.max(start + WINDOW_BASES).min(length))?;
        }
        let from = (start - self.start) as usize;
        Ok(&self.codes[from..from + (end.max(start) - start) as usize])
    }

    fn read(&mut self, contig: usize, start: u64, end: u64) -> io::Result<()> {
        (self.contig, self.start) = (contig, start);
        self.codes.clear();
        let Some(record) = self.contigs.get(contig).filter(|_| end > start) else { return Ok(()) };
        let unfit = || io::Error::new(io::ErrorKind::InvalidData, "the reference does not fit its .fai index");
        let place = |base: u64| {
            let line = base.checked_div(record.line_bases)?;
            Some(record.offset + line * record.line_bytes + base % record.line_bases)
        };
        let (Some(first), Some(last)) = (place(start), place(end - 1)) else { return Err(unfit()) };
        self.raw.resize((last + 1 - first) as usize, 0);
        self.file.read_exact_at(&mut self.raw, first)?;
        let letters = self.raw.iter().filter(|byte| !byte.is_ascii_whitespace());
        self.codes.extend(letters.map(|letter| CODES[usize::from(*letter)]));
        if self.codes.len() as u64 == end - start { Ok(()) } else { Err(unfit()) }
    }
}
