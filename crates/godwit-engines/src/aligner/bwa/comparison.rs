//! Compares the bases of a FASTA file with the bases of an index, without loading either file completely.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::index_files::IndexDescription;
use super::index_validation::IndexError;

/// Number of bytes of the `.pac` file that are in memory at a time; each byte contains four bases.
const WINDOW_BYTES: usize = 256 << 10;
/// The code of every letter except A, C, G and T. Shifted to any of the four base positions of a byte, its bit lies
/// above the byte, so that such a letter never equals a packed base.
const NON_ACGT_CODE: u32 = 0x100;

/// Two-bit codes of the bases A, C, G and T, equal to those in bwa's table `nst_nt4_table`.
const BASE_CODES: [u32; 256] = {
    let mut codes = [NON_ACGT_CODE; 256];
    let mut code = 0;
    while code < 4 {
        codes[b"ACGT"[code] as usize] = code as u32;
        codes[b"acgt"[code] as usize] = code as u32;
        code += 1;
    }
    codes
};

/// A reader of the bases of an index. Its position is an offset in the concatenation of all contigs.
pub(super) struct PacReader<'a> {
    path: PathBuf,
    file: File,
    /// Bytes of the `.pac` file from base `window_start` on.
    window: Vec<u8>,
    window_start: u64,
    position: u64,
    holes: &'a [(u64, u64)],
}

impl<'a> PacReader<'a> {
    /// Opens a `.pac` file and sets the position to the first base.
    pub(super) fn open(path: &Path, layout: &'a IndexDescription) -> Result<Self, IndexError> {
        let file = File::open(path).map_err(|source| IndexError::cannot_read(path, source))?;
        Ok(Self { path: path.to_owned(), file, window: Vec::new(), window_start: 0, position: 0, holes: &layout.holes })
    }

    /// Compares `bases` with the next bases of the index and returns the 0-based offset of the first difference. In a
    /// hole of the index, every letter except A, C, G and T is equal, because bwa stores random bases there.
    pub(super) fn first_difference(&mut self, bases: &[u8]) -> Result<Option<usize>, IndexError> {
        let mut done = 0;
        while done < bases.len() {
            let rest = &bases[done..];
            let (in_hole, until) = self.current_segment();
            let scanned = usize::try_from(until - self.position).map_or(rest.len(), |bases| bases.min(rest.len()));
            let (compared, difference) = if in_hole {
                (scanned, rest[..scanned].iter().position(|base| BASE_CODES[usize::from(*base)] != NON_ACGT_CODE))
            } else {
                self.compare_packed(&rest[..scanned])?
            };
            if let Some(offset) = difference {
                return Ok(Some(done + offset));
            }
            done += compared;
            self.position += compared as u64;
        }
        Ok(None)
    }

    /// Returns whether the current position is in a hole, and the end of that hole. Outside a hole, returns the start
    /// of the next hole instead.
    fn current_segment(&mut self) -> (bool, u64) {
        while let Some(((start, length), later)) = self.holes.split_first() {
            if self.position >= start + length {
                self.holes = later;
                continue;
            }
            return if self.position < *start { (false, *start) } else { (true, start + length) };
        }
        (false, u64::MAX)
    }

    /// Compares `bases` as far as the window reaches. Returns the number of compared bases and the offset of the first
    /// difference.
    fn compare_packed(&mut self, bases: &[u8]) -> Result<(usize, Option<usize>), IndexError> {
        if self.position >= self.window_start + 4 * self.window.len() as u64 {
            self.refill_window()?;
        }
        let skipped = (self.position - self.window_start) as usize;
        let held = (4 * self.window.len()).saturating_sub(skipped);
        let compared = bases.len().min(held);
        if compared == 0 {
            return Ok((0, Some(0)));
        }
        Ok((compared, first_mismatch(&self.window, skipped, &bases[..compared])))
    }

    /// Fills the window from the current position on. A seek skips bases of `.pac` that lie in holes.
    fn refill_window(&mut self) -> Result<(), IndexError> {
        let failed = |source| IndexError::cannot_read(&self.path, source);
        let byte = self.position / 4;
        self.file.seek(SeekFrom::Start(byte)).map_err(failed)?;
        self.window.clear();
        self.file.by_ref().take(WINDOW_BYTES as u64).read_to_end(&mut self.window).map_err(failed)?;
        self.window_start = byte * 4;
        Ok(())
    }
}

/// Returns the 0-based index of the first element of `bases` that differs from `packed`, compared from base `offset` of
/// `packed` on.
fn first_mismatch(packed: &[u8], offset: usize, bases: &[u8]) -> Option<usize> {
    let code = |base: u8| BASE_CODES[usize::from(base)];
    let differs = |index: usize| {
        let place = offset + index;
        code(bases[index]) != u32::from(packed[place / 4] >> (6 - 2 * (place % 4)) & 3)
    };
    let head = ((4 - offset % 4) % 4).min(bases.len());
    if let Some(index) = (0..head).find(|index| differs(*index)) {
        return Some(index);
    }
    let whole = &packed[(offset + head) / 4..];
    let (quads, _) = bases[head..].as_chunks::<4>();
    let unequal = quads.iter().zip(whole).position(|(quad, byte)| {
        code(quad[0]) << 6 | code(quad[1]) << 4 | code(quad[2]) << 2 | code(quad[3]) != u32::from(*byte)
    });
    let resume = head + 4 * unequal.unwrap_or(quads.len());
    (resume..bases.len()).find(|index| differs(*index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(bases: &[u8]) -> Vec<u8> {
        let quad = |quad: &[u8]| {
            (0..4).fold(0, |byte, at| byte << 2 | quad.get(at).map_or(0, |b| BASE_CODES[usize::from(*b)] as u8))
        };
        bases.chunks(4).map(quad).collect()
    }

    #[test]
    fn the_first_difference_is_found_at_every_offset() {
        let bases = b"ACGTTGCAacgtNGATTACA".map(|base| if base == b'N' { b'C' } else { base });
        let packed = pack(&bases);
        for start in 0..bases.len() {
            assert_eq!(first_mismatch(&packed, start, &bases[start..]), None);
            for changed in start..bases.len() {
                for letter in [b'N', b'A', b'C', b'G', b'T'] {
                    if letter == bases[changed].to_ascii_uppercase() {
                        continue;
                    }
                    let mut other = bases;
                    other[changed] = letter;
                    assert_eq!(first_mismatch(&packed, start, &other[start..]), Some(changed - start));
                }
            }
        }
    }
}
