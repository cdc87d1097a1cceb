//! GATK as a toolkit: found once, its tools started as processes of Java.
//!
//! Java is started directly, not by the script `gatk`: the script is Python and starts Java itself, which would outlive it
//! when it is killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::aligner::foreign::find_program;
use crate::caller::Habits;
use crate::{Chain, EngineError, Link, is_at_least};

/// Name of the program.
pub const PROGRAM: &str = "gatk";
/// Environment variable that names it: the script `gatk`, its jar, or a directory of jars.
pub const PROGRAM_VARIABLE: &str = "GODWIT_GATK";
/// How to install it.
pub const REMEDY: &str =
    "install GATK 4.1 or later and Java 17 (bioconda: gatk4), or name its jar, or a directory of jars, in GODWIT_GATK";
/// How to install what it runs on.
const JAVA_REMEDY: &str = "install Java 17 (Debian and Ubuntu: apt-get install default-jre-headless), or set JAVA_HOME";
/// Since then the option names used here hold.
const OLDEST: [u32; 2] = [4, 1];
const MAIN_CLASS: &str = "org.broadinstitute.hellbender.Main";
/// Memory of one process, bytes, where nothing else is said.
pub const MEMORY_BYTES: u64 = 4 << 30;
/// What Java needs beside its heap.
const OVERHEAD_BYTES: u64 = 512 << 20;

/// GATK and the Java that runs it.
#[derive(Clone, Debug)]
pub struct Toolkit {
    java: PathBuf,
    /// A jar, or all jars of a directory.
    class_path: PathBuf,
    version: String,
}

impl Toolkit {
    /// What calling by region has to know of any of its callers.
    pub(crate) const HABITS: Habits = Habits { memory_bytes: MEMORY_BYTES, needs_dictionary: true, ..Habits::USUAL };

    /// Finds GATK and Java.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`].
    pub fn find() -> Result<Self, EngineError> {
        let (class_path, version) = installed()?;
        Ok(Self { java: java()?, class_path, version })
    }

    /// Version of GATK.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The start of a command line of a tool that may take `memory_bytes` and writes its scratch files below `temp`.
    pub fn command(&self, tool: &str, memory_bytes: u64, temp: &Path) -> Command {
        let mut command = Command::new(&self.java);
        let heap_bytes = memory_bytes.saturating_sub(OVERHEAD_BYTES).max(OVERHEAD_BYTES);
        command.arg(format!("-Xmx{}m", heap_bytes >> 20));
        // The threads of other collectors would come on top of those asked for.
        command.args(["-XX:+UseSerialGC", "-Dsamjdk.use_async_io_read_samtools=false"]);
        command.args(["-Dsamjdk.use_async_io_write_samtools=false", "-cp"]).arg(&self.class_path).arg(MAIN_CLASS);
        command.args([tool, "--verbosity", "WARNING", "--tmp-dir"]).arg(temp);
        command
    }

    /// Starts a tool.
    ///
    /// # Errors
    /// [`EngineError::Io`].
    pub fn start(&self, command: Command) -> Result<Chain, EngineError> {
        let link = Link { program: self.java.clone(), version: format!("GATK {}", self.version), command };
        Chain::start(vec![link], Stdio::null())
    }
}

/// The class path of GATK and its version.
///
/// # Errors
/// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`].
fn installed() -> Result<(PathBuf, String), EngineError> {
    let named = std::env::var_os(PROGRAM_VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
    let place = match named {
        Some(place) => place,
        None => find_program(PROGRAM, REMEDY)?,
    };
    let missing = || EngineError::NotInstalled {
        program: format!("GATK (looked for its jar at {})", place.display()),
        remedy: REMEDY.to_owned(),
    };
    // The script lies beside its jar; what is on PATH may be a link to it.
    let real = place.canonicalize().map_err(|_| missing())?;
    let (class_path, jar) = if real.is_dir() {
        (real.join("*"), jar_in(&real, |name| version_of_jar(name).is_some()).ok_or_else(missing)?)
    } else if real.extension().is_some_and(|extension| extension == "jar") {
        (real.clone(), real)
    } else {
        let directory = real.parent().unwrap_or(Path::new("."));
        let local = |name: &str| name.ends_with("-local.jar") && version_of_jar(name).is_some();
        let jar = jar_in(directory, local).ok_or_else(missing)?;
        (jar.clone(), jar)
    };
    let name = jar.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let version = version_of_jar(&name).unwrap_or_default();
    if !is_at_least(&version, OLDEST) {
        let expected = format!("{}.{} or later, in a jar named after its version", OLDEST[0], OLDEST[1]);
        return Err(EngineError::VersionMismatch { program: jar, component: "GATK", expected, found: name });
    }
    Ok((class_path, version))
}

fn jar_in(directory: &Path, fits: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let names = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).filter(|name| fits(name)).collect();
    names.sort();
    names.pop().map(|name| directory.join(name))
}

/// `gatk-package-4.6.2.0-local.jar` and `gatk-4.6.2.0.jar` are of 4.6.2.0.
fn version_of_jar(name: &str) -> Option<String> {
    let rest = name.strip_suffix(".jar")?.strip_prefix("gatk-")?;
    let rest = rest.strip_prefix("package-").unwrap_or(rest);
    let version = rest.strip_suffix("-local").unwrap_or(rest);
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

fn java() -> Result<PathBuf, EngineError> {
    let home = std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty());
    let of_home = home.map(|home| Path::new(&home).join("bin/java")).filter(|java| java.is_file());
    of_home.map_or_else(|| find_program("java", JAVA_REMEDY), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_off_jars() {
        assert_eq!(version_of_jar("gatk-package-4.6.2.0-local.jar").as_deref(), Some("4.6.2.0"));
        assert_eq!(version_of_jar("gatk-4.6.2.0.jar").as_deref(), Some("4.6.2.0"));
        assert_eq!(version_of_jar("gatk-native-bindings-1.0.0.jar"), None);
        assert_eq!(version_of_jar("picard-3.4.0.jar"), None);
    }
}
