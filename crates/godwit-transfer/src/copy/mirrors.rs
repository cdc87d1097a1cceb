//! The servers from which a copy fetches files: the server of the source, and mirrors with the same files.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::CopyOptions;
use crate::control_client::ControlClient;
use crate::copy_plan::{CopyItem, base_name};
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::file_listing::{Entry, LinkPolicy};
use crate::location::{Location, RemoteLocation};
use crate::selection::split_glob;
use godwit_transfer_session::SourceSet;
use godwit_transfer_session::blake3_tree::block_count;
use godwit_transfer_session::copy_events::{CopyEvent, CopyObserver};

/// Longest time for retries of a call to a server if a copy has several servers.
const MIRROR_RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that has the same files as the source.
pub(super) struct Mirror {
    pub(super) control: Arc<ControlClient>,
    /// Path of the source on this mirror.
    path: String,
    /// For each item of the plan, the path and the version of the file on this mirror; `None` if the mirror does not
    /// have the file.
    source_files: Vec<Option<(String, u64)>>,
}

/// Connects to all servers that have the source of a copy; warns of unreachable servers. The first reachable server
/// provides the list of entries. Returns the location and the connection of that server, and the other servers as
/// mirrors.
///
/// # Errors
/// [`TransferError::Rejected`] if there are several sources, or a source is local or a glob; the first failure if no
/// server is reachable.
pub(super) async fn connect_mirrors(
    sources: &[Location],
    keeps_base_names: bool,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
) -> Result<(Location, Arc<ControlClient>, Vec<Mirror>), TransferError> {
    let [source] = sources else {
        return Err(TransferError::rejected(
            "--also-from names further locations of a single source; copy sources one by one",
        ));
    };
    let mut remotes = Vec::new();
    for place in [source].into_iter().chain(&options.mirrors) {
        let Location::Remote(remote) = place else {
            return Err(TransferError::rejected(format!(
                "{place} is not the URL of a server, as --also-from requires"
            )));
        };
        if split_glob(remote.path.trim_matches('/'))?.is_some() {
            return Err(TransferError::rejected(format!(
                "{place} is a pattern, which --also-from does not support; name one file or directory"
            )));
        }
        remotes.push(remote);
    }
    if remotes.len() > SourceSet::MAX_SOURCES as usize {
        return Err(TransferError::rejected(format!(
            "too many sources with --also-from: the limit is {}",
            SourceSet::MAX_SOURCES
        )));
    }
    // The name of the source becomes the name of the copy, so all mirrors must use the same name.
    if keeps_base_names
        && let Some(other) =
            remotes.iter().find(|other| base_name(&other.path).ok() != base_name(&remotes[0].path).ok())
    {
        let problem = format!(
            "{} and {} have different names; name the destination in full",
            source,
            Location::Remote((*other).clone())
        );
        return Err(TransferError::rejected(problem));
    }
    let patience = options.idle_timeout.min(MIRROR_RETRY_TIMEOUT);
    let connected = join_all(remotes.iter().map(|remote| ControlClient::connect(remote, credentials, patience))).await;
    let mut there: Vec<(&RemoteLocation, Arc<ControlClient>)> = Vec::new();
    let mut first_failure = None;
    for (remote, connected) in remotes.into_iter().zip(connected) {
        match connected {
            Ok(control) => there.push((remote, Arc::new(control))),
            Err(error) => {
                let why = godwit_model::message_with_causes(&error);
                observer
                    .on_event(&CopyEvent::Warning { message: format!("{} is skipped: {why}", remote.server_uri()) });
                first_failure.get_or_insert(error);
            }
        }
    }
    let mut there = there.into_iter();
    let Some((lead, control)) = there.next() else {
        return Err(first_failure.unwrap_or_else(|| TransferError::rejected("nothing to copy")));
    };
    let mirrors = there.map(|(remote, control)| Mirror {
        control,
        path: remote.path.trim_matches('/').to_owned(),
        source_files: Vec::new(),
    });
    Ok((Location::Remote(lead.clone()), control, mirrors.collect()))
}

impl Mirror {
    /// Determines which files the mirror has. `base` is the path of the source on the server that listed the items.
    pub(super) async fn match_files(
        &mut self,
        items: &[CopyItem],
        base: &str,
        links: LinkPolicy,
    ) -> Result<(), TransferError> {
        let entries = self.control.list_entries(&self.path, links).await?.entries;
        let entries: HashMap<String, Entry> = entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
        let origins = items.iter().map(|item| {
            let below = item.source_path.strip_prefix(base)?.trim_start_matches('/');
            let found = entries.get(below).filter(|found| may_be_same_file(&item.entry, found))?;
            let path = if below.is_empty() { self.path.clone() } else { format!("{}/{below}", self.path) };
            Some((path.trim_start_matches('/').to_owned(), found.version))
        });
        self.source_files = origins.collect();
        Ok(())
    }

    /// Returns the path of the source on this mirror.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path and the version of a file on this mirror; `None` if the mirror lacks the file.
    pub(super) fn source_file(&self, file: u32) -> Option<(&str, u64)> {
        let (path, version) = self.source_files.get(file as usize)?.as_ref()?;
        Some((path, *version))
    }
}

/// Reports whether files of two servers may be the same. Block hashes later verify a file of several blocks. A file of
/// a single block is not verified against the other server, so its modification time must be equal too.
fn may_be_same_file(one: &Entry, other: &Entry) -> bool {
    let times = |entry: &Entry| (entry.modified_s, entry.modified_ns);
    one.is_file()
        && other.is_file()
        && one.size_bytes == other.size_bytes
        && (block_count(one.size_bytes) > 1 || times(one) == times(other))
}
