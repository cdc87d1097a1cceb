//! godwit as a library: what the program does, without its command line.

pub use godwit_formats as formats;
pub use godwit_pipeline as pipeline;
