//! Random SAM records generated from a seed, and samtools as the reference implementation. The tests of `bam` and
//! `binning_index` use this module, too.

use std::path::Path;
use std::process::Command;

use crate::sam::Header;

/// A generator of random numbers (xorshift64*). The same seed always gives the same data.
pub(crate) struct RandomNumbers(u64);

impl RandomNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn next_below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.next_below(from.len() as u64) as usize]
    }
}

pub(crate) const HEADER: &str = "@HD\tVN:1.6\n@SQ\tSN:chr1\tLN:900000\n@SQ\tSN:chr2\tLN:70000\n@SQ\tSN:empty\tLN:5000\n\
@SQ\tSN:HLA:01*01\tLN:3000\tAH:*\n@RG\tID:lane1\tSM:s\tLB:l\n";

pub(crate) fn header() -> Header {
    Header::parse(HEADER.as_bytes()).unwrap()
}

const CONTIGS: [(&str, u64); 3] = [("chr1", 900_000), ("chr2", 70_000), ("HLA:01*01", 3000)];

fn random_cigar(numbers: &mut RandomNumbers) -> (String, u64) {
    let (mut text, mut read_bases) = (String::new(), 0);
    for _ in 0..1 + numbers.next_below(5) {
        let bases = match numbers.next_below(20) {
            0 => 0,
            1 => 1 + numbers.next_below(300),
            _ => 1 + numbers.next_below(60),
        };
        let op = numbers.pick(&["M", "M", "M", "I", "D", "N", "S", "H", "P", "=", "X"]);
        text.push_str(&format!("{bases}{op}"));
        read_bases += if "MIS=X".contains(op) { bases } else { 0 };
    }
    if read_bases == 0 {
        text.push_str("7M");
        read_bases += 7;
    }
    (text, read_bases)
}

fn random_tags(numbers: &mut RandomNumbers) -> String {
    let edges = [
        "0",
        "1",
        "-1",
        "-0",
        "127",
        "-128",
        "-129",
        "255",
        "256",
        "-32768",
        "-32769",
        "65535",
        "65536",
        "+12",
        "2147483648",
        "4294967295",
        "-2147483648",
    ];
    let mut text = String::new();
    for name in ["NM", "MD", "XA", "Xf", "Xh", "Xb", "Xc", "RG"] {
        if numbers.next_below(3) == 0 {
            continue;
        }
        let value = match name {
            "NM" => format!("i:{}", numbers.pick(&edges)),
            "MD" => format!("Z:{}", numbers.pick(&["10A5^AC6", "", "with blank", "148", "colon:semicolon;"])),
            "XA" => format!("A:{}", numbers.pick(&["!", "x", "~"])),
            "Xf" => {
                format!("f:{}", numbers.pick(&["0", "1.5", "-3e-7", "+2.25", "1e300", "3.1415926535897932", "0.1"]))
            }
            "Xh" => format!("H:{}", numbers.pick(&["", "00ff", "1AE301"])),
            "Xb" => format!(
                "B:{}",
                numbers.pick(&["c,-128,127", "C,0,255", "s,-32768,5", "S,65535", "i,-7", "I,4294967295", "C"])
            ),
            "Xc" => format!("B:f,{}.5,-1e9,0.1", numbers.next_below(99)),
            _ => "Z:lane1".to_owned(),
        };
        text.push_str(&format!("\t{name}:{value}"));
    }
    text
}

/// Returns a random SAM line without its line feed. The line is valid, but its values may be implausible.
pub(crate) fn random_line(numbers: &mut RandomNumbers, index: usize) -> String {
    let (contig, length) = CONTIGS[numbers.next_below(20).saturating_sub(17) as usize];
    let mut flag = numbers.next_below(1 << 12);
    let (mut cigar, mut bases) = random_cigar(numbers);
    let (mut contig, mut position) = (contig, 1 + numbers.next_below(length));
    match numbers.next_below(12) {
        0 => (flag, cigar, bases) = (flag | 4, "*".into(), numbers.next_below(150) + 1),
        1 => (contig, position, flag, cigar) = ("*", 0, flag | 4, "*".into()),
        2 => flag |= 4,
        3 => position = 0,
        _ => {}
    }
    let letters = if numbers.next_below(4) == 0 { &b"acgtnNMRSVWYHKDB=.UxQ"[..] } else { b"ACGTACGTACGTN" };
    let mut letter = |from: &[u8]| char::from(from[numbers.next_below(from.len() as u64) as usize]);
    let mut sequence: String = (0..bases).map(|_| letter(letters)).collect();
    let qualities: Vec<u8> = (b'!'..=b'~').filter(|byte| *byte != b'*').collect();
    let mut quality: String = (0..bases).map(|_| letter(&qualities)).collect();
    match numbers.next_below(12) {
        0 => (sequence, quality) = ("*".into(), "*".into()),
        1 => quality = "*".into(),
        _ => {}
    }
    let (mate, mate_position) = match numbers.next_below(5) {
        0 => ("*", 0),
        1 => ("chr2", numbers.next_below(70_000)),
        _ => ("=", numbers.next_below(length)),
    };
    let (mapq, template) = (numbers.next_below(256), numbers.next_below(4000) as i64 - 2000);
    let tags = random_tags(numbers);
    format!(
        "read{index}:{}\t{flag}\t{contig}\t{position}\t{mapq}\t{cigar}\t{mate}\t{mate_position}\t{template}\t{sequence}\t{quality}{tags}",
        "n".repeat(numbers.next_below(60) as usize)
    )
}

/// Returns the text of a random SAM file, including its header.
pub(crate) fn random_sam(seed: u64, records: usize) -> String {
    let mut numbers = RandomNumbers::new(seed);
    let mut text = HEADER.to_owned();
    for index in 0..records {
        text.push_str(&random_line(&mut numbers, index));
        text.push('\n');
    }
    text
}

/// Runs samtools and returns its output. Tests that call it begin with `needs!("samtools")`.
pub(crate) fn samtools(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("samtools").args(arguments).output().unwrap();
    assert!(output.status.success(), "samtools {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub(crate) fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}
