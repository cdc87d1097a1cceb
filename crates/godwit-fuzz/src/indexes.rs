//! Fuzz targets for the indexes of BAM files and of references.

use std::fs::File;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use godwit_engines::aligner::bwa::fm_index::{self, SampleStride};
use godwit_engines::aligner::bwa::{IndexKind, IndexState, index_files_state, index_state};
use godwit_formats::bam::BamFile;
use godwit_formats::binning_index::{DataDensity, IndexSummary, RegionIndex};
use godwit_formats::fasta::{IndexedReader, parse_fai};
use godwit_formats::sam::{Header, LineEncoder};
use godwit_io::random_access::LocalFile;
use godwit_model::{IntervalSet, Region};
use godwit_pipeline::verify;

use crate::alignment_files::read_all_record_fields;
use crate::input_files::{ScratchDirectory, compress_bgzf, split_parts};

/// Number of contigs of the indexed BAM file.
const CONTIGS: usize = 2;
/// Maximum number of bases that an `.ann` file may declare; for more, the target does not create the other index files.
const MAX_BASES: u64 = 1 << 24;

/// Returns a BAM file with two contigs and three records.
fn small_bam() -> &'static [u8] {
    static BAM: OnceLock<Vec<u8>> = OnceLock::new();
    BAM.get_or_init(|| {
        let text = b"@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:a\tLN:1000\n@SQ\tSN:b\tLN:800000000\n";
        let header = Header::parse(text).expect("it is a header");
        let genome = header.genome().expect("it has contigs");
        let mut bytes = Vec::new();
        bytes.extend(
            [&b"BAM\x01"[..], &(text.len() as u32).to_le_bytes(), text, &(CONTIGS as u32).to_le_bytes()].concat(),
        );
        for contig in genome.contigs() {
            bytes.extend((contig.name.len() as u32 + 1).to_le_bytes());
            bytes.extend([contig.name.as_bytes(), b"\0", &contig.length.to_le_bytes()].concat());
        }
        let mut encoder = LineEncoder::new(&genome);
        for line in ["r\t0\ta\t7\t9\t4M", "r\t0\tb\t700000000\t9\t4M", "r\t4\t*\t0\t0\t*"] {
            let mut record = Vec::new();
            let line = format!("{line}\t*\t0\t0\tACGT\tIIII");
            encoder.encode(line.as_bytes(), &mut record).expect("it is a record");
            bytes.extend((record.len() as u32).to_le_bytes());
            bytes.extend(record);
        }
        compress_bgzf(&bytes)
    })
}

/// Reads a `.bai`, `.csi` or `.crai` index, uncompressed or compressed, and queries it.
pub(crate) fn index(bytes: &[u8]) {
    let scratch = ScratchDirectory::for_this_thread();
    scratch.write("x.bam", small_bam());
    scratch.write("x.bam.bai", bytes);
    let _ = verify(&scratch.path("x.bam"), 1, &AtomicBool::new(false));
    if let Ok(summary) = IndexSummary::read(&scratch.path("x.bam.bai"), CONTIGS) {
        assert_eq!(summary.contig_counts.len(), CONTIGS);
    }
    query_index(&scratch);
    if let Ok(spread) = DataDensity::read(&scratch.path("x.bam.bai"), &[1_000, 800_000_000]) {
        assert!((0..CONTIGS).all(|contig| spread.contig_bytes(contig).is_finite()));
        assert!(spread.interval_bytes(1, 5, u32::MAX) <= spread.contig_bytes(1) * 1.001);
    }
}

/// Reads the records of the BAM file at the offsets that the index returns for several regions.
fn query_index(scratch: &ScratchDirectory) {
    let Ok(index) = RegionIndex::read(&scratch.path("x.bam.bai")) else { return };
    let source = LocalFile::open(&scratch.path("x.bam")).expect("it was written");
    let file = BamFile::open(Arc::new(source)).expect("it is a BAM file");
    for (contig, start, end) in [(0, 0, 1000), (0, 6, 7), (1, 0, Region::OPEN_END), (2, 0, 1)] {
        let chunks = index.chunks(contig, start, end);
        assert!(chunks.is_sorted_by(|one, next| one.1 < next.0), "stretches lie apart, in order");
        let spans = IntervalSet::new([(contig as u32, start, end)]);
        let mut records = file.records_in_chunks(chunks).with_intervals(spans, true);
        while let Ok(Some(record)) = records.next_record() {
            assert_eq!(record.contig(), contig as i32);
            read_all_record_fields(record);
        }
    }
    let cuts = index.split_offsets(file.first_record_offset(), file.byte_len(), 3);
    assert!(cuts.len() <= 2 && cuts.is_sorted());
    let _ = (index.record_count(), index.last_compressed_offset());
}

/// Reads a reference with its `.fai`, and the `.ann`, `.amb` and `.alt` files of a bwa index; all five are parts of the
/// input. The other files of the index contain zeros and have sizes that match the `.ann`.
pub(crate) fn reference_index(bytes: &[u8]) {
    let [fasta, fai, annotation, ambiguity, alternates] = split_parts(bytes);
    let scratch = ScratchDirectory::for_this_thread();
    let reference = scratch.write("r.fa", fasta);
    scratch.write("r.fa.ann", annotation);
    scratch.write("r.fa.amb", ambiguity);
    scratch.write("r.fa.alt", alternates);
    let first_field = annotation.split(|byte| *byte == b' ').next().unwrap_or_default();
    let bases = std::str::from_utf8(first_field).ok().and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
    if bases <= MAX_BASES {
        write_index_files(&scratch, bases);
    }
    if let Ok(IndexState::Current { genome }) = index_files_state(&reference, IndexKind::Bwa) {
        let all: u64 = genome.contigs().iter().map(|contig| u64::from(contig.length)).sum();
        assert_eq!(all, bases);
    }
    let _ = index_files_state(&reference, IndexKind::BwaMem3);
    let _ = fm_index::convert_bwa_index(&reference, SampleStride::EVERY_8, 1, std::io::sink());
    let _ = index_state(&reference, IndexKind::Bwa);
    if let Some(records) = std::str::from_utf8(fai).ok().and_then(parse_fai) {
        let regions = records.iter().enumerate().flat_map(|(at, record)| {
            let last = record.bases.saturating_sub(1);
            [(at, 0, 3), (at, last / 2, last / 2 + 9), (at, last, record.bases)]
        });
        let regions: Vec<_> = regions.take(100).collect();
        let Ok(mut windows) = IndexedReader::open(&reference, records.into()) else { return };
        for (contig, start, end) in regions {
            if let Ok(codes) = windows.base_codes(contig, start, end) {
                assert!(codes.len() as u64 <= end - start);
            }
        }
    }
}

/// Writes the index files `.pac`, `.bwt` and `.sa` of bwa 0.7.17, and those of bwa-mem3, for a reference of `bases`
/// bases. Sizes and file headers are valid; the content is zeros.
fn write_index_files(scratch: &ScratchDirectory, bases: u64) {
    let both = 2 * bases;
    let words = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let sized = |name: &str, head: &[u8], bytes: u64| {
        let file = scratch.write(name, head);
        let file = File::options().write(true).open(file).and_then(|file| file.set_len(bytes));
        file.expect("a sparse file can be made");
    };
    sized("r.fa.pac", &[], bases / 4 + 2);
    let bwt = [0, 0, 0, 0, both];
    sized("r.fa.bwt", &words(&bwt), 40 + 4 * (both.div_ceil(16) + 8 * (both.div_ceil(128) + 1)));
    sized("r.fa.sa", &words(&[0, 0, 0, 0, both, 32, both]), 48 + 8 * ((32 + both) / 32));
    sized("r.fa.0123", &[], both);
    let rows = both + 1;
    sized("r.fa.bwt.2bit.64", &words(&[rows]), 8 + 5 * 8 + 64 * (rows / 64 + 1) + 5 * (rows / 8 + 1) + 8);
}
