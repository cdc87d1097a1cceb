//! Fuzz targets for VCF files, and for files of intervals: BED, GFF, bigWig,
//! bigBed and chain files.

use std::sync::Arc;

use godwit_columnar::bbi::BbiFile;
use godwit_columnar::chain::ChainReader;
use godwit_formats::intervals::{IntervalFormat, IntervalReader, read_bed_from};
use godwit_formats::vcf::{Reader, VariantBatchBuilder, VariantLayout};
use godwit_io::random_access::LocalFile;
use godwit_model::Region;

use crate::input_files::{ScratchDirectory, open_input};

/// Reads a VCF file, uncompressed or compressed, and converts its records to Arrow record batches. The first byte of
/// the input sets the number of rows of a batch.
pub(crate) fn vcf(bytes: &[u8]) {
    let Some((&rows, bytes)) = bytes.split_first() else { return };
    let Ok(mut reader) = Reader::new(open_input(bytes)) else { return };
    let Ok(layout) = VariantLayout::new(reader.header()) else { return };
    let samples = reader.header().samples().len();
    let mut columns = VariantBatchBuilder::new(&layout);
    let (mut read, mut taken) = (0, 0);
    while let Ok(Some(record)) = reader.next_record() {
        assert_eq!(record.samples().count(), samples);
        assert!(record.end_position() > record.position && record.position >= -1);
        for sample in 0..samples.min(3) {
            let alleles = record.genotype(sample).map(|genotype| genotype.alleles().count());
            assert_ne!(alleles, Some(0), "a genotype has alleles");
        }
        if columns.push(&record).is_err() {
            return;
        }
        read += 1;
        if columns.is_full() || columns.row_count() >= usize::from(rows) {
            taken += columns.take_batch().expect("columns fit their schema").num_rows();
        }
    }
    taken += columns.take_batch().expect("columns fit their schema").num_rows();
    assert_eq!(taken, read);
}

/// Reads a BED file, uncompressed or compressed, as regions and as Arrow record batches. Also reads the input as a GFF
/// file.
pub(crate) fn bed_and_gff(bytes: &[u8]) {
    let path = ScratchDirectory::for_this_thread().write("x.bed", bytes);
    for format in [IntervalFormat::Bed, IntervalFormat::Gff] {
        let Ok(mut reader) = IntervalReader::open(&path, format) else { continue };
        while let Ok(Some(batch)) = reader.next_batch(|interval| interval.end % 2 == 0) {
            assert!(batch.num_rows() > 0);
        }
    }
    for region in read_bed_from(open_input(bytes)).unwrap_or_default() {
        assert!(region.start <= region.end && !region.contig.is_empty());
    }
}

/// Reads a bigWig or bigBed file, as a whole and in a region.
pub(crate) fn bbi(bytes: &[u8]) {
    let path = ScratchDirectory::for_this_thread().write("x.bw", bytes);
    let source = LocalFile::open(&path).expect("it was written");
    let Ok(file) = BbiFile::open(Arc::new(source)).map(Arc::new) else { return };
    let region = [Region { contig: "c".to_owned(), start: 10, end: 60 }];
    for regions in [None, Some(&region[..])] {
        let Ok(blocks) = file.blocks(regions) else { continue };
        let mut rows = file.rows(blocks, regions);
        while let Ok(Some(batch)) = rows.next_batch() {
            assert!(batch.num_rows() > 0);
        }
    }
}

/// Reads a chain file, uncompressed or compressed.
pub(crate) fn chain(bytes: &[u8]) {
    let mut reader = ChainReader::new(open_input(bytes));
    while let Ok(Some(batch)) = reader.next_batch(|block| block.start % 2 == 0) {
        assert!(batch.num_rows() > 0);
    }
}
