//! sam
