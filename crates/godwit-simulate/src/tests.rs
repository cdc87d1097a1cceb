use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::template::Templates;
use super::*;

/// Returns a genome, a sample of this genome, and options for 20,000 pairs in two lanes, with many chimeras and random
/// reads.
fn setting() -> (Assembly, Sample, ReadOptions) {
    let assembly = Assembly::simulate(&GenomeOptions::default()).unwrap();
    let sample = Sample::draw(&assembly, &SampleOptions::default());
    let options =
        ReadOptions { pairs: 20_000, lanes: 2, chimeric_fraction: 0.02, junk_fraction: 0.02, ..ReadOptions::default() };
    (assembly, sample, options)
}

fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    let mut text = String::new();
    if bytes.starts_with(&[0x1F, 0x8B]) {
        MultiGzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    text
}

/// Returns the name, bases and qualities of each record of a FASTQ file.
fn fastq(path: &Path) -> Vec<[String; 3]> {
    let text = text(path);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len() % 4, 0);
    lines.chunks(4).map(|record| [record[0][1..].to_owned(), record[1].to_owned(), record[3].to_owned()]).collect()
}

#[test]
fn the_same_seed_gives_the_same_files_and_another_seed_others() {
    let (assembly, sample, options) = setting();
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, options: &ReadOptions| {
        let written = write_reads(&assembly, &sample, options, &folder.path().join(name)).unwrap();
        let mut files = written.lanes.concat();
        files.push(written.truth);
        files.iter().map(|path| text(path)).collect::<Vec<_>>()
    };
    let first = run("a", &options);
    assert_eq!(first, run("b", &options));
    assert_eq!(
        first,
        run("c", &ReadOptions { gzip: true, ..options.clone() }),
        "gzip changes the files, not the reads"
    );
    assert_ne!(first, run("d", &ReadOptions { seed: 2, ..options }));
    let left = fs::read_dir(folder.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "part"));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_longer_run_starts_with_the_molecules_of_a_shorter_one() {
    let (assembly, sample, options) = setting();
    let longer = ReadOptions { pairs: options.pairs * 3, ..options.clone() };
    let (a, b) = (Templates::new(&assembly, &sample, &options), Templates::new(&assembly, &sample, &longer));
    for number in 0..1000 {
        assert_eq!(a.origin(number), b.origin(number));
        assert_eq!(a.molecule(number).unwrap(), b.molecule(number).unwrap());
    }
}

#[test]
fn reads_have_the_length_asked_for_and_mates_stay_in_step_under_unique_names() {
    let (assembly, sample, options) = setting();
    let folder = tempfile::tempdir().unwrap();
    let mut names = HashSet::new();
    let written = write_reads(&assembly, &sample, &options, &folder.path().join("x")).unwrap();
    for (lane, files) in written.lanes.iter().enumerate() {
        let [first, second] = [fastq(&files[0]), fastq(&files[1])];
        assert_eq!(first.len(), second.len());
        assert!(first.len() > 9_000);
        for (first, second) in first.iter().zip(&second) {
            assert_eq!(first[0], second[0]);
            assert!(first[0].starts_with(&format!("GWT:1:FC1:{}:", lane + 1)));
            assert!(names.insert(first[0].clone()), "{} twice", first[0]);
            for record in [first, second] {
                assert_eq!((record[1].len(), record[2].len()), (148, 148));
                for (base, quality) in record[1].bytes().zip(record[2].bytes()) {
                    assert!((33 + 2..=33 + 41).contains(&quality));
                    assert_eq!(base == b'N', quality == 33 + 2);
                }
            }
        }
    }
    assert_eq!(names.len(), 20_000);
}

#[test]
fn shares_of_duplicates_and_oddities_are_near_what_was_asked() {
    let (assembly, sample, options) = setting();
    let folder = tempfile::tempdir().unwrap();
    let written = write_reads(&assembly, &sample, &options, &folder.path().join("x")).unwrap();
    assert!((1_800..2_200).contains(&written.pcr_duplicates), "{}", written.pcr_duplicates);
    assert!((330..470).contains(&written.optical_duplicates), "{}", written.optical_duplicates);
    let mut kinds: HashMap<String, u32> = HashMap::new();
    let mut duplicates = 0;
    for line in text(&written.truth).lines().skip(1) {
        let columns: Vec<_> = line.split('\t').collect();
        assert_eq!(columns[3] == "none", columns[0] == columns[4]);
        duplicates += u64::from(columns[3] != "none");
        *kinds.entry(columns[5].to_owned()).or_default() += 1;
    }
    assert_eq!(duplicates, written.pcr_duplicates + written.optical_duplicates);
    for kind in ["chimeric_pair", "split_read", "junk_mate", "junk_pair"] {
        assert!((130..280).contains(&kinds[kind]), "{kind}: {}", kinds[kind]);
    }
}

#[test]
fn errors_come_as_often_as_the_qualities_say() {
    let (assembly, _, options) = setting();
    let sample = Sample::draw(&assembly, &SampleOptions { snv_rate: 0.0, indel_rate: 0.0, ..SampleOptions::default() });
    let options = ReadOptions { chimeric_fraction: 0.0, junk_fraction: 0.0, lanes: 1, insert_mean: 600, ..options };
    let folder = tempfile::tempdir().unwrap();
    let written = write_reads(&assembly, &sample, &options, &folder.path().join("x")).unwrap();
    let truth = text(&written.truth);
    let (mut expected, mut seen, mut called) = (0.0, 0.0, 0.0);
    for (record, line) in fastq(&written.lanes[0][0]).iter().zip(truth.lines().skip(1)) {
        let columns: Vec<_> = line.split('\t').collect();
        let contig = assembly.contigs().iter().find(|contig| contig.name == columns[1]).unwrap();
        let start = columns[2].parse::<usize>().unwrap() - 1;
        let reference = &contig.bases[start..start + 148];
        let differs = |(a, b): (u8, &u8)| a != *b && a != b'N';
        let different = record[1].bytes().zip(reference).filter(|&pair| differs(pair)).count();
        if different > 50 {
            continue; // Compare with the other end of the fragment, from which this read comes.
        }
        seen += different as f64;
        for quality in record[2].bytes().filter(|quality| *quality > 33 + 2) {
            expected += 10f64.powf(-f64::from(quality - 33) / 10.0);
            called += 1.0;
        }
    }
    assert!(called > 1e6);
    assert!((0.9..1.1).contains(&(seen / expected)), "{seen} errors, {expected} expected");
    assert!((0.0005..0.02).contains(&(seen / called)), "error rate {}", seen / called);
}

#[test]
fn duplicates_share_both_ends_and_optical_ones_lie_close() {
    let (assembly, sample, options) = setting();
    let templates = Templates::new(&assembly, &sample, &options);
    let mut optical = 0;
    let mut places = HashSet::new();
    for number in 0..options.pairs {
        let (kind, source) = templates.origin(number);
        let (here, there) = (templates.flow_cell_position(number), templates.flow_cell_position(source));
        assert!(places.insert((here.lane, here.tile, here.x, here.y)), "{here:?} twice");
        let first = templates.first_of_molecule(number);
        assert_eq!(first, templates.first_of_molecule(source), "a duplicate is of its source's molecule");
        if kind == DuplicateKind::Optical {
            optical += 1;
            assert_eq!((here.lane, here.tile), (there.lane, there.tile));
            assert!(here.x.abs_diff(there.x) < 64 && here.y.abs_diff(there.y) < 64, "{here:?} {there:?}");
        }
    }
    assert!(optical > 300);
}

#[test]
fn variants_are_left_aligned_spaced_and_at_the_rates_asked_for() {
    let options = GenomeOptions {
        contigs: vec![ContigOptions { gap_bases: 10_000, ..ContigOptions::new("c", 2_000_000) }],
        ..GenomeOptions::default()
    };
    let assembly = Assembly::simulate(&options).unwrap();
    let sample = Sample::draw(&assembly, &SampleOptions::default());
    let bases = &assembly.contigs()[0].bases;
    let variants = sample.variants(0);
    let (mut snvs, mut indels, mut heterozygous, mut end) = (0, 0, 0, 0);
    for variant in variants {
        let at = variant.position as usize;
        assert!(at >= end + 25 || end == 0);
        end = at + variant.reference.len();
        assert_eq!(&bases[at..end], &*variant.reference);
        assert_ne!(variant.reference, variant.alternate);
        assert!(!variant.reference.contains(&b'N') && !variant.alternate.contains(&b'N'));
        heterozygous += u32::from(variant.haplotypes[0] != variant.haplotypes[1]);
        if variant.reference.len() == variant.alternate.len() {
            assert_eq!(variant.reference.len(), 1);
            snvs += 1;
        } else {
            indels += 1;
            assert_eq!(variant.reference[0], variant.alternate[0]);
            let longer = if variant.reference.len() > 1 { &variant.reference } else { &variant.alternate };
            assert!((2..=21).contains(&longer.len()));
            assert_ne!(longer.first(), longer.last(), "could move left: {variant:?}");
        }
    }
    assert!((1_850..2_150).contains(&snvs), "{snvs} SNVs");
    assert!((150..250).contains(&indels), "{indels} indels");
    assert!((0.6..0.73).contains(&(f64::from(heterozygous) / variants.len() as f64)));
}

#[test]
fn a_haplotype_is_the_reference_with_its_variants_from_any_start() {
    let (assembly, sample, _) = setting();
    for (index, contig) in assembly.contigs().iter().enumerate() {
        for haplotype in 0..2 {
            let (mut whole, mut place_of) = (Vec::new(), vec![0; contig.bases.len()]);
            let mut position = 0;
            let carried = sample.variants(index).iter().filter(|variant| variant.haplotypes[haplotype]);
            for variant in carried {
                let at = variant.position as usize;
                for (offset, reference) in (position..at).enumerate() {
                    place_of[reference] = whole.len() + offset;
                }
                whole.extend_from_slice(&contig.bases[position..at]);
                place_of[at] = whole.len();
                position = at + variant.reference.len();
                whole.extend_from_slice(&variant.alternate);
                place_of[at + 1..position].fill(whole.len());
            }
            for (offset, reference) in (position..contig.bases.len()).enumerate() {
                place_of[reference] = whole.len() + offset;
            }
            whole.extend_from_slice(&contig.bases[position..]);
            for start in (0..contig.bases.len()).step_by(7) {
                let mut copied = b"kept".to_vec();
                sample.append_haplotype_bases(&contig.bases, index, haplotype, start as u32, 300, &mut copied);
                let from = place_of[start];
                assert_eq!(&copied[4..], &whole[from..(from + 300).min(whole.len())], "{} {start}", contig.name);
            }
        }
    }
}

#[test]
fn the_vcf_counts_from_one_and_phases_every_genotype() {
    let (assembly, sample, _) = setting();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("truth.vcf");
    sample.write_vcf(&assembly, &path).unwrap();
    let vcf = text(&path);
    assert!(vcf.starts_with("##fileformat=VCFv4.2\n"));
    assert!(vcf.contains("##contig=<ID=tiny,length=80>\n"));
    let records: Vec<_> = vcf.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(records.len(), (0..5).map(|contig| sample.variants(contig).len()).sum::<usize>());
    let columns: Vec<_> = records[0].split('\t').collect();
    assert_eq!(columns[1].parse::<u32>().unwrap(), sample.variants(0)[0].position + 1);
    assert!(records.iter().all(|record| ["1|1", "1|0", "0|1"].contains(&&record[record.len() - 3..])));
}

#[test]
fn a_genome_has_its_contigs_gaps_and_repeats() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("g.fa");
    let assembly = write_genome(&GenomeOptions::default(), &path).unwrap();
    let lengths: Vec<_> = assembly.contigs().iter().map(|contig| contig.bases.len()).collect();
    assert_eq!(lengths, [300_000, 200_000, 120_000, 60_000, 80]);
    assert_eq!(assembly.bases(), 680_080);
    let gaps = assembly.contigs().iter().map(|contig| contig.bases.iter().filter(|base| **base == b'N').count());
    assert_eq!(gaps.collect::<Vec<_>>(), [0, 2_000, 0, 0, 0]);
    let mut kmers: HashMap<&[u8], u32> = HashMap::new();
    for window in assembly.contigs().iter().flat_map(|contig| contig.bases.windows(40)) {
        *kmers.entry(window).or_default() += 1;
    }
    let repeated: u32 =
        kmers.iter().filter(|(kmer, count)| !kmer.contains(&b'N') && **count > 1).map(|(_, count)| count).sum();
    assert!((20_000..82_000).contains(&repeated), "{repeated} bases start a repeated 40-mer");
    // A FASTA file does not contain the intervals of identical copies, so compare only names and bases.
    let bases = |assembly: &Assembly| -> Vec<_> {
        assembly.contigs().iter().map(|contig| (contig.name.clone(), contig.bases.clone())).collect()
    };
    assert_eq!(bases(&Assembly::read_fasta(&path).unwrap()), bases(&assembly));
}

#[test]
fn fasta_is_read_with_any_case_and_line_length_plain_or_gzip() {
    let folder = tempfile::tempdir().unwrap();
    let fasta = b"\n>one first\nacgt\r\nRYKM\n>two\nTTTT";
    let plain = folder.path().join("plain.fa");
    fs::write(&plain, fasta).unwrap();
    let packed = folder.path().join("packed.fa.gz");
    let mut encoder = GzEncoder::new(fs::File::create(&packed).unwrap(), Compression::fast());
    encoder.write_all(fasta).unwrap();
    encoder.finish().unwrap();
    for path in [plain, packed] {
        let assembly = Assembly::read_fasta(&path).unwrap();
        let contigs: Vec<_> =
            assembly.contigs().iter().map(|contig| (contig.name.as_str(), contig.bases.as_slice())).collect();
        assert_eq!(contigs, [("one", b"ACGTNNNN".as_slice()), ("two", b"TTTT".as_slice())]);
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let not_fasta = folder.path().join("reads.fastq");
    fs::write(&not_fasta, "@r\nACGT\n+\nIIII\n").unwrap();
    let error = Assembly::read_fasta(&not_fasta).unwrap_err();
    assert!(matches!(error, SimulateError::NotFasta(FastaError::NotFasta { line: 1, .. })), "{error}");
    let gap = folder.path().join("reads.fastq");
    fs::write(&gap, ">one\n>two\nACGT\n").unwrap();
    let error = Assembly::read_fasta(&gap).unwrap_err();
    assert!(matches!(error, SimulateError::NotFasta(FastaError::EmptyContig { .. })), "{error}");
    assert!(matches!(Assembly::read_fasta(&folder.path().join("none")), Err(SimulateError::Read { .. })));
    let empty = GenomeOptions { contigs: Vec::new(), ..GenomeOptions::default() };
    assert!(matches!(Assembly::simulate(&empty), Err(SimulateError::EmptyGenome)));
    let none = GenomeOptions { contigs: vec![ContigOptions::new("none", 0)], ..GenomeOptions::default() };
    assert!(matches!(Assembly::simulate(&none), Err(SimulateError::Option { option: "bases", .. })));

    let (assembly, sample, options) = setting();
    let prefix = folder.path().join("x");
    for wrong in [
        ReadOptions { lanes: 0, ..options.clone() },
        ReadOptions { pairs: u64::MAX, ..options.clone() },
        ReadOptions { read_bases: 10, ..options.clone() },
        ReadOptions { insert_mean: 100, ..options.clone() },
        ReadOptions { pcr_duplicate_fraction: f64::NAN, ..options.clone() },
        ReadOptions { optical_duplicate_fraction: 0.85, ..options.clone() },
    ] {
        let error = write_reads(&assembly, &sample, &wrong, &prefix).unwrap_err();
        assert!(matches!(error, SimulateError::Option { .. }), "{error}");
    }
    let tiny = GenomeOptions { contigs: vec![ContigOptions::new("tiny", 80)], ..GenomeOptions::default() };
    let tiny = Assembly::simulate(&tiny).unwrap();
    let sample = Sample::draw(&tiny, &SampleOptions::default());
    let error = write_reads(&tiny, &sample, &options, &prefix).unwrap_err();
    assert!(matches!(error, SimulateError::NoPosition { insert_mean: 380 }), "{error}");
    let error = write_reads(&assembly, &sample, &options, Path::new("/nonexistent/x")).unwrap_err();
    assert!(matches!(error, SimulateError::Write { .. }), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half written is left");
}

#[test]
fn what_is_unique_and_what_has_copies_are_all_of_the_genome() {
    let (assembly, _, _) = setting();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("unique.bed");
    assembly.write_unique_bed(&path).unwrap();
    let mut unique: HashMap<&str, Vec<bool>> =
        assembly.contigs().iter().map(|contig| (contig.name.as_str(), vec![false; contig.bases.len()])).collect();
    for line in text(&path).lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [start, end] = [1, 2].map(|field| fields[field].parse::<usize>().unwrap());
        unique.get_mut(fields[0]).unwrap()[start..end].fill(true);
    }
    let mut copied = 0;
    for contig in assembly.contigs() {
        for (position, is_unique) in unique[contig.name.as_str()].iter().enumerate() {
            let mut copies = contig.identical_copies.iter();
            let is_copied = copies.any(|(start, end)| (*start as usize..*end as usize).contains(&position));
            assert_eq!(*is_unique, !is_copied, "{}:{position}", contig.name);
            copied += usize::from(is_copied);
        }
    }
    assert!(copied > 3_000, "only {copied} bases have copies");
}
