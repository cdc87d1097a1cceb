use std::fs;
use std::io::{BufReader, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use godwit_model::Region;
use proptest::prelude::*;

use super::zstd_bytes::{TEXT_LEVEL, compress};
use super::*;

static NOT_CANCELLED: AtomicBool = AtomicBool::new(false);

fn open_reference(text: &[u8]) -> (tempfile::TempDir, Reference, KmerIndex) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.fa");
    std::fs::write(&path, text).unwrap();
    let reference = Reference::open(&path, ReferenceCachePolicy::Disabled, 1).unwrap();
    let anchors = reference.kmer_index(1).unwrap();
    (directory, reference, anchors)
}

fn pack_text(text: &[u8], reference: &Reference, anchors: &KmerIndex, segment_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let options = PackOptions { threads: 2, segment_bytes, fast: false };
    let summary = pack(&mut &text[..], &mut out, reference, anchors, &options, &NOT_CANCELLED).unwrap();
    assert_eq!((summary.text_bytes, summary.packed_bytes), (text.len() as u64, out.len() as u64));
    out
}

fn unpack_file(packed: &[u8], reference: &Reference) -> Result<Vec<u8>, DeltaError> {
    let mut out = Vec::new();
    unpack(&mut &packed[..], &mut out, Some(reference), 2, &NOT_CANCELLED).map(|_| out)
}

fn bases(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut base = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"ACGT"[(state >> 33) as usize % 4]
    };
    (0..count).map(|_| base()).collect()
}

fn fasta(name: &str, bases: &[u8], width: usize) -> Vec<u8> {
    let mut text = format!(">{name}\n").into_bytes();
    for line in bases.chunks(width) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text
}

fn mutate_text(text: &[u8], mutations: &MutationRates) -> Vec<u8> {
    let mut out = Vec::new();
    mutate_fasta(&mut BufReader::new(text), &mut out, mutations).unwrap();
    out
}

/// Returns the FASTA text of a reference with two sequences, lower-case letters and N, and the text of a mutated copy.
fn reference_and_individual() -> (Vec<u8>, Vec<u8>) {
    let mut one = bases(300_000, 1);
    one[..1000].fill(b'N');
    one[200_000..200_500].fill(b'N');
    for start in (0..290_000).step_by(7_000) {
        one[start..start + 2_100].make_ascii_lowercase();
    }
    let reference = [fasta("one first of two", &one, 60), fasta("two", &bases(50_000, 2), 60)].concat();
    let more = MutationRates { structural_variant_rate: 1e-4, inversion_rate: 2e-5, ..MutationRates::human(5) };
    let other = mutate_text(&reference, &more);
    (reference, other)
}

#[test]
fn an_individual_takes_a_few_bytes_for_each_variant() {
    let (text, other) = reference_and_individual();
    let (_directory, reference, anchors) = open_reference(&text);
    let whole = pack_text(&other, &reference, &anchors, 32 << 20);
    assert_eq!(unpack_file(&whole, &reference).unwrap(), other);
    // The copy has 350 substitutions, 45 short indels, 35 long ones with some 20,000 inserted bases, and 7 inversions.
    assert!(whole.len() < 10_000, "{} bytes", whole.len());
    let same = pack_text(&text, &reference, &anchors, 32 << 20);
    assert!(same.len() < 250, "{} bytes for what is the reference", same.len());
    let cut = pack_text(&other, &reference, &anchors, 40_000);
    assert_eq!(unpack_file(&cut, &reference).unwrap(), other);
    assert!(cut.len() < whole.len() + 1_500, "{} and {}", cut.len(), whole.len());
}

#[test]
fn sequences_in_another_order_under_other_names_and_reversed_are_found() {
    let (text, _) = reference_and_individual();
    let (_directory, reference, anchors) = open_reference(&text);
    let one = bases(300_000, 1);
    let reversed: Vec<u8> = one[2_000..90_000].iter().rev().map(|base| bases::complement_letter(*base)).collect();
    let other = [fasta("x", &bases(50_000, 2), 70), fasta("y", &reversed, 71)].concat();
    let file = pack_text(&other, &reference, &anchors, 32 << 20);
    assert_eq!(unpack_file(&file, &reference).unwrap(), other);
    assert!(file.len() < 400, "{} bytes", file.len());
    // A reference with the same sequences in another order and under other names also unpacks the file.
    let mut lower = one;
    lower[..1000].fill(b'N');
    lower[200_000..200_500].fill(b'N');
    let swapped = [fasta("b", &bases(50_000, 2), 60), fasta("a", &lower, 60)].concat();
    let (_directory, swapped, _) = open_reference(&swapped);
    assert_ne!(swapped.digest(), reference.digest());
    assert_eq!(unpack_file(&file, &swapped).unwrap(), other);
}

#[test]
fn another_reference_is_refused_with_both_digests() {
    let (text, other) = reference_and_individual();
    let (_directory, reference, anchors) = open_reference(&text);
    let file = pack_text(&other, &reference, &anchors, 32 << 20);
    let (_directory, wrong, _) = open_reference(&fasta("one", &bases(1000, 9), 60));
    let error = unpack_file(&file, &wrong).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, DeltaError::WrongReference { .. }), "{message}");
    assert!(message.contains(&reference.digest().to_string()) && message.contains(&wrong.digest().to_string()));
    let unmasked: Vec<u8> = text
        .split_inclusive(|byte| *byte == b'\n')
        .flat_map(|line| match line[0] {
            b'>' => line.to_vec(),
            _ => line.to_ascii_uppercase(),
        })
        .collect();
    let (_directory, unmasked, _) = open_reference(&unmasked);
    assert_eq!(unmasked.digest(), reference.digest());
    assert!(matches!(unpack_file(&file, &unmasked).unwrap_err(), DeltaError::CaseMismatch { .. }));
    let mut nothing = Vec::new();
    let none = unpack(&mut &file[..], &mut nothing, None, 1, &NOT_CANCELLED).unwrap_err();
    assert!(matches!(none, DeltaError::MissingReference { .. }));
}

#[test]
fn anything_comes_back_and_is_no_longer_than_zstd_makes_it() {
    let (text, other) = reference_and_individual();
    let (_directory, reference, anchors) = open_reference(&text);
    let protein: Vec<u8> =
        bases(40_000, 4).iter().zip(bases(40_000, 5)).map(|(one, two)| one.wrapping_add(two) % 23 + b'A').collect();
    let crlf = String::from_utf8(other[..60_000].to_vec()).unwrap().replace('\n', "\r\n").into_bytes();
    let iupac: Vec<u8> =
        other.iter().enumerate().map(|(at, byte)| if at % 211 == 0 && *byte == b'A' { b'R' } else { *byte }).collect();
    let genes: Vec<u8> = (0..200_u64)
        .flat_map(|at| {
            let gene = mutate_text(
                &fasta("g", &bases(900, 77), 900),
                &MutationRates { substitution_rate: 0.02, ..MutationRates::none(at) },
            );
            [format!(">gene{at}\n").as_bytes(), &gene[3..]].concat()
        })
        .collect();
    let texts: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"A".to_vec(),
        b"\n".to_vec(),
        b">".to_vec(),
        b">only a title".to_vec(),
        b">a\nACGT".to_vec(),
        b">a\r\nACGT\r\nACGT\r\n".to_vec(),
        bases(100_000, 12),
        fasta("far", &bases(100_000, 13), 60),
        fasta("protein", &protein, 60),
        crlf,
        iupac,
        genes,
        other[..200_001].to_vec(),
        b"\n\n\n".repeat(1000),
        b"ACGT\n>x\n".repeat(5000),
        vec![0xFF; 10_000],
        vec![b'N'; 1_000_000],
        (0..=255).collect(),
        compress(&other, 3, &[]),
    ];
    for text in &texts {
        for segment_bytes in [32 << 20, 30_000] {
            let file = pack_text(text, &reference, &anchors, segment_bytes);
            let name = String::from_utf8_lossy(&text[..text.len().min(30)]).into_owned();
            assert!(unpack_file(&file, &reference).unwrap() == *text, "{name:?}");
            if segment_bytes > text.len() {
                let zstd = compress(text, TEXT_LEVEL, &[]).len() + 12;
                assert!(file.len() * 100 <= zstd * 101, "{name:?}: {} and {zstd}", file.len());
            }
        }
    }
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let (text, _) = reference_and_individual();
    let (_directory, reference, anchors) = open_reference(&text);
    let other = mutate_text(&text, &MutationRates::human(3));
    let inputs = [&other[..90_000], b">p\nMKVLAAGIVGLPNWQ\n"];
    for (text, segment_bytes) in inputs.iter().zip([30_000, 1 << 20]) {
        let file = pack_text(text, &reference, &anchors, segment_bytes);
        for at in 0..file.len() {
            for change in [1, 0x80, 0xFF] {
                let mut damaged = file.clone();
                damaged[at] ^= change;
                assert!(unpack_file(&damaged, &reference).is_err(), "byte {at} of {} by {change}", file.len());
            }
            assert!(unpack_file(&file[..at], &reference).is_err(), "cut at {at}");
        }
        assert!(unpack_file(&[&file[..], b"\0"].concat(), &reference).is_err());
    }
}

#[test]
fn regions_are_those_of_the_text() {
    let (text, other) = reference_and_individual();
    let (directory, reference, anchors) = open_reference(&text);
    let sequence: Vec<u8> = other
        .split(|byte| *byte == b'\n')
        .skip(1)
        .take_while(|line| !line.starts_with(b">"))
        .flatten()
        .copied()
        .collect();
    let protein = b">one\nMKVLAAGIVGLPNWQEEEEDDSSTTRRKKHHFFYYWW\n".to_vec();
    for (text, sequence, segment_bytes) in
        [(&other, &sequence, 32 << 20), (&other, &sequence, 50_000), (&protein, &protein[5..42].to_vec(), 8)]
    {
        let path = directory.path().join("x.gwp");
        std::fs::write(&path, pack_text(text, &reference, &anchors, segment_bytes)).unwrap();
        let mut genome = GwpReader::open(&path, Some(&reference)).unwrap();
        assert_eq!(genome.sequences()[0].name, "one");
        assert_eq!(genome.sequences()[0].residue_count, sequence.len() as u64);
        assert_eq!(genome.text_bytes(), text.len() as u64);
        let length = sequence.len();
        for (start, end) in [(0, length), (5, 12), (length / 2, length / 2 + 1), (length - 3, length)] {
            let region = Region { contig: "one".into(), start: start as u32, end: end as u32 };
            let mut out = Vec::new();
            genome.write_region(&region, "", &mut out).unwrap();
            assert!(out == fasta(&region.to_string(), &sequence[start..end], 60), "{region}");
        }
        let mut region = Region { contig: "none".into(), start: 0, end: 5 };
        let error = genome.write_region(&region, "", &mut Vec::new()).unwrap_err();
        assert!(matches!(error, DeltaError::ContigNotFound { .. }));
        (region.contig, region.start) = ("one".into(), 2_000_000);
        let error = genome.write_region(&region, "", &mut Vec::new()).unwrap_err();
        assert!(matches!(error, DeltaError::BeyondEnd { .. }));
    }
}

#[test]
fn a_collection_keeps_genomes_apart() {
    let (text, _) = reference_and_individual();
    let (directory, reference, anchors) = open_reference(&text);
    let place = directory.path().join("many");
    let options = PackOptions::default();
    let genomes: Vec<Vec<u8>> = (0..3).map(|seed| mutate_text(&text, &MutationRates::human(seed))).collect();
    for (at, genome) in genomes.iter().enumerate() {
        let mut collection = Collection::open_or_create(&place, &reference).unwrap();
        collection
            .add_member(&format!("s{at}"), &mut &genome[..], &reference, &anchors, &options, &NOT_CANCELLED)
            .unwrap();
        let twice = collection.add_member("s0", &mut &genome[..], &reference, &anchors, &options, &NOT_CANCELLED);
        assert!(matches!(twice.unwrap_err(), DeltaError::Collection { .. }));
    }
    // Member names in a modified manifest must not lead to files outside the collection.
    let list = fs::read_to_string(place.join("collection.json")).unwrap();
    for name in ["../x", ".x", "a/x", ""] {
        fs::write(
            place.join("collection.json"),
            list.replacen("\"name\": \"", &format!("\"name\": \"{name}\", \"was\": \""), 1),
        )
        .unwrap();
        assert!(matches!(Collection::open(&place).unwrap_err(), DeltaError::Collection { .. }), "{name}");
    }
    fs::write(place.join("collection.json"), &list).unwrap();
    let collection = Collection::open(&place).unwrap();
    assert_eq!(collection.members().len(), 3);
    for (at, genome) in genomes.iter().enumerate() {
        let mut out = Vec::new();
        collection.extract_member(&format!("s{at}"), &mut out, &reference, 2, &NOT_CANCELLED).unwrap();
        assert!(out == *genome);
    }
    let mut out = Vec::new();
    let region = Region { contig: "two".into(), start: 100, end: 160 };
    assert!(collection.sequence_names(&reference, &NOT_CANCELLED).unwrap().contains("two"));
    for member in collection.members() {
        assert!(collection.write_region(member, &region, &mut out, &reference, &NOT_CANCELLED).unwrap());
    }
    assert!(out.starts_with(b">s0:two:101-160\n") && out.len() > 180);
    fs::copy(place.join("s1.gwp"), place.join("s2.gwp")).unwrap();
    let error = collection.extract_member("s2", &mut Vec::new(), &reference, 1, &NOT_CANCELLED).unwrap_err();
    assert!(error.to_string().contains("was changed after it was added"), "{error}");
    let (_other, wrong, _) = open_reference(b">x\nACGT\n");
    assert!(Collection::open_or_create(&place, &wrong).is_err());
}

#[test]
fn a_full_disk_is_reported() {
    struct FullDisk(usize);
    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (text, other) = reference_and_individual();
    let (_directory, reference, anchors) = open_reference(&text);
    let options = PackOptions { threads: 2, segment_bytes: 20_000, fast: false };
    for room in [0, 10, 1000] {
        let result = pack(&mut &other[..], &mut FullDisk(room), &reference, &anchors, &options, &NOT_CANCELLED);
        assert!(matches!(result, Err(DeltaError::Stream { .. })));
    }
    let file = pack_text(&other, &reference, &anchors, 20_000);
    let result = unpack(&mut &file[..], &mut FullDisk(50_000), Some(&reference), 2, &NOT_CANCELLED);
    assert!(matches!(result, Err(DeltaError::Stream { .. })));
    let stop = AtomicBool::new(true);
    let result = unpack(&mut &file[..], &mut Vec::new(), Some(&reference), 2, &stop);
    assert!(matches!(result, Err(DeltaError::Cancelled)));
}

#[test]
fn what_was_kept_beside_a_reference_is_made_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.fa");
    let (text, other) = reference_and_individual();
    std::fs::write(&path, &text).unwrap();
    let pack_with = |path: &Path| {
        let reference = Reference::open(path, ReferenceCachePolicy::BesideFasta, 2).unwrap();
        let anchors = reference.kmer_index(2).unwrap();
        (pack_text(&other, &reference, &anchors, 1 << 20), reference.digest())
    };
    let first = pack_with(&path);
    let kept = directory.path().join("r.fa.gwp-bases");
    assert!(kept.exists() && directory.path().join("r.fa.gwp-anchors").exists());
    assert_eq!(pack_with(&path), first, "kept and made alike");
    for kept in ["r.fa.gwp-bases", "r.fa.gwp-anchors"] {
        let kept = directory.path().join(kept);
        let mut bytes = std::fs::read(&kept).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&kept, &bytes).unwrap();
        assert_eq!(pack_with(&path), first, "damage is noticed");
        std::fs::write(&kept, &bytes[..middle]).unwrap();
        assert_eq!(pack_with(&path), first, "a cut is noticed");
    }
    std::fs::write(&path, fasta("other", &bases(5_000, 3), 60)).unwrap();
    assert_ne!(pack_with(&path).1, first.1);
}

/// Generates pairs of a reference and a text that is composed of its pieces.
fn related() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let piece = (0..6_000_usize, 1..900_usize, 0..8_u8, any::<u64>());
    (any::<u64>(), prop::collection::vec(piece, 0..25)).prop_map(|(seed, pieces)| {
        let reference = bases(7_000, seed);
        let mut text = b">t\n".to_vec();
        for (start, length, kind, seed) in pieces {
            let piece = &reference[start..start + length];
            match kind {
                0..3 => text.extend_from_slice(piece),
                3 => text.extend(piece.iter().rev().map(|base| bases::complement_letter(*base))),
                4 => text.extend(bases(length / 4, seed)),
                5 => text.extend(piece.to_ascii_lowercase()),
                6 => text.extend(std::iter::repeat_n(b"NRYn-*"[(seed % 6) as usize], length)),
                _ => text.extend_from_slice(
                    [&b"\n"[..], b"\r\n", b"\n>u v\n", b"\n\n", b"ACACACACACACACAC"][(seed % 5) as usize],
                ),
            }
        }
        (fasta("r", &reference, 60), text)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_two_sequences_come_back((reference, text) in related(), segment_bytes in prop::sample::select(vec![1 << 20, 5_000, 300])) {
        let (_directory, reference, anchors) = open_reference(&reference);
        let file = pack_text(&text, &reference, &anchors, segment_bytes);
        prop_assert!(unpack_file(&file, &reference).unwrap() == text);
    }

    #[test]
    fn any_bytes_come_back(text in prop::collection::vec(prop::sample::select(b"ACGTacgtNn\n\r>x \0\xFF".to_vec()), 0..600), cut in 1..200_usize) {
        let (_directory, reference, anchors) = open_reference(b">r\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n");
        for segment_bytes in [cut, 1 << 20] {
            let file = pack_text(&text, &reference, &anchors, segment_bytes);
            prop_assert!(unpack_file(&file, &reference).unwrap() == text);
        }
    }
}
