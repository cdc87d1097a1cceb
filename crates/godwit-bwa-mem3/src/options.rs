//! Converts options of `bwa mem` to options of the bwa-mem3 library, and rejects those for which the records would
//! differ.

use godwit_mem::{AlignmentOptions, BwaMemOptions, InsertSizeDistribution, mem_flags};

use crate::library::{InsertSizeModel, LibraryOptions, RawInsertSizes, RawOptions, default_options};

/// Converts options of bwa to options of the library. Options that only the library has keep their defaults, with which
/// it returns the same records as bwa.
pub fn options_from_bwa(mem: &BwaMemOptions) -> LibraryOptions {
    LibraryOptions(RawOptions {
        a: mem.a,
        b: mem.b,
        o_del: mem.o_del,
        e_del: mem.e_del,
        o_ins: mem.o_ins,
        e_ins: mem.e_ins,
        pen_unpaired: mem.pen_unpaired,
        pen_clip5: mem.pen_clip5,
        pen_clip3: mem.pen_clip3,
        w: mem.w,
        zdrop: mem.zdrop,
        max_mem_intv: mem.max_mem_intv,
        T: mem.min_score,
        flag: mem.flag,
        min_seed_len: mem.min_seed_len,
        min_chain_weight: mem.min_chain_weight,
        max_chain_extend: mem.max_chain_extend,
        split_factor: mem.split_factor,
        split_width: mem.split_width,
        max_occ: mem.max_occ,
        max_chain_gap: mem.max_chain_gap,
        n_threads: 1,
        mask_level: mem.mask_level,
        drop_ratio: mem.drop_ratio,
        XA_drop_ratio: mem.xa_drop_ratio,
        mask_level_redun: mem.mask_level_redun,
        mapQ_coef_len: mem.mapq_coef_len,
        mapQ_coef_fac: mem.mapq_coef_fac,
        max_ins: mem.max_ins,
        max_matesw: mem.max_matesw,
        max_XA_hits: mem.max_xa_hits,
        max_XA_hits_alt: mem.max_xa_hits_alt,
        mat: mem.mat,
        ..default_options()
    })
}

/// Converts the insert sizes of the option `-I` to the structure of the library.
pub fn insert_size_model(distributions: &[InsertSizeDistribution; 4]) -> InsertSizeModel {
    distributions.map(|sizes| RawInsertSizes {
        low: sizes.low,
        high: sizes.high,
        failed: sizes.failed,
        avg: sizes.mean,
        std: sizes.standard_deviation,
    })
}

/// Rejects options for which the library returns other records than bwa.
///
/// # Errors
/// The message for the user that names the rejected option.
pub fn check_options(options: &AlignmentOptions) -> Result<(), String> {
    let mem = &options.mem;
    let preset = options.preset.as_deref().filter(|preset| *preset != "intractg");
    let refused = [
        (mem.a != 1, "a match score other than 1 (-A)".to_owned()),
        (preset.is_some(), format!("the preset -x {}", preset.unwrap_or_default())),
        // With `-a`, the FLAG of secondary records of unpaired mates differs from bwa's.
        (mem.flag & mem_flags::ALL != 0, "-a".to_owned()),
        // `-V` needs the name line of the contig in the FASTA file, which the C interface does not return.
        (mem.flag & mem_flags::REFERENCE_HEADER != 0, "-V".to_owned()),
        (mem.min_chain_weight != 0, "a minimum chain weight (-W)".to_owned()),
    ];
    match refused.into_iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, option)) => {
            Err(format!("{option} does not yield bwa's records with bwa-mem3; use --aligner bwa for it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_start_as_the_librarys_own() {
        let (ours, theirs) = (options_from_bwa(&BwaMemOptions::default()).0, default_options());
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn what_gives_other_records_than_bwas_is_refused() {
        let check = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            check_options(&AlignmentOptions::parse(&words, 1).unwrap_or_else(|error| panic!("{error}")))
        };
        assert!(check("-M -Y -x intractg -B 3").is_ok());
        for (line, word) in [("-A 2", "-A"), ("-x ont2d", "-x ont2d"), ("-a", "-a"), ("-V", "-V"), ("-W 30", "-W")] {
            assert!(check(line).unwrap_err().contains(word), "{line}");
        }
    }
}
