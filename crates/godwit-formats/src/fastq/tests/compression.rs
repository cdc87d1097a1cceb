//! Tests of the detection and the strict reading of plain text, gzip and BGZF.

use godwit_tests::needs;

use super::*;

fn sample_text() -> Vec<u8> {
    fastq_text(20_000, &[151, 100, 36]).into_bytes()
}

#[test]
fn the_same_text_is_the_same_lane_however_it_is_compressed() {
    let text = sample_text();
    let expected = read_lane_of_text(&text, &strict_options()).expect("the text is sound");
    assert_eq!(expected.reads.len(), 20_000);
    let (head, tail) = text.split_at(text.len() / 3);
    let padded = [gzip(&text), vec![0; 300_000]].concat();
    let shapes: [(&str, Vec<u8>); 9] = [
        ("one gzip member", gzip(&text)),
        ("many gzip members", text.chunks(777_777).flat_map(gzip).collect()),
        ("an empty gzip member in the middle", [gzip(head), gzip(b""), gzip(tail)].concat()),
        ("gzip with zero padding", padded),
        ("bgzf", bgzf(&text, 65_280)),
        ("bgzf of small blocks", bgzf(&text, 500)),
        ("bgzf behind bgzf", [bgzf(head, 60_000), bgzf(tail, 10_000)].concat()),
        ("bgzf, then gzip", [bgzf_blocks(head, 60_000), gzip(tail)].concat()),
        ("gzip, then bgzf", [gzip(head), bgzf(tail, 60_000)].concat()),
    ];
    for (shape, bytes) in shapes {
        for decompress_threads in [0, 1, 3] {
            let options = LaneOptions { decompress_threads, ..strict_options() };
            let lane = read_lane_of_text(&bytes, &options).unwrap_or_else(|error| panic!("{shape}: {error}"));
            assert!(lane == expected, "{shape} on {decompress_threads} threads");
        }
    }
}

#[test]
fn what_is_read_ahead_is_not_counted_as_returned() {
    let files = TestDirectory::new();
    let record = b"@r\nACGTACGTACGTACGTACGTACGTACGTACGT\n+\nIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIII\n";
    let text = record.repeat(100_000);
    let (plain, zipped, blocks) = (text.clone(), gzip(&text), bgzf(&text, 60_000));
    for (name, bytes) in [("plain", plain), ("gzip", zipped), ("bgzf", blocks)] {
        let path = files.write(name, &bytes);
        let options = LaneOptions { batch_bytes: 100_000, ..strict_options() };
        let mut reader = LaneReader::open(&[path], &options).expect("the file opens");
        let mut reads = 0;
        while let Some(event) = reader.next().expect("the file is sound") {
            if let LaneEvent::Reads(batch) = event {
                reads += batch.num_rows();
            }
            let (bytes_returned, true_share) = (reader.compressed_bytes_returned() as f64, reads as f64 / 100_000.0);
            let share = bytes_returned / bytes.len() as f64;
            assert!((share - true_share).abs() < 0.05, "{name}: {share} of {true_share}");
        }
        assert_eq!(reader.compressed_bytes_returned(), bytes.len() as u64, "{name}");
    }
}

#[test]
fn bgzip_output_is_read() {
    needs!("bgzip");
    let files = TestDirectory::new();
    let path = files.write("reads.fq", sample_text());
    let output = std::process::Command::new("bgzip").arg("-c").arg(&path).output().expect("bgzip runs");
    let expected = read_lane(&[path], &strict_options()).expect("the text is sound");
    assert!(read_lane_of_text(output.stdout, &strict_options()).expect("bgzip writes sound files") == expected);
}

#[test]
fn progress_counts_the_bytes_of_all_files() {
    let files = TestDirectory::new();
    let (bytes1, bytes2) = (gzip(&sample_text()), bgzf(&sample_text(), 60_000));
    let paths = [files.write("1", &bytes1), files.write("2", &bytes2)];
    let mut reader = LaneReader::open(&paths, &strict_options()).expect("files open");
    let total = (bytes1.len() + bytes2.len()) as u64;
    assert_eq!(reader.compressed_bytes_total(), Some(total));
    while reader.next().expect("files are sound").is_some() {}
    assert_eq!(reader.compressed_bytes_read(), total);
}

#[test]
fn truncated_gzip_is_refused_wherever_it_is_cut() {
    let text = fastq_text(2_000, &[100]).into_bytes();
    let bytes = [gzip(&text[..100_000]), gzip(&text[100_000..])].concat();
    let first_member = gzip(&text[..100_000]).len();
    for cut in
        [3, 9, 10, 11, 1000, first_member - 1, first_member + 5, bytes.len() - 9, bytes.len() - 8, bytes.len() - 1]
    {
        match parse_error(&bytes[..cut]) {
            FastqError::TruncatedGzip { record, offset, .. } => {
                assert_eq!(offset, cut as u64);
                assert!(record <= 2_001);
            }
            other => panic!("cut at {cut}: {other}"),
        }
    }
}

#[test]
fn truncated_bgzf_is_refused_wherever_it_is_cut() {
    let text = fastq_text(2_000, &[100]).into_bytes();
    let bytes = bgzf(&text, 10_000);
    let first_block = bgzf_block(&text[..10_000]).len();
    for cut in [13, 17, 18, 100, first_block - 1, first_block + 11, first_block + 14, bytes.len() - 29, bytes.len() - 1]
    {
        let error = parse_error(&bytes[..cut]);
        assert!(
            matches!(error, FastqError::TruncatedGzip { offset, .. } if offset == cut as u64),
            "cut at {cut}: {error}"
        );
    }
}

#[test]
fn the_record_before_a_truncation_is_counted() {
    let text = fastq_text(100, &[100]).into_bytes();
    let bytes = [bgzf_block(&text), bgzf_block(&text)].concat();
    let error = parse_error(&bytes[..bytes.len() - 1]);
    assert!(matches!(error, FastqError::TruncatedGzip { record: 101, .. }), "{error}");
    assert!(error.to_string().contains("reads.fq is truncated"), "{error}");
}

#[test]
fn a_missing_bgzf_end_is_a_truncation_unless_lenient() {
    let text = fastq_text(2_000, &[100]);
    let bytes = bgzf_blocks(text.as_bytes(), 60_000);
    assert!(matches!(parse_error(&bytes), FastqError::MissingBgzfEof { records: 2_000, .. }));
    assert_eq!(read_lane_of_text(&bytes, &lenient_options()).expect("lenient").reads.len(), 2_000);
}

#[test]
fn a_flipped_bit_in_compressed_data_never_changes_a_read() {
    let text = fastq_text(60, &[50]).into_bytes();
    let expected = parse_reads(&text);
    for sound in [gzip(&text), bgzf(&text, 1_500)] {
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x10;
            // Some bits do not affect the text: modification time and operating system in the header, and padding after
            // the last deflate symbol.
            if let Ok(lane) = read_lane_of_text(&bytes, &strict_options()) {
                assert_eq!(lane.reads, expected, "flipped at {at}");
            }
        }
    }
}

#[test]
fn a_damaged_checksum_names_the_file_and_where() {
    let text = fastq_text(100, &[100]).into_bytes();
    let mut bytes = gzip(&text);
    let crc = bytes.len() - 8;
    bytes[crc] ^= 1;
    let error = parse_error(&bytes);
    assert!(matches!(error, FastqError::CorruptGzip { record: 101, .. }), "{error}");

    let block = bgzf_block(&text);
    let mut bytes = [block.clone(), block.clone(), bgzf_block(b"")].concat();
    let crc = 2 * block.len() - 8;
    bytes[crc] ^= 1;
    let error = parse_error(&bytes);
    let expected = block.len() as u64;
    assert!(matches!(error, FastqError::CorruptGzip { record: 101, offset, .. } if offset == expected), "{error}");
}

#[test]
fn bytes_after_or_between_members_are_refused() {
    let text = fastq_text(100, &[100]).into_bytes();
    for sound in [gzip(&text), bgzf(&text, 60_000)] {
        let end = sound.len() as u64;
        let cases = [
            (b"garbage".to_vec(), end),
            (b"\x1f".to_vec(), end),
            ([vec![0; 10], sound.clone()].concat(), end + 10),
            ([b"@".to_vec(), sound.clone()].concat(), end),
        ];
        for (tail, at) in cases {
            let error = parse_error([sound.clone(), tail].concat());
            assert!(
                matches!(error, FastqError::TrailingGarbage { record: 101, offset, .. } if offset == at),
                "{error}"
            );
        }
    }
}

#[test]
fn other_compressions_are_named() {
    let error = parse_error(b"BZh91AY&SY");
    assert!(matches!(error, FastqError::UnsupportedCompression { format: "bzip2", .. }), "{error}");
    assert!(matches!(parse_error(b"\x28\xb5\x2f\xfd...."), FastqError::UnsupportedCompression { format: "zstd", .. }));
}

#[test]
fn dropping_a_reader_in_the_middle_ends_its_threads() {
    let files = TestDirectory::new();
    let text = fastq_text(200_000, &[100]).into_bytes();
    for bytes in [text.clone(), gzip(&text), bgzf(&text, 65_280)] {
        let paths = [files.write("1", &bytes), files.write("2", &bytes)];
        for events in 0..3 {
            let mut reader = LaneReader::open(&paths, &strict_options()).expect("files open");
            for _ in 0..events {
                assert!(reader.next().expect("files are sound").is_some());
            }
            // Dropping the reader joins its threads. A thread that does not end would block the test here.
            drop(reader);
        }
    }
}

#[test]
fn pipes_are_read_and_a_silent_one_does_not_hold_up_the_drop() {
    needs!("mkfifo");
    let files = TestDirectory::new();
    let pipe = files.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let text = fastq_text(50_000, &[100]);
    let write = |end: &'static str| {
        let (pipe, bytes) = (pipe.clone(), gzip(text.as_bytes()));
        std::thread::spawn(move || {
            let mut file = std::fs::OpenOptions::new().write(true).open(pipe).expect("the pipe opens");
            if end == "silent" {
                file.write_all(&bytes[..1000]).expect("the pipe takes bytes");
                return Some(file);
            }
            file.write_all(&bytes).expect("the pipe takes bytes");
            None
        })
    };
    let writer = write("whole");
    let lane = read_lane(std::slice::from_ref(&pipe), &strict_options()).expect("the pipe is sound");
    assert_eq!(lane.reads.len(), 50_000);
    drop(writer.join());

    let writer = write("silent");
    let reader = LaneReader::open(std::slice::from_ref(&pipe), &strict_options()).expect("the pipe opens");
    assert_eq!(reader.compressed_bytes_total(), None);
    let held_open = writer.join().expect("the writer wrote");
    drop(reader);
    drop(held_open);
}
