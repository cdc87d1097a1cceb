//! fasta
