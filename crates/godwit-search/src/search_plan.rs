//! Decides whether workers divide the queries of a search, or the database.

use serde::{Deserialize, Serialize};

/// Minimum number of units of work per worker. A search that is killed loses the unit that each worker has in progress,
/// so it loses a twentieth at most.
pub(crate) const UNITS_PER_WORKER: u32 = 20;
/// Minimum number of batches of queries per worker for splitting the queries: a worker that is killed loses the batch in
/// progress, and one finished report that waits for the reports before it.
const BATCHES_PER_WORKER: u64 = 2 * UNITS_PER_WORKER as u64;
/// The same, if a batch is [`SHORT_BATCH_PAIRS`] or less: with fewer batches, some workers are idle at the end.
const SHORT_BATCHES_PER_WORKER: u64 = 4;
/// Work of a batch that may be lost whatever its share of the search is, pairs of letters: some ten seconds.
const SHORT_BATCH_PAIRS: u64 = 500_000_000_000;
/// Minimum number of ranges per worker if all workers search the same batch, and therefore wait for the last range of
/// each batch.
const RANGES_PER_WORKER: u32 = 8;
/// Minimum work of a range, pairs of letters. The start of a range and its hits cost 1 to 2 ms of CPU time, which is 1 to
/// 2 % of this work. Neighbouring ranges are joined by whole numbers, so that half of this work remains at worst.
const MIN_RANGE_PAIRS: u64 = 5_000_000_000;
/// The same, if the batch changes with each range: the engine then builds the tables of the batch anew, which costs
/// 21 ms of CPU time for 10,000 letters of proteins, 1.5 % of this work.
const MIN_GROUP_RANGE_PAIRS: u64 = 60_000_000_000;

/// The way in which the work of a search is divided among the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "split", rename_all = "lowercase")]
pub enum SearchPlan {
    /// Each worker searches whole batches of queries in the whole database.
    Queries,
    /// All workers search each batch, each in different ranges of the database. Then each worker reports on some of the
    /// queries.
    Database {
        /// Number of ranges of the database.
        #[serde(rename = "fragments")]
        range_count: u32,
    },
}

/// The inputs for choosing a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlanInputs {
    /// Number of database ranges that `--fragments` requests.
    pub(crate) requested_ranges: Option<u32>,
    pub(crate) workers: u32,
    /// Number of letters of all queries.
    pub(crate) query_letters: u64,
    /// Number of letters of queries that the program puts into a batch; 0 if it is unknown or varies.
    pub(crate) batch_letters: u64,
    /// Number of letters of the database; 0 if unknown.
    pub(crate) database_letters: u64,
    /// Number of letters of the queries with which a letter of the database counts as compared, whatever the number of
    /// queries is; `None` for programs that compare it with all letters of a batch.
    pub(crate) fixed_pairs: Option<u64>,
    /// True if the database exceeds the memory: workers then read it once for several batches, and not each of them for
    /// itself.
    pub(crate) exceeds_memory: bool,
    /// Minimum number of ranges, so that a range fits into memory.
    pub(crate) min_ranges: u32,
}

impl SearchPlan {
    /// Chooses a plan. A requested number of ranges is used. Otherwise the queries are split if there are enough
    /// batches of them to keep all workers busy and to lose little if the search is killed. If there are too few, or the
    /// size of a batch is unknown, the database is split.
    pub(crate) fn choose(inputs: PlanInputs) -> Self {
        let workers = inputs.workers.max(1);
        let batches = inputs.query_letters.checked_div(inputs.batch_letters).unwrap_or(0);
        let is_short = inputs.database_letters.saturating_mul(inputs.pairs_per_letter()) <= SHORT_BATCH_PAIRS;
        let enough = if is_short { SHORT_BATCHES_PER_WORKER } else { BATCHES_PER_WORKER };
        match inputs.requested_ranges {
            Some(range_count) => Self::Database { range_count },
            None if !inputs.exceeds_memory && batches >= enough * u64::from(workers) => Self::Queries,
            None => Self::Database { range_count: inputs.range_count() },
        }
    }
}

impl PlanInputs {
    /// Returns the number of letters with which the search of a batch compares each letter of the database.
    fn pairs_per_letter(&self) -> u64 {
        let batch =
            if self.batch_letters == 0 { self.query_letters } else { self.batch_letters.min(self.query_letters) };
        self.fixed_pairs.unwrap_or(batch)
    }

    /// Returns the number of ranges of the database: enough for [`UNITS_PER_WORKER`] pairs of a batch and a range, but
    /// not so many that the start of a range takes more than 3 % of its work.
    fn range_count(&self) -> u32 {
        let workers = self.workers.max(1);
        let batches = self.query_letters.checked_div(self.batch_letters).unwrap_or(1).clamp(1, u64::from(u32::MAX));
        let units = UNITS_PER_WORKER.div_ceil(batches as u32);
        let (per_worker, min_pairs) = if self.exceeds_memory {
            (units, MIN_GROUP_RANGE_PAIRS)
        } else {
            (units.max(RANGES_PER_WORKER), MIN_RANGE_PAIRS)
        };
        let work = self.database_letters.saturating_mul(self.pairs_per_letter());
        let most = if work == 0 { u64::from(u32::MAX) } else { (work / min_pairs).max(u64::from(workers)) };
        let count = u64::from(workers.saturating_mul(per_worker)).min(most);
        (count.min(u64::from(u32::MAX)) as u32).max(self.min_ranges)
    }
}

/// Returns the number of ranges, `count` or a few more, to which neighbours of `available` ranges are joined: all joined
/// ranges but the last have the same number of parts, and none has more than its share of the database.
pub(crate) fn joined_range_count(available: usize, count: u32) -> u32 {
    available.div_ceil((available / count.max(1) as usize).max(1)) as u32
}

/// Joins neighbouring ranges of the database to `count` ranges, a number from [`joined_range_count`]. A range is its first
/// sequence, its end and its number of letters.
pub(crate) fn join_ranges(ranges: &[(u32, u32, u64)], count: u32) -> Vec<(u32, u32, u64)> {
    let parts = ranges.len().div_ceil(count.max(1) as usize).max(1);
    let joined = ranges
        .chunks(parts)
        .filter_map(|parts| Some((parts.first()?.0, parts.last()?.1, parts.iter().map(|(.., letters)| letters).sum())));
    joined.collect()
}

/// Cuts items into at most `count` groups of about equal weight. Returns the start index of each group, then the number
/// of items.
pub(crate) fn partition_by_weight(weights: &[u64], count: usize) -> Vec<usize> {
    let total: u64 = weights.iter().map(|weight| weight + 1).sum();
    let mut cuts = vec![0];
    let mut passed = 0;
    for (index, weight) in weights.iter().enumerate() {
        if cuts.len() < count && index > cuts[cuts.len() - 1] && passed * count as u64 >= total * cuts.len() as u64 {
            cuts.push(index);
        }
        passed += weight + 1;
    }
    cuts.push(weights.len());
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: PlanInputs = PlanInputs {
        requested_ranges: None,
        workers: 2,
        query_letters: 799_999,
        batch_letters: 10_000,
        database_letters: 6_000_000_000,
        fixed_pairs: None,
        exceeds_memory: false,
        min_ranges: 1,
    };

    fn ranges_of(inputs: PlanInputs) -> u32 {
        match SearchPlan::choose(inputs) {
            SearchPlan::Database { range_count } => range_count,
            SearchPlan::Queries => 0,
        }
    }

    #[test]
    fn many_queries_are_split_and_few_split_the_database() {
        assert_eq!(ranges_of(LARGE), 16);
        assert_eq!(SearchPlan::choose(PlanInputs { query_letters: 800_000, ..LARGE }), SearchPlan::Queries);
        assert_eq!(ranges_of(PlanInputs { query_letters: 800_000, exceeds_memory: true, ..LARGE }), 2);
        assert_eq!(ranges_of(PlanInputs { query_letters: 800_000, batch_letters: 0, ..LARGE }), 40);
        assert_eq!(ranges_of(PlanInputs { requested_ranges: Some(3), ..LARGE }), 3);
        let small = PlanInputs { database_letters: 20_000_000, query_letters: 80_000, ..LARGE };
        assert_eq!(SearchPlan::choose(small), SearchPlan::Queries);
    }

    #[test]
    fn a_kill_loses_a_twentieth_of_the_units_at_most() {
        for workers in [1, 2, 7, 64] {
            for batches in [1, 2, 3, 8, 19, 20, 79, 80, 2000] {
                for exceeds_memory in [false, true] {
                    let (query_letters, database_letters) = (10_000 * batches, 100_000_000_000);
                    let inputs = PlanInputs { workers, query_letters, database_letters, exceeds_memory, ..LARGE };
                    // Each worker loses what it has in progress; of reports also one that waits for earlier ones.
                    let (units, lost) = match SearchPlan::choose(inputs) {
                        SearchPlan::Queries => (batches, 2 * u64::from(workers)),
                        SearchPlan::Database { range_count } => (batches * u64::from(range_count), workers.into()),
                    };
                    assert!(20 * lost <= units, "{workers} workers, {batches} batches: {lost} of {units}");
                }
            }
        }
    }

    #[test]
    fn a_range_has_enough_work_for_its_start() {
        let one = PlanInputs { query_letters: 5000, ..LARGE };
        for (database_letters, exceeds_memory, count) in [
            (6_000_000_000, false, 40),
            (6_000_000, false, 6),
            (6_000_000, true, 2),
            (600_000_000, true, 40),
            (20_000, false, 2),
        ] {
            assert_eq!(ranges_of(PlanInputs { database_letters, exceeds_memory, ..one }), count, "{database_letters}");
        }
        assert_eq!(ranges_of(PlanInputs { database_letters: 20_000, min_ranges: 9, ..one }), 9);
        let nucleotides = PlanInputs { fixed_pairs: Some(100), query_letters: 900_000, batch_letters: 0, ..LARGE };
        assert_eq!(ranges_of(PlanInputs { database_letters: 12_000_000, ..nucleotides }), 2);
        assert_eq!(ranges_of(nucleotides), 40);
    }

    #[test]
    fn joined_ranges_cover_the_same_sequences() {
        let ranges = [(0, 5, 10), (5, 9, 10), (9, 12, 10), (12, 13, 11), (13, 20, 1)];
        assert_eq!(joined_range_count(5, 2), 3);
        assert_eq!(join_ranges(&ranges, 3), [(0, 9, 20), (9, 13, 21), (13, 20, 1)]);
        assert_eq!(join_ranges(&ranges, 9), ranges);
        assert_eq!(join_ranges(&ranges, 1), [(0, 20, 42)]);
        for available in 1..90 {
            let ranges = vec![(0, 0, 1); available];
            for count in 1..=available as u32 {
                let joined = joined_range_count(available, count);
                // A resumed search joins to the number of the stopped one.
                assert_eq!(join_ranges(&ranges, joined).len(), joined as usize, "{available} {count}");
                assert!(joined >= count && joined <= 2 * count, "{available} {count}");
            }
        }
        assert_eq!(join_ranges(&[], 3), []);
    }

    #[test]
    fn parts_have_about_equal_weight_and_cover_everything() {
        assert_eq!(partition_by_weight(&[1, 1, 1, 1], 2), [0, 2, 4]);
        assert_eq!(partition_by_weight(&[100, 1, 1, 1], 2), [0, 1, 4]);
        assert_eq!(partition_by_weight(&[0, 0], 5), [0, 1, 2]);
        assert_eq!(partition_by_weight(&[7], 3), [0, 1]);
    }
}
