//! Checks at the start for errors that would otherwise appear at the end: references in every compression, names of
//! outputs, lanes, read groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, GodwitOutput, godwit};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

use super::variant_calling::write_reference;

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;

/// A reference in three forms, and reads simulated from it.
struct SimulatedReads {
    directory: PathBuf,
    reads: [PathBuf; 2],
}

impl SimulatedReads {
    /// Returns the references `plain.fa`, `blocks.fa.gz` (bgzip) and `members.fa.gz` (gzip), and reads. They are
    /// created once for all tests.
    fn cached() -> &'static Self {
        static SIMULATED: OnceLock<SimulatedReads> = OnceLock::new();
        SIMULATED.get_or_init(|| {
            let directory = scratch::directory("checked-at-start");
            let plain = directory.join("plain.fa");
            write_reference(&plain);
            for (program, name) in [("bgzip", "blocks.fa.gz"), ("gzip", "members.fa.gz")] {
                let packed = run_checked(Tool::require(program).command().arg("-c").arg(&plain)).stdout;
                fs::write(directory.join(name), packed).expect("the scratch directory can be written to");
            }
            godwit().arg("index").arg(&plain).run_ok();
            let prefix = directory.join("reads");
            let simulate = godwit().arg("simulate").arg("--reference").arg(&plain);
            simulate.args(["--pairs", "1500", "--seed", "3", "--out"]).arg(&prefix).run_ok();
            let reads = [1, 2].map(|mate| PathBuf::from(format!("{}_L001_R{mate}.fastq", prefix.display())));
            Self { directory, reads }
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn align(&self, reference: &str, out: &Path) -> GodwitCommand {
        let command = godwit().arg("align").arg("--reference").arg(self.file(reference)).arg("--reads");
        command.args(&self.reads).args(["--sample", "s", "--threads", "2", "--out"]).arg(out)
    }
}

fn samtools(words: &[&Path]) -> String {
    String::from_utf8(Tool::require("samtools").run(words).stdout).expect("samtools prints text")
}

/// Returns the records, without the header, whose `@PG` lines name other files.
fn records(path: &Path, reference: &Path) -> String {
    samtools(&[Path::new("view"), Path::new("-T"), reference, path])
}

/// Returns the lines of metrics without those that name files or versions.
fn metric_lines(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Checks that a run was rejected before a read was aligned or an output created.
fn assert_rejected_before_work(finished: &GodwitOutput, out: &Path, codes: &[i32], words: &[&str]) {
    finished.assert_rejected(codes, words);
    assert!(!finished.stderr.contains("reads aligned"), "{}", finished.describe());
    assert!(!out.join(".godwit").exists() && !out.join("s.bam").exists(), "{}", finished.describe());
}

#[test]
fn a_reference_compressed_with_bgzip_works_in_every_verb_as_the_plain_one_does() {
    needs!("bwa", "bgzip", "gzip", "samtools", "bcftools", "freebayes");
    let sample = SimulatedReads::cached();
    let (plain, packed) = (sample.file("plain.fa"), sample.file("blocks.fa.gz"));
    let again = godwit().arg("index").arg(&packed).run_ok();
    assert!(
        sample.file("blocks.fa.gz.gzi").is_file() && sample.file("blocks.fa.gz.fai").is_file(),
        "{}",
        again.describe()
    );
    let made = samtools(&[Path::new("faidx"), &packed, Path::new("chr1:49990-50000"), Path::new("chrM")]);
    assert_eq!(made, samtools(&[Path::new("faidx"), &plain, Path::new("chr1:49990-50000"), Path::new("chrM")]));
    let outs = ["plain.fa", "blocks.fa.gz"].map(|reference| {
        let out = sample.directory.join(format!("out-{reference}"));
        let dry = sample.align(reference, &out).args(["--format", "bam,cram", "--dry-run"]).run_ok();
        assert!(dry.stdout.contains("all checks passed"), "{}", dry.describe());
        sample.align(reference, &out).args(["--format", "bam,cram"]).run_ok();
        out
    });
    for name in ["s.bam", "s.cram"] {
        assert!(records(&outs[0].join(name), &plain) == records(&outs[1].join(name), &plain), "{name}");
    }
    for name in ["s.alignment_summary.txt", "s.insert_size.txt", "s.stats.txt", "s.mosdepth.summary.txt"] {
        assert_eq!(metric_lines(&outs[0].join(name)), metric_lines(&outs[1].join(name)), "{name}");
    }
    let vcfs = [(&plain, &outs[0]), (&packed, &outs[1])].map(|(reference, out)| {
        let vcf = out.join("called.vcf.gz");
        godwit().arg("call").arg("--reference").arg(reference).arg("--reads").arg(out).arg("--out").arg(&vcf).run_ok();
        vcf
    });
    let variants = |vcf: &Path| run_checked(Tool::require("bcftools").command().args(["view", "-H"]).arg(vcf)).stdout;
    assert!(!variants(&vcfs[0]).is_empty() && variants(&vcfs[0]) == variants(&vcfs[1]));
    godwit().arg("compare").args(&vcfs).arg("--reference").arg(&packed).run_ok();
    let freebayes = godwit().arg("call").arg("--reference").arg(&packed).arg("--reads").arg(&outs[1]);
    let freebayes = freebayes.args(["--caller", "freebayes", "--out"]).arg(outs[1].join("f.vcf.gz")).run();
    freebayes.assert_rejected(
        &[EXIT_USAGE],
        &["freebayes cannot read the compressed reference", "blocks.fa.gz", "bgzip -d"],
    );
    for (from, to) in [("s.cram", "from-cram.bam"), ("s.bam", "from-bam.cram")] {
        let marked = outs[1].join(to);
        let markdup = godwit().arg("markdup").arg(outs[1].join(from)).arg("--reference").arg(&packed);
        markdup.arg("--out").arg(&marked).run_ok();
        // Compare only the first eleven fields, because CRAM stores the tag RG after the other tags.
        let fields = |text: String| {
            text.lines().map(|line| line.split('\t').take(11).collect::<Vec<_>>().join("\t")).collect::<Vec<_>>()
        };
        let (found, expected) = (records(&marked, &plain), records(&outs[0].join("s.bam"), &plain));
        assert!(fields(found) == fields(expected), "{to}");
    }
    let (gwp, fa) = (sample.file("plain.gwp"), sample.file("unpacked.fa"));
    godwit().arg("pack").arg("--reference").arg(&packed).arg(&plain).arg(&gwp).run_ok();
    godwit().arg("unpack").arg("--reference").arg(&packed).arg(&gwp).arg(&fa).run_ok();
    assert!(fs::read(&fa).expect("it was written") == fs::read(&plain).expect("it was written"));
}

#[test]
fn an_index_of_blocks_that_is_of_another_file_or_missing_does_no_harm() {
    needs!("bwa", "bgzip", "gzip", "samtools", "bcftools");
    let sample = SimulatedReads::cached();
    let directory = scratch::directory("blocks-elsewhere");
    let packed = directory.join("r.fa.gz");
    fs::copy(sample.file("blocks.fa.gz"), &packed).expect("it can be copied");
    let sam = "@HD\tVN:1.6\n@SQ\tSN:chr1\tLN:50000\nr\t0\tchr1\t49900\t60\t4M\t*\t0\t0\tACGT\tIIII\n";
    fs::write(directory.join("in.sam"), sam).expect("the scratch directory can be written to");
    for gzi in [None, Some(&b"\x01\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0"[..])] {
        if let Some(gzi) = gzi {
            fs::write(directory.join("r.fa.gz.gzi"), gzi).expect("the scratch directory can be written to");
        }
        let markdup = godwit().arg("markdup").arg(directory.join("in.sam")).arg("--reference").arg(&packed);
        markdup.arg("--out").arg(directory.join("o.cram")).run_ok();
        let records = records(&directory.join("o.cram"), &sample.file("plain.fa"));
        assert!(records.starts_with("r\t0\tchr1\t49900\t60\t4M"), "{records}");
    }
}

#[test]
fn a_reference_compressed_with_gzip_is_refused_before_anything_starts() {
    needs!("bwa", "bgzip", "gzip", "samtools", "bcftools");
    let sample = SimulatedReads::cached();
    let gzip = sample.file("members.fa.gz");
    let words = ["members.fa.gz", "compressed with gzip", "bgzip"];
    godwit().arg("index").arg(&gzip).run().assert_rejected(&[EXIT_INPUT], &words);
    assert!(!sample.file("members.fa.gz.bwt").exists(), "the index is not built first");
    run_checked(Tool::require("bwa").command().arg("index").arg(&gzip));
    let out = sample.directory.join("out-members");
    for more in [&[][..], &["--dry-run"], &["--metrics", "off", "--format", "cram"]] {
        let finished = sample.align("members.fa.gz", &out).args(more).run();
        assert_rejected_before_work(&finished, &out, &[EXIT_INPUT], &words);
    }
    // Without metrics, the job reads the reference only from start to end, so it also accepts a gzip file.
    sample.align("members.fa.gz", &out).args(["--metrics", "off"]).run_ok();
    let bam = out.join("s.bam");
    for (verb, to) in [("markdup", "m.bam"), ("markdup", "m.cram"), ("call", "c.vcf.gz")] {
        let command = godwit().arg(verb).arg("--reference").arg(&gzip);
        let command = if verb == "call" { command.arg("--reads") } else { command.arg("--metrics") };
        command.arg(&bam).arg("--out").arg(out.join(to)).run().assert_rejected(&[EXIT_INPUT], &words);
    }
}

#[test]
fn names_that_outputs_cannot_have_are_refused_before_the_work() {
    needs!("bwa", "bgzip", "gzip", "samtools", "bcftools");
    let sample = SimulatedReads::cached();
    let root = scratch::directory("names-taken");
    let names = [
        "s.bam",
        "s.bam.bai",
        "s.flagstat.txt",
        "s.idxstats.txt",
        "s.duplicates.txt",
        "s.alignment_summary.txt",
        "s.stats.txt",
        "s.manifest.json",
        "run.json",
        "report.html",
    ];
    for name in names {
        let out = root.join(format!("align-{name}"));
        fs::create_dir_all(out.join(name)).expect("the scratch directory can be written to");
        for more in [&[][..], &["--dry-run"]] {
            let finished = sample.align("plain.fa", &out).args(more).run();
            finished.assert_rejected(&[EXIT_MACHINE], &["cannot write", name, "directory"]);
            assert!(!out.join(".godwit").exists(), "{}", finished.describe());
        }
    }
    let file = root.join("file");
    fs::write(&file, "").expect("the scratch directory can be written to");
    for more in [&[][..], &["--dry-run"]] {
        sample.align("plain.fa", &file).args(more).run().assert_rejected(&[EXIT_MACHINE], &["file"]);
    }
    let done = root.join("done");
    sample.align("plain.fa", &done).run_ok();
    for name in ["m.bam", "m.bam.bai", "m.flagstat.txt", "m.run.json", "m.report.html", "m.manifest.json"] {
        let out = root.join(format!("markdup-{name}"));
        fs::create_dir_all(out.join(name)).expect("the scratch directory can be written to");
        for more in [&[][..], &["--dry-run"]] {
            let markdup = godwit().arg("markdup").arg(done.join("s.bam")).arg("--out").arg(out.join("m.bam"));
            markdup.args(more).run().assert_rejected(&[EXIT_MACHINE], &["cannot write", name]);
        }
    }
    for name in ["c.vcf.gz", "c.vcf.gz.tbi", "c.vcf.gz.run.json", "c.vcf.gz.manifest.json"] {
        let out = root.join(format!("call-{name}"));
        fs::create_dir_all(out.join(name)).expect("the scratch directory can be written to");
        let call = godwit().arg("call").arg("--reference").arg(sample.file("plain.fa")).arg("--reads").arg(&done);
        let finished = call.arg("--out").arg(out.join("c.vcf.gz")).run();
        finished.assert_rejected(&[EXIT_MACHINE], &["cannot write", name]);
        assert_eq!(scratch::entry_names(&out), [name], "no region was called");
        // `align --call` must report the same error before it aligns the first read.
        let live = root.join(format!("live-{name}"));
        let beside = name.replacen("c.", "s.", 1);
        fs::create_dir_all(live.join(&beside)).expect("the scratch directory can be written to");
        let finished = sample.align("plain.fa", &live).args(["--call"]).run();
        assert_rejected_before_work(&finished, &live, &[EXIT_MACHINE], &["cannot write", &beside]);
    }
    let directory = root.join("a-directory");
    fs::create_dir_all(&directory).expect("the scratch directory can be written to");
    let pack = godwit().arg("pack").arg("--reference").arg(sample.file("plain.fa")).arg(sample.file("plain.fa"));
    pack.arg(&directory).run().assert_rejected(&[EXIT_MACHINE], &["a-directory", "directory"]);
}

#[test]
fn a_lane_without_reads_or_without_fastq_is_refused_before_the_lanes_before_it_are_aligned() {
    needs!("bwa", "bgzip", "gzip");
    let sample = SimulatedReads::cached();
    let directory = scratch::directory("empty-lanes");
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        fs::write(&path, bytes).expect("the scratch directory can be written to");
        path
    };
    let eof = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0\x03\0\0\0\0\0\0\0\0\0";
    let cases = [
        (file("empty.fq", b""), "has no reads"),
        (file("blank.fq", b"\n\n"), "has no reads"),
        (file("empty.fq.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "has no reads"),
        (file("eof.fq.gz", eof), "has no reads"),
        (PathBuf::from("/dev/null"), "has no reads"),
        (file("notes.fq", b"these are no reads\n"), "notes.fq"),
    ];
    for (path, problem) in cases {
        let out = directory.join(format!("out-{}", path.file_name().expect("it has a name").display()));
        for more in [&[][..], &["--dry-run"]] {
            let finished = sample.align("plain.fa", &out).arg("--reads").arg(&path).arg(&path).args(more).run();
            let same = path.is_file() && finished.stderr.contains("are the same file");
            if !same {
                assert_rejected_before_work(&finished, &out, &[EXIT_INPUT], &[problem]);
            }
            let finished = sample.align("plain.fa", &out).arg("--reads").arg(&path).args(more).run();
            assert_rejected_before_work(&finished, &out, &[EXIT_INPUT], &[problem]);
        }
    }
}

#[test]
fn read_groups_that_other_tools_would_refuse_are_completed_or_told_of() {
    needs!("bwa", "bgzip", "gzip", "samtools");
    let sample = SimulatedReads::cached();
    let directory = scratch::directory("read-groups");
    let header = |out: &Path| samtools(&[Path::new("view"), Path::new("-H"), &out.join("s.bam")]);
    for (given, written, warned) in [
        ("@RG\\tID:x", "@RG\tID:x\tSM:s\n", None),
        ("@RG\tID:x\tLB:l", "@RG\tID:x\tLB:l\tSM:s\n", None),
        ("@RG\\tID:x\\tSM:other", "@RG\tID:x\tSM:other\n", Some("SM:other, but --sample is s")),
        ("@RG\\tID:x\\tSM:s\\tPL:HiSeq", "@RG\tID:x\tSM:s\tPL:HiSeq\n", Some("PL:HiSeq")),
        ("@RG\\tID:x\\tSM:s\\tPL:illumina", "@RG\tID:x\tSM:s\tPL:illumina\n", None),
    ] {
        let out = directory.join(format!("out{}", scratch::entry_names(&directory).len()));
        let finished = sample.align("plain.fa", &out).args(["--read-group", given]).run_ok();
        assert!(header(&out).contains(written), "{given}: {}", header(&out));
        let warnings: Vec<&str> = finished.stderr.lines().filter(|line| line.contains("warning")).collect();
        match warned {
            None => assert!(warnings.is_empty(), "{given}: {warnings:?}"),
            Some(words) => assert!(warnings.len() == 1 && warnings[0].contains(words), "{given}: {warnings:?}"),
        }
        let dry = sample.align("plain.fa", &directory.join("dry")).args(["--read-group", given, "--dry-run"]).run_ok();
        let told = dry.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(warned.is_none_or(|words| told.contains(words)), "{}", dry.describe());
    }
    let sam = directory.join("in.sam");
    let text = "@HD\tVN:1.6\n@SQ\tSN:c\tLN:1000\n@RG\tID:a\nr\t0\tc\t10\t60\t4M\t*\t0\t0\tACGT\tIIII\tRG:Z:a\n";
    fs::write(&sam, text).expect("the scratch directory can be written to");
    let finished = godwit().arg("markdup").arg(&sam).arg("--out").arg(directory.join("o.bam")).run_ok();
    assert!(finished.stderr.contains("warning: read group a has no sample"), "{}", finished.describe());
}

#[test]
fn a_run_shorter_than_the_first_interval_prints_no_progress() {
    needs!("bwa", "bgzip", "gzip", "bcftools");
    let sample = SimulatedReads::cached();
    let directory = scratch::directory("short-progress");
    let (out, vcf) = (directory.join("out"), directory.join("c.vcf.gz"));
    let align = sample.align("plain.fa", &out).args(["--progress", "plain"]).run_ok();
    let markdup = godwit().arg("markdup").arg(out.join("s.bam")).arg("--out").arg(directory.join("m.bam"));
    let markdup = markdup.args(["--progress", "plain"]).run_ok();
    let call = godwit().arg("call").arg("--reference").arg(sample.file("plain.fa")).arg("--reads").arg(&out);
    let call = call.arg("--out").arg(&vcf).args(["--progress", "plain"]).run_ok();
    let copy = godwit().arg("copy").arg(&vcf).arg(directory.join("copy.vcf.gz")).args(["--progress", "plain"]).run();
    for finished in [align, markdup, call, copy] {
        let steps = ["% ", "per second", "partitions written", "regions called", "MB copied"];
        assert!(!steps.iter().any(|step| finished.stderr.contains(step)), "{}", finished.describe());
    }
}

#[test]
fn no_verb_replaces_its_input() {
    let directory = scratch::directory("inputs-remain");
    let vcf = "##fileformat=VCFv4.2\n##contig=<ID=c,length=100>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n\
               c\t5\t.\tA\tC\t.\t.\t.\n";
    let sam = "@HD\tVN:1.6\n@SQ\tSN:c\tLN:100\n@RG\tID:a\tSM:s\nr\t0\tc\t1\t60\t4M\t*\t0\t0\tACGT\tIIII\tRG:Z:a\n";
    let fasta = format!(">c\n{}\n", "ACGT".repeat(25));
    let files = [
        ("a.vcf", vcf),
        ("a.bed", "c\t1\t5\n"),
        ("a.csv", "x\n1\n"),
        ("a.sam", sam),
        ("s_L001_R2.fastq", fasta.as_str()),
        ("s.truth.vcf", fasta.as_str()),
        ("q.fa", ">q\nMKV\n"),
        ("db.psq", "letters"),
    ];
    for (name, text) in files {
        fs::write(directory.join(name), text).expect("the scratch directory can be written to");
    }
    for (name, link) in [("a.vcf", "vcf.parquet"), ("s.truth.vcf", "ref.bam")] {
        fs::hard_link(directory.join(name), directory.join(link)).expect("the scratch directory can be written to");
    }
    let search = ["search", "--", "blastp", "-db", "db", "-query", "q.fa", "-out"];
    let summary = ["search", "--summary", "q.fa", "--", "blastp", "-db", "db", "-query", "q.fa", "-out", "o"];
    let simulate = |reference| ["simulate", "--reference", reference, "--pairs", "5", "--out", "s"];
    let commands: [(&[&str], [&str; 2]); 15] = [
        (&["query", "SELECT * FROM \"a.vcf\"", "--out", "a.vcf"], ["--out", "dataset"]),
        (&["query", "SELECT contig FROM variants('*.vcf') LIMIT 1", "--out", "a.vcf"], ["--out", "dataset"]),
        (&["query", "COPY (SELECT * FROM \"a.bed\") TO 'a.bed'"], ["TO", "dataset"]),
        (&["query", "SELECT 1", "--parameters-from", "a.csv", "--out", "a.csv"], ["--out", "--parameters-from"]),
        (&["query", "SELECT 1", "--reference", "q.fa", "--out", "q.fa"], ["--out", "--reference"]),
        (&["score", "--model", "m", "--at", "grpc+tcp://localhost:1", "a.csv", "--out", "a.csv"], ["--out", "IN"]),
        (&["variants", "a.vcf", "--out", "vcf.parquet"], ["would replace", "a.vcf"]),
        (&["markdup", "a.sam", "--reference", "s.truth.vcf", "--out", "ref.bam"], ["would replace", "s.truth.vcf"]),
        (&simulate("s_L001_R2.fastq"), ["--out", "--reference"]),
        (&simulate("s.truth.vcf"), ["--out", "--reference"]),
        (&[&search[..], &["q.fa"]].concat(), ["-out", "-query"]),
        (&[&search[..], &["db.psq"]].concat(), ["-out", "-db"]),
        (&["search", "--", "blastp", "-subject", "q.fa", "-query", "a.bed", "-out", "q.fa"], ["-out", "-subject"]),
        (&summary, ["--summary", "-query"]),
        (&["search", "--summary", "o", "--", "blastp", "-db", "db", "-out", "o"], ["--summary", "another output"]),
    ];
    for (words, named) in commands {
        godwit().current_dir(&directory).args(words).run().assert_rejected(&[EXIT_USAGE], &named);
        for (name, text) in files {
            let found = fs::read(directory.join(name)).expect("it is still there");
            assert!(found == text.as_bytes(), "{words:?} replaced {name}");
        }
    }
}
