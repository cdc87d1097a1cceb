//! The text that an index covers: the bases of the `.pac` file, followed by their reverse complement.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::memory_hints::prefetch;

/// Both strands of a genome. Only the forward strand is stored, with two bits per base.
pub(super) struct IndexedText {
    /// The forward strand: four bases per byte, the first base in the highest bits.
    forward: Vec<u8>,
    genome_bases: u64,
}

/// Offset in `.pac` of a base of the text.
struct PackedBaseOffset {
    byte: u64,
    shift: u64,
    /// The mask to XOR with the stored base: 3 for the reverse strand, 0 for the forward strand.
    complement: u8,
}

impl PackedBaseOffset {
    /// Returns the offset for a 0-based position in both strands.
    fn from_position(position: u64, genome_bases: u64) -> Self {
        let is_reverse = position >= genome_bases;
        let forward = if is_reverse { (2 * genome_bases - 1).wrapping_sub(position) } else { position };
        Self { byte: forward / 4, shift: 6 - 2 * (forward % 4), complement: if is_reverse { 3 } else { 0 } }
    }

    /// Returns the base, as a code from 0 to 3, from the byte of `.pac` that contains it.
    fn decode(&self, byte: u8) -> u8 {
        byte >> self.shift & 3 ^ self.complement
    }
}

impl IndexedText {
    /// Reads the whole `.pac` file into memory.
    pub(super) fn read(mut pac: File, genome_bases: u64) -> io::Result<Self> {
        let mut forward = vec![0; genome_bases.div_ceil(4) as usize];
        pac.read_exact(&mut forward)?;
        Ok(Self { forward, genome_bases })
    }

    /// Returns the code, 0 to 3, of the base at a 0-based position in both strands; `None` past the end.
    pub(super) fn base(&self, position: u64) -> Option<u8> {
        let packed = PackedBaseOffset::from_position(position, self.genome_bases);
        self.forward.get(packed.byte as usize).map(|byte| packed.decode(*byte))
    }

    /// Prefetches into the cache the byte that contains the base at a position in both strands.
    pub(super) fn prefetch(&self, position: u64) {
        prefetch(&self.forward, PackedBaseOffset::from_position(position, self.genome_bases).byte);
    }
}

/// Reads the base at `position` directly from the `.pac` file. `position`: 0-based, in both strands.
pub(super) fn read_base(pac: &File, position: u64, genome_bases: u64) -> io::Result<u8> {
    let packed = PackedBaseOffset::from_position(position, genome_bases);
    let mut byte = [0];
    pac.read_exact_at(&mut byte, packed.byte)?;
    Ok(packed.decode(byte[0]))
}
