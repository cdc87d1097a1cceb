//! godwit in workflow engines: the output of a workflow equals the output of the same godwit commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::{self, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

use crate::run::formats::{aligned_sample, python_with, to_lines};
use crate::serve::authentication::self_signed_certificate;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the example workflow of the guide page about workflow engines, with the paths of the wrappers inserted.
fn workflow_text() -> String {
    let page = std::fs::read_to_string(repository().join("docs/guide/integrations.md")).expect("the page is there");
    let block = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has a workflow");
    let place = repository().canonicalize().expect("it is there");
    block.replace("/path/to/godwit", place.to_str().expect("its path is text"))
}

#[test]
#[ignore = "Snakemake is 60 MB of packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored integrations"]
fn the_workflow_of_the_page_writes_what_godwit_writes() {
    needs!("bwa", "samtools", "makeblastdb", "python3");
    let (sample, _) = aligned_sample();
    let directory = scratch::directory("snakemake");
    let indexed = sample.godwit_indexed_reference().parent().expect("it is in a directory");
    for file in std::fs::read_dir(indexed).expect("it is there") {
        let file = file.expect("it can be listed");
        std::os::unix::fs::symlink(file.path(), directory.join(file.file_name())).expect("a link can be made");
    }
    for (mate, file) in sample.lanes[0].reads.iter().enumerate() {
        let link = directory.join(format!("reads_L001_R{}.fastq.gz", mate + 1));
        std::os::unix::fs::symlink(file, link).expect("a link can be made");
    }
    let proteins = ">p1\nMKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQTLGQHDFSAGEGLYTHMKALRPDEDRLSPLHSVYVDQWDWE\n\
        >p2\nMSKGEELFTGVVPILVELDGDVNGHKFSVSGEGEGDATYGKLTLKFICTTGKLPVPWPTLVTTFSYGVQCFSRYPDHMKQHDFFKSAMPEGYVQERTIFFKDDGNYKTRAEVKFEGDTLV\n";
    for name in ["proteins.fa", "queries.fa"] {
        std::fs::write(directory.join(name), proteins).expect("it can be written");
    }
    let mut make = Tool::require("makeblastdb").command();
    run_checked(make.current_dir(&directory).args(["-dbtype", "prot", "-in", "proteins.fa", "-out", "proteins"]));
    std::fs::write(directory.join("Snakefile"), workflow_text()).expect("it can be written");

    let mut path = binary::path().parent().expect("it is in a directory").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut snakemake = python_with("snakemake").expect("tools/python-packages.sh made it").command();
    // Use an empty source cache for each run, so that Snakemake does not use the sources of an earlier run.
    snakemake.current_dir(&directory).env("PATH", path).env("XDG_CACHE_HOME", directory.join("cache"));
    run_checked(snakemake.args(["-m", "snakemake", "--cores", "2"]));

    let out = directory.join("by-hand");
    let words = ["align", "--reference", "ref.fa", "--reads", "reads_L001_R1.fastq.gz", "reads_L001_R2.fastq.gz"];
    godwit().current_dir(&directory).args(words).args(["--sample", "S", "--out"]).arg(&out).run_ok();
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(read(&directory.join("aligned/S.bam")) == read(&out.join("S.bam")), "the reads are others");
    let search =
        ["search", "--", "blastp", "-db", "proteins", "-query", "queries.fa", "-outfmt", "6", "-out", "by-hand.tsv"];
    godwit().current_dir(&directory).args(search).run_ok();
    let hits = read(&directory.join("hits.tsv"));
    assert!(!hits.is_empty() && hits == read(&directory.join("by-hand.tsv")), "the hits are others");
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// A region whose reads are compared with samtools: the columns that the examples in other languages print.
const REGION: &str = "chr1:1000-20000";

fn samtools_region(bam: &Path) -> Vec<String> {
    let said = run_checked(Tool::require("samtools").command().args(["view", path_text(bam), REGION])).stdout;
    let reads = to_lines(&String::from_utf8(said).expect("it prints text"));
    let reads: Vec<String> = reads
        .iter()
        .map(|read| {
            let columns: Vec<&str> = read.split('\t').collect();
            [columns[0], columns[1], columns[2], columns[3], columns[5]].join("\t")
        })
        .collect();
    assert!(reads.len() > 10, "the region has {} reads", reads.len());
    reads
}

/// Checks that an example reads a region from a server without access control, and from one with TLS and a token.
fn assert_reads_what_samtools_reads(example: impl Fn() -> Command) {
    let (_, out) = aligned_sample();
    let expected = samtools_region(&out.join("sample.bam"));
    let directory = scratch::directory("other-languages");
    let said = |words: &[&str]| {
        let said = run_checked(example().args(words)).stdout;
        to_lines(&String::from_utf8(said).expect("it prints text"))
    };
    let open = DataServer::start(&out, &[]);
    assert_eq!(said(&[&format!("grpc+tcp://{}", open.address), "sample.bam", REGION]), expected);

    let (certificate, key) = self_signed_certificate(&directory);
    let tokens = directory.join("tokens.txt");
    let token = godwit().args(["token", "alice", "--tokens", path_text(&tokens)]).run_ok().stdout;
    let guard = ["--tls-cert", path_text(&certificate), "--tls-key", path_text(&key), "--tokens", path_text(&tokens)];
    let guarded = DataServer::start(&out, &guard);
    let url = format!("grpc+tls://{}", guarded.address);
    assert_eq!(said(&[&url, "sample.bam", REGION, token.trim(), path_text(&certificate)]), expected);
    let refused = example().args([&url, "sample.bam", REGION, "nonsense", path_text(&certificate)]).output();
    assert!(!refused.expect("it runs").status.success(), "a wrong token was taken");
}

#[test]
#[ignore = "23 MB of npm's packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored integrations::javascript"]
fn javascript_reads_what_samtools_reads() {
    needs!("bwa", "samtools", "openssl", "node", "npm");
    let directory = scratch::directory("javascript");
    for file in ["package.json", "flight.proto", "flight.mjs", "reads.mjs"] {
        let from = repository().join("integrations/javascript").join(file);
        std::fs::copy(from, directory.join(file)).expect("it is there");
    }
    run_checked(Tool::require("npm").command().args(["install", "--no-audit", "--no-fund"]).current_dir(&directory));
    assert_reads_what_samtools_reads(|| {
        let mut node = Tool::require("node").command();
        node.arg(directory.join("reads.mjs"));
        node
    });
}

#[test]
#[ignore = "R is 39 MB of Debian's packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored integrations::r_reads"]
fn r_reads_what_samtools_reads() {
    needs!("bwa", "samtools", "openssl", "python3", "Rscript");
    let python = python_with("columns").expect("tools/python-packages.sh made it").command();
    assert_reads_what_samtools_reads(|| {
        let mut r = Tool::require("Rscript").command();
        r.env("RETICULATE_PYTHON", python.get_program()).arg(repository().join("integrations/r/reads.R"));
        r
    });
}

fn packaging_file(file: &str) -> String {
    let path = repository().join("packaging").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs lines of a shell script with the built programs on the PATH.
fn run_in_scratch(script: &str) {
    let mut path = binary::path().parent().expect("it is in a directory").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let directory = scratch::directory("packaging");
    let mut bash = Tool::require("bash").command();
    bash.current_dir(&directory).env("PATH", path).env("XDG_CONFIG_HOME", &directory);
    run_checked(bash.args(["-euc", script]));
}

/// Checks that a shell can parse a script, without running it.
fn assert_shell(script: &str) {
    run_checked(Tool::require("bash").command().args(["-n", "-c", script]));
}

#[test]
fn the_recipe_for_conda_is_of_this_version_and_its_test_passes() {
    needs!("bash", "bwa", "samtools", "bcftools");
    let recipe = packaging_file("bioconda/meta.yaml");
    assert!(recipe.contains(&format!("{{% set version = \"{}\" %}}", env!("CARGO_PKG_VERSION"))), "another version");
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(recipe.contains(&format!("    - {license}\n")) && repository().join(license).is_file(), "{license}");
    }
    assert_shell(&packaging_file("bioconda/build.sh"));
    let commands = recipe.split("  commands:\n").nth(1).expect("it has a test");
    let commands: Vec<&str> = commands.lines().map_while(|line| line.strip_prefix("    - ")).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    run_in_scratch(&commands.join("\n"));
}

#[test]
fn the_definition_of_an_image_has_scripts_that_a_shell_reads_and_a_test_that_passes() {
    needs!("bash", "bwa", "samtools", "bcftools");
    let definition = packaging_file("apptainer/godwit.def");
    let sections = definition.split("\n%").skip(1).map(|section| section.split_once('\n').unwrap_or((section, "")));
    let body = |text: &str| text.split("\nBootstrap:").next().unwrap_or_default().to_owned();
    let sections: Vec<(&str, String)> = sections.map(|(name, text)| (name, body(text))).collect();
    let of = |name| {
        sections.iter().filter(|section| section.0 == name).map(|section| section.1.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((of("post").len(), of("test").len(), of("runscript").len()), (2, 1, 1));
    ["post", "environment", "runscript", "test"].map(of).into_iter().flatten().for_each(assert_shell);
    of("test").into_iter().for_each(run_in_scratch);
}
