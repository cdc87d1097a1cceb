//! Random VCF files, with the kinds of values on which filter expressions differ.

use std::fmt::Write as _;

use godwit_tests::random::Random;

/// Number of samples of a random file.
const SAMPLES: usize = 4;
/// The header lines of all fields.
pub(super) const HEADER: &str = "##fileformat=VCFv4.2\n##contig=<ID=chr1,length=1000000>\n##FILTER=<ID=q10,Description=\"x\">\n\
    ##FILTER=<ID=s50,Description=\"x\">\n##INFO=<ID=DP,Number=1,Type=Integer,Description=\"x\">\n\
    ##INFO=<ID=XF,Number=1,Type=Float,Description=\"x\">\n##INFO=<ID=XS,Number=1,Type=String,Description=\"x\">\n\
    ##INFO=<ID=XI,Number=.,Type=Integer,Description=\"x\">\n##INFO=<ID=XR,Number=.,Type=Float,Description=\"x\">\n\
    ##INFO=<ID=XL,Number=.,Type=String,Description=\"x\">\n##INFO=<ID=DB,Number=0,Type=Flag,Description=\"x\">\n\
    ##FORMAT=<ID=GT,Number=1,Type=String,Description=\"x\">\n##FORMAT=<ID=DP,Number=1,Type=Integer,Description=\"x\">\n\
    ##FORMAT=<ID=AD,Number=R,Type=Integer,Description=\"x\">\n##FORMAT=<ID=GQ,Number=1,Type=Integer,Description=\"x\">\n\
    ##FORMAT=<ID=PF,Number=1,Type=Float,Description=\"x\">\n##FORMAT=<ID=FT,Number=1,Type=String,Description=\"x\">\n\
    ##FORMAT=<ID=NL,Number=.,Type=String,Description=\"x\">\n";
const COUNTS_HEADER: &str = "##INFO=<ID=AN,Number=1,Type=Integer,Description=\"x\">\n\
    ##INFO=<ID=AC,Number=A,Type=Integer,Description=\"x\">\n";

fn random_info(random: &mut Random, alternates: usize, has_counts: bool) -> String {
    const WORDS: [&str; 6] = ["a", "bb", "abc", "A", "x1", "12"];
    let list = |random: &mut Random, value: fn(&mut Random) -> String| {
        let count = random.between(1, 3);
        (0..count).map(|_| value(random)).collect::<Vec<_>>().join(",")
    };
    let mut fields = Vec::new();
    let mut add = |random: &mut Random, key: &str, value: String| {
        if random.chance(0.75) {
            fields.push(format!("{key}={value}"));
        }
    };
    let number = |random: &mut Random| random.between(-5, 40).to_string();
    let float = |random: &mut Random| random.pick(&["0.1", "0.25", "1", "3.5e-3", "-2.75", "59.2"]).to_string();
    let word = |random: &mut Random| random.pick(&WORDS).to_string();
    let value = number(random);
    add(random, "DP", value);
    let value = float(random);
    add(random, "XF", value);
    let value = word(random);
    add(random, "XS", value);
    let value = list(random, number);
    add(random, "XI", value);
    let value = list(random, float);
    add(random, "XR", value);
    let value = list(random, word);
    add(random, "XL", value);
    // bcftools rejects counts where there is no alternate allele.
    if has_counts && alternates > 0 && random.chance(0.8) {
        let counts: Vec<String> = (0..alternates).map(|_| random.between(0, 2).to_string()).collect();
        fields.push(format!("AN={};AC={}", random.between(6, 9), counts.join(",")));
    }
    if random.chance(0.5) {
        fields.push("DB".to_owned());
    }
    if fields.is_empty() { ".".to_owned() } else { fields.join(";") }
}

fn random_genotype(random: &mut Random, alternates: i64) -> String {
    let ploidy = *random.pick(&[1, 2, 2, 2, 2, 2, 3]);
    let separator = *random.pick(&["/", "|"]);
    let mut allele = || match random.chance(0.1) {
        true => ".".to_owned(),
        false => random.between(0, alternates).to_string(),
    };
    let alleles: Vec<String> = (0..ploidy).map(|_| allele()).collect();
    alleles.join(separator)
}

fn random_sample(random: &mut Random, keys: &str, alternates: usize) -> String {
    let values = keys.split(':').map(|key| {
        let present = match key {
            "GT" => return random_genotype(random, alternates as i64),
            "AD" => (0..=alternates).map(|_| random.between(0, 20).to_string()).collect::<Vec<_>>().join(","),
            "PF" => random.pick(&["0.1", "0.25", "17", "1e-3"]).to_string(),
            "FT" => random.pick(&["PASS", "q10", "low"]).to_string(),
            "NL" => random.pick(&["a", "a,b", "b,.,c", "c"]).to_string(),
            _ => random.between(0, 30).to_string(),
        };
        if random.chance(0.15) { ".".to_owned() } else { present }
    });
    values.collect::<Vec<_>>().join(":")
}

/// Returns a random VCF with one record at each of the positions from 11 on.
pub(super) fn random_vcf(seed: u64, records: usize, has_counts: bool) -> String {
    let mut random = Random::new(seed);
    let counts = if has_counts { COUNTS_HEADER } else { "" };
    let mut text = HEADER.to_owned() + counts + "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT";
    (0..SAMPLES).for_each(|at| write!(text, "\tS{at}").expect("memory takes it"));
    for at in 0..records {
        let reference = *random.pick(&["A", "A", "A", "AT", "ACG", "gTC"]);
        let mut alternates: Vec<&str> = Vec::new();
        for _ in 0..random.between(0, 3) {
            let allele = *random.pick(&[
                "C",
                "G",
                "T",
                "AG",
                "ACG",
                "AC",
                "GTC",
                "A[chr1:5[",
                "]chr1:9]A",
                "<DEL>",
                "<*>",
                "*",
                "ATT",
                "TTG",
            ]);
            if allele != reference && !alternates.contains(&allele) {
                alternates.push(allele);
            }
        }
        let count = alternates.len();
        let joined = if count == 0 { ".".to_owned() } else { alternates.join(",") };
        let id = *random.pick(&[".", "rs1", "rs22", "rs1;x", "y"]);
        let quality = *random.pick(&[".", "10", "29.5", "30", "59.2", "1000", "0"]);
        let filter = *random.pick(&[".", "PASS", "PASS", "q10", "s50", "q10;s50"]);
        let info = random_info(&mut random, count, has_counts);
        write!(text, "\nchr1\t{}\t{id}\t{reference}\t{joined}\t{quality}\t{filter}\t{info}", 11 + at)
            .expect("memory takes it");
        let keys = *random.pick(&["GT:DP:AD", "GT:DP:AD:GQ", "GT:DP:AD:PF:FT:NL", "GT:DP:AD:NL:GQ:FT"]);
        write!(text, "\t{keys}").expect("memory takes it");
        for _ in 0..SAMPLES {
            write!(text, "\t{}", random_sample(&mut random, keys, count)).expect("memory takes it");
        }
    }
    text + "\n"
}
