//! Arrays of counts as lists in JSON. serde itself supports only arrays of up to 32 entries.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer, const N: usize>(counts: &[u64; N], serializer: S) -> Result<S::Ok, S::Error> {
    counts.as_slice().serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(deserializer: D) -> Result<[u64; N], D::Error> {
    let counts = Vec::<u64>::deserialize(deserializer)?;
    let wrong = |counts: Vec<u64>| D::Error::custom(format!("{} counts instead of {N}", counts.len()));
    counts.try_into().map_err(wrong)
}
