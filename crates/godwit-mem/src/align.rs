//! Aligning: three threads and at most one block in each of them.
//!
//! The reader turns streams into the reads of a block, the main thread aligns them (the library adds threads), the writer turns
//! the library's answer into records and streams. The channels between them hold nothing. While one block is aligned, the one
//! before it is written, and only then the one behind it is read, so that there are never more than two, as in bwa's own pipeline.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use godwit_engines::aligner::{BlockEncoder, BlockHeader, Hello, StreamEncoder};
use godwit_engines::stream::{StreamReader, StreamWriter};
use godwit_model::schema;

use crate::error::Error;
use crate::options::AlignmentOptions;
use crate::{BlockAnswer, BlockReads, LoadOptions, MemLibrary, ReadBlock};

/// bwa keeps the read group's ID in an array of 256 bytes.
const MAX_READ_GROUP_BYTES: usize = 255;
/// Bytes gathered before a write, or read at a time; batches pass around the buffers.
const BUFFER_BYTES: usize = 64 << 10;

/// The command line of `align`.
pub struct Arguments {
    /// Path that the index files' names begin with.
    pub reference: PathBuf,
    /// Map the index files.
    pub share_index: bool,
    /// How to align.
    pub options: AlignmentOptions,
}

/// A block to write.
struct AnsweredBlock<A> {
    header: BlockHeader,
    answer: A,
}

/// Aligns blocks from stdin to stdout until stdin ends.
///
/// # Errors
/// Every [`Error`] but [`Error::Index`]. An error in the reader or the writer ends the process from there: the main thread
/// may be in the middle of a batch, which can take minutes and cannot be stopped.
pub fn run<L: MemLibrary>(arguments: &Arguments) -> Result<(), Error> {
    let options = &arguments.options;
    let library = L::load(&LoadOptions {
        reference: &arguments.reference,
        share: arguments.share_index,
        ignore_alternates: options.ignore_alternates,
        threads: options.threads(),
    })?;
    let genome = library.genome()?;
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
    let hello = Hello::new(env!("CARGO_PKG_VERSION").into(), L::VERSION.into(), sq_lines(&genome))?;
    output = StreamWriter::start(output, &schema::message(), hello.to_metadata())?.finish()?;

    let (written_sender, written) = channel();
    let (read_sender, read_blocks) = sync_channel(0);
    let (answer_sender, answers) = sync_channel(0);
    let keep_comments = options.keep_comments;
    let reader = spawn::<L>("reader", move || read::<L::Reads>(input, keep_comments, &read_sender, &written))?;
    let writer = spawn::<L>("writer", move || write(output, BlockEncoder::new(&genome), &answers, &written_sender))?;
    for block in read_blocks {
        let header = block.header.clone();
        let answer = library.align(options, block)?;
        if answer_sender.send(AnsweredBlock { header, answer }).is_err() {
            break;
        }
    }
    drop(answer_sender);
    for part in [reader, writer] {
        // A panic was reported already; the status still has to say so.
        part.join().map_err(|_| Error::Output { source: std::io::Error::other("a thread panicked") })?;
    }
    Ok(())
}

fn spawn<L: MemLibrary>(
    name: &str,
    work: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Result<thread::JoinHandle<()>, std::io::Error> {
    thread::Builder::new().name(name.into()).spawn(|| {
        if let Err(error) = work() {
            std::process::exit(i32::from(error.report(L::PROGRAM)));
        }
    })
}

/// `@SQ` lines as `bwa mem` 0.7.17 prints them (`bwa_print_sam_hdr`).
fn sq_lines(genome: &godwit_model::Genome) -> String {
    let line = |contig: &godwit_model::Contig| {
        let alternate = if contig.alternate { "\tAH:*" } else { "" };
        format!("@SQ\tSN:{}\tLN:{}{alternate}\n", contig.name, contig.length)
    };
    genome.contigs().iter().map(line).collect()
}

/// `written` has a message for every block that is done with.
fn read<R: BlockReads>(
    input: File,
    keep_comments: bool,
    blocks: &SyncSender<ReadBlock<R>>,
    written: &Receiver<()>,
) -> Result<(), Error> {
    let mut streams = StreamReader::new(BufReader::with_capacity(BUFFER_BYTES, input));
    for block in 0u64.. {
        // The block before the last one is being written while the last one is aligned.
        if block >= 2 && written.recv().is_err() {
            break;
        }
        let Some(schema) = streams.next_stream()? else { break };
        let header = BlockHeader::from_metadata(schema.metadata())?;
        let mut reads = R::default();
        while let Some(batch) = streams.next_batch()? {
            reads.push(&batch, keep_comments)?;
        }
        if blocks.send(checked(header, reads)?).is_err() {
            break;
        }
    }
    Ok(())
}

fn checked<R: BlockReads>(header: BlockHeader, reads: R) -> Result<ReadBlock<R>, Error> {
    let id = header.id;
    let refused = |problem| Error::Block { id, problem };
    if header.paired && reads.reads() % 2 == 1 {
        return Err(refused("it is of pairs but has an odd number of reads"));
    }
    if i32::try_from(reads.reads()).is_err() {
        return Err(refused("it has more than 2,147,483,647 reads"));
    }
    let read_group = header.read_group.as_deref().unwrap_or_default();
    if read_group.len() > MAX_READ_GROUP_BYTES || read_group.contains('\t') {
        return Err(refused("the ID of its read group is longer than 255 bytes or has a tab"));
    }
    let read_group = CString::new(read_group).map_err(|_| refused("the ID of its read group has a NUL"))?;
    let first_ordinal = i64::try_from(header.first_ordinal).map_err(|_| refused("its first ordinal is too large"))?;
    Ok(ReadBlock { header, read_group, first_ordinal, reads })
}

fn write<A: BlockAnswer>(
    mut output: BufWriter<File>,
    mut encoder: BlockEncoder,
    answers: &Receiver<AnsweredBlock<A>>,
    written: &Sender<()>,
) -> Result<(), Error> {
    for AnsweredBlock { header, answer } in answers {
        let mut streams = StreamEncoder::start(output, &mut encoder, &header)?;
        let reads = answer.write(&header, &mut streams)?;
        output = streams.finish(reads)?;
        // The reader is gone once the input has ended.
        let _ = written.send(());
    }
    Ok(())
}
