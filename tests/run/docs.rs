//! The commands of the user documentation, run as they stand there.

use std::path::{Path, PathBuf};

use godwit_tests::binary::{self, godwit};
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};

/// Lines behind `$ ` in the `console` blocks of a page.
fn commands(page: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in page.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if inside => found.extend(line.strip_prefix("$ ")),
            _ => {}
        }
    }
    found
}

/// The repository's pages for users.
fn pages() -> Vec<PathBuf> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide");
    let mut pages: Vec<PathBuf> = std::fs::read_dir(guide)
        .expect("the guide is there")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    pages.sort();
    pages
}

/// A directory with the files that the guide's commands name.
fn workplace() -> PathBuf {
    let directory = scratch::directory("guide");
    let reference = directory.join("ref.fa");
    let mut state = 1u64;
    let bases: String = (0..40_000)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            char::from(b"ACGT"[(state >> 60) as usize % 4])
        })
        .collect();
    std::fs::write(&reference, format!(">chr1\n{bases}\n")).expect("the scratch directory can be written to");
    let simulate = godwit().arg("simulate").arg("--reference").arg(&reference);
    simulate.args(["--pairs", "2000", "--lanes", "2", "--gzip", "--out"]).arg(directory.join("reads")).succeeds();
    directory
}

#[test]
fn every_command_of_the_guide_works_as_it_stands() {
    needs!("bash", "samtools", "bcftools");
    let bin = binary::path().parent().expect("the binary lies in a directory").to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut run = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page can be read");
        let directory = workplace();
        for command in commands(&text) {
            succeed(
                Tool::need("bash")
                    .command()
                    .args(["-euc", command])
                    .current_dir(&directory)
                    .env("PATH", &path)
                    .env("XDG_CONFIG_HOME", &directory),
            );
            run += 1;
        }
        let makes_bam =
            commands(&text).iter().any(|command| command.contains("--sample demo") && !command.contains("--dry-run"));
        assert!(!makes_bam || directory.join("out/demo.bam").is_file(), "{}: its commands made no BAM", page.display());
    }
    assert!(run >= 3, "only {run} commands were found");
}

#[test]
fn the_reference_of_the_command_line_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let current = godwit().args(["man", "--markdown"]).succeeds().stdout;
    assert!(text == current, "docs/reference/cli.md is not what godwit says of itself; run `cargo xtask docs`");
}

#[test]
fn every_verb_has_a_manual_page() {
    let directory = scratch::directory("man");
    godwit().arg("man").arg("--out").arg(&directory).succeeds();
    for name in ["godwit", "godwit-align", "godwit-markdup", "godwit-config-show", "godwit-doctor"] {
        let page = std::fs::read_to_string(directory.join(format!("{name}.1"))).expect(name);
        assert!(page.contains(".TH ") && page.contains(".SH NAME"), "{name}: {page}");
    }
    let align = std::fs::read_to_string(directory.join("godwit-align.1")).expect("it was just read");
    assert!(align.contains("block\\-bases") && align.contains("Example"), "{align}");
}
