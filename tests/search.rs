//! Searches by several workers, compared with a single run of NCBI's programs on the same database.

mod blast_alias_files;
mod cluster;
mod diamond_mmseqs;
mod hits;
mod invalid_queries;
mod larger_than_memory;
mod one_pass_identity;
mod output_targets;
mod program_matrix;
mod random_reads;
mod real_data;
mod resume;
mod subjects;
mod test_databases;
mod unsupported_options;
mod worker_loss;
