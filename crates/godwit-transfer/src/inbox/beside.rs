//! Names of what belongs to a file that is not whole.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::manifest::{JOURNAL_ENDING, NEW_ENDING, PART_ENDING};

/// Bytes of a name, at most (`NAME_MAX` of Linux).
const MAX_NAME_BYTES: usize = 255;
/// Bytes of the longest ending.
const MAX_ENDING_BYTES: usize = JOURNAL_ENDING.len() + NEW_ENDING.len();
/// Bytes of a hash, in hexadecimal digits, which stand for the rest of a long name.
const HASH_DIGITS: usize = 32;

const _: () = assert!(PART_ENDING.len() <= MAX_ENDING_BYTES);

/// Returns the path beside a file: `.NAME` and the ending. A name that is too long for that is cut, and followed by its hash.
pub(super) fn beside(target: &Path, ending: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().as_bytes();
    let mut beside = vec![b'.'];
    let room = MAX_NAME_BYTES - beside.len() - MAX_ENDING_BYTES;
    if name.len() <= room {
        beside.extend_from_slice(name);
    } else {
        let kept = room - HASH_DIGITS - 1;
        // Names of characters stay names of characters.
        let kept = (0..=kept).rev().find(|end| !matches!(name[*end], 0x80..0xc0)).unwrap_or(kept);
        beside.extend_from_slice(&name[..kept]);
        beside.push(b'-');
        beside.extend_from_slice(&blake3::hash(name).to_hex().as_bytes()[..HASH_DIGITS]);
    }
    beside.extend_from_slice(ending.as_bytes());
    target.with_file_name(OsString::from_vec(beside))
}

/// Returns whether a file, or a part of it, exists.
pub(crate) fn is_begun(target: &Path) -> bool {
    target.exists() || beside(target, JOURNAL_ENDING).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_length_has_room_for_what_is_beside_it() {
        let name_of = |name: &str, ending: &str| {
            let beside = beside(&Path::new("/d").join(name), ending);
            assert_eq!(beside.parent(), Some(Path::new("/d")));
            beside.file_name().and_then(|name| name.to_str()).map(str::to_owned).unwrap()
        };
        // As earlier versions named them, wherever these could.
        let longest = "n".repeat(255 - 1 - MAX_ENDING_BYTES);
        assert_eq!(name_of(&longest, JOURNAL_ENDING), format!(".{longest}{JOURNAL_ENDING}"));
        for name in ["n".repeat(236), "n".repeat(255), "é".repeat(127), "字".repeat(85)] {
            let new = format!("{JOURNAL_ENDING}{NEW_ENDING}");
            for ending in [PART_ENDING, JOURNAL_ENDING, &new] {
                let found = name_of(&name, ending);
                assert!(found.len() <= 255 && found.ends_with(ending), "{found}");
            }
        }
        let (one, other) = (format!("{}1", "n".repeat(254)), format!("{}2", "n".repeat(254)));
        assert_ne!(name_of(&one, PART_ENDING), name_of(&other, PART_ENDING));
    }
}
