//! The process that decodes a CRAM file for a [`crate::Reader`], and the messages that it sends to the reader over a
//! pipe.
//!
//! A message consists of its kind (one byte), its length (four bytes, little-endian), and its body of that length. The
//! last message reports success or failure. If this message is missing, the decoder process has crashed.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use godwit_model::{is_system_failure, message_with_causes};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::decoder::Decoder;
use crate::error::CramError;
use crate::reference::Reference;

/// Approximate size in bytes of a message of records.
const RECORDS_MESSAGE_BYTES: usize = 1 << 18;
/// Size in bytes of the length that precedes each record in a message.
pub(crate) const LENGTH_PREFIX_BYTES: usize = 4;
/// Memory limit of the decoder process, bytes, without the memory of its threads and of the reference.
const BASE_MEMORY_BYTES: u64 = 384 << 20;
/// Memory of a decoding thread, bytes: a stack of 8 MiB, and containers, which htslib writes with at most 5 million
/// bases.
const MEMORY_BYTES_PER_THREAD: u64 = 64 << 20;
/// Limit of CPU seconds per thread for decoding the next message of records. A slice of an archive takes at most 2 s;
/// decoding some damaged slices never ends.
pub(crate) const CPU_SECONDS_PER_THREAD: u64 = 4;
/// Number of contigs whose bases htslib holds in memory at the same time.
const CACHED_CONTIGS: u64 = 3;

/// The kind of a message from the decoder process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// The text of the SAM header; always the first message.
    Header = 1,
    /// BAM-packed records, each preceded by its size (4 bytes).
    Records,
    /// The last message after success: all records were sent.
    End,
    /// The last message after a failure caused by the file: the error message.
    Failure,
    /// The last message after a failure of the operating system: the error message.
    SystemFailure,
}

impl MessageKind {
    const ALL: [Self; 5] = [Self::Header, Self::Records, Self::End, Self::Failure, Self::SystemFailure];
}

/// A request to the decoder process to decode a CRAM file.
#[derive(Clone, Debug)]
pub struct DecodeRequest {
    /// Path of the CRAM file.
    pub path: PathBuf,
    /// Path of the FASTA file of the reference, and a directory for scratch files.
    pub reference: Option<(PathBuf, PathBuf)>,
    /// Number of decoding threads.
    pub threads: usize,
}

/// Decodes a file and writes the messages to `out`, the pipe to the [`crate::Reader`]. Sets limits for this process
/// that last until its exit. Memory: 384 MiB (`BASE_MEMORY_BYTES`), the memory of the threads, and three contigs. CPU
/// time: `SIGXCPU` ends the process if the next records take longer than `CPU_SECONDS_PER_THREAD`. A crash
/// leaves no core dump.
///
/// # Errors
/// Errors of writing to `out`. All other errors are sent as messages.
pub fn run_decoder(request: &DecodeRequest, out: &mut impl Write) -> io::Result<()> {
    match decode_and_write(request, out) {
        Ok(()) => write_message(out, MessageKind::End, &[])?,
        Err(DecodeError::Output(error)) => return Err(error),
        Err(DecodeError::Input(error)) => {
            let kind = if is_system_failure(&error) { MessageKind::SystemFailure } else { MessageKind::Failure };
            write_message(out, kind, message_with_causes(&error).as_bytes())?;
        }
    }
    out.flush()
}

enum DecodeError {
    Output(io::Error),
    Input(CramError),
}

impl From<CramError> for DecodeError {
    fn from(error: CramError) -> Self {
        Self::Input(error)
    }
}

fn decode_and_write(request: &DecodeRequest, out: &mut impl Write) -> Result<(), DecodeError> {
    let reference = request.reference.as_ref().map(|(fasta, scratch)| Reference::open(fasta, scratch)).transpose()?;
    let contig_bytes = reference.as_ref().map_or(0, Reference::longest_contig);
    let cpu_seconds = request.threads as u64 * CPU_SECONDS_PER_THREAD;
    limit_memory(BASE_MEMORY_BYTES + request.threads as u64 * MEMORY_BYTES_PER_THREAD + CACHED_CONTIGS * contig_bytes);
    limit_cpu_time(cpu_seconds);
    let mut decoder = Decoder::open(&request.path, reference.as_ref(), request.threads)?;
    write_message(out, MessageKind::Header, &decoder.header().text()).map_err(DecodeError::Output)?;
    let mut message = Vec::new();
    loop {
        limit_cpu_time(cpu_seconds);
        let more = fill_message(&mut decoder, &mut message);
        // If a record is damaged, the message contains the valid records before it.
        if !message.is_empty() {
            write_message(out, MessageKind::Records, &message).map_err(DecodeError::Output)?;
        }
        if !more? {
            return Ok(());
        }
    }
}

/// Fills `message` with the next records, each preceded by its length; returns false if they are the last of the file.
fn fill_message(decoder: &mut Decoder, message: &mut Vec<u8>) -> Result<bool, CramError> {
    message.clear();
    while message.len() < RECORDS_MESSAGE_BYTES {
        let start = message.len();
        message.extend_from_slice(&[0; LENGTH_PREFIX_BYTES]);
        let more = decoder.append_record(message);
        if !matches!(more, Ok(true)) {
            message.truncate(start);
            return more;
        }
        let record_bytes = (message.len() - start - LENGTH_PREFIX_BYTES) as u32;
        message[start..start + LENGTH_PREFIX_BYTES].copy_from_slice(&record_bytes.to_le_bytes());
    }
    Ok(true)
}

/// Limits the memory of this process and disables core dumps. A failure is ignored: the limit only guards against
/// malicious files.
fn limit_memory(bytes: u64) {
    let _ = setrlimit(Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) });
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

/// Sets the CPU time limit of this process to `seconds` more than it has used so far.
fn limit_cpu_time(seconds: u64) {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec as u64;
    let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(used + seconds), maximum: None });
}

fn write_message(out: &mut impl Write, kind: MessageKind, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&[kind as u8])?;
    out.write_all(&(bytes.len() as u32).to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads the body of a message into `bytes` and returns its kind; `None` if the message is incomplete or its kind is
/// unknown.
pub(crate) fn read_message(input: &mut impl Read, bytes: &mut Vec<u8>) -> Option<MessageKind> {
    let mut head = [0; 5];
    input.read_exact(&mut head).ok()?;
    let kind = MessageKind::ALL.into_iter().find(|kind| *kind as u8 == head[0])?;
    let length = u64::from(u32::from_le_bytes([head[1], head[2], head[3], head[4]]));
    bytes.clear();
    let read = input.take(length).read_to_end(bytes).ok()?;
    (read as u64 == length).then_some(kind)
}
