//! `godwit align --call`: the bytes of `godwit call` afterwards, from regions that are called while the BAM is written.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{Finished, Godwit, godwit};
use godwit_tests::processes::{signal, wait_for_children};
use godwit_tests::slurm;
use godwit_tests::tool::Tool;
use godwit_tests::{gatk, needs, needs_gatk, needs_slurm, scratch};
use serde_json::Value;

use super::call::{Aligned, records};
use super::call_failures::spoiled_bcftools;

const USAGE: i32 = 2;
const INPUT: i32 = 3;
const ENGINE: i32 = 5;
/// A grid of a dozen regions.
const GRID: [&str; 2] = ["--grid-size", "7K"];

/// The same alignment as that of [`Aligned`].
fn align(out: &Path) -> Godwit {
    align_with(&["--metrics", "off"], out)
}

fn align_with(words: &[&str], out: &Path) -> Godwit {
    let aligned = Aligned::get();
    let reads = [1, 2].map(|mate| aligned.reference.with_file_name(format!("reads_L001_R{mate}.fastq")));
    let command = godwit().arg("align").arg("--reference").arg(&aligned.reference).arg("--reads").args(reads);
    command.args(["--sample", "s", "--json"]).args(words).arg("--out").arg(out)
}

fn align_and_call(out: &Path, caller: &str) -> Godwit {
    align(out).args(["--call", caller]).args(GRID)
}

/// What `godwit call` makes of the alignment when that is done.
fn called_afterwards(words: &[&str]) -> PathBuf {
    let out = scratch::directory("afterwards").join("s.vcf.gz");
    let aligned = Aligned::get();
    aligned.call_on(&aligned.bam(), &out).args(words).succeeds();
    out
}

#[track_caller]
fn assert_same(out: &Path, expected: &Path) {
    for ending in ["", ".tbi"] {
        let name = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        let [found, expected] = [out, expected].map(|path| fs::read(name(path)).expect("it was written"));
        assert!(found == expected, "{} is not that of call afterwards", name(out).display());
    }
    assert!(!records(out).is_empty(), "nothing was called, so nothing is shown");
}

fn count(finished: &Finished, event: &str) -> usize {
    finished.stderr.matches(&format!("{{\"event\":\"{event}\"")).count()
}

/// Regions that were called before the last partition was written.
fn called_while_writing(finished: &Finished) -> usize {
    let written = finished.stderr.rfind("{\"event\":\"written\"").expect("partitions are told");
    finished.stderr[..written].matches("{\"event\":\"called\"").count()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("it was written")).expect("it is JSON")
}

#[test]
fn regions_called_while_the_bam_is_written_give_the_bytes_of_call_afterwards() {
    needs!("bcftools", "bgzip");
    let expected = called_afterwards(&[]);
    for threads in ["1", "2", "4"] {
        let out = scratch::directory("live");
        let run = align_and_call(&out, "bcftools").args(["--threads", threads]).succeeds();
        // One thread calls what is ready before it writes on; of several, it depends on how fast each of them is.
        let called = if threads == "1" { 5 } else { 0 };
        assert!(called_while_writing(&run) >= called, "{}", run.report());
        assert_same(&out.join("s.vcf.gz"), &expected);
        assert!(scratch::names(&out).iter().all(|name| !name.starts_with('.')), "{:?}", scratch::names(&out));
        let calling = &json(&out.join("run.json"))["calling"];
        assert_eq!(calling["caller"], "bcftools");
        assert!(calling["regions_while_writing"].as_u64() >= Some(called as u64), "{calling}");
        let verified = godwit().arg("verify").arg(&out).succeeds();
        assert!(verified.stdout.contains("s.vcf.gz") && verified.stdout.contains("s.bam"), "{}", verified.report());
    }
    // Nothing named is bcftools, and what was called is known as what `call` would have called.
    let out = scratch::directory("live");
    align(&out).args(GRID).args(["--format", "bam,cram", "--partitions", "5", "--call"]).succeeds();
    assert_same(&out.join("s.vcf.gz"), &expected);
    let vcf = out.join("s.vcf.gz");
    let again = Aligned::get().call_on(&out.join("s.bam"), &vcf).arg("--resume").succeeds();
    assert!(again.stderr.contains("already complete"), "{}", again.report());
    let again =
        align(&out).args(GRID).args(["--format", "bam,cram", "--partitions", "5", "--call", "--resume"]).succeeds();
    assert_eq!(again.stderr.matches("already complete").count(), 2, "{}", again.report());
}

#[test]
fn options_of_calling_hold_and_the_page_tells_of_it() {
    needs!("bcftools", "bgzip");
    let bed = scratch::directory("live-bed").join("targets.bed");
    fs::write(&bed, "chr1\t1000\t9000\nchr1\t30000\t44000\nchrX\t100\t15000\n").expect("scratch can be written to");
    let bed = bed.to_str().expect("scratch has a plain name");
    let words = ["--regions", bed, "--ploidy", "X", "--sex", "M", "--padding", "500", "--caller-args", "-q 20 | -m"];
    let expected = called_afterwards(&words);
    let out = scratch::directory("live-options");
    let run = align_with(&["--call", "--threads", "1"], &out).args(GRID).args(words).succeeds();
    assert!(called_while_writing(&run) > 0, "{}", run.report());
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
        let run = align_and_call(&out, caller).args(["--threads", "1"]).succeeds();
        // Neither is known to give the same from a file that is not whole.
        assert_eq!(called_while_writing(&run), 0, "{}", run.report());
        // At the same place: digits of freebayes depend on how long its paths are.
        let (vcf, live) = (out.join("s.vcf.gz"), out.join("live.vcf.gz"));
        for ending in ["", ".tbi"] {
            let name = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
            fs::rename(name(&vcf), name(&live)).expect("it was written");
        }
        Aligned::get().call_on(&out.join("s.bam"), &vcf).args(["--caller", caller]).succeeds();
        assert_same(&live, &vcf);
    }
    // CRAM alone is not called before it is whole.
    let expected = called_afterwards(&[]);
    let out = scratch::directory("live-cram");
    let run = align_and_call(&out, "bcftools").args(["--format", "cram"]).succeeds();
    assert_eq!(called_while_writing(&run), 0, "{}", run.report());
    assert_same(&out.join("s.vcf.gz"), &expected);
}

#[test]
#[ignore = "two minutes of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored align_and_call::"]
fn haplotype_caller_reads_a_bam_that_is_being_written() {
    needs!("bgzip");
    needs_gatk!();
    for (name, arguments) in [("s.vcf.gz", ""), ("s.g.vcf.gz", "-ERC GVCF")] {
        let words = ["--caller-memory", "1G", "--grid-size", "20K", "--caller-args", arguments];
        let aligned = Aligned::get();
        let expected = scratch::directory("afterwards").join(name);
        let call = aligned.call_by("20K", &expected).args(["--caller", "gatk", "--caller-memory", "1G"]);
        call.args(["--caller-args", arguments, "--threads", "2"]).env("GODWIT_GATK", gatk::jars()).succeeds();
        let out = scratch::directory("live-gatk");
        let run = align(&out).args(["--call", "gatk", "--threads", "1"]).args(words).env("GODWIT_GATK", gatk::jars());
        let run = run.succeeds();
        assert!(called_while_writing(&run) > 0 && count(&run, "warning") == 0, "{}", run.report());
        assert_same(&out.join(name), &expected);
    }
}

#[test]
fn nodes_that_align_call_afterwards() {
    needs!("bcftools", "bgzip");
    let expected = called_afterwards(&[]);
    let out = scratch::directory("live-nodes");
    let run = align_and_call(&out, "bcftools").args(["--on", "local", "--nodes", "2", "--threads", "1"]).succeeds();
    assert_eq!(called_while_writing(&run), 0, "{}", run.report());
    assert_same(&out.join("s.vcf.gz"), &expected);
    let calling = &json(&out.join("run.json"))["calling"];
    assert_eq!(calling["nodes"].as_array().map(Vec::len), Some(2), "{calling}");
    assert!(scratch::names(&out).iter().all(|name| !name.starts_with('.')), "{:?}", scratch::names(&out));
}

#[test]
fn an_alignment_over_nodes_that_fails_leaves_nothing_of_calling() {
    needs!("bcftools");
    let directory = scratch::directory("live-broken");
    let (reads, out) = (directory.join("broken.fastq"), directory.join("out"));
    fs::write(&reads, "@a\nACGT\n+\nIIII\n@b\nAC\n").expect("scratch can be written to");
    let align = godwit().arg("align").arg("--reference").arg(&Aligned::get().reference).arg("--reads").arg(&reads);
    let align = align.args(["--sample", "s", "--call", "--on", "local", "--nodes", "1", "--threads", "1", "--out"]);
    align.arg(&out).run().refuses(&[INPUT], &["broken.fastq"]);
    assert_eq!(scratch::names(&out), [] as [&str; 0]);
}

#[test]
fn a_slurm_job_aligns_and_calls() {
    needs!("bcftools", "bgzip");
    needs_slurm!();
    let expected = called_afterwards(&[]);
    let out = scratch::directory("live-slurm");
    let cluster = slurm::shared();
    let run = align_and_call(&out, "bcftools").args(["--on", "slurm", "--nodes", "2", "--slurm-memory", "900M"]);
    let run = run.env("SLURM_CONF", cluster.configuration()).run();
    assert!(run.status.success(), "{}", run.report());
    assert_same(&out.join("s.vcf.gz"), &expected);
    // So little is called before the second node has looked whether there is more to do.
    let calling = &json(&out.join("run.json"))["calling"];
    assert!(calling["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()), "{calling}");
}

/// A run with a bcftools that does something else first when it makes a pileup.
struct Hindered {
    out: PathBuf,
    /// A directory of that bcftools' own, `$here` for it.
    here: PathBuf,
    path: String,
}

impl Hindered {
    /// `text`: what it does first, a script.
    fn new(text: &str) -> Self {
        let [out, here] = ["live-hindered", "seen"].map(scratch::directory);
        let path = spoiled_bcftools("mpileup", &format!("here={}\n{text}", here.display()));
        Self { out, here, path }
    }

    fn run(&self) -> Godwit {
        align_and_call(&self.out, "bcftools").args(["--threads", "1"]).env("PATH", &self.path)
    }

    /// Makes a file in that directory, for which its script looks.
    fn leave(&self, name: &str) {
        fs::write(self.here.join(name), "").expect("scratch can be written to");
    }
}

#[test]
fn a_run_killed_while_it_writes_and_calls_goes_on_with_both() {
    needs!("bcftools", "bgzip", "bash");
    let expected = called_afterwards(&[]);
    // The third region does not end.
    let slow = "mktemp $here/XXXXXX.seen >/dev/null; [ -e $here/hurry ] || [ $(ls $here/*.seen | wc -l) -lt 3 ] || exec sleep 2000";
    let hindered = Hindered::new(slow);
    let out = &hindered.out;
    let running = hindered.run().start();
    wait_for_children(running.process_id(), "2000", 1);
    signal(running.process_id(), libc::SIGKILL);
    let killed = running.finish();
    assert_eq!(count(&killed, "called"), 2, "{}", killed.report());
    assert!(count(&killed, "written") > 10 && !out.join("s.bam").exists(), "{}", killed.report());
    hindered.leave("hurry");
    let resumed = hindered.run().arg("--resume").succeeds();
    assert!(resumed.stderr.contains("{\"event\":\"call_resumed\",\"regions\":2}"), "{}", resumed.report());
    assert!(resumed.stderr.contains("\"event\":\"resumed\""), "{}", resumed.report());
    let seen = scratch::names(&hindered.here).len() - 1;
    assert_eq!(seen, count(&killed, "called") + count(&resumed, "called") + 1, "{}", resumed.report());
    assert_same(&out.join("s.vcf.gz"), &expected);
    let aligned = Aligned::get();
    let view = |bam: &Path| Tool::need("samtools").run(["view".as_ref(), bam.as_os_str()]).stdout;
    assert!(view(&out.join("s.bam")) == view(&aligned.bam()), "the BAM is another one");
    assert!(scratch::names(out).iter().all(|name| !name.starts_with('.')), "{:?}", scratch::names(out));
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
    let running = run().start();
    wait_for_children(running.process_id(), "2000", 1);
    signal(running.process_id(), libc::SIGKILL);
    let killed = running.finish();
    assert_eq!(count(&killed, "called"), 2, "{}", killed.report());
    assert!(out.join("s.bam").is_file() && !out.join("s.vcf.gz").exists());
    fs::write(directory.join("hurry"), "").expect("scratch can be written to");
    let resumed = run().arg("--resume").succeeds();
    assert!(resumed.stderr.contains("already complete") && count(&resumed, "written") == 0, "{}", resumed.report());
    assert!(resumed.stderr.contains("{\"event\":\"call_resumed\",\"regions\":2}"), "{}", resumed.report());
    assert_same(&out.join("s.vcf.gz"), &called_afterwards(&["--caller", &template]));
    assert_eq!(json(&out.join("run.json"))["calling"]["resumed_regions"], 2);
}

#[test]
fn a_caller_that_fails_leaves_a_whole_bam_and_no_vcf() {
    needs!("bcftools", "bgzip", "bash");
    let expected = called_afterwards(&[]);
    let text = "[ -e $here/mended ] || case \"$*\" in *chr1:30001-*) echo 'the sky fell' >&2; exit 7;; esac";
    let hindered = Hindered::new(text);
    let out = &hindered.out;
    let failed = hindered.run().run();
    failed.refuses(&[ENGINE], &["calling chr1:31001-38000", "2 times", "the sky fell"]);
    assert!(failed.stderr.contains("called when the BAM is whole"), "{}", failed.report());
    let names = scratch::names(out);
    assert!(names.iter().any(|name| name == "s.bam") && !names.iter().any(|name| name == "s.vcf.gz"), "{names:?}");
    godwit().arg("verify").arg(out).succeeds();
    hindered.leave("mended");
    let resumed = hindered.run().arg("--resume").succeeds();
    assert_eq!(count(&resumed, "written"), 0, "{}", resumed.report());
    assert!(count(&failed, "called") > 0, "{}", failed.report());
    let regions = json(&out.join("run.json"))["calling"]["regions"].as_array().map_or(0, Vec::len);
    assert_eq!(count(&failed, "called") + count(&resumed, "called"), regions, "{}", resumed.report());
    assert_same(&out.join("s.vcf.gz"), &expected);
}

#[test]
fn calling_that_makes_no_sense_is_refused_before_anything_is_aligned() {
    needs!("bcftools");
    let out = scratch::directory("live-refused");
    for (words, code, named) in [
        (&["--padding", "5"][..], USAGE, "--call"),
        (&["--call", "--format", "parquet"], USAGE, "--format"),
        (&["--call", "bcftools", "--caller-args", "-r chr1"], USAGE, "--regions"),
        (&["--call", "--regions", "nowhere.bed"], 4, "nowhere.bed"),
    ] {
        let run = align(&out).args(words).run();
        run.refuses(&[code], &[named]);
        assert_eq!(count(&run, "aligned"), 0, "{}", run.report());
        align(&out).args(words).arg("--dry-run").run().refuses(&[code], &[named]);
    }
    let dry = align(&out).args(["--call", "freebayes", "--dry-run"]).env("PATH", "/nowhere").run();
    dry.refuses(&[4], &["freebayes"]);
    assert_eq!(scratch::names(&out), [] as [&str; 0]);
}

/// The genome of [`Aligned`] with one base of `chrX` changed: equal names, equal lengths.
fn other_reference() -> PathBuf {
    let reference = scratch::directory("other-bases").join("ref.fa");
    let text = fs::read_to_string(&Aligned::get().reference).expect("it is text");
    let (before, after) = text.split_once(">chrX\n").expect("it has this contig");
    let base = if after.starts_with('A') { "C" } else { "A" };
    fs::write(&reference, format!("{before}>chrX\n{base}{}", &after[1..])).expect("scratch can be written to");
    reference
}

/// MD5 of chrX as samtools has it.
fn md5_of_x(reference: &Path) -> String {
    let dictionary = Tool::need("samtools").run(["dict".as_ref(), reference.as_os_str()]).stdout;
    let text = String::from_utf8(dictionary).expect("it is text");
    let line = text.lines().find(|line| line.contains("SN:chrX\t")).expect("it has this contig");
    line.split('\t').find_map(|field| field.strip_prefix("M5:")).expect("dict writes M5").to_owned()
}

#[test]
fn a_reference_with_equal_names_and_lengths_is_told_by_its_checksum() {
    needs!("bcftools", "samtools");
    let (aligned, other) = (Aligned::get(), other_reference());
    let directory = scratch::directory("checksums");
    // CRAM has checksums; a BAM has them where its aligner was told of them.
    let (bam, header) = (directory.join("s.bam"), directory.join("header.sam"));
    let view = |words: &[&str]| Tool::need("samtools").run(words).stdout;
    let text = String::from_utf8(view(&["view", "-H", aligned.bam().to_str().expect("plain")])).expect("it is text");
    let known = md5_of_x(&aligned.reference);
    fs::write(&header, text.replace("LN:20000", &format!("LN:20000\tM5:{}", known.to_uppercase()))).expect("scratch");
    let bytes = view(&["reheader", header.to_str().expect("plain"), aligned.bam().to_str().expect("plain")]);
    fs::write(&bam, bytes).expect("scratch can be written to");
    Tool::need("samtools").run(["index".as_ref(), bam.as_os_str()]);
    let md5s = [known.clone(), md5_of_x(&other)];
    for reads in [aligned.run.join("s.cram"), bam.clone()] {
        let call = |reference: &Path, out: &str| {
            let command = godwit().arg("call").arg("--reference").arg(reference).arg("--reads").arg(&reads);
            command.arg("--out").arg(directory.join(out)).run()
        };
        let refused = call(&other, "a.vcf.gz");
        let lower = refused.stderr.to_lowercase();
        refused
            .refuses(&[INPUT], &["chrX", "ref.fa", reads.file_name().and_then(|name| name.to_str()).expect("plain")]);
        assert!(md5s.iter().all(|md5| lower.contains(md5)), "{}", refused.report());
        assert!(!directory.join("a.vcf.gz").exists());
        let accepted = call(&aligned.reference, "b.vcf.gz");
        assert!(accepted.status.success(), "{}", accepted.report());
    }
    let markdup = |reference: &Path| {
        let command = godwit().arg("markdup").arg(&bam).arg("--metrics").arg("--reference").arg(reference);
        command.arg("--out").arg(directory.join("marked.bam")).run()
    };
    markdup(&other).refuses(&[INPUT], &["chrX", "M5", "s.bam"]);
    assert!(!directory.join("marked.bam").exists() && markdup(&aligned.reference).status.success());
    if gatk::missing().is_none() {
        let known = directory.join("b.vcf.gz");
        let command = godwit().arg("recalibrate").arg("--reference").arg(&other).arg("--reads").arg(&bam);
        let command = command.arg("--known-sites").arg(known).arg("--out").arg(directory.join("r.bam"));
        command.env("GODWIT_GATK", gatk::jars()).run().refuses(&[INPUT], &["chrX", "M5"]);
    }
}
