//! Decides whether to split the queries, the database, or both.

use serde::{Deserialize, Serialize};

/// Minimum number of batches of queries per worker with which splitting the queries alone keeps all workers busy to the end.
const BATCHES_PER_WORKER: u64 = 4;
/// Number of ranges of the database per worker: enough that the last ones are short.
const RANGES_PER_WORKER: u32 = 8;

/// The plan of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "split", rename_all = "lowercase")]
pub enum SearchPlan {
    /// Each worker takes whole batches of queries through the whole database.
    Queries,
    /// All workers search each batch, each in other ranges of the database; the queries are split among owners for the reports.
    Database {
        /// Number of ranges.
        #[serde(rename = "fragments")]
        range_count: u32,
    },
}

/// The inputs of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanInputs {
    /// Number of ranges that the user requested.
    pub(crate) requested_ranges: Option<u32>,
    pub(crate) workers: u32,
    /// Number of letters of all queries.
    pub(crate) query_letters: u64,
    /// Number of letters that the program puts into a batch; 0 if that depends on its results.
    pub(crate) batch_letters: u64,
}

impl SearchPlan {
    /// Chooses a plan. A requested number of ranges is used. Otherwise the database is split if there are too few queries to
    /// split them alone, or if batches can only be formed one after another.
    pub(crate) fn choose(inputs: PlanInputs) -> Self {
        let batches = inputs.query_letters.checked_div(inputs.batch_letters).unwrap_or(0);
        match inputs.requested_ranges {
            Some(range_count) => Self::Database { range_count },
            None if batches >= BATCHES_PER_WORKER * u64::from(inputs.workers) => Self::Queries,
            None => Self::Database { range_count: inputs.workers * RANGES_PER_WORKER },
        }
    }
}

/// Cuts items into at most `count` groups of about equal weight. Returns the start of each, and the number of items last.
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
        let few = PlanInputs { requested_ranges: None, workers: 2, query_letters: 79_999, batch_letters: 10_000 };
        assert_eq!(SearchPlan::choose(few), SearchPlan::Database { range_count: 16 });
        assert_eq!(SearchPlan::choose(PlanInputs { query_letters: 80_000, ..few }), SearchPlan::Queries);
        assert_eq!(
            SearchPlan::choose(PlanInputs { query_letters: 80_000, batch_letters: 0, ..few }),
            SearchPlan::Database { range_count: 16 }
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
