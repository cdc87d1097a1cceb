//! The jobs on reads and variants, on one machine and on clusters.
//!
//! [`oracle`] tests the assumptions of the others: that the reference pipeline runs, that generated inputs reach the
//! rules they are made for, and that planted differences are found.

mod align_and_call;
mod aligners;
mod bad_input;
mod bench_flight;
mod bench_shuffle;
pub mod bwa_identity;
mod call_cluster;
mod call_failures;
mod cluster;
mod cluster_chaos;
mod cluster_options;
mod cluster_requeue;
mod cluster_resume;
mod configuration;
mod contig_names;
mod demo;
mod docs;
mod doctor;
mod dry_run;
mod edge_cases;
mod events;
mod fastq_cases;
mod file_validity;
pub mod formats;
mod identity_program;
mod indexing;
mod inputs;
mod interruption;
mod interruption_sweep;
pub mod joint_calling;
mod oracle;
mod picard;
mod preflight_checks;
mod process_environment;
mod python_step;
mod qc;
mod read_names;
mod real_data;
mod recalibrate;
mod report;
mod resume;
mod resume_input;
mod sex_chromosomes;
mod slurm;
mod somatic_calling;
mod ssh;
mod trimming;
mod truth_comparison;
mod unusual_records;
pub mod variant_calling;
mod variant_columns;
mod variant_filter;
mod verify;
mod workflow;
