//! External aligner programs, which read FASTQ and write SAM and do not know godwit's blocks.
//!
//! One process aligns all reads of a lane, so the records equal those of a single run even if the program carries state
//! from read to read. godwit splits the SAM output into the blocks of the input reads. It checks the order of the
//! names, that each read has one primary record, that mates refer to each other, and that the contigs are those of the
//! reference. Only the command line controls the program.

mod fastq_writer;
mod pending_reads;
mod sam_reader;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use godwit_formats::fasta;
use godwit_model::{Contig, Genome};

use super::{Aligner, AlignerInfo, BlockDependence, BlockReader, BlockWriter, ChildHandle};
use crate::EngineError;
use crate::child::{self, ChildState, PipedChild};
use pending_reads::PendingReads;

pub use fastq_writer::FastqWriter;
pub use sam_reader::SamReader;

/// Path that the command line uses for the only input or for read 1.
pub(crate) const FIRST_INPUT_PATH: &str = "/dev/stdin";
/// Path that the command line uses for read 2 if it has two inputs.
pub(crate) const SECOND_INPUT_PATH: &str = "/dev/fd/3";

/// Names of external aligner programs, with their installation instructions.
pub(crate) const EXTERNAL_ALIGNERS: [(&str, &str); 3] = [
    ("minimap2", "install minimap2 2.24 or later (Debian and Ubuntu: apt-get install minimap2; bioconda: minimap2)"),
    ("bowtie2", "install bowtie2 (Debian and Ubuntu: apt-get install bowtie2; bioconda: bowtie2)"),
    ("strobealign", "install strobealign (bioconda: strobealign)"),
];

/// The command line of an external aligner for the reads of one lane.
#[derive(Clone, Debug)]
pub struct AlignerInvocation {
    /// Path of the aligner program.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// True if read 1 and read 2 go to two inputs; false if all reads, paired or not, go to one input.
    pub two_inputs: bool,
    /// Dependence of a read's records on the borders between blocks of reads.
    pub block_dependence: BlockDependence,
}

/// A running external aligner program.
pub struct SamSession {
    info: AlignerInfo,
    block_dependence: BlockDependence,
    state: Arc<ChildState>,
    inputs: Vec<fastq_writer::InputPipe>,
    stdout: std::process::ChildStdout,
}

impl SamSession {
    /// Starts the program. `info`: the result of [`aligner_info`].
    ///
    /// # Errors
    /// [`EngineError::Io`] if the program does not start.
    pub fn start(invocation: &AlignerInvocation, info: AlignerInfo) -> Result<Self, EngineError> {
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
        let PipedChild { state, stdin, stdout } = child::start_piped(program.clone(), command)?;
        state.set_version(&info.engine_version);
        let mut inputs = vec![fastq_writer::InputPipe::new(stdin).map_err(failed)?];
        if let Some(second) = second {
            inputs.push(fastq_writer::InputPipe::new(second).map_err(failed)?);
        }
        Ok(Self { info, block_dependence: invocation.block_dependence, state, inputs, stdout })
    }
}

impl Aligner for SamSession {
    fn info(&self) -> &AlignerInfo {
        &self.info
    }

    fn block_dependence(&self) -> BlockDependence {
        self.block_dependence
    }

    fn split(self) -> (BlockWriter, BlockReader, ChildHandle) {
        let expected = Arc::new(PendingReads::default());
        let writer = FastqWriter::new(self.state.clone(), self.inputs, expected.clone());
        let reader = SamReader::new(self.state.clone(), self.stdout, expected, self.info.genome);
        (BlockWriter::Fastq(writer), BlockReader::Sam(reader), ChildHandle::new(self.state))
    }
}

/// Returns the [`AlignerInfo`] of an external aligner: the contigs of `reference` and the given version of the program.
///
/// # Errors
/// [`EngineError::Reference`] if the reference is not a valid FASTA file or too large, [`EngineError::Arguments`] if
/// two of its contigs share a name.
pub fn aligner_info(reference: &Path, version: &str) -> Result<AlignerInfo, EngineError> {
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
    AlignerInfo::new(env!("CARGO_PKG_VERSION").into(), version.into(), sq_lines)
        .map_err(|error| EngineError::Arguments { message: format!("cannot use {}: {error}", reference.display()) })
}

/// Returns the first contig in `found`, the program's `@SQ` lines, that the reference does not contain with the same
/// name and length.
fn first_unknown_contig<'c>(found: &'c Genome, reference: &Genome) -> Option<&'c Contig> {
    let known = |contig: &Contig| {
        let own = reference.contig_id(&contig.name).and_then(|id| reference.contig(id));
        own.is_some_and(|own| own.length == contig.length)
    };
    found.contigs().iter().find(|contig| !known(contig))
}

/// Returns the installation instructions for an external aligner program.
pub(crate) fn install_remedy(program: &str) -> &'static str {
    let known = EXTERNAL_ALIGNERS.iter().find(|(name, _)| *name == program);
    known.map_or("install it, or give its path", |(_, remedy)| remedy)
}
