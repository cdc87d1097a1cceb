use std::fs;
use std::time::Duration;

use godwit_dataset::DatasetAccess;

use super::*;
use crate::audit::verify_audit;

fn access_record(principal: &str, rows: u64) -> AccessRecord {
    let datasets = vec![DatasetAccess { dataset: "a.bam".to_owned(), rule: "r".to_owned() }];
    let (call, resource, outcome) = ("DoGet".to_owned(), "SELECT \"é\n".to_owned(), "done".to_owned());
    AccessRecord {
        principal: principal.to_owned(),
        scope: None,
        call,
        resource,
        datasets,
        rows,
        bytes: 8 * rows,
        outcome,
    }
}

fn record_all(path: &Path, accesses: &[AccessRecord]) {
    let audit = AuditLog::open(path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for access in accesses {
        runtime.block_on(audit.record(access.clone())).unwrap();
    }
}

fn broken_line(path: &Path) -> u64 {
    match verify_audit(path, None) {
        Err(AuditError::Broken { line, .. }) => line,
        other => panic!("{other:?}"),
    }
}

#[test]
fn lines_are_json_with_a_hash_chain() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    record_all(&path, &[access_record("alice", 3), access_record("bob", 5)]);
    drop(AuditLog::open(&path).unwrap());
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines[0]["who"].as_str(), lines[1]["rows"].as_u64()), (Some("alice"), Some(5)));
    assert_eq!(lines[0]["rules"][0]["rule"], "r");
    let verified = verify_audit(&path, None).unwrap();
    assert_eq!((verified.lines, verified.torn_lines), (2, 0));
    assert_eq!(lines[1]["chain"], verified.chain.as_str());
    let first = lines[0]["chain"].as_str().unwrap();
    assert_eq!(verify_audit(&path, Some(first)).unwrap().expected_line, Some(1));
    assert!(verify_audit(&path, Some("0000")).is_err());
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_dropped_audit_log_has_written_all_records_and_can_be_opened_again_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    for round in 1..=50 {
        let audit = AuditLog::open(&path).unwrap();
        // Write records for which no caller waits.
        (0..20).for_each(|rows| audit.record_in_background(access_record("alice", rows)));
        drop(audit);
        assert_eq!(verify_audit(&path, None).unwrap().lines, 20 * round);
    }
}

#[test]
fn each_change_of_a_byte_breaks_its_line_or_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    record_all(&path, &[access_record("alice", 3), access_record("bob", 5), access_record("carol", 7)]);
    let text = fs::read(&path).unwrap();
    let other = directory.path().join("other.jsonl");
    for at in 0..text.len() {
        let mut changed = text.clone();
        changed[at] ^= 1;
        fs::write(&other, &changed).unwrap();
        let line = text[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        assert_eq!(broken_line(&other), line, "byte {at}");
    }
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for (kept, first) in [(vec![1, 2], 1), (vec![0, 2], 2), (vec![1, 0, 2], 1), (vec![0, 0, 1, 2], 2)] {
        fs::write(&other, kept.iter().flat_map(|at| lines[*at].iter().copied()).collect::<Vec<u8>>()).unwrap();
        assert_eq!(broken_line(&other), first, "{kept:?}");
        assert!(AuditLog::open(&other).is_err(), "{kept:?}");
    }
    // Comparison with a chain that was noted before detects that the end of the file was removed.
    let last = verify_audit(&path, None).unwrap().chain;
    fs::write(&other, [lines[0], lines[1]].concat()).unwrap();
    assert!(verify_audit(&other, None).is_ok() && verify_audit(&other, Some(&last)).is_err());
}

#[test]
fn a_line_that_a_stop_cut_short_is_closed_wherever_it_was_cut() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    record_all(&path, &[access_record("alice", 3), access_record("bob", 5)]);
    let text = fs::read(&path).unwrap();
    let first = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for end in first + 1..text.len() {
        let cut = directory.path().join(format!("{end}.jsonl"));
        fs::write(&cut, &text[..end]).unwrap();
        assert_eq!(broken_line(&cut), 2, "cut at {end}, and not closed");
        record_all(&cut, &[access_record("carol", 7)]);
        let verified = verify_audit(&cut, None).unwrap();
        let whole = end + 1 == text.len();
        assert_eq!((verified.lines, verified.torn_lines), if whole { (3, 0) } else { (4, 1) }, "cut at {end}");
        assert!(fs::read(&cut).unwrap().starts_with(&text[..end]), "nothing is taken back");
    }
}

#[test]
fn two_processes_do_not_write_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let _held = AuditLog::open(&path).unwrap();
    assert!(matches!(AuditLog::open(&path), Err(AuditError::Locked { .. })));
}

#[test]
fn times_are_those_of_the_calendar() {
    // The expected values are from `date -u -d @N +%FT%T` (coreutils 9.1).
    for (seconds, expected) in [
        (0, "1970-01-01T00:00:00.007Z"),
        (951_782_399, "2000-02-28T23:59:59.007Z"),
        (951_782_400, "2000-02-29T00:00:00.007Z"),
        (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        (1_795_305_600, "2026-11-22T00:00:00.007Z"),
    ] {
        assert_eq!(format_rfc_3339(SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7)), expected);
    }
}
