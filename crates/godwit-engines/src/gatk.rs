//! An installed GATK: finds its jar and starts its tools as Java processes.
//!
//! godwit starts Java directly instead of the script `gatk`. The script is a Python program that starts Java as a child
//! process, and that process would survive if godwit killed the script.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program_lookup::find_program;
use crate::{EngineError, PipelineCommand, ProcessPipeline, is_version_at_least};

/// Name of the GATK script on PATH.
pub const PROGRAM: &str = "gatk";
/// Name of the environment variable that contains the path of GATK: the script `gatk`, its jar, or a directory of jars.
pub const PROGRAM_VARIABLE: &str = "GODWIT_GATK";
/// Instructions for installing GATK.
pub const REMEDY: &str =
    "install GATK 4.1 or later and Java 17 (bioconda: gatk4), or name its jar, or a directory of jars, in GODWIT_GATK";
/// Instructions for installing Java.
const JAVA_REMEDY: &str = "install Java 17 (Debian and Ubuntu: apt-get install default-jre-headless), or set JAVA_HOME";
/// The oldest supported version, as major and minor version. Earlier versions lack options that godwit uses.
const MIN_VERSION: [u32; 2] = [4, 1];
const MAIN_CLASS: &str = "org.broadinstitute.hellbender.Main";
/// Default memory limit of one GATK process, bytes.
pub const DEFAULT_MEMORY_BYTES: u64 = 4 << 30;
/// Memory that a Java process needs besides its heap, bytes.
const JVM_OVERHEAD_BYTES: u64 = 512 << 20;

/// An installed GATK and the Java that runs it.
#[derive(Clone, Debug)]
pub struct GatkToolkit {
    java: PathBuf,
    /// Class path of GATK: the path of a jar, or `DIRECTORY/*` for all jars in a directory.
    class_path: PathBuf,
    version: String,
}

impl GatkToolkit {
    /// Finds the jar of GATK, and Java.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`] if GATK or Java is missing, [`EngineError::VersionMismatch`] if GATK is too old.
    pub fn find_installed() -> Result<Self, EngineError> {
        let (class_path, version) = find_class_path()?;
        Ok(Self { java: find_java()?, class_path, version })
    }

    /// Returns the version of GATK.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the start of a command line for the GATK tool `tool`. `memory_bytes`: memory limit of the process;
    /// `temp`: directory for its temporary files.
    pub(crate) fn tool_command(&self, tool: &str, memory_bytes: u64, temp: &Path) -> Command {
        let mut command = Command::new(&self.java);
        let heap_bytes = memory_bytes.saturating_sub(JVM_OVERHEAD_BYTES).max(JVM_OVERHEAD_BYTES);
        command.arg(format!("-Xmx{}m", heap_bytes >> 20));
        // Use the garbage collector without threads of its own. The threads of other collectors would exceed the number
        // of threads that the user set.
        command.args(["-XX:+UseSerialGC", "-Dsamjdk.use_async_io_read_samtools=false"]);
        command.args(["-Dsamjdk.use_async_io_write_samtools=false", "-cp"]).arg(&self.class_path).arg(MAIN_CLASS);
        command.args([tool, "--verbosity", "WARNING", "--tmp-dir"]).arg(temp);
        command
    }

    /// Starts a GATK tool with a command line from [`tool_command`](Self::tool_command).
    ///
    /// # Errors
    /// [`EngineError::Io`] if Java does not start.
    pub(crate) fn start_tool(&self, command: Command) -> Result<ProcessPipeline, EngineError> {
        let link = PipelineCommand { program: self.java.clone(), version: format!("GATK {}", self.version), command };
        ProcessPipeline::start(vec![link], Stdio::null())
    }
}

/// Returns the class path of GATK, and the version of GATK.
///
/// # Errors
/// [`EngineError::NotInstalled`] if there is no jar of GATK, [`EngineError::VersionMismatch`] if GATK is too old.
fn find_class_path() -> Result<(PathBuf, String), EngineError> {
    let named = std::env::var_os(PROGRAM_VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
    let place = match named {
        Some(place) => place,
        None => find_program(PROGRAM, REMEDY)?,
    };
    let missing = || EngineError::NotInstalled {
        program: format!("GATK (looked for its jar at {})", place.display()),
        remedy: REMEDY.to_owned(),
    };
    // The jar is in the directory of the script. The file on PATH may be a symbolic link to the script, so resolve it
    // first.
    let real = place.canonicalize().map_err(|_| missing())?;
    let (class_path, jar) = if real.is_dir() {
        (real.join("*"), newest_jar(&real, |name| jar_version(name).is_some()).ok_or_else(missing)?)
    } else if real.extension().is_some_and(|extension| extension == "jar") {
        (real.clone(), real)
    } else {
        let directory = real.parent().unwrap_or(Path::new("."));
        let local = |name: &str| name.ends_with("-local.jar") && jar_version(name).is_some();
        let jar = newest_jar(directory, local).ok_or_else(missing)?;
        (jar.clone(), jar)
    };
    let name = jar.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let version = jar_version(&name).unwrap_or_default();
    if !is_version_at_least(&version, MIN_VERSION) {
        let expected = format!("{}.{} or later, in a jar named after its version", MIN_VERSION[0], MIN_VERSION[1]);
        return Err(EngineError::VersionMismatch { program: jar, component: "GATK", expected, found: name });
    }
    Ok((class_path, version))
}

fn newest_jar(directory: &Path, fits: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let names = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).filter(|name| fits(name)).collect();
    names.sort();
    names.pop().map(|name| directory.join(name))
}

/// Returns the version in the file name of a jar, which is 4.6.2.0 for `gatk-package-4.6.2.0-local.jar` and
/// `gatk-4.6.2.0.jar`.
fn jar_version(name: &str) -> Option<String> {
    let rest = name.strip_suffix(".jar")?.strip_prefix("gatk-")?;
    let rest = rest.strip_prefix("package-").unwrap_or(rest);
    let version = rest.strip_suffix("-local").unwrap_or(rest);
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

fn find_java() -> Result<PathBuf, EngineError> {
    let home = std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty());
    let of_home = home.map(|home| Path::new(&home).join("bin/java")).filter(|java| java.is_file());
    of_home.map_or_else(|| find_program("java", JAVA_REMEDY), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_off_jars() {
        assert_eq!(jar_version("gatk-package-4.6.2.0-local.jar").as_deref(), Some("4.6.2.0"));
        assert_eq!(jar_version("gatk-4.6.2.0.jar").as_deref(), Some("4.6.2.0"));
        assert_eq!(jar_version("gatk-native-bindings-1.0.0.jar"), None);
        assert_eq!(jar_version("picard-3.4.0.jar"), None);
    }
}
