//! Reads an untrusted CRAM file: a separate process decodes it, and the reader validates the records that the process
//! sends.
//!
//! htslib trusts sizes in a file, so a malicious file can make it write beyond its buffers or allocate gigabytes
//! (`docs/decisions/0005-cram-with-vendored-htslib.md`). Because a separate process with a memory limit decodes the
//! file, both become an error that names the file.

use std::io::BufReader;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use godwit_formats::bam::{DamagedRecordError, RecordBuffer, check_record};
use godwit_formats::sam::{FileHeaderError, Header};
use godwit_formats::unaligned::RecordSource;
use godwit_model::Genome;
use libc::SIGXCPU;

use crate::decoder_process::{CPU_SECONDS_PER_THREAD, DecodeRequest, LENGTH_PREFIX_BYTES, MessageKind, read_message};
use crate::error::CramError;

/// The subcommand of godwit that runs the decoder process, [`crate::run_decoder`].
pub const DECODE_VERB: &str = "decode-cram";

/// Maximum time to wait for the exit of a decoder process that has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A reader of an untrusted CRAM file.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    child: Child,
    messages: BufReader<ChildStdout>,
    message: Vec<u8>,
    /// Number of bytes of `message` that are already returned as records.
    message_offset: usize,
    header: Header,
    genome: Genome,
    records: u64,
    file_bytes: Option<u64>,
    ended: bool,
}

impl Reader {
    /// Starts the decoder process and reads the header of the file. `program` is the path of the godwit executable.
    /// Without a reference, only files that need none can be read: files of unaligned reads, or with an embedded
    /// reference.
    ///
    /// # Errors
    /// [`CramError`] if the file or its header cannot be read, or if the reference does not match the header.
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
            message_offset: 0,
            header: Header::default(),
            genome: Genome::default(),
            records: 0,
            file_bytes,
            ended: false,
        };
        if reader.next_message()? != MessageKind::Header {
            return Err(reader.decoder_crash_error());
        }
        let unusable = |source| FileHeaderError { path: reader.path.clone(), source };
        reader.header = Header::parse(&reader.message).map_err(unusable)?;
        reader.genome = reader.header.genome().map_err(unusable)?;
        reader.message.clear();
        Ok(reader)
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the contigs of the header.
    pub fn genome(&self) -> &Genome {
        &self.genome
    }

    /// Replaces the records in `out` by the next records of the file, about `max_bytes` bytes and at least one record.
    /// Returns false, with `out` empty, at the end of the file.
    ///
    /// # Errors
    /// [`CramError`] with the number of the invalid record. `out` then holds the valid records before it.
    pub fn read_chunk(&mut self, out: &mut RecordBuffer, max_bytes: usize) -> Result<bool, CramError> {
        out.fill_with(self.records, max_bytes, |data| {
            let more = self.read_record(data)?;
            self.records += u64::from(more);
            Ok(more)
        })
    }

    /// Appends the next record to `out`; returns false at the end of the file.
    fn read_record(&mut self, out: &mut Vec<u8>) -> Result<bool, CramError> {
        while self.message_offset == self.message.len() && !self.ended {
            match self.next_message()? {
                MessageKind::Records => {}
                MessageKind::End => self.ended = true,
                _ => return Err(self.decoder_crash_error()),
            }
        }
        if self.ended {
            return Ok(false);
        }
        let Some(record) = length_prefixed(&self.message[self.message_offset..]) else {
            return Err(self.decoder_crash_error());
        };
        let start = out.len();
        out.extend_from_slice(record);
        self.message_offset += LENGTH_PREFIX_BYTES + record.len();
        match check_record(&out[start..], self.genome.contigs().len()) {
            Ok(_) => Ok(true),
            Err(source) => Err(DamagedRecordError { path: self.path.clone(), record: self.records + 1, source }.into()),
        }
    }

    /// Reads the next message from the decoder process; returns an error if the message reports a failure.
    fn next_message(&mut self) -> Result<MessageKind, CramError> {
        self.message_offset = 0;
        let Some(kind) = read_message(&mut self.messages, &mut self.message) else {
            self.message.clear();
            return Err(self.decoder_crash_error());
        };
        let message = || String::from_utf8_lossy(&self.message).into_owned();
        match kind {
            MessageKind::Failure => Err(CramError::DecoderFailure { message: message() }),
            MessageKind::SystemFailure => {
                let source = std::io::Error::other(message());
                Err(CramError::DecoderSystemFailure { message: message(), source })
            }
            kind => Ok(kind),
        }
    }

    /// Waits for the exit of a decoder process that did not report success or failure, and returns the error.
    fn decoder_crash_error(&mut self) -> CramError {
        let (path, record) = (self.path.clone(), self.records + 1);
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        // If the decoder still runs, it has sent an invalid message.
        let _ = self.child.kill();
        let exit_status = self.child.wait().map_or_else(|error| error.to_string(), describe_exit_status);
        CramError::DecoderCrashed { path, record, exit_status }
    }
}

/// Returns the record that follows its size (4 bytes) at the start of `bytes`; `None` if it is incomplete.
fn length_prefixed(bytes: &[u8]) -> Option<&[u8]> {
    let (size, rest) = bytes.split_first_chunk()?;
    rest.get(..u32::from_le_bytes(*size) as usize)
}

fn describe_exit_status(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(SIGXCPU), _) => format!("no record within {CPU_SECONDS_PER_THREAD} s of CPU time"),
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit status {}", code.unwrap_or_default()),
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Ignore errors: both calls fail only if the decoder process has already exited.
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

    fn read_records(
        &mut self,
        chunk: &mut RecordBuffer,
        max_bytes: usize,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self::read_chunk(self, chunk, max_bytes)?)
    }

    /// Returns the size of the file after its last record, and 0 before: htslib does not report its position in the
    /// file.
    fn compressed_bytes_read(&self) -> u64 {
        self.file_bytes.filter(|_| self.ended).unwrap_or_default()
    }
}
