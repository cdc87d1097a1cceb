//! Templates of a fuzzed file as SAM lines: pairs, fragments, and all ways in which mates are missing.

use super::alignment::{self, Alignment};
use super::read_names::{self, Cluster};
use super::{Contig, FivePrimeEnd, Profile, ReadGroup};
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

/// A builder of a SAM line. A position of `None` means no contig (`*`).
#[derive(Clone, Debug)]
struct Record {
    name: String,
    flag: u16,
    position: Option<(usize, i64)>,
    cigar: String,
    mate_position: Option<(usize, i64)>,
    read_bases: usize,
    read_group: Option<usize>,
    mate_cigar: Option<String>,
}

/// The kinds of wrong descriptions of a mate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MateInconsistency {
    OtherContig,
    NoContig,
    Unmapped,
    WrongPosition,
}

/// A writer of templates as SAM lines. It stores the names that it has assigned.
pub(super) struct TemplateWriter<'a> {
    profile: Profile,
    contradictory: bool,
    contigs: &'a [Contig],
    read_groups: &'a [ReadGroup],
    five_prime_ends: &'a [FivePrimeEnd],
    origin: Cluster,
    next_serial: usize,
    /// The names assigned so far, each with Picard's key (the concatenation of read group and name), and with true if all
    /// records of the template are on the first contig and describe their mates there.
    used_names: Vec<(String, String, bool)>,
    lines: Vec<String>,
}

impl<'a> TemplateWriter<'a> {
    pub(super) fn new(
        profile: Profile,
        contradictory: bool,
        contigs: &'a [Contig],
        read_groups: &'a [ReadGroup],
        five_prime_ends: &'a [FivePrimeEnd],
        random: &mut Random,
    ) -> Self {
        let origin = read_names::random_origin(random);
        let (used_names, lines) = (Vec::new(), Vec::new());
        Self {
            profile,
            contradictory,
            contigs,
            read_groups,
            five_prime_ends,
            origin,
            next_serial: 0,
            used_names,
            lines,
        }
    }

    /// Writes at least `wanted` lines, or more if the last template has several lines.
    pub(super) fn records(&mut self, wanted: usize, random: &mut Random) -> Vec<String> {
        while self.lines.len() < wanted {
            self.write_template(random);
        }
        std::mem::take(&mut self.lines)
    }

    fn write_template(&mut self, random: &mut Random) {
        let fragments = match self.profile {
            Profile::Fragments => 45,
            Profile::Optical => 2,
            _ => 15,
        };
        let broken = if self.profile == Profile::Mates { 45 } else { 8 };
        let draw = random.below(100);
        if draw < fragments {
            self.write_fragment(random);
        } else if draw < fragments + broken {
            match random.below(6) {
                0 | 1 => self.write_orphan(random),
                2 | 3 => self.write_half_mapped_pair(random),
                4 => self.write_unmapped(random),
                _ => self.write_pair(random, true),
            }
        } else {
            self.write_pair(random, false);
        }
    }

    /// Writes a read without a mate, which may carry some FLAG bits of a pair, or no read group.
    fn write_fragment(&mut self, random: &mut Random) {
        let group = random.below(self.read_groups.len());
        let alignment = self.alignment(random);
        let name = self.name(group, alignment.contig == 0, random);
        let mut record = mapped_record(&name, &alignment, group);
        if random.chance(0.05) {
            record.read_group = None;
        }
        if random.chance(0.03) {
            record.flag |= *random.pick(&[MATE_REVERSE, FIRST, LAST, MATE_UNMAPPED]);
        }
        self.write_non_primary(&record, random);
        self.write_record(record, random);
    }

    /// Writes two mapped mates; with `inconsistent`, one of them describes the other wrongly.
    fn write_pair(&mut self, random: &mut Random, inconsistent: bool) {
        let group = random.below(self.read_groups.len());
        let one = self.alignment(random);
        let other = self.second_alignment(&one, random);
        let name = self.name(group, one.contig == 0 && other.contig == 0 && !inconsistent, random);
        let [mut first, mut last] = mate_records(&name, [&one, &other], group);
        if random.chance(0.04) {
            // Set both or neither of the bits for first and last read, on one read or both. Picard uses only the bit
            // for the first read.
            first.flag ^= if random.chance(0.5) { LAST } else { FIRST };
            last.flag ^= if random.chance(0.5) { FIRST } else { 0 };
        }
        if inconsistent {
            let lies = [
                MateInconsistency::OtherContig,
                MateInconsistency::Unmapped,
                MateInconsistency::WrongPosition,
                MateInconsistency::NoContig,
            ];
            let lie = *random.pick(&lies[..if self.contradictory { 4 } else { 3 }]);
            let [one, other] = if random.chance(0.5) { [&mut first, &mut last] } else { [&mut last, &mut first] };
            self.corrupt_mate_fields(one, lie, random);
            if random.chance(0.3) && (self.contradictory || lie != MateInconsistency::OtherContig) {
                self.corrupt_mate_fields(other, lie, random);
            }
        }
        self.write_non_primary(&first, random);
        self.write_record(first, random);
        self.write_record(last, random);
    }

    /// Writes a read whose record describes a mapped mate that is not in the file.
    fn write_orphan(&mut self, random: &mut Random) {
        let group = random.below(self.read_groups.len());
        let one = self.alignment(random);
        let other = self.second_alignment(&one, random);
        let name = self.name(group, false, random);
        let [first, last] = mate_records(&name, [&one, &other], group);
        let kept = if random.chance(0.5) { first } else { last };
        self.write_record(kept, random);
    }

    /// Writes a mapped read and its unmapped mate at the same position. Sometimes one of them is missing, or they
    /// contradict each other.
    fn write_half_mapped_pair(&mut self, random: &mut Random) {
        let group = random.below(self.read_groups.len());
        let alignment = self.alignment(random);
        let name = self.name(group, alignment.contig == 0, random);
        let [mut one, mut other] = mate_records(&name, [&alignment, &alignment], group);
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
            2 => return self.write_record(one, random),
            3 => return self.write_record(other, random),
            _ => {}
        }
        self.write_record(one, random);
        self.write_record(other, random);
    }

    /// Writes unmapped reads: one or both mates, with or without a position in the order.
    fn write_unmapped(&mut self, random: &mut Random) {
        let group = random.below(self.read_groups.len());
        let name = self.name(group, true, random);
        let anchor = *random.pick(self.five_prime_ends);
        let position = random.chance(0.3).then_some((anchor.contig, anchor.position_1based.max(1)));
        let record = Record {
            name,
            flag: UNMAPPED,
            position,
            cigar: "*".to_owned(),
            mate_position: None,
            read_bases: 20,
            read_group: random.chance(0.9).then_some(group),
            mate_cigar: None,
        };
        if random.chance(0.4) {
            return self.write_record(record, random);
        }
        for bit in [FIRST, LAST] {
            let flag = PAIRED | UNMAPPED | MATE_UNMAPPED | bit;
            self.write_record(
                Record { flag, mate_position: position, read_group: Some(group), ..record.clone() },
                random,
            );
        }
    }

    fn corrupt_mate_fields(&self, record: &mut Record, lie: MateInconsistency, random: &mut Random) {
        match lie {
            MateInconsistency::OtherContig => record.mate_position = Some((random.below(self.contigs.len()), 100)),
            MateInconsistency::NoContig => record.mate_position = None,
            MateInconsistency::Unmapped => record.flag ^= MATE_UNMAPPED,
            MateInconsistency::WrongPosition => {
                record.mate_position = record.mate_position.map(|(contig, _)| (contig, 1));
                record.flag ^= MATE_REVERSE;
            }
        }
    }

    /// Sometimes writes a secondary or supplementary line of the same read at another position.
    fn write_non_primary(&mut self, primary: &Record, random: &mut Random) {
        if !random.chance(0.1) {
            return;
        }
        let alignment = self.alignment(random);
        let mut line = mapped_record(&primary.name, &alignment, 0);
        line.read_group = primary.read_group;
        line.flag |= primary.flag & (PAIRED | FIRST | LAST | MATE_REVERSE);
        line.flag |= *random.pick(&[SECONDARY, SUPPLEMENTARY, SUPPLEMENTARY, SECONDARY | SUPPLEMENTARY]);
        line.mate_position = primary.mate_position;
        self.write_record(line, random);
    }

    fn alignment(&self, random: &mut Random) -> Alignment {
        if self.profile == Profile::Optical && random.chance(0.9) {
            let anchor = self.nearby_end(self.five_prime_ends[0], random);
            return alignment::alignment_with_five_prime_end(
                anchor,
                random.chance(0.1),
                self.core_bases(random),
                self.contigs,
                random,
            );
        }
        let anchor = self.nearby_end(*random.pick(self.five_prime_ends), random);
        let reverse = random.chance(0.4);
        alignment::alignment_with_five_prime_end(anchor, reverse, self.core_bases(random), self.contigs, random)
    }

    fn second_alignment(&self, first: &Alignment, random: &mut Random) -> Alignment {
        let reverse = if random.chance(0.7) { !first.reverse } else { first.reverse };
        let same = self.profile == Profile::SamePosition && random.chance(0.8);
        let anchor = if same || random.chance(0.05) {
            self.five_prime_ends[0]
        } else if self.profile == Profile::Optical && random.chance(0.85) {
            self.five_prime_ends[self.five_prime_ends.len() - 1]
        } else {
            let anchor = *random.pick(self.five_prime_ends);
            // Put some mates on another contig.
            if anchor.contig != first.contig && random.chance(0.5) { self.five_prime_ends[0] } else { anchor }
        };
        let anchor = self.nearby_end(anchor, random);
        alignment::alignment_with_five_prime_end(anchor, reverse, self.core_bases(random), self.contigs, random)
    }

    fn nearby_end(&self, anchor: FivePrimeEnd, random: &mut Random) -> FivePrimeEnd {
        let far = if self.profile == Profile::Optical { 0.02 } else { 0.12 };
        let shift = if random.chance(far) { random.between(-2, 2) } else { 0 };
        FivePrimeEnd { position_1based: anchor.position_1based + shift, ..anchor }
    }

    fn core_bases(&self, random: &mut Random) -> i64 {
        match self.profile {
            Profile::Scores => *random.pick(&[24, 180, 240, 260]),
            _ => *random.pick(&[24, 24, 24, 30, 36]),
        }
    }

    /// Returns a name for a template in `group`; sometimes one that is already in use.
    fn name(&mut self, group: usize, on_first_contig: bool, random: &mut Random) -> String {
        self.next_serial += 1;
        let repeats = if self.profile == Profile::Names { 0.3 } else { 0.03 };
        if random.chance(repeats)
            && let Some(name) = self.repeated_name(group, on_first_contig, random)
        {
            return name;
        }
        let cluster = read_names::random_cluster(self.origin, random);
        let odd = match self.profile {
            Profile::Names => 0.5,
            Profile::Optical => 0.08,
            _ => 0.15,
        };
        let mut name = if random.chance(odd) {
            read_names::nonstandard_name(self.next_serial, cluster, random)
        } else {
            read_names::illumina_name(self.next_serial, cluster, random)
        };
        if self.profile == Profile::Names && random.chance(0.2) {
            // A name with a leading x in group g1 gives the same concatenation as the name without it in group g1x,
            // which Picard must not confuse.
            name.insert(0, 'x');
        }
        self.register_name(name, group, on_first_contig)
    }

    /// Returns a name that is already in use, or whose key is. Keys are repeated only where all records are on the first
    /// contig: over several, Picard finds two equal keys among the pending mates and throws.
    fn repeated_name(&mut self, group: usize, on_first_contig: bool, random: &mut Random) -> Option<String> {
        if self.used_names.is_empty() {
            return None;
        }
        let name = random.pick(&self.used_names).1.clone();
        let stripped = name.strip_prefix('x').map(str::to_owned);
        let name = stripped.filter(|_| self.read_groups[group].id == "g1x").unwrap_or(name);
        let key = self.mate_key(group, &name);
        let mut same = self.used_names.iter().filter(|(given, _, _)| *given == key);
        let allowed = same.clone().next().is_none() || (on_first_contig && same.all(|(_, _, safe)| *safe));
        allowed.then(|| self.register_name(name, group, on_first_contig))
    }

    fn register_name(&mut self, name: String, group: usize, on_first_contig: bool) -> String {
        self.used_names.push((self.mate_key(group, &name), name.clone(), on_first_contig));
        name
    }

    fn mate_key(&self, group: usize, name: &str) -> String {
        format!("{}{name}", self.read_groups[group].id)
    }

    fn write_record(&mut self, mut record: Record, random: &mut Random) {
        if random.chance(0.07) {
            record.flag |= QC_FAIL;
        }
        if random.chance(0.1) {
            record.flag |= DUPLICATE;
        }
        let line = self.format_line(&record, random);
        self.lines.push(line);
    }

    fn format_line(&self, record: &Record, random: &mut Random) -> String {
        let (sequence, qualities) = self.bases(record.read_bases, random);
        let contig = |place: Option<(usize, i64)>| place.map_or("*", |(contig, _)| self.contigs[contig].name.as_str());
        let pos = |place: Option<(usize, i64)>| place.map_or(0, |(_, pos)| pos);
        let next = match (record.position, record.mate_position) {
            (Some((own, _)), Some((other, _))) if own == other => "=",
            _ => contig(record.mate_position),
        };
        let mapping_quality = if record.flag & UNMAPPED != 0 { 0 } else { *random.pick(&[0, 20, 60]) };
        let mut line = format!(
            "{}\t{}\t{}\t{}\t{mapping_quality}\t{}\t{next}\t{}\t0\t{sequence}\t{qualities}",
            record.name,
            record.flag,
            contig(record.position),
            pos(record.position),
            record.cigar,
            pos(record.mate_position),
        );
        if let Some(group) = record.read_group {
            line.push_str(&format!("\tRG:Z:{}", self.read_groups[group].id));
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
            // Give most reads of the same length the same score, so that later rules decide most duplicate sets.
            _ => vec![33 + if high { 93 } else { 30 }; count],
        };
        (sequence, String::from_utf8(qualities).expect("qualities are printable"))
    }
}

fn mapped_record(name: &str, alignment: &Alignment, group: usize) -> Record {
    Record {
        name: name.to_owned(),
        flag: if alignment.reverse { REVERSE } else { 0 },
        position: Some((alignment.contig, alignment.pos_1based)),
        cigar: alignment.cigar.clone(),
        mate_position: None,
        read_bases: alignment.read_bases,
        read_group: Some(group),
        mate_cigar: None,
    }
}

fn mate_records(name: &str, alignments: [&Alignment; 2], group: usize) -> [Record; 2] {
    [0, 1].map(|read| {
        let (own, other) = (alignments[read], alignments[1 - read]);
        let mut record = mapped_record(name, own, group);
        record.flag |= PAIRED | if read == 0 { FIRST } else { LAST };
        if other.reverse {
            record.flag |= MATE_REVERSE;
        }
        if own.contig == other.contig && own.reverse != other.reverse {
            record.flag |= PROPER;
        }
        record.mate_position = Some((other.contig, other.pos_1based));
        record.mate_cigar = Some(other.cigar.clone());
        record
    })
}
