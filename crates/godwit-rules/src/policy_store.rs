//! A policy that is reloaded while a server runs, and its decisions about access to whole files.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_dataset::{Authorizer, Catalog, Dataset, DatasetError, FileAccess, FileAuthorization, Principal};
use godwit_files::FileStamp;
use parking_lot::RwLock;

use crate::authorized_catalog::AuthorizedCatalog;
use crate::error::PolicyError;
use crate::grants::Grants;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::samples::{covers_samples, visible_sample_indexes};

/// Extensions of index files.
const INDEX_EXTENSIONS: [&str; 4] = ["bai", "csi", "crai", "tbi"];
/// Endings of datasets that the name of an index may omit: `x.bai` is an index of `x.bam`, `x.vcf.tbi` one of
/// `x.vcf.gz`, and `x.bam.bai` one of `x.bam.c4gh`.
const ENDINGS_ABSENT_FROM_INDEXES: [&str; 5] = [".bam", ".cram", ".bcf", ".gz", ".c4gh"];

/// The current policy of a server, which is reloaded after a change of its file.
#[derive(Debug)]
pub struct PolicyStore {
    path: PathBuf,
    /// Catalog of the datasets. It determines to which dataset a file belongs, and which samples the dataset contains.
    catalog: Arc<dyn Catalog>,
    policy: RwLock<Arc<Policy>>,
    /// Stamps of the policy file: at the time it was last read, and at the time it was last checked for changes; `None`
    /// if the file did not exist.
    stamps: RwLock<(Option<FileStamp>, Option<FileStamp>)>,
}

impl PolicyStore {
    /// Reads a policy file and creates a store for it. `catalog`: the datasets of the server.
    ///
    /// # Errors
    /// [`PolicyError`] if the file is not a valid policy.
    pub fn open(path: &Path, catalog: Arc<dyn Catalog>) -> Result<Self, PolicyError> {
        let stamp = FileStamp::read(path).ok();
        let policy = RwLock::new(Arc::new(Policy::read(path)?));
        Ok(Self { path: path.to_owned(), catalog, policy, stamps: RwLock::new((stamp, stamp)) })
    }

    /// Creates a store for a policy that is never reloaded.
    pub(crate) fn from_policy(policy: Arc<Policy>, catalog: Arc<dyn Catalog>) -> Self {
        Self { path: PathBuf::new(), catalog, policy: RwLock::new(policy), stamps: RwLock::default() }
    }

    /// Returns the current policy.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.read().clone()
    }

    /// Reloads the policy file if it has changed and was not modified since the last check. The wait lets a slow writer
    /// finish. Returns `None` if the file was not reloaded. If the new file is invalid, the old policy stays in use.
    ///
    /// # Errors
    /// [`PolicyError`] if the new file is not a valid policy.
    pub fn reload_if_changed(&self) -> Option<Result<Arc<Policy>, PolicyError>> {
        let now = FileStamp::read(&self.path).ok();
        let mut stamps = self.stamps.write();
        let is_settled = stamps.1 == now;
        stamps.1 = now;
        if now == stamps.0 || !is_settled {
            return None;
        }
        let read = Policy::read(&self.path).map(Arc::new);
        if FileStamp::read(&self.path).ok() != now {
            // The file changed while it was read. A later check reads it again.
            return None;
        }
        stamps.0 = now;
        drop(stamps);
        Some(read.inspect(|policy| {
            *self.policy.write() = policy.clone();
        }))
    }

    /// Encodes the rules that apply to a principal, for a process that reads datasets for this principal.
    pub fn encode_grants(&self, principal: &Principal) -> Vec<u8> {
        self.policy().grants_for(principal).to_bytes()
    }
}

/// Removes empty components and single dots from a path. Returns `None` if the path is empty or contains `..`.
fn normalize_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    (!parts.is_empty() && !parts.contains(&"..")).then(|| parts.join("/"))
}

/// Returns the names of datasets to which a file may belong: each parent directory, each prefix of the path before a
/// dot, such as `x.bam` for `x.bam.bai`, and the names that an index abbreviates, such as `x.bam` for `x.bai`. The flag is
/// true for a directory.
fn owner_candidates(path: &str) -> impl Iterator<Item = (Cow<'_, str>, bool)> {
    let ends = path.char_indices().filter(|(at, character)| *at > 0 && matches!(character, '/' | '.'));
    let prefixes = ends.map(|(end, character)| (Cow::Borrowed(&path[..end]), character == '/'));
    let indexed = path.rsplit_once('.').filter(|(_, extension)| INDEX_EXTENSIONS.contains(extension));
    let abbreviated = indexed.into_iter().flat_map(|(stem, _)| {
        ENDINGS_ABSENT_FROM_INDEXES.iter().map(move |ending| (Cow::<str>::Owned(format!("{stem}{ending}")), false))
    });
    prefixes.chain(abbreviated)
}

/// The kind of the object to which a name refers.
enum NameTarget {
    /// The name is that of a dataset, which was opened.
    Dataset(Arc<dyn Dataset>),
    /// The name is that of a dataset, but it cannot be opened.
    Unreadable,
    /// The name is not that of a dataset.
    NotADataset,
}

/// The rule that decides about a name.
enum RuleMatch<'a> {
    Rule(&'a Rule),
    /// No rule covers the name.
    NoRule,
    /// The decision depends on the samples in the dataset, but they are unknown.
    Undecidable,
}

impl PolicyStore {
    fn resolve_name(&self, name: &str) -> NameTarget {
        // A path that is not in canonical form (for example with `..`) never names a file, so report it as missing.
        if self.catalog.canonical_name(name).ok().as_deref() != Some(name) {
            return NameTarget::NotADataset;
        }
        match self.catalog.open(name) {
            Ok(dataset) => NameTarget::Dataset(dataset),
            Err(DatasetError::NotFound { .. }) => NameTarget::NotADataset,
            Err(_) => NameTarget::Unreadable,
        }
    }

    /// Returns the rule that decides about a name, and whether this rule shows the whole file. Opens the file only if
    /// the decision depends on its samples.
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

    /// Decides whether the rules of a principal permit access to a file.
    pub(crate) fn authorize_file_with(&self, grants: &Grants, path: &str, access: FileAccess) -> FileAuthorization {
        match normalize_path(path) {
            Some(path) => self.authorize_path(grants, &path, access),
            None => FileAuthorization::Hidden,
        }
    }

    /// Decides about a file whose path is normalized. A file inside a dataset directory follows the rule for that
    /// dataset, unless a rule denies the file itself. Access to a file beside a dataset, such as its index `x.bam.bai` or
    /// `x.bai`, also requires that the whole dataset `x.bam` is visible.
    fn authorize_path(&self, grants: &Grants, path: &str, access: FileAccess) -> FileAuthorization {
        let is_dataset = self.catalog.canonical_name(path).ok().as_deref() == Some(path);
        for (owner, is_directory) in owner_candidates(path) {
            if (is_dataset && !is_directory) || matches!(self.resolve_name(&owner), NameTarget::NotADataset) {
                continue;
            }
            let verdict = self.authorize_name(grants, &owner, access);
            let denied = || match self.match_rule(grants, path).0 {
                RuleMatch::Rule(rule) => rule.deny,
                RuleMatch::NoRule => false,
                RuleMatch::Undecidable => true,
            };
            if is_directory || !matches!(verdict, FileAuthorization::Allowed(_)) {
                return if is_directory && denied() { FileAuthorization::Hidden } else { verdict };
            }
        }
        self.authorize_name(grants, path, access)
    }

    /// Decides about a name without considering the datasets to which the file may belong.
    fn authorize_name(&self, grants: &Grants, name: &str, access: FileAccess) -> FileAuthorization {
        let (rule, shows_all) = match self.match_rule(grants, name) {
            (RuleMatch::Rule(rule), shows_all) if !rule.deny => (rule, shows_all),
            _ => return FileAuthorization::Hidden,
        };
        if !shows_all {
            let problem = format!(
                "rule {:?} permits you to read only a part of {name}, so the whole file cannot be sent; read its rows \
                 with `godwit query` or over Flight",
                rule.name
            );
            return FileAuthorization::Denied { problem };
        }
        if access == FileAccess::Write && !rule.write {
            let problem = format!("no rule allows you to write {name}; ask the administrator of the rules");
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
