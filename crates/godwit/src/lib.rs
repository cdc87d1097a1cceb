//! godwit as a library: re-exports of the crates for file formats and jobs, without the command line.

pub use godwit_align as align;
pub use godwit_call as call;
pub use godwit_compare as compare;
pub use godwit_formats as formats;
pub use godwit_pipeline as pipeline;
pub use godwit_workflow as workflow;
