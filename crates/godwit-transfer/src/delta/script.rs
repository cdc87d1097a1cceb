//! The edits that make a sequence out of a reference, and the columns they are written in.
//!
//! A script is steps: so many bases are copied, then comes an edit. What follows the last step is copied. One function goes
//! through a script for both, who writes and who reads it: [`run`] takes coders that write what they are given or return what
//! was written, and makes the sequence on the way, so that both always know the same.

use super::bases::{Bases, LETTERS, OtherRun, code_of, complement_letter, letters_of, reverse_complement};
use super::place::{Copied, Place, Source, Space};
use super::range_coder::{Bit, Coder, Decoder, Encoder, Number, unzigzag, zigzag};

/// Columns of a script.
pub(super) const COLUMNS: usize = 6;
/// Longest insertion whose bases are guessed to repeat those before it.
const MAX_TANDEM: u64 = 32;
/// Bases that inserted ones are predicted by: few where there are few to learn from.
pub(super) const MAX_ORDER: u32 = 8;

/// What happens behind a copied stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// One base is another: the XOR of their codes, 1 to 3.
    Substitute(u8),
    /// That many bases stand in no source.
    Insert(u64),
    /// That many bases of the source are left out.
    Delete(u64),
    /// It goes on elsewhere.
    Jump(Place),
}

/// A stretch that is copied, and the edit behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) copied: u64,
    pub(super) edit: Edit,
}

/// A coder for each column.
#[derive(Debug)]
pub(super) struct Columns<C> {
    kinds: C,
    gaps: C,
    substitutes: C,
    lengths: C,
    jumps: C,
    bases: C,
}

impl Columns<Encoder> {
    pub(super) fn to_write() -> Self {
        let [kinds, gaps, substitutes, lengths, jumps, bases] = std::array::from_fn(|_| Encoder::new());
        Self { kinds, gaps, substitutes, lengths, jumps, bases }
    }

    /// The bytes of each.
    pub(super) fn finish(self) -> [Vec<u8>; COLUMNS] {
        [self.kinds, self.gaps, self.substitutes, self.lengths, self.jumps, self.bases].map(Encoder::finish)
    }
}

impl<'b> Columns<Decoder<'b>> {
    pub(super) fn to_read(columns: [&'b [u8]; COLUMNS]) -> Self {
        let [kinds, gaps, substitutes, lengths, jumps, bases] = columns.map(Decoder::new);
        Self { kinds, gaps, substitutes, lengths, jumps, bases }
    }
}

/// What [`run`] is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) space: Space<'a>,
    /// Bases of the sequence.
    pub(super) count: usize,
    /// Steps of the script.
    pub(super) steps: usize,
    /// The steps and the sequence, for who writes.
    pub(super) known: Option<(&'a [Step], &'a Bases)>,
    /// Where no base is: nothing is said about what is inserted there.
    pub(super) others: &'a [OtherRun],
    /// Bases that inserted ones are predicted by.
    pub(super) order: u32,
    /// Whether it matters what was copied from where.
    pub(super) notes_copies: bool,
}

/// What came out.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The sequence in letters out of ACGT.
    pub(super) letters: Vec<u8>,
    /// What was copied from the reference.
    pub(super) copies: Vec<Copied>,
}

/// How often what comes, learned on the way.
#[derive(Debug)]
struct Models {
    kinds: [[Bit; 4]; 5],
    gaps: Vec<Number>,
    substitutes: [[Bit; 4]; 16],
    inserts: Number,
    deletes: Number,
    flip: Bit,
    origins: [Bit; 4],
    distances: [Number; 4],
    tandem: [Bit; 12],
    tandem_other: [[Bit; 4]; 4],
    bases: Vec<[Bit; 4]>,
}

impl Models {
    fn new(order: u32) -> Self {
        Self {
            kinds: Default::default(),
            gaps: vec![Number::default(); 5 * 3],
            substitutes: Default::default(),
            inserts: Number::default(),
            deletes: Number::default(),
            flip: Bit::default(),
            origins: Default::default(),
            distances: Default::default(),
            tandem: Default::default(),
            tandem_other: Default::default(),
            bases: vec![Default::default(); 1 << (2 * order)],
        }
    }
}

/// Goes through a script and writes the letters to `letters`, which is empty. `None` where it asks for what cannot be, which only a damaged or hostile file does.
pub(super) fn run<C: Coder>(task: &Task, columns: &mut Columns<C>, mut letters: Vec<u8>) -> Option<Outcome> {
    letters.reserve(task.count);
    let mut runner = Runner {
        task,
        models: Models::new(task.order),
        source: None,
        origins: [0; 3],
        last_kind: 4,
        last_gap: 0,
        others: task.others,
        out: Outcome { letters, copies: Vec::new() },
    };
    for at in 0..task.steps {
        let step = task.known.map(|(steps, _)| steps[at]);
        runner.step(columns, step)?;
    }
    runner.copy(task.count - runner.out.letters.len())?;
    Some(runner.out)
}

struct Runner<'a> {
    task: &'a Task<'a>,
    models: Models,
    source: Option<Source>,
    /// Where it is, where the last jump left, and where that arrived: jumps mostly lead near one of them.
    origins: [usize; 3],
    last_kind: usize,
    last_gap: u64,
    /// Runs of others that are not behind.
    others: &'a [OtherRun],
    out: Outcome,
}

impl Runner<'_> {
    fn step<C: Coder>(&mut self, columns: &mut Columns<C>, step: Option<Step>) -> Option<()> {
        let similar = match self.last_gap {
            0..64 => 0,
            64..1024 => 1,
            _ => 2,
        };
        let gaps = &mut self.models.gaps[self.last_kind * 3 + similar];
        let copied = gaps.code(&mut columns.gaps, step.map_or(0, |step| step.copied));
        self.copy(usize::try_from(copied).ok()?)?;
        let kind = step.map_or(0, |step| match step.edit {
            Edit::Substitute(_) => 0,
            Edit::Insert(_) => 1,
            Edit::Delete(_) => 2,
            Edit::Jump(_) => 3,
        });
        let kind = columns.kinds.tree(kind, 2, &mut self.models.kinds[self.last_kind]);
        match (kind, step.map(|step| step.edit)) {
            (0, edit) => self.substitute(&mut columns.substitutes, edit)?,
            (1, edit) => self.insert(columns, edit)?,
            (2, edit) => {
                let deleted = if let Some(Edit::Delete(bases)) = edit { bases - 1 } else { 0 };
                let deleted = self.models.deletes.code(&mut columns.lengths, deleted) + 1;
                let source = self.source?;
                let deleted = usize::try_from(deleted).ok().filter(|bases| *bases < source.room())?;
                self.source = Some(source.moved(deleted));
            }
            (_, edit) => self.jump(&mut columns.jumps, edit)?,
        }
        self.last_kind = kind;
        self.last_gap = copied;
        Some(())
    }

    fn left(&self) -> usize {
        self.task.count - self.out.letters.len()
    }

    fn copy(&mut self, bases: usize) -> Option<()> {
        if bases == 0 {
            return Some(());
        }
        let source = self.source?;
        if bases > source.room() || bases > self.left() {
            return None;
        }
        let (local, reverse) = (source.local(), source.place.reverse);
        let to = self.out.letters.len();
        if source.is_own {
            self.copy_own(local, reverse, bases)?;
        } else {
            copy_reference(&mut self.out.letters, self.task.space.bases, local, reverse, bases);
            if self.task.notes_copies {
                // Segments are far shorter than 2^32.
                self.out.copies.push(Copied { to: to as u32, bases: bases as u32, local, reverse });
            }
        }
        self.source = Some(source.moved(bases));
        Some(())
    }

    /// Copies from the sequence itself, also what this very copy writes.
    fn copy_own(&mut self, local: usize, reverse: bool, bases: usize) -> Option<()> {
        let letters = &mut self.out.letters;
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

    /// The base a source has next, and the one behind that where it is known.
    fn next_codes(&self, source: Source) -> Option<(u8, Option<u8>)> {
        if source.room() == 0 {
            return None;
        }
        let local = source.local();
        let at = |ahead: usize| match source.place.reverse {
            true => local.checked_sub(ahead + 1),
            false => Some(local + ahead),
        };
        let flip = if source.place.reverse { 2 } else { 0 };
        if source.is_own {
            return Some((code_of(*self.out.letters.get(at(0)?)?) ^ flip, None));
        }
        let bases = self.task.space.bases;
        let second = (source.room() > 1).then(|| at(1)).flatten().map(|at| bases.get(at) ^ flip);
        Some((bases.get(at(0)?) ^ flip, second))
    }

    fn substitute<C: Coder>(&mut self, coder: &mut C, edit: Option<Edit>) -> Option<()> {
        let source = self.source.filter(|_| self.left() > 0)?;
        let (old, next) = self.next_codes(source)?;
        // C before G, on either strand, is mostly methylated and changes to T.
        let follows_c = self.out.letters.last().is_some_and(|letter| *letter == b'C');
        let is_cpg = (old == 1 && next == Some(3)) || (old == 3 && follows_c);
        let context = usize::from(old) << 1 | usize::from(is_cpg);
        let change = if let Some(Edit::Substitute(change)) = edit { change } else { 0 };
        let change = coder.tree(usize::from(change), 2, &mut self.models.substitutes[context]) as u8;
        self.out.letters.push(LETTERS[usize::from(old ^ change)]);
        self.source = Some(source.moved(1));
        Some(())
    }

    fn jump<C: Coder>(&mut self, coder: &mut C, edit: Option<Edit>) -> Option<()> {
        let here = self.source.map_or(Place { position: 0, reverse: false }, |source| source.place);
        self.origins[0] = here.position;
        let target = if let Some(Edit::Jump(place)) = edit { place } else { here };
        let reverse = coder.bit(target.reverse != here.reverse, &mut self.models.flip) != here.reverse;
        let distance = |origin: usize| zigzag(target.position as i64 - origin as i64);
        let distances = self.origins.map(distance);
        let nearest = (0..3).min_by_key(|at| distances[*at]).unwrap_or(0);
        let is_far = distances[nearest] > target.position as u64;
        let (origin, value) = if is_far { (3, target.position as u64) } else { (nearest, distances[nearest]) };
        let origin = coder.tree(origin, 2, &mut self.models.origins);
        let value = self.models.distances[origin].code(coder, value);
        let position = match self.origins.get(origin) {
            Some(origin) => usize::try_from((*origin as i64).checked_add(unzigzag(value))?).ok()?,
            None => usize::try_from(value).ok()?,
        };
        let place = Place { position, reverse };
        self.source = Some(Source::at(place, &self.task.space, self.out.letters.len())?);
        self.origins = [position, here.position, position];
        Some(())
    }

    fn insert<C: Coder>(&mut self, columns: &mut Columns<C>, edit: Option<Edit>) -> Option<()> {
        let bases = if let Some(Edit::Insert(bases)) = edit { bases - 1 } else { 0 };
        let bases = self.models.inserts.code(&mut columns.lengths, bases) + 1;
        let count = usize::try_from(bases).ok().filter(|bases| *bases <= self.left())?;
        let start = self.out.letters.len();
        let period = (bases <= MAX_TANDEM && start >= count).then_some(count);
        let order = self.task.order as usize;
        let mut context = self.out.letters[start.saturating_sub(order)..]
            .iter()
            .fold(0, |context, letter| context << 2 | usize::from(code_of(*letter)));
        let mask = (1 << (2 * order)) - 1;
        let mut agrees = true;
        let mut at = start;
        while at < start + count {
            if let Some(end) = self.other_at(at) {
                let end = end.min(start + count);
                self.out.letters.resize(end, b'A');
                (at, context) = (end, 0);
                continue;
            }
            let known = self.task.known.map_or(0, |(_, bases)| bases.get(at));
            let code = match period {
                Some(period) => {
                    let expected = code_of(self.out.letters[at - period]);
                    let class = [0, 1, 2, 2, 3][(period - 1).min(4)];
                    let seen = if at == start { 0 } else { 1 + usize::from(!agrees) };
                    let (code, equal) = self.tandem(&mut columns.bases, known, expected, class * 3 + seen);
                    agrees &= equal;
                    code
                }
                None => columns.bases.tree(known.into(), 2, &mut self.models.bases[context & mask]) as u8,
            };
            context = context << 2 | usize::from(code);
            self.out.letters.push(LETTERS[usize::from(code)]);
            at += 1;
        }
        Some(())
    }

    /// A base of which one is expected.
    fn tandem<C: Coder>(&mut self, coder: &mut C, known: u8, expected: u8, context: usize) -> (u8, bool) {
        if !coder.bit(known != expected, &mut self.models.tandem[context]) {
            return (expected, true);
        }
        let change = coder.tree((known ^ expected).into(), 2, &mut self.models.tandem_other[usize::from(expected)]);
        (expected ^ change as u8, false)
    }

    /// Where the run of others ends that holds a place.
    fn other_at(&mut self, at: usize) -> Option<usize> {
        while self.others.first().is_some_and(|run| run.end <= at) {
            self.others = &self.others[1..];
        }
        self.others.first().filter(|run| run.start <= at).map(|run| run.end)
    }
}

fn copy_reference(letters: &mut Vec<u8>, bases: &Bases, local: usize, reverse: bool, count: usize) {
    let mut done = 0;
    while done < count {
        let word = match reverse {
            true => reverse_complement(bases.window_before(local - done)),
            false => bases.window(local + done),
        };
        let take = (count - done).min(32);
        letters.extend_from_slice(&letters_of(word)[..take]);
        done += take;
    }
}
