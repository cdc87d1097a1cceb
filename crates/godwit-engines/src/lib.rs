//! Outside programs as well-behaved children.
//!
//! An engine is a program of its own: it may crash, exit or hang without taking godwit along. This crate finds it, checks
//! its version, feeds it Arrow batches, takes Arrow batches back, and turns its death into an error that names the
//! program, its command line and its last words. No biology is decided here.

pub mod aligner;
mod child;
mod error;
mod locate;
pub mod normalizer;
pub mod stream;
mod survey;
pub mod trimmer;

pub use child::ChildHandle;
pub use error::EngineError;
pub use survey::{Surveyed, survey};
