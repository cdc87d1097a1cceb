//! References, and what variant callers write.

use std::os::fd::AsRawFd;
use std::path::PathBuf;

use godwit_formats::bgzf::RecordPlace;
use godwit_formats::fasta::Reader;
use godwit_formats::index::TabixBuilder;
use godwit_formats::vcf_lines;
use godwit_model::{Contig, Genome};

use crate::file::{file, parts};

/// FASTA, plain or packed.
pub(crate) fn fasta(bytes: &[u8]) {
    let file = file(bytes);
    // A file without a name has this one as long as it is open.
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let Ok(mut reader) = Reader::open(&path, 1) else { return };
    while let Ok(Some(_)) = reader.next_contig() {
        while let Ok(Some(bases)) = reader.next_bases() {
            assert!(bases.len() <= bytes.len().max(1) * 1032, "more bases than any compression of these bytes holds");
        }
    }
}

/// The VCF of one region, and the next one's.
pub(crate) fn vcf_lines(bytes: &[u8]) {
    let contig = Contig { name: "a".into(), length: 1000, alternate: false };
    let genome = Genome::new(vec![contig.clone()]).expect("it has one contig");
    let [one, other] = parts(bytes);
    let (mut whole, mut index) = (None::<vcf_lines::Header>, TabixBuilder::new(&genome));
    for text in [one, other] {
        let Ok(mut reader) = vcf_lines::Reader::new(text) else { continue };
        let mut header = reader.header().clone();
        header.drop_volatile();
        let text = header.text();
        let written = vcf_lines::Reader::new(&text[..]).map(|reader| reader.header().clone());
        assert!(written.is_ok_and(|written| written == header), "a header changes when it is written");
        match &mut whole {
            None => whole = Some(header),
            Some(whole) => drop(whole.add(&header)),
        }
        let mut at = 0;
        while let Ok(Some(record)) = reader.next_record() {
            assert!(record.start < record.end, "a record has no bases");
            assert!(vcf_lines::Record::checked(record.line) == Some(record.clone()));
            let place = RecordPlace { before: at, after: at + record.line.len() as u64 };
            at = place.after;
            let _ = index.push(&contig, record.start as i32, i32::try_from(record.end).unwrap_or(i32::MAX), place);
        }
    }
    index.write(std::io::sink()).expect("nothing refuses bytes");
}
