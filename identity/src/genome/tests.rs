#![allow(clippy::unwrap_used)] // A test may panic.

use super::*;

const SPEC: GenomeSpec = GenomeSpec { bases: 1_000_000, seed: 3 };

#[test]
fn equal_specifications_give_equal_genomes() {
    let (one, other) = (generate(SPEC), generate(SPEC));
    assert_eq!(one.contigs, other.contigs);
    assert_ne!(one.contigs, generate(GenomeSpec { seed: 4, ..SPEC }).contigs);
}

#[test]
fn repeats_cover_the_promised_share_of_the_genome() {
    let genome = generate(SPEC);
    let total: usize =
        genome.contigs.iter().filter(|contig| contig.alternate_of.is_none()).map(|c| c.bases.len()).sum();
    assert!((999_000..1_001_000).contains(&total), "{total}");
    let share = |bases: usize| bases as f64 / total as f64;
    let RepeatBases { interspersed, duplicated, satellite, microsatellite, unknown } = genome.repeats;
    assert!((0.25..0.50).contains(&share(interspersed)), "{:?}", genome.repeats);
    assert!((0.02..0.08).contains(&share(duplicated)), "{:?}", genome.repeats);
    assert!((0.02..0.05).contains(&share(satellite)), "{:?}", genome.repeats);
    assert!((0.003..0.05).contains(&share(microsatellite)), "{:?}", genome.repeats);
    assert!((0.003..0.03).contains(&share(unknown)), "{:?}", genome.repeats);
    let masked =
        genome.contigs.iter().flat_map(|contig| &contig.bases).filter(|base| base.is_ascii_lowercase()).count();
    assert!((0.35..0.60).contains(&share(masked)), "{masked}");
}

/// Lower-case letters alone do not make a repeat: the sequence must occur more than once.
#[test]
fn many_words_of_twenty_bases_occur_more_than_once() {
    let genome = generate(SPEC);
    let mut words: Vec<&[u8]> = Vec::new();
    for contig in genome.contigs.iter().filter(|contig| contig.alternate_of.is_none()) {
        words.extend(contig.bases.windows(20).filter(|word| !word.contains(&b'N')));
    }
    let number = words.len();
    words.sort_unstable();
    words.dedup_by(|one, other| one.eq_ignore_ascii_case(other));
    let repeated = 1.0 - words.len() as f64 / number as f64;
    assert!((0.05..0.6).contains(&repeated), "{repeated}");
}

#[test]
fn the_first_contig_starts_with_sequence_and_one_contig_is_shorter_than_a_read() {
    let genome = generate(SPEC);
    assert!(genome.contigs[0].bases[..100].iter().all(|base| b"ACGT".contains(base)));
    assert!(genome.contigs.iter().any(|contig| contig.bases.len() == SHORT_CONTIG_BASES));
    assert!(genome.contigs.iter().filter(|contig| contig.alternate_of.is_some()).count() >= 2);
}

#[test]
fn the_fasta_file_holds_the_contigs_and_is_written_once() {
    let directory = std::env::temp_dir().join(format!("godwit-identity-genome-{}", std::process::id()));
    let spec = GenomeSpec { bases: 200_000, seed: 9 };
    let path = write_once(spec, &directory).unwrap();
    let expected: Vec<Vec<u8>> =
        generate(spec).contigs.iter().map(|contig| contig.bases.to_ascii_uppercase()).collect();
    assert_eq!(read_contigs(&path).unwrap(), expected);
    let alternates = fs::read_to_string(directory.join("ref.fa.alt")).unwrap();
    assert!(alternates.lines().all(|line| line.split('\t').count() == 11 && line.contains("_alt")), "{alternates}");
    fs::write(&path, ">other\nACGT\n").unwrap();
    write_once(spec, &directory).unwrap();
    assert_eq!(read_contigs(&path).unwrap(), [b"ACGT".to_vec()]);
    fs::remove_dir_all(&directory).unwrap();
}
