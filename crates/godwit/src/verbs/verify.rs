//! `godwit verify`: verifies files against their manifests.

use godwit_cli::cli::VerifyArgs;
use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;
use godwit_pipeline::{FileCheck, VerifyOutcome, verify};

use super::print;
use crate::interruption;
use crate::plural::pluralize;

/// Verifies the files, and prints one line for each file. Fails if any file is missing or corrupt.
pub fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let checks = verify(&args.path, args.common.thread_count(), &interruption::flag())?;
    let text: String = checks.iter().map(|check| check_line(check, args.common.json)).collect();
    if !args.common.quiet {
        print(&text)?;
    }
    let corrupt = checks.iter().filter(|check| matches!(check.outcome, VerifyOutcome::Corrupt { .. }));
    let missing = checks.iter().filter(|check| matches!(check.outcome, VerifyOutcome::Missing));
    let of = pluralize(checks.len() as u64, "file");
    if let Some(FileCheck { path, outcome: VerifyOutcome::Corrupt { problem } }) = corrupt.clone().next() {
        let others = corrupt.count() - 1;
        let more = if others > 0 { format!(" ({others} more of {of} corrupt)") } else { String::new() };
        // Most problems of a BAM end with their remedy.
        let remedy = if problem.ends_with(" again") { "" } else { "; fetch or create it again" };
        let message = format!("{} is corrupt{more}: {problem}{remedy}", path.display());
        return Err(Failure::new(ErrorKind::Input, message));
    }
    let unreadable = checks.iter().filter(|check| matches!(check.outcome, VerifyOutcome::Unreadable { .. }));
    if let Some(FileCheck { path, outcome: VerifyOutcome::Unreadable { problem } }) = unreadable.clone().next() {
        let count = unreadable.count();
        let message = format!("{} cannot be read ({count} of {of} unreadable): {problem}", path.display());
        return Err(Failure::new(ErrorKind::Machine, message));
    }
    match missing.clone().next() {
        None => Ok(()),
        Some(check) => {
            let count = missing.count();
            let path = check.path.display();
            let message = format!("{path} is missing ({count} of {of} missing): copy it, or create it again");
            Err(Failure::new(ErrorKind::Machine, message))
        }
    }
}

fn check_line(check: &FileCheck, json: bool) -> String {
    let path = check.path.display().to_string();
    let (word, records, text) = match &check.outcome {
        VerifyOutcome::Matches { records: Some(records) } => {
            ("ok", Some(*records), format!("{}, matching its manifest", pluralize(*records, "record")))
        }
        VerifyOutcome::Matches { records: None } => ("ok", None, "matching its manifest".to_owned()),
        VerifyOutcome::Sound { records, indexed } => {
            let about = match indexed {
                true => "matches its index; it has no manifest",
                false => "no index; it has no manifest, so a truncation may be unnoticed",
            };
            ("no manifest", Some(*records), format!("{}, {about}", pluralize(*records, "record")))
        }
        VerifyOutcome::Corrupt { problem } => ("corrupt", None, problem.clone()),
        VerifyOutcome::Missing => ("missing", None, "listed in a manifest".to_owned()),
        VerifyOutcome::Unreadable { problem } => ("unreadable", None, problem.clone()),
    };
    if json {
        let value = serde_json::json!({ "file": path, "verdict": word, "records": records, "detail": text });
        return format!("{value}\n");
    }
    format!("{word}: {path}: {text}\n")
}
