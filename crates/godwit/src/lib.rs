//! godwit as a library: re-exports of its formats and jobs, without the command line.

pub use godwit_formats as formats;
pub use godwit_pipeline as pipeline;
