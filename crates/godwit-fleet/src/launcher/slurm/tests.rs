use super::*;

fn mark(stage: AttemptStage, status: i32) -> AttemptExit {
    AttemptExit { stage, status }
}

#[test]
fn nothing_but_the_jobs_own_mark_is_success() {
    let by = |state: &str, mark: Option<AttemptExit>| final_status(outcome_of_state(state), mark.as_ref(), "no status");
    let succeeded = JobStatus::Ended { outcome: JobOutcome::Succeeded };
    assert_eq!(by("COMPLETED", Some(mark(AttemptStage::Work, 0))), succeeded);
    assert_eq!(by("CANCELLED", Some(mark(AttemptStage::Work, 0))), succeeded, "cancelled when all was done");
    assert_eq!(by("COMPLETED", None), JobStatus::Unknown { reason: "no status".into() });
    assert!(matches!(
        by("COMPLETED", Some(mark(AttemptStage::Setup, 0))),
        JobStatus::Ended { outcome: JobOutcome::Failed { .. } }
    ));
    assert_eq!(final_status(None, None, "x"), JobStatus::Unknown { reason: "x".into() });
    assert_eq!(final_status(None, Some(&mark(AttemptStage::Work, 0)), "x"), succeeded, "forgotten by SLURM, but done");
}

#[test]
fn slurms_word_goes_before_a_mark_of_failure() {
    let by = |state: &str| final_status(outcome_of_state(state), Some(&mark(AttemptStage::Work, 143)), "");
    for (state, outcome) in [
        ("CANCELLED", JobOutcome::Cancelled),
        ("TIMEOUT", JobOutcome::TimeLimit),
        ("NODE_FAIL", JobOutcome::HostLost),
        ("PREEMPTED", JobOutcome::Preempted),
    ] {
        assert_eq!(by(state), JobStatus::Ended { outcome });
    }
    let JobStatus::Ended { outcome: JobOutcome::Failed { description, exit_code } } = by("FAILED") else {
        panic!("it failed")
    };
    assert_eq!(exit_code, Some(143));
    assert!(description.contains("status 143"), "{description}");
    assert_eq!(mark(AttemptStage::Limit, 130).outcome(), JobOutcome::TimeLimit);
}

#[test]
fn a_mark_of_an_earlier_job_with_the_same_number_does_not_finish_a_job() {
    let directory = tempfile::tempdir().unwrap();
    for attempt in [0, 1] {
        let path = directory.path().join(format!("attempts/{attempt}"));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("job"), "7\n").unwrap();
    }
    let handle = |first_attempt| JobHandle {
        launcher: LAUNCHER_NAME.to_owned(),
        id: "7".to_owned(),
        directory: directory.path().to_owned(),
        first_attempt,
    };
    std::fs::write(attempts::finished_marker_path(directory.path(), 0), "").unwrap();
    assert!(handle(0).is_finished() && !handle(1).is_finished());
    std::fs::write(attempts::finished_marker_path(directory.path(), 1), "").unwrap();
    assert!(handle(1).is_finished());
}

#[test]
fn jobs_of_other_launchers_are_refused() {
    let handle = JobHandle { launcher: "local".into(), id: "1".into(), directory: "/tmp".into(), first_attempt: 0 };
    let slurm = SlurmLauncher::default();
    assert!(matches!(slurm.status(&handle), Err(FleetError::ForeignJob { .. })));
    assert!(matches!(slurm.cancel(&handle), Err(FleetError::ForeignJob { .. })));
    assert!(matches!(slurm.requeue(&handle), Err(FleetError::ForeignJob { .. })));
}
