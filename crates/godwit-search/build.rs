//! Compiles the worker if NCBI's libraries are installed. Otherwise godwit is built without it, and `godwit search` reports that.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Version of the Python package `pyncbitk-runtime` with headers and libraries; `tools/fetch-ncbi.sh` has the same version.
const RUNTIME_VERSION: &str = "30.6.0.0";
/// Path of the toolkit in the package.
const TOOLKIT_PATH: &str = "pyncbitk_runtime/ncbi-cxx-toolkit-public";
/// Libraries that the worker links.
const LIBRARIES: [&str; 20] = [
    "xblastformat",
    "blast_app_util",
    "blastinput",
    "xblast",
    "seqdb",
    "blastdb",
    "align_format",
    "xformat",
    "xobjmgr",
    "xobjutil",
    "xnetblast",
    "scoremat",
    "seqset",
    "seq",
    "generalasn",
    "xser",
    "xutil",
    "xncbi",
    "xcompress",
    "xconnect",
];

fn main() {
    for variable in ["GODWIT_NCBI_PREFIX", "XDG_CACHE_HOME", "HOME"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=worker");
    let Some(prefix) = find_toolkit_prefix() else { return };
    println!("cargo::rerun-if-changed={}", prefix.join("lib/libxblast.so").display());
    match build_worker(&prefix) {
        Ok(()) => {}
        // If NCBI's libraries are installed and their build succeeds, godwit-blast is built too. Otherwise print a
        // warning and build godwit without it.
        Err(problem) => println!("cargo::warning=the search worker godwit-blast was not built: {problem}"),
    }
}

/// Returns the toolkit: `include/` and `lib/` below `GODWIT_NCBI_PREFIX`, or in the cache of `tools/fetch-ncbi.sh`.
fn find_toolkit_prefix() -> Option<PathBuf> {
    let cache = || {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
        Some(cache.join(format!("godwit/ncbi-{RUNTIME_VERSION}")).join(TOOLKIT_PATH))
    };
    let named = std::env::var_os("GODWIT_NCBI_PREFIX").map(PathBuf::from);
    let prefix = named.or_else(cache)?;
    println!("cargo::rerun-if-changed={}", prefix.join("include/ncbi_pch.hpp").display());
    (prefix.join("include/ncbi_pch.hpp").is_file() && prefix.join("lib/libxblast.so").is_file()).then_some(prefix)
}

fn build_worker(prefix: &Path) -> Result<(), String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").ok_or("CARGO_MANIFEST_DIR is not set")?);
    let compiler = cc::Build::new().cpp(true).cargo_metadata(false).opt_level(2).get_compiler();
    let worker = out.join("godwit-blast");
    let lib = prefix.join("lib");
    let mut command = Command::new(compiler.path());
    // Suppress warnings in NCBI's headers, which are not part of godwit.
    command.args(["-std=gnu++20", "-O1", "-DNDEBUG", "-D_REENTRANT", "-isystem"]).arg(prefix.join("include"));
    command.arg(manifest.join("worker/amalgamation.cpp")).arg("-o").arg(&worker);
    command.arg("-rdynamic").arg("-L").arg(&lib);
    for option in ["-rpath", "-rpath-link"] {
        command.arg(format!("-Wl,{option},{}", lib.display()));
    }
    command.args(LIBRARIES.map(|library| format!("-l{library}"))).args(["-ldl", "-lpthread"]);
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first =
            said.lines().find(|line| line.contains("error") || line.contains("undefined")).unwrap_or("no reason given");
        return Err(format!("{}: {first}", compiler.path().display()));
    }
    // Copy godwit-blast to target/PROFILE, where godwit looks for it. OUT_DIR is target/PROFILE/build/CRATE/out.
    let target_path =
        out.ancestors().nth(3).ok_or("the output directory is not where cargo puts it")?.join("godwit-blast");
    let temporary_path = target_path.with_extension("new");
    std::fs::copy(&worker, &temporary_path)
        .and_then(|_| std::fs::rename(&temporary_path, &target_path))
        .map_err(|error| error.to_string())
}
