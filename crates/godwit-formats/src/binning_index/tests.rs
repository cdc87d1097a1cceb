use std::path::Path;
use std::sync::Arc;

use godwit_io::bgzf::{EOF_BLOCK, Writer};
use godwit_io::random_access::LocalFile;
use godwit_model::{Contig, Genome, RawRecord, flags};
use godwit_tests::random::Random;
use godwit_tests::{needs, sam_records};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::bam;
use crate::sam::tests::samples::{self, path_text, samtools};
use crate::sam::{Header, LineEncoder};

/// Returns the packed records of SAM lines, in the coordinate order of samtools.
fn sorted_records(header: &Header, lines: impl Iterator<Item = String>) -> Vec<Vec<u8>> {
    let mut encoder = LineEncoder::new(&header.genome().unwrap());
    let packed = |line: String| {
        let mut record = Vec::new();
        encoder.encode(line.as_bytes(), &mut record).unwrap();
        record
    };
    let mut records: Vec<Vec<u8>> = lines.map(packed).collect();
    records.sort_by_key(|record| RawRecord::from_trusted_bytes(record).sort_key());
    records
}

fn push_record(index: &mut IndexBuilder, record: &[u8], offsets: RecordOffsets) {
    let record = RawRecord::from_trusted_bytes(record);
    let mapped = record.flag() & flags::UNMAPPED == 0;
    let span = if mapped { record.reference_bases() as i32 } else { 0 };
    index.push(record.contig(), record.position(), record.position() + span, mapped, offsets).unwrap();
}

/// Writes a BAM file in parts, each of which ends before a record of `cuts`. Returns the merged index and the virtual
/// offset of each record.
fn write_bam(path: &Path, header: &Header, records: &[Vec<u8>], cuts: &[usize]) -> (IndexBuilder, Vec<u64>) {
    let genome = header.genome().unwrap();
    let mut head = Writer::new(Vec::new(), 1);
    let mut bytes = Vec::new();
    bam::encode_header(header, &mut bytes).unwrap();
    head.write_bytes(&bytes).unwrap();
    let mut file = head.finish_blocks().unwrap().0;
    let (mut parts, mut offsets) = (Vec::new(), Vec::new());
    let mut start = 0;
    for end in cuts.iter().copied().chain([records.len()]) {
        let mut index = IndexBuilder::new(&genome);
        let mut writer = Writer::new(Vec::new(), 1);
        for record in &records[start..end] {
            let place = writer.write_record(&[&(record.len() as u32).to_le_bytes(), record]).unwrap();
            push_record(&mut index, record, place);
            offsets.push(place.start + ((file.len() as u64) << 16));
        }
        parts.push((index, file.len() as u64));
        file.extend(writer.finish_blocks().unwrap().0);
        start = end;
    }
    file.extend(EOF_BLOCK);
    std::fs::write(path, file).unwrap();
    (IndexBuilder::merge(parts).unwrap(), offsets)
}

/// Returns for each region the number of records that samtools finds with the index next to the file.
fn samtools_counts(path: &Path, regions: &[String]) -> Vec<String> {
    let count = |region: &String| String::from_utf8(samtools(&["view", "-c", path_text(path), region])).unwrap();
    regions.iter().map(count).collect()
}

fn random_regions(genome: &Genome, seed: u64, count: usize) -> Vec<String> {
    let mut numbers = Random::new(seed);
    let mut regions: Vec<String> = genome.contigs().iter().map(|contig| format!("{{{}}}", contig.name)).collect();
    regions.push("*".into());
    while regions.len() < count {
        let contig = &genome.contigs()[numbers.below_u64(genome.contigs().len() as u64) as usize];
        let length = u64::from(contig.length);
        // Errors of indexes are most likely at the edges of bins.
        let start = match numbers.below_u64(3) {
            0 => (numbers.below_u64(length >> 14 | 1) << 14) + numbers.below_u64(3),
            _ => numbers.below_u64(length) + 1,
        };
        let span = [1, 100, 16384, 200_000][numbers.below_u64(4) as usize];
        regions.push(format!("{{{}}}:{}-{}", contig.name, start.max(1), start.max(1) + span - 1));
    }
    regions
}

/// Compares the counts that samtools finds with our index and with the index that samtools itself creates with
/// `arguments`.
fn compare_with_samtools(
    directory: &TempDir,
    header: &Header,
    records: &[Vec<u8>],
    cuts: &[usize],
    arguments: &[&str],
) {
    let genome = header.genome().unwrap();
    let path = directory.path().join("a.bam");
    let (index, _) = write_bam(&path, header, records, cuts);
    let format = IndexFormat::for_genome(&genome);
    let index_path = directory.path().join(format!("a.bam.{}", format.extension()));
    let mut command = vec!["index"];
    command.extend(arguments);
    command.push(path_text(&path));
    samtools(&command);
    let regions = random_regions(&genome, 5, 60);
    let theirs = samtools_counts(&path, &regions);
    let their_stats = samtools(&["idxstats", path_text(&path)]);
    let their_bytes = std::fs::metadata(&index_path).unwrap().len();
    index.write(format, &genome, std::fs::File::create(&index_path).unwrap()).unwrap();
    assert_eq!(samtools(&["idxstats", path_text(&path)]), their_stats);
    let mut counted = ContigCounts::default();
    for record in records.iter().map(|record| RawRecord::from_trusted_bytes(record)) {
        counted.count_record(record.contig(), record.flag() & flags::UNMAPPED == 0);
    }
    assert_eq!(counted.to_idxstats(&genome).as_bytes(), their_stats);
    for (region, (ours, theirs)) in regions.iter().zip(samtools_counts(&path, &regions).iter().zip(theirs)) {
        assert_eq!(*ours, theirs, "{region}");
    }
    let our_bytes = std::fs::metadata(&index_path).unwrap().len();
    assert!(our_bytes <= their_bytes + 1000 + 600 * cuts.len() as u64, "{our_bytes} bytes instead of {their_bytes}");
}

#[test]
fn samtools_answers_the_same_with_this_bai_as_with_its_own() {
    needs!("samtools");
    let directory = tempfile::tempdir().unwrap();
    let header = samples::header();
    let mut numbers = Random::new(11);
    let records = sorted_records(&header, (0..12_000).map(|index| sam_records::random_line(&mut numbers, index)));
    compare_with_samtools(&directory, &header, &records, &[], &[]);
    compare_with_samtools(&directory, &header, &records, &[0, 1, 700, 700, 5000, 9000, 11_990], &[]);
}

#[test]
fn samtools_answers_the_same_with_this_csi_as_with_its_own() {
    needs!("samtools");
    let directory = tempfile::tempdir().unwrap();
    let header = Header::parse(b"@SQ\tSN:short\tLN:1000\n@SQ\tSN:long\tLN:2000000000\n").unwrap();
    assert_eq!(IndexFormat::for_genome(&header.genome().unwrap()), IndexFormat::Csi);
    let mut numbers = Random::new(2);
    let line = |index| {
        let position = 1 + numbers.below_u64(1_999_999_000);
        format!(
            "r{index}\t0\tlong\t{position}\t9\t{}M{}N4M\t*\t0\t0\t*\t*",
            1 + numbers.below_u64(90),
            1 + numbers.below_u64(100_000)
        )
    };
    let records = sorted_records(&header, (0..6000).map(line));
    compare_with_samtools(&directory, &header, &records, &[17, 3000], &["-c"]);
}

#[test]
fn an_index_of_one_part_equals_that_of_samtools_bin_by_bin() {
    needs!("samtools");
    let directory = tempfile::tempdir().unwrap();
    let (header, path) = (samples::header(), directory.path().join("a.bam"));
    let mut numbers = Random::new(4);
    let records = sorted_records(&header, (0..9000).map(|index| sam_records::random_line(&mut numbers, index)));
    let (index, _) = write_bam(&path, &header, &records, &[]);
    samtools(&["index", path_text(&path)]);
    let mut ours = Vec::new();
    index.write_bai(&header.genome().unwrap(), &mut ours).unwrap();
    let theirs = std::fs::read(directory.path().join("a.bam.bai")).unwrap();
    assert_eq!(parse_bai(&ours), parse_bai(&theirs));
}

type Bins = std::collections::BTreeMap<u32, Vec<(u64, u64)>>;

/// Returns the bins with their chunks, and the windows, of each contig. An offset at the end of a block is replaced by
/// the equivalent offset at the start of the next block.
fn parse_bai(bytes: &[u8]) -> (Vec<(Bins, Vec<u64>)>, u64) {
    let mut rest = &bytes[4..];
    let mut number = |width: usize| {
        let (head, tail) = rest.split_at(width);
        rest = tail;
        head.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let contigs = (0..number(4))
        .map(|_| {
            let bins = (0..number(4)).map(|_| {
                let (bin, chunks) = (number(4) as u32, number(4));
                (bin, (0..chunks).map(|_| (number(8), number(8))).collect())
            });
            let bins = bins.collect();
            let windows = number(4);
            (bins, (0..windows).map(|_| number(8)).collect())
        })
        .collect();
    (contigs, number(8))
}

fn genome(bases: &[u32]) -> Genome {
    let contig =
        |(index, length): (usize, &u32)| Contig { name: format!("c{index}"), length: *length, alternate: false };
    Genome::new(bases.iter().enumerate().map(contig).collect()).unwrap()
}

/// Writes a BAM file, and returns it with the chunks of each contig in its index.
fn bam_with_chunks(path: &Path, header: &Header, records: &[Vec<u8>]) -> (bam::BamFile, Vec<Option<FileChunk>>) {
    let genome = header.genome().unwrap();
    let (index, _) = write_bam(path, header, records, &[700, 700, 1000]);
    let chunks = [IndexFormat::Bai, IndexFormat::Csi].map(|format| {
        let index_path = path.with_added_extension(format.extension());
        index.write(format, &genome, std::fs::File::create(&index_path).unwrap()).unwrap();
        IndexSummary::read(&index_path, genome.contigs().len()).unwrap().contig_chunks
    });
    assert_eq!(chunks[0], chunks[1]);
    let [chunks, _] = chunks;
    (bam::BamFile::open(Arc::new(LocalFile::open(path).unwrap())).unwrap(), chunks)
}

#[test]
fn an_index_matches_its_own_file_only() {
    let directory = tempfile::tempdir().unwrap();
    let header = samples::header();
    let random_records = |seed: u64| {
        let mut numbers = Random::new(seed);
        sorted_records(&header, (0..3000).map(|index| sam_records::random_line(&mut numbers, index)))
    };
    let records = random_records(21);
    let (bam, chunks) = bam_with_chunks(&directory.path().join("a.bam"), &header, &records);
    let (other, other_chunks) = bam_with_chunks(&directory.path().join("b.bam"), &header, &random_records(22));
    for most in [1, 2, usize::MAX] {
        assert_eq!(bam.find_index_mismatch(&chunks, most).unwrap(), None);
        assert!(bam.find_index_mismatch(&other_chunks, most).unwrap().is_some());
        assert!(other.find_index_mismatch(&chunks, most).unwrap().is_some());
    }
    // Only the end of the records differs.
    let placed: Vec<Vec<u8>> =
        records.into_iter().filter(|record| RawRecord::from_trusted_bytes(record).contig() == 0).collect();
    assert!(placed.len() > 1500);
    let (whole, whole_chunks) = bam_with_chunks(&directory.path().join("c.bam"), &header, &placed);
    let (short, short_chunks) = bam_with_chunks(&directory.path().join("d.bam"), &header, &placed[..placed.len() - 9]);
    assert_eq!(whole.find_index_mismatch(&whole_chunks, 1).unwrap(), None);
    assert_eq!(short.find_index_mismatch(&short_chunks, 1).unwrap(), None);
    let end_differs = |found| matches!(found, Some(bam::IndexMismatch::End { .. }));
    assert!(end_differs(whole.find_index_mismatch(&short_chunks, 1).unwrap()));
    assert!(end_differs(short.find_index_mismatch(&whole_chunks, 1).unwrap()));
    // No record begins within another one, or beyond the end of the file.
    for offset in [whole.first_record_offset() + 1, whole.byte_len() << 16, u64::MAX - 1] {
        let chunks = [Some((offset, u64::MAX))];
        let found = whole.find_index_mismatch(&chunks, 1).unwrap();
        assert!(matches!(found, Some(bam::IndexMismatch::Start { .. })), "{found:?}");
    }
    // A program may take the end of the last chunk after the end-of-file block.
    let after_eof = [Some((whole.first_record_offset(), whole.byte_len() << 16))];
    assert_eq!(whole.find_index_mismatch(&after_eof, 1).unwrap(), None);
}

#[test]
fn an_index_without_contigs_of_the_file_does_not_match() {
    let directory = tempfile::tempdir().unwrap();
    let header = samples::header();
    let mut numbers = Random::new(23);
    let mut records = sorted_records(&header, (0..3000).map(|index| sam_records::random_line(&mut numbers, index)));
    // The first record is at a border and has an invalid tag, but it is a record of its contig.
    records[0].push(b'X');
    let (bam, chunks) = bam_with_chunks(&directory.path().join("a.bam"), &header, &records);
    assert_eq!(bam.find_index_mismatch(&chunks, usize::MAX).unwrap(), None);
    let is_not_indexed = |chunks: &[Option<FileChunk>]| {
        let found = bam.find_index_mismatch(chunks, usize::MAX).unwrap();
        assert!(matches!(found, Some(bam::IndexMismatch::NotIndexed { .. })), "{found:?}");
    };
    is_not_indexed(&vec![None; chunks.len()]);
    for at in (0..chunks.len()).filter(|at| chunks[*at].is_some()) {
        let mut others = chunks.clone();
        others[at] = None;
        is_not_indexed(&others);
    }
    let path = directory.path().join("empty.bam");
    write_bam(&path, &header, &[], &[]);
    let empty = bam::BamFile::open(Arc::new(LocalFile::open(&path).unwrap())).unwrap();
    assert_eq!(empty.find_index_mismatch(&vec![None; chunks.len()], 1).unwrap(), None);
}

#[test]
fn csi_is_chosen_only_for_contigs_that_bai_cannot_hold() {
    assert_eq!(IndexFormat::for_genome(&genome(&[5, (1 << 29) - 1])), IndexFormat::Bai);
    assert_eq!(IndexFormat::for_genome(&genome(&[1 << 29])), IndexFormat::Csi);
    assert_eq!(IndexFormat::for_genome(&genome(&[])), IndexFormat::Bai);
    let long = genome(&[1 << 29]);
    assert!(IndexBuilder::new(&long).write_bai(&long, Vec::new()).is_err());
}

#[test]
fn records_out_of_order_or_range_are_refused() {
    let genome = genome(&[1000, 1000]);
    let place = RecordOffsets { start: 0, end: 9 };
    let mut index = IndexBuilder::new(&genome);
    index.push(1, 10, 20, true, place).unwrap();
    assert_eq!(index.push(1, 9, 20, true, place), Err(IndexError::Order { contig: 1, position: 9 }));
    assert_eq!(index.push(0, 90, 91, true, place), Err(IndexError::Order { contig: 0, position: 90 }));
    let beyond = index.push(1, 1 << 29, (1 << 29) + 1, true, place);
    assert_eq!(beyond, Err(IndexError::Range { contig: 1, end: (1 << 29) + 1 }));
    index.push(-1, -1, 0, false, place).unwrap();
    assert!(index.push(1, 50, 60, true, place).is_err());
    let mut first = IndexBuilder::new(&genome);
    first.push(0, 1, 2, true, place).unwrap();
    assert!(IndexBuilder::merge(vec![(index, 0), (first, 100)]).is_err());
}

#[test]
fn an_empty_index_lists_every_contig() {
    let genome = genome(&[10, 20]);
    let index = IndexBuilder::merge(vec![(IndexBuilder::new(&genome), 77)]).unwrap();
    assert_eq!(ContigCounts::default().to_idxstats(&genome), "c0\t10\t0\t0\nc1\t20\t0\t0\n*\t0\t0\t0\n");
    let mut bai = Vec::new();
    index.write_bai(&genome, &mut bai).unwrap();
    assert_eq!(bai, [&b"BAI\x01\x02\0\0\0"[..], &[0; 16], &[0; 8]].concat());
}

#[test]
fn what_lies_behind_a_region_is_not_read_for_it() {
    let genome = genome(&[20_000_000]);
    let mut index = IndexBuilder::new(&genome);
    // Records in bins of 16 kb, except for the third and fourth record, which cross borders of 1 Mb and 8 Mb.
    let spans =
        [(100, 200), (300_000, 300_100), (1_048_500, 1_048_700), (8_388_600, 8_388_700), (9_000_000, 9_000_100)];
    // Use offsets so far apart that bins are not merged into their parents.
    let place = |number: u64| RecordOffsets { start: number << 36, end: (number + 1) << 36 };
    for (number, (start, end)) in spans.into_iter().enumerate() {
        index.push(0, start, end, true, place(10 * (number as u64 + 1))).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    for format in [IndexFormat::Bai, IndexFormat::Csi] {
        let path = directory.path().join("index");
        let mut bytes = Vec::new();
        index.write(format, &genome, &mut bytes).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let index = RegionIndex::read(&path).unwrap();
        let found = |start, end| -> Vec<_> {
            index.chunks(0, start, end).into_iter().map(|(start, end)| (start >> 36, end >> 36)).collect()
        };
        let offsets = index.record_offsets();
        assert_eq!(offsets.iter().map(|offset| offset >> 36).collect::<Vec<_>>(), [10, 20, 30, 40, 50]);
        assert!(std::ptr::eq(offsets, index.record_offsets()), "the offsets are sorted once");
        // A chunk ends at the start of the next record.
        assert_eq!(found(0, 1000), [(10, 20)]);
        assert_eq!(found(0, 300_001), [(10, 50)], "the next bin to the right of any level is that of the last record");
        assert_eq!(found(1_048_600, 1_048_601), [(30, 50)]);
        assert_eq!(found(9_000_050, 9_000_051), [(50, 51)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_record_is_found_wherever_the_file_was_cut(
        seed in 0u64..50,
        mut cuts in proptest::collection::vec(0usize..2000, 0..5),
    ) {
        cuts.sort_unstable();
        let directory = tempfile::tempdir().unwrap();
        let (header, path) = (samples::header(), directory.path().join("a.bam"));
        let genome = header.genome().unwrap();
        let mut numbers = Random::new(seed);
        let records = sorted_records(&header, (0..2000).map(|index| sam_records::random_line(&mut numbers, index)));
        let (merged, offsets) = write_bam(&path, &header, &records, &cuts);
        let mut bai = Vec::new();
        merged.write_bai(&genome, &mut bai).unwrap();
        let (contigs, without_contig) = parse_bai(&bai);
        for (format, name) in [(IndexFormat::Bai, "a.bam.bai"), (IndexFormat::Csi, "a.bam.csi")] {
            let mut bytes = Vec::new();
            merged.write(format, &genome, &mut bytes).unwrap();
            std::fs::write(directory.path().join(name), bytes).unwrap();
            let index = RegionIndex::read(&directory.path().join(name)).unwrap();
            for _ in 0..100 {
                let contig = numbers.below_u64(genome.contigs().len() as u64) as usize;
                let start = numbers.below_u64(u64::from(genome.contigs()[contig].length)) as u32;
                let end = start + 1 + numbers.below_u64(30_000) as u32;
                let chunks = index.chunks(contig, start, end);
                for (record, offset) in records.iter().map(|record| RawRecord::from_trusted_bytes(record)).zip(&offsets) {
                    let (first, behind) = (record.position(), record.end_position(record.flag()));
                    let overlaps = record.contig() == contig as i32 && first < end as i32 && behind > start as i32;
                    let found = chunks.iter().any(|(start, end)| (*start..*end).contains(offset));
                    prop_assert!(found || !overlaps, "{contig}:{start}-{end}: {chunks:?} has no {first}-{behind} at {offset}");
                }
            }
        }
        let placed = records.iter().map(|record| RawRecord::from_trusted_bytes(record)).filter(|record| record.contig() >= 0);
        prop_assert_eq!(placed.clone().count() as u64 + without_contig, records.len() as u64);
        for (record, offset) in placed.zip(offsets) {
            let (bins, windows) = &contigs[record.contig() as usize];
            let start = i64::from(record.position());
            let mapped = record.flag() & flags::UNMAPPED == 0;
            let span = if mapped { i64::from(record.reference_bases()).max(1) } else { 1 };
            // A query for the record's first or last base must find it (SAMv1 §5.1.1, §5.1.3).
            for base in [start, start + span - 1] {
                prop_assert!(windows[(base >> 14) as usize] <= offset);
                let mut chunks = (0..=5).filter_map(|level| {
                    bins.get(&(contig_index::first_bin(level) + (base >> (14 + 3 * (5 - level))) as u32))
                });
                prop_assert!(chunks.any(|chunks| chunks.iter().any(|(start, end)| (*start..*end).contains(&offset))));
            }
        }
    }
}
