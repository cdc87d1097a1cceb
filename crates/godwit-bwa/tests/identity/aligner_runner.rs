//! Runs both sides of a comparison. The test names the program (`PROGRAM`, `INDEX_KIND`) and makes its index (`make_index`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use arrow_array::{Array, BinaryArray, RecordBatch, UInt32Array};
use godwit_engines::EngineError;
use godwit_engines::aligner::bwa::BwaOptions;
use godwit_engines::aligner::{AlignedBlock, Aligner, AlignerInfo, BlockHeader, BlockWriter};
use godwit_model::{BlockId, Genome as Contigs, NO_READ_GROUP, RawRecord, schema};
use godwit_tests::skip::report_skip;
use tempfile::TempDir;

use crate::test_reads::{self, Genome, Layout, Read, Reads};
use crate::{INDEX_KIND, PROGRAM};

/// Reads in a batch: the mates of a block are in several batches.
const BATCH_READS: usize = 37;

/// An indexed genome in a folder, with the installed tools.
pub struct Tools {
    pub directory: TempDir,
    pub genome: Genome,
    pub reference: PathBuf,
}

impl Tools {
    /// Finds the tools; without bwa or samtools, prints a note and returns `None`.
    pub fn find_or_skip() -> Option<Self> {
        for tool in ["bwa", "samtools"] {
            if Command::new(tool).stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
                report_skip("missing-tool", &format!("{tool} is not installed"));
                return None;
            }
        }
        Some(Self::with_genome(test_reads::genome()))
    }

    /// Finds the tools as [`find_or_skip`](Self::find_or_skip), with a genome of the test's own.
    pub fn with_genome(genome: Genome) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let reference = directory.path().join("ref.fa");
        fs::write(&reference, test_reads::fasta(&genome)).unwrap();
        assert!(Command::new("bwa").arg("index").arg(&reference).stderr(Stdio::null()).status().unwrap().success());
        crate::make_index(&reference);
        Self { directory, genome, reference }
    }
}

/// The reads of one process of bwa.
pub struct Lane<'a> {
    pub reads: &'a Reads,
    pub read_group: Option<&'a str>,
    pub block_bases: usize,
}

/// Returns the lines of `bwa mem`, without header, as samtools prints them: it writes `pa:f:0.880` as `pa:f:0.88` and the
/// empty SEQ of a read without bases as `*`.
pub fn bwa_lines(tools: &Tools, lane: &Lane, options: &str) -> String {
    let file = tempfile::NamedTempFile::new_in(tools.directory.path()).unwrap();
    fs::write(file.path(), run_bwa_mem(tools, lane, options)).unwrap();
    samtools_view(file.path())
}

fn samtools_view(path: &Path) -> String {
    let output = Command::new("samtools").args(["view", "--no-PG"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the `@SQ` lines of `bwa mem`.
pub fn bwa_sq_lines(tools: &Tools, options: &str) -> String {
    let none = Reads { all: Vec::new(), layout: Layout::Single };
    let text = run_bwa_mem(tools, &Lane { reads: &none, read_group: None, block_bases: 100 }, options);
    text.split_inclusive('\n').filter(|line| line.starts_with("@SQ")).collect()
}

fn run_bwa_mem(tools: &Tools, lane: &Lane, options: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("bwa");
    command.arg("mem").args(options.split_whitespace()).args(["-K", &lane.block_bases.to_string()]);
    if let Some(id) = lane.read_group {
        command.arg("-R").arg(format!("@RG\\tID:{id}\\tSM:s"));
    }
    command.arg(&tools.reference);
    let mates = if lane.reads.layout == Layout::Paired { 2 } else { 1 };
    for (mate, text) in test_reads::fastq(lane.reads).into_iter().enumerate().take(mates) {
        let path = folder.path().join(format!("{mate}.fq"));
        fs::write(&path, text).unwrap();
        command.arg(path);
    }
    let output = command.stderr(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "bwa mem {options}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the lines of our records as samtools prints them.
pub fn godwit_lines(
    tools: &Tools,
    lanes: &[Lane],
    options: &str,
    share_index: bool,
) -> Result<(String, AlignerInfo), EngineError> {
    let session = bwa_options(tools, options, share_index).start()?;
    let hello = session.info().clone();
    let (writer, mut reader, handle) = session.split();
    let mut blocks = Vec::new();
    std::thread::scope(|scope| {
        let feeder = scope.spawn(move || write_lanes(writer, lanes));
        while let Some(block) = reader.next_block()? {
            blocks.push(block);
        }
        feeder.join().unwrap()
    })?;
    handle.wait()?;
    let ids: Vec<BlockId> = blocks.iter().map(|block| block.id).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    Ok((sam_lines(tools, &hello.genome, &blocks), hello))
}

fn bwa_options(tools: &Tools, options: &str, share_index: bool) -> BwaOptions {
    BwaOptions {
        kind: INDEX_KIND,
        program: Some(PROGRAM.into()),
        reference: tools.reference.clone(),
        threads: 3,
        arguments: options.split_whitespace().map(str::to_owned).collect(),
        share_index,
    }
}

fn write_lanes(mut writer: BlockWriter, lanes: &[Lane]) -> Result<(), EngineError> {
    for (lane_index, lane) in lanes.iter().enumerate() {
        let mut first_ordinal = 0;
        for (ordinal, reads) in cut_into_blocks(lane.reads, lane.block_bases).into_iter().enumerate() {
            let id = BlockId { lane: lane_index as u16, ordinal: ordinal as u32 };
            let read_group_index = lane.read_group.map_or(NO_READ_GROUP, |_| lane_index as u16);
            let header = BlockHeader {
                id,
                first_ordinal,
                paired: lane.reads.layout == Layout::Paired,
                read_group: lane.read_group.map(str::to_owned),
                read_group_index,
                library_index: lane_index as u16,
            };
            write_block(&mut writer, &header, reads)?;
            first_ordinal += reads.len() as u64;
        }
    }
    writer.finish()
}

fn write_block(writer: &mut BlockWriter, header: &BlockHeader, reads: &[Read]) -> Result<(), EngineError> {
    writer.start_block(header)?;
    for reads in reads.chunks(BATCH_READS) {
        writer.write(&reads_batch(reads))?;
    }
    writer.end_block()
}

/// Cuts reads as bwa does: until a block has `block_bases` bases and an even number of reads.
fn cut_into_blocks(reads: &Reads, block_bases: usize) -> Vec<&[Read]> {
    let step = if reads.layout == Layout::Paired { 2 } else { 1 };
    let (mut blocks, mut start, mut bases, mut at) = (Vec::new(), 0, 0, 0);
    while at < reads.all.len() {
        bases += reads.all[at..at + step].iter().map(|read| read.sequence.len()).sum::<usize>();
        at += step;
        if (bases >= block_bases && (at - start) % 2 == 0) || at == reads.all.len() {
            blocks.push(&reads.all[start..at]);
            (start, bases) = (at, 0);
        }
    }
    blocks
}

fn reads_batch(reads: &[Read]) -> RecordBatch {
    let column = |text: fn(&Read) -> &[u8]| Arc::new(BinaryArray::from_iter_values(reads.iter().map(text)));
    let columns: Vec<Arc<dyn Array>> = vec![
        column(|read| read.name.as_bytes()),
        column(|read| read.comment.as_bytes()),
        column(|read| &read.sequence),
        column(|read| &read.quality),
    ];
    RecordBatch::try_new(schema::pipe_reads(), columns).unwrap()
}

/// Aligns reads as one block.
pub fn align_one_block(tools: &Tools, reads: &Reads, first_ordinal: u64) -> Result<AlignedBlock, EngineError> {
    let (mut writer, mut reader, handle) = bwa_options(tools, "", false).start()?.split();
    let header = BlockHeader {
        id: BlockId { lane: 3, ordinal: 5 },
        first_ordinal,
        paired: reads.layout == Layout::Paired,
        read_group: Some("group".into()),
        read_group_index: 4,
        library_index: 2,
    };
    write_block(&mut writer, &header, &reads.all)?;
    writer.finish()?;
    let block = reader.next_block()?.expect("one block was fed");
    assert!(reader.next_block()?.is_none());
    handle.wait()?;
    Ok(block)
}

/// Returns the error of an aligner that is killed from outside while a block is open.
pub fn error_of_killed_aligner(tools: &Tools, reads: &Reads) -> EngineError {
    let (mut writer, mut reader, handle) = bwa_options(tools, "", false).start().unwrap().split();
    let header = BlockHeader {
        id: BlockId { lane: 0, ordinal: 0 },
        first_ordinal: 0,
        paired: true,
        read_group: None,
        read_group_index: NO_READ_GROUP,
        library_index: 0,
    };
    writer.start_block(&header).unwrap();
    writer.write(&reads_batch(&reads.all)).unwrap();
    let killed = Command::new("kill").args(["-9", &handle.id().to_string()]).status().unwrap();
    assert!(killed.success());
    reader.next_block().unwrap_err()
}

/// Runs the aligner with a closed stdout.
pub fn run_with_closed_stdout(tools: &Tools) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["align", "--threads", "1", "--reference"]).arg(&tools.reference);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap()
}

/// Returns the lines of one block.
pub fn block_sam_lines(tools: &Tools, block: AlignedBlock) -> String {
    let contigs = tools.genome.iter().map(|(title, bases)| godwit_model::Contig {
        name: title.split(' ').next().unwrap().to_owned(),
        length: bases.len() as u32,
        alternate: false,
    });
    sam_lines(tools, &Contigs::new(contigs.collect()).unwrap(), &[block])
}

/// Writes the records as a plain BAM stream and returns samtools' text. Checks the key columns too.
fn sam_lines(tools: &Tools, genome: &Contigs, blocks: &[AlignedBlock]) -> String {
    let mut bam = b"BAM\x01\0\0\0\0".to_vec();
    let number = |number: usize| (number as u32).to_le_bytes();
    bam.extend(number(genome.contigs().len()));
    for contig in genome.contigs() {
        bam.extend(number(contig.name.len() + 1));
        bam.extend(contig.name.as_bytes());
        bam.push(0);
        bam.extend(contig.length.to_le_bytes());
    }
    for block in blocks {
        let mut order = 0;
        for batch in &block.batches {
            let records = batch.column_by_name("record").unwrap().as_any().downcast_ref::<BinaryArray>().unwrap();
            let orders = batch.column_by_name("order").unwrap().as_any().downcast_ref::<UInt32Array>().unwrap();
            for (row, record) in records.iter().flatten().enumerate() {
                RawRecord::from_bytes(record, genome.contigs().len()).unwrap();
                assert_eq!(orders.value(row), order);
                order += 1;
                bam.extend(number(record.len()));
                bam.extend(record);
            }
        }
        assert_eq!(u64::from(order), block.records);
    }
    let file = tempfile::NamedTempFile::new_in(tools.directory.path()).unwrap();
    fs::write(file.path(), bam).unwrap();
    samtools_view(file.path())
}

/// Panics with the first lines that differ.
pub fn assert_equal(expected: &str, found: &str, what: &str) {
    for (at, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        assert_eq!(expected, found, "line {at} with {what:?}");
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "lines with {what:?}");
}
