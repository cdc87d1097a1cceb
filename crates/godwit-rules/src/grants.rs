//! The rules of a policy that are about one principal, in their order.

use std::sync::Arc;

use godwit_flight::Dataset;
use serde::{Deserialize, Serialize};

use crate::pseudonyms::PseudonymKey;
use crate::rule::Rule;
use crate::samples::covers_samples;

/// The grants of one principal. Processes that read datasets for it receive these, and know no other rules.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Grants {
    pub(crate) rules: Vec<Arc<Rule>>,
    /// The key of pseudonyms; without one, no rule makes any.
    pub(crate) key: Option<PseudonymKey>,
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grants").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Grants {
    /// Encodes the grants, for [`Grants::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        // Maps of strings, numbers and lists can always be encoded as JSON.
        serde_json::to_vec(self).expect("rules are JSON")
    }

    /// Decodes what [`Grants::to_bytes`] returned; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Returns the one rule that decides about a dataset: the first that covers it. `open` opens it where its samples
    /// decide. `None` where no rule covers it, where that rule denies it, or where its samples are unknown.
    pub(crate) fn deciding_rule(&self, name: &str, open: &dyn Fn() -> Option<Arc<dyn Dataset>>) -> Option<&Arc<Rule>> {
        for rule in self.rules.iter().filter(|rule| rule.covers(name)) {
            if !rule.depends_on_samples() || covers_samples(rule, &*open()?) {
                return Some(rule).filter(|rule| !rule.deny);
            }
        }
        None
    }

    /// Returns the first rule whose patterns match, whatever its other conditions.
    pub(crate) fn first_covering(&self, name: &str) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| rule.covers(name))
    }
}
