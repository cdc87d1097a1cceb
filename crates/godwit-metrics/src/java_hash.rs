//! The order in which Java iterates over a `HashSet` of strings, which decides the order of some rows.

/// Buckets of a new `HashSet`.
const INITIAL_BUCKETS: usize = 16;

/// Returns the different items in the order of a Java `HashSet` into which they were inserted.
pub(crate) fn hash_set_order<'i>(items: impl IntoIterator<Item = &'i str>) -> Vec<String> {
    let mut unique: Vec<&str> = Vec::new();
    for item in items {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    let mut buckets = INITIAL_BUCKETS;
    while unique.len() * 4 > buckets * 3 {
        buckets *= 2;
    }
    // The sort is stable, and a bucket keeps the order of insertion.
    unique.sort_by_key(|item| {
        let hash = string_hash(item);
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    });
    unique.into_iter().map(str::to_owned).collect()
}

/// Returns the hash of a string as `String.hashCode` computes it.
fn string_hash(text: &str) -> u32 {
    text.encode_utf16().fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_the_order_of_their_buckets() {
        assert_eq!(string_hash("ACA"), 64_607);
        assert_eq!(hash_set_order(["b", "a", "b"]), ["a", "b"]);
        // 'p' and '`' share a bucket of 16: the one that was inserted first is first.
        assert_eq!(hash_set_order(["p", "`"]), ["p", "`"]);
    }
}
