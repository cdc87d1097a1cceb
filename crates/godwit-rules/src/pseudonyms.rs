//! Pseudonyms: what stands for a value where its name may not be seen.
//!
//! A pseudonym is the SipHash-2-4 of 128 bits (Aumasson and Bernstein, 2012) of a value: it was made for short texts under a secret key. A
//! column of pseudonyms costs about what its hashes cost: letters are written into one buffer, and of values that come again soon, as the
//! names of both reads of a pair do, the letters are copied.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType};
use siphasher::sip128::SipHasher24;

/// Letters of a pseudonym: 128 bits, of which no two people are given the same.
pub(crate) const LETTERS: usize = 32;
/// What keys of pseudonyms are derived for.
const CONTEXT: &str = "godwit 2026-11 pseudonyms";
/// Values of a column that are remembered, by a mark of theirs: a power of two. Reads of a pair are some hundred rows apart.
const REMEMBERED: usize = 4096;
/// No row.
const NOBODY: u32 = u32::MAX;

/// The key of pseudonyms.
pub(crate) type Key = [u8; 16];

/// The key of pseudonyms that a secret gives.
pub(crate) fn key_of(secret: &[u8]) -> Key {
    let mut key = Key::default();
    blake3::Hasher::new_derive_key(CONTEXT).update(secret).finalize_xof().fill(&mut key);
    key
}

/// The pseudonym of a text.
pub(crate) fn pseudonym(key: &Key, text: &str) -> String {
    let mut letters = String::with_capacity(LETTERS);
    letters.extend(letters_of(key, text).map(char::from));
    letters
}

/// The letters of the pseudonyms of 256 bytes, two each.
const PAIRS: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

fn letters_of(key: &Key, text: &str) -> [u8; LETTERS] {
    let hash = SipHasher24::new_with_key(key).hash(text.as_bytes()).as_bytes();
    let mut letters = [0; LETTERS];
    for (pair, byte) in letters.as_chunks_mut().0.iter_mut().zip(hash) {
        *pair = PAIRS[usize::from(byte)];
    }
    letters
}

/// The pseudonyms of a column: those of its values as Arrow writes them.
pub(crate) fn pseudonyms(values: &ArrayRef, key: &Key) -> Result<ArrayRef, ArrowError> {
    // Many rows share a value where it is a dictionary's; each is looked at once.
    if let Some(dictionary) = values.as_any_dictionary_opt() {
        let shown = pseudonyms(dictionary.values(), key)?;
        let keys = cast(dictionary.keys(), &DataType::UInt64)?;
        return arrow_select::take::take(&shown, &keys, None);
    }
    if let Some(texts) = values.as_string_opt::<i32>() {
        return Ok(Arc::new(of_texts(texts, key)?));
    }
    let options = FormatOptions::default();
    let shown = ArrayFormatter::try_new(values, &options)?;
    let mut texts = StringBuilder::with_capacity(values.len(), 0);
    for row in 0..values.len() {
        match values.is_null(row) {
            true => texts.append_null(),
            false => texts.append_value(shown.value(row).try_to_string()?),
        }
    }
    Ok(Arc::new(of_texts(&texts.finish(), key)?))
}

/// Where a text is remembered: by its length and its ends, in which names differ.
fn place_of(text: &[u8]) -> usize {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let (head, tail) = match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => (word(text), 0),
    };
    let mixed = (head ^ (text.len() as u64)).wrapping_mul(ODD).rotate_left(29) ^ tail.wrapping_mul(ODD);
    (mixed.wrapping_mul(ODD) >> 40) as usize % REMEMBERED
}

fn of_texts(texts: &StringArray, key: &Key) -> Result<StringArray, ArrowError> {
    let shown = texts.len() - texts.null_count();
    if shown > i32::MAX as usize / LETTERS {
        return Err(ArrowError::OffsetOverflowError(shown.saturating_mul(LETTERS)));
    }
    let mut letters: Vec<u8> = Vec::with_capacity(shown * LETTERS);
    let mut offsets: Vec<i32> = Vec::with_capacity(texts.len() + 1);
    let mut remembered = [NOBODY; REMEMBERED];
    offsets.push(0);
    for row in 0..texts.len() {
        if texts.is_valid(row) {
            let text = texts.value(row);
            let last = &mut remembered[place_of(text.as_bytes())];
            match usize::try_from(*last).ok().filter(|last| *last < row && texts.value(*last) == text) {
                Some(last) => {
                    let start = offsets[last] as usize;
                    letters.extend_from_within(start..start + LETTERS);
                }
                None => {
                    letters.extend_from_slice(&letters_of(key, text));
                    *last = row as u32;
                }
            }
        }
        offsets.push(letters.len() as i32);
    }
    let offsets = OffsetBuffer::new(offsets.into());
    StringArray::try_new(offsets, Buffer::from_vec(letters), texts.nulls().cloned())
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int8Type;
    use arrow_array::{DictionaryArray, Int32Array, LargeStringArray, ListArray};
    use proptest::prelude::*;

    use super::*;

    fn key() -> Key {
        key_of(b"a secret of thirty-two bytes....")
    }

    /// What a pseudonym is, said as simply as can be.
    fn said(text: &str) -> String {
        let hash = SipHasher24::new_with_key(&key()).hash(text.as_bytes());
        hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn pseudonyms_are_those_of_the_authors_of_the_hash() {
        // Of `vectors_sip128` of their implementation: the key is 0, 1, .. 15, and so are the bytes of the text.
        let key: Key = std::array::from_fn(|at| at as u8);
        assert_eq!(pseudonym(&key, ""), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(pseudonym(&key, "\0"), "da87c1d86b99af44347659119b22fc45");
    }

    fn shown(values: ArrayRef) -> Vec<Option<String>> {
        let shown = pseudonyms(&values, &key()).unwrap();
        shown.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
    }

    #[test]
    fn pseudonyms_are_those_of_the_value_whatever_its_type() {
        assert_eq!(pseudonym(&key(), "x"), said("x"));
        let texts = vec![Some("12"), None, Some("x"), Some("12"), Some("")];
        let expected: Vec<Option<String>> = texts.iter().map(|text| text.map(said)).collect();
        assert_eq!(shown(Arc::new(StringArray::from(texts.clone()))), expected);
        assert_eq!(shown(Arc::new(LargeStringArray::from(texts.clone()))), expected);
        let dictionary: DictionaryArray<Int8Type> = texts.into_iter().collect();
        assert_eq!(shown(Arc::new(dictionary)), expected);
        assert_eq!(shown(Arc::new(Int32Array::from(vec![Some(12), None]))), [Some(said("12")), None]);
        let lists = ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>([Some(vec![Some(1)]), None]);
        assert_eq!(shown(Arc::new(lists)), [Some(said("[1]")), None]);
        assert_ne!(pseudonym(&key_of(b"another"), "x"), said("x"));
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_never_anybody_elses(
            // Texts that share their ends, so that they are looked for in one place, some of them again and again.
            numbers in proptest::collection::vec((0usize..40, 0usize..3), 0..400),
            first in 0usize..9,
        ) {
            let texts: Vec<Option<String>> = numbers.iter().map(|(number, kind)| match kind {
                0 => Some(format!("headhead{number:06}tailtail")),
                1 => Some("z".repeat(*number)),
                _ => (*number > 3).then(|| number.to_string()),
            }).collect();
            let array = StringArray::from(texts.clone());
            let first = first.min(array.len());
            let expected: Vec<Option<String>> = texts[first..].iter().map(|text| text.as_deref().map(said)).collect();
            prop_assert_eq!(shown(Arc::new(array.slice(first, texts.len() - first))), expected);
        }
    }
}
