//! Runs a comparison with the options of vcfeval.
use godwit_haplotypes::*;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut o = HaplotypeOptions::new(PathBuf::from(&args[2]), PathBuf::from(&args[1]), PathBuf::from(&args[3]));
    o.threads = std::env::var("HAP_THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    let out = PathBuf::from(&args[4]);
    let mut subset_given = false;
    for a in &args[5..] {
        let (k, v) = a.split_once('=').unwrap_or((a, ""));
        match k {
            "--output-mode" => {
                o.output = match v {
                    "split" => OutputMode::Split,
                    "annotate" => OutputMode::Annotate,
                    "combine" => OutputMode::Combine,
                    "ga4gh" => OutputMode::Ga4gh,
                    "roc-only" => OutputMode::RocOnly,
                    _ => panic!("{a}"),
                }
            }
            "--vcf-score-field" => o.score = ScoreField::parse(v),
            "--sort-order" => o.ascending_scores = v == "ascending",
            "--squash-ploidy" => o.squash_ploidy = true,
            "--ref-overlap" => o.ref_overlap = true,
            "--all-records" => o.all_records = true,
            "--sample" => {
                let (t, c) = v.split_once(',').unwrap_or((v, v));
                o.truth_sample = SampleChoice::from_name(t);
                o.calls_sample = SampleChoice::from_name(c);
            }
            "--sample-ploidy" => o.rules.ploidy = v.parse().unwrap(),
            "--evaluation-regions" => o.confident = Some(v.into()),
            "--bed-regions" | "--region" => o.regions = Some(v.into()),
            "--no-roc" => o.score = None,
            "--roc-subset" => {
                if !subset_given {
                    o.subsets.clear();
                }
                subset_given = true;
                for s in v.split(',') {
                    o.subsets.push(match s {
                        "snp" => Subset::Snp,
                        "non-snp" => Subset::NonSnp,
                        "mnp" => Subset::Mnp,
                        "indel" => Subset::Indel,
                        "hom" => Subset::Homozygous,
                        "het" => Subset::Heterozygous,
                        _ => panic!(),
                    });
                }
            }
            "--Xtwo-pass" => o.rules.allele_pass = Some(v == "true"),
            "--Xobey-phase" => {
                let p = |s: &str| match s {
                    "true" => PhaseRule::Obey,
                    "invert" => PhaseRule::Invert,
                    _ => PhaseRule::Ignore,
                };
                let (t, c) = v.split_once(',').unwrap_or((v, v));
                o.rules.truth_phase = p(t);
                o.rules.calls_phase = p(c);
            }
            "--Xmax-length" => o.rules.max_allele_bases = v.parse().unwrap(),
            "--Xloose-match-distance" => o.rules.local_match_bases = v.parse().ok().filter(|d: &i32| *d >= 0),
            "--XXcom.rtg.vcf.eval.max-paths" => o.rules.max_paths = v.parse().unwrap(),
            "--XXcom.rtg.vcf.eval.max-iterations" => o.rules.max_iterations = v.parse().unwrap(),
            "--XXcom.rtg.vcf.eval.maximize" => {
                o.rules.preference =
                    if v == "calls-min-base" { Preference::MostCallsFewestTruth } else { Preference::MostVariants }
            }
            "--XXcom.rtg.vcf.eval.prune-no-ops" => o.rules.drops_no_ops = v != "false",
            "--XXcom.rtg.vcf.eval.haploid-allele-matching" => o.rules.haploid_allele_matching = v != "false",
            "--XXcom.rtg.vcf.eval.explicit-unknown-alleles" => o.rules.explicit_unknown_alleles = v == "true",
            _ => eprintln!("ignored {a}"),
        }
    }
    std::fs::create_dir_all(&out).unwrap();
    match compare_haplotypes(&o, Some(&out), &AtomicBool::new(false)) {
        Ok(r) => {
            for t in r.too_complex {
                eprintln!("too complex {} {}-{} {} {}", t.contig, t.start, t.end, t.paths, t.iterations);
            }
        }
        Err(e) => {
            eprintln!("error: {e:?}");
            std::process::exit(3);
        }
    }
}
