//! Child processes and temporary files, with the Linux system calls that the standard library does not offer.
//!
//! The kernel kills a child when this process exits for any reason ([`set_parent_death_signal`]). A signal can be sent
//! to a whole process group ([`signal_group`]). The exit of a child can be detected before the child is waited for, so
//! that its process id is not reused meanwhile ([`has_exited`]). If a signal stops this process, it terminates all its
//! descendants and removes its temporary files and directories. A process that allocates and frees large buffers all the
//! time keeps their memory ([`keep_freed_memory`]).
//!
//! This crate does not know the purpose, the pipes and the timeouts of a child. `godwit-engines` manages the programs
//! of a job, `godwit-fleet` the workers of a cluster run.

mod allocator;
mod child_processes;
mod descendants;
mod locked_directory;
mod temporary_paths;

pub use allocator::{KEPT_ALLOCATOR_BYTES, keep_freed_memory};
pub use child_processes::{
    Signal, describe_exit, describe_signal, has_exited, set_parent_death_signal, signal_group, wait_for_exit,
};
pub use descendants::terminate_descendants;
pub use locked_directory::LockedDirectory;
pub use temporary_paths::{
    RESUME_ADVICE, ResumablePaths, TemporaryItem, TemporaryPath, discard_resumable_work,
    remove_and_block_temporary_paths, remove_temporary_paths, resume_instruction, set_resume_instruction,
};
