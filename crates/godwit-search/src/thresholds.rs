//! E-value thresholds above which a subject can no longer enter the list of a query.
//!
//! The preliminary search keeps a limited number of subjects for each query, those with the lowest e-values. If the
//! list of a query is full, a worker drops each subject that is worse than the whole list. The owner of the query would
//! drop it too. The threshold comes from the ranges searched so far, so it is never lower than the worst e-value of the
//! list in a search of the whole database.

use std::collections::{BTreeMap, BinaryHeap};

use crate::worker_protocol::{FieldReader, ProtocolFrame};

/// Size in bytes of a high-scoring segment pair (HSP) in the format of `worker/hits.cpp`.
const HSP_BYTES: usize = 66;
/// Factor between the worst e-value of a full list and the threshold. The engine treats e-values that differ by less
/// than a millionth as equal, and may keep any of them. It always distinguishes e-values that differ by this factor.
const EVALUE_LEEWAY_FACTOR: f64 = 1.1;
/// Minimum threshold: the engine treats all e-values below 1e-180 as equal, and this value is safely above that.
const MIN_EVALUE_THRESHOLD: f64 = 1e-170;

/// The best e-values found so far for each query.
#[derive(Debug, Default)]
pub(crate) struct EvalueThresholds {
    /// Maximum number of subjects in the list of a query; `None` if the workers have not reported it.
    list_capacity: Option<usize>,
    /// For each query, a heap of e-values with the worst at the top. The bits of non-negative floats sort as the floats
    /// do.
    best_evalues: BTreeMap<u32, BinaryHeap<u64>>,
}

impl EvalueThresholds {
    /// Adds the serialized hits of a range. `most` is the maximum number of subjects in the list of a query, 0 if
    /// unknown.
    pub(crate) fn add_hits(&mut self, hits: &[Vec<u8>], most: u32) {
        if most > 0 {
            self.list_capacity = Some(most as usize);
        }
        for hits in hits {
            let mut fields = FieldReader::new(hits);
            while let Some((query, evalue)) = read_list_header(&mut fields) {
                let best = self.best_evalues.entry(query).or_default();
                best.push(evalue.max(0.0).to_bits());
                if self.list_capacity.is_some_and(|most| best.len() > most) {
                    best.pop();
                }
            }
        }
    }

    /// Returns the number of subjects in the lists of all queries when the whole database is searched, if the ranges so
    /// far are this share of it, 0 to 1.
    pub(crate) fn expected_subjects(&self, share: f64) -> f64 {
        let most = self.list_capacity.map_or(f64::INFINITY, |most| most as f64);
        self.best_evalues.values().map(|best| (best.len() as f64 / share.max(1e-12)).min(most)).sum()
    }

    /// Appends the number of queries with full lists to a request, and for each of these queries its index and its
    /// threshold.
    pub(crate) fn append_to(&mut self, request: ProtocolFrame) -> ProtocolFrame {
        let Some(most) = self.list_capacity else { return request.with_u32(0) };
        let full = self.best_evalues.iter_mut().filter_map(|(query, best)| {
            while best.len() > most {
                best.pop();
            }
            let worst = best.peek().filter(|_| best.len() == most)?;
            Some((*query, (f64::from_bits(*worst) * EVALUE_LEEWAY_FACTOR).max(MIN_EVALUE_THRESHOLD)))
        });
        let full: Vec<(u32, f64)> = full.collect();
        let request = request.with_u32(full.len() as u32);
        full.into_iter().fold(request, |request, (query, evalue)| request.with_u32(query).with_f64(evalue))
    }
}

/// Reads the query number and the best e-value of the next list of HSPs. Returns `None` at the end, and for an invalid
/// list; the owner of the query reports an invalid list as an error.
fn read_list_header(fields: &mut FieldReader<'_>) -> Option<(u32, f64)> {
    let (_chunk, _subject, query) = (fields.read_u32()?, fields.read_u32()?, fields.read_u32()?);
    let evalue = fields.read_f64()?;
    let hsps = fields.read_u32()? as usize;
    fields.skip(hsps.checked_mul(HSP_BYTES)?)?;
    Some((query, evalue))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: u32, evalue: f64, hsps: usize) -> Vec<u8> {
        let head = ProtocolFrame::new(b'H')
            .with_u32(0)
            .with_u32(9)
            .with_u32(query)
            .with_f64(evalue)
            .with_u32(hsps as u32)
            .into_body();
        [head, vec![7; hsps * HSP_BYTES]].concat()
    }

    fn sent_thresholds(thresholds: &mut EvalueThresholds) -> Vec<(u32, f64)> {
        let body = thresholds.append_to(ProtocolFrame::new(b'R')).into_body();
        let mut fields = FieldReader::new(&body);
        let count = fields.read_u32().unwrap();
        let received = (0..count).map(|_| (fields.read_u32().unwrap(), fields.read_f64().unwrap())).collect();
        assert!(fields.is_empty());
        received
    }

    #[test]
    fn only_full_lists_drop_and_by_their_worst() {
        let mut thresholds = EvalueThresholds::default();
        // Hits from the checkpoint of an earlier search are added with 0 (unknown) as the maximum list length.
        thresholds.add_hits(&[[list(3, 4.0, 2), list(5, 1.0, 1)].concat(), list(3, 2.0, 0)], 0);
        assert_eq!(sent_thresholds(&mut thresholds), vec![]);
        thresholds.add_hits(&[list(3, 8.0, 1)], 2);
        assert_eq!(sent_thresholds(&mut thresholds), vec![(3, 4.0 * EVALUE_LEEWAY_FACTOR)]);
        thresholds.add_hits(&[list(3, 1e-200, 1), list(3, 0.0, 1), list(5, 50.0, 1)], 2);
        assert_eq!(sent_thresholds(&mut thresholds), vec![(3, MIN_EVALUE_THRESHOLD), (5, 50.0 * EVALUE_LEEWAY_FACTOR)]);
    }

    #[test]
    fn the_expected_number_of_subjects_ends_at_the_capacity_of_the_list() {
        let mut thresholds = EvalueThresholds::default();
        thresholds.add_hits(&[[list(3, 4.0, 2), list(5, 1.0, 1)].concat(), list(3, 2.0, 0)], 0);
        assert_eq!(thresholds.expected_subjects(0.25), 12.0);
        thresholds.add_hits(&[Vec::new()], 6);
        assert_eq!(thresholds.expected_subjects(0.25), 10.0);
    }

    #[test]
    fn what_is_no_list_ends_it() {
        let mut thresholds = EvalueThresholds::default();
        let cut = list(0, 1.0, 3);
        thresholds.add_hits(&[cut[..cut.len() - 1].to_vec(), vec![1, 2, 3]], 1);
        assert_eq!(sent_thresholds(&mut thresholds), vec![]);
    }
}
