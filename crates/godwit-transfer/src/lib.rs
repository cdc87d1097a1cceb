//! Files over long fat networks: every block verified before it is written, resumed where it stopped, fair to others.

pub mod ranges;
pub mod session;
pub mod tree;

mod error;

pub use error::TransferError;
