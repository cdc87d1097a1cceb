//! Estimates of the size of a record when packed, in the output and in scratch files. They are measured on reads before
//! alignment.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use godwit_model::BASE_LETTERS;

use crate::job_plan::RecordBytes;

/// Maximum number of packed bytes that are compressed for the measurement. More bytes do not change the estimate.
const MAX_MEASURED_BYTES: usize = 4 << 20;
/// Typical tags that bwa adds to each record: NM, MD, AS, XS and RG without its value. [`PAIR_TAGS`] has the tag MC of
/// pairs.
const TAGS: &[u8] = b"NMC\x00MDZ148\x00ASC\x94XSC\x13RGZ";
const PAIR_TAGS: &[u8] = b"MCZ148M\x00";

/// An estimator that converts reads to packed records, as if they were aligned, and compresses the records.
#[derive(Default)]
pub(crate) struct RecordSizeEstimator {
    records: u64,
    packed: Vec<u8>,
}

impl RecordSizeEstimator {
    /// Adds the reads of a batch with the schema `schema::pipe_reads`.
    pub(crate) fn add(&mut self, batch: &RecordBatch, read_group_bytes: usize, paired: bool) {
        let column = |name| batch.column_by_name(name).map(|column| column.as_binary::<i32>());
        let (Some(names), Some(sequences), Some(qualities)) = (column("name"), column("sequence"), column("quality"))
        else {
            return;
        };
        for row in 0..batch.num_rows() {
            if self.packed.len() >= MAX_MEASURED_BYTES {
                return;
            }
            let quality = if qualities.is_null(row) { &[] } else { qualities.value(row) };
            self.push(names.value(row), sequences.value(row), quality, read_group_bytes, paired);
        }
    }

    fn push(&mut self, name: &[u8], sequence: &[u8], quality: &[u8], read_group_bytes: usize, paired: bool) {
        // Imitate sorted records: positions increase in small steps, and mates are near. The fixed fields have 36
        // bytes, and a CIGAR of one operation has 4.
        let place = (self.records as u32).wrapping_mul(37).to_le_bytes();
        let mate = (self.records as u32).wrapping_mul(37).wrapping_add(name.len() as u32 * 11).to_le_bytes();
        for part in [&[0; 8][..], &place, &[0; 12], &mate, &[0; 8], name, &[0], &[0x40, 9, 0, 0]] {
            self.packed.extend_from_slice(part);
        }
        let nibble = |base: &u8| BASE_LETTERS.iter().position(|letter| letter == base).unwrap_or(15) as u8;
        self.packed.extend(sequence.chunks(2).map(|pair| nibble(&pair[0]) << 4 | pair.get(1).map_or(0, nibble)));
        self.packed.extend(quality.iter().map(|quality| quality.wrapping_sub(33)));
        self.packed.extend_from_slice(TAGS);
        self.packed.extend((0..=read_group_bytes).map(|at| b'a' + (at % 26) as u8));
        if paired {
            self.packed.extend_from_slice(PAIR_TAGS);
        }
        self.records += 1;
    }

    /// Returns the mean sizes over all records; 0 if there are no records.
    pub(crate) fn mean_bytes(&self) -> RecordBytes {
        RecordBytes::measure(&self.packed, self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_weigh_what_they_hold() {
        let mut weighing = RecordSizeEstimator::default();
        assert_eq!(weighing.mean_bytes(), RecordBytes::default());
        for at in 0..1000u32 {
            weighing.push(format!("name{at:05}").as_bytes(), &[b'A'; 100], &[b'I'; 100], 4, true);
        }
        let mean = weighing.mean_bytes();
        // Fixed fields, name, CIGAR, bases, qualities, tags and read group.
        let tags = TAGS.len() + 5 + PAIR_TAGS.len();
        assert_eq!(mean.packed as usize, 36 + 10 + 4 + 50 + 100 + tags);
        assert!(mean.output < mean.scratch && mean.scratch < mean.packed, "{mean:?}");
    }
}
