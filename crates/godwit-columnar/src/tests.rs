use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt8Type, UInt16Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use godwit_formats::sam::{Header, LineEncoder};
use godwit_io::random_access::LocalFile;
use godwit_model::schema::alignment_columns::{self, TAG_COLUMNS, TagType};
use godwit_model::schema::{hit_columns, variant_columns};
use godwit_model::{RawRecord, flags};
use godwit_tests::random::Random;
use godwit_tests::sam_records;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;

use super::*;

fn header() -> Header {
    Header::parse(sam_records::HEADER.as_bytes()).unwrap()
}

fn records(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut encoder = LineEncoder::new(&header().genome().unwrap());
    let mut numbers = Random::new(seed);
    let packed = |index| {
        let mut record = Vec::new();
        encoder.encode(sam_records::random_line(&mut numbers, index).as_bytes(), &mut record).unwrap();
        record
    };
    (0..count).map(packed).collect()
}

/// A record as `samtools view` prints it: its fields, then the name, type and value of each tag.
#[derive(Debug, PartialEq)]
struct SamView {
    name: Vec<u8>,
    numbers: [i64; 7],
    cigar: String,
    bases: Vec<u8>,
    qualities: Option<Vec<u8>>,
    tags: Vec<(Vec<u8>, Vec<u8>)>,
}

fn integer_text(kind: u8, value: &[u8]) -> Vec<u8> {
    let wide = |negative: bool| {
        let mut bytes = [if negative { 0xff } else { 0 }; 8];
        bytes[..value.len()].copy_from_slice(value);
        i64::from_le_bytes(bytes)
    };
    let signed = kind.is_ascii_lowercase() && value.last().is_some_and(|byte| byte & 0x80 != 0);
    wide(signed).to_string().into_bytes()
}

fn sam_view_tag(name: [u8; 2], kind: u8, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let is_integer = b"cCsSiI".contains(&kind);
    (vec![name[0], name[1], kind], if is_integer { integer_text(kind, value) } else { value.to_vec() })
}

fn sam_view(record: &[u8], flag: u16) -> SamView {
    let record = RawRecord::from_trusted_bytes(record);
    let letter = |at: usize| b"=ACMGRSVTWYHKDBN"[usize::from(record.packed_bases()[at / 2] >> (4 * (1 - at % 2)) & 15)];
    let qualities = Some(record.qualities().to_vec()).filter(|found| found.first().is_some_and(|first| *first != 0xff));
    SamView {
        name: record.name().to_vec(),
        numbers: [
            i64::from(flag),
            i64::from(record.contig()),
            i64::from(record.position()),
            i64::from(record.mapping_quality()),
            i64::from(record.mate_contig()),
            i64::from(record.mate_position()),
            i64::from(record.template_length()),
        ],
        cigar: record
            .cigar()
            .map(|op| format!("{}{}", op.bases(), char::from(b"MIDNSHP=X"[usize::from(op.code())])))
            .collect(),
        bases: (0..record.sequence_length()).map(letter).collect(),
        qualities,
        tags: record
            .iter_tags()
            .filter(|tag| !(record.has_cigar_in_tag() && &tag.name == b"CG"))
            .map(|tag| sam_view_tag(tag.name, tag.type_code, tag.value))
            .collect(),
    }
}

/// Returns the tags of a row, joined from the columns as docs/formats/alignments.md describes.
fn row_tags(batch: &RecordBatch, row: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let others = column("other_tags").as_binary::<i32>();
    let mut others = if others.is_null(row) { &[][..] } else { others.value(row) };
    let mut seen = Vec::new();
    let mut tags = Vec::new();
    for entry in column("tag_layout").as_string::<i32>().value(row).as_bytes().chunks(3) {
        let (name, kind) = ([entry[0], entry[1]], entry[2]);
        let of_column = TAG_COLUMNS.iter().find(|column| {
            column.tag == name
                && if column.tag_type == TagType::Text { kind == b'Z' } else { b"cCsSiI".contains(&kind) }
        });
        let label = match of_column {
            Some(column) => Some(column.name.to_owned()),
            None if &name == b"RG" && kind == b'Z' => Some("read_group".to_owned()),
            None => None,
        };
        let label = label.filter(|label| !seen.contains(label));
        let value =
            label.as_deref().map(column).filter(|values| !values.is_null(row)).map(|values| match values.data_type() {
                arrow_schema::DataType::Int32 => values.as_primitive::<Int32Type>().value(row).to_string(),
                arrow_schema::DataType::Utf8 => values.as_string::<i32>().value(row).to_owned(),
                _ => {
                    let names = values.as_dictionary::<Int32Type>();
                    names.values().as_string::<i32>().value(names.keys().value(row) as usize).to_owned()
                }
            });
        seen.extend(label);
        match value {
            Some(value) => tags.push((entry.to_vec(), value.into_bytes())),
            None => {
                // Build a record with only these tags, to use the tag iterator of records.
                let fixed = [vec![0; 8], vec![1], vec![0; 23], vec![0], others.to_vec()].concat();
                let tag = RawRecord::from_trusted_bytes(&fixed).iter_tags().next().unwrap();
                assert_eq!([tag.name[0], tag.name[1], tag.type_code], entry);
                tags.push(sam_view_tag(tag.name, tag.type_code, tag.value));
                others = &others[tag.end - tag.start..];
            }
        }
    }
    assert!(others.is_empty());
    tags
}

fn sam_view_of_row(batch: &RecordBatch, layout: &AlignmentLayout, row: usize) -> SamView {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let int = |name: &str| i64::from(column(name).as_primitive::<Int32Type>().value(row));
    let text = |name: &str| {
        let values = column(name).as_string::<i32>();
        if values.is_null(row) { "" } else { values.value(row) }.to_owned()
    };
    let contig = |name: &str| {
        let values = column(name);
        if values.is_null(row) {
            return -1;
        }
        let value = match values.data_type() {
            arrow_schema::DataType::Utf8 => values.as_string::<i32>().value(row),
            _ => layout.contigs.value(values.as_dictionary::<Int32Type>().keys().value(row) as usize),
        };
        layout.contigs.iter().position(|name| name == Some(value)).unwrap() as i64
    };
    let qualities = column("qualities").as_binary::<i32>();
    SamView {
        name: text("name").into_bytes(),
        numbers: [
            i64::from(column("flags").as_primitive::<UInt16Type>().value(row)),
            contig("contig"),
            int("position"),
            i64::from(column("mapping_quality").as_primitive::<UInt8Type>().value(row)),
            contig("mate_contig"),
            int("mate_position"),
            int("template_length"),
        ],
        cigar: text("cigar"),
        bases: text("bases").into_bytes(),
        qualities: (!qualities.is_null(row)).then(|| qualities.value(row).to_vec()),
        tags: row_tags(batch, row),
    }
}

fn batch(layout: &AlignmentLayout, records: &[Vec<u8>]) -> RecordBatch {
    let mut columns = AlignmentBatchBuilder::new(layout);
    for record in records {
        let record = RawRecord::from_trusted_bytes(record);
        columns.push(record, record.flag() ^ flags::DUPLICATE);
    }
    columns.take_batch().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn nothing_that_sam_shows_is_lost(seed in any::<u64>()) {
        let layout = AlignmentLayout::new(&header()).unwrap();
        let records = records(seed, 60);
        let direct = batch(&layout, &records);
        let mut part = AlignmentParquetWriter::new(&layout, Vec::new()).unwrap();
        part.write(&direct).unwrap();
        let file = part.finish().unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new(temporary_file(file)).unwrap();
        let read: Vec<RecordBatch> = builder.with_batch_size(60).build().unwrap().map(Result::unwrap).collect();
        for (index, record) in records.iter().enumerate() {
            let expected = sam_view(record, RawRecord::from_trusted_bytes(record).flag() ^ flags::DUPLICATE);
            prop_assert_eq!(&sam_view_of_row(&direct, &layout, index), &expected);
            prop_assert_eq!(&sam_view_of_row(&read[0], &layout, index), &expected);
        }
    }
}

fn temporary_file(data: Vec<u8>) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &data).unwrap();
    file
}

#[test]
fn a_tag_given_twice_or_too_large_for_its_column_keeps_its_place() {
    let layout = AlignmentLayout::new(&header()).unwrap();
    let tags = "NM:i:4294967295\tNM:i:3\tMD:Z:5\tRG:Z:nobody\tXS:A:+\tXS:i:-7\tMD:Z:6\tRG:Z:lane1";
    let mut encoder = LineEncoder::new(&header().genome().unwrap());
    let mut record = Vec::new();
    encoder.encode(format!("r\t0\tchr1\t1\t0\t5M\t*\t0\t0\tACGTN\t*\t{tags}").as_bytes(), &mut record).unwrap();
    let batch = batch(&layout, std::slice::from_ref(&record));
    assert_eq!(sam_view_of_row(&batch, &layout, 0), sam_view(&record, flags::DUPLICATE));
    assert!(batch.column_by_name("tag_NM").unwrap().is_null(0));
    assert_eq!(batch.column_by_name("tag_XS").unwrap().as_primitive::<Int32Type>().value(0), -7);
}

#[test]
fn a_name_that_is_no_text_is_refused() {
    let layout = AlignmentLayout::new(&header()).unwrap();
    let mut record = records(1, 1).remove(0);
    record[32] = 0xff;
    let mut columns = AlignmentBatchBuilder::new(&layout);
    columns.push(RawRecord::from_trusted_bytes(&record), 0);
    assert!(matches!(columns.take_batch(), Err(ColumnarError::NotUtf8 { .. })));
}

#[test]
fn memory_of_a_batch_is_recycled_unless_it_is_still_referenced() {
    let layout = AlignmentLayout::new(&header()).unwrap();
    let records = records(1, 30);
    let batch_of = |columns: &mut AlignmentBatchBuilder<&AlignmentLayout>| {
        records.iter().for_each(|record| {
            columns.push(RawRecord::from_trusted_bytes(record), RawRecord::from_trusted_bytes(record).flag())
        });
        columns.take_batch().unwrap()
    };
    let places = |batch: &RecordBatch| {
        let values = |name: &str| batch.column_by_name(name).unwrap().to_data().buffers()[1].as_ptr();
        ["name", "bases", "tag_layout"].map(values)
    };
    for mut columns in
        [AlignmentBatchBuilder::new(&layout), AlignmentBatchBuilder::with_projection(&layout, &[0, 4, 11, 18, 22, 23])]
    {
        let first = batch_of(&mut columns);
        let (of_first, expected) = (places(&first), first.clone());
        columns.recycle(first);
        let second = batch_of(&mut columns);
        let of_second = places(&second);
        assert_eq!(second, expected);
        assert!(of_second.iter().all(|place| !of_first.contains(place)));
        columns.recycle(second);
        let third = batch_of(&mut columns);
        assert_eq!((&third, places(&third)), (&expected, of_second));
    }
}

/// Returns a batch as another process would return it, with names as plain text instead of dictionaries.
fn with_plain_text(batch: &RecordBatch) -> RecordBatch {
    let columns = batch.columns().iter().map(|column| match column.as_dictionary_opt::<Int32Type>() {
        Some(names) => {
            let values = names.values().as_string::<i32>();
            let text = names.keys().iter().map(|key| key.map(|key| values.value(key as usize)));
            std::sync::Arc::new(text.collect::<arrow_array::StringArray>()) as _
        }
        None => column.clone(),
    });
    RecordBatch::try_new(godwit_model::schema::alignment_columns::alignments_without_dictionaries(), columns.collect())
        .unwrap()
}

/// Returns the batch with one column replaced.
fn with_column(batch: &RecordBatch, name: &str, column: arrow_array::ArrayRef) -> RecordBatch {
    let at = batch.schema().index_of(name).unwrap();
    let mut columns = batch.columns().to_vec();
    columns[at] = column;
    RecordBatch::try_new(batch.schema(), columns).unwrap()
}

fn encode_rows(batch: &RecordBatch) -> Result<Vec<Vec<u8>>, RowError> {
    let genome = header().genome().unwrap();
    let mut encoder = RowEncoder::new(&genome, ["lane1"]);
    let rows = AlignmentRows::from_batch(batch)?;
    (0..batch.num_rows()).map(|row| Ok(encoder.encode(&rows, row)?.bytes().to_vec())).collect()
}

/// Returns a copy of a record in which only the duplicate bit differs.
fn toggle_duplicate(record: &[u8]) -> Vec<u8> {
    let flag = RawRecord::from_trusted_bytes(record).flag() ^ flags::DUPLICATE;
    [&record[..14], &flag.to_le_bytes(), &record[16..]].concat()
}

fn encode_line(line: &str) -> Vec<u8> {
    let mut record = Vec::new();
    LineEncoder::new(&header().genome().unwrap()).encode(line.as_bytes(), &mut record).unwrap();
    record
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn unchanged_rows_become_the_bytes_they_were_made_of(seed in any::<u64>()) {
        let layout = AlignmentLayout::new(&header()).unwrap();
        let records = records(seed, 60);
        let expected: Vec<_> = records.iter().map(|record| toggle_duplicate(record)).collect();
        prop_assert_eq!(encode_rows(&with_plain_text(&batch(&layout, &records))).unwrap(), expected);
    }
}

#[test]
fn a_cigar_too_long_for_its_place_comes_back_behind_the_other_tags() {
    let layout = AlignmentLayout::new(&header()).unwrap();
    let (cigar, bases) = ("1M1I".repeat(40_000), "AC".repeat(40_000));
    let record = encode_line(&format!("long\t0\tchr1\t9\t7\t{cigar}\t*\t0\t0\t{bases}\t*\tNM:i:3\tXX:A:y"));
    assert!(RawRecord::from_trusted_bytes(&record).has_cigar_in_tag());
    let batch = with_plain_text(&batch(&layout, std::slice::from_ref(&record)));
    assert_eq!(encode_rows(&batch).unwrap(), [toggle_duplicate(&record)]);
}

#[test]
fn changed_columns_change_records() {
    use arrow_array::{ArrayRef, Int32Array, StringArray};
    let layout = AlignmentLayout::new(&header()).unwrap();
    let tags = "\tXX:f:1.5\tNM:i:3\tMD:Z:5\tRG:Z:lane1";
    let record = encode_line(&format!("r\t0\tchr1\t5\t60\t5M\t*\t0\t0\tACGTN\tIIIII{tags}"));
    let one = with_plain_text(&batch(&layout, &[record]));
    let with = |name: &str, column: ArrayRef| with_column(&one, name, column);
    let integer = |value: Option<i32>| -> ArrayRef { std::sync::Arc::new(Int32Array::from(vec![value])) };
    let text = |value: Option<&str>| -> ArrayRef { std::sync::Arc::new(StringArray::from(vec![value])) };
    let cases = [
        (with("position", integer(Some(6))), "r\t1024\tchr1\t7\t60\t5M\t*\t0\t0\tACGTN\tIIIII", tags),
        // A tag whose column was set to null is dropped, even though the layout names it.
        (
            with("tag_NM", integer(None)),
            "r\t1024\tchr1\t5\t60\t5M\t*\t0\t0\tACGTN\tIIIII",
            "\tXX:f:1.5\tMD:Z:5\tRG:Z:lane1",
        ),
        // A value that is too large for the type of the tag changes the type.
        (
            with("tag_NM", integer(Some(300))),
            "r\t1024\tchr1\t5\t60\t5M\t*\t0\t0\tACGTN\tIIIII",
            "\tXX:f:1.5\tNM:i:300\tMD:Z:5\tRG:Z:lane1",
        ),
        // A tag that the layout does not name is appended as the last tag.
        (
            with("tag_XS", integer(Some(-7))),
            "r\t1024\tchr1\t5\t60\t5M\t*\t0\t0\tACGTN\tIIIII",
            "\tXX:f:1.5\tNM:i:3\tMD:Z:5\tRG:Z:lane1\tXS:i:-7",
        ),
        (with("cigar", text(Some("2S3M"))), "r\t1024\tchr1\t5\t60\t2S3M\t*\t0\t0\tACGTN\tIIIII", tags),
        (with("bases", text(Some("TTTTT"))), "r\t1024\tchr1\t5\t60\t5M\t*\t0\t0\tTTTTT\tIIIII", tags),
        (with("name", text(Some("other"))), "other\t1024\tchr1\t5\t60\t5M\t*\t0\t0\tACGTN\tIIIII", tags),
        (
            with("tag_layout", text(Some(""))),
            "r\t1024\tchr1\t5\t60\t5M\t*\t0\t0\tACGTN\tIIIII",
            "\tNM:i:3\tMD:Z:5\tRG:Z:lane1\tXX:f:1.5",
        ),
    ];
    for (batch, fields, tags) in cases {
        assert_eq!(encode_rows(&batch).unwrap(), [encode_line(&format!("{fields}{tags}"))], "{fields}{tags}");
    }
}

#[test]
fn rows_that_are_no_records_are_refused_by_the_column_that_is_wrong() {
    use arrow_array::{ArrayRef, BinaryArray, Int32Array, StringArray, UInt16Array};
    let layout = AlignmentLayout::new(&header()).unwrap();
    let record = encode_line("r\t0\tchr1\t5\t60\t5M\t=\t9\t0\tACGTN\tIIIII\tNM:i:3\tRG:Z:lane1");
    let one = with_plain_text(&batch(&layout, &[record]));
    let integer = |value: Option<i32>| -> ArrayRef { std::sync::Arc::new(Int32Array::from(vec![value])) };
    let text = |value: Option<&str>| -> ArrayRef { std::sync::Arc::new(StringArray::from(vec![value])) };
    let bytes = |value: &[u8]| -> ArrayRef { std::sync::Arc::new(BinaryArray::from(vec![value])) };
    let flag = |value: u16| -> ArrayRef { std::sync::Arc::new(UInt16Array::from(vec![value])) };
    for (column, value, word) in [
        ("name", text(Some("")), "name"),
        ("name", text(Some("a\tb")), "name"),
        ("contig_id", integer(Some(1)), "contig_id is chr2"),
        ("contig_id", integer(Some(9)), "contig_id is 9"),
        ("contig_id", integer(Some(-1)), "contig_id is -1"),
        ("contig", text(None), "contig is null"),
        ("position", integer(Some(-1)), "position is -1"),
        ("position", integer(Some(900_000)), "position is 900000"),
        ("cigar", text(Some("4M")), "CIGAR"),
        ("cigar", text(Some("5M\t")), "cigar"),
        ("cigar", text(None), "unmapped"),
        ("bases", text(Some("ACG!N")), "SEQ contains 0x21"),
        ("qualities", bytes(b"abc"), "3 qualities"),
        ("qualities", bytes(&[1, 2, 3, 4, 200]), "200"),
        ("mate_contig", text(Some("nowhere")), "nowhere"),
        ("mate_position", integer(Some(-9)), "mate_position is -9"),
        ("read_group", text(Some("nobody")), "nobody"),
        ("tag_MD", text(Some("a\0b")), "tag_MD"),
        ("tag_layout", text(Some("NMCRG")), "tag_layout"),
        ("other_tags", bytes(b"XXi\0"), "other_tags"),
        ("contig_id", integer(None), "contig"),
    ] {
        let refused = encode_rows(&with_column(&one, column, value)).unwrap_err();
        assert!(matches!(refused, RowError::Row { row: 0, .. }) && refused.to_string().contains(word), "{refused}");
    }
    let unmapped = with_column(&one, "flags", flag(4));
    assert!(encode_rows(&unmapped).is_ok());
    let missing = one.project(&(0..20).collect::<Vec<_>>()).unwrap();
    assert!(AlignmentRows::from_batch(&missing).is_err_and(|error| error.to_string().contains("tag_SA")));
    let dictionaries = batch(&layout, &[encode_line("r\t4\t*\t0\t0\t*\t*\t0\t0\tA\tI")]);
    assert!(AlignmentRows::from_batch(&dictionaries).is_err_and(|error| error.to_string().contains("contig")));
}

#[test]
fn a_stream_of_chosen_columns_is_read_as_it_was_filled() {
    let layout = AlignmentLayout::new(&header()).unwrap();
    let records = records(7, 9_000);
    for wanted in [None, Some(&[1usize, 3, 6][..])] {
        let mut stream = AlignmentStreamWriter::new(&layout, wanted, Vec::new()).unwrap();
        for record in records.iter().map(|record| RawRecord::from_trusted_bytes(record)) {
            stream.push(record, record.flag()).unwrap();
        }
        let (bytes, rows) = stream.finish().unwrap();
        assert_eq!(rows, 9_000);
        let mut reader = arrow_ipc::reader::StreamReader::try_new(&bytes[..], None).unwrap();
        assert_eq!(reader.schema().metadata()["sam.header"], layout.header);
        assert_eq!(reader.schema().fields().len(), wanted.map_or(24, <[usize]>::len));
        let flags: Vec<u16> = reader
            .by_ref()
            .flat_map(|batch| {
                let batch = batch.unwrap();
                batch.column_by_name("flags").unwrap().as_primitive::<UInt16Type>().values().to_vec()
            })
            .collect();
        let expected: Vec<u16> = records.iter().map(|record| RawRecord::from_trusted_bytes(record).flag()).collect();
        assert!(flags == expected);
    }
}

#[test]
fn files_of_another_version_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["a.parquet", "a.arrow"].map(|name| directory.path().join(name));
    let keys = [alignment_columns::VERSION_KEY, variant_columns::VERSION_KEY, hit_columns::VERSION_KEY];
    for (key, version) in keys.into_iter().flat_map(|key| [(key, "1"), (key, "2")]) {
        let metadata = [(key.to_owned(), version.to_owned())].into();
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Utf8, true)]).with_metadata(metadata));
        let out = |path: &PathBuf| File::create(path).unwrap();
        TableParquetWriter::new(schema.clone(), PageCompression::Zstd, out(&paths[0])).unwrap().finish().unwrap();
        ArrowFileWriter::with_schema(&schema, out(&paths[1])).unwrap().finish().unwrap();
        let parquet = ParquetFiles::open(&paths[..1]).map(drop).map_err(|error| error.to_string());
        let arrow = ArrowFile::open(Arc::new(LocalFile::open(&paths[1]).unwrap()));
        let arrow = arrow.map(drop).map_err(|error| error.to_string());
        for (opened, path) in [(parquet, &paths[0]), (arrow, &paths[1])] {
            let known = format!("{} has version 2 of {key}; this godwit reads version 1", path.display());
            match version {
                "1" => assert_eq!(opened, Ok(())),
                _ => assert!(opened.as_ref().is_err_and(|error| error.starts_with(&known)), "{opened:?}"),
            }
        }
    }
}
