//! Texts that fingerprints of runs hash, and that files on disk hold.
//!
//! Each function writes the bytes that earlier versions wrote. Names of types and fields may change; these texts may not, because a
//! run that was stopped is resumed only with an equal text. Only texts of the standard library are formatted with `{:?}`.

use std::collections::BTreeMap;

use godwit_model::{BlockId, Region};

use crate::journal::Fact;

/// Writes the text of facts, in their order.
pub fn facts_text(facts: &[Fact]) -> String {
    let text = |Fact { name, value }: &Fact| format!("Fact {{ name: {name:?}, value: {value:?} }}");
    list_text(facts.iter().map(text))
}

/// Writes the text of the reads of blocks, in the order of the blocks.
pub fn blocks_text(contents: &BTreeMap<BlockId, String>) -> String {
    let text = |(id, content): (&BlockId, &String)| format!("{}: {content:?}", id.fingerprint_text());
    format!("{{{}}}", contents.iter().map(text).collect::<Vec<_>>().join(", "))
}

/// Writes the text of regions, in their order.
pub fn regions_text(regions: &[Region]) -> String {
    list_text(regions.iter().map(Region::fingerprint_text))
}

/// Writes the text of a value that may be absent. `text`: that of the value itself.
pub fn option_text(text: Option<String>) -> String {
    text.map_or_else(|| "None".to_owned(), |text| format!("Some({text})"))
}

fn list_text(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_bytes_of_earlier_versions() {
        let fact = |name: &str, value: &str| Fact { name: name.to_owned(), value: value.to_owned() };
        let facts = [fact("--regions", "none"), fact("the command", "a \"b\"\tc")];
        let expected = r#"[Fact { name: "--regions", value: "none" }, Fact { name: "the command", value: "a \"b\"\tc" }]"#;
        assert_eq!(facts_text(&facts), expected);
        assert_eq!(facts_text(&[]), "[]");

        let block = |lane, ordinal, content: &str| (BlockId { lane, ordinal }, content.to_owned());
        let blocks = BTreeMap::from([block(1, 0, "ef"), block(0, 7, "ab")]);
        let expected = r#"{BlockId { lane: 0, ordinal: 7 }: "ab", BlockId { lane: 1, ordinal: 0 }: "ef"}"#;
        assert_eq!(blocks_text(&blocks), expected);
        assert_eq!(blocks_text(&BTreeMap::new()), "{}");

        let regions = [Region { contig: "chr1".to_owned(), start: 0, end: 5 }];
        assert_eq!(regions_text(&regions), r#"[Region { contig: "chr1", start: 0, end: 5 }]"#);
        assert_eq!([option_text(None), option_text(Some("1".to_owned()))], ["None", "Some(1)"]);
    }
}
