//! The text of an index: the bases of `.pac`, followed by their reverse complement.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::memory_hints::prefetch;

/// Both strands of a genome, stored as one strand with two bits a base.
pub(super) struct IndexedText {
    /// Four bases a byte, the first in the highest bits.
    forward: Vec<u8>,
    genome_bases: u64,
}

/// Position of a base of the text in `.pac`.
struct PackedBaseOffset {
    byte: u64,
    shift: u64,
    /// All bits of the base set for the reverse complement, else 0.
    complement: u8,
}

impl PackedBaseOffset {
    /// Returns the offset of a 0-based position of both strands.
    fn from_position(position: u64, genome_bases: u64) -> Self {
        let is_reverse = position >= genome_bases;
        let forward = if is_reverse { (2 * genome_bases - 1).wrapping_sub(position) } else { position };
        Self { byte: forward / 4, shift: 6 - 2 * (forward % 4), complement: if is_reverse { 3 } else { 0 } }
    }

    /// Returns the base, 0 to 3, in its byte.
    fn decode(&self, byte: u8) -> u8 {
        byte >> self.shift & 3 ^ self.complement
    }
}

impl IndexedText {
    /// Reads `.pac` completely.
    pub(super) fn read(mut pac: File, genome_bases: u64) -> io::Result<Self> {
        let mut forward = vec![0; genome_bases.div_ceil(4) as usize];
        pac.read_exact(&mut forward)?;
        Ok(Self { forward, genome_bases })
    }

    /// Returns the base at a 0-based position, 0 to 3; `None` past the end.
    pub(super) fn base(&self, position: u64) -> Option<u8> {
        let packed = PackedBaseOffset::from_position(position, self.genome_bases);
        self.forward.get(packed.byte as usize).map(|byte| packed.decode(*byte))
    }

    /// Prefetches the base at a position.
    pub(super) fn prefetch(&self, position: u64) {
        prefetch(&self.forward, PackedBaseOffset::from_position(position, self.genome_bases).byte);
    }
}

/// Reads one base of the text from the file. `position`: 0-based, within both strands.
pub(super) fn read_base(pac: &File, position: u64, genome_bases: u64) -> io::Result<u8> {
    let packed = PackedBaseOffset::from_position(position, genome_bases);
    let mut byte = [0];
    pac.read_exact_at(&mut byte, packed.byte)?;
    Ok(packed.decode(byte[0]))
}
