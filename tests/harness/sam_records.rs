//! Random SAM records generated from a seed, as text: every flag, operation, type of tag and edge of a number occurs.

use crate::random::Random;

/// The header of the random records.
pub const HEADER: &str = "@HD\tVN:1.6\n@SQ\tSN:chr1\tLN:900000\n@SQ\tSN:chr2\tLN:70000\n@SQ\tSN:empty\tLN:5000\n\
@SQ\tSN:HLA:01*01\tLN:3000\tAH:*\n@RG\tID:lane1\tSM:s\tLB:l\n";

const CONTIGS: [(&str, u64); 3] = [("chr1", 900_000), ("chr2", 70_000), ("HLA:01*01", 3000)];

fn random_cigar(numbers: &mut Random) -> (String, u64) {
    let (mut text, mut read_bases) = (String::new(), 0);
    for _ in 0..1 + numbers.below_u64(5) {
        let bases = match numbers.below_u64(20) {
            0 => 0,
            1 => 1 + numbers.below_u64(300),
            _ => 1 + numbers.below_u64(60),
        };
        let op = *numbers.pick(&["M", "M", "M", "I", "D", "N", "S", "H", "P", "=", "X"]);
        text.push_str(&format!("{bases}{op}"));
        read_bases += if "MIS=X".contains(op) { bases } else { 0 };
    }
    if read_bases == 0 {
        text.push_str("7M");
        read_bases += 7;
    }
    (text, read_bases)
}

fn random_tags(numbers: &mut Random) -> String {
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
        if numbers.below_u64(3) == 0 {
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
            "Xc" => format!("B:f,{}.5,-1e9,0.1", numbers.below_u64(99)),
            _ => "Z:lane1".to_owned(),
        };
        text.push_str(&format!("\t{name}:{value}"));
    }
    text
}

/// Returns a random SAM line without its line feed. The line is valid, but its values may be implausible.
pub fn random_line(numbers: &mut Random, index: usize) -> String {
    let (contig, length) = CONTIGS[numbers.below_u64(20).saturating_sub(17) as usize];
    let mut flag = numbers.below_u64(1 << 12);
    let (mut cigar, mut bases) = random_cigar(numbers);
    let (mut contig, mut position) = (contig, 1 + numbers.below_u64(length));
    match numbers.below_u64(12) {
        0 => (flag, cigar, bases) = (flag | 4, "*".into(), numbers.below_u64(150) + 1),
        1 => (contig, position, flag, cigar) = ("*", 0, flag | 4, "*".into()),
        2 => flag |= 4,
        3 => position = 0,
        _ => {}
    }
    let letters = if numbers.below_u64(4) == 0 { &b"acgtnNMRSVWYHKDB=.UxQ"[..] } else { b"ACGTACGTACGTN" };
    let mut letter = |from: &[u8]| char::from(from[numbers.below_u64(from.len() as u64) as usize]);
    let mut sequence: String = (0..bases).map(|_| letter(letters)).collect();
    let qualities: Vec<u8> = (b'!'..=b'~').filter(|byte| *byte != b'*').collect();
    let mut quality: String = (0..bases).map(|_| letter(&qualities)).collect();
    match numbers.below_u64(12) {
        0 => (sequence, quality) = ("*".into(), "*".into()),
        1 => quality = "*".into(),
        _ => {}
    }
    let (mate, mate_position) = match numbers.below_u64(5) {
        0 => ("*", 0),
        1 => ("chr2", numbers.below_u64(70_000)),
        _ => ("=", numbers.below_u64(length)),
    };
    let (mapq, template) = (numbers.below_u64(256), numbers.below_u64(4000) as i64 - 2000);
    let tags = random_tags(numbers);
    format!(
        "read{index}:{}\t{flag}\t{contig}\t{position}\t{mapq}\t{cigar}\t{mate}\t{mate_position}\t{template}\t{sequence}\t{quality}{tags}",
        "n".repeat(numbers.below_u64(60) as usize)
    )
}

/// Returns the text of a random SAM file, including its header.
pub fn random_sam(seed: u64, records: usize) -> String {
    let mut numbers = Random::new(seed);
    let mut text = HEADER.to_owned();
    for index in 0..records {
        text.push_str(&random_line(&mut numbers, index));
        text.push('\n');
    }
    text
}
