use std::io::Write;
use std::path::PathBuf;

use godwit_tests::needs;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::sam::tests::samples;

fn file(directory: &TempDir, content: &[u8]) -> PathBuf {
    let path = directory.path().join("a.fa");
    std::fs::write(&path, content).unwrap();
    path
}

fn fai(content: &[u8]) -> Result<String, FastaError> {
    let directory = tempfile::tempdir().unwrap();
    let mut text = Vec::new();
    write_fai(&build_fai(&file(&directory, content))?, &mut text).unwrap();
    Ok(String::from_utf8(text).unwrap())
}

/// Returns the names and bases of all contigs of a file.
fn contigs(path: &Path) -> Result<Vec<(String, Vec<u8>)>, FastaError> {
    let mut reader = Reader::open(path, 1)?;
    let mut contigs = Vec::new();
    while let Some(name) = reader.next_contig()? {
        let mut bases = Vec::new();
        while let Some(run) = reader.next_bases()? {
            bases.extend_from_slice(run);
        }
        contigs.push((name, bases));
    }
    Ok(contigs)
}

#[test]
fn the_index_is_that_of_samtools() {
    needs!("samtools");
    let long =
        [b">long\n", "ACGTN".repeat(200_000).as_bytes(), b"\n>wrapped x y\n", "ACGTACGTAC\n".repeat(70_000).as_bytes()]
            .concat();
    let cases: [&[u8]; 9] = [
        b">a\nACGT\nAC\n>b some words\nAC\nGT\n",
        b">a\nACGT",
        b">a\nACGT\nACG",
        b">a\r\nACGT\r\nAC\r\n>b\r\nA\r\n",
        b">a\r\nACGT\r\nAC",
        b"\n\n>a\nAC\n\n\n>b\nACGT\nACGT\n\n",
        b">tab\tafter\nACGT\n>c\nA",
        b">a\nacgtnRYK\n",
        &long,
    ];
    let directory = tempfile::tempdir().unwrap();
    for content in cases {
        let path = file(&directory, content);
        let ours = fai(content).unwrap();
        samples::samtools(&["faidx", samples::path_text(&path)]);
        let theirs = std::fs::read_to_string(directory.path().join("a.fa.fai")).unwrap();
        assert_eq!(ours, theirs, "{}", content[..content.len().min(60)].escape_ascii());
    }
}

#[test]
fn bases_are_the_same_in_every_compression() {
    let directory = tempfile::tempdir().unwrap();
    let content = [b">one x\n", "ACGTACGTAC\r\n".repeat(60_000).as_bytes(), b">two\nAC\n"].concat();
    let path = file(&directory, &content);
    let plain = contigs(&path).unwrap();
    assert_eq!((plain[0].1.len(), plain[1].clone()), (600_000, ("two".to_owned(), b"AC".to_vec())));
    let mut gzip = flate2::write::GzEncoder::new(std::fs::File::create(&path).unwrap(), flate2::Compression::fast());
    gzip.write_all(&content).unwrap();
    gzip.finish().unwrap();
    assert!(contigs(&path).unwrap() == plain);
    assert!(matches!(build_fai(&path), Err(FastaError::Compressed { .. })));
    let mut bgzf = godwit_io::bgzf::Writer::new(std::fs::File::create(&path).unwrap(), 1);
    bgzf.write_bytes(&content).unwrap();
    bgzf.finish_file().unwrap();
    assert!(contigs(&path).unwrap() == plain);
    let cut = std::fs::read(&path).unwrap();
    std::fs::write(&path, &cut[..cut.len() - 28]).unwrap();
    assert!(matches!(contigs(&path), Err(FastaError::Bgzf(_))));
}

#[test]
fn contigs_may_be_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let mut reader = Reader::open(&file(&directory, b">a\nAC\nGT\n>b\nT\n"), 1).unwrap();
    assert_eq!(reader.next_contig().unwrap().as_deref(), Some("a"));
    assert_eq!(reader.next_contig().unwrap().as_deref(), Some("b"));
    assert_eq!(reader.next_bases().unwrap(), Some(&b"T"[..]));
    assert_eq!(reader.next_bases().unwrap(), None);
    assert_eq!(reader.next_bases().unwrap(), None);
    assert_eq!(reader.next_contig().unwrap(), None);
    assert_eq!(reader.into_fai_records().iter().map(|contig| contig.bases).collect::<Vec<_>>(), [4, 1]);
}

#[test]
fn what_is_no_clean_reference_is_refused() {
    let error = |content: &[u8]| fai(content).unwrap_err();
    assert!(matches!(error(b""), FastaError::Empty { .. }));
    assert!(matches!(error(b"\n\n"), FastaError::Empty { .. }));
    assert!(matches!(error(b"\nACGT\n"), FastaError::NotFasta { line: 2, .. }));
    assert!(matches!(error(b"@r\nACGT\n+\nIIII\n"), FastaError::NotFasta { line: 1, .. }));
    assert!(matches!(error(b">a\nA\n> b\nA\n"), FastaError::Name { line: 3, .. }));
    assert!(matches!(error(b">\nA\n"), FastaError::Name { line: 1, .. }));
    assert!(matches!(error(b">a\nA\n>a x\nC\n"), FastaError::DuplicateName { line: 3, name, .. } if name == "a"));
    // samtools faidx 1.16 silently drops a contig without bases, while bwa index keeps it.
    assert!(matches!(error(b">a\n>b\nA\n"), FastaError::EmptyContig { name, .. } if name == "a"));
    assert!(matches!(error(b">b\nA\n>a\n"), FastaError::EmptyContig { name, .. } if name == "a"));
    assert!(matches!(error(b">b\nA\n>a"), FastaError::EmptyContig { name, .. } if name == "a"));
    for ragged in
        [&b">a\nACGT\nAC\nACGT\n"[..], b">a\nAC\nACGT\n", b">a\n\nACGT\n", b">a\nAC\n\nAC\n", b">a\nAC\r\nACT\n"]
    {
        assert!(matches!(error(ragged), FastaError::RaggedLines { .. }), "{}", ragged.escape_ascii());
        // Lines of different length are an error only for an index.
        let directory = tempfile::tempdir().unwrap();
        let bases = ragged[3..].iter().copied().filter(u8::is_ascii_alphabetic).collect();
        assert_eq!(contigs(&file(&directory, ragged)).unwrap(), [("a".to_owned(), bases)]);
    }
    for (content, byte) in
        [(&b">a\nAC GT\n"[..], b' '), (b">a\nAC-T\n", b'-'), (b">a\nAC\xffT\n", 0xff), (b">a\nAC\rT\n", b'\r')]
    {
        assert!(matches!(error(content), FastaError::Base { line: 2, byte: named, .. } if named == byte));
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(content in proptest::collection::vec(proptest::sample::select(b">>\n\n\r AACGT\t1\xff".to_vec()), 0..60)) {
        let _ = fai(&content);
    }
}

#[test]
fn an_indexed_reader_returns_the_bases_of_any_interval() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fa");
    let long: String = (0..100_000).map(|at| char::from(b"ACGTN"[at % 5])).collect();
    let lines: Vec<&str> = long.as_bytes().chunks(60).map(|line| std::str::from_utf8(line).unwrap()).collect();
    std::fs::write(&path, format!(">a\nacgtRX\nAC\n>b\r\n{}\r\n", lines.join("\r\n"))).unwrap();
    let contigs = build_fai(&path).unwrap();
    let mut text = Vec::new();
    write_fai(&contigs, &mut text).unwrap();
    assert_eq!(parse_fai(std::str::from_utf8(&text).unwrap()).unwrap(), contigs);
    let packed = directory.path().join("a.fa.gz");
    let mut bgzf = godwit_io::bgzf::Writer::new(std::fs::File::create(&packed).unwrap(), 1);
    bgzf.write_bytes(&std::fs::read(&path).unwrap()).unwrap();
    bgzf.finish_file().unwrap();
    assert_eq!(build_fai(&packed).unwrap(), contigs);
    for path in [&path, &packed] {
        let mut windows = IndexedReader::open(path, contigs.clone().into()).unwrap();
        assert_eq!(windows.base_codes(0, 0, 100).unwrap(), [1, 2, 4, 8, 5, 0, 1, 2]);
        for (start, end) in [(59, 61), (0, 3), (65_500, 65_600), (99_990, 100_000), (7, 99_999)] {
            let expected: Vec<u8> = (start..end).map(|at| [1, 2, 4, 8, 15][at % 5]).collect();
            assert_eq!(windows.base_codes(1, start as u64, end as u64).unwrap(), expected, "{start}..{end}");
        }
        assert_eq!(windows.base_codes(1, 99_999, 100_010).unwrap().len(), 1);
        assert_eq!(windows.base_codes(2, 0, 10).unwrap(), [0u8; 0]);
    }
    for path in [&path, &packed] {
        let checked = |change: &dyn Fn(&mut FaiRecord)| {
            let mut others = contigs.clone();
            change(&mut others[1]);
            IndexedReader::open(path, others.into()).unwrap().check_index()
        };
        assert!(checked(&|_| {}).is_ok());
        assert!(checked(&|record| record.offset += 1).is_err(), "another title");
        assert!(checked(&|record| (record.line_bases, record.line_bytes) = (59, 61)).is_err(), "other lines");
        assert!(checked(&|record| record.line_bytes = 61).is_err(), "another line end");
        assert!(checked(&|record| record.bases -= 1).is_err(), "a shorter contig");
    }
    // Use the index of a file in which the contig is longer.
    let mut longer = contigs;
    longer[1].bases += 1000;
    for path in [&path, &packed] {
        let mut windows = IndexedReader::open(path, longer.clone().into()).unwrap();
        assert!(windows.base_codes(1, 100_000, 100_500).is_err());
    }
    assert!(parse_fai("a\t1\t2\n").is_none());
}

#[test]
fn an_index_of_no_file_that_there_can_be_is_refused() {
    assert!(parse_fai("a\t100\t3\t60\t61\nempty\t0\t170\t0\t0\n").is_some());
    let far = i64::MAX - 100;
    for line in [
        "a\t100\t3\t60\t59",
        "a\t100\t3\t60\t18446744073709551615",
        "a\t100\t3\t0\t1",
        "a\t18446744073709551615\t3\t60\t61",
        &format!("a\t100\t{far}\t60\t61"),
    ] {
        assert!(parse_fai(line).is_none(), "{line}");
    }
}
