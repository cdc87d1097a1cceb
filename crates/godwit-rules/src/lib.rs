//! Authorization of principals for rows and columns of datasets, and the audit log of accesses.
//!
//! A [`Policy`] is a file of rules. It yields [`Grants`] for each principal, and an [`AuthorizedCatalog`] shows only
//! the data that these grants permit. Rows are removed and columns are masked when datasets are read, so every query
//! (regions, SQL, statistics, plans) processes visible data only. The bytes of files cannot be masked: a principal that
//! may see only a part of a file cannot read its bytes. A [`PolicyStore`] reloads the policy while a server runs.
//! [`AuditLog`] records accesses in a file in which later changes can be detected.
//!
//! This crate neither authenticates principals nor reads the files of datasets.

mod audit;
mod authorized_catalog;
mod client_addresses;
mod column_values;
mod dataset_view;
mod decimal_number;
mod error;
mod explain;
mod grants;
mod grouping;
mod masks;
mod number_range;
mod policy;
mod policy_store;
mod pseudonyms;
mod row_filter;
mod rule;
mod samples;
mod value_set;

pub use audit::{AuditLog, AuditSummary, verify_audit};
pub use authorized_catalog::AuthorizedCatalog;
pub use error::{AuditError, PolicyError};
pub use explain::{ExplainRequest, Explanation, explain};
pub use grants::Grants;
pub use policy::Policy;
pub use policy_store::PolicyStore;
