//! GATK 4.6.2.0 as a caller and as the judge of its own pieces. `tools/gatk/fetch.sh` puts its jars into the cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::tool::{Tool, succeed};

/// Skips the calling test when GATK is not there.
#[macro_export]
macro_rules! needs_gatk {
    () => {
        if let Some(reason) = $crate::gatk::missing() {
            $crate::skip!("missing-tool", "{reason}");
        }
    };
}

/// Why GATK cannot run here, if it cannot.
pub fn missing() -> Option<String> {
    match Tool::find("java") {
        None => Some("java is not on PATH".to_owned()),
        Some(_) => fetched().err(),
    }
}

/// The directory with the jars, which a test has already asked for with [`crate::needs_gatk!`].
///
/// # Panics
/// When they are not there.
pub fn jars() -> PathBuf {
    fetched().unwrap_or_else(|reason| panic!("no GATK: {reason}"))
}

fn fetched() -> Result<PathBuf, String> {
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

/// Runs HaplotypeCaller once over everything.
///
/// # Panics
/// When it fails.
pub fn haplotype_caller(reference: &Path, bam: &Path, out: &Path, words: &[&str]) {
    let mut command = tool("HaplotypeCaller");
    succeed(command.arg("-R").arg(reference).arg("-I").arg(bam).arg("-O").arg(out).args(words));
}

/// A command line that starts with a tool of GATK.
pub fn tool(name: &str) -> Command {
    let mut command = Tool::need("java").command();
    command.args(["-Xmx1500m", "-XX:+UseSerialGC", "-cp"]).arg(jars().join("*"));
    command.args(["org.broadinstitute.hellbender.Main", name, "--verbosity", "ERROR"]);
    command
}
