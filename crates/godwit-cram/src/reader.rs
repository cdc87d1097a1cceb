//! A CRAM file of a stranger as its header and chunks of checked records, decoded by a process of its own.
//!
//! htslib believes what a file says about itself in places where that lets it write beyond its memory, or take gigabytes
//! for a few bytes of input (`docs/decisions/0005-cram-with-vendored-htslib.md`). A process of its own, with a limit on its
//! memory, turns both into an error that names the file.

use std::io::BufReader;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use godwit_formats::bam::{DamagedRecord, RecordChunk, check_record};
use godwit_formats::sam::{Header, UnusableHeader};
use godwit_formats::unaligned::RecordSource;
use godwit_model::Genome;
use libc::SIGXCPU;

use crate::decode::{DecodeRequest, Kind, LENGTH_BYTES, PATIENCE_SECONDS, read_message};
use crate::error::CramError;

/// Name of the verb of the program that calls [`crate::decode`].
pub const DECODE_VERB: &str = "decode-cram";

/// How long a decoder whose output ended may take to be gone.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);

/// Reads a CRAM file that nobody vouched for.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    child: Child,
    messages: BufReader<ChildStdout>,
    message: Vec<u8>,
    /// Bytes of the message that were read.
    at: usize,
    header: Header,
    genome: Genome,
    records: u64,
    file_bytes: Option<u64>,
    ended: bool,
}

impl Reader {
    /// Has `program`, which is godwit itself, decode a file, and reads its header. Without a reference only files that hold
    /// none of it can be read: unaligned reads, or an embedded reference.
    ///
    /// # Errors
    /// [`CramError`] about the file, its header, or a reference that is another one.
    pub fn open(program: &Path, request: &DecodeRequest) -> Result<Self, CramError> {
        let path = request.path.clone();
        let mut command = Command::new(program);
        command.arg(DECODE_VERB).arg("--input").arg(&path).args(["--threads", &request.threads.to_string()]);
        if let Some((reference, scratch)) = &request.reference {
            command.arg("--reference").arg(reference).arg("--temp").arg(scratch);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed = |source| CramError::StartDecoder { program: program.to_owned(), source };
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        let file_bytes = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
        let mut reader = Self {
            path,
            child,
            messages: BufReader::with_capacity(1 << 16, stdout),
            message: Vec::new(),
            at: 0,
            header: Header::default(),
            genome: Genome::default(),
            records: 0,
            file_bytes,
            ended: false,
        };
        if reader.next_message()? != Kind::Header {
            return Err(reader.broke_off());
        }
        let unusable = |source| UnusableHeader { path: reader.path.clone(), source };
        reader.header = Header::parse(&reader.message).map_err(unusable)?;
        reader.genome = reader.header.genome().map_err(unusable)?;
        reader.message.clear();
        Ok(reader)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The contigs.
    pub fn genome(&self) -> &Genome {
        &self.genome
    }

    /// Replaces the records of `out` by the next ones: about `max_bytes`, at least one record. False, with no records, at
    /// the end of the file.
    ///
    /// # Errors
    /// [`CramError`] naming the record; `out` then holds the good records before it.
    pub fn read_chunk(&mut self, out: &mut RecordChunk, max_bytes: usize) -> Result<bool, CramError> {
        out.fill(self.records, max_bytes, |data| {
            let more = self.read_record(data)?;
            self.records += u64::from(more);
            Ok(more)
        })
    }

    /// Appends one record; false at the end of the file.
    fn read_record(&mut self, out: &mut Vec<u8>) -> Result<bool, CramError> {
        while self.at == self.message.len() && !self.ended {
            match self.next_message()? {
                Kind::Records => {}
                Kind::End => self.ended = true,
                _ => return Err(self.broke_off()),
            }
        }
        if self.ended {
            return Ok(false);
        }
        let Some(record) = sized(&self.message[self.at..]) else { return Err(self.broke_off()) };
        let start = out.len();
        out.extend_from_slice(record);
        self.at += LENGTH_BYTES + record.len();
        match check_record(&out[start..], self.genome.contigs().len()) {
            Ok(_) => Ok(true),
            Err(source) => Err(DamagedRecord { path: self.path.clone(), record: self.records + 1, source }.into()),
        }
    }

    /// The next message, where it is no failure.
    fn next_message(&mut self) -> Result<Kind, CramError> {
        self.at = 0;
        let Some(kind) = read_message(&mut self.messages, &mut self.message) else {
            self.message.clear();
            return Err(self.broke_off());
        };
        let message = || String::from_utf8_lossy(&self.message).into_owned();
        match kind {
            Kind::Failure => Err(CramError::Decoder { message: message() }),
            Kind::SystemFailure => {
                let source = std::io::Error::other(message());
                Err(CramError::DecoderSystem { message: message(), source })
            }
            kind => Ok(kind),
        }
    }

    /// The error of a decoder that did not say how it ended.
    fn broke_off(&mut self) -> CramError {
        let (path, record) = (self.path.clone(), self.records + 1);
        let deadline = Instant::now() + EXIT_PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        // One that goes on has said something that makes no sense: it is of no use any more.
        let _ = self.child.kill();
        let ending = self.child.wait().map_or_else(|error| error.to_string(), ending);
        CramError::DecoderDied { path, record, ending }
    }
}

/// The bytes behind a size.
fn sized(bytes: &[u8]) -> Option<&[u8]> {
    let (size, rest) = bytes.split_first_chunk()?;
    rest.get(..u32::from_le_bytes(*size) as usize)
}

fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(SIGXCPU), _) => format!("no record came in {PATIENCE_SECONDS} s of work"),
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit status {}", code.unwrap_or_default()),
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Both fail only for a child that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RecordSource for Reader {
    fn path(&self) -> &Path {
        &self.path
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn read_chunk(
        &mut self,
        chunk: &mut RecordChunk,
        max_bytes: usize,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self::read_chunk(self, chunk, max_bytes)?)
    }

    /// All or nothing: htslib does not say how far it is.
    fn bytes_read(&self) -> u64 {
        self.file_bytes.filter(|_| self.ended).unwrap_or_default()
    }
}
