//! The BLAKE3 hash of a file, computed from hashes of its 256 KiB blocks, which are subtrees of the BLAKE3 tree.
//!
//! Each block has its own *chaining value*, by which the block is verified without the other blocks. All chaining
//! values together give the BLAKE3 of the file, as `b3sum` prints it (BLAKE3 specification, 2021-11-05, §2.1, §2.4). If
//! a file has only one block, that block is the root of the tree.

use blake3::hazmat::{HasherExt as _, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};

/// Size of a block, bytes. Files are sent, verified, written and, if damaged, sent again in units of one block. The
/// size is a power of two times 1024, so that every block is a subtree of the BLAKE3 tree.
pub const BLOCK_BYTES: u64 = 1 << 18;

/// The hash of a block: its BLAKE3 chaining value or, if the file has only one block, the BLAKE3 root hash.
pub type BlockHash = [u8; blake3::OUT_LEN];

/// Returns the number of blocks of a file. An empty file has one empty block.
///
/// # Examples
///
/// ```
/// use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, block_count};
///
/// assert_eq!(block_count(0), 1);
/// assert_eq!(block_count(BLOCK_BYTES), 1);
/// assert_eq!(block_count(BLOCK_BYTES + 1), 2);
/// ```
pub fn block_count(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(BLOCK_BYTES).max(1)
}

/// Returns the first byte (0-based) and the end (exclusive) of a block in a file of `size_bytes` bytes.
///
/// # Examples
///
/// ```
/// use godwit_transfer_session::blake3_tree::block_byte_range;
///
/// assert_eq!(block_byte_range(0, 300_000), (0, 262_144));
/// assert_eq!(block_byte_range(1, 300_000), (262_144, 300_000));
/// ```
pub fn block_byte_range(block: u64, size_bytes: u64) -> (u64, u64) {
    let start = block * BLOCK_BYTES;
    (start, (start + BLOCK_BYTES).min(size_bytes))
}

/// Returns the hash of the 0-based block `block` of a file.
///
/// # Examples
///
/// ```
/// use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, hash_block};
///
/// let size_bytes = 2 * BLOCK_BYTES;
/// let mut data = vec![b'A'; BLOCK_BYTES as usize];
/// let hash = hash_block(&data, 1, size_bytes);
/// // The hash depends on the position of the block in the file.
/// assert_ne!(hash_block(&data, 0, size_bytes), hash);
/// data[1000] ^= 1;
/// assert_ne!(hash_block(&data, 1, size_bytes), hash);
/// ```
pub fn hash_block(data: &[u8], block: u64, size_bytes: u64) -> BlockHash {
    if block_count(size_bytes) == 1 {
        return *blake3::hash(data).as_bytes();
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(block * BLOCK_BYTES).update(data);
    hasher.finalize_non_root()
}

/// Returns the BLAKE3 of a file from the hashes of all its [`block_count`] blocks.
///
/// # Examples
///
/// ```
/// use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, file_hash, hash_block};
///
/// let data = vec![b'A'; 600_000];
/// let size_bytes = data.len() as u64;
/// let blocks = data.chunks(BLOCK_BYTES as usize).zip(0..);
/// let hashes: Vec<_> = blocks.map(|(data, block)| hash_block(data, block, size_bytes)).collect();
/// assert_eq!(hashes.len(), 3);
/// assert_eq!(file_hash(&hashes, size_bytes), blake3::hash(&data));
/// ```
pub fn file_hash(blocks: &[BlockHash], size_bytes: u64) -> blake3::Hash {
    debug_assert_eq!(blocks.len() as u64, block_count(size_bytes));
    if let [only] = blocks {
        return blake3::Hash::from_bytes(*only);
    }
    let (left, right) = child_hashes(blocks, size_bytes);
    merge_subtrees_root(&left, &right, Mode::Hash)
}

/// Returns the chaining values of the two children of a tree node that covers several blocks.
fn child_hashes(blocks: &[BlockHash], bytes: u64) -> (BlockHash, BlockHash) {
    let left_bytes = left_subtree_len(bytes);
    let (left, right) = blocks.split_at((left_bytes / BLOCK_BYTES) as usize);
    (subtree_hash(left, left_bytes), subtree_hash(right, bytes - left_bytes))
}

fn subtree_hash(blocks: &[BlockHash], bytes: u64) -> BlockHash {
    if let [only] = blocks {
        return *only;
    }
    let (left, right) = child_hashes(blocks, bytes);
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
                let (start, end) = block_byte_range(block, size);
                hash_block(&data[start as usize..end as usize], block, size)
            });
            let blocks: Vec<BlockHash> = blocks.collect();
            assert_eq!(file_hash(&blocks, size), blake3::hash(&data), "{size} bytes");
        }
    }
}
