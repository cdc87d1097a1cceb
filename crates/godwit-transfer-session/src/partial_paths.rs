//! Names of the partial file and of the journal of a file that is incomplete.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Suffix of partial files, which have the data of incomplete copies. They are never listed.
pub const PART_SUFFIX: &str = ".godwit-part";
/// Suffix of the journals of partial files, which are never listed either.
pub const JOURNAL_SUFFIX: &str = ".godwit-journal";
/// Suffix that is appended to the name of a journal while the journal is being rewritten.
pub const NEW_JOURNAL_SUFFIX: &str = "-new";
/// Largest size of a file name, bytes (`NAME_MAX` of Linux).
const MAX_NAME_BYTES: usize = 255;
/// Size of the longest suffix of a partial file or journal, bytes.
const MAX_SUFFIX_BYTES: usize = JOURNAL_SUFFIX.len() + NEW_JOURNAL_SUFFIX.len();
/// Number of hexadecimal digits of the hash that replaces the end of a long file name.
const HASH_DIGITS: usize = 32;

const _: () = assert!(PART_SUFFIX.len() <= MAX_SUFFIX_BYTES);

/// Reports whether a path is that of a partial file or a journal: its name begins with a dot and has one of the
/// suffixes.
///
/// # Examples
///
/// ```
/// use godwit_transfer_session::partial_paths::is_partial_path;
///
/// assert!(is_partial_path("run7/.a.bam.godwit-part"));
/// // A file of a user.
/// assert!(!is_partial_path("run7/a.bam.godwit-part"));
/// ```
pub fn is_partial_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let journal_name = name.strip_suffix(NEW_JOURNAL_SUFFIX).unwrap_or(name);
    name.starts_with('.') && (name.ends_with(PART_SUFFIX) || journal_name.ends_with(JOURNAL_SUFFIX))
}

/// Returns the path of a file beside `target`: `.NAME` and the suffix `ending`. If the name would be too long, it is
/// truncated and followed by its hash.
pub fn partial_path(target: &Path, ending: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().as_bytes();
    let mut beside = vec![b'.'];
    let room = MAX_NAME_BYTES - beside.len() - MAX_SUFFIX_BYTES;
    if name.len() <= room {
        beside.extend_from_slice(name);
    } else {
        let kept = room - HASH_DIGITS - 1;
        // Truncate between UTF-8 characters, not within one.
        let kept = (0..=kept).rev().find(|end| !matches!(name[*end], 0x80..0xc0)).unwrap_or(kept);
        beside.extend_from_slice(&name[..kept]);
        beside.push(b'-');
        beside.extend_from_slice(&blake3::hash(name).to_hex().as_bytes()[..HASH_DIGITS]);
    }
    beside.extend_from_slice(ending.as_bytes());
    target.with_file_name(OsString::from_vec(beside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_begin_with_a_dot_are_those_of_partial_files() {
        for ending in [PART_SUFFIX, JOURNAL_SUFFIX, &format!("{JOURNAL_SUFFIX}{NEW_JOURNAL_SUFFIX}")] {
            assert!(is_partial_path(&format!(".x{ending}")) && is_partial_path(&format!("d/.x{ending}")), "{ending}");
            assert!(!is_partial_path(&format!("x{ending}")) && !is_partial_path(&format!(".d/x{ending}")), "{ending}");
        }
        assert!(!is_partial_path(".x") && !is_partial_path(".d.godwit-part/x"));
    }

    #[test]
    fn a_name_of_any_length_has_a_partial_path() {
        let name_of = |name: &str, ending: &str| {
            let beside = partial_path(&Path::new("/d").join(name), ending);
            assert_eq!(beside.parent(), Some(Path::new("/d")));
            beside.file_name().and_then(|name| name.to_str()).map(str::to_owned).unwrap()
        };
        // Short names must be the same as in earlier versions of godwit, so that copies that these versions started can
        // be resumed.
        let longest = "n".repeat(255 - 1 - MAX_SUFFIX_BYTES);
        assert_eq!(name_of(&longest, JOURNAL_SUFFIX), format!(".{longest}{JOURNAL_SUFFIX}"));
        for name in ["n".repeat(236), "n".repeat(255), "é".repeat(127), "字".repeat(85)] {
            let new = format!("{JOURNAL_SUFFIX}{NEW_JOURNAL_SUFFIX}");
            for ending in [PART_SUFFIX, JOURNAL_SUFFIX, &new] {
                let found = name_of(&name, ending);
                assert!(found.len() <= 255 && found.ends_with(ending), "{found}");
            }
        }
        let (one, other) = (format!("{}1", "n".repeat(254)), format!("{}2", "n".repeat(254)));
        assert_ne!(name_of(&one, PART_SUFFIX), name_of(&other, PART_SUFFIX));
    }
}
