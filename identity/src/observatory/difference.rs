//! The smallest set of reads that shows a difference, and the directory that stores it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{EXPECTED, Settings, Verdict, fastq, judge, remove_directory};
use crate::error::{Error, Result};
use crate::programs::{AlignTask, Engine, oracle_stderr, shell_line};
use crate::reduction::{Placeholders, Reduction, Start, Subset, reduce};
use crate::scenario::{Scenario, split_words};
use crate::simulator::ReadSimulator;

/// The maximum number of templates whose records are written to `differences.txt`.
const MAX_SHOWN: usize = 50;

/// A comparison with differences or with a failure of godwit.
pub(super) struct Case<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) simulator: &'a ReadSimulator<'a>,
    pub(super) engine: &'a Engine,
    pub(super) task: &'a AlignTask,
    pub(super) limit: Duration,
    pub(super) verdict: &'a Verdict,
}

impl Case<'_> {
    /// Returns the numbers of the templates whose records differ, in ascending order.
    fn suspects(&self) -> Vec<u64> {
        let Verdict::Compared(comparison) = self.verdict else { return Vec::new() };
        let names = comparison.templates.iter().map(|template| template.name.as_str());
        let mut suspects: Vec<u64> = names.filter_map(fastq::template_number).collect();
        suspects.sort_unstable();
        suspects.dedup();
        suspects
    }

    /// Returns the option with the insert sizes that bwa estimated in the whole round; `None` where the scenario sets
    /// them or has single reads.
    fn insert_sizes(&self, scratch: &Path) -> Option<String> {
        let is_given = self.scenario.options.iter().any(|option| option.starts_with("-I"));
        let text = fs::read(oracle_stderr(&scratch.join(EXPECTED))).unwrap_or_default();
        insert_size_option(&String::from_utf8_lossy(&text)).filter(|_| self.scenario.paired && !is_given)
    }

    /// Writes a subset into `directory` and returns the task that aligns it.
    fn task_of(&self, subset: &Subset, options: &[String], directory: &Path) -> Result<AlignTask> {
        let (reads, bases) = fastq::write_subset(self.simulator, self.scenario, subset, directory)?;
        let block_bases = match subset.placeholders {
            // A block size above the number of bases puts all reads into one block.
            Placeholders::OneBase => bases + 1,
            Placeholders::SameBases | Placeholders::None => self.task.block_bases,
        };
        let reference = self.task.reference.clone();
        Ok(AlignTask { reference, reads, block_bases, option_words: split_words(options) })
    }

    fn judge(&self, settings: &Settings, task: &AlignTask, directory: &Path) -> Result<Verdict> {
        let expected = directory.join(EXPECTED);
        settings.programs.run_bwa(task, &expected)?;
        judge(&settings.programs, task, self.engine, &expected, directory, self.limit)
    }
}

/// Finds the smallest set of reads that still shows the difference, and writes it to a new directory below
/// `differences/` of the work directory. Returns the new directory.
pub(super) fn reduce_and_keep(case: &Case<'_>, settings: &Settings, scratch: &Path) -> Result<PathBuf> {
    let trial = scratch.join("trial");
    let blocks = fastq::blocks(case.simulator, case.scenario);
    let suspects = case.suspects();
    let start = Start {
        total: case.scenario.templates,
        blocks: &blocks,
        suspects: &suspects,
        options: &case.scenario.options,
        insert_sizes: case.insert_sizes(scratch),
        max_trials: settings.max_trials,
    };
    let reduction = reduce(&start, &mut |subset, options| {
        remove_directory(&trial)?;
        fs::create_dir_all(&trial).map_err(Error::file("create", &trial))?;
        let task = case.task_of(subset, options, &trial)?;
        match case.judge(settings, &task, &trial) {
            // A failure of a program does not reproduce the difference, so do not accept this smaller input.
            Err(Error::Program { .. }) => Ok(false),
            verdict => verdict.map(|verdict| !verdict.is_same()),
        }
    })?;
    remove_directory(&trial)?;
    let GenomeName(name) = GenomeName::of(settings);
    let engine = case.engine.to_string().replace(' ', "-");
    let directory = settings.work.join("differences").join(format!("{name}-round-{}-{engine}", case.scenario.round));
    remove_directory(&directory)?;
    fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
    let task = case.task_of(&reduction.subset, &reduction.options, &directory)?;
    let verdict = case.judge(settings, &task, &directory)?;
    for (file, text) in
        [("differences.txt", description(case, &reduction, &verdict)), ("reproduce.sh", script(case, settings, &task))]
    {
        let path = directory.join(file);
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    Ok(directory)
}

/// Returns `-I MEAN,DEVIATION,MAX,MIN` of the first estimate for FR pairs, as bwa prints it on standard error.
fn insert_size_option(text: &str) -> Option<String> {
    let (_, estimate) = text.split_once("insert size distribution for orientation FR...")?;
    let numbers = |title: &str| -> Option<(&str, &str)> {
        let (_, rest) = estimate.split_once(title)?;
        rest.split_once(')')?.0.split_once(", ")
    };
    let (mean, deviation) = numbers("] mean and std.dev: (")?;
    let (least, most) = numbers("boundaries for proper pairs: (")?;
    Some(format!("-I {mean},{deviation},{most},{least}"))
}

/// The part of a directory's name that identifies the genome and the seed.
struct GenomeName(String);

impl GenomeName {
    fn of(settings: &Settings) -> Self {
        Self(format!("genome-{}-seed-{}", settings.genome.bases, settings.genome.seed))
    }
}

fn description(case: &Case<'_>, reduction: &Reduction, verdict: &Verdict) -> String {
    let Reduction { subset, options, trials } = reduction;
    let mut text = format!("round {}: {}\nengine: {}\n", case.scenario.round, case.scenario, case.engine);
    let _ = writeln!(text, "whole round: {}", case.verdict.text());
    let _ = writeln!(text, "smallest set, after {trials} trials: {}", verdict.text());
    let _ = writeln!(text, "templates: {} of {} ({:?})", subset.kept.len(), subset.total, subset.placeholders);
    let _ = writeln!(text, "options: {}", if options.is_empty() { "none".to_owned() } else { options.join(" ") });
    if verdict.is_same() {
        text += "The difference did not show again.\n";
    }
    let shown = if let Verdict::Compared(comparison) = verdict { &comparison.templates[..] } else { &[] };
    for template in shown.iter().take(MAX_SHOWN) {
        let _ = writeln!(text, "\n{}: {}", template.name, template.fields().join(", "));
        for (side, lines) in [("bwa", &template.expected), ("godwit", &template.found)] {
            for line in lines {
                let _ = writeln!(text, "  {side}: {line}");
            }
        }
    }
    text
}

/// Returns a script that reproduces the difference in its own directory.
fn script(case: &Case<'_>, settings: &Settings, task: &AlignTask) -> String {
    let reads = task.reads.iter().filter_map(|path| path.file_name().map(PathBuf::from)).collect();
    let task = AlignTask { reads, ..task.clone() };
    let bwa = shell_line(&settings.programs.bwa_command(&task));
    let godwit = shell_line(&settings.programs.godwit_command(&task, case.engine, Path::new("godwit")));
    let megabases = settings.genome.bases as f64 / 1e6;
    format!(
        "#!/bin/sh\n\
        # The reference is that of: cargo xtask identity --genome {megabases} --seed {seed} --rounds 0\n\
        cd \"$(dirname \"$0\")\" && rm -rf godwit || exit 1\n\
        {bwa} | samtools sort --no-PG -o expected.bam - || exit 1\n\
        {godwit} || exit 1\n\
        samtools view expected.bam >expected.sam && samtools view godwit/sample.bam >found.sam || exit 1\n\
        diff expected.sam found.sam\n",
        seed = settings.genome.seed,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insert_sizes_are_those_that_bwa_prints() {
        let text = "[M::mem_pestat] skip orientation FF as there are not enough pairs\n\
            [M::mem_pestat] analyzing insert size distribution for orientation FR...\n\
            [M::mem_pestat] (25, 50, 75) percentile: (327, 345, 364)\n\
            [M::mem_pestat] low and high boundaries for computing mean and std.dev: (253, 438)\n\
            [M::mem_pestat] mean and std.dev: (345.15, 26.42)\n\
            [M::mem_pestat] low and high boundaries for proper pairs: (216, 475)\n";
        assert_eq!(insert_size_option(text).as_deref(), Some("-I 345.15,26.42,475,216"));
        assert_eq!(insert_size_option("skip orientation FR as there are not enough pairs"), None);
    }
}
