//! bgzf
