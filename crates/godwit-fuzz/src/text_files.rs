//! Fuzz targets for FASTA references, and for VCF output of variant callers.

use std::os::fd::AsRawFd;
use std::path::PathBuf;

use godwit_formats::binning_index::TabixBuilder;
use godwit_formats::fasta::Reader;
use godwit_formats::vcf::lines;
use godwit_io::bgzf::RecordOffsets;
use godwit_model::{Contig, Genome};

use crate::input_files::{anonymous_file, split_parts};

/// Reads a FASTA file, uncompressed or compressed.
pub(crate) fn fasta(bytes: &[u8]) {
    let file = anonymous_file(bytes);
    // An unnamed file has this path while it is open.
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let Ok(mut reader) = Reader::open(&path, 1) else { return };
    while let Ok(Some(_)) = reader.next_contig() {
        while let Ok(Some(bases)) = reader.next_bases() {
            assert!(bases.len() <= bytes.len().max(1) * 1032, "more bases than any compression of these bytes holds");
        }
    }
}

/// Reads the VCF output of two calling regions (the two parts of the input), merges their headers, and indexes their
/// records.
pub(crate) fn vcf_lines(bytes: &[u8]) {
    let contig = Contig { name: "a".into(), length: 1000, alternate: false };
    let genome = Genome::new(vec![contig.clone()]).expect("it has one contig");
    let [one, other] = split_parts(bytes);
    let (mut whole, mut index) = (None::<lines::Header>, TabixBuilder::new(&genome));
    for text in [one, other] {
        let Ok(mut reader) = lines::Reader::new(text) else { continue };
        let mut header = reader.header().clone();
        header.remove_volatile();
        let text = header.text();
        let written = lines::Reader::new(&text[..]).map(|reader| reader.header().clone());
        assert!(written.is_ok_and(|written| written == header), "a header changes when it is written");
        match &mut whole {
            None => whole = Some(header),
            Some(whole) => drop(whole.merge(&header)),
        }
        let mut at = 0;
        while let Ok(Some(record)) = reader.next_record() {
            assert!(record.start < record.end, "a record has no bases");
            assert!(lines::Record::from_line(record.line) == Some(record.clone()));
            let place = RecordOffsets { start: at, end: at + record.line.len() as u64 };
            at = place.end;
            let _ = index.push(&contig, record.start as i32, i32::try_from(record.end).unwrap_or(i32::MAX), place);
        }
    }
    index.write(std::io::sink()).expect("nothing refuses bytes");
}
