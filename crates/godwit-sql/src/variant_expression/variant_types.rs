//! The types of a variant, as htslib 1.16 assigns them (`bcf_set_variant_type` in `vcf.c`).

/// Bits of the types; 0 is the type of a site without another allele than the reference.
const SNP: u32 = 1;
const MNP: u32 = 2;
const INDEL: u32 = 4;
const OTHER: u32 = 8;
const BREAKEND: u32 = 16;
const OVERLAP: u32 = 32;

/// Names of the types in expressions.
const NAMES: [(&str, u32); 10] = [
    ("snp", SNP),
    ("snps", SNP),
    ("indel", INDEL),
    ("indels", INDEL),
    ("mnp", MNP),
    ("mnps", MNP),
    ("other", OTHER),
    ("bnd", BREAKEND),
    ("overlap", OVERLAP),
    ("ref", 0),
];

/// Returns the bits of the type with a name.
pub(super) fn named_types(name: &str) -> Option<u32> {
    NAMES.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, types)| types)
}

/// Returns the bits of the type of one alternate allele.
pub(super) fn types_of_allele(reference: &str, alternate: &str) -> u32 {
    let (reference, alternate) = (reference.as_bytes(), alternate.as_bytes());
    match (reference, alternate) {
        (_, b"*") => return OVERLAP,
        ([base], [other]) if *other == b'.' || other == base || *other == b'X' => return 0,
        ([_], [_]) => return SNP,
        (_, b"<X>" | b"<*>" | b"<NON_REF>") => return 0,
        (_, [b'<', rest @ ..]) => return if rest.starts_with(b"X>") || rest.starts_with(b"*>") { 0 } else { OTHER },
        (_, [b']' | b'[', ..]) => return BREAKEND,
        _ => {}
    }
    let is_same = |(base, other): &(&u8, &u8)| base.eq_ignore_ascii_case(other);
    let shared = reference.iter().zip(alternate).take_while(is_same).count();
    match (&reference[shared..], &alternate[shared..]) {
        ([], []) => 0,
        ([], [b']' | b'[', ..]) => BREAKEND,
        ([], _) | (_, []) => INDEL,
        (base_rest, other_rest) => {
            let longest_end = base_rest.len().min(other_rest.len()) - 1;
            let ends = base_rest.iter().rev().zip(other_rest.iter().rev());
            let end = ends.take(longest_end).take_while(is_same).count();
            let (bases, others) = (&base_rest[..base_rest.len() - end], &other_rest[..other_rest.len() - end]);
            match (bases, others) {
                ([_], [_]) => SNP,
                ([.., base], [other]) if base.eq_ignore_ascii_case(other) => INDEL,
                ([base], [.., other]) if base.eq_ignore_ascii_case(other) => INDEL,
                ([_], _) | (_, [_]) => OTHER,
                (bases, others) if bases.len() == others.len() => MNP,
                _ => OTHER,
            }
        }
    }
}
