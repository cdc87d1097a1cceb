//! Processes that this one starts: they end with it, however it ends; they are signalled with all they have started; and it is seen
//! that they ended before anybody takes note of it, so that no number is another process's by then.
//!
//! Flows in: commands that are about to be started, and the numbers of children. Flows out: signals, and whether a child has ended.
//! When a signal stops the process, all its descendants are ended and its temporary files and directories are removed.
//! What a child is for, its pipes, and how long it may take is its owner's business: `godwit-engines` for the programs of a run,
//! `godwit-fleet` for the nodes of one.

mod descendants;
mod system;
mod temporary;

pub use descendants::end_descendants;
pub use system::{Signal, await_exit, die_with_parent, has_ended, signal_group};
pub use temporary::{
    ResumablePaths, Temporary, TemporaryPath, close_temporary_paths, discard_resumable_work, record_resumable_work,
    remove_temporary_paths, resumable_work,
};
