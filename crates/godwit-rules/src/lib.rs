//! Who may see which rows and columns of which datasets, and the record of who saw what.
//!
//! A [`Policy`] is a file of rules. For each caller it gives [`Grants`], and those turn a catalog into one of what the caller may
//! see ([`GrantedCatalog`]): rows are left out and columns are masked where datasets are read, so that whatever is asked of
//! them (regions, SQL, statistics, plans) is asked of what is left. Files as they are cannot be masked: who may see a part of one only is refused its
//! bytes. A [`Rulebook`] is a policy that changes while a server runs. [`Audit`] keeps what was accessed in a file that tells
//! when it was changed.
//!
//! Who somebody is, is not known here, nor how datasets are read.

mod audit;
mod catalog;
mod cells;
mod error;
mod explain;
mod grants;
mod groups;
mod policy;
mod pseudonyms;
mod rows;
mod rule;
mod rulebook;
mod samples;
mod view;

pub use audit::{Audit, Verified, verify};
pub use catalog::GrantedCatalog;
pub use error::{AuditError, PolicyError};
pub use explain::{Explained, Question, explain};
pub use grants::Grants;
pub use policy::Policy;
pub use rulebook::Rulebook;
