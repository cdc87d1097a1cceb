//! Jobs made of other jobs: alignment with calling of the finished partitions, and the workflow of all steps for each
//! sample of a sheet.

mod align_and_call;
mod workflow;

pub use align_and_call::{AlignAndCallReport, align_and_call, check_calling};
pub use workflow::{
    FailedAttempt, JobExit, PRIVATE_FILE_PATTERN, RemoteFiles, SampleHosts, SampleJob, SampleOutcome, StepTime,
    StorageMonitor, StoragePoolMember, StorageSnapshot, Workflow, WorkflowOptions, WorkflowReport, run_sample,
    run_workflow, sample_name_problem,
};
