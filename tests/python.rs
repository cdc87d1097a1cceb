//! The Python package: its own tests and the Python code of its documentation page; types and style, also of the benchmarks.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::{self, godwit};
use godwit_tests::tool::run_checked;
use godwit_tests::{needs, scratch};

use crate::run::formats::{aligned_sample, python_with, to_lines};

fn package_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../python")
}

/// Returns a Python command that finds the package and the built program.
pub fn python_command(packages: &str) -> Command {
    let mut command = python_with(packages).expect("tools/python-packages.sh made it").command();
    command.env("PYTHONPATH", package_directory().join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("GODWIT_PROGRAM", binary::path());
    command.env("XDG_CONFIG_HOME", scratch::root().join("no-configuration"));
    command
}

/// Runs tests of the Python package on an alignment, and returns their output.
fn package_tests_output(python: &mut Command, tests: &str) -> String {
    let (sample, out) = aligned_sample();
    python.env("GODWIT_TEST_RUN", &out).env("GODWIT_TEST_REFERENCE", sample.godwit_indexed_reference());
    let said = run_checked(python.arg(package_directory().join("tests").join(tests)));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("\nOK"), "{said}");
    said
}

#[test]
fn sessions_have_the_rows_of_samtools_and_parquet() {
    needs!("bwa", "samtools", "python3");
    // With this option, Python reports a stream or a server that was not closed as an error.
    let said =
        package_tests_output(python_command("columns").args(["-W", "error::ResourceWarning"]), "test_session.py");
    assert!(!said.contains("ResourceWarning"), "{said}");
}

#[test]
fn parts_of_queries_train_and_pile_up_as_samtools_does() {
    needs!("bwa", "samtools", "python3");
    package_tests_output(python_command("columns").args(["-W", "error::ResourceWarning"]), "test_training.py");
}

#[test]
fn masked_columns_are_plain_columns_in_every_frame() {
    needs!("python3");
    let said = run_checked(python_command("columns").arg(package_directory().join("tests/test_rules.py")));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("\nOK"), "{said}");
}

#[test]
fn services_score_what_they_are_sent() {
    needs!("python3", "openssl");
    let said = run_checked(python_command("columns").arg(package_directory().join("tests/test_scoring.py")));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("\nOK"), "{said}");
}

#[test]
fn errors_of_servers_have_their_reasons() {
    needs!("python3");
    let said = run_checked(python_command("columns").arg(package_directory().join("tests/test_reasons.py")));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("\nOK"), "{said}");
}

#[test]
fn training_servers_average_parameters_and_keep_their_rows() {
    needs!("python3");
    let said = run_checked(python_command("columns").arg(package_directory().join("tests/test_federated.py")));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("\nOK"), "{said}");
}

#[test]
fn the_page_about_federated_training_runs() {
    needs!("python3");
    let page = package_directory().join("../docs/guide/federated.md");
    let said =
        run_checked(python_command("scoring").arg(package_directory().join("tests/run_guide_page.py")).arg(page));
    assert!(String::from_utf8_lossy(&said.stdout).starts_with("accuracy 0.9"), "{said:?}");
}

#[test]
fn steps_are_named_and_described() {
    needs!("python3");
    let said = run_checked(python_command("columns").arg(package_directory().join("tests/test_steps.py")));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("\nOK"), "{said}");
}

#[test]
#[ignore = "four libraries of models; cargo test --profile ci -p godwit-tests --test e2e -- --ignored python::models"]
fn models_of_all_libraries_score_as_their_libraries_do() {
    needs!("python3");
    let said = run_checked(python_command("models").arg(package_directory().join("tests/scoring_models.py")));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("\nOK"), "{said}");
}

/// Runs the code of a page in a directory with the reference and one lane of reads, with the built program and this
/// Python on the PATH. Returns the output.
fn guide_page_output(page: &str, environment: &str, directory: &Path) -> Vec<String> {
    let (sample, _) = aligned_sample();
    let link = |from: &Path, to: PathBuf| std::os::unix::fs::symlink(from, to).expect("a link can be made");
    let indexed = sample.godwit_indexed_reference().parent().expect("it is in a directory");
    for file in std::fs::read_dir(indexed).expect("it is there") {
        let file = file.expect("it can be listed");
        link(&file.path(), directory.join(file.file_name()));
    }
    for (mate, file) in sample.lanes[0].reads.iter().enumerate() {
        link(file, directory.join(format!("reads_L001_R{}.fastq.gz", mate + 1)));
    }
    let mut python = python_command(environment);
    let own = Path::new(python.get_program()).parent().expect("it is in a directory").to_owned();
    let built = binary::path().parent().expect("it is in a directory").to_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    python.env("PATH", format!("{}:{}:{path}", own.display(), built.display())).current_dir(directory);
    // Interactive Python finds modules in its working directory.
    python.env("PYTHONPATH", format!("{}:{}", package_directory().join("src").display(), directory.display()));
    let page = package_directory().join("../docs/guide").join(page);
    let said = run_checked(python.arg(package_directory().join("tests/run_guide_page.py")).arg(page));
    to_lines(&String::from_utf8(said.stdout).expect("it prints text"))
}

#[test]
fn the_page_about_steps_runs() {
    needs!("bwa", "samtools", "python3");
    let directory = scratch::directory("step-guide");
    let said = guide_page_output("step.md", "columns", &directory);
    assert!(said[0].parse::<u64>().is_ok_and(|reads| reads > 0), "{said:?}");
    assert_eq!(said[1..], ["True", "True"]);
    let count = |out: &str| run_checked(Command::new("samtools").args(["view", "-c"]).arg(directory.join(out))).stdout;
    assert_eq!(count("out/demo.bam"), count("again/demo.bam"));
}

#[test]
fn the_page_about_scoring_runs() {
    needs!("bwa", "samtools", "bcftools", "python3");
    let said = guide_page_output("scoring.md", "scoring", &scratch::directory("scoring-guide"));
    let number = |line: &str| line.rsplit(' ').next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(-1.0);
    let found =
        |word: &str| said.iter().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("{word}: {said:?}"));
    assert!(number(found("precision")) > 0.9, "{said:?}");
    assert!(number(found("recall")) > 0.8, "{said:?}");
    assert!(said.iter().any(|line| line == "True"), "{said:?}");
}

#[test]
#[ignore = "Dask needs an environment of its own; cargo test --profile ci -p godwit-tests --test e2e -- --ignored python::dask"]
fn dask_reads_what_samtools_reads() {
    needs!("bwa", "samtools", "python3");
    package_tests_output(&mut python_command("dask"), "dask_frames.py");
}

#[test]
#[ignore = "PyTorch is gigabytes; cargo test --profile ci -p godwit-tests --test e2e -- --ignored python::torch"]
fn torch_trains_on_shares_of_rows_and_pileups() {
    needs!("bwa", "samtools", "python3");
    package_tests_output(&mut python_command("torch"), "torch_datasets.py");
}

#[test]
#[ignore = "TensorFlow is hundreds of megabytes; cargo test --profile ci -p godwit-tests --test e2e -- --ignored python::tensorflow"]
fn tensorflow_trains_on_shares_of_rows_and_pileups() {
    needs!("bwa", "samtools", "python3");
    package_tests_output(&mut python_command("tensorflow"), "tensorflow_datasets.py");
}

#[test]
#[ignore = "PySpark is 490 MB; cargo test --profile ci -p godwit-tests --test e2e -- --ignored python::spark"]
fn spark_reads_what_samtools_reads() {
    needs!("bwa", "samtools", "python3", "java");
    package_tests_output(&mut python_command("spark"), "spark_session.py");
}

#[test]
fn types_and_style_are_clean() {
    needs!("python3");
    let benchmarks = package_directory().join("../bench");
    // Both have the types of the same libraries.
    let cache = scratch::directory("types");
    for (directory, typed) in [(package_directory(), "src"), (benchmarks, ".")] {
        for words in [
            &["mypy", typed][..],
            &["ruff", "check", "--no-cache", "."],
            &["ruff", "format", "--no-cache", "--check", "."],
        ] {
            let mut command = python_command("columns");
            run_checked(command.current_dir(&directory).env("MYPY_CACHE_DIR", &cache).arg("-m").args(words));
        }
    }
}

#[test]
fn the_python_of_the_page_runs() {
    needs!("bwa", "bcftools", "python3");
    let (sample, out) = aligned_sample();
    let directory = scratch::directory("python-guide");
    let root = directory.join("out");
    std::fs::create_dir(&root).expect("a directory can be made");
    let link = |from: &Path, to: PathBuf| std::os::unix::fs::symlink(from, to).expect("a link can be made");
    for (name, made) in [("S.bam", "sample.bam"), ("S.bam.bai", "sample.bam.bai")] {
        link(&out.join(made), root.join(name));
    }
    let (reference, variants) = (sample.godwit_indexed_reference(), root.join("S.vcf.gz"));
    let call = godwit().args(["call", "--reference"]).arg(reference).arg("--reads").arg(out.join("sample.bam"));
    call.arg("--out").arg(variants).run_ok();
    let indexed = reference.parent().expect("it is in a directory");
    for file in std::fs::read_dir(indexed).expect("it is there") {
        let file = file.expect("it can be listed");
        link(&file.path(), directory.join(file.file_name()));
    }
    for (mate, file) in sample.lanes[0].reads.iter().enumerate() {
        link(file, directory.join(format!("reads_L001_R{}.fastq.gz", mate + 1)));
    }
    let page = std::fs::read_to_string(package_directory().join("../docs/guide/python.md")).expect("the page is there");
    let blocks: Vec<&str> =
        page.split("```python\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert!(blocks.len() >= 8, "the page has lost its Python");
    let said = run_checked(python_command("columns").current_dir(&directory).args(["-c", &blocks.join("\n")]));
    let said = to_lines(&String::from_utf8(said.stdout).expect("it prints text"));
    assert!(said[0].parse::<u64>().is_ok_and(|reads| reads > 0), "{said:?}");
    assert_eq!(said[1], "['contig', 'position']");
    assert!(said.iter().any(|line| line.starts_with("['T.bam'")), "{said:?}");
    assert!(said.last().is_some_and(|line| line.contains("missing.fastq.gz")), "{said:?}");
}
