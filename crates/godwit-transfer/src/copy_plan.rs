//! The plan of a copy: the entries that the sources list and the options select, and the destination of each entry.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use crate::blocking::run_blocking;
use crate::control_client::ControlClient;
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure, LinkPolicy, Listing, list_entries};
use crate::location::{Location, RemoteLocation};
use crate::path_text::{path_to_text, text_to_path};
use crate::selection::{Selection, matching_prefix, split_glob};

/// A file, directory or link to be copied.
#[derive(Clone, Debug)]
pub(crate) struct CopyItem {
    /// The entry; its path is relative to the destination.
    pub(crate) entry: Entry,
    /// The source of the entry: a path on this host, or a path below the root of the server.
    pub(crate) source_path: String,
}

/// All entries of a copy.
#[derive(Debug, Default)]
pub(crate) struct CopyPlan {
    pub(crate) items: Vec<CopyItem>,
    /// Entries that cannot be copied; their paths are relative to the destination.
    pub(crate) failures: Vec<EntryFailure>,
    /// Symbolic links that are skipped, as paths below the destination.
    pub(crate) skipped_links: Vec<String>,
}

impl CopyItem {
    /// Returns the path of the source on this host.
    pub(crate) fn local_path(&self) -> PathBuf {
        text_to_path(&self.source_path).unwrap_or_else(|| PathBuf::from(&self.source_path))
    }
}

/// Returns the last component of a path, which becomes the name of the copy.
pub(crate) fn base_name(path: &str) -> Result<&str, TransferError> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if name.is_empty() || name == "." || name == ".." {
        return Err(TransferError::rejected(format!(
            "{path:?} has no name for the copy; name the destination in full"
        )));
    }
    Ok(name)
}

fn join_paths(one: &str, other: &str) -> String {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other.to_owned(),
        (_, true) => one.to_owned(),
        _ => format!("{one}/{other}"),
    }
}

impl CopyPlan {
    /// Lists the entries of all sources.
    ///
    /// # Errors
    /// [`TransferError::NotFound`] if no file matches a glob, [`TransferError::Rejected`] if two files would get the
    /// same path; the error of the listing if a source cannot be listed.
    pub(crate) async fn from_sources(
        sources: &[Location],
        control: Option<&Arc<ControlClient>>,
        selection: &Selection,
        naming: DestinationNaming,
        links: LinkPolicy,
    ) -> Result<Self, TransferError> {
        let mut plan = Self::default();
        for source in sources {
            match source {
                Location::Local(path) => {
                    plan.add_local(path.clone(), selection, naming == DestinationNaming::IntoDirectory, links).await?
                }
                Location::Remote(remote) => {
                    let control = control.ok_or_else(|| TransferError::Internal {
                        problem: "a remote source without a connection".to_owned(),
                    })?;
                    plan.add_remote(remote, control, selection, naming, links).await?;
                }
            }
        }
        plan.check_unique_destinations()?;
        Ok(plan)
    }

    async fn add_local(
        &mut self,
        path: PathBuf,
        selection: &Selection,
        keeps_base_names: bool,
        links: LinkPolicy,
    ) -> Result<(), TransferError> {
        let text = path_to_text(&path);
        let listing = run_blocking(move || list_entries(&path, links)).await?;
        let prefix = if keeps_base_names { base_name(&text)?.to_owned() } else { String::new() };
        self.add_listing(listing, selection, &prefix, &text);
        Ok(())
    }

    async fn add_remote(
        &mut self,
        remote: &RemoteLocation,
        control: &ControlClient,
        selection: &Selection,
        naming: DestinationNaming,
        links: LinkPolicy,
    ) -> Result<(), TransferError> {
        let path = remote.path.trim_matches('/');
        let Some((directory, pattern)) = split_glob(path)? else {
            let listing = control.list_entries(path, links).await?;
            let is_file = matches!(&listing.entries[..], [only] if only.is_file());
            let is_below = naming == DestinationNaming::IntoDirectory
                || naming == DestinationNaming::IntoDirectoryIfFile && is_file;
            let prefix = if is_below { base_name(path)?.to_owned() } else { String::new() };
            self.add_listing(listing, selection, &prefix, path);
            return Ok(());
        };
        let mut found: BTreeMap<String, Listing> = BTreeMap::new();
        let split = |path: &str| {
            let matched = matching_prefix(&pattern, path)?;
            Some((matched.to_owned(), path[matched.len()..].trim_start_matches('/').to_owned()))
        };
        let Listing { entries, failures, skipped_links } = control.list_entries(&directory, links).await?;
        for entry in entries {
            if let Some((matched, path)) = split(&entry.path) {
                found.entry(matched).or_default().entries.push(Entry { path, ..entry });
            }
        }
        for EntryFailure { path, error } in failures {
            if let Some((matched, path)) = split(&path) {
                found.entry(matched).or_default().failures.push(EntryFailure { path, error });
            }
        }
        for path in skipped_links {
            if let Some((matched, path)) = split(&path) {
                found.entry(matched).or_default().skipped_links.push(path);
            }
        }
        if found.is_empty() {
            let location = format!("a file that matches {}", Location::Remote(remote.clone()));
            return Err(TransferError::NotFound { location });
        }
        for (matched, listing) in found {
            let prefix = base_name(&matched)?.to_owned();
            self.add_listing(listing, selection, &prefix, &join_paths(&directory, &matched));
        }
        Ok(())
    }

    fn add_listing(&mut self, listing: Listing, selection: &Selection, prefix: &str, origin: &str) {
        let Listing { mut entries, mut failures, skipped_links } = listing;
        // If a source is a single file, the selection compares its file name, because its relative path is empty.
        let alone = entries.len() == 1 && entries[0].path.is_empty();
        if alone {
            entries[0].path = origin.rsplit('/').next().unwrap_or_default().to_owned();
        }
        selection.apply(&mut entries);
        for mut entry in entries {
            if alone {
                entry.path = String::new();
            }
            let source_path = match entry.path.is_empty() {
                true => origin.to_owned(),
                false => format!("{}/{}", origin.trim_end_matches('/'), entry.path),
            };
            entry.path = join_paths(prefix, &entry.path);
            self.items.push(CopyItem { entry, source_path });
        }
        selection.apply_to_failures(&mut failures);
        let failures = failures
            .into_iter()
            .map(|EntryFailure { path, error }| EntryFailure { path: join_paths(prefix, &path), error });
        self.failures.extend(failures);
        self.skipped_links.extend(skipped_links.iter().map(|path| join_paths(prefix, path)));
    }

    fn check_unique_destinations(&self) -> Result<(), TransferError> {
        let mut seen: HashMap<&str, &CopyItem> = HashMap::new();
        for item in &self.items {
            if let Some(other) = seen
                .insert(&item.entry.path, item)
                .filter(|other| !(other.entry.is_directory && item.entry.is_directory))
            {
                let problem = format!(
                    "{} and {} would both be copied to {:?}; copy them one by one",
                    other.source_path, item.source_path, item.entry.path
                );
                return Err(TransferError::rejected(problem));
            }
        }
        Ok(())
    }

    /// Excludes hidden entries, which servers reject; returns the number of excluded entries.
    pub(crate) fn exclude_hidden(&mut self) -> usize {
        let is_hidden = |path: &str| path.split('/').any(|part| part.starts_with('.'));
        let count = |plan: &Self| plan.items.len() + plan.failures.len();
        let before = count(self);
        self.items.retain(|item| !is_hidden(&item.entry.path));
        self.failures.retain(|failure| !is_hidden(&failure.path));
        before - count(self)
    }

    /// Reports whether a path at the destination equals, or is below, the path of an entry that failed or was skipped.
    pub(crate) fn is_below_failure(&self, path: &str) -> bool {
        let others = self.failures.iter().map(|failure| &failure.path).chain(&self.skipped_links);
        others.into_iter().any(|other| {
            other.is_empty()
                || path.strip_prefix(other.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Reports whether the plan is a single file that gets exactly the path of the destination.
    pub(crate) fn is_one_file(&self) -> bool {
        matches!(&self.items[..], [only] if only.entry.path.is_empty() && only.entry.is_file())
    }
}

/// Rule that forms the paths of copies from the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestinationNaming {
    /// The single copy gets exactly the path of the destination.
    AsDestination,
    /// The copies keep their names and are placed below the destination.
    IntoDirectory,
    /// Like `IntoDirectory` for a single source file. A single source directory gets the path of the destination
    /// instead.
    IntoDirectoryIfFile,
}

/// Returns how copies of these sources at this destination are named.
pub(crate) fn destination_naming(sources: &[Location], destination: &Location) -> DestinationNaming {
    let is_directory = || matches!(destination, Location::Local(path) if sources.len() == 1 && path.is_dir());
    match keeps_base_names(sources, destination) {
        true => DestinationNaming::IntoDirectory,
        false if is_directory() => DestinationNaming::IntoDirectoryIfFile,
        false => DestinationNaming::AsDestination,
    }
}

/// Reports whether the copies always keep the names of their sources and are placed below the destination.
fn keeps_base_names(sources: &[Location], destination: &Location) -> bool {
    let ends_with_slash = match destination {
        Location::Local(path) => path.as_os_str().as_encoded_bytes().ends_with(b"/"),
        Location::Remote(remote) => remote.path.is_empty() || remote.path.ends_with('/'),
    };
    sources.len() > 1 || ends_with_slash
}

/// Returns a client of the server on which all remote locations are; `None` if all locations are local.
pub(crate) fn common_server(
    places: &[&Location],
    credentials: &Credentials,
    retry_timeout: std::time::Duration,
) -> Result<Option<Arc<ControlClient>>, TransferError> {
    let mut remotes = places.iter().filter_map(|place| match place {
        Location::Remote(remote) => Some(remote),
        Location::Local(_) => None,
    });
    let Some(first) = remotes.next() else { return Ok(None) };
    if let Some(other) = remotes.find(|other| !other.is_on_same_server(first)) {
        let problem = format!(
            "{} and {} are on two servers; copy from one server at a time",
            first.server_uri(),
            other.server_uri()
        );
        return Err(TransferError::rejected(problem));
    }
    Ok(Some(Arc::new(ControlClient::new(first, credentials, retry_timeout)?)))
}
