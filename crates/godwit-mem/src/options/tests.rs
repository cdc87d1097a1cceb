use super::*;

fn parse(line: &str) -> Result<AlignmentOptions, Error> {
    let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    AlignmentOptions::parse(&arguments, 3)
}

fn usage_error_text(line: &str) -> String {
    parse(line).unwrap_err().to_string()
}

#[test]
fn no_options_are_those_of_bwa() {
    let options = parse("").unwrap();
    let mut expected = BwaMemOptions { n_threads: 3, ..BwaMemOptions::default() };
    expected.fill_matrix();
    assert_eq!(options.mem, expected);
    assert_eq!((options.mem.min_seed_len, options.mem.b, options.mem.max_xa_hits_alt), (19, 4, 200));
}

#[test]
fn letters_may_be_joined_and_values_attached() {
    let options = parse("-MYk17 -w 50 -SPO7,8").unwrap();
    assert_eq!((options.mem.min_seed_len, options.mem.w), (17, 50));
    assert_eq!((options.mem.o_del, options.mem.o_ins), (7, 8));
    let flags = mem_flags::NO_MULTI | mem_flags::SOFT_CLIP | mem_flags::NO_RESCUE | mem_flags::NO_PAIRING;
    assert_eq!(options.mem.flag, flags);
}

#[test]
fn a_match_score_scales_what_is_not_given() {
    let mem = parse("-A 2 -B 3 -T 10").unwrap().mem;
    assert_eq!((mem.a, mem.b, mem.min_score, mem.o_del, mem.pen_unpaired, mem.zdrop), (2, 3, 10, 12, 34, 200));
}

#[test]
fn a_preset_turns_scaling_off() {
    let mem = parse("-x ont2d -A 2 -W 7").unwrap().mem;
    assert_eq!((mem.a, mem.b, mem.min_score, mem.min_chain_weight, mem.min_seed_len), (2, 1, 30, 7, 14));
    assert!(usage_error_text("-x illumina").contains("illumina"));
}

#[test]
fn insert_sizes_default_to_four_deviations() {
    let sizes = |line| parse(line).unwrap().insert_sizes.unwrap()[1];
    assert_eq!(
        sizes("-I 300"),
        InsertSizeDistribution { low: 180, high: 420, failed: 0, mean: 300.0, standard_deviation: 30.0 }
    );
    assert_eq!(
        sizes("-I 300.5,20"),
        InsertSizeDistribution { low: 220, high: 380, failed: 0, mean: 300.5, standard_deviation: 20.0 }
    );
    assert_eq!(
        sizes("-I300,20,700,10"),
        InsertSizeDistribution { low: 10, high: 700, failed: 0, mean: 300.0, standard_deviation: 20.0 }
    );
    assert_eq!(sizes("-I 20,20").low, 1);
    assert!(usage_error_text("-I 300,20,700,10,9").contains("at most 4"));
}

#[test]
fn what_godwit_sets_itself_is_refused() {
    for (line, word) in [
        ("-t 4", "--threads"),
        ("-K1000", "--block-bases"),
        ("-p", "--reads"),
        ("-R @RG", "--read-group"),
        ("-M1", "threads"),
    ] {
        assert!(usage_error_text(line).contains(word), "{line}");
    }
    for line in ["-H x", "-o x", "-f x", "-v 3"] {
        assert!(usage_error_text(line).contains("is not accepted here"), "{line}");
    }
}

#[test]
fn what_bwa_does_not_know_is_refused() {
    for line in ["-Z", "--help", "--", "-", "ref.fa", "-k", "-k x", "-k 1.5", "-O 1,2,3", "-r ten", "-kü"] {
        usage_error_text(line);
    }
}
