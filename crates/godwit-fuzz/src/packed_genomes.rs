//! Fuzz target for delta-compressed genomes (`gwp` files) and collections of them.

use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use godwit_delta::{Collection, GwpReader, KmerIndex, PackOptions, Reference, ReferenceCachePolicy, pack, unpack};
use godwit_model::Region;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::input_files::ScratchDirectory;

/// Size in bytes of the magic number and the digest at the start of a `gwp` file.
const START_BYTES: usize = 4 + 24;

/// The reference of the seed files in `fuzz/seeds/packed`: 3,000 bases, of which some are lower case or unknown.
const REFERENCE: &str = include_str!("../data/packed.fa");

fn reference() -> &'static (Reference, KmerIndex) {
    static REFERENCE_READ: OnceLock<(Reference, KmerIndex)> = OnceLock::new();
    REFERENCE_READ.get_or_init(|| {
        let scratch = ScratchDirectory::for_this_thread();
        let path = scratch.write("packed.fa", REFERENCE.as_bytes());
        let reference = Reference::open(&path, ReferenceCachePolicy::Disabled, 1).expect("it is a reference");
        let anchors = reference.kmer_index(1).expect("they are made in memory");
        (reference, anchors)
    })
}

/// Reads the input as the list of a collection if it starts with `{`, and as a packed genome. Reads the packed genome a
/// second time with corrected checksums, so that the parser accepts the data after them. Also checks that packing and
/// unpacking the input returns the same bytes.
pub(crate) fn packed(bytes: &[u8]) {
    if bytes.first() == Some(&b'{') {
        check_collection_list(bytes);
    }
    check_packed_genome(bytes);
    check_packed_genome(&with_valid_checksums(bytes));
    let (reference, anchors) = reference();
    let never = AtomicBool::new(false);
    let options = PackOptions { threads: 1, segment_bytes: 4096, fast: false };
    let (mut file, mut again) = (Vec::new(), Vec::new());
    pack(&mut &bytes[..], &mut file, reference, anchors, &options, &never).expect("anything can be packed");
    unpack(&mut &file[..], &mut again, Some(reference), 1, &never).expect("what was packed can be unpacked");
    assert!(again == bytes, "other bytes come back");
}

/// Reads the list of a collection, and checks that the paths of its members are always in the directory of the
/// collection.
fn check_collection_list(bytes: &[u8]) {
    let (reference, _) = reference();
    let scratch = ScratchDirectory::for_this_thread();
    let path = scratch.write("collection.json", bytes);
    let directory = path.parent().expect("it lies in a directory");
    let Ok(collection) = Collection::open(directory) else { return };
    for member in collection.members().iter().take(4) {
        let file = collection.member_path(&member.name).expect("it is a member");
        assert_eq!(file.parent(), Some(directory), "{}", member.name);
        let mut out = Vec::new();
        let _ = collection.extract_member(&member.name, &mut out, reference, 1, &AtomicBool::new(false));
        let region = Region { contig: "one".to_owned(), start: 0, end: 70 };
        let _ = collection.write_region(member, &region, &mut Vec::new(), reference, &AtomicBool::new(false));
    }
}

fn check_packed_genome(bytes: &[u8]) {
    let (reference, _) = reference();
    let mut text = Vec::new();
    let whole = unpack(&mut &bytes[..], &mut text, Some(reference), 1, &AtomicBool::new(false));
    if let Ok(summary) = &whole {
        assert_eq!(summary.text_bytes, text.len() as u64);
        assert_eq!(summary.packed_bytes, bytes.len() as u64);
    }
    let path = ScratchDirectory::for_this_thread().write("x.gwp", bytes);
    let Ok(mut genome) = GwpReader::open(&path, Some(reference)) else { return };
    File::open(genome.path()).expect("it is there as long as it is read");
    let names: Vec<(String, u64)> =
        genome.sequences().iter().take(4).map(|sequence| (sequence.name.clone(), sequence.residue_count)).collect();
    for (contig, residues) in names {
        let end = residues.min(u64::from(Region::OPEN_END)) as u32;
        let region = Region { contig, start: end / 2, end: (end / 2).saturating_add(70) };
        let mut out = Vec::new();
        if let Ok(bases) = genome.write_region(&region, "", &mut out) {
            assert!(bases <= 70 && out.len() as u64 > bases);
        }
    }
}

/// Returns the bytes of a `gwp` file with corrected checksums, up to the first chunk that cannot be parsed.
fn with_valid_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if let Some(text) = bytes.strip_prefix(b"GWP\x81")
        && let Some(end) = text.len().checked_sub(4)
    {
        let checksum = (xxh3_64(&bytes[..4 + end]) as u32).to_le_bytes();
        out[4 + end..].copy_from_slice(&checksum);
        return out;
    }
    let _ = fix_chunk_checksums(&mut out);
    out
}

fn fix_chunk_checksums(bytes: &mut [u8]) -> Option<()> {
    let mut at = START_BYTES;
    read_varint(bytes, &mut at)?;
    let checksum = xxh3_64(bytes.get(..at)?);
    write_checksum(bytes, &mut at, checksum)?;
    for chunk in 0.. {
        let start = at;
        at += 1;
        let head = read_varint(bytes, &mut at)?;
        let body = read_varint(bytes, &mut at)?;
        at = at.checked_add(head)?;
        let checksum = xxh3_64_with_seed(bytes.get(start..at)?, chunk);
        write_checksum(bytes, &mut at, checksum)?;
        if body > 0 {
            let start = at;
            at = at.checked_add(body)?;
            let checksum = xxh3_64_with_seed(bytes.get(start..at)?, chunk);
            write_checksum(bytes, &mut at, checksum)?;
        }
    }
    None
}

fn read_varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0;
    for shift in (0..56).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= usize::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn write_checksum(bytes: &mut [u8], at: &mut usize, checksum: u64) -> Option<()> {
    bytes.get_mut(*at..*at + 8)?.copy_from_slice(&checksum.to_le_bytes());
    *at += 8;
    Some(())
}
