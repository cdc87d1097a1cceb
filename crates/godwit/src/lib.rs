//! godwit as a library: re-exports of the crates for file formats and jobs, without the command line.

pub use godwit_formats as formats;
pub use godwit_pipeline as pipeline;
