//! Read groups derived from read names.

use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::sam::SamText;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{needs, scratch};

fn sample() -> std::sync::Arc<Sample> {
    let lanes = vec![400];
    Sample::cached(&SampleSpec { seed: 12, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

fn write_fastq(directory: &Path, file: &str, title: &str) {
    let bases = "ACGTTGCATGCCATGACTGATCGATTAGCACGATCGATCGAGGCTAGCATCGAT";
    let text = format!("@{title}\n{bases}\n+\n{}\n", "I".repeat(bases.len()));
    std::fs::write(directory.join(file), text).expect("the scratch directory can be written to");
}

/// Returns the `@RG` lines that a run writes for lanes whose first reads have these titles, and the read groups of its
/// records.
fn read_groups_from_titles(titles: &[&str]) -> (Vec<String>, Vec<String>) {
    let directory = scratch::directory("names");
    let mut command =
        godwit().current_dir(&directory).arg("align").arg("--reference").arg(sample().godwit_indexed_reference());
    for (lane, title) in titles.iter().enumerate() {
        write_fastq(&directory, &format!("{lane}.fq"), title);
        command = command.arg("--reads").arg(format!("{lane}.fq"));
    }
    command.args(["--sample", "S", "--out", "out"]).run_ok();
    let text = SamText::read(&directory.join("out/S.bam")).to_text();
    let lines = text.lines().filter(|line| line.starts_with("@RG")).map(str::to_owned).collect();
    let of_record = |line: &str| line.split('\t').find_map(|field| field.strip_prefix("RG:Z:")).map(str::to_owned);
    let mut used: Vec<String> = text.lines().filter(|line| !line.starts_with('@')).filter_map(of_record).collect();
    used.sort();
    (lines, used)
}

#[test]
fn names_of_every_kind_make_the_read_group_they_tell_of() {
    needs!("bwa", "samtools");
    for (title, expected) in [
        ("A00123:45:HXXXXDSXX:2:1101:1000:2000 1:N:0:ACGT", "ID:HXXXXDSXX.2\tSM:S\tLB:S\tPL:ILLUMINA\tPU:HXXXXDSXX.2"),
        ("A00123:45:HXXXXDSXX:2:1101:1000:2000:ACGT+AC", "ID:HXXXXDSXX.2\tSM:S\tLB:S\tPL:ILLUMINA\tPU:HXXXXDSXX.2"),
        ("HWUSI-EAS100R:6:73:941:1973#0/1", "ID:S.1\tSM:S\tLB:S\tPL:ILLUMINA\tPU:HWUSI-EAS100R.6"),
        ("SRR1234567.1 1 length=54", "ID:SRR1234567\tSM:S\tLB:S\tPU:SRR1234567"),
        ("V300012345L1C001R0010000001/1", "ID:V300012345.1\tSM:S\tLB:S\tPL:DNBSEQ\tPU:V300012345.1"),
        ("AV234602:run-7:2232342003:1:10102:0001:0043", "ID:2232342003.1\tSM:S\tLB:S\tPL:ELEMENT\tPU:2232342003.1"),
        ("004733-X0003-1345904491", "ID:004733-X0003\tSM:S\tLB:S\tPL:ULTIMA\tPU:004733-X0003"),
        ("read_1", "ID:S.1\tSM:S\tLB:S"),
    ] {
        let (lines, used) = read_groups_from_titles(&[title]);
        assert_eq!(lines, [format!("@RG\t{expected}")], "{title}");
        let id = expected.split('\t').next().and_then(|field| field.strip_prefix("ID:")).unwrap_or_default();
        assert_eq!(used, [id], "{title}");
    }
}

#[test]
fn pieces_of_a_lane_share_a_read_group_and_lanes_of_a_flow_cell_do_not() {
    needs!("bwa", "samtools");
    let (lines, used) =
        read_groups_from_titles(&["I:1:FC:1:1101:1:1", "I:1:FC:1:1102:5:5", "I:1:FC:2:1101:1:1", "other"]);
    let ids: Vec<&str> = lines.iter().filter_map(|line| line.split('\t').nth(1)).collect();
    assert_eq!(ids, ["ID:FC.1", "ID:FC.2", "ID:S.4"]);
    assert_eq!(used, ["FC.1", "FC.1", "FC.2", "S.4"]);
}
