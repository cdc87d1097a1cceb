//! Pseudonyms, which replace the values of masked columns.
//!
//! A pseudonym is the 128-bit SipHash-2-4 (Aumasson and Bernstein, 2012) of a value under a secret key. This function
//! was designed for short texts. Computing a column takes little more time than its hashes, because all hexadecimal
//! digits go into one buffer. The pseudonym of a value that occurs again soon, such as the name of both reads of a
//! pair, is copied.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType};
use siphasher::sip128::SipHasher24;

/// Number of hexadecimal digits in a pseudonym. It has 128 bits, so two values are not expected to have the same
/// pseudonym.
pub(crate) const PSEUDONYM_LETTERS: usize = 32;
/// Context string for deriving the key.
const KEY_CONTEXT: &str = "godwit 2026-11 pseudonyms";
/// Number of entries in the cache of recent values, a power of two. The two reads of a pair are some hundred rows
/// apart.
const CACHE_SLOTS: usize = 4096;
/// Value of a cache entry that is empty.
const EMPTY_SLOT: u32 = u32::MAX;

/// A secret key for pseudonyms.
pub(crate) type PseudonymKey = [u8; 16];

/// Derives the key for pseudonyms from the secret in the key file.
pub(crate) fn derive_key(secret: &[u8]) -> PseudonymKey {
    let mut key = PseudonymKey::default();
    blake3::Hasher::new_derive_key(KEY_CONTEXT).update(secret).finalize_xof().fill(&mut key);
    key
}

/// Returns the pseudonym of a text under a key.
pub(crate) fn pseudonym(key: &PseudonymKey, text: &str) -> String {
    let mut letters = String::with_capacity(PSEUDONYM_LETTERS);
    letters.extend(pseudonym_letters(key, text).map(char::from));
    letters
}

/// The two lower-case hexadecimal digits of each byte value.
const HEX_PAIRS: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

fn pseudonym_letters(key: &PseudonymKey, text: &str) -> [u8; PSEUDONYM_LETTERS] {
    let hash = SipHasher24::new_with_key(key).hash(text.as_bytes()).as_bytes();
    let mut letters = [0; PSEUDONYM_LETTERS];
    for (pair, byte) in letters.as_chunks_mut().0.iter_mut().zip(hash) {
        *pair = HEX_PAIRS[usize::from(byte)];
    }
    letters
}

/// Returns the pseudonyms of the values in a column. Values that are not text are first formatted by Arrow.
pub(crate) fn pseudonymize(values: &ArrayRef, key: &PseudonymKey) -> Result<ArrayRef, ArrowError> {
    // Several rows of a dictionary array share a value, so hash each value of the dictionary only once.
    if let Some(dictionary) = values.as_any_dictionary_opt() {
        let shown = pseudonymize(dictionary.values(), key)?;
        let keys = cast(dictionary.keys(), &DataType::UInt64)?;
        return arrow_select::take::take(&shown, &keys, None);
    }
    if let Some(texts) = values.as_string_opt::<i32>() {
        return Ok(Arc::new(pseudonymize_texts(texts, key)?));
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
    Ok(Arc::new(pseudonymize_texts(&texts.finish(), key)?))
}

/// Returns the index of the cache entry for a text. It depends on the length and both ends of the text, because read
/// names differ there.
fn cache_slot(text: &[u8]) -> usize {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let (head, tail) = match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => (word(text), 0),
    };
    let mixed = (head ^ (text.len() as u64)).wrapping_mul(ODD).rotate_left(29) ^ tail.wrapping_mul(ODD);
    (mixed.wrapping_mul(ODD) >> 40) as usize % CACHE_SLOTS
}

fn pseudonymize_texts(texts: &StringArray, key: &PseudonymKey) -> Result<StringArray, ArrowError> {
    let shown = texts.len() - texts.null_count();
    if shown > i32::MAX as usize / PSEUDONYM_LETTERS {
        return Err(ArrowError::OffsetOverflowError(shown.saturating_mul(PSEUDONYM_LETTERS)));
    }
    let mut letters: Vec<u8> = Vec::with_capacity(shown * PSEUDONYM_LETTERS);
    let mut offsets: Vec<i32> = Vec::with_capacity(texts.len() + 1);
    let mut remembered = [EMPTY_SLOT; CACHE_SLOTS];
    offsets.push(0);
    for row in 0..texts.len() {
        if texts.is_valid(row) {
            let text = texts.value(row);
            let last = &mut remembered[cache_slot(text.as_bytes())];
            match usize::try_from(*last).ok().filter(|last| *last < row && texts.value(*last) == text) {
                Some(last) => {
                    let start = offsets[last] as usize;
                    letters.extend_from_within(start..start + PSEUDONYM_LETTERS);
                }
                None => {
                    letters.extend_from_slice(&pseudonym_letters(key, text));
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

    fn key() -> PseudonymKey {
        derive_key(b"a secret of thirty-two bytes....")
    }

    /// Computes a pseudonym by the simplest method, for comparison.
    fn expected_pseudonym(text: &str) -> String {
        let hash = SipHasher24::new_with_key(&key()).hash(text.as_bytes());
        hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn pseudonyms_are_those_of_the_authors_of_the_hash() {
        // Test vector `vectors_sip128` of the reference implementation: the bytes of the key and of the text are 0, 1,
        // .. 15.
        let key: PseudonymKey = std::array::from_fn(|at| at as u8);
        assert_eq!(pseudonym(&key, ""), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(pseudonym(&key, "\0"), "da87c1d86b99af44347659119b22fc45");
    }

    fn pseudonyms_of_column(values: ArrayRef) -> Vec<Option<String>> {
        let shown = pseudonymize(&values, &key()).unwrap();
        shown.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
    }

    #[test]
    fn pseudonyms_are_those_of_the_value_whatever_its_type() {
        assert_eq!(pseudonym(&key(), "x"), expected_pseudonym("x"));
        let texts = vec![Some("12"), None, Some("x"), Some("12"), Some("")];
        let expected: Vec<Option<String>> = texts.iter().map(|text| text.map(expected_pseudonym)).collect();
        assert_eq!(pseudonyms_of_column(Arc::new(StringArray::from(texts.clone()))), expected);
        assert_eq!(pseudonyms_of_column(Arc::new(LargeStringArray::from(texts.clone()))), expected);
        let dictionary: DictionaryArray<Int8Type> = texts.into_iter().collect();
        assert_eq!(pseudonyms_of_column(Arc::new(dictionary)), expected);
        assert_eq!(
            pseudonyms_of_column(Arc::new(Int32Array::from(vec![Some(12), None]))),
            [Some(expected_pseudonym("12")), None]
        );
        let lists = ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>([Some(vec![Some(1)]), None]);
        assert_eq!(pseudonyms_of_column(Arc::new(lists)), [Some(expected_pseudonym("[1]")), None]);
        assert_ne!(pseudonym(&derive_key(b"another"), "x"), expected_pseudonym("x"));
    }

    proptest! {
        #[test]
        fn a_cached_pseudonym_is_never_that_of_another_value(
            // Texts that share a cache entry, because their ends are equal. Some texts occur several times.
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
            let expected: Vec<Option<String>> = texts[first..].iter().map(|text| text.as_deref().map(expected_pseudonym)).collect();
            prop_assert_eq!(pseudonyms_of_column(Arc::new(array.slice(first, texts.len() - first))), expected);
        }
    }
}
