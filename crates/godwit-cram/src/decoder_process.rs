//! Decoding for a [`crate::Reader`] in another process, and the messages between the two.
//!
//! A message on the pipe is a kind, a length, and that many bytes; numbers are little-endian. The last message reports the
//! outcome, so a stream without it is incomplete.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use godwit_formats::{is_system_failure, message_with_causes};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::decoder::Decoder;
use crate::error::CramError;
use crate::reference::Reference;

/// Approximate bytes of records per message.
const RECORDS_MESSAGE_BYTES: usize = 1 << 18;
/// Bytes of the length before a record.
pub(crate) const LENGTH_PREFIX_BYTES: usize = 4;
/// Memory for the content of a file, bytes: without the containers of the threads.
const BASE_MEMORY_BYTES: u64 = 384 << 20;
/// Memory of a thread, bytes: its stack of 8 MiB, and its containers (htslib makes them of 5 M bases at most).
const MEMORY_BYTES_PER_THREAD: u64 = 64 << 20;
/// CPU seconds of a thread within which records must follow. A slice of an archive takes two at most; some damaged ones
/// never end.
pub(crate) const CPU_SECONDS_PER_THREAD: u64 = 4;
/// Contigs whose bases htslib holds at once.
const CACHED_CONTIGS: u64 = 3;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Text of the header; the first message.
    Header = 1,
    /// Packed records, each behind its size (4 bytes).
    Records,
    /// All records were sent.
    End,
    /// The error, as text.
    Failure,
    /// The error, as text, where the system failed, not the file.
    SystemFailure,
}

impl MessageKind {
    const ALL: [Self; 5] = [Self::Header, Self::Records, Self::End, Self::Failure, Self::SystemFailure];
}

/// A request to decode a file.
#[derive(Clone, Debug)]
pub struct DecodeRequest {
    /// The file.
    pub path: PathBuf,
    /// FASTA file of the reference, and a directory for scratch files.
    pub reference: Option<(PathBuf, PathBuf)>,
    /// Number of threads.
    pub threads: usize,
}

/// Decodes a file for the [`crate::Reader`] behind `out`. From here on this process has limits. Memory: that of its
/// threads, three contigs, and [384 MiB](BASE_MEMORY_BYTES). CPU time: `SIGXCPU` ends it where no records follow within
/// [the limit](CPU_SECONDS_PER_THREAD). It leaves no core dump if it crashes.
///
/// # Errors
/// Write errors of `out`. All other errors are reported in its messages.
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
        // The message holds the valid records before a damaged one.
        if !message.is_empty() {
            write_message(out, MessageKind::Records, &message).map_err(DecodeError::Output)?;
        }
        if !more? {
            return Ok(());
        }
    }
}

/// Replaces a message by one of the next records, each behind its length; returns false where the file ends behind them.
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

/// Limits the memory of this process. A failure is ignored: the limit only guards against malicious files.
fn limit_memory(bytes: u64) {
    let _ = setrlimit(Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) });
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

/// Extends the CPU time of this process by `seconds`.
fn limit_cpu_time(seconds: u64) {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec as u64;
    let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(used + seconds), maximum: None });
}

fn write_message(out: &mut impl Write, kind: MessageKind, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&[kind as u8])?;
    out.write_all(&(bytes.len() as u32).to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads a message into `bytes`; returns `None` where it is incomplete or of an unknown kind.
pub(crate) fn read_message(input: &mut impl Read, bytes: &mut Vec<u8>) -> Option<MessageKind> {
    let mut head = [0; 5];
    input.read_exact(&mut head).ok()?;
    let kind = MessageKind::ALL.into_iter().find(|kind| *kind as u8 == head[0])?;
    let length = u64::from(u32::from_le_bytes([head[1], head[2], head[3], head[4]]));
    bytes.clear();
    let read = input.take(length).read_to_end(bytes).ok()?;
    (read as u64 == length).then_some(kind)
}
