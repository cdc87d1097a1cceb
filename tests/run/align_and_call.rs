//! `godwit align --call`, which calls regions while the BAM is written: its VCF equals that of a later `godwit call`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, GodwitOutput, godwit};
use godwit_tests::processes::{send_signal, wait_for_children};
use godwit_tests::slurm;
use godwit_tests::tool::Tool;
use godwit_tests::{gatk, needs, needs_gatk, needs_slurm, scratch};
use serde_json::Value;

use super::call_failures::wrapped_bcftools_path;
use super::variant_calling::{AlignedSample, vcf_records};

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_ENGINE: i32 = 5;
/// A grid of about twelve regions.
const GRID_ARGS: [&str; 2] = ["--grid-size", "7K"];

/// Returns the command line that aligns the reads of [`AlignedSample`].
fn align(out: &Path) -> GodwitCommand {
    align_with(&["--metrics", "off"], out)
}

fn align_with(words: &[&str], out: &Path) -> GodwitCommand {
    let aligned = AlignedSample::cached();
    let reads = [1, 2].map(|mate| aligned.reference.with_file_name(format!("reads_L001_R{mate}.fastq")));
    let command = godwit().arg("align").arg("--reference").arg(&aligned.reference).arg("--reads").args(reads);
    command.args(["--sample", "s", "--json"]).args(words).arg("--out").arg(out)
}

fn align_and_call(out: &Path, caller: &str) -> GodwitCommand {
    align(out).args(["--call", caller]).args(GRID_ARGS)
}

/// Returns the VCF that `godwit call` writes when the alignment is done. Without options, it runs once for all tests.
fn call_after_alignment(words: &[&str]) -> PathBuf {
    static WITHOUT_OPTIONS: OnceLock<PathBuf> = OnceLock::new();
    let call = || {
        let out = scratch::directory("afterwards").join("s.vcf.gz");
        let aligned = AlignedSample::cached();
        aligned.call_file(&aligned.bam(), &out).args(words).run_ok();
        out
    };
    if words.is_empty() { WITHOUT_OPTIONS.get_or_init(call).clone() } else { call() }
}

#[track_caller]
fn assert_same(out: &Path, expected: &Path) {
    for ending in ["", ".tbi"] {
        let name = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        let [found, expected] = [out, expected].map(|path| fs::read(name(path)).expect("it was written"));
        assert!(found == expected, "{} is not that of call afterwards", name(out).display());
    }
    assert!(!vcf_records(out).is_empty(), "nothing was called, so nothing is shown");
}

/// Counts the regions that were called before the last partition was written.
fn regions_called_while_writing(finished: &GodwitOutput) -> usize {
    let written = finished.stderr.rfind("{\"event\":\"written\"").expect("partitions are told");
    finished.stderr[..written].matches("{\"event\":\"called\"").count()
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("it was written")).expect("it is JSON")
}

#[test]
fn regions_called_while_the_bam_is_written_give_the_bytes_of_call_afterwards() {
    needs!("bcftools", "bgzip");
    let expected = call_after_alignment(&[]);
    for threads in ["1", "2", "4"] {
        let out = scratch::directory("live");
        let run = align_and_call(&out, "bcftools").args(["--threads", threads]).run_ok();
        // A single thread calls all available regions before it continues writing. With several threads, the number of
        // called regions depends on their speed.
        let called = if threads == "1" { 5 } else { 0 };
        assert!(regions_called_while_writing(&run) >= called, "{}", run.describe());
        assert_same(&out.join("s.vcf.gz"), &expected);
        assert!(
            scratch::entry_names(&out).iter().all(|name| !name.starts_with('.')),
            "{:?}",
            scratch::entry_names(&out)
        );
        let calling = &read_json(&out.join("run.json"))["calling"];
        assert_eq!(calling["caller"], "bcftools");
        assert!(calling["regions_while_writing"].as_u64() >= Some(called as u64), "{calling}");
        let verified = godwit().arg("verify").arg(&out).run_ok();
        assert!(verified.stdout.contains("s.vcf.gz") && verified.stdout.contains("s.bam"), "{}", verified.describe());
    }
    // Without --caller, bcftools calls the variants, and a later `godwit call` reuses the called regions.
    let out = scratch::directory("live");
    align(&out).args(GRID_ARGS).args(["--format", "bam,cram", "--partitions", "5", "--call"]).run_ok();
    assert_same(&out.join("s.vcf.gz"), &expected);
    let vcf = out.join("s.vcf.gz");
    let again = AlignedSample::cached().call_file(&out.join("s.bam"), &vcf).arg("--resume").run_ok();
    assert!(again.stderr.contains("already complete"), "{}", again.describe());
    let again =
        align(&out).args(GRID_ARGS).args(["--format", "bam,cram", "--partitions", "5", "--call", "--resume"]).run_ok();
    assert_eq!(again.stderr.matches("already complete").count(), 2, "{}", again.describe());
}

#[test]
fn a_ploidy_that_the_caller_does_not_support_is_rejected_before_the_alignment() {
    needs!("bcftools");
    let table = scratch::directory("live-ploidy").join("ploidy.txt");
    fs::write(&table, "chr1 1 50000 * 4\n").expect("scratch can be written to");
    let out = scratch::directory("live-tetraploid");
    for words in [&["--call"][..], &["--call", "--dry-run"]] {
        let run = align(&out).args(words).arg("--ploidy").arg(&table).run();
        run.assert_rejected(&[EXIT_USAGE], &["bcftools supports ploidy 1 and 2, not 4"]);
        assert_eq!(scratch::entry_names(&out), [] as [&str; 0]);
    }
}

#[test]
fn options_of_calling_hold_and_the_page_tells_of_it() {
    needs!("bcftools", "bgzip");
    let bed = scratch::directory("live-bed").join("targets.bed");
    fs::write(&bed, "chr1\t1000\t9000\nchr1\t30000\t44000\nchrX\t100\t15000\n").expect("scratch can be written to");
    let bed = bed.to_str().expect("scratch has a plain name");
    let words = ["--regions", bed, "--ploidy", "X", "--sex", "M", "--padding", "500", "--caller-args", "-q 20 | -m"];
    let expected = call_after_alignment(&words);
    let out = scratch::directory("live-options");
    let run = align_with(&["--call", "--threads", "1"], &out).args(GRID_ARGS).args(words).run_ok();
    assert!(regions_called_while_writing(&run) > 0, "{}", run.describe());
    assert_same(&out.join("s.vcf.gz"), &expected);
    let page = fs::read_to_string(out.join("report.html")).expect("there are metrics");
    assert!(page.contains("<h2>Variants</h2>") && page.contains("Called while the BAM was written"), "{page}");
}

#[test]
fn other_callers_give_the_bytes_of_call_afterwards() {
    needs!("bcftools", "freebayes", "bgzip", "bash");
    let template = "freebayes -f {reference} -t {bed} -p {ploidy} {bam}";
    for caller in ["freebayes", template] {
        let out = scratch::directory("live-callers");
        let run = align_and_call(&out, caller).args(["--threads", "1"]).run_ok();
        // godwit does not start these callers during the alignment, because they may give other results for an
        // incomplete file.
        assert_eq!(regions_called_while_writing(&run), 0, "{}", run.describe());
        // Use the same path for both runs, because the last digits of freebayes depend on the length of its paths.
        let (vcf, live) = (out.join("s.vcf.gz"), out.join("live.vcf.gz"));
        for ending in ["", ".tbi"] {
            let name = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
            fs::rename(name(&vcf), name(&live)).expect("it was written");
        }
        AlignedSample::cached().call_file(&out.join("s.bam"), &vcf).args(["--caller", caller]).run_ok();
        assert_same(&live, &vcf);
    }
    // If CRAM is the only output, calling starts after the CRAM is complete.
    let expected = call_after_alignment(&[]);
    let out = scratch::directory("live-cram");
    let run = align_and_call(&out, "bcftools").args(["--format", "cram"]).run_ok();
    assert_eq!(regions_called_while_writing(&run), 0, "{}", run.describe());
    assert_same(&out.join("s.vcf.gz"), &expected);
}

#[test]
#[ignore = "two minutes of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored align_and_call::"]
fn haplotype_caller_reads_a_bam_that_is_being_written() {
    needs!("bgzip");
    needs_gatk!();
    for (name, arguments) in [("s.vcf.gz", ""), ("s.g.vcf.gz", "-ERC GVCF")] {
        let words = ["--caller-memory", "1G", "--grid-size", "20K", "--caller-args", arguments];
        let aligned = AlignedSample::cached();
        let expected = scratch::directory("afterwards").join(name);
        let call = aligned.call_with_grid("20K", &expected).args(["--caller", "gatk", "--caller-memory", "1G"]);
        call.args(["--caller-args", arguments, "--threads", "2"]).with_gatk().run_ok();
        let out = scratch::directory("live-gatk");
        let run = align(&out).args(["--call", "gatk", "--threads", "1"]).args(words).with_gatk();
        let run = run.run_ok();
        assert!(regions_called_while_writing(&run) > 0 && run.count_events("warning") == 0, "{}", run.describe());
        assert_same(&out.join(name), &expected);
    }
}

#[test]
fn workers_that_align_call_afterwards() {
    needs!("bcftools", "bgzip");
    let expected = call_after_alignment(&[]);
    let out = scratch::directory("live-nodes");
    let run = align_and_call(&out, "bcftools").args(["--on", "local", "--nodes", "2", "--threads", "1"]).run_ok();
    assert_eq!(regions_called_while_writing(&run), 0, "{}", run.describe());
    assert_same(&out.join("s.vcf.gz"), &expected);
    let calling = &read_json(&out.join("run.json"))["calling"];
    assert_eq!(calling["nodes"].as_array().map(Vec::len), Some(2), "{calling}");
    assert!(scratch::entry_names(&out).iter().all(|name| !name.starts_with('.')), "{:?}", scratch::entry_names(&out));
}

#[test]
fn a_failed_cluster_alignment_leaves_nothing_of_calling() {
    needs!("bcftools");
    let directory = scratch::directory("live-broken");
    let (reads, out) = (directory.join("broken.fastq"), directory.join("out"));
    fs::write(&reads, "@a\nACGT\n+\nIIII\n@b\nAC\n").expect("scratch can be written to");
    let align =
        godwit().arg("align").arg("--reference").arg(&AlignedSample::cached().reference).arg("--reads").arg(&reads);
    let align = align.args(["--sample", "s", "--call", "--on", "local", "--nodes", "1", "--threads", "1", "--out"]);
    align.arg(&out).run().assert_rejected(&[EXIT_INPUT], &["broken.fastq"]);
    assert_eq!(scratch::entry_names(&out), [] as [&str; 0]);
}

#[test]
fn a_slurm_job_aligns_and_calls() {
    needs!("bcftools", "bgzip");
    needs_slurm!();
    let expected = call_after_alignment(&[]);
    let out = scratch::directory("live-slurm");
    let cluster = slurm::shared_cluster();
    let run = align_and_call(&out, "bcftools").args(["--on", "slurm", "--nodes", "2", "--slurm-memory", "900M"]);
    let run = run.env("SLURM_CONF", cluster.slurm_conf()).run();
    assert!(run.status.success(), "{}", run.describe());
    assert_same(&out.join("s.vcf.gz"), &expected);
    // With so few regions, the second worker may not call any region.
    let calling = &read_json(&out.join("run.json"))["calling"];
    assert!(calling["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()), "{calling}");
}

/// A run whose bcftools is a wrapper. Before `mpileup`, the wrapper executes a script.
struct WrappedBcftoolsRun {
    out: PathBuf,
    /// The directory of the wrapper, which is `$here` in its script.
    script_directory: PathBuf,
    path: String,
}

impl WrappedBcftoolsRun {
    /// Writes a wrapper of bcftools that executes the script `text` first.
    fn new(text: &str) -> Self {
        let [out, script_directory] = ["live-hindered", "seen"].map(scratch::directory);
        let path = wrapped_bcftools_path("mpileup", &format!("here={}\n{text}", script_directory.display()));
        Self { out, script_directory, path }
    }

    fn run(&self) -> GodwitCommand {
        align_and_call(&self.out, "bcftools").args(["--threads", "1"]).env("PATH", &self.path)
    }

    /// Creates a file in the directory of the wrapper, for which the script waits.
    fn create_file(&self, name: &str) {
        fs::write(self.script_directory.join(name), "").expect("scratch can be written to");
    }
}

#[test]
fn a_run_killed_while_it_writes_and_calls_goes_on_with_both() {
    needs!("bcftools", "bgzip", "bash");
    let expected = call_after_alignment(&[]);
    // The caller of the third region sleeps until the test creates the file `hurry`.
    let slow = "mktemp $here/XXXXXX.seen >/dev/null; [ -e $here/hurry ] || [ $(ls $here/*.seen | wc -l) -lt 3 ] || exec sleep 2000";
    let hindered = WrappedBcftoolsRun::new(slow);
    let out = &hindered.out;
    let running = hindered.run().spawn();
    wait_for_children(running.process_id(), "2000", 1);
    send_signal(running.process_id(), libc::SIGKILL);
    let killed = running.wait_with_output();
    assert_eq!(killed.count_events("called"), 2, "{}", killed.describe());
    assert!(killed.count_events("written") > 10 && !out.join("s.bam").exists(), "{}", killed.describe());
    hindered.create_file("hurry");
    let resumed = hindered.run().arg("--resume").run_ok();
    assert!(resumed.stderr.contains("{\"event\":\"call_resumed\",\"regions\":2}"), "{}", resumed.describe());
    assert!(resumed.stderr.contains("\"event\":\"resumed\""), "{}", resumed.describe());
    let seen = scratch::entry_names(&hindered.script_directory).len() - 1;
    assert_eq!(seen, killed.count_events("called") + resumed.count_events("called") + 1, "{}", resumed.describe());
    assert_same(&out.join("s.vcf.gz"), &expected);
    let aligned = AlignedSample::cached();
    let view = |bam: &Path| Tool::require("samtools").run(["view".as_ref(), bam.as_os_str()]).stdout;
    assert!(view(&out.join("s.bam")) == view(&aligned.bam()), "the BAM is another one");
    assert!(scratch::entry_names(out).iter().all(|name| !name.starts_with('.')), "{:?}", scratch::entry_names(out));
}

#[test]
fn a_run_killed_while_it_calls_from_the_whole_bam_goes_on_with_the_calling_alone() {
    needs!("bcftools", "bgzip", "bash");
    let directory = scratch::directory("live-script");
    let script = directory.join("call.sh");
    let text = "set -euo pipefail\nhere=$(dirname \"$0\"); mktemp $here/XXXXXX.seen >/dev/null\n\
                [ -e $here/hurry ] || [ $(ls $here/*.seen | wc -l) -lt 3 ] || exec sleep 2000\n\
                bcftools mpileup -Ou -f \"$1\" -R \"$3\" \"$2\" | bcftools call -mv -o \"$4\"\n";
    fs::write(&script, text).expect("scratch can be written to");
    let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script.display());
    let out = scratch::directory("live-killed");
    let run = || align_and_call(&out, &template).args(["--threads", "1"]);
    let running = run().spawn();
    wait_for_children(running.process_id(), "2000", 1);
    send_signal(running.process_id(), libc::SIGKILL);
    let killed = running.wait_with_output();
    assert_eq!(killed.count_events("called"), 2, "{}", killed.describe());
    assert!(out.join("s.bam").is_file() && !out.join("s.vcf.gz").exists());
    fs::write(directory.join("hurry"), "").expect("scratch can be written to");
    let resumed = run().arg("--resume").run_ok();
    assert!(
        resumed.stderr.contains("already complete") && resumed.count_events("written") == 0,
        "{}",
        resumed.describe()
    );
    assert!(resumed.stderr.contains("{\"event\":\"call_resumed\",\"regions\":2}"), "{}", resumed.describe());
    assert_same(&out.join("s.vcf.gz"), &call_after_alignment(&["--caller", &template]));
    assert_eq!(read_json(&out.join("run.json"))["calling"]["resumed_regions"], 2);
}

#[test]
fn a_caller_that_fails_leaves_a_whole_bam_and_no_vcf() {
    needs!("bcftools", "bgzip", "bash");
    let expected = call_after_alignment(&[]);
    let text = "[ -e $here/mended ] || case \"$*\" in *chr1:30001-*) echo 'the sky fell' >&2; exit 7;; esac";
    let hindered = WrappedBcftoolsRun::new(text);
    let out = &hindered.out;
    let failed = hindered.run().run();
    failed.assert_rejected(&[EXIT_ENGINE], &["calling chr1:31001-38000", "2 times", "the sky fell"]);
    assert!(failed.stderr.contains("called when the BAM is complete"), "{}", failed.describe());
    let names = scratch::entry_names(out);
    assert!(names.iter().any(|name| name == "s.bam") && !names.iter().any(|name| name == "s.vcf.gz"), "{names:?}");
    godwit().arg("verify").arg(out).run_ok();
    hindered.create_file("mended");
    let resumed = hindered.run().arg("--resume").run_ok();
    assert_eq!(resumed.count_events("written"), 0, "{}", resumed.describe());
    assert!(failed.count_events("called") > 0, "{}", failed.describe());
    let regions = read_json(&out.join("run.json"))["calling"]["regions"].as_array().map_or(0, Vec::len);
    assert_eq!(failed.count_events("called") + resumed.count_events("called"), regions, "{}", resumed.describe());
    assert_same(&out.join("s.vcf.gz"), &expected);
}

#[test]
fn calling_that_makes_no_sense_is_refused_before_anything_is_aligned() {
    needs!("bcftools");
    let out = scratch::directory("live-refused");
    for (words, code, named) in [
        (&["--padding", "5"][..], EXIT_USAGE, "--call"),
        (&["--call", "--format", "parquet"], EXIT_USAGE, "--format"),
        (&["--call", "bcftools", "--caller-args", "-r chr1"], EXIT_USAGE, "--regions"),
        (&["--call", "--regions", "nowhere.bed"], 4, "nowhere.bed"),
    ] {
        let run = align(&out).args(words).run();
        run.assert_rejected(&[code], &[named]);
        assert_eq!(run.count_events("aligned"), 0, "{}", run.describe());
        align(&out).args(words).arg("--dry-run").run().assert_rejected(&[code], &[named]);
    }
    let dry = align(&out).args(["--call", "freebayes", "--dry-run"]).env("PATH", "/nowhere").run();
    dry.assert_rejected(&[4], &["freebayes"]);
    assert_eq!(scratch::entry_names(&out), [] as [&str; 0]);
}

/// Writes the genome of [`AlignedSample`] with one base of `chrX` changed: equal names, equal lengths.
fn other_reference() -> PathBuf {
    let reference = scratch::directory("other-bases").join("ref.fa");
    let text = fs::read_to_string(&AlignedSample::cached().reference).expect("it is text");
    let (before, after) = text.split_once(">chrX\n").expect("it has this contig");
    let base = if after.starts_with('A') { "C" } else { "A" };
    fs::write(&reference, format!("{before}>chrX\n{base}{}", &after[1..])).expect("scratch can be written to");
    reference
}

/// Returns the MD5 of chrX as samtools computes it.
fn md5_of_chrx(reference: &Path) -> String {
    let dictionary = Tool::require("samtools").run(["dict".as_ref(), reference.as_os_str()]).stdout;
    let text = String::from_utf8(dictionary).expect("it is text");
    let line = text.lines().find(|line| line.contains("SN:chrX\t")).expect("it has this contig");
    line.split('\t').find_map(|field| field.strip_prefix("M5:")).expect("dict writes M5").to_owned()
}

#[test]
fn a_reference_with_equal_names_and_lengths_is_told_by_its_checksum() {
    needs!("bcftools", "samtools");
    let (aligned, other) = (AlignedSample::cached(), other_reference());
    let directory = scratch::directory("checksums");
    // A CRAM contains the checksums of its reference contigs. Add them to the BAM header as well.
    let (bam, header) = (directory.join("s.bam"), directory.join("header.sam"));
    let view = |words: &[&str]| Tool::require("samtools").run(words).stdout;
    let text = String::from_utf8(view(&["view", "-H", aligned.bam().to_str().expect("plain")])).expect("it is text");
    let known = md5_of_chrx(&aligned.reference);
    fs::write(&header, text.replace("LN:20000", &format!("LN:20000\tM5:{}", known.to_uppercase()))).expect("scratch");
    let bytes = view(&["reheader", header.to_str().expect("plain"), aligned.bam().to_str().expect("plain")]);
    fs::write(&bam, bytes).expect("scratch can be written to");
    Tool::require("samtools").run(["index".as_ref(), bam.as_os_str()]);
    let md5s = [known.clone(), md5_of_chrx(&other)];
    for reads in [aligned.output.join("s.cram"), bam.clone()] {
        let call = |reference: &Path, out: &str| {
            let command = godwit().arg("call").arg("--reference").arg(reference).arg("--reads").arg(&reads);
            command.arg("--out").arg(directory.join(out)).run()
        };
        let refused = call(&other, "a.vcf.gz");
        let lower = refused.stderr.to_lowercase();
        refused.assert_rejected(
            &[EXIT_INPUT],
            &["chrX", "ref.fa", reads.file_name().and_then(|name| name.to_str()).expect("plain")],
        );
        assert!(md5s.iter().all(|md5| lower.contains(md5)), "{}", refused.describe());
        assert!(!directory.join("a.vcf.gz").exists());
        let accepted = call(&aligned.reference, "b.vcf.gz");
        assert!(accepted.status.success(), "{}", accepted.describe());
    }
    let markdup = |reference: &Path| {
        let command = godwit().arg("markdup").arg(&bam).arg("--metrics").arg("--reference").arg(reference);
        command.arg("--out").arg(directory.join("marked.bam")).run()
    };
    markdup(&other).assert_rejected(&[EXIT_INPUT], &["chrX", "M5", "s.bam"]);
    assert!(!directory.join("marked.bam").exists() && markdup(&aligned.reference).status.success());
    if gatk::missing_requirement().is_none() {
        let known = directory.join("b.vcf.gz");
        let command = godwit().arg("recalibrate").arg("--reference").arg(&other).arg("--reads").arg(&bam);
        let command = command.arg("--known-sites").arg(known).arg("--out").arg(directory.join("r.bam"));
        command.with_gatk().run().assert_rejected(&[EXIT_INPUT], &["chrX", "M5"]);
    }
}
