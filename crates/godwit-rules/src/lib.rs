//! Authorization of principals for rows and columns of datasets, and the audit log of accesses.
//!
//! A [`Policy`] is a file of rules. For each principal it gives [`Grants`], which turn a catalog into one of visible data
//! ([`AuthorizedCatalog`]): rows are removed and columns are masked where datasets are read, so that every query (regions,
//! SQL, statistics, plans) sees only what is left. Whole files cannot be masked: a principal that may see a part of one only
//! cannot read its bytes. A [`PolicyStore`] is a policy that changes while a server runs. [`AuditLog`] records accesses in a
//! file that reveals later changes.
//!
//! Authentication and the reading of datasets are not part of this crate.

mod audit;
mod authorized_catalog;
mod dataset_view;
mod error;
mod explain;
mod grants;
mod grouping;
mod masks;
mod policy;
mod policy_store;
mod pseudonyms;
mod row_filter;
mod rule;
mod samples;

pub use audit::{AuditLog, AuditSummary, verify_audit};
pub use authorized_catalog::AuthorizedCatalog;
pub use error::{AuditError, PolicyError};
pub use explain::{ExplainRequest, Explanation, explain};
pub use grants::Grants;
pub use policy::Policy;
pub use policy_store::PolicyStore;
