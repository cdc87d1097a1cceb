//! What `godwit demo` compares its output with.

mod tools;
mod truth;

pub use tools::{ToolComparison, compare_with_tools, picard_jar};
pub use truth::{TruthComparison, compare_with_truth};
