//! Runs that are not over, for whoever serves or asks what lies below a directory: what the pipeline reads, as datasets.

use std::path::Path;
use std::sync::Arc;

use godwit_flight::DatasetError;
use godwit_formats::bam::RecordChunk;
use godwit_formats::is_system_failure;
use godwit_formats::sam::Header;
use godwit_pipeline::model::SpanSet;
use godwit_pipeline::{LiveRun, LiveRunError, live_name};
use godwit_serve::{LiveReads, LiveRuns};

/// Runs in their output directories.
#[derive(Debug)]
pub struct OfPipeline;

#[derive(Debug)]
struct Reads(LiveRun);

fn blamed(error: LiveRunError) -> DatasetError {
    if is_system_failure(&error) { DatasetError::Machine(error.into()) } else { DatasetError::Data(error.into()) }
}

impl LiveRuns for OfPipeline {
    fn name_in(&self, directory: &Path) -> Option<String> {
        live_name(directory)
    }

    fn open(&self, directory: &Path) -> Result<Arc<dyn LiveReads>, DatasetError> {
        Ok(Arc::new(Reads(LiveRun::open(directory).map_err(blamed)?)))
    }
}

impl LiveReads for Reads {
    fn header(&self) -> &Header {
        self.0.header()
    }

    fn version(&self) -> u64 {
        self.0.version()
    }

    fn counts(&self) -> Result<(u64, u64), DatasetError> {
        self.0.counts().map_err(blamed)
    }

    fn frames(&self, spans: Option<&SpanSet>) -> Result<Vec<(u64, u64)>, DatasetError> {
        self.0.frames(spans).map_err(blamed)
    }

    fn read_frame(&self, frame: (u64, u64), chunk: &mut RecordChunk) -> Result<(), DatasetError> {
        self.0.read_frame(frame, chunk).map_err(blamed)
    }
}
