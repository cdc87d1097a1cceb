//! Reads the table of invalid and valid FASTQ files. `golden/fastq_cases/README.md` describes the format and the source
//! of the table.

use std::path::PathBuf;

/// A FASTQ file of the table and its expected outcome.
#[derive(Clone, Debug)]
pub struct FastqCase {
    /// The name of the case in the table.
    pub name: String,
    /// The content of the file.
    pub bytes: Vec<u8>,
    /// The expected outcome of reading the file.
    pub expected: FastqOutcome,
}

/// The outcome of reading a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastqOutcome {
    /// The file is rejected, and the message names record and line.
    Rejected {
        /// 1-based number of the invalid record.
        record: u64,
        /// 1-based number of the invalid line.
        line: u64,
    },
    /// The file is read.
    Accepted {
        /// The number of reads in the file.
        reads: usize,
    },
}

/// Returns all cases of the table.
///
/// # Panics
/// When the table is malformed.
pub fn fastq_cases() -> Vec<FastqCase> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/fastq_cases/cases.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let mut cases: Vec<FastqCase> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(content) = line.strip_prefix('|') {
            let case = cases.last_mut().unwrap_or_else(|| panic!("{line:?} stands before the first case"));
            case.bytes.extend(unescape_line(content));
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("{line:?}: {word} is no number"));
        let expected = match words[..] {
            ["case", _, "refused", record, line] => {
                FastqOutcome::Rejected { record: number(record), line: number(line) }
            }
            ["case", _, "accepted", reads] => FastqOutcome::Accepted { reads: number(reads) as usize },
            _ => panic!("{line:?} is neither a case nor a line of one"),
        };
        cases.push(FastqCase { name: words[1].to_owned(), bytes: Vec::new(), expected });
    }
    cases
}

/// Returns the bytes of a line of a file, with its line feed unless the line is marked as having none.
fn unescape_line(content: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), content);
    while let Some((plain, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        let (byte, used) = match escape.as_bytes() {
            [b't', ..] => (b'\t', 1),
            [b'r', ..] => (b'\r', 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', ..] => (u8::from_str_radix(&escape[1..3], 16).unwrap_or_else(|_| panic!("{content:?}")), 3),
            b"c" => return bytes,
            _ => panic!("{content:?} has an escape that means nothing"),
        };
        bytes.push(byte);
        rest = &escape[used..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes.push(b'\n');
    bytes
}
