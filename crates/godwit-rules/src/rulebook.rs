//! A policy that changes while a server runs, and the decisions about files as they are.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use godwit_flight::{Caller, Catalog, Dataset, DatasetError, FileUse, FileVerdict, Rules};

use crate::catalog::GrantedCatalog;
use crate::error::PolicyError;
use crate::grants::Grants;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::samples::{fits_samples, places_of_samples};

/// When a file was written, how long it is, and which it is; `None` where it is not there.
type Stamp = Option<(SystemTime, u64, u64)>;

/// The rules of a server, as they are now.
#[derive(Debug)]
pub struct Rulebook {
    path: PathBuf,
    /// What files belong to, so that those of samples can be told.
    catalog: Arc<dyn Catalog>,
    policy: RwLock<Arc<Policy>>,
    /// The state of the file that was read last, and the one that was seen last.
    stamps: RwLock<(Stamp, Stamp)>,
}

impl Rulebook {
    /// The policy of a file, about the datasets of a catalog.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn open(path: &Path, catalog: Arc<dyn Catalog>) -> Result<Self, PolicyError> {
        let stamp = stamp_of(path);
        let policy = RwLock::new(Arc::new(Policy::read(path)?));
        Ok(Self { path: path.to_owned(), catalog, policy, stamps: RwLock::new((stamp, stamp)) })
    }

    /// A policy that does not change.
    pub(crate) fn of(policy: Arc<Policy>, catalog: Arc<dyn Catalog>) -> Self {
        Self { path: PathBuf::new(), catalog, policy: RwLock::new(policy), stamps: RwLock::default() }
    }

    /// The policy as it is now.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again where it has changed, and has stayed as it is since the last time this was asked: who writes it
    /// piece by piece is let finish. `None` where nothing changed. Where it is no policy any more, the old one stays.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn refresh(&self) -> Option<Result<Arc<Policy>, PolicyError>> {
        let now = stamp_of(&self.path);
        let mut stamps = self.stamps.write().unwrap_or_else(PoisonError::into_inner);
        let is_settled = stamps.1 == now;
        stamps.1 = now;
        if now == stamps.0 || !is_settled {
            return None;
        }
        let read = Policy::read(&self.path).map(Arc::new);
        if stamp_of(&self.path) != now {
            // It changed meanwhile, and is read when it has settled.
            return None;
        }
        stamps.0 = now;
        drop(stamps);
        Some(read.inspect(|policy| {
            *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy.clone();
        }))
    }

    /// The rules about a caller, as bytes for processes that read for it.
    pub fn grants_of(&self, caller: &Caller) -> Vec<u8> {
        self.policy().grants_of(caller).to_bytes()
    }
}

fn stamp_of(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len(), found.ino()))
}

/// A path as it is written by itself: without empty parts and dots.
fn canonical(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    (!parts.is_empty() && !parts.contains(&"..")).then(|| parts.join("/"))
}

/// The names that a file may be a part of or belong to, and whether as a directory: each one above it, and what is before each dot of
/// its path, as `x.bam` of `x.bam.bai`.
fn owners(path: &str) -> impl Iterator<Item = (&str, bool)> {
    let ends = path.char_indices().filter(|(at, character)| *at > 0 && matches!(character, '/' | '.'));
    ends.map(|(end, character)| (&path[..end], character == '/'))
}

/// What a name stands for, as far as it was looked at.
enum Named {
    /// A dataset.
    Dataset(Arc<dyn Dataset>),
    /// One that cannot be opened.
    Unreadable,
    /// Nothing that has rows.
    Other,
}

/// The rule about a name.
enum Decided<'a> {
    Rule(&'a Rule),
    /// There is none.
    Nothing,
    /// It goes by samples, and those cannot be told.
    Unknown,
}

impl Rulebook {
    fn named(&self, name: &str) -> Named {
        // A name that another stands for is no file.
        if self.catalog.canonical_name(name).ok().as_deref() != Some(name) {
            return Named::Other;
        }
        match self.catalog.open(name) {
            Ok(dataset) => Named::Dataset(dataset),
            Err(DatasetError::NotFound { .. }) => Named::Other,
            Err(_) => Named::Unreadable,
        }
    }

    /// The rule about a name, and whether it shows all that is there. A file is opened only where samples decide.
    fn rule_about<'a>(&self, grants: &'a Grants, name: &str) -> (Decided<'a>, bool) {
        let mut named = None;
        for rule in grants.rules.iter().filter(|rule| rule.covers(name)) {
            if !rule.asks_for_samples() {
                return (Decided::Rule(rule), rule.shows_everything());
            }
            match named.get_or_insert_with(|| self.named(name)) {
                Named::Dataset(dataset) if fits_samples(rule, &**dataset) => {
                    let all = places_of_samples(rule, &**dataset).is_none();
                    return (Decided::Rule(rule), all && rule.shows_everything());
                }
                Named::Dataset(_) | Named::Other => {}
                Named::Unreadable => return (Decided::Unknown, false),
            }
        }
        (Decided::Nothing, false)
    }

    /// Whether a file may be had by some grants.
    pub(crate) fn file_by(&self, grants: &Grants, path: &str, wanted: FileUse) -> FileVerdict {
        match canonical(path) {
            Some(path) => self.decided(grants, &path, wanted),
            None => FileVerdict::Hidden,
        }
    }

    /// A file is had by a rule that shows all of it. What lies in a dataset goes by the rule of that; what lies beside one and begins
    /// with its name, as an index does, is had only where that is seen whole, too.
    fn decided(&self, grants: &Grants, path: &str, wanted: FileUse) -> FileVerdict {
        let is_dataset = self.catalog.canonical_name(path).ok().as_deref() == Some(path);
        for (owner, is_directory) in owners(path) {
            if (is_dataset && !is_directory) || matches!(self.named(owner), Named::Other) {
                continue;
            }
            let verdict = self.decided_by(grants, owner, wanted);
            let denied = || matches!(self.rule_about(grants, path), (Decided::Rule(rule), _) if rule.deny);
            if is_directory || !matches!(verdict, FileVerdict::Allowed(_)) {
                return if is_directory && denied() { FileVerdict::Hidden } else { verdict };
            }
        }
        self.decided_by(grants, path, wanted)
    }

    /// The same for a name, whatever else belongs to it.
    fn decided_by(&self, grants: &Grants, name: &str, wanted: FileUse) -> FileVerdict {
        let (rule, shows_all) = match self.rule_about(grants, name) {
            (Decided::Rule(rule), shows_all) if !rule.deny => (rule, shows_all),
            _ => return FileVerdict::Hidden,
        };
        if !shows_all {
            let problem = format!(
                "by rule {:?} you may see a part of {name}, and bytes cannot be shown in part; ask for its rows, with `godwit query` or over Flight",
                rule.name
            );
            return FileVerdict::Refused { problem };
        }
        if wanted == FileUse::Write && !rule.write {
            let problem = format!("no rule lets you write {name}; whoever keeps the rules can");
            return FileVerdict::Refused { problem };
        }
        FileVerdict::Allowed(rule.name.clone())
    }
}

impl Rules for Rulebook {
    fn view(&self, caller: &Caller, catalog: &Arc<dyn Catalog>) -> Arc<dyn Catalog> {
        let grants = Arc::new(self.policy().grants_of(caller));
        Arc::new(GrantedCatalog::new(catalog.clone(), grants, caller.touches().clone()))
    }

    fn file(&self, caller: &Caller, path: &str, wanted: FileUse) -> FileVerdict {
        self.file_by(&self.policy().grants_of(caller), path, wanted)
    }
}

#[cfg(test)]
mod tests;
