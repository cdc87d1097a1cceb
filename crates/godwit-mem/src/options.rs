//! Parses the options of `bwa mem` 0.7.17 as its `main_mem` (fastmap.c) does. All alignment programs accept these
//! options.
//!
//! There are two differences. An invalid number is rejected, while bwa uses the result of `atoi`. An option that godwit
//! sets itself is rejected, and the error names the godwit option to use.

use crate::bwa_structs::{BwaMemOptions, InsertSizeDistribution, mem_flags};
use crate::error::Error;

/// The parsed options of `bwa mem`.
#[derive(Clone, Debug)]
pub struct AlignmentOptions {
    /// The options for bwa's `mem_process_seqs`. Its flag for paired reads, `MEM_F_PE`, is set for each block.
    pub mem: BwaMemOptions,
    /// `-I`: insert sizes for the orientations FF, FR, RF and RR; `None` to infer them from the reads.
    pub insert_sizes: Option<[InsertSizeDistribution; 4]>,
    /// `-C`: append the comment of a FASTQ record to the SAM lines of the read.
    pub keep_comments: bool,
    /// `-x`: name of the preset, whose values are already in `mem`.
    pub preset: Option<String>,
    /// `-j`: treat alternate contigs as primary ones.
    pub ignore_alternates: bool,
}

/// Options that the user set explicitly. The preset (`-x`) and the scaling of scores (`-A`) do not change these.
#[derive(Default)]
struct ExplicitOptions {
    preset: Option<String>,
    option_letters: Vec<u8>,
}

impl ExplicitOptions {
    fn contains(&self, letter: u8) -> bool {
        self.option_letters.contains(&letter)
    }
}

/// Letters of the options that have no value.
const FLAG_LETTERS: &[u8] = b"5qaMCSPVYj";
/// Letters of the options that have a value.
const VALUE_LETTERS: &[u8] = b"kcsrABOEUwLdTQDmINWxGhyX";

impl AlignmentOptions {
    /// Returns the number of alignment threads, at least 1.
    pub fn threads(&self) -> usize {
        usize::try_from(self.mem.n_threads).unwrap_or(1).max(1)
    }

    /// Parses arguments such as `["-M", "-k", "19"]`. As in `getopt`, several letters may follow one hyphen, and a
    /// value may follow its letter directly (`-k19`).
    ///
    /// # Errors
    /// [`Error::Usage`] if an option is unknown or not supported, or a value is invalid; the message contains the
    /// argument.
    pub fn parse(arguments: &[String], threads: usize) -> Result<Self, Error> {
        let mut options = Self {
            mem: BwaMemOptions::default(),
            insert_sizes: None,
            keep_comments: false,
            preset: None,
            ignore_alternates: false,
        };
        options.mem.n_threads = i32::try_from(threads).unwrap_or(i32::MAX).max(1);
        let mut explicit = ExplicitOptions::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let letters = argument.strip_prefix('-').filter(|letters| !letters.is_empty() && *letters != "-");
            let Some(letters) = letters else {
                return Err(usage_error(format!(
                    "{argument:?} is not an option of bwa mem; set the reads with --reads"
                )));
            };
            for (at, letter) in letters.char_indices() {
                let letter = u8::try_from(letter).unwrap_or_default();
                if FLAG_LETTERS.contains(&letter) {
                    options.set_flag(letter);
                    continue;
                }
                if !VALUE_LETTERS.contains(&letter) {
                    return Err(unsupported_option_error(argument, letter));
                }
                let attached = &letters[at + 1..];
                let value = if attached.is_empty() { arguments.next().map(String::as_str) } else { Some(attached) };
                let Some(value) = value else {
                    return Err(usage_error(format!("bwa mem option -{} needs a value", char::from(letter))));
                };
                options.set_value(letter, value, &mut explicit)?;
                explicit.option_letters.push(letter);
                break;
            }
        }
        match &explicit.preset {
            Some(preset) => options.apply_preset(preset, &explicit)?,
            None if explicit.contains(b'A') => options.scale_scores(&explicit),
            None => {}
        }
        options.mem.fill_matrix();
        options.preset = explicit.preset;
        Ok(options)
    }

    fn set_flag(&mut self, letter: u8) {
        match letter {
            b'C' => self.keep_comments = true,
            b'j' => self.ignore_alternates = true,
            _ => {}
        }
        self.mem.flag |= match letter {
            b'P' => mem_flags::NO_PAIRING,
            b'a' => mem_flags::ALL,
            b'M' => mem_flags::NO_MULTI,
            b'S' => mem_flags::NO_RESCUE,
            b'Y' => mem_flags::SOFT_CLIP,
            b'V' => mem_flags::REFERENCE_HEADER,
            b'5' => mem_flags::PRIMARY_5 | mem_flags::KEEP_SUPPLEMENTARY_MAPQ,
            b'q' => mem_flags::KEEP_SUPPLEMENTARY_MAPQ,
            _ => 0,
        };
    }

    fn set_value(&mut self, letter: u8, value: &str, explicit: &mut ExplicitOptions) -> Result<(), Error> {
        let mem = &mut self.mem;
        let int = || parse_number::<i32>(letter, value);
        // Like bwa, parse the number as a double and store it as a float.
        let float = || parse_number::<f64>(letter, value).map(|number| number as f32);
        match letter {
            b'k' => mem.min_seed_len = int()?,
            b'w' => mem.w = int()?,
            b'A' => mem.a = int()?,
            b'B' => mem.b = int()?,
            b'T' => mem.min_score = int()?,
            b'U' => mem.pen_unpaired = int()?,
            b'c' => mem.max_occ = int()?,
            b'd' => mem.zdrop = int()?,
            b'm' => mem.max_matesw = int()?,
            b's' => mem.split_width = int()?,
            b'G' => mem.max_chain_gap = int()?,
            b'N' => mem.max_chain_extend = int()?,
            b'W' => mem.min_chain_weight = int()?,
            b'y' => mem.max_mem_intv = parse_number::<i64>(letter, value)? as u64,
            b'r' => mem.split_factor = float()?,
            b'D' => mem.drop_ratio = float()?,
            b'X' => mem.mask_level = float()?,
            b'Q' => {
                let length = int()?;
                mem.mapq_coef_len = length as f32;
                mem.mapq_coef_fac = if length > 0 { f64::from(mem.mapq_coef_len).ln() as i32 } else { 0 };
            }
            b'h' => (mem.max_xa_hits, mem.max_xa_hits_alt) = parse_integer_pair(letter, value)?,
            b'O' => (mem.o_del, mem.o_ins) = parse_integer_pair(letter, value)?,
            b'E' => (mem.e_del, mem.e_ins) = parse_integer_pair(letter, value)?,
            b'L' => (mem.pen_clip5, mem.pen_clip3) = parse_integer_pair(letter, value)?,
            b'I' => self.insert_sizes = Some(parse_insert_sizes(value)?),
            _ => explicit.preset = Some(value.to_owned()),
        }
        Ok(())
    }

    /// Applies the preset of `-x`, except for options that the user set. With a preset, `-A` does not scale the other
    /// scores.
    fn apply_preset(&mut self, preset: &str, explicit: &ExplicitOptions) -> Result<(), Error> {
        let mem = &mut self.mem;
        let unless = |letter: u8, field: &mut i32, value: i32| {
            if !explicit.contains(letter) {
                *field = value;
            }
        };
        let (open, extend, mismatch, clip) = match preset {
            "intractg" => (16, None, 9, 5),
            "pacbio" | "pbref" | "ont2d" => (1, Some(1), 1, 0),
            _ => {
                let message = format!("bwa mem option -x {preset:?} is not one of pacbio, ont2d and intractg");
                return Err(usage_error(message));
            }
        };
        unless(b'O', &mut mem.o_del, open);
        unless(b'O', &mut mem.o_ins, open);
        unless(b'B', &mut mem.b, mismatch);
        unless(b'L', &mut mem.pen_clip5, clip);
        unless(b'L', &mut mem.pen_clip3, clip);
        let Some(extend) = extend else { return Ok(()) };
        unless(b'E', &mut mem.e_del, extend);
        unless(b'E', &mut mem.e_ins, extend);
        if !explicit.contains(b'r') {
            mem.split_factor = 10.0;
        }
        let (chain_weight, seed) = if preset == "ont2d" { (20, 14) } else { (40, 17) };
        unless(b'W', &mut mem.min_chain_weight, chain_weight);
        unless(b'k', &mut mem.min_seed_len, seed);
        Ok(())
    }

    /// Applies `-A` as bwa's `update_a` does: multiplies all scores that the user did not set by the match score.
    fn scale_scores(&mut self, explicit: &ExplicitOptions) {
        let mem = &mut self.mem;
        let factor = mem.a;
        let fields = [
            (b'B', &mut mem.b),
            (b'T', &mut mem.min_score),
            (b'O', &mut mem.o_del),
            (b'E', &mut mem.e_del),
            (b'O', &mut mem.o_ins),
            (b'E', &mut mem.e_ins),
            (b'd', &mut mem.zdrop),
            (b'L', &mut mem.pen_clip5),
            (b'L', &mut mem.pen_clip3),
            (b'U', &mut mem.pen_unpaired),
        ];
        for (letter, field) in fields {
            if !explicit.contains(letter) {
                *field = field.saturating_mul(factor);
            }
        }
    }
}

fn usage_error(message: String) -> Error {
    Error::Usage { message }
}

fn unsupported_option_error(argument: &str, letter: u8) -> Error {
    let instead = match letter {
        b't' => "threads are set by --threads",
        b'K' => "batches are set by --block-bases",
        b'p' => "the number of files in --reads decides about pairs",
        b'R' => "the read group is set by --read-group",
        b'H' => "the header is written by godwit",
        b'o' | b'f' => "the output is set by --out",
        b'v' => "godwit keeps bwa's warnings and errors",
        b'1' => "reading and writing have threads of their own",
        _ => return usage_error(format!("bwa mem has no option {argument:?}")),
    };
    usage_error(format!("bwa mem option -{} is not accepted here: {instead}", char::from(letter)))
}

fn parse_number<T: std::str::FromStr>(letter: u8, value: &str) -> Result<T, Error> {
    let bad = || {
        usage_error(format!(
            "bwa mem option -{} has the value {value:?}, which is not a number in range",
            char::from(letter)
        ))
    };
    value.trim_start().parse().map_err(|_| bad())
}

/// Parses `INT[,INT]`; the second number defaults to the first. As in bwa, any punctuation mark may separate the
/// numbers.
fn parse_integer_pair(letter: u8, value: &str) -> Result<(i32, i32), Error> {
    let values = split_values(letter, value, 2)?;
    let first = parse_number(letter, values[0])?;
    let second = values.get(1).map_or(Ok(first), |second| parse_number(letter, second))?;
    Ok((first, second))
}

/// Splits a value into numbers at punctuation marks before a digit. A point is not a separator: `300.5,20` has two
/// numbers.
fn split_values(letter: u8, value: &str, max_values: usize) -> Result<Vec<&str>, Error> {
    let separator = |at: &(usize, u8)| {
        let next_is_digit = value.as_bytes().get(at.0 + 1).is_some_and(u8::is_ascii_digit);
        at.0 > 0 && at.1.is_ascii_punctuation() && at.1 != b'.' && next_is_digit
    };
    let mut values = Vec::new();
    let mut start = 0;
    for (at, _) in value.bytes().enumerate().filter(separator) {
        values.push(&value[start..at]);
        start = at + 1;
    }
    values.push(&value[start..]);
    if values.len() > max_values {
        return Err(usage_error(format!(
            "bwa mem option -{} takes at most {max_values} values, not {value:?}",
            char::from(letter)
        )));
    }
    Ok(values)
}

/// Parses the value of `-I MEAN[,DEVIATION[,MAX[,MIN]]]`, which only applies to the orientation FR; the others are
/// disabled.
fn parse_insert_sizes(value: &str) -> Result<[InsertSizeDistribution; 4], Error> {
    let values = split_values(b'I', value, 4)?
        .into_iter()
        .map(|value| parse_number::<f64>(b'I', value))
        .collect::<Result<Vec<_>, _>>()?;
    let mean = values[0];
    let standard_deviation = values.get(1).copied().unwrap_or(mean * 0.1);
    let round = |length: f64| (length + 0.499) as i32;
    let low = values.get(3).map_or(((mean - 4.0 * standard_deviation + 0.499) as i32).max(1), |low| round(*low));
    let high = values.get(2).map_or((mean + 4.0 * standard_deviation + 0.499) as i32, |high| round(*high));
    let none = InsertSizeDistribution { low: 0, high: 0, failed: 1, mean: 0.0, standard_deviation: 0.0 };
    Ok([none, InsertSizeDistribution { low, high, failed: 0, mean, standard_deviation }, none, none])
}

#[cfg(test)]
mod tests;
