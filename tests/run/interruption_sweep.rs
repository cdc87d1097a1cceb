//! SIGTERM and Ctrl-C at moments that are spread over the whole of each verb.
//!
//! A verb that is stopped exits with 130 and says that it was interrupted, or had finished its work and exits with 0. Whatever it left
//! under the name of an output is that output, whole; anything else is what it says how to continue from. No process is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use godwit_tests::binary::{Godwit, godwit};
use godwit_tests::patience::wait_until;
use godwit_tests::processes::{handles_sigterm, is_running, signal};
use godwit_tests::served::Served;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};

use super::interruption::{marked, names_below, sample, wait_until_none_is_left};
use super::joint::Cohort;

/// Where the verbs of the sweep find their inputs.
struct Inputs {
    directory: PathBuf,
    served: Served,
}

impl Inputs {
    fn make() -> Self {
        let directory = scratch::directory("sweep-inputs");
        let sample = sample();
        let path = |name: &str| directory.join(name);
        let copied = fs::copy(sample.indexed_by_godwit(), path("ref.fa")).expect("it can be copied");
        assert!(copied > 0);
        godwit().arg("index").arg(path("ref.fa")).succeeds();
        for (at, reads) in sample.lanes[0].reads.iter().enumerate() {
            fs::copy(reads, path(&format!("r{}.fq.gz", at + 1))).expect("it can be copied");
        }
        let within = |words: &[&str]| godwit().args(words).current_dir(&directory);
        let align = ["align", "--reference", "ref.fa", "--reads", "r1.fq.gz", "r2.fq.gz", "--sample", "s"];
        within(&align).args(["--out", "aligned"]).succeeds();
        within(&["call", "--reference", "ref.fa", "--reads", "aligned", "--out", "calls.vcf.gz"]).succeeds();
        within(&["mutate", "ref.fa", "other.fa", "--seed", "1"]).succeeds();
        within(&["pack", "--reference", "ref.fa", "other.fa", "other.gwp"]).succeeds();
        within(&["collection", "add", "genomes", "other.fa", "--reference", "ref.fa"]).succeeds();
        let protein = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQTLGQHDFSAG";
        let proteins: String = (0..200).map(|at| format!(">p{at}\n{}\n", &protein[at % 20..])).collect();
        fs::write(path("proteins.fa"), &proteins).expect("it can be written");
        let makes = Tool::find("makeblastdb").map(|tool| tool.command());
        if let Some(mut makes) = makes {
            let words = ["-in", "proteins.fa", "-dbtype", "prot", "-out", "proteins", "-blastdb_version", "5"];
            succeed(makes.args(words).current_dir(&directory));
        }
        fs::write(path("policy.toml"), "[[rule]]\nname = 'all'\nwho = ['alice']\ndatasets = ['**']\n")
            .expect("it can be written");
        let served = Served::start(&directory, &[]);
        Self { directory, served }
    }

    /// A verb with its name, its outputs below `out` of its working directory.
    fn verbs(&self) -> Vec<(String, Vec<String>)> {
        let at = |name: &str| self.directory.join(name).display().to_string();
        let url = format!("grpc+tcp://{}", self.served.address);
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

    /// The directory that a verb works in, with what it changes.
    fn place(&self, words: &[String]) -> PathBuf {
        let directory = scratch::directory("sweep");
        fs::create_dir(directory.join("out")).expect("it can be made");
        if words[0] == "index" {
            fs::copy(self.directory.join("ref.fa"), directory.join("out/ref.fa")).expect("it can be copied");
        }
        directory
    }

    fn start(&self, words: &[String], directory: &Path) -> Godwit {
        marked(godwit().args(words).current_dir(directory), directory)
    }
}

/// Content of each file below `out`, and nothing for directories.
fn outputs(directory: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let out = directory.join("out");
    names_below(&out).into_iter().map(|name| (name.clone(), fs::read(out.join(&name)).ok())).collect()
}

/// What a verb does when nothing stops it.
struct Undisturbed {
    /// Files and directories, without the content of files that differ each time.
    outputs: BTreeMap<String, Option<Vec<u8>>>,
    length: Duration,
    code: Option<i32>,
}

impl Undisturbed {
    fn run(inputs: &Inputs, words: &[String]) -> Self {
        let run = || {
            let directory = inputs.place(words);
            let started = Instant::now();
            let finished = inputs.start(words, &directory).run();
            let length = started.elapsed();
            // On a machine that lacks something, doctor says so.
            assert!(finished.status.success() || words[0] == "doctor", "{}", finished.report());
            Self { outputs: outputs(&directory), length, code: finished.status.code() }
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

/// Stops a verb once, `after` its handlers are there. Returns its exit code and how long it took to end.
fn stopped(
    inputs: &Inputs,
    words: &[String],
    undisturbed: &Undisturbed,
    after: Duration,
    number: i32,
) -> (i32, Duration) {
    let directory = inputs.place(words);
    let before = outputs(&directory);
    let run = inputs.start(words, &directory).start();
    let process = run.process_id();
    wait_until("its handlers", || handles_sigterm(process) || !is_running(process));
    // The moment is drawn from the measured run; whatever it meets there is right.
    std::thread::sleep(after);
    let sent = Instant::now();
    signal(process, number);
    let finished = run.finish();
    let took = sent.elapsed();
    wait_until_none_is_left(&directory);
    let code = finished.status.code().unwrap_or(-1);
    if finished.status.code() != undisturbed.code {
        finished.refuses(&[130], &["interrupted"]);
    }
    let continues = finished.stderr.contains("--resume") || finished.stderr.contains("run the same command again");
    for (name, content) in outputs(&directory) {
        let is_as_before = before.get(&name) == Some(&content);
        let is_whole = undisturbed.outputs.get(&name).is_some_and(|whole| whole.is_none() || *whole == content);
        let is_work = continues && name.split('/').any(|part| part.starts_with('.') && part.contains("godwit"));
        assert!(is_as_before || is_whole || is_work, "{words:?} left {name}\n{}", finished.report());
    }
    let scratch = names_below(&directory.join("temp"));
    assert!(scratch.is_empty(), "{words:?} left {scratch:?}\n{}", finished.report());
    fs::remove_dir_all(&directory).expect("it can be removed");
    (code, took)
}

/// Stops each verb at so many moments, and returns a line for each with what it took.
fn sweep(moments: u32, only: Option<&str>) -> Vec<String> {
    let inputs = Inputs::make();
    let cohort = Cohort::get();
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
    for (verb, words) in inputs.verbs() {
        if only.is_some_and(|only| !words.join(" ").starts_with(only)) {
            continue;
        }
        let undisturbed = Undisturbed::run(&inputs, &words);
        let length = undisturbed.length;
        let mut times = Vec::new();
        let mut interrupted = 0;
        for moment in 0..moments {
            let after = length.mul_f64((f64::from(moment) + 0.5) / f64::from(moments));
            let number = if moment % 2 == 0 { libc::SIGTERM } else { libc::SIGINT };
            let (code, took) = stopped(&inputs, &words, &undisturbed, after, number);
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
    assert!(sweep(2, None).len() > 30);
}

/// `GODWIT_SWEEP_MOMENTS` (50) and `GODWIT_SWEEP_VERB` (all) say how many and which.
#[test]
#[ignore = "an hour; ask for it by name"]
fn sweep_of_signals() {
    needs!("bwa", "samtools", "bcftools", "minimap2");
    let moments = std::env::var("GODWIT_SWEEP_MOMENTS").ok().map_or(50, |text| text.parse().expect("a number"));
    let only = std::env::var("GODWIT_SWEEP_VERB").ok();
    let lines = sweep(moments, only.as_deref());
    println!("{}", lines.join("\n"));
}
