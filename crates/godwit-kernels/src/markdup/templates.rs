//! Templates of the input, which are groups of neighbouring records with the same name; needed for
//! [`super::DuplicateMode::Query`].

use godwit_model::{BlockId, RawRecord, RecordId, flags};

/// The templates of one block. A template is a group of neighbouring records with the same name.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_kernels::markdup::BlockTemplates;
///
/// # let words = [
/// #     0, 999, 4681 << 16 | 60 << 8 | 4, 99 << 16 | 1, 8, 0, 1_291, 300, i32::from_le_bytes(*b"r01\0"),
/// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
/// # ];
/// # let bytes = words.map(i32::to_le_bytes).concat();
/// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
/// let mut templates = BlockTemplates::default();
/// templates.push(record);
/// assert_eq!(templates.record_count(), 1);
/// assert_eq!(BlockTemplates::from_bytes(&templates.to_bytes()), Some(templates));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BlockTemplates {
    records: u32,
    /// One bit per record; 1 if the record is the first of a template.
    starts: Vec<u64>,
    /// One bit per record; 1 if the record is the first of a template and is mapped and primary.
    primary_starts: Vec<u64>,
    first_name: Vec<u8>,
    last_name: Vec<u8>,
}

fn is_bit_set(words: &[u64], index: u32) -> bool {
    words.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

impl BlockTemplates {
    /// Adds the next record of the block.
    pub fn push(&mut self, record: RawRecord) {
        let (word, mask) = (self.records as usize / 64, 1u64 << (self.records % 64));
        if self.starts.len() <= word {
            self.starts.push(0);
            self.primary_starts.push(0);
        }
        let name = record.name();
        if self.records == 0 || self.last_name != name {
            self.starts[word] |= mask;
            if record.flag() & (flags::UNMAPPED | flags::NOT_PRIMARY) == 0 {
                self.primary_starts[word] |= mask;
            }
            self.last_name.clear();
            self.last_name.extend_from_slice(name);
        }
        if self.records == 0 {
            self.first_name = self.last_name.clone();
        }
        self.records += 1;
    }

    /// Returns the number of records of the block.
    pub fn record_count(&self) -> u32 {
        self.records
    }

    /// Encodes the templates as bytes for [`BlockTemplates::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.starts.len() * 16 + self.first_name.len() + self.last_name.len());
        bytes.extend(self.records.to_le_bytes());
        bytes.extend((self.first_name.len() as u32).to_le_bytes());
        bytes.extend(self.starts.iter().chain(&self.primary_starts).flat_map(|word| word.to_le_bytes()));
        bytes.extend(&self.first_name);
        bytes.extend(&self.last_name);
        bytes
    }

    /// Decodes templates from the bytes of [`BlockTemplates::to_bytes`]; returns `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (records, bytes) = bytes.split_first_chunk()?;
        let (first_name, bytes) = bytes.split_first_chunk()?;
        let records = u32::from_le_bytes(*records);
        let words_bytes = records.div_ceil(64) as usize * 8;
        let (starts, bytes) = bytes.split_at_checked(words_bytes)?;
        let (primary_starts, names) = bytes.split_at_checked(words_bytes)?;
        let (first_name, last_name) = names.split_at_checked(u32::from_le_bytes(*first_name) as usize)?;
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?))).collect()
        };
        Some(Self {
            records,
            starts: words(starts),
            primary_starts: words(primary_starts),
            first_name: first_name.to_owned(),
            last_name: last_name.to_owned(),
        })
    }

    /// Returns the number of records of the same template that precede the record with this index.
    pub(super) fn index_in_template(&self, index: u32) -> u32 {
        index - self.template_start(index).unwrap_or(0)
    }

    /// Returns the index of the last first-of-template record at or before an index.
    fn template_start(&self, index: u32) -> Option<u32> {
        let (mut word, shift) = (index as usize / 64, 63 - index % 64);
        let mut bits = self.starts.get(word)? << shift >> shift;
        loop {
            if bits != 0 {
                return Some(word as u32 * 64 + 63 - bits.leading_zeros());
            }
            word = word.checked_sub(1)?;
            bits = self.starts[word];
        }
    }

    /// Returns the index of the next first-of-template record at or after an index.
    fn next_template_start(&self, index: u32) -> Option<u32> {
        let (mut word, shift) = (index as usize / 64, index % 64);
        let mut bits = self.starts.get(word)? >> shift << shift;
        loop {
            if bits != 0 {
                return Some(word as u32 * 64 + bits.trailing_zeros());
            }
            word += 1;
            bits = *self.starts.get(word)?;
        }
    }
}

/// The templates of all blocks. Records of the whole input are numbered from 0 in input order.
#[derive(Debug, Default)]
pub(super) struct Templates {
    /// For each block: the number of its first record, the id of the block, and its templates.
    blocks: Vec<(u64, BlockId, BlockTemplates)>,
}

impl Templates {
    pub(super) fn new(mut blocks: Vec<(BlockId, BlockTemplates)>) -> Self {
        blocks.retain(|(_, block)| block.records > 0);
        blocks.sort_by_key(|(id, _)| *id);
        let mut first = 0;
        let mut numbered: Vec<(u64, BlockId, BlockTemplates)> = Vec::with_capacity(blocks.len());
        for (id, mut block) in blocks {
            if numbered.last().is_some_and(|(_, _, before)| before.last_name == block.first_name) {
                block.starts[0] &= !1;
                block.primary_starts[0] &= !1;
            }
            let records = u64::from(block.records);
            numbered.push((first, id, block));
            first += records;
        }
        Self { blocks: numbered }
    }

    /// Returns the index of the block that contains the record with this number.
    fn block_index(&self, number: u64) -> usize {
        self.blocks.partition_point(|(first, _, _)| *first <= number).saturating_sub(1)
    }

    /// Returns the number of the first record of the template that a record belongs to.
    pub(super) fn template_start(&self, record: RecordId) -> u64 {
        let mut at = self.blocks.partition_point(|(_, id, _)| *id < record.block());
        let mut found = self.blocks[at].2.template_start(record.index());
        while found.is_none() && at > 0 {
            at -= 1;
            found = self.blocks[at].2.template_start(self.blocks[at].2.records - 1);
        }
        self.blocks[at].0 + u64::from(found.unwrap_or(0))
    }

    /// Returns the number of the first record after the template that starts at record number `start`.
    pub(super) fn template_end(&self, start: u64) -> u64 {
        let mut at = self.block_index(start);
        let mut from = (start - self.blocks[at].0) as u32 + 1;
        loop {
            let (first, _, block) = &self.blocks[at];
            if let Some(next) = block.next_template_start(from) {
                return first + u64::from(next);
            }
            if at + 1 == self.blocks.len() {
                return first + u64::from(block.records);
            }
            (at, from) = (at + 1, 0);
        }
    }

    /// Returns whether the record with this number is the first of a template; false for a number beyond the last
    /// record.
    pub(super) fn is_template_start(&self, number: u64) -> bool {
        let (first, _, block) = &self.blocks[self.block_index(number)];
        u32::try_from(number - first).is_ok_and(|index| is_bit_set(&block.starts, index))
    }

    /// Returns whether the first record of the template that starts at record number `start` is mapped and primary.
    pub(super) fn starts_with_primary(&self, start: u64) -> bool {
        let (first, _, block) = &self.blocks[self.block_index(start)];
        is_bit_set(&block.primary_starts, (start - first) as u32)
    }

    /// Returns the id of the record with this number.
    pub(super) fn record_id(&self, number: u64) -> RecordId {
        let (first, id, _) = &self.blocks[self.block_index(number)];
        id.record((number - first) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_survive_their_bytes() {
        let (first_name, last_name) = (b"a".to_vec(), b"read 65".to_vec());
        let block =
            BlockTemplates { records: 65, starts: vec![5, 1], primary_starts: vec![4, 0], first_name, last_name };
        for block in [block, BlockTemplates::default()] {
            let bytes = block.to_bytes();
            assert_eq!(BlockTemplates::from_bytes(&bytes), Some(block));
        }
    }

    #[test]
    fn bytes_that_are_cut_short_are_no_templates() {
        let block = BlockTemplates {
            records: 1,
            starts: vec![1],
            primary_starts: vec![1],
            first_name: b"ab".to_vec(),
            last_name: Vec::new(),
        };
        let bytes = block.to_bytes();
        assert!((0..bytes.len()).all(|length| BlockTemplates::from_bytes(&bytes[..length]).is_none()));
    }
}
