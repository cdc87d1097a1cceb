//! Tests of duplicate marking with options that are not the default.

use super::*;

fn template_options() -> DuplicateMarkerOptions {
    DuplicateMarkerOptions { mode: DuplicateMode::Query, report_sets: true, ..options(100) }
}

fn with_flag_at(read: &Read, position: i32, flag: u16) -> Read {
    Read { position, flag: read.flag | flag, ..read.clone() }
}

#[test]
fn by_template_every_record_of_a_name_is_marked() {
    let [a1, a2] = pair("a", 100, 400);
    let [b1, b2] = pair("b", 100, 400);
    let (split, secondary) = (with_flag_at(&b1, 900, flags::SUPPLEMENTARY), with_flag_at(&b2, 950, flags::SECONDARY));
    let blocks = [vec![a1.clone(), a2.clone(), b1.clone(), split, b2.clone(), secondary]];
    let marked = run_marker(&blocks, template_options()).unwrap();
    assert_eq!(numbers(&blocks, &marked.duplicates), [2, 3, 4, 5]);
    // A template may begin in one block and end in the next.
    let [first] = blocks;
    let blocks = [first[..3].to_vec(), first[3..].to_vec()];
    let marked = run_marker(&blocks, template_options()).unwrap();
    assert_eq!(numbers(&blocks, &marked.duplicates), [2, 3, 4, 5]);
}

#[test]
fn by_template_ties_go_by_the_input_where_coordinates_would_have_it_otherwise() {
    // In coordinate order, the pair without a clip precedes the other pair.
    let [a1, a2] = pair("a", 100, 400);
    let [b1, b2] = pair("b", 105, 400);
    let blocks = [vec![b1.clipped(5).quality(33), b2.quality(27), a1.quality(30), a2]];
    let scores_tie =
        run_marker(&blocks, DuplicateMarkerOptions { mode: DuplicateMode::Coordinate, ..template_options() }).unwrap();
    assert_eq!(numbers(&blocks, &scores_tie.duplicates), [0, 1]);
    let marked = run_marker(&blocks, template_options()).unwrap();
    assert_eq!(numbers(&blocks, &marked.duplicates), [2, 3]);
}

#[test]
fn a_template_named_twice_makes_picard_miss_those_that_follow() {
    // Two fragments have the same name and are both duplicates of better fragments. The list of duplicates therefore
    // contains their template twice.
    let best = [read("a", 100, 0).quality(40), read("b", 200, 0).quality(40)];
    let twice = [read("c", 100, 0), read("c", 200, 0)];
    let others = [read("d", 100, 0), read("e", 100, 0), read("f", 700, 0), read("g", 100, 0)];
    let blocks = [[&best[..], &twice, &others].concat()];
    let marked = run_marker(&blocks, template_options()).unwrap();
    assert_eq!(numbers(&blocks, &marked.duplicates), [2, 3, 7]);
}

#[test]
fn members_of_a_set_know_its_best_pair_and_its_pairs() {
    let [a1, a2] = pair("a", 100, 400);
    let [b1, b2] = pair("b", 100, 400);
    let [c1, c2] = pair("c", 150, 400);
    let blocks = [vec![c1, c2, a1, a2], vec![b1.quality(35), b2]];
    for mode in [DuplicateMode::Coordinate, DuplicateMode::Query] {
        let mut sets =
            run_marker(&blocks, DuplicateMarkerOptions { mode, ..template_options() }).unwrap().sets.unwrap();
        if mode == DuplicateMode::Coordinate {
            assert_eq!(numbers(&blocks, &sets.representatives()), [4]);
            sets.set_indices(|_| 4);
        }
        let of = |ordinal, index| {
            let block = sets.block_members(block_id(ordinal));
            sets.set_of_record(block, index).map(|set| (set.index, set.pairs))
        };
        assert_eq!((of(0, 0), of(0, 2), of(1, 1)), (None, Some((4, 2)), Some((4, 2))), "{mode:?}");
    }
}

#[test]
fn of_an_optical_cluster_without_the_keeper_the_leftmost_stays() {
    let at = |x: i32, quality: u8| pair(&format!("R:1:1101:{x}:1000"), 100, 400).map(|read| read.quality(quality));
    let places = [(5000, 30), (1090, 20), (1000, 20), (1180, 20), (5050, 20)];
    let blocks = [places.into_iter().flat_map(|(x, quality)| at(x, quality)).collect::<Vec<Read>>()];
    let marked = run_marker(&blocks, DuplicateMarkerOptions { report_optical: true, ..options(100) }).unwrap();
    assert_eq!(numbers(&blocks, &marked.duplicates), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(numbers(&blocks, &marked.optical.unwrap()), [2, 3, 6, 7, 8, 9]);
    assert_eq!(marked.metrics.libraries[0].optical_pairs, 3);
}
