//! Detection of optical duplicates within one duplicate set, with the rules of Picard 3.4.0 `OpticalDuplicateFinder`.

use std::collections::HashMap;

use godwit_model::{Orientation, ReadLocation};

use super::sort_items::PairItem;

/// Maximum number of pairs of a set that is searched for optical duplicates (`MAX_OPTICAL_DUPLICATE_SET_SIZE` of
/// Picard).
const MAX_SET_PAIRS: usize = 300_000;
/// Minimum number of pairs of a set that is searched by clustering, where a chain of neighbours is one cluster. Smaller
/// sets are searched pair by pair.
const MIN_CLUSTERED_SET_PAIRS: usize = 4;

/// Returns the number of optical duplicates in a set of duplicate pairs. `keeper` is the index of the pair that is not
/// marked as a duplicate. `on_optical` is called with the index of every optical duplicate.
///
/// Pairs whose reads 1 have opposite strands (FR and RF in the order read 1, read 2) are searched separately.
pub(super) fn optical_duplicates<P: PairItem>(
    set: &[P],
    keeper: usize,
    distance: i32,
    mut on_optical: Option<&mut dyn FnMut(usize)>,
) -> u64 {
    let is = |pair: &P, orientation: Orientation| pair.signature().optical_orientation() == orientation as u16;
    let mixed = set.iter().any(|p| is(p, Orientation::FR)) && set.iter().any(|p| is(p, Orientation::RF));
    if !mixed {
        return search_subset(set, Some(keeper), distance, &mut on_optical);
    }
    let mut count = 0;
    for orientation in [Orientation::FR, Orientation::RF] {
        let indices: Vec<usize> = (0..set.len()).filter(|i| is(&set[*i], orientation)).collect();
        let part: Vec<P> = indices.iter().map(|i| set[*i]).collect();
        let keeper = indices.iter().position(|i| *i == keeper);
        count += match &mut on_optical {
            Some(each) => search_subset(&part, keeper, distance, &mut Some(&mut |index| each(indices[index]))),
            None => search_subset(&part, keeper, distance, &mut None),
        };
    }
    count
}

/// An optional callback for the indices of optical duplicates.
type IndexCallback<'e> = Option<&'e mut dyn FnMut(usize)>;

/// Searches a subset of pairs that have the same orientation. `keeper` is the index of the keeper if the subset
/// contains it.
fn search_subset<P: PairItem>(part: &[P], keeper: Option<usize>, distance: i32, on_optical: &mut IndexCallback) -> u64 {
    if part.len() < 2 || part.len() > MAX_SET_PAIRS {
        return 0;
    }
    let keeper = keeper.filter(|index| part[*index].signature().location.is_known());
    if part.len() < MIN_CLUSTERED_SET_PAIRS {
        search_pairwise(part, keeper, distance, on_optical)
    } else {
        search_clustered(part, keeper, distance, on_optical)
    }
}

/// Searches two or three pairs. Each pair near the keeper counts. Then, of any two remaining pairs that are near each
/// other, one counts.
fn search_pairwise<P: PairItem>(
    part: &[P],
    keeper: Option<usize>,
    distance: i32,
    on_optical: &mut IndexCallback,
) -> u64 {
    let is_optical_pair = |a: usize, b: usize| {
        let (one, two) = (part[a].signature(), part[b].signature());
        a != b
            && one.location.is_known()
            && two.location.is_known()
            && one.read_group == two.read_group
            && one.location.tile == two.location.tile
            && is_within_distance(one.location, two.location, distance)
    };
    let mut optical = [false; MIN_CLUSTERED_SET_PAIRS];
    if let Some(keeper) = keeper {
        (0..part.len()).for_each(|other| optical[other] = is_optical_pair(keeper, other));
    }
    let others: Vec<usize> = (0..part.len()).filter(|index| Some(*index) != keeper).collect();
    for (at, a) in others.iter().copied().enumerate() {
        for b in others[at + 1..].iter().copied() {
            if !(optical[a] && optical[b]) && is_optical_pair(a, b) {
                optical[if optical[b] { a } else { b }] = true;
            }
        }
    }
    if let Some(each) = on_optical {
        (0..part.len()).filter(|index| optical[*index]).for_each(&mut **each);
    }
    optical.iter().filter(|flag| **flag).count() as u64
}

/// Searches four or more pairs. Neighbours, and neighbours of neighbours, form a cluster. All pairs of a cluster except
/// one are optical duplicates.
fn search_clustered<P: PairItem>(
    part: &[P],
    keeper: Option<usize>,
    distance: i32,
    on_optical: &mut IndexCallback,
) -> u64 {
    let mut groups: HashMap<(u16, i16), Vec<usize>> = HashMap::new();
    for (index, item) in part.iter().enumerate() {
        let pair = item.signature();
        if pair.location.is_known() {
            groups.entry((pair.read_group, pair.location.tile)).or_default().push(index);
        }
    }
    groups.into_values().map(|group| search_tile(part, group, keeper, distance, on_optical)).sum()
}

/// Returns the number of optical duplicates on one tile, which equals the number of times that two clusters were
/// united.
///
/// Pairs are sorted by x, so that a pair is compared only with pairs within `distance` in x.
fn search_tile<P: PairItem>(
    part: &[P],
    mut group: Vec<usize>,
    keeper: Option<usize>,
    distance: i32,
    on_optical: &mut IndexCallback,
) -> u64 {
    let location = |index: usize| part[index].signature().location;
    group.sort_unstable_by_key(|index| location(*index).x);
    let mut clusters: Vec<usize> = (0..group.len()).collect();
    let mut unions = 0;
    for a in 0..group.len() {
        let one = location(group[a]);
        for (b, other) in group.iter().enumerate().skip(a + 1) {
            let two = location(*other);
            if i32::from(two.x) - i32::from(one.x) > distance {
                break;
            }
            if is_within_distance(one, two, distance) {
                let (root_a, root_b) = (cluster_root(&mut clusters, a), cluster_root(&mut clusters, b));
                unions += u64::from(root_a != root_b);
                clusters[root_b] = root_a;
            }
        }
    }
    if let Some(each) = on_optical {
        // The keeper is not an optical duplicate. In a cluster without the keeper, the pair with the smallest x, then
        // the smallest y is not one. Then the order of Picard decides: that of a Java `HashMap` of the indices.
        let rank = |index: usize| {
            let place = location(index);
            (Some(index) != keeper, place.x, place.y, index ^ index >> 16)
        };
        let mut best: HashMap<usize, usize> = HashMap::new();
        for (at, index) in group.iter().copied().enumerate() {
            let first = best.entry(cluster_root(&mut clusters, at)).or_insert(index);
            if rank(index) < rank(*first) {
                *first = index;
            }
        }
        for (at, index) in group.iter().copied().enumerate() {
            if best[&cluster_root(&mut clusters, at)] != index {
                each(index);
            }
        }
    }
    unions
}

fn cluster_root(clusters: &mut [usize], mut node: usize) -> usize {
    while clusters[node] != node {
        clusters[node] = clusters[clusters[node]];
        node = clusters[node];
    }
    node
}

fn is_within_distance(a: ReadLocation, b: ReadLocation, distance: i32) -> bool {
    (i32::from(a.x) - i32::from(b.x)).abs() <= distance && (i32::from(a.y) - i32::from(b.y)).abs() <= distance
}
