//! The end of a copy, and what is found out before its beginning for it: what is removed, and what could not be copied.

use std::collections::HashSet;

use super::checks::check_sources;
use super::{Copy, CopyEvent, CopyObserver, CopySummary};
use crate::control::{lost_session, told};
use crate::error::TransferError;
use crate::manifest::{Entry, EntryFailure, Links, list};
use crate::names::{is_plain, printable, shown};
use crate::protocol::Have;
use crate::service::blocking;
use crate::streams::Direction;

/// The outcome of a copy.
pub(crate) struct CopyOutcome {
    pub(crate) summary: CopySummary,
    /// Entries that could not be copied.
    pub(crate) failures: Vec<EntryFailure>,
}

impl CopyOutcome {
    /// Tells what could not be copied.
    pub(super) fn report(mut self, observer: &dyn CopyObserver) -> Result<CopySummary, TransferError> {
        let failed = self.failures.len();
        let files = self.summary.files + self.summary.same + failed;
        // It decides the exit code: what can be changed on this machine, or at the server, comes first.
        let is_here =
            |failure: &EntryFailure| matches!(failure.why, TransferError::File { .. } | TransferError::Busy { .. });
        let is_there =
            |failure: &EntryFailure| matches!(failure.why, TransferError::Elsewhere { .. } | TransferError::Flight(_));
        let first = self.failures.iter().position(is_here).or_else(|| self.failures.iter().position(is_there));
        if failed == 0 {
            return Ok(self.summary);
        }
        if files > 1 {
            for EntryFailure { path, why } in &self.failures {
                let (path, why) = (printable(path), godwit_model::with_causes(why));
                observer.event(&CopyEvent::NotCopied { path, why });
            }
        }
        let first = self.failures.swap_remove(first.unwrap_or(0)).why;
        match files {
            1 => Err(first),
            _ => Err(TransferError::Some { failed, files, first: Box::new(first), summary: Box::new(self.summary) }),
        }
    }
}

impl Copy<'_> {
    /// Looks at what is to be sent before anything is sent.
    pub(super) async fn prepare_upload(&mut self) -> Result<(), TransferError> {
        if !self.options.dry_run {
            let failures = check_sources(&self.plan.items, &self.sums).await?;
            let failed: HashSet<&str> = failures.iter().map(|failure| failure.path.as_str()).collect();
            self.plan.items.retain(|item| !failed.contains(item.entry.path.as_str()));
            self.failures.extend(failures);
        }
        let hidden = self.plan.leave_out_hidden();
        if hidden > 0 {
            let message =
                format!("{hidden} files and directories are left out: servers take none whose names begin with a dot");
            self.observer.event(&CopyEvent::Warning { message });
        }
        let is_new = |entry: &Entry| entry.link.is_some() || !is_plain(&entry.path);
        if self.plan.items.iter().any(|item| is_new(&item.entry)) && !self.control.answers_for_each(&self.base).await? {
            let server = self.control.server();
            let failures = self.plan.items.extract_if(.., |item| is_new(&item.entry)).map(|item| {
                let path = item.entry.path;
                let what = if item.entry.link.is_some() { "links" } else { "names that are not UTF-8" };
                let problem = format!("{}: {server} is of an earlier version, which takes no {what}", shown(&path));
                EntryFailure { path, why: TransferError::Unsupported { problem } }
            });
            self.failures.extend(failures);
        }
        Ok(())
    }

    /// Paths at the destination that the source does not have, what is in a directory before it. Links there are not followed. What may be that of an entry
    /// that cannot be copied is not among them.
    pub(super) async fn surplus(&self) -> Result<Vec<String>, TransferError> {
        if self.plan.is_one_file() {
            return Ok(Vec::new());
        }
        let there = if self.downloads {
            let base = self.directory();
            blocking(move || match base.exists() {
                true => Ok(list(&base, Links::Keep)?.entries),
                false => Ok(Vec::new()),
            })
            .await?
        } else {
            match self.control.list_as_it_can(&self.base, Links::Keep).await {
                Ok((listing, _)) => listing.entries,
                // It is made by this copy.
                Err(TransferError::Refused { .. }) => Vec::new(),
                Err(error) => return Err(error),
            }
        };
        let wanted: HashSet<&str> = self.plan.items.iter().map(|item| item.entry.path.as_str()).collect();
        let is_surplus =
            |path: &String| !path.is_empty() && !wanted.contains(path.as_str()) && !self.plan.is_of_failure(path);
        let mut surplus: Vec<String> = there.into_iter().map(|entry| entry.path).filter(is_surplus).collect();
        surplus.reverse();
        Ok(surplus)
    }

    /// Ends what was sent; at another server of a pool where the first one was lost after it had named the last file.
    async fn end_upload(&self, session: &str, surplus: Vec<String>) -> Result<Vec<EntryFailure>, TransferError> {
        match self.control.end(session, surplus.clone()).await {
            Err(TransferError::Flight(error)) if lost_session(&error) && self.control.has_moved() => {
                let entries: Vec<Entry> = self.plan.items.iter().map(|item| item.entry.clone()).collect();
                let (session, have) = self.control.begin(&self.base, &entries, false).await?;
                let is_missing = |(entry, have): (&Entry, &Result<Have, TransferError>)| {
                    entry.is_file() && have.as_ref().is_ok_and(|have| *have != Have::All)
                };
                if entries.iter().zip(&have).any(is_missing) {
                    return Err(told(error));
                }
                self.control.end(&session, surplus).await.map_err(told_of)
            }
            ended => ended.map_err(told_of),
        }
    }

    pub(super) async fn end(
        &mut self,
        direction: Direction,
        surplus: Vec<String>,
        mut summary: CopySummary,
    ) -> Result<CopySummary, TransferError> {
        let names: HashSet<String> = surplus.iter().cloned().collect();
        let failures = match direction {
            Direction::Download { inbox } => {
                let removing = move || {
                    let mut failures = Vec::new();
                    for path in surplus {
                        match inbox.remove(&path) {
                            Err(why) if why.is_of_one_file() => failures.push(EntryFailure { path, why }),
                            removed => removed?,
                        }
                    }
                    failures.extend(inbox.end()?);
                    Ok(failures)
                };
                blocking(removing).await?
            }
            Direction::Upload { session, .. } => self.end_upload(&session, surplus).await?,
        };
        let links = self.plan.items.iter().filter(|item| item.entry.link.is_some());
        let links: HashSet<&str> = links.map(|item| item.entry.path.as_str()).collect();
        summary.files -= failures.iter().filter(|failure| links.contains(failure.path.as_str())).count();
        summary.removed = names.len() - failures.iter().filter(|failure| names.contains(&failure.path)).count();
        self.failures.extend(failures);
        Ok(summary)
    }
}

/// Converts a server's failure message to an error of a copy.
fn told_of(error: TransferError) -> TransferError {
    match error {
        TransferError::Flight(error) => told(error),
        error => error,
    }
}
