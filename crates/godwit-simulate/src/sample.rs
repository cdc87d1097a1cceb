//! A simulated diploid sample of a genome: its variants, and the sequences of both haplotypes.
//!
//! The sequences of the haplotypes are not stored. The bases of a fragment are computed from the reference and from the
//! variants in the fragment. A sample of a human genome therefore needs megabytes of memory instead of gigabytes.

use std::io::Write;
use std::path::Path;

use super::SimulateError;
use super::assembly::Assembly;
use super::atomic_text_file::AtomicTextFile;
use super::rng::{PURPOSE_SAMPLE, Rng};

/// Maximum length of a simulated insertion or deletion, bases.
const MAX_INDEL_BASES: u64 = 20;
/// Minimum number of reference bases between two variants, and between a variant and the end of a contig, so that each
/// variant has only one representation.
const SPACING_BASES: u32 = 25;

/// Options for the simulated variants of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOptions {
    /// Name of the sample in the VCF.
    pub name: String,
    /// Number of single-nucleotide variants per reference base, 0 to 0.01.
    pub snv_rate: f64,
    /// Number of insertions and deletions per reference base, 0 to 0.01. Half of them are insertions. Their lengths are
    /// 1 to 20 bases, mostly short.
    pub indel_rate: f64,
    /// Seed of the random numbers. The same seed gives the same variants.
    pub seed: u64,
}

impl Default for SampleOptions {
    /// Returns the rates of human genomes: an SNV per 1,000 bases, and an indel per 10,000 bases.
    fn default() -> Self {
        Self { name: "demo".to_owned(), snv_rate: 1e-3, indel_rate: 1e-4, seed: 1 }
    }
}

/// A variant in the normalised form of VCF: left-aligned and with minimal alleles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Position of the first base of `reference`, 0-based.
    pub position: u32,
    /// Reference allele. For an indel, its first base is the base before the inserted or deleted bases.
    pub reference: Box<[u8]>,
    /// Alternate allele, which replaces `reference`.
    pub alternate: Box<[u8]>,
    /// For each haplotype, whether it has the variant. At least one has it.
    pub haplotypes: [bool; 2],
}

impl Variant {
    /// Returns the end of the reference allele, 0-based and exclusive.
    fn end(&self) -> u32 {
        self.position + self.reference.len() as u32
    }
}

/// The variants of a sample, sorted by contig and position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    name: String,
    variants: Vec<Vec<Variant>>,
}

impl Sample {
    /// Draws the variants of a sample. Two thirds of them are heterozygous. Variants are never next to an N, and are at
    /// least 25 bases apart.
    pub fn draw(assembly: &Assembly, options: &SampleOptions) -> Self {
        let rate = options.snv_rate + options.indel_rate;
        // Spacing excludes some positions. Increase the probability at the remaining positions, so that the rate is as
        // requested.
        let chance = rate / (1.0 - rate * f64::from(SPACING_BASES)).max(0.5);
        let indel_share = if rate > 0.0 { options.indel_rate / rate } else { 0.0 };
        let draw_contig = |(index, bases): (usize, &[u8])| {
            let mut rng = Rng::new(options.seed, PURPOSE_SAMPLE, index as u64);
            let mut variants: Vec<Variant> = Vec::new();
            let mut position = SPACING_BASES;
            while (position as usize) + (SPACING_BASES as usize) < bases.len() {
                if rng.chance(chance) {
                    let indel = rng.chance(indel_share);
                    // Left alignment may move an indel to a lower position, but not below `from`.
                    let from = variants.last().map_or(0, Variant::end) + SPACING_BASES;
                    let drawn = if indel {
                        draw_indel(bases, position, from, &mut rng)
                    } else {
                        draw_snv(bases, position, &mut rng)
                    };
                    if let Some(variant) = drawn {
                        position = position.max(variant.end()) + SPACING_BASES - 1;
                        variants.push(variant);
                    }
                }
                position += 1;
            }
            variants
        };
        let variants = assembly.contigs().iter().map(|contig| contig.bases.as_slice()).enumerate().map(draw_contig);
        Self { name: options.name.clone(), variants: variants.collect() }
    }

    /// Returns the variants of the contig with this index, sorted by position.
    pub fn variants(&self, contig: usize) -> &[Variant] {
        self.variants.get(contig).map_or(&[], Vec::as_slice)
    }

    /// Appends `count` bases of a haplotype to `out`, fewer at the end of the contig. They start at the first haplotype
    /// base at or after the 0-based reference position `start`.
    pub(super) fn append_haplotype_bases(
        &self,
        reference: &[u8],
        contig: usize,
        haplotype: usize,
        start: u32,
        count: usize,
        out: &mut Vec<u8>,
    ) {
        let variants = &self.variants[contig];
        let full = out.len() + count;
        let mut position = start as usize;
        // A variant before `start` affects the result only if it deletes the base at `start`. Because of the spacing,
        // there is at most one such variant.
        let next = variants.partition_point(|variant| variant.end() <= start);
        for variant in variants[next..].iter().filter(|variant| variant.haplotypes[haplotype]) {
            let at = variant.position as usize;
            if at < position {
                position = variant.end() as usize;
                continue;
            }
            if out.len() + (at - position) >= full {
                break;
            }
            out.extend_from_slice(&reference[position..at]);
            out.extend_from_slice(&variant.alternate);
            position = variant.end() as usize;
            if out.len() >= full {
                break;
            }
        }
        if out.len() < full {
            let end = (position + full - out.len()).min(reference.len());
            out.extend_from_slice(&reference[position.min(end)..end]);
        }
        out.truncate(full);
    }

    /// Writes the variants as VCF 4.2. The genotypes are phased, with haplotype 0 first.
    ///
    /// # Errors
    /// [`SimulateError::Write`] if the file cannot be written.
    pub fn write_vcf(&self, assembly: &Assembly, path: &Path) -> Result<(), SimulateError> {
        let mut vcf = AtomicTextFile::create(path, false)?;
        let failed = |source| SimulateError::Write { path: path.to_path_buf(), source };
        vcf.text.extend_from_slice(b"##fileformat=VCFv4.2\n##source=godwit-simulate\n");
        for contig in assembly.contigs() {
            writeln!(vcf.text, "##contig=<ID={},length={}>", contig.name, contig.bases.len()).map_err(failed)?;
        }
        vcf.text.extend_from_slice(b"##FORMAT=<ID=GT,Number=1,Type=String,Description=\"Genotype\">\n");
        writeln!(vcf.text, "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{}", self.name).map_err(failed)?;
        for (contig, variants) in assembly.contigs().iter().zip(&self.variants) {
            for variant in variants {
                // Positions in VCF are 1-based (VCFv4.2 §1.4.1).
                let position_1based = variant.position + 1;
                let reference = String::from_utf8_lossy(&variant.reference);
                let alternate = String::from_utf8_lossy(&variant.alternate);
                let [first, second] = variant.haplotypes.map(u8::from);
                let name = &contig.name;
                writeln!(
                    vcf.text,
                    "{name}\t{position_1based}\t.\t{reference}\t{alternate}\t.\tPASS\t.\tGT\t{first}|{second}"
                )
                .map_err(failed)?;
                vcf.flush_if_full()?;
            }
        }
        vcf.commit().map(drop)
    }
}

fn draw_haplotypes(rng: &mut Rng) -> [bool; 2] {
    [[true, true], [true, false], [false, true]][rng.below(3) as usize]
}

fn draw_snv(bases: &[u8], position: u32, rng: &mut Rng) -> Option<Variant> {
    let reference = bases[position as usize];
    let alternate = rng.other_base(reference);
    let haplotypes = draw_haplotypes(rng);
    (reference != b'N').then(|| Variant {
        position,
        reference: [reference].into(),
        alternate: [alternate].into(),
        haplotypes,
    })
}

/// Draws an insertion or deletion after `position` and left-aligns it (Tan et al. 2015,
/// doi:10.1093/bioinformatics/btv112). Returns `None` if the variant would reach an N, the end of the contig, or a
/// position before `from`.
fn draw_indel(bases: &[u8], position: u32, from: u32, rng: &mut Rng) -> Option<Variant> {
    // Half of all indels have a length of one base, a quarter of two bases, and so on.
    let length = (1 + u64::from(rng.bits().trailing_ones())).min(MAX_INDEL_BASES) as usize;
    let deletion = rng.chance(0.5);
    let mut inserted: Vec<u8> = (0..length).map(|_| rng.base()).collect();
    let haplotypes = draw_haplotypes(rng);
    let mut anchor = position as usize;
    if anchor + length + SPACING_BASES as usize >= bases.len() {
        return None;
    }
    if deletion {
        while anchor > from as usize && bases[anchor] == bases[anchor + length] {
            anchor -= 1;
        }
    } else {
        while anchor > from as usize && Some(&bases[anchor]) == inserted.last() {
            inserted.rotate_right(1);
            anchor -= 1;
        }
    }
    let touched = &bases[anchor..=anchor + length];
    if anchor <= from as usize || touched.contains(&b'N') {
        return None;
    }
    let (reference, alternate) = if deletion {
        (touched.to_vec(), vec![bases[anchor]])
    } else {
        (vec![bases[anchor]], [&bases[anchor..=anchor], &inserted].concat())
    };
    let position = anchor as u32;
    Some(Variant { position, reference: reference.into(), alternate: alternate.into(), haplotypes })
}
