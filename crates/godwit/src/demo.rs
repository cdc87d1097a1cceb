//! Comparisons of the output of `godwit demo` with the simulated truth, and with other tools.

mod tool_comparison;
mod truth_comparison;

pub use tool_comparison::{ToolComparison, compare_with_tools, picard_jar};
pub use truth_comparison::{TruthComparison, compare_with_truth};
