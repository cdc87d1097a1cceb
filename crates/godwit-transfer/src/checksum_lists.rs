//! Published checksums of files: lists in the formats of md5sum, sha256sum, b3sum and similar programs, and files that
//! contain a single checksum, as archives publish them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use md5::Digest as _;

use crate::error::TransferError;

/// Number of bytes of a file that are read and hashed at a time.
const READ_BUFFER_BYTES: usize = 1 << 20;
/// Largest size of a checksum list, bytes; enough for every file name of a large file system.
const MAX_LIST_BYTES: u64 = 256 << 20;

/// A checksum algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChecksumAlgorithm {
    Md5,
    Sha1,
    Sha256,
    Sha512,
    Blake3,
}

impl ChecksumAlgorithm {
    /// Returns the algorithm whose checksums have this number of hexadecimal digits. BLAKE3 and SHA-256 both have 64
    /// digits; `is_blake3` decides between them.
    fn from_digit_count(digits: usize, is_blake3: bool) -> Option<Self> {
        match digits {
            32 => Some(Self::Md5),
            40 => Some(Self::Sha1),
            64 if is_blake3 => Some(Self::Blake3),
            64 => Some(Self::Sha256),
            128 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Returns the algorithm with this tag, as in lists in BSD format and in the output of `md5sum --tag`.
    fn from_tag(tag: &str) -> Option<Self> {
        [Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512, Self::Blake3].into_iter().find(|kind| kind.tag() == tag)
    }

    fn tag(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Blake3 => "BLAKE3",
        }
    }
}

/// A checksum that is being computed.
enum ChecksumHasher {
    Md5(md5::Md5),
    Sha(ring::digest::Context),
    Blake3(Box<blake3::Hasher>),
}

impl ChecksumHasher {
    fn new(kind: ChecksumAlgorithm) -> Self {
        let sha = |algorithm| Self::Sha(ring::digest::Context::new(algorithm));
        match kind {
            ChecksumAlgorithm::Md5 => Self::Md5(md5::Md5::new()),
            ChecksumAlgorithm::Sha1 => sha(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY),
            ChecksumAlgorithm::Sha256 => sha(&ring::digest::SHA256),
            ChecksumAlgorithm::Sha512 => sha(&ring::digest::SHA512),
            ChecksumAlgorithm::Blake3 => Self::Blake3(Box::default()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Sha(context) => context.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Md5(hasher) => hasher.finalize().to_vec(),
            Self::Sha(context) => context.finish().as_ref().to_vec(),
            Self::Blake3(hasher) => hasher.finalize().as_bytes().to_vec(),
        }
    }
}

/// A checksum that a file must have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExpectedChecksum {
    algorithm: ChecksumAlgorithm,
    digest: Vec<u8>,
    /// The checksum list that contains this checksum.
    list_path: PathBuf,
}

impl ExpectedChecksum {
    /// Compares the checksum of the file `place` with the checksum in the list.
    fn compare(&self, found: &[u8], place: &Path) -> Result<(), TransferError> {
        if found == self.digest {
            return Ok(());
        }
        Err(TransferError::ChecksumMismatch {
            problem: format!(
                "{} has {} {}, but {} in {}: the source or the list has changed; verify both with their publisher",
                place.display(),
                self.algorithm.tag(),
                hex::encode(found),
                hex::encode(&self.digest),
                self.list_path.display()
            ),
        })
    }
}

/// The checksums that a file must have, at most one for each algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpectedChecksums(Vec<ExpectedChecksum>);

impl ExpectedChecksums {
    /// Adds a checksum. Returns an earlier list that has a different checksum of the same algorithm for this file, if
    /// there is one.
    fn add(&mut self, sum: ExpectedChecksum) -> Option<&Path> {
        match self.0.iter().position(|known| known.algorithm == sum.algorithm) {
            None => self.0.push(sum),
            Some(at) if self.0[at].digest == sum.digest => {}
            Some(at) => return Some(&self.0[at].list_path),
        }
        None
    }

    /// Computes the checksums of an open file and compares them with the expected ones.
    ///
    /// # Errors
    /// [`TransferError::ChecksumMismatch`] if a checksum differs, [`TransferError::Io`] if the file cannot be read. Both
    /// errors name the file as `place`.
    pub(crate) fn verify_file(&self, file: &File, place: &Path) -> Result<(), TransferError> {
        let mut hashers: Vec<ChecksumHasher> = self.0.iter().map(|sum| ChecksumHasher::new(sum.algorithm)).collect();
        let mut piece = vec![0; READ_BUFFER_BYTES];
        let mut at = 0;
        loop {
            match file.read_at(&mut piece, at) {
                Ok(0) => break,
                Ok(read) => {
                    hashers.iter_mut().for_each(|hasher| hasher.update(&piece[..read]));
                    at += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TransferError::io_error("read", place)(error)),
            }
        }
        self.0.iter().zip(hashers).try_for_each(|(sum, hasher)| sum.compare(&hasher.finish(), place))
    }
}

/// Checksums from one or several lists, by file name.
#[derive(Clone, Debug, Default)]
pub struct ChecksumLists {
    /// Checksums by the file name in the list, without a leading `./`.
    by_name: HashMap<String, ExpectedChecksums>,
    /// Checksums without a file name, each from a file that contains only this checksum.
    unnamed: Option<ExpectedChecksums>,
}

impl ChecksumLists {
    /// Reads checksum lists. Each line is a digest, `DIGEST  NAME` (md5sum, sha1sum, sha256sum, sha512sum, b3sum), or
    /// `MD5 (NAME) = DIGEST`. Digests of 64 digits are BLAKE3 if the extension of the list is `.b3`, `.b3sum` or
    /// `.blake3`. Several lists may contain the same file, for example with MD5 and SHA-256; then all its checksums are
    /// verified.
    ///
    /// # Errors
    /// [`TransferError::Io`] if a list cannot be read, [`TransferError::ChecksumMismatch`] if a list is invalid, or if
    /// the lists contain two different digests of one algorithm for a name.
    pub fn read(lists: &[PathBuf]) -> Result<Self, TransferError> {
        let mut sums = Self::default();
        for list in lists {
            let size_bytes = std::fs::metadata(list).map_err(TransferError::io_error("read", list))?.len();
            if size_bytes > MAX_LIST_BYTES {
                let problem = format!("{} is not a list of checksums: it has {size_bytes} bytes", list.display());
                return Err(TransferError::ChecksumMismatch { problem });
            }
            let text = std::fs::read_to_string(list).map_err(TransferError::io_error("read", list))?;
            sums.add_list(list, &text)?;
        }
        Ok(sums)
    }

    fn add_list(&mut self, list: &Path, text: &str) -> Result<(), TransferError> {
        let wrong = |number: usize, problem: &str| TransferError::ChecksumMismatch {
            problem: format!("{}, line {}: {problem}", list.display(), number + 1),
        };
        let mut is_empty = true;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (sum, name) = parse_line(list, line).ok_or_else(|| {
                wrong(
                    number,
                    "the line is not a checksum and a file name as md5sum, sha256sum and similar programs write them",
                )
            })?;
            is_empty = false;
            let sums = match name {
                Some(name) => self.by_name.entry(name).or_default(),
                None => self.unnamed.get_or_insert_default(),
            };
            match sums.add(sum) {
                None => {}
                Some(known) if known == list => {
                    return Err(wrong(number, "an earlier line of the list has a different checksum for this file"));
                }
                Some(known) => {
                    let problem = format!("{} has a different checksum for the same file", known.display());
                    return Err(wrong(number, &problem));
                }
            }
        }
        if is_empty {
            return Err(TransferError::ChecksumMismatch {
                problem: format!("the checksum list {} contains no checksums", list.display()),
            });
        }
        Ok(())
    }

    /// Returns the checksum of each file. A file, given by its path at the source, matches the longest listed name with
    /// which its path ends. A checksum without a name applies if there is only one file.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if a listed name matches several files, or if none of the files has a listed
    /// checksum.
    pub(crate) fn match_files(&self, places: &[&str]) -> Result<Vec<Option<ExpectedChecksums>>, TransferError> {
        let mut used: HashMap<&str, &str> = HashMap::new();
        let mut found = Vec::new();
        for place in places {
            let Some(name) = path_suffixes(place).find(|ending| self.by_name.contains_key(*ending)) else {
                found.push(self.unnamed.clone().filter(|_| places.len() == 1));
                continue;
            };
            if let Some(other) = used.insert(name, place) {
                let problem = format!(
                    "{name} in the list of checksums matches both {other} and {place}; list the files with their \
                     directories"
                );
                return Err(TransferError::rejected(problem));
            }
            found.push(self.by_name.get(name).cloned());
        }
        if found.iter().all(Option::is_none) && !found.is_empty() {
            return Err(TransferError::rejected(
                "the list of checksums contains none of the files to copy; check the names in it",
            ));
        }
        Ok(found)
    }
}

/// Returns the path and then each suffix that begins after a slash, the longest first.
fn path_suffixes(place: &str) -> impl Iterator<Item = &str> {
    let place = place.strip_prefix("./").unwrap_or(place);
    let shorter = place.match_indices('/').map(move |(at, _)| &place[at + 1..]);
    std::iter::once(place).chain(shorter)
}

/// Parses a line of a list; returns the checksum and, if the line contains one, the file name.
fn parse_line(list: &Path, line: &str) -> Option<(ExpectedChecksum, Option<String>)> {
    let sum = |algorithm, digits: &str| {
        Some(ExpectedChecksum { algorithm, digest: hex::decode(digits).ok()?, list_path: list.to_owned() })
    };
    // BSD format: `MD5 (a.bam) = d41d8..`.
    if let Some((tag, rest)) = line.split_once(" (")
        && let Some(kind) = ChecksumAlgorithm::from_tag(tag)
    {
        let (name, digits) = rest.rsplit_once(") = ")?;
        let right = ChecksumAlgorithm::from_digit_count(digits.len(), kind == ChecksumAlgorithm::Blake3) == Some(kind);
        return Some((sum(kind, digits).filter(|_| right)?, Some(strip_current_directory(name))));
    }
    // GNU coreutils: a backslash before the digest means that the file name contains escape sequences.
    let (line, escaped) = line.strip_prefix('\\').map_or((line, false), |line| (line, true));
    let (digits, name) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let is_blake3 = list.extension().is_some_and(|ending| ending == "b3" || ending == "b3sum" || ending == "blake3");
    let sum = sum(ChecksumAlgorithm::from_digit_count(digits.len(), is_blake3)?, digits)?;
    // After the digest and one space, a second space means that the file was read in text mode, and an asterisk in
    // binary mode.
    let name = name.strip_prefix([' ', '*']).unwrap_or(name);
    let name = if escaped { unescape_name(name) } else { name.to_owned() };
    Some((sum, (!name.is_empty()).then(|| strip_current_directory(&name))))
}

fn strip_current_directory(name: &str) -> String {
    name.strip_prefix("./").unwrap_or(name).to_owned()
}

fn unescape_name(name: &str) -> String {
    let mut text = String::new();
    let mut characters = name.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => text.push('\\'),
            },
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";
    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn parse_list(name: &str, text: &str) -> Result<ChecksumLists, TransferError> {
        let mut sums = ChecksumLists::default();
        sums.add_list(Path::new(name), text).map(|()| sums)
    }

    #[test]
    fn lists_of_all_tools_are_read() {
        let gnu = parse_list("MD5SUMS", &format!("{MD5}  a.txt\n{MD5} *sub/b.txt\r\n\\{MD5}  c\\nd\\\\\n")).unwrap();
        let mut names: Vec<&str> = gnu.by_name.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["a.txt", "c\nd\\", "sub/b.txt"]);
        let bsd = parse_list("sums", &format!("# made today\nSHA256 (./a (1).txt) = {SHA256}\n")).unwrap();
        assert_eq!(bsd.by_name["a (1).txt"].0[0].algorithm, ChecksumAlgorithm::Sha256);
        assert_eq!(
            parse_list("x.md5", &format!("{MD5}\n")).unwrap().unnamed.unwrap().0[0].algorithm,
            ChecksumAlgorithm::Md5
        );
        assert_eq!(
            parse_list("x.b3", &format!("{SHA256}  a\n")).unwrap().by_name["a"].0[0].algorithm,
            ChecksumAlgorithm::Blake3
        );
        assert_eq!(
            parse_list("x.sha1", &format!("{}  a", "0".repeat(40))).unwrap().by_name["a"].0[0].algorithm,
            ChecksumAlgorithm::Sha1
        );
        assert_eq!(
            parse_list("x", &format!("{}  a", "0".repeat(128))).unwrap().by_name["a"].0[0].algorithm,
            ChecksumAlgorithm::Sha512
        );
        for wrong in
            ["", "# nothing\n", "hello", "123  a", &format!("{}  a", "g".repeat(32)), &format!("MD5 (a) = {SHA256}")]
        {
            assert!(matches!(parse_list("x", wrong), Err(TransferError::ChecksumMismatch { .. })), "{wrong}");
        }
        let twice = format!("{MD5}  a\n{}  a\n", MD5.replace('9', "8"));
        assert!(parse_list("x", &twice).unwrap_err().to_string().contains("x, line 2"));
        assert!(parse_list("x", &format!("{MD5}  a\n{MD5}  a\n")).is_ok());
    }

    #[test]
    fn lists_of_several_algorithms_for_the_same_files_are_all_verified() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            std::fs::write(directory.path().join(name), text).unwrap();
            directory.path().join(name)
        };
        let data = write("a", "abc".to_owned());
        let verify = |lists: &[PathBuf]| {
            let sums = ChecksumLists::read(lists)?.match_files(&["run/a"])?.remove(0).unwrap();
            sums.verify_file(&File::open(&data).unwrap(), &data)
        };
        let (md5, sha256) = (write("MD5SUMS", format!("{MD5}  a\n")), write("SHA256SUMS", format!("{SHA256}  a\n")));
        let (one_md5, one_sha256) = (write("a.md5", MD5.to_owned()), write("a.sha256", SHA256.to_owned()));
        verify(&[md5.clone(), sha256.clone()]).unwrap();
        verify(&[one_md5.clone(), one_sha256.clone()]).unwrap();
        // The same list is given twice, which is not a contradiction.
        verify(&[md5.clone(), md5.clone()]).unwrap();
        verify(&[one_md5.clone(), one_md5.clone()]).unwrap();
        let other_md5 = MD5.replace('9', "8");
        let (wrong, one_wrong) = (write("other", format!("{other_md5}  a\n")), write("b.md5", other_md5));
        for lists in [[&wrong, &sha256], [&sha256, &wrong], [&one_wrong, &one_sha256], [&one_sha256, &one_wrong]] {
            let problem = verify(&lists.map(Clone::clone)).unwrap_err().to_string();
            assert!(problem.contains(MD5) && problem.contains("the source or the list has changed"), "{problem}");
        }
        for lists in [[&md5, &wrong], [&one_md5, &one_wrong]] {
            let problem = verify(&lists.map(Clone::clone)).unwrap_err().to_string();
            let first = lists[0].display().to_string();
            assert!(problem.contains(&first) && problem.contains("different checksum"), "{problem}");
        }
    }

    #[test]
    fn a_checksum_is_that_of_the_longest_listed_name() {
        let text = format!("{MD5}  b.txt\n{SHA256}  one/b.txt\n");
        let sums = parse_list("x", &text).unwrap();
        let kinds = |places: &[&str]| {
            sums.match_files(places)
                .map(|found| found.iter().map(|sums| sums.as_ref().map(|sums| sums.0[0].algorithm)).collect::<Vec<_>>())
        };
        assert_eq!(
            kinds(&["run/one/b.txt", "run/b.txt", "c"]).unwrap(),
            [Some(ChecksumAlgorithm::Sha256), Some(ChecksumAlgorithm::Md5), None]
        );
        // A listed name matches two files of the copy, which is an error.
        assert!(kinds(&["run/b.txt", "other/b.txt"]).is_err());
        // The list contains no file of the copy, which is an error.
        assert!(kinds(&["c.txt", "ab.txt"]).is_err());
        let alone = parse_list("x", MD5).unwrap();
        assert!(alone.match_files(&["any"]).unwrap()[0].is_some());
        assert!(alone.match_files(&["any", "other"]).is_err());
    }

    #[test]
    fn checksums_are_those_of_the_tools() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "abc").unwrap();
        let file = File::open(&path).unwrap();
        for (name, digits) in [
            ("x", MD5),
            ("x", SHA256),
            ("x", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("x.b3", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
            (
                "x",
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
        ] {
            let sums = parse_list(name, digits).unwrap().unnamed.unwrap();
            sums.verify_file(&file, &path).unwrap();
            let sum = sums.0[0].clone();
            let other = ExpectedChecksum { digest: vec![0; sum.digest.len()], ..sum };
            let problem = ExpectedChecksums(vec![other]).verify_file(&file, &path).unwrap_err().to_string();
            assert!(problem.contains(digits) && problem.contains("00000000"), "{problem}");
        }
    }
}
