//! The examples of the page about workflow engines: the files have the bytes of those of the command line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use godwit_tests::binary::{self, godwit};
use godwit_tests::slurm::SlurmCluster;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, needs_slurm, scratch};

use crate::run::formats::python_with;

/// The option of `align` that every example of the page passes through its engine.
const ALIGN_OPTION: [&str; 2] = ["--optical-distance", "2500"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository is there")
}

/// Returns the fenced blocks of a language in a section of the page, with the paths of this repository.
fn page_blocks(section: &str, language: &str) -> Vec<String> {
    let root = repository();
    let page = String::from_utf8(scratch::read(&root.join("docs/guide/workflow-engines.md"))).expect("it is text");
    let (_, section) = page.split_once(&format!("\n## {section}\n")).expect("the page has this section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let opening = format!("\n```{language}\n");
    let blocks = section.split(&opening).skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.map(|block| block.replace("/path/to/godwit", root.to_str().expect("its path is text"))).collect()
}

/// A reference and reads of the demo, and the files that the command line makes of them.
struct DemoFiles {
    directory: PathBuf,
}

impl DemoFiles {
    /// The names of the files that are compared: the BAM, its index, the VCF, its index.
    const NAMES: [&str; 4] = ["S.bam", "S.bam.bai", "S.vcf.gz", "S.vcf.gz.tbi"];

    fn cached() -> &'static Self {
        static CACHED: OnceLock<DemoFiles> = OnceLock::new();
        CACHED.get_or_init(|| {
            let directory = scratch::directory("engines-demo");
            let run = |words: &[&str]| godwit().current_dir(&directory).args(words).run_ok();
            run(&["demo", "--pairs", "20000", "--out", "demo"]);
            for (from, to) in [
                ("demo/reference.fa", "ref.fa"),
                ("demo/reads_L001_R1.fastq.gz", "reads_L001_R1.fastq.gz"),
                ("demo/reads_L001_R2.fastq.gz", "reads_L001_R2.fastq.gz"),
            ] {
                std::fs::copy(directory.join(from), directory.join(to)).expect("the demo made it");
            }
            run(&["index", "ref.fa"]);
            let align =
                ["align", "--reference", "ref.fa", "--reads", "reads_L001_R1.fastq.gz", "reads_L001_R2.fastq.gz"];
            run(&[&align[..], &["--sample", "S", "--out", "out"], &ALIGN_OPTION].concat());
            run(&["call", "--reference", "ref.fa", "--reads", "out/S.bam", "--out", "out/S.vcf.gz"]);
            Self { directory }
        })
    }

    /// Returns a new directory with the reference, its index, and the reads.
    fn working_directory(&self, label: &str) -> PathBuf {
        let directory = scratch::directory(label);
        for name in scratch::entry_names(&self.directory) {
            if self.directory.join(&name).is_file() {
                std::fs::copy(self.directory.join(&name), directory.join(&name)).expect("a file can be copied");
            }
        }
        directory
    }

    /// Checks that the files of an engine, in the order of [`DemoFiles::NAMES`], have the bytes of the command line's.
    fn assert_equal(&self, directory: &Path, files: [&str; 4]) {
        for (name, file) in Self::NAMES.iter().zip(files) {
            let expected = scratch::read(&self.directory.join("out").join(name));
            assert!(expected.len() > 100, "{name} is empty");
            assert!(scratch::read(&directory.join(file)) == expected, "{file} differs from that of the command line");
        }
    }
}

/// Writes a program `name` that starts a command line, into the directory `bin` of a working directory.
fn write_launcher(directory: &Path, name: &str, command_line: &str) {
    let bin = directory.join("bin");
    std::fs::create_dir_all(&bin).expect("the directory can be written to");
    scratch::write_executable(&bin.join(name), &format!("#!/bin/sh\nexec {command_line} \"$@\"\n"));
}

/// Writes a launcher of a Python module of the environment `tools/NAME`.
fn write_python_launcher(directory: &Path, name: &str, module: &str) {
    let python = python_with(name).expect("tools/python-packages.sh made it").command();
    write_launcher(directory, name, &format!("{} -m {module}", Path::new(python.get_program()).display()));
}

/// Writes a launcher of Nextflow.
fn write_nextflow_launcher(directory: &Path) {
    let mut fetch = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/nextflow/fetch.sh"));
    let jars = String::from_utf8(run_checked(&mut fetch).stdout).expect("it prints a path");
    write_launcher(directory, "nextflow", &format!("{}/nextflow", jars.trim()));
}

/// Returns a shell that runs a script in a working directory, with its launchers and the built programs on the `PATH`, and with
/// caches and settings of its own.
fn shell(directory: &Path, script: &str) -> Command {
    let programs = binary::path().parent().expect("it is in a directory").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = [directory.join("bin"), programs].into_iter().chain(std::env::split_paths(&path));
    let mut bash = Tool::require("bash").command();
    bash.current_dir(directory).args(["-euc", script]);
    bash.env("PATH", std::env::join_paths(directories).expect("paths have no colon"));
    bash.env("HOME", directory).env("NXF_HOME", directory.join(".nextflow-home"));
    bash.env("XDG_CACHE_HOME", directory.join(".cache")).env("XDG_CONFIG_HOME", directory.join(".config"));
    bash
}

#[test]
#[ignore = "Nextflow is 40 MB of packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored workflow_engines"]
fn nextflow_writes_what_the_command_line_writes() {
    needs!("bash", "bwa", "bcftools", "java", "mvn");
    let demo = DemoFiles::cached();
    let directory = demo.working_directory("nextflow");
    write_nextflow_launcher(&directory);
    for (name, text) in ["main.nf", "nextflow.config"].iter().zip(page_blocks("Nextflow", "groovy")) {
        std::fs::write(directory.join(name), text).expect("the directory can be written to");
    }
    let command = &page_blocks("Nextflow", "sh")[0];
    run_checked(&mut shell(&directory, command));
    let files = ["results/S/S.bam", "results/S/S.bam.bai", "results/S.vcf.gz", "results/S.vcf.gz.tbi"];
    demo.assert_equal(&directory, files);

    std::fs::remove_dir_all(directory.join("results")).expect("it was written");
    run_checked(&mut shell(&directory, &format!("{command} -stub")));
    assert!(files.iter().all(|file| directory.join(file).is_file()), "a stub makes the files of its process");
}

#[test]
#[ignore = "nf-core is 330 MB of packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored workflow_engines"]
fn nf_core_finds_only_that_the_modules_name_no_container() {
    needs!("bash", "git", "java", "mvn", "python3");
    let directory = scratch::directory("nf-core");
    write_nextflow_launcher(&directory);
    let python = python_with("nf-core").expect("tools/python-packages.sh made it").command();
    let lint = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/nf-core/lint.py");
    let script = "cp -r \"$0\" modules && cd modules && echo '{}' >modules/meta-schema.json && git init --quiet --initial-branch main && git add . &&
        git -c user.name=tests -c user.email=tests@localhost commit --quiet --message modules && exec \"$1\" \"$2\" .";
    let mut bash = shell(&directory, script);
    bash.arg(repository().join("integrations/nextflow")).arg(python.get_program()).arg(lint);
    let printed = String::from_utf8(run_checked(&mut bash).stdout).expect("it prints text");
    let (passed, faults) = printed.split_once('\n').expect("it prints lines");
    let passed: usize = passed.strip_prefix("passed ").and_then(|count| count.parse().ok()).expect("a count");
    assert!(passed >= 200, "{printed}");
    let unexpected: Vec<&str> =
        faults.lines().filter(|line| !line.contains(" docker_tag ") && !line.contains(" singularity_tag ")).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

#[test]
#[ignore = "nf-test is in no registry that the tests install from; with nf-test on the PATH: cargo test --profile ci -p godwit-tests --test e2e -- --ignored nf_test"]
fn nf_test_passes_for_every_module() {
    needs!("bash", "bwa", "bcftools", "java", "mvn", "nf-test");
    let demo = DemoFiles::cached();
    let directory = demo.working_directory("nf-test");
    write_nextflow_launcher(&directory);
    // The demo's files under the names of nf-core's test data.
    let script = "cp -r \"$0\" modules
        data=data/genomics/sarscov2
        mkdir -p $data/genome $data/illumina/fastq $data/illumina/bam
        cp ref.fa $data/genome/genome.fasta
        head -n 20 ref.fa >$data/genome/transcriptome.fasta
        for mate in 1 2; do cp reads_L001_R$mate.fastq.gz $data/illumina/fastq/test_$mate.fastq.gz; done
        for ending in bam bam.bai; do cp \"$1/S.$ending\" $data/illumina/bam/test.paired_end.sorted.$ending; done
        export NFT_TEST_DATA=$PWD/data/
        cd modules && exec nf-test test --ci";
    let mut bash = shell(&directory, script);
    let run = run_checked(bash.arg(repository().join("integrations/nextflow")).arg(demo.directory.join("out")));
    let printed = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(printed.contains("Executed 9 tests"), "{printed}");
}

/// Returns a working directory with the page's Snakefile, and what its search needs.
fn snakemake_directory(demo: &DemoFiles, label: &str) -> PathBuf {
    let directory = demo.working_directory(label);
    write_python_launcher(&directory, "snakemake", "snakemake");
    std::fs::write(directory.join("Snakefile"), &page_blocks("Snakemake", "python")[0])
        .expect("the directory can be written to");
    directory
}

const SNAKEMAKE_FILES: [&str; 4] = ["aligned/S.bam", "aligned/S.bam.bai", "S.vcf.gz", "S.vcf.gz.tbi"];

#[test]
#[ignore = "Snakemake is 300 MB of packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored workflow_engines"]
fn snakemake_writes_what_the_command_line_writes() {
    needs!("bash", "bwa", "bcftools", "makeblastdb", "python3");
    let demo = DemoFiles::cached();
    let directory = snakemake_directory(demo, "snakemake");
    let proteins = ">p1\nMKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQTLGQHDFSAGEGLYTHMKALRPDEDRLSPLHSVYVDQWDWE\n\
        >p2\nMSKGEELFTGVVPILVELDGDVNGHKFSVSGEGEGDATYGKLTLKFICTTGKLPVPWPTLVTTFSYGVQCFSRYPDHMKQHDFFKSAMPEGYVQERTIFFKDDGNYKTRAEVKFEGDTLV\n";
    std::fs::write(directory.join("queries.fa"), proteins).expect("the directory can be written to");
    run_checked(&mut shell(&directory, "makeblastdb -dbtype prot -in queries.fa -out proteins"));
    run_checked(&mut shell(&directory, &page_blocks("Snakemake", "sh")[0]));
    demo.assert_equal(&directory, SNAKEMAKE_FILES);
    let search = "search -- blastp -db proteins -query queries.fa -outfmt 6 -out expected.tsv";
    godwit().current_dir(&directory).args(search.split(' ')).run_ok();
    let hits = scratch::read(&directory.join("hits.tsv"));
    assert!(!hits.is_empty() && hits == scratch::read(&directory.join("expected.tsv")), "the hits differ");
}

#[test]
#[ignore = "Snakemake is 300 MB of packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored workflow_engines"]
fn snakemake_on_slurm_writes_what_the_command_line_writes() {
    needs!("bash", "bwa", "bcftools", "python3");
    needs_slurm!();
    let demo = DemoFiles::cached();
    let directory = snakemake_directory(demo, "snakemake-slurm");
    let cluster = SlurmCluster::start(2);
    // Inside of a job, Snakemake removes SLURM's variables before it starts srun, which then reads the configuration of the host.
    let configuration = format!("SLURM_CONF={}", cluster.slurm_conf().display());
    let srun = cluster.command("srun");
    write_launcher(&directory, "srun", &format!("env {configuration} {}", Path::new(srun.get_program()).display()));
    let command = page_blocks("Snakemake", "sh")[1].replace("mem_mb=2000", "mem_mb=500");
    let without_accounting =
        "--slurm-status-command squeue --slurm-no-account --slurm-init-seconds-before-status-checks 2";
    run_checked(&mut shell(&directory, &format!("export {configuration}; {command} {without_accounting}")));
    demo.assert_equal(&directory, SNAKEMAKE_FILES);
}

#[test]
#[ignore = "miniwdl is 50 MB of packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored workflow_engines"]
fn miniwdl_writes_what_the_command_line_writes() {
    needs!("bash", "bwa", "bcftools", "python3");
    let demo = DemoFiles::cached();
    let directory = demo.working_directory("miniwdl");
    write_python_launcher(&directory, "miniwdl", "WDL");
    std::fs::write(directory.join("inputs.json"), &page_blocks("WDL", "json")[0]).expect("it can be written to");
    let commands = page_blocks("WDL", "sh");
    let [run, install] = &commands[..] else { panic!("the section has two blocks") };
    // The backend is installed from a copy, because pip writes into the directory, and beside the shared environment.
    let python = python_with("miniwdl").expect("tools/python-packages.sh made it").command();
    let backend = repository().join("integrations/wdl/miniwdl-host");
    let (pip, export) = install.split_once('\n').expect("it has two lines");
    assert_eq!(pip, format!("pip install {}", backend.display()));
    let mut bash =
        shell(&directory, "cp -r \"$0\" backend && \"$1\" -m pip install --quiet --target site --no-deps ./backend");
    run_checked(bash.arg(backend).arg(python.get_program()));
    run_checked(shell(&directory, &format!("{export}\n{run}")).env("PYTHONPATH", directory.join("site")));
    let files = ["bam/S.bam", "bam_index/S.bam.bai", "vcf/S.vcf.gz", "vcf_index/S.vcf.gz.tbi"];
    demo.assert_equal(&directory.join("wdl/out"), files);
}

#[test]
#[ignore = "cwltool is 130 MB of packages; cargo test --profile ci -p godwit-tests --test e2e -- --ignored workflow_engines"]
fn cwltool_writes_what_the_command_line_writes() {
    needs!("bash", "bwa", "bcftools", "python3");
    let demo = DemoFiles::cached();
    let directory = demo.working_directory("cwltool");
    write_python_launcher(&directory, "cwltool", "cwltool");
    std::fs::write(directory.join("job.yml"), &page_blocks("CWL", "yaml")[0]).expect("it can be written to");
    run_checked(&mut shell(&directory, &page_blocks("CWL", "sh")[0]));
    demo.assert_equal(&directory.join("cwl"), DemoFiles::NAMES);
}
