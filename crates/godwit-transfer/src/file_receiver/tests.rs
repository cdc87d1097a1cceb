use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::block_reader::{BlockHashCache, BlockReader, SourceRange};
use godwit_transfer_session::blake3_tree::BLOCK_BYTES;

/// A source file of three blocks, and the path to which it is copied.
struct TransferFixture {
    _directory: tempfile::TempDir,
    source: PathBuf,
    target: PathBuf,
}

impl TransferFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (source, there) = (directory.path().join("source"), directory.path().join("there"));
        fs::create_dir(&there).unwrap();
        let sent = Self { target: there.join("f"), source, _directory: directory };
        sent.write(1);
        sent
    }

    /// Writes the source file with content that depends on `seed`.
    fn write(&self, seed: u8) {
        let bytes: Vec<u8> = (0..2 * BLOCK_BYTES + 77).map(|at| (at % 251) as u8 ^ seed).collect();
        fs::write(&self.source, bytes).unwrap();
    }

    fn entry(&self) -> Entry {
        Entry::from_metadata(String::new(), &fs::metadata(&self.source).unwrap())
    }

    /// Returns a receiver for the target file, as a server creates it.
    fn receiver(&self) -> FileReceiver {
        FileReceiver::new(&self.target, true)
    }

    fn send(&self, inbox: &FileReceiver, blocks: (u64, u64)) {
        let span = SourceRange {
            file: 0,
            path: self.source.clone(),
            version: self.entry().version,
            blocks,
            bypass_cache: false,
        };
        for read in BlockReader::new(vec![span], Arc::default(), false) {
            let taken = inbox.write_batch(&read.unwrap().0).unwrap();
            assert!(taken.damaged.is_empty() && taken.rejected_files.is_empty(), "{taken:?}");
        }
    }

    fn verify(&self, inbox: &FileReceiver) -> Result<RangeSet, TransferError> {
        let hashes = BlockHashCache::default().block_hashes(&self.source, self.entry().version).unwrap();
        inbox.verify_file(0, &hashes, false)
    }

    /// Asserts that the file is committed and that no partial file or journal is left.
    fn assert_complete(&self) {
        assert!(fs::read(&self.target).unwrap() == fs::read(&self.source).unwrap());
        assert_eq!(fs::read_dir(self.target.parent().unwrap()).unwrap().count(), 1);
    }
}

#[test]
fn a_file_started_by_a_lost_server_is_resumed_at_another_and_committed_once() {
    let sent = TransferFixture::new();
    let (lost, other) = (sent.receiver(), sent.receiver());
    assert_eq!(lost.start_file(0, sent.entry()).unwrap(), ReceiverState::Absent);
    sent.send(&lost, (0, 2));
    assert!(matches!(other.start_file(0, sent.entry()), Err(TransferError::Busy { .. })));
    assert_eq!(
        other.start_or_take_over_file(0, sent.entry(), true).unwrap(),
        ReceiverState::Partial(RangeSet::from_range(0, 2))
    );
    sent.send(&other, (2, 3));
    assert!(sent.verify(&other).unwrap().is_empty());
    sent.assert_complete();
    // The lost server continues its session and commits the file too.
    let named = fs::metadata(&sent.target).unwrap().ino();
    sent.send(&lost, (2, 3));
    assert!(sent.verify(&lost).unwrap().is_empty());
    sent.assert_complete();
    assert_eq!(fs::metadata(&sent.target).unwrap().ino(), named);
}

#[test]
fn a_file_committed_by_a_lost_server_while_another_resumes_it_is_the_same_file() {
    let sent = TransferFixture::new();
    let (lost, other) = (sent.receiver(), sent.receiver());
    lost.start_file(0, sent.entry()).unwrap();
    sent.send(&lost, (0, 3));
    other.start_or_take_over_file(0, sent.entry(), true).unwrap();
    assert!(sent.verify(&lost).unwrap().is_empty());
    assert!(sent.verify(&other).unwrap().is_empty());
    sent.assert_complete();
}

#[test]
fn a_lost_server_does_not_commit_an_earlier_version_over_a_later_one() {
    let sent = TransferFixture::new();
    let (lost, other) = (sent.receiver(), sent.receiver());
    lost.start_file(0, sent.entry()).unwrap();
    sent.send(&lost, (0, 3));
    let before =
        (sent.entry().version, BlockHashCache::default().block_hashes(&sent.source, sent.entry().version).unwrap());
    // Write the source again, which gives it another version.
    std::fs::remove_file(&sent.source).unwrap();
    sent.write(2);
    assert_ne!(sent.entry().version, before.0);
    assert_eq!(other.start_or_take_over_file(0, sent.entry(), true).unwrap(), ReceiverState::Absent);
    sent.send(&other, (0, 1));
    assert!(matches!(lost.verify_file(0, &before.1, false), Err(TransferError::Busy { .. })));
    assert!(!sent.target.exists());
    sent.send(&other, (1, 3));
    assert!(sent.verify(&other).unwrap().is_empty());
    sent.assert_complete();
    assert!(matches!(lost.verify_file(0, &before.1, false), Err(TransferError::Busy { .. })));
    sent.assert_complete();
}

#[test]
fn a_copy_that_has_ended_holds_no_lock_and_writes_nothing_whatever_still_shares_its_inbox() {
    let sent = TransferFixture::new();
    let copy = CopyReceiver::new(sent.receiver());
    assert_eq!(copy.start_file(0, sent.entry()).unwrap(), ReceiverState::Absent);
    sent.send(&copy, (0, 1));
    // Stands for a task of the copy that is about to be aborted.
    let lingering = copy.share_receiver();
    drop(copy);
    let next = CopyReceiver::new(sent.receiver());
    assert_eq!(next.start_file(0, sent.entry()).unwrap(), ReceiverState::Partial(RangeSet::from_range(0, 1)));
    let span = SourceRange {
        file: 0,
        path: sent.source.clone(),
        version: sent.entry().version,
        blocks: (1, 3),
        bypass_cache: false,
    };
    for read in BlockReader::new(vec![span], Arc::default(), false) {
        assert!(matches!(lingering.write_batch(&read.unwrap().0), Err(TransferError::Interrupted)));
    }
    assert!(matches!(lingering.start_file(0, sent.entry()), Err(TransferError::Interrupted)));
    sent.send(&next, (1, 3));
    assert!(sent.verify(&next).unwrap().is_empty());
    sent.assert_complete();
}

#[test]
fn a_copy_that_is_begun_again_waits_for_what_the_one_before_is_still_doing() {
    let sent = TransferFixture::new();
    let copy = CopyReceiver::new(sent.receiver());
    copy.start_file(0, sent.entry()).unwrap();
    let lingering = copy.share_receiver();
    let operation = lingering.start_operation().unwrap();
    drop(copy);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            wait_for_ended_copies();
            sent.receiver().start_file(0, sent.entry())
        });
        // A copy that does not wait is rejected until the operation ends.
        assert!(matches!(sent.receiver().start_file(0, sent.entry()), Err(TransferError::Busy { .. })));
        drop(operation);
        assert_eq!(next.join().unwrap().unwrap(), ReceiverState::Absent);
    });
}

#[test]
fn a_file_is_released_when_the_block_that_is_being_written_is() {
    let sent = TransferFixture::new();
    let (earlier, later) = (sent.receiver(), sent.receiver());
    earlier.start_file(0, sent.entry()).unwrap();
    let incoming = earlier.incoming_file(0).unwrap();
    let writing = incoming.write_lock.read();
    std::thread::scope(|scope| {
        let giving_up = scope.spawn(|| incoming.release());
        assert!(matches!(later.start_file(0, sent.entry()), Err(TransferError::Busy { .. })));
        drop(writing);
        giving_up.join().unwrap();
    });
    assert_eq!(later.start_file(0, sent.entry()).unwrap(), ReceiverState::Absent);
}
