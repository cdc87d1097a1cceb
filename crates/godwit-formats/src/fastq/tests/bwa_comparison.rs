//! Comparison of the lane reader with the program `bwa mem`: batches, names, comments, bases and qualities.

use std::process::{Command, Output};

use godwit_tests::skip::report_skip;

use super::*;

/// Returns a directory with an indexed reference. If bwa 0.7.17 is not installed, reports a skip and returns `None`.
fn index_reference() -> Option<TestDirectory> {
    let version = Command::new("bwa").output().map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    if !version.as_ref().is_ok_and(|text| text.contains("Version: 0.7.17")) {
        report_skip("missing-tool", "bwa 0.7.17 is not installed");
        return None;
    }
    let files = TestDirectory::new();
    let mut state = 1_u32;
    let bases = (0..5_000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b"ACGT"[(state >> 30) as usize])
    });
    let path = files.write("ref.fa", format!(">c\n{}\n", bases.collect::<String>()));
    let output = Command::new("bwa").arg("index").arg(path).output().expect("bwa runs");
    assert!(output.status.success(), "bwa index: {}", String::from_utf8_lossy(&output.stderr));
    Some(files)
}

fn bwa_mem(files: &TestDirectory, arguments: &[&str], reads: &[PathBuf]) -> Output {
    let output = Command::new("bwa")
        .args(["mem", "-v", "3"])
        .args(arguments)
        .arg(files.path("ref.fa"))
        .args(reads)
        .output()
        .expect("bwa runs");
    assert!(output.status.success(), "bwa mem: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the number of reads and bases of each batch, from output lines such as `[M::process] read 4 sequences (160
/// bp)...`.
fn parse_batch_sizes(output: &Output) -> Vec<(u64, u64)> {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let numbers = |line: &str| {
        let (reads, rest) = line.strip_prefix("[M::process] read ")?.split_once(" sequences (")?;
        Some((reads.parse().ok()?, rest.split_once(" bp")?.0.parse().ok()?))
    };
    stderr.lines().filter_map(numbers).collect()
}

#[test]
fn blocks_are_the_batches_of_bwa() {
    let Some(files) = index_reference() else { return };
    let lengths = [[101, 99, 1, 150, 77, 0, 35].as_slice(), &[150], &[37, 0, 0, 0, 250, 3]];
    for (case, lengths) in lengths.into_iter().enumerate() {
        let other: Vec<usize> = lengths.iter().map(|bases| (bases * 13 + 40) % 151).collect();
        for reads in [1, 2, 301, 400] {
            let single = [files.write("single.fq", fastq_text(reads, lengths))];
            let paired = [single[0].clone(), files.write("mate.fq", fastq_text(reads, &other))];
            for block_bases in [1, 300, 1_000, 4_999, 1_000_000] {
                for paths in [single.as_slice(), &paired] {
                    let bwa = parse_batch_sizes(&bwa_mem(&files, &["-K", &block_bases.to_string()], paths));
                    let ours =
                        read_lane(paths, &LaneOptions { block_bases, ..strict_options() }).expect("files are sound");
                    assert_eq!(
                        ours.blocks,
                        bwa,
                        "case {case}, {reads} reads in {} files, -K {block_bases}",
                        paths.len()
                    );
                }
            }
        }
    }
}

#[test]
fn reads_are_what_bwa_reads() {
    let Some(files) = index_reference() else { return };
    let bases = "ACGTTGCATTAGGCATCGATTACGGCATTACGATCAG";
    let quality = "I@+>~!5".repeat(6)[..bases.len()].to_owned();
    let odd = bases.replacen("TT", ".*", 1).replacen('G', "R", 1).to_lowercase();
    let fastq = [
        format!("@a/1 BC:Z:x\tCC:Z:y  \n{bases}\n+\n{quality}\n@b/12\tt\n{bases}\n+b/12\tt\n{quality}\n"),
        format!("@c  two spaces\n{odd}\n+\n{quality}\n@/1 k\n{bases}\n+\n{quality}\n@d/x \n{bases}\n+\n{quality}\n"),
        "@z\n\n+\n\n@y c\n+\n\n@one\nG\n+\n!\n".to_owned(),
        format!("@w/3\x0bv\n{}\n{}\n+\n{}\n{}\n", &bases[..10], &bases[10..], &quality[..20], &quality[20..]),
        format!("@v\n{bases}\n+\n{}\n{}\n", &quality[..9], &quality[9..]),
        format!("@last\n{bases}\n+\n{quality}"),
    ]
    .concat();
    let windows =
        fastq.replacen("@z\n\n+\n\n@y c\n+\n\n", "", 1).replacen("@d/x \n", "@d/x\n", 1).replace('\n', "\r\n");
    let fasta = format!(">a/1 BC:Z:x y\n{bases}\n{bases}\n>e\n\n>f c\n>g\n{odd}\n");
    for text in [fastq, windows, fasta] {
        let paths = [files.write("reads", &text)];
        let output = bwa_mem(&files, &["-C"], &paths);
        let sam = String::from_utf8_lossy(&output.stdout).into_owned();
        let bwa: Vec<Read> = sam.lines().filter(|line| !line.starts_with('@')).map(sam_read).collect();
        let ours: Vec<Read> = read_lane(&paths, &strict_options())
            .expect("the file is sound")
            .reads
            .into_iter()
            .map(as_bwa_prints)
            .collect();
        assert_eq!(ours, bwa);
    }
}

/// Returns the read of a SAM line of an unaligned read. The comment of the read follows the two tags that bwa adds.
fn sam_read(line: &str) -> Read {
    let fields: Vec<&str> = line.splitn(14, '\t').collect();
    assert_eq!(fields[1], "4", "the reads align nowhere: {line}");
    let quality = (fields[10] != "*").then_some(fields[10]);
    new_read(fields[0], fields.get(13).copied(), fields[9], quality)
}

/// Returns the read with all letters except ACGT replaced by N, as bwa prints them.
fn as_bwa_prints(read: Read) -> Read {
    let base = |base: char| if "ACGT".contains(base.to_ascii_uppercase()) { base.to_ascii_uppercase() } else { 'N' };
    Read { sequence: read.sequence.chars().map(base).collect(), ..read }
}
