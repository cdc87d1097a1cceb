//! `cargo xtask tidy`: the rules of the house that neither rustc nor clippy checks.
//!
//! In: manifests and sources of the workspace. Out: one line per finding, `file:line: what is wrong and what to do`, and a
//! failure if there are any. It changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

mod manifests;
mod scanner;
mod sources;

/// Folders with sources of our own, below the root.
const SOURCE_FOLDERS: [&str; 9] = ["crates", "xtask", "tests", "bench", "fuzz", "identity", "sim", "python", "tools"];
/// Extensions of source files.
const SOURCE_EXTENSIONS: [&str; 8] = ["rs", "c", "h", "cc", "cpp", "py", "sh", "java"];

/// Checks the workspace at `root`.
///
/// # Errors
/// When something is out of order, after printing it; when a file cannot be read.
pub fn run(root: &Path) -> Result<()> {
    let mut findings = manifests::check(root)?;
    let files = sources(root)?;
    findings.extend(sources::check(&files));
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings in {} files", findings.len(), files.len());
    }
    println!("tidy: {} files in order", files.len());
    Ok(())
}

/// A source file.
struct Source {
    /// Path from the root, with `/`.
    path: String,
    text: String,
}

fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut paths = Vec::new();
    for folder in SOURCE_FOLDERS.map(|folder| root.join(folder)) {
        if folder.exists() {
            walk(&folder, &mut paths)?;
        }
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            Ok(Source { path, text })
        })
        .collect()
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if entry.file_type()?.is_dir() {
            // What others wrote stays as they wrote it.
            if !hidden && !["target", "vendor"].iter().any(|name| entry.file_name() == *name) {
                walk(&path, paths)?;
            }
        } else if path.extension().is_some_and(|extension| SOURCE_EXTENSIONS.iter().any(|known| extension == *known)) {
            paths.push(path);
        }
    }
    Ok(())
}
