//! Templates of a fuzzed file: pairs, fragments, and all ways in which mates go missing, as SAM lines.

use super::alignment::{self, Alignment};
use super::names::{self, Cluster};
use super::{Anchor, Contig, Group, Profile};
use crate::random::Random;

const PAIRED: u16 = 0x1;
const PROPER: u16 = 0x2;
const UNMAPPED: u16 = 0x4;
const MATE_UNMAPPED: u16 = 0x8;
const REVERSE: u16 = 0x10;
const MATE_REVERSE: u16 = 0x20;
const FIRST: u16 = 0x40;
const LAST: u16 = 0x80;
const SECONDARY: u16 = 0x100;
const QC_FAIL: u16 = 0x200;
const DUPLICATE: u16 = 0x400;
const SUPPLEMENTARY: u16 = 0x800;

/// A line under construction. `None` as a place is `*`.
#[derive(Clone, Debug)]
struct Record {
    name: String,
    flag: u16,
    place: Option<(usize, i64)>,
    cigar: String,
    mate: Option<(usize, i64)>,
    read_bases: usize,
    group: Option<usize>,
    mate_cigar: Option<String>,
}

/// How mates may be described wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    OtherContig,
    NoContig,
    Unmapped,
    WrongPosition,
}

/// Writes templates as lines, and remembers which names it gave.
pub(super) struct Writer<'a> {
    profile: Profile,
    contradictory: bool,
    contigs: &'a [Contig],
    groups: &'a [Group],
    anchors: &'a [Anchor],
    origin: Cluster,
    serial: usize,
    /// Names given so far, each with Picard's key (read group and name, one after the other) and whether all records of
    /// the template lie and say they lie on the first contig.
    given: Vec<(String, String, bool)>,
    lines: Vec<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        profile: Profile,
        contradictory: bool,
        contigs: &'a [Contig],
        groups: &'a [Group],
        anchors: &'a [Anchor],
        random: &mut Random,
    ) -> Self {
        let origin = names::origin(random);
        let (given, lines) = (Vec::new(), Vec::new());
        Self { profile, contradictory, contigs, groups, anchors, origin, serial: 0, given, lines }
    }

    /// At least `wanted` lines, some more where a template has several.
    pub(super) fn records(&mut self, wanted: usize, random: &mut Random) -> Vec<String> {
        while self.lines.len() < wanted {
            self.template(random);
        }
        std::mem::take(&mut self.lines)
    }

    fn template(&mut self, random: &mut Random) {
        let fragments = match self.profile {
            Profile::Fragments => 45,
            Profile::Optical => 2,
            _ => 15,
        };
        let broken = if self.profile == Profile::Mates { 45 } else { 8 };
        let draw = random.below(100);
        if draw < fragments {
            self.fragment(random);
        } else if draw < fragments + broken {
            match random.below(6) {
                0 | 1 => self.orphan(random),
                2 | 3 => self.half_mapped(random),
                4 => self.unmapped(random),
                _ => self.pair(random, true),
            }
        } else {
            self.pair(random, false);
        }
    }

    /// A read without a mate, which may carry stray bits of one, or no read group.
    fn fragment(&mut self, random: &mut Random) {
        let group = random.below(self.groups.len());
        let alignment = self.alignment(random);
        let name = self.name(group, alignment.contig == 0, random);
        let mut record = mapped(&name, &alignment, group);
        if random.chance(0.05) {
            record.group = None;
        }
        if random.chance(0.03) {
            record.flag |= *random.pick(&[MATE_REVERSE, FIRST, LAST, MATE_UNMAPPED]);
        }
        self.not_primary(&record, random);
        self.write(record, random);
    }

    /// Two mapped mates; with `lying`, one of them describes the other wrongly.
    fn pair(&mut self, random: &mut Random, lying: bool) {
        let group = random.below(self.groups.len());
        let one = self.alignment(random);
        let other = self.second_alignment(&one, random);
        let name = self.name(group, one.contig == 0 && other.contig == 0 && !lying, random);
        let [mut first, mut last] = mates(&name, [&one, &other], group);
        if random.chance(0.04) {
            // Both bits or none on one read or both: Picard asks only for "first".
            first.flag ^= if random.chance(0.5) { LAST } else { FIRST };
            last.flag ^= if random.chance(0.5) { FIRST } else { 0 };
        }
        if lying {
            let lies = [Lie::OtherContig, Lie::Unmapped, Lie::WrongPosition, Lie::NoContig];
            let lie = *random.pick(&lies[..if self.contradictory { 4 } else { 3 }]);
            let [one, other] = if random.chance(0.5) { [&mut first, &mut last] } else { [&mut last, &mut first] };
            self.lie(one, lie, random);
            if random.chance(0.3) && (self.contradictory || lie != Lie::OtherContig) {
                self.lie(other, lie, random);
            }
        }
        self.not_primary(&first, random);
        self.write(first, random);
        self.write(last, random);
    }

    /// A mate that says its other is mapped, and the other is not in the file.
    fn orphan(&mut self, random: &mut Random) {
        let group = random.below(self.groups.len());
        let one = self.alignment(random);
        let other = self.second_alignment(&one, random);
        let name = self.name(group, false, random);
        let [first, last] = mates(&name, [&one, &other], group);
        let kept = if random.chance(0.5) { first } else { last };
        self.write(kept, random);
    }

    /// A mapped read and its unmapped mate at the same place; sometimes one is absent, or they disagree.
    fn half_mapped(&mut self, random: &mut Random) {
        let group = random.below(self.groups.len());
        let alignment = self.alignment(random);
        let name = self.name(group, alignment.contig == 0, random);
        let [mut one, mut other] = mates(&name, [&alignment, &alignment], group);
        one.flag = (one.flag & !(PROPER | MATE_REVERSE)) | MATE_UNMAPPED;
        other.flag = (other.flag & !(PROPER | REVERSE)) | UNMAPPED;
        other.cigar = "*".to_owned();
        other.read_bases = 20;
        if random.chance(0.2) {
            other.flag |= REVERSE;
        }
        match random.below(8) {
            0 => one.flag &= !MATE_UNMAPPED,
            1 => other.flag |= MATE_UNMAPPED,
            2 => return self.write(one, random),
            3 => return self.write(other, random),
            _ => {}
        }
        self.write(one, random);
        self.write(other, random);
    }

    /// Reads that are mapped nowhere: alone or both mates, with or without a place in the order.
    fn unmapped(&mut self, random: &mut Random) {
        let group = random.below(self.groups.len());
        let name = self.name(group, true, random);
        let anchor = *random.pick(self.anchors);
        let place = random.chance(0.3).then_some((anchor.contig, anchor.five_prime_1based.max(1)));
        let record = Record {
            name,
            flag: UNMAPPED,
            place,
            cigar: "*".to_owned(),
            mate: None,
            read_bases: 20,
            group: random.chance(0.9).then_some(group),
            mate_cigar: None,
        };
        if random.chance(0.4) {
            return self.write(record, random);
        }
        for bit in [FIRST, LAST] {
            let flag = PAIRED | UNMAPPED | MATE_UNMAPPED | bit;
            self.write(Record { flag, mate: place, group: Some(group), ..record.clone() }, random);
        }
    }

    fn lie(&self, record: &mut Record, lie: Lie, random: &mut Random) {
        match lie {
            Lie::OtherContig => record.mate = Some((random.below(self.contigs.len()), 100)),
            Lie::NoContig => record.mate = None,
            Lie::Unmapped => record.flag ^= MATE_UNMAPPED,
            Lie::WrongPosition => {
                record.mate = record.mate.map(|(contig, _)| (contig, 1));
                record.flag ^= MATE_REVERSE;
            }
        }
    }

    /// Now and then a secondary or supplementary line of the same read, somewhere else.
    fn not_primary(&mut self, primary: &Record, random: &mut Random) {
        if !random.chance(0.1) {
            return;
        }
        let alignment = self.alignment(random);
        let mut line = mapped(&primary.name, &alignment, 0);
        line.group = primary.group;
        line.flag |= primary.flag & (PAIRED | FIRST | LAST | MATE_REVERSE);
        line.flag |= *random.pick(&[SECONDARY, SUPPLEMENTARY, SUPPLEMENTARY, SECONDARY | SUPPLEMENTARY]);
        line.mate = primary.mate;
        self.write(line, random);
    }

    fn alignment(&self, random: &mut Random) -> Alignment {
        if self.profile == Profile::Optical && random.chance(0.9) {
            let anchor = self.near(self.anchors[0], random);
            return alignment::at(anchor, random.chance(0.1), self.core_bases(random), self.contigs, random);
        }
        let anchor = self.near(*random.pick(self.anchors), random);
        let reverse = random.chance(0.4);
        alignment::at(anchor, reverse, self.core_bases(random), self.contigs, random)
    }

    fn second_alignment(&self, first: &Alignment, random: &mut Random) -> Alignment {
        let reverse = if random.chance(0.7) { !first.reverse } else { first.reverse };
        let same = self.profile == Profile::SamePosition && random.chance(0.8);
        let anchor = if same || random.chance(0.05) {
            self.anchors[0]
        } else if self.profile == Profile::Optical && random.chance(0.85) {
            self.anchors[self.anchors.len() - 1]
        } else {
            let anchor = *random.pick(self.anchors);
            // Mates on other contigs are there, but not most of the time.
            if anchor.contig != first.contig && random.chance(0.5) { self.anchors[0] } else { anchor }
        };
        let anchor = self.near(anchor, random);
        alignment::at(anchor, reverse, self.core_bases(random), self.contigs, random)
    }

    fn near(&self, anchor: Anchor, random: &mut Random) -> Anchor {
        let far = if self.profile == Profile::Optical { 0.02 } else { 0.12 };
        let shift = if random.chance(far) { random.between(-2, 2) } else { 0 };
        Anchor { five_prime_1based: anchor.five_prime_1based + shift, ..anchor }
    }

    fn core_bases(&self, random: &mut Random) -> i64 {
        match self.profile {
            Profile::Scores => *random.pick(&[24, 180, 240, 260]),
            _ => *random.pick(&[24, 24, 24, 30, 36]),
        }
    }

    /// A name for a template in `group`; sometimes one that is already there.
    fn name(&mut self, group: usize, on_first_contig: bool, random: &mut Random) -> String {
        self.serial += 1;
        let repeats = if self.profile == Profile::Names { 0.3 } else { 0.03 };
        if random.chance(repeats)
            && let Some(name) = self.repeated_name(group, on_first_contig, random)
        {
            return name;
        }
        let cluster = names::cluster(self.origin, random);
        let odd = match self.profile {
            Profile::Names => 0.5,
            Profile::Optical => 0.08,
            _ => 0.15,
        };
        let mut name = if random.chance(odd) {
            names::odd(self.serial, cluster, random)
        } else {
            names::usual(self.serial, cluster, random)
        };
        if self.profile == Profile::Names && random.chance(0.2) {
            // With group g1 this is the key of the rest of the name with group g1x.
            name.insert(0, 'x');
        }
        self.give(name, group, on_first_contig)
    }

    /// A name that is already there, or whose key is. Keys are repeated only where all records lie on the first contig:
    /// over several, Picard finds two equal keys waiting for their mates and throws.
    fn repeated_name(&mut self, group: usize, on_first_contig: bool, random: &mut Random) -> Option<String> {
        if self.given.is_empty() {
            return None;
        }
        let name = random.pick(&self.given).1.clone();
        let stripped = name.strip_prefix('x').map(str::to_owned);
        let name = stripped.filter(|_| self.groups[group].id == "g1x").unwrap_or(name);
        let key = self.key(group, &name);
        let mut same = self.given.iter().filter(|(given, _, _)| *given == key);
        let allowed = same.clone().next().is_none() || (on_first_contig && same.all(|(_, _, safe)| *safe));
        allowed.then(|| self.give(name, group, on_first_contig))
    }

    fn give(&mut self, name: String, group: usize, on_first_contig: bool) -> String {
        self.given.push((self.key(group, &name), name.clone(), on_first_contig));
        name
    }

    fn key(&self, group: usize, name: &str) -> String {
        format!("{}{name}", self.groups[group].id)
    }

    fn write(&mut self, mut record: Record, random: &mut Random) {
        if random.chance(0.07) {
            record.flag |= QC_FAIL;
        }
        if random.chance(0.1) {
            record.flag |= DUPLICATE;
        }
        let line = self.line(&record, random);
        self.lines.push(line);
    }

    fn line(&self, record: &Record, random: &mut Random) -> String {
        let (sequence, qualities) = self.bases(record.read_bases, random);
        let contig = |place: Option<(usize, i64)>| place.map_or("*", |(contig, _)| self.contigs[contig].name.as_str());
        let pos = |place: Option<(usize, i64)>| place.map_or(0, |(_, pos)| pos);
        let next = match (record.place, record.mate) {
            (Some((own, _)), Some((other, _))) if own == other => "=",
            _ => contig(record.mate),
        };
        let mapping_quality = if record.flag & UNMAPPED != 0 { 0 } else { *random.pick(&[0, 20, 60]) };
        let mut line = format!(
            "{}\t{}\t{}\t{}\t{mapping_quality}\t{}\t{next}\t{}\t0\t{sequence}\t{qualities}",
            record.name,
            record.flag,
            contig(record.place),
            pos(record.place),
            record.cigar,
            pos(record.mate),
        );
        if let Some(group) = record.group {
            line.push_str(&format!("\tRG:Z:{}", self.groups[group].id));
        }
        if let Some(cigar) = record.mate_cigar.as_ref().filter(|_| random.chance(0.5)) {
            line.push_str(&format!("\tMC:Z:{}", if random.chance(0.9) { cigar } else { "7M" }));
        }
        if random.chance(0.04) {
            let further: &str = random.pick::<&str>(&["\tDT:Z:LB", "\tDT:Z:SQ", "\tXA:f:0.5", "\tXB:B:s,-1,7"]);
            line.push_str(further);
        }
        line
    }

    fn bases(&self, count: usize, random: &mut Random) -> (String, String) {
        if count == 0 {
            return ("*".to_owned(), "*".to_owned());
        }
        let sequence = String::from_utf8(random.bases(count)).expect("bases are ASCII");
        let high = self.profile == Profile::Scores && random.chance(0.6);
        let quality = |random: &mut Random| {
            if high { *random.pick(&[66, 68, 93]) } else { *random.pick(&[2, 14, 15, 16, 30, 40]) }
        };
        let qualities: Vec<u8> = match random.below(20) {
            0 => return (sequence, "*".to_owned()),
            1 => return ("*".to_owned(), "*".to_owned()),
            2..6 => (0..count).map(|_| 33 + quality(random)).collect(),
            6..10 => vec![33 + quality(random); count],
            // Most reads of a length have equal scores, so that most sets are decided by a later rule.
            _ => vec![33 + if high { 93 } else { 30 }; count],
        };
        (sequence, String::from_utf8(qualities).expect("qualities are printable"))
    }
}

fn mapped(name: &str, alignment: &Alignment, group: usize) -> Record {
    Record {
        name: name.to_owned(),
        flag: if alignment.reverse { REVERSE } else { 0 },
        place: Some((alignment.contig, alignment.pos_1based)),
        cigar: alignment.cigar.clone(),
        mate: None,
        read_bases: alignment.read_bases,
        group: Some(group),
        mate_cigar: None,
    }
}

fn mates(name: &str, alignments: [&Alignment; 2], group: usize) -> [Record; 2] {
    [0, 1].map(|read| {
        let (own, other) = (alignments[read], alignments[1 - read]);
        let mut record = mapped(name, own, group);
        record.flag |= PAIRED | if read == 0 { FIRST } else { LAST };
        if other.reverse {
            record.flag |= MATE_REVERSE;
        }
        if own.contig == other.contig && own.reverse != other.reverse {
            record.flag |= PROPER;
        }
        record.mate = Some((other.contig, other.pos_1based));
        record.mate_cigar = Some(other.cigar.clone());
        record
    })
}
