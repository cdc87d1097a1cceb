//! Child processes. They end with this process, however it ends. They are signalled together with their own children. Their
//! exit can be observed before they are waited for, so that their ids are not reused by then.
//!
//! Input: commands before their start, and ids of children. Output: signals, and whether a child has exited. If a signal
//! stops the process, all its descendants are terminated and its temporary files and directories are removed.
//! The purpose of a child, its pipes and its timeouts belong to its owner: `godwit-engines` for the programs of a job,
//! `godwit-fleet` for the workers of a cluster run.

mod child_processes;
mod descendants;
mod temporary_paths;

pub use child_processes::{Signal, has_exited, set_parent_death_signal, signal_group, wait_for_exit};
pub use descendants::terminate_descendants;
pub use temporary_paths::{
    ResumablePaths, TemporaryItem, TemporaryPath, discard_resumable_work, remove_and_block_temporary_paths,
    remove_temporary_paths, resume_instruction, set_resume_instruction,
};
