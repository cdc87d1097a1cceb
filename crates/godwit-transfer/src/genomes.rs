//! Genomes that are copied as what differs from a reference, where both ends have one.
//!
//! [`source`] reads a file, packs its text ([`crate::delta`]) and gives [`Piece`]s; [`landing`] unpacks them into a file beside its place, and names it
//! when its BLAKE3 is that of the original bytes. [`remade`] takes BGZF apart and makes the same bytes again. [`references`] is what an end
//! has to pack by. Who asks whom for what is in `copy::packed` and `service`. Nothing is kept of what breaks off: it is sent again.

pub(crate) mod landing;
pub(crate) mod pieces;
pub(crate) mod references;
mod remade;
pub(crate) mod serving;
pub(crate) mod source;

/// Files shorter than this are sent as they are: what is asked and answered for one takes as long as sending it.
const SHORTEST_BYTES: u64 = 64 << 10;
/// Endings of the names of FASTA files of bases.
const ENDINGS: [&str; 5] = ["fa", "fasta", "fna", "fas", "fsa"];

/// Whether a file may be a genome, by its name and size. Its end looks into it.
pub(crate) fn may_be_genome(path: &str, size_bytes: u64) -> bool {
    let name = path.to_ascii_lowercase();
    let name = ["gz", "bgz"].iter().find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.')).unwrap_or(&name);
    let is_fasta = name.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending));
    is_fasta && size_bytes >= SHORTEST_BYTES
}

#[cfg(test)]
mod tests;
