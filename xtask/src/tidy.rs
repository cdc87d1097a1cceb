//! `cargo xtask tidy`: the rules of the project that neither rustc nor clippy checks.
//!
//! In: manifests, sources and pages of the workspace. Out: one line per finding, `file:line: defect and repair`, and a failure
//! if there are any. It does not change files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

mod architecture_page;
mod import_cycles;
mod language_rules;
mod manifest_rules;
mod page_rules;
mod scanner;
mod source_rules;

/// The folders with our own sources, below the root.
const SOURCE_FOLDERS: [&str; 9] = ["crates", "xtask", "tests", "bench", "fuzz", "identity", "sim", "python", "tools"];
/// Extensions of source files.
const SOURCE_EXTENSIONS: [&str; 8] = ["rs", "c", "h", "cc", "cpp", "py", "sh", "java"];

/// Pages in Markdown, and folders of them.
const PAGES: [&str; 5] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "python/README.md", "docs"];

/// Checks the workspace at `root`.
///
/// # Errors
/// When there are findings, after printing them; when a file cannot be read.
pub fn run(root: &Path) -> Result<()> {
    let mut findings = manifest_rules::check_manifests(root)?;
    let files = read_files(root, &SOURCE_FOLDERS, &SOURCE_EXTENSIONS)?;
    let pages = read_files(root, &PAGES, &["md"])?;
    findings.extend(source_rules::check_sources(&files));
    findings.extend(import_cycles::check_import_cycles(&files));
    findings.extend(language_rules::check_language(&files, &pages));
    findings.extend(architecture_page::check_architecture(&pages));
    let all_pages = read_files(root, &[""], &["md"])?;
    findings.extend(page_rules::check_module_paths(&pages, &files));
    findings.extend(page_rules::check_pages(&all_pages, |path| root.join(path).exists()));
    let counts = language_rules::count_documentation(&files);
    findings.extend(language_rules::check_documentation(&counts));
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings in {} files", findings.len(), files.len());
    }
    println!(
        "tidy: no findings in {} files; {} documented items, {} begin with a question word; {} examples",
        files.len(),
        counts.documented_items,
        counts.questions.len(),
        counts.examples
    );
    Ok(())
}

/// A source file or a page.
struct SourceFile {
    /// Path from the root, with `/`.
    path: String,
    text: String,
}

/// Reads the files with one of the extensions: those that are named, and those below the folders that are named.
fn read_files(root: &Path, names: &[&str], extensions: &[&str]) -> Result<Vec<SourceFile>> {
    let mut paths = Vec::new();
    for path in names.iter().map(|name| root.join(name)) {
        if path.is_dir() {
            collect_paths(&path, extensions, &mut paths)?;
        } else if path.exists() {
            paths.push(path);
        }
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            Ok(SourceFile { path, text })
        })
        .collect()
}

fn collect_paths(folder: &Path, extensions: &[&str], paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if entry.file_type()?.is_dir() {
            // Built, downloaded and vendored files are not checked.
            if !hidden && !["target", "vendor", "node_modules"].iter().any(|name| entry.file_name() == *name) {
                collect_paths(&path, extensions, paths)?;
            }
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known)) {
            paths.push(path);
        }
    }
    Ok(())
}
