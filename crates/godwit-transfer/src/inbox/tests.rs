use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::source::{BlockReader, Hashes, SourceSpan};
use crate::tree::BLOCK_BYTES;

/// A file of three blocks, and where it goes.
struct Sent {
    _directory: tempfile::TempDir,
    source: PathBuf,
    target: PathBuf,
}

impl Sent {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (source, there) = (directory.path().join("source"), directory.path().join("there"));
        fs::create_dir(&there).unwrap();
        let sent = Self { target: there.join("f"), source, _directory: directory };
        sent.write(1);
        sent
    }

    /// Makes the source another one.
    fn write(&self, seed: u8) {
        let bytes: Vec<u8> = (0..2 * BLOCK_BYTES + 77).map(|at| (at % 251) as u8 ^ seed).collect();
        fs::write(&self.source, bytes).unwrap();
    }

    fn entry(&self) -> Entry {
        Entry::of(String::new(), &fs::metadata(&self.source).unwrap())
    }

    /// A server of the directory that the file goes to.
    fn server(&self) -> Inbox {
        Inbox::new(&self.target, true)
    }

    fn send(&self, inbox: &Inbox, blocks: (u64, u64)) {
        let span = SourceSpan { file: 0, path: self.source.clone(), version: self.entry().version, blocks };
        for read in BlockReader::new(vec![span], Arc::default(), false) {
            let taken = inbox.take(&read.unwrap().0).unwrap();
            assert!(taken.damaged.is_empty() && taken.refused.is_empty(), "{taken:?}");
        }
    }

    fn prove(&self, inbox: &Inbox) -> Result<RangeSet, TransferError> {
        let hashes = Hashes::default().all(&self.source, self.entry().version).unwrap();
        inbox.prove(0, &hashes, false)
    }

    /// The file has its name, and nothing is beside it.
    fn assert_is_there(&self) {
        assert!(fs::read(&self.target).unwrap() == fs::read(&self.source).unwrap());
        assert_eq!(fs::read_dir(self.target.parent().unwrap()).unwrap().count(), 1);
    }
}

#[test]
fn a_file_that_a_lost_server_began_goes_on_at_another_and_is_named_once() {
    let sent = Sent::new();
    let (lost, other) = (sent.server(), sent.server());
    assert_eq!(lost.begin(0, sent.entry()).unwrap(), Have::Nothing);
    sent.send(&lost, (0, 2));
    assert!(matches!(other.begin(0, sent.entry()), Err(TransferError::Busy { .. })));
    assert_eq!(other.begin_over(0, sent.entry(), true).unwrap(), Have::Part(RangeSet::of(0, 2)));
    sent.send(&other, (2, 3));
    assert!(sent.prove(&other).unwrap().is_empty());
    sent.assert_is_there();
    // The lost one comes to, and ends what it was told to end.
    let named = fs::metadata(&sent.target).unwrap().ino();
    sent.send(&lost, (2, 3));
    assert!(sent.prove(&lost).unwrap().is_empty());
    sent.assert_is_there();
    assert_eq!(fs::metadata(&sent.target).unwrap().ino(), named);
}

#[test]
fn what_a_lost_server_names_while_another_goes_on_is_the_same_file() {
    let sent = Sent::new();
    let (lost, other) = (sent.server(), sent.server());
    lost.begin(0, sent.entry()).unwrap();
    sent.send(&lost, (0, 3));
    other.begin_over(0, sent.entry(), true).unwrap();
    assert!(sent.prove(&lost).unwrap().is_empty());
    assert!(sent.prove(&other).unwrap().is_empty());
    sent.assert_is_there();
}

#[test]
fn a_lost_server_does_not_name_an_earlier_state_over_a_later_one() {
    let sent = Sent::new();
    let (lost, other) = (sent.server(), sent.server());
    lost.begin(0, sent.entry()).unwrap();
    sent.send(&lost, (0, 3));
    let before = (sent.entry().version, Hashes::default().all(&sent.source, sent.entry().version).unwrap());
    // Written again, in another state by time at the least.
    std::fs::remove_file(&sent.source).unwrap();
    sent.write(2);
    assert_ne!(sent.entry().version, before.0);
    assert_eq!(other.begin_over(0, sent.entry(), true).unwrap(), Have::Nothing);
    sent.send(&other, (0, 1));
    assert!(matches!(lost.prove(0, &before.1, false), Err(TransferError::Busy { .. })));
    assert!(!sent.target.exists());
    sent.send(&other, (1, 3));
    assert!(sent.prove(&other).unwrap().is_empty());
    sent.assert_is_there();
    assert!(matches!(lost.prove(0, &before.1, false), Err(TransferError::Busy { .. })));
    sent.assert_is_there();
}

#[test]
fn a_copy_that_has_ended_holds_no_lock_and_writes_nothing_whatever_still_shares_its_inbox() {
    let sent = Sent::new();
    let copy = CopyInbox::new(sent.server());
    assert_eq!(copy.begin(0, sent.entry()).unwrap(), Have::Nothing);
    sent.send(&copy, (0, 1));
    // A task that is to be aborted, and is not yet.
    let lingering = copy.share();
    drop(copy);
    let next = CopyInbox::new(sent.server());
    assert_eq!(next.begin(0, sent.entry()).unwrap(), Have::Part(RangeSet::of(0, 1)));
    let span = SourceSpan { file: 0, path: sent.source.clone(), version: sent.entry().version, blocks: (1, 3) };
    for read in BlockReader::new(vec![span], Arc::default(), false) {
        assert!(matches!(lingering.take(&read.unwrap().0), Err(TransferError::Interrupted)));
    }
    assert!(matches!(lingering.begin(0, sent.entry()), Err(TransferError::Interrupted)));
    sent.send(&next, (1, 3));
    assert!(sent.prove(&next).unwrap().is_empty());
    sent.assert_is_there();
}

#[test]
fn a_copy_that_is_begun_again_waits_for_what_the_one_before_is_still_doing() {
    let sent = Sent::new();
    let copy = CopyInbox::new(sent.server());
    copy.begin(0, sent.entry()).unwrap();
    let lingering = copy.share();
    let operation = lingering.operation().unwrap();
    drop(copy);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            wait_for_ended_copies();
            sent.server().begin(0, sent.entry())
        });
        // Others are refused until the operation ends.
        assert!(matches!(sent.server().begin(0, sent.entry()), Err(TransferError::Busy { .. })));
        drop(operation);
        assert_eq!(next.join().unwrap().unwrap(), Have::Nothing);
    });
}

#[test]
fn a_file_is_given_up_when_the_block_that_is_being_written_is() {
    let sent = Sent::new();
    let (earlier, later) = (sent.server(), sent.server());
    earlier.begin(0, sent.entry()).unwrap();
    let incoming = earlier.incoming(0).unwrap();
    let writing = incoming.writing.read().unwrap();
    std::thread::scope(|scope| {
        let giving_up = scope.spawn(|| incoming.give_up());
        assert!(matches!(later.begin(0, sent.entry()), Err(TransferError::Busy { .. })));
        drop(writing);
        giving_up.join().unwrap();
    });
    assert_eq!(later.begin(0, sent.entry()).unwrap(), Have::Nothing);
}
