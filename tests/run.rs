//! The main job on one machine.
//!
//! [`oracle`] tests what the others believe in: that the reference pipeline runs, that generated inputs reach the rules
//! they are made for, and that planted differences are found.

mod align_and_call;
mod aligners;
mod bad_input;
pub mod call;
mod call_failures;
mod call_nodes;
mod checked_at_start;
mod compare;
mod conduct;
mod configuration;
mod contig_names;
mod demo;
mod docs;
mod doctor;
mod dry_run;
mod events;
mod extremes;
mod fastq_cases;
mod filter;
mod flight;
pub mod formats;
pub mod identity;
mod indexing;
mod inputs;
mod interruption;
mod interruption_sweep;
pub mod joint;
mod node_options;
mod nodes;
mod nodes_chaos;
mod nodes_requeue;
mod nodes_resume;
mod observatory;
mod odd_values;
mod oracle;
mod picard;
mod qc;
mod read_names;
mod real_data;
mod recalibrate;
mod report;
mod resume;
mod resume_reading;
mod sexes;
mod shuffle;
mod slurm;
mod somatic;
mod ssh;
mod step;
mod trimming;
mod validity;
mod variants;
mod verify;
mod workflow;
