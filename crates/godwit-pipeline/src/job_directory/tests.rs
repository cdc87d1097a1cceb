use super::*;

#[test]
fn a_block_that_is_read_again_must_have_the_same_reads() {
    let out = tempfile::tempdir().unwrap();
    let opened = JobDirectory::open(out.path(), None, &[], &[], None, false).unwrap();
    let JobDirectoryState::Open(run) = opened else { panic!("the directory is new") };
    let block = |ordinal| BlockId { lane: 0, ordinal };
    assert!(run.record_reads(block(0), 10, "a".to_owned()) && run.record_reads(block(1), 10, "b".to_owned()));
    assert!(run.record_reads(block(0), 10, "a".to_owned()));
    assert!(!run.record_reads(block(0), 10, "c".to_owned()));
}
