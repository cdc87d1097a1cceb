//! The rules of a policy that are about one caller, in their order.

use std::sync::Arc;

use godwit_flight::Dataset;
use serde::{Deserialize, Serialize};

use crate::pseudonyms::Key;
use crate::rule::Rule;
use crate::samples::fits_samples;

/// What one caller may see. It goes to processes that read datasets for the caller, which so know no rules about others.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Grants {
    pub(crate) rules: Vec<Arc<Rule>>,
    /// Of pseudonyms; where there is none, no rule makes any.
    pub(crate) key: Option<Key>,
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grants").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Grants {
    /// As bytes, for [`Grants::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        // Maps of texts, numbers and lists: nothing that JSON has no words for.
        serde_json::to_vec(self).expect("rules are JSON")
    }

    /// What [`Grants::to_bytes`] gave; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The one rule that decides about a dataset: the first that is about it. `open` opens it where its samples decide. `None`
    /// where no rule is about it, where that says that nothing is seen, or where it cannot be told.
    pub(crate) fn decide(&self, name: &str, open: &dyn Fn() -> Option<Arc<dyn Dataset>>) -> Option<&Arc<Rule>> {
        for rule in self.rules.iter().filter(|rule| rule.covers(name)) {
            if !rule.asks_for_samples() || fits_samples(rule, &*open()?) {
                return Some(rule).filter(|rule| !rule.deny);
            }
        }
        None
    }

    /// The first rule whose patterns fit, whatever else it asks.
    pub(crate) fn first_covering(&self, name: &str) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| rule.covers(name))
    }
}
