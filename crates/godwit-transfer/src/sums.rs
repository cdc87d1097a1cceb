//! Checksums that came with files: lists as md5sum, sha256sum, b3sum and their like write them, and the files of one checksum that archives put beside theirs.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use md5::Digest as _;

use crate::error::TransferError;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// More than any list of a file system's worth of names.
const MOST_LIST_BYTES: u64 = 256 << 20;

/// How a checksum is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Md5,
    Sha1,
    Sha256,
    Sha512,
    Blake3,
}

impl Kind {
    /// By the number of hexadecimal digits; BLAKE3 has as many as SHA-256 and is told by the name of its list.
    fn of_digits(digits: usize, is_blake3: bool) -> Option<Self> {
        match digits {
            32 => Some(Self::Md5),
            40 => Some(Self::Sha1),
            64 if is_blake3 => Some(Self::Blake3),
            64 => Some(Self::Sha256),
            128 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// As the lists of BSD and of `--tag` have it.
    fn of_tag(tag: &str) -> Option<Self> {
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

/// A checksum on its way.
enum Hasher {
    Md5(md5::Md5),
    Sha(ring::digest::Context),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    fn new(kind: Kind) -> Self {
        let sha = |algorithm| Self::Sha(ring::digest::Context::new(algorithm));
        match kind {
            Kind::Md5 => Self::Md5(md5::Md5::new()),
            Kind::Sha1 => sha(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY),
            Kind::Sha256 => sha(&ring::digest::SHA256),
            Kind::Sha512 => sha(&ring::digest::SHA512),
            Kind::Blake3 => Self::Blake3(Box::default()),
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

/// A checksum that a file is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    kind: Kind,
    digest: Vec<u8>,
    /// Where it stands.
    list: PathBuf,
}

impl Sum {
    /// Fails where the bytes of an open file are others.
    ///
    /// # Errors
    /// [`TransferError::Unlike`], [`TransferError::File`]. `place` is what the file is called in them.
    pub(crate) fn check(&self, file: &File, place: &Path) -> Result<(), TransferError> {
        let mut hasher = Hasher::new(self.kind);
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        loop {
            match file.read_at(&mut piece, at) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(&piece[..read]);
                    at += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TransferError::file("read", place)(error)),
            }
        }
        let found = hasher.finish();
        if found == self.digest {
            return Ok(());
        }
        Err(TransferError::Unlike {
            problem: format!(
                "{} has {} {}, and {} in {}: the source or the list is another; ask who keeps them",
                place.display(),
                self.kind.tag(),
                Digits(&found),
                Digits(&self.digest),
                self.list.display()
            ),
        })
    }
}

struct Digits<'d>(&'d [u8]);

impl fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Checksums of files by their names.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Names as they are listed, without `./`.
    named: HashMap<String, Sum>,
    /// One without a name, in a file of its own.
    alone: Option<Sum>,
}

impl Sums {
    /// Reads lists: `DIGEST  NAME` (md5sum, sha1sum, sha256sum, sha512sum, b3sum; BLAKE3 where the list is named `.b3`, `.b3sum` or
    /// `.blake3`), `MD5 (NAME) = DIGEST`, or one digest and nothing else.
    ///
    /// # Errors
    /// [`TransferError::File`], [`TransferError::Unlike`] for what is no such list, or for two digests of one name.
    pub fn read(lists: &[PathBuf]) -> Result<Self, TransferError> {
        let mut sums = Self::default();
        for list in lists {
            let size_bytes = std::fs::metadata(list).map_err(TransferError::file("read", list))?.len();
            if size_bytes > MOST_LIST_BYTES {
                let problem = format!("{} is no list of checksums: it has {size_bytes} bytes", list.display());
                return Err(TransferError::Unlike { problem });
            }
            let text = std::fs::read_to_string(list).map_err(TransferError::file("read", list))?;
            sums.add(list, &text)?;
        }
        Ok(sums)
    }

    fn add(&mut self, list: &Path, text: &str) -> Result<(), TransferError> {
        let wrong = |number: usize, problem: &str| TransferError::Unlike {
            problem: format!("{}, line {}: {problem}", list.display(), number + 1),
        };
        let before = self.named.len() + usize::from(self.alone.is_some());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (sum, name) = parsed(list, line).ok_or_else(|| {
                wrong(number, "it is no checksum and name, as md5sum, sha256sum and their like write them")
            })?;
            let known = match name {
                Some(name) => {
                    let known = self.named.insert(name, sum.clone());
                    known.filter(|known| known.kind == sum.kind && known.digest != sum.digest)
                }
                None => self.alone.replace(sum),
            };
            if known.is_some() {
                return Err(wrong(number, "there is another checksum for the same file"));
            }
        }
        if self.named.len() + usize::from(self.alone.is_some()) == before {
            return Err(TransferError::Unlike { problem: format!("{} lists no checksums", list.display()) });
        }
        Ok(())
    }

    /// The checksum of each of these files, by their places at the source: that of the longest listed name the place ends with. A checksum
    /// without a name is that of the only file.
    ///
    /// # Errors
    /// [`TransferError::Refused`] where a listed name is that of several files, or none is listed for any.
    pub(crate) fn of(&self, places: &[&str]) -> Result<Vec<Option<Sum>>, TransferError> {
        let mut used: HashMap<&str, &str> = HashMap::new();
        let mut found = Vec::new();
        for place in places {
            let Some(name) = endings(place).find(|ending| self.named.contains_key(*ending)) else {
                found.push(self.alone.clone().filter(|_| places.len() == 1));
                continue;
            };
            if let Some(other) = used.insert(name, place) {
                let problem = format!(
                    "{name} in the list of checksums may be {other} or {place}; list them with their directories"
                );
                return Err(TransferError::refused(problem));
            }
            found.push(self.named.get(name).cloned());
        }
        if found.iter().all(Option::is_none) && !found.is_empty() {
            return Err(TransferError::refused(
                "the list of checksums has none of the files that are copied; look at the names in it",
            ));
        }
        Ok(found)
    }
}

/// A path and its endings at slashes, the longest first.
fn endings(place: &str) -> impl Iterator<Item = &str> {
    let place = place.strip_prefix("./").unwrap_or(place);
    let shorter = place.match_indices('/').map(move |(at, _)| &place[at + 1..]);
    std::iter::once(place).chain(shorter)
}

/// A checksum and its name, where it has one.
fn parsed(list: &Path, line: &str) -> Option<(Sum, Option<String>)> {
    let sum = |kind, digits: &str| Some(Sum { kind, digest: bytes_of(digits)?, list: list.to_owned() });
    // `MD5 (a.bam) = d41d8..`
    if let Some((tag, rest)) = line.split_once(" (")
        && let Some(kind) = Kind::of_tag(tag)
    {
        let (name, digits) = rest.rsplit_once(") = ")?;
        let right = Kind::of_digits(digits.len(), kind == Kind::Blake3) == Some(kind);
        return Some((sum(kind, digits).filter(|_| right)?, Some(plain(name))));
    }
    // A backslash before the digest says that the name has escapes (GNU coreutils).
    let (line, escaped) = line.strip_prefix('\\').map_or((line, false), |line| (line, true));
    let (digits, name) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let is_blake3 = list.extension().is_some_and(|ending| ending == "b3" || ending == "b3sum" || ending == "blake3");
    let sum = sum(Kind::of_digits(digits.len(), is_blake3)?, digits)?;
    // One more space, or a star for what was read as binary.
    let name = name.strip_prefix([' ', '*']).unwrap_or(name);
    let name = if escaped { unescaped(name) } else { name.to_owned() };
    Some((sum, (!name.is_empty()).then(|| plain(&name))))
}

fn plain(name: &str) -> String {
    name.strip_prefix("./").unwrap_or(name).to_owned()
}

fn unescaped(name: &str) -> String {
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

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";
    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn read(name: &str, text: &str) -> Result<Sums, TransferError> {
        let mut sums = Sums::default();
        sums.add(Path::new(name), text).map(|()| sums)
    }

    #[test]
    fn lists_of_all_tools_are_read() {
        let gnu = read("MD5SUMS", &format!("{MD5}  a.txt\n{MD5} *sub/b.txt\r\n\\{MD5}  c\\nd\\\\\n")).unwrap();
        let mut names: Vec<&str> = gnu.named.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["a.txt", "c\nd\\", "sub/b.txt"]);
        let bsd = read("sums", &format!("# made today\nSHA256 (./a (1).txt) = {SHA256}\n")).unwrap();
        assert_eq!(bsd.named["a (1).txt"].kind, Kind::Sha256);
        assert_eq!(read("x.md5", &format!("{MD5}\n")).unwrap().alone.unwrap().kind, Kind::Md5);
        assert_eq!(read("x.b3", &format!("{SHA256}  a\n")).unwrap().named["a"].kind, Kind::Blake3);
        assert_eq!(read("x.sha1", &format!("{}  a", "0".repeat(40))).unwrap().named["a"].kind, Kind::Sha1);
        assert_eq!(read("x", &format!("{}  a", "0".repeat(128))).unwrap().named["a"].kind, Kind::Sha512);
        for wrong in
            ["", "# nothing\n", "hello", "123  a", &format!("{}  a", "g".repeat(32)), &format!("MD5 (a) = {SHA256}")]
        {
            assert!(matches!(read("x", wrong), Err(TransferError::Unlike { .. })), "{wrong}");
        }
        let twice = format!("{MD5}  a\n{}  a\n", MD5.replace('9', "8"));
        assert!(read("x", &twice).unwrap_err().to_string().contains("x, line 2"));
        assert!(read("x", &format!("{MD5}  a\n{MD5}  a\n")).is_ok());
    }

    #[test]
    fn a_checksum_is_that_of_the_longest_listed_name() {
        let text = format!("{MD5}  b.txt\n{SHA256}  one/b.txt\n");
        let sums = read("x", &text).unwrap();
        let kinds = |places: &[&str]| {
            sums.of(places).map(|found| found.iter().map(|sum| sum.as_ref().map(|sum| sum.kind)).collect::<Vec<_>>())
        };
        assert_eq!(kinds(&["run/one/b.txt", "run/b.txt", "c"]).unwrap(), [Some(Kind::Sha256), Some(Kind::Md5), None]);
        // One name for two files.
        assert!(kinds(&["run/b.txt", "other/b.txt"]).is_err());
        // None for any.
        assert!(kinds(&["c.txt", "ab.txt"]).is_err());
        let alone = read("x", MD5).unwrap();
        assert!(alone.of(&["any"]).unwrap()[0].is_some());
        assert!(alone.of(&["any", "other"]).is_err());
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
            let sum = read(name, digits).unwrap().alone.unwrap();
            sum.check(&file, &path).unwrap();
            let other = Sum { digest: vec![0; sum.digest.len()], ..sum };
            let problem = other.check(&file, &path).unwrap_err().to_string();
            assert!(problem.contains(digits) && problem.contains("00000000"), "{problem}");
        }
    }
}
