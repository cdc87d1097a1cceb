//! Errors for invalid input: the documented exit code, a last line that starts with `godwit: error:` and contains the
//! position, and no file with the name of an output.

use std::io::Write;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, GodwitOutput, godwit, path as godwit_path};
use godwit_tests::processes::{child_processes, send_signal, wait_until_idle};
use godwit_tests::sample::Sample;
use godwit_tests::tool::Tool;
use godwit_tests::wait::wait_for;
use godwit_tests::{needs, scratch};

/// Exit codes of the command-line contract.
const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;
const EXIT_ENGINE: i32 = 5;

/// Suffixes of the output files of a finished run.
const OUTPUT_SUFFIXES: [&str; 6] =
    [".bam", ".bam.bai", ".duplicates.txt", ".flagstat.txt", ".idxstats.txt", "run.json"];

/// Returns the plain-text files of a sample's second lane.
fn mate_files() -> [String; 2] {
    let sample = Sample::two_lanes();
    let text = |mate: usize| std::fs::read_to_string(&sample.lanes[1].reads[mate]).expect("the sample was written");
    [text(0), text(1)]
}

/// Writes `files` and aligns them against the sample's reference, or against `reference`.
fn align_files(files: &[(&str, &[u8])], reference: Option<&Path>) -> (GodwitOutput, PathBuf) {
    let directory = scratch::directory("bad-input");
    let reads: Vec<PathBuf> = files
        .iter()
        .map(|(name, bytes)| {
            std::fs::write(directory.join(name), bytes).expect("the scratch directory can be written to");
            directory.join(name)
        })
        .collect();
    let sample = Sample::two_lanes();
    let reference = reference.unwrap_or_else(|| sample.godwit_indexed_reference());
    let out = directory.join("out");
    (align(reference, &reads, &out).run(), out)
}

fn align(reference: &Path, reads: &[PathBuf], out: &Path) -> GodwitCommand {
    let command = godwit().arg("align").arg("--reference").arg(reference).arg("--reads").args(reads);
    command.args(["--sample", "bad", "--threads", "2", "--block-bases", "50000", "--out"]).arg(out)
}

/// Checks that no file in `directory` has the name of an output.
fn assert_nothing_finished(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let hidden = name.starts_with('.');
        assert!(hidden || !OUTPUT_SUFFIXES.iter().any(|end| name.ends_with(end)), "{name} looks finished");
    }
}

/// Aligns `files` and checks that they are rejected as bad data, with `words` in the message.
fn assert_rejected(files: &[(&str, &[u8])], words: &[&str]) {
    needs!("bwa");
    let (finished, out) = align_files(files, None);
    finished.assert_rejected(&[EXIT_INPUT], words);
    assert_nothing_finished(&out);
}

fn gzip(text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).expect("memory can be written to")
}

/// Returns `text` in which the line `number` (0-based) is replaced.
fn with_line(text: &str, number: usize, line: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines[number] = line;
    lines.join("\n") + "\n"
}

#[test]
fn cram_that_brings_its_library_down_is_damaged_data() {
    let directory = scratch::directory("harmful-cram");
    let bases: String = (0..400u32).map(|at| char::from(b"ACGT"[(at * at / 7 + at / 3) as usize % 4])).collect();
    let reference = directory.join("a.fa");
    std::fs::write(&reference, format!(">a\n{bases}\n")).expect("the scratch directory can be written to");
    for name in ["crash", "memory", "endless", "header"] {
        let input = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/harmful_cram/{name}.cram"));
        let mut command =
            godwit().arg("markdup").arg(&input).args(["--threads", "1", "--out"]).arg(directory.join("o.bam"));
        if name == "crash" {
            command = command.arg("--reference").arg(&reference);
        }
        let finished = command.run();
        finished.assert_rejected(&[EXIT_INPUT], &[&format!("{name}.cram"), "damaged"]);
        assert_nothing_finished(&directory);
    }
}

#[test]
fn a_truncated_gzip_file_is_named() {
    let [one, two] = mate_files();
    let packed = gzip(two.as_bytes());
    assert_rejected(
        &[("r1.fq", one.as_bytes()), ("r2.fq.gz", &packed[..packed.len() * 2 / 3])],
        &["r2.fq.gz", "truncated"],
    );
}

#[test]
fn a_truncated_last_record_is_refused() {
    let [one, two] = mate_files();
    let cut = two.trim_end().rfind('\n').expect("FASTQ has lines");
    assert_rejected(&[("r1.fq", one.as_bytes()), ("r2.fq", &two.as_bytes()[..cut])], &["r2.fq"]);
}

#[test]
fn garbage_in_the_middle_of_text_is_refused() {
    let [one, two] = mate_files();
    let mut bytes = two.into_bytes();
    let middle = bytes.len() / 2;
    for (place, byte) in bytes[middle..middle + 3000].iter_mut().enumerate() {
        *byte = (place * 37 + 128) as u8;
    }
    assert_rejected(&[("r1.fq", one.as_bytes()), ("r2.fq", &bytes)], &["r2.fq"]);
}

#[test]
fn garbage_in_the_middle_of_gzip_is_refused() {
    let [one, two] = mate_files();
    let mut packed = gzip(two.as_bytes());
    let middle = packed.len() / 2;
    packed[middle..middle + 500].fill(0x5a);
    assert_rejected(&[("r1.fq", one.as_bytes()), ("r2.fq.gz", &packed)], &["r2.fq.gz"]);
}

#[test]
fn garbage_after_a_gzip_member_is_refused() {
    let [one, two] = mate_files();
    let packed = [gzip(two.as_bytes()), b"this is no gzip member".to_vec()].concat();
    assert_rejected(&[("r1.fq", one.as_bytes()), ("r2.fq.gz", &packed)], &["r2.fq.gz"]);
}

#[test]
fn mates_out_of_step_are_named_with_their_record() {
    let [one, two] = mate_files();
    let wrong = with_line(&two, 4 * 700, "@somebody:else");
    assert_rejected(&[("r1.fq", one.as_bytes()), ("r2.fq", wrong.as_bytes())], &["701", "somebody:else"]);
}

#[test]
fn a_missing_mate_at_the_end_is_refused() {
    let [one, two] = mate_files();
    let shorter: Vec<&str> = two.lines().take(4 * 899).collect();
    assert_rejected(&[("r1.fq", one.as_bytes()), ("r2.fq", (shorter.join("\n") + "\n").as_bytes())], &["r2.fq", "899"]);
}

#[test]
fn a_quality_string_of_another_length_is_named_with_its_record() {
    let [one, two] = mate_files();
    let wrong = with_line(&two, 4 * 500 + 3, "III");
    assert_rejected(&[("r1.fq", one.as_bytes()), ("r2.fq", wrong.as_bytes())], &["r2.fq", "501", "3 qualities"]);
}

#[test]
fn an_empty_file_is_refused() {
    assert_rejected(&[("r1.fq", b""), ("r2.fq", b"")], &["r1.fq", "no reads"]);
    assert_rejected(&[("r1.fq.gz", &gzip(b""))], &["r1.fq.gz", "no reads"]);
}

#[test]
fn a_file_that_is_no_fastq_is_refused() {
    assert_rejected(&[("r1.fq", b"BAM\x01 or something else\n")], &["r1.fq"]);
}

#[test]
fn a_missing_file_of_reads_is_a_matter_of_this_machine() {
    needs!("bwa");
    let directory = scratch::directory("bad-input");
    let finished =
        align(Sample::two_lanes().godwit_indexed_reference(), &[directory.join("nowhere.fq")], &directory.join("out"))
            .run();
    finished.assert_rejected(&[EXIT_MACHINE], &["nowhere.fq"]);
    assert_nothing_finished(&directory.join("out"));
}

/// Copies the indexed reference, so that a test may damage it.
fn copy_reference() -> PathBuf {
    let indexed = Sample::two_lanes().godwit_indexed_reference().to_path_buf();
    let directory = scratch::directory("own-reference");
    let from = indexed.parent().expect("the reference lies in a directory");
    // Copy the files in the order of their names: the FASTA file precedes its index files, so no index is older than
    // the FASTA file.
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(from).expect("it can be read").map(|entry| entry.expect("it can be read").path()).collect();
    entries.sort();
    for entry in entries {
        let to = directory.join(entry.file_name().expect("an entry has a name"));
        std::fs::copy(&entry, to).expect("the reference can be copied");
    }
    directory.join("ref.fa")
}

fn single_pair_fastq() -> [String; 2] {
    mate_files().map(|text| text.lines().take(400).flat_map(|line| [line, "\n"]).collect())
}

/// Aligns a few good reads against `reference` and checks that it is rejected.
fn assert_reference_rejected(reference: &Path, codes: &[i32], words: &[&str]) {
    let [one, two] = single_pair_fastq();
    let files = [("r1.fq", one.as_bytes()), ("r2.fq", two.as_bytes())];
    let (finished, out) = align_files(&files, Some(reference));
    finished.assert_rejected(codes, words);
    assert_nothing_finished(&out);
}

#[test]
fn a_missing_index_names_the_command_that_makes_it() {
    needs!("bwa");
    let reference = copy_reference();
    for entry in std::fs::read_dir(reference.parent().expect("joined before")).expect("it can be read").flatten() {
        if entry.path() != reference {
            std::fs::remove_file(entry.path()).expect("our own copy can be removed");
        }
    }
    assert_reference_rejected(&reference, &[EXIT_MACHINE], &["ref.fa", "godwit index"]);
}

#[test]
fn a_part_of_the_index_missing_or_cut_short_is_refused() {
    needs!("bwa");
    // Each case truncates one index file. bwa-mem3 does not read `.bwt` and `.sa`.
    let parts = [("bwt", 1000, "bwa"), ("sa", 0, "bwa"), ("pac", 10, "auto"), ("bwt.2bit.64", 1000, "bwa-mem3")];
    for (part, keep, aligner) in parts {
        let reference = copy_reference();
        let path = PathBuf::from(format!("{}.{part}", reference.display()));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        std::fs::write(&path, &bytes[..keep]).expect("our own copy can be written to");
        let [one, two] = ["r1.fq", "r2.fq"].map(|name| reference.with_file_name(name));
        for (file, text) in [&one, &two].into_iter().zip(single_pair_fastq()) {
            std::fs::write(file, text).expect("scratch can be written to");
        }
        let out = reference.with_file_name("out");
        align(&reference, &[one, two], &out)
            .args(["--aligner", aligner])
            .run()
            .assert_rejected(&[EXIT_INPUT], &[part, "index"]);
        assert_nothing_finished(&out);
    }
}

#[test]
fn an_index_older_than_its_reference_or_of_another_is_refused() {
    needs!("bwa");
    let reference = copy_reference();
    // Change the lengths of the contigs, as if the user had edited the reference without building the index again.
    let text = std::fs::read_to_string(&reference).expect("it was copied").replacen("\nA", "\nAACGT", 40);
    std::fs::write(&reference, text).expect("our own copy can be written to");
    assert_reference_rejected(&reference, &[EXIT_INPUT], &["ref.fa", "index"]);
    let reference = copy_reference();
    std::fs::write(&reference, ">other\nACGTACGTACGTACGT\n").expect("our own copy can be written to");
    assert_reference_rejected(&reference, &[EXIT_INPUT], &["ref.fa", "index"]);
}

#[test]
fn duplicate_contig_names_are_refused_when_indexing() {
    needs!("bwa");
    let directory = scratch::directory("duplicate-contigs");
    let reference = directory.join("twice.fa");
    let bases = "ACGTTGCAAGCTTGCATGCCTGCAGGTCGACTCTAGAGGATCCCCGGGTACC";
    std::fs::write(&reference, format!(">a\n{bases}\n>b\n{bases}\n>a\n{bases}\n")).expect("scratch can be written to");
    let finished = godwit().arg("index").arg(&reference).run();
    finished.assert_rejected(&[EXIT_INPUT], &["twice.fa", "a"]);
}

#[test]
fn a_reference_that_is_missing_or_no_fasta_is_refused_when_indexing() {
    needs!("bwa");
    let directory = scratch::directory("no-reference");
    godwit().arg("index").arg(directory.join("nowhere.fa")).run().assert_rejected(&[EXIT_MACHINE], &["nowhere.fa"]);
    for (name, bytes) in [("empty.fa", &b""[..]), ("text.fa", b"this is no FASTA\n")] {
        std::fs::write(directory.join(name), bytes).expect("the scratch directory can be written to");
        godwit().arg("index").arg(directory.join(name)).run().assert_rejected(&[EXIT_INPUT], &[name]);
    }
}

#[test]
fn an_output_directory_that_cannot_be_made_is_refused() {
    needs!("bwa");
    let directory = scratch::directory("no-output");
    let file = directory.join("file");
    std::fs::write(&file, "in the way").expect("the scratch directory can be written to");
    for out in [file.clone(), file.join("below"), PathBuf::from("/proc/godwit-output")] {
        let finished =
            align(Sample::two_lanes().godwit_indexed_reference(), &Sample::two_lanes().lanes[1].reads, &out).run();
        finished.assert_rejected(&[EXIT_MACHINE], &[out.to_str().expect("scratch paths are UTF-8")]);
    }
    assert_eq!(std::fs::read_to_string(&file).expect("it is still there"), "in the way");
}

#[test]
fn markdup_into_a_missing_or_unwritable_directory_is_refused() {
    let directory = scratch::directory("markdup-output");
    let input = directory.join("in.sam");
    std::fs::write(&input, godwit_tests::sam_fuzzer::generate_sam(1).to_text())
        .expect("the scratch directory can be written to");
    for place in ["nowhere", "in.sam"] {
        let out = directory.join(place).join("out.bam");
        let finished = godwit().arg("markdup").arg(&input).arg("--out").arg(&out).run();
        finished.assert_rejected(&[EXIT_MACHINE], &[place]);
    }
    let finished =
        godwit().arg("markdup").arg(directory.join("none.sam")).arg("--out").arg(directory.join("o.bam")).run();
    finished.assert_rejected(&[EXIT_MACHINE], &["none.sam"]);
    assert_nothing_finished(&directory);
}

#[test]
fn markdup_refuses_a_bam_cut_at_a_block_edge_and_a_broken_sam() {
    needs!("samtools");
    let directory = scratch::directory("markdup-broken");
    let (text, whole) = (directory.join("in.sam"), directory.join("in.bam"));
    let case = godwit_tests::sam_fuzzer::generate_sam(3);
    std::fs::write(&text, case.to_text()).expect("the scratch directory can be written to");
    Tool::require("samtools").run(["view".as_ref(), "-bo".as_ref(), whole.as_os_str(), text.as_os_str()]);
    let bytes = std::fs::read(&whole).expect("samtools wrote it");
    // The last 28 bytes of a BGZF file are its end-of-file block. Without them, the file is truncated.
    let broken: [(&str, Vec<u8>); 4] = [
        ("cut.bam", bytes[..bytes.len() - 28].to_vec()),
        ("half.bam", bytes[..bytes.len() / 2].to_vec()),
        ("fields.sam", format!("{}r\t0\tc1\n", case.to_text()).into_bytes()),
        ("contig.sam", format!("{}r\t0\tnone\t1\t0\t1M\t*\t0\t0\tA\tI\n", case.to_text()).into_bytes()),
    ];
    for (name, bytes) in broken {
        let input = directory.join(name);
        std::fs::write(&input, bytes).expect("the scratch directory can be written to");
        let out = directory.join("out").join(format!("{name}.bam"));
        std::fs::create_dir_all(out.parent().expect("joined before")).expect("scratch can be written to");
        let finished = godwit().arg("markdup").arg(&input).arg("--out").arg(&out).run();
        finished.assert_rejected(&[EXIT_INPUT], &[name]);
        assert_nothing_finished(&directory.join("out"));
    }
}

/// A file system of a given size, unmounted on drop.
pub(super) struct TmpfsMount(pub PathBuf);

impl TmpfsMount {
    /// Mounts the file system; `None` when this user may not mount.
    pub(super) fn new(size: &str) -> Option<Self> {
        let path = scratch::directory("small-disk");
        let mount = Tool::find("mount")?;
        let mut command = mount.command();
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "godwit-test"]).arg(&path);
        command.output().ok()?.status.success().then_some(Self(path))
    }
}

impl Drop for TmpfsMount {
    fn drop(&mut self) {
        // Ignore errors: a file system that remains mounted does not change the results.
        let _ = Tool::require("umount").command().arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_is_a_matter_of_this_machine() {
    needs!("bwa");
    let reads = &Sample::two_lanes().lanes[1].reads;
    let elsewhere = scratch::directory("full-disk");
    if let Some(disk) = TmpfsMount::new("64k") {
        // Run the job twice: with scratch files on another disk, so that only the last step fails, and with all files
        // on the full disk.
        for temp in [Some(&elsewhere), None] {
            let out = disk.0.join("out");
            let command = align(Sample::two_lanes().godwit_indexed_reference(), reads, &out);
            let finished = match temp {
                Some(temp) => command.arg("--temp").arg(temp).run(),
                None => command.run(),
            };
            finished.assert_rejected(&[EXIT_MACHINE], &["space"]);
            assert_nothing_finished(&out);
        }
    }
    // A limit of the file size causes a different error than a full disk. It does not require root, so it also works
    // where mounting is not permitted.
    let out = elsewhere.join("limited");
    let finished = align(Sample::two_lanes().godwit_indexed_reference(), reads, &out).limit_file_size(30_000).run();
    finished.assert_rejected(&[EXIT_MACHINE], &[]);
    assert_nothing_finished(&out);
}

#[test]
fn a_killed_aligner_is_a_failure_of_the_engine() {
    needs!("bwa");
    let sample = Sample::two_lanes();
    let text = std::fs::read(&sample.lanes[1].reads[0]).expect("the sample was written");
    for name in ["bwa", "bwa-mem3"] {
        let program = format!("godwit-{name}");
        let path = godwit_path().with_file_name(&program);
        let out = scratch::directory("killed").join("out");
        let (input, mut kept) = std::io::pipe().expect("a pipe can be made");
        let command = align(sample.godwit_indexed_reference(), &["-".into()], &out).args(["--aligner", name]);
        let running = command.stdin(input).spawn();
        // Write enough text for the first chunk, and no more: the aligner has started, has received some of the reads,
        // and waits for the others.
        kept.write_all(&text.repeat(1 + (3 << 20) / text.len())).expect("godwit takes it");
        // Do not signal the process that only prints the version of the aligner.
        let parent = running.process_id();
        let process_id = wait_for("the aligner", || {
            let started = child_processes(parent, path.to_str().expect("it is UTF-8"));
            started.into_iter().find(|id| child_processes(parent, "align").contains(id))
        });
        wait_until_idle(running.process_id());
        send_signal(process_id, libc::SIGKILL);
        running.wait_with_output().assert_rejected(&[EXIT_ENGINE], &[&program, "signal 9"]);
        assert_nothing_finished(&out);
        drop(kept);
    }
}

/// Writes an executable script in place of `godwit-bwa` and runs godwit with it.
fn align_with_fake_bwa(script: &str) -> (GodwitOutput, PathBuf) {
    let directory = scratch::directory("other-aligner");
    let program = directory.join("godwit-bwa");
    scratch::write_executable(&program, script);
    let out = directory.join("out");
    let command = align(Sample::two_lanes().godwit_indexed_reference(), &Sample::two_lanes().lanes[1].reads, &out);
    (command.args(["--aligner", "bwa"]).env("GODWIT_BWA", &program).run(), out)
}

#[test]
fn another_version_of_bwa_is_refused_and_both_are_named() {
    needs!("bwa", "perl");
    let real = godwit_path().with_file_name("godwit-bwa");
    // Run the real program, and change the version in its output.
    let change = "while (sysread STDIN, $bytes, 65536) { $bytes =~ s/0\\.7\\.17/0.7.19/; syswrite STDOUT, $bytes }";
    let script = format!("#!/bin/sh\n'{}' \"$@\" | perl -e '{change}'\n", real.display());
    let (finished, out) = align_with_fake_bwa(&script);
    finished.assert_rejected(&[EXIT_MACHINE, EXIT_ENGINE], &["0.7.19", "0.7.17"]);
    assert_nothing_finished(&out);
}

#[test]
fn an_aligner_that_talks_nonsense_or_ends_at_once_is_a_failure_of_the_engine() {
    needs!("bwa");
    for script in
        ["#!/bin/sh\necho this is not what you expect\nsleep 1\n", "#!/bin/sh\necho out of luck >&2\nexit 3\n"]
    {
        let (finished, out) = align_with_fake_bwa(script);
        finished.assert_rejected(&[EXIT_MACHINE, EXIT_ENGINE], &["godwit-bwa"]);
        assert_nothing_finished(&out);
    }
}

#[test]
fn too_little_memory_for_a_block_is_wrong_usage_and_names_the_minimum() {
    needs!("bwa");
    let out = scratch::directory("memory").join("out");
    let command =
        godwit().arg("align").arg("--reference").arg(Sample::two_lanes().godwit_indexed_reference()).arg("--reads");
    let command = command
        .args(&Sample::two_lanes().lanes[1].reads)
        .args(["--sample", "bad", "--memory", "1M", "--out"])
        .arg(&out);
    command.run().assert_rejected(&[EXIT_USAGE], &["--memory", "minimum is"]);
    assert_nothing_finished(&out);
}

#[test]
fn wrong_usage_exits_2() {
    for words in [&["align"][..], &["align", "--no-such-option"], &["no-such-verb"], &["markdup"]] {
        let finished = godwit().args(words).run();
        assert_eq!(finished.status.code(), Some(EXIT_USAGE), "{}", finished.describe());
        assert!(finished.stderr.contains("godwit: error:"), "{}", finished.describe());
    }
}

#[test]
fn options_of_marking_that_cannot_be_met_are_refused() {
    let directory = scratch::directory("marking");
    let header = "@HD\tVN:1.6\tSO:unsorted\n@SQ\tSN:c\tLN:9000\n@RG\tID:a\tSM:s\n";
    let read = |flag: u16, tags: &str| format!("r1\t{flag}\tc\t10\t60\t4M\t=\t10\t0\tACGT\tIIII\tRG:Z:a\t{tags}\n");
    let run = |text: &str, words: &[&str]| {
        let input = directory.join("in.sam");
        std::fs::write(&input, text).expect("the scratch directory can be written to");
        godwit().arg("markdup").arg(&input).arg("--out").arg(directory.join("out.bam")).args(words).run()
    };
    let sorted = header.replace("unsorted", "coordinate");
    run(&sorted, &["--duplicate-mode", "query"])
        .assert_rejected(&[EXIT_USAGE], &["in.sam", "SO:coordinate", "collate"]);
    for words in [&["--duplicates", "none", "--tagging-policy", "all"][..], &["--barcode-tag", "R"]] {
        run(header, words).assert_rejected(&[EXIT_USAGE], &[words[0]]);
    }
    for words in [&["--duplex-umi"][..], &["--molecular-identifier-tag", "MI"]] {
        run(header, words).assert_rejected(&[EXIT_USAGE], &["--barcode-tag"]);
    }
    for (tags, words) in [
        ("RX:Z:AXG", &["--barcode-tag", "RX"][..]),
        ("RX:i:5", &["--barcode-tag", "RX"]),
        ("RX:i:5", &["--read-one-barcode-tag", "RX"]),
        ("RX:Z:AC\tMC:Z:4M", &["--barcode-tag", "RX", "--duplex-umi"]),
        ("RX:Z:A-C-G\tMC:Z:4M", &["--barcode-tag", "RX", "--duplex-umi"]),
        ("RX:Z:A-C", &["--barcode-tag", "RX", "--duplex-umi"]),
        ("RX:Z:A-C\tMC:Z:4", &["--barcode-tag", "RX", "--duplex-umi"]),
    ] {
        run(&format!("{header}{}", read(0x41, tags)), words).assert_rejected(&[EXIT_INPUT], &["RX", "r1"]);
        assert!(!directory.join("out.bam").exists());
    }
}
