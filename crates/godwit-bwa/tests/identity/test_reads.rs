//! A small genome with many repeats, and reads from it, made from a seed.

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next_below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn next_bases(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| b"ACGT"[self.next_below(4)]).collect()
    }

    /// Changes about one base in `one_in`, some by an insertion or a deletion.
    fn mutate(&mut self, bases: &[u8], one_in: usize) -> Vec<u8> {
        let mut mutated = Vec::with_capacity(bases.len());
        for base in bases {
            match self.next_below(one_in * 10) {
                0 => {}
                1 => mutated.extend([*base, b"ACGT"[self.next_below(4)]]),
                2..10 => mutated.push(b"ACGT"[self.next_below(4)]),
                _ => mutated.push(*base),
            }
        }
        mutated
    }
}

/// Title and bases of each contig.
pub type Genome = Vec<(&'static str, Vec<u8>)>;

/// Returns repeats in exact and in changed copies, a run of N, an alternate haplotype, a contig shorter than a read.
pub fn genome() -> Genome {
    let mut random = Random::new(1);
    let mut chr1 = random.next_bases(40_000);
    for copy in 0..12 {
        let from = 1000 + 700 * (copy % 3);
        let repeat = chr1[from..from + 600].to_vec();
        let repeat = if copy % 2 == 0 { repeat } else { random.mutate(&repeat, 60) };
        let to = 6000 + copy * 2500;
        chr1[to..to + repeat.len()].copy_from_slice(&repeat);
    }
    chr1[37_000..37_300].fill(b'N');
    let mut chr2 = random.next_bases(15_000);
    chr2[5000..9000].copy_from_slice(&chr1[20_000..24_000]);
    let alternate = random.mutate(&chr1[10_000..16_000], 100);
    vec![
        ("chr1 the first one", chr1),
        ("chr2", chr2),
        ("tiny", random.next_bases(40)),
        ("chr1_alt other words", alternate),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Paired,
    Single,
}

pub struct Read {
    pub name: String,
    pub comment: String,
    pub sequence: Vec<u8>,
    pub quality: Vec<u8>,
}

pub struct Reads {
    /// All reads; mates are neighbours.
    pub all: Vec<Read>,
    pub layout: Layout,
}

fn reverse_complement(bases: &[u8]) -> Vec<u8> {
    let complement = |base: &u8| match base {
        b'A' => b'T',
        b'C' => b'G',
        b'G' => b'C',
        b'T' => b'A',
        other => *other,
    };
    bases.iter().rev().map(complement).collect()
}

/// Returns templates of about 300 bases, read for 100 from both ends or one; some are chimeric, random or discordant.
pub fn reads(genome: &Genome, templates: usize, layout: Layout, seed: u64) -> Reads {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    for template in 0..templates {
        let mut fragment = random_fragment(genome, &mut random);
        if random.next_below(20) == 0 {
            let other = self::random_fragment(genome, &mut random);
            let joint = 30 + random.next_below(60);
            fragment.splice(joint.., other);
        }
        let mates = [fragment[..100].to_vec(), reverse_complement(&fragment[fragment.len() - 100..])];
        let mates = &mates[..if layout == Layout::Paired { 2 } else { 1 }];
        for mate in mates {
            let mut sequence = match random.next_below(50) {
                0 => random.next_bases(100),
                _ => random.mutate(mate, 80),
            };
            sequence.truncate(100 - random.next_below(8) * random.next_below(8));
            let quality = sequence.iter().map(|_| b'#' + random.next_below(40) as u8).collect();
            let comment = format!("BC:Z:{}", template % 7);
            all.push(Read { name: format!("read:{template}"), comment, sequence, quality });
        }
    }
    Reads { all, layout }
}

fn random_fragment(genome: &Genome, random: &mut Random) -> Vec<u8> {
    let (_, contig) = &genome[[0, 0, 0, 1, 1, 3][random.next_below(6)]];
    let length = if random.next_below(30) == 0 { 900 } else { 220 + random.next_below(80) + random.next_below(80) };
    let start = random.next_below(contig.len() - length);
    let fragment = contig[start..start + length].to_vec();
    if random.next_below(2) == 0 { reverse_complement(&fragment) } else { fragment }
}

/// Returns the FASTA text of a genome.
pub fn fasta(genome: &Genome) -> String {
    let mut text = String::new();
    for (title, bases) in genome {
        text += &format!(">{title}\n");
        for line in bases.chunks(70) {
            text += std::str::from_utf8(line).unwrap();
            text.push('\n');
        }
    }
    text
}

/// Returns the FASTQ text of first and second reads; the second is empty for single reads.
pub fn fastq(reads: &Reads) -> [String; 2] {
    let mut text = [String::new(), String::new()];
    for (at, read) in reads.all.iter().enumerate() {
        let mate = if reads.layout == Layout::Paired { at % 2 } else { 0 };
        let Read { name, comment, sequence, quality } = read;
        let (sequence, quality) = (String::from_utf8_lossy(sequence), String::from_utf8_lossy(quality));
        text[mate] += &format!("@{name}/{} {comment}\n{sequence}\n+\n{quality}\n", mate + 1);
    }
    text
}
