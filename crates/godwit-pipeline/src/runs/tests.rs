use std::sync::Arc;

use arrow_array::BinaryArray;
use godwit_model::{BlockId, RawRecord, SortKey};

use super::*;
use crate::scratch::SpillFile;

/// Returns a packed record without bases at a position. Its name is `tag`.
fn record(contig: i32, position: i32, tag: u32) -> Vec<u8> {
    let name = format!("{tag:08}\0");
    let mut bytes = Vec::new();
    bytes.extend(contig.to_le_bytes());
    bytes.extend(position.to_le_bytes());
    bytes.extend([name.len() as u8, 0, 0, 0, 0, 0]);
    bytes.extend(0u16.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend([0xff; 12]);
    bytes.extend(name.as_bytes());
    bytes
}

fn pseudorandom(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    }
}

/// Returns blocks of records. A third of the records have the same position, so that one partition becomes too large.
fn blocks(count: u32, records: u32) -> Vec<Vec<Vec<u8>>> {
    let mut random = pseudorandom(7);
    (0..count)
        .map(|block| {
            (0..records)
                .map(|index| {
                    let tag = block * records + index;
                    match random(6) {
                        0 => record(-1, -1, tag),
                        1 | 2 if block > 0 => record(1, 500 + random(4) as i32, tag),
                        _ => record(random(3) as i32, random(100_000) as i32, tag),
                    }
                })
                .collect()
        })
        .collect()
}

fn merged(blocks: &[Vec<Vec<u8>>], partitions: u32, resident: usize) -> (usize, Vec<(SortKey, Vec<u8>)>) {
    let directory = tempfile::tempdir().unwrap();
    let spill = Arc::new(SpillFile::create(directory.path(), Arc::default()).unwrap());
    let mut store = None;
    for (ordinal, block) in blocks.iter().enumerate() {
        let chunks = block.chunks(100).map(|chunk| BinaryArray::from_iter_values(chunk.iter())).collect();
        let keys: Vec<SortKey> = block.iter().map(|bytes| RawRecord::from_trusted_bytes(bytes).sort_key()).collect();
        let sorted = SortedBlock::new(chunks, &keys);
        let store = store.get_or_insert_with(|| RunStore::new(sorted.plan(partitions), resident, spill.clone(), false));
        store.add_block(BlockId { lane: 0, ordinal: ordinal as u32 }, sorted).unwrap();
    }
    let runs = store.unwrap().finish();
    let splits = runs.partitions();
    let mut records = Vec::new();
    for split in &splits {
        let mut cursors = runs.cursors(split).unwrap();
        while let Some(at) = (0..cursors.len()).min_by_key(|at| (cursors[*at].key(), *at)) {
            records.push((cursors[at].key(), cursors[at].entry().record.bytes().to_vec()));
            if !cursors[at].advance().unwrap() {
                cursors.remove(at);
            }
        }
    }
    (splits.len(), records)
}

#[test]
fn partitions_in_order_hold_every_record_once_in_stable_order() {
    let blocks = blocks(5, 4000);
    let mut expected: Vec<(SortKey, Vec<u8>)> =
        blocks.iter().flatten().map(|bytes| (RawRecord::from_trusted_bytes(bytes).sort_key(), bytes.clone())).collect();
    expected.sort_by_key(|(key, _)| *key);
    for partitions in [1, 7, 128] {
        let (in_memory, records) = merged(&blocks, partitions, usize::MAX);
        assert!(records == expected, "{partitions} partitions in memory");
        let (spilled, records) = merged(&blocks, partitions, 0);
        assert!(records == expected, "{partitions} partitions spilled");
        assert_eq!(in_memory, spilled, "the memory limit does not move partition borders");
    }
}

#[test]
fn a_partition_past_twice_the_mean_is_split() {
    let mut blocks = blocks(1, 3000);
    let crowd = (0..20_000).map(|i| record(0, 40_000 + i / 4, 1_000_000 + i as u32)).collect();
    blocks.push(crowd);
    let (partitions, _) = merged(&blocks, 8, usize::MAX);
    assert!(partitions > 9, "{partitions}");
}
