//! The order of the records of a BAM file, as `SO` of its header states it.

use std::cmp::Ordering;

use godwit_formats::sam::Header;
use godwit_model::{Genome, RawRecord};

use super::ORDER_CLAUSE;

/// A check that records arrive in the order that the header states (SAMv1 §1.3, `SO`).
#[derive(Debug)]
pub(super) enum ReadOrder {
    /// `SO:coordinate`: the contig, -1 last, and the position of the last record.
    Coordinate { last: (u32, i32) },
    /// `SO:queryname`: the name of the last record, and the orders of names that hold so far.
    Name { last: Vec<u8>, is_natural: bool, is_lexicographic: bool },
    /// Any other order, which is not checked.
    Unknown,
}

impl ReadOrder {
    pub(super) fn from_header(header: &Header) -> Self {
        let order = header.lines().find(|line| line.starts_with(b"@HD\t"));
        let order =
            order.and_then(|line| line.split(|byte| *byte == b'\t').find_map(|field| field.strip_prefix(b"SO:")));
        match order {
            Some(b"coordinate") => Self::Coordinate { last: (0, i32::MIN) },
            Some(b"queryname") => Self::Name { last: Vec::new(), is_natural: true, is_lexicographic: true },
            _ => Self::Unknown,
        }
    }

    pub(super) fn is_coordinate(&self) -> bool {
        matches!(self, Self::Coordinate { .. })
    }

    /// Checks that a record may follow the one before it.
    ///
    /// # Errors
    /// A description of the problem.
    pub(super) fn check(&mut self, record: RawRecord, genome: &Genome) -> Result<(), String> {
        match self {
            Self::Unknown => Ok(()),
            Self::Coordinate { last } => {
                let next = (record.contig() as u32, record.position());
                if next < *last {
                    let contig = genome.contigs().get(next.0 as usize).map_or("*", |contig| contig.name.as_str());
                    return Err(format!(
                        "its position {contig}:{} is before that of the row before it, but the header has SO:coordinate; \
                         add {ORDER_CLAUSE}",
                        i64::from(next.1) + 1
                    ));
                }
                *last = next;
                Ok(())
            }
            Self::Name { last, is_natural, is_lexicographic } => {
                let name = record.name();
                *is_natural &= natural_order(last, name) != Ordering::Greater;
                *is_lexicographic &= last.as_slice() <= name;
                if !*is_natural && !*is_lexicographic {
                    return Err(format!(
                        "the name {:?} is before that of an earlier row, but the header has SO:queryname; add ORDER BY name",
                        String::from_utf8_lossy(name)
                    ));
                }
                last.clear();
                last.extend_from_slice(name);
                Ok(())
            }
        }
    }
}

/// Compares names in the natural order of `samtools sort -n`: runs of digits by their number, without leading zeros
/// (`strnum_cmp` in `bam_sort.c` of samtools 1.16).
fn natural_order(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        match (a.split_first(), b.split_first()) {
            (None, _) | (_, None) => return a.len().min(1).cmp(&b.len().min(1)),
            (Some((x, rest_a)), Some((y, rest_b))) if !x.is_ascii_digit() || !y.is_ascii_digit() => {
                if x != y {
                    return x.cmp(y);
                }
                (a, b) = (rest_a, rest_b);
            }
            _ => {
                let ((number_a, rest_a), (number_b, rest_b)) = (split_number(a), split_number(b));
                match number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b)) {
                    Ordering::Equal => (a, b) = (rest_a, rest_b),
                    different => return different,
                }
            }
        }
    }
}

/// Splits the digits at the start of a text from the rest, and removes their leading zeros.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let zeros = text.iter().take_while(|byte| **byte == b'0').count();
    let digits = text[zeros..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    text[zeros..].split_at(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_samtools_does() {
        for (a, b) in [("r2", "r10"), ("a", "b"), ("r1", "r1a"), ("x9y1", "x9y2"), ("r", "r1"), ("r09", "r10")] {
            assert_eq!(natural_order(a.as_bytes(), b.as_bytes()), Ordering::Less, "{a} {b}");
            assert_eq!(natural_order(b.as_bytes(), a.as_bytes()), Ordering::Greater, "{b} {a}");
        }
        assert_eq!(natural_order(b"r007", b"r7"), Ordering::Equal);
    }
}
