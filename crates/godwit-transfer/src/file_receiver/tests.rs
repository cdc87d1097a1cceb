use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::block_reader::{BlockHashCache, BlockReader, SourceRange};
use godwit_transfer_session::blake3_tree::BLOCK_BYTES;
use godwit_transfer_session::partial_paths::JOURNAL_SUFFIX;

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

    /// Sends blocks `[blocks.0, blocks.1)`; returns the outcome of each batch.
    fn try_send(&self, inbox: &FileReceiver, blocks: (u64, u64)) -> Vec<BlockOutcomes> {
        let span = SourceRange {
            file: 0,
            path: self.source.clone(),
            version: self.entry().version,
            blocks,
            bypass_cache: false,
        };
        let batches = BlockReader::new(vec![span], Arc::default(), false);
        batches.map(|read| inbox.write_batch(&read.unwrap().0).unwrap()).collect()
    }

    fn send(&self, inbox: &FileReceiver, blocks: (u64, u64)) {
        for taken in self.try_send(inbox, blocks) {
            assert!(taken.damaged.is_empty() && taken.rejected_files.is_empty(), "{taken:?}");
        }
    }

    /// Returns another source, of one block, that is copied to the same path.
    fn single_block_file(&self) -> Self {
        let other = Self { target: self.target.clone(), ..Self::new() };
        fs::write(&other.source, "one block").unwrap();
        other
    }

    /// Returns the path of the partial file or the journal of the target.
    fn partial_path(&self, suffix: &str) -> PathBuf {
        partial_path(&self.target, suffix)
    }

    /// Receives two of the three blocks, as a copy that is interrupted.
    fn interrupt(&self) {
        let inbox = self.receiver();
        assert_eq!(inbox.start_file(0, self.entry()).unwrap(), ReceiverState::Absent);
        self.send(&inbox, (0, 2));
    }

    /// Asserts which blocks `[0, count)` a copy resumes, and that it completes the file.
    fn assert_resumed(&self, count: u64) {
        let inbox = self.receiver();
        let expected = match count {
            0 => ReceiverState::Absent,
            count => ReceiverState::Partial(RangeSet::from_range(0, count)),
        };
        assert_eq!(inbox.start_file(0, self.entry()).unwrap(), expected);
        self.send(&inbox, (count, 3));
        assert!(self.verify(&inbox).unwrap().is_empty());
        self.assert_complete();
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

/// A change of a partial file between two copies; the arguments are the fixture and the path of the partial file.
type PartialFileChange = fn(&TransferFixture, &Path);

#[test]
fn a_journal_is_valid_only_for_its_own_partial_file() {
    // The partial file is unchanged, removed, another file, truncated, or replaced by a link.
    let changes: [(u64, PartialFileChange); 5] = [
        (2, |_, _| {}),
        (0, |_, part| fs::remove_file(part).unwrap()),
        (0, |sent, part| {
            // It exists before the partial file is removed, so that it has another inode number.
            let other = sent.source.with_file_name("other");
            fs::write(&other, vec![0; 2 * BLOCK_BYTES as usize]).unwrap();
            fs::rename(other, part).unwrap();
        }),
        (1, |_, part| File::options().write(true).open(part).unwrap().set_len(2 * BLOCK_BYTES - 1).unwrap()),
        (0, |sent, part| {
            fs::remove_file(part).unwrap();
            std::os::unix::fs::symlink(&sent.source, part).unwrap();
        }),
    ];
    for (resumed_blocks, change) in changes {
        let sent = TransferFixture::new();
        sent.interrupt();
        change(&sent, &sent.partial_path(PART_SUFFIX));
        sent.assert_resumed(resumed_blocks);
    }
}

#[test]
fn a_truncated_block_is_not_resumed_when_the_partial_file_has_grown_again() {
    let sent = TransferFixture::new();
    sent.interrupt();
    let part = File::options().write(true).open(sent.partial_path(PART_SUFFIX)).unwrap();
    part.set_len(BLOCK_BYTES).unwrap();
    let inbox = sent.receiver();
    assert_eq!(inbox.start_file(0, sent.entry()).unwrap(), ReceiverState::Partial(RangeSet::from_range(0, 1)));
    sent.send(&inbox, (2, 3));
    drop(inbox);
    let next = sent.receiver();
    let mut blocks = RangeSet::from_range(0, 1);
    blocks.insert(2, 3);
    assert_eq!(next.start_file(0, sent.entry()).unwrap(), ReceiverState::Partial(blocks));
}

#[test]
fn blocks_of_a_journal_without_the_identity_of_the_partial_file_are_hashed() {
    for is_same_file in [true, false] {
        let sent = TransferFixture::new();
        sent.interrupt();
        let path = sent.partial_path(JOURNAL_SUFFIX);
        let bytes = fs::read(&path).unwrap();
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let mut header: serde_json::Value = serde_json::from_slice(&bytes[..end]).unwrap();
        header.as_object_mut().unwrap().remove("inode").unwrap();
        fs::write(&path, [header.to_string().as_bytes(), &bytes[end..]].concat()).unwrap();
        if !is_same_file {
            fs::write(sent.partial_path(PART_SUFFIX), vec![0; 2 * BLOCK_BYTES as usize]).unwrap();
        }
        sent.assert_resumed(if is_same_file { 2 } else { 0 });
    }
}

#[test]
fn a_journal_that_is_left_after_the_commit_of_its_file_is_not_resumed() {
    let sent = TransferFixture::new();
    sent.interrupt();
    let journal = fs::read(sent.partial_path(JOURNAL_SUFFIX)).unwrap();
    sent.assert_resumed(2);
    // The process was killed between the rename of the file and the removal of the journal.
    fs::write(sent.partial_path(JOURNAL_SUFFIX), journal).unwrap();
    fs::remove_file(&sent.target).unwrap();
    sent.assert_resumed(0);
}

#[test]
fn a_file_of_one_block_discards_the_blocks_of_an_interrupted_copy_to_the_same_path() {
    let sent = TransferFixture::new();
    sent.interrupt();
    let small = sent.single_block_file();
    let inbox = small.receiver();
    assert_eq!(inbox.start_file(0, small.entry()).unwrap(), ReceiverState::Absent);
    small.send(&inbox, (0, 1));
    small.assert_complete();
    sent.assert_resumed(0);
    // A removal does the same.
    fs::remove_file(&sent.target).unwrap();
    sent.interrupt();
    fs::write(&sent.target, "another file").unwrap();
    let parent = FileReceiver::new(sent.target.parent().unwrap(), true);
    parent.remove_path("f").unwrap();
    assert_eq!(fs::read_dir(sent.target.parent().unwrap()).unwrap().count(), 0);
}

#[test]
fn a_file_of_one_block_is_not_written_while_another_copy_writes_its_path() {
    let sent = TransferFixture::new();
    let first = sent.receiver();
    first.start_file(0, sent.entry()).unwrap();
    sent.send(&first, (0, 2));
    let small = sent.single_block_file();
    let second = small.receiver();
    assert_eq!(second.start_file(0, small.entry()).unwrap(), ReceiverState::Absent);
    let outcomes = small.try_send(&second, (0, 1));
    assert!(matches!(&outcomes[0].rejected_files[..], [(0, TransferError::Busy { .. })]), "{outcomes:?}");
    // A removal removes the earlier file only.
    fs::write(&sent.target, "an earlier version").unwrap();
    FileReceiver::new(sent.target.parent().unwrap(), true).remove_path("f").unwrap();
    assert!(!sent.target.exists());
    sent.send(&first, (2, 3));
    assert!(sent.verify(&first).unwrap().is_empty());
    sent.assert_complete();
    // The other copy may write the file when the first has ended.
    small.send(&second, (0, 1));
    small.assert_complete();
}

#[test]
fn a_file_of_one_block_is_taken_over_from_a_server_that_is_lost() {
    let sent = TransferFixture::new();
    let lost = sent.receiver();
    lost.start_file(0, sent.entry()).unwrap();
    sent.send(&lost, (0, 3));
    let small = sent.single_block_file();
    let other = small.receiver();
    assert_eq!(other.start_or_take_over_file(0, small.entry(), true).unwrap(), ReceiverState::Absent);
    small.send(&other, (0, 1));
    assert!(matches!(sent.verify(&lost), Err(TransferError::Busy { .. })));
    small.assert_complete();
}

#[test]
fn the_mode_of_a_file_that_is_up_to_date_follows_the_source_but_not_through_a_link() {
    let sent = TransferFixture::new();
    sent.interrupt();
    sent.assert_resumed(2);
    let set_mode =
        |mode| fs::set_permissions(&sent.source, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    let start = || {
        assert_eq!(sent.receiver().start_file(0, sent.entry()).unwrap(), ReceiverState::Complete);
        fs::metadata(&sent.target).unwrap().mode() & 0o777
    };
    set_mode(0o751);
    assert_eq!(start(), 0o751);
    let elsewhere = sent.source.with_file_name("elsewhere");
    fs::rename(&sent.target, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &sent.target).unwrap();
    set_mode(0o640);
    assert_eq!(start(), 0o751);
}

#[test]
fn a_file_whose_mode_cannot_be_changed_is_up_to_date() {
    // Not even root can change the modes of these files.
    let path = Path::new("/proc/self/status");
    let found = fs::metadata(path).unwrap();
    let entry = Entry { mode: 0o640, ..Entry::from_metadata(String::new(), &found) };
    update_mode(path, &entry, &found).unwrap();
    assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, found.mode() & 0o777);
}

#[test]
fn a_file_of_several_blocks_waits_for_a_writer_of_a_whole_file() {
    let sent = TransferFixture::new();
    let writer = lock_name(&sent.target, false, &AtomicBool::new(false)).unwrap().unwrap();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| sent.receiver().start_file(0, sent.entry()));
        std::thread::sleep(std::time::Duration::from_millis(50));
        writer.remove().unwrap();
        assert_eq!(next.join().unwrap().unwrap(), ReceiverState::Absent);
    });
}

#[test]
fn a_file_of_one_block_is_created_without_replacing_anything() {
    let sent = TransferFixture::new();
    let small = sent.single_block_file();
    let inbox = small.receiver();
    inbox.start_file(0, small.entry()).unwrap();
    let incoming = inbox.incoming_file(0).unwrap();
    let link = || inbox.link_unnamed_file(&small.target, &small.entry(), b"one block").map_err(|error| error.kind());
    for suffix in [PART_SUFFIX, JOURNAL_SUFFIX] {
        fs::write(small.partial_path(suffix), "of an interrupted copy").unwrap();
        assert!(!inbox.create_new_file(&incoming, b"one block").unwrap());
        fs::remove_file(small.partial_path(suffix)).unwrap();
    }
    fs::write(&small.target, "an earlier version").unwrap();
    assert!(!inbox.create_new_file(&incoming, b"one block").unwrap());
    // An error of another kind means that the file system has no unnamed files.
    if link() == Err(io::ErrorKind::AlreadyExists) {
        assert_eq!(fs::read(&small.target).unwrap(), b"an earlier version");
        fs::remove_file(&small.target).unwrap();
        assert!(inbox.create_new_file(&incoming, b"one block").unwrap());
        small.assert_complete();
    }
}

#[test]
fn files_of_one_block_that_several_copies_write_to_one_path_are_not_mixed() {
    const BYTES: usize = 100_000;
    let sent: Vec<_> = (0..4).map(|_| TransferFixture::new()).collect();
    let target = &sent[0].target;
    std::thread::scope(|scope| {
        for (seed, one) in (b'a'..).zip(&sent) {
            fs::write(&one.source, [seed; BYTES]).unwrap();
            scope.spawn(move || {
                let one =
                    TransferFixture { target: target.clone(), source: one.source.clone(), ..TransferFixture::new() };
                for round in 0..20 {
                    // A file of the same size and time is complete.
                    File::open(&one.source).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
                    let inbox = one.receiver();
                    inbox.start_file(0, one.entry()).unwrap();
                    for outcome in one.try_send(&inbox, (0, 1)) {
                        let mut failures = outcome.rejected_files.iter().map(|(_, error)| error);
                        assert!(failures.all(|error| matches!(error, TransferError::Busy { .. })), "{outcome:?}");
                    }
                    if let Ok(found) = fs::read(target) {
                        assert!(found.len() == BYTES && found.iter().all(|byte| *byte == found[0]), "{}", found.len());
                    }
                    if round % 3 == 0 {
                        let _ = fs::remove_file(target);
                    }
                }
            });
        }
    });
    assert!(fs::read_dir(target.parent().unwrap()).unwrap().all(|found| found.unwrap().file_name() == "f"));
}
