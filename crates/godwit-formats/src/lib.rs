//! Readers and writers of file formats. Readers turn the bytes of a file into Arrow batches and packed records; writers
//! do the reverse.

pub mod bam;
pub mod binning_index;
pub mod fasta;
pub mod fastq;
pub mod file_format;
pub mod intervals;
pub mod sam;
pub mod text_lines;
pub mod unaligned;
pub mod vcf;
