//! Decoding for a [`crate::Reader`] in another process, and what the two say to each other.
//!
//! What goes over the pipe are messages of a kind, a length, and that many bytes; numbers are little-endian. The last one
//! says how it ended, so a stream without it broke off.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use godwit_formats::{is_system_failure, with_causes};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::decoder::Decoder;
use crate::error::CramError;
use crate::reference::Reference;

/// Bytes of records per message, about.
const CHUNK_BYTES: usize = 1 << 18;
/// Of the length before a record.
pub(crate) const LENGTH_BYTES: usize = 4;
/// Memory for what a file holds, bytes: a container of every thread apart.
const BASE_BYTES: u64 = 384 << 20;
/// Memory of a thread: its stack of 8 MiB, and the containers it works on (htslib makes them of 5 M bases at most).
const THREAD_BYTES: u64 = 64 << 20;
/// CPU seconds of a thread in which records must come. A slice of an archive takes two at most; some damaged ones are never done.
pub(crate) const PATIENCE_SECONDS: u64 = 4;
/// Contigs whose bases htslib holds at once.
const CONTIGS_HELD: u64 = 3;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text of the header; comes first.
    Header = 1,
    /// Packed records, each behind its size (4 bytes).
    Records,
    /// All records were sent.
    End,
    /// What went wrong, as text.
    Failure,
    /// The same where the system failed, not the file.
    SystemFailure,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Header, Self::Records, Self::End, Self::Failure, Self::SystemFailure];
}

/// What is to be decoded.
#[derive(Clone, Debug)]
pub struct DecodeRequest {
    /// The file.
    pub path: PathBuf,
    /// FASTA file that it needs, and a directory for scratch files.
    pub reference: Option<(PathBuf, PathBuf)>,
    /// Threads.
    pub threads: usize,
}

/// Decodes a file for the [`crate::Reader`] behind `out`. From here on this process may take only so much memory: what a
/// thread of it needs, three contigs, and [384 MiB](BASE_BYTES); and it ends by `SIGXCPU` where no records come for
/// [so long](PATIENCE_SECONDS). It leaves no memory image behind where it crashes.
///
/// # Errors
/// `out` cannot be written to. All else is told there.
pub fn decode(request: &DecodeRequest, out: &mut impl Write) -> io::Result<()> {
    match decode_into(request, out) {
        Ok(()) => write_message(out, Kind::End, &[])?,
        Err(Stop::Output(error)) => return Err(error),
        Err(Stop::Cram(error)) => {
            let kind = if is_system_failure(&error) { Kind::SystemFailure } else { Kind::Failure };
            write_message(out, kind, with_causes(&error).as_bytes())?;
        }
    }
    out.flush()
}

enum Stop {
    Output(io::Error),
    Cram(CramError),
}

impl From<CramError> for Stop {
    fn from(error: CramError) -> Self {
        Self::Cram(error)
    }
}

fn decode_into(request: &DecodeRequest, out: &mut impl Write) -> Result<(), Stop> {
    let reference = request.reference.as_ref().map(|(fasta, scratch)| Reference::open(fasta, scratch)).transpose()?;
    let contig_bytes = reference.as_ref().map_or(0, Reference::longest_contig);
    let patience = request.threads as u64 * PATIENCE_SECONDS;
    limit_memory(BASE_BYTES + request.threads as u64 * THREAD_BYTES + CONTIGS_HELD * contig_bytes);
    limit_time(patience);
    let mut decoder = Decoder::open(&request.path, reference.as_ref(), request.threads)?;
    write_message(out, Kind::Header, &decoder.header().text()).map_err(Stop::Output)?;
    let mut message = Vec::new();
    loop {
        limit_time(patience);
        let more = fill_message(&mut decoder, &mut message);
        // The good records before a bad one are there.
        if !message.is_empty() {
            write_message(out, Kind::Records, &message).map_err(Stop::Output)?;
        }
        if !more? {
            return Ok(());
        }
    }
}

/// Replaces a message by one of the next records, each behind its length; false where the file ends behind them.
fn fill_message(decoder: &mut Decoder, message: &mut Vec<u8>) -> Result<bool, CramError> {
    message.clear();
    while message.len() < CHUNK_BYTES {
        let start = message.len();
        message.extend_from_slice(&[0; LENGTH_BYTES]);
        let more = decoder.append_record(message);
        if !matches!(more, Ok(true)) {
            message.truncate(start);
            return more;
        }
        let record_bytes = (message.len() - start - LENGTH_BYTES) as u32;
        message[start..start + LENGTH_BYTES].copy_from_slice(&record_bytes.to_le_bytes());
    }
    Ok(true)
}

/// A failure to set it is no reason to refuse work: it only guards against files made to do harm.
fn limit_memory(bytes: u64) {
    let _ = setrlimit(Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) });
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

/// Gives this process that many more seconds of CPU time.
fn limit_time(seconds: u64) {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec as u64;
    let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(used + seconds), maximum: None });
}

fn write_message(out: &mut impl Write, kind: Kind, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&[kind as u8])?;
    out.write_all(&(bytes.len() as u32).to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads a message into `bytes`; `None` where there is no whole one, or none of a known kind.
pub(crate) fn read_message(input: &mut impl Read, bytes: &mut Vec<u8>) -> Option<Kind> {
    let mut head = [0; 5];
    input.read_exact(&mut head).ok()?;
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == head[0])?;
    let length = u64::from(u32::from_le_bytes([head[1], head[2], head[3], head[4]]));
    bytes.clear();
    let read = input.take(length).read_to_end(bytes).ok()?;
    (read as u64 == length).then_some(kind)
}
