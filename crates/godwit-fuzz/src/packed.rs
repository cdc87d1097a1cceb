//! Packed genomes.

use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use godwit_model::Region;
use godwit_transfer::delta::{Anchors, Collection, Keep, PackOptions, PackedGenome, Reference, pack, unpack};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::file::Scratch;

/// Bytes of magic and digest at the start of a file of chunks.
const START_BYTES: usize = 4 + 24;

/// The reference that `fuzz/seeds/packed` was made with: 3,000 bases, some lower case, some unknown.
const REFERENCE: &str = include_str!("../data/packed.fa");

fn reference() -> &'static (Reference, Anchors) {
    static REFERENCE_READ: OnceLock<(Reference, Anchors)> = OnceLock::new();
    REFERENCE_READ.get_or_init(|| {
        let scratch = Scratch::get();
        let path = scratch.write("packed.fa", REFERENCE.as_bytes());
        let reference = Reference::open(&path, Keep::Nowhere, 1).expect("it is a reference");
        let anchors = reference.anchors(1).expect("they are made in memory");
        (reference, anchors)
    })
}

/// The list of a collection, or a packed genome, as it is and with its checksums set right, so that what is behind them is read too; and any bytes packed
/// and unpacked.
pub(crate) fn packed(bytes: &[u8]) {
    if bytes.first() == Some(&b'{') {
        list(bytes);
    }
    look_at(bytes);
    look_at(&sealed(bytes));
    let (reference, anchors) = reference();
    let never = AtomicBool::new(false);
    let options = PackOptions { threads: 1, segment_bytes: 4096, quick: false };
    let (mut file, mut again) = (Vec::new(), Vec::new());
    pack(&mut &bytes[..], &mut file, reference, anchors, &options, &never).expect("anything can be packed");
    unpack(&mut &file[..], &mut again, Some(reference), 1, &never).expect("what was packed can be unpacked");
    assert!(again == bytes, "other bytes come back");
}

/// The list of a collection: its members lie in its directory, whatever it says.
fn list(bytes: &[u8]) {
    let (reference, _) = reference();
    let scratch = Scratch::get();
    let path = scratch.write("collection.json", bytes);
    let directory = path.parent().expect("it lies in a directory");
    let Ok(collection) = Collection::open(directory) else { return };
    for member in collection.members().iter().take(4) {
        let file = collection.file(&member.name).expect("it is a member");
        assert_eq!(file.parent(), Some(directory), "{}", member.name);
        let mut out = Vec::new();
        let _ = collection.extract(&member.name, &mut out, reference, 1, &AtomicBool::new(false));
        let region = Region { contig: "one".to_owned(), start: 0, end: 70 };
        let _ = collection.write_region(member, &region, &mut Vec::new(), reference, &AtomicBool::new(false));
    }
}

fn look_at(bytes: &[u8]) {
    let (reference, _) = reference();
    let mut text = Vec::new();
    let whole = unpack(&mut &bytes[..], &mut text, Some(reference), 1, &AtomicBool::new(false));
    if let Ok(summary) = &whole {
        assert_eq!(summary.text_bytes, text.len() as u64);
        assert_eq!(summary.packed_bytes, bytes.len() as u64);
    }
    let path = Scratch::get().write("x.gwp", bytes);
    let Ok(mut genome) = PackedGenome::open(&path, Some(reference)) else { return };
    File::open(genome.path()).expect("it is there as long as it is read");
    let names: Vec<(String, u64)> =
        genome.sequences().iter().take(4).map(|sequence| (sequence.name.clone(), sequence.residues)).collect();
    for (contig, residues) in names {
        let end = residues.min(u64::from(Region::OPEN_END)) as u32;
        let region = Region { contig, start: end / 2, end: (end / 2).saturating_add(70) };
        let mut out = Vec::new();
        if let Ok(bases) = genome.write_region(&region, "", &mut out) {
            assert!(bases <= 70 && out.len() as u64 > bases);
        }
    }
}

/// The same chunks with the checksums that they should have. What is no row of chunks stays as it is.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if let Some(text) = bytes.strip_prefix(b"GWP\x81")
        && let Some(end) = text.len().checked_sub(4)
    {
        let checksum = (xxh3_64(&bytes[..4 + end]) as u32).to_le_bytes();
        out[4 + end..].copy_from_slice(&checksum);
        return out;
    }
    let _ = seal(&mut out);
    out
}

fn seal(bytes: &mut [u8]) -> Option<()> {
    let mut at = START_BYTES;
    number(bytes, &mut at)?;
    let checksum = xxh3_64(bytes.get(..at)?);
    put(bytes, &mut at, checksum)?;
    for chunk in 0.. {
        let start = at;
        at += 1;
        let head = number(bytes, &mut at)?;
        let body = number(bytes, &mut at)?;
        at = at.checked_add(head)?;
        let checksum = xxh3_64_with_seed(bytes.get(start..at)?, chunk);
        put(bytes, &mut at, checksum)?;
        if body > 0 {
            let start = at;
            at = at.checked_add(body)?;
            let checksum = xxh3_64_with_seed(bytes.get(start..at)?, chunk);
            put(bytes, &mut at, checksum)?;
        }
    }
    None
}

fn number(bytes: &[u8], at: &mut usize) -> Option<usize> {
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

fn put(bytes: &mut [u8], at: &mut usize, checksum: u64) -> Option<()> {
    bytes.get_mut(*at..*at + 8)?.copy_from_slice(&checksum.to_le_bytes());
    *at += 8;
    Some(())
}
