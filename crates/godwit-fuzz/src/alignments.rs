//! Files of alignments.

use godwit_formats::bam::{self, RecordChunk, check_record};
use godwit_formats::sam::{self, LineEncoder};
use godwit_model::RawRecord;

use crate::file::{bgzf, input};

/// Bytes of records or lines at a time: few, so that short inputs have several.
const CHUNK_BYTES: usize = 200;

/// Asks for everything that sorting and marking ask of a record.
pub(crate) fn look_at(record: RawRecord<'_>) {
    let cigar = record.cigar().map(|op| u64::from(op.bases())).sum::<u64>();
    let tags = record.each_tag().map(|tag| tag.value.len()).sum::<usize>();
    assert!(tags <= record.bytes().len() && cigar <= u64::from(u32::MAX));
    assert_eq!(record.qualities().len(), record.bases());
    assert_eq!(record.packed_bases().len(), record.bases().div_ceil(2));
    let _ = (record.sort_key(), record.unclipped_five_prime(), record.reference_bases(), record.name());
    let _ = (record.read_group(), record.mapping_quality(), record.mate_contig(), record.mate_position());
}

/// SAM, plain or packed: what is accepted is a sound record.
pub(crate) fn sam(bytes: &[u8]) {
    let Ok(mut reader) = sam::Reader::new(input(bytes)) else { return };
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
                look_at(checked.unwrap_or_else(|problem| panic!("a line became a record that is none: {problem}")));
            }
        }
    }
}

/// What a BAM file holds, before it is packed.
pub(crate) fn bam(bytes: &[u8]) {
    bam_file(&bgzf(bytes));
}

/// A BAM file.
pub(crate) fn bam_file(bytes: &[u8]) {
    let Ok(mut reader) = bam::Reader::new(input(bytes)) else { return };
    let mut chunk = RecordChunk::default();
    while let Ok(true) = reader.read_chunk(&mut chunk, CHUNK_BYTES) {
        chunk.records().for_each(|record| look_at(RawRecord::trusted(record)));
    }
}
