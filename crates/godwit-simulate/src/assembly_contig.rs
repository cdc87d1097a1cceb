//! A contig of a simulated genome.

/// A contig with its sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssemblyContig {
    /// Name in the FASTA header, up to the first white space.
    pub name: String,
    /// The sequence: `A`, `C`, `G`, `T` and `N` in upper case.
    pub bases: Vec<u8>,
    /// Intervals `[start, end)` that are identical copies of the same sequence, 0-based, in any order. Reads from them
    /// have no unique position. Empty for a genome that was read from a file.
    pub identical_copies: Vec<(u32, u32)>,
}
