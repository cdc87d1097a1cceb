//! Aligners that know nothing of godwit: reads go in as FASTQ, SAM comes out.
//!
//! One process aligns one lane from its first read to its last, so that whatever the program keeps from read to read, the
//! records are those of one single run. Blocks are only how godwit counts: answers are cut where the reads were. Every
//! answer is checked: names in step with the reads, one primary record for each read, mates that name each other, contigs
//! of the reference. What a program cannot be told on its command line is not done here.

mod expected;
mod sam_reader;
mod text_writer;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use godwit_formats::fasta;
use godwit_model::{Contig, Genome};

use super::{Aligner, BlockReader, BlockWriter, ChildHandle, Hello, Identity};
use crate::EngineError;
use crate::child::{self, ChildState, Started};
use expected::Expected;

pub use sam_reader::SamReader;
pub use text_writer::TextWriter;

/// The path a program reads its only input at, or that of read 1.
pub const FIRST_INPUT: &str = "/dev/stdin";
/// The path a program reads read 2 at, where its command line asks for two inputs.
pub const SECOND_INPUT: &str = "/dev/fd/3";

/// A command line for one lane.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program's path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Mates go to two inputs; else reads, paired or not, go to one.
    pub two_inputs: bool,
    /// What the program may keep from read to read.
    pub identity: Identity,
}

/// A started program.
pub struct SamSession {
    hello: Hello,
    identity: Identity,
    state: Arc<ChildState>,
    inputs: Vec<text_writer::Input>,
    stdout: std::process::ChildStdout,
}

impl SamSession {
    /// Starts the program. `hello`: see [`hello`].
    ///
    /// # Errors
    /// [`EngineError::Io`].
    pub fn start(invocation: &Invocation, hello: Hello) -> Result<Self, EngineError> {
        let mut command = Command::new(&invocation.program);
        command.args(&invocation.arguments);
        let program = invocation.program.clone();
        let failed = |source| EngineError::Io { program: program.clone(), action: "start", source };
        let mut second = None;
        if invocation.two_inputs {
            let (reader, writer) = std::io::pipe().map_err(failed)?;
            child::pass_second_input(&mut command, reader);
            second = Some(writer);
        }
        let Started { state, stdin, stdout } = child::start(program.clone(), command)?;
        state.set_version(&hello.engine_version);
        let mut inputs = vec![text_writer::Input::new(stdin).map_err(failed)?];
        if let Some(second) = second {
            inputs.push(text_writer::Input::new(second).map_err(failed)?);
        }
        Ok(Self { hello, identity: invocation.identity, state, inputs, stdout })
    }
}

impl Aligner for SamSession {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn split(self) -> (BlockWriter, BlockReader, ChildHandle) {
        let expected = Arc::new(Expected::default());
        let writer = TextWriter::new(self.state.clone(), self.inputs, expected.clone());
        let reader = SamReader::new(self.state.clone(), self.stdout, expected, self.hello.genome);
        (BlockWriter::Text(writer), BlockReader::Sam(reader), ChildHandle::new(self.state))
    }
}

/// What such a program would say of itself: contigs of the reference, its version.
///
/// # Errors
/// [`EngineError::Reference`] for a reference that is no clean FASTA file or too large, [`EngineError::Arguments`] where
/// two contigs share a name.
pub fn hello(reference: &Path, version: &str) -> Result<Hello, EngineError> {
    let failed = |source| EngineError::Reference { path: reference.to_owned(), source };
    let mut fasta = fasta::Reader::open(reference, 1).map_err(failed)?;
    let mut sq_lines = String::new();
    while let Some(name) = fasta.next_contig().map_err(failed)? {
        let mut bases = 0;
        while let Some(run) = fasta.next_bases().map_err(failed)? {
            bases += run.len() as u64;
        }
        sq_lines += &format!("@SQ\tSN:{name}\tLN:{bases}\n");
    }
    Hello::new(env!("CARGO_PKG_VERSION").into(), version.into(), sq_lines)
        .map_err(|error| EngineError::Arguments { message: format!("cannot use {}: {error}", reference.display()) })
}

/// The first of a program's `@SQ` lines that is not the reference's.
fn foreign_contig<'c>(found: &'c Genome, reference: &Genome) -> Option<&'c Contig> {
    let known = |contig: &Contig| {
        let own = reference.find(&contig.name).and_then(|id| reference.contig(id));
        own.is_some_and(|own| own.length == contig.length)
    };
    found.contigs().iter().find(|contig| !known(contig))
}

/// The program's path: as given where it has a slash, else the first of PATH.
///
/// # Errors
/// [`EngineError::NotInstalled`].
pub fn find_program(name: &str, remedy: &str) -> Result<PathBuf, EngineError> {
    let found = if name.contains('/') {
        Some(PathBuf::from(name)).filter(|path| path.is_file())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
    };
    found.ok_or_else(|| EngineError::NotInstalled { program: name.to_owned(), remedy: remedy.to_owned() })
}

/// What `PROGRAM --version` says, as `2.24-r1122`; `None` where it says nothing that looks like a version.
pub fn version_of(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.arg("--version").stdin(std::process::Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + "\n" + &String::from_utf8_lossy(&output.stderr);
    let looks_right = |word: &&str| {
        word.starts_with(|first: char| first.is_ascii_digit())
            && word.contains('.')
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-_+".contains(letter))
    };
    text.split_whitespace().map(|word| word.trim_start_matches('v')).find(looks_right).map(str::to_owned)
}
