//! The rows that `godwit query` prints for a statement on local datasets.

use std::path::Path;

use godwit_tests::binary::{GodwitOutput, godwit};

use crate::run::formats::to_lines;

/// Runs a statement on the datasets in a directory, with two threads. The rows are lines of TSV.
pub(super) fn run_query(data: &Path, sql: &str) -> GodwitOutput {
    godwit().arg("query").arg(sql).arg("--data").arg(data).args(["--format", "tsv", "--threads", "2"]).run()
}

/// Returns the rows of a statement that must succeed, without the header.
pub(super) fn rows(data: &Path, sql: &str) -> Vec<String> {
    let output = run_query(data, sql);
    assert!(output.status.success(), "{sql}: {}", output.describe());
    to_lines(&output.stdout).split_off(1)
}
