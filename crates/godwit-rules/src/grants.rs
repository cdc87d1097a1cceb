//! The rules of a policy that apply to one principal, in the order of the policy file.

use std::sync::Arc;

use godwit_dataset::Dataset;
use serde::{Deserialize, Serialize};

use crate::pseudonyms::PseudonymKey;
use crate::rule::Rule;
use crate::samples::covers_samples;

/// The rules that apply to one principal. A separate process that reads datasets for the principal receives only these
/// rules.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Grants {
    pub(crate) rules: Vec<Arc<Rule>>,
    /// The key for pseudonyms; `None` if no rule of this principal makes pseudonyms.
    pub(crate) key: Option<PseudonymKey>,
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grants").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Grants {
    /// Encodes the grants as bytes, for [`Grants::from_bytes`] in another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Cannot fail: maps of strings, numbers and lists can always be encoded as JSON.
        serde_json::to_vec(self).expect("rules are JSON")
    }

    /// Decodes bytes that [`Grants::to_bytes`] returned; `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Returns the rule that decides about a dataset, which is the first one that covers it. If the samples in the
    /// dataset matter, `open` opens it. Returns `None` if no rule covers the dataset, the deciding rule denies access,
    /// or the samples matter and the dataset cannot be opened. If the header does not name all samples of reads or
    /// variants, rules that deny samples cover the dataset, and rules that show samples do not.
    pub(crate) fn deciding_rule(&self, name: &str, open: &dyn Fn() -> Option<Arc<dyn Dataset>>) -> Option<&Arc<Rule>> {
        for rule in self.rules.iter().filter(|rule| rule.covers(name)) {
            if !rule.depends_on_samples() || covers_samples(rule, &*open()?) {
                return Some(rule).filter(|rule| !rule.deny);
            }
        }
        None
    }

    /// Returns the first rule with a pattern that matches the name, whatever the other conditions of the rule are.
    pub(crate) fn first_covering(&self, name: &str) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| rule.covers(name))
    }
}
