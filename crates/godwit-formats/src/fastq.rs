//! fastq
