//! Optical duplicates within one duplicate set, as Picard 3.4.0 `OpticalDuplicateFinder` finds them.

use std::collections::HashMap;

use godwit_model::{Orientation, PairSignature, ReadLocation};

/// Sets larger than this are not searched (Picard's `MAX_OPTICAL_DUPLICATE_SET_SIZE`).
const MAX_SET_PAIRS: usize = 300_000;
/// From this size on, sets are clustered: chains of neighbours count as one cluster.
const CLUSTERED_SET_PAIRS: usize = 4;

/// Number of optical duplicates in a set of duplicate pairs, of which `keeper` is the index of the one that is kept.
///
/// Pairs sequenced in opposite directions (FR and RF in read 1, read 2 order) are searched apart.
pub(super) fn count_optical_duplicates(set: &[PairSignature], keeper: usize, distance: i32) -> u64 {
    let is = |pair: &PairSignature, orientation: Orientation| pair.optical_orientation() == orientation as u16;
    let mixed = set.iter().any(|p| is(p, Orientation::FR)) && set.iter().any(|p| is(p, Orientation::RF));
    let mut count = 0;
    if mixed {
        for orientation in [Orientation::FR, Orientation::RF] {
            let indices: Vec<usize> = (0..set.len()).filter(|i| is(&set[*i], orientation)).collect();
            let part: Vec<PairSignature> = indices.iter().map(|i| set[*i]).collect();
            count += count_in_part(&part, indices.iter().position(|i| *i == keeper), distance);
        }
    } else {
        count = count_in_part(set, Some(keeper), distance);
    }
    count
}

/// `keeper`: its index, where it is in this part.
fn count_in_part(part: &[PairSignature], keeper: Option<usize>, distance: i32) -> u64 {
    if part.len() < 2 || part.len() > MAX_SET_PAIRS {
        return 0;
    }
    let keeper = keeper.filter(|index| part[*index].location.is_known());
    if part.len() < CLUSTERED_SET_PAIRS {
        count_pairwise(part, keeper, distance)
    } else {
        count_clustered(part, distance)
    }
}

/// Two or three pairs: each that lies near the keeper, then one of every two others that lie near each other.
fn count_pairwise(part: &[PairSignature], keeper: Option<usize>, distance: i32) -> u64 {
    let close = |a: usize, b: usize| {
        let (one, two) = (&part[a], &part[b]);
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
    optical.iter().filter(|flag| **flag).count() as u64
}

/// Four pairs and more: clusters of transitive neighbours; all but one of a cluster are optical duplicates.
fn count_clustered(part: &[PairSignature], distance: i32) -> u64 {
    let mut groups: HashMap<(u16, i16), Vec<usize>> = HashMap::new();
    for (index, pair) in part.iter().enumerate().filter(|(_, pair)| pair.location.is_known()) {
        groups.entry((pair.read_group, pair.location.tile)).or_default().push(index);
    }
    groups.into_values().map(|group| count_joined(part, group, distance)).sum()
}

/// Number of pairs of one tile that fall into a cluster after its first: one per union of two clusters.
///
/// Sorted by x, so that only pairs within the distance in x are compared.
fn count_joined(part: &[PairSignature], mut group: Vec<usize>, distance: i32) -> u64 {
    group.sort_unstable_by_key(|index| part[*index].location.x);
    let mut clusters: Vec<usize> = (0..group.len()).collect();
    let mut unions = 0;
    for a in 0..group.len() {
        let one = part[group[a]].location;
        for b in a + 1..group.len() {
            let two = part[group[b]].location;
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
