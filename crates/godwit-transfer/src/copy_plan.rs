//! The plan of a copy: the entries that the sources list and the options select, and the destination of each entry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::blocking::run_blocking;
use crate::control_client::ControlClient;
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure, LinkPolicy, Listing, list_entries};
use crate::location::{Location, RemoteLocation};
use crate::path_text::{escape_for_display, path_to_text, text_to_path};
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
    /// The copies of source directories, as paths below the destination; empty for the destination itself. Only their
    /// contents are compared with the source.
    source_directories: BTreeSet<String>,
    selection: Selection,
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

/// Reports whether a path has a component that begins with a dot. Servers reject such names.
fn is_hidden_path(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.'))
}

/// Returns the path relative to a directory; `None` if it is not below the directory.
fn path_below<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let below = if directory.is_empty() { path } else { path.strip_prefix(directory)?.strip_prefix('/')? };
    (!below.is_empty()).then_some(below)
}

impl CopyPlan {
    /// Lists the entries of all sources.
    ///
    /// # Errors
    /// [`TransferError::NotFound`] if no file matches a glob, [`TransferError::Rejected`] if two files would get the
    /// same path or the copy of a source would have a hidden name; the error of the listing if a source cannot be
    /// listed.
    pub(crate) async fn from_sources(
        sources: &[Location],
        control: Option<&Arc<ControlClient>>,
        selection: &Selection,
        naming: DestinationNaming,
        links: LinkPolicy,
    ) -> Result<Self, TransferError> {
        let mut plan = Self { selection: selection.clone(), ..Self::default() };
        for source in sources {
            match source {
                Location::Local(path) => {
                    plan.add_local(path.clone(), naming == DestinationNaming::IntoDirectory, links).await?
                }
                Location::Remote(remote) => {
                    let control = control.ok_or_else(|| TransferError::Internal {
                        problem: "a remote source without a connection".to_owned(),
                    })?;
                    plan.add_remote(remote, control, naming, links).await?;
                }
            }
        }
        plan.check_unique_destinations()?;
        Ok(plan)
    }

    async fn add_local(
        &mut self,
        path: PathBuf,
        keeps_base_names: bool,
        links: LinkPolicy,
    ) -> Result<(), TransferError> {
        let text = path_to_text(&path);
        let listing = run_blocking(move || list_entries(&path, links)).await?;
        let prefix = if keeps_base_names { base_name(&text)?.to_owned() } else { String::new() };
        if is_hidden_path(&prefix) {
            let problem = format!(
                "cannot copy {}: servers do not accept names that begin with a dot; copy it alone to a destination \
                 that names the copy, such as {}",
                escape_for_display(&text),
                prefix.trim_start_matches('.')
            );
            return Err(TransferError::rejected(problem));
        }
        self.add_listing(listing, &prefix, &text);
        Ok(())
    }

    async fn add_remote(
        &mut self,
        remote: &RemoteLocation,
        control: &ControlClient,
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
            self.add_listing(listing, &prefix, path);
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
            self.add_listing(listing, &prefix, &join_paths(&directory, &matched));
        }
        Ok(())
    }

    fn add_listing(&mut self, listing: Listing, prefix: &str, origin: &str) {
        let Listing { mut entries, mut failures, skipped_links } = listing;
        if entries.iter().any(|entry| entry.path.is_empty() && entry.is_directory) {
            self.source_directories.insert(prefix.to_owned());
        }
        // If a source is a single file, the selection compares its file name, because its relative path is empty.
        let alone = entries.len() == 1 && entries[0].path.is_empty();
        if alone {
            entries[0].path = origin.rsplit('/').next().unwrap_or_default().to_owned();
        }
        self.selection.apply(&mut entries);
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
        self.selection.apply_to_failures(&mut failures);
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
        let count = |plan: &Self| plan.items.len() + plan.failures.len();
        let before = count(self);
        self.items.retain(|item| !is_hidden_path(&item.entry.path));
        self.failures.retain(|failure| !is_hidden_path(&failure.path));
        before - count(self)
    }

    /// Reports whether the plan copies a directory, so that the destination may have extraneous entries.
    pub(crate) fn has_source_directory(&self) -> bool {
        !self.source_directories.is_empty()
    }

    /// Returns the extraneous paths among the entries at the destination: entries of copied directories that the source
    /// does not have. `found` lists directories before their contents; in the result, contents precede directories.
    ///
    /// Entries that the copy does not compare are not extraneous: entries beside the copies, entries that the filters
    /// exclude, hidden entries, entries that failed or are links that were skipped, and directories of such entries.
    pub(crate) fn extraneous_paths(&self, found: &[Entry]) -> Vec<String> {
        let selected = self.selected_paths(found);
        let copied: HashSet<&str> = self.items.iter().map(|item| item.entry.path.as_str()).collect();
        let (mut extraneous, mut kept_directories) = (Vec::new(), HashSet::new());
        for entry in found.iter().rev() {
            let path = entry.path.as_str();
            let is_compared = selected.contains(path) && !is_hidden_path(path) && !self.is_below_failure(path);
            if is_compared && !copied.contains(path) && !kept_directories.contains(path) {
                extraneous.push(entry.path.clone());
            } else if let Some((directory, _)) = path.rsplit_once('/') {
                kept_directories.insert(directory);
            }
        }
        extraneous
    }

    /// Returns the paths of the entries at the destination that are below the copies of source directories and pass the
    /// filters.
    fn selected_paths(&self, found: &[Entry]) -> HashSet<String> {
        let mut selected = HashSet::new();
        for directory in &self.source_directories {
            let below = found.iter().filter_map(|entry| {
                let path = path_below(&entry.path, directory)?.to_owned();
                Some(Entry { path, ..entry.clone() })
            });
            let mut entries: Vec<Entry> = below.collect();
            self.selection.apply(&mut entries);
            selected.extend(entries.iter().map(|entry| join_paths(directory, &entry.path)));
        }
        selected
    }

    /// Reports whether a path at the destination equals, or is below, the path of an entry that failed or was skipped.
    fn is_below_failure(&self, path: &str) -> bool {
        let others = self.failures.iter().map(|failure| &failure.path).chain(&self.skipped_links);
        others.into_iter().any(|other| other.is_empty() || path == other || path_below(path, other).is_some())
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

#[cfg(test)]
mod tests;
