//! GATK 4.6.2.0, as a variant caller of godwit and as the program with which results are compared.
//! `tools/gatk/fetch.sh` downloads its jars to the cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::binary::GodwitCommand;
use crate::scratch;
use crate::tool::{Tool, run_checked};

const MAIN_CLASS: &str = "org.broadinstitute.hellbender.Main";
/// The variable with further options of every Java program.
const JAVA_OPTIONS_VARIABLE: &str = "JAVA_TOOL_OPTIONS";

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

impl GodwitCommand {
    /// Lets godwit find GATK, which a test has already required with [`crate::needs_gatk!`].
    ///
    /// # Panics
    /// When GATK is not installed.
    pub fn with_gatk(self) -> Self {
        self.env("GODWIT_GATK", jar_directory()).env(JAVA_OPTIONS_VARIABLE, java_options())
    }
}

/// Returns the options of Java programs with an archive of the classes of GATK, with which a start takes two thirds of the CPU
/// time. The archive is created once for each target directory and version of Java.
fn java_options() -> String {
    static OPTIONS: OnceLock<String> = OnceLock::new();
    let create = || {
        let java = Tool::require("java");
        let version = String::from_utf8_lossy(&java.run(["-version"]).stderr).into_owned();
        let version: String = version.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
        let archive = scratch::profile_directory().join(format!("gatk-classes-{version}.jsa"));
        if !archive.exists() {
            let new = scratch::directory("gatk-classes").join("classes.jsa");
            let mut command = java.command();
            command.arg(format!("-XX:ArchiveClassesAtExit={}", new.display())).args(["-XX:+UseSerialGC", "-cp"]);
            command.arg(jar_directory().join("*")).args([MAIN_CLASS, "HaplotypeCaller", "--help"]);
            command.output().expect("Java can be started");
            std::fs::rename(&new, &archive).expect("Java has written the archive");
        }
        let options = std::env::var(JAVA_OPTIONS_VARIABLE).unwrap_or_default();
        format!("{options} -XX:SharedArchiveFile={}", archive.display())
    };
    OPTIONS.get_or_init(create).clone()
}

/// Returns the directory with the jars.
fn jar_directory() -> PathBuf {
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
    command.args([MAIN_CLASS, name, "--verbosity", "ERROR"]).env(JAVA_OPTIONS_VARIABLE, java_options());
    command
}
