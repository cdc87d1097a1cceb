use super::*;

/// Builds a packed record with the given position, FLAG, CIGAR (length, code) and tags. All bases are A.
fn packed(contig: i32, position: i32, flag: u16, cigar: &[(u32, u32)], tags: &[u8]) -> Vec<u8> {
    let bases: u32 = cigar.iter().filter(|(_, op)| CigarOp(*op).consumes_read()).map(|(n, _)| n).sum();
    let mut bytes = Vec::new();
    bytes.extend(contig.to_le_bytes());
    bytes.extend(position.to_le_bytes());
    bytes.extend([5, 60, 0, 0]);
    bytes.extend((cigar.len() as u16).to_le_bytes());
    bytes.extend(flag.to_le_bytes());
    bytes.extend(bases.to_le_bytes());
    bytes.extend((-1i32).to_le_bytes());
    bytes.extend((-1i32).to_le_bytes());
    bytes.extend(0i32.to_le_bytes());
    bytes.extend(b"read\0");
    cigar.iter().for_each(|(n, op)| bytes.extend((n << 4 | op).to_le_bytes()));
    bytes.extend(vec![0x11; bases.div_ceil(2) as usize]);
    bytes.extend(vec![30; bases as usize]);
    bytes.extend(tags);
    bytes
}

#[test]
fn five_prime_end_undoes_soft_and_hard_clips() {
    let cigar = [(3, 5), (2, 4), (10, 0), (1, 2), (4, 4), (6, 5)];
    let forward = packed(0, 100, 0, &cigar, b"");
    assert_eq!(RawRecord::from_bytes(&forward, 1).unwrap().unclipped_five_prime(), 95);
    let reverse = packed(0, 100, flags::REVERSE, &cigar, b"");
    assert_eq!(RawRecord::from_bytes(&reverse, 1).unwrap().unclipped_five_prime(), 100 + 11 - 1 + 10);
}

#[test]
fn tags_of_every_type_are_walked() {
    let mut tags =
        b"XAAxNMC\x01XSs\x01\x00XIi\x01\x00\x00\x00XFf\x00\x00\x00\x00XBBs\x02\x00\x00\x00\x01\x00\x02\x00".to_vec();
    tags.extend(b"XZZtext\0RGZlane1\0");
    let bytes = packed(0, 1, 0, &[(4, 0)], &tags);
    let record = RawRecord::from_bytes(&bytes, 1).unwrap();
    assert_eq!(record.read_group(), Some(&b"lane1"[..]));
    assert_eq!(record.tag(*b"XZ"), Some((b'Z', &b"text"[..])));
    assert_eq!(record.tag(*b"YY"), None);
}

#[test]
fn a_tag_cut_short_is_no_tag() {
    for tags in [&b"RGZlane"[..], b"RGB", b"XIi\x01", b"XBBi\xff\xff\xff\xffRGZa\0"] {
        let bytes = packed(0, 1, 0, &[(4, 0)], tags);
        assert_eq!(RawRecord::from_bytes(&bytes, 1).unwrap().read_group(), None);
    }
}

#[test]
fn long_cigars_come_from_the_cg_tag() {
    let mut tags = b"CGBI\x03\x00\x00\x00".to_vec();
    for op in [5u32 << 4 | 4, 3 << 4, 2 << 4] {
        tags.extend(op.to_le_bytes());
    }
    let bytes = packed(0, 10, 0, &[(10, 4), (5, 3)], &tags);
    let record = RawRecord::from_bytes(&bytes, 1).unwrap();
    assert_eq!(record.cigar().count(), 3);
    assert_eq!(record.unclipped_five_prime(), 5);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let good = packed(0, 1, 0, &[(40, 0)], b"");
    for bytes in 0..good.len() {
        assert!(RawRecord::from_bytes(&good[..bytes], 1).is_err(), "{bytes} bytes");
    }
    assert_eq!(RawRecord::from_bytes(&good, 0).unwrap_err(), RecordError::ContigOutOfRange { contig: 0, contigs: 0 });
}

#[test]
fn keys_order_by_contig_position_strand_with_unplaced_last() {
    let keys = [
        SortKey::new(0, -1, false),
        SortKey::new(0, 0, false),
        SortKey::new(0, 0, true),
        SortKey::new(0, 1, false),
        SortKey::new(1, 0, false),
        SortKey::new(-1, -1, false),
    ];
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(keys[5] >= SortKey::UNPLACED && keys[4] < SortKey::UNPLACED);
}

#[test]
fn bins_match_the_specification() {
    assert_eq!(reg2bin(0, 1), 4681);
    assert_eq!(reg2bin(16383, 16385), 585);
    assert_eq!(reg2bin(0, 1 << 29), 0);
    assert_eq!(reg2bin(-1, 0), 4680);
}

#[test]
fn keys_return_the_contig_and_position_they_were_made_from() {
    for (contig, position) in [(0, 0), (-1, -1), (7, 249_250_620), (3, i32::MAX - 1), (-1, 5)] {
        for reverse in [false, true] {
            let key = SortKey::new(contig, position, reverse);
            assert_eq!((key.contig(), key.position()), (contig, position));
        }
    }
}
