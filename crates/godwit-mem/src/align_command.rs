//! The command `align`, which aligns blocks of reads from stdin and writes the records to stdout, with three threads.
//!
//! The reader thread receives the reads of a block, the main thread aligns them (the library starts more threads), and
//! the writer thread encodes and sends the records. The channels between the threads are unbuffered. While one block is
//! aligned, the previous block is written, and only then the next block is read. So memory never contains more than two
//! blocks, as in bwa's own pipeline.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use godwit_engines::aligner::{AlignerInfo, BlockEncoder, BlockHeader, StreamEncoder};
use godwit_engines::stream::{StreamReader, StreamWriter};
use godwit_model::schema;

use crate::error::Error;
use crate::options::AlignmentOptions;
use crate::{BlockReads, BlockRecords, LoadOptions, MemLibrary, ReadBlock};

/// Maximum size in bytes of the ID of a read group: bwa stores it, with a NUL, in an array of 256 bytes.
const MAX_READ_GROUP_BYTES: usize = 255;
/// Size in bytes of the buffers for stdin and stdout. Arrow record batches are larger, and bypass the buffers.
const BUFFER_BYTES: usize = 64 << 10;

/// The command line of `align`.
pub struct AlignArguments {
    /// Path prefix of the index files.
    pub reference: PathBuf,
    /// True to memory-map the large index files instead of reading them (`--share-index`).
    pub share_index: bool,
    /// The options of `bwa mem`.
    pub options: AlignmentOptions,
}

/// An aligned block on its way from the main thread to the writer thread.
struct BlockToWrite<A> {
    header: BlockHeader,
    records: A,
}

/// Aligns blocks from stdin to stdout until stdin ends.
///
/// # Errors
/// Every [`Error`] except [`Error::BuildIndex`]. If the reader or the writer thread fails, that thread exits the
/// process, because the main thread may be aligning a block, which can take minutes and cannot be cancelled.
pub(crate) fn run_align<L: MemLibrary>(arguments: &AlignArguments) -> Result<(), Error> {
    let options = &arguments.options;
    let library = L::load(&LoadOptions {
        reference: &arguments.reference,
        share_index: arguments.share_index,
        ignore_alternates: options.ignore_alternates,
        threads: options.threads(),
    })?;
    let genome = library.genome()?;
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
    let hello = AlignerInfo::new(env!("CARGO_PKG_VERSION").into(), L::VERSION.into(), sq_lines(&genome))?;
    output = StreamWriter::start(output, &schema::empty_schema(), hello.to_metadata())?.finish()?;

    let (written_sender, written_blocks) = channel();
    let (read_sender, read_blocks) = sync_channel(0);
    let (aligned_sender, aligned_blocks) = sync_channel(0);
    let keep_comments = options.keep_comments;
    let reader = spawn_or_exit::<L>("reader", move || {
        read_blocks_from::<L::Reads>(input, keep_comments, &read_sender, &written_blocks)
    })?;
    let writer = spawn_or_exit::<L>("writer", move || {
        write_blocks_to(output, BlockEncoder::new(&genome), &aligned_blocks, &written_sender)
    })?;
    for block in read_blocks {
        let header = block.header.clone();
        let records = library.align(options, block)?;
        if aligned_sender.send(BlockToWrite { header, records }).is_err() {
            break;
        }
    }
    drop(aligned_sender);
    for handle in [reader, writer] {
        // The panic message is printed already, but the exit status must report the failure too.
        handle.join().map_err(|_| Error::Output { source: std::io::Error::other("a thread panicked") })?;
    }
    Ok(())
}

fn spawn_or_exit<L: MemLibrary>(
    name: &str,
    work: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Result<thread::JoinHandle<()>, std::io::Error> {
    thread::Builder::new().name(name.into()).spawn(|| {
        if let Err(error) = work() {
            std::process::exit(i32::from(error.report(L::PROGRAM)));
        }
    })
}

/// Returns the `@SQ` lines of the SAM header as `bwa mem` 0.7.17 prints them (`bwa_print_sam_hdr`).
fn sq_lines(genome: &godwit_model::Genome) -> String {
    let line = |contig: &godwit_model::Contig| {
        let alternate = if contig.alternate { "\tAH:*" } else { "" };
        format!("@SQ\tSN:{}\tLN:{}{alternate}\n", contig.name, contig.length)
    };
    genome.contigs().iter().map(line).collect()
}

/// Reads blocks from `input` and sends them to `blocks`. The writer thread sends a message to `written_blocks` for each
/// written block.
fn read_blocks_from<R: BlockReads>(
    input: File,
    keep_comments: bool,
    blocks: &SyncSender<ReadBlock<R>>,
    written_blocks: &Receiver<()>,
) -> Result<(), Error> {
    let mut streams = StreamReader::new(BufReader::with_capacity(BUFFER_BYTES, input));
    for block in 0u64.. {
        // Before reading block n, wait until block n - 2 is written. Block n - 1 is being aligned meanwhile.
        if block >= 2 && written_blocks.recv().is_err() {
            break;
        }
        let Some(schema) = streams.next_stream()? else { break };
        let header = BlockHeader::from_metadata(schema.metadata())?;
        let mut reads = R::default();
        while let Some(batch) = streams.next_batch()? {
            reads.push(&batch, keep_comments)?;
        }
        if blocks.send(check_block(header, reads)?).is_err() {
            break;
        }
    }
    Ok(())
}

fn check_block<R: BlockReads>(header: BlockHeader, reads: R) -> Result<ReadBlock<R>, Error> {
    let id = header.id;
    let refused = |problem| Error::InvalidBlock { id, problem };
    if header.paired && reads.read_count() % 2 == 1 {
        return Err(refused("it is paired but has an odd number of reads"));
    }
    if i32::try_from(reads.read_count()).is_err() {
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

fn write_blocks_to<A: BlockRecords>(
    mut output: BufWriter<File>,
    mut encoder: BlockEncoder,
    answers: &Receiver<BlockToWrite<A>>,
    written: &Sender<()>,
) -> Result<(), Error> {
    for BlockToWrite { header, records } in answers {
        let mut streams = StreamEncoder::start(output, &mut encoder, &header)?;
        let reads = records.write(&header, &mut streams)?;
        output = streams.finish(reads)?;
        // Ignore the error: the reader thread has exited if stdin has ended.
        let _ = written.send(());
    }
    Ok(())
}
