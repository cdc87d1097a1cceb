//! godwit within workflow engines: what they write is what godwit writes by itself.

use std::path::{Path, PathBuf};

use godwit_tests::binary::{self, godwit};
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};

use crate::run::formats::{aligned, python_with};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The workflow of the page about engines, with the wrappers where they are.
fn workflow() -> String {
    let page = std::fs::read_to_string(repository().join("docs/guide/integrations.md")).expect("the page is there");
    let block = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has a workflow");
    let place = repository().canonicalize().expect("it is there");
    block.replace("/path/to/godwit", place.to_str().expect("its path is text"))
}

#[test]
#[ignore = "Snakemake is 60 MB of packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored integrations"]
fn the_workflow_of_the_page_writes_what_godwit_writes() {
    needs!("bwa", "samtools", "makeblastdb", "python3");
    let (sample, _) = aligned();
    let directory = scratch::directory("snakemake");
    let indexed = sample.indexed_by_godwit().parent().expect("it is in a directory");
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
    let mut make = Tool::need("makeblastdb").command();
    succeed(make.current_dir(&directory).args(["-dbtype", "prot", "-in", "proteins.fa", "-out", "proteins"]));
    std::fs::write(directory.join("Snakefile"), workflow()).expect("it can be written");

    let mut path = binary::path().parent().expect("it is in a directory").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut snakemake = python_with("snakemake").expect("tools/python-packages.sh made it").command();
    // What it remembers of sources is of this run.
    snakemake.current_dir(&directory).env("PATH", path).env("XDG_CACHE_HOME", directory.join("cache"));
    succeed(snakemake.args(["-m", "snakemake", "--cores", "2"]));

    let out = directory.join("by-hand");
    let words = ["align", "--reference", "ref.fa", "--reads", "reads_L001_R1.fastq.gz", "reads_L001_R2.fastq.gz"];
    godwit().current_dir(&directory).args(words).args(["--sample", "S", "--out"]).arg(&out).succeeds();
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(read(&directory.join("aligned/S.bam")) == read(&out.join("S.bam")), "the reads are others");
    let search =
        ["search", "--", "blastp", "-db", "proteins", "-query", "queries.fa", "-outfmt", "6", "-out", "by-hand.tsv"];
    godwit().current_dir(&directory).args(search).succeeds();
    let hits = read(&directory.join("hits.tsv"));
    assert!(!hits.is_empty() && hits == read(&directory.join("by-hand.tsv")), "the hits are others");
}
