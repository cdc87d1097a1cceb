use super::*;

fn mark(stage: AttemptStage, status: i32) -> EndMark {
    EndMark { stage, status }
}

#[test]
fn nothing_but_the_jobs_own_mark_is_success() {
    let by = |state: &str, mark: Option<EndMark>| settled(ending_by_state(state), mark.as_ref(), "nobody knows");
    let succeeded = JobStatus::Ended { how: Ending::Succeeded };
    assert_eq!(by("COMPLETED", Some(mark(AttemptStage::Work, 0))), succeeded);
    assert_eq!(by("CANCELLED", Some(mark(AttemptStage::Work, 0))), succeeded, "cancelled when all was done");
    assert_eq!(by("COMPLETED", None), JobStatus::Unknown { why: "nobody knows".into() });
    assert!(matches!(
        by("COMPLETED", Some(mark(AttemptStage::Setup, 0))),
        JobStatus::Ended { how: Ending::Failed { .. } }
    ));
    assert_eq!(settled(None, None, "x"), JobStatus::Unknown { why: "x".into() });
    assert_eq!(settled(None, Some(&mark(AttemptStage::Work, 0)), "x"), succeeded, "forgotten by SLURM, but done");
}

#[test]
fn slurms_word_goes_before_a_mark_of_failure() {
    let by = |state: &str| settled(ending_by_state(state), Some(&mark(AttemptStage::Work, 143)), "");
    for (state, how) in [
        ("CANCELLED", Ending::Cancelled),
        ("TIMEOUT", Ending::TimeLimit),
        ("NODE_FAIL", Ending::NodeLost),
        ("PREEMPTED", Ending::Preempted),
    ] {
        assert_eq!(by(state), JobStatus::Ended { how });
    }
    let JobStatus::Ended { how: Ending::Failed { what, exit_code } } = by("FAILED") else { panic!("it failed") };
    assert_eq!(exit_code, Some(143));
    assert!(what.contains("status 143"), "{what}");
    assert_eq!(mark(AttemptStage::Limit, 130).ending(), Ending::TimeLimit);
}

#[test]
fn jobs_of_other_launchers_are_refused() {
    let handle = JobHandle { launcher: "local".into(), id: "1".into(), directory: "/tmp".into() };
    let slurm = Slurm::default();
    assert!(matches!(slurm.status(&handle), Err(FleetError::Foreign { .. })));
    assert!(matches!(slurm.cancel(&handle), Err(FleetError::Foreign { .. })));
    assert!(matches!(slurm.requeue(&handle), Err(FleetError::Foreign { .. })));
}
