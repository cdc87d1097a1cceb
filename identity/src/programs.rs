//! The programs that are compared: `bwa mem` and `samtools sort` as the oracle, and `godwit align`.
//!
//! In: a reference with indexes, FASTQ files, and options. Out: BAM files in the same order. `samtools sort` keeps the
//! order of bwa's output among records of equal contig, position and strand, which is godwit's order too.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::comparison::LineSource;
use crate::error::{Error, Result};

/// The read group of all rounds, in the form that both programs take.
const READ_GROUP: &str = "@RG\\tID:1\\tSM:sample\\tLB:library\\tPL:ILLUMINA";
/// The environment variable with the best instruction set that godwit's bwa-mem3 may use.
const INSTRUCTIONS_VARIABLE: &str = "GODWIT_BWA_MEM3_INSTRUCTIONS";
/// The version of bwa that is the oracle.
const ORACLE_VERSION: &str = "0.7.17";
/// The signals of a broken pipe and of the kernel when memory is short (signal(7)).
const SIGPIPE: i32 = 13;
const SIGKILL: i32 = 9;
/// The number of lines of standard error in an error message.
const STDERR_LINES: usize = 20;

/// Verifies that `bwa` is 0.7.17, whose records godwit reproduces; 0.7.19 adds a tag to every record.
///
/// # Errors
/// [`Error::Start`] when bwa is not installed; [`Error::OracleVersion`] when it has another version.
pub fn check_oracle() -> Result<()> {
    let output = Command::new("bwa").stdin(Stdio::null()).output();
    let output = output.map_err(|source| Error::Start { program: "bwa".to_owned(), source })?;
    let text = String::from_utf8_lossy(&output.stderr);
    let found = text.lines().find_map(|line| line.strip_prefix("Version: ")).unwrap_or("unknown");
    if found.starts_with(ORACLE_VERSION) {
        return Ok(());
    }
    Err(Error::OracleVersion { found: found.to_owned(), expected: ORACLE_VERSION })
}

/// A configuration in which godwit is compared: aligner, instruction set, and number of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// godwit's name of the aligner: `bwa` or `bwa-mem3`.
    pub aligner: String,
    /// The best instruction set that bwa-mem3 may use: `avx2` or `avx512bw`.
    pub instructions: Option<String>,
    /// The number of workers of a cluster run on this machine; `None` for one process.
    pub workers: Option<usize>,
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.aligner)?;
        if let Some(instructions) = &self.instructions {
            write!(formatter, " {instructions}")?;
        }
        match self.workers {
            Some(1) => write!(formatter, " on 1 worker"),
            Some(workers) => write!(formatter, " on {workers} workers"),
            None => Ok(()),
        }
    }
}

/// Returns the instruction sets of this processor for which bwa-mem3 has kernels. It rejects processors and limits below
/// AVX2.
pub fn processor_instructions() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let supported =
            [("avx2", is_x86_feature_detected!("avx2")), ("avx512bw", is_x86_feature_detected!("avx512bw"))];
        supported.into_iter().filter_map(|(name, is_supported)| is_supported.then_some(name)).collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

/// The reads and the options of an alignment.
#[derive(Clone, Debug)]
pub struct AlignTask {
    /// The FASTA file, with indexes beside it.
    pub reference: PathBuf,
    /// One FASTQ file, or two files with the mates.
    pub reads: Vec<PathBuf>,
    /// bwa's `-K`, in bases.
    pub block_bases: u64,
    /// Arguments of `bwa mem`.
    pub option_words: Vec<String>,
}

/// The programs and the number of threads that they may use.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The built `godwit`; its aligners are beside it.
    pub godwit: PathBuf,
    /// The number of threads of each program.
    pub threads: usize,
}

impl Programs {
    /// Creates the index of each aligner beside the reference, if it does not exist.
    ///
    /// # Errors
    /// [`Error::Start`] and [`Error::Program`].
    pub fn index(&self, reference: &Path, aligners: &[String]) -> Result<()> {
        for aligner in aligners {
            let mut command = self.godwit();
            command.arg("index").arg(reference).args(["--aligner", aligner]);
            run(command, &reference.with_extension("index.stderr"), None)?;
        }
        Ok(())
    }

    /// Returns the output of `godwit --version`, and a hash of godwit and its aligners, which distinguishes builds of one
    /// version.
    ///
    /// # Errors
    /// [`Error::Start`] when godwit cannot be started; [`Error::File`] when a program cannot be read.
    pub fn version(&self) -> Result<String> {
        let program = self.godwit.display().to_string();
        let output = self.godwit().arg("--version").output().map_err(|source| Error::Start { program, source })?;
        let mut hasher = DefaultHasher::new();
        for name in ["godwit", "godwit-bwa", "godwit-bwa-mem3"] {
            let path = self.godwit.with_file_name(name);
            if path.exists() {
                hasher.write(&fs::read(&path).map_err(Error::file("read", &path))?);
            }
        }
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(format!("{version} (build {:08x})", hasher.finish() >> 32))
    }

    /// Returns the command line of `bwa mem`.
    pub fn bwa_command(&self, task: &AlignTask) -> Command {
        let mut command = Command::new("bwa");
        command.args(["mem", "-t", &self.threads.to_string(), "-K", &task.block_bases.to_string(), "-R", READ_GROUP]);
        command.args(&task.option_words).arg(&task.reference).args(&task.reads);
        command
    }

    /// Returns the command line of `godwit align` into directory `out`.
    pub fn godwit_command(&self, task: &AlignTask, engine: &Engine, out: &Path) -> Command {
        let mut command = self.godwit();
        command.arg("align").arg("--reference").arg(&task.reference).arg("--reads").args(&task.reads);
        command.args(["--read-group", READ_GROUP, "--sample", "sample", "--duplicates", "none", "--metrics", "off"]);
        command.args(["--block-bases", &task.block_bases.to_string(), "--aligner", &engine.aligner]);
        command.arg("--out").arg(out).arg("--quiet");
        if !task.option_words.is_empty() {
            command.arg(format!("--aligner-args={}", task.option_words.join(" ")));
        }
        let threads = (self.threads / engine.workers.unwrap_or(1)).max(1);
        command.args(["--threads", &threads.to_string()]);
        if let Some(workers) = engine.workers {
            command.args(["--on", "local", "--nodes", &workers.to_string()]);
        }
        if let Some(instructions) = &engine.instructions {
            command.env(INSTRUCTIONS_VARIABLE, instructions);
        }
        command
    }

    fn godwit(&self) -> Command {
        let mut command = Command::new(&self.godwit);
        // Hide the configuration files of the user, which could change the result.
        command.env("XDG_CONFIG_HOME", "/nonexistent").env_remove(INSTRUCTIONS_VARIABLE);
        command
    }

    /// Aligns with `bwa mem` and writes the sorted records to `output`.
    ///
    /// # Errors
    /// [`Error::Start`]; [`Error::Program`] when bwa fails; [`Error::Oracle`] when the machine stops it or sorting fails.
    pub fn run_bwa(&self, task: &AlignTask, output: &Path) -> Result<()> {
        let (bwa_stderr, sort_stderr) = (oracle_stderr(output), output.with_extension("sort.stderr"));
        let mut bwa = self.bwa_command(task);
        bwa.stdout(Stdio::piped());
        let mut aligner = start(&mut bwa, &bwa_stderr)?;
        let mut sort = Command::new("samtools");
        sort.args(["sort", "--no-PG", "-l", "1", "-m", "512M", "-T"]).arg(output.with_extension("part"));
        sort.arg("-o").arg(output).arg("-");
        if let Some(records) = aligner.stdout.take() {
            sort.stdin(records);
        }
        let mut sorter = start_with_input(&mut sort, &sort_stderr)?;
        // Drop the command, which holds a copy of the pipe: bwa receives SIGPIPE after a failure of samtools only if
        // all copies are closed.
        drop(sort);
        let (bwa_status, sort_status) = (wait(&mut aligner, &bwa)?, wait(&mut sorter, &Command::new("samtools"))?);
        let ended_from_outside = matches!(bwa_status.signal(), Some(SIGPIPE | SIGKILL));
        if ended_from_outside || (bwa_status.success() && !sort_status.success()) {
            let stderr = last_lines(&sort_stderr);
            return Err(Error::Oracle { bwa: bwa_status.to_string(), sort: sort_status.to_string(), stderr });
        }
        check(bwa_status, &bwa, &bwa_stderr)
    }

    /// Aligns with godwit into the new directory `out`. Returns the path of the BAM file.
    ///
    /// # Errors
    /// [`Error::Start`], and [`Error::Program`] when godwit fails or does not end within `limit`.
    pub fn run_godwit(&self, task: &AlignTask, engine: &Engine, out: &Path, limit: Duration) -> Result<PathBuf> {
        run(self.godwit_command(task, engine, out), &out.with_extension("stderr"), Some(limit))?;
        Ok(out.join("sample.bam"))
    }
}

/// Returns the path of bwa's standard error beside the file that [`Programs::run_bwa`] writes.
pub fn oracle_stderr(output: &Path) -> PathBuf {
    output.with_extension("bwa.stderr")
}

/// Formats the command line for a shell, with the variables that were set for it.
pub fn shell_line(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let variables = variables.map(|(name, value)| format!("{}={}", name.to_string_lossy(), quoted(value)));
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted);
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn start(command: &mut Command, stderr: &Path) -> Result<Child> {
    start_with_input(command.stdin(Stdio::null()), stderr)
}

fn start_with_input(command: &mut Command, stderr: &Path) -> Result<Child> {
    command.stderr(File::create(stderr).map_err(Error::file("create", stderr))?);
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|source| Error::Start { program, source })
}

fn wait(child: &mut Child, command: &Command) -> Result<ExitStatus> {
    let program = command.get_program().to_string_lossy().into_owned();
    child.wait().map_err(|source| Error::Start { program, source })
}

/// Runs a program until it exits, and kills it after `limit`.
fn run(mut command: Command, stderr: &Path, limit: Option<Duration>) -> Result<()> {
    command.stdout(Stdio::null());
    let started = Instant::now();
    let mut child = start(&mut command, stderr)?;
    let Some(limit) = limit else {
        let status = wait(&mut child, &command)?;
        return check(status, &command, stderr);
    };
    loop {
        let program = || command.get_program().to_string_lossy().into_owned();
        let status = child.try_wait().map_err(|source| Error::Start { program: program(), source })?;
        if let Some(status) = status {
            return check(status, &command, stderr);
        }
        if started.elapsed() > limit {
            // Ignore the error: the child may have exited already. Waiting for it is necessary in any case.
            drop(child.kill());
            wait(&mut child, &command)?;
            let status = format!("a kill, after it had not ended within {} s", limit.as_secs());
            return Err(Error::Program { command: shell_line(&command), status, stderr: last_lines(stderr) });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn check(status: ExitStatus, command: &Command, stderr: &Path) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let (command, status) = (shell_line(command), status.to_string());
    Err(Error::Program { command, status, stderr: last_lines(stderr) })
}

fn last_lines(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(STDERR_LINES)..].join("\n")
}

/// Returns the `@SQ` lines of a BAM file.
///
/// # Errors
/// [`Error::Start`] and [`Error::Program`].
pub fn sequence_lines(bam: &Path) -> Result<Vec<String>> {
    let mut lines = SamReader::open(bam, &["-H"])?;
    let (mut list, mut line) = (Vec::new(), Vec::new());
    while lines.next_line(&mut line)? {
        if line.starts_with(b"@SQ\t") {
            list.push(String::from_utf8_lossy(&line).into_owned());
        }
    }
    Ok(list)
}

/// The records of a BAM file as lines, in the order of the file.
pub struct SamReader {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
    path: PathBuf,
}

impl SamReader {
    /// Starts `samtools view` with further options on a BAM file.
    ///
    /// # Errors
    /// [`Error::Start`] when it cannot be started.
    pub fn open(path: &Path, options: &[&str]) -> Result<Self> {
        let mut command = Command::new("samtools");
        command.args(["view", "--no-PG"]).args(options).arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|source| Error::Start { program: "samtools".to_owned(), source })?;
        let lines = child.stdout.take().map(|stdout| BufReader::with_capacity(1 << 18, stdout));
        Ok(Self { child, lines, path: path.to_owned() })
    }
}

impl LineSource for SamReader {
    fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        line.clear();
        let Some(lines) = &mut self.lines else { return Ok(false) };
        if lines.read_until(b'\n', line).map_err(Error::file("read", &self.path))? > 0 {
            line.pop_if(|last| *last == b'\n');
            return Ok(true);
        }
        self.lines = None;
        let status = self.child.wait().map_err(Error::file("read", &self.path))?;
        if status.success() {
            return Ok(false);
        }
        let command = format!("samtools view {}", self.path.display());
        Err(Error::Program { command, status: status.to_string(), stderr: String::new() })
    }
}

impl Drop for SamReader {
    fn drop(&mut self) {
        // Close the pipe, so that samtools exits, and wait for it.
        self.lines = None;
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_shown_as_a_shell_takes_it() {
        let programs = Programs { godwit: "/opt/my godwit".into(), threads: 4 };
        let task = AlignTask {
            reference: "ref.fa".into(),
            reads: vec!["reads_1.fq".into(), "reads_2.fq".into()],
            block_bases: 1_000_000,
            option_words: vec!["-k".to_owned(), "19".to_owned()],
        };
        let bwa = shell_line(&programs.bwa_command(&task));
        let read_group = format!("'{READ_GROUP}'");
        assert_eq!(bwa, format!("bwa mem -t 4 -K 1000000 -R {read_group} -k 19 ref.fa reads_1.fq reads_2.fq"));
        let engine = Engine { aligner: "bwa-mem3".to_owned(), instructions: Some("avx2".to_owned()), workers: Some(2) };
        let godwit = shell_line(&programs.godwit_command(&task, &engine, Path::new("out")));
        assert!(godwit.starts_with("GODWIT_BWA_MEM3_INSTRUCTIONS=avx2 "), "{godwit}");
        assert!(godwit.contains(" '/opt/my godwit' align ") && godwit.contains("'--aligner-args=-k 19'"), "{godwit}");
        assert!(godwit.ends_with("--threads 2 --on local --nodes 2"), "{godwit}");
        assert_eq!(engine.to_string(), "bwa-mem3 avx2 on 2 workers");
    }
}
