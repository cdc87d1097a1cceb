//! Tests of clipping. The expected values were derived by hand from the rules of GATK 4.6.2.0.

use super::*;

fn parse(text: &str) -> Vec<CigarOp> {
    let (mut operations, mut bases) = (Vec::new(), 0);
    for letter in text.chars() {
        match (letter.to_digit(10), "MIDNSHP=X".find(letter)) {
            (Some(digit), _) => bases = bases * 10 + digit,
            (None, Some(code)) => operations.push(operation(std::mem::take(&mut bases), code as u8)),
            (None, None) => panic!("{letter} is not a CIGAR operation"),
        }
    }
    operations
}

fn text(cigar: &[CigarOp]) -> String {
    let letter = |code: u8| char::from(b"MIDNSHP=X"[usize::from(code)]);
    cigar.iter().map(|operation| format!("{}{}", operation.bases(), letter(operation.code()))).collect()
}

fn canonical(cigar: &str) -> Result<String, InvalidCigarError> {
    let mut builder = CigarBuilder::new();
    parse(cigar).iter().try_for_each(|operation| builder.push(operation.bases(), operation.code()))?;
    builder.finish().map(|cigar| text(&cigar))
}

fn read(cigar: &str) -> ClippedRead {
    let cigar = parse(cigar);
    ClippedRead { from: 0, to: cigar.iter().map(|operation| consumed(*operation).0).sum(), start: 100, cigar }
}

#[test]
fn a_canonical_cigar_has_no_deletions_at_its_ends() {
    for (cigar, expected) in [
        ("10M", "10M"),
        ("5M0I5M", "10M"),
        ("2D10M", "10M"),
        ("10M2D", "10M"),
        ("3S2D7M", "3S7M"),
        ("7M2D3S", "7M3S"),
        ("3I2D7M", "3I7M"),
        ("7M2D3I", "7M3I"),
        ("5M2I3D5M", "5M3D2I5M"),
        ("5M3D2I1D5M", "5M4D2I5M"),
        ("7M2D3I2S", "7M3I2S"),
        ("4H3S5M2S1H", "4H3S5M2S1H"),
    ] {
        assert_eq!(canonical(cigar).as_deref(), Ok(expected), "{cigar}");
    }
    for invalid in ["10S", "5M2S5M", "5M2H3S", "2D", "10S2D"] {
        assert_eq!(canonical(invalid), Err(InvalidCigarError), "{invalid}");
    }
}

#[test]
fn soft_clips_are_removed() {
    let mut clipped = read("3S10M2D4M1I2M5S");
    clipped.clip_soft_clips().unwrap();
    assert_eq!((clipped.from, clipped.to, clipped.start), (3, 20, 100));
    assert_eq!(text(&clipped.cigar), "3H10M2D4M1I2M5H");
    assert_eq!(clipped.end(), 118);
}

#[test]
fn a_clip_on_the_left_moves_the_start_beyond_a_deletion() {
    let mut clipped = read("5M3D10M");
    clipped.clip_left(5).unwrap();
    assert_eq!((text(&clipped.cigar).as_str(), clipped.start, clipped.from), ("5H10M", 108, 5));
    let mut clipped = read("5M2I10M");
    clipped.clip_left(6).unwrap();
    assert_eq!((text(&clipped.cigar).as_str(), clipped.start, clipped.from), ("6H1I10M", 105, 6));
    let mut clipped = read("5M3D10M");
    clipped.clip_right(5).unwrap();
    assert_eq!((text(&clipped.cigar).as_str(), clipped.start, clipped.to), ("5M10H", 100, 5));
}

#[test]
fn a_read_may_vanish() {
    let mut clipped = read("10M");
    clipped.clip_left(10).unwrap();
    assert_eq!(clipped.bases(), 0);
    clipped.clip_soft_clips().unwrap();
    assert_eq!(clipped.bases(), 0);
}

#[test]
fn positions_are_found_in_the_read() {
    let read = read("2S5M3D2I5M");
    let found: Vec<_> = [97, 98, 100, 104, 105, 107, 108, 112, 113].map(|at| read.base_at(at)).into();
    let expected = [
        None,
        Some((0, false)),
        Some((2, false)),
        Some((6, false)),
        Some((7, true)),
        Some((7, true)),
        Some((9, false)),
        Some((13, false)),
        None,
    ];
    assert_eq!(found, expected);
}
