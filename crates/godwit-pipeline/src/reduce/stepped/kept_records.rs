//! Records of a partition in memory, as they were aligned and in their order, while a function looks at the table that was made of them.
//!
//! Flows in: each record that is in the table, with its FLAG. Flows out: the same once more, or nothing, where they are more than
//! fit: then whoever wants them merges the runs again.

use godwit_model::RawRecord;

/// Before each record: its bytes, and its FLAG.
const HEAD_BYTES: usize = 6;

/// Records up to a limit.
pub(super) struct KeptRecords {
    bytes: Vec<u8>,
    limit_bytes: usize,
    /// Whether there were more.
    is_over: bool,
}

impl KeptRecords {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { bytes: Vec::new(), limit_bytes, is_over: false }
    }

    /// Without records; room for as many is kept.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.is_over = false;
    }

    /// Keeps a record whose FLAG is to be `flag`, unless there are too many by now.
    #[inline]
    pub(super) fn push(&mut self, record: RawRecord, flag: u16) {
        if self.is_over {
            return;
        }
        let record = record.bytes();
        if self.bytes.len() + HEAD_BYTES + record.len() > self.limit_bytes {
            // What is of no use any more gives its memory back.
            (self.bytes, self.is_over) = (Vec::new(), true);
            return;
        }
        self.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&flag.to_le_bytes());
        self.bytes.extend_from_slice(record);
    }

    /// All records with their FLAGs; `None` where they were too many.
    pub(super) fn all(&self) -> Option<impl Iterator<Item = (RawRecord<'_>, u16)>> {
        let mut rest = &self.bytes[..];
        let next = move || {
            let (bytes, behind) = rest.split_first_chunk::<4>()?;
            let (flag, behind) = behind.split_first_chunk::<2>()?;
            let (record, behind) = behind.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
            rest = behind;
            Some((RawRecord::trusted(record), u16::from_le_bytes(*flag)))
        };
        (!self.is_over).then(|| std::iter::from_fn(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_unless_they_are_too_many() {
        let made = |count: u8| (0..count).map(|at| (vec![at; 40 + usize::from(at) % 3], u16::from(at) << 4));
        let mut kept = KeptRecords::new(10 * (HEAD_BYTES + 42));
        for (count, fits) in [(0, true), (9, true), (10, true), (11, false), (10, true)] {
            kept.clear();
            made(count).for_each(|(record, flag)| kept.push(RawRecord::trusted(&record), flag));
            let found = kept.all().map(|all| all.map(|(record, flag)| (record.bytes().to_vec(), flag)).collect());
            assert_eq!(found, fits.then(|| made(count).collect::<Vec<_>>()), "{count} records");
        }
    }
}
