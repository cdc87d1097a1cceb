//! Structures with the memory layout of bwa 0.7.17. If the structures of a library differ, the program that links it
//! fails to compile, or copies every field.

use std::ffi::{c_char, c_int};
use std::mem::offset_of;

/// Bits of [`BwaMemOptions::flag`], which bwa calls `MEM_F_*`, with the options of `bwa mem` that set them.
pub mod mem_flags {
    /// The reads of the block are paired.
    pub const PAIRED: i32 = 0x2;
    /// Skip pairing of mates (`-P`).
    pub(crate) const NO_PAIRING: i32 = 0x4;
    /// Return all alignments of single or unpaired reads (`-a`).
    pub const ALL: i32 = 0x8;
    /// Mark shorter split alignments as secondary (`-M`).
    pub(crate) const NO_MULTI: i32 = 0x10;
    /// Skip the rescue of mates (`-S`).
    pub(crate) const NO_RESCUE: i32 = 0x20;
    /// Return the name line of the reference contig in the tag `XR` (`-V`).
    pub const REFERENCE_HEADER: i32 = 0x100;
    /// Soft-clip supplementary alignments (`-Y`).
    pub(crate) const SOFT_CLIP: i32 = 0x200;
    /// Make the split alignment with the smallest coordinate primary (`-5`).
    pub(crate) const PRIMARY_5: i32 = 0x800;
    /// Do not change the mapping quality of supplementary alignments (`-q`).
    pub(crate) const KEEP_SUPPLEMENTARY_MAPQ: i32 = 0x1000;
}

/// bwa's `mem_opt_t`, the options of an alignment. `bwamem.h` of bwa explains the fields.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct BwaMemOptions {
    pub a: c_int,
    pub b: c_int,
    pub o_del: c_int,
    pub e_del: c_int,
    pub o_ins: c_int,
    pub e_ins: c_int,
    pub pen_unpaired: c_int,
    pub pen_clip5: c_int,
    pub pen_clip3: c_int,
    pub w: c_int,
    pub zdrop: c_int,
    pub max_mem_intv: u64,
    pub min_score: c_int,
    pub flag: c_int,
    pub min_seed_len: c_int,
    pub min_chain_weight: c_int,
    pub max_chain_extend: c_int,
    pub split_factor: f32,
    pub split_width: c_int,
    pub max_occ: c_int,
    pub max_chain_gap: c_int,
    pub n_threads: c_int,
    pub chunk_size: c_int,
    pub mask_level: f32,
    pub drop_ratio: f32,
    pub xa_drop_ratio: f32,
    pub mask_level_redun: f32,
    pub mapq_coef_len: f32,
    pub mapq_coef_fac: c_int,
    pub max_ins: c_int,
    pub max_matesw: c_int,
    pub max_xa_hits: c_int,
    pub max_xa_hits_alt: c_int,
    pub mat: [i8; 25],
}

const _: () = assert!(
    size_of::<BwaMemOptions>() == 168
        && offset_of!(BwaMemOptions, max_mem_intv) == 48
        && offset_of!(BwaMemOptions, flag) == 60
        && offset_of!(BwaMemOptions, n_threads) == 92
        && offset_of!(BwaMemOptions, mat) == 140
);

/// bwa's `mem_pestat_t`, the distribution of insert sizes for one orientation of pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct InsertSizeDistribution {
    /// Minimum insert size of a proper pair, bases.
    pub low: c_int,
    /// Maximum insert size of a proper pair, bases.
    pub high: c_int,
    /// 0 if pairs of this orientation can be proper; otherwise 1, and the other fields are not used.
    pub failed: c_int,
    /// Mean insert size, bases.
    pub mean: f64,
    /// Standard deviation of the insert size, bases.
    pub standard_deviation: f64,
}

const _: () = assert!(size_of::<InsertSizeDistribution>() == 32 && offset_of!(InsertSizeDistribution, mean) == 16);

/// bwa's `bseq1_t`, one read.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct BwaSequence {
    pub bases: c_int,
    pub id: c_int,
    pub name: *mut c_char,
    pub comment: *mut c_char,
    pub sequence: *mut c_char,
    pub quality: *mut c_char,
    pub sam: *mut c_char,
}

const _: () =
    assert!(size_of::<BwaSequence>() == 48 && offset_of!(BwaSequence, name) == 8 && offset_of!(BwaSequence, sam) == 40);

impl Default for BwaMemOptions {
    /// Returns the default values of bwa 0.7.17 (`mem_opt_init` in bwamem.c). Tests of the alignment programs compare
    /// the two.
    fn default() -> Self {
        let mut options = Self {
            a: 1,
            b: 4,
            o_del: 6,
            e_del: 1,
            o_ins: 6,
            e_ins: 1,
            pen_unpaired: 17,
            pen_clip5: 5,
            pen_clip3: 5,
            w: 100,
            zdrop: 100,
            max_mem_intv: 20,
            min_score: 30,
            flag: 0,
            min_seed_len: 19,
            min_chain_weight: 0,
            max_chain_extend: 1 << 30,
            split_factor: 1.5,
            split_width: 10,
            max_occ: 500,
            max_chain_gap: 10_000,
            n_threads: 1,
            chunk_size: 10_000_000,
            mask_level: 0.5,
            drop_ratio: 0.5,
            xa_drop_ratio: 0.8,
            mask_level_redun: 0.95,
            mapq_coef_len: 50.0,
            mapq_coef_fac: 3,
            max_ins: 10_000,
            max_matesw: 50,
            max_xa_hits: 5,
            max_xa_hits_alt: 200,
            mat: [0; 25],
        };
        options.fill_matrix();
        options
    }
}

impl BwaMemOptions {
    /// Fills the scoring matrix with the match score and the mismatch penalty, as `bwa_fill_scmat` (bwa.c) does. An N
    /// scores -1 against every base.
    pub fn fill_matrix(&mut self) {
        for (row, scores) in self.mat.chunks_exact_mut(5).enumerate() {
            for (column, score) in scores.iter_mut().enumerate() {
                *score = match (row, column) {
                    (4, _) | (_, 4) => -1,
                    (row, column) if row == column => self.a as i8,
                    _ => self.b.wrapping_neg() as i8,
                };
            }
        }
    }
}
