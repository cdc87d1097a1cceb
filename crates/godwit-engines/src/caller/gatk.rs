//! GATK HaplotypeCaller: VCF, or GVCF with `-ERC GVCF`.
//!
//! Java is started directly, not by the script `gatk`: the script is Python and starts Java itself, which would outlive it
//! when it is killed. Where active regions begin depends on where it starts, so some numbers of records depend on the
//! grid; sites and genotypes do not, given some bases on either side. A GVCF has a record for every stretch,
//! which ends where the region does, so nothing is shown beyond it then, as those who scatter GATK do.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::region::Told;
use super::{Caller, Habits, RegionWork, is_at_least, words};
use crate::aligner::foreign::find_program;
use crate::{Chain, EngineError, Link};

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
/// What Java needs beside its heap.
const OVERHEAD_BYTES: u64 = 512 << 20;

const SET_HERE: &str = "it is set by godwit call";
const REFUSED: [(&str, &str); 22] = [
    ("-I", SET_HERE),
    ("--input", SET_HERE),
    ("-O", SET_HERE),
    ("--output", SET_HERE),
    ("-R", SET_HERE),
    ("--reference", SET_HERE),
    ("-bamout", "it would be written by every region"),
    ("--bam-output", "it would be written by every region"),
    ("-L", "use --regions"),
    ("--intervals", "use --regions"),
    ("-XL", "use --regions"),
    ("--exclude-intervals", "use --regions"),
    ("-ip", "use --padding"),
    ("--interval-padding", "use --padding"),
    ("-ixp", "use --padding"),
    ("--interval-exclusion-padding", "use --padding"),
    ("-ploidy", "use --ploidy"),
    ("--sample-ploidy", "use --ploidy"),
    ("--native-pair-hmm-threads", "use --caller-threads"),
    ("--tmp-dir", "use --temp"),
    ("--create-output-variant-index", SET_HERE),
    ("--java-options", "use --caller-memory for its heap"),
];

/// GATK, found, with its options.
#[derive(Clone, Debug)]
pub struct Gatk {
    java: PathBuf,
    /// A jar, or all jars of a directory.
    class_path: PathBuf,
    version: String,
    arguments: Vec<String>,
    blocks: bool,
}

impl Gatk {
    /// Finds GATK and Java and reads options of HaplotypeCaller.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
    pub fn find(arguments: &str) -> Result<Self, EngineError> {
        let arguments = words("HaplotypeCaller", arguments, &[&REFUSED])?;
        let blocks = arguments.iter().any(|word| {
            let value = word.rsplit('=').next().unwrap_or(word);
            matches!(value, "GVCF" | "BP_RESOLUTION")
        });
        let (class_path, version) = installed()?;
        let java = java()?;
        Ok(Self { java, class_path, version, arguments, blocks })
    }
}

/// The class path of GATK and its version.
///
/// # Errors
/// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`].
pub fn installed() -> Result<(PathBuf, String), EngineError> {
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

impl Caller for Gatk {
    fn name(&self) -> &str {
        PROGRAM
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn command_line(&self) -> String {
        [&["gatk".to_owned(), "HaplotypeCaller".to_owned()], &self.arguments[..]].concat().join(" ")
    }

    fn habits(&self) -> Habits {
        Habits {
            padding_bases: if self.blocks { 0 } else { 1000 },
            memory_bytes: 4 << 30,
            depends_on_grid: true,
            blocks: self.blocks,
            needs_dictionary: true,
        }
    }

    fn start(&self, work: &RegionWork) -> Result<Chain, EngineError> {
        let mut command = Command::new(&self.java);
        let heap_bytes = work.memory_bytes.saturating_sub(OVERHEAD_BYTES).max(OVERHEAD_BYTES);
        command.arg(format!("-Xmx{}m", heap_bytes >> 20));
        // The threads of other collectors would come on top of those asked for.
        command.args(["-XX:+UseSerialGC", "-Dsamjdk.use_async_io_read_samtools=false"]);
        command.args(["-Dsamjdk.use_async_io_write_samtools=false", "-cp"]).arg(&self.class_path).arg(MAIN_CLASS);
        command.arg("HaplotypeCaller").arg("-R").arg(work.reference).arg("-I").arg(work.reads);
        match work.told()? {
            Told::Words(stretch) => command.args(["-L", &stretch.text()]),
            Told::Bed(path) => command.arg("-L").arg(path),
        };
        if let Some(ploidy) = work.ploidy {
            command.args(["--sample-ploidy", &ploidy.to_string()]);
        }
        command.args(["--native-pair-hmm-threads", &work.threads.to_string(), "--verbosity", "WARNING"]);
        command.args(["--create-output-variant-index", "false", "--tmp-dir"]).arg(work.directory);
        command.args(&self.arguments).arg("-O").arg(work.output);
        let link = Link { program: self.java.clone(), version: format!("GATK {}", self.version), command };
        Chain::start(vec![link], Stdio::null())
    }
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
