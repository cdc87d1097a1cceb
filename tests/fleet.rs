//! Pools of servers, and many samples on many hosts: the loss of one server or host fails nothing.

mod cohort_runs;
mod failover;
mod mount_balance;
mod mount_losses;
mod mount_semantics;
mod mounted_files;
mod mounted_inputs;
mod mounts;
mod nfs_balance;
mod remote_reads;
mod server_pool;
mod slurm_samples;
