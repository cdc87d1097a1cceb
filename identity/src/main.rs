//! `godwit-identity`: compares godwit's exact aligners with `bwa mem -K`; started by `cargo xtask identity`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use godwit_identity::genome::{self, GenomeSpec};
use godwit_identity::programs::{Programs, processor_instructions};
use godwit_identity::{Observatory, Settings};

const USAGE: &str = "usage: cargo xtask identity [OPTIONS]

Compares every record of godwit's exact aligners with bwa mem -K, in rounds drawn from a seed. The same command resumes an
interrupted run.

  --pairs N              maximum number of templates in a round [default: 100000]
  --genome MB            size of the genome, in millions of bases [default: 20]
  --seed S               seed of the genome and of the rounds [default: 1]
  --rounds N             rounds of the seed; those in the results file are not run again [default: 16]
  --minutes N            start no round after N minutes
  --aligners LIST        aligners of godwit [default: bwa,bwa-mem3]
  --instructions LIST    instructions of bwa-mem3 [default: those of the processor among avx2,avx512bw]
  --nodes N              maximum number of workers of a cluster run on this machine, 0 for none [default: 3]
  --threads N            threads of each program [default: all processors]
  --qualities FILE       FASTQ file to draw qualities from; given once, or once for each mate [default: a model]
  --godwit PATH          the built program [default: target/ci/godwit]
  --work DIR             genomes, indexes, scratch files, differences [default: target/identity]
  --results FILE         the results file [default: bench/results/identity.tsv]
  --page FILE            the page generated from it [default: bench/results/identity.md]
  --trials N             maximum number of trials in the search for the smallest set of reads [default: 150]
  --genome-out DIR       write the genome as DIR/ref.fa, and stop";

fn main() -> ExitCode {
    let CommandLine { settings, genome_out } = match parse(std::env::args().skip(1)) {
        Ok(Some(line)) => line,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("godwit-identity: {problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(directory) = genome_out {
        return match genome::write_once(settings.genome, &directory) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => failure(&error),
        };
    }
    let page = settings.page.clone();
    let summary =
        Observatory::open(settings).and_then(|mut observatory| observatory.run(&mut |line| println!("{line}")));
    match summary {
        Ok(summary) => {
            println!(
                "{} rounds, {} comparisons, {} records, {} differ, {} failed, {} rounds left; see {}",
                summary.rounds,
                summary.comparisons,
                summary.records,
                summary.differing,
                summary.failed,
                summary.left,
                page.display()
            );
            ExitCode::from(u8::from(summary.differing > 0 || summary.failed > 0))
        }
        Err(error) => failure(&error),
    }
}

fn failure(error: &godwit_identity::Error) -> ExitCode {
    eprintln!("godwit-identity: {error}");
    ExitCode::from(4)
}

/// The options of a command line.
struct CommandLine {
    settings: Settings,
    /// The directory that receives the genome; with it, nothing is compared.
    genome_out: Option<PathBuf>,
}

/// Parses the command line; `None` requests the help text.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<CommandLine>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut settings = Settings {
        pairs: 100_000,
        genome: GenomeSpec { bases: 20_000_000, seed: 1 },
        rounds: 16,
        time_limit: None,
        aligners: vec!["bwa".to_owned(), "bwa-mem3".to_owned()],
        instructions: processor_instructions().into_iter().map(str::to_owned).collect(),
        max_workers: 3,
        programs: Programs { godwit: target.join("ci/godwit"), threads },
        qualities: Vec::new(),
        work: target.join("identity"),
        results: root.join("bench/results/identity.tsv"),
        page: root.join("bench/results/identity.md"),
        max_trials: 150,
    };
    let mut genome_out = None;
    while let Some(word) = words.next() {
        if ["--help", "-h"].contains(&word.as_str()) {
            return Ok(None);
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--genome-out" => genome_out = Some(value.into()),
            _ => set(&mut settings, &word, &value)?,
        }
    }
    // Make the paths absolute, because programs run in other directories and the written script contains these paths.
    for path in [&mut settings.work, &mut settings.programs.godwit] {
        *path = std::path::absolute(&*path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(Some(CommandLine { settings, genome_out }))
}

fn set(settings: &mut Settings, option: &str, value: &str) -> Result<(), String> {
    let list = || value.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let count = |least: u64, most: u64| match value.parse::<u64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("{option} {value}: give a number from {least} to {most}")),
    };
    match option {
        "--pairs" => settings.pairs = count(1, 1 << 32)?,
        "--genome" => {
            let megabases = value.parse::<f64>().ok().filter(|number| (0.2..=4000.0).contains(number));
            let megabases =
                megabases.ok_or_else(|| format!("--genome {value}: give millions of bases, 0.2 to 4000"))?;
            settings.genome.bases = (megabases * 1e6) as usize;
        }
        "--seed" => settings.genome.seed = count(0, u64::MAX)?,
        "--rounds" => settings.rounds = count(0, 1 << 24)?,
        "--minutes" => settings.time_limit = Some(Duration::from_secs(60 * count(0, 1_000_000)?)),
        "--aligners" => settings.aligners = list(),
        "--instructions" => settings.instructions = list(),
        "--nodes" => settings.max_workers = count(0, 64)? as usize,
        "--threads" => settings.programs.threads = count(1, 1024)? as usize,
        "--trials" => settings.max_trials = count(0, 1_000_000)? as u32,
        "--qualities" if settings.qualities.len() < 2 => settings.qualities.push(value.into()),
        "--qualities" => return Err("--qualities is given at most twice, once for each mate".to_owned()),
        "--godwit" => settings.programs.godwit = value.into(),
        "--work" => settings.work = value.into(),
        "--results" => settings.results = value.into(),
        "--page" => settings.page = value.into(),
        _ => return Err(format!("{option} is not an option")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;

    fn parsed(line: &str) -> Result<Option<Settings>, String> {
        parse(line.split_whitespace().map(str::to_owned)).map(|line| line.map(|line| line.settings))
    }

    #[test]
    fn options_are_read_and_mistakes_are_named() {
        let settings = parsed("--pairs 20 --genome 1.5 --seed 9 --aligners bwa --work /w --nodes 0").unwrap().unwrap();
        assert_eq!((settings.pairs, settings.max_workers), (20, 0));
        assert_eq!(settings.genome, GenomeSpec { bases: 1_500_000, seed: 9 });
        assert!(settings.results.ends_with("bench/results/identity.tsv"), "{}", settings.results.display());
        assert!(parsed("--help").unwrap().is_none());
        for line in ["--pairs", "--pairs 0", "--genome 0.1", "--speed 3", "--qualities a --qualities b --qualities c"] {
            assert!(parsed(line).unwrap_err().starts_with("--"), "{line}");
        }
    }
}
