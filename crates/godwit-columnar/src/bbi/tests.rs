use std::fs;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type};
use arrow_array::{Array, RecordBatch};
use godwit_io::random_access::LocalFile;

use super::*;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/bbi");

fn open(path: &Path) -> Result<Arc<BbiFile>, BbiError> {
    BbiFile::open(Arc::new(LocalFile::open(path).unwrap())).map(Arc::new)
}

/// Returns a row as a line of the text from which the file was made.
fn line_of_row(batch: &RecordBatch, row: usize) -> String {
    let contig = batch.column(0).as_string::<i32>().value(row);
    let [start, end] = [1, 2].map(|column| batch.column(column).as_primitive::<Int32Type>().value(row));
    if batch.num_columns() == 4 {
        return format!("{contig}\t{start}\t{end}\t{}", batch.column(3).as_primitive::<Float32Type>().value(row));
    }
    let text = |column: usize| {
        let column = batch.column(column).as_string::<i32>();
        if column.is_valid(row) { column.value(row) } else { "." }
    };
    let score = batch.column(4).as_primitive::<Float64Type>().value(row);
    format!("{contig}\t{start}\t{end}\t{}\t{score}\t{}\t{}", text(3), text(5), text(6))
}

fn read_lines(file: &Arc<BbiFile>, regions: Option<&[Region]>) -> Result<Vec<String>, BbiError> {
    let mut rows = file.rows(file.blocks(regions)?, regions);
    let mut lines = Vec::new();
    while let Some(batch) = rows.next_batch()? {
        lines.extend((0..batch.num_rows()).map(|row| line_of_row(&batch, row)));
    }
    Ok(lines)
}

/// Returns the expected rows of a file. Numbers of bigWig files are printed as Rust prints them.
fn expected_lines(name: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("{GOLDEN}/{name}.expected.tsv")).unwrap();
    let is_signal = name.ends_with(".bw");
    let line = |line: &str| match line.rsplit_once('\t').filter(|_| is_signal) {
        Some((interval, value)) => format!("{interval}\t{}", value.parse::<f32>().unwrap()),
        None => line.to_owned(),
    };
    text.lines().map(line).collect()
}

#[test]
fn rows_are_those_that_pybigwig_reads() {
    for name in ["signal.bw", "features.bb"] {
        let file = open(&Path::new(GOLDEN).join(name)).unwrap();
        assert!(file.has_contig("chr1") && !file.has_contig("chr3"));
        assert_eq!(read_lines(&file, None).unwrap(), expected_lines(name), "{name}");
    }
    let empty = open(&Path::new(GOLDEN).join("empty.bw")).unwrap();
    assert!(empty.has_contig("chr1") && read_lines(&empty, None).unwrap().is_empty());
}

#[test]
fn rows_of_a_region_are_those_that_pybigwig_reads() {
    for name in ["signal.bw", "features.bb"] {
        let file = open(&Path::new(GOLDEN).join(name)).unwrap();
        let all_blocks = file.blocks(None).unwrap().len();
        let mut is_pruned = false;
        for line in fs::read_to_string(format!("{GOLDEN}/{name}.regions.tsv")).unwrap().lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [start, end] = [fields[1], fields[2]].map(|field| field.parse().unwrap());
            let region = [Region { contig: fields[0].to_owned(), start, end }];
            is_pruned |= file.blocks(Some(&region)).unwrap().len() < all_blocks;
            let lines = read_lines(&file, Some(&region)).unwrap();
            let interval = |line: Option<&String>| {
                line.map(|line| line.split('\t').skip(1).take(2).collect::<Vec<_>>().join("-")).unwrap_or_default()
            };
            let found = [lines.len().to_string(), interval(lines.first()), interval(lines.last())];
            assert_eq!(found, fields[3..], "{name} {line}");
        }
        assert!(is_pruned, "{name}: the index excludes blocks");
    }
}

#[test]
fn several_regions_return_each_row_once() {
    let file = open(&Path::new(GOLDEN).join("features.bb")).unwrap();
    let region = |contig: &str, start, end| Region { contig: contig.to_owned(), start, end };
    let regions = [region("chr2", 0, 9000), region("chr1", 100, 800), region("chr1", 600, 900), region("none", 0, 5)];
    let overlaps = |line: &String| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [start, end] = [fields[1], fields[2]].map(|field| field.parse::<u32>().unwrap());
        regions.iter().any(|region| region.contig == fields[0] && start < region.end && end > region.start)
    };
    let expected: Vec<String> = expected_lines("features.bb").into_iter().filter(overlaps).collect();
    assert_eq!(read_lines(&file, Some(&regions)).unwrap(), expected);
}

#[test]
fn a_truncated_file_is_an_error_unless_all_rows_are_left() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["signal.bw", "features.bb"] {
        let (whole, expected) = (fs::read(Path::new(GOLDEN).join(name)).unwrap(), expected_lines(name));
        let path = directory.path().join(name);
        for kept in (0..whole.len()).step_by(397) {
            fs::write(&path, &whole[..kept]).unwrap();
            match open(&path).and_then(|file| read_lines(&file, None)) {
                Ok(lines) => assert_eq!(lines, expected, "{kept} bytes of {name}"),
                Err(BbiError::Magic { bytes, .. }) => assert_eq!(bytes, 0),
                Err(BbiError::Truncated { bytes, .. }) => assert_eq!(bytes, kept as u64),
                Err(error) => panic!("{kept} bytes of {name}: {error}"),
            }
        }
    }
}

/// Returns a file without compression, with the contig `c` and one block, whose index names bases 0 to 100.
fn small_file(magic: [u8; 4], block: &[u8]) -> Vec<u8> {
    let block_offset = 64 + 32 + 4 + 12;
    let tree_offset = block_offset + block.len() as u64;
    let mut file = [&magic[..], &4_u16.to_le_bytes(), &0_u16.to_le_bytes()].concat();
    for offset in [64, block_offset, tree_offset] {
        file.extend(offset.to_le_bytes());
    }
    file.resize(64, 0);
    for number in [CONTIG_TREE_MAGIC, 1, 4, 8, 1, 0, 0, 0] {
        file.extend(number.to_le_bytes());
    }
    file.extend(b"\x01\0\x01\0c\0\0\0\0\0\0\0\x64\0\0\0");
    file.extend(block);
    file.extend(BLOCK_TREE_MAGIC.to_le_bytes());
    file.resize(tree_offset as usize + 48, 0);
    file.extend(b"\x01\0\x01\0");
    for number in [0, 0, 0, 100] {
        file.extend(u32::to_le_bytes(number));
    }
    file.extend([block_offset, block.len() as u64].map(u64::to_le_bytes).concat());
    file
}

fn bed_line(contig: u32, start: u32, end: u32, text: &[u8]) -> Vec<u8> {
    [&[contig, start, end].map(u32::to_le_bytes).concat()[..], text].concat()
}

fn read_small_file(bytes: &[u8], regions: Option<&[Region]>) -> Result<Vec<String>, BbiError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small");
    fs::write(&path, bytes).unwrap();
    read_lines(&open(&path)?, regions)
}

#[test]
fn blocks_without_compression_and_intervals_without_bases_are_read() {
    let block = [bed_line(0, 5, 5, b"\0"), bed_line(0, 7, 9, b"n\t3\t-\tx\ty\0")].concat();
    let file = small_file(BIGBED_MAGIC, &block);
    let second = "c\t7\t9\tn\t3\t-\tx\ty";
    assert_eq!(read_small_file(&file, None).unwrap(), ["c\t5\t5\t.\t0\t.\t.", second]);
    let region = |start, end| [Region { contig: "c".to_owned(), start, end }];
    assert_eq!(read_small_file(&file, Some(&region(5, 6))).unwrap().len(), 1);
    assert_eq!(read_small_file(&file, Some(&region(8, 20))).unwrap(), [second]);
    assert!(read_small_file(&file, Some(&region(6, 7))).unwrap().is_empty());
}

#[test]
fn invalid_files_are_named_with_their_problem() {
    let section = |form: u8, count: u16| {
        let numbers = [0, 0, 9, 1, 1].map(u32::to_le_bytes).concat();
        [&numbers[..], &[form, 0], &count.to_le_bytes(), &[0; 8]].concat()
    };
    let mut reversed = BIGWIG_MAGIC;
    reversed.reverse();
    let mut cyclic = small_file(BIGBED_MAGIC, &bed_line(0, 1, 2, b"\0"));
    // The root is an inner node whose child is the root.
    let root = cyclic.len() - 36;
    cyclic[root] = 0;
    cyclic[root + 20..root + 28].copy_from_slice(&(root as u64).to_le_bytes());
    for (bytes, expected) in [
        (Vec::new(), "(0 bytes) is not a bigWig"),
        (b"chr1\t0\t5\n".to_vec(), "(9 bytes) is not a bigWig"),
        (small_file(reversed, b""), "big-endian"),
        (BIGWIG_MAGIC.to_vec(), "within the file header"),
        (small_file(BIGWIG_MAGIC, &section(4, 1)), "unknown form 4"),
        (small_file(BIGWIG_MAGIC, &section(3, 3)), "shorter than its items"),
        (small_file(BIGWIG_MAGIC, b"short"), "no header"),
        (small_file(BIGBED_MAGIC, &bed_line(0, 1, 2, b"no end")), "ends within a line"),
        (small_file(BIGBED_MAGIC, &bed_line(0, 1, 2, b"\xFF\0")), "not UTF-8"),
        (small_file(BIGBED_MAGIC, &bed_line(7, 1, 2, b"\0")), "unknown contig 7"),
        (small_file(BIGBED_MAGIC, &bed_line(0, 9, 2, b"\0")), "starts at 9, after its end at 2"),
        (small_file(BIGBED_MAGIC, &bed_line(0, 9, u32::MAX, b"\0")), "after base 2,147,483,647"),
        (cyclic, "reached twice"),
    ] {
        let found = read_small_file(&bytes, None).unwrap_err().to_string();
        assert!(found.contains("small") && found.contains(expected), "{expected}: {found}");
    }
}
