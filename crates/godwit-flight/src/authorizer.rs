//! Authorization: what a principal may see, as the owner of the rules reports it to a server.
//!
//! The rules themselves are not known here. A server requests the catalog of each principal and uses no other, and a service
//! of whole files requests an answer for each file, so that each way to the data has one check.

use std::fmt;
use std::sync::Arc;

use crate::auth::Principal;
use crate::dataset::Catalog;

/// The kind of access to a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Its bytes are read.
    Read,
    /// It is written, replaced or removed.
    Write,
}

/// The answer of an [`Authorizer`] for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAuthorization {
    /// Allowed, by the rule of that name.
    Allowed(String),
    /// Rejected, without reporting whether the file exists.
    Hidden,
    /// Rejected: the principal may see a part of it, and bytes cannot be masked.
    Denied {
        /// The reason, and what to do.
        problem: String,
    },
}

/// Decides what principals may see.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Returns the catalog as a principal may see it, by the current rules. It is valid for one call.
    fn authorized_catalog(&self, principal: &Principal, catalog: &Arc<dyn Catalog>) -> Arc<dyn Catalog>;

    /// Decides whether a principal may access a whole file. The path is relative to the root, with `/` as separator.
    fn authorize_file(&self, principal: &Principal, path: &str, access: FileAccess) -> FileAuthorization;
}
