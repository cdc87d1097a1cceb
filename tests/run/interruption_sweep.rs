//! SIGTERM and Ctrl-C at moments spread over the run time of each verb.
//!
//! A verb that is stopped exits with 130 and reports the interruption, or has finished its work and exits with 0. A file
//! under the name of an output is that output, whole; any other file is data from which the printed command continues. No
//! process is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::processes::{handles_sigterm, is_running, send_signal};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use super::interruption::{names_below, sample, wait_until_processes_exit, with_mark_variable};
use super::joint_calling::Cohort;

/// The inputs of the verbs of the sweep.
struct Inputs {
    directory: PathBuf,
    server: DataServer,
}

impl Inputs {
    fn create() -> Self {
        let directory = scratch::directory("sweep-inputs");
        let sample = sample();
        let path = |name: &str| directory.join(name);
        let copied = fs::copy(sample.godwit_indexed_reference(), path("ref.fa")).expect("it can be copied");
        assert!(copied > 0);
        godwit().arg("index").arg(path("ref.fa")).run_ok();
        for (at, reads) in sample.lanes[0].reads.iter().enumerate() {
            fs::copy(reads, path(&format!("r{}.fq.gz", at + 1))).expect("it can be copied");
        }
        let within = |words: &[&str]| godwit().args(words).current_dir(&directory);
        let align = ["align", "--reference", "ref.fa", "--reads", "r1.fq.gz", "r2.fq.gz", "--sample", "s"];
        within(&align).args(["--out", "aligned"]).run_ok();
        within(&["call", "--reference", "ref.fa", "--reads", "aligned", "--out", "calls.vcf.gz"]).run_ok();
        within(&["mutate", "ref.fa", "other.fa", "--seed", "1"]).run_ok();
        within(&["pack", "--reference", "ref.fa", "other.fa", "other.gwp"]).run_ok();
        within(&["collection", "add", "genomes", "other.fa", "--reference", "ref.fa"]).run_ok();
        let protein = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQTLGQHDFSAG";
        let proteins: String = (0..200).map(|at| format!(">p{at}\n{}\n", &protein[at % 20..])).collect();
        fs::write(path("proteins.fa"), &proteins).expect("it can be written");
        let makes = Tool::find("makeblastdb").map(|tool| tool.command());
        if let Some(mut makes) = makes {
            let words = ["-in", "proteins.fa", "-dbtype", "prot", "-out", "proteins", "-blastdb_version", "5"];
            run_checked(makes.args(words).current_dir(&directory));
        }
        fs::write(path("policy.toml"), "[[rule]]\nname = 'all'\nwho = ['alice']\ndatasets = ['**']\n")
            .expect("it can be written");
        let server = DataServer::start(&directory, &[]);
        Self { directory, server }
    }

    /// Returns the command line of each verb, with a name. All outputs are below `out` in the working directory.
    fn verbs(&self) -> Vec<(String, Vec<String>)> {
        let at = |name: &str| self.directory.join(name).display().to_string();
        let url = format!("grpc+tcp://{}", self.server.address);
        let reads = format!("--reads {} {}", at("r1.fq.gz"), at("r2.fq.gz"));
        let (reference, bam, vcf) = (at("ref.fa"), at("aligned/s.bam"), at("calls.vcf.gz"));
        let (packed, other, genomes) = (at("other.gwp"), at("other.fa"), at("genomes"));
        let mut lines = vec![
            "doctor".to_owned(),
            "config show".to_owned(),
            "completions bash".to_owned(),
            "plan --samples 2000 --nodes 40 --storage-nodes 3".to_owned(),
            "index out/ref.fa".to_owned(),
            "index out/ref.fa --aligner minimap2".to_owned(),
            format!("align --reference {reference} {reads} --sample s --out out"),
            format!(
                "align --reference {reference} {reads} --sample s --out out --block-bases 20000 --format bam,cram,parquet"
            ),
            format!("align --reference {reference} {reads} --sample s --out out --call bcftools"),
            format!(
                "align --reference {reference} {reads} --sample s --out out --block-bases 20000 --on local --nodes 2"
            ),
            format!("markdup {bam} --out out/m.bam"),
            format!("markdup {bam} --out out/m.cram --reference {reference}"),
            format!("call --reference {reference} --reads {bam} --out out/c.vcf.gz --grid-size 30K"),
            format!("run --reference {reference} --samples {} --out out", at("sheet.csv")),
            format!("verify {}", at("aligned")),
            format!("compare {vcf} {vcf} --reference {reference}"),
            format!("variants {vcf} --out out/v.parquet"),
            format!(
                "query SELECT·contig,·count(*)·FROM·reads('aligned/s.bam')·GROUP·BY·contig·ORDER·BY·contig --data {} --out out/q.csv --format csv",
                self.directory.display()
            ),
            format!("query SELECT·sum(value)·FROM·generate_series(1,·100000000)·AS·t(value) --at {url}"),
            format!("copy {url}/aligned/s.bam out/"),
            format!("pack --reference {reference} {other} out/o.gwp"),
            format!("unpack --reference {reference} {packed} out/o.fa"),
            format!("collection add out/genomes {other} --reference {reference}"),
            format!("collection extract {genomes} other out/o.fa --reference {reference}"),
            format!("mutate {reference} out/m.fa --seed 2"),
            format!("simulate --reference {reference} --pairs 20000 --out out/sim"),
            "demo --out out/demo --pairs 2000".to_owned(),
            format!(
                "policy test --policy {} --as alice --dataset aligned/s.bam --data {}",
                at("policy.toml"),
                self.directory.display()
            ),
            "token alice --tokens out/tokens".to_owned(),
            "bench flight --streams 1 --rounds 1 --rows 100000".to_owned(),
            format!("bench query SELECT·1 --at {url} --rounds 2"),
            "bench shuffle --nodes 2 --bytes 8M --rounds 1".to_owned(),
        ];
        if self.directory.join("proteins.pin").exists() {
            let (database, query) = (at("proteins"), at("proteins.fa"));
            lines.push(format!(
                "search --workers 2 -- blastp -db {database} -query {query} -outfmt 6 -out out/hits.tsv"
            ));
        }
        let words = |line: &String| line.split(' ').map(|word| word.replace('·', " ")).collect::<Vec<_>>();
        let name = |line: &String| {
            line.split(' ').take_while(|word| !word.contains('/')).take(2).collect::<Vec<_>>().join(" ")
        };
        lines.iter().map(|line| (name(line), words(line))).collect()
    }

    /// Returns the directory that a verb works in, with copies of the files that it changes.
    fn working_directory(&self, words: &[String]) -> PathBuf {
        let directory = scratch::directory("sweep");
        fs::create_dir(directory.join("out")).expect("it can be made");
        if words[0] == "index" {
            fs::copy(self.directory.join("ref.fa"), directory.join("out/ref.fa")).expect("it can be copied");
        }
        directory
    }

    fn start(&self, words: &[String], directory: &Path) -> GodwitCommand {
        with_mark_variable(godwit().args(words).current_dir(directory), directory)
    }
}

/// Returns the content of each file below `out`, and `None` for directories.
fn outputs(directory: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let out = directory.join("out");
    names_below(&out).into_iter().map(|name| (name.clone(), fs::read(out.join(&name)).ok())).collect()
}

/// The result of a verb that runs to its end.
struct BaselineRun {
    /// Files and directories, without the content of files that differ in each run.
    outputs: BTreeMap<String, Option<Vec<u8>>>,
    duration: Duration,
    code: Option<i32>,
}

impl BaselineRun {
    fn run(inputs: &Inputs, words: &[String]) -> Self {
        let run = || {
            let directory = inputs.working_directory(words);
            let started = Instant::now();
            let finished = inputs.start(words, &directory).run();
            let duration = started.elapsed();
            // All commands must succeed except doctor, which fails if a program is not installed.
            assert!(finished.status.success() || words[0] == "doctor", "{}", finished.describe());
            Self { outputs: outputs(&directory), duration, code: finished.status.code() }
        };
        let (mut first, second) = (run(), run());
        for (name, content) in &mut first.outputs {
            if second.outputs.get(name) != Some(content) {
                *content = None;
            }
        }
        first
    }
}

/// Sends a signal to a verb, `after` it has installed its signal handlers. Returns its exit code and the time until its
/// exit.
fn stop_after(
    inputs: &Inputs,
    words: &[String],
    undisturbed: &BaselineRun,
    after: Duration,
    number: i32,
) -> (i32, Duration) {
    let directory = inputs.working_directory(words);
    let before = outputs(&directory);
    let run = inputs.start(words, &directory).spawn();
    let process = run.process_id();
    wait_until("its handlers", || handles_sigterm(process) || !is_running(process));
    // Send the signal at a random time within the measured run time, so that it arrives in any state of the verb.
    std::thread::sleep(after);
    let sent = Instant::now();
    send_signal(process, number);
    let finished = run.wait_with_output();
    let took = sent.elapsed();
    wait_until_processes_exit(&directory);
    let code = finished.status.code().unwrap_or(-1);
    if finished.status.code() != undisturbed.code {
        finished.assert_rejected(&[130], &["interrupted"]);
    }
    let continues = finished.stderr.contains("--resume") || finished.stderr.contains("run the same command again");
    for (name, content) in outputs(&directory) {
        let is_as_before = before.get(&name) == Some(&content);
        let is_whole = undisturbed.outputs.get(&name).is_some_and(|whole| whole.is_none() || *whole == content);
        let is_work = continues && name.split('/').any(|part| part.starts_with('.') && part.contains("godwit"));
        assert!(is_as_before || is_whole || is_work, "{words:?} left {name}\n{}", finished.describe());
    }
    let scratch = names_below(&directory.join("temp"));
    assert!(scratch.is_empty(), "{words:?} left {scratch:?}\n{}", finished.describe());
    fs::remove_dir_all(&directory).expect("it can be removed");
    (code, took)
}

/// Stops each verb at `moments` different times, which are others than those of the verb before. Returns one line with the
/// results of each verb.
fn sweep(moments: u32, only: Option<&str>) -> Vec<String> {
    let inputs = Inputs::create();
    let cohort = Cohort::cached();
    let mates = [1, 2].map(|mate| cohort.directory.join(format!("ada-reads_L001_R{mate}.fastq")));
    let mut sheet = "sample,fastq_1,fastq_2\n".to_owned();
    for sample in ["ada", "ben"] {
        let copies = [0, 1].map(|mate| inputs.directory.join(format!("{sample}-{mate}.fastq")));
        for (mate, copy) in mates.iter().zip(&copies) {
            fs::copy(mate, copy).expect("it can be copied");
        }
        sheet += &format!("{sample},{},{}\n", copies[0].display(), copies[1].display());
    }
    fs::write(inputs.directory.join("sheet.csv"), sheet).expect("it can be written");
    let mut lines = Vec::new();
    for (at, (verb, words)) in (0_u32..).zip(inputs.verbs()) {
        if only.is_some_and(|only| !words.join(" ").starts_with(only)) {
            continue;
        }
        let undisturbed = BaselineRun::run(&inputs, &words);
        let length = undisturbed.duration;
        let mut times = Vec::new();
        let mut interrupted = 0;
        for moment in 0..moments {
            let after = length.mul_f64((f64::from(moment) + f64::from(at % 4 + 1) / 5.0) / f64::from(moments));
            let number = if (moment + at) % 2 == 0 { libc::SIGTERM } else { libc::SIGINT };
            let (code, took) = stop_after(&inputs, &words, &undisturbed, after, number);
            if code == 130 {
                interrupted += 1;
                times.push(took);
            }
        }
        times.sort();
        let ms = |at: usize| times.get(at).map_or(0, Duration::as_millis);
        let (last, median) = (times.len().saturating_sub(1), times.len() / 2);
        let line = format!(
            "{verb:<28} {:>6} ms uninterrupted, {interrupted:>3} of {moments} interrupted, ends after {:>4} ms (median), {:>4} ms (most)",
            length.as_millis(),
            ms(median),
            ms(last)
        );
        println!("{line}");
        lines.push(line);
    }
    lines
}

#[test]
fn every_verb_ends_by_a_signal_at_any_moment() {
    needs!("bwa", "samtools", "bcftools", "minimap2");
    assert!(sweep(1, None).len() > 30);
}

/// `GODWIT_SWEEP_MOMENTS` (50) sets the number of moments, and `GODWIT_SWEEP_VERB` (all) the verb.
#[test]
#[ignore = "an hour; run it by name"]
fn sweep_of_signals() {
    needs!("bwa", "samtools", "bcftools", "minimap2");
    let moments = std::env::var("GODWIT_SWEEP_MOMENTS").ok().map_or(50, |text| text.parse().expect("a number"));
    let only = std::env::var("GODWIT_SWEEP_VERB").ok();
    let lines = sweep(moments, only.as_deref());
    println!("{}", lines.join("\n"));
}
