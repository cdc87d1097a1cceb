//! The text that an index is of: the bases of `.pac`, and behind them their reverse complement.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::memory::prefetch;

/// Both strands of a genome, two bits a base of one strand.
pub(super) struct Text {
    /// Four bases a byte, the first in the highest bits.
    forward: Vec<u8>,
    genome_bases: u64,
}

/// Place of a base of the text in `.pac`.
struct PackedBase {
    byte: u64,
    shift: u64,
    /// Set in all bits of a base of the reverse complement.
    complement: u8,
}

impl PackedBase {
    /// `position`: 0-based, of both strands.
    fn at(position: u64, genome_bases: u64) -> Self {
        let is_reverse = position >= genome_bases;
        let forward = if is_reverse { (2 * genome_bases - 1).wrapping_sub(position) } else { position };
        Self { byte: forward / 4, shift: 6 - 2 * (forward % 4), complement: if is_reverse { 3 } else { 0 } }
    }

    /// The base, from 0 to 3, of its byte.
    fn of_byte(&self, byte: u8) -> u8 {
        byte >> self.shift & 3 ^ self.complement
    }
}

impl Text {
    /// Reads all of `.pac`.
    pub(super) fn read(mut pac: File, genome_bases: u64) -> io::Result<Self> {
        let mut forward = vec![0; genome_bases.div_ceil(4) as usize];
        pac.read_exact(&mut forward)?;
        Ok(Self { forward, genome_bases })
    }

    /// The base at a 0-based position, from 0 to 3; none past the end.
    pub(super) fn base(&self, position: u64) -> Option<u8> {
        let packed = PackedBase::at(position, self.genome_bases);
        self.forward.get(packed.byte as usize).map(|byte| packed.of_byte(*byte))
    }

    /// Has the base at a position fetched.
    pub(super) fn prefetch(&self, position: u64) {
        prefetch(&self.forward, PackedBase::at(position, self.genome_bases).byte);
    }
}

/// One base of the text, from the file. `position`: 0-based, within both strands.
pub(super) fn base_in_file(pac: &File, position: u64, genome_bases: u64) -> io::Result<u8> {
    let packed = PackedBase::at(position, genome_bases);
    let mut byte = [0];
    pac.read_exact_at(&mut byte, packed.byte)?;
    Ok(packed.of_byte(byte[0]))
}
