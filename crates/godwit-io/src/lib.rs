//! The bytes of files: BGZF, gzip and plain text, Crypt4GH around any of them, and files that are read at any position;
//! integers of variable length.

pub mod bgzf;
pub mod crypt4gh;
pub mod random_access;
pub mod varint;
