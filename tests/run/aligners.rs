//! Aligners other than bwa: with any number of threads and any block size, the records equal those of the reference
//! pipeline with the same aligner, and failures of an aligner are reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::processes::{send_signal, wait_until_exited};
use godwit_tests::reference_pipeline::{AlignOptions, Aligner, Lane, run_reference_pipeline};
use godwit_tests::sam::SamText;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_for;
use godwit_tests::{needs, needs_picard, sam, scratch};
use parking_lot::Mutex;

use super::bwa_identity::{align, assert_identical, assert_same_bytes};

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;
const EXIT_ENGINE: i32 = 5;

/// bowtie2 with interleaved reads on its standard input.
const BOWTIE2_TEMPLATE: &str =
    "bowtie2 -x {index} --interleaved {reads} -p {threads} --reorder --rg-id {read_group_id}";

pub(super) fn spec() -> SampleSpec {
    SampleSpec { seed: 17, lanes: vec![1500, 900], paired: true, alternate: false, comments: TitleComments::Illumina }
}

/// Returns the sample with an index for the given aligner beside its reference. Tests share references, so only one
/// test at a time builds the index.
pub(super) fn sample_with_index(spec: &SampleSpec, aligner: &str, arguments: &str) -> Arc<Sample> {
    static INDEX_LOCK: Mutex<()> = Mutex::new(());
    let _turn = INDEX_LOCK.lock();
    let sample = Sample::cached(spec);
    for reference in [sample.godwit_indexed_reference(), &sample.reference] {
        match aligner {
            "bowtie2" => {
                let build = Tool::require("bowtie2-build");
                drop(run_checked(build.command().arg("-q").arg(reference).arg(reference)));
            }
            _ => {
                let command = godwit().arg("index").arg(reference).args(["--aligner", aligner]);
                command.arg(format!("--aligner-args={arguments}")).run_ok();
            }
        }
    }
    sample
}

fn options_with_block_bases(block_bases: u64) -> AlignOptions {
    AlignOptions { block_bases, ..AlignOptions::default() }
}

#[test]
fn bwa_mem3_gives_the_records_of_bwa_at_any_options_and_instructions() {
    needs!("bwa");
    needs_picard!();
    let sample = sample_with_index(&spec(), "bwa-mem3", "");
    for arguments in ["", "-M -Y", "-h 2,10", "-5 -q", "-SP", "-k15 -r 1.2 -c 100 -B 3 -O 5,7 -I 300,40 -T 20"] {
        let aligner_args = arguments.split_whitespace().map(str::to_owned).collect();
        let options = AlignOptions { aligner_args, ..options_with_block_bases(50_000) };
        assert_identical(&sample, &options, &["--aligner", "bwa-mem3", "--threads", "2"]);
    }
    let expected = run_reference_pipeline(&sample.reference, &sample.lanes, &options_with_block_bases(50_000)).bam;
    for instructions in ["avx2", "avx512bw"] {
        let out = scratch::directory("instructions");
        let command = align(&sample, &options_with_block_bases(50_000), &out).args(["--aligner", "bwa-mem3"]);
        // The variable of the bwa-mem3 library must have no effect; only godwit's variable selects the instructions.
        let command = command.env("BWAMEM3_FORCE_TIER", "sse41");
        command.env("GODWIT_BWA_MEM3_INSTRUCTIONS", instructions).run_ok();
        sam::assert_same(&expected, &out.join("sample.bam"));
    }
}

#[test]
fn bwa_mem3_passes_the_ordinal_of_every_block_and_knows_single_reads_and_alternates() {
    needs!("bwa");
    needs_picard!();
    let sample = sample_with_index(&spec(), "bwa-mem3", "");
    let words = ["--aligner", "bwa-mem3"];
    let outputs = ["1", "3"].map(|threads| {
        assert_identical(&sample, &options_with_block_bases(10_000), &[&words[..], &["--threads", threads]].concat())
    });
    assert_same_bytes(&outputs);
    let single = sample_with_index(&SampleSpec { paired: false, ..spec() }, "bwa-mem3", "");
    assert_identical(&single, &options_with_block_bases(20_000), &words);
    let alternate = sample_with_index(&SampleSpec { alternate: true, ..spec() }, "bwa-mem3", "");
    assert_identical(&alternate, &options_with_block_bases(50_000), &words);
}

/// Aligns the sample, which has the indexes of bwa and bwa-mem3. Returns the BAM, the `aligner` of `run.json`, and the
/// output of the process.
fn bam_and_aligner(
    out: &str,
    words: &[&str],
    environment: &[(&str, &str)],
) -> (PathBuf, serde_json::Value, GodwitOutput) {
    let sample = sample_with_index(&spec(), "bwa-mem3", "");
    let out = scratch::directory(out);
    let command = align(&sample, &options_with_block_bases(50_000), &out).args(words);
    let command = environment.iter().fold(command, |command, (name, value)| command.env(name, value));
    let finished = command.run_ok();
    let report = std::fs::read_to_string(out.join("run.json")).expect("a run leaves a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    (out.join("sample.bam"), report["aligner"].clone(), finished)
}

#[test]
fn auto_takes_bwa_mem3_or_bwa_and_writes_the_same_file() {
    let (auto, of_auto, _) = bam_and_aligner("auto", &[], &[]);
    assert_eq!((&of_auto["choice"], &of_auto["name"]), (&"auto".into(), &"bwa-mem3".into()));
    assert!(of_auto["reason"].as_str().is_some_and(|reason| reason.contains("fastest")), "{of_auto}");
    let (bwa, of_bwa, _) = bam_and_aligner("bwa", &["--aligner", "bwa"], &[]);
    assert_eq!((&of_bwa["name"], &of_bwa["version"]), (&"bwa".into(), &"0.7.17".into()));
    assert!(of_bwa["reason"].is_null(), "{of_bwa}");
    let (former, of_former, finished) = bam_and_aligner("former", &["--aligner", "bwa-mem2"], &[]);
    assert_eq!(of_former["name"], "bwa-mem3");
    assert!(finished.stderr.contains("bwa-mem2 is another name for bwa-mem3"), "{}", finished.describe());
    // If the program of bwa-mem3 does not exist, `--aligner auto` uses bwa and reports the reason.
    let (fallen, of_fallen, finished) = bam_and_aligner("fallen", &[], &[("GODWIT_BWA_MEM3", "/no/program")]);
    assert_eq!(of_fallen["name"], "bwa");
    for text in [of_fallen["reason"].to_string(), finished.stderr.clone()] {
        assert!(text.contains("/no/program"), "{text}");
    }
    let header = SamText::read(&auto).header.join("\n");
    assert!(header.contains("@PG\tID:bwa\tPN:bwa\tVN:0.7.17\tCL:bwa mem -K 50000\n"), "{header}");
    assert_same_bytes(&[auto, bwa, former, fallen]);
}

#[test]
fn options_that_bwa_mem3_does_not_take_go_to_bwa_by_auto_and_are_refused_by_name() {
    needs!("bwa");
    needs_picard!();
    let sample = sample_with_index(&spec(), "bwa-mem3", "");
    for (arguments, word) in [("-A 2", "-A"), ("-x ont2d", "-x ont2d"), ("-a", "-a"), ("-V", "-V"), ("-W 30", "-W")] {
        let aligner_args: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let out = scratch::directory("refused").join("out");
        let options = AlignOptions { aligner_args, ..options_with_block_bases(50_000) };
        let named = align(&sample, &options, &out).args(["--aligner", "bwa-mem3"]).run();
        named.assert_rejected(&[EXIT_USAGE], &[word, "--aligner bwa"]);
        let finished = align(&sample, &options, &out).run_ok();
        assert!(finished.stderr.contains("bwa 0.7.17 aligns: bwa-mem3 cannot be used"), "{}", finished.describe());
        assert!(finished.stderr.contains(word), "{}", finished.describe());
        let expected = run_reference_pipeline(&sample.reference, &sample.lanes, &options);
        sam::assert_same(&expected.bam, &out.join("sample.bam"));
    }
    let out = scratch::directory("refused").join("out");
    let command = align(&sample, &AlignOptions::default(), &out).args(["--aligner", "bwa-mem3"]);
    command.arg("--aligner-args=-t 3").run().assert_rejected(&[EXIT_USAGE], &["--threads"]);
}

/// The files have the sizes of an index of 300 Gb but are sparse: more than the memory of any machine.
#[test]
fn an_index_that_does_not_fit_into_memory_is_refused_with_both_figures() {
    let directory = scratch::directory("memory");
    let reference = directory.join("large.fa");
    let bases = 150 * 2_000_000_000u64;
    write_file(&reference, ">c0\nACGT\n");
    let contigs = (0..150).map(|at| format!("0 c{at} (null)\n{} 2000000000 0\n", at * 2_000_000_000u64));
    write_file(&directory.join("large.fa.ann"), &format!("{bases} 150 11\n{}", contigs.collect::<String>()));
    write_file(&directory.join("large.fa.amb"), &format!("{bases} 150 0\n"));
    let rows = 2 * bases + 1;
    let table = 48 + 64 * (rows / 64 + 1) + 5 * (rows / 8 + 1) + 8;
    for (extension, bytes, head) in [("pac", bases / 4 + 2, 0), ("bwt.2bit.64", table, rows)] {
        let path = directory.join(format!("large.fa.{extension}"));
        std::fs::write(&path, head.to_le_bytes()).expect("a file can be written");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it was written");
        file.set_len(bytes).expect("a file can have holes");
    }
    let reads = directory.join("reads.fq");
    write_file(&reads, "@r\nACGT\n+\nIIII\n");
    let run = |aligner: &str| {
        let command = godwit().arg("align").arg("--reference").arg(&reference).arg("--reads").arg(&reads);
        let command = command.args(["--sample", "s", "--aligner", aligner, "--out"]).arg(directory.join("out"));
        command.run()
    };
    run("bwa-mem3")
        .assert_rejected(&[EXIT_MACHINE], &["bwa-mem3 needs 10", "MB of memory", "MB are free", "--aligner bwa"]);
    run("auto").assert_rejected(&[EXIT_MACHINE], &["bwa-mem3 needs 10", "MB are free"]);
}

#[test]
fn minimap2_gives_the_records_of_one_run_of_its_program() {
    needs!("minimap2");
    needs_picard!();
    let sample = sample_with_index(&spec(), "minimap2", "");
    for (block_bases, arguments) in [(20_000, ""), (1_000_000, "--MD -N 5")] {
        let aligner_args = arguments.split_whitespace().map(str::to_owned).collect();
        let aligner = Aligner::Minimap2("sr");
        let options = AlignOptions { aligner, aligner_args, ..options_with_block_bases(block_bases) };
        let words = ["--aligner", "minimap2", "--threads"];
        let outputs = ["1", "3"].map(|threads| assert_identical(&sample, &options, &[&words[..], &[threads]].concat()));
        assert_same_bytes(&outputs);
    }
}

/// Verifies an assumption of godwit about minimap2: its records do not depend on how the reads are divided into
/// batches.
#[test]
fn minimap2_itself_keeps_nothing_from_batch_to_batch() {
    needs!("minimap2", "samtools");
    let sample = sample_with_index(&spec(), "minimap2", "");
    let run = |batch_bases: &str| {
        let mut command = Tool::require("minimap2").command();
        command.args(["-a", "-x", "sr", "-K", batch_bases]).arg(sample.reference.with_extension("fa.mmi"));
        let text = run_checked(command.args(&sample.lanes[0].reads)).stdout;
        let text = String::from_utf8(text).expect("SAM is text");
        text.lines().filter(|line| !line.starts_with("@PG")).map(str::to_owned).collect::<Vec<_>>()
    };
    let whole = run("500M");
    assert!(whole.len() > 3000, "{}", whole.len());
    assert_eq!(whole, run("10k"));
}

/// Aligns single reads with godwit and with minimap2, both with one read group, and compares the records.
fn assert_identical_single(reference: &Path, reads: &Path, aligner: Aligner, words: &[&str]) {
    const READ_GROUP: &str = "@RG\\tID:g\\tSM:s\\tLB:l";
    let out = scratch::directory("single");
    let command = godwit().arg("align").arg("--reference").arg(reference).arg("--reads").arg(reads).args(words);
    command.args(["--sample", "s", "--block-bases", "20000", "--read-group", READ_GROUP, "--out"]).arg(&out).run_ok();
    let lane = Lane { reads: vec![reads.to_owned()], read_group: READ_GROUP.into() };
    let expected = run_reference_pipeline(reference, &[lane], &AlignOptions { aligner, ..AlignOptions::default() });
    sam::assert_same(&expected.bam, &out.join("s.bam"));
}

#[test]
fn single_short_reads_go_through_minimap2_and_bowtie2() {
    needs!("minimap2", "bowtie2", "bowtie2-build", "samtools");
    needs_picard!();
    let folder = scratch::directory("short-reads");
    let (reference, reads) = (folder.join("short.fa"), folder.join("short.fq"));
    write_single_reads(&reference, &reads, 2000, 150);
    godwit().arg("index").arg(&reference).args(["--aligner", "minimap2"]).run_ok();
    assert_identical_single(&reference, &reads, Aligner::Minimap2("sr"), &["--aligner", "minimap2"]);
    run_checked(Tool::require("bowtie2-build").command().arg("-q").arg(&reference).arg(&reference));
    let template = "bowtie2 -x {index} -U {reads} -p {threads} --reorder --rg-id {read_group_id}";
    assert_identical_single(&reference, &reads, Aligner::Bowtie2, &["--aligner", template]);
}

#[test]
fn long_reads_go_through_minimap2s_presets_each_with_its_own_index() {
    needs!("minimap2", "samtools");
    needs_picard!();
    let folder = scratch::directory("long-reads");
    let (reference, reads) = (folder.join("long.fa"), folder.join("long.fq"));
    write_single_reads(&reference, &reads, 60, 8000);
    for preset in ["map-ont", "map-hifi", "map-pb"] {
        let option = format!("--aligner-args=-x {preset}");
        godwit().arg("index").arg(&reference).args(["--aligner", "minimap2", &option]).run_ok();
        assert_identical_single(&reference, &reads, Aligner::Minimap2(preset), &["--aligner", "minimap2", &option]);
        let other = if preset == "map-ont" { "map-hifi" } else { "map-ont" };
        let command = godwit().arg("align").arg("--reference").arg(&reference).arg("--reads").arg(&reads);
        let command = command.args(["--sample", "s", "--aligner", "minimap2"]);
        let command = command.arg(format!("--aligner-args=-x {other}")).arg("--out").arg(folder.join("other"));
        command.run().assert_rejected(&[EXIT_INPUT], &["long.fa.mmi", other, "godwit index"]);
    }
}

/// Writes reads of `least_bases` to twice as many bases, with a mismatch in every hundred.
fn write_single_reads(reference: &Path, reads: &Path, count: usize, least_bases: u64) {
    let mut state = 9u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let genome: Vec<u8> = (0..60_000).map(|_| b"ACGT"[draw(4) as usize]).collect();
    let mut text = String::new();
    for read in 0..count {
        let (start, bases) = (draw(40_000) as usize, (least_bases + draw(least_bases)) as usize);
        let mut sequence = genome[start..start + bases].to_vec();
        for base in &mut sequence {
            if draw(100) == 0 {
                *base = b"ACGT"[draw(4) as usize];
            }
        }
        let sequence = String::from_utf8_lossy(&sequence);
        text += &format!("@read{read}\n{sequence}\n+\n{}\n", "5".repeat(bases));
    }
    write_file(reads, &text);
    write_file(reference, &format!(">one\n{}\n", String::from_utf8_lossy(&genome)));
}

#[test]
fn an_index_of_minimap2_that_is_missing_stale_or_cut_is_refused() {
    needs!("minimap2");
    let folder = scratch::directory("minimap2-index");
    let (reference, reads) = (folder.join("long.fa"), folder.join("long.fq"));
    write_single_reads(&reference, &reads, 60, 2000);
    let run = || {
        let command = godwit().arg("align").arg("--reference").arg(&reference).arg("--reads").arg(&reads);
        command.args(["--sample", "s", "--aligner", "minimap2", "--out"]).arg(folder.join("out")).run()
    };
    run().assert_rejected(&[EXIT_MACHINE], &["long.fa.mmi", "missing", "--aligner minimap2"]);
    let build = || godwit().arg("index").arg(&reference).args(["--aligner", "minimap2"]).run_ok();
    assert!(build().stderr.contains("indexed"));
    assert!(build().stderr.contains("is current"));
    let index = folder.join("long.fa.mmi");
    let whole = std::fs::read(&index).expect("the index was made");
    std::fs::write(&index, &whole[..whole.len() - 4]).expect("the index is ours");
    run().assert_rejected(&[EXIT_INPUT], &["long.fa.mmi", "truncated"]);
    std::fs::write(&index, &whole).expect("the index is ours");
    let text = std::fs::read_to_string(&reference).expect("the reference is ours");
    let (name, bases) = text.split_once('\n').expect("it has two lines");
    let changed = if &bases[41..42] == "A" { "C" } else { "A" };
    write_file(&reference, &format!("{name}\n{}{changed}{}", &bases[..41], &bases[42..]));
    run().assert_rejected(&[EXIT_INPUT], &["long.fa.mmi", "position 42"]);
    assert!(build().stderr.contains("indexed"));
    let command = godwit().arg("align").arg("--reference").arg(&reference).arg("--reads").arg(&reads).arg(&reads);
    let command = command.args(["--sample", "s", "--aligner", "minimap2", "--aligner-args=-x nonsense", "--out"]);
    command.arg(folder.join("out")).run().assert_rejected(&[EXIT_USAGE], &[]);
}

#[test]
fn bowtie2_by_template_gives_the_records_of_its_program_on_one_input_or_two() {
    needs!("bowtie2", "bowtie2-build", "samtools");
    needs_picard!();
    let sample = sample_with_index(&spec(), "bowtie2", "");
    let options = AlignOptions { aligner: Aligner::Bowtie2, ..options_with_block_bases(20_000) };
    // If the command line of bowtie2 has no --rg-id, godwit adds the read group to the records.
    let two_inputs = "bowtie2 -x {index} -1 {reads1} -2 {reads2} -p {threads} --reorder";
    for template in [BOWTIE2_TEMPLATE, two_inputs] {
        let words = ["--aligner", template, "--threads"];
        let outputs = ["1", "3"].map(|threads| assert_identical(&sample, &options, &[&words[..], &[threads]].concat()));
        assert_same_bytes(&outputs);
    }
}

#[test]
fn run_json_and_stderr_say_what_is_known_of_the_aligner() {
    needs!("bowtie2", "bowtie2-build", "minimap2");
    for (aligner, index, identity) in
        [("minimap2", "minimap2", "across blocks"), (BOWTIE2_TEMPLATE, "bowtie2", "single stream only")]
    {
        let sample = sample_with_index(&spec(), index, "");
        let out = scratch::directory("report");
        let finished = align(&sample, &AlignOptions::default(), &out).args(["--aligner", aligner]).run_ok();
        assert_eq!(finished.stderr.contains("one process aligns each lane"), aligner == BOWTIE2_TEMPLATE);
        let report = std::fs::read_to_string(out.join("run.json")).expect("a run leaves a report");
        for line in [
            format!("\"choice\": \"{aligner}\""),
            format!("\"identity\": \"{identity}\""),
            format!("\"name\": \"{index}\""),
            "\"version\": \"2.".into(),
        ] {
            assert!(report.contains(&line), "{line} is not in {report}");
        }
    }
}

fn write_file(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Runs godwit with a shell script as the aligner. `$1` is the input of the script.
fn align_with_script(script: &str) -> GodwitOutput {
    let sample = Sample::cached(&spec());
    let folder = scratch::directory("script");
    write_file(&folder.join("aligner.sh"), script);
    let template = format!("/bin/sh {}/aligner.sh {{reads}}", folder.display());
    let finished = align(&sample, &AlignOptions::default(), &folder.join("out")).args(["--aligner", &template]).run();
    let left: Vec<PathBuf> = std::fs::read_dir(folder.join("out"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    let named = left.iter().any(|path| path.extension().is_some_and(|end| end == "bam"));
    assert_eq!(named, finished.status.success(), "{left:?}");
    finished
}

/// Returns an awk program that reads FASTQ from stdin and executes `print` for each read. `name`, `seq`, `qual` and the
/// number of the read `n` are set, and `flag` is the FLAG of an unmapped read of a pair.
fn awk_aligner(print: &str) -> String {
    let read = "NR % 4 == 1 { name = substr($1, 2) } NR % 4 == 2 { seq = $1 } NR % 4 == 0 { qual = $1; n++; flag = n % 2 ? 77 : 141;";
    format!("awk 'BEGIN {{ OFS = \"\\t\" }} {read} {print} }}' \"$1\"\n")
}

const UNMAPPED_RECORD: &str = r#"print name, flag, "*", 0, 0, "*", "*", 0, 0, seq, qual"#;

#[test]
fn an_aligner_that_answers_every_read_is_taken_at_its_word() {
    needs!("awk");
    let finished = align_with_script(&awk_aligner(&format!("{UNMAPPED_RECORD};")));
    assert!(finished.stderr.contains("records, "), "{}", finished.describe());
}

#[test]
fn an_aligner_that_fails_or_is_killed_is_named_with_its_last_words() {
    needs!("awk");
    let failing = format!("{}echo no more luck >&2\nexit 7\n", awk_aligner(&format!("{UNMAPPED_RECORD};")));
    align_with_script(&failing).assert_rejected(&[EXIT_ENGINE], &["status 7", "no more luck", "aligner.sh"]);
    align_with_script("head -c 1000 \"$1\" >/dev/null; echo good night >&2; kill -9 $$\n")
        .assert_rejected(&[EXIT_ENGINE], &["signal 9", "good night"]);
    align_with_script("echo wrong option >&2; exit 2\n").assert_rejected(&[EXIT_ENGINE], &["status 2", "wrong option"]);
}

#[test]
fn answers_that_are_no_alignment_of_the_reads_are_refused() {
    needs!("awk");
    let cases = [
        ("cat \"$1\"\n".to_owned(), "invalid SAM record"),
        ("cat \"$1\" >/dev/null\n".to_owned(), "record for every read"),
        (awk_aligner(&format!("if (n != 5) {UNMAPPED_RECORD};")), "read 1 of"),
        (awk_aligner(&format!("if (n != 5 && n != 6) {UNMAPPED_RECORD};")), "not in the order of the reads"),
        (awk_aligner(&format!("if (n < 3) {UNMAPPED_RECORD};")), "record for every read"),
        (awk_aligner(&format!("{UNMAPPED_RECORD}; if (n == 8) {UNMAPPED_RECORD};")), "not in the order of the reads"),
        (awk_aligner(&format!("flag = 4; {UNMAPPED_RECORD};")), "reads are paired"),
        (awk_aligner(&format!("name = \"x\" name; {UNMAPPED_RECORD};")), "not in the order of the reads"),
        (
            awk_aligner(&format!("if (n == 1) print \"@SQ\", \"SN:other\", \"LN:5\"; {UNMAPPED_RECORD};")),
            "other of 5 bases",
        ),
        (awk_aligner(&format!("qual = qual \"\\tRG:Z:mine\"; {UNMAPPED_RECORD};")), "read group mine"),
        (awk_aligner(r#"print name, flag - 12, "nowhere", 1, 0, "*", "*", 0, 0, seq, qual;"#), "invalid SAM record"),
    ];
    for (script, word) in cases {
        let finished = align_with_script(&script);
        finished.assert_rejected(&[EXIT_ENGINE], &[word, "/bin/sh"]);
    }
}

#[test]
fn a_missing_aligner_says_how_to_get_it() {
    let sample = Sample::cached(&spec());
    let run = |aligner: &str, path: &str| {
        let out = scratch::directory("missing").join("out");
        align(&sample, &AlignOptions::default(), &out).env("PATH", path).args(["--aligner", aligner]).run()
    };
    run("minimap2", "/nowhere").assert_rejected(&[EXIT_MACHINE], &["minimap2", "apt-get install minimap2"]);
    run("bowtie2 -x {index} {reads}", "/nowhere")
        .assert_rejected(&[EXIT_MACHINE], &["bowtie2", "apt-get install bowtie2"]);
    run("nothing-like-it {reads}", "/usr/bin").assert_rejected(&[EXIT_MACHINE], &["nothing-like-it"]);
    run("bwa3", "/usr/bin").assert_rejected(&[EXIT_USAGE], &["bwa3", "bwa-mem3", "minimap2"]);
    run("a {read}", "/usr/bin").assert_rejected(&[EXIT_USAGE], &["{reads1}"]);
    let command = godwit().arg("index").arg(&sample.reference).args(["--aligner", "bowtie2 -x {index} {reads}"]);
    command.run().assert_rejected(&[EXIT_USAGE], &["bowtie2", "its own tool"]);
}

#[test]
fn a_foreign_aligner_that_hangs_ends_with_godwit() {
    let folder = scratch::directory("hangs");
    write_file(&folder.join("aligner.sh"), "echo $$ >pid\nexec sleep 600\n");
    let sample = Sample::cached(&spec());
    let template = format!("/bin/sh -c 'cd {} && exec /bin/sh aligner.sh'", folder.display());
    let running = align(&sample, &AlignOptions::default(), &folder.join("out")).args(["--aligner", &template]).spawn();
    let id = wait_for("the aligner's start", || {
        let text = std::fs::read_to_string(folder.join("pid")).ok()?;
        text.strip_suffix('\n').map(|id| id.parse().expect("a shell prints numbers of processes"))
    });
    send_signal(running.process_id(), libc::SIGINT);
    running.wait_with_output().assert_rejected(&[130], &["interrupted"]);
    wait_until_exited(&[id]);
}
