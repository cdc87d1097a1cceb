//! Finds bwa's library, reads its version from the package manager, compiles the shim and links both.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for variable in ["LIBBWA_PREFIX", "LIBBWA_VERSION"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    for file in ["shim/shim.c", "shim/shim.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let Some(prefix) = prefix() else {
        println!(
            "cargo::error=bwa's library is missing (include/bwa/bwamem.h and lib/libbwa.a below /usr, /usr/local or \
             LIBBWA_PREFIX): install the Debian package libbwa-dev"
        );
        return;
    };
    let Some(version) = version() else {
        println!(
            "cargo::error=cannot determine the version of bwa's library: it is not from the Debian package libbwa-dev; \
             set LIBBWA_VERSION to it (0.7.17 is the one that works)"
        );
        return;
    };
    println!("cargo::rerun-if-changed={}", prefix.join("lib/libbwa.a").display());
    println!("cargo::rustc-env=GODWIT_LIBBWA_VERSION={version}");
    // Suppress warnings in bwa's headers, which are not part of godwit.
    cc::Build::new()
        .file("shim/shim.c")
        .flag("-isystem")
        .flag(prefix.join("include").display().to_string())
        .warnings(true)
        .compile("godwit_bwa_shim");
    println!("cargo::rustc-link-search=native={}", prefix.join("lib").display());
    println!("cargo::rustc-link-lib=static=bwa");
    for library in ["z", "m", "pthread"] {
        println!("cargo::rustc-link-lib={library}");
    }
}

fn prefix() -> Option<PathBuf> {
    let candidates = match std::env::var_os("LIBBWA_PREFIX") {
        Some(prefix) => vec![PathBuf::from(prefix)],
        None => vec![PathBuf::from("/usr"), PathBuf::from("/usr/local")],
    };
    let complete =
        |prefix: &Path| prefix.join("include/bwa/bwamem.h").is_file() && prefix.join("lib/libbwa.a").is_file();
    candidates.into_iter().find(|prefix| complete(prefix))
}

/// Returns the upstream version: `0.7.17` for the Debian version `0.7.17-7+b2`.
fn version() -> Option<String> {
    if let Ok(version) = std::env::var("LIBBWA_VERSION") {
        return Some(version);
    }
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "libbwa-dev"]).output().ok()?;
    let version = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let upstream = version.rsplit_once('-').map_or(version.as_str(), |(upstream, _)| upstream);
    let upstream = upstream.split_once(':').map_or(upstream, |(_, upstream)| upstream);
    (!upstream.is_empty()).then(|| upstream.to_owned())
}
