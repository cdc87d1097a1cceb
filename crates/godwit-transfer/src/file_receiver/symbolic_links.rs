//! Symbolic links that are copied as links. They are created after all files, so that no file is written through a link
//! of the same copy.
//!
//! A link is created only if its target is below the destination. Otherwise a copy could make a server, or a later
//! copy, read or write elsewhere. So the target must be relative, and `..` is allowed only at its start: after a name,
//! `..` would depend on what that name is at the time of use. The target must not leave the destination, counted from
//! the real path of the directory of the link.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use godwit_files::{create_directories, parent_directory};

use super::{FileReceiver, conflict_error, lock_name, remove_part_file};
use crate::copy_protocol::ReceiverState;
use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure};
use crate::journal::Journal;
use crate::path_text::{escape_for_display, path_to_text, text_to_path};
use godwit_transfer_session::partial_paths::{PART_SUFFIX, partial_path};

/// Returns the number of `..` components at the start of a link target. Returns `None` if the target is not acceptable:
/// absolute, empty, with a later `..`, or, if `strict` is true, with hidden components.
fn parent_step_count(target: &Path, strict: bool) -> Option<usize> {
    let mut components = target.components().peekable();
    let mut up = 0;
    while components.next_if_eq(&Component::ParentDir).is_some() {
        up += 1;
    }
    let goes_down = |component| match component {
        Component::Normal(name) => !strict || !name.as_bytes().starts_with(b"."),
        Component::CurDir => true,
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => false,
    };
    (!target.as_os_str().is_empty() && components.all(goes_down)).then_some(up)
}

fn outside_target_error(path: &str, target: &Path) -> TransferError {
    let (path, target) = (escape_for_display(path), escape_for_display(&path_to_text(target)));
    let problem = format!(
        "{path} is a link to {target}, which is outside the copied tree; --links follow copies the target of the link"
    );
    TransferError::Unsupported { problem }
}

impl FileReceiver {
    /// Returns the state of a link at the destination: complete if the same link exists.
    pub(super) fn link_state(&self, place: &Path, entry: &Entry, target: &str) -> Result<ReceiverState, TransferError> {
        let target = text_to_path(target).unwrap_or_default();
        if parent_step_count(&target, self.rejects_hidden).is_none() {
            return Err(outside_target_error(&entry.path, &target));
        }
        let is_there = fs::read_link(place).is_ok_and(|there| there == target);
        Ok(if is_there { ReceiverState::Complete } else { ReceiverState::Absent })
    }

    /// Starts to receive a link, which is created at the end of the copy.
    pub(super) fn start_link(
        &self,
        place: PathBuf,
        entry: Entry,
        target: &str,
    ) -> Result<ReceiverState, TransferError> {
        let have = self.link_state(&place, &entry, target)?;
        if have == ReceiverState::Absent {
            self.links.lock().push((place, entry));
        }
        Ok(have)
    }

    /// Creates the received links; returns those that failed.
    pub(super) fn create_links(&self) -> Vec<EntryFailure> {
        let links = std::mem::take(&mut *self.links.lock());
        let failed = links.into_iter().filter_map(|(place, entry)| {
            let error = self.create_link(&place, &entry).err()?;
            Some(EntryFailure { path: entry.path, error })
        });
        failed.collect()
    }

    fn create_link(&self, place: &Path, entry: &Entry) -> Result<(), TransferError> {
        let target = entry.link_target.as_deref().and_then(text_to_path).unwrap_or_default();
        let parent = parent_directory(place);
        create_directories(parent).map_err(TransferError::io_error("create", parent))?;
        let real = |path: &Path| fs::canonicalize(path).map_err(TransferError::io_error("inspect", path));
        let (real_base, real_parent) = (real(&self.base_path)?, real(parent)?);
        let depth = real_parent.strip_prefix(&real_base).map(|below| below.components().count());
        if !depth.is_ok_and(|depth| parent_step_count(&target, self.rejects_hidden).is_some_and(|up| up <= depth)) {
            return Err(outside_target_error(&entry.path, &target));
        }
        if let Some(found) = fs::symlink_metadata(place).ok().filter(Metadata::is_dir) {
            return Err(conflict_error(place, &found, "symbolic link"));
        }
        let journal = lock_name(place, false, &self.has_ended)?;
        let part = partial_path(place, PART_SUFFIX);
        let created = remove_part_file(&part)
            .and_then(|()| symlink(&target, &part).map_err(TransferError::io_error("create", &part)))
            .and_then(|()| fs::rename(&part, place).map_err(TransferError::io_error("rename", place)));
        let unlocked = journal.map_or(Ok(()), Journal::remove);
        created?;
        self.changed_directories.lock().insert(parent.to_owned());
        unlocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_goes_up_and_then_down_and_never_up_again() {
        let steps = |target: &str| parent_step_count(Path::new(target), true);
        assert_eq!((steps("a"), steps("a/b"), steps("../a"), steps("../../a/b")), (Some(0), Some(0), Some(1), Some(2)));
        for elsewhere in ["", "/a", "a/../b", "../a/../../b", ".hidden", "a/.ssh"] {
            assert_eq!(steps(elsewhere), None, "{elsewhere}");
        }
        assert_eq!(parent_step_count(Path::new("a/.hidden"), false), Some(0));
    }
}
