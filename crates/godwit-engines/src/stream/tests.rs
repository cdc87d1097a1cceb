use arrow_array::{BinaryArray, UInt8Array};
use arrow_schema::{DataType, Field};
use proptest::prelude::*;

use super::*;

fn kind(kind: &str) -> HashMap<String, String> {
    HashMap::from([(metadata::KIND.to_owned(), kind.to_owned())])
}

fn reads(names: &[&[u8]]) -> RecordBatch {
    let column = || Arc::new(BinaryArray::from_iter_values(names.iter().copied()));
    RecordBatch::try_new(schema::pipe_reads(), vec![column(), column(), column(), column()]).unwrap()
}

/// Returns the bytes of two consecutive streams: one with two batches of reads, and one without batches.
fn sample() -> Vec<u8> {
    let mut writer = StreamWriter::start(Vec::new(), &schema::pipe_reads(), kind(schema::READS)).unwrap();
    writer.write(&reads(&[b"a", b"bb"])).unwrap();
    writer.write(&reads(&[b"ccc"])).unwrap();
    let bytes = writer.finish().unwrap();
    StreamWriter::start(bytes, &schema::empty_schema(), kind(schema::BLOCK_END)).unwrap().finish().unwrap()
}

fn read_all(bytes: &[u8]) -> Result<Vec<(String, usize)>, StreamError> {
    let mut reader = StreamReader::new(bytes);
    let mut streams = Vec::new();
    while let Some(schema) = reader.next_stream()? {
        let mut rows = 0;
        while let Some(batch) = reader.next_batch()? {
            rows += batch.num_rows();
        }
        streams.push((schema.metadata()[metadata::KIND].clone(), rows));
    }
    Ok(streams)
}

#[test]
fn streams_come_back_one_after_the_other() {
    let expected = vec![(schema::READS.to_owned(), 3), (schema::BLOCK_END.to_owned(), 0)];
    assert_eq!(read_all(&sample()).unwrap(), expected);
    assert!(read_all(&[]).unwrap().is_empty());
}

#[test]
fn batches_that_were_not_taken_are_skipped() {
    let bytes = sample();
    let mut reader = StreamReader::new(&bytes[..]);
    reader.next_stream().unwrap().unwrap();
    reader.next_batch().unwrap().unwrap();
    assert_eq!(reader.next_stream().unwrap().unwrap().metadata()[metadata::KIND], schema::BLOCK_END);
    assert!(reader.next_stream().unwrap().is_none());
}

#[test]
fn streams_cut_anywhere_are_errors() {
    let bytes = sample();
    let mut reader = StreamReader::new(&bytes[..]);
    reader.next_stream().unwrap();
    while reader.next_batch().unwrap().is_some() {}
    let first_stream_bytes = bytes.len() - reader.source.len();
    for cut in 1..bytes.len() {
        assert_eq!(read_all(&bytes[..cut]).is_ok(), cut == first_stream_bytes, "cut at {cut}");
    }
}

#[test]
fn foreign_schemas_are_refused() {
    let schema = Arc::new(Schema::new(vec![Field::new("name", DataType::UInt8, false)]));
    let mut writer = StreamWriter::start(Vec::new(), &schema, kind(schema::READS)).unwrap();
    writer.write(&RecordBatch::try_new(schema, vec![Arc::new(UInt8Array::from(vec![1]))]).unwrap()).unwrap();
    let error = read_all(&writer.finish().unwrap()).unwrap_err();
    assert!(error.to_string().contains("are not those of its protocol"), "{error}");
    let nameless = StreamWriter::start(Vec::new(), &schema::pipe_reads(), HashMap::new()).unwrap().finish().unwrap();
    read_all(&nameless).unwrap_err();
}

#[test]
fn text_instead_of_streams_is_an_error() {
    let error = read_all(b"@SQ\tSN:chr1\tLN:100\n").unwrap_err();
    assert!(matches!(error, StreamError::Malformed { .. }), "{error}");
}

#[test]
fn lengths_out_of_bounds_take_no_memory() {
    let mut huge = CONTINUATION_MARKER.to_vec();
    huge.extend_from_slice(&u32::MAX.to_le_bytes());
    read_all(&huge).unwrap_err();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = sample();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let _ = read_all(&bytes);
    }
}
