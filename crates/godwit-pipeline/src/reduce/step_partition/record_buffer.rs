//! A buffer for the records of a partition, in memory and in sorted order, while a Python function processes the table
//! of the partition.
//!
//! Each record of the table is added with its FLAG and can be read again. If the records exceed the memory limit, they
//! are dropped, and the caller merges the runs again.

use godwit_model::RawRecord;

/// Size of the header of each record in the buffer, bytes: length of the record (4) and FLAG (2).
const RECORD_HEADER_BYTES: usize = 6;

/// A buffer of records with a memory limit.
pub(super) struct RecordBuffer {
    bytes: Vec<u8>,
    limit_bytes: usize,
    /// True if the records exceeded the limit and were dropped.
    is_overflowed: bool,
}

impl RecordBuffer {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { bytes: Vec::new(), limit_bytes, is_overflowed: false }
    }

    /// Removes all records, but keeps the allocated memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.is_overflowed = false;
    }

    /// Appends a record with FLAG `flag`. If the limit is exceeded, all records are dropped instead.
    #[inline]
    pub(super) fn push(&mut self, record: RawRecord, flag: u16) {
        if self.is_overflowed {
            return;
        }
        let record = record.bytes();
        if self.bytes.len() + RECORD_HEADER_BYTES + record.len() > self.limit_bytes {
            // The records will be read from the runs again, so free their memory.
            (self.bytes, self.is_overflowed) = (Vec::new(), true);
            return;
        }
        self.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&flag.to_le_bytes());
        self.bytes.extend_from_slice(record);
    }

    /// Returns all records with their FLAGs; `None` if the records exceeded the limit.
    pub(super) fn records(&self) -> Option<impl Iterator<Item = (RawRecord<'_>, u16)>> {
        let mut rest = &self.bytes[..];
        let next = move || {
            let (bytes, behind) = rest.split_first_chunk::<4>()?;
            let (flag, behind) = behind.split_first_chunk::<2>()?;
            let (record, behind) = behind.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
            rest = behind;
            Some((RawRecord::from_trusted_bytes(record), u16::from_le_bytes(*flag)))
        };
        (!self.is_overflowed).then(|| std::iter::from_fn(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_unless_they_are_too_many() {
        let made = |count: u8| (0..count).map(|at| (vec![at; 40 + usize::from(at) % 3], u16::from(at) << 4));
        let mut kept = RecordBuffer::new(10 * (RECORD_HEADER_BYTES + 42));
        for (count, fits) in [(0, true), (9, true), (10, true), (11, false), (10, true)] {
            kept.clear();
            made(count).for_each(|(record, flag)| kept.push(RawRecord::from_trusted_bytes(&record), flag));
            let found = kept.records().map(|all| all.map(|(record, flag)| (record.bytes().to_vec(), flag)).collect());
            assert_eq!(found, fits.then(|| made(count).collect::<Vec<_>>()), "{count} records");
        }
    }
}
