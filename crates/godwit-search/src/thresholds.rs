//! Which subjects cannot get into the list of a query any more, whatever is still found.
//!
//! The preliminary search keeps a limited number of subjects for each query, those of the least e-values. Where as many were found as a list
//! holds, a subject that is worse than all of them is dropped by whoever finds it, instead of being sent to an owner whose list drops it. The
//! e-value it is held against is never less than that of the last subject of the list in one pass: it is that of
//! a part of the database.

use std::collections::{BTreeMap, BinaryHeap};

use crate::protocol::{Fields, Request};

/// Bytes of a HSP (`worker/hits.cpp`).
const HSP_BYTES: usize = 66;
/// A dropped subject is worse by this factor. The engine takes e-values for equal that differ by less than a millionth, and its list,
/// a heap with at most some ten levels, may then keep any of them; a difference like this one it sees whatever came before.
const LEEWAY: f64 = 1.1;
/// Below 1e-180 the engine takes all e-values for equal.
const LEAST: f64 = 1e-170;

/// Of each query, the best subjects so far.
#[derive(Debug, Default)]
pub(crate) struct Thresholds {
    /// Subjects that a list holds; `None` where that is not known, or hits are kept in another way.
    most: Option<usize>,
    /// E-values as bits, which for numbers that are not negative have the same order. The worst one first.
    best: BTreeMap<u32, BinaryHeap<u64>>,
}

impl Thresholds {
    /// Takes the lists of a range, as bytes. `most`: how many a query's list holds, 0 where that says nothing.
    pub(crate) fn add(&mut self, hits: &[Vec<u8>], most: u32) {
        if most > 0 {
            self.most = Some(most as usize);
        }
        for hits in hits {
            let mut fields = Fields::new(hits);
            while let Some((query, evalue)) = next_list(&mut fields) {
                let best = self.best.entry(query).or_default();
                best.push(evalue.max(0.0).to_bits());
                if self.most.is_some_and(|most| best.len() > most) {
                    best.pop();
                }
            }
        }
    }

    /// Appends to a request: how many queries have full lists, and each with the e-value above which a subject is dropped.
    pub(crate) fn put(&mut self, request: Request) -> Request {
        let Some(most) = self.most else { return request.u32(0) };
        let full = self.best.iter_mut().filter_map(|(query, best)| {
            while best.len() > most {
                best.pop();
            }
            let worst = best.peek().filter(|_| best.len() == most)?;
            Some((*query, (f64::from_bits(*worst) * LEEWAY).max(LEAST)))
        });
        let full: Vec<(u32, f64)> = full.collect();
        let request = request.u32(full.len() as u32);
        full.into_iter().fold(request, |request, (query, evalue)| request.u32(query).f64(evalue))
    }
}

/// Query and best e-value of the next list; `None` at the end, and where there is none, of which the owner will complain.
fn next_list(fields: &mut Fields<'_>) -> Option<(u32, f64)> {
    let (_chunk, _subject, query) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let evalue = fields.f64()?;
    let hsps = fields.u32()? as usize;
    fields.skip(hsps.checked_mul(HSP_BYTES)?)?;
    Some((query, evalue))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: u32, evalue: f64, hsps: usize) -> Vec<u8> {
        let head = Request::new(b'H').u32(0).u32(9).u32(query).f64(evalue).u32(hsps as u32).body();
        [head, vec![7; hsps * HSP_BYTES]].concat()
    }

    fn told(thresholds: &mut Thresholds) -> Vec<(u32, f64)> {
        let body = thresholds.put(Request::new(b'R')).body();
        let mut fields = Fields::new(&body);
        let count = fields.u32().unwrap();
        let told = (0..count).map(|_| (fields.u32().unwrap(), fields.f64().unwrap())).collect();
        assert!(fields.is_empty());
        told
    }

    #[test]
    fn only_full_lists_drop_and_by_their_worst() {
        let mut thresholds = Thresholds::default();
        // What is known of earlier searches comes without a word about how much a list holds.
        thresholds.add(&[[list(3, 4.0, 2), list(5, 1.0, 1)].concat(), list(3, 2.0, 0)], 0);
        assert_eq!(told(&mut thresholds), vec![]);
        thresholds.add(&[list(3, 8.0, 1)], 2);
        assert_eq!(told(&mut thresholds), vec![(3, 4.0 * LEEWAY)]);
        thresholds.add(&[list(3, 1e-200, 1), list(3, 0.0, 1), list(5, 50.0, 1)], 2);
        assert_eq!(told(&mut thresholds), vec![(3, LEAST), (5, 50.0 * LEEWAY)]);
    }

    #[test]
    fn what_is_no_list_ends_it() {
        let mut thresholds = Thresholds::default();
        let cut = list(0, 1.0, 3);
        thresholds.add(&[cut[..cut.len() - 1].to_vec(), vec![1, 2, 3]], 1);
        assert_eq!(told(&mut thresholds), vec![]);
    }
}
