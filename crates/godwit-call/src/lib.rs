//! Variant calling by region, recalibration of base qualities and filtering of variants, by the callers and GATK's
//! programs, and the table of variants that a call writes.

mod call;
mod filtering;
mod variant_table;

pub use call::{
    CallOptions, CallReport, CallTask, CallWorkerReport, ConcurrentCalling, GridReport, RecalibrateOptions,
    RecalibrationEngine, RecalibrationReport, RegionReport, RegionStall, StallOutcome, StallRule, StopCallingGuard,
    call, call_remaining, check_call, check_caller, find_index, is_call_running, recalibrate, region_files,
    report_path, run_call_worker,
};
pub use filtering::{FilterOptions, FilterReport, filter};
pub use variant_table::write_variants;
