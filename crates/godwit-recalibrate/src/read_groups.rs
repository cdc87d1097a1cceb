//! Read groups and their names in reports.

use std::collections::HashMap;

/// The read groups of a header. Read groups with the same platform unit are one group in reports.
#[derive(Clone, Debug, Default)]
pub struct RecalibrationGroups {
    names: Vec<String>,
    index_by_id: HashMap<Vec<u8>, usize>,
}

impl RecalibrationGroups {
    /// Creates the list from the identifiers (`ID`) and platform units (`PU`) of the read groups. The name of a group in
    /// reports is its platform unit without spaces around it, or its identifier if it has none (GATK 4.6.2.0,
    /// `ReadGroupCovariate`).
    pub fn new<'h>(groups: impl IntoIterator<Item = (&'h str, Option<&'h str>)>) -> Self {
        let mut list = Self::default();
        for (id, platform_unit) in groups {
            // Cells of reports have no spaces around their texts.
            let name = platform_unit.unwrap_or(id).trim();
            let known = list.names.iter().position(|other| other == name);
            let at = known.unwrap_or_else(|| {
                list.names.push(name.to_owned());
                list.names.len() - 1
            });
            list.index_by_id.insert(id.as_bytes().to_vec(), at);
        }
        list
    }

    /// Returns the different names in reports, in the order of the header.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the index of the name of the read group with the identifier `id`.
    pub(crate) fn index(&self, id: &[u8]) -> Option<usize> {
        self.index_by_id.get(id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_the_same_platform_unit_are_one() {
        let groups = RecalibrationGroups::new([("a", Some("FC.1")), ("b", None), ("c", Some("FC.1 "))]);
        assert_eq!(groups.names(), ["FC.1", "b"]);
        assert_eq!((groups.index(b"a"), groups.index(b"b"), groups.index(b"c")), (Some(0), Some(1), Some(0)));
        assert_eq!(groups.index(b"FC.1"), None);
    }
}
