//! Delta copies: genomes are sent as differences from a reference that both ends have.
//!
//! [`delta_sender`] reads a file, packs its text ([`godwit_delta`]) and emits
//! [`DeltaMessage`](delta_message::DeltaMessage)s. [`delta_receiver`] unpacks them into a temporary file, and renames
//! it if its BLAKE3 equals that of the original. [`godwit_delta::bgzf_recompression`] decompresses BGZF files and
//! restores the same compressed bytes. [`godwit_delta::ReferenceStore`] loads references. `copy::delta_copy` is the
//! client, [`delta_service`] the server. An interrupted file is sent again from its start.

pub(crate) mod delta_message;
pub(crate) mod delta_receiver;
pub(crate) mod delta_sender;
pub(crate) mod delta_service;

/// Smallest file for which delta compression is tried, bytes. Below this size it takes as long as sending the file.
const MIN_GENOME_BYTES: u64 = 64 << 10;
/// File name extensions of FASTA files with nucleotide sequences.
const FASTA_EXTENSIONS: [&str; 5] = ["fa", "fasta", "fna", "fas", "fsa"];

/// Reports whether a file may be a genome, judged by its name and size. The sender later verifies the content.
pub(crate) fn may_be_genome(path: &str, size_bytes: u64) -> bool {
    let name = path.to_ascii_lowercase();
    let name = ["gz", "bgz"].iter().find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.')).unwrap_or(&name);
    let is_fasta = name.rsplit_once('.').is_some_and(|(_, ending)| FASTA_EXTENSIONS.contains(&ending));
    is_fasta && size_bytes >= MIN_GENOME_BYTES
}

#[cfg(test)]
mod tests;
