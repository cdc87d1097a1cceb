//! The commands of the user documentation, run as written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::{self, godwit};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

/// Returns the lines that follow `$ ` in the `console` blocks of a page.
fn console_commands(page: &str) -> Vec<&str> {
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

/// Returns the repository's pages for users: the guide and the README.
fn user_pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root.join("docs/guide"))
        .expect("the guide is there")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

/// Returns the command lines of godwit in a page: lines of fenced blocks, and code spans, also those in tables.
fn godwit_command_lines(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    let mut continued = String::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced {
            continued += line.trim().trim_start_matches("$ ");
            match continued.strip_suffix('\\') {
                Some(start) => continued = start.to_owned(),
                None => found.push(std::mem::take(&mut continued)),
            }
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(|span| span.replace("\\|", "|")));
        }
    }
    found.retain(|line| line.starts_with("godwit "));
    found
}

/// Returns the words of the first command of a line, up to `--`. A quoted string is reduced to its quote character.
fn command_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                words.last_mut().expect("there is one").push(c);
            }
            None if "|;&<>#".contains(c) => break,
            None if c.is_whitespace() => words.push(String::new()),
            None => words.last_mut().expect("there is one").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.truncate(end);
    words
}

/// Returns the verb of a command line, with its subcommand; `None` for a placeholder such as `VERB`.
fn verb_of(words: &[String]) -> Option<Vec<String>> {
    let is_verb = |word: &&String| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
    let verb = words.get(1).filter(is_verb)?;
    let has_subcommands = ["audit", "bench", "collection", "config", "policy"].contains(&verb.as_str());
    let subcommand = words.get(2).filter(|word| has_subcommands && is_verb(word));
    Some([verb].into_iter().chain(subcommand).cloned().collect())
}

/// Runs the commands of a page in a directory with the files that they name; returns their number.
fn run_page_commands(page: &Path, directory: &Path) -> usize {
    let bin = binary::path().parent().expect("the binary lies in a directory").to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let text = std::fs::read_to_string(page).expect("a page can be read");
    let commands = console_commands(&text);
    for command in &commands {
        run_checked(
            Tool::require("bash")
                .command()
                .args(["-euc", command])
                .current_dir(directory)
                .env("PATH", &path)
                .env("XDG_CONFIG_HOME", directory),
        );
    }
    let makes_bam = |command: &&str| command.contains("--sample demo") && !command.contains("--dry-run");
    let is_there = directory.join("out/demo.bam").is_file();
    assert!(is_there || !commands.iter().any(makes_bam), "{}: its commands made no BAM", page.display());
    commands.len()
}

#[test]
fn every_command_of_the_guide_works_as_it_stands() {
    needs!("bash", "samtools", "bcftools", "makeblastdb");
    let (start, pages): (Vec<PathBuf>, Vec<PathBuf>) =
        user_pages().into_iter().partition(|page| page.ends_with("start.md"));
    // Run the commands of the first guide page, on whose results all other pages depend.
    let data = scratch::directory("guide-start");
    assert_eq!(run_page_commands(&start[0], &data), 3);
    let files = ["ref.fa", "reads.truth.vcf"].map(str::to_owned).into_iter();
    let reads = ["L001_R1", "L001_R2", "L002_R1", "L002_R2"].map(|name| format!("reads_{name}.fastq.gz"));
    let files: Vec<String> = files.chain(reads).collect();
    let signal = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/bbi/signal.bw");
    let mut run = 0;
    for page in pages {
        let directory = scratch::directory("guide");
        for file in &files {
            std::fs::copy(data.join(file), directory.join(file)).expect("the first page makes what it says");
        }
        std::fs::copy(&signal, directory.join("signal.bw")).expect("it can be copied");
        run += run_page_commands(&page, &directory);
    }
    assert!(run >= 100, "only {run} commands were found");
}

#[test]
fn every_option_in_the_documentation_exists() {
    let mut helps: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut checked = 0;
    for page in user_pages() {
        let text = std::fs::read_to_string(&page).expect("a page can be read");
        for line in godwit_command_lines(&text) {
            let words = command_words(&line);
            let Some(verb) = verb_of(&words) else { continue };
            let help = helps.entry(verb).or_insert_with_key(|verb| godwit().args(verb).arg("--help").run_ok().stdout);
            // The help lists options as `--name`, or `--name <VALUE>`.
            let known: Vec<&str> = help.split(|c: char| c.is_whitespace() || ",[]<>`".contains(c)).collect();
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let name = option.split(['=', ']', ',']).next().unwrap_or(option);
                assert!(known.contains(&name), "{}: {line}: no option {name}", page.display());
                checked += 1;
            }
        }
    }
    assert!(checked >= 400, "only {checked} options were found");
}

#[test]
fn installed_programs_stand_together() {
    needs!("bash", "modulecmd");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let prefix = scratch::directory("install with blank");
    // Install the existing programs: a new build would replace programs that other tests run.
    let built = scratch::profile_directory();
    let target = built.parent().expect("it lies in target/PROFILE");
    let profile =
        built.file_name().and_then(|name| name.to_str()).map(|name| if name == "debug" { "dev" } else { name });
    let install = || {
        let mut command = Command::new(root.join("install"));
        command
            .env("CARGO_TARGET_DIR", target)
            .args(["--no-build", "--profile", profile.expect("it has a name"), "--prefix"])
            .arg(&prefix);
        String::from_utf8(run_checked(&mut command).stdout).expect("it is text")
    };
    let told = install();
    assert!(told.contains("is not on PATH"), "{told}");
    // Install a second time, over the installed files.
    install();
    let found = Command::new(prefix.join("bin/godwit")).arg("doctor").output().expect("it is there").stdout;
    // Remove the line breaks, because doctor wraps long lines.
    let found = String::from_utf8_lossy(&found).split_whitespace().collect::<Vec<_>>().join(" ");
    let beside = format!("(bwa 0.7.17), {}", prefix.join("bin/godwit-bwa").display());
    assert!(found.contains(&beside), "{found}");
    assert!(prefix.join("bin/godwit-sql").is_file() && prefix.join("bin/godwit-bwa-mem3").is_file());
    assert!(prefix.join("share/man/man1/godwit-align.1").is_file());
    assert_eq!(version_after_module_load(&prefix), format!("godwit {}\n", env!("CARGO_PKG_VERSION")));
    let wrong = Command::new(root.join("install")).arg("--nonsense").output().expect("bash is there");
    assert_eq!(wrong.status.code(), Some(2));
}

/// Returns the version output of the program that the module file puts first on the PATH.
fn version_after_module_load(prefix: &Path) -> String {
    let script = "eval \"$(modulecmd bash load godwit)\"; godwit --version";
    let mut bash = Tool::require("bash").command();
    bash.args(["-euc", script]).env("MODULEPATH", prefix.join("share/modulefiles"));
    // Unset the environment modules of the user who runs the tests.
    bash.env_remove("LOADEDMODULES").env_remove("_LMFILES_");
    String::from_utf8(run_checked(&mut bash).stdout).expect("it is text")
}

/// Returns name and text of the pages of the command line in a directory.
fn reference_pages(directory: &Path) -> BTreeMap<String, String> {
    let pages = std::fs::read_dir(directory).expect("the directory can be listed").map(|entry| {
        let entry = entry.expect("an entry can be read");
        let name = entry.file_name().into_string().expect("names are text");
        (name, std::fs::read_to_string(entry.path()).expect("a page is text"))
    });
    pages.filter(|(name, _)| name.starts_with("cli") && name.ends_with(".md")).collect()
}

#[test]
fn the_reference_of_the_command_line_is_current() {
    let current = scratch::directory("reference");
    godwit().args(["man", "--markdown", "--out"]).arg(&current).run_ok();
    let current = reference_pages(&current);
    assert!(current.len() >= 7, "an index and a page for each group: {:?}", current.keys());
    let stored = reference_pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference"));
    assert!(stored == current, "docs/reference/cli*.md is not what godwit prints; run `cargo xtask docs`");
    // Without --out, `godwit man` prints all pages.
    let printed = godwit().args(["man", "--markdown"]).run_ok().stdout;
    assert!(current.values().all(|page| printed.contains(page.as_str())));
}

#[test]
fn every_verb_has_a_manual_page() {
    let directory = scratch::directory("man");
    godwit().arg("man").arg("--out").arg(&directory).run_ok();
    for name in ["godwit", "godwit-align", "godwit-markdup", "godwit-config-show", "godwit-doctor"] {
        let page = std::fs::read_to_string(directory.join(format!("{name}.1"))).expect(name);
        assert!(page.contains(".TH ") && page.contains(".SH NAME"), "{name}: {page}");
    }
    let align = std::fs::read_to_string(directory.join("godwit-align.1")).expect("it was just read");
    assert!(align.contains("block\\-bases") && align.contains("Example"), "{align}");
}
