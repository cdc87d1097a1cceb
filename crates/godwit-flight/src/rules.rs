//! What callers may see, as whoever knows the rules tells a node.
//!
//! The rules themselves are not known here. A node asks for the catalog of each caller and uses no other, and whoever
//! gives out files as they are asks for each file, so that there is one place for each way to the data.

use std::fmt;
use std::sync::Arc;

use crate::dataset::Catalog;
use crate::gate::Caller;

/// What is done with a file as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// Its bytes are read.
    Read,
    /// It is written, replaced or removed.
    Write,
}

/// Whether a caller may do that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileVerdict {
    /// Yes, by the rule of that name.
    Allowed(String),
    /// No, and it is not told whether there is such a file.
    Hidden,
    /// No, for the caller may see some of it, and bytes cannot be masked.
    Refused {
        /// Why, and what to do.
        problem: String,
    },
}

/// Who may see what.
pub trait Rules: fmt::Debug + Send + Sync {
    /// A catalog as a caller may see it, by the rules as they are now. It is for one call.
    fn view(&self, caller: &Caller, catalog: &Arc<dyn Catalog>) -> Arc<dyn Catalog>;

    /// Whether a caller may have a file below the root as it is. The path has `/` between its parts.
    fn file(&self, caller: &Caller, path: &str, wanted: FileUse) -> FileVerdict;
}
