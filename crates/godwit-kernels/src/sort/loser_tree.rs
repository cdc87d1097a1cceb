//! A loser tree, which merges k sorted sources with one comparison per tree level and item (Knuth, TAOCP vol. 3,
//! §5.4.1).
//!
//! The tree stores only the next key of each source; the caller owns the sources. If keys are equal, the source with
//! the smaller index wins, so that merges are stable.

/// A tournament between the next keys of `k` sorted sources. The key of an exhausted source is `None`.
///
/// # Examples
///
/// ```
/// use godwit_kernels::sort::LoserTree;
///
/// let runs = [vec![999_u32, 5_000], vec![1_291, 1_298]];
/// let mut next = [1, 1];
/// let mut tree = LoserTree::new(runs.iter().map(|run| run.first().copied()).collect());
/// let mut merged: Vec<u32> = Vec::new();
/// while let Some(run) = tree.winner() {
///     merged.extend(tree.advance(runs[run].get(next[run]).copied()));
///     next[run] += 1;
/// }
/// assert_eq!(merged, [999, 1_291, 1_298, 5_000]);
/// ```
pub struct LoserTree<K> {
    keys: Vec<Option<K>>,
    /// `losers[n]` for n >= 1 is the source that lost the match at inner node n; `losers[0]` is the winner of all
    /// matches.
    losers: Vec<usize>,
}

impl<K: Ord> LoserTree<K> {
    /// Creates a tree from the first key of every source; `None` for an empty source.
    pub fn new(keys: Vec<Option<K>>) -> Self {
        let sources = keys.len().max(1);
        let mut tree = Self { keys, losers: vec![usize::MAX; sources] };
        let mut winners = vec![usize::MAX; 2 * sources];
        for (source, winner) in winners[sources..].iter_mut().enumerate() {
            *winner = source;
        }
        for node in (1..sources).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if tree.beats(a, b) { (a, b) } else { (b, a) };
            winners[node] = winner;
            tree.losers[node] = loser;
        }
        tree.losers[0] = if sources == 1 { 0 } else { winners[1] };
        tree
    }

    fn beats(&self, a: usize, b: usize) -> bool {
        match (self.keys.get(a).and_then(Option::as_ref), self.keys.get(b).and_then(Option::as_ref)) {
            (Some(x), Some(y)) => (x, a) < (y, b),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => a < b,
        }
    }

    /// Returns the index of the source with the smallest key, or `None` if all sources are exhausted.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::sort::LoserTree;
    ///
    /// // The third source is exhausted.
    /// let tree = LoserTree::new(vec![Some(1_291), Some(999), None]);
    /// assert_eq!(tree.winner(), Some(1));
    /// ```
    pub fn winner(&self) -> Option<usize> {
        let source = self.losers[0];
        self.keys.get(source)?.as_ref().map(|_| source)
    }

    /// Replaces the key of the winning source with its next key (`None` if the source is exhausted) and determines the
    /// new winner. Returns the replaced key.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::sort::LoserTree;
    ///
    /// let mut tree = LoserTree::new(vec![Some(1_291), Some(999)]);
    /// assert_eq!(tree.advance(Some(5_000)), Some(999));
    /// assert_eq!(tree.advance(None), Some(1_291));
    /// assert_eq!(tree.winner(), Some(1));
    /// ```
    pub fn advance(&mut self, key: Option<K>) -> Option<K> {
        let sources = self.losers.len();
        let mut winner = self.losers[0];
        let won_with = std::mem::replace(self.keys.get_mut(winner)?, key);
        let mut node = (winner + sources) / 2;
        while node >= 1 {
            let rival = self.losers[node];
            if self.beats(rival, winner) {
                self.losers[node] = winner;
                winner = rival;
            }
            node /= 2;
        }
        self.losers[0] = winner;
        won_with
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merge(sources: &[Vec<u8>]) -> Vec<(u8, usize)> {
        let mut next = vec![1; sources.len()];
        let mut tree = LoserTree::new(sources.iter().map(|source| source.first().copied()).collect());
        let mut merged = Vec::new();
        while let Some(source) = tree.winner() {
            merged.push((sources[source][next[source] - 1], source));
            tree.advance(sources[source].get(next[source]).copied());
            next[source] += 1;
        }
        merged
    }

    proptest! {
        #[test]
        fn merging_equals_a_stable_sort(mut sources in prop::collection::vec(prop::collection::vec(0u8..9, 0..12), 0..9)) {
            sources.iter_mut().for_each(|source| source.sort_unstable());
            let mut expected: Vec<(u8, usize)> =
                sources.iter().enumerate().flat_map(|(i, source)| source.iter().map(move |key| (*key, i))).collect();
            expected.sort();
            prop_assert_eq!(merge(&sources), expected);
        }
    }
}
