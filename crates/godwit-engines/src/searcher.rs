//! Programs that search sequences in databases.

pub mod blast;
