//! Decides whether workers divide the queries of a search, or the database.

use serde::{Deserialize, Serialize};

/// Minimum number of batches of queries per worker for splitting the queries: with fewer, some workers are idle at the
/// end, and a search that is killed loses more than a twentieth of its work.
const BATCHES_PER_WORKER: u64 = 20;
/// Number of ranges of the database per worker. With more ranges, workers wait a shorter time for the last range, and a
/// search that is killed loses less.
const RANGES_PER_WORKER: u32 = 16;

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
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanInputs {
    /// Number of database ranges that `--fragments` requests.
    pub(crate) requested_ranges: Option<u32>,
    pub(crate) workers: u32,
    /// Number of letters of all queries.
    pub(crate) query_letters: u64,
    /// Number of letters of queries that the program puts into a batch; 0 if unknown.
    pub(crate) batch_letters: u64,
}

impl SearchPlan {
    /// Chooses a plan. A requested number of ranges is used. Otherwise the queries are split if there are enough
    /// batches of them to keep all workers busy. If there are too few, or the size of a batch is unknown, the database
    /// is split.
    pub(crate) fn choose(inputs: PlanInputs) -> Self {
        let batches = inputs.query_letters.checked_div(inputs.batch_letters).unwrap_or(0);
        match inputs.requested_ranges {
            Some(range_count) => Self::Database { range_count },
            None if batches >= BATCHES_PER_WORKER * u64::from(inputs.workers) => Self::Queries,
            None => Self::Database { range_count: inputs.workers * RANGES_PER_WORKER },
        }
    }
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

    #[test]
    fn many_queries_are_split_and_few_split_the_database() {
        let few = PlanInputs { requested_ranges: None, workers: 2, query_letters: 399_999, batch_letters: 10_000 };
        assert_eq!(SearchPlan::choose(few), SearchPlan::Database { range_count: 32 });
        assert_eq!(SearchPlan::choose(PlanInputs { query_letters: 400_000, ..few }), SearchPlan::Queries);
        assert_eq!(
            SearchPlan::choose(PlanInputs { query_letters: 400_000, batch_letters: 0, ..few }),
            SearchPlan::Database { range_count: 32 }
        );
        assert_eq!(
            SearchPlan::choose(PlanInputs { requested_ranges: Some(3), ..few }),
            SearchPlan::Database { range_count: 3 }
        );
    }

    #[test]
    fn parts_have_about_equal_weight_and_cover_everything() {
        assert_eq!(partition_by_weight(&[1, 1, 1, 1], 2), [0, 2, 4]);
        assert_eq!(partition_by_weight(&[100, 1, 1, 1], 2), [0, 1, 4]);
        assert_eq!(partition_by_weight(&[0, 0], 5), [0, 1, 2]);
        assert_eq!(partition_by_weight(&[7], 3), [0, 1]);
    }
}
