//! Tests that the result does not depend on the number of threads and on the memory.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type BlockMap<T> = BTreeMap<BlockId, Vec<T>>;

/// Everything that a run of the marker returns, with a defined order.
#[derive(Debug, PartialEq)]
struct Outcome {
    duplicates: BlockMap<u64>,
    optical: Option<BlockMap<u64>>,
    sets: Option<(Vec<DuplicateSet>, BlockMap<SetMember>)>,
    metrics: DuplicationMetrics,
}

fn outcome(blocks: &[Vec<Read>], options: DuplicateMarkerOptions) -> Result<Outcome, String> {
    let bits = |set: &RecordSet| set.blocks().map(|(block, words)| (block, words.to_vec())).collect();
    let marks = run_marker(blocks, options).map_err(|error| error.to_string())?;
    Ok(Outcome {
        duplicates: bits(&marks.duplicates),
        optical: marks.optical.as_ref().map(bits),
        sets: marks.sets.map(|sets| {
            let members = sets.blocks().map(|(block, members)| (block, members.to_vec())).collect();
            (sets.sets().to_vec(), members)
        }),
        metrics: marks.metrics,
    })
}

/// The arrangement of the reads of a template.
#[derive(Clone, Copy, Debug)]
enum Template {
    Pair,
    MatesInOtherBlocks,
    Fragment,
    RepeatedName,
}

/// Adds the reads of template `number` to the blocks. Few positions and qualities occur, so that there are large sets.
fn add_template(blocks: &mut [Vec<Read>], number: usize, template: Template, place: u32) {
    let [start, insert, quality] = [place % 97, 200 + place / 97 % 5, 20 + place / 485 % 4];
    let name = match template {
        Template::RepeatedName => format!("same{}", place % 40),
        _ => format!("R:1:110{}:{}:{}:{number}", number % 2, place / 7 % 400, place / 11 % 400),
    };
    let reads = pair(&name, start as i32, (start + insert) as i32).map(|read| read.quality(quality as u8));
    let contig = (place / 3 % 2) as i32;
    let [first, second] = reads.map(|read| Read { contig, mate_contig: contig, ..read });
    let (block, count) = (place as usize / 13, blocks.len());
    match template {
        Template::Fragment => blocks[block % count].push(Read { flag: 0, ..first }),
        Template::MatesInOtherBlocks => {
            blocks[block % count].push(first);
            blocks[(block + 1) % count].push(second);
        }
        Template::Pair | Template::RepeatedName => blocks[block % count].extend([first, second]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn threads_and_memory_do_not_change_the_result(
        templates in prop::collection::vec(
            (
                prop_oneof![
                    6 => Just(Template::Pair),
                    3 => Just(Template::MatesInOtherBlocks),
                    2 => Just(Template::Fragment),
                    1 => Just(Template::RepeatedName),
                ],
                any::<u32>(),
            ),
            0..6000,
        ),
        threads in 2..9_usize,
        memory_bytes in prop_oneof![Just(0), 0..1_000_000_usize],
        query in any::<bool>(),
    ) {
        let mut blocks = vec![Vec::new(); 5];
        for (number, (template, place)) in templates.into_iter().enumerate() {
            add_template(&mut blocks, number, template, place);
        }
        let run = |threads, memory_bytes| {
            let mode = if query { DuplicateMode::Query } else { DuplicateMode::Coordinate };
            let details = DuplicateMarkerOptions { report_optical: true, report_sets: true, ..options(100) };
            outcome(&blocks, DuplicateMarkerOptions { threads, memory_bytes, mode, ..details })
        };
        let expected = run(1, 1 << 30);
        prop_assert_eq!(&run(threads, memory_bytes), &expected);
        prop_assert_eq!(&run(threads, 1 << 30), &expected);
    }
}
