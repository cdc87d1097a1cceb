//! From what somebody wrote to what is copied: listings, selections, and where each file goes.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use crate::control::{Control, Credentials};
use crate::error::TransferError;
use crate::manifest::{Entry, EntryFailure, Links, Listing, list};
use crate::names::{path_of, text_of};
use crate::place::{Place, Remote};
use crate::select::{Selection, fitting, split_glob};
use crate::service::blocking;

/// One file or directory to be copied.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// With its path below the destination.
    pub(crate) entry: Entry,
    /// Where it is: a path here, or below the server's root.
    pub(crate) origin: String,
}

/// All that is copied.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) items: Vec<Item>,
    /// Entries that cannot be copied, by their paths below the destination.
    pub(crate) failures: Vec<EntryFailure>,
    /// Paths below the destination of links that are skipped.
    pub(crate) skipped_links: Vec<String>,
}

impl Item {
    /// Its path on this host.
    pub(crate) fn path(&self) -> PathBuf {
        path_of(&self.origin).unwrap_or_else(|| PathBuf::from(&self.origin))
    }
}

/// The last part of a path, as the name of a copy.
pub(crate) fn name_of(path: &str) -> Result<&str, TransferError> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if name.is_empty() || name == "." || name == ".." {
        return Err(TransferError::refused(format!(
            "{path:?} has no name to copy it under; name the destination in full"
        )));
    }
    Ok(name)
}

fn joined(one: &str, other: &str) -> String {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other.to_owned(),
        (_, true) => one.to_owned(),
        _ => format!("{one}/{other}"),
    }
}

impl Plan {
    /// Lists every source.
    ///
    /// # Errors
    /// Where a source cannot be listed, nothing fits a wildcard, or two files would have one name.
    pub(crate) async fn of(
        sources: &[Place],
        control: Option<&Arc<Control>>,
        selection: &Selection,
        naming: Naming,
        links: Links,
    ) -> Result<Self, TransferError> {
        let mut plan = Self::default();
        for source in sources {
            match source {
                Place::Here(path) => plan.add_here(path.clone(), selection, naming == Naming::Below, links).await?,
                Place::There(remote) => {
                    let control =
                        control.ok_or_else(|| TransferError::Bug { problem: "no server is known".to_owned() })?;
                    plan.add_there(remote, control, selection, naming, links).await?;
                }
            }
        }
        plan.refuse_doubles()?;
        Ok(plan)
    }

    async fn add_here(
        &mut self,
        path: PathBuf,
        selection: &Selection,
        into: bool,
        links: Links,
    ) -> Result<(), TransferError> {
        let text = text_of(&path);
        let listing = blocking(move || list(&path, links)).await?;
        let prefix = if into { name_of(&text)?.to_owned() } else { String::new() };
        self.add(listing, selection, &prefix, &text);
        Ok(())
    }

    async fn add_there(
        &mut self,
        remote: &Remote,
        control: &Control,
        selection: &Selection,
        naming: Naming,
        links: Links,
    ) -> Result<(), TransferError> {
        let path = remote.path.trim_matches('/');
        let Some((directory, pattern)) = split_glob(path)? else {
            let listing = control.list(path, links).await?;
            let is_file = matches!(&listing.entries[..], [only] if only.is_file());
            let is_below = naming == Naming::Below || naming == Naming::BelowIfFile && is_file;
            let prefix = if is_below { name_of(path)?.to_owned() } else { String::new() };
            self.add(listing, selection, &prefix, path);
            return Ok(());
        };
        let mut found: BTreeMap<String, Listing> = BTreeMap::new();
        let split = |path: &str| {
            let matched = fitting(&pattern, path)?;
            Some((matched.to_owned(), path[matched.len()..].trim_start_matches('/').to_owned()))
        };
        let Listing { entries, failures, skipped_links } = control.list(&directory, links).await?;
        for entry in entries {
            if let Some((matched, path)) = split(&entry.path) {
                found.entry(matched).or_default().entries.push(Entry { path, ..entry });
            }
        }
        for EntryFailure { path, why } in failures {
            if let Some((matched, path)) = split(&path) {
                found.entry(matched).or_default().failures.push(EntryFailure { path, why });
            }
        }
        for path in skipped_links {
            if let Some((matched, path)) = split(&path) {
                found.entry(matched).or_default().skipped_links.push(path);
            }
        }
        if found.is_empty() {
            let place = format!("file that {} fits", Place::There(remote.clone()));
            return Err(TransferError::NotFound { place });
        }
        for (matched, listing) in found {
            let prefix = name_of(&matched)?.to_owned();
            self.add(listing, selection, &prefix, &joined(&directory, &matched));
        }
        Ok(())
    }

    fn add(&mut self, listing: Listing, selection: &Selection, prefix: &str, origin: &str) {
        let Listing { mut entries, mut failures, skipped_links } = listing;
        // A file that is named itself is judged by its name.
        let alone = entries.len() == 1 && entries[0].path.is_empty();
        if alone {
            entries[0].path = origin.rsplit('/').next().unwrap_or_default().to_owned();
        }
        selection.apply(&mut entries);
        for mut entry in entries {
            if alone {
                entry.path = String::new();
            }
            let origin = match entry.path.is_empty() {
                true => origin.to_owned(),
                false => format!("{}/{}", origin.trim_end_matches('/'), entry.path),
            };
            entry.path = joined(prefix, &entry.path);
            self.items.push(Item { entry, origin });
        }
        selection.apply_to_failures(&mut failures);
        let failures =
            failures.into_iter().map(|EntryFailure { path, why }| EntryFailure { path: joined(prefix, &path), why });
        self.failures.extend(failures);
        self.skipped_links.extend(skipped_links.iter().map(|path| joined(prefix, path)));
    }

    fn refuse_doubles(&self) -> Result<(), TransferError> {
        let mut seen: HashMap<&str, &Item> = HashMap::new();
        for item in &self.items {
            if let Some(other) =
                seen.insert(&item.entry.path, item).filter(|other| !(other.entry.directory && item.entry.directory))
            {
                let problem = format!(
                    "{} and {} would both be {:?}; copy them one by one",
                    other.origin, item.origin, item.entry.path
                );
                return Err(TransferError::refused(problem));
            }
        }
        Ok(())
    }

    /// Leaves out what a server takes from nobody; returns how many there were.
    pub(crate) fn leave_out_hidden(&mut self) -> usize {
        let is_hidden = |path: &str| path.split('/').any(|part| part.starts_with('.'));
        let count = |plan: &Self| plan.items.len() + plan.failures.len();
        let before = count(self);
        self.items.retain(|item| !is_hidden(&item.entry.path));
        self.failures.retain(|failure| !is_hidden(&failure.path));
        before - count(self)
    }

    /// Returns whether a path at the destination may be that of an entry that is not copied, or of something in it.
    pub(crate) fn is_of_failure(&self, path: &str) -> bool {
        let others = self.failures.iter().map(|failure| &failure.path).chain(&self.skipped_links);
        others.into_iter().any(|other| {
            other.is_empty()
                || path.strip_prefix(other.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Whether it is one file, which the destination names.
    pub(crate) fn is_one_file(&self) -> bool {
        matches!(&self.items[..], [only] if only.entry.path.is_empty() && only.entry.is_file())
    }
}

/// What copies are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// As the destination is.
    AsTold,
    /// By their own names below the destination.
    Below,
    /// The same where the only source is a file; a directory as the destination is.
    BelowIfFile,
}

/// What copies of these sources are called.
pub(crate) fn naming_of(sources: &[Place], destination: &Place) -> Naming {
    let is_directory = || matches!(destination, Place::Here(path) if sources.len() == 1 && path.is_dir());
    match goes_into(sources, destination) {
        true => Naming::Below,
        false if is_directory() => Naming::BelowIfFile,
        false => Naming::AsTold,
    }
}

/// Whether copies keep their names below the destination.
fn goes_into(sources: &[Place], destination: &Place) -> bool {
    let ends_with_slash = match destination {
        Place::Here(path) => path.as_os_str().as_encoded_bytes().ends_with(b"/"),
        Place::There(remote) => remote.path.is_empty() || remote.path.ends_with('/'),
    };
    sources.len() > 1 || ends_with_slash
}

/// The server of places, one for all of them.
pub(crate) fn server_of(
    places: &[&Place],
    credentials: &Credentials,
    patience: std::time::Duration,
) -> Result<Option<Arc<Control>>, TransferError> {
    let mut remotes = places.iter().filter_map(|place| match place {
        Place::There(remote) => Some(remote),
        Place::Here(_) => None,
    });
    let Some(first) = remotes.next() else { return Ok(None) };
    if let Some(other) = remotes.find(|other| !other.is_beside(first)) {
        let problem = format!("{} and {} are two servers; copy from one at a time", first.server(), other.server());
        return Err(TransferError::refused(problem));
    }
    Ok(Some(Arc::new(Control::new(first, credentials, patience)?)))
}
