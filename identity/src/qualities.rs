//! Base qualities: those of real reads, or of a model of them.
//!
//! In: FASTQ files of real reads, or nothing. Out: a quality for each base of a read of any length. The model is a Markov chain over ten
//! levels whose transitions depend on the mate and on the quarter of the read ([`transitions`]).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::random::Random;

mod transitions;

use transitions::{FIRST, LEVELS, NEXT};

/// The maximum number of real quality strings of each file.
const MAX_STRINGS: usize = 200_000;
/// The offset of qualities in FASTQ text.
const PHRED_OFFSET: u8 = 33;
/// The highest quality of the model.
const MAX_QUALITY: u8 = 41;

/// The set of quality values of a sequencer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QualityProfile {
    /// All values, as HiSeq and MiSeq write them.
    Unbinned,
    /// 2, 12, 23 and 37, as NovaSeq writes them.
    Binned,
}

/// The source of qualities.
#[derive(Clone, Debug)]
pub enum QualitySource {
    /// The model.
    Model,
    /// Quality strings of real reads, for each mate; the second list may be empty.
    Real([Vec<Vec<u8>>; 2]),
}

impl QualitySource {
    /// Reads the qualities of FASTQ files, plain or gzip: one file for both mates or one for each. No file means the model.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Start`] and [`Error::Program`] when a file cannot be read; [`Error::Input`] when it holds no read.
    pub fn open(files: &[PathBuf]) -> Result<Self> {
        let mut strings = [Vec::new(), Vec::new()];
        for (file, list) in files.iter().zip(&mut strings) {
            *list = read_qualities(file)?;
        }
        Ok(if files.is_empty() { Self::Model } else { Self::Real(strings) })
    }

    /// Appends the qualities of a read of `bases` bases to `text`, as FASTQ letters.
    pub(crate) fn draw(
        &self,
        profile: QualityProfile,
        mate: usize,
        bases: usize,
        random: &mut Random,
        text: &mut Vec<u8>,
    ) {
        let start = text.len();
        match self {
            Self::Model => model(mate, bases, random, text),
            Self::Real(strings) => {
                let list = if strings[mate].is_empty() { &strings[0] } else { &strings[mate] };
                let real = random.pick(list);
                // If the simulated read is longer than the real read, stretch the real qualities, so that they still
                // decrease towards the end.
                let scaled = |at: usize| if bases <= real.len() { at } else { at * real.len() / bases };
                text.extend((0..bases).map(|at| real[scaled(at)]));
            }
        }
        if profile == QualityProfile::Binned {
            text[start..].iter_mut().for_each(|letter| *letter = binned(*letter));
        }
    }
}

/// Appends qualities of the model: a random walk over the levels, with random values within a level.
fn model(mate: usize, bases: usize, random: &mut Random, text: &mut Vec<u8>) {
    let mut level = step(&FIRST[mate], random);
    for at in 0..bases {
        if at > 0 {
            level = step(&NEXT[mate][at * 4 / bases][level], random);
        }
        let spread = if level == 0 { 0 } else { random.below(4) as u8 };
        text.push((LEVELS[level] + spread).saturating_sub(1).clamp(2, MAX_QUALITY) + PHRED_OFFSET);
    }
}

fn step(thousandths: &[u16; 10], random: &mut Random) -> usize {
    let mut left = random.below(1000) as u16;
    for (level, share) in thousandths.iter().enumerate() {
        if left < *share {
            return level;
        }
        left -= share;
    }
    LEVELS.len() - 1
}

fn binned(letter: u8) -> u8 {
    PHRED_OFFSET
        + match letter.saturating_sub(PHRED_OFFSET) {
            0..=2 => 2,
            3..15 => 12,
            15..30 => 23,
            _ => 37,
        }
}

fn read_qualities(path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut list = Vec::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut command = Command::new("gzip");
        command.arg("-dc").arg(path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|source| Error::Start { program: "gzip".to_owned(), source })?;
        if let Some(text) = child.stdout.take() {
            take_strings(text, path, &mut list)?;
        }
        // Check the exit status only if the whole file was read. Otherwise gzip was ended by SIGPIPE.
        child.wait().map_err(Error::file("read", path))?;
    } else {
        take_strings(File::open(path).map_err(Error::file("open", path))?, path, &mut list)?;
    }
    if list.is_empty() {
        return Err(Error::Input { path: path.to_owned(), problem: "the file holds no read".to_owned() });
    }
    Ok(list)
}

fn take_strings(text: impl Read, path: &Path, list: &mut Vec<Vec<u8>>) -> Result<()> {
    let mut lines = BufReader::with_capacity(1 << 18, text).split(b'\n').enumerate();
    while list.len() < MAX_STRINGS
        && let Some((number, line)) = lines.next()
    {
        let line = line.map_err(Error::file("read", path))?;
        let quality = line.trim_ascii_end();
        if number % 4 == 3 && !quality.is_empty() {
            list.push(quality.to_vec());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;
    use crate::random::Purpose;

    fn mean(text: &[u8]) -> f64 {
        text.iter().map(|letter| f64::from(letter - PHRED_OFFSET)).sum::<f64>() / text.len() as f64
    }

    #[test]
    fn every_row_of_the_table_adds_up_to_one() {
        assert!(FIRST.iter().chain(NEXT.iter().flatten().flatten()).all(|row| row.iter().sum::<u16>() == 1000));
    }

    #[test]
    fn modelled_qualities_fall_towards_the_end_of_the_read() {
        let mut random = Random::stream(1, Purpose::Template, 0);
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for _ in 0..500 {
            let mut text = Vec::new();
            QualitySource::Model.draw(QualityProfile::Unbinned, 0, 100, &mut random, &mut text);
            assert_eq!(text.len(), 100);
            first.extend(&text[25..50]);
            last.extend(&text[75..]);
        }
        assert!(mean(&first) > mean(&last) + 1.0 && mean(&last) > 25.0, "{} {}", mean(&first), mean(&last));
    }

    #[test]
    fn binned_qualities_have_four_values() {
        let mut random = Random::stream(2, Purpose::Template, 0);
        let mut text = Vec::new();
        QualitySource::Model.draw(QualityProfile::Binned, 1, 5000, &mut random, &mut text);
        text.sort_unstable();
        text.dedup();
        assert!(text.iter().all(|letter| [2, 12, 23, 37].contains(&(letter - PHRED_OFFSET))), "{text:?}");
    }

    #[test]
    fn real_qualities_are_cut_or_stretched_to_the_length_of_the_read() {
        let path = std::env::temp_dir().join(format!("godwit-identity-qualities-{}.fq", std::process::id()));
        std::fs::write(&path, "@r\nACGT\n+\nABCD\n").unwrap();
        let source = QualitySource::open(std::slice::from_ref(&path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut random = Random::stream(2, Purpose::Template, 0);
        for (bases, expected) in [(2, "AB"), (4, "ABCD"), (8, "AABBCCDD")] {
            let mut text = Vec::new();
            source.draw(QualityProfile::Unbinned, 1, bases, &mut random, &mut text);
            assert_eq!(text, expected.as_bytes());
        }
    }
}
