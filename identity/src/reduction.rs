//! The search for the smallest set of templates that still shows a difference.
//!
//! bwa breaks ties by the ordinal of a read in the lane, cuts blocks by counting bases, and estimates insert sizes from
//! the reads of a block. Removing a template changes all three for the later reads, and the difference may vanish for
//! another reason. So a removed template is replaced by a *placeholder*: as many reads, of as many bases, all of them N.
//! Ordinals and block borders stay as they are, and a read of N aligns nowhere. Only the estimate of insert sizes loses
//! its observations: with fewer than ten pairs, bwa makes none and rescues no mates. Then `-I` gives the estimate of the
//! whole round; where that is not sufficient, the search keeps as many templates of the block as necessary.
//!
//! The search tries, in this order, and continues with the smallest set that still differs:
//! 1. each of the first templates that differ alone, without and with `-I`;
//! 2. all templates that differ, then these and the rest of their blocks;
//! 3. whole blocks, then templates, by delta debugging (Zeller and Hildebrandt, doi:10.1109/32.988498);
//! 4. no placeholders after the last kept template, placeholders of one base in one block, no placeholders at all;
//! 5. each option of the aligner left out.

use std::ops::Range;

use crate::error::Result;

/// The maximum number of templates with a difference that are tried alone, without the other templates.
const MAX_ALONE: usize = 3;

/// The form of the placeholders for templates that are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholders {
    /// Reads that consist of as many N as the template has bases; ordinals and block borders do not change.
    SameBases,
    /// Reads of a single N, with all reads in one block; ordinals do not change.
    OneBase,
    /// No placeholders.
    None,
}

/// A subset of the templates of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset {
    /// The numbers of the kept templates, ascending.
    pub kept: Vec<u64>,
    /// The number of templates, kept or placeholders, from the first one on.
    pub total: u64,
    /// The form of the placeholders.
    pub placeholders: Placeholders,
}

impl Subset {
    /// Returns the set of all templates of a round.
    pub fn all(total: u64) -> Self {
        Self { kept: (0..total).collect(), total, placeholders: Placeholders::SameBases }
    }
}

/// The input of a search.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// The number of templates of the round.
    pub total: u64,
    /// The templates of each block, in order.
    pub blocks: &'a [Range<u64>],
    /// Templates whose records differ, ascending; empty where the program failed.
    pub suspects: &'a [u64],
    /// The options of the aligner.
    pub options: &'a [String],
    /// The option that replaces the estimate of insert sizes, where there is one.
    pub insert_sizes: Option<String>,
    /// The maximum number of trials; the search ends with the smallest set found until then.
    pub max_trials: u32,
}

/// The smallest set that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The templates.
    pub subset: Subset,
    /// The options without which the difference does not occur.
    pub options: Vec<String>,
    /// The number of trials.
    pub trials: u32,
}

/// A counter of trials. After the maximum number, every trial reports no difference.
struct Trials<'a> {
    differs: &'a mut dyn FnMut(&Subset, &[String]) -> Result<bool>,
    made: u32,
    most: u32,
}

impl Trials<'_> {
    fn differs(&mut self, subset: &Subset, options: &[String]) -> Result<bool> {
        if self.made >= self.most {
            return Ok(false);
        }
        self.made += 1;
        (self.differs)(subset, options)
    }
}

/// Finds a small set of templates and options for which `differs` returns true, as it does for the whole round.
///
/// # Errors
/// Those of `differs`.
pub fn reduce(start: &Start<'_>, differs: &mut dyn FnMut(&Subset, &[String]) -> Result<bool>) -> Result<Reduction> {
    let mut trials = Trials { differs, made: 0, most: start.max_trials };
    let with = |kept: &[u64]| {
        let (kept, placeholders) = (kept.to_vec(), Placeholders::SameBases);
        Subset { kept, total: start.total, placeholders }
    };
    let mut options = start.options.to_vec();
    let kept = match one_template(start, &mut |kept, options| trials.differs(&with(kept), options))? {
        Some((kept, needed)) => {
            options = needed;
            kept
        }
        None => reduce_templates(start, &mut |kept| trials.differs(&with(kept), start.options))?,
    };
    let mut subset = with(&kept);
    let end = subset.kept.last().map_or(subset.total, |last| last + 1);
    let simpler = [(end, Placeholders::SameBases), (end, Placeholders::OneBase), (end, Placeholders::None)];
    for (total, placeholders) in simpler {
        let candidate = Subset { kept: subset.kept.clone(), total, placeholders };
        if candidate != subset && trials.differs(&candidate, &options)? {
            subset = candidate;
        }
    }
    for option in options.clone() {
        let fewer: Vec<String> = options.iter().filter(|other| **other != option).cloned().collect();
        if trials.differs(&subset, &fewer)? {
            options = fewer;
        }
    }
    Ok(Reduction { subset, options, trials: trials.made })
}

/// A function that reports whether the records of a subset differ with the given options.
type DifferenceTest<'a> = dyn FnMut(&[u64], &[String]) -> Result<bool> + 'a;

/// Finds a template that shows the difference without other templates, and the options with which it does.
fn one_template(start: &Start<'_>, differs: &mut DifferenceTest<'_>) -> Result<Option<(Vec<u64>, Vec<String>)>> {
    let plain = start.options.to_vec();
    let pinned = start.insert_sizes.iter().map(|option| [&plain[..], std::slice::from_ref(option)].concat());
    for options in std::iter::once(plain.clone()).chain(pinned) {
        for suspect in start.suspects.iter().take(MAX_ALONE) {
            if differs(&[*suspect], &options)? {
                return Ok(Some((vec![*suspect], options)));
            }
        }
    }
    Ok(None)
}

/// Finds a set of templates that shows the difference, if no template shows it alone.
fn reduce_templates(start: &Start<'_>, differs: &mut dyn FnMut(&[u64]) -> Result<bool>) -> Result<Vec<u64>> {
    let block_of = |template: u64| start.blocks.iter().position(|block| block.contains(&template));
    if start.suspects.len() > 1 && differs(start.suspects)? {
        return minimize(start.suspects.iter().map(|template| vec![*template]).collect(), differs);
    }
    let mut blocks: Vec<usize> = start.suspects.iter().filter_map(|suspect| block_of(*suspect)).collect();
    blocks.dedup();
    let templates_of = |blocks: &[usize]| -> Vec<Vec<u64>> {
        blocks.iter().map(|block| start.blocks[*block].clone().collect()).collect()
    };
    let mut groups = templates_of(&blocks);
    if blocks.is_empty() || !differs(&groups.concat())? {
        groups = templates_of(&(0..start.blocks.len()).collect::<Vec<_>>());
    }
    let kept = minimize(groups, differs)?;
    minimize(kept.into_iter().map(|template| vec![template]).collect(), differs)
}

/// Returns, by delta debugging, a small subset of `groups` for which `differs` is true, as it is for all of them together.
fn minimize(mut groups: Vec<Vec<u64>>, differs: &mut dyn FnMut(&[u64]) -> Result<bool>) -> Result<Vec<u64>> {
    let mut parts = 2;
    while groups.len() > 1 {
        let part_groups = groups.len().div_ceil(parts);
        let starts = (0..groups.len()).step_by(part_groups);
        let part = |start: usize| start..(start + part_groups).min(groups.len());
        let mut smaller = None;
        for start in starts.clone() {
            if differs(&groups[part(start)].concat())? {
                smaller = Some((groups[part(start)].to_vec(), 2));
                break;
            }
        }
        // With two parts, the complement of each part is the other part, which was tried already.
        if smaller.is_none() && parts > 2 {
            for start in starts {
                let rest = [&groups[..start], &groups[part(start).end..]].concat();
                if differs(&rest.concat())? {
                    smaller = Some((rest, parts - 1));
                    break;
                }
            }
        }
        match smaller {
            Some((fewer, next_parts)) => {
                groups = fewer;
                parts = next_parts.max(2).min(groups.len().max(2));
            }
            None if parts >= groups.len() => break,
            None => parts = (2 * parts).min(groups.len()),
        }
    }
    Ok(groups.concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;

    fn blocks() -> Vec<Range<u64>> {
        (0..10).map(|block| 100 * block..100 * (block + 1)).collect()
    }

    fn reduced(suspects: &[u64], options: &[&str], mut differs: impl FnMut(&Subset, &[String]) -> bool) -> Reduction {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let blocks = blocks();
        let start =
            Start { total: 1000, blocks: &blocks, suspects, options: &options, insert_sizes: None, max_trials: 500 };
        reduce(&start, &mut |subset, options| Ok(differs(subset, options))).unwrap()
    }

    #[test]
    fn one_bad_template_is_found_whether_it_is_suspected_or_not() {
        for suspects in [&[][..], &[637], &[12, 637], &[12, 13], &[1, 2, 3, 637]] {
            let reduction = reduced(suspects, &[], |subset, _| subset.kept.contains(&637));
            assert_eq!(reduction.subset, Subset { kept: vec![637], total: 638, placeholders: Placeholders::None });
        }
    }

    #[test]
    fn a_suspect_that_differs_alone_takes_few_trials() {
        let reduction = reduced(&[637, 700, 900], &[], |subset, _| subset.kept.contains(&637));
        assert!(reduction.trials <= 4, "{reduction:?}");
    }

    #[test]
    fn templates_that_differ_only_together_are_kept_together() {
        let reduction = reduced(&[205], &[], |subset, _| [205, 231, 288].iter().all(|one| subset.kept.contains(one)));
        assert_eq!(reduction.subset.kept, [205, 231, 288]);
        let reduction = reduced(&[], &[], |subset, _| [5, 995].iter().all(|one| subset.kept.contains(one)));
        assert_eq!(reduction.subset.kept, [5, 995]);
    }

    #[test]
    fn placeholders_stay_where_the_difference_needs_ordinals() {
        let needs_ordinal = |subset: &Subset, _: &[String]| {
            subset.kept.contains(&637) && subset.placeholders != Placeholders::None && subset.total > 637
        };
        let reduction = reduced(&[637], &[], needs_ordinal);
        assert_eq!(reduction.subset, Subset { kept: vec![637], total: 638, placeholders: Placeholders::OneBase });
        let needs_all = |subset: &Subset, _: &[String]| {
            subset.kept.contains(&637) && subset.placeholders == Placeholders::SameBases && subset.total == 1000
        };
        let reduction = reduced(&[637], &[], needs_all);
        assert_eq!(reduction.subset, Subset { kept: vec![637], total: 1000, placeholders: Placeholders::SameBases });
    }

    #[test]
    fn insert_sizes_are_given_where_a_template_differs_only_with_them() {
        let (blocks, options) = (blocks(), ["-M".to_owned()]);
        let insert_sizes = Some("-I 300,40,500,100".to_owned());
        let start = Start {
            total: 1000,
            blocks: &blocks,
            suspects: &[12, 637],
            options: &options,
            insert_sizes,
            max_trials: 500,
        };
        let reduction = reduce(&start, &mut |subset, options| {
            let has_insert_sizes = subset.kept.len() > 10 || options.iter().any(|option| option.starts_with("-I"));
            Ok(subset.kept.contains(&637) && has_insert_sizes)
        });
        let reduction = reduction.unwrap();
        assert_eq!((reduction.subset.kept, reduction.options), (vec![637], vec!["-I 300,40,500,100".to_owned()]));
    }

    #[test]
    fn options_that_the_difference_does_not_need_are_left_out() {
        let options = ["-M", "-k 25", "-h 3,10"];
        let reduction = reduced(&[3], &options, |subset, options| {
            subset.kept.contains(&3) && options.contains(&"-k 25".to_owned())
        });
        assert_eq!(reduction.options, ["-k 25"]);
    }

    #[test]
    fn the_search_ends_after_the_most_trials_with_what_it_has() {
        let blocks = blocks();
        let start =
            Start { total: 1000, blocks: &blocks, suspects: &[], options: &[], insert_sizes: None, max_trials: 7 };
        let mut trials = 0;
        let reduction = reduce(&start, &mut |subset, _| {
            trials += 1;
            Ok(subset.kept.len() > 300)
        });
        let reduction = reduction.unwrap();
        assert_eq!((reduction.trials, trials), (7, 7));
        assert!((301..1000).contains(&reduction.subset.kept.len()), "{}", reduction.subset.kept.len());
    }
}
