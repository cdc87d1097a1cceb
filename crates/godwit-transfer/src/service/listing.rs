//! Lists the entries below a path that the principal of a call may read.

use bytes::Bytes;
use godwit_flight::{Caller, FileUse, FileVerdict};

use super::Inner;
use crate::error::TransferError;
use crate::manifest::{EntryFailure, Listing, below, list};
use crate::names::{is_plain, shown};
use crate::protocol::{ENTRIES_PER_MESSAGE, FailureMessage, ListEnd, ListRequest, json};

impl Inner {
    /// Lists the entries below a path that the principal may copy. A file that the principal may read only in part is not copied: it is listed among those that are not, or
    /// the directory is refused, or else a copy would look whole that is not.
    pub(super) fn list(&self, caller: &Caller, request: &ListRequest) -> Result<Vec<Bytes>, TransferError> {
        let listed = list(&below(&self.root, &request.path)?, request.links);
        let listed = listed.and_then(|listed| without_hidden(listed, request.each));
        if self.options.rules.is_none() {
            return in_messages(listed?, request.each);
        }
        // Whether a path leads nowhere, and how, is told to who may have what would be there.
        let Ok(listed) = listed else {
            self.check_rules(caller, &request.path, FileUse::Read)?;
            return in_messages(listed?, request.each);
        };
        let may_see = |path: &str| self.may_read(caller, &joined(&request.path, path));
        let mut kept = Listing {
            entries: Vec::new(),
            // A directory that cannot be read may hold what the caller may have.
            failures: listed
                .failures
                .into_iter()
                .filter(|left| may_see(&left.path) || may_see(&joined(&left.path, "x")))
                .collect(),
            skipped_links: listed.skipped_links.into_iter().filter(|path| may_see(path)).collect(),
        };
        for entry in listed.entries {
            if entry.directory {
                kept.entries.push(entry);
                continue;
            }
            match self.check_rules(caller, &joined(&request.path, &entry.path), FileUse::Read) {
                Ok(()) => kept.entries.push(entry),
                Err(TransferError::NotFound { .. }) => {}
                Err(why) if request.each && !entry.path.is_empty() => {
                    kept.failures.push(EntryFailure { path: entry.path, why })
                }
                Err(error) => return Err(error),
            }
        }
        let others = kept.failures.iter().map(|failure| &failure.path).chain(&kept.skipped_links);
        let files = kept.entries.iter().filter(|entry| !entry.directory).map(|entry| &entry.path);
        let files: Vec<String> = files.chain(others).cloned().collect();
        if files.is_empty() && !request.path.trim_matches('/').is_empty() {
            return Err(TransferError::NotFound { place: request.path.clone() });
        }
        let has_file = |directory: &str| {
            directory.is_empty()
                || files.iter().any(|file| file.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')))
        };
        kept.entries.retain(|entry| !entry.directory || has_file(&entry.path));
        in_messages(kept, request.each)
    }

    fn may_read(&self, caller: &Caller, path: &str) -> bool {
        let verdict = self.options.rules.as_ref().map(|rules| rules.file(caller, path, FileUse::Read));
        verdict.is_none_or(|verdict| matches!(verdict, FileVerdict::Allowed(_)))
    }
}

/// Leaves out what is hidden. Without `each`, fails where an entry cannot be copied, or not by earlier clients.
fn without_hidden(mut listed: Listing, each: bool) -> Result<Listing, TransferError> {
    listed.entries.retain(|entry| !is_hidden(&entry.path));
    listed.failures.retain(|failure| !is_hidden(&failure.path));
    listed.skipped_links.retain(|path| !is_hidden(path));
    if each {
        return Ok(listed);
    }
    if let Some(entry) = listed.entries.iter().find(|entry| !is_plain(&entry.path)) {
        let path = shown(&entry.path);
        return Err(TransferError::refused(format!(
            "{path}: names of files must be UTF-8 for clients of an earlier version"
        )));
    }
    match listed.failures.pop() {
        Some(failure) => Err(failure.why),
        None => Ok(listed),
    }
}

fn in_messages(listed: Listing, each: bool) -> Result<Vec<Bytes>, TransferError> {
    let entries = listed.entries.chunks(ENTRIES_PER_MESSAGE).map(|some| Ok(json(&some)?.into()));
    let failures = listed.failures.iter().map(FailureMessage::of).collect();
    let end = ListEnd { failures, skipped_links: listed.skipped_links };
    let last = each.then(|| Ok(json(&end)?.into()));
    entries.chain(last).collect()
}

/// A path below another, which may be empty as it may be.
pub(super) fn joined(base: &str, below: &str) -> String {
    match (base.trim_matches('/'), below) {
        (base, "") => base.to_owned(),
        ("", below) => below.to_owned(),
        (base, below) => format!("{base}/{below}"),
    }
}

pub(super) fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.'))
}
