//! Embeds igv.js if `tools/fetch-igv.sh` has downloaded it. If not, the page has no genome browser.

use std::path::PathBuf;

/// Version of the npm package `igv`; `tools/fetch-igv.sh` has the same.
const IGV_VERSION: &str = "3.8.10";

fn main() -> std::io::Result<()> {
    for variable in ["XDG_CACHE_HOME", "HOME"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).unwrap_or_default();
    let fetched = cache.join(format!("godwit/igv-{IGV_VERSION}/igv.min.js"));
    println!("cargo::rerun-if-changed={}", fetched.display());
    let script = if fetched.is_file() { std::fs::read(&fetched)? } else { Vec::new() };
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    std::fs::write(out.join("igv.js"), script)
}
