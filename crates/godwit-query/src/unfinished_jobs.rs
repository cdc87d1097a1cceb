//! Makes the reads of unfinished jobs available as datasets, to `godwit` and to the statement processes. `godwit_pipeline`
//! reads the files.

use std::path::Path;
use std::sync::Arc;

use godwit_dataset::DatasetError;
use godwit_formats::bam::RecordBuffer;
use godwit_formats::sam::Header;
use godwit_model::IntervalSet;
use godwit_model::is_system_failure;
use godwit_pipeline::{UnfinishedJob, UnfinishedJobError, unfinished_output_name};
use godwit_serve::{UnfinishedJobReads, UnfinishedJobs};

/// Access to the unfinished jobs of `godwit_pipeline` in their output directories.
///
/// # Examples
///
/// ```
/// use godwit_query::PipelineJobs;
/// use godwit_serve::UnfinishedJobs as _;
///
/// # fn main() -> std::io::Result<()> {
/// let empty = tempfile::tempdir()?;
/// assert_eq!(PipelineJobs.dataset_name_in(empty.path()), None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PipelineJobs;

#[derive(Debug)]
struct JobReads(UnfinishedJob);

fn dataset_error(error: UnfinishedJobError) -> DatasetError {
    if is_system_failure(&error) { DatasetError::Local(error.into()) } else { DatasetError::Data(error.into()) }
}

impl UnfinishedJobs for PipelineJobs {
    fn dataset_name_in(&self, directory: &Path) -> Option<String> {
        unfinished_output_name(directory)
    }

    fn open(&self, directory: &Path) -> Result<Arc<dyn UnfinishedJobReads>, DatasetError> {
        Ok(Arc::new(JobReads(UnfinishedJob::open(directory).map_err(dataset_error)?)))
    }
}

impl UnfinishedJobReads for JobReads {
    fn header(&self) -> &Header {
        self.0.header()
    }

    fn version(&self) -> u64 {
        self.0.version()
    }

    fn record_and_byte_counts(&self) -> Result<(u64, u64), DatasetError> {
        self.0.counts().map_err(dataset_error)
    }

    fn frames(&self, spans: Option<&IntervalSet>) -> Result<Vec<(u64, u64)>, DatasetError> {
        self.0.frames(spans).map_err(dataset_error)
    }

    fn read_frame(&self, frame: (u64, u64), chunk: &mut RecordBuffer) -> Result<(), DatasetError> {
        self.0.read_frame(frame, chunk).map_err(dataset_error)
    }
}
