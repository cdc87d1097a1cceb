//! Edit scripts, which make a sequence from a reference, and the columns of a packed file that encode them.
//!
//! A script is a list of steps: each copies a number of bases, then applies an edit. After the last step, all remaining
//! bases are copied. [`code_script`] both encodes and decodes: its coders either write the given values or return the
//! values that they read. It makes the sequence at the same time, so that the encoder and the decoder have the same
//! context for their predictions.

use super::bases::{Bases, LETTERS, NonAcgtInterval, base_code, complement_letter, decode_letters, reverse_complement};
use super::copy_source::{CopiedInterval, CopySource, CopySpace, StrandedPosition};
use super::range_coder::{BitModel, NumberModel, RangeCoder, RangeDecoder, RangeEncoder, unzigzag, zigzag};

/// Number of columns in which a script is encoded.
pub(super) const SCRIPT_COLUMNS: usize = 6;
/// Longest insertion that is predicted as a tandem repeat of the preceding bases.
const MAX_TANDEM_BASES: u64 = 32;
/// Largest number of preceding bases from which an inserted base is predicted. Small scripts use fewer.
pub(super) const MAX_CONTEXT_BASES: u32 = 8;

/// The edit that follows a copied interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// Substitutes one base; the value is the XOR of the codes of the old and the new base, 1 to 3.
    Substitute(u8),
    /// Inserts this number of bases, which are not copied from any source.
    Insert(u64),
    /// Skips this number of bases of the source.
    Delete(u64),
    /// A jump: the next bases are copied from another position.
    Jump(StrandedPosition),
}

/// A copied interval and the edit after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EditStep {
    pub(super) copied_bases: u64,
    pub(super) edit: Edit,
}

/// One encoder or decoder for each column.
#[derive(Debug)]
pub(super) struct ColumnCoders<C> {
    kinds: C,
    gaps: C,
    substitutes: C,
    lengths: C,
    jumps: C,
    bases: C,
}

impl ColumnCoders<RangeEncoder> {
    pub(super) fn encoders() -> Self {
        let [kinds, gaps, substitutes, lengths, jumps, bases] = std::array::from_fn(|_| RangeEncoder::new());
        Self { kinds, gaps, substitutes, lengths, jumps, bases }
    }

    /// Returns the encoded bytes of each column.
    pub(super) fn finish(self) -> [Vec<u8>; SCRIPT_COLUMNS] {
        [self.kinds, self.gaps, self.substitutes, self.lengths, self.jumps, self.bases].map(RangeEncoder::finish)
    }
}

impl<'b> ColumnCoders<RangeDecoder<'b>> {
    pub(super) fn decoders(columns: [&'b [u8]; SCRIPT_COLUMNS]) -> Self {
        let [kinds, gaps, substitutes, lengths, jumps, bases] = columns.map(RangeDecoder::new);
        Self { kinds, gaps, substitutes, lengths, jumps, bases }
    }
}

/// The input of [`code_script`] for encoding or decoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptInput<'a> {
    pub(super) space: CopySpace<'a>,
    /// Number of bases of the target sequence.
    pub(super) base_count: usize,
    /// Number of steps in the edit script.
    pub(super) step_count: usize,
    /// The steps and the target sequence, if the script is to be encoded; `None` for decoding.
    pub(super) encoder_input: Option<(&'a [EditStep], &'a Bases)>,
    /// Intervals of letters other than ACGT in the target. Inserted bases in these intervals are not encoded.
    pub(super) non_acgt: &'a [NonAcgtInterval],
    /// Number of preceding bases from which an inserted base is predicted.
    pub(super) context_bases: u32,
    /// True if the output lists the intervals that were copied from the reference.
    pub(super) records_copies: bool,
}

/// The sequence that [`code_script`] has made.
#[derive(Debug, Default)]
pub(super) struct ScriptOutput {
    /// The target sequence, in letters of ACGT.
    pub(super) letters: Vec<u8>,
    /// The intervals that were copied from the reference; empty unless `records_copies` is set.
    pub(super) copied_intervals: Vec<CopiedInterval>,
}

/// The adaptive probability models of the columns.
#[derive(Debug)]
struct ScriptModels {
    kinds: [[BitModel; 4]; 5],
    gaps: Vec<NumberModel>,
    substitutes: [[BitModel; 4]; 16],
    inserts: NumberModel,
    deletes: NumberModel,
    strand_change: BitModel,
    jump_origins: [BitModel; 4],
    jump_distances: [NumberModel; 4],
    tandem: [BitModel; 12],
    tandem_mismatch: [[BitModel; 4]; 4],
    bases: Vec<[BitModel; 4]>,
}

impl ScriptModels {
    fn new(order: u32) -> Self {
        Self {
            kinds: Default::default(),
            gaps: vec![NumberModel::default(); 5 * 3],
            substitutes: Default::default(),
            inserts: NumberModel::default(),
            deletes: NumberModel::default(),
            strand_change: BitModel::default(),
            jump_origins: Default::default(),
            jump_distances: Default::default(),
            tandem: Default::default(),
            tandem_mismatch: Default::default(),
            bases: vec![Default::default(); 1 << (2 * order)],
        }
    }
}

/// Encodes or decodes a script, and writes the target sequence to `letters`, which must be empty. Returns `None` for an
/// impossible script, which occurs only in damaged or malicious files.
pub(super) fn code_script<C: RangeCoder>(
    task: &ScriptInput,
    columns: &mut ColumnCoders<C>,
    mut letters: Vec<u8>,
) -> Option<ScriptOutput> {
    letters.reserve(task.base_count);
    let mut runner = ScriptCoder {
        input: task,
        models: ScriptModels::new(task.context_bases),
        source: None,
        jump_origins: [0; 3],
        last_kind: 4,
        last_gap: 0,
        remaining_non_acgt: task.non_acgt,
        output: ScriptOutput { letters, copied_intervals: Vec::new() },
    };
    for at in 0..task.step_count {
        let step = task.encoder_input.map(|(steps, _)| steps[at]);
        runner.code_step(columns, step)?;
    }
    runner.copy_bases(task.base_count - runner.output.letters.len())?;
    Some(runner.output)
}

struct ScriptCoder<'a> {
    input: &'a ScriptInput<'a>,
    models: ScriptModels,
    source: Option<CopySource>,
    /// Positions from which the target of a jump is encoded as a distance: the current position, and the start and the
    /// target of the last jump. Most jumps end near one of these positions.
    jump_origins: [usize; 3],
    last_kind: usize,
    last_gap: u64,
    /// Intervals of letters other than ACGT that end after the current position.
    remaining_non_acgt: &'a [NonAcgtInterval],
    output: ScriptOutput,
}

impl ScriptCoder<'_> {
    fn code_step<C: RangeCoder>(&mut self, columns: &mut ColumnCoders<C>, step: Option<EditStep>) -> Option<()> {
        let similar = match self.last_gap {
            0..64 => 0,
            64..1024 => 1,
            _ => 2,
        };
        let gaps = &mut self.models.gaps[self.last_kind * 3 + similar];
        let copied = gaps.code_number(&mut columns.gaps, step.map_or(0, |step| step.copied_bases));
        self.copy_bases(usize::try_from(copied).ok()?)?;
        let kind = step.map_or(0, |step| match step.edit {
            Edit::Substitute(_) => 0,
            Edit::Insert(_) => 1,
            Edit::Delete(_) => 2,
            Edit::Jump(_) => 3,
        });
        let kind = columns.kinds.code_bit_tree(kind, 2, &mut self.models.kinds[self.last_kind]);
        match (kind, step.map(|step| step.edit)) {
            (0, edit) => self.code_substitution(&mut columns.substitutes, edit)?,
            (1, edit) => self.code_insertion(columns, edit)?,
            (2, edit) => {
                let deleted = if let Some(Edit::Delete(bases)) = edit { bases - 1 } else { 0 };
                let deleted = self.models.deletes.code_number(&mut columns.lengths, deleted) + 1;
                let source = self.source?;
                let deleted = usize::try_from(deleted).ok().filter(|bases| *bases < source.remaining_bases())?;
                self.source = Some(source.advanced_by(deleted));
            }
            (_, edit) => self.code_jump(&mut columns.jumps, edit)?,
        }
        self.last_kind = kind;
        self.last_gap = copied;
        Some(())
    }

    fn remaining_bases(&self) -> usize {
        self.input.base_count - self.output.letters.len()
    }

    fn copy_bases(&mut self, bases: usize) -> Option<()> {
        if bases == 0 {
            return Some(());
        }
        let source = self.source?;
        if bases > source.remaining_bases() || bases > self.remaining_bases() {
            return None;
        }
        let (local_position, reverse) = (source.local_position(), source.position.reverse);
        let to = self.output.letters.len();
        if source.is_self {
            self.copy_from_self(local_position, reverse, bases)?;
        } else {
            append_reference_letters(&mut self.output.letters, self.input.space.bases, local_position, reverse, bases);
            if self.input.records_copies {
                // Segments have far fewer than 2^32 bases, so the casts do not truncate.
                self.output.copied_intervals.push(CopiedInterval {
                    target_start: to as u32,
                    bases: bases as u32,
                    local_position,
                    reverse,
                });
            }
        }
        self.source = Some(source.advanced_by(bases));
        Some(())
    }

    /// Copies from the target sequence itself. The copied bases may include bases that this same copy has just written.
    fn copy_from_self(&mut self, local: usize, reverse: bool, bases: usize) -> Option<()> {
        let letters = &mut self.output.letters;
        let written = letters.len();
        if reverse {
            if local > written {
                return None;
            }
            letters.extend_from_within(local - bases..local);
            letters[written..].reverse();
            letters[written..].iter_mut().for_each(|letter| *letter = complement_letter(*letter));
            return Some(());
        }
        let distance = written.checked_sub(local).filter(|distance| *distance > 0)?;
        let mut left = bases;
        while left > 0 {
            let start = letters.len() - distance;
            letters.extend_from_within(start..start + left.min(distance));
            left -= left.min(distance);
        }
        Some(())
    }

    /// Returns the code of the next base of a source, and the code of the base after it if that is known.
    fn next_source_codes(&self, source: CopySource) -> Option<(u8, Option<u8>)> {
        if source.remaining_bases() == 0 {
            return None;
        }
        let local = source.local_position();
        let at = |ahead: usize| match source.position.reverse {
            true => local.checked_sub(ahead + 1),
            false => Some(local + ahead),
        };
        let flip = if source.position.reverse { 2 } else { 0 };
        if source.is_self {
            return Some((base_code(*self.output.letters.get(at(0)?)?) ^ flip, None));
        }
        let bases = self.input.space.bases;
        let second = (source.remaining_bases() > 1).then(|| at(1)).flatten().map(|at| bases.get(at) ^ flip);
        Some((bases.get(at(0)?) ^ flip, second))
    }

    fn code_substitution<C: RangeCoder>(&mut self, coder: &mut C, edit: Option<Edit>) -> Option<()> {
        let source = self.source.filter(|_| self.remaining_bases() > 0)?;
        let (old, next) = self.next_source_codes(source)?;
        // In mammals, the C of CpG (on either strand) is mostly methylated and often mutates to T; so CpG has its own
        // models.
        let follows_c = self.output.letters.last().is_some_and(|letter| *letter == b'C');
        let is_cpg = (old == 1 && next == Some(3)) || (old == 3 && follows_c);
        let context = usize::from(old) << 1 | usize::from(is_cpg);
        let change = if let Some(Edit::Substitute(change)) = edit { change } else { 0 };
        let change = coder.code_bit_tree(usize::from(change), 2, &mut self.models.substitutes[context]) as u8;
        self.output.letters.push(LETTERS[usize::from(old ^ change)]);
        self.source = Some(source.advanced_by(1));
        Some(())
    }

    fn code_jump<C: RangeCoder>(&mut self, coder: &mut C, edit: Option<Edit>) -> Option<()> {
        let here = self.source.map_or(StrandedPosition { position: 0, reverse: false }, |source| source.position);
        self.jump_origins[0] = here.position;
        let target = if let Some(Edit::Jump(place)) = edit { place } else { here };
        let reverse = coder.code_bit(target.reverse != here.reverse, &mut self.models.strand_change) != here.reverse;
        let distance = |origin: usize| zigzag(target.position as i64 - origin as i64);
        let distances = self.jump_origins.map(distance);
        let nearest = (0..3).min_by_key(|at| distances[*at]).unwrap_or(0);
        let is_far = distances[nearest] > target.position as u64;
        let (origin, value) = if is_far { (3, target.position as u64) } else { (nearest, distances[nearest]) };
        let origin = coder.code_bit_tree(origin, 2, &mut self.models.jump_origins);
        let value = self.models.jump_distances[origin].code_number(coder, value);
        let position = match self.jump_origins.get(origin) {
            Some(origin) => usize::try_from((*origin as i64).checked_add(unzigzag(value))?).ok()?,
            None => usize::try_from(value).ok()?,
        };
        let place = StrandedPosition { position, reverse };
        self.source = Some(CopySource::from_position(place, &self.input.space, self.output.letters.len())?);
        self.jump_origins = [position, here.position, position];
        Some(())
    }

    fn code_insertion<C: RangeCoder>(&mut self, columns: &mut ColumnCoders<C>, edit: Option<Edit>) -> Option<()> {
        let bases = if let Some(Edit::Insert(bases)) = edit { bases - 1 } else { 0 };
        let bases = self.models.inserts.code_number(&mut columns.lengths, bases) + 1;
        let count = usize::try_from(bases).ok().filter(|bases| *bases <= self.remaining_bases())?;
        let start = self.output.letters.len();
        let period = (bases <= MAX_TANDEM_BASES && start >= count).then_some(count);
        let order = self.input.context_bases as usize;
        let mut context = self.output.letters[start.saturating_sub(order)..]
            .iter()
            .fold(0, |context, letter| context << 2 | usize::from(base_code(*letter)));
        let mask = (1 << (2 * order)) - 1;
        let mut agrees = true;
        let mut at = start;
        while at < start + count {
            if let Some(end) = self.non_acgt_end_at(at) {
                let end = end.min(start + count);
                self.output.letters.resize(end, b'A');
                (at, context) = (end, 0);
                continue;
            }
            let known = self.input.encoder_input.map_or(0, |(_, bases)| bases.get(at));
            let code = match period {
                Some(period) => {
                    let expected = base_code(self.output.letters[at - period]);
                    let class = [0, 1, 2, 2, 3][(period - 1).min(4)];
                    let seen = if at == start { 0 } else { 1 + usize::from(!agrees) };
                    let (code, equal) = self.code_tandem_base(&mut columns.bases, known, expected, class * 3 + seen);
                    agrees &= equal;
                    code
                }
                None => columns.bases.code_bit_tree(known.into(), 2, &mut self.models.bases[context & mask]) as u8,
            };
            context = context << 2 | usize::from(code);
            self.output.letters.push(LETTERS[usize::from(code)]);
            at += 1;
        }
        Some(())
    }

    /// Encodes or decodes a base that a tandem repeat predicts; returns its code and whether the prediction was right.
    fn code_tandem_base<C: RangeCoder>(
        &mut self,
        coder: &mut C,
        known: u8,
        expected: u8,
        context: usize,
    ) -> (u8, bool) {
        if !coder.code_bit(known != expected, &mut self.models.tandem[context]) {
            return (expected, true);
        }
        let change =
            coder.code_bit_tree((known ^ expected).into(), 2, &mut self.models.tandem_mismatch[usize::from(expected)]);
        (expected ^ change as u8, false)
    }

    /// Returns the end of the interval of letters other than ACGT that contains position `at`, if any.
    fn non_acgt_end_at(&mut self, at: usize) -> Option<usize> {
        while self.remaining_non_acgt.first().is_some_and(|run| run.end <= at) {
            self.remaining_non_acgt = &self.remaining_non_acgt[1..];
        }
        self.remaining_non_acgt.first().filter(|run| run.start <= at).map(|run| run.end)
    }
}

fn append_reference_letters(letters: &mut Vec<u8>, bases: &Bases, local: usize, reverse: bool, count: usize) {
    let mut done = 0;
    while done < count {
        let word = match reverse {
            true => reverse_complement(bases.window_before(local - done)),
            false => bases.window(local + done),
        };
        let take = (count - done).min(32);
        letters.extend_from_slice(&decode_letters(word)[..take]);
        done += take;
    }
}
