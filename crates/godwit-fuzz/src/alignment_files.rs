//! Fuzz targets for SAM and BAM files.

use godwit_formats::bam::{self, RecordBuffer, check_record};
use godwit_formats::sam::{self, LineEncoder};
use godwit_model::RawRecord;

use crate::input_files::{compress_bgzf, open_input};

/// Size in bytes of the chunks of records or lines that a target requests; small, so that a short input has several
/// chunks.
const CHUNK_BYTES: usize = 200;

/// Accesses all fields of a record that sorting and duplicate marking use.
pub(crate) fn read_all_record_fields(record: RawRecord<'_>) {
    let cigar = record.cigar().map(|op| u64::from(op.bases())).sum::<u64>();
    let tags = record.iter_tags().map(|tag| tag.value.len()).sum::<usize>();
    assert!(tags <= record.bytes().len() && cigar <= u64::from(u32::MAX));
    assert_eq!(record.qualities().len(), record.sequence_length());
    assert_eq!(record.packed_bases().len(), record.sequence_length().div_ceil(2));
    let _ = (record.sort_key(), record.unclipped_five_prime(), record.reference_bases(), record.name());
    let _ = (record.read_group(), record.mapping_quality(), record.mate_contig(), record.mate_position());
}

/// Reads a SAM file, uncompressed or compressed, and checks that each accepted line becomes a valid BAM record.
pub(crate) fn sam(bytes: &[u8]) {
    let Ok(mut reader) = sam::Reader::new(open_input(bytes)) else { return };
    let _ = reader.header().read_groups();
    let Ok(genome) = reader.header().genome() else { return };
    let mut header = reader.header().clone();
    header.set_coordinate_sorted();
    header.add_program("godwit", &[("VN", "0")]);
    let (mut encoder, mut record) = (LineEncoder::new(&genome), Vec::new());
    while let Ok(Some(lines)) = reader.next_lines(CHUNK_BYTES) {
        for line in lines.lines() {
            record.clear();
            if encoder.encode(line, &mut record).is_ok() {
                let checked = check_record(&record, genome.contigs().len());
                read_all_record_fields(
                    checked.unwrap_or_else(|problem| panic!("a line became a record that is none: {problem}")),
                );
            }
        }
    }
}

/// Compresses the input with BGZF, and reads the result as a BAM file. So mutations change the records, not the
/// compression.
pub(crate) fn bam(bytes: &[u8]) {
    bam_file(&compress_bgzf(bytes));
}

/// Reads the input as a compressed BAM file.
pub(crate) fn bam_file(bytes: &[u8]) {
    let Ok(mut reader) = bam::Reader::new(open_input(bytes)) else { return };
    let mut chunk = RecordBuffer::default();
    while let Ok(true) = reader.read_records(&mut chunk, CHUNK_BYTES) {
        chunk.records().for_each(|record| read_all_record_fields(RawRecord::from_trusted_bytes(record)));
    }
}
