use std::io::Write;

use godwit_tests::random::Random;
use godwit_tests::sam_records::HEADER;
use godwit_tests::{needs, sam_records};
use proptest::prelude::*;

use super::*;
use crate::bam;

pub(crate) mod samples;

use samples::{header, path_text, samtools};

const VALID_LINE: &str =
    "r1\t99\tchr1\t101\t60\t3M1I2D4M\t=\t151\t60\tACGTNACG\tIIIIIIII\tNM:i:3\tMD:Z:7^AC1\tXS:i:-300";

fn encode(line: &str) -> Result<Vec<u8>, SamError> {
    let mut out = b"before".to_vec();
    let result = LineEncoder::new(&header().genome().unwrap()).encode(line.as_bytes(), &mut out);
    assert_eq!(&out[..6], b"before");
    assert!(result.is_ok() || out.len() == 6, "an error must leave the output alone");
    result.map(|()| out.split_off(6))
}

fn encode_error(line: &str) -> SamError {
    encode(line).expect_err(line)
}

/// Returns the packed record that samtools creates from a line.
fn encode_with_samtools(line: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (sam_path, bam_path) = (directory.path().join("a.sam"), directory.path().join("a.bam"));
    std::fs::write(&sam_path, format!("{HEADER}{line}\n")).unwrap();
    samtools(&["view", "-b", "-o", path_text(&bam_path), path_text(&sam_path)]);
    let mut chunk = bam::RecordBuffer::default();
    bam::Reader::open(&bam_path, 1).unwrap().read_records(&mut chunk, 1).unwrap();
    chunk.data
}

/// Returns the SAM line [`VALID_LINE`] with the field number `index` replaced by `field`.
fn with_field(index: usize, field: &str) -> String {
    let mut fields: Vec<&str> = VALID_LINE.split('\t').collect();
    fields[index] = field;
    fields.join("\t")
}

#[test]
fn records_are_byte_for_byte_those_of_samtools() {
    needs!("samtools");
    let directory = tempfile::tempdir().unwrap();
    let (sam_path, bam_path) = (directory.path().join("a.sam"), directory.path().join("a.bam"));
    let mut sam = sam_records::random_sam(7, 4000);
    sam = sam.replace(HEADER, &format!("{HEADER}@CO\tgr\u{fc}n\n"));
    std::fs::write(&sam_path, &sam).unwrap();
    let arguments = ["view", "--no-PG", "-b", "-o", path_text(&bam_path), path_text(&sam_path)];
    samtools(&arguments);
    let mut reader = bam::Reader::open(&bam_path, 2).unwrap();
    assert_eq!(reader.header().text(), &sam.as_bytes()[..sam.find("\nread").unwrap() + 1]);
    let mut encoder = LineEncoder::new(reader.genome());
    let mut lines = sam.lines().filter(|line| !line.starts_with('@'));
    let mut chunk = bam::RecordBuffer::default();
    while reader.read_records(&mut chunk, 100_000).unwrap() {
        for theirs in chunk.records() {
            let (line, mut ours) = (lines.next().unwrap(), Vec::new());
            encoder.encode(line.as_bytes(), &mut ours).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(ours, theirs, "{line}");
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn more_than_65535_operations_go_to_the_cg_tag_as_in_samtools() {
    needs!("samtools");
    let operations = "1M1I".repeat(40_000);
    let sequence = "AC".repeat(40_000);
    let line = format!("long\t0\tchr1\t5\t60\t{operations}\t*\t0\t0\t{sequence}\t*\tNM:i:1");
    let ours = encode(&line).unwrap();
    let record = bam::check_record(&ours, 4).unwrap();
    assert_eq!((record.cigar().count(), record.reference_bases()), (80_000, 40_000));
    assert_eq!(encode_with_samtools(&line), ours);
}

#[test]
fn an_empty_seq_is_that_of_a_read_without_bases_as_in_samtools() {
    needs!("samtools");
    let line = |sequence: &str| format!("none\t4\t*\t0\t0\t*\t*\t0\t0\t{sequence}\t*\tAS:i:0");
    let ours = encode(&line("")).unwrap();
    assert_eq!(ours, encode(&line("*")).unwrap());
    assert_eq!(encode_error(&with_field(9, "")), SamError::CigarBases { cigar_bases: 8, bases: 0 });
    assert_eq!(
        encode_error(&with_field(9, "").replace("3M1I2D4M", "*")),
        SamError::QualityCount { bases: 0, qualities: 8 }
    );
    assert_eq!(encode_error("none\t4\t*\t0\t0\t*\t*\t0\t0\t\t"), SamError::MissingField { field: "QUAL" });
    assert_eq!(encode_error("none\t4\t*\t0\t0\t*\t*\t0\t0\t"), SamError::MissingField { field: "SEQ" });
    assert_eq!(encode_with_samtools(&line("")), ours);
}

#[test]
fn line_ends_are_no_part_of_the_record() {
    let plain = encode(VALID_LINE).unwrap();
    assert_eq!(encode(&format!("{VALID_LINE}\n")).unwrap(), plain);
    assert_eq!(encode(&format!("{VALID_LINE}\r\n")).unwrap(), plain);
}

#[test]
fn a_record_without_contig_position_or_cigar_is_unmapped() {
    let flag = |line: &str| u16::from_le_bytes(encode(line).unwrap()[14..16].try_into().unwrap());
    assert_eq!(flag(VALID_LINE), 99);
    assert_eq!(flag(&with_field(2, "*")), 103);
    assert_eq!(flag(&with_field(3, "0")), 103);
    assert_eq!(flag(&with_field(5, "*")), 103);
}

#[test]
fn every_missing_field_is_named() {
    let fields: Vec<&str> = VALID_LINE.split('\t').collect();
    let names = ["QNAME", "FLAG", "RNAME", "POS", "MAPQ", "CIGAR", "RNEXT", "PNEXT", "TLEN", "SEQ", "QUAL"];
    for (count, field) in names.into_iter().enumerate() {
        // An empty SEQ is valid and means that the record has no bases.
        if field != "SEQ" {
            assert_eq!(encode_error(&with_field(count, "")), SamError::MissingField { field }, "empty {field}");
        }
        let line = fields[..count].join("\t");
        let missing = encode_error(&line);
        let last = if count == 0 { field } else { names[count - 1] };
        assert!(
            matches!(missing, SamError::MissingField { field: named } if named == field || named == last),
            "{missing} for {line}"
        );
    }
}

#[test]
fn numbers_out_of_range_are_named() {
    for (index, field, bad) in [
        (1, "FLAG", &["65536", "-1", "0x", "0x10000", "08", "+4", "99999999999999999999", "1 "][..]),
        (3, "POS", &["2147483648", "-1", "1e3"]),
        (4, "MAPQ", &["256", "x"]),
        (7, "PNEXT", &["2147483648", "-5"]),
        (8, "TLEN", &["2147483648", "-2147483649", "--1", "-", "+", "+-1", "1+"]),
    ] {
        for text in bad {
            let error = encode_error(&with_field(index, text));
            assert!(
                matches!(&error, SamError::Number { field: named, text: shown, .. } if *named == field && shown == text),
                "{error}"
            );
        }
    }
    assert!(encode(&with_field(8, "-2147483648")).is_ok());
}

#[test]
fn signs_leading_zeros_and_hexadecimal_flags_are_read_as_samtools_reads_them() {
    needs!("samtools");
    for (index, field) in [
        (1, "0x10"),
        (1, "020"),
        (1, "0"),
        (3, "+101"),
        (3, "000000000000000000000000101"),
        (4, "+060"),
        (7, "+0151"),
        (8, "+194"),
        (8, "-000000000000000194"),
        (8, "-0"),
        (8, "000"),
        (11, "X0:i:000000000000000000000000000000000000000000000000000000000007"),
        (11, "X0:i:-000000000000000000000007"),
        (11, "X0:i:+7"),
        (11, "X0:i:0000000000"),
        (11, "X0:B:s,+1,-0000000000000000000002,0000000000000000000000003"),
        (11, "X0:f:+.5e+2"),
        (11, "X0:d:3.25"),
        (11, "0_:i:1"),
    ] {
        let line = with_field(index, field);
        let ours = encode(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        bam::check_record(&ours, 4).unwrap();
        assert_eq!(encode_with_samtools(&line), ours, "{field}");
    }
}

#[test]
fn the_last_base_of_the_longest_contig_can_be_aligned_to() {
    let header = Header::parse(b"@SQ\tSN:c\tLN:2147483647\n").unwrap();
    let mut encoder = LineEncoder::new(&header.genome().unwrap());
    for (fields, fits) in [
        ("2147483647\t60\t1M\t*\t0\t0\tA\tI", true),
        ("2147483647\t60\t1M2S1H\t*\t0\t0\tACG\tIII", true),
        ("2147483644\t60\t4M\t*\t0\t0\tACGT\tIIII", true),
        ("2147483645\t60\t4M\t*\t0\t0\tACGT\tIIII", false),
        ("2147483647\t60\t1M1D\t*\t0\t0\tA\tI", false),
    ] {
        let mut out = Vec::new();
        let encoded = encoder.encode(format!("r\t16\tc\t{fields}").as_bytes(), &mut out);
        assert_eq!(encoded.is_ok(), fits, "{fields}: {encoded:?}");
        assert!(!fits || bam::check_record(&out, 1).is_ok(), "{fields}");
    }
}

#[test]
fn names_contigs_and_cigars_are_checked() {
    assert!(encode(&with_field(0, &"n".repeat(254))).is_ok());
    assert_eq!(encode_error(&with_field(0, &"n".repeat(255))), SamError::NameLength { bytes: 255 });
    assert!(matches!(encode_error(&with_field(0, "a\0b")), SamError::NameByte { .. }));
    assert_eq!(encode_error(&with_field(2, "chrX")), SamError::Contig { field: "RNAME", contig: "chrX".into() });
    assert_eq!(encode_error(&with_field(6, "chrX")), SamError::Contig { field: "RNEXT", contig: "chrX".into() });
    for cigar in ["8", "M", "8M1", "8Z", "**", "268435456D8M", "-8M", "8M*"] {
        assert_eq!(encode_error(&with_field(5, cigar)), SamError::Cigar { cigar: cigar.into() });
    }
    assert_eq!(encode_error(&with_field(5, "9M")), SamError::CigarBases { cigar_bases: 9, bases: 8 });
    let clips = "268435455H".repeat(9);
    assert!(matches!(
        encode_error(&with_field(5, &format!("{clips}8M"))),
        SamError::EndPosition { pos_1based: 101, .. }
    ));
}

#[test]
fn bases_and_qualities_are_checked() {
    assert_eq!(encode_error(&with_field(9, "ACG NACG")), SamError::Base { byte: b' ' });
    assert_eq!(
        encode_error(&with_field(9, &format!("{}1", "A".repeat(40))).replace("3M1I2D4M", "41M")),
        SamError::Base { byte: b'1' }
    );
    assert_eq!(encode_error(&with_field(10, "IIIIIII")), SamError::QualityCount { bases: 8, qualities: 7 });
    assert_eq!(encode_error(&with_field(10, "IIIIIIIII")), SamError::QualityCount { bases: 8, qualities: 9 });
    assert_eq!(encode_error(&with_field(10, "IIIIIII\u{7f}")), SamError::Quality { byte: 0x7f });
    assert_eq!(encode_error(&with_field(9, "*")), SamError::QualityCount { bases: 0, qualities: 8 });
    let no_tags = with_field(10, "III").split("\tNM").next().unwrap().to_owned();
    assert_eq!(encode_error(&no_tags), SamError::QualityCount { bases: 8, qualities: 3 });
}

#[test]
fn malformed_tags_are_refused() {
    for tag in [
        "NM",
        "NM:i",
        "NM:i:",
        "N:i:1",
        "NM:i:x",
        "NM:i:1x",
        "NM:i:4294967296",
        "NM:i:-2147483649",
        " M:i:1",
        "NM:q:1",
        "XA:A:",
        "XA:A:ab",
        "XF:f:",
        "XF:f:one",
        "XH:H:abc",
        "XH:H:gg",
        "XB:B:",
        "XB:B:q,1",
        "XB:B:c,128",
        "XB:B:C,-1",
        "XB:B:i,",
        "XB:B:i1",
        "XB:B:I,1,,2",
        "XZ:Z:nul\0",
        "XX:i:99999999999999999999",
    ] {
        let error = encode_error(&format!("{VALID_LINE}\t{tag}"));
        assert!(matches!(error, SamError::Tag { .. }), "{tag}: {error}");
    }
}

proptest! {
    #[test]
    fn no_mutation_of_a_line_panics_or_makes_a_record_that_is_not_sound(
        seed in 0u64..1000,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
    ) {
        let mut line = sam_records::random_line(&mut Random::new(seed), 0).into_bytes();
        for (at, byte, kind) in edits {
            let byte = if byte < 128 { b"\t\0\n:*=0-9AMi"[usize::from(byte) % 12] } else { byte };
            let at = at.index(line.len());
            match kind {
                0 => line[at] = byte,
                1 => line.insert(at, byte),
                _ if line.len() > 1 => drop(line.remove(at)),
                _ => {}
            }
        }
        let mut out = Vec::new();
        if LineEncoder::new(&header().genome().unwrap()).encode(&line, &mut out).is_ok() {
            bam::check_record(&out, 4).unwrap();
        }
    }

    #[test]
    fn no_bytes_panic(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut out = Vec::new();
        let _ = LineEncoder::new(&header().genome().unwrap()).encode(&line, &mut out);
        let _ = Header::parse(&line).map(|header| (header.genome(), header.read_groups()));
    }
}

#[test]
fn a_header_tells_contigs_and_read_groups() {
    let header = header();
    assert_eq!(header.text(), HEADER.as_bytes());
    let genome = header.genome().unwrap();
    assert_eq!(genome.contigs().len(), 4);
    assert!(genome.contigs()[3].alternate && !genome.contigs()[0].alternate);
    let groups = header.read_groups().unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(
        (groups[0].id.as_str(), groups[0].library.as_deref(), groups[0].sample.as_deref()),
        ("lane1", Some("l"), Some("s"))
    );
}

#[test]
fn unusable_headers_are_refused() {
    let genome = |text: &str| Header::parse(text.as_bytes()).and_then(|header| header.genome()).unwrap_err();
    assert!(matches!(genome("@SQ\tLN:5\n"), HeaderError::MissingTag { line: 1, tag: "SN", .. }));
    assert!(matches!(genome("@HD\tVN:1.6\n@SQ\tSN:a\n"), HeaderError::MissingTag { line: 2, tag: "LN", .. }));
    for length in ["0", "2147483648", "x", "+5"] {
        assert!(matches!(genome(&format!("@SQ\tSN:a\tLN:{length}")), HeaderError::ContigLength { .. }), "{length}");
    }
    assert_eq!(genome("@SQ\tSN:a\tLN:5\n@SQ\tSN:a\tLN:6\n"), HeaderError::DuplicateContig { contig: "a".into() });
    let groups = Header::parse(b"@RG\tID:x\n@RG\tID:x\n").unwrap().read_groups();
    assert_eq!(groups, Err(HeaderError::DuplicateId { kind: "RG", id: "x".into() }));
    for text in ["SQ\tSN:a", "@SQ SN:a", "@", "\n", "@HD\tVN:1\n\n@SQ\tSN:a"] {
        assert!(matches!(Header::parse(text.as_bytes()), Err(HeaderError::Line { .. })), "{text:?}");
    }
}

#[test]
fn coordinate_order_is_stated_once() {
    for (before, after) in [
        ("", "@HD\tVN:1.6\tSO:coordinate\n"),
        ("@CO\tx\n", "@HD\tVN:1.6\tSO:coordinate\n@CO\tx\n"),
        ("@HD\tVN:1.3\n", "@HD\tVN:1.3\tSO:coordinate\n"),
        ("@HD\tVN:1.5\tSO:unsorted\tGO:query\n", "@HD\tVN:1.5\tSO:coordinate\n"),
        ("@HD\tVN:1.5\tGO:none\tSO:queryname\tSS:queryname:natural\txx:y\n", "@HD\tVN:1.5\tSO:coordinate\txx:y\n"),
    ] {
        let mut header = Header::parse(before.as_bytes()).unwrap();
        header.set_coordinate_sorted();
        assert_eq!(String::from_utf8(header.text()).unwrap(), after);
    }
}

#[test]
fn programs_are_chained_to_every_end_as_samtools_does() {
    needs!("samtools");
    let before = "@PG\tID:a\tPN:a\n@PG\tID:b\tPP:a\n@PG\tID:c\n@PG\tID:samtools\tPP:c\n";
    let mut header = Header::parse(before.as_bytes()).unwrap();
    header.add_program("samtools", &[("VN", "1"), ("CL", "x\ty")]);
    let tail = "@PG\tID:samtools.1\tPN:samtools\tPP:b\tVN:1\tCL:x y\n@PG\tID:samtools.2\tPN:samtools\tPP:samtools\tVN:1\tCL:x y\n";
    assert_eq!(String::from_utf8(header.text()).unwrap(), format!("{before}{tail}"));
    let mut empty = Header::default();
    empty.add_program("godwit", &[]);
    assert_eq!(empty.text(), b"@PG\tID:godwit\tPN:godwit\n");

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sam");
    std::fs::write(&path, before).unwrap();
    let theirs = samtools(&["view", "-H", path_text(&path)]);
    let ids = |text: &str| -> Vec<String> {
        let fields = text.lines().filter(|line| line.starts_with("@PG"));
        fields.map(|line| line.split("\tVN").next().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&String::from_utf8(theirs).unwrap()), ids(&String::from_utf8(header.text()).unwrap()));
}

#[test]
fn buffers_of_lines_hold_the_whole_file_in_any_compression_and_size() {
    let directory = tempfile::tempdir().unwrap();
    let sam = sam_records::random_sam(3, 900);
    let (plain, gzip, bgzf) =
        (directory.path().join("a.sam"), directory.path().join("a.sam.gz"), directory.path().join("a.sam.bgz"));
    // Remove the line feed of the last line.
    let bytes = &sam.as_bytes()[..sam.len() - 1];
    std::fs::write(&plain, bytes).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(std::fs::File::create(&gzip).unwrap(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap();
    let mut writer = godwit_io::bgzf::Writer::new(std::fs::File::create(&bgzf).unwrap(), 1);
    writer.write_bytes(bytes).unwrap();
    writer.finish_file().unwrap();
    for path in [plain, gzip, bgzf] {
        assert_eq!(detect_path_format(&path), AlignmentFormat::Sam);
        for max_bytes in [1, 1000, 1 << 20] {
            let mut reader = Reader::open(&path, 2).unwrap();
            assert_eq!(reader.header().text(), HEADER.as_bytes());
            let (mut lines, mut next_line) = (HEADER.as_bytes().to_vec(), 7);
            while let Some(chunk) = reader.next_lines(max_bytes).unwrap() {
                assert_eq!(chunk.first_line_number, next_line);
                assert_eq!(
                    chunk.lines().count(),
                    chunk.bytes.strip_suffix(b"\n").unwrap_or(&chunk.bytes).split(|b| *b == b'\n').count()
                );
                next_line += chunk.lines().count() as u64;
                lines.extend_from_slice(&chunk.bytes);
            }
            assert!(lines == bytes, "{} by {max_bytes}", path.display());
        }
    }
}

fn detect_path_format(path: &std::path::Path) -> AlignmentFormat {
    let mut input = godwit_io::bgzf::Reader::open_any(path, 1, false).unwrap();
    let format = detect_format(&mut input);
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut input, &mut rest).unwrap();
    assert_eq!(rest.is_empty(), std::fs::metadata(path).unwrap().len() == 0, "looking consumes nothing");
    format
}

#[test]
fn files_are_told_apart_by_content() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for (content, format) in [
        (&b"CRAM\x03\0"[..], AlignmentFormat::Cram),
        (b"@CO\tfree text\n", AlignmentFormat::Sam),
        (VALID_LINE.as_bytes(), AlignmentFormat::Sam),
        (b"@read1\tx\nACGT\n+\nIIII\n", AlignmentFormat::Unknown),
        (b"@AB\tBC:Z:ACGT\nACGT\n+\nIIII\n", AlignmentFormat::Unknown),
        (b"@r\ta\tb\tc\td\te\tf\tg\th\ti\tj\tk\nACGT\n+\nIIII\n", AlignmentFormat::Unknown),
        (b">r\ta\tb\tc\td\te\tf\tg\th\ti\tj\tk\nACGT\n", AlignmentFormat::Unknown),
        (b"", AlignmentFormat::Unknown),
        (b"BAM\x01 but not compressed", AlignmentFormat::Bam),
    ] {
        std::fs::write(&path, content).unwrap();
        assert_eq!(detect_path_format(&path), format, "{}", content.escape_ascii());
    }
}

#[test]
fn a_file_of_header_only_or_of_lines_only_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sam");
    std::fs::write(&path, HEADER.trim_end()).unwrap();
    let mut reader = Reader::open(&path, 1).unwrap();
    assert_eq!((reader.header().text(), reader.next_lines(100).unwrap()), (HEADER.as_bytes().to_vec(), None));
    std::fs::write(&path, format!("{VALID_LINE}\n@not a header line\n")).unwrap();
    let mut reader = Reader::open(&path, 1).unwrap();
    let chunk = reader.next_lines(1 << 20).unwrap().unwrap();
    assert_eq!((chunk.first_line_number, chunk.lines().count()), (1, 2));
}
