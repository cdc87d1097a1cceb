//! The end of a copy: removal of extraneous entries, and reports of failed entries. Also the checks before an upload.

use std::collections::HashSet;

use super::CopyOperation;
use super::preflight_checks::verify_local_sources;
use super::stream_task::Direction;
use crate::blocking::run_blocking;
use crate::copy_protocol::ReceiverState;
use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure, LinkPolicy, list_entries};
use crate::path_text::{escape_for_display, escape_invalid_bytes, is_utf8_path_text};
use crate::server_errors::{error_from_status, is_unknown_session};
use godwit_transfer_session::copy_events::{CopyEvent, CopyObserver, CopySummary};

/// The outcome of a copy, before its failures are reported.
pub(crate) struct CopyOutcome {
    pub(crate) summary: CopySummary,
    /// Entries that could not be copied.
    pub(crate) failures: Vec<EntryFailure>,
}

impl CopyOutcome {
    /// Reports the failed entries to the observer. Returns the summary, or an error if any entry failed.
    pub(super) fn report_failures(mut self, observer: &dyn CopyObserver) -> Result<CopySummary, TransferError> {
        let failed_files = self.failures.len();
        let files = self.summary.files + self.summary.up_to_date_files + failed_files;
        // The returned error decides the exit code. Errors of this host have precedence over errors of the server, and
        // both over all other errors.
        let is_here =
            |failure: &EntryFailure| matches!(failure.error, TransferError::Io { .. } | TransferError::Busy { .. });
        let is_there = |failure: &EntryFailure| {
            matches!(failure.error, TransferError::RemoteFailure { .. } | TransferError::Flight(_))
        };
        let first = self.failures.iter().position(is_here).or_else(|| self.failures.iter().position(is_there));
        if failed_files == 0 {
            return Ok(self.summary);
        }
        if files > 1 {
            for EntryFailure { path, error } in &self.failures {
                let (path, reason) = (escape_invalid_bytes(path), godwit_model::message_with_causes(error));
                observer.on_event(&CopyEvent::NotCopied { path, reason });
            }
        }
        let first = self.failures.swap_remove(first.unwrap_or(0)).error;
        match files {
            1 => Err(first),
            _ => Err(TransferError::PartialFailure {
                failed_files,
                files,
                first_failure: Box::new(first),
                summary: Box::new(self.summary),
            }),
        }
    }
}

impl CopyOperation<'_> {
    /// Removes the entries that cannot be uploaded from the plan, before any data are sent.
    pub(super) async fn prepare_upload(&mut self) -> Result<(), TransferError> {
        if !self.options.dry_run {
            let failures = verify_local_sources(&self.plan.items, &self.expected_checksums).await?;
            let failed: HashSet<&str> = failures.iter().map(|failure| failure.path.as_str()).collect();
            self.plan.items.retain(|item| !failed.contains(item.entry.path.as_str()));
            self.plan.failures.extend(failures);
        }
        let hidden = self.plan.exclude_hidden();
        if hidden > 0 {
            let message = format!(
                "{hidden} files and directories whose names begin with a dot are skipped: servers reject such names"
            );
            self.observer.on_event(&CopyEvent::Warning { message });
        }
        let is_new = |entry: &Entry| entry.link_target.is_some() || !is_utf8_path_text(&entry.path);
        if self.plan.items.iter().any(|item| is_new(&item.entry))
            && !self.control.supports_per_entry_errors(&self.destination_path).await?
        {
            let server = self.control.server_uri();
            let failures = self.plan.items.extract_if(.., |item| is_new(&item.entry)).map(|item| {
                let path = item.entry.path;
                let what = if item.entry.link_target.is_some() { "links" } else { "names that are not UTF-8" };
                let problem = format!(
                    "{}: {server} runs an earlier version of godwit, which does not accept {what}",
                    escape_for_display(&path)
                );
                EntryFailure { path, error: TransferError::Unsupported { problem } }
            });
            self.plan.failures.extend(failures);
        }
        Ok(())
    }

    /// Returns the extraneous paths at the destination; the entries of a directory precede the directory. Symbolic
    /// links at the destination are not followed.
    pub(super) async fn extraneous_paths(&self) -> Result<Vec<String>, TransferError> {
        if !self.plan.has_source_directory() {
            let message = "--sync removes nothing, because no source is a directory; name the directory".to_owned();
            self.observer.on_event(&CopyEvent::Warning { message });
            return Ok(Vec::new());
        }
        let found = if self.is_download {
            let base = self.destination_directory();
            run_blocking(move || match list_entries(&base, LinkPolicy::Preserve) {
                Err(TransferError::NotFound { .. }) => Ok(None),
                listed => listed.map(Some),
            })
            .await?
        } else {
            self.control.list_if_present(&self.destination_path, LinkPolicy::Preserve).await?
        };
        // A destination directory that does not exist yet is created by this copy, so its entries need no check.
        Ok(found.map(|listing| self.plan.extraneous_paths(&listing.entries)).unwrap_or_default())
    }

    /// Ends an upload. If the first member of the pool was lost after it had committed the last file, the upload is
    /// ended at another member.
    async fn end_upload(&self, session: &str, surplus: Vec<String>) -> Result<Vec<EntryFailure>, TransferError> {
        match self.control.end_session(session, surplus.clone()).await {
            Err(TransferError::Flight(error)) if is_unknown_session(&error) && self.control.has_moved() => {
                let entries: Vec<Entry> = self.plan.items.iter().map(|item| item.entry.clone()).collect();
                let (session, have) = self.control.begin_files(&self.destination_path, &entries, false).await?;
                let is_missing = |(entry, have): (&Entry, &Result<ReceiverState, TransferError>)| {
                    entry.is_file() && have.as_ref().is_ok_and(|have| *have != ReceiverState::Complete)
                };
                if entries.iter().zip(&have).any(is_missing) {
                    return Err(error_from_status(error));
                }
                self.control.end_session(&session, surplus).await.map_err(convert_flight_error)
            }
            ended => ended.map_err(convert_flight_error),
        }
    }

    pub(super) async fn finish_copy(
        &mut self,
        direction: Direction,
        surplus: Vec<String>,
        mut summary: CopySummary,
    ) -> Result<CopySummary, TransferError> {
        let names: HashSet<String> = surplus.iter().cloned().collect();
        let failures = match direction {
            Direction::Download { receiver } => {
                let removing = move || {
                    let mut failures = Vec::new();
                    for path in surplus {
                        match receiver.remove_path(&path) {
                            Err(error) if error.concerns_one_file() => failures.push(EntryFailure { path, error }),
                            removed => removed?,
                        }
                    }
                    failures.extend(receiver.finish()?);
                    Ok(failures)
                };
                run_blocking(removing).await?
            }
            Direction::Upload { session, .. } => self.end_upload(&session, surplus).await?,
        };
        let links = self.plan.items.iter().filter(|item| item.entry.link_target.is_some());
        let links: HashSet<&str> = links.map(|item| item.entry.path.as_str()).collect();
        summary.files -= failures.iter().filter(|failure| links.contains(failure.path.as_str())).count();
        summary.removed_files = names.len() - failures.iter().filter(|failure| names.contains(&failure.path)).count();
        self.failures.extend(failures);
        Ok(summary)
    }
}

/// Converts the gRPC status of a server to an error of a copy; returns all other errors unchanged.
fn convert_flight_error(error: TransferError) -> TransferError {
    match error {
        TransferError::Flight(error) => error_from_status(error),
        error => error,
    }
}
