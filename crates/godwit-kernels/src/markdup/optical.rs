//! Optical duplicates within one duplicate set, as Picard 3.4.0 `OpticalDuplicateFinder` finds them.

use std::collections::HashMap;

use godwit_model::{Orientation, ReadLocation};

use super::item::Pair;

/// Sets larger than this are not searched (Picard's `MAX_OPTICAL_DUPLICATE_SET_SIZE`).
const MAX_SET_PAIRS: usize = 300_000;
/// From this size on, sets are clustered: chains of neighbours count as one cluster.
const CLUSTERED_SET_PAIRS: usize = 4;

/// Number of optical duplicates in a set of duplicate pairs, of which `keeper` is the index of the one that is kept.
/// `each`: gets the index of every one of them where it is asked for.
///
/// Pairs sequenced in opposite directions (FR and RF in read 1, read 2 order) are searched apart.
pub(super) fn optical_duplicates<P: Pair>(
    set: &[P],
    keeper: usize,
    distance: i32,
    mut each: Option<&mut dyn FnMut(usize)>,
) -> u64 {
    let is = |pair: &P, orientation: Orientation| pair.signature().optical_orientation() == orientation as u16;
    let mixed = set.iter().any(|p| is(p, Orientation::FR)) && set.iter().any(|p| is(p, Orientation::RF));
    if !mixed {
        return search_part(set, Some(keeper), distance, &mut each);
    }
    let mut count = 0;
    for orientation in [Orientation::FR, Orientation::RF] {
        let indices: Vec<usize> = (0..set.len()).filter(|i| is(&set[*i], orientation)).collect();
        let part: Vec<P> = indices.iter().map(|i| set[*i]).collect();
        let keeper = indices.iter().position(|i| *i == keeper);
        count += match &mut each {
            Some(each) => search_part(&part, keeper, distance, &mut Some(&mut |index| each(indices[index]))),
            None => search_part(&part, keeper, distance, &mut None),
        };
    }
    count
}

/// Takes indices of optical duplicates, where somebody wants them.
type Each<'e> = Option<&'e mut dyn FnMut(usize)>;

/// `keeper`: its index, where it is in this part.
fn search_part<P: Pair>(part: &[P], keeper: Option<usize>, distance: i32, each: &mut Each) -> u64 {
    if part.len() < 2 || part.len() > MAX_SET_PAIRS {
        return 0;
    }
    let keeper = keeper.filter(|index| part[*index].signature().location.is_known());
    if part.len() < CLUSTERED_SET_PAIRS {
        search_pairwise(part, keeper, distance, each)
    } else {
        search_clustered(part, keeper, distance, each)
    }
}

/// Two or three pairs: each that lies near the keeper, then one of every two others that lie near each other.
fn search_pairwise<P: Pair>(part: &[P], keeper: Option<usize>, distance: i32, each: &mut Each) -> u64 {
    let close = |a: usize, b: usize| {
        let (one, two) = (part[a].signature(), part[b].signature());
        a != b
            && one.location.is_known()
            && two.location.is_known()
            && one.read_group == two.read_group
            && one.location.tile == two.location.tile
            && near(one.location, two.location, distance)
    };
    let mut optical = [false; CLUSTERED_SET_PAIRS];
    if let Some(keeper) = keeper {
        (0..part.len()).for_each(|other| optical[other] = close(keeper, other));
    }
    let others: Vec<usize> = (0..part.len()).filter(|index| Some(*index) != keeper).collect();
    for (at, a) in others.iter().copied().enumerate() {
        for b in others[at + 1..].iter().copied() {
            if !(optical[a] && optical[b]) && close(a, b) {
                optical[if optical[b] { a } else { b }] = true;
            }
        }
    }
    if let Some(each) = each {
        (0..part.len()).filter(|index| optical[*index]).for_each(&mut **each);
    }
    optical.iter().filter(|flag| **flag).count() as u64
}

/// Four pairs and more: clusters of transitive neighbours; all but one of a cluster are optical duplicates.
fn search_clustered<P: Pair>(part: &[P], keeper: Option<usize>, distance: i32, each: &mut Each) -> u64 {
    let mut groups: HashMap<(u16, i16), Vec<usize>> = HashMap::new();
    for (index, item) in part.iter().enumerate() {
        let pair = item.signature();
        if pair.location.is_known() {
            groups.entry((pair.read_group, pair.location.tile)).or_default().push(index);
        }
    }
    groups.into_values().map(|group| search_tile(part, group, keeper, distance, each)).sum()
}

/// Number of pairs of one tile that fall into a cluster after its first: one per union of two clusters.
///
/// Sorted by x, so that only pairs within the distance in x are compared.
fn search_tile<P: Pair>(
    part: &[P],
    mut group: Vec<usize>,
    keeper: Option<usize>,
    distance: i32,
    each: &mut Each,
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
            if near(one, two, distance) {
                let (root_a, root_b) = (root(&mut clusters, a), root(&mut clusters, b));
                unions += u64::from(root_a != root_b);
                clusters[root_b] = root_a;
            }
        }
    }
    if let Some(each) = each {
        // Of each cluster the keeper stays, else the one with the smallest x, then y, then the first in the order in which
        // Picard sees them: that of a Java `HashMap` of their indices.
        let rank = |index: usize| {
            let place = location(index);
            (Some(index) != keeper, place.x, place.y, index ^ index >> 16)
        };
        let mut best: HashMap<usize, usize> = HashMap::new();
        for (at, index) in group.iter().copied().enumerate() {
            let first = best.entry(root(&mut clusters, at)).or_insert(index);
            if rank(index) < rank(*first) {
                *first = index;
            }
        }
        for (at, index) in group.iter().copied().enumerate() {
            if best[&root(&mut clusters, at)] != index {
                each(index);
            }
        }
    }
    unions
}

fn root(clusters: &mut [usize], mut node: usize) -> usize {
    while clusters[node] != node {
        clusters[node] = clusters[clusters[node]];
        node = clusters[node];
    }
    node
}

fn near(a: ReadLocation, b: ReadLocation, distance: i32) -> bool {
    (i32::from(a.x) - i32::from(b.x)).abs() <= distance && (i32::from(a.y) - i32::from(b.y)).abs() <= distance
}
