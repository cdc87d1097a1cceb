//! GATK 4.6.2.0, as a variant caller of godwit and as the program with which results are compared.
//! `tools/gatk/fetch.sh` downloads its jars to the cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::tool::{Tool, run_checked};

/// Skips the calling test when GATK is not installed.
#[macro_export]
macro_rules! needs_gatk {
    () => {
        if let Some(reason) = $crate::gatk::missing_requirement() {
            $crate::skip!("missing-tool", "{reason}");
        }
    };
}

/// Returns the missing requirement of GATK on this machine; `None` if GATK can run.
pub fn missing_requirement() -> Option<String> {
    match Tool::find("java") {
        None => Some("java is not on PATH".to_owned()),
        Some(_) => fetch_jars().err(),
    }
}

/// Returns the directory with the jars, which a test has already required with [`crate::needs_gatk!`].
///
/// # Panics
/// When they do not exist.
pub fn jar_directory() -> PathBuf {
    fetch_jars().unwrap_or_else(|reason| panic!("no GATK: {reason}"))
}

fn fetch_jars() -> Result<PathBuf, String> {
    static JARS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    JARS.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/gatk/fetch.sh");
        let output = Command::new(&script).output().map_err(|error| format!("{}: {error}", script.display()))?;
        match output.status.success() {
            true => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    })
    .clone()
}

/// Runs HaplotypeCaller once over the whole genome.
///
/// # Panics
/// When it fails.
pub fn haplotype_caller(reference: &Path, bam: &Path, out: &Path, words: &[&str]) {
    let mut command = gatk_command("HaplotypeCaller");
    run_checked(command.arg("-R").arg(reference).arg("-I").arg(bam).arg("-O").arg(out).args(words));
}

/// Returns a command line that starts with a tool of GATK.
pub fn gatk_command(name: &str) -> Command {
    let mut command = Tool::require("java").command();
    command.args(["-Xmx1500m", "-XX:+UseSerialGC", "-cp"]).arg(jar_directory().join("*"));
    command.args(["org.broadinstitute.hellbender.Main", name, "--verbosity", "ERROR"]);
    command
}
