//! Tests of the oracle itself. They do not run godwit.

use std::collections::BTreeMap;

use godwit_tests::duplicate_options::{MarkingOptions, group_by_name};
use godwit_tests::metrics::{self, MetricsFile};
use godwit_tests::picard::{self, PicardOptions, sort_and_mark};
use godwit_tests::reference_pipeline::{AlignOptions, DuplicateHandling, run_reference_pipeline};
use godwit_tests::sam::{self, DUPLICATE_FLAG, SamText};
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{needs, needs_picard, sam_fuzzer, scratch, skip as skips};

fn small_spec() -> SampleSpec {
    SampleSpec { seed: 11, lanes: vec![1500, 900], paired: true, alternate: false, comments: TitleComments::Illumina }
}

#[test]
fn picard_accepts_fuzzed_files_and_they_reach_its_rules() {
    needs_picard!();
    let directory = scratch::directory("fuzz-oracle");
    let (mut refused, mut totals, mut sensitive) = (Vec::new(), BTreeMap::<&str, u64>::new(), 0);
    let files = 60;
    for seed in 1_000_000..1_000_000 + files {
        let input = directory.join("input.sam");
        std::fs::write(&input, sam_fuzzer::generate_sam(seed).to_text())
            .expect("the scratch directory can be written to");
        let (marked, metrics_file) = match sort_and_mark(&input, &directory, "sam", &PicardOptions::default()) {
            Ok(files) => files,
            Err(refusal) => {
                refused.push(format!("seed {seed}: {}", refusal.0));
                continue;
            }
        };
        let (marked, metrics_file) = (SamText::read(&marked), MetricsFile::read(&metrics_file));
        for column in
            ["UNPAIRED_READ_DUPLICATES", "READ_PAIR_DUPLICATES", "READ_PAIR_OPTICAL_DUPLICATES", "UNMAPPED_READS"]
        {
            *totals.entry(column).or_default() += metrics_file.column_sum(column);
        }
        *totals.entry("records").or_default() += marked.records.len() as u64;
        let narrow = PicardOptions { optical_distance: 60, ..PicardOptions::default() };
        let (_, other) = sort_and_mark(&input, &directory, "sam", &narrow).expect("Picard took it before");
        sensitive += u64::from(!metrics::differences(&metrics_file, &MetricsFile::read(&other)).is_empty());
    }
    println!("{totals:?}, {sensitive} files notice an optical distance of 60, refused: {refused:?}");
    assert!(refused.len() as u64 * 50 <= files, "Picard refused {} of {files}: {refused:?}", refused.len());
    let rate = |column| totals[column] as f64 / totals["records"] as f64;
    assert!(rate("READ_PAIR_DUPLICATES") > 0.05 && rate("UNPAIRED_READ_DUPLICATES") > 0.02, "{totals:?}");
    assert!(rate("READ_PAIR_OPTICAL_DUPLICATES") > 0.01 && sensitive > files / 20, "{totals:?}");
}

#[test]
fn drawn_options_of_marking_reach_their_rules() {
    needs_picard!();
    let directory = scratch::directory("options-oracle");
    let (mut refused, mut seen) = (0, BTreeMap::<&str, u64>::new());
    let files = 60;
    for seed in 2_000_000..2_000_000 + files {
        let marking = MarkingOptions::from_seed(seed);
        let case = marking.sam_with_barcodes(&sam_fuzzer::generate_sam(seed), seed);
        let case = if marking.query_grouped { group_by_name(&case) } else { case };
        let input = directory.join("input.sam");
        std::fs::write(&input, case.to_text()).expect("the scratch directory can be written to");
        let marked = |marking: MarkingOptions| {
            let options = PicardOptions { marking, ..PicardOptions::default() };
            sort_and_mark(&input, &directory, "sam", &options).map(|(marked, _)| SamText::read(&marked))
        };
        let Ok(found) = marked(marking.clone()) else {
            refused += 1;
            continue;
        };
        for tag in ["\tDT:Z:SQ", "\tDT:Z:LB", "\tDI:i:", "\tDS:i:3", "\tMI:Z:"] {
            *seen.entry(tag).or_default() += u64::from(found.records.iter().any(|record| record.contains(tag)));
        }
        let further = |record: &String| sam::flag(record) & DUPLICATE_FLAG != 0 && sam::flag(record) & 0x904 != 0;
        *seen.entry("template").or_default() += u64::from(found.records.iter().any(further));
        for (option, other) in [
            (
                "barcode",
                MarkingOptions { barcode: None, molecular_identifier: None, duplex_umi: false, ..marking.clone() },
            ),
            ("duplex", MarkingOptions { duplex_umi: false, molecular_identifier: None, ..marking.clone() }),
            ("own barcodes", MarkingOptions { read_one_barcode: None, read_two_barcode: None, ..marking.clone() }),
            ("removal", MarkingOptions { remove_sequencing_duplicates: false, ..marking.clone() }),
        ] {
            if other != marking {
                let other = marked(other).expect("Picard took the file with more options");
                *seen.entry(option).or_default() += u64::from(other.flags() != found.flags());
            }
        }
    }
    println!("of {files} files, {refused} refused by Picard: {seen:?}");
    assert!(refused * 50 <= files);
    assert!(seen.len() == 10 && seen.values().all(|count| *count >= 3), "{seen:?}");
}

#[test]
fn the_reference_pipeline_marks_pcr_and_optical_duplicates_of_a_sample() {
    needs!("bwa");
    needs_picard!();
    let sample = Sample::cached(&small_spec());
    let expected = run_reference_pipeline(&sample.reference, &sample.lanes, &AlignOptions::default());
    let marked = SamText::read(&expected.bam);
    assert!(marked.records.len() >= 2 * 2400);
    let groups = marked.header.iter().filter(|line| line.starts_with("@RG")).count();
    assert_eq!(groups, 2, "{:?}", marked.header);
    let share = |test: fn(&str) -> bool| {
        marked.records.iter().filter(|record| test(record)).count() as f64 / marked.records.len() as f64
    };
    assert!((0.05..0.5).contains(&share(|record| sam::flag(record) & DUPLICATE_FLAG != 0)));
    assert!((0.02..0.3).contains(&share(|record| record.split('\t').nth(4) == Some("0"))), "no ambiguous reads");
    assert!(share(|record| sam::flag(record) & 0x800 != 0) > 0.001, "no split reads");
    let found = MetricsFile::read(&expected.metrics.expect("duplicates were marked"));
    assert!(found.column_sum("READ_PAIR_OPTICAL_DUPLICATES") > 10);
    assert!(found.column_sum("UNPAIRED_READ_DUPLICATES") > 0);
}

#[test]
fn the_size_of_blocks_changes_records_so_a_wrong_one_shows() {
    needs!("bwa", "samtools");
    let sample = Sample::cached(&small_spec());
    let sorted = |block_bases| {
        let options = AlignOptions { block_bases, duplicates: DuplicateHandling::None, ..AlignOptions::default() };
        SamText::read(&run_reference_pipeline(&sample.reference, &sample.lanes, &options).bam)
    };
    let one_block = sam::differences(&sorted(1_000_000), &sorted(100_000_000));
    assert!(one_block.is_empty(), "a lane smaller than a block is one block: {one_block:?}");
    assert!(!sam::differences(&sorted(20_000), &sorted(100_000_000)).is_empty());
}

#[test]
fn a_planted_difference_of_one_flag_and_one_metric_is_found() {
    needs_picard!();
    let directory = scratch::directory("planted");
    let input = directory.join("input.sam");
    std::fs::write(&input, sam_fuzzer::generate_sam(5).to_text()).expect("the scratch directory can be written to");
    let files = sort_and_mark(&input, &directory, "bam", &PicardOptions::default());
    let (marked, metrics_file) = files.unwrap_or_else(|refusal| panic!("{}", refusal.0));
    let good = SamText::read(&marked);
    assert!(sam::differences(&good, &good.clone()).is_empty());
    for place in 0..good.records.len() {
        let mut bad = good.clone();
        let flag = sam::flag(&bad.records[place]);
        let fields: Vec<&str> = bad.records[place].splitn(3, '\t').collect();
        bad.records[place] = format!("{}\t{}\t{}", fields[0], flag ^ DUPLICATE_FLAG, fields[2]);
        assert_eq!(sam::differences(&good, &bad).len(), 1);
    }
    let good = MetricsFile::read(&metrics_file);
    for place in 0..good.columns.len() {
        let mut bad = good.clone();
        bad.rows[0][place].push('1');
        assert_eq!(metrics::differences(&good, &bad).len(), 1);
    }
}

#[test]
fn picards_validation_finds_a_mate_that_is_absent() {
    needs_picard!();
    let directory = scratch::directory("validation");
    let file = directory.join("bad.sam");
    let text = "@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:c\tLN:900\n@RG\tID:a\tSM:s\tPL:ILLUMINA\nr\t67\tc\t5\t9\t4M\t=\t50\t49\tACGT\tIIII\tRG:Z:a\tNM:i:0\n";
    std::fs::write(&file, text).expect("the scratch directory can be written to");
    assert!(picard::validation_problems(&file, None).contains("MATE_NOT_FOUND"));
    std::fs::write(&file, text.replace("\t67\t", "\t0\t").replace("=\t50\t49", "*\t0\t0"))
        .expect("it was written before");
    assert_eq!(picard::validation_problems(&file, None), "");
}

#[test]
fn a_skip_is_allowed_only_with_a_reason_on_the_list() {
    let list = "# shared = \"commented out\"\n[allowed]\nshared-data = \"it is large\"\nempty = \"\"\n";
    assert!(skips::is_listed(list, "shared-data"));
    for id in ["shared", "empty", "missing-tool"] {
        assert!(!skips::is_listed(list, id), "{id}");
    }
}
