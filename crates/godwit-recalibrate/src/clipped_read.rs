//! The part of a read whose bases are counted: without adapter and soft clips (GATK 4.6.2.0, `BaseRecalibrationEngine`,
//! `ReadClipper`, `CigarBuilder`).

use godwit_model::{CigarOp, RawRecord, flags};

/// Codes of CIGAR operations.
const INSERTION: u8 = 1;
const DELETION: u8 = 2;
const SOFT_CLIP: u8 = 4;
const HARD_CLIP: u8 = 5;

/// Sections of a CIGAR, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    LeftHardClip,
    LeftSoftClip,
    Middle,
    RightSoftClip,
    RightHardClip,
}

/// An alignment whose CIGAR is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidCigarError;

fn operation(bases: u32, code: u8) -> CigarOp {
    CigarOp(bases << 4 | u32::from(code))
}

/// A builder of a CIGAR in canonical form: operations of the same kind are joined, deletions precede insertions, and
/// there are none at the ends. A removed deletion does not move the start of the alignment.
#[derive(Debug)]
struct CigarBuilder {
    operations: Vec<CigarOp>,
    last_code: Option<u8>,
    section: Section,
}

impl CigarBuilder {
    fn new() -> Self {
        Self { operations: Vec::new(), last_code: None, section: Section::LeftHardClip }
    }

    fn ends_with_deletion_and_insertion(&self) -> bool {
        let before = self.operations.len().checked_sub(2).map(|at| self.operations[at].code());
        self.last_code == Some(INSERTION) && before == Some(DELETION)
    }

    fn push(&mut self, bases: u32, code: u8) -> Result<(), InvalidCigarError> {
        let count = self.operations.len();
        if bases == 0 || code == DELETION && self.is_at_left_end() {
            return Ok(());
        }
        self.enter_section(code)?;
        let Some(last_code) = self.last_code else {
            self.operations.push(operation(bases, code));
            self.last_code = Some(code);
            return Ok(());
        };
        let last = operation(1, last_code);
        let is_clip = operation(bases, code).is_clip();
        if code == last_code {
            self.operations[count - 1] = operation(self.operations[count - 1].bases() + bases, code);
        } else if is_clip && !last.consumes_read() && !last.is_clip() {
            self.operations[count - 1] = operation(bases, code);
            self.last_code = Some(code);
        } else if is_clip && self.ends_with_deletion_and_insertion() {
            self.operations.remove(count - 2);
            self.operations.push(operation(bases, code));
        } else if code == DELETION && last_code == INSERTION {
            if self.ends_with_deletion_and_insertion() {
                self.operations[count - 2] = operation(self.operations[count - 2].bases() + bases, DELETION);
            } else {
                self.operations.insert(count - 1, operation(bases, DELETION));
            }
        } else {
            self.operations.push(operation(bases, code));
            self.last_code = Some(code);
        }
        Ok(())
    }

    /// Returns whether a deletion at this place would be at the left end of the alignment.
    fn is_at_left_end(&self) -> bool {
        match (self.last_code, self.operations.len()) {
            (None, _) => true,
            (Some(INSERTION), 1) => true,
            (Some(INSERTION), count) => self.operations[count - 2].is_clip(),
            (Some(code), _) => operation(1, code).is_clip(),
        }
    }

    fn enter_section(&mut self, code: u8) -> Result<(), InvalidCigarError> {
        self.section = match (code, self.section) {
            (HARD_CLIP, Section::LeftHardClip) => Section::LeftHardClip,
            (HARD_CLIP, _) => Section::RightHardClip,
            (SOFT_CLIP, Section::RightHardClip) => return Err(InvalidCigarError),
            (SOFT_CLIP, Section::LeftHardClip) => Section::LeftSoftClip,
            (SOFT_CLIP, Section::Middle) => Section::RightSoftClip,
            (SOFT_CLIP, section) => section,
            (_, section) if section >= Section::RightSoftClip => return Err(InvalidCigarError),
            (_, _) => Section::Middle,
        };
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<CigarOp>, InvalidCigarError> {
        let starts_with_soft_clip = self.operations.first().is_some_and(|first| first.code() == SOFT_CLIP);
        if self.section == Section::LeftSoftClip && starts_with_soft_clip {
            return Err(InvalidCigarError);
        }
        if self.last_code == Some(DELETION) {
            self.operations.pop();
        } else if self.ends_with_deletion_and_insertion() {
            self.operations.remove(self.operations.len() - 2);
        }
        if self.operations.is_empty() { Err(InvalidCigarError) } else { Ok(self.operations) }
    }
}

/// Returns the numbers of read bases and reference bases of an operation.
fn consumed(operation: CigarOp) -> (usize, u32) {
    let read = if operation.consumes_read() { operation.bases() as usize } else { 0 };
    (read, if operation.consumes_reference() { operation.bases() } else { 0 })
}

/// A read of which some bases at the ends may have been clipped.
#[derive(Debug)]
pub(crate) struct ClippedRead {
    /// Range of the remaining bases in the record.
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// 0-based position of the first aligned base.
    pub(crate) start: u32,
    /// CIGAR in canonical form. Clipped bases are hard clips.
    pub(crate) cigar: Vec<CigarOp>,
}

impl ClippedRead {
    /// Returns the part of a mapped read that is counted; `None` if it is only adapter.
    ///
    /// # Errors
    /// [`InvalidCigarError`] if no base is aligned, or clips are not at the ends.
    pub(crate) fn new(record: RawRecord, flag: u16) -> Result<Option<Self>, InvalidCigarError> {
        let mut builder = CigarBuilder::new();
        record.cigar().try_for_each(|operation| builder.push(operation.bases(), operation.code()))?;
        let cigar = builder.finish()?;
        let mut read = Self { from: 0, to: record.sequence_length(), start: record.position() as u32, cigar };
        read.clip_adapter(record, flag)?;
        read.clip_soft_clips()?;
        Ok((read.from < read.to).then_some(read))
    }

    /// Returns the number of remaining bases.
    pub(crate) fn bases(&self) -> usize {
        self.to - self.from
    }

    /// Returns the 0-based position after the last aligned base.
    pub(crate) fn end(&self) -> u32 {
        self.start + self.cigar.iter().map(|operation| consumed(*operation).1).sum::<u32>()
    }

    /// Returns the index of the base at a 0-based position, and true if it is in a deletion: then the index is that of
    /// the next base. Soft clips count as if they were aligned. Returns `None` for a position outside the read.
    pub(crate) fn base_at(&self, position: i64) -> Option<(usize, bool)> {
        let clips = self.cigar.iter().take_while(|operation| operation.is_clip());
        let clipped: u32 = clips.filter(|operation| operation.code() == SOFT_CLIP).map(|clip| clip.bases()).sum();
        let (mut base, mut reference) = (0, i64::from(self.start) - i64::from(clipped));
        if position < reference {
            return None;
        }
        for operation in &self.cigar {
            let (read_bases, mut reference_bases) = consumed(*operation);
            if operation.code() == SOFT_CLIP {
                reference_bases = operation.bases();
            }
            let next = reference + i64::from(reference_bases);
            if position < next {
                let is_aligned = read_bases > 0;
                return Some((base + if is_aligned { (position - reference) as usize } else { 0 }, !is_aligned));
            }
            (base, reference) = (base + read_bases, next);
        }
        None
    }

    /// Removes the bases beyond the end of the fragment, which are adapter.
    fn clip_adapter(&mut self, record: RawRecord, flag: u16) -> Result<(), InvalidCigarError> {
        let Some(boundary) = adapter_boundary(record, flag, i64::from(self.start), i64::from(self.end())) else {
            return Ok(());
        };
        if boundary < i64::from(self.start) || boundary >= i64::from(self.end()) {
            return Ok(());
        }
        match self.base_at(boundary) {
            Some((base, in_deletion)) if flag & flags::REVERSE != 0 => self.clip_left(base + usize::from(!in_deletion)),
            Some((base, _)) => self.clip_right(base),
            None => Ok(()),
        }
    }

    fn clip_soft_clips(&mut self) -> Result<(), InvalidCigarError> {
        let (mut base, mut left, mut right, mut aligned) = (0, None, None, false);
        for operation in &self.cigar {
            match operation.code() {
                SOFT_CLIP if aligned => right = Some(base),
                SOFT_CLIP => left = Some(base + operation.bases() as usize),
                HARD_CLIP => {}
                _ => aligned = true,
            }
            base += consumed(*operation).0;
        }
        right.map_or(Ok(()), |right| self.clip_right(right))?;
        left.map_or(Ok(()), |left| self.clip_left(left))
    }

    /// Removes the first `bases` bases.
    fn clip_left(&mut self, bases: usize) -> Result<(), InvalidCigarError> {
        let bases = bases.min(self.bases());
        if bases == 0 {
            return Ok(());
        }
        if bases == self.bases() {
            self.to = self.from;
            return Ok(());
        }
        let shift = self.reference_bases_before(bases);
        self.clip_cigar(0, bases)?;
        self.start += shift;
        self.from += bases;
        Ok(())
    }

    /// Removes the base at `first` and all after it.
    fn clip_right(&mut self, first: usize) -> Result<(), InvalidCigarError> {
        if first >= self.bases() {
            return Ok(());
        }
        if first == 0 {
            self.to = self.from;
            return Ok(());
        }
        self.clip_cigar(first, self.bases())?;
        self.to = self.from + first;
        Ok(())
    }

    /// Returns the number of reference bases that the first `bases` bases and directly following deletions cover.
    fn reference_bases_before(&self, bases: usize) -> u32 {
        let (mut covered, mut start) = (0, 0);
        for operation in self.cigar.iter().filter(|operation| operation.code() != HARD_CLIP) {
            let (read_bases, reference_bases) = consumed(*operation);
            let end = start + read_bases;
            if end <= bases {
                covered += reference_bases;
            } else if start < bases {
                return covered + if reference_bases > 0 { (bases - start) as u32 } else { 0 };
            }
            start = end;
        }
        covered
    }

    /// Converts the bases `[from, to)`, which are at one end of the read, to hard clips.
    fn clip_cigar(&mut self, from: usize, to: usize) -> Result<(), InvalidCigarError> {
        let mut builder = CigarBuilder::new();
        let mut start = 0;
        for operation in &self.cigar {
            let (bases, code) = (operation.bases(), operation.code());
            if code == HARD_CLIP {
                builder.push(bases, code)?;
                continue;
            }
            let read_bases = consumed(*operation).0;
            let end = start + read_bases;
            if end <= from || start >= to {
                if read_bases > 0 || start != from && start != to {
                    builder.push(bases, code)?;
                }
            } else if read_bases > 0 {
                let remaining = if from == 0 { end.saturating_sub(to) } else { from.saturating_sub(start) } as u32;
                let clipped = bases - remaining;
                if from == 0 {
                    builder.push(clipped, HARD_CLIP)?;
                    builder.push(remaining, code)?;
                } else {
                    builder.push(remaining, code)?;
                    builder.push(clipped, HARD_CLIP)?;
                }
            }
            start = end;
        }
        self.cigar = builder.finish()?;
        Ok(())
    }
}

/// Returns the 0-based position of the first adapter base, or `None` if the fragment has no well-defined length
/// (`ReadUtils.getAdaptorBoundary`). `[start, end)`: positions of the alignment.
fn adapter_boundary(record: RawRecord, flag: u16, start: i64, end: i64) -> Option<i64> {
    let template = i64::from(record.template_length());
    let mate = i64::from(record.mate_position());
    let is_reverse = flag & flags::REVERSE != 0;
    let has_mate = flag & (flags::PAIRED | flags::MATE_UNMAPPED) == flags::PAIRED && record.mate_contig() >= 0;
    if template == 0 || !has_mate || mate < 0 || is_reverse == (flag & flags::MATE_REVERSE != 0) {
        return None;
    }
    match is_reverse {
        true => (end > mate + 1).then_some(mate - 1),
        false => (start <= mate + template).then_some(start + template.abs()),
    }
}

#[cfg(test)]
mod tests;
