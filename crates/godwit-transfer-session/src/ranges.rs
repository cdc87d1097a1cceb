//! Sets of numbers, such as block indices, stored as ranges.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A set of numbers, stored as ranges `[start, end)` that neither overlap nor are adjacent.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_transfer_session::ranges::RangeSet;
///
/// let blocks = RangeSet::from(vec![(8, 12), (0, 3), (3, 4)]);
/// assert_eq!(blocks.iter().collect::<Vec<_>>(), [(0, 4), (8, 12)]);
/// assert_eq!(blocks.count(), 8);
/// assert!(blocks.contains(11) && !blocks.contains(12));
/// assert_eq!(serde_json::to_string(&blocks)?, "[[0,4],[8,12]]");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct RangeSet {
    /// End of each range, by its start.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl From<Vec<(u64, u64)>> for RangeSet {
    fn from(ranges: Vec<(u64, u64)>) -> Self {
        let mut set = Self::default();
        for (start, end) in ranges {
            set.insert(start, end);
        }
        set
    }
}

impl From<RangeSet> for Vec<(u64, u64)> {
    fn from(set: RangeSet) -> Self {
        set.iter().collect()
    }
}

impl RangeSet {
    /// Returns a set of the numbers in `[start, end)`.
    pub fn from_range(start: u64, end: u64) -> Self {
        Self::from(vec![(start, end)])
    }

    /// Returns the number of elements of the set.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Reports whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, end)| (*start, *end))
    }

    /// Reports whether a number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// Inserts the numbers in `[start, end)`; some of them may already be in the set.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_transfer_session::ranges::RangeSet;
    ///
    /// let mut written = RangeSet::from_range(0, 4);
    /// written.insert(6, 8);
    /// written.insert(3, 6);
    /// assert_eq!(written, RangeSet::from_range(0, 8));
    /// ```
    pub fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((&found, &found_end)) = self.ranges.range(..=end).next_back() {
            if found_end < start {
                break;
            }
            self.ranges.remove(&found);
            self.count -= found_end - found;
            (start, end) = (start.min(found), end.max(found_end));
        }
        self.ranges.insert(start, end);
        self.count += end - start;
    }

    /// Removes the numbers in `[start, end)`; some of them may be absent.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_transfer_session::ranges::RangeSet;
    ///
    /// let mut missing = RangeSet::from_range(0, 10);
    /// missing.remove(4, 6);
    /// assert_eq!(missing.iter().collect::<Vec<_>>(), [(0, 4), (6, 10)]);
    /// ```
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((&found, &found_end)) = self.ranges.range(..end).next_back() {
            if found_end <= start {
                break;
            }
            self.ranges.remove(&found);
            self.count -= found_end - found;
            for (from, to) in [(found, start), (end, found_end)] {
                if from < to {
                    self.ranges.insert(from, to);
                    self.count += to - from;
                }
            }
        }
    }

    /// Removes and returns a range from the start of the set: the first number and those directly after it, at most
    /// `limit` numbers.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_transfer_session::ranges::RangeSet;
    ///
    /// let mut unrequested = RangeSet::from(vec![(0, 6), (8, 9)]);
    /// assert_eq!(unrequested.take_first(4), Some((0, 4)));
    /// assert_eq!(unrequested.take_first(4), Some((4, 6)));
    /// assert_eq!(unrequested.take_first(4), Some((8, 9)));
    /// assert_eq!(unrequested.take_first(4), None);
    /// ```
    pub fn take_first(&mut self, limit: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.ranges.first_key_value()?;
        let end = end.min(start + limit.max(1));
        self.remove(start, end);
        Some((start, end))
    }

    /// Returns the numbers below `limit` that are not in the set.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_transfer_session::ranges::RangeSet;
    ///
    /// let written = RangeSet::from(vec![(0, 3), (5, 8)]);
    /// assert_eq!(written.gaps(10), RangeSet::from(vec![(3, 5), (8, 10)]));
    /// ```
    pub fn gaps(&self, limit: u64) -> Self {
        let mut gaps = Self::from_range(0, limit);
        for (start, end) in self.iter() {
            gaps.remove(start, end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_range_set_is_the_set_of_its_numbers(
            steps in proptest::collection::vec((0u8..3, 0u64..60, 0u64..20), 0..60)
        ) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (kind, start, length) in steps {
                match kind {
                    0 => {
                        set.insert(start, start + length);
                        model.extend(start..start + length);
                    }
                    1 => {
                        set.remove(start, start + length);
                        model.retain(|number| !(start..start + length).contains(number));
                    }
                    _ => {
                        let taken = set.take_first(length);
                        let first = model.first().copied();
                        prop_assert_eq!(taken.map(|taken| taken.0), first);
                        if let Some((from, to)) = taken {
                            prop_assert!(to - from <= length.max(1));
                            for number in from..to {
                                prop_assert!(model.remove(&number));
                            }
                        }
                    }
                }
                let numbers: Vec<u64> = set.iter().flat_map(|(start, end)| start..end).collect();
                prop_assert_eq!(&numbers, &model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.count(), model.len() as u64);
                prop_assert!((0..90).all(|number| set.contains(number) == model.contains(&number)));
                prop_assert!(set.iter().zip(set.iter().skip(1)).all(|(one, next)| one.1 < next.0));
                let gaps = set.gaps(90);
                prop_assert!((0..90).all(|number| gaps.contains(number) != model.contains(&number)));
                let text = serde_json::to_string(&set).unwrap();
                prop_assert_eq!(serde_json::from_str::<RangeSet>(&text).unwrap(), set.clone());
            }
        }
    }
}
