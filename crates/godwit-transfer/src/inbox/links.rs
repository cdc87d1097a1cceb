//! Symbolic links that are copied as links. They are made when all files are there, so that no file is written through a link that came with it.
//!
//! A link is made only where it leads to something below the destination: a copy must not be able to make a server, or a later copy, read or write elsewhere.
//! So a target is relative, leaves the link's directory upwards before it goes down (`..` behind a name would be resolved through whatever that name is then),
//! and goes no higher than the destination, counted from where the link's directory really is.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use super::{Inbox, beside, lock};
use crate::error::TransferError;
use crate::manifest::{Entry, EntryFailure, PART_ENDING};
use crate::names::{path_of, shown, text_of};
use crate::place::directory_of;
use crate::protocol::Have;

/// Returns how many directories a target goes up before it goes down; `None` where it leads elsewhere in any case.
fn steps_up(target: &Path, strict: bool) -> Option<usize> {
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

fn leads_out(path: &str, target: &Path) -> TransferError {
    let (path, target) = (shown(path), shown(&text_of(target)));
    let problem = format!(
        "{path} is a link to {target}, which is not within what is copied; --links follow copies what it leads to"
    );
    TransferError::Unsupported { problem }
}

impl Inbox {
    /// State of a link at the destination.
    pub(super) fn look_at_link(&self, place: &Path, entry: &Entry, target: &str) -> Result<Have, TransferError> {
        let target = path_of(target).unwrap_or_default();
        if steps_up(&target, self.strict).is_none() {
            return Err(leads_out(&entry.path, &target));
        }
        let is_there = fs::read_link(place).is_ok_and(|there| there == target);
        Ok(if is_there { Have::All } else { Have::Nothing })
    }

    /// Begins to take a link, which is made at the end.
    pub(super) fn begin_link(&self, place: PathBuf, entry: Entry, target: &str) -> Result<Have, TransferError> {
        let have = self.look_at_link(&place, &entry, target)?;
        if have == Have::Nothing {
            lock(&self.links).push((place, entry));
        }
        Ok(have)
    }

    /// Makes the links; those that cannot be made.
    pub(super) fn make_links(&self) -> Vec<EntryFailure> {
        let links = std::mem::take(&mut *lock(&self.links));
        let failed = links.into_iter().filter_map(|(place, entry)| {
            let why = self.make_link(&place, &entry).err()?;
            Some(EntryFailure { path: entry.path, why })
        });
        failed.collect()
    }

    fn make_link(&self, place: &Path, entry: &Entry) -> Result<(), TransferError> {
        let target = entry.link.as_deref().and_then(path_of).unwrap_or_default();
        let parent = directory_of(place);
        fs::create_dir_all(parent).map_err(TransferError::file("make", parent))?;
        let real = |path: &Path| fs::canonicalize(path).map_err(TransferError::file("look at", path));
        let (real_base, real_parent) = (real(&self.base)?, real(parent)?);
        let depth = real_parent.strip_prefix(&real_base).map(|below| below.components().count());
        if !depth.is_ok_and(|depth| steps_up(&target, self.strict).is_some_and(|up| up <= depth)) {
            return Err(leads_out(&entry.path, &target));
        }
        if fs::symlink_metadata(place).is_ok_and(|found| found.is_dir()) {
            let problem = "it is a directory, and a link at the source; move it away";
            return Err(TransferError::file("make", place)(Error::new(ErrorKind::IsADirectory, problem)));
        }
        let part = beside(place, PART_ENDING);
        match fs::remove_file(&part) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(TransferError::file("remove", &part)(error));
            }
            _ => {}
        }
        symlink(&target, &part).map_err(TransferError::file("make", &part))?;
        fs::rename(&part, place).map_err(TransferError::file("name", place))?;
        lock(&self.touched).insert(parent.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_leads_up_and_then_down_and_never_up_again() {
        let steps = |target: &str| steps_up(Path::new(target), true);
        assert_eq!((steps("a"), steps("a/b"), steps("../a"), steps("../../a/b")), (Some(0), Some(0), Some(1), Some(2)));
        for elsewhere in ["", "/a", "a/../b", "../a/../../b", ".hidden", "a/.ssh"] {
            assert_eq!(steps(elsewhere), None, "{elsewhere}");
        }
        assert_eq!(steps_up(Path::new("a/.hidden"), false), Some(0));
    }
}
