//! Tests of damaged text: the error, and the record and line that it names.

use super::*;

/// Text of two valid records, which tests put before a damaged record.
const TWO_VALID_RECORDS: &str = "@a\nACGT\n+\nIIII\n@b\nAC\n+\nII\n";

fn third_record_error(text: &str) -> FastqError {
    let error = parse_error(format!("{TWO_VALID_RECORDS}{text}"));
    let message = error.to_string();
    assert!(message.contains("record 3 (line ") && message.contains("reads.fq"), "{message}");
    error
}

#[test]
fn a_file_without_reads_is_empty() {
    let blank_gzip = [gzip(b""), gzip(b"\n")].concat();
    let files: [&[u8]; 7] = [b"", b"\n", b"\r\n\n", &gzip(b""), &blank_gzip, &bgzf(b"", 100), &bgzf(b"\n", 100)];
    for content in files {
        let error = parse_error(content);
        assert!(matches!(&error, FastqError::Empty { file } if file.ends_with("reads.fq")), "{error}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = read_lane(&[PathBuf::from("/nowhere/reads.fq")], &strict_options()).expect_err("no such file");
    assert!(matches!(error, FastqError::Open { .. }));
    assert!(error.to_string().contains("/nowhere/reads.fq"));
    let files = TestDirectory::new();
    let error = read_lane(&[files.path(".")], &strict_options()).expect_err("a directory");
    assert!(matches!(error, FastqError::Read { .. }), "{error}");
}

#[test]
fn a_lane_has_one_file_or_two() {
    for count in [0, 3] {
        let error =
            read_lane(&vec![PathBuf::from("x"); count], &strict_options()).expect_err("a wrong number of files");
        assert!(matches!(error, FastqError::FileCount { count: named } if named == count));
    }
}

#[test]
fn bases_and_qualities_must_be_equally_many() {
    for (quality, count) in [("III", 3), ("IIIII", 5), ("", 0)] {
        match third_record_error(&format!("@c/1 x\nACGT\n+\n{quality}\n@d\nA\n+\nI\n")) {
            FastqError::LengthMismatch { location, name, bases: 4, qualities } => {
                assert_eq!((location.record, location.line, name.as_str(), qualities), (3, 12, "c", count));
            }
            other => panic!("{other}"),
        }
    }
    assert!(matches!(
        third_record_error("@c\nACGT\n+\nIII"),
        FastqError::LengthMismatch { bases: 4, qualities: 3, .. }
    ));
    assert!(matches!(third_record_error("@c\n\n+\nI\n"), FastqError::LengthMismatch { bases: 0, qualities: 1, .. }));
    assert!(matches!(
        third_record_error("@c\nAC\nGT\n+\nII\nIII\n"),
        FastqError::LengthMismatch { bases: 4, qualities: 5, .. }
    ));
    assert!(matches!(
        third_record_error("@c\nAC\nGT\n+\nII\n"),
        FastqError::LengthMismatch { bases: 4, qualities: 2, .. }
    ));
    assert!(matches!(
        third_record_error("@c\nAC\nGT\n+\nII\n\nII\n"),
        FastqError::LengthMismatch { bases: 4, qualities: 2, .. }
    ));
}

#[test]
fn the_next_record_is_never_taken_for_the_end_of_short_qualities() {
    // The title line of the next record is exactly as long as the missing qualities.
    for text in ["@c\nACGTAC\n+\nIII\n@ef\nACGT\n+\nIIII\n", "@c\nACGTACGT\n+\nII\n@f\nACGT\n+\nIIII\n"] {
        match third_record_error(text) {
            FastqError::LengthMismatch { location, name, qualities, .. } => {
                assert_eq!((location.line, name.as_str(), qualities < 4), (12, "c", true), "{text:?}");
            }
            other => panic!("{text:?}: {other}"),
        }
    }
}

#[test]
fn a_record_cut_short_is_refused() {
    let cases = [("@c", "sequence"), ("@c\n", "sequence"), ("@c\nACGT", "'+' line"), ("@c\nACGT\n+", "qualities")];
    for (text, expected) in cases {
        match third_record_error(text) {
            FastqError::TruncatedRecord { missing, .. } => assert_eq!(missing, expected),
            other => panic!("{text}: {other}"),
        }
    }
}

#[test]
fn a_record_starts_with_an_at_sign() {
    let error = third_record_error("c\nA\n+\nI\n");
    assert!(matches!(error, FastqError::NoTitle { expected: b'@', found: b'c', .. }));
    assert!(error.to_string().ends_with("starts with 'c', not with '@'"), "{error}");
    assert!(matches!(third_record_error(">c\nACGT\n"), FastqError::NoTitle { expected: b'@', found: b'>', .. }));
    assert!(matches!(parse_error("BAM\x01"), FastqError::NoTitle { expected: b'@', found: b'B', .. }));
    assert!(matches!(parse_error(vec![0; 4096]), FastqError::NoTitle { found: 0, .. }));
    assert!(matches!(parse_error(">a\nACGT\n@b\nA\n+\nI\n"), FastqError::NoTitle { expected: b'>', found: b'@', .. }));
}

#[test]
fn a_blank_line_within_the_file_is_refused() {
    for (text, line) in
        [("\n@c\nA\n+\nI\n", 9), ("@c\n\nA\n+\nI\n", 10), ("@c\nA\n\n+\nI\n", 11), ("@c\n\n\n+\nI\n", 10)]
    {
        match third_record_error(text) {
            FastqError::BlankLine { location } => assert_eq!(location.line, line, "{text:?}"),
            other => panic!("{text:?}: {other}"),
        }
    }
    assert!(matches!(parse_error(">a\nAC\n\n>b\nAC\n"), FastqError::BlankLine { .. }));
    assert!(matches!(parse_error(">a\n\nAC\n"), FastqError::BlankLine { .. }));
}

#[test]
fn a_record_without_qualities_among_fastq_is_refused() {
    assert!(matches!(third_record_error("@c\nACGT\n@d\nA\n+\nI\n"), FastqError::MissingPlus { .. }));
    assert!(matches!(third_record_error("@c\n@d\nA\n+\nI\n"), FastqError::MissingPlus { .. }));
}

#[test]
fn a_plus_line_with_another_title_is_refused_unless_lenient() {
    let text = format!("{TWO_VALID_RECORDS}@c x\nAC\n+c y\nII\n");
    let error = parse_error(&text);
    assert!(
        matches!(&error, FastqError::PlusLineDiffers { location, name } if location.line == 11 && name == "c"),
        "{error}"
    );
    assert_eq!(
        read_lane_of_text(&text, &lenient_options()).expect("lenient").reads[2],
        new_read("c", Some("x"), "AC", Some("II"))
    );
}

#[test]
fn lenient_relaxes_nothing_else() {
    for text in ["@a\nACGT\n+\nIII\n", "@a\nA\n+\nI\n\n@b\nA\n+\nI\n", "@a\nA-\n+\nII\n", "@\nA\n+\nI\n", ""] {
        assert!(read_lane_of_text(text, &lenient_options()).is_err(), "{text:?}");
    }
    assert!(
        read_lane_of_text([gzip(TWO_VALID_RECORDS.as_bytes()), b"x".to_vec()].concat(), &lenient_options()).is_err()
    );
    let bytes = bgzf(TWO_VALID_RECORDS.as_bytes(), 100);
    assert!(read_lane_of_text(&bytes[..bytes.len() - 1], &lenient_options()).is_err());
}

#[test]
fn bytes_that_do_not_belong_are_refused() {
    assert!(matches!(third_record_error("@c\nAC-T\n+\nIIII\n"), FastqError::InvalidBase { base: 3, found: b'-', .. }));
    assert!(matches!(third_record_error("@c\nAC T\n+\nIIII\n"), FastqError::InvalidBase { base: 3, found: b' ', .. }));
    assert!(matches!(
        third_record_error("@c\nA0123\n+\nIIIII\n"),
        FastqError::InvalidBase { base: 2, found: b'0', .. }
    ));
    assert!(matches!(third_record_error("@c\nAC\nG\0\n+\nIIII\n"), FastqError::InvalidBase { base: 4, found: 0, .. }));
    assert!(matches!(
        third_record_error("@c\nACGT\n+\nII I\n"),
        FastqError::InvalidQuality { quality: 3, found: b' ', .. }
    ));
    assert!(matches!(
        third_record_error("@c\nACGT\n+\nIII\x7f\n"),
        FastqError::InvalidQuality { quality: 4, found: 0x7f, .. }
    ));
    assert!(matches!(third_record_error("@c\u{e9}\nA\n+\nI\n"), FastqError::InvalidName { found: 0xc3, .. }));
    assert!(matches!(third_record_error("@c\0\nA\n+\nI\n"), FastqError::InvalidName { found: 0, .. }));
    assert!(matches!(third_record_error("@c d\x1b\nA\n+\nI\n"), FastqError::InvalidComment { found: 0x1b, .. }));
    assert!(matches!(third_record_error("@\nA\n+\nI\n"), FastqError::NoName { .. }));
    assert!(matches!(third_record_error("@ c\nA\n+\nI\n"), FastqError::NoName { .. }));
    let long = "n".repeat(255);
    match third_record_error(&format!("@{long}\nA\n+\nI\n")) {
        FastqError::NameTooLong { name_bytes: 255, name, .. } => assert!(long.starts_with(&name) && name.len() < 100),
        other => panic!("{other}"),
    }
    assert!(third_record_error("@c\nAC-T\n+\nIIII\n").to_string().starts_with("base 3 of record 3 (line 10) of "));
}

#[test]
fn mates_out_of_step_are_named() {
    let files = TestDirectory::new();
    let paths = [
        files.write("R1.fq", format!("{TWO_VALID_RECORDS}@c/1 x\nA\n+\nI\n@d/1\nA\n+\nI\n")),
        files.write("R2.fq", format!("{TWO_VALID_RECORDS}@d/2 y\nA\n+\nI\n@c/2\nA\n+\nI\n")),
    ];
    let error = read_lane(&paths, &strict_options()).expect_err("mates are out of step");
    assert!(error.to_string().contains("record 3: ") && error.to_string().contains(" has read c but "), "{error}");
    match error {
        FastqError::MatesOutOfStep { record: 3, file1, name1, file2, name2 } => {
            assert_eq!((file1, file2), (paths[0].clone(), paths[1].clone()));
            assert_eq!((name1.as_str(), name2.as_str()), ("c", "d"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_interleaved_file_out_of_step_or_odd_is_named() {
    let files = TestDirectory::new();
    let read = |text: &str| {
        let input = bgzf::Reader::open_any(&files.write("both.fq", text), 1, false).expect("the file opens");
        let mut reader = LaneReader::new(LaneInput::Interleaved(input), &strict_options());
        reader.next().map(|event| match event {
            Some(LaneEvent::Reads(batch)) => rows(&batch).len(),
            other => panic!("{other:?}"),
        })
    };
    let pair = "@a/1 x\nAC\n+\nII\n@a/2 y\nGG\n+\nII\n";
    assert_eq!(read(&pair.repeat(2)).expect("both pairs are sound"), 4);
    let error = read(&format!("{pair}@b/1\nA\n+\nI\n")).expect_err("a mate is missing");
    assert!(matches!(&error, FastqError::InterleavedOdd { records: 3, name, .. } if name == "b"), "{error}");
    let error = read(&format!("{pair}@b/1\nA\n+\nI\n{pair}")).expect_err("a mate is missing");
    assert!(error.to_string().starts_with("record 4 (line 13) of "), "{error}");
    assert!(matches!(error, FastqError::InterleavedOutOfStep { .. }));
}

#[test]
fn a_file_that_ends_before_its_mate_is_named() {
    let files = TestDirectory::new();
    let (short, long) = (files.write("short.fq", fastq_text(5, &[10])), files.write("long.fq", fastq_text(6, &[10])));
    for paths in [[short.clone(), long.clone()], [long.clone(), short.clone()]] {
        let error = read_lane(&paths, &strict_options()).expect_err("counts differ");
        match &error {
            FastqError::UnequalCounts { shorter, records: 5, longer } => assert_eq!((shorter, longer), (&short, &long)),
            other => panic!("{other}"),
        }
    }
    let empty = files.write("empty.fq", "");
    for paths in [[empty.clone(), long.clone()], [long, empty.clone()]] {
        let error = read_lane(&paths, &strict_options()).expect_err("one file is empty");
        assert!(matches!(&error, FastqError::Empty { file } if *file == empty), "{error}");
    }
}

#[test]
fn nothing_follows_an_error() {
    let files = TestDirectory::new();
    let path = files.write("reads.fq", format!("{TWO_VALID_RECORDS}@c\nACGT\n+\nIII\n"));
    let mut reader =
        LaneReader::open(&[path], &LaneOptions { batch_bytes: 1, ..strict_options() }).expect("the file opens");
    for _ in 0..2 {
        assert!(matches!(reader.next(), Ok(Some(LaneEvent::Reads(_)))));
    }
    assert!(reader.next().is_err());
    assert!(matches!(reader.next(), Ok(None)));
}
