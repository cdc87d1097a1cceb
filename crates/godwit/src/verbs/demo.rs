//! `godwit demo`: aligns simulated reads and calls variants, and compares the results with the truth and with other
//! tools.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_align::{AlignOptions, IndexOptions, ReadsOptions, align, build_index};
use godwit_call::{CallOptions, call};
use godwit_cli::cli::{DemoArgs, JobMetrics, MarkingArgs};
use godwit_cli::failure::{Failure, print};
use godwit_compare::compare_by_haplotypes;
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::caller::CallerChoice;
use godwit_haplotypes::{HaplotypeComparison, HaplotypeOptions, TypeCounts};
use godwit_model::ErrorKind;
use godwit_pipeline::PipelineError;
use godwit_pipeline::job_report::JobReport;
use godwit_pipeline::reduce::Format;
use godwit_simulate::{
    GenomeOptions, ReadOptions, Sample, SampleOptions, SimulateError, SimulatedReadFiles, write_genome, write_reads,
};

use super::simulate;
use crate::demo::{ToolComparison, TruthComparison, compare_with_tools, compare_with_truth};
use crate::interruption;
use crate::progress::Progress;

/// Number of simulated lanes; more than one, because the numbering of reads restarts in each lane.
const LANE_COUNT: u32 = 2;
/// Number of bases of a block of reads; small, so that each lane has several blocks.
const BLOCK_BASES: u64 = 2_000_000;
/// Number of bases of a calling region; small, so that the genome has several regions.
const CALLING_REGION_BASES: u32 = 100_000;
/// Name of the file with the simulated genome.
const REFERENCE_FILE: &str = "reference.fa";
/// Name of the file with the simulated variants.
const TRUTH_FILE: &str = "truth.vcf";
/// Name of the file with the regions whose sequence occurs only once in the genome.
const UNIQUE_REGIONS_FILE: &str = "unique.bed";
/// Name of the simulated sample, and of the output files.
const SAMPLE_NAME: &str = "demo";

/// Runs the demonstration and prints its results on stdout.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    godwit_process::discard_resumable_work();
    godwit_files::create_directories(&args.out).map_err(|source| PipelineError::File {
        action: "create",
        path: args.out.clone(),
        source,
    })?;
    let reference = args.out.join(REFERENCE_FILE);
    progress.report("simulating a genome and reads");
    let reads = simulate_data(args, &reference).map_err(simulate::simulate_failure)?;
    let index = IndexOptions {
        reference: &reference,
        aligner: &AlignerChoice::Auto,
        arguments: &[],
        memory_bytes: None,
        threads: args.common.thread_count(),
    };
    build_index(&index, &progress)?;
    let options = align_options(args, &reference, &reads);
    let cancelled = interruption::flag();
    let report = align(&options, None, &progress, &cancelled)?;
    let accuracy = match CallerChoice::Bcftools.find_caller("") {
        Ok(_) => Some(call_variants(&options, &progress, &cancelled)?),
        Err(_) => None,
    };
    progress.report("comparing with the truth and with the tools installed here");
    let bam = args.out.join(format!("{SAMPLE_NAME}.bam"));
    let truth = compare_with_truth(&bam, &reads.truth).map_err(|message| Failure::new(ErrorKind::Bug, message))?;
    let tools = compare_with_tools(&options, &bam).map_err(|message| Failure::new(ErrorKind::Engine, message))?;
    print(&summary_text(&bam, &reads, &report, &truth, accuracy.as_ref(), &tools))?;
    print(&next_commands(&args.out, accuracy.is_some()))?;
    let differing = tools.records_differing + tools.flags_differing.unwrap_or(0);
    if differing > 0 {
        return Err(Failure::new(ErrorKind::Bug, format!("{differing} records differ from the reference tools'")));
    }
    Ok(())
}

fn simulate_data(args: &DemoArgs, reference: &Path) -> Result<SimulatedReadFiles, SimulateError> {
    let assembly = write_genome(&GenomeOptions { seed: args.seed, ..GenomeOptions::default() }, reference)?;
    assembly.write_unique_bed(&args.out.join(UNIQUE_REGIONS_FILE))?;
    let sample = Sample::draw(&assembly, &SampleOptions { seed: args.seed, ..SampleOptions::default() });
    sample.write_vcf(&assembly, &args.out.join(TRUTH_FILE))?;
    let options =
        ReadOptions { pairs: args.pairs, lanes: LANE_COUNT, gzip: true, seed: args.seed, ..ReadOptions::default() };
    write_reads(&assembly, &sample, &options, &args.out.join("reads"))
}

fn align_options(args: &DemoArgs, reference: &Path, reads: &SimulatedReadFiles) -> AlignOptions {
    AlignOptions {
        formats: vec![Format::Bam],
        reference: reference.to_owned(),
        reads: ReadsOptions::default(),
        lanes: reads.lanes.iter().map(|files| files.to_vec()).collect(),
        read_groups: Vec::new(),
        sample: SAMPLE_NAME.into(),
        out: args.out.clone(),
        job: args.common.job_options(&MarkingArgs::default(), JobMetrics { is_on: true, picard: None }),
        block_bases: BLOCK_BASES,
        aligner: AlignerChoice::Bwa,
        aligner_args: Vec::new(),
        lenient: false,
        resume: false,
    }
}

/// Calls the variants of the aligned reads, and compares them with the truth by haplotypes: in the whole genome, and in
/// its unique regions only.
fn call_variants(
    aligned: &AlignOptions,
    progress: &Progress,
    cancelled: &AtomicBool,
) -> Result<[HaplotypeComparison; 2], Failure> {
    let calls = aligned.out.join(format!("{SAMPLE_NAME}.vcf.gz"));
    let (job, reads) = (&aligned.job, vec![aligned.out.clone()]);
    let options = CallOptions {
        command: Vec::new(),
        ..CallOptions::from_job(job, &aligned.reference, reads, &calls, CALLING_REGION_BASES)
    };
    call(&options, None, progress, cancelled)?;
    let everywhere = HaplotypeOptions {
        threads: aligned.job.threads,
        ..HaplotypeOptions::new(calls, aligned.out.join(TRUTH_FILE), aligned.reference.clone())
    };
    let unique = HaplotypeOptions { confident: Some(aligned.out.join(UNIQUE_REGIONS_FILE)), ..everywhere.clone() };
    Ok([compare_by_haplotypes(&everywhere, None, cancelled)?, compare_by_haplotypes(&unique, None, cancelled)?])
}

fn summary_text(
    bam: &Path,
    reads: &SimulatedReadFiles,
    report: &JobReport,
    truth: &TruthComparison,
    accuracy: Option<&[HaplotypeComparison; 2]>,
    tools: &ToolComparison,
) -> String {
    let percent = |part: u64, whole: u64| format!("{:.2} %", part as f64 * 100.0 / whole.max(1) as f64);
    let mut rows = vec![
        ("read pairs simulated, lanes".to_owned(), format!("{}, {}", reads.pairs, reads.lanes.len())),
        ("records written".to_owned(), report.records.to_string()),
        ("time, seconds".to_owned(), format!("{:.1}", report.seconds)),
        ("pairs placed at their origin".to_owned(), percent(truth.correctly_placed, truth.ordinary)),
        (
            "  of those with MAPQ 30 and more".to_owned(),
            percent(truth.correctly_placed_high_quality, truth.high_quality),
        ),
        ("duplicate pairs marked".to_owned(), percent(truth.duplicates_marked, truth.duplicates)),
        ("pairs wrongly marked as duplicates".to_owned(), truth.wrongly_marked.to_string()),
    ];
    match accuracy {
        Some([everywhere, unique]) => rows.extend([
            ("SNPs: recall, precision, F1".to_owned(), accuracy_text(everywhere.snps)),
            ("  of those in unique sequence".to_owned(), accuracy_text(unique.snps)),
            ("indels: recall, precision, F1".to_owned(), accuracy_text(everywhere.indels)),
            ("  of those in unique sequence".to_owned(), accuracy_text(unique.indels)),
        ]),
        None => rows.push(("variants called".to_owned(), "none: bcftools is not installed".to_owned())),
    }
    match &tools.aligner {
        Some(name) => rows.push((format!("records that differ from {name}"), tools.records_differing.to_string())),
        None => rows.push(("comparison with bwa and samtools".to_owned(), "not installed".to_owned())),
    }
    match tools.flags_differing {
        Some(differing) => {
            rows.push(("duplicate flags that differ from Picard 3.4.0".to_owned(), differing.to_string()));
        }
        None => rows.push(("comparison with Picard 3.4.0".to_owned(), "not installed".to_owned())),
    }
    let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    let lines = rows.iter().map(|(label, value)| format!("{label:width$}  {value}\n"));
    let directory: PathBuf = bam.parent().map(Path::to_owned).unwrap_or_default();
    format!(
        "{}\nBAM: {}\nreport: {}\njob report: {}\n",
        lines.collect::<String>(),
        bam.display(),
        directory.join("report.html").display(),
        directory.join("run.json").display()
    )
}

/// Returns three commands on the outputs of the demonstration, as text.
fn next_commands(out: &Path, has_calls: bool) -> String {
    // Use the program name as the user typed it, so that the printed commands also work if godwit is not on PATH.
    let program = std::env::args().next().unwrap_or_else(|| "godwit".to_owned());
    let (program, directory) = (shell_word(&program), shell_word(&out.display().to_string()));
    let file = |name: &str| shell_word(&out.join(name).display().to_string());
    let check = match has_calls {
        true => {
            let (calls, truth) = (file(&format!("{SAMPLE_NAME}.vcf.gz")), file(TRUTH_FILE));
            format!("{program} compare {calls} {truth} --reference {}", file(REFERENCE_FILE))
        }
        false => format!("{program} verify {directory}"),
    };
    // This statement needs no `godwit-sql`, which `./demo` does not build.
    let statement = format!("SELECT count(*) AS reads FROM reads('{SAMPLE_NAME}.bam') WHERE region('chr1:1-100000')");
    format!(
        "\nTry next:\n  {program} query \"{statement}\" --data {directory}\n  {check}\n  \
         {program} serve --root {directory}    # then open http://127.0.0.1:8815/\n"
    )
}

/// Quotes a word if a POSIX shell would interpret it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Formats the recall, the precision and the F1 score of a variant type.
fn accuracy_text(counts: Option<TypeCounts>) -> String {
    let counts = counts.unwrap_or_default();
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.4}"));
    [counts.recall, counts.precision, counts.f1].map(rate).join(", ")
}
