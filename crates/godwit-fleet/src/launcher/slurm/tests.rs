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
fn jobs_of_other_launchers_are_refused() {
    let handle = JobHandle { launcher: "local".into(), id: "1".into(), directory: "/tmp".into() };
    let slurm = SlurmLauncher::default();
    assert!(matches!(slurm.status(&handle), Err(FleetError::ForeignJob { .. })));
    assert!(matches!(slurm.cancel(&handle), Err(FleetError::ForeignJob { .. })));
    assert!(matches!(slurm.requeue(&handle), Err(FleetError::ForeignJob { .. })));
}
