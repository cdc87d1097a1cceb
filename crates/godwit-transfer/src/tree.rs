//! The hash of a file by its blocks: the tree of BLAKE3, cut at blocks.
//!
//! Each block has a *chaining value* of its own, by which it is verified alone; together they give the BLAKE3 of the file, as `b3sum`
//! prints it (BLAKE3 specification, 2021-11-05, §2.1, §2.4). A file of one block is its own root.

use blake3::hazmat::{HasherExt as _, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};

/// Bytes that are sent, verified, written and, where they are damaged, sent again by themselves. A power of two of 1024, so that
/// every block is a subtree.
pub const BLOCK_BYTES: u64 = 1 << 18;

/// The hash of a block: a chaining value, or the root where a file has one block.
pub type BlockHash = [u8; blake3::OUT_LEN];

/// Blocks of a file. One without bytes has one block, which is empty.
pub fn block_count(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(BLOCK_BYTES).max(1)
}

/// Where a block starts and ends in a file, bytes.
pub fn block_span(block: u64, size_bytes: u64) -> (u64, u64) {
    let start = block * BLOCK_BYTES;
    (start, (start + BLOCK_BYTES).min(size_bytes))
}

/// The hash of the 0-based block `block` of a file.
pub fn hash_block(data: &[u8], block: u64, size_bytes: u64) -> BlockHash {
    if block_count(size_bytes) == 1 {
        return *blake3::hash(data).as_bytes();
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(block * BLOCK_BYTES).update(data);
    hasher.finalize_non_root()
}

/// The BLAKE3 of a file from the hashes of all its blocks, of which there must be [`block_count`].
pub fn root(blocks: &[BlockHash], size_bytes: u64) -> blake3::Hash {
    debug_assert_eq!(blocks.len() as u64, block_count(size_bytes));
    if let [only] = blocks {
        return blake3::Hash::from_bytes(*only);
    }
    let (left, right) = halves(blocks, size_bytes);
    merge_subtrees_root(&left, &right, Mode::Hash)
}

/// Chaining values of the two children of a node over more than one block.
fn halves(blocks: &[BlockHash], bytes: u64) -> (BlockHash, BlockHash) {
    let left_bytes = left_subtree_len(bytes);
    let (left, right) = blocks.split_at((left_bytes / BLOCK_BYTES) as usize);
    (subtree(left, left_bytes), subtree(right, bytes - left_bytes))
}

fn subtree(blocks: &[BlockHash], bytes: u64) -> BlockHash {
    if let [only] = blocks {
        return *only;
    }
    let (left, right) = halves(blocks, bytes);
    merge_subtrees_non_root(&left, &right, Mode::Hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_blocks_give_the_hash_of_the_file() {
        let sizes = [0, 1, 1024, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES + 77];
        for size in sizes.into_iter().chain([5 * BLOCK_BYTES, 7 * BLOCK_BYTES + 1]) {
            let data: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let blocks = (0..block_count(size)).map(|block| {
                let (start, end) = block_span(block, size);
                hash_block(&data[start as usize..end as usize], block, size)
            });
            let blocks: Vec<BlockHash> = blocks.collect();
            assert_eq!(root(&blocks, size), blake3::hash(&data), "{size} bytes");
        }
    }
}
