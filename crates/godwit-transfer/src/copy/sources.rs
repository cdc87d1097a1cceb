//! Where the files of a copy are to be had: the server of the source, and others that have the same files.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::{CopyEvent, CopyObserver, CopyOptions};
use crate::control::{Control, Credentials};
use crate::error::TransferError;
use crate::manifest::{Entry, Links};
use crate::place::{Place, Remote};
use crate::plan::{Item, name_of};
use crate::select::split_glob;
use crate::session::Sources;
use crate::tree::block_count;

/// How long a call to one of several servers is tried again before the next one is asked.
const PATIENCE_WITH_ONE: Duration = Duration::from_secs(5);

/// A server that has what another has.
pub(super) struct Mirror {
    pub(super) control: Arc<Control>,
    /// The path of what is copied.
    path: String,
    /// Path and state of each item that it has.
    origins: Vec<Option<(String, u64)>>,
}

/// Connects to all servers that have the source of a copy. Those that are not there are told of and done without. The first that is there
/// says what there is to copy: what that is, the connection to it, and the others.
///
/// # Errors
/// Where none of them is there, or what is asked for is not one path on servers.
pub(super) async fn find(
    sources: &[Place],
    into: bool,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
) -> Result<(Place, Arc<Control>, Vec<Mirror>), TransferError> {
    let [source] = sources else {
        return Err(TransferError::refused("--also-from names other places of one source; copy sources one by one"));
    };
    let mut remotes = Vec::new();
    for place in [source].into_iter().chain(&options.also_from) {
        let Place::There(remote) = place else {
            return Err(TransferError::refused(format!(
                "{place} is no place on a server, of which --also-from is for"
            )));
        };
        if split_glob(remote.path.trim_matches('/'))?.is_some() {
            return Err(TransferError::refused(format!("{place} is a pattern, which --also-from is not for")));
        }
        remotes.push(remote);
    }
    if remotes.len() > Sources::MOST as usize {
        return Err(TransferError::refused(format!("more than {} sources are named", Sources::MOST)));
    }
    // A copy is named after its source, whichever of the servers is there.
    if into
        && let Some(other) = remotes.iter().find(|other| name_of(&other.path).ok() != name_of(&remotes[0].path).ok())
    {
        let problem =
            format!("{} and {} have different names; name the copy in full", source, Place::There((*other).clone()));
        return Err(TransferError::refused(problem));
    }
    let patience = options.patience.min(PATIENCE_WITH_ONE);
    let connected = join_all(remotes.iter().map(|remote| Control::connect(remote, credentials, patience))).await;
    let mut there: Vec<(&Remote, Arc<Control>)> = Vec::new();
    let mut first_failure = None;
    for (remote, connected) in remotes.into_iter().zip(connected) {
        match connected {
            Ok(control) => there.push((remote, Arc::new(control))),
            Err(error) => {
                let why = godwit_model::with_causes(&error);
                observer.event(&CopyEvent::Warning { message: format!("{} is done without: {why}", remote.server()) });
                first_failure.get_or_insert(error);
            }
        }
    }
    let mut there = there.into_iter();
    let Some((lead, control)) = there.next() else {
        return Err(first_failure.unwrap_or_else(|| TransferError::refused("nothing is to be copied")));
    };
    let mirrors = there.map(|(remote, control)| Mirror {
        control,
        path: remote.path.trim_matches('/').to_owned(),
        origins: Vec::new(),
    });
    Ok((Place::There(lead.clone()), control, mirrors.collect()))
}

impl Mirror {
    /// Finds out which of these files it has. `base` is the path of what is copied on the server that named them.
    pub(super) async fn look(&mut self, items: &[Item], base: &str, links: Links) -> Result<(), TransferError> {
        let entries = self.control.list(&self.path, links).await?.entries;
        let entries: HashMap<String, Entry> = entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
        let origins = items.iter().map(|item| {
            let below = item.origin.strip_prefix(base)?.trim_start_matches('/');
            let found = entries.get(below).filter(|found| is_same(&item.entry, found))?;
            let path = if below.is_empty() { self.path.clone() } else { format!("{}/{below}", self.path) };
            Some((path.trim_start_matches('/').to_owned(), found.version))
        });
        self.origins = origins.collect();
        Ok(())
    }

    /// The path of what is copied.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Path and state of a file there.
    pub(super) fn origin(&self, file: u32) -> Option<(&str, u64)> {
        let (path, version) = self.origins.get(file as usize)?.as_ref()?;
        Some((path, *version))
    }
}

/// Whether a file of one server may be that of another. A file of several blocks is proved by its hashes; one of a single block is
/// not, so its time has to be the same as well.
fn is_same(one: &Entry, other: &Entry) -> bool {
    let times = |entry: &Entry| (entry.modified_s, entry.modified_ns);
    one.is_file()
        && other.is_file()
        && one.size_bytes == other.size_bytes
        && (block_count(one.size_bytes) > 1 || times(one) == times(other))
}
