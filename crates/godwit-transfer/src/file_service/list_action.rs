//! The action that lists the entries below a path, limited to those that the principal may read.

use bytes::Bytes;
use godwit_dataset::{FileAccess, FileAuthorization, Principal};

use super::FileServiceState;
use crate::copy_protocol::{EntryFailureMessage, ListRequest, ListTrailer, MAX_ENTRIES_PER_MESSAGE, to_json};
use crate::error::TransferError;
use crate::file_listing::{EntryFailure, Listing, list_entries, resolve_below_root};
use crate::path_text::{escape_for_display, is_utf8_path_text};

impl FileServiceState {
    /// Lists the entries below a path that the principal may copy. If the rules permit reading only part of a file, the
    /// file is reported as a failure, or the whole request fails. Otherwise an incomplete copy would look complete.
    pub(super) fn list_readable_entries(
        &self,
        principal: &Principal,
        request: &ListRequest,
    ) -> Result<Vec<Bytes>, TransferError> {
        let listed = list_entries(&resolve_below_root(&self.root, &request.path)?, request.link_policy);
        let listed = listed.and_then(|listed| exclude_hidden(listed, request.per_entry_errors));
        if self.options.rules.is_none() {
            return encode_listing(listed?, request.per_entry_errors);
        }
        // If listing fails, the error is returned only to a principal that may read the path.
        let Ok(listed) = listed else {
            self.authorize_by_rules(principal, &request.path, FileAccess::Read)?;
            return encode_listing(listed?, request.per_entry_errors);
        };
        let may_see = |path: &str| self.may_read(principal, &join_paths(&request.path, path));
        let mut kept = Listing {
            entries: Vec::new(),
            // Also keep an unreadable directory if the principal may read files in it.
            failures: listed
                .failures
                .into_iter()
                .filter(|left| may_see(&left.path) || may_see(&join_paths(&left.path, "x")))
                .collect(),
            skipped_links: listed.skipped_links.into_iter().filter(|path| may_see(path)).collect(),
        };
        for entry in listed.entries {
            if entry.is_directory {
                kept.entries.push(entry);
                continue;
            }
            match self.authorize_by_rules(principal, &join_paths(&request.path, &entry.path), FileAccess::Read) {
                Ok(()) => kept.entries.push(entry),
                Err(TransferError::NotFound { .. }) => {}
                Err(error) if request.per_entry_errors && !entry.path.is_empty() => {
                    kept.failures.push(EntryFailure { path: entry.path, error })
                }
                Err(error) => return Err(error),
            }
        }
        let others = kept.failures.iter().map(|failure| &failure.path).chain(&kept.skipped_links);
        let files = kept.entries.iter().filter(|entry| !entry.is_directory).map(|entry| &entry.path);
        let files: Vec<String> = files.chain(others).cloned().collect();
        if files.is_empty() && !request.path.trim_matches('/').is_empty() {
            return Err(TransferError::NotFound { location: request.path.clone() });
        }
        let has_file = |directory: &str| {
            directory.is_empty()
                || files.iter().any(|file| file.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')))
        };
        kept.entries.retain(|entry| !entry.is_directory || has_file(&entry.path));
        encode_listing(kept, request.per_entry_errors)
    }

    fn may_read(&self, principal: &Principal, path: &str) -> bool {
        let verdict = self.options.rules.as_ref().map(|rules| rules.authorize_file(principal, path, FileAccess::Read));
        verdict.is_none_or(|verdict| matches!(verdict, FileAuthorization::Allowed(_)))
    }
}

/// Removes hidden entries from a listing. If `each` is false, fails if an entry cannot be copied, or if its name is not
/// UTF-8, which clients of earlier versions do not accept.
fn exclude_hidden(mut listed: Listing, each: bool) -> Result<Listing, TransferError> {
    listed.entries.retain(|entry| !is_hidden_path(&entry.path));
    listed.failures.retain(|failure| !is_hidden_path(&failure.path));
    listed.skipped_links.retain(|path| !is_hidden_path(path));
    if each {
        return Ok(listed);
    }
    if let Some(entry) = listed.entries.iter().find(|entry| !is_utf8_path_text(&entry.path)) {
        let path = escape_for_display(&entry.path);
        return Err(TransferError::rejected(format!(
            "{path}: clients of an earlier version accept UTF-8 file names only"
        )));
    }
    match listed.failures.pop() {
        Some(failure) => Err(failure.error),
        None => Ok(listed),
    }
}

fn encode_listing(listed: Listing, each: bool) -> Result<Vec<Bytes>, TransferError> {
    let entries = listed.entries.chunks(MAX_ENTRIES_PER_MESSAGE).map(|some| Ok(to_json(&some)?.into()));
    let failures = listed.failures.iter().map(EntryFailureMessage::from_failure).collect();
    let end = ListTrailer { failures, skipped_links: listed.skipped_links };
    let last = each.then(|| Ok(to_json(&end)?.into()));
    entries.chain(last).collect()
}

/// Joins two paths, either of which may be empty.
pub(super) fn join_paths(base: &str, below: &str) -> String {
    match (base.trim_matches('/'), below) {
        (base, "") => base.to_owned(),
        ("", below) => below.to_owned(),
        (base, below) => format!("{base}/{below}"),
    }
}

pub(super) fn is_hidden_path(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.'))
}
