//! The tools whose metrics godwit's must equal: Picard, samtools stats, mosdepth and, as a reader of all of them,
//! MultiQC.

use std::path::{Path, PathBuf};

use crate::picard::{self, PicardError};
use crate::scratch;
use crate::tool::{Tool, run_checked};

/// The version of MultiQC that `tools/install-dependencies.sh` installs.
const MULTIQC_VERSION: &str = "multiqc-1.35";

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are UTF-8")
}

/// Copies a reference and writes the dictionary and index that Picard requires beside it.
///
/// # Panics
/// When a tool fails.
pub fn reference_for_picard(reference: &Path) -> PathBuf {
    let directory = scratch::directory("picard-reference");
    let copy = directory.join("ref.fa");
    std::fs::copy(reference, &copy).expect("the reference can be copied");
    Tool::require("samtools").run(["faidx".as_ref(), copy.as_os_str()]);
    let dictionary = directory.join("ref.dict");
    let words = ["CreateSequenceDictionary", "--REFERENCE", path_text(&copy), "--OUTPUT", path_text(&dictionary)];
    picard::run(&[&words[..], &["--QUIET", "true"]].concat()).expect("Picard reads the reference");
    copy
}

/// Runs one of Picard's collectors on a file and returns the path of the metrics file. Picard does not write the file
/// when it has no metrics to report.
///
/// # Errors
/// When Picard rejects the file.
pub fn picard_metrics(tool: &str, bam: &Path, reference: Option<&Path>) -> Result<PathBuf, PicardError> {
    let directory = scratch::directory("picard-metrics");
    let (out, chart) = (directory.join("metrics.txt"), directory.join("chart.pdf"));
    let mut words = vec![tool, "--INPUT", path_text(bam), "--OUTPUT", path_text(&out)];
    words.extend(["--VALIDATION_STRINGENCY", "SILENT", "--VERBOSITY", "ERROR", "--QUIET", "true"]);
    if tool == "CollectInsertSizeMetrics" {
        words.extend(["--Histogram_FILE", path_text(&chart)]);
    }
    if let Some(reference) = reference {
        words.extend(["--REFERENCE_SEQUENCE", path_text(reference)]);
    }
    picard::run(&words).map(|()| out)
}

/// Returns the output of `samtools stats`, without the comments that name it and without the sections that godwit does
/// not write: GC-depth and those of barcodes.
pub fn samtools_stats(bam: &Path) -> Vec<String> {
    let output = Tool::require("samtools").run(["stats".as_ref(), bam.as_os_str()]);
    let all = String::from_utf8_lossy(&output.stdout).into_owned();
    let left_out =
        ["# This file", "# The command", "GCD", "# GC-depth", "BC", "QT", "CR", "CY", "OX", "BZ", "RX", "QX"];
    let barcodes = ["# ACGT content per cycle for barcodes", "# Barcode Qualities"];
    let mut lines: Vec<String> = Vec::new();
    let mut in_barcodes = false;
    for line in all.lines() {
        in_barcodes = barcodes.iter().any(|start| line.starts_with(start))
            || (in_barcodes && (line.starts_with("# Columns") || !line.starts_with('#')));
        if !in_barcodes && !left_out.iter().any(|start| line.starts_with(start)) {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Returns mosdepth's summary and distribution of an indexed file.
///
/// # Panics
/// When mosdepth fails.
pub fn mosdepth(bam: &Path) -> [String; 2] {
    let prefix = scratch::directory("mosdepth").join("m");
    run_checked(Tool::require("mosdepth").command().arg("--no-per-base").arg(&prefix).arg(bam));
    [".mosdepth.summary.txt", ".mosdepth.global.dist.txt"].map(|suffix| {
        let path = format!("{}{suffix}", prefix.display());
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    })
}

/// Returns the directory of MultiQC's programs, if it is installed.
pub fn multiqc_directory() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from)?;
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    let bin = cache.join("godwit").join(MULTIQC_VERSION).join("bin");
    bin.join("multiqc").is_file().then_some(bin)
}

/// Runs MultiQC on a directory and returns each value it read as a line `module/sample/key\tvalue`.
///
/// # Panics
/// When it fails.
pub fn multiqc_values(bin: &Path, directory: &Path) -> Vec<(String, String)> {
    const FLATTEN: &str = "import json, sys\n\
        def walk(path, value):\n    \
            if isinstance(value, dict):\n        \
                for key, inner in value.items(): walk(path + [str(key)], inner)\n    \
            else: print('/'.join(path) + '\\t' + str(value))\n\
        walk([], json.load(open(sys.argv[1]))['report_saved_raw_data'])\n";
    let out = scratch::directory("multiqc");
    let words = ["--quiet", "--no-report", "--data-dir", "--data-format", "json", "--outdir"];
    let mut command = std::process::Command::new(bin.join("multiqc"));
    run_checked(command.args(words).arg(&out).arg(directory).env("MULTIQC_NO_VERSION_CHECK", "true"));
    let json = out.join("multiqc_data/multiqc_data.json");
    let printed = run_checked(std::process::Command::new(bin.join("python")).args(["-c", FLATTEN]).arg(json));
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    printed.lines().filter_map(|line| line.split_once('\t')).map(|(key, value)| (key.into(), value.into())).collect()
}
