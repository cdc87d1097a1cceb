//! A policy that changes while a server runs, and its decisions about whole files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use godwit_flight::{Authorizer, Catalog, Dataset, DatasetError, FileAccess, FileAuthorization, Principal};

use crate::authorized_catalog::AuthorizedCatalog;
use crate::error::PolicyError;
use crate::grants::Grants;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::samples::{covers_samples, visible_sample_indexes};

/// Modification time, length and inode of a file; `None` where it does not exist.
type FileStamp = Option<(SystemTime, u64, u64)>;

/// The current rules of a server.
#[derive(Debug)]
pub struct PolicyStore {
    path: PathBuf,
    /// The catalog of the datasets that files belong to, whose samples decide.
    catalog: Arc<dyn Catalog>,
    policy: RwLock<Arc<Policy>>,
    /// The stamps of the file when it was last read, and when it was last checked.
    stamps: RwLock<(FileStamp, FileStamp)>,
}

impl PolicyStore {
    /// Opens the policy of a file, for the datasets of a catalog.
    ///
    /// # Errors
    /// [`PolicyError`] where the file is not a valid policy.
    pub fn open(path: &Path, catalog: Arc<dyn Catalog>) -> Result<Self, PolicyError> {
        let stamp = file_stamp(path);
        let policy = RwLock::new(Arc::new(Policy::read(path)?));
        Ok(Self { path: path.to_owned(), catalog, policy, stamps: RwLock::new((stamp, stamp)) })
    }

    /// Creates a store of a fixed policy.
    pub(crate) fn from_policy(policy: Arc<Policy>, catalog: Arc<dyn Catalog>) -> Self {
        Self { path: PathBuf::new(), catalog, policy: RwLock::new(policy), stamps: RwLock::default() }
    }

    /// Returns the current policy.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again where it has changed, and has been stable since the last check, so that a slow writer can
    /// finish. `None` where nothing changed. Where the new file is invalid, the old policy stays.
    ///
    /// # Errors
    /// [`PolicyError`] where the new file is not a valid policy.
    pub fn reload_if_changed(&self) -> Option<Result<Arc<Policy>, PolicyError>> {
        let now = file_stamp(&self.path);
        let mut stamps = self.stamps.write().unwrap_or_else(PoisonError::into_inner);
        let is_settled = stamps.1 == now;
        stamps.1 = now;
        if now == stamps.0 || !is_settled {
            return None;
        }
        let read = Policy::read(&self.path).map(Arc::new);
        if file_stamp(&self.path) != now {
            // It changed meanwhile, and is read once it is stable.
            return None;
        }
        stamps.0 = now;
        drop(stamps);
        Some(read.inspect(|policy| {
            *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy.clone();
        }))
    }

    /// Encodes the rules about a principal, for processes that read for it.
    pub fn encode_grants(&self, principal: &Principal) -> Vec<u8> {
        self.policy().grants_for(principal).to_bytes()
    }
}

fn file_stamp(path: &Path) -> FileStamp {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len(), found.ino()))
}

/// Normalizes a path: removes empty parts and dots.
fn normalize_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    (!parts.is_empty() && !parts.contains(&"..")).then(|| parts.join("/"))
}

/// Returns the names of datasets that a file may belong to, and whether as a directory: each ancestor, and each prefix of
/// its path before a dot, as `x.bam` of `x.bam.bai`.
fn owner_candidates(path: &str) -> impl Iterator<Item = (&str, bool)> {
    let ends = path.char_indices().filter(|(at, character)| *at > 0 && matches!(character, '/' | '.'));
    ends.map(|(end, character)| (&path[..end], character == '/'))
}

/// The target of a name.
enum NameTarget {
    /// A dataset.
    Dataset(Arc<dyn Dataset>),
    /// A dataset that cannot be opened.
    Unreadable,
    /// Not a dataset.
    NotADataset,
}

/// The rule about a name.
enum RuleMatch<'a> {
    Rule(&'a Rule),
    /// No rule matches.
    NoRule,
    /// The decision depends on samples that cannot be determined.
    Undecidable,
}

impl PolicyStore {
    fn resolve_name(&self, name: &str) -> NameTarget {
        // A name that is not canonical is not a file.
        if self.catalog.canonical_name(name).ok().as_deref() != Some(name) {
            return NameTarget::NotADataset;
        }
        match self.catalog.open(name) {
            Ok(dataset) => NameTarget::Dataset(dataset),
            Err(DatasetError::NotFound { .. }) => NameTarget::NotADataset,
            Err(_) => NameTarget::Unreadable,
        }
    }

    /// Returns the rule about a name, and whether it shows everything. A file is opened only where samples decide.
    fn match_rule<'a>(&self, grants: &'a Grants, name: &str) -> (RuleMatch<'a>, bool) {
        let mut named = None;
        for rule in grants.rules.iter().filter(|rule| rule.covers(name)) {
            if !rule.depends_on_samples() {
                return (RuleMatch::Rule(rule), rule.shows_everything());
            }
            match named.get_or_insert_with(|| self.resolve_name(name)) {
                NameTarget::Dataset(dataset) if covers_samples(rule, &**dataset) => {
                    let all = visible_sample_indexes(rule, &**dataset).is_none();
                    return (RuleMatch::Rule(rule), all && rule.shows_everything());
                }
                NameTarget::Dataset(_) | NameTarget::NotADataset => {}
                NameTarget::Unreadable => return (RuleMatch::Undecidable, false),
            }
        }
        (RuleMatch::NoRule, false)
    }

    /// Decides whether some grants allow access to a file.
    pub(crate) fn authorize_file_with(&self, grants: &Grants, path: &str, access: FileAccess) -> FileAuthorization {
        match normalize_path(path) {
            Some(path) => self.authorize_path(grants, &path, access),
            None => FileAuthorization::Hidden,
        }
    }

    /// Decides by the rule that shows all of the file. A file within a dataset follows the rule of that; a file beside one
    /// whose name begins with that of the dataset, such as an index, is allowed only where the whole dataset is visible too.
    fn authorize_path(&self, grants: &Grants, path: &str, access: FileAccess) -> FileAuthorization {
        let is_dataset = self.catalog.canonical_name(path).ok().as_deref() == Some(path);
        for (owner, is_directory) in owner_candidates(path) {
            if (is_dataset && !is_directory) || matches!(self.resolve_name(owner), NameTarget::NotADataset) {
                continue;
            }
            let verdict = self.authorize_name(grants, owner, access);
            let denied = || matches!(self.match_rule(grants, path), (RuleMatch::Rule(rule), _) if rule.deny);
            if is_directory || !matches!(verdict, FileAuthorization::Allowed(_)) {
                return if is_directory && denied() { FileAuthorization::Hidden } else { verdict };
            }
        }
        self.authorize_name(grants, path, access)
    }

    /// Decides about a name by itself.
    fn authorize_name(&self, grants: &Grants, name: &str, access: FileAccess) -> FileAuthorization {
        let (rule, shows_all) = match self.match_rule(grants, name) {
            (RuleMatch::Rule(rule), shows_all) if !rule.deny => (rule, shows_all),
            _ => return FileAuthorization::Hidden,
        };
        if !shows_all {
            let problem = format!(
                "by rule {:?} you may see a part of {name}, and bytes cannot be shown in part; ask for its rows, with `godwit query` or over Flight",
                rule.name
            );
            return FileAuthorization::Denied { problem };
        }
        if access == FileAccess::Write && !rule.write {
            let problem = format!("no rule lets you write {name}; whoever keeps the rules can");
            return FileAuthorization::Denied { problem };
        }
        FileAuthorization::Allowed(rule.name.clone())
    }
}

impl Authorizer for PolicyStore {
    fn authorized_catalog(&self, principal: &Principal, catalog: &Arc<dyn Catalog>) -> Arc<dyn Catalog> {
        let grants = Arc::new(self.policy().grants_for(principal));
        Arc::new(AuthorizedCatalog::new(catalog.clone(), grants, principal.accesses().clone()))
    }

    fn authorize_file(&self, principal: &Principal, path: &str, access: FileAccess) -> FileAuthorization {
        self.authorize_file_with(&self.policy().grants_for(principal), path, access)
    }
}

#[cfg(test)]
mod tests;
