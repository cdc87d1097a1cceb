//! Whether a read starts within an Illumina adapter, as Picard 3.4.0 `AdapterUtility` decides it.

use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Bases that are compared.
const MATCH_BASES: usize = 16;
/// Bases of those that may differ.
const MAX_ERRORS: usize = 1;
/// Picard's `DEFAULT_ADAPTER_SEQUENCE` without repetitions: both ends of the single-end, paired-end and indexed adapters.
const ADAPTERS: [&str; 4] = [
    "AATGATACGGCGACCACCGAGATCTACACTCTTTCCCTACACGACGCTCTTCCGATCT",
    "AGATCGGAAGAGCTCGTATGCCGTCTTCTGCTTG",
    "AGATCGGAAGAGCGGTTCAGCAGGAATGCCGAGACCGATCTCGTATGCCGTCTTCTGCTTG",
    "AGATCGGAAGAGCACACGTCTGAACTCCAGTCACNNNNNNNNATCTCGTATGCCGTCTTCTGCTTG",
];

type Kmer = [u8; MATCH_BASES];

/// Whether the first bases of a read, as 4-bit codes in the order of the record, match an adapter on either strand;
/// those of a reversed record are taken from its end.
pub(super) fn is_adapter(codes: &[u8], reversed: bool) -> bool {
    let first: Option<Kmer> = if reversed {
        codes.last_chunk::<MATCH_BASES>().map(|last| {
            let mut start = *last;
            start.reverse();
            start.map(complement)
        })
    } else {
        codes.first_chunk().copied()
    };
    let Some(first) = first else { return false };
    kmers().iter().any(|kmer| kmer.iter().zip(&first).filter(|(a, b)| a != b).count() <= MAX_ERRORS)
}

fn kmers() -> &'static [Kmer] {
    static KMERS: OnceLock<Vec<Kmer>> = OnceLock::new();
    KMERS.get_or_init(|| {
        let mut kmers = BTreeSet::new();
        for adapter in ADAPTERS {
            for window in adapter.as_bytes().windows(MATCH_BASES) {
                if window.iter().filter(|base| **base == b'N').count() > MAX_ERRORS {
                    continue;
                }
                let mut kmer: Kmer = std::array::from_fn(|at| code(window[at]));
                kmers.insert(kmer);
                kmer.reverse();
                kmers.insert(kmer.map(complement));
            }
        }
        kmers.into_iter().collect()
    })
}

fn code(base: u8) -> u8 {
    match base {
        b'A' => 1,
        b'C' => 2,
        b'G' => 4,
        b'T' => 8,
        _ => 15,
    }
}

/// Ambiguity codes stay as they are (htsjdk 4.2.0 `SequenceUtil.complement`).
fn complement(code: u8) -> u8 {
    match code {
        1 => 8,
        2 => 4,
        4 => 2,
        8 => 1,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(bases: &str) -> Vec<u8> {
        bases.bytes().map(code).collect()
    }

    #[test]
    fn one_error_is_forgiven_and_two_are_not() {
        assert!(is_adapter(&codes("AGATCGGAAGAGCACACGTCTGAACTCC"), false));
        assert!(is_adapter(&codes("AGATCGGATGAGCACACGTCTGAACTCC"), false));
        assert!(!is_adapter(&codes("AGTTCGGATGAGCACACGTCTGAACTCC"), false));
        assert!(!is_adapter(&codes("AGATCGGAAGAGCAC"), false));
    }

    #[test]
    fn reversed_records_are_read_from_their_end() {
        let mut reversed = codes("AGATCGGAAGAGCACACGTC");
        reversed.reverse();
        let reversed: Vec<u8> = reversed.into_iter().map(complement).collect();
        assert!(is_adapter(&reversed, true));
        assert!(!is_adapter(&codes("ACGTACGTTTTTTTTTACGT"), true));
    }
}
