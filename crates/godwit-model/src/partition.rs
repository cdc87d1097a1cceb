//! Partitions of the genome. The records of each partition are sorted, duplicate-marked and written independently of
//! other partitions.

use crate::SortKey;

/// The partition borders of a genome. Partition `i` holds the records with sort keys in `[starts[i], starts[i + 1])`.
/// The first partition starts at the smallest key; the last partition holds only the records without a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionPlan {
    starts: Vec<SortKey>,
}

impl PartitionPlan {
    /// Creates a plan of at most `partitions` partitions for records with a position, and one partition for records
    /// without a position. Each of the former has about the same number of sampled records.
    ///
    /// `sorted_sample` holds sort keys in ascending order, usually the keys of a job's first block. Borders are always
    /// between two positions. The records of one position therefore stay in one partition, and the plan may have fewer
    /// partitions.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::{PartitionPlan, SortKey};
    ///
    /// let sample: Vec<SortKey> = (0..100).map(|read| SortKey::new(0, 1_000 * read, false)).collect();
    /// let plan = PartitionPlan::from_sample(&sample, 4);
    /// assert_eq!(plan.partition_count(), 5);
    /// assert_eq!(plan.starts()[1], SortKey::new(0, 25_000, false));
    /// ```
    pub fn from_sample(sorted_sample: &[SortKey], partitions: u32) -> Self {
        let mapped = &sorted_sample[..sorted_sample.partition_point(|key| *key < SortKey::UNPLACED)];
        let partitions = partitions.max(1) as usize;
        let mut starts = vec![SortKey::MIN];
        for cut in 1..partitions {
            let Some(key) = mapped.get(mapped.len() * cut / partitions) else { break };
            let start = key.forward_strand();
            if start > starts[starts.len() - 1] {
                starts.push(start);
            }
        }
        starts.push(SortKey::UNPLACED);
        Self { starts }
    }

    /// Creates a plan from keys that [`PartitionPlan::starts`] returned earlier; returns `None` if the keys do not form
    /// a valid plan.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::{PartitionPlan, SortKey};
    ///
    /// let starts = vec![SortKey::MIN, SortKey::new(1, 0, false), SortKey::UNPLACED];
    /// let plan = PartitionPlan::from_starts(starts.clone()).unwrap();
    /// assert_eq!(plan.starts(), starts);
    /// // The partition of records without a position is missing.
    /// assert_eq!(PartitionPlan::from_starts(starts[..2].to_vec()), None);
    /// ```
    pub fn from_starts(starts: Vec<SortKey>) -> Option<Self> {
        let ascending = starts.windows(2).all(|pair| pair[0] < pair[1]);
        let starts_at_first_key = starts.len() > 1 && starts.first() == Some(&SortKey::MIN);
        (ascending && starts_at_first_key && starts.last() == Some(&SortKey::UNPLACED)).then_some(Self { starts })
    }

    /// Returns the number of partitions, including the partition of records without a position.
    pub fn partition_count(&self) -> usize {
        self.starts.len()
    }

    /// Returns the smallest sort key of each partition, in ascending order.
    pub fn starts(&self) -> &[SortKey] {
        &self.starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the index of the partition that holds the records with this sort key.
    fn partition_of(plan: &PartitionPlan, key: SortKey) -> usize {
        plan.starts.partition_point(|start| *start <= key) - 1
    }

    #[test]
    fn unplaced_records_are_alone_in_the_last_partition() {
        let keys: Vec<SortKey> = (0..100).map(|position| SortKey::new(0, position, false)).collect();
        let plan = PartitionPlan::from_sample(&keys, 4);
        assert_eq!(plan.partition_count(), 5);
        assert_eq!(partition_of(&plan, SortKey::new(-1, -1, false)), 4);
        assert_eq!(partition_of(&plan, SortKey::new(9, 0, false)), 3);
        assert_eq!(partition_of(&plan, SortKey::MIN), 0);
        assert_eq!(PartitionPlan::from_starts(plan.starts().to_vec()).as_ref(), Some(&plan));
        assert_eq!(PartitionPlan::from_starts(plan.starts()[1..].to_vec()), None);
    }

    #[test]
    fn both_strands_of_a_position_share_a_partition() {
        let keys: Vec<SortKey> = (0..64).flat_map(|p| [SortKey::new(0, p, false), SortKey::new(0, p, true)]).collect();
        let plan = PartitionPlan::from_sample(&keys, 7);
        for position in 0..64 {
            let strand = |reverse| partition_of(&plan, SortKey::new(0, position, reverse));
            assert_eq!(strand(false), strand(true));
        }
    }

    #[test]
    fn one_deep_position_is_not_cut() {
        let keys = vec![SortKey::new(3, 7, false); 1000];
        assert_eq!(PartitionPlan::from_sample(&keys, 128).partition_count(), 3);
        assert_eq!(PartitionPlan::from_sample(&[], 128).partition_count(), 2);
    }
}
