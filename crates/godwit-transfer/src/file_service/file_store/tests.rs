use crate::copy_protocol::{OutgoingBlock, encode_blocks};

use super::*;

fn command(attempt: u8, earlier: &[u8], content: &[u8], is_exclusive: bool) -> StoreCommand {
    let name = |attempt: u8| blake3::hash(&[attempt]).to_hex().to_string();
    StoreCommand {
        path: "f".to_owned(),
        attempt: name(attempt),
        earlier_attempts: earlier.iter().map(|attempt| name(*attempt)).collect(),
        size_bytes: content.len() as u64,
        mode: 0o640,
        modified: (1_700_000_000, 123_456_789),
        is_exclusive,
    }
}

fn start(
    directory: &Path,
    command: StoreCommand,
) -> Result<(Option<IncomingStore>, VecDeque<StoreReport>), TransferError> {
    IncomingStore::start(command, directory.join("f"))
}

fn block(content: &[u8], block_index: u64) -> RecordBatch {
    let (start, end) = block_byte_range(block_index, content.len() as u64);
    let data = content[start as usize..end as usize].to_vec();
    let (hash, count) = (hash_block(&data, block_index, content.len() as u64), data.len());
    let sent = OutgoingBlock { file: 0, block_index, hash, block_bytes: count as u32, data_end: count };
    encode_blocks(&[sent], data).expect("it succeeds")
}

#[test]
fn a_suspended_attempt_cannot_replace_a_newer_version() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (vec![1; 300_000], vec![2; 300_000]);
    let (suspended, _) = start(directory.path(), command(1, &[], &old, false)).unwrap();
    let mut suspended = suspended.unwrap();
    suspended.write_batch(&block(&old, 0)).unwrap();
    // The client continues with another attempt, which gets the first block of the suspended one.
    let (next, reports) = start(directory.path(), command(2, &[1], &old, false)).unwrap();
    let mut next = next.unwrap();
    let expected = hashes_to_text(&[hash_block(&old[..1 << 18], 0, 300_000)]);
    assert!(matches!(&reports[0], StoreReport::Present(hashes) if *hashes == expected));
    next.write_batch(&block(&old, 1)).unwrap();
    next.commit().unwrap();
    let (newer, _) = start(directory.path(), command(3, &[], &new, false)).unwrap();
    let mut newer = newer.unwrap();
    for index in 0..2 {
        newer.write_batch(&block(&new, index)).unwrap();
    }
    newer.commit().unwrap();
    suspended.write_batch(&block(&old, 1)).unwrap();
    assert!(matches!(suspended.commit(), Err(TransferError::Busy { .. })));
    drop((suspended, next, newer));
    assert!(fs::read(directory.path().join("f")).unwrap() == new);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    assert_eq!(fs::metadata(directory.path().join("f")).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn an_exclusive_file_is_stored_once_also_if_the_answer_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let store = |command| start(directory.path(), command).map(|(store, _)| store);
    let mut first = store(command(1, &[], b"", true)).unwrap().unwrap();
    first.commit().unwrap();
    assert!(store(command(2, &[1], b"", true)).unwrap().is_none());
    for other in [command(3, &[], b"", true), command(4, &[1], b"other", true)] {
        assert!(matches!(store(other), Err(TransferError::Io { .. })));
    }
}

#[test]
fn an_incomplete_or_damaged_file_is_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let content = vec![7; 300_000];
    let (store, _) = start(directory.path(), command(1, &[], &content, false)).unwrap();
    let mut store = store.unwrap();
    store.write_batch(&block(&content, 0)).unwrap();
    assert!(matches!(store.commit(), Err(TransferError::Rejected { .. })));
    let shorter = block(&content[..299_999], 1);
    assert!(matches!(store.write_batch(&shorter), Err(TransferError::Damaged { .. })));
    drop(store);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    let mut other = command(1, &[], b"", false);
    other.attempt = "../f".to_owned();
    assert!(matches!(start(directory.path(), other), Err(TransferError::Rejected { .. })));
}
