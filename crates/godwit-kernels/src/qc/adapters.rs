//! Detection of reads that start within an Illumina adapter, by the rule of Picard 3.4.0 `AdapterUtility`.

use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Number of bases of a read that are compared with adapters.
const COMPARED_BASES: usize = 16;
/// Maximum number of mismatches among the compared bases.
const MAX_MISMATCHES: usize = 1;
/// Adapter sequences (`DEFAULT_ADAPTER_SEQUENCE` of Picard without repetitions): both ends of the single-end,
/// paired-end and indexed adapters.
const ADAPTERS: [&str; 4] = [
    "AATGATACGGCGACCACCGAGATCTACACTCTTTCCCTACACGACGCTCTTCCGATCT",
    "AGATCGGAAGAGCTCGTATGCCGTCTTCTGCTTG",
    "AGATCGGAAGAGCGGTTCAGCAGGAATGCCGAGACCGATCTCGTATGCCGTCTTCTGCTTG",
    "AGATCGGAAGAGCACACGTCTGAACTCCAGTCACNNNNNNNNATCTCGTATGCCGTCTTCTGCTTG",
];

type Kmer = [u8; COMPARED_BASES];

/// Returns whether the first sequenced bases of a read match an adapter on either strand. `codes` holds the 4-bit base
/// codes in the order of the record; if `reversed`, the first sequenced base is the last code.
pub fn starts_with_adapter(codes: &[u8], reversed: bool) -> bool {
    let first: Option<Kmer> = if reversed {
        codes.last_chunk::<COMPARED_BASES>().map(|last| {
            let mut start = *last;
            start.reverse();
            start.map(complement_code)
        })
    } else {
        codes.first_chunk().copied()
    };
    let Some(first) = first else { return false };
    adapter_kmers().iter().any(|kmer| kmer.iter().zip(&first).filter(|(a, b)| a != b).count() <= MAX_MISMATCHES)
}

fn adapter_kmers() -> &'static [Kmer] {
    static KMERS: OnceLock<Vec<Kmer>> = OnceLock::new();
    KMERS.get_or_init(|| {
        let mut kmers = BTreeSet::new();
        for adapter in ADAPTERS {
            for window in adapter.as_bytes().windows(COMPARED_BASES) {
                if window.iter().filter(|base| **base == b'N').count() > MAX_MISMATCHES {
                    continue;
                }
                let mut kmer: Kmer = std::array::from_fn(|at| base_code(window[at]));
                kmers.insert(kmer);
                kmer.reverse();
                kmers.insert(kmer.map(complement_code));
            }
        }
        kmers.into_iter().collect()
    })
}

fn base_code(base: u8) -> u8 {
    match base {
        b'A' => 1,
        b'C' => 2,
        b'G' => 4,
        b'T' => 8,
        _ => 15,
    }
}

/// Returns the complement of a 4-bit base code. As in htsjdk 4.2.0 `SequenceUtil.complement`, ambiguity codes do not
/// change.
fn complement_code(code: u8) -> u8 {
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
        bases.bytes().map(base_code).collect()
    }

    #[test]
    fn one_error_is_forgiven_and_two_are_not() {
        assert!(starts_with_adapter(&codes("AGATCGGAAGAGCACACGTCTGAACTCC"), false));
        assert!(starts_with_adapter(&codes("AGATCGGATGAGCACACGTCTGAACTCC"), false));
        assert!(!starts_with_adapter(&codes("AGTTCGGATGAGCACACGTCTGAACTCC"), false));
        assert!(!starts_with_adapter(&codes("AGATCGGAAGAGCAC"), false));
    }

    #[test]
    fn reversed_records_are_read_from_their_end() {
        let mut reversed = codes("AGATCGGAAGAGCACACGTC");
        reversed.reverse();
        let reversed: Vec<u8> = reversed.into_iter().map(complement_code).collect();
        assert!(starts_with_adapter(&reversed, true));
        assert!(!starts_with_adapter(&codes("ACGTACGTTTTTTTTTACGT"), true));
    }
}
