//! What is split: the queries, the database, or both.

use serde::{Deserialize, Serialize};

/// Batches of queries for each worker from which on splitting them alone keeps all workers busy to the end.
const BATCHES_PER_WORKER: u64 = 4;
/// Ranges of the database for each worker: the last ones to end are small then.
const RANGES_PER_WORKER: u32 = 8;

/// How a search is cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "split", rename_all = "lowercase")]
pub enum Plan {
    /// Each worker takes whole batches of queries through the whole database.
    Queries,
    /// All workers search each batch, each in other ranges of the database; queries are split when reports are made.
    Database {
        /// How many ranges.
        fragments: u32,
    },
}

/// What a plan depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Ranges that were asked for.
    pub(crate) fragments: Option<u32>,
    pub(crate) workers: u32,
    /// Letters of all queries.
    pub(crate) query_letters: u64,
    /// Letters that the program puts into a batch; 0: that depends on what it finds.
    pub(crate) batch_letters: u64,
}

impl Plan {
    /// Who asks for ranges gets them. Otherwise the database is split where there are too few queries to split alone, and where
    /// batches can only be cut one after another.
    pub(crate) fn choose(known: Circumstances) -> Self {
        let batches = known.query_letters.checked_div(known.batch_letters).unwrap_or(0);
        match known.fragments {
            Some(fragments) => Self::Database { fragments },
            None if batches >= BATCHES_PER_WORKER * u64::from(known.workers) => Self::Queries,
            None => Self::Database { fragments: known.workers * RANGES_PER_WORKER },
        }
    }
}

/// Cuts items into at most `count` runs of about equal weight. Returns where each begins, and the count of items last.
pub(crate) fn cut_by_weight(weights: &[u64], count: usize) -> Vec<usize> {
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
        let few = Circumstances { fragments: None, workers: 2, query_letters: 79_999, batch_letters: 10_000 };
        assert_eq!(Plan::choose(few), Plan::Database { fragments: 16 });
        assert_eq!(Plan::choose(Circumstances { query_letters: 80_000, ..few }), Plan::Queries);
        assert_eq!(
            Plan::choose(Circumstances { query_letters: 80_000, batch_letters: 0, ..few }),
            Plan::Database { fragments: 16 }
        );
        assert_eq!(Plan::choose(Circumstances { fragments: Some(3), ..few }), Plan::Database { fragments: 3 });
    }

    #[test]
    fn runs_have_about_equal_weight_and_cover_everything() {
        assert_eq!(cut_by_weight(&[1, 1, 1, 1], 2), [0, 2, 4]);
        assert_eq!(cut_by_weight(&[100, 1, 1, 1], 2), [0, 1, 4]);
        assert_eq!(cut_by_weight(&[0, 0], 5), [0, 1, 2]);
        assert_eq!(cut_by_weight(&[7], 3), [0, 1]);
    }
}
