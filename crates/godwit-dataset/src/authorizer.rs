//! Authorization: the interface by which a server asks which datasets and files a principal may access.
//!
//! The access rules are implemented elsewhere. For every call, a server requests the catalog that the principal may
//! see, and uses only this catalog. The service for whole files requests an authorization for each file.

use std::fmt;
use std::sync::Arc;

use crate::dataset::Catalog;
use crate::principal::Principal;

/// Name that stands for any file of a directory when access to the directory is authorized.
pub const ANY_FILE: &str = "x";

/// The kind of access to a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Reading the bytes of the file.
    Read,
    /// Writing, replacing or removing the file.
    Write,
}

/// The decision of an [`Authorizer`] about an access to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAuthorization {
    /// The access is allowed by the rule of this name.
    Allowed(String),
    /// The access is rejected as if the file did not exist.
    Hidden,
    /// The access is rejected because the principal may see only some rows or columns, which the bytes of a whole file
    /// cannot hide.
    Denied {
        /// The reason and a solution, as shown to users.
        problem: String,
    },
}

/// A set of access rules that decides which datasets and files a principal may access.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use godwit_dataset::{Authorizer, Catalog, FileAccess, FileAuthorization, Principal};
///
/// #[derive(Debug)]
/// struct PublicDirectory;
///
/// impl Authorizer for PublicDirectory {
///     fn authorized_catalog(&self, _principal: &Principal, catalog: &Arc<dyn Catalog>) -> Arc<dyn Catalog> {
///         catalog.clone()
///     }
///
///     fn authorize_file(&self, _principal: &Principal, path: &str, access: FileAccess) -> FileAuthorization {
///         match access {
///             FileAccess::Read if path.starts_with("public/") => FileAuthorization::Allowed("public".to_owned()),
///             _ => FileAuthorization::Hidden,
///         }
///     }
/// }
///
/// let (rules, alice) = (PublicDirectory, Principal::named("alice"));
/// let allowed = FileAuthorization::Allowed("public".to_owned());
/// assert_eq!(rules.authorize_file(&alice, "public/a.bam", FileAccess::Read), allowed);
/// assert_eq!(rules.authorize_file(&alice, "public/a.bam", FileAccess::Write), FileAuthorization::Hidden);
/// ```
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Returns a catalog with only those datasets, rows and columns that the principal may see by the current rules.
    /// Use the returned catalog for one call only.
    fn authorized_catalog(&self, principal: &Principal, catalog: &Arc<dyn Catalog>) -> Arc<dyn Catalog>;

    /// Decides whether a principal may access a whole file. `path` is relative to the root directory of the server,
    /// with `/` as separator.
    fn authorize_file(&self, principal: &Principal, path: &str, access: FileAccess) -> FileAuthorization;
}
